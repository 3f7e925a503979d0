"""The two networks of a DCGAN: shapes, sizes, first weights."""

import pytest
import torch
from torch import nn

from murmuration.applications.gan.networks import discriminator, generator
from murmuration.system.errors import Misuse


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [32, 64])
def test_pictures_are_made_and_judged(size: int, channels: int):
    """One logit a picture, (B, 1, 1, 1); pictures of the right shape with values from -1 to 1."""
    latents = 50 * torch.randn(3, 7, 1, 1, generator=torch.Generator().manual_seed(0))
    made = generator(channels, size, latent=7, width=4)(latents)
    assert made.shape == (3, channels, size, size)
    assert -1 <= made.min() < 0 < made.max() <= 1
    assert discriminator(channels, size, width=4)(made).shape == (3, 1, 1, 1)


def test_at_full_size_they_have_the_layers_of_the_paper():
    kernels = [tuple(p.shape) for p in generator(3, 64).parameters() if p.dim() == 4]
    assert kernels == [(100, 512, 4, 4), (512, 256, 4, 4), (256, 128, 4, 4), (128, 64, 4, 4), (64, 3, 4, 4)]
    layers = [layer for layer in generator(3, 64) if isinstance(layer, nn.ConvTranspose2d)]
    assert [(layer.stride[0], layer.padding[0]) for layer in layers] == [(1, 0)] + 4 * [(2, 1)]
    kernels = [tuple(p.shape) for p in discriminator(3, 64).parameters() if p.dim() == 4]
    assert kernels == [(64, 3, 4, 4), (128, 64, 4, 4), (256, 128, 4, 4), (512, 256, 4, 4), (1, 512, 4, 4)]
    assert {layer.negative_slope for layer in discriminator(3, 64) if isinstance(layer, nn.LeakyReLU)} == {0.2}


def test_first_weights_have_a_deviation_of_a_fiftieth():
    torch.manual_seed(0)
    for network in (generator(3, 32, width=16), discriminator(3, 32, width=16)):
        kernels = torch.cat([p.detach().flatten() for p in network.parameters() if p.dim() == 4])
        error = 0.02 / len(kernels) ** 0.5
        assert abs(kernels.mean()) < 4 * error
        assert abs(kernels.std() - 0.02) < 4 * error
        norms = [layer for layer in network if isinstance(layer, nn.BatchNorm2d)]
        assert all(abs(layer.weight.mean() - 1) < 4 * 0.02 / len(layer.weight) ** 0.5 for layer in norms)
        assert all(not p.any() for name, p in network.named_parameters() if name.endswith("bias"))


@pytest.mark.parametrize("size", [0, 4, 20, 63])
def test_other_sizes_are_refused(size: int):
    for network in (generator, discriminator):
        with pytest.raises(Misuse, match=f"size={size}: need 8, 16, 32, 64 or another power of two"):
            network(1, size)


def test_no_width_is_refused():
    with pytest.raises(Misuse, match="width=0: need at least 1 channel"):
        generator(1, 32, width=0)
