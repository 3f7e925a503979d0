"""EfficientNet-Lite: EfficientNet (Tan and Le 2019) without squeeze-and-excite and with ReLU6, for phones and CPUs.

Seven stages of inverted residual blocks (MBConv). Lite1 and Lite2 have more blocks in the stages between the first and
the last, Lite2 has wider ones; the stem and the last convolution are the same for all. Convolutions pad as TensorFlow
does ("same"): so the weights trained there give the same outputs here.
"""

import math
from collections import OrderedDict
from dataclasses import dataclass, replace

from torch import Tensor, nn

from murmuration.models.nets.dense import Shape, with_head
from murmuration.models.nets.pixel_scale import PixelScale
from murmuration.system.errors import Misuse

STEM, LAST = 32, 1280  # channels after the first and the last convolution
MEAN, STD = 127.0, 128.0  # of bytes: the pixel scale of the published weights


@dataclass(frozen=True)
class Stage:
    """Blocks of the same kernel and width; the first of them has the stride."""

    blocks: int
    kernel: int
    stride: int
    expansion: int
    channels: int


@dataclass(frozen=True)
class Variant:
    """Multipliers of channels and blocks, the image size of the published weights and the dropout before the head."""

    width: float
    depth: float
    size: int
    dropout: float


STAGES = (
    Stage(1, 3, 1, 1, 16),
    Stage(2, 3, 2, 6, 24),
    Stage(2, 5, 2, 6, 40),
    Stage(3, 3, 2, 6, 80),
    Stage(3, 5, 1, 6, 112),
    Stage(4, 5, 2, 6, 192),
    Stage(1, 3, 1, 6, 320),
)
VARIANTS = {
    "efficientnet-lite0": Variant(1.0, 1.0, 224, 0.2),
    "efficientnet-lite1": Variant(1.0, 1.1, 240, 0.2),
    "efficientnet-lite2": Variant(1.1, 1.2, 260, 0.3),
}


class InvertedResidual(nn.Module):
    """Expansion by a 1x1 convolution, a depthwise one, projection by a 1x1; added to x where the shape is the same."""

    def __init__(self, before: int, stage: Stage, size: tuple[int, int]) -> None:
        super().__init__()
        wide = before * stage.expansion
        self.expand = conv_norm(before, wide, 1, 1, size) if stage.expansion != 1 else nn.Identity()
        self.depthwise = conv_norm(wide, wide, stage.kernel, stage.stride, size, groups=wide)
        self.project = conv_norm(wide, stage.channels, 1, 1, size, active=False)
        self.adds = stage.stride == 1 and before == stage.channels

    def forward(self, x: Tensor) -> Tensor:
        h = self.project(self.depthwise(self.expand(x)))
        return x + h if self.adds else h


def efficientnet_lite(
    input_shape: Shape, outputs: int, *, variant: str = "efficientnet-lite0", dropout: float | None = None
) -> nn.Module:
    """Build EfficientNet-Lite for colour images of any size, without stochastic depth."""
    settings, (channels, *sides) = VARIANTS[variant], input_shape
    if channels != 3:
        raise Misuse(f"{variant} takes images of 3 channels, got {channels}: repeat a grey channel three times")
    size, before, blocks = (sides[0], sides[1]), STEM, []
    pixels, stem = PixelScale((MEAN,) * 3, (STD,) * 3), conv_norm(3, STEM, 3, 2, size)
    size = halved(size, 2)
    for stage in stages(settings):
        blocks.append(InvertedResidual(before, stage, size))
        size, before = halved(size, stage.stride), stage.channels
    body: OrderedDict[str, nn.Module] = OrderedDict(pixels=pixels, stem=stem, blocks=nn.Sequential(*blocks))
    body |= {"last": conv_norm(before, LAST, 1, 1, size), "pool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten()}
    body["dropout"] = nn.Dropout(settings.dropout if dropout is None else dropout)
    return with_head(nn.Sequential(body), LAST, outputs).apply(initialise)


def stages(variant: Variant) -> list[Stage]:
    """Return a stage of one block for every block of the network."""
    blocks = []
    for stage in STAGES:
        inner = stage not in (STAGES[0], STAGES[-1])
        count = math.ceil(variant.depth * stage.blocks) if inner else stage.blocks
        first = replace(stage, blocks=1, channels=rounded(variant.width * stage.channels))
        blocks += [first, *[replace(first, stride=1)] * (count - 1)]
    return blocks


def rounded(channels: float) -> int:
    """Return the nearest multiple of 8 that is not below 90 % of `channels`.

    >>> rounded(1.1 * 16), rounded(1.1 * 24), rounded(1.1 * 320)
    (16, 24, 352)
    """
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest + 8 if nearest < 0.9 * channels else nearest


def conv_norm(
    before: int, after: int, kernel: int, stride: int, size: tuple[int, int], *, groups: int = 1, active: bool = True
) -> nn.Module:
    """Build a convolution without bias for feature maps (H, W), batch-norm, and ReLU6 if `active`."""
    (top, bottom), (left, right) = (same_padding(side, kernel, stride) for side in size)
    even = top == bottom and left == right
    layers = OrderedDict[str, nn.Module]({} if even else {"pad": nn.ZeroPad2d((left, right, top, bottom))})
    layers["conv"] = nn.Conv2d(before, after, kernel, stride, (top, left) if even else 0, groups=groups, bias=False)
    layers |= {"norm": nn.BatchNorm2d(after, eps=1e-3)} | ({"act": nn.ReLU6()} if active else {})
    return nn.Sequential(layers)


def same_padding(side: int, kernel: int, stride: int) -> tuple[int, int]:
    """Return the zeros before and after a side that make it ceil(side / stride), as TensorFlow's "same" padding does.

    >>> same_padding(224, 3, 2), same_padding(7, 5, 2), same_padding(7, 5, 1)
    ((0, 1), (2, 2), (2, 2))
    """
    total = max(0, (math.ceil(side / stride) - 1) * stride + kernel - side)
    return total // 2, total - total // 2


def halved(size: tuple[int, int], stride: int) -> tuple[int, int]:
    return math.ceil(size[0] / stride), math.ceil(size[1] / stride)


def initialise(layer: nn.Module) -> None:
    """Draw kernels of convolutions from N(0, 2 / fan_out); the head keeps torch's initial values.

    The published networks draw the head from +-1 / sqrt(outputs): for ten classes that is ten times larger.
    """
    if isinstance(layer, nn.Conv2d):
        fan_out = layer.weight[0, 0].numel() * layer.out_channels // layer.groups
        nn.init.normal_(layer.weight, std=math.sqrt(2 / fan_out))


PUBLISHED = {  # names of efficientnet_lite_pytorch -> names here
    "_conv_stem": "body.stem.conv",
    "_bn0": "body.stem.norm",
    "_conv_head": "body.last.conv",
    "_bn1": "body.last.norm",
    "_fc": "head",
}
IN_BLOCK = ("expand", "depthwise", "project")  # the first block has no expansion, and its norms are _bn1 and _bn2 too
PUBLISHED_IN_BLOCKS = {f"_{part}_conv": f"{part}.conv" for part in IN_BLOCK}
PUBLISHED_IN_BLOCKS |= {f"_bn{number}": f"{part}.norm" for number, part in enumerate(IN_BLOCK)}


def from_published(name: str) -> str:
    """Translate the name of a tensor of the published weights to this network; return other names unchanged.

    >>> from_published("_blocks.3._bn2.weight"), from_published("_fc.bias"), from_published("head.bias")
    ('body.blocks.3.project.norm.weight', 'head.bias', 'head.bias')
    """
    parts = name.split(".")
    if parts[0] == "_blocks":
        return ".".join(["body.blocks", parts[1], PUBLISHED_IN_BLOCKS[parts[2]], *parts[3:]])
    return ".".join([PUBLISHED.get(parts[0], parts[0]), *parts[1:]])
