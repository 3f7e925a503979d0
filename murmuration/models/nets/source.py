"""Sources of newly initialised networks: a name of this package, a factory, or a module used as an architecture."""

import copy
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn

from murmuration.models.nets import build_net
from murmuration.models.nets.adapt import has_lazy_tensors, plain_module
from murmuration.models.nets.table import parse_net
from murmuration.system.errors import Misuse, first_line
from murmuration.system.streams import kept_generators

Net = str | nn.Module | Callable[[], nn.Module]
EVERY = ("*",)  # the pattern of every name
EDGES = "edges"  # in the record of a network: of the bins of its columns of numbers


DATA_ENDINGS = (".csv", ".tsv", ".gz", ".xlsx", ".parquet", ".npz", ".npy")  # of files that are no networks


@dataclass(frozen=True)
class NetSource:
    """A function that builds a newly initialised network, and its record in run.json."""

    build: Callable[[], nn.Module]
    record: dict[str, Any]

    def structure(self) -> nn.Module:
        """Build a network whose random weights are not used; torch's global generator stays as it is."""
        with kept_generators():
            return self.build()


def net_source(
    net: Net, input_shape: tuple[int, ...], width: int, reset: Sequence[str] = EVERY, edges: Any = None
) -> NetSource:
    """Make a source of newly initialised networks; weights are drawn from torch's global generator.

    Args:
        net: Name of a network, function that builds one, or module used as an architecture.
        input_shape: Shape of one input, for a network by name.
        width: Number of outputs, for a network by name.
        reset: Patterns of the parameters of a module that are initialised again; the others keep their values.
        edges: Bins of a network by name with an embedding of numbers, see `edges_for`.

    Returns:
        The source with its record for run.json.

    Raises:
        Misuse: If `net` is none of these, or cannot be initialised again.
    """
    check_net(net)
    if isinstance(net, str):
        record = {"name": net} if edges is None else {"name": net, EDGES: [list(column) for column in edges]}
        return NetSource(lambda: build_net(net, input_shape, width, edges=edges), record)
    if not isinstance(net, nn.Module):
        return NetSource(lambda: _built_by(net), {"module": name_of(net)})
    plain = plain_module(net)
    if has_lazy_tensors(plain):
        kind = type(plain).__name__
        raise Misuse(f"the {kind} given has lazy layers without shapes: write lambda: {kind}(...) as the net")
    return NetSource(lambda: freshly_initialised(plain, reset), {"module": type(plain).__qualname__})


def check_net(net: Any) -> None:
    """Refuse a name that is not known, and an object that is not a network, most often examples passed first."""
    if not isinstance(net, str) and not callable(net):
        advice = "give a name, an nn.Module or a function that builds one"
        raise Misuse(f"net is a {type(net).__name__}: the network comes first, mm.fit('mlp', (x, y)); {advice}")
    if isinstance(net, str) and net.lower().endswith(DATA_ENDINGS):
        raise Misuse(f"'{net}' is data, given in the place of the network: write mm.fit('mlp', '{net}', ...)")
    if isinstance(net, str):
        parse_net(net)


def name_of(factory: Callable[..., Any]) -> str:
    return getattr(factory, "__qualname__", type(factory).__qualname__)


def _built_by(factory: Callable[[], nn.Module]) -> nn.Module:
    try:
        module = factory()
    except Exception as error:  # a user's function may raise anything
        problem = f"raised {type(error).__name__}: {first_line(error)}"
        if isinstance(error, TypeError) and (needed := required_arguments(factory)):
            call = f"lambda: {getattr(factory, '__name__', 'factory')}(...)"
            needs = f"needs {', '.join(needed)}: give a function without arguments, such as {call}"
            raise Misuse(f"the net factory {name_of(factory)} {needs}") from None
        raise Misuse(f"the net factory {name_of(factory)} {problem}") from error
    if not isinstance(module, nn.Module):
        raise Misuse(f"the net factory returned {type(module).__name__}: it must return an nn.Module")
    return plain_module(module)


def required_arguments(function: Callable[..., Any]) -> list[str]:
    """List the required arguments of a function."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some builtins have no signature
        return []
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in optional]


def is_named(name: str, patterns: Sequence[str]) -> bool:
    """Return whether the name of a tensor matches a pattern, or belongs to a part of that name.

    >>> is_named("head.0.weight", ["head"]), is_named("head.0.weight", ["*.weight"]), is_named("header", ["head"])
    (True, True, False)
    """
    return any(fnmatchcase(name, pattern) or name.startswith(f"{pattern}.") for pattern in patterns)


def freshly_initialised(module: nn.Module, patterns: Sequence[str] = EVERY) -> nn.Module:
    """Copy a module and initialise the trained parameters whose names match `patterns` again.

    Every layer with such parameters must have `reset_parameters`; otherwise all members would start from equal values.
    Parameters with `requires_grad=False`, and the buffers of layers without other parameters, keep their values.
    """
    fresh = copy.deepcopy(module)
    names = {id(p): name for name, p in fresh.named_parameters() if p.requires_grad and is_named(name, patterns)}
    unchanged = [(p, p.detach().clone()) for p in fresh.parameters() if id(p) not in names]
    for name, layer in fresh.named_modules():
        below, reset = list(layer.parameters()), getattr(layer, "reset_parameters", None)
        if not any(id(p) in names for p in below) and (below or not is_named(f"{name}.", patterns)):
            continue
        if callable(reset):
            reset()
        elif any(id(p) in names for p in layer.parameters(recurse=False)):
            label = f"'{name}' ({type(layer).__name__})" if name else type(layer).__name__
            problem = "has parameters but no reset_parameters(), so all members would start equal"
            raise Misuse(f"{label} {problem}: pass a function that builds the net instead of an instance")
    with torch.no_grad():
        for parameter, values in unchanged:
            parameter.copy_(values)
    return fresh
