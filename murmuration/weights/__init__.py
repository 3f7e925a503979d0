"""What a weight is, and how a network runs on weights that are not its own."""

from murmuration.weights.distributions import Distribution
from murmuration.weights.dropout import Dropout
from murmuration.weights.elbo import ELBO
from murmuration.weights.family import POINT, ForwardSpec, NetworkWeights, Point, Realised, WeightFamily
from murmuration.weights.gaussian import Gaussian
from murmuration.weights.kernel_trace import Kernel, KernelTrace, trace_kernels
from murmuration.weights.masks import Masks
from murmuration.weights.operators import run_members
from murmuration.weights.priors import Prior
from murmuration.weights.stacked import UnsupportedOp
from murmuration.weights.structure import Structure
from murmuration.weights.table import WEIGHTS

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
