"""Networks against parameter counts derived by hand, sizes of maps, initial spreads, and functional transforms."""

import math
import statistics

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from murmuration.models.nets import NETS, build_net
from murmuration.models.nets.convnets import plain_cnn
from murmuration.models.nets.resnets import stages
from murmuration.system.errors import Misuse

LIGHT = ["mlp", "small-cnn", "medium-cnn", "lenet5", "alexnet-half", "three-conv-three-fc", "resnet20"]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Tensors here are small: a second thread costs more than it brings, above all on a busy machine."""
    torch.set_num_threads(1)


def counted(name: str, shape: tuple[int, ...], outputs: int) -> tuple[int, int]:
    """Numbers of trainable parameters and of running statistics; the meta device holds no memory."""
    with torch.device("meta"):
        net = build_net(name, shape, outputs)
    statistics = sum(buffer.numel() for buffer in net.buffers() if buffer.ndim)
    return sum(p.numel() for p in net.parameters()), statistics


@pytest.mark.parametrize(
    ("name", "mnist", "cifar10", "cifar100"),
    [
        ("lenet5", 61_706, 62_006, 69_656),
        ("alexnet", 2_160_458, 2_175_946, 2_187_556),
        ("alexnet-half", 542_634, 550_378, 556_228),
        ("three-conv-three-fc", 1_781_034, 1_782_634, 1_872_724),
    ],
)
def test_counts_of_the_bayesian_cnn_study(name: str, mnist: int, cifar10: int, cifar100: int) -> None:
    assert counted(name, (1, 32, 32), 10) == (mnist, 0)
    assert counted(name, (1, 28, 28), 10) == (mnist, 0)  # bordered with zeros to 32
    assert counted(name, (3, 32, 32), 10) == (cifar10, 0)
    assert counted(name, (3, 32, 32), 100) == (cifar100, 0)
    assert counted(name, (3, 80, 64), 100) == (cifar100, 0)  # larger maps are averaged


def test_counts_of_the_loss_landscape_study() -> None:
    assert counted("small-cnn", (3, 32, 32), 10) == (19_466, 0)
    assert counted("medium-cnn", (3, 32, 32), 10) == (971_146, 0)
    trainable, statistics = counted("resnet20", (3, 32, 32), 10)
    assert (trainable, trainable + statistics) == (273_066, 274_442)
    with torch.device("meta"):
        notebook = plain_cnn((3, 32, 32), 10, channels=(32, 64, 128, 256))
    assert sum(p.numel() for p in notebook.parameters()) == 398_666


def basic_convs(stem: int) -> int:
    """Kernels of an 18-layer residual network: stem, 3x3 pairs, and 1x1 shortcuts where the width doubles."""
    widths = (64, 128, 256, 512)
    first = 9 * 64 * 64 * 4
    later = sum(9 * w * (w // 2) + 3 * 9 * w * w + w * (w // 2) for w in widths[1:])
    return stem + first + later


def test_counts_of_eighteen_layers_by_hand() -> None:
    kernels, head = basic_convs(9 * 3 * 64), 512 * 10 + 10
    norms = 64 + 4 * (64 + 128 + 256 + 512) + (128 + 256 + 512)  # stem, two per block, one per shortcut
    assert counted("resnet18", (3, 32, 32), 10) == (kernels + 2 * norms + head, 2 * norms)
    assert kernels + 2 * norms + head == 11_173_962
    before = (64 + 64) + (64 + 128) + (128 + 256) + (256 + 512)  # a norm on each block's input, no shortcut norms
    within = 2 * (64 + 128 + 256 + 512)
    total = kernels + 2 * (before + within) + head
    assert counted("preact-resnet18", (3, 32, 32), 10) == (total, 2 * (before + within))
    assert total == 11_171_146
    photographs = basic_convs(49 * 3 * 64) + 2 * norms + 512 * 1000 + 1000
    assert counted("resnet18", (3, 224, 224), 1000)[0] == photographs == 11_689_512


def test_count_of_fifty_layers_by_hand() -> None:
    """The running statistics are those of Keras's ResNet50V2; its count is larger by 19,008 biases of convolutions."""
    total, norms, before = 49 * 3 * 64, 0, 64
    for width, blocks in zip((64, 128, 256, 512), (3, 4, 6, 3), strict=True):
        total += before * 4 * width  # the stage's shortcut
        for _ in range(blocks):
            total += before * width + 9 * width * width + 4 * width * width
            norms += before + 2 * width
            before = 4 * width
    norms += 2048
    total += 2 * norms + 2048 * 1000 + 1000
    assert counted("resnet50", (3, 224, 224), 1000) == (total, 45_440)
    assert total == 25_568_360 - 19_008


def test_depths() -> None:
    def layers(name: str, shortcut: int) -> int:
        with torch.device("meta"):
            net = build_net(name, (3, 224, 224), 10)
        return sum(isinstance(m, nn.Conv2d | nn.Linear) for m in net.modules()) - shortcut

    assert layers("resnet20", shortcut=2) == 20
    assert layers("resnet18", shortcut=3) == 18
    assert layers("preact-resnet18", shortcut=3) == 18
    assert layers("resnet50", shortcut=4) == 50
    assert stages((16, 32), blocks=(2, 2), entering=16) == [(16, 16, 1), (16, 16, 1), (16, 32, 2), (32, 32, 1)]


def map_sizes(name: str, shape: tuple[int, int, int]) -> list[int]:
    """The height of the map after every convolution and pooling."""
    net, sizes = build_net(name, shape, 10).eval(), []
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d | nn.MaxPool2d):
            layer.register_forward_hook(lambda _module, _x, out: sizes.append(out.shape[-2]))
    net(torch.zeros(1, *shape))
    return sizes


def test_sizes_of_maps() -> None:
    assert map_sizes("small-cnn", (3, 32, 32)) == [32, 16, 16, 8, 8, 4]
    assert map_sizes("medium-cnn", (3, 32, 32)) == [32, 16, 16, 8, 8, 4, 4, 2]
    assert map_sizes("medium-cnn", (1, 8, 8)) == [8, 4, 4, 2, 2, 1, 1]  # one pixel is not pooled
    for shape in ((1, 28, 28), (3, 32, 32)):
        assert map_sizes("lenet5", shape) == [28, 14, 10, 5]
    for name, shape in (("alexnet", (1, 8, 8)), ("alexnet", (3, 32, 32)), ("alexnet-half", (3, 32, 32))):
        assert map_sizes(name, shape) == [8, 4, 4, 2, 2, 2, 2, 1]
    assert map_sizes("three-conv-three-fc", (3, 32, 32)) == [32, 15, 15, 7, 5, 2]


def test_order_of_a_plain_block() -> None:
    """Dropout before the pool, ReLU after it, and none after the last block."""
    body = build_net("small-cnn", (3, 32, 32), 10).body
    block = ["Conv2d", "Dropout", "MaxPool2d"]
    expected = [*block, "ReLU", *block, "ReLU", *block, "Flatten"]
    assert [type(layer).__name__ for layer in body] == expected
    assert body[1].p == 0.1


def test_glorot_limits_of_weights_and_biases() -> None:
    torch.manual_seed(0)
    net = build_net("medium-cnn", (3, 32, 32), 10)
    convs = [layer for layer in net.modules() if isinstance(layer, nn.Conv2d)]
    weights = [math.sqrt(6 / (9 * both)) for both in (3 + 64, 64 + 128, 128 + 256, 256 + 256)]
    assert [round(limit, 5) for limit in weights] == [0.09975, 0.05893, 0.04167, 0.03608]
    biases = [math.sqrt(6 / (1 + c)) for c in (64, 128, 256, 256)]
    assert [round(limit, 3) for limit in biases] == [0.304, 0.216, 0.153, 0.153]
    for layer, weight, bias in zip(convs, weights, biases, strict=True):
        check_uniform(layer.weight, weight)
        check_uniform(layer.bias, bias)
    assert round(math.sqrt(6 / 1034), 5) == 0.07618
    check_uniform(net.head.weight, math.sqrt(6 / 1034))
    check_uniform(net.head.bias, math.sqrt(6 / 11))


def check_uniform(values: Tensor, limit: float) -> None:
    """Values of U(-limit, limit): none outside, the largest near it, and the variance a third of its square."""
    assert values.abs().max() <= limit * (1 + 1e-6)
    assert values.abs().max() > limit * (1 - 1e-6 - 10 / values.numel())
    error = 4 * math.sqrt(4 / 45 / values.numel()) * limit**2  # Var of U^2 is 4/45
    assert abs(values.square().mean().item() - limit**2 / 3) < error


def test_he_normal_spread() -> None:
    torch.manual_seed(0)
    net = build_net("resnet20", (3, 32, 32), 10)
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d) and layer.weight.numel() > 4000:
            std = math.sqrt(2 / layer.weight[0].numel())
            assert layer.weight.std().item() == pytest.approx(std, rel=4 / math.sqrt(2 * layer.weight.numel()))
            assert layer.weight.abs().max() < 2 * std / 0.8796 + 1e-6
            assert (layer.bias == 0).all()


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32), (2, 40, 50), (1, 5, 9)])
@pytest.mark.parametrize("name", [*LIGHT, "alexnet"])
def test_every_net_takes_every_image(name: str, shape: tuple[int, ...]) -> None:
    """Finite outputs that depend on every part of the image and on every parameter."""
    torch.manual_seed(0)
    net = build_net(name, shape, 3, **({"dropout": 0.0} if "dropout" in NETS[name].options else {}))
    x = torch.randn(4, *shape, requires_grad=True)
    net(x).square().sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    covered = x.grad.abs().sum((0, 1)) > 0  # (height, width)
    rows, columns = covered.any(1), covered.any(0)
    assert rows.float().mean() > 0.6  # a pooling that rounds down leaves the last rows out
    assert columns.float().mean() > 0.6
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())


@pytest.mark.parametrize("name", ["resnet18", "preact-resnet18", "resnet50"])
def test_large_nets_take_digits(name: str) -> None:
    torch.manual_seed(0)
    net = build_net(name, (1, 8, 8), 3).eval()
    x = torch.randn(2, 1, 8, 8)
    with torch.no_grad():
        one, both = net(x[:1]), net(x)
    assert both.isfinite().all()
    torch.testing.assert_close(one, both[:1], atol=1e-4, rtol=1e-4)  # inputs do not mix in eval mode
    assert (both[0] - both[1]).abs().max() > 0


def test_small_images_are_repeated_and_padded() -> None:
    """8x8 digits are repeated four times each way; 28x28 gets a border of two zeros."""
    digits = build_net("lenet5", (1, 8, 8), 10).body[0]
    x = torch.arange(64.0).reshape(1, 1, 8, 8)
    torch.testing.assert_close(digits(x), x.repeat_interleave(4, -1).repeat_interleave(4, -2))
    mnist = build_net("lenet5", (1, 28, 28), 10).body[0]
    x = torch.ones(1, 1, 28, 28)
    assert mnist(x).shape == (1, 1, 32, 32)
    torch.testing.assert_close(mnist(x)[..., 2:30, 2:30], x)
    assert mnist(x).sum() == 28 * 28


@pytest.mark.parametrize("name", LIGHT)
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 33, 33)])
def test_stacked_members_equal_members_one_by_one(name: str, shape: tuple[int, ...]) -> None:
    """Outputs and gradients by the input, under vmap over members; and the gradient's own gradient exists."""
    torch.manual_seed(0)
    nets = [build_net(name, shape, 3).double().eval() for _ in range(2)]
    parameters, buffers = stack_module_state(nets)
    x = torch.randn(2, *shape, dtype=torch.float64)

    def confidence(own: dict[str, Tensor], stats: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(nets[0], (own, stats), (x,)).log_softmax(-1).square().sum()

    by_input = vmap(torch.func.grad(confidence, argnums=2), in_dims=(0, 0, None))(parameters, buffers, x)
    for index, net in enumerate(nets):
        inputs = x.clone().requires_grad_()
        net(inputs).log_softmax(-1).square().sum().backward()
        torch.testing.assert_close(by_input[index], inputs.grad, atol=1e-10, rtol=1e-9)

    def steepness(own: dict[str, Tensor], stats: dict[str, Tensor]) -> Tensor:
        return torch.func.grad(confidence, argnums=2)(own, stats, x).square().sum()

    second = vmap(torch.func.grad(steepness))(parameters, buffers)
    assert second["head.weight"].abs().sum() > 0
    assert all(value.isfinite().all() for value in second.values())


def test_every_net_ends_in_a_head() -> None:
    for name in NETS:
        with torch.device("meta"):
            net = build_net(name, (3, 32, 32), 7)
        assert [child for child, _ in net.named_children()] == ["body", "head"]
        assert net.head.out_features == 7


def test_options() -> None:
    net = build_net("mlp", (13,), 1, hidden=(20, 5), activation="tanh", dropout=0.2)
    assert [layer.out_features for layer in net.modules() if isinstance(layer, nn.Linear)] == [20, 5, 1]
    assert sum(isinstance(layer, nn.Tanh) for layer in net.modules()) == 2
    assert [layer.p for layer in net.modules() if isinstance(layer, nn.Dropout)] == [0.2, 0.2]
    soft = build_net("three-conv-three-fc", (1, 8, 8), 10, activation="softplus")
    assert sum(isinstance(layer, nn.Softplus) for layer in soft.modules()) == 5
    assert not any(isinstance(layer, nn.ReLU | nn.Dropout) for layer in soft.modules())


def test_same_seed_same_weights() -> None:
    def weights(seed: int) -> Tensor:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return build_net("resnet20", (1, 8, 8), 10).head.weight

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


@pytest.mark.parametrize(
    ("name", "shape", "options", "message"),
    [
        ("smal-cnn", (1, 8, 8), {}, "unknown net 'smal-cnn': did you mean 'small-cnn'"),
        ("lenet5", (13,), {}, r"lenet5 takes images \(channels, height, width\), got \(13,\): use mlp"),
        ("resnet20", (28, 28), {}, r"got \(28, 28\): write \(1, 28, 28\)"),
        ("resnet20", (1, 8, 8), {"dropout": 0.1}, "no option 'dropout' .*use mlp, .*small-cnn, medium-cnn"),
        ("small-cnn", (1, 8, 8), {"dropout": 1.0}, r"dropout=1.0: expected a probability in \[0, 1\)"),
        ("mlp", (4,), {"activation": "rellu"}, "unknown activation 'rellu': did you mean 'relu'"),
        ("mlp", (), {}, "expected sizes of at least 1"),
    ],
)
def test_refusals(name: str, shape: tuple[int, ...], options: dict, message: str) -> None:
    with pytest.raises(Misuse, match=message):
        build_net(name, shape, 10, **options)


def test_the_ntk_scale_is_the_parameterisation_of_kernel_theory():
    """Outputs have variances and tangent kernels of the limit, whose kernel grows with depth and not with width."""
    x = torch.tensor([[1.0, 1.0, -1.0, 1.0]])  # x.x / d = 1
    widths, kernels, outputs = (64, 512), [], []
    for width in widths:
        diagonal, values = [], []
        for seed in range(60):
            torch.manual_seed(seed)
            net = build_net("mlp", (4,), 1, hidden=(width, width), scale="ntk")
            grads = torch.autograd.grad(net(x).sum(), list(net.parameters())[::2])  # of the kernels
            diagonal.append(sum(float(grad.square().sum()) for grad in grads))
            values.append(float(net(x)))
        kernels.append(statistics.fmean(diagonal))
        outputs.append(statistics.pvariance(values))
    # at infinite width, variances 2, 2 and 1: T1 = 1, T2 = 1 + 2/2 T1 = 2, T3 = 1 + 1/2 T2 = 2
    assert kernels == pytest.approx([2.0, 2.0], rel=0.15)
    assert outputs == pytest.approx([1.0, 1.0], abs=4 * math.sqrt(2 / 60))


def test_an_unknown_scale_of_the_mlp_is_refused():
    with pytest.raises(Misuse, match="unknown scale 'ntks': did you mean 'ntk'"):
        build_net("mlp:scale=ntks", (4,), 1)
    with pytest.raises(Misuse, match="has no option 'scale'"):
        build_net("small-cnn:scale=ntk", (1, 8, 8), 2)
