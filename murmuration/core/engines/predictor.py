"""Repeated predictions of the same members: the engine is chosen once, and calls of one shape are captured.

Engines round differently, so the choice must not depend on a measurement: a call has the same bits every time, in every
process of a machine with as many torch threads. Members that were trained one by one predict one by one, whose bits are
those of a plain network; up to 16 inputs in the calling thread, because threads take longer to start. Members that were
trained stacked in direct products, or elsewhere, and draws of random weights follow a rule that was found by
measurements on two cores:

| network | one input | up to 16 | more |
|---|---|---|---|
| every operator takes a member axis (dense) | stacked, in batched products | the same | the same, see below |
| convolutions make most multiplications | stacked by vmap | one member after another | threads |
| attention | one member after another | the same | threads |
| any other, such as dense with normalisation | stacked by vmap, else one after another | the same | threads |

Batched products, and worker threads, divide the work by members. Where that is uneven, as for 5 members on 2 threads,
members run one after another on more than 256 inputs: a large operator of one member is divided evenly.

Stacked outputs are compared once with those of the first member alone; if they differ by more than rounding, members
run one by one from then on. A second call on inputs of the same shape is captured (`capture.py`), and the calls after
it are replayed. A replay is bit-identical to the call itself; this is checked on the inputs of that call and on others.
"""

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from murmuration.core.engines.capture import Captured, address_of, capture, equal_bits
from murmuration.core.engines.outputs import join, member_outputs, passes
from murmuration.core.engines.team import Engine, Team, assemble, engine
from murmuration.core.population import Population
from murmuration.core.weights import NetworkWeights
from murmuration.core.weights.kernel_trace import LINEARS
from murmuration.core.weights.operators import in_order
from murmuration.system.files import aligned
from murmuration.system.workers import core_count

FEW = 16  # inputs: up to so many, members run in the calling thread
MANY = 256  # inputs: above, the operators of one member are large enough for several threads
UNEVEN = 1.1  # times the work of the other threads that the busiest one has
CAPTURES = 16  # shapes of inputs
CAPTURED_BYTES = 1 << 26  # of constants in all captures: draws of weights, not views of stored ones
BOUND = 1e-3  # relative difference of stacked outputs to those of a member alone, above which stacking is wrong
ROUNDINGS = 20  # the same in units of rounding, for networks in half precision

ATTENTION = {F.scaled_dot_product_attention, F.multi_head_attention_forward}


class Predictor:
    """Repeated predictions of the members of one architecture; thread-safe."""

    def __init__(
        self,
        module: nn.Module,
        weights: NetworkWeights,
        population: Population,
        runner: Engine,
        *,
        dtype: torch.dtype | None = None,
        seed: int = 0,
        first_member: int = 0,
    ) -> None:
        """Prepare predictions.

        Args:
            module: The network.
            weights: The weight family bound to it.
            population: The M members.
            runner: Engine that the members were trained on.
            dtype: Dtype that floating-point inputs are converted to; None for their own.
            seed: Seed of random weights.
            first_member: Index of the first member in the random streams.
        """
        self.module, self.weights, self.population, self.runner, self.dtype = module, weights, population, runner, dtype
        self.streams = {"seed": seed, "first_member": first_member}
        self._tensors = tuple(population.to_tensors().values())
        self._counted = [tensor for tensor in self._tensors if not tensor.is_inference()]  # which have versions
        self._versions: list[int] = []
        self._copies: list[Tensor] = []  # of the stored tensors that constants of captures were computed from
        self._teams: dict[Engine, Team] = {}
        self._trusted: set[Engine] = set()  # engines whose outputs were compared with a member's alone
        self._refused: set[Engine] = set()
        self._slow: str | None = None  # which of its inputs vmap is slow on; None: not known yet
        self._captured: dict[tuple, Captured] = {}
        self._seen: dict[tuple, int] = {}  # calls on inputs of a shape; -1: not captured
        self._lock = threading.Lock()

    def __call__(self, x: Tensor, draws: int = 1) -> Tensor:
        """Predict.

        Args:
            x: Inputs (N, ...).
            draws: Draws of the weights of each member.

        Returns:
            Outputs (M draws, N, K); the draws of a member are adjacent.
        """
        if self.dtype is not None and x.is_floating_point():
            x = x.to(self.dtype)
        x = aligned(x)
        self._forget_changed()
        if (outputs := self._replayed(x, draws)) is not None:
            return outputs
        failed: set[Engine] = set()
        # A network that cannot be stacked raises an error of some kind, and the next engine is tried; a mistake in the
        # inputs is raised again by the last.
        for candidate in self._engines(x, draws):
            try:
                outputs = self._outputs(candidate, x, draws)
                if not candidate.stacked or candidate in self._trusted or self._agrees(outputs, x, draws):
                    break
            except Exception:
                if not candidate.stacked:
                    raise
            failed.add(candidate)
        assert outputs is not None  # the last engine is not stacked
        self._trusted.add(candidate)
        self._refused |= failed
        if not candidate.workers and (candidate.direct or len(x) <= FEW or self._uneven(x, draws)):
            self._count(candidate, x, draws)
        return outputs

    def _replayed(self, x: Tensor, draws: int) -> Tensor | None:
        """Return the outputs by replays; None if a pass is not captured."""
        one_by_one = self._uneven(x, draws)
        captured = self._captured.get(key_of(x, draws, one_by_one))
        if captured is not None:
            with torch.no_grad():
                return captured.run(x)[0]
        parts = passes(x, stacked=not one_by_one)
        captures = [self._captured.get(key_of(part, draws, one_by_one)) for part in parts]
        if None in captures:
            return None
        with torch.no_grad():
            return join([capture.run(part)[0] for capture, part in zip(captures, parts, strict=True) if capture], dim=1)

    def _engines(self, x: Tensor, draws: int) -> Iterator[Engine]:
        """Return the engines to try, the best first; the last is not stacked and runs every network."""
        small, random = len(x) <= FEW, draws > 1
        direct, mapped = engine("stacked", direct=True), engine("stacked")
        if self._uneven(x, draws):
            yield engine("loop")
        if (random or self.runner.direct) and direct not in self._refused:
            yield direct
        if mapped not in self._refused:
            if small and (random or self.runner.stacked) and not self._takes_turns(x, draws):
                yield mapped
            elif not small and not random and self.runner.stacked and not self.runner.direct:
                yield self.runner
        if small:
            yield engine("loop")
        else:
            yield engine("threads") if random or self.runner.stacked else self.runner

    def _uneven(self, x: Tensor, draws: int) -> bool:
        """Return whether there are many inputs, and members cannot be divided evenly among threads."""
        members, threads = self.population.members * draws, core_count()
        busiest = math.ceil(members / threads) * threads / members
        return self.runner.direct and len(x) > MANY and busiest > UNEVEN

    def _outputs(self, runner: Engine, x: Tensor, draws: int) -> Tensor:
        """Return outputs (S, N, K) in contiguous memory, which decides how sums over them are rounded."""
        kept = self._teams.setdefault(runner, Team(runner, self.module, None))
        brief = runner.workers or draws > 1  # a kept structure would hold the drawn weights
        with assemble(runner, self.module) if brief else nullcontext(kept) as team:
            return member_outputs(team, self.weights, self.population, x, draws, **self.streams).contiguous()

    def _first_alone(self, x: Tensor, draws: int) -> Tensor:
        """Return outputs (draws, N, K) of the first member, run as a plain module."""
        first = self.population.group(slice(0, 1))
        with assemble(engine("loop"), self.module) as team:
            return member_outputs(team, self.weights, first, x, draws, **self.streams)

    def _agrees(self, outputs: Tensor, x: Tensor, draws: int) -> bool:
        """Return whether stacked outputs (S, N, K) are those of the first member alone, up to rounding."""
        reference = self._first_alone(x[:FEW], draws)
        difference = (outputs[: len(reference), : reference.shape[1]] - reference).abs().max()
        bound = max(BOUND, ROUNDINGS * torch.finfo(reference.dtype).eps) * reference.abs().max().clamp_min(1)
        return bool(difference <= bound) or not bool(reference.isfinite().all())

    def _takes_turns(self, x: Tensor, draws: int) -> bool:
        """Return whether members on a few inputs are faster one by one.

        Under vmap attention is slow, and so are convolutions of more than one input.
        """
        if self._slow is None:
            with CountMultiplications() as count:
                self._first_alone(x[:1], draws)
            self._slow = "attention" if count.attention else "several" if count.convolutions > count.products else ""
        return self._slow == "attention" or (self._slow == "several" and len(x) > 1)

    def _count(self, runner: Engine, x: Tensor, draws: int) -> None:
        """Count a call; the second one on inputs of a shape is captured, if no other thread is capturing."""
        one_by_one = self._uneven(x, draws)
        for key, part in {key_of(part, draws, one_by_one): part for part in passes(x, runner.stacked)}.items():
            calls = self._seen.get(key, 0)
            if calls < 0 or key in self._captured or not self._lock.acquire(blocking=False):
                continue
            try:
                self._seen[key] = calls + 1
                if calls and len(self._captured) < CAPTURES:
                    self._seen[key] = -1
                    self._capture(runner, key, part, draws)
            finally:
                self._lock.release()

    def _capture(self, runner: Engine, key: tuple, x: Tensor, draws: int) -> None:
        """Capture the call on inputs like x, if its replay has the same bits and its constants are small."""
        stored = {address_of(tensor) for tensor in self._tensors}
        with suppress(Exception):  # NotCapturable, or whatever an operator makes of other inputs
            with torch.no_grad():
                captured = capture(lambda: [self._outputs(runner, x, draws)], [x], stored)
            used = sum(tensor.bytes for tensor in self._captured.values())
            if used + captured.bytes <= CAPTURED_BYTES and all(
                equal_bits(captured.run(inputs)[0], self._outputs(runner, inputs, draws)) for inputs in (x, unlike(x))
            ):
                self._captured[key] = captured
                if captured.bytes and not self._copies:
                    self._copies = [tensor.clone() for tensor in self._tensors]

    def _forget_changed(self) -> None:
        """Drop captures if stored tensors were changed in place: constants may have been computed from them.

        Writes through `.data` or numpy do not raise a tensor's version; where there are constants, values are compared.
        """
        versions = [tensor._version for tensor in self._counted]
        if versions != self._versions or not all(map(torch.equal, self._copies, self._tensors)):
            with self._lock:
                self._captured, self._seen, self._versions, self._copies = {}, {}, versions, []


class CountMultiplications(TorchFunctionMode):
    """Counts the multiplications of convolutions and of linear layers, and notes attention."""

    attention, convolutions, products = False, 0, 0

    def __torch_function__(self, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in LINEARS:
            (_, weight, *_), _ = in_order(args, kwargs or {})
            multiplications = result.numel() * weight[0].numel()
            if LINEARS[func][0]:
                self.convolutions += multiplications
            else:
                self.products += multiplications
        self.attention |= func in ATTENTION
        return result


def key_of(x: Tensor, draws: int, alone: bool) -> tuple:
    """Return what a capture depends on besides the network: everything about the inputs but their values, and autocast.

    `alone` tells the last pass of many inputs, on which members run one by one, from a call on as many inputs.
    """
    return x.shape, x.stride(), x.dtype, x.device, draws, alone, *map(torch.is_autocast_enabled, ("cpu", "cuda"))


def unlike(x: Tensor) -> Tensor:
    """Return other inputs of the same kind; tokens stay in their range."""
    return 0.5 - x if x.is_floating_point() else x.flip(-1).clone(memory_format=torch.preserve_format)
