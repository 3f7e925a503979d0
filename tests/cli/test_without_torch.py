"""Mistakes in arguments, and lists of recipes, need no torch: they are answered before it is imported."""

import json
import subprocess
import sys

import pytest

from murmuration.core.presets import MIXTURES, PRESETS

REQUESTS = {
    "train nowhere.csv --target price": (2, "error: no file or folder 'nowhere.csv'"),
    "predict runs/nowhere new.csv --out p.csv": (2, "error: no run at runs/nowhere: the directory does not exist"),
    "resume runs/nowhere": (2, "error: no run at runs/nowhere"),
    "train digits --recipe FoRDE": (2, "error: unknown recipe 'FoRDE': did you mean 'forde'? Known: "),
    "plan digits --recipe nothing": (2, "; see murmur list recipes"),
    "compare digits --recipes single,forde:members=2,deep_ensemble": (2, "did you mean 'deep-ensemble'"),
    "train digits --members 0": (2, "error: --members 0: need a whole number, at least 1"),
    "train digits --lr -1": (2, "error: --lr -1.0: need a positive number"),
    "train digits --loss_scale 3": (2, "error: unknown option --loss_scale"),
    "train digits --learning-rate 0.1": (2, "error: unknown option --learning-rate: write --lr; see"),
    "train digits --scheduler cosine": (2, "write --schedule; see"),
    "train digits --config a.yaml": (2, "error: unknown option --config: see murmur train --help"),
    "list recipes": (0, ""),
    "list recipes --json": (0, ""),
}
PROGRAM = """
import contextlib, io, json, sys
from murmuration.cli import main
answers = []
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stderr(io.StringIO()) as errors, contextlib.redirect_stdout(io.StringIO()):
        code = main(words.split())
    answers.append([code, errors.getvalue(), "torch" in sys.modules])
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers() -> dict[str, list]:
    done = subprocess.run([sys.executable, "-c", PROGRAM, json.dumps([*REQUESTS])], capture_output=True, text=True)
    return dict(zip(REQUESTS, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("words", REQUESTS)
def test_the_answer_comes_before_torch(words: str, answers: dict[str, list]) -> None:
    code, message = REQUESTS[words]
    assert answers[words][0] == code
    assert message in answers[words][1]
    assert len(answers[words][1].splitlines()) == (1 if code else 0)
    assert not answers[words][2]


@pytest.mark.parametrize("name", [*PRESETS, *MIXTURES])
def test_presets_state_their_answers_as_recipes_do(name: str) -> None:
    preset = {**PRESETS, **MIXTURES}[name]
    assert preset.answers() == preset.value.answers()
    assert preset.name == preset.value.name == name
