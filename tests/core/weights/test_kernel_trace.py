"""What watching a network finds: kernels, biases, dropout, and what is not understood."""

import json

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from murmuration.core.weights import Kernel, KernelTrace, trace_kernels
from murmuration.models.nets import build_net
from murmuration.system.errors import Misuse

LAYERS = [
    (nn.Linear(3, 5), (3,), Kernel("0.weight", 3, 5, biases=("0.bias",))),
    (nn.Conv1d(4, 6, 3, groups=2), (4, 7), Kernel("0.weight", 4, 6, 2, biases=("0.bias",))),
    (nn.Conv2d(4, 8, 3, groups=4, bias=False), (4, 5, 5), Kernel("0.weight", 4, 8, 4)),
    (nn.Conv3d(2, 3, 2), (2, 3, 3, 3), Kernel("0.weight", 2, 3, biases=("0.bias",))),
    (nn.ConvTranspose1d(4, 6, 3), (4, 5), Kernel("0.weight", 4, 6, 1, True, ("0.bias",))),
    (nn.ConvTranspose2d(4, 6, 3, groups=2), (4, 5, 5), Kernel("0.weight", 4, 6, 2, True, ("0.bias",))),
    (nn.ConvTranspose3d(2, 6, 2, groups=2, bias=False), (2, 3, 3, 3), Kernel("0.weight", 2, 6, 2, True)),
]


@pytest.mark.parametrize(("layer", "shape", "kernel"), LAYERS, ids=lambda v: getattr(v, "_get_name", lambda: "")())
def test_a_kernel_is_found_with_its_channels(layer: nn.Module, shape: tuple[int, ...], kernel: Kernel):
    assert trace_kernels(nn.Sequential(layer), torch.zeros(2, *shape)) == KernelTrace((kernel,), final=("0.weight",))


class Crossing(nn.Module):
    """Layers in another order of use than of making, one of them twice, one never: a kernel all the same, the last."""

    def __init__(self) -> None:
        super().__init__()
        self.last, self.unused = nn.Linear(4, 2), nn.Linear(4, 4)
        self.again = nn.Linear(4, 4)
        self.table = nn.Embedding(7, 4)
        self.start = nn.Parameter(torch.zeros(4, 4))
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        h = self.table(x.long().abs() % 7).mean(1) + self.start.sum(0)
        return self.last(self.drop(self.again(self.again(h))))


def test_kernels_are_in_the_order_of_their_first_use():
    net = Crossing()
    net.train()
    found = trace_kernels(net, torch.ones(2, 3))
    assert found.names == ("again.weight", "last.weight", "unused.weight")
    assert found.last == ("last.weight",)
    assert found.has_dropout
    assert net.training
    assert found.unsupported == ()


def test_products_inside_an_embedding_are_no_kernels():
    net = build_net("mlp:hidden=5,embed=piecewise-relu,size=2", (3,), 1, edges=((0.0, 1.0, 2.0), (), (0.0, 1.0)))
    found = trace_kernels(net, torch.zeros(4, 3))
    assert found.names == ("body.1.weight", "head.weight")
    assert found.unsupported == ()
    assert dict(found.kinds)["body.embedding.weight"] == "embedding"
    net.body.embedding.is_embedding = False
    assert [name for name, _ in trace_kernels(net, torch.zeros(4, 3)).unsupported] == ["body.embedding.weight"]


def test_a_network_is_left_as_it_was():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    before, state = {k: v.clone() for k, v in net.state_dict().items()}, torch.get_rng_state()
    trace_kernels(net, torch.randn(5, 3, generator=torch.Generator().manual_seed(0)))
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())


def test_dropout_of_nothing_is_no_dropout():
    assert not trace_kernels(nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.0)), torch.zeros(2, 3)).has_dropout
    assert trace_kernels(nn.Sequential(nn.Conv1d(3, 4, 1), nn.Dropout1d(0.1)), torch.zeros(2, 3, 5)).has_dropout


def test_attention_has_its_kernels_and_biases():
    class Attending(nn.Module):
        def __init__(self, **widths: int) -> None:
            super().__init__()
            self.part = nn.MultiheadAttention(4, 2, batch_first=True, **widths)

        def forward(self, x: Tensor) -> Tensor:
            return self.part(x, x[..., : self.part.kdim], x[..., : self.part.vdim])[0]

    together = trace_kernels(Attending(), torch.zeros(2, 3, 4))
    assert together.kernels == (
        Kernel("part.in_proj_weight", 4, 12, biases=("part.in_proj_bias",)),
        Kernel("part.out_proj.weight", 4, 4, biases=("part.out_proj.bias",)),
    )
    apart = trace_kernels(Attending(kdim=3, vdim=2), torch.zeros(2, 3, 4))
    assert [(each.name, each.inputs) for each in apart.kernels] == [
        ("part.q_proj_weight", 4),
        ("part.k_proj_weight", 3),
        ("part.v_proj_weight", 2),
        ("part.out_proj.weight", 4),
    ]


class Multiplying(nn.Module):
    """A parameter multiplied in a way of its own."""

    def __init__(self, how) -> None:
        super().__init__()
        self.matrix, self.how = nn.Parameter(torch.randn(4, 4)), how
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.how(x, self.matrix))


WAYS = {
    "a product": (lambda x, w: x @ w, "torch.Tensor.matmul"),
    "matmul": (torch.matmul, "torch.matmul"),
    "einsum": (lambda x, w: torch.einsum("bi,ij->bj", x, w), "torch.functional.einsum"),
    "a transpose": (lambda x, w: x @ w.t(), "torch.Tensor.matmul after other operators"),
    "a property": (lambda x, w: x @ w.T, "torch.Tensor.matmul after other operators"),
    "a part": (lambda x, w: F.linear(x, w[:4]), "torch.nn.functional.linear after other operators"),
    "two of them": (lambda x, w: F.linear(x, w * w.t()), "torch.nn.functional.linear after other operators"),
    "torch.linalg": (torch.linalg.matmul, "torch.linalg.matmul"),
    "a product and a sum": (lambda x, w: (x[:, :, None] * w).sum(1), "torch.Tensor.mul"),
    "a sum with activations": (
        lambda x, w: F.linear(x, w + x.mean()),
        "torch.nn.functional.linear after other operators",
    ),
    "distances": (torch.cdist, "torch.functional.cdist"),
    "chunks": (lambda x, w: x[:, :2] @ w.chunk(2)[0], "torch.Tensor.matmul after other operators"),
    "keywords": (lambda x, w: torch.matmul(input=x, other=w), "torch.matmul"),
}


@pytest.mark.parametrize("mode", WAYS)
def test_a_parameter_multiplied_otherwise_is_named_with_its_operator(mode: str):
    how, operator = WAYS[mode]
    found = trace_kernels(Multiplying(how), torch.randn(2, 4))
    assert found.unsupported == (("matrix", operator),)
    with pytest.raises(Misuse) as caught:
        found.require_supported()
    assert f"'matrix' is multiplied by {operator}, which this recipe cannot act on" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("make", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_are_not_overlooked(make):
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = make(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.part(x)[0][-1]

    names = [name for name, _ in trace_kernels(Recurrent(), torch.zeros(5, 2, 4)).unsupported]
    assert names == ["part.weight_ih_l0", "part.weight_hh_l0"]
    cell = {nn.LSTM: nn.LSTMCell, nn.GRU: nn.GRUCell, nn.RNN: nn.RNNCell}[make]
    assert [name for name, _ in trace_kernels(cell(4, 3), torch.zeros(2, 4)).unsupported] == ["weight_ih", "weight_hh"]


def test_a_kernel_made_of_others_is_not_overlooked():
    found = trace_kernels(nn.Sequential(weight_norm(nn.Linear(4, 3)), nn.Linear(3, 2)), torch.zeros(2, 4))
    assert [name for name, _ in found.unsupported] == [f"0.parametrizations.weight.original{i}" for i in (0, 1)]
    assert found.names == ("1.weight",)


def test_learned_inputs_are_no_kernels():
    """Queries that a network learns go through layers as inputs do; products of activations have no kernel."""

    class Asking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.queries, self.layer = nn.Parameter(torch.randn(3, 4)), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return (self.layer(self.queries) @ self.layer(x).transpose(1, 2)).softmax(-1)

    assert trace_kernels(Asking(), torch.zeros(2, 5, 4)).unsupported == ()


def test_a_trace_survives_json():
    found = trace_kernels(
        nn.Sequential(nn.Conv1d(4, 6, 3, groups=2), nn.Dropout(), nn.ConvTranspose1d(6, 2, 2)), torch.zeros(1, 4, 7)
    )
    again = KernelTrace.from_json(json.loads(json.dumps(found.to_json())))
    assert again == found
    strange = KernelTrace((), unsupported=(("a", "b"),))
    assert KernelTrace.from_json(json.loads(json.dumps(strange.to_json()))) == strange
    assert KernelTrace.from_json(None) == KernelTrace(())


def test_the_matrix_of_factors_in_numbers():
    """Two groups: rows 0, 1 meet inputs 0, 1 and rows 2, 3 meet inputs 2, 3; transposed the other way round."""
    into, out = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([1.0, 10.0, 100.0, 1000.0])
    like = torch.zeros(4, 2, 1)
    plain = Kernel("k", 4, 4, 2).matrix(into, out, like)
    assert plain is not None
    assert plain[..., 0].tolist() == [[1, 2], [10, 20], [300, 400], [3000, 4000]]
    turned = Kernel("k", 4, 4, 2, transposed=True).matrix(into, out, like)
    assert turned is not None
    assert turned[..., 0].tolist() == [[1, 10], [2, 20], [300, 3000], [400, 4000]]
    assert Kernel("k", 4, 4).matrix(None, None, like) is None
    only = Kernel("k", 4, 4, 2).matrix(into, None, like)
    assert only is not None
    assert only[..., 0].tolist() == [[1, 2], [1, 2], [3, 4], [3, 4]]
