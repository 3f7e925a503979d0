"""Values that people pass by mistake are refused in one line, or mean what they say."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import murmuration as mm
from murmuration.data import open_data
from murmuration.sklearn import EnsembleClassifier, EnsembleRegressor
from murmuration.system.errors import Misuse

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()
PRED = mm.Predictive.from_probs(np.tile([[0.3, 0.7]], (40, 1)))
MOMENTS = mm.Predictive.from_moments(np.zeros((1, 40, 1)), 1.0)
OF_FIT = ("drop", "reset", "plan", "out")
NAMES = ("draws", "outliers", "coverage", "seed", "penalty", "start", "method", "counts", *OF_FIT)
SMALL: dict[str, Any] = {"members": 1, "epochs": 1, "progress": False}


@pytest.fixture(scope="module")
def ensembles() -> list[mm.Ensemble]:
    """A trained one, and one of given networks."""
    return [mm.fit("mlp", (X, Y), **SMALL), mm.Ensemble.from_models([nn.Linear(3, 2)])]


def test_none_is_a_keyword_that_is_left_out() -> None:
    images = (X.repeat(1, 16).view(-1, 1, 8, 6), Y)
    plain = mm.fit("mlp", images, **SMALL)
    nothing = dict.fromkeys(("drop", "augment", "same", "reset", "epochs", "init_from", "prepare", "engine"))
    same = mm.fit("mlp", images, **{**SMALL, **nothing, "epochs": 1})
    assert torch.equal(plain.predict(images[0]).outputs, same.predict(images[0]).outputs)
    assert mm.Plan(augment=None, same=None) == mm.Plan()
    assert open_data((X, Y), drop=None).fingerprint == open_data((X, Y)).fingerprint


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: mm.fit("mlp", (X, Y), noise_std="", **SMALL), "noise_std=''"),
        (lambda: mm.fit("mlp", (X, X[:, 0]), noise_std="", **SMALL), "noise_std=''"),
        (lambda: mm.fit("mlp", (X, Y), out="runs/\0", **SMALL), "null character"),
        (
            lambda: EnsembleClassifier(calibrate=1.5, **{"members": 1, "epochs": 1}).fit(X.numpy(), Y.numpy()),
            "calibrate=1.5",
        ),
        (lambda: mm.fit_conformal("lac", PRED, Y, coverage="0.9"), "coverage='0.9'"),
        (lambda: mm.fit_conformal("absolute", MOMENTS, X[:, :1], coverage="0.9"), "coverage='0.9'"),
        (lambda: mm.fit_calibrator(None, PRED, Y), "calibrator None"),
    ],
)
def test_values_of_another_type_are_refused(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(Misuse) as error:
        call()
    assert words in str(error.value)


@pytest.mark.parametrize("kind", [np.uint64, np.uint32, np.uint16, np.uint8])
def test_unsigned_labels_are_labels(kind: type) -> None:
    labels, expected = Y.numpy().astype(kind), PRED.log_prob(Y)
    for given in (labels, torch.from_numpy(labels)):
        assert torch.equal(PRED.log_prob(given), expected)
        assert mm.score(PRED, given) == mm.score(PRED, Y)
        assert mm.fit_conformal("lac", PRED, given) == mm.fit_conformal("lac", PRED, Y)
    values = MOMENTS.log_prob(Y[:, None])
    assert torch.equal(MOMENTS.log_prob(torch.from_numpy(labels)[:, None]), values)


def test_huge_unsigned_numbers_do_not_wrap_around() -> None:
    huge = np.full(40, 2**64 - 1, dtype=np.uint64)
    for given in (huge, torch.from_numpy(huge)):
        with pytest.raises(Misuse, match="expected a class index"):
            PRED.log_prob(given)
        assert (MOMENTS.log_prob(given[:, None]) < -1e30).all()


def test_tensors_and_lists_that_are_no_arrays_are_refused(ensembles: list[mm.Ensemble]) -> None:
    given = {
        "sparse": X.to_sparse(),
        "sparse tensor": X.to_sparse_csr(),
        "nested": torch.nested.nested_tensor([X[0], X[1, :2]]),
        "quantized": torch.quantize_per_tensor(X, 0.1, 0, torch.qint8),
        "meta": X.to("meta"),
        "": [[1.0, 2.0, 3.0], [1.0]],
    }
    for ensemble in ensembles:
        for words, values in given.items():
            with pytest.raises(Misuse, match=words):
                ensemble.predict(values)
    with pytest.raises(Misuse, match="sparse"):
        PRED.log_prob(Y.to_sparse())


@pytest.mark.parametrize("kind", [">f4", "<f8", ">f8", "longdouble"])
def test_numbers_in_other_byte_orders_and_directions_are_the_same_numbers(kind: str) -> None:
    values = np.linspace(-1, 1, 40)[None, :, None].astype(np.float32)
    expected = mm.Predictive.from_moments(values, 0.5).outputs
    for given in (values.astype(kind), values.astype(kind)[:, ::-1].copy()[:, ::-1], values.astype(kind)[::-1]):
        assert torch.equal(mm.Predictive.from_moments(given, 0.5).outputs, expected)
    assert torch.equal(MOMENTS.log_prob(values[0].astype(kind)), MOMENTS.log_prob(values[0]))


def test_complex_numbers_and_dates_are_no_numbers(ensembles: list[mm.Ensemble]) -> None:
    days = np.full((40, 3), np.datetime64("2020-01-01"))
    regressor = EnsembleRegressor(members=1, epochs=1).fit(X.numpy(), X[:, 0].numpy())
    for call in (
        lambda: mm.Predictive.from_moments(np.full((1, 4, 1), 1 + 2j), 1.0),
        lambda: mm.Predictive.from_moments(np.ones((1, 4, 1)), torch.full((1, 4, 1), 1 + 2j)),
        lambda: mm.Predictive.from_probs(torch.full((1, 4, 2), 0.5 + 0j)),
        lambda: ensembles[0].predict(X.to(torch.complex64), prepared=True),
    ):
        with pytest.raises(Misuse, match=r"complex|no numbers"):
            call()
    for call in (
        lambda: regressor.predict(days),
        lambda: regressor.predict(days.tolist()),
        lambda: EnsembleRegressor(members=1).fit(X.numpy(), days[:, 0]),
        lambda: EnsembleRegressor(members=1).fit(days - days[0], X[:, 0].numpy()),
        lambda: EnsembleRegressor(members=1).fit(X.numpy(), X[:, 0].numpy(), sample_weight=days[:, 0]),
    ):
        with pytest.raises((Misuse, TypeError), match=r"dates or durations|must be a string or a real number|float"):
            call()


@pytest.mark.parametrize("value", ["x", [1], {"a": 1}, np.arange(3), object(), torch.zeros(2, 2)])
@pytest.mark.parametrize("name", NAMES)
def test_a_value_of_another_type_is_refused_in_one_line(name: str, value: Any, ensembles: list[mm.Ensemble]) -> None:
    if isinstance(value, str) and name in ("drop", "reset", "out"):  # which are texts
        value = 0.5
    calls = {
        "draws": lambda: ensembles[0].predict(X, draws=value),
        "outliers": lambda: mm.Predictive.from_moments(np.zeros((1, 4, 1)), 1.0, outliers=value),
        "counts": lambda: mm.fit_calibrator("logit_adjustment", PRED, Y, counts=value),
        **dict.fromkeys(OF_FIT, lambda: mm.fit("mlp", (X, Y), **{**SMALL, name: value})),
    }
    conformal = lambda: mm.fit_conformal(**{"method": "raps", "pred": PRED, "y": Y, name: value})  # noqa: E731
    with pytest.raises(Misuse) as error:
        calls.get(name, conformal)()
    assert "\n" not in str(error.value)


def test_what_a_given_network_does_not_take_is_named() -> None:
    with pytest.raises(Misuse, match=r"does not take inputs of type torch.float32 and shape \(40, 2\): mat1"):
        mm.Ensemble.from_models([nn.Linear(3, 2)]).predict(X[:, :2])
    with pytest.raises(Misuse, match="x has 40 rows but its targets have 39"):
        mm.Ensemble.from_models([nn.Linear(3, 2)]).labelled((X, Y[1:]))


def test_numbers_beyond_single_precision_are_refused(ensembles: list[mm.Ensemble]) -> None:
    large = X.double().clone()
    large[0, 0] = 1e39
    for ensemble in ensembles:
        with pytest.raises(Misuse, match=r"expected (finite )?numbers"):
            ensemble.predict(large, prepared=True)
    assert mm.Ensemble.from_models([nn.Linear(3, 2).double()]).predict(large).outputs.shape == (1, 40, 2)
