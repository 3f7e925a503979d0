"""The role of every parameter of a network under a recipe: what it is in the network, and how the recipe treats it.

A parameter is own, shared or fixed; a Gaussian or a point estimate; its channels may be scaled by factors or a mask,
and its inputs dropped. If a recipe that acts on kernels does not act on a parameter, the reason is recorded.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from murmuration.core.population import Population, populate
from murmuration.core.recipe import Recipe
from murmuration.core.weights import KernelTrace, NetworkWeights, trace_kernels
from murmuration.core.weights.family import INTO, OUT
from murmuration.core.weights.gaussian import STD_PARAM
from murmuration.system.errors import Misuse, unknown
from murmuration.system.progress import html_table
from murmuration.system.records import from_json

KINDS = {  # of the kernel trace -> in words
    "kernel": "multiplied with inputs",
    "bias": "added to the outputs of a kernel",
    "embedding": "an embedding: a table whose rows are looked up, or layers of single columns of numbers",
    "norm": "the scale or shift of a norm",
    "added": "added to activations or joined with them, as positions and class tokens are",
    "input": "a learned input of a layer",
    "scale": "scales activations",
    "other": "in another operator",
    "unused": "in no operator of the traced passes",
}
MAX_LISTED = 6  # names of one group in a summary


@dataclass(frozen=True)
class ParameterRole:
    """What one parameter is, and how the recipe treats it.

    Attributes:
        name: Name of the parameter.
        shape: Its shape in one member.
        kind: A key of `KINDS`.
        sharing: "own", "shared" or "fixed".
        gaussian: Whether it is a Gaussian, not a point estimate.
        scaled: Channels that factors or a mask scale: "in", "out", or "in, out".
        dropped: Dropout rate of its inputs.
        reason: Why the recipe does not act on it, if it could have.
    """

    name: str
    shape: tuple[int, ...]
    kind: str
    sharing: str
    gaussian: bool = False
    scaled: str = ""
    dropped: float = 0.0
    reason: str = ""


@dataclass(frozen=True)
class ParameterRoles:
    """The roles of all parameters, as a table.

    >>> net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> from murmuration.core.recipe import make_recipe
    >>> print(roles_before_training(net, make_recipe("bayes-last-layer"), torch.zeros(2, 4)))
    parameter  shape  kind    sharing  weights   scaled  dropped  reason
    0.weight   3 x 4  kernel  own      point                      not in where=last
    0.bias     3      bias    own      point                      not in where=last
    2.weight   2 x 3  kernel  own      Gaussian
    2.bias     2      bias    own      Gaussian


    Attributes:
        rows: One role for each parameter, in the order of the network.
        refusal: The message with which the recipe refuses the network, if it does.
    """

    rows: tuple[ParameterRole, ...]
    refusal: str = ""

    def __iter__(self) -> Iterator[ParameterRole]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> ParameterRole:
        rows = {row.name: row for row in self.rows}
        if name not in rows:
            raise unknown("parameter", name, rows)
        return rows[name]

    def __str__(self) -> str:
        cells = [list(COLUMNS), *(list(columns.values()) for columns in self.columns())]
        widths = [max(len(row[at]) for row in cells) for at in range(len(COLUMNS))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
        return "\n".join(line.rstrip() for line in (*lines, *([f"refused: {self.refusal}"] if self.refusal else [])))

    def _repr_html_(self) -> str:
        rows = {row["parameter"]: ", ".join(cell for cell in list(row.values())[1:] if cell) for row in self.columns()}
        return html_table(self.refusal or self.summary, rows)

    def columns(self) -> list[dict[str, str]]:
        """Return the rows as text, by column."""
        rows = []
        for row in self.rows:
            weights, dropped = "Gaussian" if row.gaussian else "point", f"{row.dropped:g}" if row.dropped else ""
            shape = " x ".join(map(str, row.shape))
            cells = (row.name, shape, row.kind, row.sharing, weights, row.scaled, dropped, row.reason)
            rows.append(dict(zip(COLUMNS, cells, strict=True)))
        return rows

    def to_frame(self) -> Any:
        """Return the table as a pandas DataFrame, one row for each parameter."""
        import pandas as pd

        return pd.DataFrame([asdict(row) for row in self.rows], columns=list(ParameterRole.__dataclass_fields__))

    @property
    def summary(self) -> str:
        """How many parameters the recipe acts on, and in which way."""
        ways = {
            "Gaussian": [row.name for row in self if row.gaussian],
            "scaled by members": [row.name for row in self if row.scaled],
            "with dropped inputs": [row.name for row in self if row.dropped],
            "shared": [row.name for row in self if row.sharing == "shared"],
            "fixed": [row.name for row in self if row.sharing == "fixed"],
        }
        parts = [
            f"{len(names)} {way}" + (f" ({', '.join(names)})" if len(names) <= MAX_LISTED else "")
            for way, names in ways.items()
            if names
        ]
        return f"{len(self)} parameters, " + (f"of which {'; '.join(parts)}" if parts else "own and point")

    def to_json(self) -> list[dict[str, Any]]:
        """Return the rows for a JSON file."""
        return [asdict(row) for row in self.rows]

    @staticmethod
    def from_json(record: list[dict[str, Any]]) -> "ParameterRoles":
        """Return the roles of rows from a JSON file."""
        rows = from_json(record, tuple[ParameterRole, ...], "record of parameters", (ParameterRole,))
        return ParameterRoles(rows)


COLUMNS = ("parameter", "shape", "kind", "sharing", "weights", "scaled", "dropped", "reason")


def roles_of(trace: KernelTrace, population: Population, weights: NetworkWeights, recipe: Recipe) -> ParameterRoles:
    """Return the roles of the parameters of a population.

    Args:
        trace: Kernels of the network.
        population: Its members.
        weights: The weight family bound to the network.
        recipe: The recipe.

    Returns:
        One role for each parameter.
    """
    kinds, operators = dict(trace.kinds), dict(trace.unsupported)
    forms = {kernel.name: kernel.form for kernel in trace.kernels}
    tensors = {**population.own, **population.shared, **population.buffers}
    groups = {"own": population.own, "shared": population.shared, "fixed": population.fixed}

    def role(name: str, sharing: str, tensor: Tensor) -> ParameterRole:
        shape, kind = tuple(tensor.shape if sharing == "shared" else tensor.shape[1:]), kinds.get(name, "other")
        scaled = ", ".join(word for word, part in (("in", INTO), ("out", OUT)) if name + part in tensors)
        gaussian, dropped = name + STD_PARAM in tensors, weights.spec.rates.get(name, 0.0)
        row = ParameterRole(name, shape, kind, sharing, gaussian, scaled, dropped)
        return replace(row, reason=reason_for(row))

    def reason_for(row: ParameterRole) -> str:
        if row.sharing == "fixed":
            return "requires_grad=False"
        if not recipe.needs_kernels:
            return ""
        if row.gaussian:
            per_pass = row.name in operators or forms.get(row.name, "plain") != "plain"
            return "drawn once a pass, whatever the estimator" if per_pass else ""
        if row.scaled or row.dropped:
            return ""
        if row.name in operators:
            return f"multiplied by {operators[row.name]}" if operators[row.name] else KINDS["unused"]
        if weights.spec.dropout == "always" and row.kind == "kernel":
            return "dropout of the net itself is active" if trace.has_dropout else "its inputs are those of the network"
        selection = getattr(recipe.weights, "where", "all")
        if row.kind in ("kernel", "bias") and selection != "all":
            return f"not in where={selection}"
        return "" if row.kind == "kernel" else KINDS[row.kind]

    placed = [(name, kind, t) for kind, named in groups.items() for name, t in named.items() if ":" not in name]
    order = {name: index for index, name in enumerate(kinds)}
    placed.sort(key=lambda entry: order.get(entry[0], len(order)))
    return ParameterRoles(tuple(role(*entry) for entry in placed))


def roles_before_training(module: nn.Module, recipe: Recipe, x: Tensor) -> ParameterRoles:
    """Return the roles that a recipe would give to the parameters of a network.

    Args:
        module: The network.
        recipe: The recipe.
        x: Inputs (N, ...) like those of training.

    Returns:
        One role for each parameter. If the recipe refuses the network, `refusal` is its message and the roles are
        incomplete.
    """
    trace, refusal = trace_kernels(module, x), ""
    try:
        recipe.sharing.check_trace(trace)
        recipe.weights.check_trace(trace)
    except Misuse as error:
        refusal = str(error)
    fixed = {name for name, parameter in module.named_parameters() if not parameter.requires_grad}
    shared = recipe.sharing.predicate(module, trace)
    population = populate(lambda _: module, recipe.members or 2, shared, fixed.__contains__)

    def stream(member: int) -> torch.Generator:
        return torch.Generator().manual_seed(member)

    with suppress(Misuse):
        if population.members > 1:
            population = recipe.sharing.add_factors(population, trace, stream)
        population = recipe.weights.init(population, trace, stream, recipe.dynamics.prepare(len(x)).initial_std())
    weights = recipe.weights.in_network(trace, bias_inside=recipe.sharing.bias_inside)
    return replace(roles_of(trace, population, weights, recipe), refusal=refusal)
