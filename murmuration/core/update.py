"""`Updater`: how tensors move along their gradients, as one chain that is built once a run.

    decay -> mix -> clip -> rule -> proximal step -> pruning masks

Weight decay is part of the update rule, except where loss gradients are mixed between members (SVGD): there it is added
to them first and mixed with them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm

from murmuration.core.divergence import rows_to_move
from murmuration.core.dynamics.base import Dynamics, OptState, StepTime, UpdateRule
from murmuration.core.dynamics.cycles import Langevin
from murmuration.core.dynamics.optimizer import Optimizer, TorchOptimizer, shrink
from murmuration.core.flat_buffers import FlatBuffers
from murmuration.core.population import Named, rows_of, zero_pruned
from murmuration.core.sharing import is_factor
from murmuration.core.weights.gaussian import STD_PARAM
from murmuration.system.streams import ALL_MEMBERS, Noise, many_normals

if TYPE_CHECKING:
    from murmuration.core.engines import Ranks
    from murmuration.core.gradients import GroupResult
    from murmuration.core.state import Batch, State

ParamGroup = tuple[dict[str, None], UpdateRule, float]  # names, update rule, multiplier of the learning rate


@dataclass(frozen=True)
class Updater:
    """Moves the tensors of members.

    Attributes:
        optimizer: Update rule of tensors that the dynamics leaves to it.
        dynamics: May move some or all tensors by rules of its own.
        factor_lr_multiplier: Multiplier of the learning rate of factors of shared kernels.
        factor_decay: Whether weight decay acts on these factors.
        lr_multipliers: Pairs (pattern of tensor names, multiplier of the learning rate); the last match counts.
        clip_norm: Largest norm of a member's own gradients, and of the shared ones.
        kernels: Names of the tensors that an L1 norm acts on.
    """

    optimizer: Optimizer | TorchOptimizer = field(default_factory=lambda: Optimizer("adam"))
    dynamics: Dynamics = field(default_factory=Dynamics)
    factor_lr_multiplier: float = 1.0
    factor_decay: bool = False
    lr_multipliers: tuple[tuple[str, float], ...] = ()
    clip_norm: float | None = None
    kernels: frozenset[str] = frozenset()
    _groups: dict[Any, list[ParamGroup]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _buffers: FlatBuffers = field(default_factory=FlatBuffers, init=False, repr=False, compare=False)

    def init(self, tensors: Named) -> OptState:
        """Return the optimizer state of tensors that have not moved yet."""
        state: OptState = {}
        if isinstance(self.optimizer, TorchOptimizer):
            return state
        for names, rule, _ in self.param_groups(tensors):
            for kind, named in rule.init({name: tensors[name] for name in names}).items():
                state.setdefault(kind, {}).update(named)
        return state

    def move(self, state: "State", result: "GroupResult", batch: "Batch") -> None:
        """Update the own tensors of a group in place; a member whose loss is not finite stays unchanged."""
        gradients = result.own if self.clip_norm is None else clip(result.own, self.clip_norm)
        for rows in rows_to_move(state, result, isinstance(self.optimizer, TorchOptimizer)):
            stacked = isinstance(rows, slice)
            members = range(rows.start, rows.stop) if isinstance(rows, slice) else (rows,)
            tensors = rows_of(state.population.own, rows)
            opt_state = {kind: rows_of(named, rows) for kind, named in state.opt_state.items()}
            grads = gradients if stacked else [gradient[members[0] - result.members.start] for gradient in gradients]
            self._apply(tensors, dict(zip(tensors, grads, strict=True)), opt_state, state, batch, members)
            zero_pruned(tensors, state.population.buffers, rows)

    def move_shared(
        self, ranks: "Ranks", state: "State", gradients: list[list[Tensor]], batch: "Batch", factor: float
    ) -> None:
        """Move the shared tensors by `factor` times the sum of all groups' gradients, those of other processes too."""
        shared = state.population.shared
        if not shared:
            return
        sums = [torch.stack(parts).sum(0) for parts in zip(*gradients, strict=True)]
        if ranks.size > 1:
            sums = sums or [torch.zeros_like(tensor) for tensor in shared.values()]
            counts = torch.tensor([len(gradients), int(state.active.sum())], dtype=torch.float64)
            *sums, counts = ranks.sum([*sums, counts])
            state.others_active = bool(counts[1] > state.active.sum())
            sums = sums if counts[0] else []
        if not sums:
            return
        total = [factor * gradient for gradient in sums]
        norm = get_total_norm(total)
        if not bool(norm.isfinite()):  # a diverged member must not reach shared tensors
            return
        if self.clip_norm is not None and float(norm) > self.clip_norm:
            total = [gradient * (self.clip_norm / float(norm)) for gradient in total]
        grads = dict(zip(shared, total, strict=True))
        self._apply(shared, grads, state.shared_opt_state, state, batch, (ALL_MEMBERS,))
        zero_pruned(shared, state.population.buffers, 0)

    def _apply(
        self, tensors: Named, gradients: Named, opt_state: OptState, state: "State", batch: "Batch", rows: Sequence[int]
    ) -> None:
        """Move tensors in place: stacks (m, ...) of a range of members, one member's (...), or shared (ALL_MEMBERS)."""
        groups, stacked = self.param_groups(tensors), isinstance(rows, range)
        if isinstance(self.optimizer, TorchOptimizer):
            lrs = {name: batch.lr * multiplier for names, _, multiplier in groups for name in names}
            gradient_list, lr_list = [*gradients.values()], [lrs[name] for name in tensors]
            self.optimizer.update_member(rows[0], tensors, gradient_list, lr_list, state.memory)
            return
        noise: list[Noise] = []

        def draw(likes: Sequence[Tensor]) -> list[Tensor]:  # streams continue from one group of tensors to the next
            if not noise:
                noise.extend(state.noise.noise(rows, state.step, "langevin"))
            normals = many_normals(noise, likes if stacked else [like.unsqueeze(0) for like in likes])
            return normals if stacked else [normal.squeeze(0) for normal in normals]

        # A view of some rows has those of other members behind it, and one member alone equals a group of one.
        all_rows = stacked and 1 < len(rows) == state.population.members
        for names, rule, multiplier in groups:
            params, grads = [tensors[name] for name in names], [gradients[name] for name in names]
            moments = [[named[name] for name in names if name in named] for named in opt_state.values()]
            moments = [tensors_of_kind for tensors_of_kind in moments if tensors_of_kind]
            when = StepTime(multiplier * batch.lr, state.step, batch.time, draw, len(rows))
            flat = self._buffers.flat(params, grads, moments) if all_rows and isinstance(rule, Optimizer) else None
            rule.update(*(flat or (params, grads, moments)), when)
            if self.optimizer.l1:
                shrink([tensors[name] for name in names if name in self.kernels], when.lr * self.optimizer.l1)

    def param_groups(self, tensors: Named) -> list[ParamGroup]:
        """Return the names of tensors that move alike, their update rule, and their learning-rate multiplier."""
        key = tuple(tensors)
        if key in self._groups:
            return self._groups[key]
        claimed = self.dynamics.claim(tensors)
        optimizer: Any = self.optimizer
        undecayed = optimizer if isinstance(optimizer, TorchOptimizer) else replace(optimizer, weight_decay=0.0)
        groups: dict[tuple[Any, float], dict[str, None]] = {}

        def add(names: list[str], rule: Any, multiplier: float) -> None:
            for name in names:
                matching = [factor for pattern, factor in self.lr_multipliers if fnmatchcase(name, pattern)]
                groups.setdefault((rule, multiplier * (matching[-1] if matching else 1.0)), {})[name] = None

        unclaimed = [name for name in tensors if not any(name in names for names, _, _ in claimed)]
        stds = [name for name in unclaimed if name.endswith(STD_PARAM)]
        factors = [name for name in unclaimed if is_factor(name)]
        add([name for name in unclaimed if name not in stds and name not in factors], optimizer, 1.0)
        add(stds, undecayed, 1.0)
        add(factors, optimizer if self.factor_decay else undecayed, self.factor_lr_multiplier)
        rules = ((names, self.dynamics.rule(rule), multiplier) for (rule, multiplier), names in groups.items())
        self._groups[key] = [*claimed, *rules]
        return self._groups[key]

    # weight decay that is mixed with the loss gradients

    @cached_property
    def without_decay(self) -> "Updater":
        """The same updater without coupled weight decay; itself if it has none."""
        optimizer = self.optimizer
        if not isinstance(optimizer, Optimizer) or optimizer.decay != "coupled" or not optimizer.weight_decay:
            return self
        return replace(self, optimizer=replace(optimizer, weight_decay=0.0))

    def add_decay(self, own: Mapping[str, Tensor], gradients: list[Tensor], loss_scale: float) -> list[Tensor]:
        """Add the gradients of loss_scale * decay / 2 times the squared norm of each own tensor (m, ...)."""
        if self.without_decay is self:
            return gradients
        rules = {name: rule for names, rule, _ in self.param_groups(dict(own)) for name in names}
        decays = {name: rule.weight_decay for name, rule in rules.items() if isinstance(rule, Optimizer | Langevin)}
        decayed = dict(zip(own, gradients, strict=True))
        for name, decay in decays.items():
            decayed[name] = torch.add(decayed[name], own[name].detach(), alpha=loss_scale * decay)
        return [*decayed.values()]


def clip(gradients: list[Tensor], max_norm: float) -> list[Tensor]:
    """Scale gradients (m, ...) of m members so that no member's norm over all tensors exceeds `max_norm`."""
    if not gradients:
        return gradients
    norms = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in gradients]).norm(dim=0)  # (m,)
    factors = (max_norm / norms.clamp_min(1e-30)).clamp_max(1.0)
    return [g * factors.to(g).view(-1, *(1,) * (g.dim() - 1)) for g in gradients]
