"""A whole ensemble as one `nn.Module`: preparation, members, calibration, uncertainties; for torch.export and ONNX."""

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from murmuration.data import Preparation
from murmuration.data.preparation import ArrayPreparation, FeaturePreparation, ImagePreparation, TokenPreparation
from murmuration.errors import Misuse
from murmuration.likelihoods import REGRESSION, Likelihood
from murmuration.posthoc.calibrator import Calibrator
from murmuration.predictive import Predictive

MOMENTS = ("mean", "aleatoric_var", "epistemic_var", "total_var")  # of a regression
ENTROPIES = ("mean", "entropy", "expected_entropy", "mutual_information")  # of classes and labels


class EnsembleModule(nn.Module):
    """Inputs (N, ...) -> tensors by name, in float32: see `Ensemble.as_module`."""

    def __init__(
        self,
        prepare: nn.Module,
        members: Sequence[nn.Module],
        likelihood: Callable[[int], Likelihood],  # of so many outputs
        calibrator: Calibrator | None,
    ) -> None:
        super().__init__()
        self.prepare, self.members = prepare, nn.ModuleList(members)
        self.likelihood, self.calibrator = likelihood, calibrator

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        inputs = self.prepare(x)
        outputs = torch.stack([member(inputs).float() for member in self.members])  # (S, N, K)
        found = Predictive(outputs, self.likelihood(outputs.shape[-1]))
        found = found if self.calibrator is None else self.calibrator(found)
        names = MOMENTS if found.task == REGRESSION else ENTROPIES
        return {name: getattr(found, name).float() for name in names}


class Standardise(nn.Module):
    """(x - mean) / std for each channel of inputs (N, C, ...), in float64, then float32."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float], axes: int) -> None:
        super().__init__()
        for name, values in (("mean", mean), ("std", std)):
            self.register_buffer(name, torch.tensor(values, dtype=torch.float64).view(-1, *(1,) * axes))

    def forward(self, x: Tensor) -> Tensor:
        return ((x.double() - self.mean) / self.std).float()


class AsType(nn.Module):
    """Inputs in the type that networks take."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, x: Tensor) -> Tensor:
        return x.to(self.dtype)


def preparation_module(preparation: Preparation | None, dtype: torch.dtype) -> nn.Module:
    """A preparation as a module; refuses tables and several inputs, which are no single tensor."""
    if preparation is None or isinstance(preparation, TokenPreparation):
        return AsType(dtype)
    if isinstance(preparation, ArrayPreparation | ImagePreparation):
        return Standardise(preparation.mean, preparation.std, len(preparation.shape) - 1)
    if isinstance(preparation, FeaturePreparation):
        backbone = copy.deepcopy(getattr(preparation.features, "backbone", None))
        assert backbone is not None, "the preparation of a run that was loaded has its network"
        kind = torch.int64 if isinstance(preparation.inputs, TokenPreparation) else dtype
        return nn.Sequential(
            preparation_module(preparation.inputs, kind), backbone, preparation_module(preparation.scale, dtype)
        )
    raise Misuse(
        f"{type(preparation).__name__} reads columns or several inputs, and a module takes one tensor: write"
        " as_module(prepared=True) and give it ensemble.prepare(x)"
    )
