"""`murmur explore RUN similarity|plane|...`: studies of the loss landscape (`reports/landscape`) of a run.

The page is written with the numbers as JSON and Parquet beside it, and a folder of computed pieces from which the same
command continues after it was killed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from murmuration.cli.console import CONTINUES, Interrupted, print_json
from murmuration.cli.options import Names, is_whole, listed, option
from murmuration.system.errors import Misuse

if TYPE_CHECKING:
    from murmuration.prediction.ensemble import Ensemble
    from murmuration.reports.figures import Figure
    from murmuration.studies.pages.studies import Choices, Study, Subject

EXAMPLES = 2000  # test inputs, unless told
PANEL = "Loss landscape"


@dataclass(frozen=True)
class StudyOptions:
    """Options of studies of the loss landscape; each study takes some of them."""

    anchors: Annotated[str | None, option("Members by number; 0,1 if left out.", PANEL, "I,J")] = None
    grid: Annotated[int | None, option("Points a side of the plane; 21 if left out.", PANEL, "N")] = None
    samplers: Annotated[Names, option("Subspace samplers; all if left out.", PANEL, "LIST")] = None
    samples: Annotated[int | None, option("Samples of every sampler and member.", PANEL, "N")] = None
    beside: Annotated[Names, option("Other runs in the same figures, such as SWAG draws.", PANEL, "RUN")] = None
    ood: Annotated[Names, option("Out-of-distribution inputs; a list for several.", PANEL, "DATA")] = None
    severities: Annotated[Names, option("Severities of corruptions, such as 1,3,5.", PANEL, "LIST")] = None
    runs: Annotated[int | None, option("Networks of every cell of the factorial; 3 if left out.", PANEL, "N")] = None
    rates: Annotated[Names, option("Learning rates of the factorial.", PANEL, "LIST")] = None
    epochs: Annotated[int | None, option("Epochs of the factorial; 10 if left out.", PANEL, "N")] = None
    image: Annotated[str | None, option("Also every figure as png or svg.", PANEL, "KIND")] = None

    def given(self) -> dict[str, Any]:
        """Return the options that were given, by name."""
        return {option.name: value for option in fields(self) if (value := getattr(self, option.name)) is not None}

    def choices(self, ensemble: "Ensemble") -> "Choices":
        """Return the choices of a study of this ensemble."""
        from murmuration.cli.training import load_networks
        from murmuration.studies.pages.studies import Choices, ood_splits

        values: dict[str, Any] = {}
        for name, value in self.given().items():
            if name in ("grid", "samples", "runs", "epochs"):
                values[name] = at_least_one(name, value)
            elif name == "anchors":
                values[name] = members_named(value, ensemble.members)
            elif name in ("severities", "rates"):
                values[name] = numbers(name, listed(value), int if name == "severities" else float)
            elif name == "samplers":
                values[name] = tuple(listed(value))
            elif name == "beside":
                values[name] = {Path(run).name: load_networks(Path(run)) for run in listed(value)}
            elif name == "ood":
                values[name] = ood_splits(listed(value), ensemble)
        return Choices(**values)


def at_least_one(name: str, value: int) -> int:
    if value < 1:
        raise Misuse(f"--{name} {value}: expected at least 1")
    return value


def members_named(text: str, members: int) -> tuple[int, ...]:
    """Return the members of a list such as 0,1.

    >>> members_named("0,2", 5)
    (0, 2)
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(is_whole(part) for part in parts) or len(set(parts)) < len(parts):
        raise Misuse(f"--anchors {text}: expected numbers of different members, such as 0,1")
    members_given = tuple(int(part) for part in parts)
    if max(members_given) >= members:
        raise Misuse(f"--anchors {text}: the run has {members} members, the last is {members - 1}")
    return members_given


def numbers(name: str, texts: Sequence[str], kind: type) -> tuple[Any, ...]:
    """Return the values of a list of numbers."""
    try:
        return tuple(kind(text) for text in texts)
    except ValueError:
        example = "1,3,5" if kind is int else "0.0008,0.0016"
        raise Misuse(f"--{name} {','.join(texts)}: expected numbers such as {example}") from None


def refuse_foreign(what: str, study: "Study", options: StudyOptions, studies: "Mapping[str, Study]") -> None:
    """Refuse options that this study does not take."""
    for name in options.given():
        if name not in (*study.choices, "image"):
            takers = [other for other, other_study in studies.items() if name in other_study.choices]
            raise Misuse(f"--{name} is for {', '.join(takers)}, not for {what}: leave it out")


def run_study(
    what: str, study: "Study", subject: "Subject", page: Path, run: Path, image: str | None
) -> dict[str, Any]:
    """Compute a study and write its page, numbers and images; returns the record with the files that were written."""
    from murmuration.system.files import write_bytes, write_json, write_whole
    from murmuration.system.records import plain_json

    page.parent.mkdir(parents=True, exist_ok=True)
    try:
        outcome = study.run(subject)
    except KeyboardInterrupt:
        raise Interrupted(CONTINUES) from None
    about = f"{run} · {subject.ensemble.members} members · {len(subject.test):,} examples"
    record = {"what": what, "run": str(run), **plain_json(outcome.record)}
    write_bytes(page, outcome.page(f"{study.title} of {run.name}", about).encode())
    write_json(page.with_suffix(".json"), record)
    write_whole(page.with_suffix(".parquet"), lambda file: outcome.record.frame().to_parquet(file))
    files = [page, page.with_suffix(".json"), page.with_suffix(".parquet")]
    files += write_images(outcome.figures, page, image) if image is not None else []
    return {**record, "sentences": list(outcome.sentences), "written": [str(name) for name in files]}


def write_images(figures: "Sequence[Figure]", page: Path, kind: str) -> list[Path]:
    """Return every figure as an image file beside the page."""
    from murmuration.reports.plots import figure_image

    files = [page.with_name(f"{page.stem}-{figure.name}.{kind}") for figure in figures]
    for figure, file in zip(figures, files, strict=True):
        figure_image(figure, file)
    return files


def show_outcome(found: dict[str, Any], *, as_json: bool) -> None:
    """Print what was found, and where it was written."""
    if as_json:
        return print_json(found)
    for sentence in found["sentences"]:
        print(f"- {sentence}")
    print(f"written: {', '.join(found['written'])}")
