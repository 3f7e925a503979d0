"""A whole ensemble as one `nn.Module`: preparation, members, calibration, uncertainties; for torch.export and ONNX."""

import copy
import io
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from murmuration.data import Preparation
from murmuration.data.numpy_arrays import as_array
from murmuration.data.preparation import ArrayPreparation, FeaturePreparation, ImagePreparation, TokenPreparation
from murmuration.data.ranges import Ranges
from murmuration.data.scaling import EDGE
from murmuration.likelihoods import REGRESSION, Likelihood
from murmuration.prediction.outside import Baseline, outside_of
from murmuration.prediction.posthoc.calibrator import Calibrator
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Misuse, described, first_line, unknown
from murmuration.system.streams import global_stream

MOMENTS = ("mean", "aleatoric_var", "epistemic_var", "total_var")  # of a regression
ENTROPIES = ("mean", "entropy", "expected_entropy", "mutual_information")  # of classes and labels


def program_bytes(module: nn.Module, x: Tensor) -> bytes:
    """Return the file of a `torch.export` program that takes any number of inputs."""
    file = io.BytesIO()
    with silent():
        try:
            program = torch.export.export(module, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
        except Misuse:
            raise
        except Exception as error:  # whatever the tracer meets in a user's network
            raise unexportable(error) from error
    torch.export.save(program, file)
    return file.getvalue()


@contextmanager
def silent() -> Iterator[None]:
    """Keep the program that torch could not trace, and its logs, off the screen within the block."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(level)


def unexportable(error: Exception) -> Misuse:
    """Return the error for a network that `torch.export` cannot trace, with what to write instead."""
    reason = first_line(error)
    if "data-dependent" in reason:
        hint = "forward branches on values; write torch.where(condition, a, b) for `if`"
    elif "numpy" in reason:
        hint = "forward leaves torch for numpy; write torch functions"
    elif "specialized" in str(error) or "Constraints violated" in reason:
        hint = "forward fixes the number of inputs, or loops over them; write x.shape[0], and operations of all inputs"
    else:
        hint = f"{type(error).__name__}: {reason.rstrip('.')}"
    return Misuse(f"a network cannot be exported: {hint}")


# Ending of the file -> its content, from the module and a batch of inputs (N, ...).
EXPORTS: dict[str, Callable[[nn.Module, Tensor], bytes]] = {".pt2": program_bytes}


def exporter(path: Path) -> Callable[[nn.Module, Tensor], bytes]:
    """Return what makes the content of a file to write; refuse other endings, and a folder that does not exist."""
    if path.suffix not in EXPORTS:
        raise unknown("ending of an exported file", path.suffix, EXPORTS)
    if not path.parent.is_dir():
        raise Misuse(f"cannot write {path}: the folder {path.parent} does not exist; make it first")
    return EXPORTS[path.suffix]


def example_inputs(x: Any) -> Tensor:
    """Return a batch of inputs (N, ...) of at least two, of which a program learns that N may vary."""
    if isinstance(x, Tensor) or (values := as_array(x)).dtype.kind in "iufb":
        inputs = x if isinstance(x, Tensor) else torch.as_tensor(values)
        if inputs.ndim and len(inputs):
            return inputs if len(inputs) > 1 else torch.cat([inputs, inputs])
    raise Misuse(f"x is {described(x)}: expected a batch of inputs, a tensor or array (N, ...) of numbers")


def require_answers(module: nn.Module, x: Tensor) -> None:
    """Refuse inputs (n, ...) that a network cannot take."""
    try:
        module(x)
    except Misuse:
        raise
    except Exception as error:  # a user's network may raise anything
        raise Misuse(f"a network cannot take {len(x)} inputs {tuple(x.shape)}: {first_line(error)}") from error


class EnsembleModule(nn.Module):
    """Inputs (N, ...) -> tensors by name, in float32: see `Ensemble.as_module`."""

    low: Tensor
    high: Tensor
    places: Tensor | None
    flags: Tensor | None

    def __init__(
        self,
        prepare: nn.Module,
        members: Sequence[nn.Module],
        likelihood: Callable[[int], Likelihood],  # of a number of outputs
        calibrator: Calibrator | None,
        shape: tuple[int, ...] | None,  # of an input, if it is known
        ranges: Ranges | None = None,  # of the training inputs, with the baseline for inputs far outside
        baseline: Baseline | None = None,
    ) -> None:
        super().__init__()
        self.baseline, self.clip = (baseline, ranges.clip) if ranges is not None else (None, None)
        for name in ("low", "high", "places", "flags"):
            buffer = getattr(ranges, name, None)
            self.register_buffer(name, None if buffer is None else buffer.clone())  # of a storage of its own
        self.prepare, self.members = prepare, nn.ModuleList(members)
        self.likelihood, self.calibrator, self.shape = likelihood, calibrator, shape
        self.checked = False  # that members draw no random numbers

    def outputs(self, inputs: Tensor) -> Tensor:
        """Return the outputs (S, N, K) of all members for prepared inputs (N, ...), which some would overwrite."""
        return torch.stack([member(inputs.clone()).float() for member in self.members])

    def refuse_draws(self, inputs: Tensor) -> None:
        """Refuse members that draw random numbers, which `predict` fixes and other programs do not, or keep state."""
        with global_stream(0, "prediction", 0, device=inputs.device) as drew, torch.no_grad():
            outputs = self.outputs(inputs)
            drawn = drew()
            changing = not drawn and not torch.equal(outputs.nan_to_num(), self.outputs(inputs).nan_to_num())
        if changing:
            cause = "forward keeps state, or draws from Python's random or numpy"
            raise Misuse(f"a network gives other outputs for the same inputs in evaluation mode: {cause}; remove it")
        if drawn:
            hint = "write F.dropout(x, p, self.training), and noise under `if self.training:`"
            raise Misuse(f"a network draws random numbers in evaluation mode, so no module repeats `predict`: {hint}")
        self.checked = True

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        if x.is_complex() or (self.shape is not None and tuple(x.shape[1:]) != self.shape):
            expected = "real numbers" if self.shape is None else f"real numbers of shape (N, {str(self.shape)[1:-1]})"
            raise Misuse(f"inputs of shape {tuple(x.shape)} and type {x.dtype}: expected {expected}")
        inputs = self.prepare(x)
        if not (self.checked or torch.compiler.is_compiling()):
            self.refuse_draws(inputs[:2])
        outputs = self.outputs(inputs)
        pred = Predictive(outputs, self.likelihood(outputs.shape[-1]))
        pred = pred if self.calibrator is None else self.calibrator(pred)
        if self.baseline is not None:
            ranges = Ranges(self.low, self.high, self.places, self.flags, self.clip)
            pred = replace(pred, outside=outside_of(ranges, inputs), baseline=self.baseline)
        values = {name: getattr(pred, name).float() for name in (MOMENTS if pred.task == REGRESSION else ENTROPIES)}
        if not x.is_floating_point():
            return values
        finite = x.float().flatten(1).isfinite().all(1)  # (N,); a network may answer infinity with confidence
        return {
            name: value.where(finite.view(-1, *(1,) * (value.dim() - 1)), torch.nan) for name, value in values.items()
        }


class Standardise(nn.Module):
    """(x - mean) / std for each channel of inputs (N, C, ...), in float64, smoothly clipped if asked, then float32."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float], axes: int, clip: float | None = None) -> None:
        super().__init__()
        self.clip = clip
        for name, values in (("mean", mean), ("std", std)):
            self.register_buffer(name, torch.tensor(values, dtype=torch.float64).view(-1, *(1,) * axes))

    def forward(self, x: Tensor) -> Tensor:
        z = (x.double() - self.mean) / self.std
        return (z if self.clip is None else z / (1 + (z / self.clip).square()).sqrt()).float()


class NormalScores(nn.Module):
    """The quantile transform of inputs (N, D) to normal scores, in float64, then float32; see `data/scaling.py`."""

    quantiles: Tensor

    def __init__(self, quantiles: Sequence[Sequence[float]]) -> None:
        super().__init__()
        self.register_buffer("quantiles", torch.tensor(quantiles, dtype=torch.float64))  # (D, Q)

    def forward(self, x: Tensor) -> Tensor:
        columns = x.double().T.contiguous()  # (D, N)
        rising, falling = self.levels(columns, right=True), self.levels(columns, right=False)
        return torch.special.ndtri((0.5 * (rising + falling)).clamp(EDGE, 1 - EDGE)).T.float()

    def levels(self, x: Tensor, right: bool) -> Tensor:
        """Return the level of the quantile at x (D, N), interpolated; among equal quantiles the last or the first."""
        count = self.quantiles.shape[1]
        above = torch.searchsorted(self.quantiles, x, right=right).clamp(1, count - 1)
        low, high = self.quantiles.gather(1, above - 1), self.quantiles.gather(1, above)
        at_tie = (x >= low if right else x > low).double()
        part = torch.where(high > low, (x - low) / torch.where(high > low, high - low, 1.0), at_tie)
        return (above - 1 + part.clamp(0, 1)) / (count - 1)


class AsType(nn.Module):
    """Inputs in the type that networks take."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, x: Tensor) -> Tensor:
        return x.to(self.dtype)


def preparation_module(preparation: Preparation | None, dtype: torch.dtype) -> nn.Module:
    """Return a preparation as a module; refuse tables and several inputs, which are not a single tensor."""
    if preparation is None or isinstance(preparation, TokenPreparation):
        return AsType(dtype)
    if isinstance(preparation, ArrayPreparation) and preparation.quantiles:
        return NormalScores(preparation.quantiles)
    if isinstance(preparation, ArrayPreparation | ImagePreparation):
        clip = preparation.clip if isinstance(preparation, ArrayPreparation) else None
        return Standardise(preparation.mean, preparation.std, len(preparation.shape) - 1, clip)
    if isinstance(preparation, FeaturePreparation):
        backbone = copy.deepcopy(getattr(preparation.features, "backbone", None))
        assert backbone is not None, "the preparation of a run that was loaded has its network"
        kind = torch.int64 if isinstance(preparation.inputs, TokenPreparation) else dtype
        inputs, scale = preparation_module(preparation.inputs, kind), preparation_module(preparation.scale, dtype)
        return nn.Sequential(inputs, backbone, scale)
    reason = "the inputs are columns of a table or several, and a module takes one tensor"
    raise Misuse(f"{reason}: write prepared=True, and give the module ensemble.prepare(x)")
