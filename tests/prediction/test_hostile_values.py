"""Values that people pass by mistake are refused in one line, or mean what they say."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import murmuration as mm
from murmuration.data import open_data
from murmuration.sklearn import EnsembleClassifier
from murmuration.system.errors import Misuse

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()
PRED = mm.Predictive.from_probs(np.tile([[0.3, 0.7]], (40, 1)))
MOMENTS = mm.Predictive.from_moments(np.zeros((1, 40, 1)), 1.0)
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
