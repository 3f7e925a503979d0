"""What commands find out besides the scores on the test split: under shift, on foreign inputs, with post-hoc steps."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
    refuse_idle(options)
    corrupting = corrupting_of(options, exam) if options.wanted else None
    return Trial(corrupting, foreign_sets(options.ood or (), exam.preparation))


def refuse_idle(options: ShiftOptions) -> None:
    """Refuse options that say how to corrupt where nothing is to be corrupted."""
    how = {"severities": options.severities, "shift_examples": options.shift_examples}
    for name, value in how.items():
        if not options.wanted and value != getattr(ShiftOptions(), name):
            raise Misuse(f"--{name.replace('_', '-')} {value} is for corrupted inputs: add --corruptions")


def corrupting_of(options: ShiftOptions, exam: "Exam") -> "Corrupting":
    """Which corruptions of which examples."""
    from murmuration.data.shift import select_corruptions, select_severities
    from murmuration.evaluation.corrupting import Corrupting

    names = None if options.only is None else listed(options.only)
    if options.shift_examples is not None and options.shift_examples < 1:
        raise Misuse(f"--shift-examples {options.shift_examples}: expected at least 1")
    severities = select_severities([severity(text) for text in listed(options.severities)])
    kept = (
        select_corruptions(exam.preparation, names)
        if options.cifar_c is None
        else official(options.cifar_c, names, exam)
    )
    return Corrupting(tuple(kept), tuple(severities), examples=options.shift_examples, official=options.cifar_c)


def official(folder: str, names: Sequence[str] | None, exam: "Exam") -> list[str]:
    """The corruptions to use of a folder of official arrays; their first pictures show now whether the run takes them,
    not after it is trained."""
    from murmuration.data.shift import official_names, official_split
    from murmuration.errors import unknown

    known = official_names(folder)
    kept = list(dict.fromkeys(known if names is None else names))
    if not kept:
        raise Misuse(f"no corruption is named: expected some of {', '.join(known)}")
    for name in kept:
        if name not in known:
            raise unknown("corruption", name, known)
    with naming(f"--cifar-c {folder}", known=folder):
        official_split(folder, kept[0], 1, exam.preparation, classes=exam.classes)
    return kept


def severity(text: str) -> int:
    """A severity as a number."""
    if text not in ("1", "2", "3", "4", "5"):
        raise Misuse(f"--severities names '{text}': expected some of 1,2,3,4,5")
    return int(text)


@contextmanager
def naming(words: str, *, known: str) -> Iterator[None]:
    """A refusal that begins with the words of the command, unless it names what they name already."""
    try:
        yield
    except Misuse as error:
        raise error if f"'{known}" in str(error) else Misuse(f"{words}: {error}") from None


def foreign_sets(sources: Sequence[str], preparation: "Preparation") -> dict[str, "Tensor"]:
    """The inputs of every foreign set by name."""
    from murmuration.data import open_inputs

    found: dict[str, Tensor] = {}
    for source in sources:
        name = Path(source).name or source
        if name in found:
            raise Misuse(f"--ood names '{name}' twice: give each set once")
        with naming(f"--ood {source}", known=source):
            found[name] = open_inputs(source, preparation=preparation, adapt=True)
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
    from murmuration.reports.wording import meaning, number

    for each in assessments:
        show_shift(each)
    for each in assessments:
        for found in each.foreign:
            rows = [
                [meaning(name).label, number(d.auroc), interval_text(d.auroc), number(d.aupr), number(d.fpr95)]
                for name, d in found.detections.items()
            ]
            title = (
                f"{each.name}: {found.examples:,} of {found.name} against {each.evaluation.inputs:,} familiar inputs"
            )
            say_table(["uncertainty", "AUROC ↑", "95 % interval", "AUPR ↑", "FPR95 ↓"], rows, title=title)


def show_shift(assessment: "Assessment") -> None:
    """Scores of an ensemble without corruption, by severity, and over all corruptions and severities."""
    from murmuration.cli.closing import heading
    from murmuration.metrics import shown_in
    from murmuration.reports.wording import number

    shift = assessment.shift
    if shift is None:
        return
    levels = {"clean": shift.clean, **{f"severity {s}": scores for s, scores in shift.by_severity.items()}}
    if len(shift.by_severity) > 1:
        levels["all severities"] = shift.pooled
    names = shown_in("shift", assessment.exam.task, members=len(assessment.evaluation.agreement))
    rows = [[level, *(number(scores[name]) for name in names)] for level, scores in levels.items()]
    say_table(["inputs", *map(heading, names)], rows, title=f"{assessment.name}: means over {shift.about}")
