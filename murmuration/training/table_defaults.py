"""Defaults for tables: the network and the settings of training that a caller left out, by the size of the table.

A multilayer perceptron of this package that is named keeps its name and gets the settings; other networks do not.

They were chosen on the tables of the choosing group in benchmarks/table_sets.py; docs/results/tables.md says how. A
table is rows of numbers and categories, from a pandas table, a file of columns or an array (N, D).
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from murmuration.core.dynamics import Dynamics
from murmuration.core.recipe import POINT, Recipe
from murmuration.data import Data
from murmuration.data.builtin import is_toy
from murmuration.data.preparation import ArrayPreparation, TablePreparation
from murmuration.data.streamed import Streamed
from murmuration.likelihoods import REGRESSION
from murmuration.models.nets.table import nets

SMALL = 1000  # training rows below which batches are smaller and nothing of the embedding of numbers is trained
CHANNELS = 2048  # of bins, at most
BINS, FEWEST_BINS = 6, 3  # of small tables
TRAINED_BINS, FEWEST_TRAINED_BINS = 48, 8
WAIT = 100  # steps without a better validation NLL before training stops, and at least 16 epochs
OUTLIERS = 0.02  # of regressions: heavy tails
FEW_ROWS, MOST_INFLATION = 40, 1.3  # the noise of regressions is inflated by 1 + 40 / rows, at most 1.3
STEPS = 10_000  # at most; early stopping ends training long before
LARGE, EPOCHS = 10_000, 25  # training rows from which the learning rate decays, over this number of epochs
HUGE = 50_000  # training rows from which batches are twice as large, with a higher rate and half the steps


@dataclass(frozen=True)
class TableDefaults:
    """A network by name, fields of `Plan`, and the loss of a regression by name."""

    net: str
    plan: dict[str, Any]
    loss: str | None = None


def table_defaults(rows: int, columns: int) -> TableDefaults:
    """Return the defaults for a table of this number of training rows and prepared columns.

    >>> table_defaults(400, 10).net, table_defaults(4000, 10).net
    ('mlp:hidden=256x2,dropout=0.1,embed=piecewise,bins=6', 'mlp:hidden=128x2,embed=piecewise-relu,bins=48')
    >>> table_defaults(4000, 100).net, table_defaults(4000, 500).net
    ('mlp:hidden=128x2,embed=piecewise-relu,bins=20', 'mlp:hidden=256x2,dropout=0.1,embed=piecewise,bins=4')
    >>> [(plan["steps"], plan["batch_size"]) for plan in (table_defaults(n, 9).plan for n in (9999, 10_000, 68_000))]
    [(10000, 128), (1975, 128), (5000, 256)]
    """
    bins, batch = CHANNELS // max(columns, 1), 32 if rows < SMALL else 128
    trained = rows >= SMALL and bins >= FEWEST_TRAINED_BINS
    if trained:
        net = f"mlp:hidden=128x2,embed=piecewise-relu,bins={min(TRAINED_BINS, bins)}"
    else:
        bins = min(BINS, bins, rows)
        embed = f",embed=piecewise,bins={bins}" if bins >= FEWEST_BINS else ""
        net = f"mlp:hidden=256x2,dropout=0.1{embed}"
    plan: dict[str, Any] = {
        "steps": STEPS,
        "batch_size": batch,
        "schedule": "constant",
        "optimizer": "adamw",
        "stop_by": "ensemble",
    }
    plan |= {"lr": 2e-3, "weight_decay": 0.3} if trained else {"lr": 1e-3, "weight_decay": 0.01}
    plan["patience"] = max(16, math.ceil(WAIT / max(1, rows // batch)))
    if rows >= HUGE:
        plan |= {"batch_size": 2 * batch, "lr": 1.5 * plan["lr"], "steps": STEPS // 2}
    if rows >= LARGE:
        steps = EPOCHS * math.ceil(rows / plan["batch_size"])
        plan |= {"steps": min(plan["steps"], steps), "schedule": "hold-linear:0.01"}
    return TableDefaults(net, plan)


def table_noise(rows: int) -> str:
    """Return the loss of a regression by its training rows: heavy-tailed Gaussian noise, inflated in predictions.

    >>> [table_noise(rows).removeprefix("gaussian:outliers=0.02,") for rows in (100, 300, 4000)]
    ['inflation=1.3', 'inflation=1.13', 'inflation=1.01']
    """
    inflation = min(MOST_INFLATION, 1 + FEW_ROWS / max(rows, 1))
    return f"gaussian:outliers={OUTLIERS:g},inflation={round(inflation, 2):g}"


def defaults_for(data: Data, recipe: Recipe, net: Any = None) -> TableDefaults | None:
    """Return the defaults for data, a recipe and the network by name, if one is given; None where the usual ones apply.

    These are data that are not a table, the built-in toys, networks without `table_settings`, and recipes
    with a coupling, a dynamics, a sum of shared gradients or random weights, which have settings that suit them.
    """
    entry = nets().get(net.partition(":")[0]) if isinstance(net, str) else None
    if net is not None and (entry is None or not entry.table_settings):
        return None
    preparation, x, sharing = data.preparation, data.train.prepared, recipe.sharing
    rows = isinstance(preparation, ArrayPreparation) and len(preparation.shape) == 1
    readable = isinstance(x, Tensor) or (isinstance(x, Streamed) and x.of_files)
    if is_toy(data.name) or not readable or not (rows or isinstance(preparation, TablePreparation)):
        return None
    plain = recipe.coupling is None and recipe.weights == POINT and type(recipe.dynamics) is Dynamics
    if not plain or sharing.gamma != 1 or sharing.frozen or recipe.loss is not None:
        return None
    defaults = table_defaults(len(x), x.shape[1])
    return replace(defaults, net=net or defaults.net, loss=table_noise(len(x)) if data.task == REGRESSION else None)


def filled_settings(defaults: TableDefaults, requested: dict[str, Any]) -> dict[str, Any]:
    """Return requested fields of `Plan`, with the defaults where nothing is requested.

    Epochs that are given leave no budget of steps, nor does training without early stopping (patience=None), and
    another optimizer has no learning rate or weight decay of these defaults.
    """
    omitted = ["steps"] if "epochs" in requested or requested.get("patience", 1) is None else []
    if requested.get("optimizer", defaults.plan["optimizer"]) != defaults.plan["optimizer"]:
        omitted += ["lr", "weight_decay"]
    settings = {name: value for name, value in defaults.plan.items() if name not in omitted}
    return {**settings, **requested}
