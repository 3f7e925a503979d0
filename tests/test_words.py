"""The field's words: retired names and phrases stay out of code, help, pages and reports.

A word is retired for its meaning here; the same letters with an ordinary meaning are let through by place in `ALLOWED`.
"""

import io
import re
import token
import tokenize
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CODE = sorted(
    path
    for folder in ("murmuration", "tests", "examples", "benchmarks", "docs")
    for path in (ROOT / folder).rglob("*.py")
)
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "murmuration").rglob("*.md")])

FILES = {  # names of files -> where their contents are now
    "blurring": "local_reparam",
    "carrying": "fit",
    "checks": "selftest_checks",
    "closing": "results",
    "declining": "abstention",
    "decisions": "abstention",
    "doubts": "uncertainty",
    "examining": "evaluation",
    "exams": "evaluation",
    "judging": "evaluation",
    "meeting": "step",
    "moving": "step",
    "outline": "kernel_trace",
    "piecewise": "double_backward",
    "promises": "coverage",
    "provenance": "fit",
    "safeguards": "posthoc",
    "screen": "console",
    "twice": "double_backward",
    "writers": "prediction_files",
    "written": "recipe_text",
}
NAMES = {  # identifiers -> what to write instead
    "Acting": "ForwardSpec",
    "AnswerOptions": "RecipeOptions",
    "Bound": "ELBO",
    "ClassDoubt": "uncertainty decomposition",
    "Desk": "a progress callback",
    "Exam": "EvalSet",
    "Examined": "EvalResult",
    "Felt": "CouplingStats",
    "Flock": "MemberGroup",
    "How": "ForwardSpec",
    "Job": "TrainSpec",
    "Law": "Distribution",
    "Met": "Interaction",
    "Moment": "TrainTime",
    "NotDirect": "UnsupportedOp",
    "Outline": "KernelTrace",
    "Safeguards": "PostHoc",
    "Shown": "SpaceInputs",
    "TrustOptions": "PostHocOptions",
    "Wishes": "PostHocConfig",
    "acting": "forward",
    "acting_on": "forward",
    "at_rest": "initial_state",
    "at_work": "head_only_spec",
    "calm": "deterministic",
    "carry_out": "run_training",
    "companions": "auxiliary",
    "decline_cost": "abstain_cost",
    "declining": "abstention",
    "doubts": "uncertainty",
    "exam": "eval_set",
    "exam_of": "eval_set_of",
    "fallen": "diverged",
    "flocks": "groups",
    "forget": "hess_lr",
    "guarded": "posthoc",
    "law_named": "Distribution.parse",
    "nonsense": "not finite",
    "pace": "lr_multiplier",
    "paces": "lr_multipliers",
    "prospect": "plan_pruning",
    "pulled_early": "early_backward",
    "resting": "initial",
    "safeguarded": "fit_posthoc",
    "safeguards": "posthoc",
    "stands_apart": "separate_graph",
    "strangers": "unsupported",
    "trouble": "failures",
    "wishes": "config",
}
PHRASES = {  # in strings, comments and pages: pattern -> what to write instead
    r"pictures?": "image",
    r"hold(s|ing)? the truth": "cover the target",
    r"as often as promised": "with the nominal coverage",
    r"rules? for declining": "abstention rule",
    r"(declin(e|es|ed|ing))": "abstain",
    r"doubt(s|ed|ful)?": "uncertainty, uncertain",
    r"promis(e|es|ed)": "nominal coverage, guarantee",
    r"safeguards?": "post-hoc steps",
    r"wishes": "settings",
    r"(broken|kept) (by more|within)": "under-coverage",
    r"spoilt": "corrupted",
    r"spreads?": "std, variance, rho",
    r"(body|network|networks|ensemble) of numbers": "deterministic weights",
    r"goes on where it (stood|stopped)": "continues",
    r"members? (say|says|feel|feels|tell|tells|wish|wishes)": "members predict, have",
    r"what members say": "interaction between members, predictions of members",
    r"From it follow all random numbers": "Random seed",
    r"dropout noise its masks": "dropout masks",
    r"What you hold|Sets that hold": "Summary, Conformal prediction sets",
    r"(does it know|does the network know)[^.?]*\?": "Calibration",
    r"inputs? that (went wrong|do(es)? not belong)": "corrupted inputs, OOD inputs",
    r"stand(s|ing)? still": "inactive",
}
FLAGS = ("--level", "--risk", "--sets", "--batches", "--raw", "--decline-cost", "--labels", "--label")
ALLOWED: dict[str, tuple[str, ...]] = {  # name or phrase -> places where it has an ordinary meaning
    r"spreads?": (  # of values or estimates, in statistics
        "murmuration/core/coupling/README.md",
        "murmuration/evaluation/shift.py",
        "murmuration/evaluation/metrics/",
        "murmuration/prediction/posthoc/calibration.py",
    ),
}


@cache
def tokens(path: Path) -> list[tuple[int, str, int]]:
    """Kind, text and line of the names, strings and comments of a file."""
    kinds = (token.NAME, token.STRING, tokenize.COMMENT)
    found = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
    return [(each.type, each.string, each.start[0]) for each in found if each.type in kinds]


@cache
def prose(path: Path) -> str:
    """The strings and comments of a file of code, or the whole text of a page."""
    if path.suffix == ".md":
        return path.read_text()
    return "\n".join(text for kind, text, _ in tokens(path) if kind != token.NAME)


def allowed(word: str, path: Path) -> bool:
    place = str(path.relative_to(ROOT))
    return path == Path(__file__) or any(place.startswith(each) for each in ALLOWED.get(word, ()))


def test_retired_file_names():
    assert [str(path.relative_to(ROOT)) for path in CODE if path.stem in FILES] == []


@pytest.mark.parametrize("name", NAMES)
def test_retired_names(name):
    uses = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in CODE
        if not allowed(name, path)
        for kind, text, line in tokens(path)
        if kind == token.NAME and text == name
    ]
    assert uses == [], f"write {NAMES[name]} instead of {name}"


@pytest.mark.parametrize("phrase", PHRASES)
def test_retired_phrases(phrase):
    pattern = re.compile(rf"\b(?:{phrase})\b", flags=re.IGNORECASE)
    package = [path for path in CODE if path.is_relative_to(ROOT / "murmuration")]
    hits = [
        f"{path.relative_to(ROOT)}: {found[0]!r}"
        for path in [*package, *PAGES]
        if not allowed(phrase, path)
        for found in pattern.finditer(re.sub(r"\s+", " ", prose(path)))
    ]
    assert hits == [], f"write {PHRASES[phrase]}"


@pytest.mark.parametrize("flag", FLAGS)
def test_retired_flags(flag):
    pattern = re.compile(rf"{flag}(?![\w-])")
    texts = {path: prose(path) for path in [*CODE, *PAGES] if not allowed(flag, path)}
    assert [str(path.relative_to(ROOT)) for path, text in texts.items() if pattern.search(text)] == []
