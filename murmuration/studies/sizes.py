"""Ensembling, subspace sampling and weight averaging against ensemble size, on clean, corrupted and OOD inputs.

Every method gives one prediction q_r for each of R runs: the probabilities of its final weights ("original"), of its
weight average ("average"), or the mean over checkpoints or samples around it. An ensemble of size k is the mean of q_r
over k runs; scores are means over subsets of k runs. So size 1 of "original" is the baseline, size 1 of a sampler is
subspace sampling, size k of "original" the ensemble and size k of a sampler ensemble and subspace sampling together
(Fort, Hu and Lakshminarayanan 2019, section 5).

Jensen-Shannon divergences of all groups are compared at one number of networks, as means over subsets.
"""

import itertools
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import astuple, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from murmuration.data import Data
from murmuration.data.streamed import MOST_ROWS
from murmuration.evaluation import EvalSet, ShiftSuite, eval_set_for, eval_set_of, shift_suite
from murmuration.evaluation.metrics.intervals import group_sums
from murmuration.evaluation.metrics.per_example import brier
from murmuration.evaluation.metrics.scores import measure_of
from murmuration.likelihoods import CLASSIFICATION
from murmuration.prediction.checks import checked_labels
from murmuration.prediction.ensemble import Ensemble, MemberGroup
from murmuration.studies.cells import Arrays, Cells
from murmuration.studies.divergence import SUBSETS, mean_divergence, subsets_of
from murmuration.studies.diversity import INDEPENDENT
from murmuration.studies.landscape import Result, Show, digest, silent
from murmuration.studies.size_verdicts import ORIGINAL, PATH, ByExample, Place, example_scores, size_verdicts
from murmuration.studies.subspaces import COUNT, LAST, Accepted, Rejected, sample_subspace
from murmuration.studies.trajectory import Trajectory
from murmuration.studies.verdicts import Verdict
from murmuration.studies.weight_space import Networks, examples_of, inputs_of, points_of
from murmuration.system.errors import Failure, Misuse

Array = NDArray[np.float64]
Source = Callable[[], Ensemble]  # the networks of one method around one run, made when they are needed

SCORED = ("accuracy", "nll", "brier", "ece")
AVERAGE = "average"  # a method, beside ORIGINAL, PATH and the samplers
TOGETHER = 5  # M, networks whose Jensen-Shannon divergence is taken
LEAST = 1e-12  # probability that a logarithm is taken of
BYTES = 1 << 27  # of networks in memory
SAMPLED = ("random", "dropout", "diagonal", "pca", "pca-random")


def point_scores(probs: Any, labels: Tensor, measures: Sequence[str] = SCORED) -> Array:
    """Compute scores (F,) of class probabilities (N, K) by the table of measures, without intervals.

    Probabilities below 1e-12 count as 1e-12 in the NLL.
    """
    precise = torch.as_tensor(probs).double()
    confidence, predicted = precise.max(-1)
    right = precise.gather(-1, labels[:, None]).squeeze(-1)
    columns = {
        "correct": (predicted == labels).numpy(),
        "confidence": confidence.numpy(),
        "log_prob": right.clamp_min(LEAST).log().numpy(),
        "brier": brier(precise, labels).numpy(),
    }
    together, scores = np.zeros(len(labels), dtype=np.int64), []
    for name in measures:
        measure = measure_of(name, "classification")
        means = group_sums(measure.features(columns), together)[0] / len(labels)
        scores.append(float(measure.finished(measure.combine(means))))
    return np.array(scores)


def size_scores(
    probs: Any,
    labels: Tensor,
    sizes: Sequence[int],
    measures: Sequence[str] = SCORED,
    *,
    most: int = SUBSETS,
    seed: int = 0,
) -> tuple[Array, Array]:
    """Return mean and standard deviation (sizes, measures) over subsets of runs of scores of the mean of (R, N, K).

    NaN for sizes above R.
    """
    runs = torch.as_tensor(probs)
    means = np.full((len(sizes), len(measures)), np.nan)
    deviations = means.copy()
    for place, size in enumerate(sizes):
        if size <= len(runs):
            subsets = subsets_of(len(runs), size, most=most, seed=seed)[0]
            ensembles = (runs[list(subset)].double().mean(0) for subset in subsets)
            scores = np.stack([point_scores(probs, labels, measures) for probs in ensembles])
            means[place], deviations[place] = scores.mean(0), scores.std(0)
    return means, deviations


@dataclass(frozen=True)
class Condition:
    """Inputs that methods are compared on."""

    name: str  # the corruption, "" for clean inputs, or the name of OOD inputs
    severity: int  # 0 for clean and OOD inputs
    ood: bool = False

    @property
    def key(self) -> str:
        return f"{self.name or 'clean'}-{self.severity}"


@dataclass(frozen=True, eq=False)
class Sizes(Result):
    """Scores of methods against ensemble size and severity of corruption, and divergences between their networks."""

    methods: tuple[str, ...]
    sizes: tuple[int, ...]
    conditions: tuple[Condition, ...]  # labelled: clean, then corruptions
    measures: tuple[str, ...]
    scores: Array  # (methods, sizes, conditions, measures), means over subsets of runs; NaN above the number of runs
    deviations: Array  # the same shape: standard deviations over subsets
    subsets: NDArray[np.int64]  # (methods, sizes)
    exact: NDArray[np.bool_]  # (methods, sizes) whether these are all subsets
    divergences: Mapping[str, Mapping[Condition, float]]  # group -> mean Jensen-Shannon divergence, OOD inputs too
    together: int  # M, networks of a divergence
    examples: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    verdicts: tuple[Verdict, ...] = ()
    DERIVED: ClassVar[tuple[str, ...]] = ("severities",)

    @property
    def severities(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(condition.severity for condition in self.conditions))

    @property
    def samplers(self) -> tuple[str, ...]:
        """Methods that average several networks of a run."""
        return tuple(name for name in self.methods if name not in (ORIGINAL, AVERAGE))

    def score(self, method: str, size: int, measure: str, severity: int = 0) -> float:
        """Return a score, the mean over the corruptions of a severity."""
        rows = [place for place, condition in enumerate(self.conditions) if condition.severity == severity]
        place = self.methods.index(method), self.sizes.index(size)
        return float(self.scores[place][rows, self.measures.index(measure)].mean())

    def divergence(self, group: str, severity: int = 0) -> float:
        """Return a Jensen-Shannon divergence, the mean over the corruptions of a severity; NaN if it is not known."""
        conditions = self.divergences.get(group, {}).items()
        values = [value for condition, value in conditions if condition.severity == severity and not condition.ood]
        return float(np.mean(values)) if values else math.nan

    @property
    def ood_names(self) -> tuple[str, ...]:
        conditions = itertools.chain.from_iterable(self.divergences.values())
        return tuple(dict.fromkeys(condition.name for condition in conditions if condition.ood))

    def to_json(self) -> dict[str, Any]:
        divergences = {
            group: [{**vars(condition), "value": value} for condition, value in by_condition.items()]
            for group, by_condition in self.divergences.items()
        }
        return super().to_json() | {"divergences": divergences}

    def frame(self) -> pd.DataFrame:
        """Return one row for each number.

        Method, size, condition, severity, measure, value, std over subsets, subsets.
        """
        rows: list[tuple[Any, ...]] = []
        for m, s, c, f in np.ndindex(self.scores.shape):
            cell = self.conditions[c].name or "clean", self.conditions[c].severity, self.measures[f]
            numbers = self.scores[m, s, c, f], self.deviations[m, s, c, f], self.subsets[m, s]
            if self.subsets[m, s]:
                rows.append((self.methods[m], self.sizes[s], *cell, *numbers))
        for group, by_condition in self.divergences.items():
            for case, value in by_condition.items():
                cell = case.name or "clean", case.severity, "jensen_shannon"
                rows.append((group, self.together, *cell, value, math.nan, 0))
        names = ["method", "size", "condition", "severity", "measure", "value", "std", "subsets"]
        return pd.DataFrame(rows, columns=names)


def run_methods(
    networks: Networks,
    trajectory: Trajectory | None,
    samplers: Sequence[str],
    settings: Mapping[str, Mapping[str, Any]] | None,
    train: Any = None,
    **shared: Any,
) -> dict[str, list[Source]]:
    """Return by method and run a function that makes its networks: the run, its average, checkpoints, samples.

    Without a trajectory only "original" and samplers that need none are possible. `shared` are settings of
    `sample_subspace`.
    """
    points = points_of(networks)
    like = networks if isinstance(networks, Ensemble) else None
    accepted: Accepted = {}

    def alone(run: int) -> Ensemble:
        return points[[run]].ensemble(like)

    def sampled(name: str, run: int) -> Ensemble:
        options = {"train": train, "accepted": accepted, **shared}
        own_options = (settings or {}).get(name, {})
        points_of_run = sample_subspace(networks, trajectory, run, name, **options, **own_options)
        if not len(points_of_run):
            text = (
                f"no sample of {name} around member {run} is accurate enough: give it a lower threshold or a smaller "
            )
            raise Rejected(name, f"{text}radius by settings=")
        return points_of_run.ensemble(like)

    def checkpoints(run: int) -> Ensemble:
        assert trajectory is not None
        path = points.around(run, torch.stack(list(trajectory.vectors(run, LAST))))
        return path.refreshed(inputs_of(networks, train)).ensemble(like)

    runs = range(len(points))
    methods: dict[str, list[Source]] = {ORIGINAL: [partial(alone, run) for run in runs]}
    if trajectory is not None:
        methods[AVERAGE] = [partial(sampled, AVERAGE, run) for run in runs]
        methods[PATH] = [partial(checkpoints, run) for run in runs]
    return methods | {name: [partial(sampled, name, run) for run in runs] for name in samplers}


def runs_of(networks: Ensemble | Sequence[Ensemble]) -> list[Ensemble]:
    """Return the runs of another method: one ensemble for each, or one ensemble whose members come from several runs.

    Members that were drawn or kept along one path (SWAG, cSG-MCMC, snapshots) are one run; others are one each.
    """
    if not isinstance(networks, Ensemble):
        return list(networks)
    if len(networks.groups) > 1:
        return [replace(networks, groups=(group,)) for group in networks.groups]
    module, population = networks.groups[0].module, networks.groups[0].population
    origins = networks.manifest.rows(population.members)
    rows = [[i for i, member in enumerate(origins) if member == origin] for origin in dict.fromkeys(origins)]
    taken = [MemberGroup(module, population.take(torch.tensor(members))) for members in rows]
    return [replace(networks, groups=(group,)) for group in taken]


@dataclass(frozen=True)
class Task:
    """The networks of one method around one run."""

    method: str
    run: int
    source: Source | Ensemble
    weights: str = ""  # a digest, of networks that do not follow from the runs

    def keys(self, conditions: Sequence[Condition]) -> list[str]:
        """Return the names of its cells; OOD inputs may have any name and are numbered."""
        name = f"{self.method}-{self.weights}" if self.weights else self.method
        inputs = (f"ood-{place}" if condition.ood else condition.key for place, condition in enumerate(conditions))
        return [f"{name}-{self.run}-{condition}" for condition in inputs]


def predictions_of(ensemble: Ensemble, x: Tensor, y: Tensor, *, together: int, seed: int, eps: float) -> Arrays:
    """Compute mean probabilities (N, K), the mean divergence of `together` networks, and labels (N,).

    The divergence (N,) is NaN if there are fewer. A few inputs at a time are unfolded in memory.
    """
    means, divergences = [], []
    for pred in ensemble.stream(x, calibrated=False, prepared=True):
        probs = pred.probs
        means.append(pred.mean_probs.float())
        too_few = len(probs) < together or together < 2
        none = probs.new_full((probs.shape[1],), math.nan).double()
        divergences.append(none if too_few else mean_divergence(probs, together, seed=seed, eps=eps))
    return {"probs": torch.cat(means).numpy(), "divergence": torch.cat(divergences).numpy(), "labels": y.numpy()}


def together_in_memory(tasks: Iterable[Task], limit: int = BYTES) -> Iterator[list[tuple[Task, Ensemble]]]:
    """Yield tasks with their networks, as many at a time as `limit` bytes hold, one at least."""
    batch: list[tuple[Task, Ensemble]] = []
    size = 0
    for task in tasks:
        ensemble = task.source if isinstance(task.source, Ensemble) else task.source()
        needed = 4 * sum(group.population.parameters_stored() for group in ensemble.groups)
        if batch and size + needed > limit:
            yield batch
            batch, size = [], 0
        batch.append((task, ensemble))
        size += needed
    if batch:
        yield batch


@dataclass(frozen=True)
class Inputs:
    """All inputs that methods are compared on, made when they are needed."""

    eval_set: EvalSet | None
    x: Tensor  # (N, ...) clean
    y: Tensor  # (N,)
    suite: ShiftSuite | None
    ood: Mapping[str, Tensor]

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Clean inputs, corruptions, then OOD inputs."""
        cells = () if self.suite is None else itertools.starmap(Condition, self.suite.cells)
        return (Condition("", 0), *cells, *(Condition(name, 0, ood=True) for name in self.ood))

    def at(self, condition: Condition) -> tuple[Tensor, Tensor]:
        """Return prepared inputs (N, ...) and labels (N,), none of OOD inputs."""
        if condition.ood:
            return self.ood[condition.name], self.y[:0]
        if condition.severity == 0:
            return self.x, self.y
        assert self.suite is not None and self.eval_set is not None  # noqa: PT018
        split = self.suite.split(self.eval_set, condition.name, condition.severity)
        return split.prepared, split.y


def inputs_for(
    networks: Networks,
    data: Any,
    shift: ShiftSuite | Sequence[str] | bool | None,
    severities: Sequence[int],
    ood: Mapping[str, Any] | None,
    examples: int | None,
) -> Inputs:
    """Return the inputs of a comparison.

    Corruptions need to know how inputs were prepared, from an ensemble or a `Data`.
    """
    prepares = isinstance(networks, Ensemble) and networks.preparation is not None
    x, y = examples_of(networks, data)
    prepared = ((name, inputs_of(networks, inputs)) for name, inputs in (ood or {}).items())
    ood_used = {name: inputs[:examples] for name, inputs in prepared if inputs is not None}
    if not shift:
        return Inputs(None, x[:examples], y[:examples], None, ood_used)
    if not prepares and not isinstance(data, Data | EvalSet):
        raise Misuse("corruptions act on inputs before their preparation: give an ensemble of a run, or data as a Data")
    eval_set = eval_set_for(networks, data) if isinstance(networks, Ensemble) and prepares else eval_set_of(data)
    suite = shift
    if not isinstance(suite, ShiftSuite):
        names = None if shift is True else list(shift)  # type: ignore[arg-type]
        suite = shift_suite(eval_set, names, severities=severities, examples=examples)
    return Inputs(eval_set, x[:examples], y[:examples], suite, ood_used)


def ensemble_sizes(
    networks: Networks,
    trajectory: Trajectory | None,
    data: Any,
    *,
    samplers: Sequence[str] = SAMPLED,
    count: int = COUNT,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    others: Mapping[str, Ensemble | Sequence[Ensemble]] | None = None,
    shift: ShiftSuite | Sequence[str] | bool | None = None,
    severities: Sequence[int] = (1, 2, 3, 4, 5),
    ood: Mapping[str, Any] | None = None,
    examples: int | None = None,
    subsets: int = SUBSETS,
    together: int | None = None,
    eps: float = 0.0,
    val: Any = None,
    train: Any = None,
    seed: int = 0,
    folder: Path | None = None,
    show: Show = silent,
) -> Sizes:
    """Score runs, their subspaces and averages against ensemble size, and measure divergences between their networks.

    Args:
        networks: An ensemble, `Points`, or modules of one architecture.
            Every member is one run.
        trajectory: Paths of the members, or None.
        data: Labelled examples: a `Data` (its test split), a split, or a pair (x, y).
        samplers: Names of `SAMPLERS`.
        count: Samples of each sampler around each run.
        settings: Settings of the samplers, by name.
        others: Further ensembles by name; see `runs_of`.
        shift: Names of corruptions, True for all, or a suite.
        severities: Severities of the corruptions.
        ood: Out-of-distribution inputs, by name.
        examples: Number of examples that are used; all by default.
        subsets: Largest number of subsets of runs that scores are averaged over.
        together: Networks of a divergence; by default 5, or all runs if they are fewer.
        eps: See `jensen_shannon`.
        val: Labelled examples by whose accuracy random samples are accepted.
        train: Training examples for batch-norm statistics; needed by networks with batch-norm layers.
        seed: Random seed.
        folder: Directory for predictions, from which an interrupted comparison resumes; a temporary one by default.
        show: Progress callback `show(text, done, total)`.

    Returns:
        Scores by method, size, condition and measure, and divergences by group and condition.

    Raises:
        Misuse: For regression networks, or another method with the name of one of these.
    """
    points, inputs = points_of(networks), inputs_for(networks, data, shift, severities, ood, examples)
    if points.likelihood is not None and points.likelihood.task != CLASSIFICATION:
        raise Misuse(f"networks for {points.likelihood.task}: ensemble sizes are compared by scores of classes")
    classes = points[:1].ensemble().predict(inputs.x[:1], prepared=True).outputs.shape[-1]
    checked_labels(inputs.y, inputs=len(inputs.x), classes=classes)
    shared = {"count": count, "val": val, "train": train, "seed": seed}
    methods = run_methods(networks, trajectory, samplers, settings, **shared)
    further = {name: runs_of(ensembles) for name, ensembles in (others or {}).items()}
    if clashes := set(further) & set(methods):
        raise Misuse(f"other networks named {min(clashes)}, which is the name of a method here: give them another name")
    size = min(TOGETHER, len(points)) if together is None else together
    divergence: dict[str, Any] = {"together": size, "seed": seed, "eps": eps}
    facts = {"count": count, "settings": dict(settings or {}), "subsets": subsets, **divergence}
    about = {
        "weights": digest(points.vectors),
        "inputs": digest(inputs.x, inputs.y, *inputs.ood.values()),
        "conditions": list(map(astuple, inputs.conditions)),
        "suite": str(inputs.suite),
        "trajectory": [] if trajectory is None else list(trajectory.steps),
        "divergences": "by example",
        **facts,
    }
    tasks = [Task(name, run, source) for name, runs in methods.items() for run, source in enumerate(runs)]
    for name, runs in further.items():
        for run, ensemble in enumerate(runs):
            weights = [tensor for group in ensemble.groups for tensor in group.population.to_tensors().values()]
            tasks.append(Task(name, run, ensemble, digest(*weights)[:16]))
    with nullcontext(str(folder)) if folder else tempfile.TemporaryDirectory() as place:
        cells = Cells(Path(place), about)
        predict_all(tasks, inputs, cells, show, partial(predictions_of, **divergence))
        return scored_sizes(tasks, inputs.conditions, cells, facts)


def absent() -> Arrays:
    raise Failure("predictions were damaged or removed while they were compared: compare again")


def predict_all(
    tasks: Sequence[Task], inputs: Inputs, cells: Cells, show: Show, predict: Callable[..., Arrays]
) -> None:
    """Compute the predictions that are not in their cells yet, several tasks on each corruption of the inputs."""
    conditions = inputs.conditions
    waiting = [task for task in tasks if cells.missing(task.keys(conditions))]
    done, total = 0, len(waiting) * len(conditions)
    for batch in together_in_memory(waiting):
        for place, condition in enumerate(conditions):
            show(f"{batch[0][0].method}, {condition.name or 'clean'} {condition.severity}", done, total)
            keys = {task.keys(conditions)[place]: ensemble for task, ensemble in batch}
            if missing := cells.missing(list(keys)):
                x, y = inputs.at(condition)
                for key in missing:
                    cells(key, partial(predict, keys[key], x, y))
            done += len(batch)


def scored_sizes(
    tasks: Sequence[Task], conditions: Sequence[Condition], cells: Cells, facts: Mapping[str, Any]
) -> Sizes:
    """Return the record from the predictions of all tasks in their cells."""
    methods = Counter(task.method for task in tasks)  # runs of each
    keys = {(task.method, task.run): task.keys(conditions) for task in tasks}
    labelled = tuple(condition for condition in conditions if not condition.ood)
    sizes, most, seed = tuple(range(1, max(methods.values()) + 1)), facts["subsets"], facts["seed"]
    scores = np.full((len(methods), len(sizes), len(labelled), len(SCORED)), np.nan)
    deviations, examples = scores.copy(), 0
    divergences: dict[str, dict[Condition, float]] = {INDEPENDENT: {}, **{name: {} for name in methods}}
    by_example: dict[str, dict[Place, Array]] = {name: {} for name in divergences}
    clean: dict[str, dict[tuple[int, ...], Array]] = {}
    corruptions = Counter(condition.severity for condition in labelled)

    def add(group: str, condition: Condition, values: Array) -> None:
        """Add divergences (R, N) of a group."""
        divergences[group][condition] = float(values.mean())
        at, share = (condition.name if condition.ood else "", condition.severity), 1.0
        share /= 1 if condition.ood else corruptions[condition.severity]
        by_example[group][at] = by_example[group].get(at, 0.0) + share * values

    for (place, condition), (row, (name, runs)) in itertools.product(enumerate(conditions), enumerate(methods.items())):
        stored = [cells(keys[name, run][place], absent) for run in range(runs)]
        probs, labels = torch.from_numpy(np.stack([cell["probs"] for cell in stored])), stored[0]["labels"]
        if not condition.ood:
            by_size = size_scores(probs, torch.from_numpy(labels), sizes, most=most, seed=seed)
            scores[row, :, place], deviations[row, :, place] = by_size
            examples = max(examples, len(labels))
            if condition.severity == 0:
                clean[name] = example_scores(probs, torch.from_numpy(labels))
        add(name, condition, np.stack([cell["divergence"] for cell in stored]))
        if name == ORIGINAL and 2 <= facts["together"] <= runs:
            parts = probs.split(MOST_ROWS, dim=1)
            own = [mean_divergence(part, facts["together"], seed=seed, eps=facts["eps"]) for part in parts]
            add(INDEPENDENT, condition, torch.cat(own).numpy()[None])
    counts = np.array([[min(math.comb(runs, size), most + 1) for size in sizes] for runs in methods.values()])
    subsets, exact = np.minimum(counts, most), (counts > 0) & (counts <= most)
    known = {name: row for name, row in divergences.items() if row and np.isfinite(list(row.values())).all()}
    axes = tuple(methods), sizes, labelled, SCORED
    record = Sizes(*axes, scores, deviations, subsets, exact, known, facts["together"], examples, facts)
    values = ByExample(clean, {name: by_example[name] for name in known})
    return replace(record, verdicts=size_verdicts(record, values))
