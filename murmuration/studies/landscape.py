"""Loss, accuracy and agreement of networks at any weight vectors: the scores that planes and paths consist of."""

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from murmuration.data import Data, Split
from murmuration.studies.cells import Arrays
from murmuration.studies.weight_space import (
    Networks,
    PointOutputs,
    Points,
    PointScores,
    blocks,
    examples_of,
    points_of,
    score_points,
)
from murmuration.system.errors import Misuse

Array = NDArray[np.float64]
Show = Callable[[str, int, int], None]  # the piece at hand, pieces done, pieces in all
SCORED = 5000  # training examples at most that a loss or accuracy is a mean over


def silent(text: str, done: int, total: int) -> None:
    """Show nothing."""


@dataclass(frozen=True)
class Verdict:
    """A claim about the landscape, whether the numbers support it, and a sentence with these numbers."""

    claim: str
    holds: bool
    sentence: str


@dataclass(frozen=True)
class Landscape:
    """Scores of an architecture at weight vectors, on test examples and, where they are given, training examples.

    Agreement is the fraction of test examples on which a network predicts the class of a reference network.
    """

    points: Points
    test: Split
    train: Split | None
    references: Tensor  # (R, N) int16, classes predicted by the reference networks; (R, 0) of a regression

    def __call__(self, vectors: Iterable[Tensor]) -> Arrays:
        """Return at m vectors (P,).

        Loss (m,), accuracy (m,), agreement (R, m); of training examples the first two as well.
        """
        parts = []
        for block in blocks(vectors):
            test = self._scores(self.test, block)
            agreement = [
                test.agreement(labels).numpy() if len(labels) else np.full(len(block), math.nan)
                for labels in self.references
            ]
            part = {"loss": test.loss.numpy(), "accuracy": test.accuracy.numpy(), "agreement": np.array(agreement)}
            if self.train is not None:
                train = self._scores(scored(self.train), block)
                part |= {"train_loss": train.loss.numpy(), "train_accuracy": train.accuracy.numpy()}
            parts.append(part)
        return {name: np.concatenate([part[name] for part in parts], axis=-1) for name in parts[0]}

    def _scores(self, split: Split, vectors: list[Tensor]) -> PointScores:
        train_x = None if self.train is None else self.train.prepared
        outputs = PointOutputs(self.points, split.prepared, train_x)
        return score_points(outputs(vectors), split.y, self.points.likelihood)

    def digest(self) -> str:
        """Return a digest of all examples, which scores depend on."""
        splits = [split for split in (self.test, self.train) if split is not None]
        return digest(*(tensor for split in splits for tensor in (split.prepared, split.y)))


def scored(train: Split) -> Split:
    """Return the training examples that scores are means over.

    All, or every second, third, ... so that `SCORED` are left.
    """
    return train[:: math.ceil(len(train) / SCORED)]


def landscape_of(
    networks: Networks, examples: Any, *, train: Any = None, references: Sequence[int] = (0, 1)
) -> Landscape:
    """Return the landscape of networks over test `examples` and training examples `train`.

    Of a `Data` the test and training splits are used, unless `train` is given.
    """
    points = points_of(networks)
    wrong = [member for member in references if not 0 <= member < len(points)]
    if wrong or len(set(references)) < len(references):
        raise Misuse(
            f"networks {', '.join(map(str, references))} of {len(points)}: expected different numbers from 0 to "
            f"{len(points) - 1}"
        )
    if train is None and isinstance(examples, Data):
        train = examples.train
    test = Split(*examples_of(networks, examples))
    training = None if train is None else Split(*examples_of(networks, train))
    unreferenced = Landscape(points, test, training, torch.empty(0, 0))
    labels = unreferenced._scores(test, [points.vectors[member] for member in references]).labels
    return Landscape(points, test, training, labels)


def digest(*tensors: Tensor) -> str:
    """Return a digest of the contents of tensors."""
    sha = hashlib.sha256()
    for tensor in tensors:
        sha.update(str((tuple(tensor.shape), tensor.dtype)).encode())
        sha.update(np.ascontiguousarray(tensor.detach().cpu().numpy()).data)
    return sha.hexdigest()


def as_lists(value: Any) -> Any:
    """Return the value with arrays as lists, records as dictionaries of their fields, and without tensors."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: as_lists(item) for key, item in value.items() if not isinstance(item, Tensor)}
    if isinstance(value, list | tuple):
        return [as_lists(item) for item in value]
    return as_lists(vars(value)) if hasattr(value, "__dataclass_fields__") else value


def long_rows(scores: Arrays, places: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one row per number: scores (m,), or (R, m) as score_0, score_1, ... by reference, at places (m,)."""
    columns: list[tuple[str, Array]] = []
    for name, values in scores.items():
        columns += (
            [(name, values)] if values.ndim == 1 else [(f"{name}_{turn}", row) for turn, row in enumerate(values)]
        )
    count = len(columns[0][1])
    fixed = {name: np.broadcast_to(np.asarray(value), (count,)) for name, value in places.items()}
    return [
        {**{name: value[turn].item() for name, value in fixed.items()}, "measure": measure, "value": float(row[turn])}
        for measure, row in columns
        for turn in range(count)
    ]
