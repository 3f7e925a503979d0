"""Likelihoods: the distribution of the target given a network's outputs, and the loss that members are trained by.

| likelihood | task | outputs | targets y |
|---|---|---|---|
| `Categorical` | classification | logits of K classes | label indices (N,) |
| `Focal` | classification | the same, trained by the focal loss | label indices (N,) |
| `LogitAdjusted`, `LDAM`, `Experts` | classification | the same, for imbalanced classes | label indices (N,) |
| `MultiLabel` | multi-label | logits of K labels | zeros and ones (N, K) |
| `Gaussian` | regression | K means, noise known | values (N, K) |
| `HeteroscedasticGaussian` | regression | K means, then K noise levels; `outliers`, `inflation` | values (N, K) |
| `Quantiles` | regression | L quantiles of each of K targets | values (N, K) |

A user-defined one derives from `Likelihood` (`examples/own_likelihood.py`). Regression targets are standardised once,
in float64, before training (`encode`); outputs are in standardised units, and predictions are converted to the target's
units in float64.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor

from murmuration.likelihoods.base import CLASSIFICATION, MULTI_LABEL, OWN, REGRESSION, TASKS, Likelihood
from murmuration.likelihoods.classes import (
    EFFECTIVE,
    LDAM,
    Categorical,
    ClassOutputs,
    Experts,
    Focal,
    LogitAdjusted,
    MultiLabel,
)
from murmuration.likelihoods.regression import (
    Gaussian,
    HeteroscedasticGaussian,
    MeanAndStd,
    MomentMatched,
    Quantiles,
    Standardised as Standardised,
    standardisation,
)
from murmuration.system.errors import Misuse, did_you_mean, require_number, unknown
from murmuration.system.option_text import Answer, parse


def link_of(likelihood: Likelihood) -> Callable[[Tensor], Tensor]:
    """Return the map from outputs to the values that coupling spaces compare.

    Args:
        likelihood: Any likelihood.

    Returns:
        A function of outputs (..., N, width): `logits` for classification, `centre` for regression and labels.
    """
    return likelihood.logits if likelihood.task == CLASSIFICATION else likelihood.centre


def likelihood_for(
    task: str, y: Tensor, classes: int, noise_std: float | None = None, link: str | None = None
) -> Likelihood:
    """Choose the default likelihood of a task.

    Args:
        task: "classification", "multi-label" or "regression".
        y: Training targets: (N,) labels, (N, K) zeros and ones, or (N, K) values.
        classes: Number of classes.
        noise_std: Known standard deviation of the noise of a regression; learned by default.
        link: "softmax" or "softplus", for classification.

    Returns:
        `Categorical`, `MultiLabel`, or Gaussian noise scaled to the targets.

    Raises:
        Misuse: For a setting of another task.
    """
    if noise_std is not None:
        require_number("noise_std", noise_std, 0.1)
    if link is not None and task != CLASSIFICATION:
        raise Misuse(f"link={link} is for classification, and this data is a regression: leave it out")
    if noise_std is not None and task != REGRESSION:
        kind = "is a classification" if task == CLASSIFICATION else "has labels"
        raise Misuse(f"noise_std={noise_std:g} is for regression, and this data {kind}: leave it out")
    if task == CLASSIFICATION:
        return Categorical(classes, link or "softmax")
    if task == MULTI_LABEL:
        return MultiLabel(y.shape[1])
    units = standardisation(y)
    return HeteroscedasticGaussian(*units) if noise_std is None else Gaussian(noise_std, *units)


def fit_likelihood(likelihood: Any, task: str, y: Tensor) -> Likelihood:
    """Check a likelihood that the user chose, and complete its settings from training targets.

    Args:
        likelihood: An instance of a class derived from `Likelihood`.
        task: Task of the data; a data set takes multi-label targets, zeros and ones (N, K), for a regression.
        y: Training targets (N, ...).

    Returns:
        The likelihood with the settings that follow from the targets.

    Raises:
        Misuse: If it is not a likelihood, or does not fit the task or the targets.
    """
    checked = checked_likelihood(likelihood)
    if checked.task != task and (checked.task, task) != (MULTI_LABEL, REGRESSION):
        raise Misuse(f"a likelihood of {checked.task} for data of {task}: give one that fits the targets")
    return checked.for_targets(y)


def checked_likelihood(likelihood: Any) -> Likelihood:
    """Return a likelihood of the user; refuse one of another class, or without a task or a width."""
    name = type(likelihood).__name__
    if not isinstance(likelihood, Likelihood):
        raise Misuse(f"likelihood={likelihood!r:.60} is a {name}: derive its class from mm.Likelihood")
    task, width = getattr(likelihood, "task", None), getattr(likelihood, "width", None)
    if task not in TASKS:
        raise Misuse(f"{name} has task {task!r}: write task = 'classification', 'multi-label' or 'regression'")
    if not isinstance(width, int) or width < 1:
        raise Misuse(f"{name} has width {width!r}: write width = the number of outputs a network needs")
    return likelihood


BUILT_IN: tuple[type[Likelihood], ...] = (Categorical, Focal, LogitAdjusted, LDAM, Experts, MultiLabel)
BUILT_IN += (Gaussian, HeteroscedasticGaussian, MeanAndStd, MomentMatched, Quantiles)

LOSSES: dict[str, Answer[ClassOutputs]] = {  # likelihoods of classes by name; the number of classes is the data's
    "cross-entropy": Answer(Categorical(1), "-log p of the label; label_smoothing=0.1"),
    "class-balanced": Answer(
        Categorical(1, class_weight=EFFECTIVE), "cross-entropy weighted by effective numbers (Cui et al. 2019)"
    ),
    "focal": Answer(Focal(1), "-(1 - p)^gamma log p (Lin et al. 2017); gamma=2"),
    "balanced-softmax": Answer(LogitAdjusted(1), "cross-entropy of f + log pi (Ren et al. 2020)"),
    "logit-adjusted": Answer(LogitAdjusted(1), "cross-entropy of f + tau log pi (Menon et al. 2021); tau=1"),
    "ldam": Answer(
        LDAM(1, reweight_from=None), "margins of n^(-1/4) on cosines (Cao et al. 2019); margin=0.5, scale=30"
    ),
    "ldam-drw": Answer(LDAM(1), "the same, weighted as class-balanced late in training; reweight_from=0.8"),
    "sade": Answer(Experts(1), "three losses, member by member (Zhang et al. 2022); tau=2"),
}


NOISE = "regression: -log density, with noise by the input; outliers=0.02: heavy tails; inflation=1.2"
ALL_LOSSES: dict[str, Answer[Any]] = {**LOSSES, "gaussian": Answer(HeteroscedasticGaussian(), NOISE)}


def likelihood_by_name(text: str, task: str, classes: int, link: str | None = None) -> Likelihood:
    """Create a likelihood by name.

    Args:
        text: A name of `ALL_LOSSES` and its settings, such as `focal:gamma=1`.
        task: Task of the data.
        classes: Number of classes.
        link: "softmax" or "softplus", for classification.

    Returns:
        The likelihood, before `for_targets`.

    Raises:
        Misuse: For an unknown name or setting, or a loss of another task.

    >>> likelihood_by_name("logit-adjusted:tau=1.5", "classification", 10).tau
    1.5
    """
    if (name := text.partition(":")[0]) not in ALL_LOSSES:
        raise Misuse(f"likelihood='{name}' is unknown: {did_you_mean(name, ALL_LOSSES)}Known: {', '.join(ALL_LOSSES)}")
    likelihood: Any = parse(text, "loss", ALL_LOSSES)
    if task != likelihood.task:
        raise Misuse(f"loss {text} is for {likelihood.task}, and this data is a {task}: leave it out")
    if task == REGRESSION:
        if link is not None:
            raise Misuse(f"link={link} is for classification, and this data is a regression: leave it out")
        return likelihood
    fitted: Any = {"classes": classes, **({} if link is None else {"link": link})}
    return replace(likelihood, **fitted)


def width_of(record: dict[str, Any]) -> int:
    """Return the number of outputs of a stored likelihood.

    Args:
        record: What `to_json` returned.

    Returns:
        Its width.
    """
    return int(record["width"]) if record["kind"] == OWN else likelihood_from_json(record).width


def likelihood_from_json(record: dict[str, Any], given: Likelihood | None = None) -> Likelihood:
    """Restore a likelihood from its JSON.

    Args:
        record: What `to_json` returned.
        given: The likelihood itself, required if it is user-defined.

    Returns:
        The likelihood with the stored settings.

    Raises:
        Misuse: For an unknown kind, a user-defined likelihood that is missing, or another than the stored one.

    >>> likelihood_from_json(Categorical(10).to_json())
    Categorical(classes=10, link='softmax', class_weight=None, label_smoothing=0.0)
    """
    kinds: dict[str, Callable[..., Likelihood]] = {maker.kind: maker for maker in BUILT_IN}
    if record["kind"] not in (*kinds, OWN):
        raise unknown("likelihood", record["kind"], kinds)
    name = record["name"] if record["kind"] == OWN else kinds[record["kind"]].__name__
    if given is None and record["kind"] == OWN:
        advice = f"pass it again in Python, likelihood={name}(...)"
        raise Misuse(f"the run's likelihood is {name}, which is user-defined: {advice}")
    if given is not None and type(given).__name__ != name:
        raise Misuse(f"likelihood= is a {type(given).__name__}, and the run was trained with {name}: give that one")
    settings = record["settings"] if record["kind"] == OWN else {k: v for k, v in record.items() if k != "kind"}
    settings = {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}
    if record["kind"] == OWN:
        return replace(given, **settings) if settings else given  # type: ignore
    try:
        return kinds[record["kind"]](**settings)
    except TypeError as error:
        names = ", ".join(settings)
        raise Misuse(f"the settings of {name}, {names}, are those of another version of murmuration") from error
