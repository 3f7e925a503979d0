"""The page on tangent kernels between members: interpretation, heat maps and values."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from murmuration.reports.figures import Figure, member_matrix
from murmuration.reports.formatting import MISSING, finite_mean, number, percent
from murmuration.reports.html import Markup, figure, grid, join, section, table, tag
from murmuration.reports.page import framed
from murmuration.studies.kernels import KernelDiagnosis, Stage

WHEN = {"before": "Before training", "after": "After training", "limit": "Infinite width"}


class Row(NamedTuple):
    """One number of every diagnosis, and what it says."""

    label: str
    cells: list[str]
    reading: str


Cell = Callable[[KernelDiagnosis], str]
NUMBERS: tuple[tuple[str, Cell, str], ...] = (  # label, how it is written, what it says of the first diagnosis
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


def kernels_page(found: Sequence[KernelDiagnosis], *, title: str, subtitle: str) -> str:
    """Return the page on diagnoses of one ensemble, before training, after it, or both."""
    return framed(title, subtitle, join([verdicts(found), maps(found), numbers_of(found)]))


def told(found: KernelDiagnosis) -> str:
    """Return the verdict of one stage, as a sentence."""
    when = "At infinite width" if found.stage == "limit" else WHEN[found.stage]
    return f"{when} it is {found.verdict}."


def verdicts(diagnoses: Sequence[KernelDiagnosis]) -> Markup:
    """Return what was found, in a sentence a stage, and what to do about it."""
    sentences = [tag("p", told(item), "lead") for item in diagnoses]
    advice = join(tag("li", item) for item in diagnoses[0].advice)
    reading = (
        "Members that share weights train each other. If one member's step leaves the others where they are, the "
        "ensemble is as good as separate networks; if it moves them all, they learn together and stay alike."
    )
    return section("verdict", "Do members learn alone or together?", reading, join([*sentences, tag("ul", advice)]))


def maps(found: Sequence[KernelDiagnosis]) -> Markup:
    """Return a heat map of member by member for every stage, on one scale."""
    reading = (
        "Each cell says how far a step of one member through the shared weights moves another, against how far both "
        "move themselves: 1 for members that cannot be told apart, 0 for strangers, less for members that undo each "
        "other's steps. The diagonal is always 1 and left blank."
    )
    return section("kernel", "The kernel between members", reading, grid(map(figure, heat_maps(found).values())))


def heat_maps(diagnoses: Sequence[KernelDiagnosis]) -> dict[Stage, Figure]:
    """Return the heat map of every stage, on one scale; there is none of the limit, which has no members."""
    lowest = min(0.0, *(float(np.nanmin(diagnosis.alignment, initial=0.0)) for diagnosis in diagnoses))
    return {diagnosis.stage: heat_map(diagnosis, lowest) for diagnosis in diagnoses if diagnosis.stage != "limit"}


def heat_map(found: KernelDiagnosis, lowest: float) -> Figure:
    """Return the alignment (M, M) of members' tangent kernels, from `lowest` to 1."""
    when = WHEN[found.stage]
    pairs = found.alignment[~np.eye(found.members, dtype=bool)]
    label = f"{when}: alignment of members' tangent kernels, {number(finite_mean(pairs))} on average"
    return member_matrix(f"kernel-{found.stage}", when, label, found.alignment, lowest)


def numbers_of(diagnoses: Sequence[KernelDiagnosis]) -> Markup:
    """Return the table of all numbers, with a sentence on each."""
    columns = ["Number", *(WHEN[diagnosis.stage] for diagnosis in diagnoses), tag("span", "What it says", "wide")]
    rows = [(row.label, [*row.cells, tag("span", row.reading, "wide")]) for row in rows_of(diagnoses)]
    count, first = diagnoses[0].inputs, diagnoses[0]
    reading = f"Means over {count:,} inputs and all outputs of {first.members} members."
    board = tag("div", table("Numbers of the kernels", columns, rows), "wrapped")
    return section("numbers", "Numbers", reading, board)


def rows_of(found: Sequence[KernelDiagnosis]) -> list[Row]:
    """Return all numbers of the diagnoses as text, in the order a reader wants them."""
    room = room_of(found[0])
    return [Row(label, [cell(e) for e in found], says.format(found[0], room)) for label, cell, says in NUMBERS]


def room_of(found: KernelDiagnosis) -> str:
    """Return what N is."""
    if not found.shares:
        return "members share nothing"
    return f"N = {found.width:,}, the channels that {found.layer} takes" if found.width else "N is not known"
