"""A recipe: one answer to each of the four questions.

Named methods are presets. Because the questions are independent, any answer of a preset can be replaced.
"""

import re
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from murmuration.core.coupling import COUPLINGS, Repulsion
from murmuration.core.dynamics import DYNAMICS, Dynamics
from murmuration.core.sharing import SHARING, Sharing
from murmuration.core.weights import WEIGHTS, WeightFamily
from murmuration.system.errors import Misuse, unknown
from murmuration.system.option_text import Answer, format_text, parse

QUESTIONS: dict[str, Any] = {"sharing": SHARING, "weights": WEIGHTS, "coupling": COUPLINGS, "dynamics": DYNAMICS}
BatchOrder = Literal["own", "same", "split"]
POINT = WEIGHTS["point"].value


@dataclass(frozen=True)
class Recipe:
    """A method: one answer to each of the four questions, as objects; `make_recipe` parses them from text.

    >>> print(make_recipe("deep-ensemble"))
    deep-ensemble: sharing own, weights point, coupling none, dynamics optimizer

    Attributes:
        name: Name of the recipe, for display and in the run.
        sharing: Question 1: what members share.
        weights: Question 2: what a member's weights are, such as points or Gaussians.
        coupling: Question 3: the repulsion between members; None to train them independently.
        dynamics: Question 4: how weights move, and which points of their path become the ensemble.
        members: Default number of members.
        fixed_members: Whether any other number of members is refused.
        loss: Default loss for classes, by name.
        batch_order: Default order of batches of several members: "own", "same" or "split".
        models: Names of models that are not networks, weighted with the networks by greedy selection.
    """

    name: str = "custom"
    sharing: Sharing = SHARING["own"].value
    weights: WeightFamily = POINT
    coupling: Repulsion | None = None
    dynamics: Dynamics = field(default_factory=Dynamics)
    members: int | None = None
    fixed_members: bool = False
    loss: str | None = None
    batch_order: BatchOrder | None = None
    models: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        kinds = {"sharing": Sharing, "weights": WeightFamily, "dynamics": Dynamics, "coupling": Repulsion}
        for question, kind in kinds.items():
            answer, optional = getattr(self, question), " or None" if question == "coupling" else ""
            if not isinstance(answer, kind) and not (optional and answer is None):
                need = f"a {kind.__name__}{optional}"
                raise Misuse(f"{question}={answer!r}: need {need}; for text use make_recipe({question}='...')")
        self.weights.check_dynamics(self.dynamics)
        if self.sharing.what == "all" and not (self.weights.stochastic or self.weights.separates_members):
            both = f"sharing {self.text('sharing')} with weights {self.text('weights')}"
            raise Misuse(f"{both}: members would stay equal; write weights masks")

    def __str__(self) -> str:
        answers = self.answers() | ({"models": "+".join(self.models)} if self.models else {})
        return f"{self.name}: " + ", ".join(f"{question} {answer}" for question, answer in answers.items())

    def text(self, question: str) -> str:
        """Return the answer to one question as text.

        Args:
            question: "sharing", "weights", "coupling" or "dynamics".
        """
        return format_text(getattr(self, question), QUESTIONS[question])

    def answers(self) -> dict[str, str]:
        """Return the four answers as text, by question."""
        return {question: self.text(question) for question in QUESTIONS}

    @property
    def needs_kernels(self) -> bool:
        """Whether the recipe depends on which parameters of a network are kernels."""
        return self.sharing.rank_one or self.weights.needs_kernels

    def to_json(self) -> dict[str, Any]:
        """Return the recipe for a JSON file; the inverse of `recipe_from_json`."""
        settings: dict[str, Any] = {"members": self.members, "fixed_members": self.fixed_members, "loss": self.loss}
        optional = {"batch_order": self.batch_order, "models": list(self.models)}
        settings |= {key: value for key, value in optional.items() if value}
        return {"name": self.name, **self.answers(), **settings}


@dataclass(frozen=True)
class Preset(Answer[Recipe]):
    """A named recipe, with advice on when to choose it.

    Attributes:
        value: The recipe.
        about: The method in one line.
        good: What it is good for.
        bad: Its drawbacks.
    """

    good: str
    bad: str


def _parsed(settings: dict[str, Any]) -> dict[str, Any]:
    """Parse the answers to questions among settings of a recipe that are text."""
    answers = {name: value for name, value in settings.items() if name in QUESTIONS and isinstance(value, str)}
    return settings | {name: parse(text, name, QUESTIONS[name]) for name, text in answers.items()}


def _recipe(name: str, **settings: Any) -> Recipe:
    return Recipe(name, **_parsed(settings))


TABM = "rank-one:init=rademacher,head=own,unscaled=body.embedding.*"  # what both variants share
PRESETS: dict[str, Preset] = {
    preset.value.name: preset
    for preset in (
        Preset(
            _recipe("single", members=1, fixed_members=True),
            "one network, as most people train it",
            "a baseline; the cheapest to train and to run",
            "no epistemic uncertainty",
        ),
        Preset(
            _recipe("deep-ensemble"),
            "M networks from M initialisations (Lakshminarayanan et al. 2017)",
            "the default: accuracy, calibration and epistemic uncertainty with no setting to tune",
            "M networks to train, store and evaluate",
        ),
        Preset(
            _recipe("weight-rde", coupling="weights"),
            "repulsion of weights (D'Angelo and Fortuin 2021)",
            "a reference for repulsion in the space of weights",
            "no measurable difference from deep-ensemble on the data measured",
        ),
        Preset(
            _recipe("function-rde", coupling="outputs"),
            "repulsion of outputs (D'Angelo and Fortuin 2021)",
            "disagreement away from the data at little extra cost",
            "its gain in NLL is hardly measurable",
        ),
        Preset(
            _recipe("feature-rde", sharing="head", coupling="features"),
            "repulsion of features under one shared head (Yashima et al. 2022)",
            "members that use different features under one head",
            "higher NLL under corruption than deep-ensemble on the data measured",
        ),
        Preset(
            _recipe("svgd", coupling="weights:estimator=svgd"),
            "Stein variational gradient descent on weights (Liu and Wang 2016)",
            "particle approximation of a posterior over weights, for comparison with the literature",
            "three times the step of a small dense network; quality not measured here",
        ),
        Preset(
            _recipe("forde", coupling="input-gradients:lengthscales=pca"),
            "repulsion of input gradients, weighted by the variance of inputs (FoRDE, Trinh et al. 2024)",
            "disagreement away from the data; lower NLL on MNIST, clean and corrupted",
            "two to three times the training time; no gain on a CIFAR-10 subset",
        ),
        Preset(
            _recipe("forde-identity", coupling="input-gradients"),
            "the same with equal weights of all input directions",
            "as forde, where no input directions dominate",
            "two to three times the training time; no gain on a CIFAR-10 subset",
        ),
        Preset(
            _recipe("forde-pca", coupling="input-gradients:lengthscales=pca"),
            "forde by its full name",
            "as forde",
            "as forde",
        ),
        Preset(
            _recipe("forde-tuned", coupling="input-gradients:lengthscales=tuned"),
            "between the two, chosen on corrupted validation examples",
            "as forde, with the length scales chosen on validation examples",
            "trains several ensembles to choose: ten to sixty times the training time",
        ),
        Preset(
            _recipe("batch-ensemble", sharing="rank-one"),
            "one network, M members by rank-one factors of its kernels (Wen et al. 2020)",
            "M members in the memory of about one network",
            "its members learn together and are worth about one network: see batch-ensemble-independent",
        ),
        Preset(
            _recipe("batch-ensemble-independent", sharing="rank-one:init=rademacher,gamma=M"),
            "the same with random signs: members learn as if trained alone (Velikanov et al. 2022)",
            "M members in the memory of about one network, as good as separate ones on the data measured",
            "needs SGD; training and prediction still cost M networks",
        ),
        Preset(
            _recipe("tabm", sharing=f"{TABM},others=ones,bias=own", members=16, batch_order="same"),
            "one network, members by rank-one factors, signs on the inputs, own heads (TabM, Gorishniy et al. 2025)",
            "tables: many members in the memory of about one network; use AdamW and early stopping",
            "for dense networks; training and prediction still cost M networks",
        ),
        Preset(
            _recipe("tabm-mini", sharing=f"{TABM},factors=first", members=16, batch_order="same"),
            "the same with factors of the inputs alone (TabM-mini)",
            "tables: as tabm, with fewer parameters of the members' own",
            "for dense networks; training and prediction still cost M networks",
        ),
        Preset(
            _recipe("packed", members=16, batch_order="same"),
            "M networks from M initialisations, trained on the same batches (TabM-packed)",
            "the reference of tabm: nothing is shared but the batches",
            "M networks to store; deep-ensemble has batches of each member's own besides",
        ),
        Preset(
            _recipe("mask-ensemble", sharing="all", weights="masks"),
            "one network, M members with a fixed dropout mask each",
            "M members in the memory of one network, any architecture",
            "no better than one network on the data measured",
        ),
        Preset(
            _recipe("mc-dropout", weights="dropout", members=1),
            "one network with dropout active in prediction (Gal and Ghahramani 2016)",
            "uncertainty from one network trained with dropout",
            "30 passes a prediction; its draws are alike: misses unfamiliar inputs",
        ),
        Preset(
            _recipe("bayes", weights="gaussian", members=1),
            "one network with Gaussian weights: Bayes by Backprop (Blundell et al. 2015)",
            "a distribution over every weight, small data, pruning by signal-to-noise ratio",
            "2.3 times the step; 30 passes a prediction; beta must fit the size of the network; "
            "one member misses unfamiliar inputs",
        ),
        Preset(
            _recipe("bayes-flipout", weights="gaussian:estimator=flipout", members=1),
            "the same, trained by flipout (Wen et al. 2018)",
            "as bayes, with gradients of less variance in large batches",
            "2.4 times the step; 30 passes a prediction",
        ),
        Preset(
            _recipe("bayes-last-layer", weights="gaussian:where=last,beta=0.1", members=1),
            "the same for the last layer alone, on a deterministic body",
            "a distribution over the head at little cost",
            "only the uncertainty of the last layer",
        ),
        Preset(
            _recipe("ivon", weights="gaussian:estimator=draw,std_param=std,beta=0", dynamics="ivon", members=1),
            "one network with Gaussian weights, trained by natural gradients (IVON, Shen et al. 2024)",
            "Gaussian weights at 1.3 times the step of Adam",
            "30 passes a prediction; a learning rate of its own; misses unfamiliar inputs",
        ),
        Preset(
            _recipe(
                "rank1-bnn", sharing="rank-one", weights="gaussian:where=factors,prior=gaussian_0.1,beta=0.1,draws=5"
            ),
            "a batch ensemble with Gaussian factors (Dusenberry et al. 2020)",
            "M members with random factors in the memory of about one network",
            "5 M passes a prediction; quality not measured here",
        ),
        Preset(
            _recipe("last-layer-ensemble", sharing="backbone"),
            "one body, M heads; with sharing backbone:frozen=yes on a body that is trained already",
            "heads for a backbone that is trained already",
            "members differ in the head alone; higher NLL than deep-ensemble on the data measured",
        ),
        Preset(
            _recipe("ride", sharing="backbone", coupling="divergence", loss="ldam-drw", members=3),
            "experts on one body, LDAM with deferred re-weighting, kept apart by divergence (RIDE, Wang et al. 2021)",
            "rare classes of a long-tailed training set",
            "for classes only; experts differ in the head alone unless sharing names says more",
        ),
        Preset(
            _recipe("sade", sharing="backbone", loss="sade", members=3),
            "experts on one body for common, equally frequent and rare classes (SADE, Zhang et al. 2022)",
            "test data of unknown class frequencies: members can be weighted for them without labels",
            "for classes only; experts differ in the head alone unless sharing names says more",
        ),
        Preset(
            _recipe("swa", dynamics="swa", members=1),
            "one network at the average of its late weights (Izmailov et al. 2018)",
            "one network at a flatter place of the loss, at no cost in prediction",
            "no epistemic uncertainty; no lower NLL than single on the data measured",
        ),
        Preset(
            _recipe("swag", dynamics="swag", members=1),
            "networks drawn from a Gaussian fitted to the late weights of one (Maddox et al. 2019)",
            "30 members from one training run",
            "30 passes a prediction; hardly different from swa on the data measured",
        ),
        Preset(
            _recipe("multi-swag", dynamics="swag"),
            "the same around M independent networks (Wilson and Izmailov 2020)",
            "the lowest NLL at equal gradient steps on the data measured, with snapshot",
            "30 M networks to store and evaluate unless draws are fewer",
        ),
        Preset(
            _recipe("snapshot", dynamics="snapshot", members=1),
            "one run, its weights at the end of every learning-rate cycle (Huang et al. 2017)",
            "an ensemble from one training run",
            "members of one run predict alike",
        ),
        Preset(
            _recipe("csgmcmc", dynamics="csgmcmc", members=1),
            "cyclical stochastic-gradient MCMC, several points of every cycle (Zhang et al. 2020)",
            "samples of a posterior from one training run",
            "depends on its learning rate",
        ),
    )
}

MIXTURES: dict[str, Preset] = {  # networks beside models that are not
    "mixed": Preset(
        Recipe("mixed", models=("ridge", "logistic", "hist-gradient-boosting", "random-forest", "natural-boosting")),
        "a deep ensemble beside linear models, forests and boosted trees, weighted by greedy selection with "
        "replacement on validation NLL (Caruana et al. 2004)",
        "tables: each part covers for the others",
        "the weights are chosen on the validation examples, which should be a hundred or more",
    )
}


def make_recipe(
    name: "str | Recipe" = "deep-ensemble", *, models: str | tuple[str, ...] | None = None, **answers: Any
) -> Recipe:
    """Make a recipe from a preset, with some of its answers replaced.

    Args:
        name: Name of a preset, or a recipe.
        models: Names of models beside the networks, rows of `MODELS`; in text separated by "+".
        **answers: New answers to `sharing`, `weights`, `coupling` or `dynamics`, as text or as objects.

    Returns:
        The recipe.

    Raises:
        Misuse: If the preset, a question or an answer is unknown.


    >>> print(make_recipe("forde", coupling="outputs"))
    forde: sharing own, weights point, coupling outputs, dynamics optimizer
    """
    presets = {**PRESETS, **MIXTURES}
    if isinstance(name, str) and name not in presets:
        raise unknown("recipe", name, presets)
    if not isinstance(name, str | Recipe):
        raise Misuse(f"recipe={name!r}: expected a name such as 'deep-ensemble', or mm.make_recipe(...)")
    base = presets[name].value if isinstance(name, str) else name
    if models is not None:
        base = replace(base, models=tuple(models.split("+")) if isinstance(models, str) else tuple(models))
    for question in answers:
        if question not in QUESTIONS:
            raise unknown("question of a recipe", question, QUESTIONS)
    return replace(base, **_parsed({question: answer for question, answer in answers.items() if answer is not None}))


def parse_recipe(text: str) -> Recipe:
    """Parse a recipe in text: a preset, then after a colon the answers that replace its own and its number of members.

    Args:
        text: Such as `"forde"`, `"deep-ensemble:coupling=outputs:every=4"` or `"forde:members=10"`.

    Returns:
        The recipe; `text` is its name.

    Raises:
        Misuse: If the preset or a setting is unknown, or a setting is repeated.

    >>> parse_recipe("deep-ensemble:coupling=outputs:every=4,members=3").members
    3
    """
    name, _, options = text.partition(":")
    base, keys = make_recipe(name), (*QUESTIONS, "models", "members")
    parts = re.split(rf",(?=\s*(?:{'|'.join(keys)})\s*=)", options) if options else []
    answers = {key.strip(): value.strip() for key, _, value in (part.partition("=") for part in parts)}
    wrong = [key for key in answers if key not in keys]
    if wrong:
        raise unknown(f"setting of the recipe '{text}' (name=value)", wrong[0], keys)
    if len(answers) < len(parts):
        raise Misuse(f"recipe '{text}' has a setting twice: write each once")
    members = answers.pop("members", None)
    if members is not None and base.fixed_members:
        raise Misuse(f"recipe '{text}': {name} has no number of members")
    if members is not None and not re.fullmatch("[1-9][0-9]*", members):
        raise Misuse(f"recipe '{text}': need a whole number, at least 1")
    return replace(make_recipe(base, **answers), name=text, members=int(members) if members else base.members)


def recipe_from_json(record: dict[str, Any], user_recipe: "str | Recipe | None" = None) -> Recipe:
    """Read a recipe from a run.

    Args:
        record: What `Recipe.to_json` returned.
        user_recipe: The recipe of a run with user-defined objects, which are not stored.

    Returns:
        The recipe; `user_recipe` if there is one.

    Raises:
        Misuse: If `user_recipe` has other answers than the record.
    """
    answers = {question: record[question] for question in QUESTIONS}
    if user_recipe is not None:
        user_recipe = make_recipe(user_recipe)
        if user_recipe.answers() != answers:
            raise Misuse(f"recipe= is {user_recipe}, and the run was made by {record['name']} with other answers")
        return user_recipe
    settings: Any = {name: record.get(name) for name in ("members", "fixed_members", "loss", "batch_order")}
    return _recipe(record["name"], **settings, models=tuple(record.get("models", ())), **answers)
