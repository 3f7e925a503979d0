"""A recipe is one answer to each of the four questions; a plan says how it is carried out.

Named methods are presets. Because the questions are independent, any answer of a preset can be replaced.
"""

import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

import torch

from murmuration.coupling import COUPLINGS, Repulsion, coupling_named
from murmuration.data import AUGMENTATIONS
from murmuration.dynamics import DYNAMICS, Ivon, dynamics_named, learning_rate_factor, make_optimiser
from murmuration.dynamics.optimisers import Decay, Optimiser
from murmuration.dynamics.schedules import Moment
from murmuration.errors import Misuse, unknown
from murmuration.posthoc.config import PostHocConfig
from murmuration.recipe_text import parse
from murmuration.sharing import SHARING, Sharing
from murmuration.weights import WEIGHTS, WeightFamily

ANSWERS: dict[str, dict[str, Any]] = {
    "sharing": SHARING,
    "weights": WEIGHTS,
    "coupling": COUPLINGS,
    "dynamics": DYNAMICS,
}
BATCHES = ("own", "same", "split")
ENGINES = ("auto", "loop", "stacked", "threads", "threads-stacked")


@dataclass(frozen=True)
class Recipe:
    """One answer to each question.

    >>> print(recipe("deep-ensemble"))
    deep-ensemble: sharing own, weights point, coupling none, dynamics optimiser
    """

    name: str
    sharing: str = "own"
    weights: str = "point"
    coupling: str = "none"
    dynamics: str = "optimiser"
    members: int | None = None  # a fixed number of members, where the method has one

    def __post_init__(self) -> None:
        coupling_named(self.coupling)
        self.weighs.check_dynamics(self.ivon or Optimiser("sgd"))
        if self.shares.what == "all" and not (self.weighs.stochastic or self.weighs.separates_members):
            raise Misuse(f"sharing {self.sharing} with weights point: members would be equal for ever; write masks")

    def __str__(self) -> str:
        return f"{self.name}: " + ", ".join(f"{question} {answer}" for question, answer in self.answers().items())

    @property
    def shares(self) -> Sharing:
        """What members share, spelled out."""
        return parse(self.sharing, "sharing", SHARING)

    @property
    def weighs(self) -> WeightFamily:
        """What a weight is, spelled out."""
        return parse(self.weights, "weights", WEIGHTS)

    @property
    def ivon(self) -> Ivon | None:
        """What moves distributions, if it is not the optimiser, spelled out."""
        return dynamics_named(self.dynamics)

    @property
    def needs_kernels(self) -> bool:
        """Whether it matters which parameters of a network are kernels."""
        return self.shares.needs_kernels or self.weighs.needs_kernels

    @property
    def repulsion(self) -> Repulsion | None:
        """What members say to each other, spelled out."""
        return coupling_named(self.coupling)

    def answers(self) -> dict[str, str]:
        return {question: getattr(self, question) for question in ANSWERS}

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


PRESETS = {
    "single": (Recipe("single", members=1), "one network, as most people train it"),
    "deep-ensemble": (Recipe("deep-ensemble"), "M networks from M initialisations (Lakshminarayanan et al. 2017)"),
    "weight-rde": (Recipe("weight-rde", coupling="weights"), "weights repel each other (D'Angelo and Fortuin 2021)"),
    "function-rde": (
        Recipe("function-rde", coupling="outputs"),
        "outputs repel each other (D'Angelo and Fortuin 2021)",
    ),
    "feature-rde": (
        Recipe("feature-rde", sharing="head", coupling="features"),
        "features repel each other under one shared head (Yashima et al. 2022)",
    ),
    "svgd": (Recipe("svgd", coupling="weights:estimator=svgd"), "Stein variational gradient descent on weights"),
    "forde": (
        Recipe("forde", coupling="input-gradients:lengthscales=pca"),
        "input gradients repel each other, most along directions in which inputs vary (Trinh et al. 2024)",
    ),
    "forde-identity": (Recipe("forde-identity", coupling="input-gradients"), "the same, in all directions alike"),
    "forde-pca": (Recipe("forde-pca", coupling="input-gradients:lengthscales=pca"), "forde by its full name"),
    "forde-tuned": (
        Recipe("forde-tuned", coupling="input-gradients:lengthscales=tuned"),
        "between the two, chosen on corrupted validation examples",
    ),
    "batch-ensemble": (
        Recipe("batch-ensemble", sharing="rank-one"),
        "one network, M members by scaling its channels; they learn together (Wen et al. 2020)",
    ),
    "batch-ensemble-independent": (
        Recipe("batch-ensemble-independent", sharing="rank-one:init=rademacher,gamma=M"),
        "the same with random signs: members learn as if they were alone (Velikanov et al. 2022)",
    ),
    "mask-ensemble": (
        Recipe("mask-ensemble", sharing="all", weights="masks"),
        "one network, M members that each use a fixed part of it",
    ),
    "mc-dropout": (
        Recipe("mc-dropout", weights="dropout", members=1),
        "one network whose dropout stays on when it predicts (Gal and Ghahramani 2016)",
    ),
    "bayes": (
        Recipe("bayes", weights="gaussian", members=1),
        "one network whose weights are distributions: Bayes by Backprop (Blundell et al. 2015)",
    ),
    "bayes-flipout": (
        Recipe("bayes-flipout", weights="gaussian:estimator=flipout", members=1),
        "the same, trained with one draw of weights and signs for every example (Wen et al. 2018)",
    ),
    "bayes-last-layer": (
        Recipe("bayes-last-layer", weights="gaussian:where=last", members=1),
        "the same for the last layer alone, on a body of numbers",
    ),
    "ivon": (
        Recipe("ivon", weights="gaussian:estimator=draw,std_param=std,beta=0", dynamics="ivon", members=1),
        "one network whose weights are distributions, moved by natural gradients (Shen et al. 2024)",
    ),
    "rank1-bnn": (
        Recipe("rank1-bnn", sharing="rank-one", weights="gaussian:where=factors,prior=gaussian_0.1,draws=5"),
        "a batch ensemble whose factors are distributions (Dusenberry et al. 2020)",
    ),
    "last-layer-ensemble": (
        Recipe("last-layer-ensemble", sharing="backbone"),
        "one body, M heads; with sharing backbone:frozen=yes on a body that is trained already",
    ),
}


def recipe(name: "str | Recipe", **answers: str | None) -> Recipe:
    """A preset by name, with some of its answers replaced; a recipe is taken as it is.

    >>> print(recipe("forde", coupling="outputs"))
    forde: sharing own, weights point, coupling outputs, dynamics optimiser
    """
    if isinstance(name, str) and name not in PRESETS:
        raise unknown("recipe", name, PRESETS)
    base = PRESETS[name][0] if isinstance(name, str) else name
    changed: dict[str, Any] = {question: answer for question, answer in answers.items() if answer is not None}
    return replace(base, **changed)


@dataclass(frozen=True)
class Plan:
    """How a recipe is carried out: how many members, how long, how fast, from which seed, on which engine."""

    members: int = 5
    epochs: int = 50
    seed: int = 0
    batch_size: int = 32
    lr: float = 5e-3
    optimiser: str = "adam"
    schedule: str = "cosine"
    momentum: float = 0.9
    weight_decay: float = 0.0
    decay: Decay | None = None
    l1: float = 0.0  # weight of the L1 norm of kernels, which makes many of their weights exactly zero
    batches: Literal["own", "same", "split"] = "own"  # each member's own order; the same for all; a part of it each
    augment: tuple[str, ...] = ()  # of pictures: pad-crop (with a border of the mean colour), flip
    patience: int | None = None  # stop a member after so many epochs without a better validation NLL
    engine: str = "auto"
    device: str = "cpu"
    first_member: int = 0  # members draw the streams of first_member, first_member + 1, ...
    posthoc: PostHocConfig | None = None  # what to fit on the validation examples when the members are trained

    def __post_init__(self) -> None:
        for field, least in (("members", 1), ("epochs", 1), ("batch_size", 1), ("seed", 0), ("first_member", 0)):
            _whole(field, getattr(self, field), least)
        if self.patience is not None:
            _whole("patience", self.patience, 1)
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise Misuse(f"lr={self.lr}: need a positive number such as 0.001")
        if self.batches not in BATCHES:
            raise unknown("batches", self.batches, BATCHES)
        if self.batches == "split" and self.batch_size < self.members:
            raise Misuse(f"batches=split: {self.members} members cannot split {self.batch_size} examples a step")
        if self.engine not in ENGINES:
            raise unknown("engine", self.engine, ENGINES)
        for name in self.augment:
            if name not in AUGMENTATIONS:
                raise unknown("augmentation", name, AUGMENTATIONS)
        _require_device(self.device)
        self.make_optimiser()
        learning_rate_factor(self.schedule, Moment(0, 1, self.epochs))

    def make_optimiser(self) -> Optimiser:
        return make_optimiser(
            self.optimiser, momentum=self.momentum, weight_decay=self.weight_decay, decay=self.decay, l1=self.l1
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def _require_device(name: str) -> None:
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:  # torch raises either, depending on what is missing
        raise Misuse(f"device='{name}' is not available here: write device='cpu'") from error


def _whole(field: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise Misuse(f"{field}={value}: need a whole number, at least {least}")


def recipe_from_json(record: dict[str, Any]) -> Recipe:
    return Recipe(**{field.name: record[field.name] for field in fields(Recipe)})


def plan_from_json(record: dict[str, Any]) -> Plan:
    known = {field.name: record[field.name] for field in fields(Plan) if field.name in record}
    if known.get("posthoc") is not None:
        known["posthoc"] = PostHocConfig(**known["posthoc"])
    return Plan(**{**known, "augment": tuple(known.get("augment", ()))})
