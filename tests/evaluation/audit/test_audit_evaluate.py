"""From a file of predictions to an assessment: planted faults are found, and numbers are those of the arrays."""

from pathlib import Path

import numpy as np
import pytest
import torch
from prediction_factories import classification_sample, regression_sample
from prediction_files import saved
from score_factories import triple

import murmuration as mm
import murmuration.evaluation.audit.predictions as audit_predictions
from murmuration.evaluation import Evaluation
from murmuration.evaluation.audit import evaluate_predictions, open_predictions
from murmuration.evaluation.metrics import paired_test
from murmuration.prediction.posthoc import PostHocConfig
from murmuration.prediction.posthoc.fit import fit_posthoc
from murmuration.prediction.predictive import Predictive
from murmuration.reports.findings import about_calibrator, about_coverage, about_groups, trust


def file_of(folder: Path, pred: Predictive, y: np.ndarray, **groups: np.ndarray) -> Path:
    return saved(folder / "theirs.npz", logits=pred.outputs.numpy(), y=y, **groups)


def triples(scores: dict) -> dict:
    return {name: triple(score) for name, score in scores.items()}


def halves(count: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows to fit on and those to evaluate on: two random halves, each in order."""
    order = np.random.default_rng(0).permutation(count)
    return np.sort(order[: count // 2]), np.sort(order[count // 2 : 2 * (count // 2)])


@pytest.fixture(scope="module")
def distorted() -> tuple[Predictive, np.ndarray]:
    return classification_sample(3001, distortion=2.5)


@pytest.fixture(scope="module")
def found(distorted, tmp_path_factory) -> Evaluation:
    return evaluate_predictions(open_predictions(file_of(tmp_path_factory.mktemp("audit"), *distorted)))


@pytest.mark.slow
def test_scores_are_those_of_the_arrays(found, distorted):
    assert triples(found.scores) == triples(mm.score(*distorted))
    assert (found.name, found.eval_set.task) == ("theirs", "classification")
    assert found.eval_set.classes == ("0", "1", "2", "3")
    assert found.examples.inputs == 3001
    assert found.ensemble is None
    assert not found.calibrated


@pytest.mark.slow
def test_a_planted_temperature_is_found_and_would_help(found):
    """Logits are 2.5 times too large. 750 examples know the temperature to about 0.1."""
    assert found.posthoc.calibrator.temperature == pytest.approx(2.5, abs=0.4)
    test = paired_test(found.after, found.before, "nll")
    assert test.difference.high < 0
    before, after = found.before.scores(), found.after.scores()
    assert before["ece"].low > after["ece"].high
    assert before["accuracy"] == pytest.approx(after["accuracy"], abs=0.01)
    advice = about_calibrator(found, "the model")
    temperature = f"{found.posthoc.calibrator.temperature:.3g}"
    assert advice.startswith(
        f"calibration of the model by temperature (every logit divided by {temperature}) would lower"
    )


def test_what_is_sound_is_left_alone(tmp_path):
    calibrated = evaluate_predictions(open_predictions(file_of(tmp_path, *classification_sample(2000, seed=4))))
    assert calibrated.posthoc.calibrator.temperature == 1.0  # type: ignore[union-attr]
    assert about_calibrator(calibrated, "the model") == ""
    assert trust(calibrated, "it") == "its mean confidence agrees with its accuracy within noise."


@pytest.mark.slow
def test_posthoc_steps_are_evaluated_on_other_rows(found, distorted):
    pred, y = distorted
    fitted, tested = halves(3001)
    posthoc = fit_posthoc(Predictive(pred.outputs[:, fitted], pred.likelihood), y[fitted])
    assert found.posthoc == posthoc
    rest = Predictive(pred.outputs[:, tested], pred.likelihood)
    assert triples(found.before.scores()) == triples(mm.score(rest, y[tested]))
    assert triples(found.after.scores()) == triples(mm.score(posthoc.calibrated(rest), y[tested]))
    columns = posthoc.per_example(posthoc.calibrated(rest), y[tested])
    assert [each.coverage for each in found.coverage[:3]] == [
        columns[f"covered_{m}"].mean() for m in ("lac", "aps", "raps")
    ]
    assert [each.answered for each in found.abstention] == [
        columns[f"answered_{name}"].mean() for name in ("cost", "error-rate", "risk-control")
    ]
    assert not any(each.verdict == "under" for each in found.coverage[:3])


def test_no_more_rows_than_needed_are_used(distorted, tmp_path, monkeypatch):
    monkeypatch.setattr(audit_predictions, "POSTHOC_ROWS", 100)
    few = evaluate_predictions(open_predictions(file_of(tmp_path, *distorted)))
    assert (few.posthoc.calibrator_examples, few.posthoc.rule_examples) == (50, 50)  # type: ignore[union-attr]
    assert few.before.inputs == 100  # type: ignore[union-attr]
    assert few.examples.inputs == 3001


def test_the_config_is_used(distorted, tmp_path):
    few = evaluate_predictions(
        open_predictions(file_of(tmp_path, *distorted)), PostHocConfig("none", coverage=0.7, conformal="aps")
    )
    assert few.posthoc.calibrator is None  # type: ignore[union-attr]
    assert few.after is None
    assert (few.coverage[0].method, few.coverage[0].nominal) == ("aps", 0.7)
    assert few.posthoc.rule_examples == 1500  # type: ignore[union-attr]


def test_a_planted_group_is_named_and_its_sets_are_looked_at(tmp_path):
    pred, y = classification_sample(2000, seed=2)
    site = np.where(np.arange(2000) % 5 == 0, "north", "south")
    labels = y.copy()
    labels[site == "north"] = np.random.default_rng(3).integers(0, 4, 400)  # there, predictions say nothing
    found = evaluate_predictions(open_predictions(file_of(tmp_path, pred, labels, site=site), groups=["site"]))
    north, south = found.groups["site"]
    assert (north.value, north.examples, north.worse) == ("north", 400, True)
    assert (south.value, south.examples, south.worse) == ("south", 1600, False)
    correct = (pred.predicted.numpy() == labels)[site == "north"].mean()
    assert north.scores["accuracy"] == pytest.approx(correct, abs=1e-12)
    assert f"site north ({correct:.3f})" in about_groups(found, "the model")
    assert "south" not in about_groups(found, "the model")

    _, tested = halves(2000)
    rest = found.posthoc.calibrated(Predictive(pred.outputs[:, tested], pred.likelihood))  # type: ignore[union-attr]
    inside = found.posthoc.per_example(rest, labels[tested])["covered_lac"]  # type: ignore[union-attr]
    by_place = {each.subset: each for each in found.coverage}
    for name in ("north", "south"):
        here = site[tested] == name
        assert by_place[f"site {name}"].coverage == pytest.approx(inside[here].mean(), abs=1e-12)
        assert by_place[f"site {name}"].examples == here.sum()
    assert by_place["site north"].verdict == "under"
    assert by_place["site south"].verdict != "under"
    assert f"site north ({100 * by_place['site north'].coverage:.1f} %)" in about_coverage(found, "the model")


def test_groups_that_are_alike_are_not_called_worse(tmp_path):
    pred, y = classification_sample(1000, seed=8)
    site = np.array(list("abcd"))[np.arange(1000) % 4]
    found = evaluate_predictions(open_predictions(file_of(tmp_path, pred, y, site=site), groups=["site"]))
    assert [each.value for each in found.groups["site"]] == list("abcd")
    assert about_groups(found, "the model") == ""


@pytest.mark.parametrize(("rows", "with_steps"), [(39, False), (40, True)])
def test_few_rows_have_scores_and_no_posthoc(tmp_path, rows, with_steps):
    pred, y = classification_sample(rows)
    found = evaluate_predictions(open_predictions(file_of(tmp_path, pred, y)))
    assert triples(found.scores) == triples(mm.score(pred, y))
    assert (found.posthoc is not None) == with_steps
    assert (found.before is not None) == with_steps
    assert bool(found.coverage) == with_steps
    assert set(found.to_json()) >= {"metrics", "members", "data"}


@pytest.mark.slow
@pytest.mark.parametrize("targets", [1, 2])
def test_regression_is_evaluated_alike(tmp_path, targets):
    pred, y = regression_sample(1200, targets=targets, distortion=0.4)
    path = saved(tmp_path / "n.npz", mean=pred.member_mean.numpy(), std=pred.member_var.sqrt().numpy(), y=y)
    found = evaluate_predictions(open_predictions(path))
    assert found.eval_set.task == "regression"
    scores = mm.score(pred, y)
    assert {name: float(score) for name, score in found.scores.items()} == pytest.approx(
        {name: float(score) for name, score in scores.items()}, rel=1e-9
    )
    assert found.posthoc.calibrator.factors == pytest.approx((2.5,) * targets, rel=4 / np.sqrt(2 * 300))
    assert found.coverage[0].coverage == pytest.approx(0.9, abs=4 * np.sqrt(0.09 * (1 / 300 + 1 / 600)))
    assert "would lower the NLL" in about_calibrator(found, "the model")
    assert torch.equal(found.eval_set.split.y, torch.from_numpy(y))
