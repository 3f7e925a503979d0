"""What an ensemble took to train, takes to keep, and takes to ask."""

import math
import time

from torch import Tensor

from murmuration.ensemble import Ensemble

TIMED = 1000  # inputs whose prediction is timed, at most


def cost_of(ensemble: Ensemble, x: Tensor) -> dict[str, float]:
    """What the ensemble took to train, takes to keep, and takes to ask about inputs like x (N, ...)."""
    return {
        "seconds": float(ensemble.manifest.get("seconds", math.nan)),
        "parameters": sum(group.population.parameters_stored() for group in ensemble.groups),
        "ms_per_prediction": ms_per_prediction(ensemble, x[:TIMED]),
        "members": ensemble.members,
    }


def ms_per_prediction(ensemble: Ensemble, x: Tensor) -> float:
    """Milliseconds an input takes when inputs (N, ...) are predicted together; the better of two runs."""
    times = []
    for _ in range(2):
        start = time.perf_counter()
        ensemble.predict(x)
        times.append(time.perf_counter() - start)
    return 1e3 * min(times) / len(x)
