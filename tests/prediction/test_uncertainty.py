"""Why a classification is unsure: matrices, their traces and entries, and means by class."""

import numpy as np
import pytest
import torch

from murmuration.likelihoods import Categorical
from murmuration.prediction.predictive import Predictive

FOUR = [[0.7, 0.2, 0.1], [0.5, 0.3, 0.2], [0.6, 0.1, 0.3], [0.4, 0.4, 0.2]]


def random_predictive(link: str = "softmax") -> Predictive:
    generator = torch.Generator().manual_seed(0)
    outputs = 3 * torch.randn(5, 40, 6, dtype=torch.float64, generator=generator)
    weights = torch.tensor([0.1, 0.2, 0.3, 0.15, 0.25], dtype=torch.float64)
    return Predictive(outputs, Categorical(6, link), weights)


def test_four_members_by_hand() -> None:
    pred = Predictive.from_probs(np.array(FOUR)[:, None, :])
    found = {name: values.item() for name, values in pred.uncertainties().items()}
    assert found == pytest.approx(
        {
            "confidence": 0.55,
            "entropy": 0.997272,
            "expected_entropy": 0.946084,
            "mutual_information": 0.051187,
            "aleatoric": 0.565,
            "epistemic": 0.030,
            "aleatoric_predicted": 0.235,
            "epistemic_predicted": 0.0125,
        },
        abs=1e-6,
    )
    np.testing.assert_allclose(pred.aleatoric_var[0], [0.235, 0.175, 0.155], atol=1e-15)
    np.testing.assert_allclose(pred.epistemic_var[0], [0.0125, 0.0125, 0.005], atol=1e-15)


@pytest.mark.parametrize("link", ["softmax", "softplus"])
def test_the_numbers_are_those_of_the_matrices(link: str) -> None:
    pred = random_predictive(link)
    aleatoric, epistemic = pred.aleatoric_covariance, pred.epistemic_covariance
    found = pred.uncertainties()
    here = torch.arange(40), pred.predicted, pred.predicted
    for name, matrix, diagonal in (
        ("aleatoric", aleatoric, pred.aleatoric_var),
        ("epistemic", epistemic, pred.epistemic_var),
    ):
        torch.testing.assert_close(diagonal, matrix.diagonal(dim1=-2, dim2=-1), atol=1e-15, rtol=0)
        torch.testing.assert_close(found[name], diagonal.sum(-1), atol=1e-14, rtol=0)
        torch.testing.assert_close(found[f"{name}_predicted"], matrix[here], atol=1e-14, rtol=0)
        assert matrix.sum(-1).abs().max() < 1e-14
        assert torch.linalg.eigvalsh(matrix).min() > -1e-14
    mean = pred.mean
    torch.testing.assert_close(
        aleatoric + epistemic, torch.diag_embed(mean) - mean[:, :, None] * mean[:, None, :], atol=1e-15, rtol=0
    )
    total = found["aleatoric"] + found["epistemic"]
    torch.testing.assert_close(total, 1 - mean.square().sum(-1), atol=1e-14, rtol=0)
    torch.testing.assert_close(pred.total_var.sum(-1), total, atol=1e-14, rtol=0)
    assert total.max() <= 1 - 1 / 6


def test_equal_members_know_no_doubt_of_their_own_and_sure_ones_no_noise() -> None:
    same = Predictive(random_predictive().outputs[:1].repeat(7, 1, 1), Categorical(6))
    found = same.uncertainties()
    assert same.epistemic_covariance.abs().max() < 1e-30  # rounding of a mean of seven equal numbers, squared
    assert max(found[name].max() for name in ("epistemic", "epistemic_predicted", "mutual_information")) < 1e-14
    sure = Predictive.from_probs([[[1.0, 0.0, 0.0]], [[0.0, 0.0, 1.0]], [[1.0, 0.0, 0.0]]])
    found = sure.uncertainties()
    assert sure.aleatoric_covariance.abs().max() < 1e-15
    assert max(found["aleatoric"].item(), found["aleatoric_predicted"].item()) < 1e-299  # a zero is stored as 1e-300
    assert found["epistemic"].item() == pytest.approx(1 - 5 / 9, abs=1e-15)
    bound = Predictive.from_probs(np.full((1, 1, 4), 0.25))
    assert bound.uncertainties()["aleatoric"].item() == 0.75  # 1 - 1/K is reached


def test_rows_are_chosen_by_slice_index_or_mask() -> None:
    pred = random_predictive()
    rows = [7, 3]
    torch.testing.assert_close(pred.at(rows).epistemic_covariance, pred.epistemic_covariance[rows])
    assert torch.equal(pred.at(slice(2, 5)).outputs, pred.outputs[:, 2:5])
    mask = np.arange(40) % 2 == 0
    assert torch.equal(pred.at(mask).outputs, pred.outputs[:, ::2])
    assert torch.equal(pred.at(rows).member_weights, pred.member_weights)
