"""Tiny networks as users write them, one for each way in which a module can differ from a stack of plain layers.

`NETWORKS` is the table: a factory, the data it takes and what is special about it. `contract.py` trains each of them by
every preset; a test of one finding imports the network it needs: `from networks import NETWORKS, data_for`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune

from murmuration.data import Data, open_data
from murmuration.models.nets import build_net

CLASSES = 3
ROWS = 60


@dataclass(frozen=True)
class Network:
    """A factory, the name of its inputs in `INPUTS`, and what is special about it."""

    build: Callable[[], nn.Module]
    inputs: str
    special: str
    no_kernels: tuple[str, ...] = ()  # parameters of two axes or more that no linear operator multiplies inputs by
    twin: Callable[[], nn.Module] | None = None  # the same function and initial weights written plainly
    output: str | None = None  # which part of what it returns are the logits


def _inputs(name: str, rows: int = ROWS) -> tuple[Any, Tensor, dict[str, Any]]:
    """Inputs, classes (N,) and the keywords of `open_data`; every class depends on the inputs."""
    rng = torch.Generator().manual_seed(0)
    table = torch.randn(rows, 6, generator=rng)
    y = (table[:, 0] > 0).long() + (table[:, 1] > 0.3).long()
    shift = (y.float() - 1).view(-1, 1, 1, 1)
    if name == "table":
        return table, y, {}
    if name == "images":  # (N, 3, 8, 8)
        return torch.randn(rows, 3, 8, 8, generator=rng) + shift, y, {"inputs": "numbers"}
    if name == "series":  # (N, 4, 6): channels, time
        return torch.randn(rows, 4, 6, generator=rng) + shift[..., 0], y, {"inputs": "numbers"}
    if name == "volumes":  # (N, 1, 4, 4, 4)
        return torch.randn(rows, 1, 4, 4, 4, generator=rng) + shift[..., None], y, {"inputs": "numbers"}
    if name == "tokens":  # (N, 5): indices below 12
        return torch.randint(0, 4, (rows, 5), generator=rng) + 4 * y[:, None], y, {"inputs": "tokens"}
    assert name == "two"
    return (table[:, :4], torch.randn(rows, 4, generator=rng)), y, {}


@cache
def data_for(name: str) -> Data:
    """The data of a network's inputs, split and prepared."""
    x, y, options = _inputs(name)
    return open_data((x, y), **options)


# Convolutions and norms


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, 2, 1), nn.Conv2d(2, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.up(F.relu(self.down(x.mean((2, 3), keepdim=True)))))


class Residual(nn.Module):
    """Batch, group and layer norms, depthwise and grouped convolutions, squeeze-and-excite, a skip connection."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.depthwise = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.GroupNorm(2, 8))
        self.grouped, self.excite = nn.Conv2d(8, 8, 1, groups=2), SqueezeExcite(8)
        self.norm, self.out = nn.LayerNorm(8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        h = h + self.excite(self.grouped(F.relu(self.depthwise(h))))
        return self.out(self.norm(h.mean((2, 3))))


def residual_parts() -> nn.Module:
    """The same as two parts, body and head."""
    whole = Residual()
    head, whole.out = whole.out, nn.Identity()
    network = nn.Sequential()
    network.add_module("body", whole)
    network.add_module("head", head)
    return network


def conv1d() -> nn.Module:
    body = [nn.Conv1d(4, 8, 3, padding=1), nn.BatchNorm1d(8), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten()]
    return nn.Sequential(*body, nn.Linear(8, CLASSES))


def conv3d() -> nn.Module:
    body = [nn.Conv3d(1, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten()]
    return nn.Sequential(*body, nn.Linear(4, CLASSES))


def transposed() -> nn.Module:
    body = [nn.Conv2d(3, 4, 3, stride=2), nn.ReLU(), nn.ConvTranspose2d(4, 4, 3), nn.ReLU(), nn.Flatten(2)]
    return nn.Sequential(*body, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4, CLASSES))


class DropPath(nn.Module):
    """Whole residual branches dropped at random in training (stochastic depth), written with torch.rand."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        keep = torch.rand(len(x), *[1] * (x.ndim - 1)) >= self.p
        return x * keep / (1 - self.p)


class WithDropPath(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.inner, self.head = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, CLASSES)
        self.drop = DropPath(0.3)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.stem(x))
        return self.head(h + self.drop(F.relu(self.inner(h))))


class OwnDropout(nn.Module):
    """Dropout of a kind that has no torch layer of the usual name: alpha dropout, and the function torch.dropout."""

    def __init__(self, alpha: bool) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(6, 8), nn.Linear(8, CLASSES)
        self.drop = nn.AlphaDropout(0.3) if alpha else None

    def forward(self, x: Tensor) -> Tensor:
        h = torch.selu(self.stem(x))
        return self.head(torch.dropout(h, 0.3, self.training) if self.drop is None else self.drop(h))


# Attention


class Attention(nn.Module):
    """nn.MultiheadAttention over the columns of a table; with `kdim`, keys and values of another width.

    `also` is the probability of a dropout layer, which hides that the dropout of attention may be off.
    """

    def __init__(self, dropout: float = 0.0, kdim: bool = False, also: float = 0.0) -> None:
        super().__init__()
        widths = {"kdim": 1, "vdim": 1} if kdim else {}
        self.embed, self.head = nn.Linear(1, 8), nn.Linear(8, CLASSES)
        self.attention = nn.MultiheadAttention(8, 2, dropout=dropout, batch_first=True, **widths)
        self.drop = nn.Dropout(also) if also else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        x = x.unsqueeze(-1)
        h = self.embed(x)
        keys = x if self.attention.kdim == 1 else h
        return self.head(self.drop(h + self.attention(h, keys, keys)[0]).mean(1))


class Encoder(nn.Module):
    """nn.TransformerEncoder; over the columns of a table, or over tokens with an embedding."""

    def __init__(self, dropout: float = 0.0, tokens: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 8) if tokens else nn.Linear(1, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=dropout, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head, self.tokens = nn.Linear(8, CLASSES), tokens

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(self.embed(x if self.tokens else x.unsqueeze(-1))).mean(1))


class VisionTransformer(nn.Module):
    """One block by hand: patches, a class token, positions; attention by sdpa or by einsum on weights."""

    def __init__(self, dropout: float = 0.0, einsum: bool = False) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, stride=4)
        self.token, self.position = nn.Parameter(torch.zeros(1, 1, 8)), nn.Parameter(torch.randn(1, 5, 8) * 0.02)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, CLASSES)
        self.dropout, self.einsum = dropout, einsum
        if einsum:
            self.kernel = nn.Parameter(torch.randn(3, 8, 8) * 0.3)
        else:
            self.kernels = nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Tensor:
        h = self.patches(x).flatten(2).transpose(1, 2)  # (N, 4, 8)
        h = torch.cat([self.token.expand(len(h), -1, -1), h], dim=1) + self.position
        normed = self.norm(h)
        if self.einsum:
            q, k, v = torch.einsum("ntd,jde->jnte", normed, self.kernel)
            mixed = (q @ k.transpose(1, 2) / 8**0.5).softmax(-1) @ v
        else:
            q, k, v = self.kernels(normed).chunk(3, dim=-1)
            p = self.dropout if self.training else 0.0
            mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=p)
        return self.head((h + mixed)[:, 0])


class LearnedQuery(nn.Module):
    """Attention pooling: the query is a parameter, given to sdpa without a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(1, 8), nn.Linear(8, CLASSES)
        self.query = nn.Parameter(torch.randn(1, 2, 8))

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.embed(x.unsqueeze(-1)))
        query = self.query.expand(len(h), -1, -1)
        return self.head(F.scaled_dot_product_attention(query, h, h).mean(1))


# Sequences and tokens


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], **options: Any) -> None:
        super().__init__()
        self.recurrent, self.head = kind(4, 6, batch_first=True, **options), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.recurrent(x.transpose(1, 2))[0][:, -1])


def embedded() -> nn.Module:
    return nn.Sequential(nn.Embedding(12, 4), nn.Flatten(), nn.Linear(20, 8), nn.ReLU(), nn.Linear(8, CLASSES))


# Kernels that are not a layer's plain weight


class Tied(nn.Module):
    """One kernel used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.first, self.head = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, CLASSES)
        self.second = self.first

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.second(torch.tanh(self.first(torch.tanh(self.stem(x)))))))


def normed(norm: Callable[[nn.Module], nn.Module]) -> nn.Module:
    """Two hidden layers under a parametrisation, and a plain head."""
    return nn.Sequential(norm(nn.Linear(6, 8)), nn.ReLU(), norm(nn.Linear(8, 8)), nn.ReLU(), nn.Linear(8, CLASSES))


class MaskedLinear(nn.Module):
    """A kernel multiplied by a buffer before use, as in MADE and sparse networks."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(6, 8), nn.Linear(8, CLASSES)
        self.register_buffer("mask", (torch.arange(48).view(8, 6) % 3 > 0).float())

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(F.linear(x, self.stem.weight * self.mask, self.stem.bias)))


class Product(nn.Module):
    """A kernel applied by torch.linalg.matmul, or elementwise with a sum."""

    def __init__(self, elementwise: bool) -> None:
        super().__init__()
        self.kernel, self.head = nn.Parameter(torch.randn(6, 8) * 0.3), nn.Linear(8, CLASSES)
        self.elementwise = elementwise

    def forward(self, x: Tensor) -> Tensor:
        h = (x[:, :, None] * self.kernel).sum(1) if self.elementwise else torch.linalg.matmul(x, self.kernel)
        return self.head(torch.tanh(h))


class Pruned(nn.Module):
    """A layer pruned by torch.nn.utils.prune: `weight_orig` is the parameter, `weight_mask` a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(6, 8), nn.Linear(8, CLASSES)
        prune.l1_unstructured(self.stem, "weight", amount=0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.stem(x)))


# Control flow


class Branch(nn.Module):
    """One of two layers, chosen by the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.low, self.high, self.head = nn.Linear(6, 8), nn.Linear(6, 8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.low(x) if x.mean() < 0 else self.high(x)))


class Experts(nn.Module):
    """A mixture of experts: every row goes through the expert that the gate prefers."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.head = nn.Linear(6, 4), nn.Linear(8, CLASSES)
        self.experts = nn.ModuleList(nn.Linear(6, 8) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        gates = self.gate(x).softmax(-1)
        chosen = gates.argmax(-1)
        h = x.new_zeros(len(x), 8)
        for index in chosen.unique().tolist():
            rows = (chosen == index).nonzero().flatten()
            h = h.index_put((rows,), gates[rows, index, None] * self.experts[index](x[rows]))
        return self.head(torch.tanh(h))


class TrainingOnly(nn.Module):
    """A layer that is used in training mode alone."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.extra, self.head = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.stem(x))
        return self.head(h + 0.1 * torch.tanh(self.extra(h)) if self.training else h)


class Gated(nn.Module):
    """A gate that is used after the head: the head is not the last kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head, self.gate = nn.Linear(6, 8), nn.Linear(8, CLASSES), nn.Linear(6, 1)

    def forward(self, x: Tensor) -> Tensor:
        outputs = self.head(torch.tanh(self.stem(x)))
        return outputs * torch.sigmoid(self.gate(x))


class Checkpointed(nn.Module):
    """Activation checkpointing: the hidden layer runs again in the backward pass."""

    def __init__(self, active: bool = True) -> None:
        super().__init__()
        self.active = active
        self.stem, self.inner, self.head = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.stem(x))
        if not self.active:
            return self.head(torch.tanh(self.inner(h)))
        return self.head(torch.utils.checkpoint.checkpoint(lambda h: torch.tanh(self.inner(h)), h, use_reentrant=False))


# State: frozen parts, plain attributes, overrides of train(), inputs edited in place


class Frozen(nn.Module):
    """A body with requires_grad=False, the same for all members."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(1)
            self.body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh()).requires_grad_(False)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


class FrozenNorm(nn.Module):
    """A batch-norm that train() keeps in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm, self.head = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, CLASSES)

    def train(self, mode: bool = True) -> "FrozenNorm":
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.norm(self.stem(x))))


class PlainAttribute(nn.Module):
    """Random features in a tensor that is neither a parameter nor a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.features, self.head = torch.randn(6, 16), nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.cos(x @ self.features))


class EditsInput(nn.Module):
    """The input is overwritten by the forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(6, 8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.stem(x.sub_(1.0).div_(2.0))))


class OwnInitialisation(nn.Module):
    """Kernels drawn in __init__ by another rule than reset_parameters: Kaiming, and zeros in the head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(6, 16), nn.Linear(16, CLASSES)
        nn.init.kaiming_normal_(self.stem.weight)
        nn.init.zeros_(self.head.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.stem(x)))


# Inputs and outputs of other kinds


class OtherOutput(nn.Module):
    """Outputs in a container: a tuple, a dict, or an object with `.logits`."""

    def __init__(self, wrap: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.stem, self.head, self.wrap = nn.Linear(6, 8), nn.Linear(8, CLASSES), wrap

    def forward(self, x: Tensor) -> Any:
        h = torch.tanh(self.stem(x))
        return self.wrap(self.head(h), h)


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.head = nn.Linear(4, 8), nn.Linear(4, 8), nn.Linear(16, CLASSES)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return self.head(torch.tanh(torch.cat([self.left(a), self.right(b)], dim=1)))


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, CLASSES))


def compiled() -> nn.Module:
    return torch.compile(plain(), backend="eager")


def logits_of(outputs: Tensor, features: Tensor) -> SimpleNamespace:
    return SimpleNamespace(logits=outputs, features=features)


POSITIONS = ("token", "position")
NETWORKS: dict[str, Network] = {
    "plain": Network(plain, "table", "a stack of dense layers"),
    "linear": Network(partial(nn.Linear, 6, CLASSES), "table", "one kernel"),
    "residual": Network(Residual, "images", "batch, group and layer norms, depthwise and grouped convs, SE"),
    "residual-parts": Network(residual_parts, "images", "the same as body and head"),
    "conv1d": Network(conv1d, "series", "Conv1d, batch-norm"),
    "conv3d": Network(conv3d, "volumes", "Conv3d"),
    "transposed": Network(transposed, "images", "ConvTranspose2d"),
    "drop-path": Network(WithDropPath, "table", "stochastic depth by torch.rand"),
    "alpha-dropout": Network(partial(OwnDropout, alpha=True), "table", "nn.AlphaDropout"),
    "functional-dropout": Network(partial(OwnDropout, alpha=False), "table", "torch.dropout"),
    "mha": Network(Attention, "table", "nn.MultiheadAttention"),
    "mha-dropout": Network(partial(Attention, dropout=0.2), "table", "nn.MultiheadAttention(dropout=0.2)"),
    "mha-two-dropouts": Network(
        partial(Attention, dropout=0.5, also=1e-9), "table", "attention with dropout beside an inactive nn.Dropout"
    ),
    "mha-kdim": Network(partial(Attention, kdim=True), "table", "nn.MultiheadAttention(kdim, vdim)"),
    "encoder": Network(partial(Encoder, dropout=0.1), "table", "nn.TransformerEncoder, dropout 0.1"),
    "encoder-tokens": Network(
        partial(Encoder, tokens=True), "tokens", "nn.TransformerEncoder on an embedding", ("embed.weight",)
    ),
    "vit": Network(VisionTransformer, "images", "sdpa, class token, positions", POSITIONS),
    "vit-dropout": Network(partial(VisionTransformer, dropout=0.2), "images", "sdpa(dropout_p=0.2)", POSITIONS),
    "vit-einsum": Network(partial(VisionTransformer, einsum=True), "images", "kernels used by einsum", POSITIONS),
    "learned-query": Network(LearnedQuery, "table", "a parameter as the query of sdpa"),
    "lstm": Network(partial(Recurrent, nn.LSTM), "series", "nn.LSTM"),
    "gru": Network(partial(Recurrent, nn.GRU), "series", "nn.GRU"),
    "lstm-dropout": Network(partial(Recurrent, nn.LSTM, num_layers=2, dropout=0.2), "series", "two layers, dropout"),
    "embedding": Network(embedded, "tokens", "nn.Embedding of integer tokens", ("0.weight",)),
    "tied": Network(Tied, "table", "one kernel used twice"),
    "weight-norm": Network(partial(normed, parametrizations.weight_norm), "table", "weight_norm"),
    "spectral-norm": Network(partial(normed, parametrizations.spectral_norm), "table", "spectral_norm"),
    "masked-linear": Network(MaskedLinear, "table", "a kernel times a buffer"),
    "matmul": Network(partial(Product, elementwise=False), "table", "torch.linalg.matmul(x, w)"),
    "elementwise": Network(partial(Product, elementwise=True), "table", "(x * w).sum"),
    "pruned": Network(Pruned, "table", "torch.nn.utils.prune"),
    "branch": Network(Branch, "table", "a layer chosen by the batch"),
    "experts": Network(Experts, "table", "rows routed to experts"),
    "training-only": Network(TrainingOnly, "table", "a layer used in training mode alone"),
    "gated": Network(Gated, "table", "a gate after the head"),
    "checkpointed": Network(
        Checkpointed, "table", "activation checkpointing", twin=partial(Checkpointed, active=False)
    ),
    "frozen": Network(Frozen, "table", "requires_grad=False, with batch-norm"),
    "frozen-norm": Network(FrozenNorm, "table", "batch-norm kept in evaluation mode by train()"),
    "plain-attribute": Network(PlainAttribute, "table", "a random tensor that is no buffer"),
    "edits-input": Network(EditsInput, "table", "x.sub_(m).div_(s)"),
    "own-initialisation": Network(OwnInitialisation, "table", "kernels drawn in __init__"),
    "tuple-output": Network(partial(OtherOutput, lambda o, h: (o, h)), "table", "a tuple"),
    "dict-output": Network(partial(OtherOutput, lambda o, h: {"logits": o, "h": h}), "table", "a dict"),
    "object-output": Network(partial(OtherOutput, logits_of), "table", "an object with .logits"),
    "two-inputs": Network(TwoInputs, "two", "forward(a, b)"),
    "double": Network(lambda: plain().double(), "table", "float64 weights"),
    "bfloat16": Network(lambda: plain().bfloat16(), "table", "bfloat16 weights"),
    "lazy": Network(lambda: nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.Linear(8, CLASSES)), "table", "LazyLinear"),
    "script": Network(lambda: torch.jit.script(plain()), "table", "torch.jit.script", twin=plain),
    "compiled": Network(compiled, "table", "torch.compile(backend='eager')", twin=plain),
}


# Networks of other libraries, built from their configurations; their extras are not needed by the other tests


def of_timm(name: str, **settings: Any) -> nn.Module:
    import timm

    net: nn.Module = timm.create_model(name, num_classes=CLASSES, **settings)
    return net


def of_transformers(config: str, model: str, **settings: Any) -> nn.Module:
    import transformers

    tiny = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    made = getattr(transformers, config)(**tiny, num_labels=CLASSES, **settings)
    net: nn.Module = getattr(transformers, model)(made)
    return net


BERT = "hidden_size=8,num_hidden_layers=1,num_attention_heads=2,intermediate_size=16"
TIMM, HF = partial(partial, of_timm), partial(partial, of_transformers)
EMBEDDINGS = tuple(f"bert.embeddings.{name}_embeddings.weight" for name in ("word", "position", "token_type"))
VIT = tuple(f"vit.embeddings.{name}" for name in ("cls_token", "position_embeddings"))
OTHERS: dict[str, dict[str, Network]] = {  # library -> its networks
    "timm": {
        "timm-resnet": Network(TIMM("test_resnet"), "images", "timm: ResNet"),
        "timm-efficientnet": Network(TIMM("test_efficientnet"), "images", "timm: EfficientNet"),
        "timm-nfnet": Network(TIMM("test_nfnet"), "images", "timm: weight standardisation"),
        "timm-mambaout": Network(TIMM("test_mambaout"), "images", "timm: gated convolutions, layer norm"),
        "timm-vit": Network(
            TIMM("test_vit", img_size=8, patch_size=4, embed_dim=16, depth=2, num_heads=2, drop_path_rate=0.2),
            "images",
            "timm: vision transformer, stochastic depth",
            ("pos_embed", "cls_token"),
        ),
    },
    "transformers": {
        "hf-bert": Network(
            HF("BertConfig", "BertForSequenceClassification", vocab_size=12),
            "tokens",
            "transformers: BERT",
            EMBEDDINGS,
            output="logits",
        ),
        "hf-bert-parts": Network(
            partial(build_net, f"hf:bert:vocab_size=12,{BERT}", (5,), CLASSES),
            "tokens",
            "the same by name, as body and head",
            tuple(f"body.logits.net.{name}" for name in EMBEDDINGS),
        ),
        "hf-vit": Network(
            HF("ViTConfig", "ViTForImageClassification", image_size=8, patch_size=4),
            "images",
            "transformers: vision transformer",
            VIT,
            output="logits",
        ),
    },
}
