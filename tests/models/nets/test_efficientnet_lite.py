"""EfficientNet-Lite against the package that published its weights, its pixel scale against bytes."""

import numpy as np
import pytest
import torch
from torch import nn

import murmuration as mm
from murmuration.models.nets import build_net
from murmuration.models.nets.efficientnet_lite import VARIANTS, from_published
from murmuration.models.nets.pixel_scale import PixelScale, set_pixel_scale
from murmuration.system.errors import Misuse

LITE = pytest.mark.parametrize("name", VARIANTS)
PUBLISHED = {"efficientnet-lite0": 4_652_008, "efficientnet-lite1": 5_416_680, "efficientnet-lite2": 6_092_072}


@LITE
def test_numbers_of_parameters_are_the_published_ones(name):
    with torch.device("meta"):
        net = build_net(name, (3, 224, 224), 1000)
        other = build_net(name, (3, 97, 64), 1000)  # the size changes nothing but the padding
    assert sum(p.numel() for p in net.parameters()) == PUBLISHED[name]
    assert {n: p.shape for n, p in net.state_dict().items()} == {n: p.shape for n, p in other.state_dict().items()}
    assert net.body.dropout.p == VARIANTS[name].dropout
    assert [child for child, _ in net.named_children()] == ["body", "head"]


@LITE
@pytest.mark.parametrize("size", [(48, 48), (51, 36)])
def test_outputs_are_those_of_the_published_package(name, size):
    """Equal weights, random ones with random batch-norm statistics, give equal outputs; 1e-4 is of outputs near 1."""
    theirs = pytest.importorskip("efficientnet_lite_pytorch", reason="efficientnet_lite_pytorch is not installed")
    torch.manual_seed(0)
    reference = theirs.EfficientNet.from_name(name, image_size=list(size), num_classes=7).eval()
    for layer in reference.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.normal_(layer.running_mean, std=0.1)
            nn.init.uniform_(layer.running_var, 0.2, 0.8)
            nn.init.uniform_(layer.weight, 0.8, 1.2)
    net = build_net(name, (3, *size), 7).eval()
    found = net.load_state_dict({from_published(n): t for n, t in reference.state_dict().items()}, strict=False)
    assert found.missing_keys == ["body.pixels.scale", "body.pixels.shift"]
    assert found.unexpected_keys == []
    x = torch.randn(2, 3, *size)
    with torch.no_grad():
        torch.testing.assert_close(net(x), reference(x), rtol=1e-4, atol=1e-4)
        assert reference(x).std() > 0.01


def test_grey_images_are_refused():
    with pytest.raises(Misuse, match="efficientnet-lite0 takes images of 3 channels, got 1"):
        build_net("efficientnet-lite0", (1, 32, 32), 10)


def images(kind: str) -> np.ndarray:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 16, 16, 3)).astype(np.uint8)
    return pixels if kind == "bytes" else (pixels / 255).astype(np.float32)


@pytest.mark.parametrize("kind", ["bytes", "floats"])
@pytest.mark.parametrize("prepare", ["standardise", "unit", "none"])
def test_the_body_sees_the_published_scale_of_pixels_whatever_the_preparation(kind, prepare):
    data = mm.open_data((images(kind), np.arange(40) % 4), prepare=prepare)
    net = build_net("efficientnet-lite0", data.input_shape, 4)
    set_pixel_scale(net, data.preparation)
    bytes_of = torch.from_numpy(data.preparation.pixels_of(data.train.prepared)).permute(0, 3, 1, 2).float()
    scaled = net.body.pixels(data.train.prepared)
    torch.testing.assert_close(scaled, (bytes_of - 127) / 128, rtol=1e-5, atol=1e-5)


def scaled_net() -> nn.Module:
    """A small network of the caller's own whose first layer is a pixel scale."""
    return nn.Sequential(PixelScale((127.0,) * 3, (128.0,) * 3), nn.Flatten(), nn.Linear(768, 4))


def test_a_trained_network_and_a_loaded_one_keep_the_scale(tmp_path):
    data = mm.open_data((images("bytes"), np.arange(40) % 4))
    settings = {"members": 2, "epochs": 1, "engine": "loop", "posthoc": None}
    ensemble = mm.fit(scaled_net, data, out=tmp_path / "run", **settings)
    loaded = mm.load(tmp_path / "run", net=scaled_net)
    expected = (torch.from_numpy(np.asarray(data.test.x)).permute(0, 3, 1, 2).float() - 127) / 128
    for member in (ensemble.member(1), loaded.member(0)):
        torch.testing.assert_close(member[0](data.test.prepared), expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(loaded.predict(data.test.x).outputs, ensemble.predict(data.test.x).outputs)


def test_numbers_that_are_no_pixels_are_not_rescaled():
    net = build_net("efficientnet-lite0", (3, 16, 16), 4)
    set_pixel_scale(
        net, mm.open_data((np.random.default_rng(0).normal(size=(40, 3, 16, 16)), np.arange(40) % 4)).preparation
    )
    assert torch.equal(net.body.pixels.scale, torch.ones(3, 1, 1))
