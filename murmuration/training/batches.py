"""Which examples each member sees at each step."""

from collections.abc import Callable

import torch
from torch import Tensor

from murmuration.data import Split, augment
from murmuration.dynamics import learning_rate_factor
from murmuration.dynamics.schedules import Moment
from murmuration.recipe import Plan
from murmuration.streams import EVERYONE, generator
from murmuration.training.step import Batch


def steps_per_epoch(examples: int, batch_size: int) -> int:
    """Whole batches only: a last batch of one would upset batch normalisation, and orders change every epoch."""
    return max(1, examples // batch_size)


def epoch_batches(split: Split, plan: Plan, epoch: int) -> Callable[[int], Batch]:
    """The batches of one epoch by index: each member's own, the same for all, or one that members divide."""
    everybody = [plan.first_member + i for i in range(plan.members)]
    members = [EVERYONE] if plan.batches == "same" else everybody
    ordering = everybody if plan.batches == "own" else [EVERYONE]
    streams = [generator(plan.seed, "batches", member, epoch) for member in ordering]
    orders = torch.stack([torch.randperm(len(split), generator=stream) for stream in streams])
    size = min(plan.batch_size, len(split))
    steps = steps_per_epoch(len(split), plan.batch_size)

    def batch(index: int) -> Batch:
        rows = orders[:, index * size : (index + 1) * size]  # (M, B), or (1, B) for all
        if plan.batches == "split":
            rows = rows[0, : size // plan.members * plan.members].view(plan.members, -1)  # (M, B / M)
        moment = Moment(epoch * steps + index, steps, plan.epochs)

        def fetch(group: slice) -> tuple[Tensor, Tensor]:
            wanted = range(*group.indices(plan.members))
            chosen = [0] if plan.batches == "same" else list(wanted)
            x = torch.stack([_examples(split, plan, rows[i], members[i], moment.step) for i in chosen])
            y = split.y[rows[chosen]]
            x, y = x.to(plan.device), y.to(plan.device)
            return x.expand(len(wanted), *x.shape[1:]), y.expand(len(wanted), *y.shape[1:])

        return Batch(fetch, plan.lr * learning_rate_factor(plan.schedule, moment))

    return batch


def _examples(split: Split, plan: Plan, rows: Tensor, member: int, moment: int) -> Tensor:
    x = split.x[rows]  # (B, ...)
    return augment(x, plan.augment, generator(plan.seed, "augmentation", member, moment)) if plan.augment else x
