"""Embeddings of numbers inside networks for tables.

A network for tables takes prepared rows (N, D): numbers, and zeros and ones for categories and missing values. An
embedding turns each column of numbers into several channels and leaves the others as they are: a linear map of a
one-hot vector is the embedding of a category already. Columns of numbers are those with edges of bins, the quantiles of
the training rows, which `fit` computes (`column_edges`) and the run stores with the network.

- `piecewise` (Gorishniy et al. 2022): the number itself, and for each bin its position between the edges, 0 before and
  1 behind it; a dense layer makes any piecewise linear function of a number from these. Nothing is trained.
- `piecewise-relu` (Q-LR in Gorishniy et al. 2022): ReLU of a trained linear map of that encoding, one for each column.
- `periodic` (PLR-lite, Gorishniy et al. 2024): ReLU of a dense layer, the same for all columns, of sines and cosines of
  trained frequencies.

They equal those of `rtdl_num_embeddings`, apart from the number itself in front of its bins. Outside of the range of
the training rows the outer bins go on there; here the number does, for one more range at most. All are made of
operators that run on many members at once.
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from murmuration.system.errors import Misuse, unknown

Edges = Sequence[Sequence[float]]  # (D, bins + 1) of each prepared column, ascending; none: not a number
EMBEDDINGS = ("none", "piecewise", "piecewise-relu", "periodic")
BINNED, TRAINED, WAVES = ("piecewise", "piecewise-relu"), ("piecewise-relu", "periodic"), ("periodic",)
OPTIONS = {"bins": BINNED, "size": TRAINED, "frequencies": WAVES, "sigma": WAVES}  # and the embeddings that use them
MOST_ROWS = 100_000  # from which edges are computed: the first


def column_edges(x: Tensor, bins: int) -> tuple[tuple[float, ...], ...]:
    """Compute the edges of bins for an embedding of numbers: the distinct quantiles of each column.

    Args:
        x: Prepared training rows (N, D).
        bins: Number of bins per column.

    Returns:
        Ascending edges of each column; none for columns of at most two values.

    >>> column_edges(torch.tensor([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 1.0], [4.0, 0.0]]), 2)
    ((0.0, 2.0, 4.0), ())
    """
    levels = torch.linspace(0, 1, bins + 1, dtype=torch.float64)
    columns = x.flatten(1).double().unbind(1)
    edges = (torch.quantile(column, levels).unique() if len(column.unique()) > 2 else () for column in columns)
    return tuple(tuple(map(float, quantiles)) if len(quantiles) > 1 else () for quantiles in edges)


class ClippedLines(nn.Module):
    """Channels slope * x + offset, cut off below `low` and above `high`, of tensors that are not trained."""

    slope: nn.Parameter
    offset: nn.Parameter
    low: nn.Parameter
    high: nn.Parameter

    def __init__(self, values: list[Any]) -> None:  # (..., 4) the slope, offset, low and high of every channel
        super().__init__()
        tensors = torch.tensor(values, dtype=torch.float64).float().unbind(-1)
        for name, tensor in zip(("slope", "offset", "low", "high"), tensors, strict=True):
            self.register_parameter(name, nn.Parameter(tensor.clone(), requires_grad=False))

    def channels(self, x: Tensor) -> Tensor:
        """As torch.clamp, which takes several times as long with bounds that are tensors."""
        return torch.minimum(torch.maximum(x * self.slope + self.offset, self.low), self.high)


class PiecewiseLinear(ClippedLines):
    """Rows (N, D) -> (N, C): every column, and behind a column of numbers its piecewise linear encoding.

    The encoding of x in bins with edges e_0 < ... < e_B is (x - e_{b-1}) / (e_b - e_{b-1}), cut off below 0 and above
    1. Without `numbers` the first bin is not cut off below and the last one not above. Its tensors are (C,).
    """

    def __init__(self, edges: Edges, numbers: bool = True) -> None:
        rows = [row for column, ends in enumerate(edges) for row in channels_of(column, ends, numbers)]
        super().__init__([row[1:] for row in rows])
        self.columns = [int(row[0]) for row in rows]  # (C,) the column of each channel
        self.chunks = [self.columns.count(column) for column in dict.fromkeys(self.columns)]

    def forward(self, x: Tensor) -> Tensor:
        return self.channels(x[..., self.columns])


def channels_of(column: int, edges: Sequence[float], number: bool) -> list[tuple[float, ...]]:
    """Return (column, slope, offset, smallest, largest value) of the channels of one column: the number and its bins.

    Beside the number its bins end at 0 and 1, and it ends itself one range of the training rows beyond them: the slopes
    of narrow outer bins would make absurd predictions of a value that is far outside, such as one in another unit.
    """
    if not edges:
        return [(column, 1.0, 0.0, -math.inf, math.inf)]
    beyond = edges[-1] - edges[0]
    channels: list[tuple[float, ...]] = [(column, 1.0, 0.0, edges[0] - beyond, edges[-1] + beyond)] if number else []
    for at, (low, high) in enumerate(pairwise(edges)):
        ends = (0.0 if at or number else -math.inf, 1.0 if at < len(edges) - 2 or number else math.inf)
        channels.append((column, 1 / (high - low), -low / (high - low), *ends))
    return channels


class PiecewiseReLU(ClippedLines):
    """Rows (N, D) -> (N, C): `size` channels for every column of numbers, then the other columns as they are.

    relu(W e + b) with a W and a b for each column and e = (x, its piecewise linear encoding). At first only x counts.
    Rows are the last axis inside, so that products of small matrices are long and nothing is copied to transpose it.
    Tensors of bins are (D, B, 1), with zeros where a column has fewer bins.
    """

    is_embedding = True  # W is not a kernel: it has no rank-one factors, masks or Gaussian weights

    def __init__(self, edges: Edges, size: int) -> None:
        numbers = [column for column, ends in enumerate(edges) if ends]
        channels = [channels_of(column, edges[column], True) for column in numbers]
        most = max(map(len, channels))
        padded = [[row[1:] for row in rows] + [(0.0,) * 4] * (most - len(rows)) for rows in channels]
        super().__init__([[[row] for row in rows] for rows in padded])  # (D, B, 1, 4)
        self.numbers = numbers
        self.plain_columns = [column for column, ends in enumerate(edges) if not ends]
        self.chunks = [size] * len(numbers) + [1] * len(self.plain_columns)
        self.weight = nn.Parameter(torch.empty(len(channels), size, most))
        self.bias = nn.Parameter(torch.empty(len(channels), size, 1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights of the numbers and the biases, twice as wide as published; those of the bins are zero."""
        bound = 2 * self.weight.shape[1] ** -0.5
        nn.init.zeros_(self.weight)
        nn.init.uniform_(self.weight[..., 0], -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        numbers = x[..., self.numbers] if self.plain_columns else x
        numbers = numbers.transpose(-1, -2).contiguous().unsqueeze(-2)  # (D, 1, N)
        encoded = self.channels(numbers)  # (D, B, N)
        embedded = torch.relu(self.weight @ encoded + self.bias).flatten(-3, -2)  # (D size, N)
        if self.plain_columns:
            embedded = torch.cat([embedded, x[..., self.plain_columns].transpose(-1, -2)], -2)
        return embedded.transpose(-1, -2)


class Periodic(nn.Module):
    """Rows (N, D) -> (N, C): `size` channels for every column of numbers, then the other columns as they are.

    v = 2 pi w x with `frequencies` trained w for each column, relu(W [cos v, sin v] + b).
    """

    def __init__(self, edges: Edges, frequencies: int, sigma: float, size: int) -> None:
        super().__init__()
        numbers = [column for column, ends in enumerate(edges) if ends]
        self.repeated = [column for column in numbers for _ in range(frequencies)]
        self.plain_columns = [column for column, ends in enumerate(edges) if not ends]
        self.shape, self.sigma = (len(numbers), frequencies), sigma
        self.chunks = [size] * len(numbers) + [1] * len(self.plain_columns)
        self.frequencies = nn.Parameter(torch.empty(len(numbers) * frequencies))
        self.linear = nn.Linear(2 * frequencies, size)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the frequencies from a normal distribution, cut off at three standard deviations."""
        nn.init.trunc_normal_(self.frequencies, 0.0, self.sigma, -3 * self.sigma, 3 * self.sigma)

    def forward(self, x: Tensor) -> Tensor:
        waves = (x[..., self.repeated] * self.frequencies * (2 * math.pi)).unflatten(-1, self.shape)
        embedded = torch.relu(self.linear(torch.cat([torch.cos(waves), torch.sin(waves)], -1)))
        return torch.cat([embedded.flatten(-2), x[..., self.plain_columns]], -1)


Embedding = PiecewiseLinear | PiecewiseReLU | Periodic


def check_embedding(options: dict[str, Any]) -> None:
    """Refuse an unknown embedding, and options of one that are not positive or that it does not use."""
    embed = options.get("embed", "none")
    if embed not in EMBEDDINGS:
        raise unknown("embedding of numbers (embed=)", embed, EMBEDDINGS)
    for name, users in OPTIONS.items():
        if name not in options:
            continue
        if not options[name] > 0:
            raise Misuse(f"{name}={options[name]} of an embedding of numbers: expected a positive number")
        if embed not in users:
            instead = " or ".join(f"embed={user}" for user in users)
            raise Misuse(f"{name}={options[name]} is not used with embed={embed}: leave it out, or write {instead}")


def embedding(
    width: int,
    edges: Edges | None = None,
    *,
    embed: str = "none",
    bins: int = 16,
    frequencies: int = 16,
    sigma: float = 0.1,
    size: int = 8,
) -> tuple[list[nn.Module], int]:
    """Build the embedding of rows (N, width) as a list of layers, none or one, and return its number of channels.

    `bins` of piecewise linear encodings; `frequencies` of periodic embeddings for each column, of standard deviation
    `sigma` at first; the `size` of the embedding of a column, of `piecewise-relu` and `periodic`.
    """
    if embed == "none" or (edges is not None and not any(edges)):
        return [], width
    if edges is None or len(edges) != width:
        got = "without edges" if edges is None else f"with the edges of {len(edges)} columns"
        raise Misuse(f"embed={embed} {got} for {width} columns: write edges=column_edges(x, {bins}) for rows x (N, D)")
    makers: dict[str, Callable[[], Embedding]] = {
        "piecewise": lambda: PiecewiseLinear(edges),
        "piecewise-relu": lambda: PiecewiseReLU(edges, size),
        "periodic": lambda: Periodic(edges, frequencies, sigma, size),
    }
    layer = makers[embed]()
    return [layer], sum(layer.chunks)
