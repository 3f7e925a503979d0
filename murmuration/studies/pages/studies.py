"""The studies of the loss landscape around the members of an ensemble: what they work on, and what they leave.

A study is a function from a `Subject` to an `Outcome`: the record of an analysis, sections of a page, figures and
sentences. Pieces that are computed are kept in a folder, so that a killed study can continue.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from murmuration.data import Data, Split, open_inputs
from murmuration.data.shift import CORRUPTIONS
from murmuration.evaluation import eval_set_for, shift_suite
from murmuration.prediction.ensemble import Ensemble
from murmuration.reports.figures import Figure
from murmuration.reports.html import Markup, join
from murmuration.reports.page import framed
from murmuration.studies.alignment import permutation_groups
from murmuration.studies.diversity import DRAWN, WITHOUT_PATH, trade_off as compute_trade_off
from murmuration.studies.embedding import embed_paths
from murmuration.studies.landscape import SCORED, Show, silent
from murmuration.studies.pages.embedding import embedding_figures, embedding_sections
from murmuration.studies.pages.factorial import factorial_figures, factorial_sections
from murmuration.studies.pages.paths import paths_figures, paths_sections
from murmuration.studies.pages.plane import plane_figures, plane_sections
from murmuration.studies.pages.similarity import similarity_figures, similarity_sections
from murmuration.studies.pages.sizes import sizes_figures, sizes_sections
from murmuration.studies.pages.stitched import stitched_figures, stitched_sections
from murmuration.studies.pages.trade_off import trade_off_figures, trade_off_sections
from murmuration.studies.pages.uncertainty import uncertainty_figures, uncertainty_sections
from murmuration.studies.paths import PATHS, paths_between
from murmuration.studies.planes import plane as compute_plane, stitched_view
from murmuration.studies.randomness import factorial as compute_factorial
from murmuration.studies.similarity import Similarity, network_similarity, path_similarity, verdicts_of
from murmuration.studies.sizes import SAMPLED, ensemble_sizes
from murmuration.studies.subspaces import (
    PAPER,
    PLANE,
    RANK,
    SAMPLERS,
    Rejected,
    draw_vectors,
    neighbourhood,
    sample_subspace,
)
from murmuration.studies.trajectory import Trajectory
from murmuration.studies.uncertainty import uncertainty_path
from murmuration.studies.verdicts import Verdict
from murmuration.studies.weight_space import labelled_outputs, points_of
from murmuration.system.devices import CPU
from murmuration.system.errors import Misuse, unknown, warn
from murmuration.system.records import plain_json
from murmuration.training.plan import plan_from_json

# Samples of every sampler: in scores, on the diversity-accuracy plane, in maps.
SAMPLES, PLANE_SAMPLES, FEW_SAMPLES = 30, 50, 10
STEP = 6  # a training step, in predictions on as many inputs: between 4 (CIFAR-10) and 7.5 (digits) were measured
PATHS_SHOWN = 3  # members whose path is compared with itself
NOTEBOOK_LENGTH = 23.4  # of the initial weights of MediumCNN, for which the notebook's distances were chosen
Options = dict[str, Any]  # of an analysis
SEVERITIES = (1, 2, 3, 4, 5)
MARGIN = 0.05  # of validation accuracy that a random sample may lose


@dataclass(frozen=True)
class Choices:
    """What can be chosen; each study uses some of them."""

    anchors: tuple[int, ...] = (0, 1)  # members by number
    grid: int = 21  # points a side of the plane
    samplers: tuple[str, ...] = ()  # (): all that the run allows
    samples: int | None = None  # of every sampler and member; None: the number of the authors' notebook
    beside: Mapping[str, Ensemble] = field(default_factory=dict)  # other runs in the same figures
    ood: Mapping[str, Split] = field(default_factory=dict)  # out-of-distribution inputs by name
    severities: tuple[int, ...] = ()  # of corruptions
    runs: int = 3  # networks of every cell of the factorial
    rates: tuple[float, ...] = (4e-4, 8e-4, 1.6e-3, 3.2e-3)  # learning rates of the factorial
    epochs: int = 10  # of the factorial
    cifar_c: str | None = None  # folder of the official corrupted images, which take the place of generated ones
    paper: bool = False  # constants of samplers as published, not in proportion to the length of the weights


@dataclass(frozen=True)
class Subject:
    """What a study works on."""

    ensemble: Ensemble
    data: Data
    test: Split  # examples that networks are scored on
    trajectory: Trajectory | None = None
    choices: Choices = field(default_factory=Choices)
    folder: Path | None = None  # for computed pieces
    show: Show = silent

    @property
    def train(self) -> Split:
        """The training examples, prepared: losses and batch-norm statistics are computed from them."""
        return replace(self.data.train, x=None)

    @property
    def checkpoints(self) -> int:
        """The number of checkpoints of one member."""
        return 0 if self.trajectory is None else len(self.trajectory)

    @property
    def shared(self) -> dict[str, Any]:
        """Settings that studies of samples share."""
        return {"val": self.data.val, "train": self.train, "folder": self.folder, "show": self.show}


@dataclass(frozen=True)
class Records:
    """Records of several analyses as one."""

    parts: Mapping[str, Any]  # each has frame() and to_json()
    verdicts: tuple[Verdict, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return plain_json({**self.parts, "verdicts": self.verdicts})

    def frame(self) -> pd.DataFrame:
        """Return the rows of all parts, with the name of the part in the last column."""
        return pd.concat([part.frame().assign(part=name) for name, part in self.parts.items()], ignore_index=True)


@dataclass(frozen=True)
class Outcome:
    """What a study found."""

    record: Any  # has frame() and to_json()
    body: Markup  # sections of the page
    figures: Sequence[Figure]
    sentences: Sequence[str]

    def page(self, title: str, subtitle: str) -> str:
        return framed(title, subtitle, self.body)


@dataclass(frozen=True)
class Study:
    """One study: the title of its page, the choices it takes, how many networks it evaluates, and how it runs."""

    title: str
    choices: tuple[str, ...]
    networks: Callable[[Subject], float]  # evaluations of a network on all examples, roughly
    run: Callable[[Subject], Outcome]


def evaluation_seconds(subject: Subject, networks: float) -> float:
    """Return how long so many evaluations of a network will take, judged by four of them."""
    outputs, _ = labelled_outputs(subject.ensemble, subject.test, subject.train)
    vectors = [outputs.points.vectors[0]] * 4
    list(outputs(vectors[:1]))
    start = time.perf_counter()
    list(outputs(vectors))
    return (time.perf_counter() - start) / len(vectors) * networks


def ood_splits(sources: Sequence[str], ensemble: Ensemble) -> dict[str, Split]:
    """Return out-of-distribution inputs by name, adapted and prepared like those of training; they have no targets."""
    splits = {}
    if ensemble.preparation is None:
        raise Misuse("the networks have no preparation: out-of-distribution inputs must be given as tensors")
    for source in sources:
        x = open_inputs(source, preparation=ensemble.preparation, adapt=True)
        splits[Path(source).name] = Split(None, torch.zeros(len(x), dtype=torch.int64), x)
    return splits


def samplers_of(subject: Subject, usual: Sequence[str] = DRAWN) -> tuple[str, ...]:
    """Return the samplers that were asked for, or the usual ones for which there are checkpoints and samples enough."""
    for name in subject.choices.samplers:
        if name not in SAMPLERS:
            raise unknown("sampler", name, SAMPLERS)
    if subject.trajectory is None:
        possible = tuple(name for name in usual if name in WITHOUT_PATH)
    else:
        available = {"pca": len(subject.trajectory), "pca-random": subject.choices.samples or SAMPLES}
        possible = tuple(name for name in usual if available.get(name, math.inf) > RANK)
    return subject.choices.samplers or possible


def sampler_settings(subject: Subject, *, wide: bool = False) -> dict[str, dict[str, Any]]:
    """Return settings by sampler: the notebook's distances in proportion to the length of the initial weights.

    With `wide` those of the diversity-accuracy plane, where all samples are accepted. Without a trajectory the length
    of the final weights counts. If the paper's constants are chosen, those as they are.
    """
    if subject.choices.paper:
        return PLANE if wide else PAPER
    points, member = points_of(subject.ensemble), subject.choices.anchors[0]
    start = points.vectors[member] if subject.trajectory is None else subject.trajectory.start(member)
    unit = float(start.norm()) / NOTEBOOK_LENGTH
    if wide:
        far: dict[str, Any] = {"radius": (0.0, 70 * unit), "threshold": None}
        return {"random": far, "diagonal": {"scale": (0.0, 10.0)}, "pca": {"scale": 6 * unit}}
    near: dict[str, Any] = {"radius": (0.0, 10 * unit), "margin": MARGIN}
    return {"random": near, "pca": {"scale": unit}, "pca-random": {"scale": unit, **near}}


def outcome_of(record: Any, body: Markup, figures: Mapping[str, Figure]) -> Outcome:
    """Return the outcome of a record with verdicts."""
    return Outcome(record, body, list(figures.values()), list(map(str, record.verdicts)))


def similarity(subject: Subject) -> Outcome:
    """Return members with one another, and the checkpoints of the first ones with themselves."""
    parts = {"members": network_similarity(subject.ensemble, subject.test, train=subject.train)}
    if subject.trajectory is not None:
        count = min(subject.trajectory.members, PATHS_SHOWN)
        for member in range(count):
            subject.show(f"path of member {member}", member, count)
            record = path_similarity(subject.trajectory, subject.test, member, train=subject.train)
            parts[f"path of member {member}"] = record
    return compared(parts)


def subspaces(subject: Subject) -> Outcome:
    """By sampler: samples around the first members, with one another; those around one member are a group."""
    ensemble, count = subject.ensemble, subject.choices.samples or FEW_SAMPLES
    members, samplers, parts = range(min(ensemble.members, PATHS_SHOWN)), samplers_of(subject), {}
    shared: dict[str, Any] = {"val": subject.data.val, "train": subject.train, "accepted": {}}
    settings = sampler_settings(subject)
    for done, sampler in enumerate(samplers):
        subject.show(sampler, done, len(samplers))
        options = shared | settings.get(sampler, {})
        samples = [sample_subspace(ensemble, subject.trajectory, m, sampler, count, **options) for m in members]
        groups = [f"member {member}" for member, points in zip(members, samples, strict=True) for _ in points.vectors]
        if len(set(groups)) < 2:
            continue  # samples around one member, or none, were accepted
        everything = replace(samples[0][[0] * len(groups)], vectors=torch.cat([points.vectors for points in samples]))
        labels = {"names": list(map(str, range(len(groups)))), "groups": groups}
        parts[sampler] = network_similarity(everything, subject.test, train=subject.train, cka=False, **labels)
    if not parts:
        raise Misuse("no samples around two members: the ensemble has one member, or none was accurate enough")
    return compared(parts)


def compared(parts: Mapping[str, Similarity]) -> Outcome:
    """Return the outcome of similarity matrices by name."""
    verdicts = verdicts_of(parts)
    figures = [plot for place, part in enumerate(parts.values()) for plot in similarity_figures(part, place).values()]
    return Outcome(Records(parts, verdicts), similarity_sections(parts), figures, list(map(str, verdicts)))


def require_members(subject: Subject) -> None:
    """Refuse anchors that the ensemble does not have."""
    anchors, members = subject.choices.anchors, subject.ensemble.members
    if max(anchors) >= members:
        raise Misuse(
            f"members {', '.join(map(str, anchors))} are needed and the ensemble has {members}: train more by members="
        )


def plane(subject: Subject) -> Outcome:
    """Return the plane through the origin and two members, or through three members."""
    anchors, samples = subject.choices.anchors, {}
    require_members(subject)
    if len(anchors) not in (2, 3):
        raise Misuse(f"{len(anchors)} anchors: a plane goes through two members and the origin, or through three")
    if subject.trajectory is not None:
        around = neighbourhood(subject.ensemble, subject.trajectory, anchors[0])
        count = subject.choices.samples or SAMPLES
        samples["diagonal Gaussian"] = list(draw_vectors(around, "diagonal", count, scale=(0.0, 10.0)))
    options: Options = {"anchors": anchors, "origin": "zero" if len(anchors) == 2 else "anchor", "samples": samples}
    options |= {"train": subject.train[: len(subject.test)], "trajectory": subject.trajectory}
    options |= {"grid": subject.choices.grid, "folder": subject.folder, "show": subject.show}
    record = compute_plane(subject.ensemble, subject.test, **options)
    return outcome_of(record, plane_sections(record), plane_figures(record))


def tunnel(subject: Subject) -> Outcome:
    """Return paths between two members, and the stitched view of the tunnel."""
    require_members(subject)
    if len(subject.choices.anchors) != 2:
        raise Misuse(f"{len(subject.choices.anchors)} anchors: a tunnel connects two members")
    networks, test = subject.ensemble, subject.test
    kinds: tuple[str, ...] = PATHS
    try:
        permutation_groups(networks.groups[0].module)
    except Misuse:  # hidden units of some networks cannot be permuted
        kinds = tuple(name for name in PATHS if name != "aligned")
    folders = {part: None if subject.folder is None else subject.folder / part for part in ("paths", "stitched")}
    common: dict[str, Any] = {"ends": subject.choices.anchors, "show": subject.show}
    paths = paths_between(networks, test, train=subject.train, paths=kinds, folder=folders["paths"], **common)
    assert paths.tunnel is not None
    view = stitched_view(networks, test, paths.tunnel, folder=folders["stitched"], **common)
    figures = [*paths_figures(paths).values(), *stitched_figures(view).values()]
    body = join([paths_sections(paths), stitched_sections(view)])
    parts = Records({"paths": paths, "stitched": view}, paths.verdicts)
    return Outcome(parts, body, figures, list(map(str, paths.verdicts)))


def trade_off(subject: Subject) -> Outcome:
    """Return diversity against accuracy, of the other members and of samples around the first anchor."""
    choices = subject.choices
    options: Options = {"samplers": samplers_of(subject), "count": choices.samples or PLANE_SAMPLES, **subject.shared}
    options |= {"settings": sampler_settings(subject, wide=True), "reference": choices.anchors[0]}
    record = compute_trade_off(subject.ensemble, subject.trajectory, subject.test, others=choices.beside, **options)
    return outcome_of(record, trade_off_sections(record), trade_off_figures(record))


def tsne(subject: Subject) -> Outcome:
    """Return predictions along training, and of samples around the members, in one map."""
    if subject.trajectory is None:
        raise Misuse("the run has no trajectory: train it with --trajectory every-epoch (trajectory='every-epoch')")
    settings = sampler_settings(subject)
    options: Options = {"samplers": {name: settings.get(name, {}) for name in samplers_of(subject)}}
    options |= {"count": subject.choices.samples or FEW_SAMPLES, "val": subject.data.val, "train": subject.train}
    record = embed_paths(subject.ensemble, subject.trajectory, subject.test, **options)
    return outcome_of(record, embedding_sections(record), embedding_figures(record))


def sizes(subject: Subject) -> Outcome:
    """Return ensembles, subspaces and averages against ensemble size, clean, corrupted and on OOD inputs."""
    choices = subject.choices
    options: Options = {"samplers": samplers_of(subject, SAMPLED), "count": choices.samples or SAMPLES}
    options |= {"settings": sampler_settings(subject), "others": choices.beside, "ood": choices.ood, **subject.shared}
    shift: Any = bool(choices.severities) or None
    if choices.cifar_c is not None:
        eval_set = eval_set_for(subject.ensemble, subject.test)
        severities, images = choices.severities or SEVERITIES, len(subject.test)
        shift = shift_suite(eval_set, severities=severities, examples=images, official=choices.cifar_c)
    options |= {"shift": shift, "severities": choices.severities}
    while True:
        try:
            record = ensemble_sizes(subject.ensemble, subject.trajectory, subject.test, **options)
            break
        except Rejected as error:
            warn(f"{error.sampler} is left out: {error}")
            options["samplers"] = tuple(name for name in options["samplers"] if name != error.sampler)
    return outcome_of(record, sizes_sections(record), sizes_figures(record))


def uncertainty(subject: Subject) -> Outcome:
    """Return uncertainty, accuracy and weights along the training, by draws at every checkpoint."""
    options: Options = {"train": subject.train, "draws": subject.choices.samples}
    options |= {"folder": subject.folder, "show": subject.show}
    record = uncertainty_path(subject.ensemble, subject.trajectory, subject.test, **options)
    return outcome_of(record, uncertainty_sections(record), uncertainty_figures(record))


def uncertainty_cost(subject: Subject) -> float:
    draws = subject.choices.samples or (subject.ensemble.recipe.weights.draws or 1)
    return 2 * draws * subject.ensemble.members * (1 + subject.checkpoints)


def factorial(subject: Subject) -> Outcome:
    """Return initialisation x batch order x learning rate, with the network and the batch size of the run."""
    manifest, choices = subject.ensemble.manifest, subject.choices
    net = manifest.net.get("name", subject.ensemble.groups[0].module)
    plan = plan_from_json(manifest.plan, device=CPU)
    options: Options = {"lrs": choices.rates, "runs": choices.runs, "epochs": choices.epochs, "seed": plan.seed}
    options |= {"batch_size": plan.batch_size, "folder": subject.folder, "show": subject.show}
    record = compute_factorial(net, subject.data, **options)
    return outcome_of(record, factorial_sections(record), factorial_figures(record))


def passes(subject: Subject, epochs: float) -> float:
    """Return training of one network for so many epochs, in evaluations of it."""
    return STEP * epochs * len(subject.data.train) / len(subject.test)


def plane_cost(subject: Subject) -> float:
    beside = len(subject.choices.anchors) * subject.checkpoints + (subject.choices.samples or SAMPLES)
    both = 1 + min(len(subject.data.train), SCORED) / len(subject.test)  # test and training examples
    return both * (subject.choices.grid**2 + beside)


def tunnel_cost(subject: Subject) -> float:
    """Return two lines of 25 points, about 15 nodes of 300 steps, two curves of 1,000 steps, 36 rays of 13 points."""
    optimised = (15 * 300 + 2 * 1000) * 128 / len(subject.data.train)  # epochs
    scored = 15 * 6 + 30 * 3  # losses of nodes as they descend, and inside segments
    both = 1 + min(len(subject.data.train), SCORED) / len(subject.test)
    return both * (2 * 25 + 100 + 2 * 61 + scored) + passes(subject, optimised) + 36 * 13


def acceptance(subject: Subject, samplers: Sequence[str], count: int) -> float:
    """Return validation accuracies, in evaluations: those of random samples decide whether they are accepted."""
    by_accuracy = {"random", "pca-random"} & set(samplers)
    return (1 + count if by_accuracy else 0) * len(subject.data.val) / len(subject.test)


def subspaces_cost(subject: Subject) -> float:
    samplers, count = samplers_of(subject), subject.choices.samples or FEW_SAMPLES
    members = min(subject.ensemble.members, PATHS_SHOWN)
    return members * (len(samplers) * count + acceptance(subject, samplers, count))


def sizes_cost(subject: Subject) -> float:
    samplers, count = samplers_of(subject, SAMPLED), subject.choices.samples or SAMPLES
    networks = 2 + 10 + len(samplers) * count
    outside = sum(map(len, subject.choices.ood.values())) / len(subject.test)
    severities = subject.choices.severities or (SEVERITIES if subject.choices.cifar_c else ())
    inputs = 1 + len(severities) * len(CORRUPTIONS) + outside
    return subject.ensemble.members * (networks * inputs + acceptance(subject, samplers, count))


def factorial_cost(subject: Subject) -> float:
    choices = subject.choices
    return 2 * 4 * len(choices.rates) * choices.runs * passes(subject, choices.epochs)


STUDIES: Mapping[str, Study] = {
    "similarity": Study("Similarity", (), lambda s: 2 * s.ensemble.members + PATHS_SHOWN * s.checkpoints, similarity),
    "subspaces": Study("Subspaces", ("anchors", "samplers", "samples"), subspaces_cost, subspaces),
    "plane": Study("Loss plane", ("anchors", "grid", "samples"), plane_cost, plane),
    "tunnel": Study("Paths between members", ("anchors",), tunnel_cost, tunnel),
    "trade-off": Study(
        "Diversity and accuracy",
        ("anchors", "samplers", "samples", "beside"),
        lambda s: len(samplers_of(s)) * (s.choices.samples or PLANE_SAMPLES),
        trade_off,
    ),
    "tsne": Study("t-SNE", ("samplers", "samples"), lambda s: PATHS_SHOWN * s.checkpoints, tsne),
    "sizes": Study(
        "Ensemble sizes", ("samplers", "samples", "beside", "ood", "severities", "cifar_c"), sizes_cost, sizes
    ),
    "uncertainty": Study("Uncertainty along training", ("samples",), uncertainty_cost, uncertainty),
    "factorial": Study("Sources of diversity", ("runs", "rates", "epochs"), factorial_cost, factorial),
}
