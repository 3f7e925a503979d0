"""How fast images are corrupted: ours against the package imagecorruptions, corruption by corruption in one run.

    python benchmarks/corruptions.py                          a table
    python benchmarks/corruptions.py --json                   one JSON object on standard output
    python benchmarks/corruptions.py --peer-python PYTHON     the package lives in another environment

The package needs:  pip install imagecorruptions opencv-python-headless scikit-image "setuptools<80"
It is from 2021 and calls functions that numpy and scikit-image have renamed since; `mended` gives them back, unchanged
in what they do. It corrupts one image a call, with the severities of ImageNet-C: more work than those of CIFAR-10-C for
some corruptions (glass blur scatters further and oftener), less for others. Glass blur and frost are most of its time,
so the median of the nineteen ratios stands beside the ratio of the totals.

Both get the same 32 x 32 colour images, synthetic or (--data) from a binary file of CIFAR-10, and one thread. A
contender does all five severities of a corruption, then the other does; its first image of each, in which tables are
made, is not timed. The package is timed on fewer images and its time scaled in proportion.
With several repeats the median counts. Ratios are what counts: absolute times on a shared machine are noise.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

SEVERITIES = range(1, 6)
SIDE, SEED = 32, 0
CIFAR_RECORD = 1 + 3 * SIDE * SIDE  # a label, then the planes red, green, blue
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
Timer = Callable[[str], float]


def synthetic(count: int) -> np.ndarray:
    """Pictures (N, 32, 32, 3) uint8: smooth colours with a little grain, about as compressible as photographs."""
    generator = np.random.default_rng(SEED)
    coarse = generator.uniform(0, 255, (count, 5, 5, 3))
    places = np.linspace(0, 3.999, SIDE)
    low, share = places.astype(int), (places % 1)[:, None, None]
    rows = coarse[:, low] * (1 - share) + coarse[:, low + 1] * share
    share = share[:, 0]
    smooth = rows[:, :, low] * (1 - share) + rows[:, :, low + 1] * share
    return np.clip(smooth + generator.normal(0, 6, smooth.shape), 0, 255).astype(np.uint8)


def cifar(path: Path, count: int) -> np.ndarray:
    """The first images (N, 32, 32, 3) uint8 of a binary file of CIFAR-10."""
    records = np.fromfile(path, dtype=np.uint8).reshape(-1, CIFAR_RECORD)[:count, 1:]
    return np.ascontiguousarray(records.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1))


def own_timer(images: np.ndarray) -> Timer:
    """A function of an official name: seconds for five severities of it on all images."""
    from murmuration.data.shift.images import corrupt

    def seconds(name: str) -> float:
        for severity in SEVERITIES:
            corrupt(images[:1], name, severity)
        start = time.perf_counter()
        for severity in SEVERITIES:
            corrupt(images, name, severity)
        return time.perf_counter() - start

    return seconds


def mended() -> Callable[..., np.ndarray]:
    """The package's `corrupt`, with the names it expects of numpy and scikit-image."""
    import warnings

    warnings.simplefilter("ignore")
    np.float_ = np.float64  # type: ignore[attr-defined]  # noqa: NPY201 - it is the name that is missing
    import imagecorruptions
    from imagecorruptions import corruptions
    from skimage.filters import gaussian

    def gaussian_as_before(image: np.ndarray, sigma: float, multichannel: bool = False, **others: object) -> np.ndarray:
        return gaussian(image, sigma, channel_axis=-1 if multichannel else None, **others)

    corruptions.gaussian = gaussian_as_before
    return imagecorruptions.corrupt


def serve_peer(path: Path) -> None:
    """The package's own process: a name in, seconds for five severities out."""
    corrupt, images = mended(), np.load(path, allow_pickle=False)
    np.random.seed(SEED)  # noqa: NPY002 - the package draws from the global generator
    print("ready", flush=True)
    for line in sys.stdin:
        name = line.strip()
        for severity in SEVERITIES:
            corrupt(images[0], corruption_name=name, severity=severity)
        start = time.perf_counter()
        for severity in SEVERITIES:
            for image in images:
                corrupt(image, corruption_name=name, severity=severity)
        print(time.perf_counter() - start, flush=True)


@contextmanager
def peer_process(python: str, images: np.ndarray) -> Iterator[Timer]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "images.npy"
        np.save(path, images)
        command = [python, __file__, "--serve-peer", str(path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
            assert process.stdin
            assert process.stdout
            if process.stdout.readline().strip() != "ready":
                raise SystemExit(
                    f"{python} cannot run imagecorruptions: see above, and the docstring for what to install"
                )

            def ask(name: str) -> float:
                process.stdin.write(name + "\n")
                return float(process.stdout.readline())

            yield ask
            process.stdin.close()


def official_names() -> list[str]:
    from murmuration.data.shift.images import CORRUPTIONS

    return [name.removesuffix("_approximate") for name in CORRUPTIONS]


def run(images: np.ndarray, peer_images: int, repeats: int, python: str) -> dict[str, object]:
    """The record of a race over all corruptions."""
    peer_images = min(peer_images, len(images))
    ours, scale = own_timer(images), len(images) / peer_images
    found: dict[str, dict[str, float]] = {}
    with peer_process(python, images[:peer_images]) as peer:
        for name in official_names():
            times = [(ours(name), scale * peer(name)) for _ in range(repeats)]
            own_s, peer_s = (statistics.median(column) for column in zip(*times, strict=True))
            found[name] = {"ours_s": own_s, "peer_s": peer_s, "ratio": peer_s / own_s}
            print(f"{name}: {own_s:.2f} s, peer {peer_s:.1f} s", file=sys.stderr)
    total, peer_total = (sum(entry[key] for entry in found.values()) for key in ("ours_s", "peer_s"))
    done = len(images) * len(found) * len(SEVERITIES)
    return {
        "images": len(images),
        "severities": len(SEVERITIES),
        "peer": "imagecorruptions",
        "peer_images": peer_images,
        "peer_seconds_scaled_by": scale,
        "repeats": repeats,
        "ours_total_s": total,
        "peer_total_s": peer_total,
        "ratio": peer_total / total,
        "median_ratio": statistics.median(entry["ratio"] for entry in found.values()),
        "ours_images_per_second": done / total,
        "peer_images_per_second": done / peer_total,
        "corruptions": found,
    }


def table(result: dict) -> str:
    lines = [f"{result['images']} images, five severities; seconds of ours, of {result['peer']}, ratio"]
    for name, entry in result["corruptions"].items():
        lines.append(f"{name:20s} {entry['ours_s']:8.2f} {entry['peer_s']:9.1f} {entry['ratio']:7.1f}x")
    lines.append(f"{'all':20s} {result['ours_total_s']:8.2f} {result['peer_total_s']:9.1f} {result['ratio']:7.1f}x")
    lines.append(f"{'median ratio':20s} {result['median_ratio']:26.1f}x")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--peer-images", type=int, default=500, help="images the package is timed on")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--peer-python", default=sys.executable, help="the interpreter that has imagecorruptions")
    parser.add_argument("--data", type=Path, help="a binary file of CIFAR-10 instead of synthetic images")
    parser.add_argument("--serve-peer", type=Path, metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve_peer:
        serve_peer(options.serve_peer)
        return
    os.environ |= ONE_THREAD
    images = cifar(options.data, options.images) if options.data else synthetic(options.images)
    result = run(images, options.peer_images, options.repeats, options.peer_python)
    print(json.dumps(result, indent=2) if options.json else table(result))


if __name__ == "__main__":
    main()
