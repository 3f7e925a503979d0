"""Networks of users made fit for training: one tensor of outputs, known shapes, plain modules."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.prune import BasePruningMethod

from murmuration.core.weights.structure import describe_outputs
from murmuration.system.errors import Misuse

Output = str | int | Callable[[Any], Tensor]  # a key or attribute, a position, or a function of what a network gives


class SelectOutput:
    """A forward hook that replaces what a network gives by the one tensor among it that the likelihood is about."""

    def __init__(self, output: Output) -> None:
        self.output = output

    def __call__(self, module: nn.Module, inputs: Any, given: Any) -> Any:
        try:
            if isinstance(self.output, str) and not isinstance(given, Mapping):
                return getattr(given, self.output)
            return given[self.output] if isinstance(self.output, str | int) else self.output(given)
        except (KeyError, IndexError, AttributeError, TypeError):
            raise Misuse(f"output={self.output!r}: the net gives {describe_outputs(given)[0]}") from None


def select_output(module: nn.Module, output: Output | None) -> nn.Module:
    """The network, which gives the one tensor among its outputs from now on."""
    if output is not None:
        module.register_forward_hook(SelectOutput(output))
    return module


def plain_module(module: nn.Module) -> nn.Module:
    """The network without a compiler around it; refuses modules whose operators or tensors cannot be replaced."""
    inner = getattr(module, "_orig_mod", None)  # of torch.compile
    if isinstance(inner, nn.Module):
        return plain_module(inner)
    for name, part in module.named_modules():
        where = f"'{name}' ({type(part).__name__})" if name else type(part).__name__
        if isinstance(part, torch.jit.ScriptModule):
            raise Misuse(f"{where} is a torch.jit module: give the nn.Module that it was made of")
        hooks = [hook for hook in part._forward_pre_hooks.values() if hasattr(hook, "compute_weight")]
        hooks += [hook for hook in part._forward_pre_hooks.values() if isinstance(hook, BasePruningMethod)]
        for hook in hooks:
            kind = type(hook).__name__
            if isinstance(hook, BasePruningMethod):
                advice = "torch.nn.utils.prune.remove(layer, name)"
            else:
                advice = "torch.nn.utils.parametrizations.weight_norm or spectral_norm"
            raise Misuse(f"{where} has a weight that a hook computes ({kind}): write {advice}")
    return module


def has_lazy_tensors(module: nn.Module) -> bool:
    """Whether the shapes of some tensors are not known before the first pass, as those of `nn.LazyLinear`."""
    return any(nn.parameter.is_lazy(tensor) for tensor in (*module.parameters(), *module.buffers()))


def materialised(module: nn.Module, input_shape: tuple[int, ...], dtype: torch.dtype) -> nn.Module:
    """The network with the shapes of lazy layers, from a pass over zeros (2, *input_shape)."""
    if has_lazy_tensors(module):
        training = module.training
        with torch.no_grad():
            module.eval()(torch.zeros(2, *input_shape, dtype=dtype))
        module.train(training)
    return module
