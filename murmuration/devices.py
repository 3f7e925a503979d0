"""Devices by name: the CPU, CUDA, MPS, or the best of them."""

import torch

from murmuration.errors import Misuse

AUTO, CPU = "auto", "cpu"


def resolve_device(name: str | torch.device) -> str:
    """The name of a device of this machine; `auto` is CUDA if there is one, else MPS, else the CPU.

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
        raise Misuse(f"device='{name}' is not available here: write device='cpu'") from error
    return name


def is_available(name: str) -> bool:
    """Whether a device can be used here."""
    try:
        resolve_device(name)
    except Misuse:
        return False
    return True
