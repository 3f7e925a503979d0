"""Out-of-distribution inputs: how well every uncertainty separates them from the test examples."""

import murmuration.reports.html as html
from murmuration.evaluation import OodResult
from murmuration.evaluation.metrics import describe
from murmuration.reports.figures import Figure, Series, dot_rows, histogram, titled
from murmuration.reports.formatting import count
from murmuration.reports.html import NOTHING, Markup
from murmuration.reports.report import Report
from murmuration.reports.sections.summary import winners

SCORES = ("auroc", "aupr", "fpr95")
Found = list[tuple[int, str, OodResult]]  # place and name of the recipe, and its result on one set


def out_of_distribution(report: Report) -> Markup:
    """Show the detection of every OOD set by every uncertainty."""
    sets = enumerate(found_sets(report).values())
    parts = [_part(results, f"ood-{turn}", len(report.evaluations) > 1) for turn, results in sets]
    explanation = html.glossary(f"detection_{score}" for score in SCORES) if any(parts) else NOTHING
    reading = (
        "Inputs of a kind that was not in the training data. Predictions on them cannot be right, but uncertainty can "
        "be higher than on the test examples. ★ marks the best value of a column; the best uncertainty differs from "
        "set to set, so choose it on one and report it on others."
    )
    return html.section("ood", "Out-of-distribution inputs", reading, html.join([*parts, explanation]))


def found_sets(report: Report) -> dict[str, Found]:
    """Return the results of every recipe by OOD set, in the order the sets came."""
    sets: dict[str, Found] = {}
    for place, evaluation in enumerate(report.evaluations):
        for result in evaluation.ood:
            sets.setdefault(result.name, []).append((place, evaluation.name, result))
    return sets


def _part(found: Found, name: str, several: bool) -> Markup:
    first = found[0][2]
    values = {
        (key, recipe): {score: getattr(result.detections[key], score) for score in SCORES}
        for key in dict.fromkeys(key for _, _, result in found for key in result.detections)
        for _, recipe, result in found
        if key in result.detections
    }
    descriptions, best = [describe(f"detection_{score}") for score in SCORES], {}
    for score, description in zip(SCORES, descriptions, strict=True):
        best[score] = winners({row: scores[score] for row, scores in values.items()}, description.better)
    rows = []
    for row, scores in values.items():
        cells = [html.score_cell(value, best=row in best[score]) for score, value in scores.items()]
        rows.append((html.row_head(describe(row[0]).label, row[1] if several else ""), cells))
    columns = ["Uncertainty", *map(html.score_head, descriptions)]
    board = html.table(f"Separating {first.name} from the test examples", columns, rows)
    compared = html.figure(detection_figure(found, f"{name}-auroc")) if len(found) > 1 else NOTHING
    plots = [
        html.figure(histogram_figure(place, recipe, result, key, name))
        for place, recipe, result in found
        for key in result.histograms
    ]
    title = html.tag("h3", f"{first.name}: {count(first.examples)} inputs", "part")
    numbers = html.details("Numbers", board) if compared else board
    return html.join([title, html.grid([compared, *plots[: 4 if len(found) > 1 else 2]]), numbers])


def detection_figure(found: Found, name: str) -> Figure:
    """Return the AUROC of every uncertainty of several recipes."""
    labels = {key: describe(key).label for _, _, result in found for key in result.detections}
    series = [
        Series(recipe, place, {labels[key]: scores.auroc for key, scores in result.detections.items()})
        for place, recipe, result in found
    ]
    return dot_rows(name, titled(describe("detection_auroc")), list(labels.values()), series)


def histogram_figure(place: int, recipe: str, found: OodResult, key: str, name: str) -> Figure:
    """Return an uncertainty of the test examples and of the OOD inputs."""
    edges, reference, ood = found.histograms[key]
    description, place_name = describe(key), f"{name}-{place}-{key.replace('_', '-')}"
    title, groups = f"{recipe}: {description.label.lower()}", {"test": reference, found.name: ood}
    return histogram(place_name, description, title, edges, groups)
