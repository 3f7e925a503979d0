"""What happens between members in a step: all have shown themselves, and each learns how it should move.

A member that shows nonsense, because it diverged, is neither seen nor pushed, and what it feels stays with it.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm

from murmuration.coupling import Coupling
from murmuration.engines import Team
from murmuration.population import Named

FARTHEST = 1e15  # a signature longer than this is nonsense: squares of its distances would overflow

Pulled = tuple[list[Tensor], list[Tensor]]  # gradients of own tensors (m, ...) each, and of shared ones


@dataclass(frozen=True)
class Local:
    """What one group of m members did alone."""

    members: slice
    own: Named  # leaves of the graph
    shared: Named
    losses: Tensor  # (m,)
    active: Tensor  # (m,) bool: who still moves; the others must not pull at what all share
    signature: Tensor | None  # (m, ...)
    buffers_before: Named  # as they were, in case the step must be undone
    pulled: Pulled | None = None  # gradients of the losses, where they are known before the meeting


@dataclass(frozen=True)
class Met:
    """What came of a meeting."""

    gradients: list[Pulled]  # one a group
    seconds: float  # that members spent on each other
    felt: dict[str, float] = field(default_factory=dict)  # what it was like, if somebody wants to know


def meet(
    team: Team, coupling: Coupling, places: list[Local], *, step: int, measured: bool, decays: Mapping[str, float]
) -> Met:
    """Each group's gradients of loss and repulsion, after all members have seen each other.

    Where losses are mixed, so is what pulls weights to zero: `decays` has the decay of each own tensor that feels one.
    """
    start, drive = time.perf_counter(), coupling.drive(step)
    cotangents, felt = couple(coupling, places, step=step, measured=measured)
    seconds = time.perf_counter() - start
    if not coupling.mixes and not measured:
        pulled = team.map(lambda here, cotangent: pull_back(here, cotangent, drive), places, cotangents)
        return Met(pulled, seconds)
    losses = team.map(lambda here: pull_back(here, drive=drive, keep=True), places)
    pushes = team.map(push_back, places, cotangents)
    if coupling.mixes:
        losses = mixed(
            coupling, places, [decayed(here, each, decays, drive) for here, each in zip(places, losses, strict=True)]
        )
    if measured:
        felt["push_to_loss"] = norm_of(pushes) / max(norm_of(losses), 1e-30)
    return Met([added(*pair) for pair in zip(losses, pushes, strict=True)], seconds, felt)


def couple(
    coupling: Coupling, places: list[Local], *, step: int, measured: bool
) -> tuple[list[Tensor], dict[str, float]]:
    """Each group's cotangents, from the signatures of all, and what the meeting was like."""
    (signatures, sound), told = shown(places), {}
    seen = signatures if sound is None else signatures[sound]
    cotangents = signatures if sound is None else torch.zeros_like(signatures)
    if len(seen):
        felt = coupling.couple(seen, step)
        cotangents = felt.cotangents if sound is None else cotangents.index_put((sound,), felt.cotangents)
        if measured:
            told = {"mean_kernel": float(felt.mean_kernel), "cosine": coupling.cosine(seen)}
    if not all(here.active.all() for here in places):  # a force on who stands still would reach what all share
        moving = torch.cat([here.active for here in places]).to(cotangents)
        cotangents = cotangents * moving.view(-1, *(1,) * (cotangents.dim() - 1))
    return list(cotangents.split([len(here.losses) for here in places])), told


def shown(places: list[Local]) -> tuple[Tensor, Tensor | None]:
    """The signatures (M, ...) of all members, without their graph, and which of them (M,) make sense, if not all do."""
    each = [here.signature.detach() for here in places if here.signature is not None]
    signatures = torch.cat(each) if len(each) > 1 else each[0]
    if torch.linalg.vector_norm(signatures) < FARTHEST:  # NaN is not less
        return signatures, None
    return signatures, signatures.flatten(1).norm(dim=1) < FARTHEST


def pull_back(here: Local, cotangent: Tensor | None = None, drive: float = 1.0, *, keep: bool = False) -> Pulled:
    """Gradients of the group's own tensors, (m, ...) each, and of the shared ones, summed over the group."""
    if here.pulled is not None:
        return here.pulled if cotangent is None else added(here.pulled, push_back(here, cotangent))
    roots = [here.losses]
    weights: list[Tensor | None] = [drive * here.active.to(here.losses)]
    if cotangent is not None and here.signature is not None:
        roots.append(here.signature)
        weights.append(cotangent)
    return _gradients(here, roots, weights, keep)


def pulled_early(here: Local, drive: float) -> Local:
    """The same with the gradients of its losses, which then need their graph no more.

    For what does not show anything of that graph: while the others are awaited, only what leads to the signature is
    held in memory.
    """
    return replace(here, losses=here.losses.detach(), pulled=pull_back(here, drive=drive, keep=True))


def push_back(here: Local, cotangent: Tensor) -> Pulled:
    """The gradients of the repulsion alone."""
    assert here.signature is not None
    return _gradients(here, [here.signature], [cotangent], keep=False)


def _gradients(here: Local, roots: list[Tensor], weights: list[Tensor | None], keep: bool) -> Pulled:
    leaves = [*here.own.values(), *here.shared.values()]
    found = torch.autograd.grad(roots, leaves, weights, materialize_grads=True, retain_graph=keep)
    return list(found[: len(here.own)]), list(found[len(here.own) :])


def decayed(here: Local, pulled: Pulled, decays: Mapping[str, float], drive: float) -> Pulled:
    """Gradients of a group's losses and, of its own tensors, of drive * decay / 2 times their squared length."""
    own = [
        torch.add(gradient, here.own[name].detach(), alpha=drive * decays[name]) if name in decays else gradient
        for name, gradient in zip(here.own, pulled[0], strict=True)
    ]
    return own, pulled[1]


def mixed(coupling: Coupling, places: list[Local], pulled: list[Pulled]) -> list[Pulled]:
    """Loss gradients after every member has taken its part of all others' (SVGD); nonsense stays with its owner.

    The weights of a member may make sense and its gradients not: zero times infinity would reach everybody.
    """
    signatures, sound = shown(places)
    sound = signatures.new_ones(len(signatures), dtype=torch.bool) if sound is None else sound
    whole = [torch.cat(parts) for parts in zip(*(own for own, _ in pulled), strict=True)]  # (M, ...) each
    for gradient in whole:
        sound = sound & gradient.flatten(1).isfinite().all(1)
    rows = sound.nonzero().flatten()
    blended = [gradient.clone() for gradient in whole]
    if len(rows):
        mixture = coupling.mixture(signatures[rows])
        for mine, gradient in zip(blended, whole, strict=True):
            mine[rows] = torch.tensordot(mixture.to(gradient), gradient[rows], dims=1)
    return [([g[here.members] for g in blended], shared) for here, (_, shared) in zip(places, pulled, strict=True)]


def added(a: Pulled, b: Pulled) -> Pulled:
    """Two lists of gradients, added."""
    first, second = ([x + y for x, y in zip(*pair, strict=True)] for pair in zip(a, b, strict=True))
    return first, second


def norm_of(pulled: list[Pulled]) -> float:
    """The length of all gradients together."""
    return float(get_total_norm([gradient for own, shared in pulled for gradient in (*own, *shared)]))
