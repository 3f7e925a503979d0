"""Members by scaled channels against plain networks with every kernel spelled out (float64)."""

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from weights_factories import (
    LAYERS,
    MEMBERS,
    RankOneMembers,
    effective_parameters,
    leaves,
    rank_one_members,
    rank_one_members_of,
    run,
)

from murmuration.core.weights import UnsupportedOp

CONVENTIONS = ["rank-one", "rank-one:bias=own", "rank-one-uv", "rank-one:bias=shared", "rank-one:bias=inside"]
CONVENTIONS += ["rank-one:first=no", "rank-one:last=no", "rank-one:init=rademacher,first=no,last=no"]


def explicit(made: RankOneMembers, own: dict[str, Tensor], shared: dict[str, Tensor], inside: bool) -> Tensor:
    """Outputs (M, B, K) of plain networks."""
    rows = []
    for i in range(len(made.x)):
        buffers = {name: tensor[i] for name, tensor in made.population.buffers.items()}
        parameters = effective_parameters(made, own, shared, i, inside)
        rows.append(functional_call(made.net, {**parameters, **buffers}, (made.x[i],)))
    return torch.stack(rows)


def assert_equal_with_gradients(made: RankOneMembers, mode: str, inside: bool, bound: float = 1e-12) -> None:
    own, shared = leaves(made.population)
    parameters = [*own.values(), *shared.values()]
    found, expected = run(made, own, shared, mode), explicit(made, own, shared, inside)
    torch.testing.assert_close(found, expected, rtol=bound, atol=bound)
    weights = torch.randn(expected.shape, dtype=expected.dtype, generator=torch.Generator().manual_seed(3))
    mine = torch.autograd.grad((weights * found).sum(), parameters, materialize_grads=True)
    theirs = torch.autograd.grad((weights * expected).sum(), parameters, materialize_grads=True)
    for name, a, b in zip([*own, *shared], mine, theirs, strict=True):
        scale = max(1.0, b.abs().max().item())
        assert (a - b).abs().max() <= bound * scale, name


@pytest.mark.parametrize("mode", ["alone", "mapped"])
@pytest.mark.parametrize("text", ["rank-one", "rank-one-uv"])
@pytest.mark.parametrize("layer", LAYERS)
def test_every_linear_operator_equals_networks_with_scaled_kernels(layer: str, text: str, mode: str):
    """Outputs, gradients of factors and biases, and of shared kernels the sum over members."""
    assert_equal_with_gradients(rank_one_members(layer, text), mode, inside=text == "rank-one-uv")


@pytest.mark.parametrize("mode", ["alone", "mapped", "direct"])
@pytest.mark.parametrize("text", CONVENTIONS)
def test_every_convention_on_every_way(text: str, mode: str):
    made = rank_one_members("linear", text)
    assert_equal_with_gradients(made, mode, inside="uv" in text or "inside" in text)
    names = set(made.population.own)
    assert ("0.weight:in" in names) == ("uv" not in text and "first=no" not in text)
    assert ("3.weight:out" in names) == ("uv" not in text and "last=no" not in text)
    assert {"0.weight:out", "3.weight:in"} <= names
    assert ("0.bias" in names) == ("bias=own" in text)
    assert ("3.bias" in names) == ("bias=own" in text or ("bias" not in text and "uv" not in text))


def test_the_original_formula_in_numbers():
    """y = s o ((x o r) W) + b, per member; and with the bias inside, y = s o ((x o r) W + b)."""
    net = nn.Linear(2, 2).double()
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        net.bias.copy_(torch.tensor([10.0, 20.0]))
    x = torch.tensor([[[1.0, 1.0]], [[1.0, 1.0]]], dtype=torch.float64)
    into = torch.tensor([[1.0, 8.0], [-1.0, 1.0]], dtype=torch.float64)
    out = torch.tensor([[2.0, -1.0], [18.0, 64.0]], dtype=torch.float64)
    # (x o r) W is (1 + 16, 3 + 32) for the first member and (-1 + 2, -3 + 4) for the second.
    answers = {"rank-one": [[34 + 10, -35 + 20], [18 + 10, 64 + 20]]}
    answers["rank-one:bias=inside"] = [[2 * 27, -55], [18 * 11, 64 * 21]]
    for text, expected in answers.items():
        made = rank_one_members_of([net, net], text, x)
        own, shared = leaves(made.population)
        for mode in ("alone", "mapped", "direct"):
            found = run(made, {**own, "weight:in": into, "weight:out": out}, shared, mode)[:, 0]
            assert found.tolist() == expected


def test_a_convolution_that_will_be_differentiated_twice_keeps_its_factors():
    made = rank_one_members("conv2d, groups", "rank-one")
    made.x.requires_grad_()
    assert_equal_with_gradients(made, "alone", inside=False)
    own, shared = leaves(made.population)
    found = torch.autograd.grad(run(made, own, shared, "alone").tanh().sum(), made.x, create_graph=True)[0]
    expected = torch.autograd.grad(explicit(made, own, shared, False).tanh().sum(), made.x, create_graph=True)[0]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    parameters = [*own.values(), *shared.values()]
    mine = torch.autograd.grad(found.square().sum(), parameters, materialize_grads=True)
    theirs = torch.autograd.grad(expected.square().sum(), parameters, materialize_grads=True)
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-11)


class Attention(nn.Module):
    """Pixels of one row are a token."""

    def __init__(self, weights: bool = False) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.weights = weights
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.attention(x, x, x, need_weights=self.weights)[0].mean(1))


class Separate(nn.Module):
    """Queries, keys and values of different widths have kernels of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, kdim=3, vdim=2, batch_first=True)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.attention(x, x[..., :3], x[..., 2:])[0].mean(1))


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.randn(3, 4))
        self.layer = nn.TransformerEncoderLayer(4, 2, 6, batch_first=True, dropout=0.0)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x + self.place).mean(1))


class Tied(nn.Module):
    """One kernel in two layers, each with a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).tanh()).mean(1)


class Named(nn.Module):
    """Parameters that are not called weight and bias, given by keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel, self.shift = nn.Parameter(torch.randn(5, 4)), nn.Parameter(torch.randn(5))
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = nn.functional.linear(x, weight=self.kernel, bias=self.shift)
        return self.head(hidden.tanh().mean(1))


@pytest.mark.parametrize("mode", ["alone", "mapped"])
@pytest.mark.parametrize("text", ["rank-one", "rank-one-uv", "rank-one:norm=shared"])
@pytest.mark.parametrize("make", [Attention, lambda: Attention(True), Separate, Encoder, Tied, Named])
def test_modules_of_torch_and_of_others_need_no_edits(make, text: str, mode: str):
    """Bound: attention of float64, whose softmax and norms lose a digit or two."""
    torch.manual_seed(1)
    nets = [make().double() for _ in range(MEMBERS)]
    made = rank_one_members_of(nets, text, torch.randn(MEMBERS, 5, 3, 4, dtype=torch.float64))
    inside = text == "rank-one-uv"
    assert_equal_with_gradients(made, mode, inside, bound=1e-11)


def test_biases_are_those_an_operator_adds_whatever_their_names():
    torch.manual_seed(1)
    x = torch.randn(2, 5, 3, 4, dtype=torch.float64)
    made = rank_one_members_of([Named().double(), Named().double()], "rank-one:bias=own", x)
    assert set(made.population.shared) == {"kernel", "head.weight"}
    assert "shift" in made.population.own
    tied = rank_one_members_of([Tied().double(), Tied().double()], "rank-one:bias=own", x)
    assert {"first.bias", "second.bias"} <= set(tied.population.own)
    inside = rank_one_members_of([Named().double(), Named().double()], "rank-one:bias=inside", x)
    own, shared = leaves(inside.population)
    found = run(inside, own, shared, "mapped")
    for i in range(2):
        into, out = own["kernel:in"][i], own["kernel:out"][i]
        hidden = ((x[i] * into) @ shared["kernel"].T + shared["shift"]) * out
        head = ((hidden.tanh().mean(1) * own["head.weight:in"][i]) @ shared["head.weight"].T + shared["head.bias"]) * (
            own["head.weight:out"][i]
        )
        torch.testing.assert_close(found[i], head, rtol=0, atol=1e-12)


def test_the_direct_way_refuses_what_it_does_not_know_before_it_computes_nonsense():
    for make, shape in ((Attention, (3, 4)), (lambda: nn.Linear(4, 3), (3, 4))):
        torch.manual_seed(1)
        made = rank_one_members_of([make().double() for _ in range(2)], "rank-one", torch.randn(2, 5, *shape).double())
        with pytest.raises((UnsupportedOp, RuntimeError)):
            run(made, *leaves(made.population), "direct")
