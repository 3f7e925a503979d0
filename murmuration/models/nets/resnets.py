"""Residual networks: plain and pre-activated blocks, for small images and for photographs."""

import math
from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from murmuration.models.nets.dense import Shape, with_head

LARGE = 64  # pixels: images of this size and above get a stem of conv 7x7 / 2 and max-pool 3x3 / 2
WIDTHS = (64, 128, 256, 512)


class Residual(nn.Module):
    """relu(body(x) + shortcut(x)): the block of He et al. (2015)."""

    def __init__(self, body: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.body, self.shortcut, self.relu = body, shortcut, nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.body(x) + self.shortcut(x))


class Preactivated(nn.Module):
    """body(a) + shortcut(a or x) with a = relu(norm(x)): the block of He et al. (2016).

    The shortcut is a projection of a if the shape changes, else x itself.
    """

    def __init__(self, channels: int, body: nn.Module, shortcut: nn.Module | None) -> None:
        super().__init__()
        self.activated = nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU())
        self.body, self.shortcut = body, shortcut

    def forward(self, x: Tensor) -> Tensor:
        a = self.activated(x)
        return self.body(a) + (x if self.shortcut is None else self.shortcut(a))


def resnet20(input_shape: Shape, outputs: int) -> nn.Module:
    """Build ResNet20 version 1 of the Keras example: three stages of three blocks, 16, 32 and 64 wide.

    Convolutions have biases, shortcuts are 1x1 convolutions without batch-norm, kernels are He-normal.
    Batch-norm keeps torch's momentum and epsilon, which differ from Keras's.
    """
    body: list[nn.Module] = [conv(input_shape[0], 16, bias=True), nn.BatchNorm2d(16), nn.ReLU()]
    for before, after, stride in stages((16, 32, 64), blocks=(3, 3, 3), entering=16):
        shortcut = conv(before, after, kernel=1, stride=stride, bias=True) if (before != after) else nn.Identity()
        body.append(Residual(two_convs(before, after, stride, bias=True), shortcut))
    return pooled_head(body, 64, outputs).apply(he_normal)


def resnet18(input_shape: Shape, outputs: int) -> nn.Module:
    """Build ResNet-18: four stages of two blocks, 64 to 512 wide, 1x1 shortcuts with batch-norm (He et al. 2015)."""
    body = stem(input_shape, normed=True)
    for before, after, stride in stages(WIDTHS, blocks=(2, 2, 2, 2), entering=64):
        projection = nn.Sequential(conv(before, after, kernel=1, stride=stride), nn.BatchNorm2d(after))
        shortcut = nn.Identity() if before == after and stride == 1 else projection
        body.append(Residual(two_convs(before, after, stride), shortcut))
    return pooled_head(body, WIDTHS[-1], outputs)


def preact_resnet18(input_shape: Shape, outputs: int) -> nn.Module:
    """Build ResNet-18 of pre-activated blocks, as common for CIFAR: no batch-norm before the last pooling."""
    body = stem(input_shape, normed=False)
    for before, after, stride in stages(WIDTHS, blocks=(2, 2, 2, 2), entering=64):
        convs = nn.Sequential(conv(before, after, stride=stride), nn.BatchNorm2d(after), nn.ReLU(), conv(after, after))
        body.append(Preactivated(before, convs, changing_shortcut(before, after, stride)))
    return pooled_head(body, WIDTHS[-1], outputs)


def resnet50(input_shape: Shape, outputs: int) -> nn.Module:
    """Build ResNet-50 version 2: 3, 4, 6 and 3 pre-activated bottlenecks, 256 to 2048 wide (He et al. 2016).

    Convolutions have no biases and the stride is in the 3x3; kernels are He-normal.
    """
    body = stem(input_shape, normed=False)
    for before, after, stride in stages(tuple(4 * w for w in WIDTHS), blocks=(3, 4, 6, 3), entering=64):
        inner = after // 4
        bottleneck = nn.Sequential(
            *[conv(before, inner, kernel=1), nn.BatchNorm2d(inner), nn.ReLU()],
            *[conv(inner, inner, stride=stride), nn.BatchNorm2d(inner), nn.ReLU()],
            conv(inner, after, kernel=1),
        )
        body.append(Preactivated(before, bottleneck, changing_shortcut(before, after, stride)))
    last = 4 * WIDTHS[-1]
    return pooled_head([*body, nn.BatchNorm2d(last), nn.ReLU()], last, outputs).apply(he_normal)


def pooled_head(body: list[nn.Module], features: int, outputs: int) -> nn.Module:
    """Build a network whose head takes the means of the last feature maps."""
    return with_head([*body, nn.AdaptiveAvgPool2d(1), nn.Flatten()], features, outputs)


def stem(input_shape: Shape, *, normed: bool) -> list[nn.Module]:
    """Build the first layers, image to 64 channels: conv 3x3; from 64 pixels on conv 7x7 / 2 and max-pool / 2."""
    large = min(input_shape[1:]) >= LARGE
    first = conv(input_shape[0], 64, kernel=7, stride=2) if large else conv(input_shape[0], 64)
    norm = [nn.BatchNorm2d(64), nn.ReLU()] if normed else []
    return [first, *norm, *([nn.MaxPool2d(3, stride=2, padding=1)] if large else [])]


def stages(widths: Sequence[int], *, blocks: Sequence[int], entering: int) -> list[tuple[int, int, int]]:
    """List input channels, output channels and stride of every block; the stride is 2 at the start of later stages."""
    after = [width for width, count in zip(widths, blocks, strict=True) for _ in range(count)]
    first = {sum(blocks[:index]) for index in range(1, len(blocks))}
    pairs = pairwise([entering, *after])
    return [(before, width, 2 if index in first else 1) for index, (before, width) in enumerate(pairs)]


def conv(before: int, after: int, *, kernel: int = 3, stride: int = 1, bias: bool = False) -> nn.Conv2d:
    """Build a convolution with padding that keeps the size of the feature map, up to the stride."""
    return nn.Conv2d(before, after, kernel, stride=stride, padding=kernel // 2, bias=bias)


def two_convs(before: int, after: int, stride: int, *, bias: bool = False) -> nn.Module:
    return nn.Sequential(
        *[conv(before, after, stride=stride, bias=bias), nn.BatchNorm2d(after), nn.ReLU()],
        *[conv(after, after, bias=bias), nn.BatchNorm2d(after)],
    )


def changing_shortcut(before: int, after: int, stride: int) -> nn.Module | None:
    return None if before == after and stride == 1 else conv(before, after, kernel=1, stride=stride)


def he_normal(layer: nn.Module) -> None:
    """Initialise a kernel by a normal of variance 2 / fan_in, truncated at two deviations, and a bias by zero."""
    if isinstance(layer, nn.Conv2d | nn.Linear):
        fan_in = layer.weight[0].numel()
        std = math.sqrt(2 / fan_in) / 0.87962566103423978  # standard deviation of a normal truncated at 2
        nn.init.trunc_normal_(layer.weight, std=std, a=-2 * std, b=2 * std)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
