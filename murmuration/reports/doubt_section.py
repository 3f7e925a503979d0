"""The section on why an ensemble is unsure: noise that members agree on, or what they disagree on."""

from murmuration.reports.canvas import Figure
from murmuration.reports.cells import glossary, row_head, score_cell, score_head
from murmuration.reports.dot_plots import Series, dot_rows
from murmuration.reports.doubt_records import OVERALL, SHOWN, Doubts
from murmuration.reports.gallery import cards
from murmuration.reports.markup import NOTHING, Markup, details, figure, grid, join, section, table, tag, text
from murmuration.reports.records import Report
from murmuration.reports.wording import answers, meaning

READING = (
    "There are two reasons to be unsure. Aleatoric: the answers agree that the example itself leaves the matter open; "
    "more training examples would not help, a better look at this one would. Epistemic: the answers disagree, since "
    "they have seen too little of its kind; more examples like it would help. Both are variances of the label and add "
    "up to the whole. The entropies say the same in nats: what is expected plus what is mutual."
)
ALONE = "{names} gives one answer to an input. Nothing can disagree with it: its epistemic part is 0 and says nothing."
MOST_DRAWN = 30  # classes
EXAMPLES = {
    "epistemic": "Highest epistemic uncertainty: the answers contradict each other",
    "aleatoric": "Highest aleatoric uncertainty: the answers agree that it is open",
}


def doubts(report: Report) -> Markup:
    """The table over all examples, tables and dots by class, and the examples that show each kind best."""
    found = {entry.name: entry.doubts for entry in report.entries if entry.doubts is not None}
    if not found:
        return NOTHING
    alone = [name for name, each in found.items() if each.answers == 1]
    warned = tag("p", text(ALONE.format(names=" and ".join(alone))), "aside") if alone else NOTHING
    told = glossary([meaning(name) for name in OVERALL])
    drawn = grid(figure(_by_class(name, each, f"doubts-{place}")) for place, (name, each) in enumerate(found.items()))
    tables = join(_class_table(name, each) for name, each in found.items())
    shown = join(_examples(report, kind, title) for kind, title in EXAMPLES.items())
    return section(
        "doubts", "What is uncertain, and why", READING, join([_overall(found), warned, told, drawn, tables, shown])
    )


def _overall(found: dict[str, Doubts]) -> Markup:
    rows = [
        (row_head(name, answers(each.members, each.draws)), [score_cell(each.overall.get(kind)) for kind in OVERALL])
        for name, each in found.items()
    ]
    columns = [text("Recipe"), *(score_head(meaning(kind)) for kind in OVERALL)]
    return table("Mean uncertainty of all test examples", columns, rows)


def _by_class(name: str, found: Doubts, place: str) -> Figure | None:
    if not 1 < len(found.by_class) <= MOST_DRAWN:
        return None
    kinds = ("aleatoric", "epistemic") if found.answers > 1 else ("aleatoric",)
    series = [
        Series(meaning(kind).label, turn + 3, {row.name: row.scores[kind] for row in found.by_class})
        for turn, kind in enumerate(kinds)
    ]
    drawn = dot_rows(place, f"{name}, by true class", [row.name for row in found.by_class], series)
    drawn.layout["showlegend"] = len(series) > 1
    return drawn


def _class_table(name: str, found: Doubts) -> Markup:
    rows = [
        (row_head(row.name, f"{row.examples:,} examples"), [score_cell(row.scores.get(kind)) for kind in SHOWN])
        for row in found.by_class
    ]
    columns = [text("True class"), *(score_head(meaning(kind)) for kind in SHOWN)]
    caption = f"{name}: how sure it is of the examples of every class"
    return details(f"Numbers by class: {name}", table(caption, columns, rows)) if rows else NOTHING


def _examples(report: Report, kind: str, title: str) -> Markup:
    shown = cards(report.doubtful.get(kind, ()), report.task)
    whose = f" ({report.doubtful_of})" if report.doubtful_of else ""
    return join([tag("h3", text(title + whose), "part"), shown]) if shown else NOTHING
