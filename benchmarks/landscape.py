"""How fast a network is evaluated at the points of a plane of weights: ours against a plain loop, interleaved.

    python benchmarks/landscape.py            a table
    python benchmarks/landscape.py --json     one JSON object on standard output

A 21 x 21 plane through the origin and two networks (SmallCNN), 2,000 images of CIFAR-10's size. The plain loop is what
one writes by hand: `load_state_dict` and forward passes of contiguous tensors without gradients, at the fastest of
three batch sizes. Both evaluate every row of the plane, row by row in turn, and both reuse freed memory
(`murmuration.system.memory`); `plane_speedup` is the median over rows of plain over ours. Floating-point operations are
those of convolutions and products, counted by torch; the GEMM peak is measured in the same run.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch
from members import gemm_gflops
from timing import PAUSE
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from murmuration.models.nets import build_net
from murmuration.studies.weight_space import PointOutputs, Points, points_of
from murmuration.system.memory import keep_freed_memory

NET, SHAPE, CLASSES = "small-cnn", (3, 32, 32), 10
GRID, IMAGES = 21, 2000
BATCHES = (128, 512, 2000)  # that the plain loop chooses among


def rows_of_plane(points: Points, grid: int) -> list[list[Tensor]]:
    """The weight vectors (P,) of every row of a plane through the origin and two networks."""
    first, second = points.vectors
    steps = torch.linspace(-0.2, 1.2, grid)
    return [[a * first + b * second for a in steps] for b in steps]


def plain_loop(points: Points, x: Tensor, batch: int) -> Callable[[list[Tensor]], Tensor]:
    """The loop one writes by hand: the outputs (m, N, K) of a network at some vectors."""
    net: nn.Module = build_net(NET, SHAPE, CLASSES).eval()

    @torch.no_grad()
    def run(vectors: list[Tensor]) -> Tensor:
        found = []
        for vector in vectors:
            net.load_state_dict({name: t[0] for name, t in points.space.unflatten(vector.unsqueeze(0)).items()})
            found.append(torch.cat([net(part) for part in x.split(batch)]))
        return torch.stack(found)

    return run


def turn(run: Callable[[list[Tensor]], Tensor], vectors: list[Tensor]) -> float:
    """Seconds for some vectors, after a pause in which the last contender's threads go to sleep, and a first vector."""
    time.sleep(PAUSE)
    run(vectors[:1])
    start = time.perf_counter()
    run(vectors)
    return time.perf_counter() - start


def measure(grid: int, images: int) -> dict[str, object]:
    """Both contenders on every row of the plane, in turn."""
    torch.manual_seed(0)
    points = points_of([build_net(NET, SHAPE, CLASSES) for _ in range(2)])
    x = torch.randn(images, *SHAPE)
    rows, evaluate = rows_of_plane(points, grid), PointOutputs(points, x)

    def ours(vectors: list[Tensor]) -> Tensor:
        return torch.stack(list(evaluate(vectors)))

    loops = {batch: plain_loop(points, x, batch) for batch in BATCHES}
    tried = {batch: turn(loop, rows[0][:3]) for batch, loop in loops.items()}
    batch = min(tried, key=lambda each: tried[each])
    expected = loops[batch](rows[0][:3])
    difference = (ours(rows[0][:3]) - expected).abs().max() / expected.abs().max()
    plain_times, our_times, peaks = [], [], []
    for row in rows:
        plain_times.append(turn(loops[batch], row))
        our_times.append(turn(ours, row))
        peaks.append(gemm_gflops(1))
    with FlopCounterMode(display=False) as counter:
        loops[batch](rows[0][:1])
    rate = counter.get_total_flops() * grid / statistics.median(our_times) / 1e9
    return {
        "plane_speedup": statistics.median(p / o for p, o in zip(plain_times, our_times, strict=True)),
        "fraction_of_peak": rate / max(peaks),
        "plane_seconds": {"plain": sum(plain_times), "ours": sum(our_times)},
        "plain_batch": batch,
        "gflops": rate,
        "gemm_gflops": max(peaks),
        "largest_relative_difference": float(difference),
        "grid": grid,
        "images": images,
        "net": NET,
        "threads": torch.get_num_threads(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--grid", type=int, default=GRID)
    parser.add_argument("--images", type=int, default=IMAGES)
    options = parser.parse_args()
    keep_freed_memory()
    found = measure(options.grid, options.images)
    if options.json:
        return print(json.dumps(found, indent=2))
    for name, value in found.items():
        print(f"{name:30} {value}")


if __name__ == "__main__":
    main()
