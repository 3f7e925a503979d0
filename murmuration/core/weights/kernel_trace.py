"""The kernels of a network, found by tracing its forward passes over a batch, in evaluation and in training mode.

A kernel is a parameter that a linear operator multiplies its input by: `linear`, convolutions of any dimension and
their transposes, and the projections inside torch's multi-head attention. Rank-one factors, masks and standard
deviations belong to kernels, in the order of their first use: in the evaluation pass, in the training pass, then the
layers that neither reached, such as experts that no example of the batch was routed to.

The trace follows every tensor to the parameters, buffers and inputs that it was computed from. A parameter of two axes
or more that meets activations in an operator that is neither linear, an embedding, a norm nor a sum is `unsupported`,
and so is one that no operator of the passes has seen: nothing is left out in silence. Products inside a module with an
attribute `is_embedding` are embeddings: of numbers, tables with interpolation between their rows.
"""

import copy
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from inspect import signature
from traceback import walk_stack
from typing import Any

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils.weak import WeakIdKeyDictionary

from murmuration.core.weights.dropout_masks import RANDOM, dropout_rate
from murmuration.system.errors import Misuse
from murmuration.system.records import from_json
from murmuration.system.streams import kept_generators

# Operator -> axes behind the channel of its input, transposed or not.
LINEARS: dict[Callable, tuple[int, bool]] = {F.linear: (0, False)}
LINEARS |= {torch.conv1d: (1, False), torch.conv2d: (2, False), torch.conv3d: (3, False)}
LINEARS |= {torch.conv_transpose1d: (1, True), torch.conv_transpose2d: (2, True), torch.conv_transpose3d: (3, True)}
PROJECTIONS = ("in_proj", "q_proj", "k_proj", "v_proj", "out_proj")  # of torch's attention
NORM_LAYERS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)

# Operators by the names of their functions and methods, without underscores: torch.add, Tensor.add_, Tensor.__radd__.
JOINS = {"add", "radd", "iadd", "sub", "rsub", "isub", "cat", "concat", "concatenate", "stack", "hstack", "vstack"}
JOINS |= {"where", "setitem", "copy", "index_put", "index_add", "index_copy", "masked_fill", "masked_scatter"}
JOINS |= {"scatter", "scatter_add", "expand_as", "view_as", "reshape_as", "type_as", "to", "zeros_like", "ones_like"}
JOINS |= {"empty_like", "full_like", "rand_like", "randn_like", "new_zeros", "new_ones", "new_empty", "new_full"}
TABLES = {"embedding", "embedding_bag"}
LOOKUPS = TABLES | {"index_select", "gather", "take", "take_along_dim", "getitem"}
NORMS = {"layer_norm", "batch_norm", "group_norm", "instance_norm", "rms_norm", "native_layer_norm"}
PRODUCTS = {"matmul", "rmatmul", "mm", "bmm", "mv", "einsum", "addmm", "baddbmm", "addbmm", "addmv", "bilinear"}
PRODUCTS |= {"tensordot", "inner", "outer", "ger", "dot", "vdot", "multi_dot", "chain_matmul", "kron", "cdist"}
PRODUCTS |= {"lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"}
PRODUCTS |= {"scaled_dot_product_attention"}
SCALINGS = {"mul", "rmul", "imul", "multiply", "div", "truediv", "itruediv", "divide", "true_divide", "neg"}
COPIES = {"to", "type", "float", "double", "half", "bfloat16", "contiguous", "clone", "detach"}
POINTWISE = {"add", "radd", "sub", "rsub", "rtruediv", "clamp", "clip", "abs", "sign", "square", "sqrt", "exp", "tanh"}
POINTWISE |= {"sigmoid", "softplus", "relu", "round", "where", "masked_fill", "hardtanh", "pow", "maximum", "minimum"}

FORMS = ("plain", "masked", "function")  # of kernels
# The kinds of parameters.
KERNEL, BIAS, EMBEDDING, NORM, ADDED = "kernel", "bias", "embedding", "norm", "added"
INPUT, SCALE, OTHER, UNUSED = "input", "scale", "other", "unused"


@dataclass(frozen=True)
class Kernel:
    """A parameter that a linear operator multiplies its input by.

    Attributes:
        name: Name of the parameter.
        inputs: Input channels.
        outputs: Output channels.
        groups: Groups of a convolution.
        transposed: Whether it belongs to a transposed convolution.
        biases: Parameters added to its outputs; several if layers are tied.
        positions_per_channel: Adjacent inputs of one channel, if images were flattened before the kernel.
        trained: Whether `requires_grad` is true.
        form: "plain", "masked" (multiplied by constants before use) or "function" (transformed otherwise before use).
    """

    name: str
    inputs: int
    outputs: int
    groups: int = 1
    transposed: bool = False
    biases: tuple[str, ...] = ()
    positions_per_channel: int = 1
    trained: bool = True
    form: str = "plain"

    @property
    def channels(self) -> int:
        """Input channels; the positions of a flattened image count as one channel."""
        return self.inputs // self.positions_per_channel

    def matrix(self, into: Tensor | None, out: Tensor | None, like: Tensor) -> Tensor | None:
        """Return a factor that scales the channels of a kernel: inputs by `into` (C_in,), outputs by `out` (C_out,).

        It broadcasts to the kernel `like`, and is None if neither is scaled.

        A kernel is (outputs, inputs / groups, ...), a transposed one (inputs, outputs / groups, ...).
        """
        into = None if into is None else repeat_channels(into, self.inputs)
        behind = (1,) * (like.dim() - 2)
        rows, columns = (into, out) if self.transposed else (out, into)
        scale = None if rows is None else rows.reshape(-1, 1, *behind)
        if columns is None:
            return scale
        rows_per_group = len(like) // self.groups  # each row meets the columns of its group
        wide = columns.reshape(self.groups, 1, -1).expand(-1, rows_per_group, -1).reshape(len(like), -1, *behind)
        return wide if scale is None else scale * wide


@dataclass(frozen=True)
class KernelTrace:
    """The kernels of a network, and other properties that recipes depend on.

    Attributes:
        kernels: Kernels in the order of their first use.
        has_dropout: Whether training mode drops activations at random: dropout, attention, DropPath.
        unsupported: (parameter, operator) pairs that cannot be intercepted; the operator is "" if none was recorded.
        biases: Biases that belong to no single kernel, as in attention.
        final: Parameters of the linear operators whose results are the network's outputs.
        side_by_side: Whether each of these computes a part of the outputs.
        random_modules: Modules that are random in training mode only.
        training_effect: What else training mode would change in one of them; "" for nothing.
        recomputed: Parameters, and "dropout", inside torch.utils.checkpoint.
        kinds: (parameter, kind) pairs of all parameters.
    """

    kernels: tuple[Kernel, ...]
    has_dropout: bool = False
    unsupported: tuple[tuple[str, str], ...] = ()
    biases: tuple[str, ...] = ()
    final: tuple[str, ...] = ()
    side_by_side: bool = False
    random_modules: tuple[str, ...] = ()
    training_effect: str = ""
    recomputed: tuple[str, ...] = ()
    kinds: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all kernels."""
        return tuple(kernel.name for kernel in self.kernels)

    @property
    def trained(self) -> tuple[str, ...]:
        """The names of the kernels that are trained."""
        return tuple(kernel.name for kernel in self.kernels if kernel.trained)

    @property
    def last(self) -> tuple[str, ...]:
        """The kernels that compute the outputs; if unknown, the kernel that was used last."""
        return tuple(name for name in self.final if name in self.names) or self.names[-1:]

    def require_supported(self, instead: str = "choose a recipe with sharing own and weights point") -> "KernelTrace":
        """Return this trace; raise Misuse if a parameter is multiplied by an operator that cannot be intercepted."""
        for name, operator in self.unsupported:
            used = f"is multiplied by {operator}" if operator else "is in no operator that a pass over the batch shows"
            raise Misuse(
                f"'{name}' {used}, which this recipe cannot act on: write torch.nn.Linear or"
                f" torch.nn.functional.linear in the net, or {instead}"
            )
        return self

    def require_once(self, names: Iterable[str], what: str) -> "KernelTrace":
        """Return this trace; raise Misuse if one of these is recomputed in the backward pass, without interception."""
        for name in sorted(set(names) & set(self.recomputed)):
            raise Misuse(
                f"'{name}' inside torch.utils.checkpoint: the backward pass computes it again, without {what}; switch"
                " activation checkpointing off in the net"
            )
        return self

    def require_scalable(self, recipe: str) -> "KernelTrace":
        """Return this trace; raise Misuse if factors cannot be multiplied into one of the kernels."""
        for kernel in self.kernels:
            if kernel.form == "function" and kernel.trained:
                raise Misuse(
                    f"'{kernel.name}' is normalised or transformed before use, so {recipe} would not scale its"
                    " channels: leave that out of the net (spectral_norm, weight standardisation), or write sharing own"
                )
        return self

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(record: dict[str, Any] | None) -> "KernelTrace":
        """Return the trace of a manifest; None stands for a recipe that needs no kernels."""
        return KernelTrace(()) if record is None else from_json(record, KernelTrace, "record of kernels", (Kernel,))


def repeat_channels(values: Tensor, width: int) -> Tensor:
    """Repeat values (..., C) per channel for the adjacent positions of each channel: (..., width).

    >>> repeat_channels(torch.tensor([1.0, 2.0]), 4)
    tensor([1., 1., 2., 2.])
    """
    count = values.shape[-1]
    return values if count == width else values.unsqueeze(-1).expand(*values.shape, width // count).flatten(-2)


def fan_in(shape: tuple[int, ...], kernel: Kernel | None = None) -> int:
    """Return the number of inputs of one output of a kernel of shape (outputs, inputs / groups, ...); 1 for a bias.

    For a transposed kernel (inputs, outputs / groups, ...) the number at stride 1; a longer stride has fewer.

    >>> fan_in((8, 3, 5, 5)), fan_in((8, 3, 5, 5), Kernel("deconv", 8, 3, transposed=True)), fan_in((8,))
    (75, 200, 1)
    """
    if kernel is not None and kernel.transposed:
        return shape[0] // kernel.groups * math.prod(shape[2:])
    return math.prod(shape[1:]) if len(shape) > 1 else 1


def bias_of(kernel: str) -> str:
    """Return the name that torch's layers give to the bias of a kernel; none if the kernel is not called weight.

    >>> bias_of("body.1.weight"), bias_of("attention.in_proj_weight"), bias_of("kernel")
    ('body.1.bias', 'attention.in_proj_bias', '')
    """
    before, bias, after = kernel.rpartition("weight")
    return f"{before}bias{after}" if bias else ""


def trace_kernels(module: nn.Module, x: Tensor) -> KernelTrace:
    """Find the kernels of a network, by an evaluation pass and a training pass of a copy.

    Args:
        module: The network; it is not changed.
        x: Inputs (N, ...).

    Returns:
        Its kernels, and other properties that recipes depend on.


    >>> trace_kernels(nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Dropout(), nn.Linear(5, 2)), torch.zeros(2, 3)).names
    ('0.weight', '3.weight')
    """
    tracer = KernelTracer(module)
    with torch.no_grad(), kept_generators():
        outputs = tracer.run(x, training=False)
        final, side_by_side = tracer.final_layers(outputs)
        used, drawing = set(tracer.kernels), set(tracer.random)
        with suppress(ValueError, RuntimeError):  # a batch of one example under batch norm: training will refuse it
            tracer.run(x, training=True)
        random = sorted(tracer.random - drawing)
        effect = tracer.effect_of_training(x, random, outputs, used) if random else ""
    tracer.add_unreached()
    kinds = tuple((name, tracer.kinds.get(name, UNUSED)) for name in tracer.parameters)
    unsupported, biases, recomputed = tuple(tracer.unsupported.items()), tuple(tracer.biases), tuple(tracer.recomputed)
    evaluated = (tuple(tracer.kernels.values()), tracer.has_dropout, unsupported, biases, final, side_by_side)
    return KernelTrace(*evaluated, tuple(random), effect, recomputed, kinds)


@dataclass(frozen=True)
class Origin:
    """What a tensor was computed from."""

    activation: bool = False  # whether inputs entered it
    parameters: frozenset[str] = frozenset()  # of a tensor that is no activation: the parameters in it
    added: frozenset[str] = frozenset()  # of an activation: parameters that were added to it or joined with it
    kernel: str = ""  # the parameter that a tensor of the same axes is an elementwise function of
    form: str = "plain"  # of that function, as in `Kernel`
    layers: frozenset[str] = frozenset()  # parameters of the linear operators before it, without another in between
    positions: int = 1  # of an activation: positions per channel, where images were flattened


CONSTANT = Origin()


class KernelTracer(TorchFunctionMode):
    """Records the kernels among the arguments of every operator of a copy of a network."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = copy.deepcopy(module)
        self.parameters = dict(self.module.named_parameters())
        self.names = {id(parameter): name for name, parameter in self.parameters.items()}
        self.kernels: dict[str, Kernel] = {}
        self.unsupported: dict[str, str] = {}
        self.biases: dict[str, None] = {}
        self.kinds: dict[str, str] = {}
        self.random: set[str] = set()  # modules that drew random numbers outside dropout functions
        self.has_dropout = False
        self.recomputed: dict[str, None] = {}
        self.origins: Any = WeakIdKeyDictionary()
        self.before: dict[str, set[str]] = {}  # layer -> the layers before it
        self.running: list[str] = []  # the modules that are running, outermost first
        self.x: Tensor | None = None
        for name, part in self.module.named_modules():
            part.register_forward_pre_hook(lambda *_, name=name: self.running.append(name))
            part.register_forward_hook(lambda *_: (self.running.pop(), None)[1])

    def run(self, x: Tensor, training: bool) -> Any:
        """Return the outputs of one pass over a copy of the inputs."""
        self.module.train(training)
        self.running.clear()
        self.x = x.clone()
        self.origins[self.x] = Origin(activation=True)
        with self:
            return self.module(self.x)

    def __torch_function__(self, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        rate, draws_random = dropout_rate(func, args, kwargs), func in RANDOM
        if rate or draws_random:
            self.has_dropout = True
            self.note_recomputed("dropout")
        if draws_random or (rate and func is F.scaled_dot_product_attention):  # its rate is 0 outside training mode
            self.random.add(self.running[-1] if self.running else "")
        if func in LINEARS:
            self.linear(func, args, kwargs, result)
        elif func is F.multi_head_attention_forward:
            self.attention(args, kwargs, result)
        else:
            self.operator(func, args, kwargs, result)
        return result

    def origin(self, tensor: Any) -> Origin:
        if (name := self.names.get(id(tensor))) is not None:
            return Origin(parameters=frozenset((name,)), kernel=name)
        origin: Origin = self.origins.get(tensor, CONSTANT) if isinstance(tensor, Tensor) else CONSTANT
        return origin

    def linear(self, func: Callable, args: tuple, kwargs: dict[str, Any], result: Tensor) -> None:
        """Record the kernel and the bias of a linear operator or convolution."""
        x, weight, bias = (kwargs.get(n, argument(args, at)) for at, n in enumerate(("input", "weight", "bias")))
        groups = kwargs.get("groups", argument(args, 6) or 1)  # the seventh argument of every convolution
        like = Kernel("", 0, 0, groups, LINEARS[func][1], positions_per_channel=self.origin(x).positions)
        self.use((x,), INPUT)
        self.add_layer(result, (x,), self.note(func, weight, bias, like))

    def attention(self, args: tuple, kwargs: dict[str, Any], result: Any) -> None:
        """Record the kernels and biases of torch's attention."""
        func = F.multi_head_attention_forward
        arguments = signature(func).bind(*args, **kwargs).arguments
        inputs = [arguments[name] for name in ("query", "key", "value")]
        self.use(inputs, INPUT)
        self.use([arguments.get("attn_mask")], ADDED)
        projections = [(arguments.get(f"{name}_weight"), arguments.get(f"{name}_bias")) for name in PROJECTIONS]
        for weight, bias in projections:
            if weight is not None:
                self.add_layer(result[0], inputs, self.note(func, weight, bias, Kernel("", 0, 0)))
                inputs = [result[0]]  # the output projection follows the others
        loose = [bias for weight, bias in projections if weight is None]
        for bias in (*loose, arguments.get("bias_k"), arguments.get("bias_v")):
            self.note_bias(bias, None)

    def note_recomputed(self, *names: str) -> None:
        """Record names that are used inside torch.utils.checkpoint, if it is running."""
        if any(frame.f_code.co_filename == torch.utils.checkpoint.__file__ for frame, _ in walk_stack(sys._getframe())):
            self.recomputed |= dict.fromkeys(names)

    def add_layer(self, result: Tensor, inputs: Iterable[Any], layers: set[str]) -> None:
        """Record that a tensor is the result of a linear operator with these parameters."""
        earlier = {name for value in inputs for name in self.origin(value).layers}
        earlier |= {name for value in earlier for name in self.before[value]}
        for name in layers:
            self.before[name] = self.before.get(name, set()) | earlier - {name}
        self.origins[result] = Origin(activation=True, layers=frozenset(layers or earlier))

    def operator(self, func: Callable, args: tuple, kwargs: dict[str, Any], result: Any) -> None:
        """Record the parameters that meet activations in an operator, and the origins of its results."""
        tensors = list(tensors_in((*args, *kwargs.values())))
        origins = [self.origin(item) for item in tensors]
        if not any(item.activation or item.parameters for item in origins):
            return
        word, activation = name_of(func), any(item.activation for item in origins)
        if activation:
            mask = kwargs.get("attn_mask", argument(args, 3)) if func is F.scaled_dot_product_attention else None
            params = [(t, o) for t, o in zip(tensors, origins, strict=True) if o.parameters and not o.activation]
            added = frozenset(name for item in origins for name in item.added | item.parameters)
            refused = {n for t, o in params for n in self.meet(func, "add" if t is mask else word, t, o)}
            layers = frozenset(name for item in origins for name in item.layers)
            outcome = Origin(True, added=added, layers=layers, positions=self.positions(argument(args, 0), result))
        else:
            parameters = frozenset(name for item in origins for name in item.parameters)
            self.kinds = {**dict.fromkeys(parameters, EMBEDDING), **self.kinds} if word in TABLES else self.kinds
            outcome, refused = replace(self.elementwise(word, tensors, origins, result), parameters=parameters), set()
        changed = (argument(args, 0),) if is_in_place(func) else ()
        for tensor in tensors_in((result, *changed)):
            if id(tensor) not in self.names:
                self.origins[tensor] = outcome
                if refused:
                    self.add_layer(tensor, tensors, refused)

    def meet(self, func: Callable, word: str, tensor: Tensor, origin: Origin) -> set[str]:
        """Record parameters, or a function of parameters alone, beside activations; returns those not supported."""
        product = word in PRODUCTS
        matrix = tensor.dim() > 1 if product else sum(size > 1 for size in tensor.shape) > 1
        kinds = {**dict.fromkeys(JOINS, ADDED), **dict.fromkeys(LOOKUPS, EMBEDDING), **dict.fromkeys(NORMS, NORM)}
        if self.running and getattr(self.module.get_submodule(self.running[-1]), "is_embedding", False):
            kinds |= dict.fromkeys(PRODUCTS, EMBEDDING)
        if matrix and word not in kinds:
            return {name for name in sorted(origin.parameters) if self.note_unsupported(name, func, tensor)}
        for name in origin.parameters:
            self.kinds.setdefault(name, kinds.get(word, OTHER if product else SCALE))
        return set()

    def elementwise(self, word: str, given: list[Tensor], origins: list[Origin], result: Any) -> Origin:
        """Return the kernel that a result without activations is an elementwise function of, if it is one."""
        if word not in SCALINGS | COPIES | POINTWISE or not isinstance(result, Tensor):
            return CONSTANT
        wide = [(t, o) for t, o in zip(given, origins, strict=True) if o.kernel and t.shape == result.shape]
        narrow = [(t, o) for t, o in zip(given, origins, strict=True) if not (o.kernel and t.shape == result.shape)]
        if len(wide) != 1 or any(o.parameters and sum(n > 1 for n in t.shape) > 1 for t, o in narrow):
            return CONSTANT
        ((_, main),) = wide
        linear = word in SCALINGS | COPIES and not any(o.parameters for _, o in narrow) and main.form != "function"
        return Origin(kernel=main.kernel, form="masked" if linear else "function")

    def positions(self, before: Any, after: Any) -> int:
        """Return the positions per channel of images (N, C, ...) flattened to (N, C positions); 1 for inputs."""
        if not isinstance(before, Tensor) or not isinstance(after, Tensor) or before is self.x:
            return 1
        if after is before:
            return self.origin(before).positions
        flattened = before.dim() > 2 and after.shape == (len(before), before[0].numel()) and before.shape[1] > 1
        return before[0, 0].numel() if flattened else 1

    def use(self, tensors: Iterable[Any], kind: str) -> None:
        """Record parameters among the inputs of layers, or in sums."""
        for tensor in tensors:
            origin = self.origin(tensor)
            for name in () if origin.activation else origin.parameters:
                self.kinds.setdefault(name, kind)

    def note(self, func: Callable, weight: Any, bias: Any, like: Kernel) -> set[str]:
        """Record a kernel with the attributes of `like`, and the bias beside it; returns the layer's parameters."""
        origin = self.origin(weight)
        name = origin.kernel
        self.note_recomputed(*origin.parameters, *self.origin(bias).parameters)
        if not name or weight.shape != self.parameters[name].shape:
            for parameter in sorted(origin.added if origin.activation else origin.parameters):
                self.note_unsupported(parameter, func, weight)
            self.note_bias(bias, None)
            return set(origin.parameters)
        rows, columns = weight.shape[0], weight.shape[1] * like.groups
        inputs, outputs = (rows, columns) if like.transposed else (columns, rows)
        form = "plain" if id(weight) in self.names else origin.form
        new = replace(like, name=name, inputs=inputs, outputs=outputs, trained=self.parameters[name].requires_grad)
        recorded = self.kernels.get(name, new)
        self.kernels[name] = replace(recorded, form=max(recorded.form, form, key=FORMS.index))
        self.kinds[name] = KERNEL
        self.note_bias(bias, name)
        return {name}

    def note_bias(self, bias: Any, kernel: str | None) -> None:
        """Record a bias beside a kernel, or beside none that it could be drawn with."""
        beside = self.names.get(id(bias))
        for name in self.origin(bias).parameters:
            self.kinds.setdefault(name, BIAS)
            if kernel is None or beside is None:
                self.biases[name] = None
        if kernel is not None and beside is not None and beside not in self.kernels[kernel].biases:
            recorded = self.kernels[kernel]
            self.kernels[kernel] = replace(recorded, biases=(*recorded.biases, beside))

    def note_unsupported(self, name: str, func: Callable, tensor: Tensor) -> bool:
        """Record a parameter that is multiplied, itself or a function of it, by an operator that is not intercepted.

        Returns whether it counts: parameters of one axis do not, nor do those that are not trained.
        """
        parameter = self.parameters[name]
        self.kinds.setdefault(name, OTHER)
        if parameter.dim() < 2 or not parameter.requires_grad:
            return False
        operator = resolve_name(func) or str(func)
        self.unsupported.setdefault(name, operator if tensor is parameter else f"{operator} after other operators")
        return True

    def final_layers(self, outputs: Any) -> tuple[tuple[str, ...], bool]:
        """Return the parameters of the layers that make the outputs (N, K), and whether they are joined side by side.

        Of layers that reach the outputs those count that no other of them follows, and among these the ones with K
        outputs, if there are any: a gate with one output is no last layer.
        """
        first = next(tensors_in((outputs,)), None)
        if first is None:
            return (), False
        layers = self.origin(first).layers
        layers = frozenset(name for name in layers if not any(name in self.before[other] for other in layers - {name}))
        ordered = tuple(dict.fromkeys(name for name in (*self.kernels, *sorted(layers)) if name in layers))
        width = first.shape[1] if first.dim() > 1 else 1
        widths = {name: self.kernels[name].outputs for name in ordered if name in self.kernels}
        full = tuple(name for name in ordered if widths.get(name) == width)
        return full or ordered, not full and sum(widths.values()) == width

    def effect_of_training(self, x: Tensor, random: list[str], outputs: Any, used: set[str]) -> str:
        """Return what changes, except random numbers, if only these modules are in training mode; "" if nothing."""
        buffers = {name: buffer.clone() for name, buffer in self.module.named_buffers()}
        self.module.eval()
        for name in random:
            self.module.get_submodule(name).training = True
        before, self.kernels = self.kernels, {}
        self.running.clear()
        modules = ", ".join(f"'{name}'" if name else "the network" for name in random)
        try:
            with self:
                second = self.module(x.clone())
            if [t.shape for t in tensors_in((outputs,))] != [t.shape for t in tensors_in((second,))]:
                return f"training mode of {modules} changes the outputs' shape"
            moved = [n for n, b in self.module.named_buffers() if not torch.equal(b, buffers[n])]
            if moved:
                return f"training mode of {modules} changes the buffer '{moved[0]}'"
            if set(self.kernels) != used:
                return f"training mode of {modules} uses other layers ({', '.join(sorted(set(self.kernels) ^ used))})"
        except Exception as error:  # a user's network may raise anything
            return f"training mode of {modules} raises {type(error).__name__}"
        finally:
            self.kernels = before
        return ""

    def add_unreached(self) -> None:
        """Add the kernels of layers that no pass has reached, and refuse other parameters that none has shown."""
        for part in self.module.modules():
            for attribute, parameter in part._parameters.items():
                name = self.names.get(id(parameter))
                if parameter is None or name is None or name in self.kinds:
                    continue
                kernel, bias = None, part._parameters.get("bias")
                if attribute == "weight" and isinstance(part, nn.Linear):
                    kernel = Kernel(name, part.in_features, part.out_features)
                elif attribute == "weight" and isinstance(part, nn.modules.conv._ConvNd):
                    kernel = Kernel(name, part.in_channels, part.out_channels, part.groups, part.transposed)
                elif isinstance(part, nn.MultiheadAttention) and attribute.endswith("proj_weight"):
                    kernel = Kernel(name, parameter.shape[1], parameter.shape[0])
                    bias = part._parameters.get("in_proj_bias") if attribute == "in_proj_weight" else None
                elif isinstance(part, (nn.Embedding, nn.EmbeddingBag, *NORM_LAYERS)):
                    self.kinds[name] = NORM if isinstance(part, NORM_LAYERS) else EMBEDDING
                if kernel is not None:
                    biases = (self.names[id(bias)],) if id(bias) in self.names else ()
                    self.kernels[name] = replace(kernel, biases=biases, trained=parameter.requires_grad)
                    self.kinds |= {name: KERNEL, **dict.fromkeys(biases, BIAS)}
        for name, parameter in self.parameters.items():
            if name not in self.kinds and parameter.dim() > 1 and parameter.requires_grad:
                self.unsupported[name] = ""


def name_of(func: Callable) -> str:
    """Return the name of an operator without underscores: `add` for torch.add, Tensor.add_ and Tensor.__add__.

    >>> name_of(torch.add), name_of(Tensor.add_), name_of(Tensor.__radd__)
    ('add', 'add', 'radd')
    """
    return getattr(func, "__name__", "").strip("_")


def is_in_place(func: Callable) -> bool:
    """Return whether an operator changes its first argument."""
    name = getattr(func, "__name__", "")
    return name in ("__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__") or (
        name.endswith("_") and not name.endswith("__")
    )


def argument(args: tuple, at: int) -> Any:
    """Return the positional argument at an index, or None."""
    return args[at] if len(args) > at else None


def tensors_in(values: Any) -> Iterator[Tensor]:
    """Yield the tensors among nested lists, tuples and dicts."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_in(value)
        elif isinstance(value, dict):
            yield from tensors_in(value.values())
