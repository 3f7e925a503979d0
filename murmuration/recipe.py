"""A recipe is one answer to each of the four questions; a plan holds the settings of a training run.

Named methods are presets. Because the questions are independent, any answer of a preset can be replaced.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, get_args

import numpy as np
import torch

from murmuration.coupling import COUPLINGS, Repulsion
from murmuration.data import AUGMENTATIONS
from murmuration.data.samplers import INSTANCE, SAMPLERS
from murmuration.devices import CPU, FLOAT32, PRECISIONS, is_available, resolve_device
from murmuration.dynamics import DYNAMICS, Dynamics, Optimizer, TorchOptimizer
from murmuration.dynamics.optimizer import Decay, make_optimizer
from murmuration.dynamics.schedules import check_schedule
from murmuration.dynamics.trajectory import parse_trajectory
from murmuration.errors import Misuse, require_integer, require_number, unknown
from murmuration.models.table import MIXED, MODELS
from murmuration.posthoc import PostHocConfig
from murmuration.recipe_text import OBJECT, Answer, format_text, parse
from murmuration.sharing import SHARING, Sharing
from murmuration.weights import WEIGHTS, WeightFamily

QUESTIONS: dict[str, dict[str, Any]] = {
    "sharing": SHARING,
    "weights": WEIGHTS,
    "coupling": COUPLINGS,
    "dynamics": DYNAMICS,
}
BatchOrder = Literal["own", "same", "split"]
BATCH_ORDERS: tuple[BatchOrder, ...] = get_args(BatchOrder)
StopBy = Literal["member", "ensemble"]
SAME = {  # random streams that all members can have in common
    "initialisation": "initial weights, factors and masks",
    "batches": "order of examples and augmentation: the same as batch_order same",
    "noise": "dropout, draws of random weights, Langevin noise",
}
ENGINES = ("auto", "fastest", "loop", "stacked", "threads", "threads-stacked")
SMALLEST = {"members": 0, "epochs": 1, "batch_size": 1, "seed": 0, "first_member": 0, "ranks_per_member": 1}
SMALLEST |= {"patience": 1, "steps": 1}  # whole numbers, or None
USUAL = {"lr": 0.001, "warmup": 1, "momentum": 0.9, "weight_decay": 0.01, "l1": 0.0001, "clip_norm": 1}  # numbers
MEMBERS = 5  # of an ensemble, where neither the caller nor the recipe says how many

OWN, POINT = SHARING["own"].value, WEIGHTS["point"].value


@dataclass(frozen=True)
class Recipe:
    """One answer to each question, as objects; `make_recipe` reads them from text.

    >>> print(make_recipe("deep-ensemble"))
    deep-ensemble: sharing own, weights point, coupling none, dynamics optimizer
    """

    name: str = "custom"
    sharing: Sharing = OWN
    weights: WeightFamily = POINT
    coupling: Repulsion | None = None
    dynamics: Dynamics = field(default_factory=Dynamics)
    members: int | None = None  # the number of members unless the caller gives one
    fixed_members: bool = False  # whether another number is refused
    loss: str | None = None  # for classes, by name, unless the caller gives a likelihood
    batch_order: BatchOrder | None = None  # of several members, unless the caller gives one
    models: tuple[str, ...] = ()  # beside the networks, those for the task; weighted by greedy selection

    def __post_init__(self) -> None:
        kinds = {"sharing": Sharing, "weights": WeightFamily, "dynamics": Dynamics}
        for question, kind in kinds.items():
            got = getattr(self, question)
            if not isinstance(got, kind):
                raise Misuse(f"{question}={got!r}: need a {kind.__name__}; for text use make_recipe({question}='...')")
        if self.coupling is not None and not isinstance(self.coupling, Repulsion):
            raise Misuse(
                f"coupling={self.coupling!r}: need a Repulsion or None; for text use make_recipe(coupling='...')"
            )
        for name in self.models:
            if name not in MODELS:
                raise unknown("model", name, MODELS)
        self.weights.check_dynamics(self.dynamics)
        if self.sharing.what == "all" and not (self.weights.stochastic or self.weights.separates_members):
            raise Misuse(
                f"sharing {self.text('sharing')} with weights {self.text('weights')}: members would stay equal; write"
                " weights masks"
            )

    def __str__(self) -> str:
        answers = self.answers() | ({"models": "+".join(self.models)} if self.models else {})
        return f"{self.name}: " + ", ".join(f"{question} {answer}" for question, answer in answers.items())

    def text(self, question: str) -> str:
        """The answer to one question as text."""
        return format_text(getattr(self, question), QUESTIONS[question])

    def answers(self) -> dict[str, str]:
        """The four answers as text."""
        return {question: self.text(question) for question in QUESTIONS}

    @property
    def needs_kernels(self) -> bool:
        """Whether it matters which parameters of a network are kernels."""
        return self.sharing.needs_kernels or self.weights.needs_kernels

    def to_json(self) -> dict[str, Any]:
        settings = {"members": self.members, "fixed_members": self.fixed_members, "loss": self.loss}
        rest = {"batch_order": self.batch_order, "models": list(self.models)}
        return {"name": self.name, **self.answers(), **settings, **{key: each for key, each in rest.items() if each}}


@dataclass(frozen=True)
class Preset(Answer[Recipe]):
    """A named recipe, what it is, and when to choose it."""

    good: str  # what it is for
    bad: str  # what speaks against it


def _row(name: str, about: str, good: str, bad: str, **settings: Any) -> tuple[str, Preset]:
    """A preset by its name; answers among the settings are texts."""
    given = {key: parse(text, key, QUESTIONS[key]) if key in QUESTIONS else text for key, text in settings.items()}
    return name, Preset(Recipe(name, **given), about, good, bad)


PRESETS: dict[str, Preset] = dict(
    [
        _row(
            "single",
            "one network, as most people train it",
            "a baseline; the cheapest to train and to run",
            "no epistemic uncertainty",
            members=1,
            fixed_members=True,
        ),
        _row(
            "deep-ensemble",
            "M networks from M initialisations (Lakshminarayanan et al. 2017)",
            "the default: accuracy, calibration and epistemic uncertainty with no setting to tune",
            "M networks to train, store and evaluate",
        ),
        _row(
            "weight-rde",
            "repulsion of weights (D'Angelo and Fortuin 2021)",
            "a reference for repulsion in the space of weights",
            "no measurable difference from deep-ensemble on the data measured",
            coupling="weights",
        ),
        _row(
            "function-rde",
            "repulsion of outputs (D'Angelo and Fortuin 2021)",
            "disagreement away from the data at little extra cost",
            "its gain in NLL is hardly measurable",
            coupling="outputs",
        ),
        _row(
            "feature-rde",
            "repulsion of features under one shared head (Yashima et al. 2022)",
            "members that use different features under one head",
            "higher NLL under corruption than deep-ensemble on the data measured",
            sharing="head",
            coupling="features",
        ),
        _row(
            "svgd",
            "Stein variational gradient descent on weights (Liu and Wang 2016)",
            "particle approximation of a posterior over weights, for comparison with the literature",
            "three times the step of a small dense network; quality not measured here",
            coupling="weights:estimator=svgd",
        ),
        _row(
            "forde",
            "repulsion of input gradients, weighted by the variance of inputs (FoRDE, Trinh et al. 2024)",
            "disagreement away from the data; lower NLL on MNIST, clean and corrupted",
            "two to three times the training time; no gain on a CIFAR-10 subset",
            coupling="input-gradients:lengthscales=pca",
        ),
        _row(
            "forde-identity",
            "the same with equal weights of all input directions",
            "as forde, where no input directions dominate",
            "two to three times the training time; no gain on a CIFAR-10 subset",
            coupling="input-gradients",
        ),
        _row(
            "forde-pca",
            "forde by its full name",
            "as forde",
            "as forde",
            coupling="input-gradients:lengthscales=pca",
        ),
        _row(
            "forde-tuned",
            "between the two, chosen on corrupted validation examples",
            "as forde, with the length scales chosen on validation examples",
            "trains several ensembles to choose: ten to sixty times the training time",
            coupling="input-gradients:lengthscales=tuned",
        ),
        _row(
            "batch-ensemble",
            "one network, M members by rank-one factors of its kernels (Wen et al. 2020)",
            "M members in the memory of about one network",
            "its members learn together and are worth about one network: see batch-ensemble-independent",
            sharing="rank-one",
        ),
        _row(
            "batch-ensemble-independent",
            "the same with random signs: members learn as if trained alone (Velikanov et al. 2022)",
            "M members in the memory of about one network, as good as separate ones on the data measured",
            "needs SGD; training and prediction still cost M networks",
            sharing="rank-one:init=rademacher,gamma=M",
        ),
        _row(
            "tabm",
            "one network, members by rank-one factors, signs on the inputs, own heads (TabM, Gorishniy et al. 2025)",
            "tables: many members in the memory of about one network; use AdamW and early stopping",
            "for dense networks; training and prediction still cost M networks",
            sharing="rank-one:init=rademacher,others=ones,bias=own,head=own,unscaled=body.embedding.*",
            members=16,
            batch_order="same",
        ),
        _row(
            "tabm-mini",
            "the same with factors of the inputs alone (TabM-mini)",
            "tables: as tabm, with fewer parameters of the members' own",
            "for dense networks; training and prediction still cost M networks",
            sharing="rank-one:init=rademacher,factors=first,head=own,unscaled=body.embedding.*",
            members=16,
            batch_order="same",
        ),
        _row(
            "packed",
            "M networks from M initialisations, trained on the same batches (TabM-packed)",
            "the reference of tabm: nothing is shared but the batches",
            "M networks to store; deep-ensemble has batches of each member's own besides",
            members=16,
            batch_order="same",
        ),
        _row(
            "mask-ensemble",
            "one network, M members with a fixed dropout mask each",
            "M members in the memory of one network, any architecture",
            "no better than one network on the data measured",
            sharing="all",
            weights="masks",
        ),
        _row(
            "mc-dropout",
            "one network with dropout active in prediction (Gal and Ghahramani 2016)",
            "uncertainty from one network trained with dropout",
            "30 passes a prediction; its draws are alike: misses unfamiliar inputs",
            weights="dropout",
            members=1,
        ),
        _row(
            "bayes",
            "one network with Gaussian weights: Bayes by Backprop (Blundell et al. 2015)",
            "a distribution over every weight, small data, pruning by signal-to-noise ratio",
            "2.3 times the step; 30 passes a prediction; beta must fit the size of the network; "
            "one member misses unfamiliar inputs",
            weights="gaussian",
            members=1,
        ),
        _row(
            "bayes-flipout",
            "the same, trained by flipout (Wen et al. 2018)",
            "as bayes, with gradients of less variance in large batches",
            "2.4 times the step; 30 passes a prediction",
            weights="gaussian:estimator=flipout",
            members=1,
        ),
        _row(
            "bayes-last-layer",
            "the same for the last layer alone, on a deterministic body",
            "a distribution over the head at little cost",
            "only the uncertainty of the last layer",
            weights="gaussian:where=last,beta=0.1",
            members=1,
        ),
        _row(
            "ivon",
            "one network with Gaussian weights, trained by natural gradients (IVON, Shen et al. 2024)",
            "Gaussian weights at 1.3 times the step of Adam",
            "30 passes a prediction; a learning rate of its own; misses unfamiliar inputs",
            weights="gaussian:estimator=draw,std_param=std,beta=0",
            dynamics="ivon",
            members=1,
        ),
        _row(
            "rank1-bnn",
            "a batch ensemble with Gaussian factors (Dusenberry et al. 2020)",
            "M members with random factors in the memory of about one network",
            "5 M passes a prediction; quality not measured here",
            sharing="rank-one",
            weights="gaussian:where=factors,prior=gaussian_0.1,beta=0.1,draws=5",
        ),
        _row(
            "last-layer-ensemble",
            "one body, M heads; with sharing backbone:frozen=yes on a body that is trained already",
            "heads for a backbone that is trained already",
            "members differ in the head alone; higher NLL than deep-ensemble on the data measured",
            sharing="backbone",
        ),
        _row(
            "ride",
            "experts on one body, LDAM with deferred re-weighting, kept apart by divergence (RIDE, Wang et al. 2021)",
            "rare classes of a long-tailed training set",
            "for classes only; experts differ in the head alone unless sharing names says more",
            sharing="backbone",
            coupling="divergence",
            loss="ldam-drw",
            members=3,
        ),
        _row(
            "sade",
            "experts on one body for common, equally frequent and rare classes (SADE, Zhang et al. 2022)",
            "test data of unknown class frequencies: members can be weighted for them without labels",
            "for classes only; experts differ in the head alone unless sharing names says more",
            sharing="backbone",
            loss="sade",
            members=3,
        ),
        _row(
            "swa",
            "one network at the average of its late weights (Izmailov et al. 2018)",
            "one network at a flatter place of the loss, at no cost in prediction",
            "no epistemic uncertainty; no lower NLL than single on the data measured",
            dynamics="swa",
            members=1,
        ),
        _row(
            "swag",
            "networks drawn from a Gaussian fitted to the late weights of one (Maddox et al. 2019)",
            "30 members from one training run",
            "30 passes a prediction; hardly different from swa on the data measured",
            dynamics="swag",
            members=1,
        ),
        _row(
            "multi-swag",
            "the same around M independent networks (Wilson and Izmailov 2020)",
            "the lowest NLL at equal gradient steps on the data measured, with snapshot",
            "30 M networks to store and evaluate unless draws are fewer",
            dynamics="swag",
        ),
        _row(
            "snapshot",
            "one run, its weights at the end of every learning-rate cycle (Huang et al. 2017)",
            "an ensemble from one training run",
            "members of one run predict alike",
            dynamics="snapshot",
            members=1,
        ),
        _row(
            "csgmcmc",
            "cyclical stochastic-gradient MCMC, several points of every cycle (Zhang et al. 2020)",
            "samples of a posterior from one training run",
            "depends on its learning rate",
            dynamics="csgmcmc",
            members=1,
        ),
    ]
)


MIXTURES: dict[str, Preset] = {  # networks beside models that are not
    "mixed": Preset(
        Recipe("mixed", models=MIXED),
        "a deep ensemble beside linear models, forests and boosted trees, weighted by greedy selection with "
        "replacement on validation NLL (Caruana et al. 2004)",
        "tables: each part covers for the others",
        "the weights are chosen on the validation examples, which should be a hundred or more",
    )
}


def make_recipe(
    name: "str | Recipe" = "deep-ensemble", *, models: str | tuple[str, ...] | None = None, **answers: Any
) -> Recipe:
    """A preset by name, or a recipe, with some of its answers replaced: each as text or as an object.

    `models` beside the networks are names of `MODELS`, in text joined by `+`.

    >>> print(make_recipe("forde", coupling="outputs"))
    forde: sharing own, weights point, coupling outputs, dynamics optimizer
    """
    known = {**PRESETS, **MIXTURES}
    if isinstance(name, str) and name not in known:
        raise unknown("recipe", name, known)
    if not isinstance(name, str | Recipe):
        raise Misuse(f"recipe={name!r}: expected a name such as 'deep-ensemble', or mm.make_recipe(...)")
    base = known[name].value if isinstance(name, str) else name
    if models is not None:
        base = replace(base, models=tuple(models.split("+")) if isinstance(models, str) else tuple(models))
    for question in answers:
        if question not in QUESTIONS:
            raise unknown("question of a recipe", question, QUESTIONS)
    changed = {
        question: parse(answer, question, QUESTIONS[question]) if isinstance(answer, str) else answer
        for question, answer in answers.items()
        if answer is not None
    }
    return replace(base, **changed)


@dataclass(frozen=True)
class Plan:
    """The settings of a training run: members, epochs, learning rate, seed, engine, device."""

    members: int = 0  # 0: the recipe's number, or 5
    epochs: int = 50
    steps: int | None = None  # of a member, instead of epochs: as many epochs as it takes
    seed: int = 0
    batch_size: int = 32
    lr: float = 5e-3
    optimizer: str | Callable[..., torch.optim.Optimizer] | None = None  # a name, or a function: f(params, lr=...)
    schedule: str | None = None  # of the learning rate; None: that of the dynamics, or cosine
    warmup: float = 0.0  # epochs over which the learning rate rises linearly
    momentum: float = 0.9
    weight_decay: float | None = None  # None: 0, of adamw 0.01
    decay: Decay | None = None  # None: as torch, coupled but for adamw
    l1: float = 0.0  # weight of the L1 norm of kernels; proximal steps make many of their weights exactly zero
    clip_norm: float | None = None  # largest gradient norm of a member
    lr_multipliers: tuple[tuple[str, float], ...] = ()  # (pattern of parameter names, multiplier of the learning rate)
    batch_order: BatchOrder | None = None  # None: own, or same where the coupling needs it
    replacement: bool = False  # batches drawn with replacement, instead of a permutation of all examples each epoch
    sampler: str = INSTANCE  # how often classes are drawn: a name of SAMPLERS
    drop_last: bool = False  # leave out the examples of an epoch that do not fill a batch
    same: tuple[str, ...] = ()  # random streams of the first member that all members draw from: those of SAME
    augment: tuple[str, ...] = ()  # of images: pad-crop (with a border of the mean colour), flip
    patience: int | None = None  # early stopping: epochs without a better validation NLL
    stop_by: StopBy = "member"  # each by its own NLL (their mean, if they share weights), or all by that of the mixture
    trajectory: str | None = None  # weights along the path, written to the run: every-epoch, every:K or last:N epochs
    engine: str = "auto"
    device: str = "cpu"  # cpu, cuda, cuda:1, mps; auto: CUDA, else MPS, else the CPU
    ranks_per_member: int = 1  # processes that split every batch of a member, where there are more than members
    precision: str = FLOAT32  # of the operators of networks: float32, or bf16 with weights and losses in float32
    first_member: int = 0  # members draw the streams of first_member, first_member + 1, ...
    posthoc: PostHocConfig | None = field(default_factory=PostHocConfig)  # fitted on validation examples; None: nothing

    def __post_init__(self) -> None:
        self._convert()
        self._check_types()
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise Misuse(f"lr={self.lr}: need a positive number such as 0.001")
        if not 0 <= self.warmup < math.inf:
            raise Misuse(f"warmup={self.warmup}: need a number of epochs that is not negative, such as 1")
        if self.clip_norm is not None and not 0 < self.clip_norm < math.inf:
            raise Misuse(f"clip_norm={self.clip_norm}: need a positive number such as 1")
        for pattern, factor in self.lr_multipliers:
            require_number(f"lr_multipliers: '{pattern}'", factor, 0.1)
            if not 0 <= factor < math.inf:
                raise Misuse(f"lr_multipliers: {factor} for '{pattern}'; need a number that is not negative")
        if self.batch_order is not None and self.batch_order not in BATCH_ORDERS:
            raise unknown("batch_order", self.batch_order, BATCH_ORDERS)
        if self.stop_by not in get_args(StopBy):
            raise unknown("stop_by", self.stop_by, get_args(StopBy))
        if self.sampler not in SAMPLERS:
            raise unknown("sampler", self.sampler, SAMPLERS)
        if self.replacement and self.sampler != INSTANCE:
            raise Misuse(f"replacement with sampler={self.sampler}, which replaces anyway: leave one of them out")
        if self.batch_order == "split" and self.batch_size < self.members:
            raise Misuse(f"batch_order=split: {self.members} members cannot split {self.batch_size} examples a step")
        for name in self.same:
            if name not in SAME:
                raise unknown("random stream", name, SAME)
        if "batches" in self.same and self.batch_order not in (None, "same"):
            raise Misuse(f"batch_order={self.batch_order} with same=batches: leave one of the two out")
        if self.engine not in ENGINES:
            raise unknown("engine", self.engine, ENGINES)
        for name in self.augment:
            if name not in AUGMENTATIONS:
                raise unknown("augmentation", name, AUGMENTATIONS)
        if self.trajectory is not None and parse_trajectory(self.trajectory).last and self.patience is not None:
            raise Misuse(
                f"trajectory={self.trajectory} with patience: which epochs are the last is not known before; write"
                " every-epoch"
            )
        object.__setattr__(self, "device", resolve_device(self.device))
        if self.precision not in PRECISIONS:
            raise unknown("precision", self.precision, PRECISIONS)
        self.make_optimizer()
        if self.schedule is not None:
            check_schedule(self.schedule, self.epochs)

    def _convert(self) -> None:
        """Numbers of numpy and a torch device as plain values; names in one text, `posthoc` True or False."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        plain = {name: value.item() for name, value in given.items() if isinstance(value, np.generic)}
        if isinstance(self.device, torch.device):
            plain["device"] = str(self.device)
        for name in ("augment", "same"):
            if isinstance(given[name], str):
                plain[name] = tuple(each.strip() for each in given[name].split(","))
        if isinstance(self.posthoc, bool):
            plain["posthoc"] = PostHocConfig() if self.posthoc else None
        for name, value in plain.items():
            object.__setattr__(self, name, value)

    def _check_types(self) -> None:
        """Refuse settings of another type than theirs, and whole numbers that are too small."""
        for name, least in SMALLEST.items():
            if name not in ("patience", "steps") or getattr(self, name) is not None:
                require_integer(name, getattr(self, name), least)
        for name, usual in USUAL.items():
            if name not in ("clip_norm", "weight_decay") or getattr(self, name) is not None:
                require_number(name, getattr(self, name), usual)
        for name in ("schedule", "decay", "device", "precision", "trajectory", "optimizer"):
            value = getattr(self, name)
            own = name == "optimizer" and (callable(value) or isinstance(value, torch.optim.Optimizer))
            if not isinstance(value, str | None) and not own:
                raise Misuse(f"{name}={value!r}: need a name as text")
        if self.posthoc is not None and not isinstance(self.posthoc, PostHocConfig):
            raise Misuse(f"posthoc={self.posthoc!r}: need True, False or mm.PostHocConfig(calibrate='temperature')")
        pairs = isinstance(self.lr_multipliers, tuple | list)
        if not pairs or not all(isinstance(each, tuple | list) and len(each) == 2 for each in self.lr_multipliers):
            raise Misuse(f"lr_multipliers={self.lr_multipliers!r}: need pairs such as (('head.*', 0.1),)")

    def make_optimizer(self) -> Optimizer | TorchOptimizer:
        """The update rule of plain training; Adam unless another is asked for."""
        if isinstance(self.optimizer, torch.optim.Optimizer):
            name = type(self.optimizer).__name__
            raise Misuse(
                f"optimizer is a {name} made for other parameters: give the class, or functools.partial({name}, ...)"
            )
        if callable(self.optimizer):
            if self.weight_decay or self.decay or self.l1:
                raise Misuse(
                    "weight_decay, decay or l1 with an optimizer of your own: give them to the optimizer itself"
                )
            return TorchOptimizer(self.optimizer)
        name = self.optimizer or "adam"
        return make_optimizer(
            name, momentum=self.momentum, weight_decay=self.weight_decay, decay=self.decay, l1=self.l1
        )

    def for_recipe(self, recipe: Recipe) -> "Plan":
        """The plan with the settings that it leaves to the recipe: the number of members and the batch order."""
        members = self.members or recipe.members or MEMBERS
        if recipe.fixed_members and members != recipe.members:
            raise Misuse(
                f"members={members} with recipe {recipe.name}: it has {recipe.members}; leave it out, or write recipe"
                " deep-ensemble"
            )
        same = recipe.coupling is not None and "same-batch" in recipe.coupling.space.needs and members > 1
        if same and self.batch_order not in (None, "same"):
            raise Misuse(
                f"batch_order={self.batch_order} with coupling {recipe.text('coupling')}: members are compared on the"
                " same examples; leave it out"
            )
        usual = recipe.batch_order if members > 1 and self.batch_order is None else None
        return replace(self, members=members, batch_order="same" if same else usual or self.order)

    @property
    def order(self) -> BatchOrder:
        """The batch order, where the recipe does not decide it."""
        return self.batch_order or ("same" if "batches" in self.same else "own")

    def to_json(self) -> dict[str, Any]:
        record = asdict(replace(self, optimizer=None))
        function = self.optimizer if callable(self.optimizer) else None
        name = getattr(function, "__qualname__", type(function).__name__)
        return {**record, "optimizer": self.optimizer if function is None else f"{OBJECT}{name}"}


def recipe_from_json(record: dict[str, Any], given: Recipe | None = None) -> Recipe:
    """The recipe of a record; `given` is that of a run with objects of the caller's own, and must agree."""
    if given is not None:
        if given.answers() != {question: record[question] for question in QUESTIONS}:
            raise Misuse(f"recipe= is {given}, and the run was made by {record['name']} with other answers")
        return given
    answers = {question: parse(record[question], question, QUESTIONS[question]) for question in QUESTIONS}
    settings: Any = {name: record.get(name) for name in ("members", "fixed_members", "loss", "batch_order")}
    return Recipe(record["name"], **settings, models=tuple(record.get("models", ())), **answers)


def plan_from_json(
    record: dict[str, Any],
    optimizer: Callable[..., torch.optim.Optimizer] | None = None,
    device: str | None = None,
) -> Plan:
    """The plan of a record; an optimizer of the caller's own must be given again, and a device that is missing here."""
    known = {each.name: record[each.name] for each in fields(Plan) if each.name in record}
    if device is not None:
        known["device"] = device
    elif not is_available(known.get("device", CPU)):
        raise Misuse(f"the run was trained on {known['device']}, which is not available here: write device='cpu'")
    known.setdefault("drop_last", True)  # runs without this setting did so
    if str(known.get("optimizer")).startswith(OBJECT):
        if optimizer is None:
            raise Misuse(
                f"the run was trained with {known['optimizer'].removeprefix(OBJECT)}, an optimizer of your own: give it"
                " again as optimizer="
            )
        known["optimizer"] = optimizer
    if known.get("posthoc") is not None:
        known["posthoc"] = PostHocConfig(**known["posthoc"])
    multipliers = tuple((pattern, factor) for pattern, factor in known.get("lr_multipliers", ()))
    listed = {name: tuple(known.get(name, ())) for name in ("augment", "same")}
    return Plan(**{**known, **listed, "lr_multipliers": multipliers})
