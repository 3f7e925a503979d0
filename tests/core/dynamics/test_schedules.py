import math

import pytest

from murmuration.core.dynamics.schedules import TrainTime, learning_rate_factor
from murmuration.system.errors import Misuse


def by_epoch(schedule: str, base: float, epochs: int, wanted: list[int]) -> list[float]:
    return [base * learning_rate_factor(schedule, TrainTime(epoch, 1, epochs)) for epoch in wanted]


@pytest.mark.parametrize(
    ("schedule", "base", "epochs", "expected"),
    [
        ("halve:10", 1.6e-3, 40, {0: 1.6e-3, 9: 1.6e-3, 10: 8e-4, 39: 2e-4}),
        ("keras-resnet", 1e-3, 200, {80: 1e-3, 81: 1e-4, 121: 1e-5, 161: 1e-6, 181: 5e-7}),
        ("cifar100-resnet", 1e-3, 200, {99: 1e-3, 100: 1e-4, 130: 5e-5, 160: 1e-5, 190: 5e-7}),
        ("imagenet-resnet", 0.15, 160, {79: 0.15, 80: 0.015, 120: 0.0015}),
        ("hold-linear:0.01", 0.1, 300, {0: 0.1, 150: 0.1, 151: 0.099175, 210: 0.0505, 270: 0.001, 299: 0.001}),
        ("constant", 0.1, 10, {0: 0.1, 9: 0.1}),
    ],
)
def test_published_schedules(schedule, base, epochs, expected):
    assert by_epoch(schedule, base, epochs, list(expected)) == pytest.approx(list(expected.values()), rel=1e-9)


def test_cyclical_cosine_restarts_and_never_goes_below_zero():
    factors = [learning_rate_factor("cyclic:4", TrainTime(step, 10, 8)) for step in range(80)]
    assert factors[0] == factors[20] == 1.0
    assert factors[10] == pytest.approx(0.5)
    assert min(factors) >= 0


def test_triangle_is_high_at_the_ends_and_low_in_the_middle():
    factor = [learning_rate_factor("triangle:4,0.2", TrainTime(step, 10, 8)) for step in (0, 20, 40)]
    assert factor == pytest.approx([1.0, 0.2, 1.0])


def test_cosine_ends_at_zero():
    assert learning_rate_factor("cosine", TrainTime(50, 10, 10)) == pytest.approx(0.5)
    assert learning_rate_factor("cosine", TrainTime(99, 10, 10)) == pytest.approx((1 - math.cos(math.pi / 100)) / 2)


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("cosin", "unknown schedule 'cosin': did you mean 'cosine'"),
        ("halve:x", "schedule 'halve:x': numbers not understood"),
        ("steps:8", "schedule 'steps:8': numbers not understood"),
        ("steps:0=1,99=x", "numbers not understood"),  # although epoch 99 is never reached
        ("halve:-1", "numbers not understood"),
        ("swa:0.5,nan", "the factor of epoch 9 is nan; expected numbers that are not negative"),
    ],
)
def test_bad_schedules_say_what_to_write(schedule, message):
    with pytest.raises(Misuse, match=message):
        learning_rate_factor(schedule, TrainTime(9, 1, 10))
