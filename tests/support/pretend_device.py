"""A pretended accelerator, `pretend:0`: its tensors hold CPU memory, and every operator checks where its tensors are.

It stands for CUDA where there is no GPU: operators on tensors of two devices raise, numpy cannot read its tensors, it
has random generators of its own, and, like MPS, it may have no double precision. Numbers are those of the CPU kernels,
so that a run on it can be compared with one on the CPU bit for bit, and code that depends on values runs too.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "pretend"
CROSSING = {"copy_", "_to_copy", "_copy_from", "_copy_from_and_resize"}  # may take tensors of two devices
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_"}  # their indices may be on the CPU
REFUSED = {"resize_", "set_", "squeeze_", "unsqueeze_", "transpose_", "t_"}  # change the shape of the wrapper
NO_SCALARS = ("_fused_", "cat", "stack", "gather", "scatter")  # kernels that read tensors of no axes on the device too


class Settings:
    """State of the device."""

    active = False  # outside of `pretended` the device is missing
    double = True  # whether it has double precision
    generator = torch.Generator().manual_seed(99)  # the device's global generator
    seeds: set[int] = set()  # of the device's generators  # noqa: RUF012
    operators = 0


class Module:
    """`torch.pretend`, the counterpart of `torch.cuda`."""

    default_generators = (Settings.generator,)

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return Settings.active

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return int(Settings.active)  # so that `fork_rng` of later tests looks for no such device

    def get_rng_state(self, device: Any = None) -> Tensor:
        return Settings.generator.get_state()

    def set_rng_state(self, state: Tensor, device: Any = None) -> None:
        Settings.generator.set_state(state)

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        Settings.generator.manual_seed(seed)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]


class Hooks(torch._C._acc.PrivateUse1Hooks):
    """Whether the device is there, for C++."""

    def is_available(self) -> bool:
        return Settings.active

    def has_primary_context(self, index: int) -> bool:
        return Settings.active

    def is_built(self) -> bool:
        return True


_setup_privateuseone_for_python_backend(NAME, Module(), Hooks())
DEVICE = torch.device(NAME, 0)


class Pretended(Tensor):
    """A tensor of the device around one on the CPU."""

    inner: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    def tolist(self) -> list:  # torch has none for subclasses
        return self.inner.tolist()

    @staticmethod
    def __new__(cls, inner: Tensor) -> "Pretended":
        if inner.dtype == torch.float64 and not Settings.double:
            raise TypeError("the device has no float64")
        made = Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            layout=inner.layout,
            device=DEVICE,
        )
        made.inner = inner
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Pretended({self.inner})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    if not Settings.active:
        raise RuntimeError(f"the device {NAME} is not available")
    Settings.operators += 1
    name = func._schema.name.partition("::")[2]
    if name in REFUSED:
        raise NotImplementedError(name)
    target = _device(name, func, args, kwargs)
    mine = {id(t.inner): t for t in tree_leaves((args, kwargs)) if isinstance(t, Pretended)}
    plain, named = tree_map(_inner, args), tree_map(_inner, kwargs)
    if named.get("device") is not None:
        named["device"] = torch.device("cpu")
    drawn = _generator(func, named, target)
    with drawn:
        found = func(*plain, **named)

    def wrap(value: Any) -> Any:
        if not isinstance(value, Tensor) or target.type == "cpu":
            return value
        return mine.get(id(value)) if id(value) in mine else Pretended(value)

    return tree_map(wrap, found)


def _inner(value: Any) -> Any:
    return value.inner if isinstance(value, Pretended) else value


def _device(name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> torch.device:
    """The device of the result; refuses tensors of two devices where CUDA does."""
    if kwargs.get("device") is not None:
        return torch.device(kwargs["device"])
    if name in CROSSING:
        return args[0].device
    given = args[:1] + args[2:] if name in INDEXING else args
    strict = name.startswith(NO_SCALARS)
    tensors = [t for t in tree_leaves((given, kwargs)) if isinstance(t, Tensor)]
    places = {t.device for t in tensors if strict or t.dim() or t.device.type != "cpu"}
    if len(places) > 1:
        raise RuntimeError(f"Expected all tensors to be on the same device: {func} got {sorted(map(str, places))}")
    return places.pop() if places else torch.device("cpu")


@contextmanager
def _generator(func: Any, kwargs: dict[str, Any], target: torch.device) -> Iterator[None]:
    """Random operators on the device draw from a generator of the device: the one given, or the global one."""
    given = kwargs.get("generator")
    if given is not None and target.type == NAME and given.initial_seed() not in Settings.seeds:
        raise RuntimeError(f"{func}: expected a generator on {target}")
    if given is not None or target.type == "cpu" or torch.Tag.nondeterministic_seeded not in func.tags:
        yield
        return
    before = torch.get_rng_state()
    torch.default_generator.set_state(Settings.generator.get_state())
    try:
        yield
        Settings.generator.set_state(torch.get_rng_state())
    finally:
        torch.set_rng_state(before)


LIBRARY = torch.library.Library("_", "IMPL")
LIBRARY.fallback(lambda op, *args, **kwargs: _run(op, args, kwargs), "PrivateUse1")  # makes tensors: empty, arange, ...
LIBRARY.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")  # autocast is accepted and changes nothing


class Generator(torch.Generator):
    """`torch.Generator`, of the pretended device too."""

    def __new__(cls, device: Any = "cpu") -> "Generator":
        mine = torch.device(device).type == NAME
        made = super().__new__(cls, "cpu" if mine else device)
        made.mine = mine
        return made

    def manual_seed(self, seed: int) -> "Generator":
        if self.mine:  # operators get another object for the same generator: its seed tells the device
            Settings.seeds.add(seed)
        super().manual_seed(seed)
        return self


@contextmanager
def pretended(double: bool = True) -> Iterator[str]:
    """The device is there inside this block; without `double` it has no double precision."""
    Settings.active, Settings.double, Settings.operators = True, double, 0
    Settings.generator.manual_seed(99)
    torch._C._set_only_lift_cpu_tensors(True)
    try:
        with mock.patch.object(torch, "Generator", Generator):
            yield str(DEVICE)
    finally:
        torch._C._set_only_lift_cpu_tensors(False)
        Settings.active = False
        Settings.seeds.clear()
