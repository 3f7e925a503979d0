"""SWA: when weights are collected, their mean, and what is refused."""

import numpy as np
import pytest
import torch
from populations import population, states, streams, walk

from murmuration.core.dynamics import Swa, TrainTime, learning_rate_factor
from murmuration.core.dynamics.base import keep_times
from murmuration.system.errors import Misuse

END = TrainTime(400, 20, 20)


def finish(dynamics, path, last):
    return dynamics.finish(path, last, streams)


def test_the_average_is_numpy_s_mean():
    points = states(7)
    found, origins = finish(Swa(), walk(Swa(), points), points[-1])
    expected = np.mean([point.own["w"].double().numpy() for point in points], axis=0)
    # seven steps of a running mean in single precision: a few roundings of numbers near one
    np.testing.assert_allclose(found.own["w"].numpy(), expected, rtol=0, atol=7 * np.finfo(np.float32).eps * 3)
    assert origins.tolist() == [0, 1]


def test_the_average_of_identical_weights_is_these_weights():
    point = states(1)[0]
    found, _ = finish(Swa(), walk(Swa(), [point] * 9), point)
    assert torch.equal(found.own["w"], point.own["w"])


def test_shared_tensors_are_averaged_once_for_all_members():
    shared = torch.tensor([[1.0, 2.0], [3.0, 6.0], [5.0, 1.0]])
    points = [population(torch.zeros(2, 1), each) for each in shared]
    found, _ = finish(Swa(), walk(Swa(), points), points[-1])
    torch.testing.assert_close(found.shared["s"], torch.tensor([3.0, 3.0]), rtol=1e-6, atol=0)


def test_members_that_stop_are_averaged_until_then_and_others_go_on():
    points = states(4)
    rows = lambda index: torch.tensor([0, 1] if index < 2 else [1])  # noqa: E731
    found, _ = finish(Swa(), walk(Swa(), points, rows), points[-1])
    torch.testing.assert_close(found.own["w"][0], torch.stack([p.own["w"][0] for p in points[:2]]).mean(0))
    torch.testing.assert_close(found.own["w"][1], torch.stack([p.own["w"][1] for p in points]).mean(0))


def test_a_member_never_collected_keeps_its_last_weights():
    points = states(3)
    found, _ = finish(Swa(), walk(Swa(), points, lambda index: torch.tensor([0])), points[-1])
    assert torch.equal(found.own["w"][1], points[-1].own["w"][1])


def test_collections_are_evenly_spaced_after_the_start_and_end_with_the_run():
    assert keep_times(Swa(start=0.75, collections=4), END) == [325, 350, 375, 400]
    assert keep_times(Swa(start=0.5, collections=20), TrainTime(10, 5, 2)) == [6, 7, 8, 9, 10]  # no more than steps
    assert len(keep_times(Swa(collections=7), END)) == 7


def test_the_schedule_is_the_published_one():
    """Oracle: factor 1 at half of the start, the ratio at nine tenths of it and after."""
    schedule = Swa(start=0.5, lr_ratio=0.1).schedule()
    factor = {t: learning_rate_factor(schedule, TrainTime(round(t * 100), 1, 200)) for t in (0, 0.5, 0.7, 0.9, 1, 1.9)}
    assert factor == pytest.approx({0: 1, 0.5: 1, 0.7: 0.55, 0.9: 0.1, 1: 0.1, 1.9: 0.1})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"start": 1.0}, "start=1.0: need a fraction"),
        ({"collections": 1}, "collections=1: need at least 2"),
        ({"lr_ratio": 0.0}, "lr_ratio=0.0: need a positive factor"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(Misuse, match=message):
        Swa(**settings)


def test_runs_too_short_and_early_stopping_are_refused():
    check = {"stochastic": False, "schedule": None, "own_rule": False}
    with pytest.raises(Misuse, match="would collect weights 1 times in 4 steps"):
        Swa().check(total=TrainTime(4, 4, 1), early=False, **check)
    with pytest.raises(Misuse, match="stopping early with dynamics swa"):
        Swa().check(total=END, early=True, **check)
