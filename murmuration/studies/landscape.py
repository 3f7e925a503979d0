"""Loss, accuracy and agreement of networks at any weight vectors: the scores that planes and paths consist of."""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from murmuration.data import Data, Split
from murmuration.studies.cells import Arrays
from murmuration.studies.weight_space import Networks, PointOutputs, Points, blocks, examples_of, points_of
from murmuration.system.errors import Misuse
from murmuration.system.records import plain_json

Array = NDArray[np.float64]
Show = Callable[[str, int, int], None]  # the piece at hand, pieces done, pieces in all
SCORED = 5000  # training examples at most that a loss or accuracy is a mean over


def silent(text: str, done: int, total: int) -> None:
    """Show nothing."""


class Result:
    """The result of a study. Its fields, but for weights, and the properties listed in `DERIVED` are its JSON."""

    DERIVED: ClassVar[tuple[str, ...]] = ("verdicts",)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON, with None for numbers that are not finite."""
        record = {name: value for name, value in vars(self).items() if not isinstance(value, Tensor | Points)}
        return plain_json(record | {name: getattr(self, name) for name in self.DERIVED})


@dataclass(frozen=True)
class Landscape:
    """Scores of an architecture at weight vectors, on test examples and, where they are given, training examples.

    Agreement is the fraction of test examples on which a network predicts the class of a reference network.
    """

    points: Points
    test: Split
    train: Split | None
    references: Tensor  # (R, N) int16, classes predicted by the reference networks; (R, 0) of a regression
    marks: Tensor = field(default_factory=lambda: torch.empty(0, 0))  # (R, N), 1 where they are right, or their losses

    def __call__(self, vectors: Iterable[Tensor]) -> Arrays:
        """Return at m vectors (P,).

        Loss (m,), accuracy (m,), agreement (R, m); of training examples the first two as well.
        """
        return {name: values for name, values in self.scores(vectors).items() if name != "losses"}

    def scores(self, vectors: Iterable[Tensor]) -> Arrays:
        """Return the same with losses (m, N'), of the training examples where they are given."""
        parts = []
        for block in blocks(vectors):
            test = self.outputs(self.test).scores(block, self.test.y)
            agreement = [
                test.agreement(labels).numpy() if len(labels) else np.full(len(block), math.nan)
                for labels in self.references
            ]
            part = {"loss": test.loss.numpy(), "accuracy": test.accuracy.numpy(), "agreement": np.array(agreement)}
            part["losses"] = test.losses.numpy()
            if self.train is not None:
                examples = scored(self.train)
                train = self.outputs(examples).scores(block, examples.y)
                part |= {"train_loss": train.loss.numpy(), "train_accuracy": train.accuracy.numpy()}
                part["losses"] = train.losses.numpy()
            parts.append(part)
        return {name: np.concatenate([p[name] for p in parts], 0 if name == "losses" else -1) for name in parts[0]}

    def along(self, vectors: Iterable[Tensor]) -> Arrays:
        """Return scores, lengths and norms at the vectors (P,) of a path, which are gone through once.

        `excess` (N',) is by how much the loss of every example exceeds the line between its losses at the ends, at the
        point of the path where the mean of that is highest.
        """
        steps, norms = [0.0], []

        def measured() -> Iterator[Tensor]:
            before = None
            for vector in vectors:
                exact = vector.double()
                norms.append(float(exact.norm()))
                if before is not None:
                    steps.append(float((exact - before).norm()))
                before = exact
                yield vector

        scores, length = self.scores(measured()), np.cumsum(steps)
        losses = scores.pop("losses")  # (m, N')
        fraction = (length / length[-1] if length[-1] else np.linspace(0, 1, len(length)))[:, None]
        above = losses - ((1 - fraction) * losses[0] + fraction * losses[-1])
        excess = above[above.mean(1).argmax()]
        return scores | {"length": length, "norm": np.array(norms), "excess": excess}

    def outputs(self, split: Split) -> PointOutputs:
        """Return the outputs at any weight vectors on some examples."""
        return PointOutputs(self.points, split.prepared, None if self.train is None else self.train.prepared)

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
    if not set(references) <= set(range(len(points))) or len(set(references)) < len(references):
        raise Misuse(
            f"networks {', '.join(map(str, references))} of {len(points)}: expected different numbers from 0 to "
            f"{len(points) - 1}"
        )
    if train is None and isinstance(examples, Data):
        train = examples.train
    test = Split(*examples_of(networks, examples))
    training = None if train is None else Split(*examples_of(networks, train))
    landscape = Landscape(points, test, training, torch.empty(0, 0))
    scores = landscape.outputs(test).scores(points.vectors[list(references)], test.y)
    marks = (scores.labels == test.y).float() if scores.labels.shape[1] else scores.losses
    return replace(landscape, references=scores.labels, marks=marks)


def digest(*tensors: Tensor) -> str:
    """Return a digest of the contents of tensors."""
    sha = hashlib.sha256()
    for tensor in tensors:
        sha.update(str((tuple(tensor.shape), tensor.dtype)).encode())
        sha.update(np.ascontiguousarray(tensor.detach().cpu().numpy()).data)
    return sha.hexdigest()


def long_frame(scores: Arrays, places: Mapping[str, Any]) -> pd.DataFrame:
    """Return one row per number: scores (m,), or (R, m) as score_0, score_1, ... by reference, at places (m,)."""
    columns: dict[str, Array] = {}
    for name, values in scores.items():
        columns |= {name: values} if values.ndim == 1 else {f"{name}_{turn}": row for turn, row in enumerate(values)}
    return pd.DataFrame({**places, **columns}).melt(list(places), var_name="measure")
