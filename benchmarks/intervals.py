"""CPU seconds of intervals: all scores of a classifier on 10,000 inputs, and detection scores of 1.2 million inputs.

    python benchmarks/intervals.py     one JSON object on standard output

The scores of three members and ten classes come from one bootstrap of 1,000 resamples; the average precisions of
detection from 500 resamples of counts in cells. The median of some repeats is printed, in CPU seconds of this process.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from murmuration.evaluation.metrics import detection, score_examples
from murmuration.likelihoods import Categorical
from murmuration.prediction.predictive import Predictive

INPUTS, MEMBERS, CLASSES = 10_000, 3, 10
FAMILIAR, FOREIGN, RESAMPLES = 1_000_000, 200_000, 500


def score_intervals() -> Callable[[], object]:
    rng = torch.Generator().manual_seed(0)
    pred = Predictive(torch.randn(MEMBERS, INPUTS, CLASSES, generator=rng), Categorical(CLASSES))
    return score_examples(pred, torch.randint(CLASSES, (INPUTS,), generator=rng)).scores


def detection_intervals() -> Callable[[], object]:
    rng = np.random.default_rng(0)
    familiar, foreign = rng.normal(size=FAMILIAR), rng.normal(size=FOREIGN) + 1
    return lambda: detection(familiar, foreign, resamples=RESAMPLES)


def cpu_seconds(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return round(statistics.median(times), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    works = {"scores_of_10000_inputs": score_intervals, "detection_of_1200000_inputs": detection_intervals}
    print(json.dumps({"cpu_seconds": {name: cpu_seconds(make(), repeats) for name, make in works.items()}}, indent=2))


if __name__ == "__main__":
    main()
