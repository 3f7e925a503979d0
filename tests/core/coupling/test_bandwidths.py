import math

import pytest
import torch
from torch import Tensor

from murmuration.core.coupling.bandwidths import BANDWIDTHS, FLOOR, denominator, find_bandwidth, median
from murmuration.core.coupling.estimators import rbf, squared_distances
from murmuration.system.errors import Misuse

NAMES = [*BANDWIDTHS, "fixed:0.7"]


def symmetric(*upper: float) -> Tensor:
    """Squared distances (1, M, M) from the strict upper triangle, row by row."""
    members = round((1 + math.sqrt(1 + 8 * len(upper))) / 2)
    matrix = torch.zeros(members, members, dtype=torch.float64)
    row, column = torch.triu_indices(members, members, offset=1)
    matrix[row, column] = torch.tensor(upper, dtype=torch.float64)
    return (matrix + matrix.mT).unsqueeze(0)


THREE = symmetric(1.0, 4.0, 9.0)  # all nine entries, sorted: 0 0 0 1 [1] 4 4 9 9; pairs 1 [4] 9
COLUMNS = torch.tensor([1.0, 1.0, 4.0], dtype=torch.float64)  # medians of (0 1 4), (1 0 9), (4 9 0)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rde", torch.tensor([1 / math.log(4)], dtype=torch.float64)),
        ("all", torch.tensor([1 / math.log(3)], dtype=torch.float64)),
        ("off", torch.tensor([4 / math.log(3)], dtype=torch.float64)),
        ("algorithm-1", torch.tensor([1 / (2 * math.log(3))], dtype=torch.float64)),
        ("code", COLUMNS / math.log(3) + 1e-12),
        ("featurepi", COLUMNS**2 / math.log(3) + 1e-12),
        ("fixed:0.7", torch.tensor([0.98], dtype=torch.float64)),
    ],
)
def test_three_members_by_hand(name: str, expected: Tensor):
    found = denominator(name, THREE)
    torch.testing.assert_close(found.flatten(), expected, rtol=1e-15, atol=0)
    torch.testing.assert_close(found.expand(1, 3, 3)[0, 1], expected.expand(3), rtol=1e-15, atol=0)  # one a column


@pytest.mark.parametrize("members", range(2, 12))
def test_medians_over_all_entries_count_each_pair_twice_and_the_diagonal(members: int):
    drawn = torch.rand(20, members, members, dtype=torch.float64, generator=torch.Generator().manual_seed(members))
    squared = (drawn + drawn.mT) * (1 - torch.eye(members, dtype=torch.float64))
    found = denominator("all", squared) * math.log(members)
    torch.testing.assert_close(found.flatten(), squared.flatten(1).quantile(0.5, dim=1))


def test_medians_are_the_mean_of_the_two_middle_values():
    values = torch.randn(5, 101, generator=torch.Generator().manual_seed(0))
    for count in (1, 2, 5, 6, 100, 101):
        torch.testing.assert_close(median(values[:, :count]), values[:, :count].quantile(0.5, dim=1))
    four = symmetric(1.0, 2.0, 3.0, 4.0, 5.0, 6.0)  # pairs: (3 + 4) / 2; all 16 entries: (2 + 3) / 2
    assert denominator("off", four).item() == pytest.approx(3.5 / math.log(4), rel=1e-15)
    assert denominator("all", four).item() == pytest.approx(2.5 / math.log(4), rel=1e-15)
    found = (denominator("code", four) - 1e-12) * math.log(4)  # (0 1 2 3), (0 1 4 5), (0 2 4 6), (0 3 5 6)
    torch.testing.assert_close(found.flatten(), torch.tensor([1.5, 2.5, 3.0, 4.0], dtype=torch.float64))


@pytest.mark.parametrize(
    ("name", "kernel"), [("rde", 1 / 9), ("all", 1 / 4), ("off", 1 / 2), ("algorithm-1", 1 / 16), ("code", 1 / 4)]
)
@pytest.mark.parametrize("angle", [0.01, 1.0, 3.1])
def test_two_members_are_equally_alike_at_any_angle(name: str, kernel: float, angle: float):
    directions = torch.tensor([[1.0, 0.0], [math.cos(angle), math.sin(angle)]], dtype=torch.float64).unsqueeze(0)
    squared = squared_distances(directions)
    # At 0.01 the square is 1e-4: the 1e-12 the code adds is 1e-8 of it, and rounding of the products 1e-12.
    assert rbf(squared, denominator(name, squared))[0, 0, 1].item() == pytest.approx(kernel, rel=1e-7)


@pytest.mark.parametrize("name", ["off", "all", "rde", "algorithm-1"])
def test_what_stands_at_the_median_is_as_alike_as_the_convention_says(name: str):
    alike = {"off": 1 / 5, "all": 1 / 5, "rde": 1 / 6, "algorithm-1": 1 / 25}[name]
    squared = symmetric(*[3.0] * 10)  # five members, all at one distance
    assert rbf(squared, denominator(name, squared))[0, 0, 1].item() == pytest.approx(alike, rel=1e-14)


@pytest.mark.parametrize("name", NAMES)
def test_samples_have_denominators_of_their_own(name: str):
    far = symmetric(2.0, 30.0, 7.0)
    both = denominator(name, torch.cat([THREE, far])).expand(2, 3, 3)
    torch.testing.assert_close(both[0], denominator(name, THREE).expand(1, 3, 3)[0], rtol=0, atol=0)
    torch.testing.assert_close(both[1], denominator(name, far).expand(1, 3, 3)[0], rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("members", [0, 1, 2, 7])
@pytest.mark.parametrize("name", NAMES)
def test_without_any_distance_the_kernel_is_one(name: str, members: int, dtype: torch.dtype):
    squared = torch.zeros(2, members, members, dtype=dtype)
    c = denominator(name, squared)
    assert bool((c >= torch.tensor(FLOOR, dtype=dtype)).all())
    assert torch.equal(rbf(squared, c), torch.ones_like(squared))


@pytest.mark.parametrize("name", NAMES)
def test_denominators_are_held_constant(name: str):
    squared = THREE.clone().requires_grad_()
    assert not denominator(name, squared).requires_grad


def test_only_the_squared_convention_depends_on_the_unit_of_length():
    for name in BANDWIDTHS:
        ratio = (denominator(name, 100 * THREE) / denominator(name, THREE)).max().item()
        assert ratio == pytest.approx(1e4 if name == "featurepi" else 1e2, rel=1e-9)


def test_names_are_checked():
    with pytest.raises(Misuse, match=r"unknown bandwidth 'cod': did you mean 'code'\? Known: algorithm-1, all, code"):
        find_bandwidth("cod")
    for wrong in ("fixed:", "fixed:-1", "fixed:0", "fixed:inf", "fixed:nan", "fixed:wide"):
        with pytest.raises(Misuse, match=f"bandwidth '{wrong}': .* is not a lengthscale; write a positive number"):
            denominator(wrong, THREE)
