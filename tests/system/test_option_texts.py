"""Texts and numbers of options, drawn by hypothesis: each is read, or refused in one line; what is read can be written.

Draws are the same in every run (`derandomize`), and no time is measured.
"""

import math
from dataclasses import fields
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from murmuration.cli.lists import LISTS
from murmuration.cli.options import image_size, lr_multiplier, split_recipes
from murmuration.cli.program import in_flags
from murmuration.core.dynamics import TrainTime
from murmuration.core.dynamics.trajectory import parse_trajectory
from murmuration.core.recipe import QUESTIONS, make_recipe, parse_recipe
from murmuration.likelihoods import likelihood_by_name
from murmuration.models.nets.table import parse_net
from murmuration.prediction.posthoc import PostHocConfig, check_config
from murmuration.prediction.prediction_files import plain_text, safe_text
from murmuration.system.devices import resolve_device
from murmuration.system.errors import LONGEST, Misuse, shortened
from murmuration.system.option_text import format_text, parse
from murmuration.training.costs import parse_budget
from murmuration.training.plan import Plan

EXAMPLES = settings(max_examples=150, derandomize=True, deadline=None, database=None)
NAMES = sorted({name.partition(" ")[0] for entries in LISTS.values() for name in entries()})
SETTINGS = ["every", "rank", "gamma", "init", "hidden", "dropout", "estimator", "bandwidth", "members", "momentum"]
SETTINGS += ["lengthscales", "cycles", "start", "std", "frozen", "coupling", "sharing", "weights", "dynamics", "tau"]
NUMBERS = ["0", "1", "-1", "2.5", "nan", "inf", "1e400", "1e-300", "9" * 5000, "1x999999999", "\u00b2", "x", "", "none"]

values = st.one_of(st.sampled_from([*NUMBERS, *NAMES]), st.text(max_size=8), st.floats().map(repr))
pairs = st.tuples(st.sampled_from(SETTINGS), values).map("=".join)
named = st.tuples(st.sampled_from(NAMES), st.sampled_from([":", ",", "="]), st.lists(pairs, max_size=3).map(",".join))
texts = st.one_of(st.text(max_size=30), st.sampled_from([*NAMES, *NUMBERS]), named.map("".join), values)

TEXT_FIELDS = ("schedule", "decay", "optimizer", "batch_order", "sampler", "stop_by", "trajectory", "engine")


def posthoc(text: str) -> None:
    for config in (PostHocConfig(calibrate=text), PostHocConfig(conformal=text)):
        for task in ("classification", "regression"):
            check_config(config, task)


READERS: dict[str, Any] = {
    "recipe": parse_recipe,
    "recipes": lambda text: split_recipes([text]),
    **{name: lambda text, name=name: make_recipe("deep-ensemble", **{name: text}) for name in QUESTIONS},
    **{f"plan {name}": lambda text, name=name: Plan(epochs=3, **{name: text}) for name in TEXT_FIELDS},
    "plan precision": lambda text: Plan(precision=text),
    "plan augment": lambda text: Plan(augment=(text,)),
    "plan same": lambda text: Plan(same=(text,)),
    "trajectory": lambda text: parse_trajectory(text).steps(TrainTime(12, 4, 3)),
    "net": parse_net,
    "loss": partial(likelihood_by_name, task="classification", classes=3),
    "post-hoc": posthoc,
    "size": image_size,
    "budget": parse_budget,
    "learning-rate multiplier": lr_multiplier,
    "device": resolve_device,
}


@pytest.mark.parametrize("name", READERS)
@EXAMPLES
@given(texts)
def test_a_text_is_read_or_refused_in_one_line(name, text):
    try:
        READERS[name](text)
    except Misuse as error:
        message = str(error)
        assert message.isprintable()
        assert len(message) <= LONGEST


@pytest.mark.parametrize("question", QUESTIONS)
@EXAMPLES
@given(named.map("".join))
def test_an_answer_that_is_read_is_written_and_read_again(question, text):
    try:
        answer = parse(text, question, QUESTIONS[question])
    except Misuse:
        return
    again = parse(format_text(answer, QUESTIONS[question]), question, QUESTIONS[question])
    assert again == answer or "nan" in repr(answer)


NUMBER_FIELDS = [each.name for each in fields(Plan) if each.type in (int, float) or str(each.type) in ("int", "float")]
numbers = st.one_of(st.integers(-(10**40), 10**40), st.floats(), st.booleans(), st.text(max_size=3), st.none())


@pytest.mark.parametrize("name", [*NUMBER_FIELDS, "steps", "patience", "clip_norm"])
@EXAMPLES
@given(numbers)
def test_a_number_of_a_plan_is_taken_or_refused(name, value):
    try:
        found = getattr(Plan(decay="coupled", **{name: value}), name)
    except Misuse:
        return
    assert found is None or math.isfinite(found)


@EXAMPLES
@given(st.text())
def test_texts_of_cells_and_messages(text):
    assert plain_text(safe_text(text)) == text
    line = shortened(text * 50)
    assert line.isprintable()
    assert len(line) <= 10 * LONGEST
    assert isinstance(in_flags(text, ["train", text]), str)
