"""How alike networks are: in weights, in predictions and in features; along a path, across members, across samples.

With weights w and predicted classes f(x) of two networks:

    cosine        w1 . w2 / (|w1| |w2|)
    disagreement  d = fraction of inputs with f1(x) != f2(x); agreement 1 - d
    diversity     D = d / (1 - a), a the accuracy of the second network (Fort, Hu and Lakshminarayanan 2019)
    CKA           |F1' F2|² / (|F1' F1| |F2' F2|) of centred features F (N, D), Frobenius norms (Kornblith et al. 2019)

Matrices (m, m) are filled block by block, so that the number of networks does not matter for memory.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from murmuration.evaluation.ood import module_features
from murmuration.studies.landscape import Result
from murmuration.studies.trajectory import Trajectory
from murmuration.studies.verdicts import Verdict, estimate, jackknife_estimate
from murmuration.studies.weight_space import AT_ONCE, Networks, PointOutputs, labelled_outputs
from murmuration.system.errors import Misuse

Subject = Literal["members", "path", "samples"]
Array = NDArray[np.float64]
T = TypeVar("T")
From = Callable[[int], Iterator[T]]  # a sequence that can be read again, from an index on

COLUMNS = 1 << 16  # weights that are converted to double precision at a time
BYTES = 1 << 28  # of weight vectors in memory for one block
FEATURE_INPUTS = 1000  # inputs that CKA is computed on, at most
LATE = 10  # the last checkpoints of a path: so many, but no more than half of it
LEAST_LATE = 3  # of them, for a claim on the end of a path
ALIKE, ORTHOGONAL = 0.9, 0.1  # cosines above and below


def pairwise(read: From[T], product: Callable[[list[T], list[T]], Array], size: int = AT_ONCE) -> Array:
    """Compute products (m, m) of all pairs of a sequence, with two blocks of `size` in memory at a time.

    >>> pairwise(lambda first: iter([1.0, 2.0, 3.0][first:]), np.multiply.outer, size=2).tolist()
    [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [3.0, 6.0, 9.0]]
    """
    rows: list[Array] = []
    for first in itertools.count(0, size):
        remaining = read(first)
        if not (block := list(itertools.islice(remaining, size))):
            break
        own = product(block, block)
        parts = [(own + own.T) / 2]
        while other := list(itertools.islice(remaining, size)):
            parts.append(product(block, other))
        rows.append(np.concatenate(parts, axis=1))
    matrix = np.zeros((sum(map(len, rows)),) * 2)
    for index, row in enumerate(rows):
        first = index * size
        matrix[first : first + len(row), first:] = row
        matrix[first:, first : first + len(row)] = row.T
    return matrix


def inner_products(a: list[Tensor], b: list[Tensor]) -> Array:
    """Return inner products (m, n) of weight vectors (P,), summed in double precision."""
    first, second = torch.stack(a), torch.stack(b)
    parts = zip(first.split(COLUMNS, 1), second.split(COLUMNS, 1), strict=True)
    return sum(a_part.double() @ b_part.double().mT for a_part, b_part in parts).numpy()


def gram(read: From[Tensor]) -> Array:
    """Return inner products (m, m) of weight vectors (P,), a few of them in memory at a time."""
    first = next(read(0), None)
    size = AT_ONCE if first is None else max(1, min(AT_ONCE, BYTES // first.nbytes))
    return pairwise(read, inner_products, size)


def normalised(products: Array) -> Array:
    """Return products (m, m) divided by the roots of both diagonal entries: 1 on the diagonal, NaN for what is zero."""
    lengths = np.sqrt(np.diagonal(products))
    with np.errstate(invalid="ignore", divide="ignore"):
        cosines = products / np.outer(lengths, lengths)
    np.fill_diagonal(cosines, np.where(lengths > 0, 1.0, np.nan))
    return cosines


def cosines(read: From[Tensor]) -> Array:
    """Return cosines (m, m) of weight vectors (P,)."""
    return normalised(gram(read))


def disagreements(labels: Tensor) -> Array:
    """Return the fraction (m, m) of inputs on which two networks predict different classes, from labels (m, N)."""
    return pairwise(
        lambda first: iter(labels[first:]),
        lambda a, b: np.stack([(torch.stack(b) != one).double().mean(1).numpy() for one in a]),
    )


def normalised_diversity(disagreement: Any, accuracy: Any) -> Array:
    """Compute D = d / (1 - a).

    Args:
        disagreement: Fraction d of inputs on which a network and a reference predict different classes.
        accuracy: Accuracy a of the network that is compared, not of the reference.

    Returns:
        The normalised diversity; NaN at a = 1.

    >>> float(normalised_diversity(0.3, 0.4))
    0.5
    """
    error = 1 - np.asarray(accuracy, dtype=float)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(error > 0, np.asarray(disagreement, dtype=float) / error, np.nan)


def disagreement_bounds(a: Any, b: Any, classes: int) -> tuple[Array, Array]:
    """Compute the least and the largest disagreement of two classifiers.

    |a - b| <= d <= min(1, 2 - a - b): where exactly one is right they disagree, and both are right on at least
    a + b - 1 of the inputs. Two classes leave one wrong answer, so that then also d <= a + b.

    Args:
        a: Accuracy of the first classifier.
        b: Accuracy of the second.
        classes: Number of classes.

    Returns:
        The lower and the upper bound.

    >>> [float(end) for end in disagreement_bounds(0.75, 0.5, classes=10)]
    [0.25, 0.75]
    """
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    upper = np.minimum(1.0 if classes > 2 else a + b, 2 - a - b)
    return np.abs(a - b), upper


def hsic(a: Tensor, b: Tensor) -> float:
    """Return |A' B|², squared Frobenius norm, of centred features (N, D1) and (N, D2), by the smaller of two products.

    Equal to tr(K H L H) with K = A A', L = B B' and the centring matrix H (Gretton et al. 2005), up to (N - 1)².
    """
    a, b = (features - features.mean(0) for features in (a.double(), b.double()))
    if len(a) < min(a.shape[1], b.shape[1]):
        return float(((a @ a.mT) * (b @ b.mT)).sum())
    return float((a.mT @ b).square().sum())


def linear_cka(a: Tensor, b: Tensor) -> float:
    """Compute the linear centred kernel alignment of features.

    It does not change under orthogonal maps and isotropic scaling of the features.

    Args:
        a: Features (N, D1).
        b: Features (N, D2) of the same inputs.

    Returns:
        The alignment, from 0 to 1; NaN if either is constant.

    Raises:
        Misuse: For features of different numbers of inputs.

    >>> features = torch.eye(3)[[0, 1, 2, 0]]
    >>> round(linear_cka(features, -2 * features), 6)
    1.0
    """
    if len(a) != len(b):
        raise Misuse(f"features of {len(a)} and {len(b)} inputs: CKA compares features of the same inputs")
    scale = math.sqrt(hsic(a, a) * hsic(b, b))
    return hsic(a, b) / scale if scale > 0 else math.nan


def feature_alignment(outputs: PointOutputs, read: From[Tensor]) -> Array:
    """Yield linear CKA (m, m) of the features of networks at weight vectors (P,).

    What enters their last linear operator.
    """

    def features(first: int) -> Iterator[Tensor]:
        for module in outputs.modules(read(first)):
            yield torch.cat(list(module_features(module, outputs.x)))

    return normalised(pairwise(features, lambda a, b: np.array([[hsic(f, g) for g in b] for f in a])))


@dataclass(frozen=True, eq=False)
class Similarity(Result):
    """How alike m networks are, as symmetric matrices (m, m)."""

    subject: Subject
    names: tuple[str, ...]  # of the networks
    groups: tuple[str, ...]  # the run or method of each network
    cosine: Array  # (m, m) of weights
    disagreement: Array  # (m, m) of predicted classes
    accuracy: Array  # (m,)
    classes: int
    examples: int
    labels: Tensor  # (m, N) int16, predicted classes
    cka: Array | None = None  # (m, m) of features
    DERIVED: ClassVar[tuple[str, ...]] = ("diversity", "verdicts")

    @property
    def diversity(self) -> Array:
        """D (m, m): the disagreement of a column's network with a row's, over the error rate of the column's."""
        return normalised_diversity(self.disagreement, self.accuracy[None, :])

    @property
    def bounds(self) -> tuple[Array, Array]:
        """The least and the largest possible disagreement (m, m) at these accuracies."""
        return disagreement_bounds(self.accuracy[:, None], self.accuracy[None, :], self.classes)

    @property
    def matrices(self) -> dict[str, Array]:
        """The matrices by name."""
        matrices = {name: getattr(self, name) for name in ("cosine", "disagreement", "diversity")}
        return matrices if self.cka is None else {**matrices, "cka": self.cka}

    def mean(self, matrix: str, *, same_group: bool | None = None) -> float:
        """Return the mean over pairs of different networks.

        Of one group or of two, if asked for. NaN without such pairs.
        """
        pairs = ~np.eye(len(self.names), dtype=bool)
        if same_group is not None:
            groups = np.array(self.groups)
            pairs &= (groups[:, None] == groups[None, :]) == same_group
        values = self.matrices[matrix][pairs]
        return float(np.nanmean(values)) if np.isfinite(values).any() else math.nan

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Claims of Fort et al. (2019) on these networks, or groups of them, with intervals over these and examples.

        None for one network; those on a path are of `run_verdicts`.
        """
        if len(self.names) < 2 or self.subject == "path":
            return ()
        groups = list(dict.fromkeys(self.groups))
        noun = {"groups" if len(groups) < len(self.groups) else "runs": len(groups)}
        if len(groups) < 2:  # samples around one network
            return ()
        orthogonal = jackknife_estimate(
            "cosine of weights of different groups" if "groups" in noun else "cosine of weights of two runs",
            lambda rows: self.between(self.cosine, [groups[row] for row in rows]),
            noun,
            -math.inf,
            ORTHOGONAL,
        )
        note = f"they disagree on {self.mean('disagreement', same_group=False):.1%} of the examples, "
        note += f"{self.mean('diversity', same_group=False):.2f} times the error rate"
        verdicts = [Verdict("orthogonal", "independent networks are orthogonal in weight space", (orthogonal,), note)]
        if "groups" in noun:
            inside, apart = (self.mean("disagreement", same_group=same) for same in (True, False))
            note = f"networks disagree on {inside:.1%} of the examples within a group and on {apart:.1%} between groups"
            twice = jackknife_estimate(
                "disagreement between groups less twice that within them",
                lambda rows: (
                    self.by_example([groups[r] for r in rows], False)
                    - 2 * self.by_example([groups[r] for r in rows], True)
                ),
                noun,
                0.0,
                math.inf,
            )
            verdicts.append(Verdict("groups", "groups differ at least twice as much as their networks", (twice,), note))
        return tuple(verdicts)

    def between(self, matrix: Array, groups: Sequence[str], same: bool = False) -> float:
        """Return the mean of a matrix over pairs of networks of different groups, or of the same, among some groups."""
        pairs = self.pairs(groups, same)
        return float(matrix[tuple(pairs.T)].mean()) if len(pairs) else math.nan

    def by_example(self, groups: Sequence[str], same: bool = False) -> Array:
        """Return the share (N,) of these pairs of networks that disagree on each example."""
        pairs, share = self.pairs(groups, same), np.zeros(self.examples)
        for first, second in pairs:
            share += (self.labels[first] != self.labels[second]).numpy()
        return share / max(len(pairs), 1)

    def pairs(self, groups: Sequence[str], same: bool) -> NDArray[np.int64]:
        """Return pairs (n, 2) of networks of different groups, or of the same one, among some groups."""
        rows = [row for row, group in enumerate(self.groups) if group in groups]
        pairs = [(a, b) for a, b in itertools.combinations(rows, 2) if (self.groups[a] == self.groups[b]) == same]
        return np.array(pairs, dtype=np.int64).reshape(-1, 2)

    def to_json(self) -> dict[str, Any]:
        record = super().to_json()
        return record if self.cka is not None else {name: value for name, value in record.items() if name != "cka"}

    def frame(self) -> pd.DataFrame:
        """Return one row for each number: measure, the two networks and the value."""
        first, second = (side.ravel() for side in np.meshgrid(self.names, self.names, indexing="ij"))
        parts = [
            pd.DataFrame({"measure": name, "first": first, "second": second, "value": matrix.ravel()})
            for name, matrix in self.matrices.items()
        ]
        own = pd.DataFrame({"measure": "accuracy", "first": self.names, "second": self.names, "value": self.accuracy})
        return pd.concat([*parts, own], ignore_index=True)


def without_diagonal(matrix: Array) -> Array:
    """Return a copy with NaN on the diagonal."""
    copy = np.array(matrix, dtype=float)
    np.fill_diagonal(copy, np.nan)
    return copy


def run_verdicts(members: Similarity, paths: Sequence[Similarity]) -> tuple[Verdict, ...]:
    """Return claims of Fort et al. (2019) that compare runs with late checkpoints of one run.

    Args:
        members: The ends of all runs.
        paths: Checkpoints of the first runs, on the same examples.

    Returns:
        Two verdicts; none without two runs, or with paths that are too short to have an end beside a beginning.
    """
    late = [min(LATE, len(path.names) // 2) for path in paths]
    if not late or min(late) < LEAST_LATE or len(members.names) < 2:
        return ()
    ends = [np.arange(len(path.names))[-count:] for path, count in zip(paths, late, strict=True)]
    cosines = [
        float(path.cosine[np.ix_(end, end)][np.triu_indices(len(end), 1)].mean())
        for path, end in zip(paths, ends, strict=True)
    ]
    moved = np.stack(
        [late_disagreement(path.labels[torch.from_numpy(end)]) for path, end in zip(paths, ends, strict=True)]
    )

    def apart(runs: list[int]) -> Array:
        return members.by_example([members.groups[run] for run in runs])

    def twice(runs: list[int]) -> Array:
        names = [members.groups[run] for run in runs]
        kept = [row for row, path in enumerate(paths) if path.groups[0] in names]
        return apart(runs) - 2 * (moved[kept] if kept else moved).mean(0)

    everything = list(range(len(members.names)))
    alike = estimate(f"cosine of the last {late[0]} checkpoints of a run", cosines, ALIKE, math.inf, "runs")
    more = jackknife_estimate(
        "disagreement of runs less twice that of late checkpoints", twice, {"runs": len(everything)}, 0.0, math.inf
    )
    note = f"runs disagree on {apart(everything).mean():.1%} of the examples, late checkpoints on {moved.mean():.1%}"
    return (
        Verdict("one end", "late checkpoints of a run point the same way", (alike,)),
        Verdict(
            "different functions", "runs disagree at least twice as often as late checkpoints of one", (more,), note
        ),
    )


def verdicts_of(records: Mapping[str, Similarity]) -> tuple[Verdict, ...]:
    """Return the verdicts on sets of networks, and of members with their own paths."""
    members = [record for record in records.values() if record.subject == "members"]
    paths = [record for record in records.values() if record.subject == "path"]
    together = run_verdicts(members[0], paths) if len(members) == 1 else ()
    if len(records) > len(members) + len(paths):  # samples by the name of their sampler
        named = [replace(v, claim=f"{name}: {v.claim}") for name, record in records.items() for v in record.verdicts]
        return (*named, *together)
    return (*itertools.chain.from_iterable(record.verdicts for record in records.values()), *together)


def late_disagreement(labels: Tensor) -> Array:
    """Return the share (N,) of pairs of networks that disagree on each example, from labels (m, N)."""
    pairs = list(itertools.combinations(labels, 2))
    return torch.stack([(a != b).double() for a, b in pairs]).mean(0).numpy()


def network_similarity(
    networks: Networks,
    data: Any,
    *,
    train: Any = None,
    cka: bool = True,
    names: Sequence[str] = (),
    groups: Sequence[str] = (),
) -> Similarity:
    """Compare members of an ensemble, or other networks of one architecture, in weights, predictions and features.

    Args:
        networks: An ensemble, `Points`, or modules of one architecture.
        data: Labelled examples: a `Data` (its test split), a split, or a pair (x, y).
        train: Training examples for batch-norm statistics; needed by networks with batch-norm layers.
        cka: Whether to compare features by linear CKA.
        names: Name of every network.
        groups: Run of every network; `mean` and the verdicts then compare pairs within and between runs.

    Returns:
        Matrices (m, m) of m networks.

    Raises:
        Misuse: For regression networks, or names and groups of another number.

    >>> nets = [torch.nn.Linear(4, 3) for _ in range(3)]
    >>> network_similarity(nets, (torch.randn(20, 4), torch.arange(20) % 3)).cosine.shape
    (3, 3)
    """
    outputs, y = labelled_outputs(networks, data, train)
    points = outputs.points
    runs = tuple(groups) or tuple(str(index) for index in range(len(points)))
    subject: Subject = "members" if len(set(runs)) == len(runs) else "samples"
    labels = tuple(names) or tuple(str(index) for index in range(len(points)))
    for texts, option in ((labels, "names"), (runs, "groups")):
        if len(texts) != len(points):
            raise Misuse(f"{len(texts)} {option} for {len(points)} networks: expected one for each")
    about: dict[str, Any] = {"subject": subject, "names": labels, "groups": runs}
    return measured(outputs, y, lambda first: iter(points.vectors[first:]), cka, **about)


def path_similarity(
    trajectory: Trajectory, data: Any, member: int = 0, *, train: Any = None, cka: bool = False
) -> Similarity:
    """Compare the checkpoints of one member along its path, reading them from disk as needed.

    Args:
        trajectory: Paths of the members.
        data: Labelled examples: a `Data` (its test split), a split, or a pair (x, y).
        member: Index of the member.
        train: Training examples for batch-norm statistics; needed by networks with batch-norm layers.
        cka: Whether to compare features by linear CKA.

    Returns:
        Matrices (m, m) of m checkpoints.
    """
    outputs, y = labelled_outputs(trajectory.points, data, train)

    def read(first: int) -> Iterator[Tensor]:
        return (trajectory.at(member, index) for index in range(first, len(trajectory.steps)))

    names = tuple(f"{epoch:g}" for epoch in trajectory.epochs)
    return measured(outputs, y, read, cka, subject="path", names=names, groups=(str(member),) * len(names))


def measured(outputs: PointOutputs, y: Tensor, read: From[Tensor], cka: bool, **about: Any) -> Similarity:
    """Return the record of networks at weight vectors, which are read several times."""
    scores = outputs.scores(read(0), y)
    if not scores.labels.shape[1]:
        raise Misuse("the networks are for regression: disagreement compares predicted classes")
    sample = PointOutputs(outputs.points, outputs.x[:FEATURE_INPUTS], outputs.train_x, outputs.engine)
    about |= {"cosine": cosines(read), "disagreement": disagreements(scores.labels)}
    about |= {"cka": feature_alignment(sample, read) if cka else None, "accuracy": scores.accuracy.numpy()}
    about["labels"] = scores.labels
    return Similarity(**about, classes=scores.width, examples=len(y))
