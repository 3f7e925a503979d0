"""Question 4: how weights move during training, and which points of their path become the ensemble."""

from murmuration.core.dynamics.base import Dynamics, OptState, StepTime, UpdateRule, WeightPath
from murmuration.core.dynamics.ivon import Ivon
from murmuration.core.dynamics.optimizer import OPTIMIZERS, Optimizer, TorchOptimizer, make_optimizer
from murmuration.core.dynamics.schedules import SCHEDULES, TrainTime, learning_rate_factor
from murmuration.core.dynamics.sgmcmc import CyclicalSgmcmc
from murmuration.core.dynamics.snapshot import Snapshot
from murmuration.core.dynamics.swa import Swa
from murmuration.core.dynamics.swag import Swag
from murmuration.system.option_text import Answer

DYNAMICS: dict[str, Answer[Dynamics]] = {
    "optimizer": Answer(Dynamics(), "the optimizer; the last weights are the ensemble"),
    "ivon": Answer(Ivon(), "Gaussian weights by natural gradients (IVON, Shen et al. 2024)"),
    "swa": Answer(Swa(), "the average of weights collected late in training (SWA, Izmailov et al. 2018)"),
    "swag": Answer(
        Swag(), "draws from a Gaussian fitted to those weights, diagonal plus low rank (SWAG, Maddox et al. 2019)"
    ),
    "snapshot": Answer(Snapshot(), "cyclical learning rate, the weights at the end of every cycle (Huang et al. 2017)"),
    "csgmcmc": Answer(
        CyclicalSgmcmc(),
        "cyclical Langevin steps, several points of every cycle (cSG-MCMC, Zhang et al. 2020); friction=1 is SGLD",
    ),
    "csghmc": Answer(CyclicalSgmcmc(friction=0.9), "the same with momentum: cyclical SGHMC"),
}

__all__ = [
    "DYNAMICS",
    "OPTIMIZERS",
    "SCHEDULES",
    "CyclicalSgmcmc",
    "Dynamics",
    "Ivon",
    "OptState",
    "Optimizer",
    "Snapshot",
    "StepTime",
    "Swa",
    "Swag",
    "TorchOptimizer",
    "TrainTime",
    "UpdateRule",
    "WeightPath",
    "learning_rate_factor",
    "make_optimizer",
]
