"""Low-loss connections between two points of a space: chains of optimised nodes, and trained curves.

Everything here is a function of an `Objective`, the loss of a vector and its gradient: of a network on training
examples, or of any differentiable function.

The nodes of a tunnel start on the straight line and descend the loss, orthogonally to the line, until they lie in the
valley (after Fort and Jastrzebski 2019, whose constants are not public). A Bezier or polygonal curve w(t) has fixed
ends, and its bends minimise the mean of the loss over t (Garipov et al. 2018).
"""

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import pairwise
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from murmuration.core.engines import engine
from murmuration.data import Split
from murmuration.likelihoods import Categorical
from murmuration.studies.cells import Arrays, Cells
from murmuration.studies.landscape import Array, Show, scored, silent
from murmuration.studies.weight_space import PointOutputs, Points
from murmuration.system.errors import Misuse, unknown
from murmuration.system.streams import ALL_MEMBERS, generator, global_stream

Mode = Literal["orthogonal", "free"]
CurveKind = Literal["bezier", "polygon"]
BETAS, EPSILON = (0.9, 0.999), 1e-8  # of Adam
MOMENTUM = 0.9  # of the descent of curves
HALVINGS = 20  # a segment of the first nodes can be halved so often with random streams of its own
PIECES = 10  # parts in which the training of a curve is kept


class Objective(Protocol):
    """A loss of vectors (P,)."""

    def gradient(self, vector: Tensor, address: int, step: int) -> Tensor:
        """Return the gradient (P,) of the loss, or of its estimate for the address and the step of a descent."""
        ...

    def losses(self, vectors: Iterable[Tensor]) -> Array:
        """Return the loss (m,) at each of m vectors, the same for the same vector."""
        ...


@dataclass(frozen=True)
class TrainingLoss:
    """The mean negative log-likelihood of training examples under a network, as a function of its weights.

    Gradients are those of mini-batches in training mode, without dropout unless asked for; the loss itself is that of
    evaluation mode, with batch-norm statistics of the vector's own, over at most `landscape.SCORED` examples.
    """

    points: Points
    train: Split
    batch_size: int = 128
    seed: int = 0
    dropout: bool = False

    @cached_property
    def _module(self) -> nn.Module:
        module = copy.deepcopy(self.points.space.module).train()
        for layer in module.modules():
            if isinstance(layer, nn.modules.dropout._DropoutNd):
                layer.train(self.dropout)
        return module

    def gradient(self, vector: Tensor, address: int, step: int) -> Tensor:
        rows = self._rows(address, step)
        point = vector.detach().requires_grad_()
        parameters = {name: value[0] for name, value in self.points.space.unflatten(point.unsqueeze(0)).items()}
        buffers = {name: value[0].clone() for name, value in self.points.buffers.items()}
        inputs = (self.train.prepared[rows],)
        with global_stream(self.seed, "noise", address, step, redirect=self.dropout):
            outputs = torch.func.functional_call(self._module, parameters | buffers, inputs)
        judge = self.points.likelihood or Categorical(outputs.shape[-1])
        loss = -judge.log_prob(outputs.unsqueeze(0), self.train.y[rows]).mean()
        return torch.autograd.grad(loss, point)[0]

    def _rows(self, address: int, step: int) -> Tensor:
        """Return the examples of a step.

        Every example once in an epoch, in an order of its own; the last few are left out.
        """
        size = min(self.batch_size, len(self.train))
        epoch, batch = divmod(step, len(self.train) // size)
        return _order(self.seed, address, epoch, len(self.train))[batch * size : (batch + 1) * size]

    def losses(self, vectors: Iterable[Tensor]) -> Array:
        points = list(vectors)
        runner = engine("loop" if len(points) == 1 else "threads")  # a single network runs on all cores
        examples = scored(self.train)
        outputs = PointOutputs(self.points, examples.prepared, self.train.prepared, runner)
        return outputs.scores(points, examples.y).loss.numpy()


@lru_cache(maxsize=2)
def _order(seed: int, address: int, epoch: int, count: int) -> Tensor:
    return torch.randperm(count, generator=generator(seed, "tunnel", address, epoch))


def decay(fraction: float) -> float:
    """Return the factor of the learning rate after a fraction of the steps.

    1, from 0.5 to 0.9 falling to 0.01, then 0.01.

    >>> [round(decay(fraction), 6) for fraction in (0.0, 0.5, 0.7, 0.9, 1.0)]
    [1.0, 1.0, 0.505, 0.01, 0.01]
    """
    return 1.0 - 0.99 * min(max((fraction - 0.5) / 0.4, 0.0), 1.0)


@dataclass(frozen=True)
class Descent:
    """Settings of the descent of one node: Adam, whose learning rate falls as `decay` says."""

    steps: int = 300
    lr: float = 1e-3
    checks: int = 5  # how often the exact loss is computed on the way; the best vector is kept


@dataclass(frozen=True, eq=False)
class Node:
    """A vertex of a chain: its place from 0 to 1, its vector and exact loss, and the loss where its descent began."""

    t: float
    vector: Tensor  # (P,)
    loss: float
    start_loss: float


def descend(
    start: Tensor, objective: Objective, settings: Descent, address: int, direction: Tensor | None = None
) -> tuple[Tensor, float, float]:
    """Return the best vector of a descent from `start`, its exact loss, and that of the start.

    With a unit vector `direction` (P,), its component of every update is removed: direction . vector stays as it was.
    """
    vector, mean, square = start.clone(), torch.zeros_like(start), torch.zeros_like(start)
    axis = None if direction is None else direction.double()
    level = 0.0 if axis is None else axis @ start.double()
    first = float(objective.losses([start])[0])
    best, lowest = start, first
    due = {round((turn + 1) * settings.steps / settings.checks) for turn in range(settings.checks)}
    for step in range(settings.steps):
        gradient = objective.gradient(vector, address, step)
        mean.lerp_(gradient, 1 - BETAS[0])
        square.lerp_(gradient.square(), 1 - BETAS[1])
        corrected = [moment / (1 - beta ** (step + 1)) for moment, beta in zip((mean, square), BETAS, strict=True)]
        rate = settings.lr * decay(step / settings.steps)
        vector = vector - rate * corrected[0] / (corrected[1].sqrt() + EPSILON)
        if axis is not None:
            vector = vector + ((level - axis @ vector.double()) * axis).to(vector)
        if step + 1 in due:
            loss = float(objective.losses([vector])[0])
            best, lowest = (vector, loss) if loss < lowest else (best, lowest)
    return best, lowest, first


def tunnel_nodes(
    first: Tensor,
    last: Tensor,
    objective: Objective,
    *,
    nodes: int = 7,
    settings: Descent = Descent(),  # noqa: B008 - frozen
    mode: Mode = "orthogonal",
    depth: int = 2,
    tolerance: float = 0.01,
    per_segment: int = 9,
    cells: Cells | None = None,
    show: Show = silent,
) -> list[Node]:
    """Yield a chain of low loss from `first` to `last`: both ends unchanged, and the nodes between them in order.

    `nodes` nodes start at equal distances on the straight line. In the mode "orthogonal" a node keeps its place along
    the line; "free" nodes move anywhere. A segment whose loss exceeds the line between the losses of its ends by more
    than `tolerance`, at one of `per_segment` points inside, is given a node in its middle, `depth` times at most.
    """
    if mode not in ("orthogonal", "free"):
        raise unknown("mode", mode, ("orthogonal", "free"))
    if nodes < 1:
        raise Misuse(f"nodes={nodes}: expected at least 1 between the two networks")
    store = cells or Cells(None, {})
    begin, end = objective.losses([first, last]).tolist()
    left_end, right_end = Node(0.0, first, begin, begin), Node(1.0, last, end, end)

    def optimised(before: Node, after: Node, t: float) -> Node:
        """Return a node that starts on the line from one vertex to another."""
        place = (t - before.t) / (after.t - before.t)
        start, along = torch.lerp(before.vector, after.vector, place), after.vector.double() - before.vector.double()
        length = along.norm()
        direction = along / length if mode == "orthogonal" and length else None
        address = round(t * (nodes + 1) * 2**HALVINGS)

        def compute() -> Arrays:
            vector, loss, start_loss = descend(start, objective, settings, address, direction)
            return {"vector": vector.numpy(), "losses": np.array([loss, start_loss])}

        arrays = store(f"node-{address}", compute)
        return Node(t, torch.from_numpy(arrays["vector"]), *arrays["losses"].tolist())

    def refined(before: Node, after: Node, remaining: int) -> Iterator[Node]:
        """Yield the nodes to insert between two vertices."""
        if not remaining or segment_excess(before, after, objective, per_segment) <= tolerance:
            return
        show("refining", nodes, nodes)
        middle = optimised(before, after, (before.t + after.t) / 2)
        yield from refined(before, middle, remaining - 1)
        yield middle
        yield from refined(middle, after, remaining - 1)

    chain = [left_end]
    for turn in range(nodes):
        show(f"node {turn + 1}", turn, nodes)
        chain.append(optimised(left_end, right_end, (turn + 1) / (nodes + 1)))
    chain.append(right_end)
    inserted = [list(refined(before, after, depth)) for before, after in pairwise(chain)]
    show("", nodes, nodes)
    return [node for vertex, more in zip(chain, [*inserted, []], strict=True) for node in (vertex, *more)]


def segment_excess(start: Node, end: Node, objective: Objective, inside: int) -> float:
    """Return the largest excess of the loss inside a segment over the line between the losses of its ends."""
    places = [(turn + 1) / (inside + 1) for turn in range(inside)]
    losses = objective.losses(torch.lerp(start.vector, end.vector, place) for place in places)
    line = np.array([(1 - place) * start.loss + place * end.loss for place in places])
    return float((losses - line).max())


def in_order(nodes: Sequence[Node]) -> bool:
    """Return whether the vertices of a chain advance along the line between its ends, which free nodes need not."""
    along = nodes[-1].vector.double() - nodes[0].vector.double()
    places = [float(along @ node.vector.double()) for node in nodes]
    return all(before < after for before, after in pairwise(places))


def bezier_coefficients(t: float, control: int) -> list[float]:
    """Return weights of the control points at t: binom(n-1, j) t^j (1-t)^(n-1-j).

    >>> bezier_coefficients(0.5, 3)
    [0.25, 0.5, 0.25]
    """
    last = control - 1
    return [math.comb(last, j) * t**j * (1 - t) ** (last - j) for j in range(control)]


def polygon_coefficients(t: float, control: int) -> list[float]:
    """Return weights of the vertices at t: max(0, 1 - |t (n-1) - j|).

    >>> polygon_coefficients(0.75, 3)
    [0.0, 0.5, 0.5]
    """
    return [max(0.0, 1.0 - abs(t * (control - 1) - j)) for j in range(control)]


Coefficients = Callable[[float, int], list[float]]  # t, number of control points -> their weights
COEFFICIENTS: dict[CurveKind, Coefficients] = {"bezier": bezier_coefficients, "polygon": polygon_coefficients}


def curve_point(control: Sequence[Tensor], kind: CurveKind, t: float) -> Tensor:
    """Return the vector (P,) at t of a curve with control points (P,); the ends at 0 and 1 to the last bit."""
    weights = COEFFICIENTS[kind](t, len(control))
    parts = [weight * vector for weight, vector in zip(weights, control, strict=True) if weight]
    return torch.stack(parts).sum(0) if len(parts) > 1 else parts[0]


def train_curve(
    first: Tensor,
    last: Tensor,
    objective: Objective,
    *,
    kind: CurveKind = "bezier",
    control: int = 3,
    steps: int = 1000,
    lr: float = 0.02,
    weight_decay: float = 0.0,
    seed: int = 0,
    cells: Cells | None = None,
    show: Show = silent,
) -> list[Tensor]:
    """Return control points (P,) of a curve from `first` to `last` whose mean loss over t is low.

    The bends start on the straight line. Every step draws one t, uniform in [0, 1], and descends the loss at w(t), plus
    weight_decay / 2 |w(t)|², by SGD with momentum 0.9 and a learning rate that falls as `decay` says.
    """
    if kind not in COEFFICIENTS:
        raise unknown("kind of curve", kind, COEFFICIENTS)
    if control < 3:
        raise Misuse(f"control={control}: expected at least 3 control points, two of which are the ends")
    store = cells or Cells(None, {})
    bends = torch.stack([torch.lerp(first, last, j / (control - 1)) for j in range(1, control - 1)])
    state = {"bends": bends.numpy(), "momentum": np.zeros_like(bends.numpy())}

    def piece(state: Arrays, begin: int, end: int) -> Arrays:
        bends, momentum = (torch.from_numpy(state[name]).clone() for name in ("bends", "momentum"))
        for step in range(begin, end):
            t = torch.rand((), generator=generator(seed, "tunnel", ALL_MEMBERS, step), dtype=torch.float64).item()
            vector = curve_point([first, *bends, last], kind, t)
            gradient = objective.gradient(vector, 0, step) + weight_decay * vector
            weights = torch.tensor(COEFFICIENTS[kind](t, control)[1:-1], dtype=bends.dtype)
            momentum = MOMENTUM * momentum + weights[:, None] * gradient
            bends = bends - lr * decay(step / steps) * momentum
        return {"bends": bends.numpy(), "momentum": momentum.numpy()}

    edges = [round(turn * steps / PIECES) for turn in range(PIECES + 1)]
    for turn, (begin, end) in enumerate(pairwise(edges)):
        show(f"{kind} curve", turn, PIECES)
        state = store(f"{kind}-{turn}", partial(piece, state, begin, end))
    show("", PIECES, PIECES)
    return [first, *torch.from_numpy(state["bends"]), last]
