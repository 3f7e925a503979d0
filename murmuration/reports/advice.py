"""What is wrong and what would help, in plain sentences: calibration, sets, declining, groups, shift, OOD."""

import math

from murmuration.evaluation import Evaluation
from murmuration.metrics import paired_test, shown_in
from murmuration.metrics.scores import measure_of
from murmuration.reports.wording import meaning, number, percent

DOUBT = 0.05  # a p-value from here on says that chance may explain a difference
LISTED = 3  # groups or classes that a sentence names


def advice(evaluation: Evaluation, who: str) -> list[str]:
    """Sentences on all that was looked at besides the scores."""
    found = [
        about_calibrator(evaluation, who),
        about_sets(evaluation, who),
        about_declining(evaluation, who),
        about_groups(evaluation, who),
        about_shift(evaluation, who),
        *about_foreign(evaluation, who),
    ]
    return [text for text in found if text]


def about_calibrator(evaluation: Evaluation, who: str) -> str:
    """Whether the calibrator helps on examples that it did not learn from."""
    posthoc, before, after = evaluation.posthoc, evaluation.before, evaluation.after
    if posthoc is None or posthoc.calibrator is None or before is None or after is None:
        return ""
    test = paired_test(after, before, "nll")
    old, new = before.scores()["nll"], after.scores()["nll"]
    name = posthoc.calibrator.name.replace("_", " ")
    if test.p_value >= DOUBT:
        told = "is applied, though it changes" if evaluation.calibrated else "would change"
        return f"calibration of {who} by {name} {told} the NLL by no more than chance explains."
    if test.difference > 0:
        told = "is applied, but raises" if evaluation.calibrated else "would raise"
        return (
            f"calibration of {who} by {name} {told} the NLL from {number(old)} to {number(new)}: it does not help here."
        )
    told = "is applied and lowers" if evaluation.calibrated else "would lower"
    how = posthoc.calibrator.about
    return f"calibration of {who} by {name} ({how}) {told} the NLL from {number(old)} to {number(new)}."


def about_sets(evaluation: Evaluation, who: str) -> str:
    """Whether the promised sets hold the truth, and where they do not."""
    posthoc = evaluation.posthoc
    if posthoc is None or not posthoc.conformal or not evaluation.coverage:
        return ""
    own = [found for found in evaluation.coverage if found.method == posthoc.conformal[0].method]
    whole = own[0]
    if not math.isfinite(whole.size):
        return (
            f"there were too few examples for {whole.method} intervals of {who} that promise {percent(whole.nominal)}."
        )
    size = f"sets of {number(whole.size)} classes" if evaluation.eval_set.classes else "conformal intervals"
    held, promised = percent(whole.coverage), percent(whole.nominal)
    told = f"the {size} that {who} gives hold the truth {held} of the time, {promised} promised"
    failing = sorted((each for each in own[1:] if each.verdict == "under"), key=lambda each: float(each.coverage))
    short = ", fewer than promised by more than chance explains" if whole.verdict == "under" else ""
    if not failing:
        return f"{told}{short}."
    named = ", ".join(f"{each.subset} ({percent(each.coverage)})" for each in failing[:LISTED])
    more = f" and {len(failing) - LISTED} more" if len(failing) > LISTED else ""
    return f"{told}, but less often than promised for {named}{more}."


def about_declining(evaluation: Evaluation, who: str) -> str:
    """What the rule by cost gains."""
    found = next((each for each in evaluation.abstention if each.rule.name == "cost"), None)
    if found is None or evaluation.eval_set.task != "classification":
        return ""
    everything = 1 - float((evaluation.after or evaluation.before or evaluation.examples).columns["correct"].mean())
    declined = 1 - float(found.answered)
    if declined == 0 or not math.isfinite(found.risk):
        return ""
    return (
        f"declining the {percent(declined)} that {who} is least sure of takes the error rate among its answers from "
        f"{percent(everything)} to {percent(found.risk)}."
    )


def about_groups(evaluation: Evaluation, who: str) -> str:
    """Which groups are worse off by more than chance explains."""
    score = shown_in("brief", evaluation.eval_set.task)[0]
    worse = [
        f"{column} {each.value} ({number(each.scores[score])})"
        for column, found in evaluation.groups.items()
        for each in found
        if each.worse
    ]
    if not worse:
        return ""
    label = meaning(score).label
    more = f" and {len(worse) - LISTED} more groups" if len(worse) > LISTED else ""
    whole = number(evaluation.scores[score])
    return (
        f"{label} of {who} is worse than for the rest, by more than chance explains, for "
        f"{', '.join(worse[:LISTED])}{more}; over all it is {whole}."
    )


def about_shift(evaluation: Evaluation, who: str) -> str:
    """How far the main score falls, which corruption hurts most, and whether confidence follows."""
    shift = evaluation.shift
    if shift is None:
        return ""
    task = evaluation.eval_set.task
    score = shown_in("brief", task)[0]
    higher = measure_of(score, task).better == "higher"
    last = max(shift.by_severity)
    worst = (min if higher else max)(shift.by_type, key=lambda name: float(shift.by_type[name][score]))
    label = meaning(score).label
    told = (
        f"under corruption the {label if label.isupper() else label.lower()} of {who} goes from "
        f"{number(shift.clean[score])} to {number(shift.by_severity[last][score])} at severity {last}"
    )
    if len(shift.by_type) > 1 and (shift.by_type[worst][score] < shift.clean[score]) == higher:
        told += f"; {worst} hurts most ({number(shift.by_type[worst][score])})"
    if task != "classification":
        return f"{told}."
    errors = number(shift.clean["ece"]), number(shift.by_severity[last]["ece"])
    return f"{told}. Its calibration error goes from {errors[0]} to {errors[1]}."


def about_foreign(evaluation: Evaluation, who: str) -> list[str]:
    """Which uncertainty notices each foreign set best, and which are misled by it."""
    texts = []
    for found in (each for each in evaluation.ood if each.detections):
        best = max(found.detections, key=lambda name: float(found.detections[name].auroc))
        misled = [meaning(name).label.lower() for name, each in found.detections.items() if each.auroc.high < 0.5]
        rest = f"; {', '.join(misled)} would call it more familiar than the test examples" if misled else ""
        auroc, name = found.detections[best].auroc, meaning(best).label.lower()
        told = f"{who} notices {found.name} best by {name} (AUROC {number(auroc)})"
        if auroc.low <= 0.5:
            told = f"{who} does not notice {found.name}: by {name}, the best, the AUROC is {number(auroc)}"
        texts.append(f"{told}{rest}.")
    return texts
