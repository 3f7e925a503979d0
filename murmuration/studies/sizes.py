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
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
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
from murmuration.prediction.ensemble import Ensemble, MemberGroup
from murmuration.prediction.predictive import checked_labels
from murmuration.studies.cells import Arrays, Cells
from murmuration.studies.divergence import SUBSETS, mean_divergence, subsets_of
from murmuration.studies.diversity import INDEPENDENT, MATCHED
from murmuration.studies.landscape import Show, Verdict, digest, silent
from murmuration.studies.subspaces import COUNT, LAST, Accepted, sample_subspace
from murmuration.studies.trajectory import Trajectory
from murmuration.studies.weight_space import Networks, Points, examples_of, inputs_of, points_of
from murmuration.system.errors import Failure, Misuse

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
Source = Callable[[], Ensemble]  # the networks of one method around one run, made when they are needed

SCORED = ("accuracy", "nll", "brier", "ece")
ORIGINAL, AVERAGE, PATH = "original", "average", "trajectory"  # methods beside the samplers
TOGETHER = 5  # M, networks whose Jensen-Shannon divergence is taken
LEAST = 1e-12  # probability that a logarithm is taken of
BYTES = 1 << 27  # of networks in memory
SAMPLED = ("random", "diagonal", "pca", "pca-random")


def point_scores(probs: Any, labels: Tensor, measures: Sequence[str] = SCORED) -> Array:
    """Scores (F,) by name of class probabilities (N, K), as the table of measures defines them, without intervals.

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
    together, found = np.zeros(len(labels), dtype=np.int64), []
    for name in measures:
        measure = measure_of(name, "classification")
        means = group_sums(measure.features(columns), together)[0] / len(labels)
        found.append(float(measure.finish(measure.combine(means))))
    return np.array(found)


def size_scores(
    probs: Any,
    labels: Tensor,
    sizes: Sequence[int],
    measures: Sequence[str] = SCORED,
    *,
    most: int = SUBSETS,
    seed: int = 0,
) -> tuple[Array, Array]:
    """Mean and standard deviation (sizes, measures) over subsets of runs of scores of the mean of (R, N, K).

    NaN for sizes above R.
    """
    runs = torch.as_tensor(probs)
    means = np.full((len(sizes), len(measures)), np.nan)
    deviations = means.copy()
    for place, size in enumerate(sizes):
        if size <= len(runs):
            subsets = subsets_of(len(runs), size, most=most, seed=seed)[0]
            found = np.stack([point_scores(runs[list(each)].double().mean(0), labels, measures) for each in subsets])
            means[place], deviations[place] = found.mean(0), found.std(0)
    return means, deviations


class Condition(NamedTuple):
    """Inputs that methods are compared on."""

    name: str  # the corruption, "" for clean inputs, or the name of OOD inputs
    severity: int  # 0 for clean and OOD inputs
    ood: bool = False

    @property
    def key(self) -> str:
        return f"{self.name or 'clean'}-{self.severity}"


@dataclass(frozen=True, eq=False)
class Sizes:
    """Scores of methods against ensemble size and severity of corruption, and divergences between their networks."""

    methods: tuple[str, ...]
    sizes: tuple[int, ...]
    conditions: tuple[Condition, ...]  # labelled: clean, then corruptions
    measures: tuple[str, ...]
    scores: (
        Array  # (methods, sizes, conditions, measures), means over subsets of runs; NaN for more runs than there are
    )
    deviations: Array  # the same shape: standard deviations over subsets
    subsets: NDArray[np.int64]  # (methods, sizes)
    exact: NDArray[np.bool_]  # (methods, sizes) whether these are all subsets
    divergences: Mapping[str, Mapping[Condition, float]]  # group -> mean Jensen-Shannon divergence, OOD inputs too
    together: int  # M, networks of a divergence
    examples: int
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def severities(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(condition.severity for condition in self.conditions))

    @property
    def samplers(self) -> tuple[str, ...]:
        """Methods that average several networks of a run."""
        return tuple(name for name in self.methods if name not in (ORIGINAL, AVERAGE))

    def score(self, method: str, size: int, measure: str, severity: int = 0) -> float:
        """A score, the mean over the corruptions of a severity."""
        rows = [place for place, condition in enumerate(self.conditions) if condition.severity == severity]
        place = self.methods.index(method), self.sizes.index(size)
        return float(self.scores[place][rows, self.measures.index(measure)].mean())

    def divergence(self, group: str, severity: int = 0) -> float:
        """A Jensen-Shannon divergence, the mean over the corruptions of a severity; NaN if it is not known."""
        known = self.divergences.get(group, {})
        values = [value for condition, value in known.items() if condition.severity == severity and not condition.ood]
        return float(np.mean(values)) if values else math.nan

    @property
    def ood_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.name for known in self.divergences.values() for each in known if each.ood))

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Claims of Fort et al. (2019) that these scores can decide, each with a sentence of numbers."""
        return tuple(filter(None, [growth_verdict(self), addition_verdict(self), divergence_verdict(self)]))

    def to_json(self) -> dict[str, Any]:
        names = ("methods", "sizes", "measures", "severities")
        arrays = ("scores", "deviations", "subsets", "exact")
        divergences = {
            group: [{**each._asdict(), "value": value} for each, value in known.items()]
            for group, known in self.divergences.items()
        }
        return {
            **{name: list(getattr(self, name)) for name in names},
            "conditions": [each._asdict() for each in self.conditions],
            **{name: getattr(self, name).tolist() for name in arrays},
            "divergences": divergences,
            "together": self.together,
            "examples": self.examples,
            "settings": dict(self.settings),
            "verdicts": [vars(each) for each in self.verdicts],
        }

    def frame(self) -> "pd.DataFrame":
        """One row for each number: method, size, condition, severity, measure, value, std over subsets, subsets."""
        import pandas as pd

        rows = [
            (method, size, condition.name or "clean", condition.severity, measure, *self._numbers(m, s, c, f))
            for m, method in enumerate(self.methods)
            for s, size in enumerate(self.sizes)
            for c, condition in enumerate(self.conditions)
            for f, measure in enumerate(self.measures)
            if self.subsets[m, s]
        ]
        rows += [
            (group, self.together, each.name or "clean", each.severity, "jensen_shannon", value, math.nan, 0)
            for group, known in self.divergences.items()
            for each, value in known.items()
        ]
        names = ["method", "size", "condition", "severity", "measure", "value", "std", "subsets"]
        return pd.DataFrame(rows, columns=names)

    def _numbers(self, m: int, s: int, c: int, f: int) -> tuple[float, float, int]:
        return float(self.scores[m, s, c, f]), float(self.deviations[m, s, c, f]), int(self.subsets[m, s])


def growth_verdict(found: Sizes) -> Verdict | None:
    """Whether scores improve with the number of runs."""
    sizes = sizes_of(found, ORIGINAL)
    if len(sizes) < 2:
        return None
    accuracy, errors = ([found.score(ORIGINAL, k, name) for k in sizes] for name in ("accuracy", "brier"))
    holds = bool((np.diff(errors) <= 0).all()) and accuracy[-1] >= accuracy[0]
    sentence = (
        f"from 1 to {sizes[-1]} runs accuracy goes from {accuracy[0]:.1%} to {accuracy[-1]:.1%} and the Brier score "
        f"from {errors[0]:.3f} to {errors[-1]:.3f}"
    )
    return Verdict("every run improves the Brier score, and all together the accuracy", holds, sentence)


def sizes_of(found: Sizes, method: str) -> list[int]:
    """The ensemble sizes that a method has runs for."""
    if method not in found.methods:
        return []
    return [k for k, count in zip(found.sizes, found.subsets[found.methods.index(method)], strict=True) if count]


def addition_verdict(found: Sizes) -> Verdict | None:
    """Whether sampling improves the ensemble too, and less than ensembling improves one run."""
    size = max(sizes_of(found, ORIGINAL), default=1)
    errors = {name: found.score(name, size, "brier") for name in found.samplers if size in sizes_of(found, name)}
    if not errors or size < 2:
        return None
    best = min(errors, key=lambda name: errors[name])
    base, sampled = (found.score(name, 1, "brier") for name in (ORIGINAL, best))
    whole, both = found.score(ORIGINAL, size, "brier"), errors[best]
    sentence = (
        f"Brier scores are {base:.3f} for one run, {sampled:.3f} with samples ({best}), {whole:.3f} for {size} runs "
        f"and {both:.3f} with both"
    )
    return Verdict("gains of ensembling and sampling add up", both <= whole <= sampled <= base, sentence)


def divergence_verdict(found: Sizes) -> Verdict | None:
    """Whether independent runs diverge more than networks around one run, the more so under corruption.

    Groups whose mean prediction is less accurate than one run, by more than 2 points, do not count: bad networks
    diverge.
    """
    last, level = found.severities[-1], found.score(ORIGINAL, 1, "accuracy") if ORIGINAL in found.methods else math.nan
    own = found.divergence(INDEPENDENT, last)
    groups = [group for group in found.divergences if group != INDEPENDENT]
    known = {
        group: found.divergence(group, last) for group in groups if found.score(group, 1, "accuracy") >= level - MATCHED
    }
    if not known or not math.isfinite(own):
        return None
    best = max(known, key=lambda group: known[group])
    gaps = [found.divergence(INDEPENDENT, each) - found.divergence(best, each) for each in (0, last)]
    where = f"at severity {last}" if last else "on clean inputs"
    growing = f"; the gap is {gaps[0]:.3f} on clean inputs and {gaps[1]:.3f} there" if last else ""
    worse = [group for group in groups if group not in known]
    left_out = f"; {', '.join(worse)} does not count, being less accurate than one run" if worse else ""
    sentence = (
        f"{where} the Jensen-Shannon divergence of {found.together} networks is {own:.3f} for independent runs and "
        f"{known[best]:.3f} for {best}{growing}{left_out}"
    )
    holds = own > known[best] and (last == 0 or gaps[1] > gaps[0])
    under = "independent runs diverge most, the more so under corruption"
    return Verdict(under if last else "independent runs diverge most", bool(holds), sentence)


def run_methods(
    networks: Networks,
    trajectory: Trajectory | None,
    *,
    samplers: Sequence[str] = SAMPLED,
    count: int = COUNT,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    val: Any = None,
    train: Any = None,
    seed: int = 0,
    last: int = LAST,
) -> dict[str, list[Source]]:
    """By method and run, a function that makes its networks: the run itself, its average, checkpoints and samples.

    Without a trajectory only "original" and samplers that need none are possible.
    """
    points = points_of(networks)
    like = networks if isinstance(networks, Ensemble) else None
    accepted: Accepted = {}

    def alone(run: int) -> Ensemble:
        return points[[run]].ensemble(like)

    def sampled(name: str, run: int) -> Ensemble:
        given = (settings or {}).get(name, {})
        shared: dict[str, Any] = {"val": val, "train": train, "seed": seed, "last": last, "accepted": accepted}
        found = sample_subspace(networks, trajectory, run, name, count, **shared, **given)
        if not len(found):
            raise Misuse(
                f"no sample of {name} around member {run} is accurate enough: give it a lower threshold or a smaller "
                "radius by settings="
            )
        return found.ensemble(like)

    def checkpoints(run: int) -> Ensemble:
        assert trajectory is not None
        vectors = torch.stack(list(trajectory.vectors(run, last)))
        buffers = {n: t[run : run + 1].expand(len(vectors), *t.shape[1:]).clone() for n, t in points.buffers.items()}
        found = replace(points, vectors=vectors, buffers=buffers)
        return found.refreshed(inputs_of(networks, train)).ensemble(like)

    runs = range(len(points))
    methods: dict[str, list[Source]] = {ORIGINAL: [partial(alone, run) for run in runs]}
    if trajectory is not None:
        methods[AVERAGE] = [partial(sampled, AVERAGE, run) for run in runs]
        methods[PATH] = [partial(checkpoints, run) for run in runs]
    return methods | {name: [partial(sampled, name, run) for run in runs] for name in samplers}


def runs_of(given: Ensemble | Sequence[Ensemble]) -> list[Ensemble]:
    """The runs of another method: one ensemble for each, or one ensemble whose members come from several runs.

    Members that were drawn or kept along one path (SWAG, cSG-MCMC, snapshots) are one run; others are one each.
    """
    if not isinstance(given, Ensemble):
        return list(given)
    if len(given.groups) > 1:
        return [replace(given, groups=(group,)) for group in given.groups]
    module, population = given.groups[0].module, given.groups[0].population
    origins = given.manifest.get("origins", list(range(population.members)))
    rows = {origin: [i for i, each in enumerate(origins) if each == origin] for origin in dict.fromkeys(origins)}
    return [
        replace(given, groups=(MemberGroup(module, population.take(torch.tensor(some))),)) for some in rows.values()
    ]


@dataclass(frozen=True)
class Task:
    """The networks of one method around one run."""

    method: str
    run: int
    source: Source
    weights: str = ""  # a digest, of networks that do not follow from the runs

    def keys(self, conditions: Sequence[Condition]) -> list[str]:
        """The names of its cells; OOD inputs may have any name and are numbered."""
        name = f"{self.method}-{self.weights}" if self.weights else self.method
        inputs = (f"ood-{place}" if each.ood else each.key for place, each in enumerate(conditions))
        return [f"{name}-{self.run}-{each}" for each in inputs]


def predictions_of(ensemble: Ensemble, x: Tensor, y: Tensor, *, together: int, seed: int, eps: float) -> Arrays:
    """Mean probabilities (N, K) of an ensemble's networks, the mean divergence of `together` of them, and labels (N,).

    The divergence is NaN if there are fewer. A few inputs at a time are unfolded in memory.
    """
    means, total = [], 0.0
    for pred in ensemble.stream(x, calibrated=False, prepared=True):
        probs = pred.probs
        means.append(pred.mean_probs.float())
        few = len(probs) < together or together < 2
        total += math.nan if few else mean_divergence(probs, together, seed=seed, eps=eps).sum().item()
    return {"probs": torch.cat(means).numpy(), "divergence": np.array(total / len(x)), "labels": y.numpy()}


def together_in_memory(tasks: Iterable[Task], limit: int = BYTES) -> Iterator[list[tuple[Task, Ensemble]]]:
    """Tasks with their networks, as many at a time as `limit` bytes hold, one at least."""
    held: list[tuple[Task, Ensemble]] = []
    size = 0
    for task in tasks:
        ensemble = task.source()
        needed = 4 * sum(group.population.parameters_stored() for group in ensemble.groups)
        if held and size + needed > limit:
            yield held
            held, size = [], 0
        held.append((task, ensemble))
        size += needed
    if held:
        yield held


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
        cells = [] if self.suite is None else [Condition(name, severity) for name, severity in self.suite.cells]
        return (Condition("", 0), *cells, *(Condition(name, 0, ood=True) for name in self.ood))

    def at(self, condition: Condition) -> tuple[Tensor, Tensor]:
        """Prepared inputs (N, ...) and labels (N,), none of OOD inputs."""
        if condition.ood:
            return self.ood[condition.name], self.y[:0]
        if condition.severity == 0:
            return self.x, self.y
        assert self.suite is not None
        assert self.eval_set is not None
        split = self.suite.split(self.eval_set, condition.name, condition.severity)
        return split.prepared, split.y

    def digest(self) -> str:
        return digest(self.x, self.y, *self.ood.values())


def inputs_for(
    networks: Networks,
    data: Any,
    shift: ShiftSuite | Sequence[str] | bool | None,
    severities: Sequence[int],
    ood: Mapping[str, Any] | None,
    examples: int | None,
) -> Inputs:
    """The inputs of a comparison; corruptions need to know how inputs were prepared, from an ensemble or a `Data`."""
    prepares = isinstance(networks, Ensemble) and networks.preparation is not None
    x, y = examples_of(networks, data)
    others = {name: inputs_of(networks, each) for name, each in (ood or {}).items()}
    known = {name: each[:examples] for name, each in others.items() if each is not None}
    if not shift:
        return Inputs(None, x[:examples], y[:examples], None, known)
    if not prepares and not isinstance(data, Data | EvalSet):
        raise Misuse("corruptions act on inputs before their preparation: give an ensemble of a run, or data as a Data")
    eval_set = eval_set_for(networks, data) if isinstance(networks, Ensemble) and prepares else eval_set_of(data)
    suite = shift
    if not isinstance(suite, ShiftSuite):
        names = None if shift is True else list(shift)  # type: ignore[arg-type]
        suite = shift_suite(eval_set, names, severities=severities, examples=examples)
    return Inputs(eval_set, x[:examples], y[:examples], suite, known)


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
    """Scores of runs, their subspaces and averages against ensemble size, and divergences between their networks.

    Members of `networks` are the runs. `samplers`, `count`, `settings`, `val` and `train` are those of
    `sample_subspace`; `others` are further ensembles by name, see `runs_of`. `shift` names corruptions (True: all) at
    `severities`, or is a suite; `ood` are inputs by name. `together` is the number of networks of a divergence, by
    default 5, or all runs if they are fewer. Predictions are computed once and kept in `folder`, so that a killed
    comparison can continue; without one they are in a temporary folder.
    """
    points, inputs = points_of(networks), inputs_for(networks, data, shift, severities, ood, examples)
    checked_labels(inputs.y, inputs=len(inputs.x), classes=classes_of(points, inputs.x))
    methods = run_methods(
        networks, trajectory, samplers=samplers, count=count, settings=settings, val=val, train=train, seed=seed
    )
    further = {name: runs_of(given) for name, given in (others or {}).items()}
    if taken := set(further) & set(methods):
        raise Misuse(f"other networks named {min(taken)}, which is the name of a method here: give them another name")
    size = min(TOGETHER, len(points)) if together is None else together
    divergence: dict[str, Any] = {"together": size, "seed": seed, "eps": eps}
    known = {"count": count, "settings": dict(settings or {}), "subsets": subsets, **divergence}
    about = {
        "weights": digest(points.vectors),
        "inputs": inputs.digest(),
        "conditions": [list(each) for each in inputs.conditions],
        "suite": str(inputs.suite),
        "trajectory": [] if trajectory is None else list(trajectory.steps),
        **known,
    }
    tasks = [Task(name, run, source) for name, runs in methods.items() for run, source in enumerate(runs)]
    tasks += [
        Task(name, run, partial(itself, each), digest(*weights_of(each))[:16])
        for name, runs in further.items()
        for run, each in enumerate(runs)
    ]
    with nullcontext(str(folder)) if folder else tempfile.TemporaryDirectory() as place:
        cells = Cells(Path(place), about)
        predict_all(tasks, inputs, cells, show, partial(predictions_of, **divergence))
        return scored_sizes(tasks, inputs.conditions, cells, known)


def itself(ensemble: Ensemble) -> Ensemble:
    """A source of networks that are there already."""
    return ensemble


def absent() -> Arrays:
    raise Failure("predictions were damaged or removed while they were compared: compare again")


def weights_of(ensemble: Ensemble) -> Iterator[Tensor]:
    """All weights of an ensemble."""
    for group in ensemble.groups:
        yield from group.population.to_tensors().values()


def classes_of(points: Points, x: Tensor) -> int:
    """The number of classes; regressions are refused."""
    if points.likelihood is not None and points.likelihood.task != CLASSIFICATION:
        raise Misuse(f"networks for {points.likelihood.task}: ensemble sizes are compared by scores of classes")
    return points[:1].ensemble().predict(x[:1], prepared=True).outputs.shape[-1]


def predict_all(
    tasks: Sequence[Task], inputs: Inputs, cells: Cells, show: Show, predict: Callable[..., Arrays]
) -> None:
    """Compute the predictions that are not in their cells yet, several tasks on each corruption of the inputs."""
    conditions = inputs.conditions
    waiting = [task for task in tasks if cells.missing(task.keys(conditions))]
    done, total = 0, len(waiting) * len(conditions)
    for held in together_in_memory(waiting):
        for place, condition in enumerate(conditions):
            show(f"{held[0][0].method}, {condition.name or 'clean'} {condition.severity}", done, total)
            keys = {task.keys(conditions)[place]: ensemble for task, ensemble in held}
            if missing := cells.missing(list(keys)):
                x, y = inputs.at(condition)
                for key in missing:
                    cells(key, partial(predict, keys[key], x, y))
            done += len(held)


def scored_sizes(
    tasks: Sequence[Task], conditions: Sequence[Condition], cells: Cells, known: Mapping[str, Any]
) -> Sizes:
    """The record from the predictions of all tasks in their cells."""
    methods = Counter(task.method for task in tasks)  # runs of each
    keys = {(task.method, task.run): task.keys(conditions) for task in tasks}
    labelled = tuple(each for each in conditions if not each.ood)
    sizes, seed = tuple(range(1, max(methods.values()) + 1)), known["seed"]
    scores = np.full((len(methods), len(sizes), len(labelled), len(SCORED)), np.nan)
    deviations, examples = scores.copy(), 0
    divergences: dict[str, dict[Condition, float]] = {INDEPENDENT: {}, **{name: {} for name in methods}}
    for (place, condition), (row, (name, runs)) in itertools.product(enumerate(conditions), enumerate(methods.items())):
        found = [cells(keys[name, run][place], absent) for run in range(runs)]
        probs, labels = torch.from_numpy(np.stack([each["probs"] for each in found])), found[0]["labels"]
        if not condition.ood:
            together = size_scores(probs, torch.from_numpy(labels), sizes, most=known["subsets"], seed=seed)
            scores[row, :, place], deviations[row, :, place] = together
            examples = max(examples, len(labels))
        divergences[name][condition] = float(np.mean([each["divergence"] for each in found]))
        if name == ORIGINAL and 2 <= known["together"] <= runs:
            parts = probs.split(MOST_ROWS, dim=1)
            own = [mean_divergence(each, known["together"], seed=seed, eps=known["eps"]) for each in parts]
            divergences[INDEPENDENT][condition] = torch.cat(own).mean().item()
    counted = [[counted_subsets(runs, size, known["subsets"]) for size in sizes] for runs in methods.values()]
    return Sizes(
        tuple(methods),
        sizes,
        labelled,
        SCORED,
        scores,
        deviations,
        np.array([[count for count, _ in row] for row in counted]),
        np.array([[exact for _, exact in row] for row in counted]),
        {name: each for name, each in divergences.items() if each and np.isfinite(list(each.values())).all()},
        known["together"],
        examples,
        known,
    )


def counted_subsets(runs: int, size: int, most: int) -> tuple[int, bool]:
    """How many subsets are averaged, and whether these are all."""
    count = math.comb(runs, size)
    return min(count, most), 0 < count <= most
