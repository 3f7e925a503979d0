"""Murmuration: ensembles of neural networks that say how far each prediction can be trusted.

    import murmuration as mm

    data = mm.open_data("digits")
    ensemble = mm.fit("small-cnn", data, members=5)
    predictive = ensemble.predict(data.test.x)
    print(mm.score(predictive, data.test.y))
"""

__version__ = "0.1.0"

from murmuration.data import Data, Split, open_data
from murmuration.ensemble import Ensemble
from murmuration.errors import Failure, Misuse
from murmuration.fitting import fit, load, resume
from murmuration.likelihoods import Categorical, Gaussian, HeteroscedasticGaussian
from murmuration.metrics import Evaluation, Score, score
from murmuration.predictive import Predictive
from murmuration.recipe import Plan, Recipe

__all__ = [
    "Categorical",
    "Data",
    "Ensemble",
    "Evaluation",
    "Failure",
    "Gaussian",
    "HeteroscedasticGaussian",
    "Misuse",
    "Plan",
    "Predictive",
    "Recipe",
    "Score",
    "Split",
    "fit",
    "load",
    "open_data",
    "resume",
    "score",
]
