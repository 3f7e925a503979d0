import pytest
import torch
from torch import Tensor

from murmuration.core.coupling.estimators import rbf, squared_distances


def rows(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def differences(t: Tensor) -> Tensor:
    """Squared distances the dear way, (B, M, M) from (B, M, R)."""
    return (t[:, :, None] - t[:, None, :]).square().sum(-1)


def test_distances_are_those_of_differences():
    t = rows(4, 7, 11)
    torch.testing.assert_close(squared_distances(t), differences(t), rtol=1e-13, atol=0)


def test_right_triangle_by_hand():
    t = torch.tensor([[[0.0, 0.0], [3.0, 0.0], [3.0, 4.0]]])
    expected = torch.tensor([[[0.0, 9.0, 25.0], [9.0, 0.0, 16.0], [25.0, 16.0, 0.0]]])
    torch.testing.assert_close(squared_distances(t), expected, rtol=1e-6, atol=0)


def test_members_far_from_zero_keep_their_distances():
    t = rows(3, 5, 20, dtype=torch.float32)
    shifted = (t + 1e3).to(torch.float32)
    # Adding 1000 rounds each number by up to 3e-5; without centring, squares of 2e7 would be off by 2 a distance of 40.
    torch.testing.assert_close(squared_distances(shifted), differences(shifted), rtol=1e-5, atol=0)


@pytest.mark.parametrize("width", [1, 3, 100, 3072, 100_000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_members_in_one_place_are_at_no_distance(width: int, dtype: torch.dtype):
    t = rows(2, 1, width, dtype=dtype).expand(2, 7, width).contiguous()
    assert torch.equal(squared_distances(t), torch.zeros(2, 7, 7, dtype=dtype))
    t[:, -1] += 1.0  # one leaves; the others are still together
    squared = squared_distances(t)
    assert torch.equal(squared[:, :-1, :-1], torch.zeros(2, 6, 6, dtype=dtype))
    torch.testing.assert_close(squared[:, -1, :-1], torch.full((2, 6), width, dtype=dtype), rtol=1e-3, atol=0)


def test_the_diagonal_is_exactly_zero_and_nothing_is_negative():
    t = rows(6, 9, 3, dtype=torch.float32)
    t[:, 1] = t[:, 0] + 1e-6
    squared = squared_distances(t)
    assert torch.equal(squared.diagonal(dim1=1, dim2=2), torch.zeros(6, 9))
    assert squared.min() == 0


def test_the_kernel_falls_from_one_by_one_lengthscale():
    squared = torch.tensor([[[0.0, 2.0], [2.0, 0.0]]], dtype=torch.float64)
    expected = torch.tensor([[[1.0, 0.0497870684], [0.3678794412, 1.0]]], dtype=torch.float64)  # e^-3, e^-1
    columns = torch.tensor([[[2.0, 2 / 3]]], dtype=torch.float64)  # one denominator a column
    torch.testing.assert_close(rbf(squared, columns), expected, rtol=0, atol=1e-10)


def test_gradients_of_distances_are_those_of_differences():
    t = rows(2, 4, 3).requires_grad_()
    weights = rows(2, 4, 4, seed=1)
    (mine,) = torch.autograd.grad((weights * squared_distances(t)).sum(), t)
    (theirs,) = torch.autograd.grad((weights * differences(t)).sum(), t)
    torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-13)
