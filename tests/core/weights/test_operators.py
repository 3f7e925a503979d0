import pytest
import torch
from torch import nn

from murmuration.core.population import populate
from murmuration.core.weights import ForwardSpec, Realised, Structure, UnsupportedOp, run_members as run_realised
from murmuration.core.weights.stacked import batched_linear, exchange, flatten_members, matmul
from murmuration.system.streams import Noise

MLP = lambda: nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Dropout(0.4), nn.Linear(8, 3))  # noqa: E731


def run_members(structure, tensors, x, streams, direct):
    """Plain weights, none of them shared."""
    return run_realised(structure, Realised(tensors, {}, ForwardSpec()), x, streams, direct)


def noise(seed: int) -> Noise:
    return Noise(seed, 0)


def members(build, count: int = 3):
    torch.manual_seed(0)
    population = populate(lambda _: build(), count)
    return population, {**population.own, **population.buffers}


@pytest.mark.parametrize("direct", [True, False])
def test_many_members_at_once_equal_each_alone(direct):
    """Values and gradients; the batched product sums in another order: a few float32 roundings of numbers about one."""
    _, tensors = members(MLP)
    module, x = Structure(MLP()), torch.randn(3, 5, 3, 4)
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in tensors.items()}
    together = run_members(module, leaves, x, [noise(i) for i in range(3)], direct)
    alone = torch.cat(
        [
            run_members(module, {k: v[i : i + 1] for k, v in leaves.items()}, x[i : i + 1], [noise(i)], False)
            for i in range(3)
        ]
    )
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-6)
    weights = torch.randn(3, 5, 3)
    for mine, theirs in zip(
        torch.autograd.grad((weights * together).sum(), list(leaves.values())),
        torch.autograd.grad((weights * alone).sum(), list(leaves.values())),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


def test_the_direct_way_refuses_operators_it_does_not_know():
    _, tensors = members(lambda: nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)))
    with pytest.raises(UnsupportedOp, match="layer_norm"):
        run_members(
            Structure(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))),
            tensors,
            torch.randn(3, 2, 4),
            [noise(0)] * 3,
            True,
        )


def test_the_direct_way_refuses_shape_arithmetic():
    class Reshaping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(x.view(x.shape[0], -1))  # would fold members into features

    _, tensors = members(Reshaping)
    with pytest.raises(UnsupportedOp):
        run_members(Structure(Reshaping()), tensors, torch.randn(3, 5, 2, 2), [noise(0)] * 3, True)
    outputs = run_members(Structure(Reshaping()), tensors, torch.randn(3, 5, 2, 2), [noise(0)] * 3, False)
    assert outputs.shape == (3, 5, 2)


def test_batched_linear_is_a_product_a_member():
    x, weight, bias = torch.randn(2, 5, 3).double(), torch.randn(2, 4, 3).double(), torch.randn(2, 4).double()
    expected = torch.stack([nn.functional.linear(x[i], weight[i], bias[i]) for i in range(2)])
    torch.testing.assert_close(batched_linear(x, weight, bias), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(batched_linear(x, weight), expected - bias.unsqueeze(1), rtol=1e-12, atol=1e-12)


def test_flatten_leaves_members_and_examples_apart():
    x = torch.arange(2 * 3 * 4 * 5).view(2, 3, 4, 5)
    assert torch.equal(flatten_members(x, 1), x.view(2, 3, 20))
    with pytest.raises(UnsupportedOp, match="flatten from axis 0"):
        flatten_members(x)


class ByColumn(nn.Module):
    """A product for each column of rows (N, D), with rows as the last axis; the parameters may be shared."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3, 1))
        self.head = nn.Linear(12, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        columns = x.transpose(-1, -2).contiguous().unsqueeze(-2)  # (D, 1, N)
        return self.head(torch.relu(self.weight @ columns).flatten(-3, -2).transpose(-1, -2))


@pytest.mark.parametrize("shared", [(), ("weight",)])
def test_axes_that_are_counted_from_the_end_have_members_in_front(shared):
    _, tensors = members(ByColumn, 4)  # as many members as columns: axes that are mistaken would not raise
    own = {name: each for name, each in tensors.items() if name not in shared}
    common = {name: tensors[name][0] for name in shared}
    x, streams = torch.randn(4, 5, 4), [noise(0)] * 4
    together = run_realised(Structure(ByColumn()), Realised(own, common, ForwardSpec()), x, streams, True)
    for at in range(4):
        mine = {**{name: each[at] for name, each in own.items()}, **common}
        alone = torch.func.functional_call(ByColumn(), mine, (x[at],))
        torch.testing.assert_close(together[at], alone, rtol=1e-5, atol=1e-6)


def test_products_and_transpositions_that_could_mix_members_are_refused():
    x, own, shared = torch.randn(3, 5, 4), torch.randn(3, 4, 2), torch.randn(4, 2)
    torch.testing.assert_close(matmul(x, own, {id(own)}, ()), torch.bmm(x, own))
    torch.testing.assert_close(matmul(x, shared, (), {id(shared)}), x @ shared)
    for a, b, mine, ours in (
        (x, own, (), ()),  # two activations, or functions of parameters
        (x, own, (), {id(own)}),  # a shared parameter whose first axis would meet the members
        (x, shared, {id(shared)}, ()),
        (x[0], shared, (), {id(shared)}),
    ):
        with pytest.raises(UnsupportedOp):
            matmul(a, b, mine, ours)
    assert torch.equal(exchange(x, -1, -2), x.mT)
    for axes in ((0, 1), (1, 2), (-1, -3), (-1, 0)):
        with pytest.raises(UnsupportedOp):
            exchange(x, *axes)


@pytest.mark.parametrize("training", [True, False])
def test_batch_normalisation_keeps_each_member_s_own_statistics(normalised_net, training):
    population, tensors = members(normalised_net)
    module, x = Structure(normalised_net()).train(training), torch.randn(3, 6, 1, 8, 8)
    before = {name: buffer.clone() for name, buffer in population.buffers.items()}
    together = run_members(module, tensors, x, [noise(i) for i in range(3)], False)
    after = {name: buffer.clone() for name, buffer in population.buffers.items()}
    for name, buffer in before.items():
        population.buffers[name].copy_(buffer)
    for i in range(3):
        alone = run_members(module, {k: v[i : i + 1] for k, v in tensors.items()}, x[i : i + 1], [noise(i)], False)
        torch.testing.assert_close(together[i], alone[0], rtol=1e-4, atol=1e-5)
    for name, buffer in after.items():
        torch.testing.assert_close(population.buffers[name], buffer, rtol=1e-5, atol=1e-6)
    moved = not torch.equal(after["norm.running_mean"], before["norm.running_mean"])
    assert moved == training


def test_a_structure_gives_what_functional_call_gives():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 4, bias=False)
            self.second = nn.Linear(4, 4)
            self.second.weight = self.first.weight
            self.register_buffer("shift", torch.zeros(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(torch.tanh(self.first(x))) + self.shift

    module, x = Tied(), torch.randn(3, 4)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    tensors = {"first.weight": torch.randn(4, 4), "second.bias": torch.randn(4), "shift": torch.randn(4)}
    outputs = Structure(module)(tensors, x)
    assert torch.equal(outputs, torch.func.functional_call(module, tensors, (x,)))
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())


class Experts(nn.Module):
    """A convolutional body, which records whether its input has a member axis, and a head."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Dropout(dropout), nn.ReLU(), nn.Flatten())
        self.head = nn.Linear(16, 3)
        self.batched: list[bool] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.body[0](x)
        self.batched.append(torch._C._functorch.is_batchedtensor(hidden))
        return self.head(self.body[1:](hidden))


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_shared_body_runs_once_on_the_batch_of_all_members(dropout: float) -> None:
    """Values and gradients are those of members one by one, whose dropout masks differ; else roundings of float32."""
    torch.manual_seed(0)
    population = populate(lambda _: Experts(), 3, lambda name: name.startswith("body."))
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in (population.own | population.shared).items()}
    own, shared = ({name: leaves[name] for name in part} for part in (population.own, population.shared))
    module, x = Structure(Experts(dropout)), torch.randn(5, 2, 4, 4).expand(3, 5, 2, 4, 4)
    together = run_realised(module, Realised(own, shared, ForwardSpec()), x, [noise(i) for i in range(3)], False)
    assert module.module.batched == [False]
    rows = [{name: tensor[i : i + 1] for name, tensor in own.items()} for i in range(3)]
    alone = torch.cat(
        [
            run_realised(module, Realised(row, shared, ForwardSpec()), x[i : i + 1], [noise(i)], False)
            for i, row in enumerate(rows)
        ]
    )
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-6)
    weights = torch.randn(3, 5, 3)
    grads = [torch.autograd.grad((weights * each).sum(), list(leaves.values())) for each in (together, alone)]
    for mine, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)
