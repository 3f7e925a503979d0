"""What every method keeps, what is refused, and what a file may say."""

import json
from typing import Any

import pytest
import torch
from calibration_factories import gaussian_mixture, mean_loss, overconfident
from torch import Tensor

from murmuration.prediction.posthoc.calibration import (
    CALIBRATORS,
    Calibrator,
    Isotonic,
    MemberTemperature,
    Temperature,
    VectorScaling,
    calibrator_kinds,
    calibrator_names,
    fit_calibrator,
)
from murmuration.prediction.posthoc.std_scaling import StdScaling
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Failure, Misuse
from murmuration.system.records import from_json, to_json

PAIRS = [(name, task) for task in ("classification", "regression") for name in calibrator_names(task)]
GUARANTEED = [pair for pair in PAIRS if pair[0] in ("temperature", "pool_temperature", "vector")]
LINE = ((0.0, 1.0), (0.0, 1.0))


def read(record: Any) -> Calibrator:
    return from_json(record, Calibrator, "calibrator", calibrator_kinds())


def sample(task: str) -> tuple[Predictive, Tensor]:
    if task == "regression":
        return gaussian_mixture(factor=1.5, inputs=300)
    return overconfident(inputs=300, weights=[0.4, 0.3, 0.2, 0.1])


@pytest.mark.parametrize(("name", "task"), PAIRS)
def test_a_calibrator_survives_its_file_bit_for_bit(name: str, task: str) -> None:
    pred, y = sample(task)
    fitted = fit_calibrator(name, pred, y)
    again = read(json.loads(json.dumps(to_json(fitted))))
    assert again == fitted
    assert torch.equal(again(pred).outputs, fitted(pred).outputs)
    assert (fitted.name, fitted.task) == (name, task)


@pytest.mark.parametrize(("name", "task"), PAIRS)
def test_what_goes_in_is_not_modified_and_shapes_and_weights_stay(name: str, task: str) -> None:
    pred, y = sample(task)
    outputs, targets = pred.outputs.clone(), y.clone()
    calibrated = fit_calibrator(name, pred, y)(pred)
    assert torch.equal(pred.outputs, outputs)
    assert torch.equal(y, targets)
    assert calibrated.mean.shape == pred.mean.shape
    assert torch.equal(calibrated.member_weights, pred.member_weights)
    assert not torch.equal(calibrated.mean if task == "classification" else calibrated.total_var, pred.mean)


@pytest.mark.parametrize(("name", "task"), PAIRS)
def test_total_uncertainty_is_still_aleatoric_plus_epistemic(name: str, task: str) -> None:
    pred, y = sample(task)
    calibrated = fit_calibrator(name, pred, y)(pred)
    if task == "classification":
        parts = calibrated.aleatoric_covariance + calibrated.epistemic_covariance
        torch.testing.assert_close(parts, calibrated.total_covariance, atol=1e-14, rtol=0)
        assert (calibrated.entropy >= calibrated.expected_entropy - 1e-12).all()
    else:
        second = calibrated.average(calibrated.member_mean.square() + calibrated.member_var)
        torch.testing.assert_close(calibrated.total_var, second - calibrated.mean.square(), atol=1e-12, rtol=0)


@pytest.mark.parametrize(("name", "task"), GUARANTEED)
@pytest.mark.parametrize("inputs", [2, 5, 300])
def test_the_loss_on_the_fitting_examples_is_never_worse(name: str, task: str, inputs: int) -> None:
    pred, y = sample(task)
    few, y = next(pred.batches(inputs)), y[:inputs]
    assert mean_loss(fit_calibrator(name, few, y)(few), y) <= mean_loss(few, y)


@pytest.mark.parametrize(("name", "task"), GUARANTEED)
def test_what_is_calibrated_already_is_hardly_touched(name: str, task: str) -> None:
    pred, y = sample(task)
    once = fit_calibrator(name, pred, y)(pred)
    twice = fit_calibrator(name, once, y)(once)
    worth = mean_loss(pred, y) - mean_loss(once, y)
    assert worth > 0.01
    assert mean_loss(once, y) - mean_loss(twice, y) < 0.02 * worth


@pytest.mark.parametrize(
    ("calibrator", "words"),
    [
        (Temperature(1.3712), "every logit divided by 1.37"),
        (MemberTemperature((1.1, 1.5)), "the logits of each member divided by a temperature of its own, 1.1 to 1.5"),
        (StdScaling((1.2,)), "the predictive distribution stretched 1.2 times around its mean"),
        (
            VectorScaling((0.5, 2.0), (0.0, 0.0)),
            "the logit of each class multiplied by a factor of its own (0.5 to 2) and shifted (0)",
        ),
        (
            Isotonic((LINE, LINE)),
            "the mean probability of each class replaced by its observed frequency, interpolated from 2 knots",
        ),
    ],
)
def test_each_says_what_it_does(calibrator: Any, words: str) -> None:
    assert calibrator.about == words


def test_the_table_names_what_serves_a_task() -> None:
    assert calibrator_names("classification") == [
        name for name in CALIBRATORS if name not in ("noise_scaling", "moment_matching")
    ]
    assert calibrator_names("regression") == ["temperature", "noise_scaling", "moment_matching", "member_temperature"]
    with pytest.raises(Misuse, match="unknown task 'regresion': did you mean 'regression'"):
        calibrator_names("regresion")


def test_an_unknown_method_gets_the_nearest_name() -> None:
    pred, y = sample("classification")
    with pytest.raises(Misuse, match="unknown calibrator 'temprature': did you mean 'temperature'"):
        fit_calibrator("temprature", pred, y)


@pytest.mark.parametrize("name", ["vector", "isotonic", "pool_temperature"])
def test_methods_of_classes_refuse_numbers(name: str) -> None:
    pred, y = sample("regression")
    words = f"calibrator '{name}' belongs to classification, and this is a regression: write 'temperature' instead"
    with pytest.raises(Misuse, match=words):
        fit_calibrator(name, pred, y)


@pytest.mark.parametrize(("name", "task"), PAIRS)
def test_one_example_and_outputs_that_are_not_numbers_are_refused(name: str, task: str) -> None:
    pred, y = sample(task)
    with pytest.raises(Misuse, match=f"^1 example to fit calibrator '{name}' on: expected at least 2"):
        fit_calibrator(name, next(pred.batches(1)), y[:1])
    broken = pred.outputs.clone()
    broken[1, 7, 0] = torch.nan
    with pytest.raises(Misuse, match=r"^outputs of member 1 for input 7 are not finite: expected numbers"):
        fit_calibrator(name, Predictive(broken, pred.likelihood), y)


def test_targets_that_are_not_numbers_or_too_few_are_refused() -> None:
    pred, y = sample("regression")
    holed = y.clone()
    holed[3, 1] = torch.nan
    with pytest.raises(Misuse, match=r"target nan at \[3, 1\]"):
        fit_calibrator("temperature", pred, holed)
    classes, labels = sample("classification")
    with pytest.raises(Misuse, match=r"labels of shape \(299,\) for 300 inputs"):
        fit_calibrator("temperature", classes, labels[:-1])
    with pytest.raises(Misuse, match=r"label nan at \[0\]"):
        fit_calibrator("temperature", classes, labels.double() * torch.nan)


@pytest.mark.parametrize(
    ("name", "task", "words"),
    [
        ("vector", "classification", "calibrator 'vector' was fitted on 3 classes, got 2"),
        ("isotonic", "classification", "calibrator 'isotonic' was fitted on 3 classes, got 2"),
        ("temperature", "regression", "calibrator 'temperature' was fitted on 2 targets, got 1"),
        ("member_temperature", "regression", "calibrator 'member_temperature' was fitted on 3 members, got 1"),
        ("member_temperature", "classification", "calibrator 'member_temperature' was fitted on 4 members, got 1"),
    ],
)
def test_a_predictive_that_does_not_fit_is_refused(name: str, task: str, words: str) -> None:
    pred, y = sample(task)
    small = Predictive.from_moments([[[0.0]]], 1.0) if task == "regression" else Predictive.from_probs([[0.5, 0.5]])
    with pytest.raises(Misuse, match=words):
        fit_calibrator(name, pred, y)(small)


@pytest.mark.parametrize(("name", "task"), PAIRS)
def test_a_predictive_of_the_other_task_is_refused(name: str, task: str) -> None:
    other = "regression" if task == "classification" else "classification"
    with pytest.raises(Misuse, match=f"calibrator '{name}' was fitted for {task}, and this is a {other}"):
        fit_calibrator(name, *sample(task))(sample(other)[0])


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ([1, 2], r"the record is \[1, 2\], expected Calibrator"),
        ({"type": "Temprature"}, "the record is {'type': 'Temprature'}, expected Calibrator"),
        ({"type": ["Temperature"]}, r"the record is {'type': \['Temperature'\]}"),
        ({"type": "Temperature"}, "field 'temperature' of Temperature is missing"),
        ({"type": "Temperature", "temperature": 1.0, "colour": 1}, "field 'colour' of Temperature is unknown"),
        ({"type": "Temperature", "temperature": None}, "temperature is None, expected float"),
        ({"type": "Temperature", "temperature": "1.5"}, "temperature is '1.5'"),
        ({"type": "Temperature", "temperature": True}, "temperature is True"),
        ({"type": "Temperature", "temperature": float("nan")}, "temperature is nan"),
        ({"type": "Temperature", "temperature": 10**400}, r"temperature is 10+\.\.\., expected"),
        ({"type": "Temperature", "temperature": "inf"}, "temperature is inf, expected a number from 1e-09"),
        ({"type": "PoolTemperature", "temperature": -1}, "temperature is -1"),
        ({"type": "MemberTemperature", "temperatures": []}, r"temperatures is \[\], expected at least one"),
        ({"type": "MemberTemperature", "temperatures": [1, None]}, r"temperatures\[1\] is None"),
        ({"type": "VectorScaling", "factors": [1, 1], "shifts": [0]}, r"shifts is \[0.0\], expected 2 numbers"),
        ({"type": "Isotonic", "knots": {}}, "knots is {}"),
        ({"type": "Isotonic", "knots": [[[0, 1]]]}, r"knots\[0\] is .* expected a list of 2"),
        ({"type": "Isotonic", "knots": [[[0, 1], [0, 2]]]}, r"knots\[0\]\[1\]\[1\] is 2"),
        ({"type": "Isotonic", "knots": [[[0, 1], [0]]]}, r"knots\[0\] is .* as many rising frequencies"),
        ({"type": "Isotonic", "knots": [[[0, 0], [0, 1]]]}, r"knots\[0\] is .* expected increasing"),
        ({"type": "Isotonic", "knots": [[[0, 1], [1, 0]]]}, r"knots\[0\] is .* rising frequencies"),
        ({"type": "StdScaling", "factors": 2.0}, "factors is 2.0, expected tuple"),
        ({"type": "MemberStdScaling", "factors": None}, "factors is None"),
        ({"type": "MemberStdScaling", "factors": [[1, 2], [1]]}, "as many numbers for each member"),
    ],
)
def test_a_damaged_record_is_refused_in_one_line(record: Any, words: str) -> None:
    with pytest.raises(Failure, match=words) as refused:
        read(record)
    message = str(refused.value)
    assert message.startswith("damaged calibrator: ")
    assert "\n" not in message
    assert len(message) < 240
