"""The examples that each member sees at each step, and the learning rate."""

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

from murmuration.data import Split, augment
from murmuration.dynamics import TrainTime, learning_rate_factor
from murmuration.recipe import Plan
from murmuration.streams import ALL_MEMBERS, generator
from murmuration.training.step import Batch


def batch_slices(examples: int, size: int, *, drop_last: bool = False, parts: int = 1) -> list[slice]:
    """The places of each batch in an epoch's order of examples; the last batch may be smaller, or is dropped.

    A last batch of one example, which batch normalisation cannot take, joins the batch before it; so does one of less
    than two examples for each of the `parts` that a batch is split into.

    >>> [(rows.start, rows.stop) for rows in batch_slices(11, 4)], [len(batch_slices(n, 4)) for n in (8, 9, 10, 3)]
    ([(0, 4), (4, 8), (8, 11)], [2, 2, 3, 1])
    """
    whole, rest = divmod(examples, size)
    if not whole:
        return [slice(0, examples)]
    edges = [size * index for index in range(whole + 1)]
    if rest and not drop_last:
        edges = [*edges[:-1], examples] if rest < 2 * parts else [*edges, examples]
    return [slice(*pair) for pair in pairwise(edges)]


def plan_slices(examples: int, plan: Plan) -> list[slice]:
    """The places of each batch of a plan in an epoch's order of examples."""
    parts = plan.members if plan.order == "split" else 1
    return batch_slices(examples, plan.batch_size, drop_last=plan.drop_last, parts=parts)


def learning_rate(plan: Plan, schedule: str, time: TrainTime) -> float:
    """The learning rate at a time: the plan's, times the schedule, times a linear warm-up."""
    lr = plan.lr * learning_rate_factor(schedule, time)
    warmup = plan.warmup * time.steps_per_epoch
    return lr * (time.step + 1) / warmup if time.step + 1 < warmup else lr


def epoch_batches(split: Split, plan: Plan, epoch: int, schedule: str | None = None) -> Callable[[int], Batch]:
    """The batches of one epoch by index: each member's own, the same for all, or one that is split among members."""
    order, schedule = plan.order, schedule or plan.schedule or "cosine"
    everybody = [plan.first_member + i for i in range(plan.members)]
    members = [ALL_MEMBERS] if order == "same" else everybody
    ordering = everybody if order == "own" else [ALL_MEMBERS]
    streams = [generator(plan.seed, "batches", member, epoch) for member in ordering]
    count = len(split)
    if plan.replacement:
        orders = torch.stack([torch.randint(count, (count,), generator=stream) for stream in streams])
    else:
        orders = torch.stack([torch.randperm(count, generator=stream) for stream in streams])
    slices = plan_slices(count, plan)
    steps = len(slices)

    def batch(index: int) -> Batch:
        rows = orders[:, slices[index]]  # (M, B), or (1, B) for all
        if order == "split":
            rows = rows[0, : rows.shape[1] // plan.members * plan.members].view(plan.members, -1)  # (M, B / M)
        time = TrainTime(epoch * steps + index, steps, plan.epochs)

        def fetch(group: slice) -> tuple[Tensor, Tensor]:
            wanted = range(*group.indices(plan.members))
            chosen = [0] if order == "same" else list(wanted)
            x = torch.stack([_examples(split, plan, rows[i], members[i], time.step) for i in chosen])
            y = split.y[rows[chosen]]
            x, y = x.to(plan.device), y.to(plan.device)
            return x.expand(len(wanted), *x.shape[1:]), y.expand(len(wanted), *y.shape[1:])

        def weight(group: slice) -> Tensor | None:
            wanted = range(*group.indices(plan.members))
            if split.weight is None:
                return None
            return split.weight[rows[[0] if order == "same" else list(wanted)]].to(plan.device).expand(len(wanted), -1)

        return Batch(fetch, learning_rate(plan, schedule, time), time=time, weight=weight)

    return batch


def _examples(split: Split, plan: Plan, rows: Tensor, member: int, step: int) -> Tensor:
    x = split.prepared[rows]  # (B, ...)
    return augment(x, plan.augment, generator(plan.seed, "augmentation", member, step)) if plan.augment else x
