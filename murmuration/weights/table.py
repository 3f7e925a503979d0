"""The weight families by name, for text: `gaussian:prior=he,draws=30`."""

from murmuration.recipe_text import Answer
from murmuration.weights.dropout import Dropout
from murmuration.weights.family import Point, WeightFamily
from murmuration.weights.gaussian import Gaussian
from murmuration.weights.masks import Masks
from murmuration.weights.priors import GaussianPrior

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
