"""The studies, one function each: from an ensemble to a record, sections of a page, figures and sentences."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from murmuration.data.shift import CORRUPTIONS
from murmuration.reports.html import join
from murmuration.studies.alignment import permutation_groups
from murmuration.studies.diversity import DRAWN, WITHOUT_PATH, trade_off as compute_trade_off
from murmuration.studies.embedding import embed_paths
from murmuration.studies.landscape import SCORED, Verdict
from murmuration.studies.pages.embedding import embedding_figures, embedding_sections
from murmuration.studies.pages.factorial import factorial_figures, factorial_sections
from murmuration.studies.pages.paths import paths_figures, paths_sections
from murmuration.studies.pages.plane import plane_figures, plane_sections
from murmuration.studies.pages.similarity import similarity_figures, similarity_sections
from murmuration.studies.pages.sizes import sizes_figures, sizes_sections
from murmuration.studies.pages.stitched import stitched_figures, stitched_sections
from murmuration.studies.pages.study import Outcome, Records, Study, Subject
from murmuration.studies.pages.trade_off import trade_off_figures, trade_off_sections
from murmuration.studies.paths import PATHS, paths_between
from murmuration.studies.planes import plane as compute_plane
from murmuration.studies.randomness import factorial as compute_factorial
from murmuration.studies.similarity import Similarity, network_similarity, path_similarity
from murmuration.studies.sizes import SAMPLED, ensemble_sizes
from murmuration.studies.stitching import stitched_view
from murmuration.studies.subspaces import RANK, SAMPLERS, draw_vectors, neighbourhood, sample_subspace
from murmuration.studies.weight_space import points_of
from murmuration.system.devices import CPU
from murmuration.system.errors import Misuse, unknown
from murmuration.training.plan import plan_from_json

SAMPLES, PLANE_SAMPLES, FEW_SAMPLES = (
    30,
    50,
    10,
)  # of every sampler: in scores, on the diversity-accuracy plane, in maps
STEP = 6  # a training step, in predictions on as many inputs: between 4 (CIFAR-10) and 7.5 (digits) were measured
PATHS_SHOWN = 3  # members whose path is compared with itself
NOTEBOOK_LENGTH = 23.4  # of the initial weights of MediumCNN, for which the notebook's distances were chosen
MARGIN = 0.05  # of validation accuracy that a random sample may lose


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
    of the final weights counts.
    """
    points, member = points_of(subject.ensemble), subject.choices.anchors[0]
    start = points.vectors[member] if subject.trajectory is None else subject.trajectory.start(member)
    unit = float(start.norm()) / NOTEBOOK_LENGTH
    if wide:
        far: dict[str, Any] = {"radius": (0.0, 70 * unit), "threshold": None}
        return {"random": far, "diagonal": {"scale": (0.0, 10.0)}, "pca": {"scale": 6 * unit}}
    near: dict[str, Any] = {"radius": (0.0, 10 * unit), "margin": MARGIN}
    return {"random": near, "pca": {"scale": unit}, "pca-random": {"scale": unit, **near}}


def sentences(verdicts: Iterable[Verdict]) -> list[str]:
    """Return the sentences of verdicts, each after its claim and whether it holds."""
    return [f"{verdict.claim}: {'yes' if verdict.holds else 'no'}; {verdict.sentence}" for verdict in verdicts]


def similarity(subject: Subject) -> Outcome:
    """Return members with one another, and the checkpoints of the first ones with themselves."""
    parts = {"members": network_similarity(subject.ensemble, subject.test, train=subject.train)}
    if subject.trajectory is not None:
        count = min(subject.trajectory.members, PATHS_SHOWN)
        for member in range(count):
            subject.show(f"path of member {member}", member, count)
            checkpoints = path_similarity(subject.trajectory, subject.test, member, train=subject.train)
            parts[f"path of member {member}"] = checkpoints
    return compared(parts)


def subspaces(subject: Subject) -> Outcome:
    """By sampler: samples around the first members, with one another; those around one member are a group."""
    ensemble, count = subject.ensemble, subject.choices.samples or FEW_SAMPLES
    members, samplers, parts = range(min(ensemble.members, PATHS_SHOWN)), samplers_of(subject), {}
    options: dict[str, Any] = {"val": subject.data.val, "train": subject.train, "accepted": {}}
    settings = sampler_settings(subject)
    for done, sampler in enumerate(samplers):
        subject.show(sampler, done, len(samplers))
        samples = [
            sample_subspace(
                ensemble, subject.trajectory, member, sampler, count, **options, **settings.get(sampler, {})
            )
            for member in members
        ]
        groups = [f"member {member}" for member, points in zip(members, samples, strict=True) for _ in points.vectors]
        if len(set(groups)) < 2:
            continue  # samples around one member, or none, were accepted
        everything = replace(samples[0][[0] * len(groups)], vectors=torch.cat([points.vectors for points in samples]))
        names = [str(number) for number in range(len(groups))]
        parts[sampler] = network_similarity(
            everything, subject.test, train=subject.train, cka=False, names=names, groups=groups
        )
    if not parts:
        raise Misuse("no samples around two members: the ensemble has one member, or none was accurate enough")
    return compared(parts)


def compared(parts: Mapping[str, Similarity]) -> Outcome:
    """Return the outcome of similarity matrices by name."""
    lines = [f"{name}: {line}" for name, part in parts.items() for line in sentences(part.verdicts)]
    figures = [
        drawing for place, part in enumerate(parts.values()) for drawing in similarity_figures(part, place).values()
    ]
    return Outcome(Records(parts), similarity_sections(parts), figures, lines)


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
    record = compute_plane(
        subject.ensemble,
        subject.test,
        train=subject.train[: len(subject.test)],
        anchors=anchors,
        origin="zero" if len(anchors) == 2 else "anchor",
        grid=subject.choices.grid,
        trajectory=subject.trajectory,
        samples=samples,
        folder=subject.folder,
        show=subject.show,
    )
    return Outcome(record, plane_sections(record), list(plane_figures(record).values()), sentences(record.verdicts))


def tunnel(subject: Subject) -> Outcome:
    """Return paths between two members, and the stitched view of the tunnel."""
    require_members(subject)
    if len(subject.choices.anchors) != 2:
        raise Misuse(f"{len(subject.choices.anchors)} anchors: a tunnel connects two members")
    ends = (subject.choices.anchors[0], subject.choices.anchors[1])
    common: dict[str, Any] = {"ends": ends, "show": subject.show}
    paths = paths_between(
        subject.ensemble,
        subject.test,
        train=subject.train,
        paths=paths_for(subject),
        folder=subject.piece("paths"),
        **common,
    )
    assert paths.tunnel is not None
    view = stitched_view(subject.ensemble, subject.test, paths.tunnel, folder=subject.piece("stitched"), **common)
    figures = [*paths_figures(paths).values(), *stitched_figures(view).values()]
    body = join([paths_sections(paths), stitched_sections(view)])
    return Outcome(Records({"paths": paths, "stitched": view}), body, figures, sentences(paths.verdicts))


def paths_for(subject: Subject) -> tuple[str, ...]:
    """Return all kinds of paths that the network allows: hidden units of some cannot be permuted."""
    try:
        permutation_groups(subject.ensemble.groups[0].module)
    except Misuse:
        return tuple(name for name in PATHS if name != "aligned")
    return tuple(PATHS)


def trade_off(subject: Subject) -> Outcome:
    """Return diversity against accuracy, of the other members and of samples around the first anchor."""
    record = compute_trade_off(
        subject.ensemble,
        subject.trajectory,
        subject.test,
        reference=subject.choices.anchors[0],
        samplers=samplers_of(subject),
        count=subject.choices.samples or PLANE_SAMPLES,
        settings=sampler_settings(subject, wide=True),
        others=subject.choices.beside,
        val=subject.data.val,
        train=subject.train,
        folder=subject.folder,
        show=subject.show,
    )
    figures = list(trade_off_figures(record).values())
    return Outcome(record, trade_off_sections(record), figures, sentences(record.verdicts))


def tsne(subject: Subject) -> Outcome:
    """Return predictions along training, and of samples around the members, in one map."""
    if subject.trajectory is None:
        raise Misuse("the run has no trajectory: train it with --trajectory every-epoch (trajectory='every-epoch')")
    settings = sampler_settings(subject)
    record = embed_paths(
        subject.ensemble,
        subject.trajectory,
        subject.test,
        samplers={name: settings.get(name, {}) for name in samplers_of(subject)},
        count=subject.choices.samples or FEW_SAMPLES,
        val=subject.data.val,
        train=subject.train,
    )
    figures = list(embedding_figures(record).values())
    return Outcome(record, embedding_sections(record), figures, sentences(record.verdicts))


def sizes(subject: Subject) -> Outcome:
    """Return ensembles, subspaces and averages against ensemble size, clean, corrupted and on OOD inputs."""
    choices = subject.choices
    record = ensemble_sizes(
        subject.ensemble,
        subject.trajectory,
        subject.test,
        samplers=samplers_of(subject, SAMPLED),
        count=choices.samples or SAMPLES,
        settings=sampler_settings(subject),
        others=choices.beside,
        shift=bool(choices.severities) or None,
        severities=choices.severities,
        ood=choices.ood,
        val=subject.data.val,
        train=subject.train,
        folder=subject.folder,
        show=subject.show,
    )
    return Outcome(record, sizes_sections(record), list(sizes_figures(record).values()), sentences(record.verdicts))


def factorial(subject: Subject) -> Outcome:
    """Return initialisation x batch order x learning rate, with the network and the batch size of the run."""
    manifest, choices = subject.ensemble.manifest, subject.choices
    plan = plan_from_json(manifest["plan"], device=CPU)
    record = compute_factorial(
        manifest["net"].get("name", subject.ensemble.groups[0].module),
        subject.data,
        lrs=choices.rates,
        runs=choices.runs,
        epochs=choices.epochs,
        batch_size=plan.batch_size,
        seed=plan.seed,
        folder=subject.folder,
        show=subject.show,
    )
    figures = list(factorial_figures(record).values())
    return Outcome(record, factorial_sections(record), figures, sentences(record.verdicts))


def checkpoints(subject: Subject) -> int:
    """Return the number of checkpoints of one member."""
    return 0 if subject.trajectory is None else len(subject.trajectory)


def passes(subject: Subject, epochs: float) -> float:
    """Return training of one network for so many epochs, in evaluations of it."""
    return STEP * epochs * len(subject.data.train) / len(subject.test)


def plane_cost(subject: Subject) -> float:
    beside = len(subject.choices.anchors) * checkpoints(subject) + (subject.choices.samples or SAMPLES)
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
    inputs = 1 + len(subject.choices.severities) * len(CORRUPTIONS) + outside
    return subject.ensemble.members * (networks * inputs + acceptance(subject, samplers, count))


def factorial_cost(subject: Subject) -> float:
    choices = subject.choices
    return 2 * 4 * len(choices.rates) * choices.runs * passes(subject, choices.epochs)


STUDIES: Mapping[str, Study] = {
    "similarity": Study("Similarity", (), lambda s: 2 * s.ensemble.members + PATHS_SHOWN * checkpoints(s), similarity),
    "subspaces": Study("Subspaces", ("anchors", "samplers", "samples"), subspaces_cost, subspaces),
    "plane": Study("Loss plane", ("anchors", "grid", "samples"), plane_cost, plane),
    "tunnel": Study("Paths between members", ("anchors",), tunnel_cost, tunnel),
    "trade-off": Study(
        "Diversity and accuracy",
        ("anchors", "samplers", "samples", "beside"),
        lambda s: len(samplers_of(s)) * (s.choices.samples or PLANE_SAMPLES),
        trade_off,
    ),
    "tsne": Study("t-SNE", ("samplers", "samples"), lambda s: PATHS_SHOWN * checkpoints(s), tsne),
    "sizes": Study("Ensemble sizes", ("samplers", "samples", "beside", "ood", "severities"), sizes_cost, sizes),
    "factorial": Study("Sources of diversity", ("runs", "rates", "epochs"), factorial_cost, factorial),
}
