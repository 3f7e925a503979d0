"""The figures of the report as plotly figures, for notebooks and scripts: `mm.plots.reliability(evaluation)`.

Each function takes an `Evaluation`, several in a list, a `Report` or a `Comparison`; those of predictions alone also
take a `Predictive` and its targets y. A figure of one recipe out of several takes its `name=`. The sections of the
report draw the same figures; here the page's CSS variables are replaced by the colours of `theme`, "light" or "dark".
"""

from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch

import murmuration.reports.sections.members as members
from murmuration.data import ArrayPreparation, Split, Task
from murmuration.evaluation import EvalSet, Evaluation, score_predictions
from murmuration.evaluation.columns import ColumnImportance, Drift, PartialDependence
from murmuration.likelihoods import CLASSIFICATION, REGRESSION
from murmuration.prediction.predictive import Predictive
from murmuration.reports.comparison import Comparison
from murmuration.reports.figures import Figure
from murmuration.reports.monitor_page import drift_figure
from murmuration.reports.plotly_figures import Theme, to_plotly
from murmuration.reports.report import Report
from murmuration.reports.sections.abstention import curves_figure, curves_of
from murmuration.reports.sections.calibration import reliability_figure
from murmuration.reports.sections.columns import dependence_figure, importance_figures
from murmuration.reports.sections.conformal import subset_figure
from murmuration.reports.sections.differences import forest_figure
from murmuration.reports.sections.groups import frequency_figure, group_columns, group_figure, shots_figure
from murmuration.reports.sections.input_space import field_figures
from murmuration.reports.sections.scores import confusion, parity_figure
from murmuration.reports.sections.shift import detection_figure, histogram_figure, ood_sets, shift_curves, shift_scores
from murmuration.reports.sections.thresholds import cost_figure, precision_recall_figure, roc_figure
from murmuration.reports.sections.uncertainty import by_class_figure, uncertainty_figure
from murmuration.reports.sections.weights import snr_figure
from murmuration.system.errors import Failure, Misuse, listed, unknown
from murmuration.system.files import write_bytes

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["column_importance", "conformal_coverage", "confusion_matrix", "coupling", "differences", "drift"]
__all__ += ["figure_image", "groups", "input_space", "member_agreement", "ood_auroc", "ood_histogram", "parity"]
__all__ += ["partial_dependence", "precision_recall", "reliability", "risk_coverage", "roc", "shift"]
__all__ += ["signal_to_noise", "threshold_costs", "training_curves", "uncertainty_by_class"]
__all__ += ["uncertainty_histogram"]

Evaluations = Evaluation | Sequence[Evaluation] | Report | Comparison
Scored = Evaluations | Predictive  # a Predictive with its targets y
Name = TypeVar("Name", bound=str)

IMAGES = (".png", ".svg", ".pdf", ".jpeg", ".webp")


def reliability(source: Scored, y: Any = None, *, name: str | None = None, theme: Theme = "light") -> "go.Figure":
    """Draw accuracy by confidence, or targets below predicted quantiles, before and after calibration.

    Args:
        source: An `Evaluation`, a list of them, a `Report`, or a `Predictive` with `y`.
        y: The targets, if `source` is a `Predictive`.
        name: Which evaluation, if there are several.
        theme: Colours: "light" or "dark".

    Returns:
        A plotly figure.

    Raises:
        Misuse: If the evaluation has nothing to draw.
    """
    place, evaluation = one_of(_scored(source, y), name)
    return to_plotly(reliability_figure(evaluation, place, "reliability"), theme)


def confusion_matrix(source: Scored, y: Any = None, *, name: str | None = None, theme: Theme = "light") -> "go.Figure":
    """Draw the number of examples by true and predicted class, coloured by recall.

    Args:
        source: An `Evaluation`, a list of them, a `Report`, or a `Predictive` with `y`.
        y: The targets, if `source` is a `Predictive`.
        name: Which evaluation, if there are several.
        theme: Colours: "light" or "dark".

    Returns:
        A plotly figure.

    Raises:
        Misuse: If the evaluation has nothing to draw.
    """
    _, evaluation = one_of(_scored(source, y), name)
    if not evaluation.classes:
        raise Misuse("a confusion matrix of a regression: expected a classification; write mm.plots.parity(...)")
    return to_plotly(confusion(evaluation, "confusion"), theme)


def parity(source: Scored, y: Any = None, *, name: str | None = None, theme: Theme = "light") -> "go.Figure":
    """Draw predictions of a regression against targets, with one predicted standard deviation.

    Args:
        source: An `Evaluation`, a list of them, a `Report`, or a `Predictive` with `y`.
        y: The targets, if `source` is a `Predictive`.
        name: Which evaluation, if there are several.
        theme: Colours: "light" or "dark".

    Returns:
        A plotly figure.

    Raises:
        Misuse: If the evaluation has nothing to draw.
    """
    place, evaluation = one_of(_scored(source, y), name)
    if evaluation.task != REGRESSION or evaluation.examples.columns["target"].ndim > 1:
        kind = "several targets" if evaluation.task == REGRESSION else "a classification"
        raise Misuse(f"predictions against targets of {kind}: expected a regression with one target")
    return to_plotly(parity_figure(evaluation, place, "parity"), theme)


def risk_coverage(source: Scored, y: Any = None, *, theme: Theme = "light") -> "go.Figure":
    """Draw the error among the most certain inputs by the fraction answered (selective prediction).

    Args:
        source: An `Evaluation`, a list of them, a `Report`, or a `Predictive` with `y`.
        y: The targets, if `source` is a `Predictive`.
        theme: Colours: "light" or "dark".

    Returns:
        A plotly figure.

    Raises:
        Misuse: If the evaluation has nothing to draw.
    """
    report = _scored(source, y)
    return to_plotly(curves_figure(report, curves_of(report), "risk-coverage"), theme)


def uncertainty_histogram(
    source: Scored, y: Any = None, *, name: str | None = None, theme: Theme = "light"
) -> "go.Figure":
    """Draw the total uncertainty of right and of wrong predictions.

    Args:
        source: An `Evaluation`, a list of them, a `Report`, or a `Predictive` with `y`.
        y: The targets, if `source` is a `Predictive`.
        name: Which evaluation, if there are several.
        theme: Colours: "light" or "dark".

    Returns:
        A plotly figure.

    Raises:
        Misuse: If the evaluation has nothing to draw.
    """
    _, evaluation = one_of(_scored(source, y), name)
    return to_plotly(uncertainty_figure(evaluation, "uncertainty"), theme)


def uncertainty_by_class(
    source: Scored, y: Any = None, *, name: str | None = None, theme: Theme = "light"
) -> "go.Figure":
    """Draw the aleatoric and epistemic uncertainty of every true class.

    Args:
        source: An `Evaluation`, a list of them, a `Report`, or a `Predictive` with `y`.
        y: The targets, if `source` is a `Predictive`.
        name: Which evaluation, if there are several.
        theme: Colours: "light" or "dark".

    Returns:
        A plotly figure.

    Raises:
        Misuse: If the evaluation has nothing to draw.
    """
    _, evaluation = one_of(_scored(source, y), name)
    missing = f"'{evaluation.name}' has no classes: expected a classification"
    return to_plotly(by_class_figure(evaluation, "classes"), theme, missing)


def member_agreement(source: Scored, y: Any = None, *, name: str | None = None, theme: Theme = "light") -> "go.Figure":
    """Draw the agreement of members: equal predictions, or the correlation of means.

    Args:
        source: An `Evaluation`, a list of them, a `Report`, or a `Predictive` with `y`.
        y: The targets, if `source` is a `Predictive`.
        name: Which evaluation, if there are several.
        theme: Colours: "light" or "dark".

    Returns:
        A plotly figure.

    Raises:
        Misuse: If the evaluation has nothing to draw.
    """
    _, evaluation = one_of(_scored(source, y), name)
    missing = f"'{evaluation.name}' has one member: agreement needs at least two, mm.fit(..., members=5)"
    return to_plotly(members.agreement_figure(evaluation, "agreement"), theme, missing)


def conformal_coverage(source: Evaluations, *, name: str | None = None, theme: Theme = "light") -> "go.Figure":
    """Draw the coverage of conformal sets by class, group and severity of corruption.

    Args:
        source: An `Evaluation`, a list of them, or a `Report`.
        name: Which evaluation, if there are several; all by default.
        theme: Colours: "light" or "dark".

    Returns:
        A plotly figure.

    Raises:
        Misuse: If the evaluation has nothing to draw.
    """
    report = as_report(source)
    place, evaluations = 0, [evaluation for evaluation in report.evaluations if evaluation.coverage]
    if name is not None:
        place, evaluation = one_of(report, name)
        evaluations = [evaluation]
    missing = "no evaluation has conformal sets of a subset: they need validation examples, and classes or shift=True"
    return to_plotly(subset_figure(evaluations, "coverage", place), theme, missing)


def differences(source: Report | Comparison, *, theme: Theme = "light") -> "go.Figure":
    """Draw the paired difference in NLL of every recipe to the recommended one, clean and under corruption.

    Args:
        source: The `Comparison` of `mm.compare`, or its `Report`.
        theme: Colours: "light" or "dark".

    Returns:
        A plotly figure.

    Raises:
        Misuse: If the report has no paired tests.
    """
    missing = "no paired differences: expected a comparison of several recipes, mm.compare(...)"
    return to_plotly(forest_figure(as_report(source), "differences"), theme, missing)


def roc(source: Scored, y: Any = None, *, theme: Theme = "light") -> "go.Figure":
    """Draw the ROC curve of the rarer of two classes.

    Args:
        source: An `Evaluation`, a list of them, a `Report`, or a `Predictive` with `y`.
        y: The targets, if `source` is a `Predictive`.
        theme: Colours: "light" or "dark".

    Returns:
        A plotly figure.

    Raises:
        Misuse: If there are not two classes, with examples of both.
    """
    return to_plotly(roc_figure(_scored(source, y), "roc"), theme, NOT_TWO)


def precision_recall(source: Scored, y: Any = None, *, theme: Theme = "light") -> "go.Figure":
    """Draw precision against recall of the rarer of two classes.

    Args:
        source: An `Evaluation`, a list of them, a `Report`, or a `Predictive` with `y`.
        y: The targets, if `source` is a `Predictive`.
        theme: Colours: "light" or "dark".

    Returns:
        A plotly figure.

    Raises:
        Misuse: If there are not two classes, with examples of both.
    """
    return to_plotly(precision_recall_figure(_scored(source, y), "precision-recall"), theme, NOT_TWO)


def threshold_costs(source: Scored, y: Any = None, *, name: str | None = None, theme: Theme = "light") -> "go.Figure":
    """Draw the cost of decisions between two classes by the threshold on the probability of the rarer one.

    Args:
        source: An `Evaluation`, a list of them, a `Report`, or a `Predictive` with `y`.
        y: The targets, if `source` is a `Predictive`.
        name: Which evaluation, if there are several.
        theme: Colours: "light" or "dark".

    Returns:
        A plotly figure.

    Raises:
        Misuse: If there are not two classes, with examples of both.
    """
    report = _scored(source, y)
    place, _ = one_of(report, name)
    return to_plotly(cost_figure(report, place, "costs"), theme, NOT_TWO)


def input_space(source: Evaluations, *, name: str | None = None, theme: Theme = "light") -> "go.Figure":
    """Draw predictions over inputs of one or two dimensions, on one scale for all evaluations.

    Args:
        source: An `Evaluation`, a list of them, or a `Report`.
        name: Which evaluation, if there are several.
        theme: Colours: "light" or "dark".

    Returns:
        A plotly figure.

    Raises:
        Misuse: If the evaluation has nothing to draw.
    """
    report = as_report(source)
    place, evaluation = one_of(report, name)
    expected = "expected an ensemble on one or two numeric inputs"
    missing = f"the input space of '{evaluation.name}' cannot be drawn: {expected}"
    return to_plotly(field_figures(report)[place], theme, missing)


def shift(source: Evaluations, score: str | None = None, *, theme: Theme = "light") -> "go.Figure":
    """Draw a score by severity of corruption.

    Args:
        source: An `Evaluation`, a list of them, or a `Report`.
        score: Name of the score; by default the first.
        theme: Colours: "light" or "dark".

    Returns:
        A plotly figure.

    Raises:
        Misuse: If the evaluation has nothing to draw.
    """
    report = as_report(source)
    missing = "no evaluation has scores under corruption: write mm.evaluate(ensemble, data, shift=True)"
    measure = pick("score under corruption", score, shift_scores(report), missing)
    return to_plotly(shift_curves(report, measure, "shift"), theme, f"'{measure}' has no values under corruption")


def ood_auroc(source: Evaluations, *, ood: str | None = None, theme: Theme = "light") -> "go.Figure":
    """Draw the AUROC of every uncertainty as a detector of out-of-distribution inputs.

    Args:
        source: An `Evaluation`, a list of them, or a `Report`.
        ood: Name of the out-of-distribution inputs; by default the first.
        theme: Colours: "light" or "dark".

    Returns:
        A plotly figure.

    Raises:
        Misuse: If the evaluation has nothing to draw.
    """
    sets = ood_sets(as_report(source))
    return to_plotly(detection_figure(sets[pick("OOD set", ood, sets, NO_OOD)], "auroc"), theme)


def ood_histogram(
    source: Evaluations,
    uncertainty: str | None = None,
    *,
    ood: str | None = None,
    name: str | None = None,
    theme: Theme = "light",
) -> "go.Figure":
    """Draw an uncertainty of the test examples and of out-of-distribution inputs.

    Args:
        source: An `Evaluation`, a list of them, or a `Report`.
        uncertainty: Name of the uncertainty; by default the first.
        ood: Name of the out-of-distribution inputs; by default the first.
        name: Which evaluation, if there are several.
        theme: Colours: "light" or "dark".

    Returns:
        A plotly figure.

    Raises:
        Misuse: If the evaluation has nothing to draw.
    """
    place, evaluation = one_of(as_report(source), name)
    sets = {result.name: result for result in evaluation.ood}
    result = sets[pick("OOD set", ood, sets, NO_OOD)]
    key = pick("uncertainty with a histogram", uncertainty, result.histograms, f"'{result.name}' has no histograms")
    return to_plotly(histogram_figure(place, evaluation.name, result, key, "ood"), theme)


def groups(source: Evaluations, column: str | None = None, *, theme: Theme = "light") -> "go.Figure":
    """Draw the main score within groups of the examples.

    Args:
        source: An `Evaluation`, a list of them, or a `Report`.
        column: Column of groups; by default the first.
        theme: Colours: "light" or "dark".

    Returns:
        A plotly figure.

    Raises:
        Misuse: If the evaluation has nothing to draw.
    """
    report = as_report(source)
    missing = "no evaluation has groups: they come with audited predictions, murmur audit FILE --group COLUMN"
    selected = pick("column of groups", column, group_columns(report), missing)
    return to_plotly(group_figure(report, selected, "groups"), theme, f"column '{selected}' has no groups")


IMBALANCED = (
    "no evaluation has imbalanced training classes: the largest must have three times the examples of the smallest"
)


def shots(source: Evaluations, *, theme: Theme = "light") -> "go.Figure":
    """Draw the accuracy of many-, medium- and few-shot classes of imbalanced training data.

    Args:
        source: An `Evaluation`, a list of them, or a `Report`.
        theme: Colours: "light" or "dark".

    Returns:
        A plotly figure.

    Raises:
        Misuse: If the evaluation has nothing to draw.
    """
    return to_plotly(shots_figure(as_report(source), "shots"), theme, IMBALANCED)


def class_frequency(source: Evaluations, *, theme: Theme = "light") -> "go.Figure":
    """Draw the epistemic uncertainty of every class by its number of training examples.

    Args:
        source: An `Evaluation`, a list of them, or a `Report`.
        theme: Colours: "light" or "dark".

    Returns:
        A plotly figure.

    Raises:
        Misuse: If the evaluation has nothing to draw.
    """
    return to_plotly(frequency_figure(as_report(source), "frequency"), theme, IMBALANCED)


def training_curves(
    source: Evaluations, measure: str | None = None, *, name: str | None = None, theme: Theme = "light"
) -> "go.Figure":
    """Draw a measure of every member over the epochs, such as "val_nll".

    Args:
        source: An `Evaluation`, a list of them, or a `Report`.
        measure: Name of the measure; by default the first.
        name: Which evaluation, if there are several.
        theme: Colours: "light" or "dark".

    Returns:
        A plotly figure.

    Raises:
        Misuse: If the evaluation has nothing to draw.
    """
    place, evaluation = one_of(as_report(source), name)
    available = [curve for curve in members.CURVES if members.history_of(evaluation, curve)[1]]
    selected = pick("training curve", measure, available, f"'{evaluation.name}' has no training history")
    return to_plotly(members.training_figure(evaluation, selected, place, "training"), theme)


def coupling(source: Evaluations, measure: str | None = None, *, theme: Theme = "light") -> "go.Figure":
    """Draw a statistic of the repulsion over the epochs: "mean_kernel", "cosine" or "push_to_loss".

    Args:
        source: An `Evaluation`, a list of them, or a `Report`.
        measure: Name of the measure; by default the first.
        theme: Colours: "light" or "dark".

    Returns:
        A plotly figure.

    Raises:
        Misuse: If the evaluation has nothing to draw.
    """
    report = as_report(source)
    figures = {key: members.coupling_figure(report, key, "coupling") for key in members.COUPLING}
    available = [key for key, figure in figures.items() if figure is not None]
    missing = "no evaluation has statistics of a coupling: expected members trained with repulsion, recipe='forde'"
    return to_plotly(figures[pick("statistic of the coupling", measure, available, missing)], theme)


def signal_to_noise(source: Evaluations, *, name: str | None = None, theme: Theme = "light") -> "go.Figure":
    """Draw the distribution of |mean| / std over Gaussian weights, by tensor.

    Args:
        source: An `Evaluation`, a list of them, or a `Report`.
        name: Which evaluation, if there are several.
        theme: Colours: "light" or "dark".

    Returns:
        A plotly figure.

    Raises:
        Misuse: If the evaluation has nothing to draw.
    """
    _, evaluation = one_of(as_report(source), name)
    if evaluation.weights is None:
        raise Misuse(f"'{evaluation.name}' has no Gaussian weights: expected an ensemble of recipe='bayes' or the like")
    return to_plotly(snr_figure(evaluation.name, evaluation.weights, "weights"), theme)


def column_importance(source: ColumnImportance, kind: str | None = None, *, theme: Theme = "light") -> "go.Figure":
    """Draw the importance of columns.

    Args:
        source: What `mm.columns.column_importance` returned.
        kind: "error" (default) or "uncertainty".
        theme: Colours: "light" or "dark".

    Returns:
        A plotly figure.
    """
    figures = dict(zip(("error", "uncertainty"), importance_figures(source), strict=True))
    return to_plotly(pick_figure(figures, kind), theme)


def partial_dependence(source: PartialDependence, *, theme: Theme = "light") -> "go.Figure":
    """Draw the partial dependence on a column, with two standard deviations of the members.

    Args:
        source: What `mm.columns.partial_dependence` returned.
        theme: Colours: "light" or "dark".

    Returns:
        A plotly figure.
    """
    return to_plotly(dependence_figure(source, 0), theme)


def drift(source: Drift, *, theme: Theme = "light") -> "go.Figure":
    """Draw the size of every change between training rows and new ones.

    Args:
        source: What `mm.columns.drift` returned.
        theme: Colours: "light" or "dark".

    Returns:
        A plotly figure.
    """
    return to_plotly(drift_figure(source), theme)


def pick_figure(drawn: dict[str, Figure], score: str | None) -> Figure:
    return drawn[pick("score", score, drawn, "no score of the landscape is finite")]


def figure_image(
    figure: "Figure | go.Figure", path: str | Path, *, width: int = 700, scale: float = 2, theme: Theme = "light"
) -> Path:
    """Write a figure as an image, by the ending of its path: .png, .svg, .pdf, .jpeg or .webp.

    `figure` is one of this module or of a page. Kaleido draws it in Chrome or Chromium, which must be installed; a
    pixel of the figure is `scale` pixels of the image.
    """
    target = Path(path)
    if target.suffix.lower() not in IMAGES:
        raise Misuse(f"image '{target}': expected a path that ends in {listed(IMAGES)}")
    plotly_figure = to_plotly(figure, theme) if isinstance(figure, Figure) else figure
    if find_spec("kaleido") is None:
        raise Misuse("an image of a figure needs kaleido: pip install 'torch-murmuration[plots]'")
    try:
        content = plotly_figure.to_image(format=target.suffix[1:].lower(), width=width, scale=scale)
    except Exception as error:  # kaleido's errors differ from version to version
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise Failure(f"no image of the figure: {reason}; install Chrome or Chromium, or set BROWSER_PATH") from None
    write_bytes(target, content)
    return target


NOT_TWO = "expected a classification of two classes, with examples of both"
NO_OOD = "no evaluation has out-of-distribution inputs: write mm.evaluate(ensemble, data, ood=[...])"


def as_report(source: Evaluations) -> Report:
    """Return the evaluations as a report."""
    if isinstance(source, Report | Comparison):
        return source if isinstance(source, Report) else source.summary
    evaluations = [source] if isinstance(source, Evaluation) else source
    if not isinstance(evaluations, Sequence) or not all(isinstance(item, Evaluation) for item in evaluations):
        got = type(source).__name__
        expected = "an evaluation (mm.evaluate), a list of them, a report (mm.report) or a comparison (mm.compare)"
        raise Misuse(f"{got}: expected {expected}")
    if len({evaluation.task for evaluation in evaluations}) > 1:
        raise Misuse("evaluations of a classification and of a regression: expected those of one task")
    return Report(tuple(evaluations))


def _scored(source: Scored, y: Any) -> Report:
    """Return the evaluations, or that of a predictive and its targets y, as a report."""
    if not isinstance(source, Predictive):
        report = as_report(source)
        if y is not None:
            raise Misuse("y beside an evaluation, which has targets of its own: leave it out")
        return report
    if y is None:
        raise Misuse("a Predictive without targets: give the targets of its inputs as y")
    if source.task not in (CLASSIFICATION, REGRESSION):
        raise Misuse(f"predictions of task '{source.task}': expected those of a classification or regression")
    targets = source.checked(y)
    classes = tuple(map(str, range(source.mean.shape[-1]))) if source.task == CLASSIFICATION else ()
    split = Split(torch.empty(len(targets), 0), targets)
    eval_set = EvalSet("predictions", cast(Task, source.task), split, classes, ArrayPreparation((0,), (), ()))
    return Report((Evaluation("predictions", eval_set, score_predictions([(source, y)]).uncalibrated, {}),))


def one_of(report: Report, name: str | None) -> tuple[int, Evaluation]:
    """Place and evaluation of the recipe called `name`, which only a report on several needs."""
    names = [evaluation.name for evaluation in report.evaluations]
    if name is None and len(names) > 1:
        raise Misuse(f"{len(names)} evaluations for a figure of one: give name=, one of {listed(names)}")
    place = names.index(pick("evaluation", name, names, ""))
    return place, report.evaluations[place]


def pick(kind: str, got: str | None, known: Iterable[Name], missing: str) -> Name:
    """Return the name that was given if it is known, else the first; `missing` is the message where there is none."""
    names = list(known)
    if not names:
        raise Misuse(missing)
    if got is not None and got not in names:
        raise unknown(kind, got, names)
    return names[0] if got is None else got
