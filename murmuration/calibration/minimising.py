"""Where a function is least: on a line without derivatives, or near a point with them."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

POINTS = 13  # of the first scan; odd, so that the middle of the line is one of them
LINE_TOLERANCE = 1e-7  # near the limit at which values in double precision tell a minimum from its neighbours
SLOPE_TOLERANCE = 1e-6  # per example: a thousandth of what sampling leaves undecided with a million examples
STEPS = 500
MEMORY = 30  # steps that L-BFGS remembers: vectors of a few thousand numbers at most


def least_on_line(loss: Callable[[float], float], *, low: float, high: float) -> float:
    """The x in [low, high] where the loss is least: a scan, then Brent's method between the neighbours of its best.

    The scan finds the right valley when there are several; valleys narrower than its spacing may be missed.

    >>> round(least_on_line(lambda x: (x - 0.3) ** 2, low=-4.0, high=4.0), 6)
    0.3
    """
    from scipy.optimize import minimize_scalar

    grid = np.linspace(low, high, POINTS)
    losses = [loss(float(x)) for x in grid]
    best = int(np.argmin(losses))
    bracket = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, POINTS - 1)])
    found = minimize_scalar(loss, bounds=bracket, method="bounded", options={"xatol": LINE_TOLERANCE})
    return float(found.x) if found.fun < losses[best] else float(grid[best])


def least_near(
    loss: Callable[[Tensor], tuple[float, Tensor]], start: Tensor, *, low: float = -np.inf, high: float = np.inf
) -> Tensor:
    """The point (D,) where the loss is least on the way down from `start`, by L-BFGS within [low, high].

    `loss` gives the value and the slope (D,). The result is never worse than the start.
    """
    from scipy.optimize import minimize

    def value_and_slope(point: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = loss(torch.from_numpy(point.copy()).to(start.device))
        return value, slope.cpu().numpy()

    options = {"maxiter": STEPS, "gtol": SLOPE_TOLERANCE, "ftol": 1e-14, "maxcor": MEMORY}
    bounds = [(low, high)] * len(start)
    first = start.double().cpu().numpy()
    found = minimize(value_and_slope, first, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return torch.from_numpy(np.array(found.x)).to(start.device)
