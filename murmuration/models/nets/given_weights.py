"""Initial weights from networks, state dicts and safetensors files. Nothing is unpickled."""

import os.path
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from murmuration.models.nets.adapt import uncompiled
from murmuration.models.nets.inputs import WithSeveralInputs
from murmuration.models.nets.pixel_scale import PixelScale
from murmuration.models.nets.source import is_named
from murmuration.system.errors import Misuse, unknown
from murmuration.system.files import read_tensors

State = Mapping[str, Tensor]
Weights = nn.Module | Sequence[nn.Module | State] | State | str | Path
INIT_FROM = "init_from"


def given_weights(weights: Weights) -> list[State]:
    """Read the state dicts of networks, of a state dict or of a safetensors file."""
    if isinstance(weights, str | Path):
        return [read_weights(Path(weights))]
    models: list[Any] = list(weights) if isinstance(weights, list | tuple) else [weights]
    if not models:
        raise Misuse("init_from is an empty list: give one network, or one for each member")
    for model in models:
        if not isinstance(model, nn.Module | Mapping):
            expected = "an nn.Module, a list of them, an ensemble, a state dict, a run directory or a .safetensors file"
            raise Misuse(f"init_from is a {type(model).__name__}: expected {expected}")
    return [uncompiled(model).state_dict() if isinstance(model, nn.Module) else dict(model) for model in models]


def read_weights(path: Path) -> State:
    """Read the tensors of a safetensors file; refuse any other file."""
    if path.suffix == ".safetensors" and path.is_file():
        return read_tensors(path)
    problem = "is not a safetensors file, and nothing else is read" if os.path.exists(path) else "does not exist"
    saved = "safetensors.torch.save_file(net.state_dict(), 'net.safetensors')"
    raise Misuse(f"init_from='{path}' {problem}: give a run directory, or a file that {saved} wrote")


def with_weights(
    module: nn.Module, state: State, whose: str | Path = INIT_FROM, reset: Sequence[str] = ()
) -> nn.Module:
    """Load tensors into a network.

    Args:
        module: The network; changed in place.
        state: Tensors by name.
        whose: Where they come from, for messages.
        reset: Patterns of names that keep the values of `module`.

    Returns:
        The network in evaluation mode.

    Raises:
        Misuse: If names or shapes do not fit, a pattern matches nothing, or a value is NaN or infinite; buffers may
            hold infinity, as masks do.

    >>> with_weights(nn.Linear(2, 3), nn.Linear(2, 4).state_dict())
    Traceback (most recent call last):
    murmuration.system.errors.Misuse: init_from is of another architecture: 'weight' is (4, 2), expected (3, 2); ...
    """
    layers = [name for name, layer in module.named_modules() if isinstance(layer, PixelScale)]  # of these data
    reset, own = [*reset, *layers], module.state_dict()
    inside = isinstance(module, WithSeveralInputs) and not any(name.startswith("net.") for name in state)
    state = {f"net.{name}": tensor for name, tensor in state.items()} if inside else state
    for pattern in reset:  # a misspelt one would leave a trained part in place
        if not any(is_named(name, [pattern]) for name in own):
            raise unknown("part to reset", pattern, dict.fromkeys(name.rpartition(".")[0] for name in own))
    for name in dict.fromkeys([*own, *state]):
        got, expected = (tuple(tensors[name].shape) if name in tensors else "missing" for tensors in (state, own))
        if got != expected and not is_named(name, reset):
            part = name.rpartition(".")[0] or name
            hint = f"; write reset='{part}' to initialise it again" if whose == INIT_FROM and name in own else ""
            raise Misuse(f"{whose} is of another architecture: '{name}' is {got}, expected {expected}{hint}")
    taken = {name: tensor for name, tensor in state.items() if not is_named(name, reset)}
    parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    for name, tensor in taken.items():
        bad = int((~tensor.isfinite() if name in parameters else tensor.isnan()).sum())
        if bad:
            raise Misuse(
                f"{whose}: {bad} of {tensor.numel()} values of '{name}' are NaN or infinite: give other weights"
            )
    module.load_state_dict(taken, strict=False)
    return module.eval()


def describe_start(weights: Any, reset: Sequence[str]) -> dict[str, Any]:
    """Describe the initial weights of members for run.json."""
    if isinstance(weights, str | Path):
        return {"source": str(weights), "reset": list(reset)}
    count = f" of {len(weights)}" if isinstance(weights, list | tuple) else ""
    return {"source": type(weights).__qualname__ + count, "reset": list(reset)}
