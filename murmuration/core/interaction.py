"""The interaction of all members: features -> cotangents, and loss gradients mixed between members (SVGD).

Features and gradients are exchanged between processes here and nowhere else; for one process that is the identity.
"""

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm

from murmuration.core.coupling import Coupling
from murmuration.core.engines import Ranks
from murmuration.core.gradients import Gradients, LocalPass
from murmuration.likelihoods.classes import identity

MAX_LENGTH = 1e15  # features longer than this count as not finite: squares of their distances would overflow


def couple(
    ranks: Ranks, coupling: Coupling, passes: list[LocalPass], members: int, step: int, measure: bool = False
) -> tuple[list[Tensor], dict[str, float]]:
    """Compute each group's cotangents from the features of all members.

    Args:
        ranks: The processes that members are divided among.
        coupling: The interaction.
        passes: The groups of this process.
        members: Number of members of all processes.
        step: Step of training.
        measure: Whether to compute statistics.

    Returns:
        Cotangents (m, B, R) of each group, and statistics of the interaction.
    """
    own, by_columns, stats = own_features(passes), ranks.size > 1 and coupling.space.separable, {}
    if by_columns:  # a part (M, 1, r) of the features of all members
        finite = ranks.gather(finite_rows(own), members)
        features, all_finite = ranks.to_columns(own.flatten(1), members).unsqueeze(1), bool(finite.all())
    else:
        features = ranks.gather(own, members)
        all_finite = bool(torch.linalg.vector_norm(features) < MAX_LENGTH)  # NaN is not less
        finite = torch.empty(0) if all_finite else finite_rows(features)
    interacting = features if all_finite else features[finite]
    cotangents = features if all_finite else torch.zeros_like(features)
    if len(interacting):
        total = ranks.total if by_columns else identity
        interaction = coupling.interact(interacting, coupling.strength(step), total)
        cotangents = interaction.cotangents if all_finite else cotangents.index_put((finite,), interaction.cotangents)
        if measure:
            cosine = coupling.cosine(interacting, total)
            stats = {"mean_kernel": float(interaction.mean_kernel), "cosine": cosine}
    if by_columns:
        cotangents = ranks.to_rows(cotangents.flatten(1), own[0].numel()).view(own.shape)
    elif ranks.size > 1:
        rows = ranks.rows(members)
        cotangents = cotangents[rows.start : rows.stop]
    if not all(local.active.all() for local in passes):
        cotangents = without_inactive(cotangents, torch.cat([local.active for local in passes]))
    return list(cotangents.split([len(local.losses) for local in passes])), stats


def without_inactive(cotangents: Tensor, active: Tensor) -> Tensor:
    """Zero the cotangents (M, ...) of members that are not active (M,): they would reach shared tensors."""
    return cotangents * active.to(cotangents).view(-1, *(1,) * (cotangents.dim() - 1))


def own_features(passes: list[LocalPass]) -> Tensor:
    """Return the detached features (m, B, R) of the members of this process."""
    features = [local.features.detach() for local in passes if local.features is not None]
    return torch.cat(features) if len(features) > 1 else features[0]


def finite_rows(features: Tensor) -> Tensor:
    """Return which rows (m,) of features (m, ...) are finite, and short enough for squares of distances to be."""
    return features.flatten(1).norm(dim=1) < MAX_LENGTH


def mix(
    ranks: Ranks, coupling: Coupling, passes: list[LocalPass], gradients: list[Gradients], members: int
) -> list[Gradients]:
    """Average loss gradients over members with the weights of the coupling (SVGD).

    A member whose features or gradients are not finite keeps its own and enters no other's: zero times infinity would
    reach everybody. Ranks exchange parts of all members' gradients.
    """
    features = own_features(passes)
    stacked = [torch.cat(parts) for parts in zip(*(own for own, _ in gradients), strict=True)]  # (m, ...) each
    finite = finite_rows(features)
    for gradient in stacked:
        finite = finite & gradient.flatten(1).isfinite().all(1)
    rows = ranks.gather(finite, members).nonzero().flatten()
    flat = torch.cat([gradient.flatten(1) for gradient in stacked], 1)
    columns = ranks.to_columns(flat, members)  # (M, p)
    if len(rows):
        parts = ranks.to_columns(features.flatten(1), members).unsqueeze(1)
        weights = coupling.space.mixing(parts[rows], ranks.total)
        assert weights is not None
        columns = columns.index_copy(0, rows, weights.to(columns) @ columns[rows])
    split = ranks.to_rows(columns, flat.shape[1]).split([gradient[0].numel() for gradient in stacked], 1)
    mixed = [part.view(gradient.shape) for part, gradient in zip(split, stacked, strict=True)]
    return [([g[local.members] for g in mixed], shared) for local, (_, shared) in zip(passes, gradients, strict=True)]


def total_norm(ranks: Ranks, gradients: list[Gradients]) -> float:
    """Return the norm of all gradients together."""
    norm = get_total_norm([gradient for own, shared in gradients for gradient in (*own, *shared)])
    return float(norm if ranks.size == 1 else ranks.total(norm.square()).sqrt())
