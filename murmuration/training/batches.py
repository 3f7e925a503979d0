"""The examples that each member sees at each step, and the learning rate."""

import math
from collections.abc import Callable, Container, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from murmuration.core.dynamics import TrainTime, learning_rate_factor
from murmuration.core.state import Batch
from murmuration.data import Split, augment
from murmuration.data.samplers import INSTANCE, draw_examples
from murmuration.data.streamed import Streamed
from murmuration.system.errors import Misuse, warn
from murmuration.system.streams import ALL_MEMBERS, generator, stream_seed
from murmuration.training.plan import Plan

Share = tuple[int, int]  # part i of n of a batch


def batch_slices(examples: int, size: int, *, drop_last: bool = False, parts: int = 1) -> list[slice]:
    """Return the places of each batch in an epoch's order of examples; the last batch may be smaller, or is dropped.

    A last batch of one example, which batch normalisation cannot take, joins the batch before it; so does one of less
    than two examples for each of the `parts` that a batch is split into.

    >>> [(rows.start, rows.stop) for rows in batch_slices(11, 4)], [len(batch_slices(n, 4)) for n in (8, 9, 10, 3)]
    ([(0, 4), (4, 8), (8, 11)], [2, 2, 3, 1])
    """
    full_batches, remainder = divmod(examples, size)
    if not full_batches:
        return [slice(0, examples)]
    edges = [size * index for index in range(full_batches + 1)]
    if remainder and not drop_last:
        edges = [*edges[:-1], examples] if remainder < 2 * parts else [*edges, examples]
    return [slice(*pair) for pair in pairwise(edges)]


def plan_slices(examples: int, plan: Plan) -> list[slice]:
    """Return the places of each batch of a plan in an epoch's order of examples."""
    parts = plan.members if plan.order == "split" else 1
    return batch_slices(examples, plan.batch_size, drop_last=plan.drop_last, parts=parts)


def learning_rate(plan: Plan, schedule: str, time: TrainTime) -> float:
    """Return the learning rate at a time: the plan's, times the schedule, times a linear warm-up."""
    lr = plan.lr * learning_rate_factor(schedule, time)
    warmup = plan.warmup * time.steps_per_epoch
    return lr * (time.step + 1) / warmup if time.step + 1 < warmup else lr


def epoch_batches(
    split: Split, plan: Plan, epoch: int, schedule: str | None = None, rows: range | None = None, share: Share = (0, 1)
) -> Callable[[int], Batch]:
    """Return the batches of one epoch by index: each member's own, one for all, or one that is split among members.

    `rows` are the members of this process among all, who fetch their examples; by default all. Of every batch they get
    part i of n, `share` (i, n).
    """
    order, schedule = plan.order, schedule or plan.schedule or "cosine"
    own_rows = range(plan.members) if rows is None else rows
    everybody = [plan.first_member + i for i in own_rows]
    members = [ALL_MEMBERS] if order == "same" else everybody
    ordering = everybody if order == "own" else [ALL_MEMBERS]
    orders = torch.stack([example_order(split, plan, member, epoch) for member in ordering])  # (m, N) or (1, N)
    slices = plan_slices(orders.shape[1], plan)
    steps = len(slices)

    def rows_of(group: slice) -> list[int]:
        """Return the rows of a batch that belong to a group of members: one row if it is the same for all."""
        return [0] if order == "same" else list(range(*group.indices(len(own_rows))))

    def for_group(values: Tensor, group: slice) -> Tensor:
        """Return this process's share of the values (m, B, ...) of a group, from those of `rows_of`."""
        part = values[:, own_examples(values.shape[1], *share)].to(plan.device)
        return part.expand(len(range(*group.indices(len(own_rows)))), *part.shape[1:])

    def part(values: Tensor, index: int) -> Tensor:
        """Return the values of one batch, of (m, N): (m, B), or (1, B) for all."""
        picked = values[:, slices[index]]
        if order == "split":
            picked = picked[0, : picked.shape[1] // plan.members * plan.members].view(plan.members, -1)  # (M, B / M)
            picked = picked[own_rows.start : own_rows.stop]
        return picked

    read = None
    if isinstance(split.prepared, Streamed):
        draws = [generator(plan.seed, "examples", member, epoch) for member in ordering]
        seeds = torch.stack([torch.randint(2**63 - 1, (orders.shape[1],), generator=draw) for draw in draws])
        read = read_ahead(split.prepared, steps, lambda index: (part(orders, index), part(seeds, index)))

    def batch(index: int) -> Batch:
        rows, read_rows = part(orders, index), None if read is None else read(index)
        time = TrainTime(epoch * steps + index, steps, plan.epochs)

        def fetch(group: slice) -> tuple[Tensor, Tensor]:
            picked = rows_of(group)
            inputs = [split.prepared[rows[i]] if read_rows is None else read_rows[i][0] for i in picked]
            x = torch.stack([augmented(x, plan, members[i], time.step) for i, x in zip(picked, inputs, strict=True)])
            read_y: list[Tensor | None] = [] if read_rows is None else [read_rows[i][1] for i in picked]
            read_targets = [y for y in read_y if y is not None]  # targets of rows of files are in memory
            y = torch.stack(read_targets) if read_targets else split.y[rows[picked]]
            return for_group(x, group), for_group(y, group)

        def weight(group: slice) -> Tensor | None:
            return None if split.weight is None else for_group(split.weight[rows[rows_of(group)]], group)

        count, (place, parts) = rows.shape[1], share
        fraction = (count * (place + 1) // parts - count * place // parts) / count
        return Batch(fetch, learning_rate(plan, schedule, time), time=time, weight=weight, fraction=fraction)

    return batch


def own_examples(batch: int, part: int, parts: int) -> slice:
    """Return the examples of part i of n of a batch; with too few for all parts, one of another, which counts nothing.

    >>> [own_examples(7, part, 3) for part in range(3)], own_examples(2, 0, 3)
    ([slice(0, 2, None), slice(2, 4, None), slice(4, 7, None)], slice(0, 1, None))
    """
    start, stop = batch * part // parts, batch * (part + 1) // parts
    return slice(start, stop) if start < stop else slice(0, 1)


def example_order(split: Split, plan: Plan, member: int, epoch: int) -> Tensor:
    """Return the places (N,) of an epoch's examples in the order in which a member, or all, see them."""
    count, inputs = len(split), split.prepared
    if isinstance(inputs, Streamed) and inputs.own_sampler is not None:
        return inputs.order(stream_seed(plan.seed, "batches", member, epoch))
    if isinstance(inputs, Streamed) and inputs.in_order:
        return torch.arange(count)
    if plan.sampler != INSTANCE:
        stream = generator(plan.seed, "sampler", member, epoch)
        return draw_examples(split.y, plan.sampler, epoch / plan.epochs, stream)
    stream = generator(plan.seed, "batches", member, epoch)
    if plan.replacement:
        return torch.randint(count, (count,), generator=stream)
    return torch.randperm(count, generator=stream)


def examples_per_epoch(split: Split) -> int:
    """Return how many examples a member sees in an epoch: all, or as many as the caller's sampler draws."""
    sampler = split.prepared.own_sampler if isinstance(split.prepared, Streamed) else None
    return len(split if sampler is None else sampler)


def read_ahead(
    inputs: Streamed, steps: int, requests: Callable[[int], tuple[Tensor, Tensor]]
) -> Callable[[int], list[tuple[Tensor, Tensor | None]]]:
    """Return a function that reads the examples of one step, x (B, ...) and y (B, ...) for each row of its requests.

    `y` is None for rows of files. `requests` are places (M, B) and seeds (M, B). Steps asked for one after the other
    come from one pass, so that worker processes read ahead.
    """
    place = -1
    rows_read: list[tuple[Tensor, Tensor | None]] = []
    batches: Iterator[tuple[Tensor, Tensor | None]] = iter(())

    def read(index: int) -> list[tuple[Tensor, Tensor | None]]:
        nonlocal place, rows_read, batches
        if index == place:
            return rows_read
        if index != place + 1 or place < 0:
            later = (zip(*requests(step), strict=True) for step in range(index, steps))
            batches = inputs.read((rows.numpy(), seeds.numpy()) for pairs in later for rows, seeds in pairs)
        place, rows_read = index, [next(batches) for _ in requests(index)[0]]
        return rows_read

    return read


def plan_for_loader(plan: Plan, split: Split, asked: Container[str]) -> Plan:
    """Return the plan with the batch size of the caller's DataLoader, if the examples come from one.

    Refuses settings of the plan that differ from the loader's and were `asked` for, or are not the usual ones.
    """
    inputs: Any = split.prepared
    if not isinstance(inputs, Streamed) or inputs.source.batch_size is None:
        return plan
    loader_settings: dict[str, Any] = {"batch_size": inputs.source.batch_size, "drop_last": inputs.source.drop_last}
    for name, value in loader_settings.items():
        setting = getattr(plan, name)
        if setting != value and (name in asked or setting != getattr(Plan, name)):
            raise Misuse(f"{name}={setting} and a DataLoader of {name}={value}: leave one of the two out")
    if (plan.replacement or plan.sampler != INSTANCE) and (inputs.in_order or inputs.own_sampler is not None):
        sampling = "replacement=True" if plan.replacement else f"sampler={plan.sampler}"
        raise Misuse(f"{sampling} and a DataLoader with an order of its own: leave one of the two out")
    if inputs.in_order:
        result = "all members see the examples in one order in every epoch; write shuffle=True"
        warn(f"a DataLoader with shuffle=False: {result}")
    return replace(plan, **loader_settings)


def plan_for_steps(plan: Plan, split: Split) -> Plan:
    """Return the plan with the epochs that its number of steps takes, rounded up; the plan itself if it has none."""
    if plan.steps is None:
        return plan
    return replace(plan, epochs=math.ceil(plan.steps / len(plan_slices(examples_per_epoch(split), plan))))


def augmented(x: Tensor, plan: Plan, member: int, step: int) -> Tensor:
    """Apply the plan's augmentations to inputs (B, ...), drawn for one member and step."""
    return augment(x, plan.augment, generator(plan.seed, "augmentation", member, step)) if plan.augment else x
