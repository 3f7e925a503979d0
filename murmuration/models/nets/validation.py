"""Checks of a network before it is trained: its outputs, its initial values, and tensors that would not be stored."""

import hashlib
import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from murmuration.core.weights.structure import describe_outputs
from murmuration.likelihoods import REGRESSION, Likelihood
from murmuration.models.nets.source import NetSource, freshly_initialised
from murmuration.system.errors import Misuse, first_line, listed, warn
from murmuration.system.streams import global_stream, kept_generators

PLAIN = "plain_tensors"  # in the record of a network
MAX_STANDARD_ERRORS = 6.0  # by which statistics of an instance may differ from those of a new initialisation
MIN_ENTRIES = 32  # entries from which the standard deviation of a tensor is compared
SAME, SAME_IN_BATCH = 1e-5, 1e-3  # relative difference of outputs that is rounding: of one batch, of two batches
CONTAINERS = {list: "List", tuple: "List", dict: "Dict"}  # of Python -> ending of nn.Module... and nn.Parameter...


def check_network(source: NetSource, module: nn.Module, x: Tensor, likelihood: Likelihood) -> NetSource:
    """Check a network of a source before training, in a few passes over two inputs.

    Warns of a network that ends in softmax, has a training loop of its own, mixes the examples of a batch, has
    parameters without effect, or is not reproducible in training. Draws from torch's global generator.

    Args:
        source: Source of networks.
        module: A network of the source.
        x: A batch of inputs (N, ...).
        likelihood: What takes its outputs.

    Returns:
        The source, with digests of tensors that are plain attributes of its networks in its record.

    Raises:
        Misuse: If outputs do not fit the likelihood, do not depend on the parameters or change from pass to pass, or
            plain tensors are random, hold parameters or change in training.
    """
    refuse_hidden_parameters(module)
    digests = {name: digest(tensor) for name, tensor in plain_tensors(module).items()}
    outputs = checked_outputs(module, x.clone(), likelihood)
    warn_of_softmax(outputs, likelihood)
    warn_of_own_training(module)
    check_plain_tensors(source, module, x.clone())
    check_repeated(module.eval(), x)
    check_one_example(module, x, outputs)
    check_gradients(module.train(), x)
    return replace(source, record={**source.record, PLAIN: digests}) if digests else source


def require_same_plain_tensors(module: nn.Module, record: dict[str, Any]) -> None:
    """Refuse a network whose plain tensors differ from those that the members of a run were trained with."""
    tensors = plain_tensors(module)
    for name, expected in record.get(PLAIN, {}).items():
        if name not in tensors or digest(tensors[name]) != expected:
            advice = "give the same network, and write self.register_buffer for it"
            raise Misuse(f"'{name}' of the net differs from that of the run, which does not store it: {advice}")


def digest(*tensors: Tensor) -> str:
    """Compute the SHA-256 of the values of some tensors."""
    sha256 = hashlib.sha256()
    for tensor in tensors:
        sha256.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return sha256.hexdigest()


def checked_outputs(module: nn.Module, x: Tensor, likelihood: Likelihood) -> Tensor:
    """Return the outputs (N, width) of a network on x (N, ...); refuse others."""
    width, about = likelihood.width, likelihood.about_outputs
    module.eval()
    try:
        with torch.no_grad():
            outputs = module(x)
    except Misuse:
        raise
    except Exception as error:  # a user's network may raise anything on an input of the wrong shape
        refuse_precision(module, x)
        if x.is_floating_point() and any(isinstance(part, nn.Embedding) for part in module.modules()):
            advice = f"write inputs='tokens' for inputs that are whole numbers ({first_line(error)})"
            raise Misuse(f"the net has an embedding and cannot take inputs in floating point: {advice}") from error
        cause = None if isinstance(error, RuntimeError) else error  # torch's words of shapes are in the message
        raise Misuse(f"the net cannot take inputs of shape {tuple(x.shape[1:])}: {first_line(error)}") from cause
    if not isinstance(outputs, Tensor):
        got, pick = describe_outputs(outputs, len(x), width)
        raise Misuse(f"the net gives {got} for {len(x)} inputs: expected a tensor ({len(x)}, {width}); {pick}")
    if tuple(outputs.shape) != (len(x), width):
        shape = tuple(outputs.shape)
        needed = f"({len(x)}, {width})" + (f", {about}" if about else "")
        raise Misuse(f"the net gives outputs {shape} for {len(x)} inputs: the data needs {needed}")
    if outputs.dtype != torch.float32:
        refuse_precision(module, x)
        raise Misuse(f"the net gives outputs of type {outputs.dtype}: expected torch.float32; write outputs.float()")
    return outputs


def warn_of_softmax(outputs: Tensor, likelihood: Likelihood, nets: str = "the network seems") -> None:
    """Warn of outputs (..., N, K) that are probabilities, where the likelihood takes them for logits."""
    if likelihood.task == REGRESSION or outputs.shape[-1] < 2 or not torch.equal(likelihood.logits(outputs), outputs):
        return
    sums = outputs.sum(-1)
    if bool((outputs >= 0).all()) and torch.allclose(sums, torch.ones_like(sums), rtol=0, atol=1e-4):
        warn(f"{nets} to end in softmax: logits are expected; remove it")


def warn_of_own_training(module: nn.Module) -> None:
    """Warn of a network that brings its own training, as a `LightningModule` does."""
    methods = ("training_step", "configure_optimizers")
    for net in (module, getattr(module, "net", None)):
        if all(callable(getattr(net, method, None)) for method in methods):
            advice = "write likelihood=, optimizer=, lr= and schedule= of fit instead"
            warn(f"{' and '.join(methods)} of {type(net).__name__} are not used: {advice}")


def refuse_precision(module: nn.Module, x: Tensor) -> None:
    """Refuse a network with parameters in another precision than its inputs."""
    for name, tensor in module.named_parameters():
        if tensor.is_floating_point() and tensor.dtype != torch.float32:
            raise Misuse(f"'{name}' of the net is {tensor.dtype}, inputs are torch.float32: write net.float()")


def plain_attributes(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield names and values of the attributes of all layers that are not registered with torch."""
    for prefix, layer in module.named_modules():
        for name, value in vars(layer).items():
            if not (name.startswith(("_parameters", "_buffers", "_modules")) and isinstance(value, dict)):
                yield f"{prefix}.{name}".lstrip("."), value


def items_of(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield keys and values of a list, tuple or dict; nothing of any other object."""
    yield from enumerate(value) if isinstance(value, list | tuple) else value.items() if isinstance(value, dict) else ()


def plain_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Collect tensors that a network keeps as plain attributes, alone or in a list, tuple or dict.

    They are neither parameters nor buffers, so that they are not stored and not separate for each member.
    """
    values: dict[str, Any] = {}
    for at, value in plain_attributes(module):
        values |= {at: value} | {f"{at}[{key!r}]": item for key, item in items_of(value)}
    stored = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
    return {name: value for name, value in values.items() if isinstance(value, Tensor) and id(value) not in stored}


def refuse_hidden_parameters(module: nn.Module) -> None:
    """Refuse layers and parameters that torch does not register, because they stand in a plain list or attribute."""
    registered = {id(parameter) for parameter in module.parameters()}
    for at, value in plain_attributes(module):
        for kind, item in [(type(value), item) for _, item in items_of(value)] or [(Tensor, value)]:
            is_layer = isinstance(item, nn.Module)
            tensors = [*item.parameters()] if is_layer else [item] if isinstance(item, Tensor) else []
            if not any(t.is_leaf and t.requires_grad and id(t) not in registered for t in tensors):
                continue
            ending = next((ending for container, ending in CONTAINERS.items() if issubclass(kind, container)), "")
            write = f"nn.{'Module' if is_layer else 'Parameter'}{ending}(...)"
            holds = "requires gradients" if not ending else f"is a {kind.__name__} with a {type(item).__name__}"
            lost = "torch does not register it: it would be neither trained nor stored"
            raise Misuse(f"'{at}' of the net {holds}, and {lost}; write {write} around it")


def repeated_pass(module: nn.Module, x: Tensor) -> tuple[Any, bool]:
    """Return the outputs of a pass that changes neither x nor buffers, and whether it drew from torch's generators.

    Every pass draws the same numbers.
    """
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    with global_stream(0, "prediction", 0) as drew:
        return functional_call(module, buffers, x.clone()), drew()


def differ(a: Tensor, b: Tensor, tolerance: float) -> bool:
    """Return whether outputs of one shape differ by more than rounding."""
    largest = a.abs().nan_to_num(0, 0, 0).max().item()
    return not torch.allclose(a, b, rtol=0, atol=tolerance * largest, equal_nan=True)


@torch.no_grad()
def check_repeated(module: nn.Module, x: Tensor) -> None:
    """Refuse a network that gives other outputs when it sees the same inputs again.

    Numbers from torch's generators are the same in both passes, as they are in `predict`.
    """
    if differ(repeated_pass(module, x)[0], repeated_pass(module, x)[0], SAME):
        cause = (
            "forward keeps state (a counter, a list, weights changed in place) or draws from Python's random or numpy"
        )
        advice = "keep such state under `if self.training:`, and draw with torch.rand"
        raise Misuse(f"the net gives other outputs for the same inputs in evaluation mode: {cause}; {advice}")


@torch.no_grad()
def check_one_example(module: nn.Module, x: Tensor, outputs: Tensor) -> None:
    """Refuse a network of one batch size; warn of one that mixes examples. `outputs` (N, K) are those for x."""
    if len(x) < 2:
        return
    try:
        alone, drew = repeated_pass(module, x[:1])
    except Exception:  # such as batch statistics, which need two examples
        try:
            repeated_pass(module, torch.cat([x, x[:1]]))
        except Exception as error:  # a user's network may raise anything
            problem = f"takes batches of {len(x)} inputs and not of {len(x) + 1} ({first_line(error)})"
            raise Misuse(f"the net {problem}: write x.shape[0] for the number of inputs") from error
        return
    if alone.shape != outputs[:1].shape:
        expected = f"expected {tuple(outputs[:1].shape)}; write squeeze(-1) or flatten(1) for squeeze()"
        raise Misuse(f"the net gives outputs {tuple(alone.shape)} for one input: {expected}")
    if not drew and differ(outputs[:1], alone, SAME_IN_BATCH):
        cause = "does it normalise, attend or branch over the first axis, which is that of examples?"
        warn(f"the outputs of the net for an example depend on the other examples of the batch: {cause}")


def check_gradients(module: nn.Module, x: Tensor) -> None:
    """Refuse a network in training mode whose outputs do not depend on its parameters; warn if some have no effect."""
    parameters = {name: tensor for name, tensor in module.named_parameters() if tensor.requires_grad}
    if not parameters:
        return  # which a recipe refuses
    try:
        with torch.enable_grad():
            outputs, _ = repeated_pass(module, x)
    except Exception as error:  # training on whole batches will tell of others
        if "requires grad" in str(error):
            leaves = "leaves torch for numpy" if "numpy" in str(error) else "cannot be differentiated"
            advice = "write torch functions of new tensors, such as torch.tanh for np.tanh"
            raise Misuse(f"the forward of the net {leaves} ({first_line(error)}): {advice}") from error
        return
    if not isinstance(outputs, Tensor):
        return
    if not outputs.requires_grad:
        cause = "forward has torch.no_grad(), detach(), argmax or numpy"
        raise Misuse(
            f"the outputs of the net do not depend on its parameters, so none can be trained: {cause}; remove it"
        )
    with torch.no_grad(), suppress(Exception):
        if differ(outputs, repeated_pass(module, x)[0], SAME):
            cause = "forward draws from Python's random or numpy, or keeps state; write torch.rand"
            warn(f"the net is not reproducible from its seed in training mode: {cause}")
    with suppress(Exception):  # reentrant checkpoints have no such gradients
        unused = without_gradient(outputs, parameters)
        if unused and x.is_floating_point():  # a forward that branches on its inputs may use them for others
            with torch.enable_grad(), suppress(Exception):
                unused &= without_gradient(repeated_pass(module, -x)[0], parameters)
        if unused:
            names = listed([f"'{name}'" for name in parameters if name in unused], most=3)
            cause = "forward does not use them there, or detaches them"
            count = f"{len(unused)} of {len(parameters)} parameters of the net"
            warn(f"{count} are not trained by the first inputs: {cause} ({names})")


def without_gradient(outputs: Tensor, parameters: Mapping[str, Tensor]) -> set[str]:
    """Return the names of the parameters that outputs do not depend on."""
    gradients = torch.autograd.grad(outputs.sum(), [*parameters.values()], allow_unused=True)
    return {name for name, gradient in zip(parameters, gradients, strict=True) if gradient is None}


def check_plain_tensors(source: NetSource, module: nn.Module, x: Tensor) -> None:
    """Refuse a network that keeps random or changing tensors as plain attributes.

    A second network of the source must have the same tensors, and a pass in training mode must not change them.
    Tensors that a pass creates, such as a cache, are not state.
    """
    before = {name: tensor.detach().clone() for name, tensor in plain_tensors(module).items()}
    if not before:
        return
    other = plain_tensors(source.build())
    with torch.no_grad(), suppress(Exception):  # training on whole batches will tell
        module.train()(x)
    for name, a in before.items():
        for problem, tensors in (("random", other), ("changed in training", plain_tensors(module))):
            b = tensors.get(name, a)
            equal = a.shape == b.shape and a.dtype == b.dtype
            if not equal or not torch.allclose(a, b, rtol=0, atol=0, equal_nan=True):
                call = f"self.register_buffer('{name.partition('[')[0].rpartition('.')[2]}', ...)"
                result = f"is a plain tensor that is {problem}, so it is neither stored nor a member's own"
                raise Misuse(f"'{name}' of the net {result}: write {call} in __init__")


def check_initialisation(module: nn.Module) -> None:
    """Refuse an instance whose values its layers' `reset_parameters` would not draw: they would be lost.

    Tensors that are initialised without randomness must be equal. Weights and biases of linear layers, convolutions and
    recurrent layers must lie within the bounds of their uniform distribution, which training soon leaves. The standard
    deviation of every other tensor of 32 entries or more must be that of a new one within six standard errors.
    """
    with kept_generators() as generators:
        for generator in generators:
            generator.manual_seed(0)
        networks = (module, freshly_initialised(module), freshly_initialised(module))
    tensors, new, other = (dict((*net.named_parameters(), *net.named_buffers())) for net in networks)
    bounds = uniform_bounds(module)
    for name, tensor in tensors.items():
        if problem := difference(tensor.detach(), new[name].detach(), other[name].detach(), bounds.get(name)):
            kind = type(module).__name__
            advice = f"lambda: {kind}(...) as the net for new random weights, or init_from=net to begin with these"
            raise Misuse(f"'{name}' of the {kind} given {problem}, and would be lost: write {advice}")


def uniform_bounds(module: nn.Module) -> dict[str, float]:
    """Return bounds of absolute initial values of parameters that torch's layers draw uniformly."""
    bounds: dict[str, float] = {}
    for prefix, layer in module.named_modules():
        names = [name for name, _ in layer.named_parameters(prefix, recurse=False)]
        if isinstance(layer, nn.RNNBase | nn.RNNCellBase):
            bounds |= dict.fromkeys(names, layer.hidden_size**-0.5)
        elif isinstance(layer, nn.Linear | nn.modules.conv._ConvNd):
            usual = (nn.Linear.reset_parameters, nn.modules.conv._ConvNd.reset_parameters)
            fan_in = layer.weight[0].numel()
            bounds |= dict.fromkeys(names, fan_in**-0.5) if type(layer).reset_parameters in usual and fan_in else {}
    return bounds


def difference(tensor: Tensor, fresh: Tensor, other: Tensor, bound: float | None) -> str:
    """Describe how a tensor differs from a new initialisation of its layer; empty if it could be one.

    `fresh` and `other` are two draws; `bound` is that of their absolute values, if it is known.
    """
    if torch.equal(tensor, fresh):
        return ""
    if torch.equal(fresh, other):
        return f"differs by up to {(tensor - fresh).abs().max().item():.3g} from a new initialisation"
    values = tensor.double().flatten()
    largest = values.abs().max().item()
    if bound is not None and largest > bound * (1 + 1e-6):
        return f"has a value of {largest:.3g}, beyond the {bound:.3g} of a new initialisation"
    if largest == 0 or (len(values) > 1 and bool((values == values[0]).all())):
        return f"is {values[0].item():g} throughout, a new initialisation is random"
    if len(values) < MIN_ENTRIES:
        return ""
    std, expected = values.std().item(), fresh.double().std().item()
    far = abs(math.log(std / expected)) > MAX_STANDARD_ERRORS / math.sqrt(len(values))
    return f"has a standard deviation of {std:.3g}, a new initialisation {expected:.3g}" if far else ""
