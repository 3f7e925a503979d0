"""The table of measures: what each says of itself, where it is shown, and measures of a user's own."""

import re

import numpy as np
import pytest
import torch
from prediction_factories import classification_sample

import murmuration as mm
from murmuration.evaluation.metrics import MEASURES, describe, shown_in
from murmuration.evaluation.metrics.per_example import columns
from murmuration.evaluation.metrics.scores import PLACES
from murmuration.system.errors import Misuse

COST = mm.Measure(
    "missed",
    "Missed",
    "Cost of examples of the last class that are not predicted as such.",
    lambda columns: 5.0 * ((columns["label"] == 3) & (columns["predicted"] != 3)),
    bounds=(0.0, 5.0),
    shown=("table", "brief"),
)


@pytest.fixture
def cost():
    yield mm.add_measure(COST)
    mm.remove_measure(COST)


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_every_measure_explains_itself(task):
    for name, measure in MEASURES[task].items():
        assert measure.name == name
        assert measure.task == task
        assert measure.label
        assert measure.meaning.endswith(".")
        assert set(measure.shown) <= set(PLACES)
        assert measure.bounds[0] < measure.bounds[1]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_every_place_shows_something(place, task):
    assert ("nll" in shown_in(place, task)) == (place != "imbalanced")


def test_what_needs_members_is_not_shown_of_one():
    assert set(shown_in("table", "classification")) - set(shown_in("table", "classification", members=1)) == {
        "mutual_information",
        "member_accuracy",
        "member_nll",
    }


def test_a_measure_of_ones_own_is_scored_with_an_interval_in_its_range(cost):
    pred, y = classification_sample(50)
    found = mm.score(pred, y)["missed"]
    missed = (y == 3) & (pred.predicted.numpy() != 3)
    assert found == pytest.approx(5 * missed.mean())
    assert 0 <= found.low <= found <= found.high <= 5
    assert shown_in("brief", "classification") == ["accuracy", "nll", "ece", "missed"]
    assert describe("missed").label == "Missed"


def test_intervals_end_where_the_range_does():
    bounded = mm.Measure("tight", "T", "T.", lambda columns: columns["correct"].astype(float), bounds=(0.0, 1.0))
    pred, y = classification_sample(12, seed=4)
    mm.add_measure(bounded)
    try:
        found = mm.score(pred, np.where(np.arange(12) < 11, pred.predicted.numpy(), (y + 1) % 4))["tight"]
    finally:
        mm.remove_measure(bounded)
    assert found.high <= 1.0


def scored(values, **fields):
    """The score of a measure of one's own on some predictions."""
    measure = mm.add_measure(mm.Measure("mine", "Mine", "Mine.", values, **fields))
    try:
        return mm.score(*classification_sample(20))["mine"]
    finally:
        mm.remove_measure(measure)


def test_measures_that_cannot_be_meant_are_refused_in_one_line():
    with pytest.raises(Misuse, match=r"unknown direction of a measure 'up'.*higher"):
        scored(lambda columns: columns["correct"], better="up")
    with pytest.raises(Misuse, match=r"bounds \(1.0, 0.0\), expected the lower before the upper one"):
        scored(lambda columns: columns["correct"], bounds=(1.0, 0.0))
    with pytest.raises(Misuse, match=r"unknown column of measure 'mine' 'corect'.*did you mean 'correct'"):
        scored(lambda columns: columns["corect"])
    with pytest.raises(Misuse, match="values of measure 'mine' have NaN: need one number for each of 20 inputs"):
        scored(lambda columns: np.where(columns["label"] == 3, np.nan, 1.0))
    with pytest.raises(Misuse, match=r"have the shape \(1,\): need one number for each of 20 inputs"):
        scored(lambda columns: columns["correct"][:1])
    with pytest.raises(Misuse, match="measure 'mine' is 5: its bounds are 0 to 1; correct either"):
        scored(lambda columns: 5.0 + 0 * columns["correct"], bounds=(0.0, 1.0))


def test_names_and_places_are_checked(cost):
    with pytest.raises(Misuse, match="there is a classification measure 'missed' already"):
        mm.add_measure(COST)
    with pytest.raises(Misuse, match=r"unknown place of a measure 'tabel'.*did you mean 'table'"):
        mm.add_measure(mm.Measure("x", "X", "X.", lambda columns: columns["correct"], shown=("tabel",)))  # type: ignore[arg-type]
    with pytest.raises(Misuse, match="unknown task 'ranking'"):
        mm.add_measure(mm.Measure("x", "X", "X.", lambda columns: columns["correct"], task="ranking"))  # type: ignore[arg-type]
    with pytest.raises(Misuse, match="'y' is not registered"):
        mm.remove_measure(mm.Measure("y", "Y", "Y.", lambda columns: columns["correct"]))


def test_a_list_of_numbers_is_an_array():
    plain = scored(lambda columns: columns["correct"] * 1.0)
    assert scored(lambda columns: (columns["correct"] * 1.0).tolist()) == plain


@pytest.mark.parametrize("finish", [lambda s: [float(s)], lambda s: None, lambda s: np.ones(3)])
def test_finish_keeps_the_shape(finish):
    with pytest.raises(Misuse, match=r"finish of measure 'mine' returned .*: expected an array of the shape of its"):
        scored(lambda columns: columns["correct"] * 1.0, finish=finish)


@pytest.mark.parametrize("given", [lambda columns: columns["correct"], mm.Measure, "accuracy"])
def test_only_a_measure_is_registered(given):
    with pytest.raises(Misuse, match=r"add_measure got .*: write mm.Measure\(name, label, meaning, values\)"):
        mm.add_measure(given)


PROSE = ("for", "Gaussians", "quantiles", "and", "with", "two", "classes", "members", "or", "more")


def sample_columns() -> dict[str, set[str]]:
    """Return the names of all columns that predictions of a task can have."""
    outputs = torch.randn(3, 7, 2, generator=torch.Generator().manual_seed(0)).double()
    values, labels = outputs[0, :, :1], torch.arange(7) % 2
    quantiles = mm.Quantiles((0.1, 0.5, 0.9), shift=(0.0,), scale=(1.0,))
    samples = {
        "classification": [(mm.Predictive(outputs, mm.Categorical(2)), labels)],
        "multi-label": [(mm.Predictive(outputs, mm.MultiLabel(2)), torch.stack([labels, 1 - labels], -1))],
        "regression": [
            (mm.Predictive.from_moments(outputs[..., :1], 1.0), values),
            (mm.Predictive(torch.cat([outputs, outputs[..., :1]], -1), quantiles), values),
        ],
    }
    return {task: {name for pair in pairs for name in columns(*pair)} for task, pairs in samples.items()}


def test_the_documented_columns_are_those_that_exist():
    documented = mm.Measure.__doc__.split("Those of a ")[1:]
    paragraphs = {text.split()[0]: text.partition(" are ")[2].split("\n\n")[0] for text in documented}
    for task, names in sample_columns().items():
        words = set(re.findall(r"\w+", paragraphs[task]))
        assert words - {*PROSE} == names
