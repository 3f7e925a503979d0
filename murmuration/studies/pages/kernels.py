"""The page on tangent kernels between members: interpretation, heat maps and values."""

from collections.abc import Callable, Sequence

import numpy as np

from murmuration.reports.figures import Figure, member_matrix
from murmuration.reports.formatting import MISSING, finite_mean, number, percent
from murmuration.reports.html import figure, grid, join, section, table, tag
from murmuration.reports.page import framed
from murmuration.studies.kernels import KernelDiagnosis, Stage

WHEN = {"before": "Before training", "after": "After training", "limit": "Infinite width"}


# Label, how it is written, what it says of the first diagnosis.
NUMBERS: tuple[tuple[str, Callable[[KernelDiagnosis], str], str], ...] = (
    ("Regime", lambda e: e.regime.name, "Independent, collective, between the two, or degenerate."),
    (
        "T_o / T_d",
        lambda e: number(e.regime.tangent_ratio),
        "The tangent kernel of two members against that of one: 0 apart, 1 the same.",
    ),
    (
        "(M - 1) T_o / T_d",
        lambda e: number(e.regime.pull),
        "All others' pull on a member against its own push; collective from 1 on, independent up to 0.1.",
    ),
    (
        "Smooth gamma",
        lambda e: number(e.regime.gamma) if e.shares else MISSING,
        "M / (1 + (M - 1) T_o / T_d): the shared rate at which members learn as fast as separate networks.",
    ),
    (
        "S_o / S_d",
        lambda e: number(e.regime.covariance_ratio) if e.stage != "after" else MISSING,
        "Covariance of two members' first outputs against one's variance, over {0.initialisations} initialisations: 0 "
        "is the most diverse start.",
    ),
    (
        "Correlation of outputs",
        lambda e: number(e.correlation),
        "Of two members' outputs over the inputs as they are; trained members agree in what they have learned.",
    ),
    ("Capacity M / N", lambda e: number(e.capacity), "How full the last hidden layer is of members: {1}."),
    (
        "Slowest combination",
        lambda e: number(e.slowest),
        "(1 - sqrt(M / N))²: the pace of the slowest combination of independent members, 1 in a very wide net.",
    ),
    (
        "Own fraction",
        lambda e: percent(e.own_fraction),
        "Of a member's kernel, what its own parameters make; the rest is shared.",
    ),
)


def kernels_page(diagnoses: Sequence[KernelDiagnosis], *, title: str, subtitle: str) -> str:
    """Return the page on diagnoses of one ensemble, before training, after it, or both."""
    sentences = [tag("p", verdict_sentence(diagnosis), "lead") for diagnosis in diagnoses]
    advice = tag("ul", join(tag("li", item) for item in diagnoses[0].advice))
    lead = (
        "Members that share weights train each other. If one member's step leaves the others where they are, the "
        "ensemble is as good as separate networks; if it moves them all, they learn together and stay alike."
    )
    cells = (
        "Each cell says how far a step of one member through the shared weights moves another, against how far both "
        "move themselves: 1 for members that cannot be told apart, 0 for strangers, less for members that undo each "
        "other's steps. The diagonal is always 1 and left blank."
    )
    maps = grid(map(figure, heat_maps(diagnoses).values()))
    means = f"Means over {diagnoses[0].inputs:,} inputs and all outputs of {diagnoses[0].members} members."
    columns = ["Number", *(WHEN[diagnosis.stage] for diagnosis in diagnoses), tag("span", "What it says", "wide")]
    rows = [(label, [*texts, tag("span", reading, "wide")]) for label, texts, reading in rows_of(diagnoses)]
    parts = [
        section("verdict", "Do members learn alone or together?", lead, join([*sentences, advice])),
        section("kernel", "The kernel between members", cells, maps),
        section("numbers", "Numbers", means, tag("div", table("Numbers of the kernels", columns, rows), "wrapped")),
    ]
    return framed(title, subtitle, join(parts))


def verdict_sentence(diagnosis: KernelDiagnosis) -> str:
    """Return the verdict of one stage, as a sentence."""
    when = "At infinite width" if diagnosis.stage == "limit" else WHEN[diagnosis.stage]
    return f"{when} it is {diagnosis.verdict}."


def heat_maps(diagnoses: Sequence[KernelDiagnosis]) -> dict[Stage, Figure]:
    """Return the alignment (M, M) of members at every stage, on one scale; the limit has no members."""
    lowest = min(0.0, *(float(np.nanmin(diagnosis.alignment, initial=0.0)) for diagnosis in diagnoses))
    maps: dict[Stage, Figure] = {}
    for diagnosis in (diagnosis for diagnosis in diagnoses if diagnosis.stage != "limit"):
        when, matrix = WHEN[diagnosis.stage], diagnosis.alignment
        average = number(finite_mean(matrix[~np.eye(diagnosis.members, dtype=bool)]))
        label = f"{when}: alignment of members' tangent kernels, {average} on average"
        maps[diagnosis.stage] = member_matrix(f"kernel-{diagnosis.stage}", when, label, matrix, lowest)
    return maps


def rows_of(diagnoses: Sequence[KernelDiagnosis]) -> list[tuple[str, list[str], str]]:
    """Return label, texts and reading of every number, in the order a reader wants them."""
    room = room_of(diagnoses[0])
    return [
        (label, [cell(diagnosis) for diagnosis in diagnoses], says.format(diagnoses[0], room))
        for label, cell, says in NUMBERS
    ]


def room_of(diagnosis: KernelDiagnosis) -> str:
    """Return what N is."""
    if not diagnosis.shares:
        return "members share nothing"
    width, layer = diagnosis.width, diagnosis.layer
    return f"N = {width:,}, the channels that {layer} takes" if width else "N is not known"
