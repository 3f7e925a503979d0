"""A plain network run on other tensors than its own: one member, or many at once.

A network stays any `nn.Module`. It is called with the members' tensors in place of its own, and while it runs a few of
its operators are intercepted:

- dropout of every kind, and random numbers that the network draws by itself, come from each member's own noise stream,
  so that they do not depend on the engine;
- a kernel with auxiliary tensors acts as `op(x * in, K) * out`, with the noise of a distribution if it is one;
- where input gradients will be differentiated, operators are replaced by cheaper ones (`double_backward.py`);
- with many members at once, a linear layer is one batched product.

Linear layers and convolutions are bilinear in input and kernel, so `op(x * in, K) * out` equals the operator with the
kernel `K * (out in^T)`, which is never computed: members share a kernel and differ all the same (BatchEnsemble, Wen et
al. 2020). An operator that is not bilinear gets that kernel computed.

Many members run at once in one of two ways. The *direct* way runs the module once on tensors with a leading member
axis; it is right only for operators that are known to treat that axis as one more batch axis, and raises
`UnsupportedOp` for all others. The other way is `torch.func.vmap`, which takes nearly any operator at some overhead.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import vmap
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._pytree import tree_map, tree_map_only

import murmuration.core.weights.dropout_masks as dropout_masks
import murmuration.core.weights.stacked as stacked
from murmuration.core.population import Named
from murmuration.core.weights.double_backward import REPLACEMENTS, channels_last
from murmuration.core.weights.family import INTO, OUT, ForwardSpec, Realised, effective_kernel
from murmuration.core.weights.gaussian import DELTA, VARIANCE
from murmuration.core.weights.kernel_trace import LINEARS, repeat_channels, tensors_in
from murmuration.core.weights.structure import Structure
from murmuration.system.devices import FLOAT32, as_autocast, at_least_float32, computing_in, in_float32
from murmuration.system.streams import Noise, normals

POINTWISE = {F.relu, torch.relu, Tensor.relu, F.gelu, F.silu, F.softplus, F.leaky_relu, F.elu, F.selu, F.mish}
POINTWISE |= {torch.tanh, torch.sigmoid, Tensor.tanh, Tensor.sigmoid, F.hardtanh, torch.sin, torch.cos, torch.erf}
ELEMENTWISE = {torch.add, Tensor.add, Tensor.__add__, Tensor.__radd__, torch.mul, Tensor.mul, Tensor.__mul__}
ELEMENTWISE |= {Tensor.__rmul__, torch.sub, Tensor.sub, Tensor.__sub__, torch.clamp, Tensor.clamp}
ELEMENTWISE |= {torch.minimum, torch.maximum}
MATMUL = {torch.matmul, Tensor.matmul, Tensor.__matmul__}
NORMS = {F.batch_norm, F.instance_norm, F.layer_norm, F.group_norm, F.rms_norm}
DROPOUT: dict[int, Callable] = {0: F.dropout, 1: F.dropout1d, 2: F.dropout2d, 3: F.dropout3d}  # by spatial axes
Operator = Callable[[Tensor, Tensor, Tensor | None], Tensor]  # input, kernel, bias -> output
COMPOSED = {F.multi_head_attention_forward, F.scaled_dot_product_attention, *dropout_masks.RECURRENT}
ATTENTION = inspect.signature(F.multi_head_attention_forward)
MIN_VARIANCE = 1e-12  # below it the slope of the square root, infinite at zero, is that at this variance
# The same function without its own look for interception, so that the operators inside it can be intercepted.
attention_body: Any = FunctionType(
    F.multi_head_attention_forward.__code__,
    {**vars(F), "has_torch_function": lambda tensors: False},
    argdefs=F.multi_head_attention_forward.__defaults__,
)


def run_members(
    structure: Structure, weights: Realised, x: Tensor, noise: Sequence[Noise], direct: bool, part: str = ""
) -> Tensor:
    """Run m members of a network, or one part of it.

    Args:
        structure: The network.
        weights: Weights of m members; operators compute in the precision of their spec.
        x: Inputs (m, B, ...).
        noise: Random stream of each member.
        direct: Whether members are stacked without vmap. If not, a single member runs as a plain module; if so, it is
            bit-identical to the same member in a larger stack.
        part: Name of the part to run; "" for the network.

    Returns:
        Outputs (m, B, K), at least in float32.
    """
    own, shared, spec = weights.own, weights.shared, weights.spec
    settings: dict[str, Any] = {"double_backward": x.requires_grad, "batch": x.shape[1]}
    switched = spec.random_modules if spec.dropout != "training" else ()

    def one(own_part: Named, shared_part: Named, inputs: Tensor) -> Tensor:
        tensors = {**own_part, **shared_part}
        with InterceptVmap(bind(tensors, spec), noise, **settings):
            return structure(tensors, inputs, part)

    with computing_in(spec.precision, x.device), structure.modes(switched, spec.dropout == "always"):
        if len(noise) == 1 and not direct:
            tensors = {**{name: tensor.squeeze(0) for name, tensor in own.items()}, **shared}
            with structure.unchanged(x[0], part) as inputs, Intercept(bind(tensors, spec), noise, **settings):
                outputs = structure(tensors, channels_last(inputs), part).unsqueeze(0)
            return at_least_float32(outputs)
        # Inputs are one batch for all members; a factor of the first kernel would give members different ones at once.
        common = x.stride(0) == 0 and not x.requires_grad and not any(name.endswith((INTO, OUT)) for name in own)
        version = None if x.is_inference() else x._version
        if direct:
            tensors = {**own, **shared}
            with InterceptDirect(own, shared, bind(tensors, spec), noise, **settings):
                outputs = structure(tensors, x, part)
        elif shared and common:  # operators on shared tensors alone run once for all members
            outputs = vmap(one, in_dims=(0, None, None))(own, shared, channels_last(x[0]))
        else:
            outputs = vmap(one, in_dims=(0, None, 0))(own, shared, x)
        if version is not None and x._version != version:  # members have the inputs in common
            raise stacked.UnsupportedOp("a change of the inputs in place")
        return at_least_float32(outputs)


@dataclass(frozen=True)
class ForwardTensors:
    """The tensors of one pass; kernels and biases with auxiliary tensors are recognised by identity."""

    tensors: Mapping[str, Tensor]
    spec: ForwardSpec
    kernels: dict[int, str]  # id of a kernel, or of a bias that is scaled with it -> name of the kernel
    bias_variances: dict[int, Tensor]  # id of a bias -> its variance, where it has one

    def scales(self, weight: Any) -> tuple[Tensor | None, Tensor | None, float | None]:
        """Return the scales of a kernel's input and output channels, and the dropout rate of its inputs."""
        name = self.kernels[id(weight)]
        return self.tensors.get(name + INTO), self.tensors.get(name + OUT), self.spec.rates.get(name)

    def noise(self, weight: Any) -> tuple[Tensor | None, Tensor | None]:
        """Return the variance of a kernel, or one draw of its deviation, where the operator makes the noise."""
        name = self.kernels[id(weight)]
        return self.tensors.get(name + VARIANCE), self.tensors.get(name + DELTA)

    def dropout(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a dropout layer, active or not as the weight family says."""
        if self.spec.dropout == "training":
            return arguments
        return {**arguments, "training": self.spec.dropout == "always"}


def bind(tensors: Mapping[str, Tensor], spec: ForwardSpec) -> ForwardTensors:
    """Return the tensors of one pass, with the identities of those that have auxiliary tensors."""
    kernels: dict[int, str] = {}
    bias_variances: dict[int, Tensor] = {}
    for name in spec.kernels:
        biases = spec.kernels[name].biases
        variances = {bias: tensors[bias + VARIANCE] for bias in biases if bias + VARIANCE in tensors}
        if name in spec.rates or variances or any(name + part in tensors for part in (INTO, OUT, VARIANCE, DELTA)):
            kernels[id(tensors[name])] = name
            bias_variances |= {id(tensors[bias]): variance for bias, variance in variances.items()}
            if spec.bias_inside and name + OUT in tensors:
                kernels |= {id(tensors[bias]): name for bias in biases}
    return ForwardTensors(tensors, spec, kernels, bias_variances)


class Intercept(TorchFunctionMode):
    """The interception of one member; subclasses handle many members."""

    images_last = True  # the memory format of images

    def __init__(
        self, bound: ForwardTensors, noise: Sequence[Noise], double_backward: bool = False, batch: int = 0
    ) -> None:
        super().__init__()
        self.bound = bound
        self.noise = noise
        self.double_backward = double_backward
        self.batch = batch  # examples of the pass
        self.heads = 0  # of the attention that is running
        self.derived: dict[int, tuple[Tensor, str]] = {}  # functions of kernels whose inputs are dropped

    def __torch_function__(self, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in LINEARS:
            return self.linear(func, *in_order(args, kwargs))
        if func in dropout_masks.COVERED:
            return self.dropout(func, self.bound.dropout(dropout_masks.dropout_arguments(args, kwargs)))
        if func in dropout_masks.RANDOM:
            return self.random(func, args, kwargs)
        if func in NORMS and self.bound.spec.precision != FLOAT32:
            args, kwargs = tree_map_only(Tensor, at_least_float32, (args, kwargs))  # means and variances over a batch
        rates, kernels = self.bound.spec.rates, self.bound.kernels
        ids = [id(tensor) for tensor in tensors_in((args, kwargs))] if rates else []
        names = [kernels.get(value) or self.derived.get(value, (None, ""))[1] for value in ids]
        sources = [name for name in names if name in rates]  # kernels with dropped inputs, or functions of them
        if self.bound.kernels and not is_getter(func):
            args, kwargs = self.effective(args, kwargs, bool(sources))
        if func in COMPOSED:
            return self.composed(func, args, kwargs)
        result = self.other(func, args, kwargs)
        if sources:
            self.derived |= {id(t): (t, sources[0]) for t in tensors_in((result,))}
        return result

    def effective(self, args: Any, kwargs: Any, dropped: bool) -> tuple[Any, Any]:
        """Return the arguments of any other operator, with kernels as a plain network would have them.

        A distribution is drawn once, for all examples. Kernels with `dropped` inputs that their scales are multiplied
        into are recorded.
        """
        bound = self.bound

        def change(value: Any) -> Any:
            name, bias_variance = bound.kernels.get(id(value)), bound.bias_variances.get(id(value))
            if name is not None and value is bound.tensors[name]:
                variance, delta = bound.noise(value)
                delta = SafeSqrt.apply(variance) * self.normals(value) if variance is not None else delta
                weight = value if delta is None else value + delta
                scaled = effective_kernel(bound.spec.kernels[name], bound.tensors, weight)
            else:
                noisy = value if bias_variance is None else value + SafeSqrt.apply(bias_variance) * self.normals(value)
                scaled = noisy if name is None else noisy * bound.tensors[name + OUT]
            if dropped and name is not None and scaled is not value:
                self.derived[id(scaled)] = (scaled, name)
            return scaled

        if any(
            id(value) in bound.kernels or id(value) in bound.bias_variances or isinstance(value, list | tuple | dict)
            for value in (*args, *kwargs.values())
        ):
            return tree_map(change, args), tree_map(change, kwargs)
        return args, kwargs

    def random(self, func: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Draw the random numbers that the network itself requests from the member's stream."""
        return dropout_masks.draw_random(func, args, dict(kwargs), self.noise[0], self.batch)

    def composed(self, func: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Return an operator with dropout inside it."""
        if func is F.multi_head_attention_forward:
            return self.attention(ATTENTION.bind(*args, **kwargs).arguments)
        if func is F.scaled_dot_product_attention:
            arguments = dropout_masks.attention_arguments(args, kwargs)
            rate = 0.0 if self.bound.spec.dropout == "never" else arguments.pop("dropout_p", 0.0)
            if rate or self.double_backward:  # in plain operators
                return dropout_masks.attend(arguments, partial(self.dropped, rate=rate) if rate else lambda w: w)
            return func(**{**arguments, "dropout_p": 0.0})
        if not dropout_masks.dropout_rate(func, args, kwargs):
            return self.other(func, args, kwargs)
        _, _, (_, _, rate, training, *_) = dropout_masks.recurrent_arguments(args)
        training = self.bound.dropout({"training": training})["training"]
        return dropout_masks.recurrent_layers(func, args, partial(self.dropped, rate=rate, training=training))

    def dropped(self, x: Tensor, axes: int = 0, *, rate: float, training: bool = True) -> Tensor:
        """Return a tensor (..., C, *axes) with entries or, where there are axes behind, channels dropped."""
        return self.dropout(DROPOUT[axes], {"input": x, "p": rate, "training": training})

    def attention(self, given: dict[str, Any]) -> Any:
        """Run torch's attention; operators inside it are intercepted if that makes a difference."""
        if self.bound.spec.dropout != "training":
            given["training"] = self.bound.spec.dropout == "always"
        dropping = given.get("training", True) and dropout_masks.dropout_rate(F.multi_head_attention_forward, (), given)
        if not (dropping or self.bound.spec.rates or self.double_backward):
            return F.multi_head_attention_forward(**given)
        self.heads = given["num_heads"]
        try:
            with self:
                return attention_body(**given)
        finally:
            self.heads = 0

    def linear(self, func: Callable, args: tuple, kwargs: dict[str, Any]) -> Tensor:
        """Compute `op(x * in, K) * out + bias`, or with the bias inside; plain without auxiliary tensors."""
        operator = self.operator(func)
        if self.bound.spec.precision != FLOAT32:
            operator = partial(run_autocast, operator)
        (x, weight, *after), axes = args, LINEARS[func][0]
        source, is_kernel = self.derived.get(id(weight)), id(weight) in self.bound.kernels
        into, out, rate = self.bound.scales(weight) if is_kernel else (None, None, None)
        rate = rate if source is None else self.bound.spec.rates[source[1]]
        if rate is not None:
            x = self.dropped(x, axes, rate=rate)
        if not is_kernel:
            return operator(x, weight, *after, **kwargs)
        bias, options = kwargs.pop("bias", after[0] if after else None), after[1:]
        if into is not None:
            x = x * self.broadcast(into if axes else repeat_channels(into, x.shape[-1]), axes)

        def output(beside: Tensor | None) -> Tensor:
            return self.noisy(lambda x, w, b: operator(x, w, b, *options, **kwargs), x, weight, beside, axes)

        if out is None:
            return output(bias)
        if bias is None or self.bound.spec.bias_inside:
            return output(bias) * self.broadcast(out, axes)
        scaled = output(None) * self.broadcast(out, axes)
        return self.add_noise(scaled + self.broadcast(bias, axes), self.bound.bias_variances.get(id(bias)), axes)

    def noisy(self, operator: Operator, x: Tensor, weight: Tensor, bias: Tensor | None, axes: int) -> Tensor:
        """Return the output of a kernel; with noise of local reparameterisation or flipout for a distribution."""
        variance, delta = self.bound.noise(weight)
        bias_variance = None if bias is None else self.bound.bias_variances.get(id(bias))
        mean = at_least_float32(operator(x, weight, bias))
        if variance is not None:
            with in_float32(x.device):
                squares = at_least_float32(x).square()
                squares = channels_last(squares) if axes == 2 and self.images_last else squares
                output_variance = operator(squares, variance, bias_variance)
            return torch.addcmul(mean, SafeSqrt.apply(output_variance), self.normals(mean, rough=True))
        if delta is not None:
            input_signs, output_signs = self.signs(x, axes), self.signs(mean, axes)
            mean = mean + operator(x * input_signs, delta, None) * output_signs
        return self.add_noise(mean, bias_variance, axes)

    def add_noise(self, mean: Tensor, variance: Tensor | None, axes: int) -> Tensor:
        """Add the noise of a bias of this variance, independent for every example and channel."""
        if variance is None:
            return mean
        return mean + self.broadcast(SafeSqrt.apply(variance), axes) * self.channel_normals(mean, axes)

    def signs(self, like: Tensor, axes: int) -> Tensor:
        """Return a random sign for every example and channel of a tensor (..., B, C, *axes)."""
        return torch.where(self.channel_normals(like, axes) < 0, -1.0, 1.0).to(like.dtype)  # zero counts as positive

    def channel_normals(self, like: Tensor, axes: int) -> Tensor:
        """Draw standard normal numbers (..., B, C, 1, ...) for a tensor (..., B, C, *axes)."""
        values = self.normals(like.flatten(-axes)[..., 0] if axes else like)
        return values.reshape(*values.shape, *(1,) * axes)

    def normals(self, like: Tensor, rough: bool = False) -> Tensor:
        """Draw standard normal numbers from the member's stream."""
        return self.noise[0].normal(like, rough)

    def operator(self, func: Callable) -> Callable[..., Tensor]:
        """Return the replacement of a linear or pointwise operator."""
        return REPLACEMENTS.get(func, func) if self.double_backward else func

    def broadcast(self, values: Tensor, axes: int) -> Tensor:
        """Reshape values (C,) so that they broadcast to a tensor (..., C, *axes)."""
        return values.reshape(*values.shape, *(1,) * axes)

    def dropout(self, func: Callable, arguments: dict[str, Any]) -> Tensor:
        """Apply dropout with masks from the member's stream."""
        x = arguments["input"]
        if not self.heads or len(x) != self.heads * self.batch:
            return self.draw_dropout(func, arguments)
        apart = x.unflatten(0, (-1, self.heads))  # attention weights (B heads, L, S): heads are no examples
        return self.draw_dropout(func, {**arguments, "input": apart}).flatten(0, 1)

    def draw_dropout(self, func: Callable, arguments: dict[str, Any]) -> Tensor:
        return dropout_masks.apply_dropout(func, self.noise, arguments)

    def other(self, func: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        return self.operator(func)(*args, **kwargs) if args else func(*args, **kwargs)


def run_autocast(
    operator: Callable[..., Tensor], x: Tensor, weight: Tensor, bias: Tensor | None = None, *rest: Any, **kwargs: Any
) -> Tensor:
    """Run a linear operator with input, kernel and bias in the precision of autocast, where it is active."""
    return operator(*as_autocast(x, weight, bias), *rest, **kwargs)


class SafeSqrt(torch.autograd.Function):
    """The square root of a variance (...), with a finite derivative everywhere; below zero by rounding counts as zero.

    Two passes over memory forwards and three backwards, against nine in plain operators; twice differentiable.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(variance: Tensor) -> Tensor:
        return variance.clamp_min(0).sqrt_()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        (std,) = ctx.saved_tensors
        return (slope / std.clamp_min(MIN_VARIANCE**0.5)).mul_(0.5)


SafeSqrt.forward.__signature__ = inspect.signature(SafeSqrt.forward)  # type: ignore[attr-defined]  # asked for at every call


def in_order(args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Return the arguments of a linear operator with input and kernel as the first positional ones."""
    front = [kwargs[name] for name in ("input", "weight")[len(args) :]]
    return (*args, *front), {name: value for name, value in kwargs.items() if name not in ("input", "weight")}


def is_getter(func: Callable) -> bool:
    """Return whether a function only reads an attribute of a tensor, such as its shape."""
    return getattr(func, "__name__", "") in ("__get__", "dim", "size", "numel")


class InterceptDirect(Intercept):
    """Many members on a leading axis, without vmap: every operator must be known."""

    def __init__(self, own: Named, shared: Named, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.own, self.shared = frozenset(map(id, own.values())), frozenset(map(id, shared.values()))

    def linear(self, func: Callable, args: tuple, kwargs: dict[str, Any]) -> Tensor:
        if args[0].dim() != 3 and id(args[1]) in self.bound.kernels:
            raise stacked.UnsupportedOp("a kernel with auxiliary tensors on more than one batch axis")
        return super().linear(func, args, kwargs)

    def operator(self, func: Callable) -> Callable[..., Tensor]:
        if func is not F.linear:
            raise stacked.UnsupportedOp(resolve_name(func) or str(func))
        return stacked.batched_linear

    def broadcast(self, values: Tensor, axes: int) -> Tensor:
        return values.unsqueeze(1) if values.dim() == 2 else values  # own (m, 1, C); shared (C,)

    def draw_dropout(self, func: Callable, arguments: dict[str, Any]) -> Tensor:
        return dropout_masks.apply_dropout(func, self.noise, arguments, stacked=True)

    def refuse(self, func: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        raise stacked.UnsupportedOp(resolve_name(func) or str(func))

    random = composed = refuse

    def normals(self, like: Tensor, rough: bool = False) -> Tensor:
        return normals(self.noise, like, rough)

    def other(self, func: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        if func in POINTWISE or is_getter(func):
            return super().operator(func)(*args, **kwargs)
        if func in (torch.flatten, Tensor.flatten):
            return stacked.flatten_members(*args, **kwargs)
        if func in ELEMENTWISE and not kwargs:
            return stacked.elementwise(func, args, self.own, self.shared)
        if func in MATMUL and not kwargs:
            return stacked.matmul(args[0], args[1], self.own, self.shared)
        axis = args[1] if len(args) > 1 else kwargs.get("dim")
        if func is torch.cat and axis in (-1, -2) and min(t.dim() for t in args[0]) > 2:
            return func(*args, **kwargs)
        if not isinstance(args[0], Tensor) or id(args[0]) in self.own or id(args[0]) in self.shared:
            return self.refuse(func, args, kwargs)
        # What is left are views, copies and selections of activations (m, ...) along axes counted from the end.
        if func is Tensor.__getitem__ and args[0].dim() > 2:
            return stacked.select_last(*args)
        if func in (torch.transpose, Tensor.transpose) and not kwargs:
            return stacked.exchange(*args)
        if func in (torch.unsqueeze, Tensor.unsqueeze):
            known = not kwargs and len(args) > 1 and isinstance(axis, int) and -args[0].dim() <= axis < 0
        else:
            known = func is Tensor.contiguous or (func is Tensor.unflatten and axis == -1)
        return func(*args, **kwargs) if known else self.refuse(func, args, kwargs)


class InterceptVmap(Intercept):
    """Many members under vmap: linear layers become one batched product, every member draws its own noise."""

    images_last = False

    def operator(self, func: Callable) -> Callable[..., Tensor]:
        return stacked.vmap_linear if func is F.linear else func

    def random(self, func: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        return func(*args, **kwargs)  # which vmap refuses: members then take turns

    def draw_dropout(self, func: Callable, arguments: dict[str, Any]) -> Tensor:
        if not arguments.get("training", True) or arguments.get("p", 0.5) == 0:
            return arguments["input"]
        return stacked.VmapDropout.apply(arguments["input"], self.own_tensor, func, self.noise, arguments)

    def normals(self, like: Tensor, rough: bool = False) -> Tensor:
        return stacked.VmapNormals.apply(like, self.own_tensor, self.noise, rough)

    @property
    def own_tensor(self) -> Tensor:
        """A tensor with a member axis, so that vmap runs an operator on tensors without one for every member."""
        return next(iter(self.bound.tensors.values()))
