"""Scores under shift: every cell by the plain way, every mean by hand, and intervals over examples, not cells."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from score_factories import triple
from torch import nn

import murmuration as mm
from murmuration.data import Split
from murmuration.data.shift import shift_inputs
from murmuration.evaluation import EvalSet, ShiftResult, ShiftSuite, eval_set_of, evaluate_ensemble, evaluate_shift
from murmuration.evaluation.metrics import shown_in
from murmuration.evaluation.metrics.intervals import wilson
from murmuration.evaluation.metrics.scores import measure_of
from murmuration.evaluation.shift import Grid, paired_shift
from murmuration.prediction.ensemble import Ensemble
from murmuration.prediction.posthoc import PostHocConfig
from murmuration.system.errors import Misuse
from murmuration.training.plan import Plan

PLAN = Plan(members=2, epochs=3, batch_size=64, engine="loop", posthoc=PostHocConfig(conformal="aps"))
THREE = ShiftSuite(("gaussian_noise", "contrast", "pixelate"), (2, 5), seed=3)
TABLE = ShiftSuite(("feature_noise", "covariate_drift"), (1, 4))


@pytest.fixture(scope="module")
def eval_set(digits) -> EvalSet:
    return eval_set_of(digits)


@pytest.fixture(scope="module")
def with_steps(digits) -> Ensemble:
    return mm.fit("mlp", digits, plan=PLAN, posthoc=PostHocConfig("temperature:prior_std=0.5"))


@pytest.fixture(scope="module")
def plain(with_steps) -> Ensemble:
    return replace(with_steps, posthoc=None)


@pytest.fixture(scope="module")
def found(plain, eval_set) -> ShiftResult:
    return evaluate_shift(plain, eval_set, THREE)


def table_of(task: str) -> mm.Data:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((400, 5))
    y = (x[:, 0] + x[:, 1] > 0).astype(int) if task == "classification" else x @ rng.standard_normal((5, 2))
    return mm.open_data((torch.from_numpy(x), torch.from_numpy(y)), task=task)


def nearly(score: float, expected: float) -> None:
    assert float(score) == pytest.approx(float(expected), rel=1e-9, abs=1e-12)


# Cells


def test_severity_0_is_the_clean_score(found, plain, eval_set):
    clean = evaluate_ensemble(plain, eval_set).scores
    assert list(found.clean) == shown_in("shift", "classification")
    for name, score in found.clean.items():  # intervals: one matrix product, rounded by how many columns it has
        assert triple(score) == pytest.approx(triple(clean[name]), rel=1e-13)


def test_with_a_calibrator_all_scores_are_those_after_it(with_steps, eval_set, found):
    whole = evaluate_ensemble(with_steps, eval_set)
    assert whole.calibrated
    after = evaluate_shift(with_steps, eval_set, THREE, posthoc=whole.posthoc, calibrated=True)
    nearly(after.clean["nll"], whole.scores["nll"])
    assert after.clean["nll"] != found.clean["nll"]
    x = shift_inputs(eval_set.split.prepared, eval_set.preparation, "contrast", 5, seed=3)
    pred = with_steps.predict(x, prepared=True)
    cell = next(cell for cell in after.cells if (cell.corruption, cell.severity) == ("contrast", 5))
    nearly(cell.scores["nll"], mm.score(pred, eval_set.split.y)["nll"])
    rule = with_steps.posthoc.conformal[0]  # type: ignore[union-attr]
    sets = rule.sets(pred)  # type: ignore[union-attr]
    nearly(cell.scores["set_size"], sets.sum(1).mean())
    nearly(cell.scores["set_coverage"], sets[np.arange(len(sets)), eval_set.split.y.numpy()].mean())
    before = evaluate_shift(with_steps, eval_set, THREE, posthoc=whole.posthoc, calibrated=False)
    nearly(before.pooled["nll"], found.pooled["nll"])
    assert before.pooled["set_size"] == after.pooled["set_size"]  # sets are those after the calibrator, in both


def test_every_cell_is_scored_as_its_inputs_alone_would_be(found, plain, eval_set):
    assert [(cell.corruption, cell.severity) for cell in found.cells] == THREE.cells
    for cell in found.cells:
        x = shift_inputs(eval_set.split.prepared, eval_set.preparation, cell.corruption, cell.severity, seed=3)
        alone = mm.score(plain.predict(x, prepared=True), eval_set.split.y)
        assert list(cell.scores) == shown_in("shift", "classification")
        for name, score in cell.scores.items():
            nearly(score, alone[name])
            assert score.low <= score <= score.high
            # bootstraps of the same draws; Wilson's in both for the accuracy; only test examples have that of an ECE
            assert name == "ece" or (score.low, score.high) == pytest.approx(
                (alone[name].low, alone[name].high), rel=1e-6
            )


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_tables_and_numbers_are_scored_alike(task):
    data = table_of(task)
    ensemble = mm.fit("mlp", data, members=2, epochs=2, plan=Plan(engine="loop"), posthoc=None)
    posthoc = evaluate_ensemble(ensemble, data).posthoc
    found = evaluate_shift(ensemble, eval_set_of(data), TABLE, posthoc=posthoc)
    for cell in found.cells:
        x = shift_inputs(data.test.prepared, data.preparation, cell.corruption, cell.severity)
        alone = mm.score(ensemble.predict(x, prepared=True), data.test.y)
        for name in shown_in("shift", task):  # type: ignore[arg-type]
            nearly(cell.scores[name], alone[name])
    for name in shown_in("shift", task):  # type: ignore[arg-type]
        nearly(found.pooled[name], np.mean([cell.scores[name] for cell in found.cells]))
    assert 0 <= found.pooled["set_coverage"] <= 1
    assert ("ece_pooled" in found.pooled) == (task == "classification")
    assert found.worst["after"].inputs == 2 * len(data.test)


def test_intervals_without_ends_have_a_coverage_and_no_size():
    """A promise of 99 % takes 99 examples, and the rules have 20."""
    data = table_of("regression")
    ensemble = mm.fit("mlp", data, members=2, epochs=1, plan=Plan(engine="loop", posthoc=PostHocConfig(coverage=0.99)))
    whole = evaluate_ensemble(ensemble, data)
    shift = evaluate_shift(ensemble, eval_set_of(data), TABLE, posthoc=whole.posthoc, calibrated=True)
    assert shift.pooled["set_coverage"] == 1.0
    assert "set_size" not in shift.pooled
    under_shift = replace(whole, shift=shift).coverage[-1]
    assert under_shift.subset == "corrupted, severity 4"
    assert under_shift.size == np.inf
    assert replace(whole, shift=shift).to_json()["conformal"][-1]["size"] == {"value": None, "low": None, "high": None}


# Means


def test_means_are_those_of_their_cells(found):
    table = {(cell.corruption, cell.severity): cell.scores for cell in found.cells}
    for name in shown_in("shift", "classification"):
        for kind, scores in found.by_type.items():
            nearly(scores[name], np.mean([table[kind, severity][name] for severity in THREE.severities]))
        for severity, scores in found.by_severity.items():
            nearly(scores[name], np.mean([table[kind, severity][name] for kind in THREE.names]))
        nearly(found.pooled[name], np.mean([scores[name] for scores in table.values()]))


def test_the_mean_over_one_corruption_is_that_corruption(plain, eval_set):
    one = evaluate_shift(plain, eval_set, replace(THREE, names=("contrast",)))
    for name in shown_in("shift", "classification"):
        assert triple(one.pooled[name]) == triple(one.by_type["contrast"][name])
    for cell in one.cells:
        assert triple(cell.scores["nll"]) == triple(one.by_severity[cell.severity]["nll"])


def test_the_pooled_calibration_error_of_one_corruption_is_its_mean_over_severities(plain, eval_set):
    one = evaluate_shift(plain, eval_set, replace(THREE, names=("contrast",)))
    nearly(one.pooled["ece_pooled"], np.mean([cell.scores["ece"] for cell in one.cells]))


def test_the_pooled_calibration_error_is_that_of_all_predictions_together(found, plain, eval_set):
    def inputs(name: str, severity: int) -> torch.Tensor:
        return shift_inputs(eval_set.split.prepared, eval_set.preparation, name, severity, seed=3)

    errors = []
    for severity in THREE.severities:
        pred = plain.predict(torch.cat([inputs(name, severity) for name in THREE.names]), prepared=True)
        correct = (pred.predicted == eval_set.split.y.repeat(3)).double().numpy()
        sure = pred.confidence.numpy()
        bins = np.ceil(sure * 15).astype(int)  # (lo, hi]
        gaps = [abs((correct - sure)[bins == b].sum()) for b in np.unique(bins)]
        errors.append(sum(gaps) / len(sure))
    nearly(found.pooled["ece_pooled"], np.mean(errors))
    assert found.pooled["ece_pooled"] <= found.pooled["ece"] + 1e-12  # gaps of opposite sign cancel


# Intervals and tests


def test_examples_are_drawn_and_not_cells(found, plain, eval_set):
    """Of the mean over cells, whose examples come along in every cell. 1000 resamples know a spread to 3 %."""
    correct = [
        (
            plain.predict(
                shift_inputs(eval_set.split.prepared, eval_set.preparation, name, v, seed=3), prepared=True
            ).predicted
            == eval_set.split.y
        ).double()
        for name, v in THREE.cells
    ]
    each = torch.stack(correct).mean(0).numpy()
    error = each.std() / np.sqrt(len(each))
    pooled = found.pooled["accuracy"]
    assert (pooled.high - pooled.low) / (2 * 1.96) == pytest.approx(error, rel=0.1)
    independent = np.sqrt(np.mean([c.numpy().var() for c in correct]) / (6 * len(each)))
    assert error > 1.3 * independent  # or this test could not tell the two


def test_cells_without_an_error_are_not_beyond_doubt():
    grid = Grid(measure_of("accuracy", "classification"), np.ones((1, 2)), np.ones((1000, 1, 2)), 50)
    low, high = wilson(np.array(50), np.array(50))
    assert triple(grid.mean(0, 1)) == (1.0, float(low), float(high))


def test_more_examples_than_groups():
    """Examples are summed in 2000 groups: means stay exact, and spreads nearly so."""
    torch.manual_seed(0)
    models = [nn.Linear(5, 2) for _ in range(2)]
    ensemble = Ensemble.from_models(models)
    x, data = torch.randn(4500, 5), table_of("classification")
    eval_set = EvalSet("many", "classification", Split(x, (x[:, 0] > 0).long()), ("0", "1"), data.preparation)
    many = evaluate_shift(ensemble, eval_set, TABLE)
    correct = [
        (
            ensemble.predict(shift_inputs(x, data.preparation, name, v), prepared=True).predicted == eval_set.split.y
        ).double()
        for name, v in TABLE.cells
    ]
    each = torch.stack(correct).mean(0)
    nearly(many.pooled["accuracy"], each.mean())
    spread = (many.pooled["accuracy"].high - many.pooled["accuracy"].low) / (2 * 1.96)
    assert spread == pytest.approx(each.std().item() / np.sqrt(4500), rel=0.1)
    assert many.sums["accuracy"].shape == (2000, 1)
    assert many.examples == 4500


def test_an_ensemble_is_no_better_than_itself(found):
    for name in ("accuracy", "nll"):
        test = paired_shift(found, found, name, "classification")
        assert triple(test.difference) == (0.0, 0.0, 0.0)
        assert test.p_value == 1.0


def test_a_paired_difference_is_that_of_the_pooled_scores(found, eval_set):
    torch.manual_seed(0)
    worse = Ensemble.from_models([nn.Sequential(nn.Flatten(), nn.Linear(64, 10)) for _ in range(2)])
    chance = evaluate_shift(worse, eval_set, THREE)
    test = paired_shift(found, chance, "accuracy", "classification")
    nearly(test.difference, found.pooled["accuracy"] - chance.pooled["accuracy"])
    assert test.difference.low > 0
    assert test.p_value == pytest.approx(1e-4)


def test_only_the_same_corruptions_of_the_same_examples_are_compared(found, plain, eval_set):
    fewer = evaluate_shift(plain, eval_set, replace(THREE, examples=50))
    with pytest.raises(Misuse, match="expected the same corruptions of the same examples"):
        paired_shift(found, fewer, "nll", "classification")
    with pytest.raises(Misuse, match="unknown score of paired shift 'ece'"):
        paired_shift(found, found, "ece", "classification")


# Which corruptions of which examples


def test_fewer_examples_are_the_first_ones(plain, eval_set):
    limited = evaluate_shift(plain, eval_set, replace(THREE, names=("contrast",), severities=(5,), examples=40))
    x = shift_inputs(eval_set.split.prepared[:40], eval_set.preparation, "contrast", 5, seed=3)
    nearly(limited.pooled["nll"], mm.score(plain.predict(x, prepared=True), eval_set.split.y[:40])["nll"])
    nearly(limited.clean["nll"], mm.score(plain.predict(eval_set.split.x[:40]), eval_set.split.y[:40])["nll"])
    assert limited.examples == 40
    assert limited.description == "1 corruption, 1 severity, 40 examples"


def test_neither_order_nor_repetition_changes_anything(found, plain, eval_set):
    turned = evaluate_shift(plain, eval_set, replace(THREE, names=THREE.names[::-1], severities=(5, 2)))
    values = {(cell.corruption, cell.severity): cell.scores for cell in found.cells}
    for cell in turned.cells:
        for name, score in values[cell.corruption, cell.severity].items():
            assert triple(cell.scores[name]) == triple(score)
    assert evaluate_shift(plain, eval_set, THREE).to_json() == found.to_json()
    other = evaluate_shift(plain, eval_set, replace(THREE, seed=4))
    assert other.pooled["nll"] != found.pooled["nll"]


def test_progress_counts_the_cells(plain, eval_set):
    said = []
    few = replace(THREE, examples=5)
    evaluate_shift(plain, eval_set, few, progress=lambda text, done, total: said.append((text, done, total)))
    assert said == [(f"{name} {v}", i, 6) for i, (name, v) in enumerate(few.cells)] + [("", 6, 6)]
