"""Adapting networks of users for training: one tensor of outputs, a noise output, known shapes, plain modules."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.prune import BasePruningMethod

from murmuration.core.weights.structure import describe_outputs
from murmuration.system.errors import Misuse

Output = str | int | Callable[[Any], Tensor]  # a key or attribute, a position, or a function of a network's outputs


class SelectOutput:
    """A forward hook that selects, among the outputs of a network, the tensor that the likelihood takes."""

    def __init__(self, output: Output) -> None:
        self.output = output

    def __call__(self, module: nn.Module, inputs: Any, outputs: Any) -> Any:
        try:
            if isinstance(self.output, str) and not isinstance(outputs, Mapping):
                return getattr(outputs, self.output)
            return outputs[self.output] if isinstance(self.output, str | int) else self.output(outputs)
        except (KeyError, IndexError, AttributeError, TypeError):
            raise Misuse(f"output={self.output!r}: the net gives {describe_outputs(outputs)[0]}") from None


def select_output(module: nn.Module, output: Output | None) -> nn.Module:
    """Make a network return only the selected tensor of its outputs; return the network."""
    if output is not None:
        module.register_forward_hook(SelectOutput(output))
    return module


class WithNoise(nn.Module):
    """A network that returns K means, and beside them K noise levels that are learned and the same for all inputs."""

    def __init__(self, net: nn.Module, targets: int) -> None:
        super().__init__()
        self.net = net
        self.noise = nn.Parameter(torch.zeros(targets))

    def reset_parameters(self) -> None:
        """Start from the noise of an untrained network."""
        nn.init.zeros_(self.noise)

    def forward(self, *inputs: Tensor, **named: Tensor) -> Tensor:
        means = self.net(*inputs, **named)  # (N, K)
        if means.ndim < 2:
            expected = f"expected (N, {len(self.noise)}), a column for each target"
            raise Misuse(
                f"with_noise and a net of outputs {tuple(means.shape)}: {expected}; end it in no flatten or squeeze"
            )
        if means.shape[-1] != len(self.noise):
            targets, outputs = len(self.noise), means.shape[-1]
            raise Misuse(f"with_noise for {targets} targets and a net of {outputs} outputs: write targets={outputs}")
        return torch.cat([means, self.noise.expand_as(means)], -1)


def with_noise(net: nn.Module | Callable[[], nn.Module], targets: int = 1) -> nn.Module | Callable[[], nn.Module]:
    """Add the noise of a regression to a network that returns the means alone.

    Each member learns the standard deviation of every target; it is the same for all inputs. A network whose noise
    depends on the input returns two outputs a target itself.

    Args:
        net: A module, or a function or class that builds one, with one output a target.
        targets: Number of targets.

    Returns:
        The same with the noise levels beside the means, for `fit`, `load` and `resume`.

    Raises:
        Misuse: For a network by name, which has these outputs.

    >>> net = with_noise(nn.Linear(4, 1))
    >>> tuple(net(torch.zeros(5, 4)).shape)
    (5, 2)
    """
    if isinstance(net, str):
        raise Misuse(f"with_noise('{net}'): networks by name have the outputs that the data needs; write '{net}' alone")
    if isinstance(net, nn.Module):
        return WithNoise(plain_module(net), targets)
    return functools.update_wrapper(lambda: WithNoise(plain_module(net()), targets), net, updated=())


def uncompiled(module: nn.Module) -> nn.Module:
    """Return the network that `torch.compile` took, or the network itself."""
    inner = getattr(module, "_orig_mod", None)
    return uncompiled(inner) if isinstance(inner, nn.Module) else module


def plain_module(module: nn.Module) -> nn.Module:
    """Unwrap a compiled network; refuse modules whose operators or tensors cannot be replaced."""
    module = uncompiled(module)
    for name, part in module.named_modules():
        label = f"'{name}' ({type(part).__name__})" if name else type(part).__name__
        if isinstance(part, torch.jit.ScriptModule):
            raise Misuse(f"{label} is a torch.jit module: give the nn.Module that it was made of")
        for hook in part._forward_pre_hooks.values():
            pruned = isinstance(hook, BasePruningMethod)
            if pruned or hasattr(hook, "compute_weight"):
                advice = "prune.remove(layer, name)" if pruned else "parametrizations.weight_norm or spectral_norm"
                problem = f"has a weight that a hook computes ({type(hook).__name__})"
                raise Misuse(f"{label} {problem}: write torch.nn.utils.{advice}")
    return module


def has_lazy_tensors(module: nn.Module) -> bool:
    """Return whether tensors have no shape before the first pass, as in `nn.LazyLinear`."""
    return any(nn.parameter.is_lazy(tensor) for tensor in (*module.parameters(), *module.buffers()))


def materialised(module: nn.Module, input_shape: tuple[int, ...], dtype: torch.dtype) -> nn.Module:
    """Give lazy layers their shapes by a pass over zeros (2, *input_shape); return the network."""
    if has_lazy_tensors(module):
        training = module.training
        with torch.no_grad():
            module.eval()(torch.zeros(2, *input_shape, dtype=dtype))
        module.train(training)
    return module
