"""Sets of classes: by hand, ties, emptiness, batches, JSON, and what is refused."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from murmuration.prediction.posthoc.conformal import (
    CONFORMAL_METHODS,
    IntervalRule,
    SetRule,
    conformal_quantile,
    covered,
    fewest_examples,
    fit_conformal,
    quantile_rank,
    ranked_scores,
    region_sizes,
    uniforms,
)
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Failure, Misuse
from murmuration.system.records import from_json, to_json


def read(record: Any) -> Any:
    return from_json(record, SetRule | IntervalRule, "conformal rule")


def model(inputs: int = 200, classes: int = 6, seed: int = 0) -> tuple[Predictive, np.ndarray]:
    """Two members, and labels drawn from a distribution they only roughly know."""
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(inputs, classes))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    shown = np.exp(logits + 0.7 * rng.normal(size=(2, inputs, classes)))
    return Predictive.from_probs(shown / shown.sum(-1, keepdims=True)), labels


FOUR = Predictive.from_probs([[0.7, 0.2, 0.1], [0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]])
LABELS = [0, 1, 1, 2]  # scores of lac: 0.3, 0.7, 0.2, 0.6


def test_lac_by_hand() -> None:
    # level 0.6 of four: the ceil(5 * 0.6) = 3rd smallest score, 0.6; in are the classes of probability 0.4 and more
    rule = fit_conformal("lac", FOUR, LABELS, coverage=0.6)
    assert isinstance(rule, SetRule)
    assert rule.threshold == pytest.approx(0.6, abs=1e-12)
    assert rule.examples == 4
    new = Predictive.from_probs([[0.45, 0.45, 0.1], [0.9, 0.05, 0.05], [0.35, 0.35, 0.3]])
    empty = replace(rule, never_empty=False)
    assert empty.sets(new).tolist() == [[True, True, False], [True, False, False], [False, False, False]]
    assert rule.sets(new)[2].tolist() == [True, False, False]  # never empty: the most probable, the first of equals
    assert region_sizes(rule.sets(new)).tolist() == [2, 1, 1]
    assert covered(rule.sets(new), [1, 1, 0]).tolist() == [True, False, True]


def test_aps_by_hand() -> None:
    # Sums down to the class: 0.7, 0.9, 1.0 in the order of probability; less draw times the class's own.
    probs, draw = np.array([[0.2, 0.7, 0.1]]), np.array([0.5])
    assert ranked_scores(probs, draw, penalty=0, start=0)[0] == pytest.approx([0.8, 0.35, 0.95], abs=1e-12)
    assert ranked_scores(probs, draw, penalty=0.1, start=1)[0] == pytest.approx([0.9, 0.35, 1.15], abs=1e-12)


def test_equal_probabilities_rank_by_class() -> None:
    probs = np.full((1, 4), 0.25)
    assert ranked_scores(probs, np.zeros(1), penalty=0, start=0)[0].tolist() == [0.25, 0.5, 0.75, 1.0]


def test_raps_without_penalty_is_aps() -> None:
    pred, labels = model()
    aps = fit_conformal("aps", pred, labels, seed=3)
    raps = fit_conformal("raps", pred, labels, seed=3, penalty=0.0)
    assert raps.threshold == aps.threshold
    assert (raps.sets(pred) == aps.sets(pred)).all()


def test_a_heavy_penalty_cuts_the_largest_sets() -> None:
    pred, labels = model(1000, classes=20)
    largest = [
        region_sizes(fit_conformal(method, pred, labels, coverage=0.8, **options).sets(pred)).max()
        for method, options in (("aps", {}), ("raps", {"penalty": 1.0, "start": 4}))
    ]
    assert largest[1] <= 5 < largest[0]


def test_defaults_of_raps_follow_the_classes() -> None:
    few, many = (fit_conformal("raps", *model(classes=classes)) for classes in (3, 30))
    assert isinstance(few, SetRule)
    assert isinstance(many, SetRule)
    assert (few.penalty, few.start, many.start) == (0.01, 2, 5)


def test_sets_without_chance_contain_those_with_it() -> None:
    pred, labels = model()
    for method in ("aps", "raps"):
        rule = fit_conformal(method, pred, labels)
        assert isinstance(rule, SetRule)
        plain = replace(rule, randomised=False, never_empty=False).sets(pred)
        assert (plain >= replace(rule, never_empty=False).sets(pred)).all()
        assert plain.any(1).all()  # the most probable class scores nothing before itself


def test_batches_get_the_sets_of_the_whole() -> None:
    pred, labels = model(50)
    rule = fit_conformal("aps", pred, labels, coverage=0.7)
    parts, first = [], 0
    for batch in pred.batches(7):
        parts.append(rule.sets(batch, first=first))
        first += batch.outputs.shape[1]
    assert (np.concatenate(parts) == rule.sets(pred)).all()


def test_the_draws_are_addressed_uniform_and_differ_by_seed_and_moment() -> None:
    whole = uniforms(5, 1, 0, 4000)
    assert all((uniforms(5, 1, first, 50) == whole[first : first + 50]).all() for first in (1, 2, 3, 4, 777))
    assert abs(whole.mean() - 0.5) < 4 * math.sqrt(1 / 12 / 4000)
    for other in (uniforms(6, 1, 0, 4000), uniforms(5, 0, 0, 4000)):
        assert abs(np.corrcoef(whole, other)[0, 1]) < 4 / math.sqrt(4000)


def test_the_quantile_rank_the_threshold() -> None:
    assert [quantile_rank(n, 0.9) for n in (9, 10, 99, 100)] == [9, 10, 90, 91]
    assert quantile_rank(99, 0.55) == 55  # 100 * 0.55 is 55.00000000000001
    assert conformal_quantile(np.array([3.0, 1.0, 2.0]), 0.5) == 2.0
    assert [fewest_examples(level) for level in (0.8, 0.9, 0.99)] == [4, 9, 99]


def test_too_few_examples_give_all_classes_and_say_so() -> None:
    pred, labels = model(8)
    rule = fit_conformal("lac", pred, labels)
    assert rule.threshold == math.inf
    assert rule.sets(pred).all()
    assert rule.about.endswith("regions are unbounded: 8 calibration examples, and coverage 0.9 needs 9")
    nine = fit_conformal("lac", *model(9))
    assert nine.threshold < math.inf
    assert nine.about == CONFORMAL_METHODS["classification"]["lac"]


@pytest.mark.parametrize("method", CONFORMAL_METHODS["classification"])
@pytest.mark.parametrize("inputs", [5, 60])
def test_json_round_trip(method: str, inputs: int) -> None:
    pred, labels = model(inputs)
    rule = fit_conformal(method, pred, labels, seed=4)
    again = read(json.loads(json.dumps(to_json(rule), allow_nan=False)))
    assert again == rule
    assert (again.sets(pred) == rule.sets(pred)).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"type": "Sets"}, "damaged conformal rule: the record is {'type': 'Sets', "),
        ({"threshold": "large"}, "damaged conformal rule: threshold is 'large', expected float"),
        ({"threshold": None}, "damaged conformal rule: threshold is None, expected float"),
        ({"threshold": math.nan}, "damaged conformal rule: threshold is nan, expected float"),
        ({"examples": 2.5}, "damaged conformal rule: examples is 2.5, expected int"),
        ({"examples": 0}, "damaged conformal rule: 0 examples: expected at least one"),
        ({"randomised": 1}, "damaged conformal rule: randomised is 1, expected bool"),
        ({"coverage": 1.5}, "damaged conformal rule: coverage 1.5 is outside (0, 1): write for example 0.9"),
        ({"method": "app"}, "damaged conformal rule: unknown classification method 'app': did you mean 'aps'?"),
        ({"penalty": -1}, "damaged conformal rule: penalty -1 from rank 0: expected both 0 or more"),
        ({"colour": 1}, "damaged conformal rule: field 'colour' of SetRule is unknown"),
    ],
)
def test_a_damaged_rule_is_refused_in_one_line(change: dict, message: str) -> None:
    record = {**to_json(fit_conformal("lac", FOUR, LABELS, coverage=0.5)), **change}
    with pytest.raises(Failure) as caught:
        read(record)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_rule_with_a_field_missing_or_of_another_shape_is_refused() -> None:
    record = to_json(fit_conformal("lac", FOUR, LABELS, coverage=0.5))
    del record["seed"]
    with pytest.raises(Failure, match="field 'seed' of SetRule is missing"):
        read(record)
    with pytest.raises(Failure, match=r"damaged conformal rule: the record is .*, expected SetRule or IntervalRule"):
        read([record])


def test_misuse_is_named() -> None:
    pred, labels = model(20)
    with pytest.raises(
        Misuse, match=r"unknown classification method 'asp': did you mean 'aps'\? Known: aps, lac, mondrian, raps"
    ):
        fit_conformal("asp", pred, labels)
    with pytest.raises(Misuse, match=r"coverage 90 is outside \(0, 1\): write for example 0.9"):
        fit_conformal("lac", pred, labels, coverage=90)
    with pytest.raises(Misuse, match=r"penalty=0.1 belongs to 'raps', not to 'lac': leave it out"):
        fit_conformal("lac", pred, labels, penalty=0.1)
    with pytest.raises(Misuse, match=r"label 9 at \[0\]: expected a class index 0..5"):
        fit_conformal("lac", pred, np.full(20, 9))
    with pytest.raises(Misuse, match=r"labels of shape \(19,\) for 20 inputs"):
        fit_conformal("lac", pred, labels[1:])
    with pytest.raises(Misuse, match="predictions for 3 classes: this rule was fitted for 6"):
        fit_conformal("lac", pred, labels).sets(FOUR)
    with pytest.raises(Misuse, match=r"labels of shape \(3,\) for 4 inputs: expected \(4,\)"):
        covered(np.ones((4, 3), bool), [0, 1, 2])


def test_a_diverged_member_is_named_and_not_averaged_away() -> None:
    pred, labels = model(20)
    outputs = pred.outputs.clone()
    outputs[1, 4] = math.nan
    with pytest.raises(Failure, match=r"the mean probability at \[4, 0\] is nan: a member diverged"):
        fit_conformal("lac", replace(pred, outputs=outputs), labels)
