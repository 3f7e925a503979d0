"""Sources of newly initialised networks: a name of this package, a factory, or a module used as an architecture."""

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from murmuration.errors import Misuse, first_line
from murmuration.nets import build_net

Net = str | nn.Module | Callable[[], nn.Module]


@dataclass(frozen=True)
class NetSource:
    """A function that builds a newly initialised network, and its record in run.json."""

    build: Callable[[], nn.Module]
    record: dict[str, Any]


def net_source(net: Net, input_shape: tuple[int, ...], width: int) -> NetSource:
    """The source for a name, a factory or a module; weights are drawn from torch's global generator."""
    check_net(net)
    if isinstance(net, str):
        return NetSource(lambda: build_net(net, input_shape, width), {"name": net})
    if isinstance(net, nn.Module):
        return NetSource(lambda: freshly_initialised(net), {"module": type(net).__qualname__})
    return NetSource(lambda: _built_by(net), {"module": name_of(net)})


def check_net(net: Any) -> None:
    """Refuse what is no network: most often the examples, given where the network comes first."""
    if not isinstance(net, str) and not callable(net):
        raise Misuse(
            f"net is a {type(net).__name__}: the network comes first, mm.fit('mlp', (x, y)); give a name, an nn.Module"
            " or a function that builds one"
        )


def name_of(factory: Callable[[], nn.Module]) -> str:
    return getattr(factory, "__qualname__", type(factory).__qualname__)


def _built_by(factory: Callable[[], nn.Module]) -> nn.Module:
    try:
        module = factory()
    except Exception as error:  # a user's function may raise anything
        if isinstance(error, TypeError) and (needed := required_arguments(factory)):
            raise Misuse(
                f"the net factory {name_of(factory)} needs {', '.join(needed)}: give a function without arguments, such"
                f" as lambda: {getattr(factory, '__name__', 'factory')}(...)"
            ) from error
        kind = type(error).__name__
        raise Misuse(f"the net factory {name_of(factory)} raised {kind}: {first_line(error)}") from error
    if not isinstance(module, nn.Module):
        raise Misuse(f"the net factory returned {type(module).__name__}: it must return an nn.Module")
    return module


def required_arguments(function: Callable[..., Any]) -> list[str]:
    """The names of the arguments without which a function cannot be called."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some builtins have no signature
        return []
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [each.name for each in parameters if each.default is each.empty and each.kind not in optional]


def freshly_initialised(module: nn.Module) -> nn.Module:
    """A copy of the module with new weights: an instance is taken as an architecture, its weights are not used.

    Every layer with parameters must have `reset_parameters`; otherwise all members would start from equal values.
    """
    fresh = copy.deepcopy(module)
    for name, layer in fresh.named_modules():
        reset = getattr(layer, "reset_parameters", None)
        if callable(reset):
            reset()
        elif any(True for _ in layer.parameters(recurse=False)):
            where = f"'{name}' ({type(layer).__name__})" if name else type(layer).__name__
            raise Misuse(
                f"{where} has parameters but no reset_parameters(), so all members would start equal: "
                "pass a function that builds the net instead of an instance"
            )
    return fresh


def check_outputs(module: nn.Module, x: Tensor, width: int) -> None:
    """Refuse a network whose outputs on x (N, ...) are not (N, width)."""
    module.eval()
    try:
        with torch.no_grad():
            outputs = module(x)
    except Exception as error:  # a user's network may raise anything on an input of the wrong shape
        raise Misuse(f"the net cannot take inputs of shape {tuple(x.shape[1:])}: {first_line(error)}") from error
    if not isinstance(outputs, Tensor) or tuple(outputs.shape) != (len(x), width):
        got = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise Misuse(f"the net gives outputs {got} for {len(x)} inputs: the data needs ({len(x)}, {width})")
