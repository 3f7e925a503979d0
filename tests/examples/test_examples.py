import importlib.util
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from murmuration.models.nets import build_net
from murmuration.system.files import write_tensors

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(name: str) -> dict[str, float]:
    return load(name).main(quick=True)


def test_other_models_are_audited(capsys):
    found = run("audit_other_models")
    assert 0 < found["boosting"] < found["forest"] < 0.5
    assert capsys.readouterr().out.count("worse for") == 2


@pytest.mark.slow
def test_trust_falls_with_corruption_and_noise_is_noticed(capsys):
    found = run("trust_under_shift")
    assert found["worst"] < found["clean"] - 0.1
    assert found["auroc"] > 0.9
    assert capsys.readouterr().out.count("sets of") == 3


@pytest.mark.slow
def test_repulsion_raises_the_doubt_away_from_data(capsys):
    found = run("repulsion_toys")
    for place in ("gap", "far"):
        assert found[f"gaps-1d function-rde {place}"] > found[f"gaps-1d deep-ensemble {place}"]
        assert found[f"gaps-1d forde-identity {place}"] > 2 * found[f"gaps-1d deep-ensemble {place}"]
    for recipe in ("function-rde", "feature-rde", "forde-identity"):
        assert found[f"five-gaussians {recipe} far"] > found["five-gaussians deep-ensemble far"]
    assert capsys.readouterr().out.count("forde-identity") == 2


@pytest.mark.slow
def test_networks_learn_from_inputs_of_every_kind(capsys):
    found = run("own_inputs")
    assert all(accuracy > 0.7 for accuracy in found.values())
    assert capsys.readouterr().out.count("certainty") == 4


def test_a_measure_of_ones_own_is_scored_and_explained(capsys):
    found = run("own_measure")
    assert 0 <= found["low"] <= found["cost"] <= found["high"] <= 10
    assert found["explained"] == 1
    assert "95 % interval" in capsys.readouterr().out


def test_a_calibrator_of_ones_own_is_fitted_and_helps(capsys):
    found = run("own_calibrator")
    assert found["shift"] == pytest.approx(-np.log(10), abs=0.5)
    assert found["shifted"] < found["plain"]
    assert "logit of class 1 plus" in capsys.readouterr().out


@pytest.mark.slow
def test_published_weights_are_fine_tuned_by_several_recipes(monkeypatch, tmp_path, capsys):
    module = load("fine_tuning")
    every, some = module.recipes, {"heads", "batch-ensemble", "bayes-last-layer"}  # what the others do, and more
    chosen = lambda *given: {name: each for name, each in every(*given).items() if name in some}  # noqa: E731
    monkeypatch.setattr(module, "recipes", chosen)
    found = module.main(str(tmp_path), quick=True)
    assert found.keys() == some
    assert all(0 <= run["accuracy"]["value"] <= 1 and run["nll"]["value"] > 0 for run in found.values())
    assert found["heads"]["parameters"] < found["batch-ensemble"]["parameters"]


def test_a_folder_of_photos_becomes_a_classifier(monkeypatch, tmp_path):
    module = load("photo_folder")
    rows = np.random.default_rng(0).integers(0, 256, (900, 3074), dtype=np.uint8)
    rows[:, 1] = [*range(10), *range(50, 55)] * 60
    rows[:, 2:] = rows[:, 2:] // 3 + 15 * (rows[:, 1:2] % 10)
    for name in ("train.bin", "test.bin"):
        (tmp_path / name).write_bytes(rows.tobytes())
    monkeypatch.setattr(module, "RECIPES", {"deep-ensemble": 2})
    monkeypatch.setattr(module, "NET", "resnet20")
    write_tensors(tmp_path / "net.safetensors", build_net("resnet20", (3, 32, 32), 2).state_dict())
    found = module.main(str(tmp_path), quick=True, weights=tmp_path / "net.safetensors")
    assert found["examples"] == {"train": 60, "val": 60, "test": 60}
    assert 0 <= found["runs"]["deep-ensemble"]["coverage"] <= 1


def test_members_are_trained_in_a_plain_loop_with_a_schedule_of_torch(capsys):
    assert load("own_loop").main(epochs=2) > 0.5
    assert capsys.readouterr().out.count("mean loss of each member:") == 2


def test_members_are_trained_by_lightning(tmp_path, monkeypatch):
    pytest.importorskip("lightning")
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's advice on workers
        assert load("own_loop_lightning").main(epochs=2) > 0.5


def test_every_example_is_run_here():
    text = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    above = {path for path in EXAMPLES.glob("*.py") if "murmuration.applications" in path.read_text()}  # tested there
    assert all(f'"{path.stem}"' in text for path in set(EXAMPLES.glob("*.py")) - above)


@pytest.mark.slow
def test_a_space_of_one_s_own_makes_members_disagree_far_from_the_data(capsys):
    found = run("own_space")
    assert found["probes"] > 1.5 * found["deep-ensemble"]


def test_a_dynamics_of_one_s_own_averages_weights(capsys):
    found = run("own_dynamics")
    assert found["moving average"] < found["last weights"]


def test_experts_with_weights_of_their_own_shift_the_odds_of_the_rare_class(capsys):
    first, second, third = run("own_likelihood")
    assert first < second < third
    assert capsys.readouterr().out.count("log odds") == 3
