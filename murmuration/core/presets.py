"""The named recipes. This module loads no torch: the command line lists and checks names without it."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from murmuration.system.errors import unknown

if TYPE_CHECKING:
    from murmuration.core.recipe import Recipe

ANSWERS = {"sharing": "own", "weights": "point", "coupling": "none", "dynamics": "optimizer"}  # those of a plain recipe


@dataclass(frozen=True)
class Preset:
    """A named recipe, with advice on when to choose it.

    Attributes:
        recipe: The recipe; or its fields that differ from the defaults, where text becomes a recipe when it is needed.
        about: The method in one line.
        good: What it is good for.
        bad: Its drawbacks.
    """

    recipe: "Recipe | dict[str, Any]"
    about: str
    good: str
    bad: str

    @property
    def name(self) -> str:
        """Return the name of the recipe."""
        return self.recipe["name"] if isinstance(self.recipe, dict) else self.recipe.name

    @cached_property
    def value(self) -> "Recipe":
        """Return the recipe."""
        from murmuration.core.recipe import recipe_of

        return recipe_of(**self.recipe) if isinstance(self.recipe, dict) else self.recipe

    def answers(self) -> dict[str, str]:
        """Return the four answers as text, by question."""
        if not isinstance(self.recipe, dict):
            return self.recipe.answers()
        return {question: self.recipe.get(question, usual) for question, usual in ANSWERS.items()}


def recipe(name: str, **settings: Any) -> dict[str, Any]:
    """Return the fields of a recipe, with answers as text."""
    return {"name": name, **settings}


OWN_HEADS = "head=own,unscaled=body.embedding.*"  # of both variants of TabM
PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            recipe("single", members=1, fixed_members=True),
            "one network, as most people train it",
            "a baseline; the cheapest to train and to run",
            "no epistemic uncertainty",
        ),
        Preset(
            recipe("deep-ensemble"),
            "M networks from M initialisations (Lakshminarayanan et al. 2017)",
            "the default: accuracy, calibration and epistemic uncertainty with no setting to tune",
            "M networks to train, store and evaluate",
        ),
        Preset(
            recipe("weight-rde", coupling="weights"),
            "repulsion of weights (D'Angelo and Fortuin 2021)",
            "a reference for repulsion in the space of weights",
            "no measurable difference from deep-ensemble on the data measured",
        ),
        Preset(
            recipe("function-rde", coupling="outputs"),
            "repulsion of outputs (D'Angelo and Fortuin 2021)",
            "disagreement away from the data at little extra cost",
            "its gain in NLL is hardly measurable",
        ),
        Preset(
            recipe("feature-rde", sharing="head", coupling="features"),
            "repulsion of features under one shared head (Yashima et al. 2022)",
            "members that use different features under one head",
            "higher NLL under corruption than deep-ensemble on the data measured",
        ),
        Preset(
            recipe("svgd", coupling="weights:estimator=svgd"),
            "Stein variational gradient descent on weights (Liu and Wang 2016)",
            "particle approximation of a posterior over weights, for comparison with the literature",
            "three times the step of a small dense network; quality not measured here",
        ),
        Preset(
            recipe("forde", coupling="input-gradients:lengthscales=pca"),
            "repulsion of input gradients, weighted by the variance of inputs (FoRDE, Trinh et al. 2024)",
            "disagreement away from the data; lower NLL on MNIST, clean and corrupted",
            "two to three times the training time; no gain on a CIFAR-10 subset",
        ),
        Preset(
            recipe("forde-identity", coupling="input-gradients"),
            "the same with equal weights of all input directions",
            "as forde, where no input directions dominate",
            "two to three times the training time; no gain on a CIFAR-10 subset",
        ),
        Preset(
            recipe("forde-pca", coupling="input-gradients:lengthscales=pca"),
            "forde by its full name",
            "as forde",
            "as forde",
        ),
        Preset(
            recipe("forde-tuned", coupling="input-gradients:lengthscales=tuned"),
            "between the two, chosen on corrupted validation examples",
            "as forde, with the length scales chosen on validation examples",
            "trains several ensembles to choose: 15 to 25 times the training time",
        ),
        Preset(
            recipe("batch-ensemble", sharing="rank-one"),
            "one network, M members by rank-one factors of its kernels (Wen et al. 2020)",
            "M members in the memory of about one network",
            "its members learn together and are worth about one network: see batch-ensemble-independent",
        ),
        Preset(
            recipe("batch-ensemble-independent", sharing="rank-one:gamma=M,init=rademacher"),
            "the same with random signs: members learn as if trained alone (Velikanov et al. 2022)",
            "M members in the memory of about one network, as good as separate ones on the data measured",
            "needs SGD; training and prediction still cost M networks",
        ),
        Preset(
            recipe(
                "tabm",
                sharing=f"rank-one:init=rademacher,others=ones,bias=own,{OWN_HEADS}",
                members=16,
                batch_order="same",
            ),
            "one network, members by rank-one factors, signs on the inputs, own heads (TabM, Gorishniy et al. 2025)",
            "tables: many members in the memory of about one network; use AdamW and early stopping",
            "for dense networks; training and prediction still cost M networks",
        ),
        Preset(
            recipe(
                "tabm-mini",
                sharing=f"rank-one:init=rademacher,factors=first,{OWN_HEADS}",
                members=16,
                batch_order="same",
            ),
            "the same with factors of the inputs alone (TabM-mini)",
            "tables: as tabm, with fewer parameters of the members' own",
            "for dense networks; training and prediction still cost M networks",
        ),
        Preset(
            recipe("packed", members=16, batch_order="same"),
            "M networks from M initialisations, trained on the same batches (TabM-packed)",
            "the reference of tabm: nothing is shared but the batches",
            "M networks to store; deep-ensemble has batches of each member's own besides",
        ),
        Preset(
            recipe("mask-ensemble", sharing="all", weights="masks"),
            "one network, M members with a fixed dropout mask each",
            "M members in the memory of one network, any architecture",
            "no better than one network on the data measured",
        ),
        Preset(
            recipe("mc-dropout", weights="dropout", members=1),
            "one network with dropout active in prediction (Gal and Ghahramani 2016)",
            "uncertainty from one network trained with dropout",
            "30 passes a prediction; its draws are alike: misses unfamiliar inputs",
        ),
        Preset(
            recipe("bayes", weights="gaussian", members=1),
            "one network with Gaussian weights: Bayes by Backprop (Blundell et al. 2015)",
            "a distribution over every weight, small data, pruning by signal-to-noise ratio",
            "2.3 times the step; 30 passes a prediction; beta must fit the size of the network; "
            "one member misses unfamiliar inputs",
        ),
        Preset(
            recipe("bayes-flipout", weights="gaussian:estimator=flipout", members=1),
            "the same, trained by flipout (Wen et al. 2018)",
            "as bayes, with gradients of less variance in large batches",
            "2.4 times the step; 30 passes a prediction",
        ),
        Preset(
            recipe("bayes-last-layer", weights="gaussian:where=last,beta=0.1", members=1),
            "the same for the last layer alone, on a deterministic body",
            "a distribution over the head at little cost",
            "only the uncertainty of the last layer",
        ),
        Preset(
            recipe("ivon", weights="gaussian:estimator=draw,std_param=std,beta=0", dynamics="ivon", members=1),
            "one network with Gaussian weights, trained by natural gradients (IVON, Shen et al. 2024)",
            "Gaussian weights at 1.3 times the step of Adam",
            "30 passes a prediction; a learning rate of its own; misses unfamiliar inputs",
        ),
        Preset(
            recipe(
                "rank1-bnn", sharing="rank-one", weights="gaussian:where=factors,prior=gaussian_0.1,beta=0.1,draws=5"
            ),
            "a batch ensemble with Gaussian factors (Dusenberry et al. 2020)",
            "M members with random factors in the memory of about one network",
            "5 M passes a prediction; quality not measured here",
        ),
        Preset(
            recipe("last-layer-ensemble", sharing="backbone"),
            "one body, M heads; with sharing backbone:frozen=yes on a body that is trained already",
            "heads for a backbone that is trained already",
            "members differ in the head alone; higher NLL than deep-ensemble on the data measured",
        ),
        Preset(
            recipe("ride", sharing="backbone", coupling="divergence", loss="ldam-drw", members=3),
            "experts on one body, LDAM with deferred re-weighting, kept apart by divergence (RIDE, Wang et al. 2021)",
            "rare classes of a long-tailed training set",
            "for classes only; experts differ in the head alone unless sharing names says more",
        ),
        Preset(
            recipe("sade", sharing="backbone", loss="sade", members=3),
            "experts on one body for common, equally frequent and rare classes (SADE, Zhang et al. 2022)",
            "test data of unknown class frequencies: members can be weighted for them without labels",
            "for classes only; experts differ in the head alone unless sharing names says more",
        ),
        Preset(
            recipe("swa", dynamics="swa", members=1),
            "one network at the average of its late weights (Izmailov et al. 2018)",
            "one network at a flatter place of the loss, at no cost in prediction",
            "no epistemic uncertainty; no lower NLL than single on the data measured",
        ),
        Preset(
            recipe("swag", dynamics="swag", members=1),
            "networks drawn from a Gaussian fitted to the late weights of one (Maddox et al. 2019)",
            "30 members from one training run",
            "30 passes a prediction; hardly different from swa on the data measured",
        ),
        Preset(
            recipe("multi-swag", dynamics="swag"),
            "the same around M independent networks (Wilson and Izmailov 2020)",
            "the lowest NLL at equal gradient steps on the data measured, with snapshot",
            "30 M networks to store and evaluate unless draws are fewer",
        ),
        Preset(
            recipe("snapshot", dynamics="snapshot", members=1),
            "one run, its weights at the end of every learning-rate cycle (Huang et al. 2017)",
            "an ensemble from one training run",
            "members of one run predict alike",
        ),
        Preset(
            recipe("csgmcmc", dynamics="csgmcmc", members=1),
            "cyclical stochastic-gradient MCMC, several points of every cycle (Zhang et al. 2020)",
            "samples of a posterior from one training run",
            "depends on its learning rate",
        ),
    )
}

MIXTURES: dict[str, Preset] = {  # networks beside models that are not
    "mixed": Preset(
        recipe("mixed", models=("ridge", "logistic", "hist-gradient-boosting", "random-forest", "natural-boosting")),
        "a deep ensemble beside linear models, forests and boosted trees, weighted by greedy selection with "
        "replacement on validation NLL (Caruana et al. 2004)",
        "tables: each part covers for the others",
        "the weights are chosen on the validation examples, which should be a hundred or more",
    )
}


def preset_named(name: str) -> Preset:
    """Return the preset of that name.

    Args:
        name: Such as "forde".

    Raises:
        Misuse: If there is none.
    """
    presets = {**PRESETS, **MIXTURES}
    if name not in presets:
        raise unknown("recipe", name, presets, see="murmur list recipes")
    return presets[name]
