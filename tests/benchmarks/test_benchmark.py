"""The benchmark's arithmetic; its timings are for people."""

import members
import pytest


def test_floating_point_operations_are_those_of_the_products():
    """MLP 64-128-128-10, batch 128: forward and weight gradients of all layers, input gradients of the last two."""
    layers = [64 * 128, 128 * 128, 128 * 10]
    expected = 2 * 128 * (2 * sum(layers) + sum(layers[1:]))
    assert members.flops_per_step("mlp") == members.MEMBERS * expected


def test_a_record_holds_ratios_to_the_plain_loop():
    times = {"plain_loop": 8.0, "auto": 2.0, **dict.fromkeys(members.ENGINES, 4.0)}
    found = members.record("mlp", times, "stacked", gemm=100.0)
    assert found["auto_speedup"] == 4.0
    assert found["auto_engine"] == "stacked"
    assert found["engines"]["threads"] == {"s": 4.0, "speedup": 2.0}
    assert found["fraction_of_peak"] == pytest.approx(found["gflop_per_step"] / 2.0 / 100.0)


@pytest.mark.parametrize("name", ["stacked", "threads"])
def test_the_timed_step_trains(name):
    engine, step = members.engine_step("mlp", name)
    assert engine == name
    first = step().mean()
    for _ in range(20):
        last = step().mean()
    assert last < first
