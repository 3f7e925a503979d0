"""Devices by name (the CPU, CUDA, MPS, or the best of them), and the precision that networks compute in."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from murmuration.system.errors import Misuse

AUTO, CPU = "auto", "cpu"
FLOAT32, BF16 = PRECISIONS = ("float32", "bf16")
HALF = (torch.bfloat16, torch.float16)


def resolve_device(name: str | torch.device) -> str:
    """Check that a device is available and return its name; `auto` is CUDA if available, else MPS, else the CPU.

    >>> resolve_device("cpu")
    'cpu'
    """
    name = str(name)
    if name == AUTO:
        return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else CPU
    if name == "meta":
        raise Misuse("device='meta' holds no numbers: write device='cpu'")
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:  # torch raises either, depending on what is missing
        available = ", ".join(devices())
        raise Misuse(f"device='{name}' is not available here: write device='cpu' (available: {available})") from error
    return name


def devices() -> list[str]:
    """List the names of the devices that are available here, and `auto`.

    >>> devices()[0], devices()[-1]
    ('cpu', 'auto')
    """
    cuda = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    return [CPU, *cuda, *(["mps"] if torch.backends.mps.is_available() else []), AUTO]


def is_available(name: str) -> bool:
    """Return whether a device can be used here."""
    try:
        resolve_device(name)
    except Misuse:
        return False
    return True


def computing_in(precision: str, device: torch.device) -> AbstractContextManager:
    """Return a context in which a network computes in this precision, whatever `torch.autocast` is around it.

    Autocast belongs to a thread, so it is entered where a network runs. Its cache of converted weights is off: it would
    outlive the tensors of one pass.
    """
    if precision == BF16:
        return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)
    return in_float32(device)


def in_float32(device: torch.device) -> AbstractContextManager:
    """Return a context without autocast."""
    active = torch.is_autocast_enabled(device.type)
    return torch.autocast(device.type, enabled=False) if active else nullcontext()


def as_autocast(*tensors: Tensor | None) -> tuple[Tensor | None, ...]:
    """Convert tensors to the precision of the autocast that is active on their device, if any.

    Autocast does this for linear operators, but not for convolutions under vmap.
    """
    kind = next(tensor.device.type for tensor in tensors if tensor is not None)
    if not torch.is_autocast_enabled(kind):
        return tensors
    half = torch.get_autocast_dtype(kind)
    return tuple(None if tensor is None else tensor.to(half) for tensor in tensors)


def at_least_float32(tensor: Tensor) -> Tensor:
    """Convert a tensor in half precision to single precision; return others unchanged.

    >>> at_least_float32(torch.ones(2, dtype=torch.bfloat16)).dtype, at_least_float32(torch.ones(2).double()).dtype
    (torch.float32, torch.float64)
    """
    return tensor.float() if tensor.dtype in HALF else tensor


def refuse_autocast(device: str) -> None:
    """Refuse a `torch.autocast` around training: it would apply to losses but not in worker threads."""
    if any(torch.is_autocast_enabled(kind) for kind in {CPU, torch.device(device).type}):
        raise Misuse("torch.autocast is active around training: leave it out and write precision='bf16'")
