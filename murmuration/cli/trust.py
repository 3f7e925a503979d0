"""What commands find out besides the scores on the test split: under shift, on foreign inputs, with safeguards."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from murmuration.cli.options import ShiftOptions, listed
from murmuration.cli.screen import counting_bar, say_table
from murmuration.errors import Misuse

if TYPE_CHECKING:
    from torch import Tensor

    from murmuration.data import Preparation
    from murmuration.evaluation import Assessment, Exam
    from murmuration.evaluation.corrupting import Corrupting


@dataclass(frozen=True)
class Trial:
    """What a run is tried on besides its exam: opened and checked before anything is computed."""

    corrupting: "Corrupting | None" = None
    foreign: Mapping[str, "Tensor"] = field(default_factory=dict)  # name -> inputs


def trial_of(options: ShiftOptions, exam: "Exam") -> Trial:
    """The trial that the options ask for."""
    corrupting = corrupting_of(options, exam.preparation) if options.wanted else None
    return Trial(corrupting, foreign_sets(options.ood or (), exam.preparation))


def corrupting_of(options: ShiftOptions, preparation: "Preparation") -> "Corrupting":
    """Which corruptions of which examples."""
    from murmuration.data.shift import chosen, chosen_severities, official_names
    from murmuration.errors import unknown
    from murmuration.evaluation.corrupting import Corrupting

    names = listed(options.only) or None
    if options.cifar_c is None:
        kept = chosen(preparation, names)
    else:
        known = official_names(options.cifar_c)
        strange = [name for name in names or () if name not in known]
        if strange:
            raise unknown("corruption", strange[0], known)
        kept = names or known
    if options.shift_examples is not None and options.shift_examples < 1:
        raise Misuse(f"--shift-examples {options.shift_examples}: expected at least 1")
    severities = chosen_severities([whole(text) for text in listed(options.severities)])
    return Corrupting(tuple(kept), tuple(severities), examples=options.shift_examples, official=options.cifar_c)


def whole(text: str) -> int:
    """A severity as a number."""
    if not text.isdigit():
        raise Misuse(f"--severities names '{text}': expected some of 1,2,3,4,5")
    return int(text)


def foreign_sets(sources: Sequence[str], preparation: "Preparation") -> dict[str, "Tensor"]:
    """The inputs of every foreign set by name."""
    from murmuration.data import open_foreign

    found: dict[str, Tensor] = {}
    for source in sources:
        name = Path(source).name or source
        if name in found:
            raise Misuse(f"--ood names '{name}' twice: give each set once")
        found[name] = open_foreign(source, preparation=preparation)
    return found


def tried(assessment: "Assessment", trial: Trial, *, quiet: bool) -> "Assessment":
    """The assessment with what the trial shows."""
    from murmuration.evaluation import assess_foreign, assess_shift, familiar_of

    ensemble, exam = assessment.ensemble, assessment.exam
    if ensemble is None:
        return assessment
    shift = None
    if trial.corrupting is not None:
        with counting_bar(f"{assessment.name} under shift", quiet) as show:
            shift = assess_shift(
                ensemble, exam, trial.corrupting, guard=assessment.guard, applied=assessment.applied, show=show
            )
    found = []
    if trial.foreign:
        familiar = familiar_of(ensemble, exam)
        found = [assess_foreign(ensemble, familiar, name, x) for name, x in trial.foreign.items()]
    return replace(assessment, shift=shift, foreign=tuple(found))


def show_trials(assessments: Sequence["Assessment"]) -> None:
    """Tables of what trials showed: scores by severity, and how well foreign inputs are noticed."""
    from murmuration.cli.closing import interval_text
    from murmuration.reports.wording import number

    show_shift([each for each in assessments if each.shift is not None])
    for each in assessments:
        for found in each.foreign:
            rows = [
                [name, number(d.auroc), interval_text(d.auroc), number(d.aupr), number(d.fpr95)]
                for name, d in found.detections.items()
            ]
            title = (
                f"{each.name}: {found.examples:,} of {found.name} against {each.evaluation.inputs:,} familiar inputs"
            )
            say_table(["uncertainty", "AUROC", "95 % interval", "AUPR", "FPR95"], rows, title=title)


def show_shift(assessments: Sequence["Assessment"]) -> None:
    """Scores of every ensemble without corruption, by severity, and over all corruptions and severities."""
    from murmuration.evaluation.shift import SHIFT_SCORES
    from murmuration.reports.wording import meaning, number

    if not assessments:
        return
    names = SHIFT_SCORES[assessments[0].exam.task]
    rows = []
    for each in assessments:
        shift = each.shift
        assert shift is not None
        levels = {"clean": shift.clean, **{f"severity {s}": scores for s, scores in shift.by_severity.items()}}
        levels["all severities"] = shift.pooled
        named = f"{each.name}, " if len(assessments) > 1 else ""
        rows += [[f"{named}{level}", *(number(scores[name]) for name in names)] for level, scores in levels.items()]
    title = f"means over {assessments[0].shift.about}" if assessments[0].shift is not None else ""
    say_table(["inputs", *(meaning(name).label for name in names)], rows, title=title)
