"""SWAG: streaming moments, deviation columns, and the distribution of draws."""

import numpy as np
import pytest
import torch
from populations import population, states, streams, walk

from murmuration.core.dynamics import Swag, TrainTime
from murmuration.core.dynamics.swag import SQUARES
from murmuration.system.errors import Misuse
from murmuration.system.streams import Noise

PUBLISHED = [population(torch.tensor([[float(value)]])) for value in (1, 2, 3, 4, 5)]


def test_streaming_moments_equal_numpy_s():
    points = states(11, width=4)
    path = walk(Swag(), points)
    stacked = np.stack([point.own["w"].double().numpy() for point in points])
    variance = path.points[SQUARES].own["w"] / 11
    np.testing.assert_allclose(path.points["mean"].own["w"].numpy(), stacked.mean(0), rtol=0, atol=3e-6)
    np.testing.assert_allclose(variance.numpy(), stacked.var(0, ddof=0), rtol=1e-5)


def test_variance_survives_weights_far_from_zero():
    """The difference of mean square and squared mean would lose all digits in single precision here."""
    points = [population(torch.tensor([[1000 + 1e-2 * value]])) for value in (-1, 0, 1)]
    path = walk(Swag(), points)
    exact = np.var([point.own["w"].double().item() for point in points])
    assert path.points[SQUARES].own["w"].item() / 3 == pytest.approx(exact, rel=0.02)


def test_deviations_are_from_the_running_mean():
    """Oracle: iterates 1..5 have the columns 0, .5, 1, 1.5, 2 and the low-rank variance 1.875."""
    path = walk(Swag(rank=5), PUBLISHED)
    columns = [path.points[f"deviation/{i}"].own["w"].item() for i in range(5)]
    assert columns == [0.0, 0.5, 1.0, 1.5, 2.0]
    assert sum(c * c for c in columns) / (5 - 1) == 1.875


def test_only_the_newest_columns_are_kept():
    path = walk(Swag(rank=3), PUBLISHED)
    columns = sorted(p.own["w"].item() for name, p in path.points.items() if name.startswith("deviation/"))
    assert columns == [1.0, 1.5, 2.0]
    assert len(path.points) == 3 + 2 == Swag(rank=3).copies(TrainTime(0, 1, 1))


def test_scale_zero_is_the_mean():
    points = states(5)
    dynamics = Swag(rank=3, scale=0.0, draws=4)
    found, origins = dynamics.finish(walk(dynamics, points), points[-1], streams)
    mean = walk(dynamics, points).points["mean"].own["w"]
    assert torch.equal(found.own["w"], mean.repeat(4, 1))
    assert origins.tolist() == [0, 1] * 4


@pytest.mark.slow
@pytest.mark.parametrize(("rank", "scale"), [(4, None), (0, None), (4, 2.0)])
def test_draws_have_the_published_covariance(rank, scale):
    """The whitened sum of squares of each draw is chi-square: 95 % of draws lie below its 95 % quantile."""
    from scipy.stats import chi2

    points, dynamics = states(9, members=1, width=3, seed=3), Swag(rank=rank, scale=scale, draws=4000)
    path = walk(dynamics, points)
    found, _ = dynamics.finish(path, points[-1], streams)
    diagonal = torch.diag((path.points[SQUARES].own["w"][0] / 9).double())
    columns = [p.own["w"][0].double() for name, p in path.points.items() if name.startswith("deviation/")]
    low = sum((torch.outer(c, c) for c in columns), torch.zeros(3, 3, dtype=torch.float64)) / max(rank - 1, 1)
    factor = scale if scale is not None else (0.5 if rank else 1.0)
    covariance = factor * (diagonal + low)
    away = found.own["w"].double() - path.points["mean"].own["w"].double()
    inside = ((away @ covariance.inverse()) * away).sum(1) < chi2(3).ppf(0.95)
    assert inside.double().mean() == pytest.approx(0.95, abs=4 * (0.95 * 0.05 / 4000) ** 0.5)
    spread = (away.mT @ away / 4000 - covariance).abs() / covariance.diagonal().max()
    assert spread.max() < 5 * (2 / 4000) ** 0.5  # entries of a sample covariance


def test_one_draw_moves_all_tensors_along_one_deviation():
    """With rank 2, deviations that are equal in two tensors and no diagonal part, a draw moves both by the same."""
    path = walk(Swag(rank=2), [population(torch.tensor([[v, v]])) for v in (0.0, 1.0, 3.0)])
    path.points[SQUARES].own["w"].zero_()
    found, _ = Swag(rank=2, draws=6).finish(path, population(torch.tensor([[3.0, 3.0]])), streams)
    torch.testing.assert_close(found.own["w"][:, 0], found.own["w"][:, 1], rtol=0, atol=1e-6)
    assert found.own["w"][:, 0].std() > 0.1


def test_shared_tensors_are_drawn_with_the_members_that_use_them():
    generator = torch.Generator().manual_seed(0)
    points = [population(torch.randn(2, 1, generator=generator), torch.randn(3, generator=generator)) for _ in range(4)]
    dynamics = Swag(rank=2, draws=5)
    found, origins = dynamics.finish(walk(dynamics, points), points[-1], streams)
    assert found.members == 10
    assert not found.shared
    assert found.own["s"].shape == (10, 3)
    assert origins.tolist() == [0, 1] * 5
    assert found.own["s"].unique(dim=0).shape[0] == 10  # every draw its own


def test_the_variance_of_shared_tensors_is_that_of_all_collections():
    """With the same numbers drawn for both members, a member that stopped early gets the same shared tensor."""
    own = torch.randn(4, 2, 3, generator=torch.Generator().manual_seed(0))
    points = [population(own[i], torch.tensor([value])) for i, value in enumerate((1.0, 2.0, 4.0, 9.0))]
    dynamics = Swag(rank=0, draws=4)
    path = walk(dynamics, points, lambda index: torch.tensor([0, 1] if index < 2 else [0]))
    found, _ = dynamics.finish(path, points[-1], lambda member, draw: Noise(0, 0, draw, "draws"))
    shared = found.own["s"].view(4, 2)  # draws, members
    assert torch.equal(shared[:, 0], shared[:, 1])
    assert not torch.equal(found.own["w"].view(4, 2, 3)[:, 0], found.own["w"].view(4, 2, 3)[:, 1])


def test_draws_are_addressed():
    points = states(6)
    few, many = (Swag(rank=3, draws=d).finish(walk(Swag(rank=3), points), points[-1], streams)[0] for d in (2, 5))
    assert torch.equal(few.own["w"], many.own["w"][:4])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rank": 1}, "rank=1: need 0"),
        ({"draws": 0}, "draws=0: need at least 1"),
        ({"scale": -1.0}, "scale=-1.0: need a number that is not negative"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(Misuse, match=message):
        Swag(**settings)


def test_random_weights_are_refused():
    with pytest.raises(Misuse, match="swag with random weights"):
        Swag().check(total=TrainTime(400, 20, 20), stochastic=True, schedule=None, own_rule=False, early=False)
