"""What a weight is, and how a network runs on weights that are not its own."""

from murmuration.core.weights.distributions import Distribution
from murmuration.core.weights.dropout import Dropout
from murmuration.core.weights.elbo import ELBO
from murmuration.core.weights.family import POINT, ForwardSpec, NetworkWeights, Point, Realised, WeightFamily
from murmuration.core.weights.gaussian import Gaussian
from murmuration.core.weights.kernel_trace import Kernel, KernelTrace, trace_kernels
from murmuration.core.weights.masks import Masks
from murmuration.core.weights.operators import run_members
from murmuration.core.weights.priors import Prior
from murmuration.core.weights.stacked import UnsupportedOp
from murmuration.core.weights.structure import Structure
from murmuration.core.weights.table import WEIGHTS

__all__ = [
    "ELBO",
    "POINT",
    "WEIGHTS",
    "Distribution",
    "Dropout",
    "ForwardSpec",
    "Gaussian",
    "Kernel",
    "KernelTrace",
    "Masks",
    "NetworkWeights",
    "Point",
    "Prior",
    "Realised",
    "Structure",
    "UnsupportedOp",
    "WeightFamily",
    "run_members",
    "trace_kernels",
]
