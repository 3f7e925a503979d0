"""Convolutional networks: those of Fort et al. 2019 (loss landscapes) and of Shridhar et al. 2019 (Bayesian CNNs)."""

import math
from functools import partial
from itertools import pairwise

from torch import nn

from murmuration.models.nets.dense import Shape, Widths, activation_named, with_head

NATIVE = 32  # pixels: the input size of LeNet-5, AlexNet and 3Conv3FC


def plain_cnn(input_shape: Shape, outputs: int, *, channels: Widths, dropout: float = 0.1) -> nn.Module:
    """Build blocks of conv 3x3, dropout, max-pool 2x2 and ReLU (not after the last), then one dense layer.

    SmallCNN and MediumCNN of Fort, Hu and Lakshminarayanan (2019), as in the authors' notebook: dropout precedes the
    pooling, and weights and biases are both Glorot-uniform. A side of one pixel is not pooled further.
    """
    count, height, width = input_shape
    body: list[nn.Module] = []
    for index, (before, after) in enumerate(pairwise((count, *channels))):
        body += [nn.Conv2d(before, after, 3, padding=1), nn.Dropout(dropout)]
        if min(height, width) > 1:
            body.append(nn.MaxPool2d(2))
            height, width = height // 2, width // 2
        body += [nn.ReLU()] if index < len(channels) - 1 else []
    return with_head([*body, nn.Flatten()], channels[-1] * height * width, outputs).apply(glorot_uniform)


def glorot_uniform(layer: nn.Module) -> None:
    """Fill a layer with U(-l, l), l = sqrt(6 / (fan_in + fan_out)); a bias of length c has fans 1 and c."""
    if isinstance(layer, nn.Conv2d | nn.Linear):
        nn.init.xavier_uniform_(layer.weight)
        if layer.bias is not None:
            limit = math.sqrt(6 / (1 + len(layer.bias)))
            nn.init.uniform_(layer.bias, -limit, limit)


def lenet5(
    input_shape: Shape, outputs: int, *, widths: Widths = (6, 16, 120, 84), activation: str = "relu"
) -> nn.Module:
    """Build LeNet-5: two blocks of conv 5x5 and max-pool, then two dense layers (after LeCun et al. 1998).

    `lenet5-half` has half of each width.
    """
    act = partial(activation_named, activation)
    a, b, c, d = widths
    body = [
        *upscale_small(input_shape),
        *[nn.Conv2d(input_shape[0], a, 5), act(), nn.MaxPool2d(2)],
        *[nn.Conv2d(a, b, 5), act(), nn.MaxPool2d(2)],
        *flatten_to(input_shape, 5),
        *[nn.Linear(25 * b, c), act(), nn.Linear(c, d), act()],
    ]
    return with_head(body, d, outputs)


def alexnet(
    input_shape: Shape, outputs: int, *, widths: Widths = (64, 192, 384, 256, 128), activation: str = "relu"
) -> nn.Module:
    """Build the AlexNet of the Bayesian CNN study (Shridhar et al. 2019): five convs, for 32 pixels, and one dense.

    `alexnet-half` has half of each width, which quarters most kernels: with a mean and a standard deviation for every
    weight it has fewer parameters than the deterministic network of full width.
    """
    act = partial(activation_named, activation)
    a, b, c, d, e = widths
    body = [
        *upscale_small(input_shape),
        *[nn.Conv2d(input_shape[0], a, 11, stride=4, padding=5), act(), nn.MaxPool2d(2)],
        *[nn.Conv2d(a, b, 5, padding=2), act(), nn.MaxPool2d(2)],
        *[nn.Conv2d(b, c, 3, padding=1), act()],
        *[nn.Conv2d(c, d, 3, padding=1), act()],
        *[nn.Conv2d(d, e, 3, padding=1), act(), nn.MaxPool2d(2)],
        *flatten_to(input_shape, 1),
    ]
    return with_head(body, e, outputs)


def three_conv_three_fc(input_shape: Shape, outputs: int, *, activation: str = "relu") -> nn.Module:
    """Build 3Conv3FC of the Bayesian CNN study: three blocks of conv 5x5 and max-pool 3/2, dense 1000, 1000."""
    act = partial(activation_named, activation)
    body = [
        *upscale_small(input_shape),
        *[nn.Conv2d(input_shape[0], 32, 5, padding=2), act(), nn.MaxPool2d(3, stride=2)],
        *[nn.Conv2d(32, 64, 5, padding=2), act(), nn.MaxPool2d(3, stride=2)],
        *[nn.Conv2d(64, 128, 5, padding=1), act(), nn.MaxPool2d(3, stride=2)],
        *flatten_to(input_shape, 2),
        *[nn.Linear(512, 1000), act(), nn.Linear(1000, 1000), act()],
    ]
    return with_head(body, 1000, outputs)


def upscale_small(input_shape: Shape) -> list[nn.Module]:
    """Return layers that bring images smaller than 32 pixels to 32: repetition by a whole factor, then zero padding.

    8x8 digits are repeated 4 times; 28x28 MNIST keeps its pixels and gets a border of 2, as in LeNet-5. Zero is the
    mean of standardised inputs. Nothing is interpolated.
    """
    _, height, width = input_shape
    factor = max(1, min(NATIVE // height, NATIVE // width))
    down, across = (max(0, NATIVE - side * factor) for side in (height, width))
    layers: list[nn.Module] = [nn.Upsample(scale_factor=factor, mode="nearest")] if factor > 1 else []
    if down or across:
        layers.append(nn.ZeroPad2d((across // 2, across - across // 2, down // 2, down - down // 2)))
    return layers


def flatten_to(input_shape: Shape, side: int) -> list[nn.Module]:
    """Return layers that flatten a feature map of side x side (at 32 pixels), average-pooling larger maps to it."""
    return [*([nn.AdaptiveAvgPool2d(side)] if max(input_shape[1:]) > NATIVE else []), nn.Flatten()]
