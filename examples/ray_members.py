"""One Ray task per ensemble member, with a fraction of a GPU each, merged into one run.

    python examples/ray_members.py --data digits --members 4 --gpus 0.25 --out runs/ray

Members are independent (no coupling, nothing shared), and their random streams are addressed by their numbers: the
merged run has the bits of one run of all members on the same engine. A task that dies is tried again and goes on from
its checkpoint. On several machines `--out` must be a folder that all of them see.
"""

import argparse
from pathlib import Path
from typing import Any

import murmuration as mm


def train_member(net: str, data: str, out: str, number: int, settings: dict[str, Any]) -> str:
    """The run directory of one member, trained or continued there."""
    path = Path(out) / f"member-{number:04d}"
    if (path / "run.json").exists():
        mm.resume(path)
    else:
        mm.fit(net, data, members=1, first_member=number, out=path, progress=False, **settings)
    return str(path)


def train_on_ray(
    net: str, data: str, out: str, members: int, *, cpus: float = 1, gpus: float = 0, retries: int = 3, **settings: Any
) -> mm.Ensemble:
    """The merged ensemble of as many Ray tasks as there are members; Ray is initialised by the caller."""
    import ray

    task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=retries)(train_member)
    if gpus:
        settings = {**settings, "device": "cuda"}
    parts = ray.get([task.remote(net, data, out, number, settings) for number in range(members)])
    return mm.merge_runs(parts, out=Path(out) / "merged", device="cpu")


def main() -> None:
    import ray

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--net", default="small-cnn")
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--gpus", type=float, default=0, help="of a task, such as 0.25")
    parser.add_argument("--out", default="runs/ray")
    chosen = parser.parse_args()
    ray.init(ignore_reinit_error=True)
    ensemble = train_on_ray(chosen.net, chosen.data, chosen.out, chosen.members, gpus=chosen.gpus, epochs=chosen.epochs)
    print(ensemble)
    print(f"written: {Path(chosen.out) / 'merged'}")


if __name__ == "__main__":
    main()
