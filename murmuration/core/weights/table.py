"""The weight families by name, for text: `gaussian:prior=he,draws=30`."""

from murmuration.core.weights.dropout import Dropout
from murmuration.core.weights.family import Point, WeightFamily
from murmuration.core.weights.gaussian import Gaussian
from murmuration.core.weights.masks import Masks
from murmuration.core.weights.priors import GaussianPrior
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
