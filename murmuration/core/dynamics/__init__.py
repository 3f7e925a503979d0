"""Question 4: how weights move during training, and which points of their path become the ensemble."""

from murmuration.core.dynamics.base import Dynamics, StepTime as StepTime, WeightPath as WeightPath
from murmuration.core.dynamics.cycles import CyclicalSgmcmc, Fge, Snapshot
from murmuration.core.dynamics.ivon import Ivon
from murmuration.core.dynamics.optimizer import Optimizer as Optimizer, TorchOptimizer as TorchOptimizer
from murmuration.core.dynamics.schedules import TrainTime as TrainTime, learning_rate_factor as learning_rate_factor
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
    "fge": Answer(
        Fge(), "triangular learning rate, the weights at each minimum (fast geometric ensembling, Garipov et al. 2018)"
    ),
    "csgmcmc": Answer(
        CyclicalSgmcmc(),
        "cyclical Langevin steps, several points of every cycle (cSG-MCMC, Zhang et al. 2020); friction=1 is SGLD",
    ),
    "csghmc": Answer(CyclicalSgmcmc(friction=0.9), "the same with momentum: cyclical SGHMC"),
}
