"""What a weight is, and how a network runs on weights that are not its own."""

# ruff: noqa: F401 - names to be imported from here
from murmuration.core.weights.distributions import Distribution
from murmuration.core.weights.dropout import Dropout, Masks
from murmuration.core.weights.elbo import ELBO
from murmuration.core.weights.family import POINT, ForwardSpec, NetworkWeights, Point, Realised, WeightFamily
from murmuration.core.weights.gaussian import Gaussian
from murmuration.core.weights.kernel_trace import Kernel, KernelTrace, trace_kernels
from murmuration.core.weights.operators import run_members
from murmuration.core.weights.priors import GaussianPrior, Prior
from murmuration.core.weights.stacked import UnsupportedOp
from murmuration.core.weights.structure import Structure
from murmuration.system.option_text import Answer

WEIGHTS: dict[str, Answer[WeightFamily]] = {
    "point": Answer(Point(), "point estimates"),
    "dropout": Answer(
        Dropout(), "point estimates with dropout that stays on when predicting (Gal and Ghahramani 2016)"
    ),
    "masks": Answer(Masks(), "point estimates under one fixed random mask per member"),
    "gaussian": Answer(Gaussian(), "Gaussian weights N(mean, std^2): Bayes by Backprop (Blundell et al. 2015)"),
    "moped": Answer(
        Gaussian(init_from=True, prior=GaussianPrior(1.0), beta=0.1),
        "Gaussian weights that begin at a trained network, which is the prior mean too (Krishnan et al. 2020)",
    ),
}
