"""What a data set is once it has been opened: tensors, split in three, and how they were prepared."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from murmuration.data.preparation import Preparation
from murmuration.data.raw import Task


@dataclass(frozen=True)
class Split:
    """Prepared inputs and their targets."""

    x: Tensor  # (N, ...) float32
    y: Tensor  # (N,) int64 labels, or (N, K) float32 targets in their own units

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True)
class Data:
    """Three splits of one data set, prepared by statistics of the training split alone."""

    name: str  # as the user wrote it
    task: Task
    train: Split
    val: Split
    test: Split
    classes: tuple[str, ...]  # names in the order of the labels; empty for regression
    preparation: Preparation  # raw inputs -> x, kept with the run and applied again by `predict`
    fingerprint: str  # of the raw content: a run knows whether its data changed
    describe: tuple[str, ...] = ()  # names of the prepared input features, where they have some
    opening: dict[str, Any] | None = None  # arguments of `open_data` that give it again; None for objects in memory

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self.train.x.shape[1:])
