"""Heads trained on features of a pretrained network: one run, from photos to photos."""

from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from feature_fixtures import NET, write_photos, write_weights
from torch import nn

import murmuration as mm
from murmuration.cli import main
from murmuration.data.preparation import FeaturePreparation
from murmuration.models import features as feature_module
from murmuration.models.features import BACKBONE, STORED, write_features
from murmuration.models.nets import build_net
from murmuration.system.errors import Misuse
from murmuration.system.files import read_tensors

PLAN = {"members": 3, "epochs": 2, "engine": "loop", "batch_size": 16, "lr": 1e-2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos, other photos, and a file of weights."""
    place = tmp_path_factory.mktemp("features")
    write_photos(place / "photos", 40)
    write_photos(place / "new", 3, 15)
    write_weights(place / "net.safetensors")
    return place


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    words = ["train", "photos", "--features", NET, "--features-from", "net.safetensors", "--size", "8", "--val", "0.3"]
    fast = ["--members", "3", "--epochs", "2", "--engine", "loop", "--batch-size", "16", "--out", "runs/photos"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main([*words, *fast, "--json"]) == 0
    return folder / "runs" / "photos"


@pytest.fixture
def data(folder: Path) -> mm.Data:
    return mm.embed(folder / "photos", NET, weights=folder / "net.safetensors", size=8)


def outputs(ensemble: mm.Ensemble, x: object) -> torch.Tensor:
    return ensemble.predict(x, calibrated=False).outputs


def refuse_to_compute(*given: object) -> None:
    raise AssertionError("features that are known are computed again")


def test_a_run_holds_the_backbone_and_the_features(run: Path, folder: Path) -> None:
    assert {BACKBONE, STORED, "report.html"} <= {path.name for path in run.iterdir()}
    assert [path.name for path in run.parent.iterdir()] == ["photos"]  # no pieces are left
    assert len(read_tensors(run / STORED)["features"]) == 80
    assert (run / "report.html").read_text().count("Test image") >= 4  # photos, not features
    ensemble = mm.load(run)
    assert "linear" in str(ensemble.manifest.net)
    assert ensemble.predict(folder / "new").mean.shape == (6, 2)


def test_the_backbone_runs_once_a_prediction(run: Path, folder: Path) -> None:
    ensemble = mm.load(run)
    calls: list[int] = []
    ensemble.preparation.features.backbone.register_forward_hook(lambda net, x, y: calls.append(len(x[0])))  # type: ignore
    ensemble.predict(folder / "new")
    assert (ensemble.members, calls) == (3, [6])


def test_heads_equal_those_of_the_whole_network_with_a_frozen_body(folder: Path) -> None:
    """The same heads trained by the same steps: on a fixed body in evaluation mode, and on its features."""
    shape, weights = (3, 8, 8), write_weights(folder / "resnet20.safetensors", "resnet20", (3, 8, 8))
    heads = [nn.Linear(64, 2) for _ in range(2)]

    class Frozen(nn.Sequential):
        def train(self, mode: bool = True) -> "Frozen":
            super().train(mode)
            self.body.eval()
            return self

    def whole() -> nn.Module:
        made = build_net("resnet20", shape, 2)
        body = {name: t for name, t in read_tensors(weights).items() if name.startswith("body.")}
        made.load_state_dict(body, strict=False)
        made.body.requires_grad_(False)
        return Frozen(OrderedDict(made.named_children()))

    def start(net: nn.Module, head: nn.Module) -> dict[str, torch.Tensor]:
        return {**net.state_dict(), **{f"head.{name}": t.clone() for name, t in head.state_dict().items()}}

    same = {**PLAN, "members": 2, "optimizer": "sgd", "posthoc": None, "size": 8}
    photos = folder / "photos"
    expected = mm.fit(whole, photos, prepare="unit", init_from=[start(whole(), head) for head in heads], **same)
    known = {"features": "resnet20", "features_from": weights, "prepare": "none"}
    linear = build_net("linear", (64,), 2)
    found = mm.fit("linear", photos, init_from=[start(linear, head) for head in heads], **known, **same)
    difference = (outputs(found, photos) - outputs(expected, photos)).abs().max()
    assert difference < 1e-4 * outputs(expected, photos).abs().max()  # single precision through 20 layers, 8 steps
    moved = (found.groups[0].population.own["head.weight"] - torch.stack([h.weight for h in heads])).abs().max()
    assert moved > 1e-3


def test_a_file_of_features_trains_the_same_heads(folder: Path, data: mm.Data) -> None:
    source = feature_module.feature_source(NET, folder / "net.safetensors", 8)
    write_features(folder / "photos", source, folder / "features.npz")
    stored = mm.fit("linear", folder / "features.npz", **PLAN)
    direct = mm.fit(None, data, **PLAN)
    for name, tensor in direct.groups[0].population.own.items():
        assert torch.equal(tensor, stored.groups[0].population.own[name])


def test_a_killed_run_is_resumed_from_stored_features(folder: Path, data: mm.Data, tmp_path: Path, monkeypatch) -> None:
    def killed(text: str, done: int, total: int, record: object) -> None:
        if done == 5:
            raise KeyboardInterrupt

    expected = mm.fit(None, data, **PLAN)
    with pytest.raises(KeyboardInterrupt):
        mm.fit(None, data, out=tmp_path / "run", progress=killed, **PLAN)
    monkeypatch.setattr(feature_module, "features_of", refuse_to_compute)
    resumed = mm.resume(tmp_path / "run")
    for name, tensor in expected.groups[0].population.own.items():
        assert torch.equal(tensor, resumed.groups[0].population.own[name])


def test_features_continue_from_pieces(folder: Path, tmp_path: Path, monkeypatch) -> None:
    class Killed(BaseException):
        pass

    def killed(self: object, x: torch.Tensor) -> torch.Tensor:
        raise Killed

    known = {"features": NET, "features_from": folder / "net.safetensors", "size": 8, "out": tmp_path / "run"}
    twice = np.random.default_rng(0).integers(0, 256, (150, 3, 8, 8), dtype=np.uint8), np.arange(150) % 2
    keep = feature_module.Features.keep
    monkeypatch.setattr(
        feature_module.Features, "keep", lambda self, x: keep(self, x) if len(x) == 128 else killed(self, x)
    )
    with pytest.raises(Killed):
        mm.fit(None, twice, **known, **PLAN)
    monkeypatch.undo()
    counted: list[int] = []
    compute = feature_module.features_of
    monkeypatch.setattr(feature_module, "features_of", lambda net, x: counted.append(len(x)) or compute(net, x))
    mm.fit(None, twice, **known, **PLAN)
    assert 22 in counted
    assert max(counted) < 128
    assert not (tmp_path / "run.features").exists()


@pytest.mark.parametrize("recipe", ["forde", "bayes-last-layer", "batch-ensemble", "swag"])
def test_any_recipe_trains_heads(recipe: str, data: mm.Data, folder: Path, tmp_path: Path) -> None:
    chosen = mm.make_recipe(recipe)
    plan = {**PLAN, "members": chosen.members or 3, "out": tmp_path / "run"}
    ensemble = mm.fit(None, data, recipe=chosen, **plan)
    again = mm.load(tmp_path / "run")
    assert torch.equal(outputs(again, folder / "new"), outputs(ensemble, folder / "new"))
    assert mm.score(ensemble.predict(data.test), data.test.y)["nll"] < 2


def test_an_exported_module_takes_images(run: Path, folder: Path) -> None:
    ensemble, images = mm.load(run), mm.open_data(folder / "new", size=8, prepare="none", val=0.2)
    expected = ensemble.predict(images.test.x)
    found = ensemble.as_module()(images.test.prepared)
    assert (found["mean"] - expected.mean).abs().max() < 1e-5


def test_commands_take_a_run_on_features(run: Path, folder: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(folder)
    calls = (
        ("predict", "runs/photos", "new", "--out", "answers.csv"),
        ("calibrate", "runs/photos"),
        ("evaluate", "runs/photos", "--only", "contrast", "--severities", "5", "--ood", "new"),
    )
    for words in calls:
        assert main(list(words)) == 0, capsys.readouterr().err
    assert "Corruptions as images" in (run / "report.html").read_text()
    assert len((folder / "answers.csv").read_text().splitlines()) == 7


def test_heads_of_a_folder_train_predict_and_evaluate(folder: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(folder)
    fast = ["--features-from", "net.safetensors", "--size", "8", "--epochs", "1", "--engine", "loop"]
    for words in (
        ["train", "photos/", "--features", NET, "--members", "2", "--out", "runs/pretrained", *fast],
        ["predict", "runs/pretrained", "new", "--out", "predictions.csv"],
        ["evaluate", "runs/pretrained", "--ood", "new"],
    ):
        assert main(words) == 0, capsys.readouterr().err


def test_corrupted_images_are_embedded_again(data: mm.Data) -> None:
    from murmuration.data.shift import shift_inputs, shift_split

    preparation = data.preparation
    assert isinstance(preparation, FeaturePreparation)
    clean = preparation.inputs.apply(data.test.x)
    expected = preparation.apply_prepared(shift_inputs(clean, preparation.inputs, "contrast", 5, seed=1))
    assert torch.equal(shift_split(data.test, preparation, "contrast", 5, seed=1), expected)
    assert not torch.allclose(expected, data.test.prepared)
    assert torch.allclose(preparation.apply(data.test.x), data.test.prepared)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"features_from": "x.pth"}, "without features="),
        ({"features": NET, "prepare": "unit"}, "prepare='unit' is for images"),
        ({"features": NET, "data": "iris"}, "features are those of images"),
        ({"features": NET, "augment": ("flip",)}, "augment=flip is for images"),
        ({"features": NET, "recipe": mm.make_recipe("last-layer-ensemble", sharing="backbone:frozen=yes")}, "no body"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict, said: str, folder: Path) -> None:
    given = {"data": folder / "photos", "size": 8, **settings}
    if "features" in given:
        given.setdefault("features_from", folder / "net.safetensors")
    if given["data"] == "iris":
        del given["size"]
    with pytest.raises(Misuse, match=said):
        mm.fit(None, given.pop("data"), **given, **PLAN)
