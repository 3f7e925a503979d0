"""The arithmetic of the prediction benchmark; its timings are for people."""

import predict
import pytest
import torch


def test_a_ratio_is_ours_to_the_faster_contender():
    ms = {"predict": {"cpu": 2.0, "wall": 3.0}, "loop": {"cpu": 4.0, "wall": 4.0}, "vmap": {"cpu": 1.0, "wall": 6.0}}
    found = predict.record(ms)
    assert found["cpu_ratio"] == 2.0
    assert found["wall_ratio"] == 0.75
    assert found["loop"] == {"cpu_ms": 4.0, "wall_ms": 4.0}


@pytest.mark.parametrize("net", predict.SHAPES)
def test_contenders_compute_the_same_but_for_the_calibrator(net: str):
    ways = predict.contenders(net, 2, 3)
    made = {name: way().double() for name, way in ways.items()}
    torch.testing.assert_close(made["loop"], made["vmap"], rtol=1e-4, atol=1e-6)
    assert made["predict"].shape == made["loop"].shape
    assert (made["predict"].log() - made["loop"].log()).abs().max() < 1.5  # a temperature near 1


def test_the_best_turn_counts():
    assert predict.fastest([{"cpu": 1.0, "wall": 4.0}, {"cpu": 2.0, "wall": 3.0}]) == {"cpu": 1.0, "wall": 3.0}
