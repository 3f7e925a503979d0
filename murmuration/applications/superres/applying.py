"""Picture files in; enlarged files, maps of their uncertainty and numbers out."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from murmuration.applications.superres.colours import finished, in_bytes, open_planes, write_png
from murmuration.applications.superres.enlarging import Enlarged, enlarge, scale_of
from murmuration.ensemble import Ensemble
from murmuration.errors import Misuse

BRIGHTEST = 0.995  # the quantile of standard deviations that is white in a map


def apply(
    ensemble: Ensemble,
    paths: Sequence[str | Path],
    out: str | Path,
    *,
    draws: int | None = None,
    show: Callable[[str, int, int], None] = lambda text, done, total: None,
) -> list[dict[str, Any]]:
    """Write each picture enlarged, with a map of its standard deviations, and return their numbers."""
    scale_of(ensemble)
    files = {Path(path): f"{Path(path).stem}-x{scale_of(ensemble)}" for path in paths}
    names = list(files.values())
    for name in names:
        if names.count(name) > 1:
            raise Misuse(f"two of the pictures would be written as {name}.png: enlarge them into two directories")
    for path in files:
        open_planes(path)  # before anything is written; not kept, for there may be many
    place = Path(out)
    place.mkdir(parents=True, exist_ok=True)
    numbers = []
    for done, path in enumerate(files):
        show(path.name, done, len(files))
        planes = open_planes(path)
        found = enlarge(ensemble, planes.luma, draws=draws)
        record = numbers_of(path, planes.luma, found)
        write_png(place / f"{files[path]}.png", finished(planes, found.mean, scale_of(ensemble)))
        write_png(place / f"{files[path]}-std.png", in_bytes(found.std, record["white_std"]))
        numbers.append({**record, "enlarged": f"{files[path]}.png", "map": f"{files[path]}-std.png"})
    return numbers


def numbers_of(path: Path, small: Tensor, found: Enlarged) -> dict[str, Any]:
    """Sizes, and what the standard deviations of a picture are, in parts of white."""
    std = found.std.flatten().double()
    ordered = std.sort().values

    def quantile(share: float) -> float:  # torch's own refuses more than 16 million numbers
        return float(ordered[min(int(share * len(ordered)), len(ordered) - 1)])

    return {
        "picture": str(path),
        "width": small.shape[1],
        "height": small.shape[0],
        "enlarged_width": found.mean.shape[1],
        "enlarged_height": found.mean.shape[0],
        "std": {"mean": float(std.mean()), "median": quantile(0.5), "q95": quantile(0.95), "max": quantile(1.0)},
        "white_std": quantile(BRIGHTEST),
    }
