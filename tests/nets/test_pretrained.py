"""Published weights: outputs against the package that published them, files that are refused."""

import pickle
from pathlib import Path

import pytest
import torch
from torch import nn

from murmuration.errors import Failure, Misuse
from murmuration.files import write_tensors
from murmuration.nets import build_net
from murmuration.nets.efficientnet_lite import VARIANTS
from murmuration.nets.pretrained import pretrained_state, published_file, read_weights


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
