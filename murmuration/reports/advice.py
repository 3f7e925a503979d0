"""What is wrong and what would help, in plain sentences: calibration, sets, declining, groups, shift, OOD."""

import math

from murmuration.evaluation import Assessment
from murmuration.metrics import paired_test, shown_in
from murmuration.metrics.scores import measure_of
from murmuration.reports.wording import meaning, number, percent

DOUBT = 0.05  # a p-value from here on says that chance may explain a difference
LISTED = 3  # groups or classes that a sentence names


def advice(assessment: Assessment, who: str) -> list[str]:
    """Sentences on all that was looked at besides the scores."""
    found = [
        about_calibrator(assessment, who),
        about_sets(assessment, who),
        about_declining(assessment, who),
        about_groups(assessment, who),
        about_shift(assessment, who),
        *about_foreign(assessment, who),
    ]
    return [text for text in found if text]


def about_calibrator(assessment: Assessment, who: str) -> str:
    """Whether the calibrator helps on examples that it did not learn from."""
    guard, before, after = assessment.guard, assessment.before, assessment.after
    if guard is None or guard.calibrator is None or before is None or after is None:
        return ""
    test = paired_test(after, before, "nll")
    old, new = before.scores()["nll"], after.scores()["nll"]
    name = guard.calibrator.name.replace("_", " ")
    if test.p_value >= DOUBT:
        told = "is applied, though it changes" if assessment.applied else "would change"
        return f"calibration of {who} by {name} {told} the NLL by no more than chance explains."
    if test.difference > 0:
        told = "is applied, but raises" if assessment.applied else "would raise"
        return (
            f"calibration of {who} by {name} {told} the NLL from {number(old)} to {number(new)}: it does not help here."
        )
    told = "is applied and lowers" if assessment.applied else "would lower"
    return (
        f"calibration of {who} by {name} ({guard.calibrator.about}) {told} the NLL from {number(old)} to {number(new)}."
    )


def about_sets(assessment: Assessment, who: str) -> str:
    """Whether the promised sets hold the truth, and where they do not."""
    guard = assessment.guard
    if guard is None or not guard.conformal or not assessment.sets:
        return ""
    own = [found for found in assessment.sets if found.method == guard.conformal[0].method]
    whole = own[0]
    if not math.isfinite(whole.size):
        return f"there were too few examples for {whole.method} intervals of {who} that promise {percent(whole.level)}."
    size = f"sets of {number(whole.size)} classes" if assessment.exam.classes else "conformal intervals"
    held, promised = percent(whole.coverage), percent(whole.level)
    told = f"the {size} that {who} gives hold the truth {held} of the time, {promised} promised"
    failing = sorted((each for each in own[1:] if each.broken), key=lambda each: float(each.coverage))
    if not failing:
        return f"{told}{', fewer than promised by more than chance explains' if whole.broken else ''}."
    named = ", ".join(f"{each.where} ({percent(each.coverage)})" for each in failing[:LISTED])
    more = f" and {len(failing) - LISTED} more" if len(failing) > LISTED else ""
    return f"{told}, but less often than promised for {named}{more}."


def about_declining(assessment: Assessment, who: str) -> str:
    """What the rule by cost gains."""
    found = next((each for each in assessment.rules if each.rule.name == "cost"), None)
    if found is None or assessment.exam.task != "classification":
        return ""
    everything = 1 - float((assessment.after or assessment.before or assessment.evaluation).columns["correct"].mean())
    declined = 1 - float(found.answered)
    if declined == 0 or not math.isfinite(found.risk):
        return ""
    return (
        f"declining the {percent(declined)} that {who} is least sure of takes the error rate among its answers from "
        f"{percent(everything)} to {percent(found.risk)}."
    )


def about_groups(assessment: Assessment, who: str) -> str:
    """Which groups are worse off by more than chance explains."""
    score = shown_in("brief", assessment.exam.task)[0]
    worse = [
        f"{column} {each.value} ({number(each.scores[score])})"
        for column, found in assessment.groups.items()
        for each in found
        if each.worse
    ]
    if not worse:
        return ""
    label = meaning(score).label
    more = f" and {len(worse) - LISTED} more groups" if len(worse) > LISTED else ""
    whole = number(assessment.scores[score])
    return (
        f"{label} of {who} is worse than for the rest, by more than chance explains, for "
        f"{', '.join(worse[:LISTED])}{more}; over all it is {whole}."
    )


def about_shift(assessment: Assessment, who: str) -> str:
    """How far the main score falls, which corruption hurts most, and whether confidence follows."""
    shift = assessment.shift
    if shift is None:
        return ""
    task = assessment.exam.task
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


def about_foreign(assessment: Assessment, who: str) -> list[str]:
    """Which uncertainty notices each foreign set best, and which are misled by it."""
    texts = []
    for found in (each for each in assessment.foreign if each.detections):
        best = max(found.detections, key=lambda name: float(found.detections[name].auroc))
        misled = [meaning(name).label.lower() for name, each in found.detections.items() if each.auroc.high < 0.5]
        rest = f"; {', '.join(misled)} would call it more familiar than the test examples" if misled else ""
        auroc, name = found.detections[best].auroc, meaning(best).label.lower()
        told = f"{who} notices {found.name} best by {name} (AUROC {number(auroc)})"
        if auroc.low <= 0.5:
            told = f"{who} does not notice {found.name}: by {name}, the best, the AUROC is {number(auroc)}"
        texts.append(f"{told}{rest}.")
    return texts
