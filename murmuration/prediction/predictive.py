"""`Predictive`: the predictive distribution of an ensemble; every uncertainty is derived here and only here.

Axes are never folded: members (draws) first, then inputs, then classes or targets, `(S, N, K)`. The latent f is a
member's own mean; the observed y is that mean plus the likelihood's noise. All results are float64: an uncertainty is
often the small difference of two large numbers.
"""

import html
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

import murmuration.likelihoods.mixtures as mixtures
from murmuration.data.numpy_arrays import as_array, unmasked
from murmuration.data.raw import Keys, join_keys, take_keys
from murmuration.data.targets import encode_labels, is_number
from murmuration.likelihoods import CLASSIFICATION, MULTI_LABEL, REGRESSION, Categorical, Likelihood, MeanAndStd
from murmuration.likelihoods.classes import MultiLabel
from murmuration.prediction import checks, outside, tables
from murmuration.prediction.outside import Baseline, Blend, Outside
from murmuration.system.errors import Misuse

SMALLEST_PROBABILITY = 1e-12  # smaller ones are clipped in log_prob: one confident mistake costs 27.6 nats


@dataclass(frozen=True, eq=False, repr=False)
class Predictive:
    """The predictive distribution of S members for N inputs.

    Properties of another task raise `Misuse`.

    Attributes:
        outputs: Outputs (S, N, width) of the members.
        likelihood: The distribution of the target given the outputs.
        weights: Weights (S,) of the members, summing to one; None: equal.
        names: Names of the K classes, labels or targets, if known.
        posthoc: The fitted post-hoc steps whose sets and decisions belong to these predictions.
        keys: Names (N,) of the inputs by the caller, the first columns of a table.
        uncalibrated: The predictive before a calibrator; scores of members are taken from it.
        outside: How far each input lies outside of the training range; None: not known.
        baseline: The prediction without any input, a part of predictions far outside; None: predictions are those of
            the members. Attributes of single members never have it.
    """

    outputs: Tensor
    likelihood: Likelihood
    weights: Tensor | None = None
    names: tuple[str, ...] = ()
    posthoc: Any = None
    keys: Keys = field(default_factory=dict)
    uncalibrated: "Predictive | None" = None
    outside: Outside | None = None
    baseline: Baseline | None = None

    def __post_init__(self) -> None:
        if any(len(values) != self.outputs.shape[1] for values in self.keys.values()):
            raise Misuse(f"keys of another length than inputs {self.outputs.shape[1]}: expected one for each")
        if self.outside is not None and self.outside.count.shape[0] != self.outputs.shape[1]:
            raise Misuse(f"outside of {len(self.outside.count)} inputs, and there are {self.outputs.shape[1]}")
        checks.check_outputs(self.outputs, self.likelihood)
        checks.check_weights(self.weights, members=len(self.outputs))

    def __repr__(self) -> str:
        members, inputs, _ = self.outputs.shape
        return f"Predictive(members={members}, inputs={inputs}, likelihood={self.likelihood})"

    @property
    def task(self) -> str:
        """Return "classification", "multi-label" or "regression"."""
        return self.likelihood.task

    @cached_property
    def member_weights(self) -> Tensor:
        """Return the weight (S,) of each member, summing to one, in float64."""
        if self.weights is not None:
            return self.weights.double()
        members = len(self.outputs)
        return self.outputs.new_full((members,), 1 / members, dtype=torch.float64)

    def average(self, values: Tensor) -> Tensor:
        """Average over members.

        Args:
            values: Values (S, ...) of each member.

        Returns:
            Their weighted mean (...).
        """
        return mixtures.weighted_mean(values, self.member_weights)

    @cached_property
    def blend(self) -> Blend | None:
        """Return how predictions are mixed with the baseline; None if none is."""
        if self.outside is None or self.baseline is None:
            return None
        weight = self.outside.weight
        if not torch.compiler.is_exporting() and not (weight > 0).any():  # an exported module has no branches
            return None
        return Blend(weight, *(moment.to(weight.device) for moment in self.baseline.moments))

    def _mixed(self, values: Tensor, unknown: Callable[[Blend], Any] = lambda blend: 0.0) -> Tensor:
        """Average values (N, ...) of the members with those of the baseline; inputs of weight 0 keep their bits."""
        return values if self.blend is None else self.blend.mix(values, unknown(self.blend))

    @cached_property
    def mean(self) -> Tensor:
        """Return the mean probabilities of classes or labels, or the mean of y, (N, K)."""
        if self.task != REGRESSION:
            return self.mean_probs
        return self._mixed(self.average(self.member_mean), lambda blend: blend.mean)

    def member_log_prob(self, y: Any) -> Tensor:
        """Compute the log-likelihood of each target under each member.

        Args:
            y: Labels (N,), or targets (N, K).

        Returns:
            Log-likelihoods (S, N); probabilities are clipped at 1e-12. Labels of a multi-label task are independent
            given a member: theirs is the sum over labels.
        """
        if self.task == REGRESSION:
            return self.distribution.log_prob(self.targets(y)).sum(-1)
        if self.task == MULTI_LABEL:
            right = torch.where(self.targets(y) > 0.5, self.probs, 1 - self.probs)  # (S, N, K)
            return right.clamp_min(SMALLEST_PROBABILITY).log().sum(-1)
        labels = self.labels(y).expand(len(self.outputs), -1)
        return self.probs.gather(-1, labels[..., None]).squeeze(-1).clamp_min(SMALLEST_PROBABILITY).log()

    def log_prob(self, y: Any) -> Tensor:
        """Compute the log-likelihood of each target under the mixture of members.

        It is the log-mean-exp of the members' log-likelihoods: probabilities are averaged, never logits. Members are
        clipped before they are averaged, so the ensemble's loss is never above the mean of its members' losses
        (Jensen), unless it is one moment-matched Gaussian.

        Args:
            y: Labels (N,), or targets (N, K).

        Returns:
            Log-likelihoods (N,).
        """
        if self.task == REGRESSION:
            components, weights = self.density
            members = (weights.log()[:, None] + components.log_prob(self.targets(y)).sum(-1)).logsumexp(0)
        else:
            members = (self.member_weights.log()[:, None] + self.member_log_prob(y)).logsumexp(0)
        if self.blend is None or self.likelihood.moment_matched:
            return members
        return self.blend.log_mix(members, self.checked(y), self.task)

    @property
    def logits(self) -> Tensor:
        """Return the logits (S, N, K) of each member: outputs passed through the likelihood's link, before the softmax.

        For predictives made by `from_probs` they are the logarithms of the probabilities. Those of a multi-label task
        are before the sigmoid.
        """
        if self.task == REGRESSION:
            hint = "read mean, aleatoric_var, epistemic_var, total_var, quantile or interval"
            belong = "probabilities, entropies and confidence belong to classification"
            raise Misuse(f"{belong}, and this is a regression: {hint}")
        return self.likelihood.logits(self.outputs.double())

    @cached_property
    def probs(self) -> Tensor:
        """Return the probabilities (S, N, K) of classes, or of labels, of each member."""
        return self.logits.sigmoid() if self.task == MULTI_LABEL else mixtures.softmax(self.logits)

    @cached_property
    def mean_probs(self) -> Tensor:
        """Return the mean probabilities (N, K) of classes or labels."""
        return self._mixed(self.average(self.probs), lambda blend: blend.mean)

    @cached_property
    def votes(self) -> Tensor:
        """Return the class (S, N) that each member predicts, the first of equals; or its labels (S, N, K)."""
        if self.task == MULTI_LABEL:
            return (self.probs > 0.5).long()
        return self.probs.max(-1).indices  # argmax takes half as long again

    @property
    def predicted(self) -> Tensor:
        """Return the class (N,) of the largest mean probability; or the labels (N, K) with one above 0.5."""
        return (self.mean_probs > 0.5).long() if self.task == MULTI_LABEL else self.mean_probs.argmax(-1)

    @property
    def confidence(self) -> Tensor:
        """Return the largest mean probability (N,)."""
        self._require_classes("confidence")
        return self.mean_probs.amax(-1)

    def _require_classes(self, what: str) -> None:
        """Refuse a multi-label task."""
        if self.task == MULTI_LABEL:
            reason = "is for one class per input, and this is multi-label"
            raise Misuse(f"{what} {reason}: read probs, entropy or total_var")

    def _entropies(self, probs: Tensor) -> Tensor:
        """Return the entropies (...) of probabilities (..., K), summed over labels of a multi-label task."""
        if self.task == MULTI_LABEL:
            return mixtures.entropy_of(torch.stack([probs, 1 - probs], -1)).sum(-1)
        return mixtures.entropy_of(probs)

    @cached_property
    def entropy(self) -> Tensor:
        """Return the total uncertainty (N,): the entropy of the mean probabilities, in nats; summed over labels."""
        return self._entropies(self.mean_probs)

    @cached_property
    def expected_entropy(self) -> Tensor:
        """Return the aleatoric uncertainty (N,): the mean entropy of members, in nats; summed over labels."""
        return self._mixed(self.average(self._entropies(self.probs)))

    @property
    def mutual_information(self) -> Tensor:
        """Return the epistemic uncertainty (N,): entropy minus expected entropy (Jensen-Shannon divergence).

        It lies between 0 and log(min(S, K)) and grows with S about as 1 - 1/S: compare equal S only; far outside of the
        training range it approaches the entropy of the class frequencies. That of a multi-label task is the sum of the
        labels' own.
        """
        return (self.entropy - self.expected_entropy).clamp_min(0)

    @property
    def disagreement(self) -> Tensor:
        """Return the fraction (N,) of pairs of members that predict different classes; 0 for one member."""
        self._require_classes("disagreement")
        return mixtures.disagreement_of(self.votes, self.member_weights, self.probs.shape[-1])

    @property
    def energy(self) -> Tensor:
        """Return the mean energy (N,) of the members, -logsumexp of their logits (Liu et al. 2020): low is familiar.

        It depends on the scale of the logits, which probabilities do not keep: a predictive made by `from_probs` has
        energy 0, up to rounding, for every input.

        >>> round(Predictive(torch.zeros(1, 1, 4), Categorical(4)).energy.item(), 6)  # -log 4
        -1.386294
        """
        self._require_classes("energy")
        return -self.average(self.logits.logsumexp(-1))

    @property
    def logit_variance(self) -> Tensor:
        """Return the variance (N,) of logits over members, divided by S, mean over classes; 0 for one member.

        Each member's logits are centred over classes first, because the softmax is invariant to a shift. A given
        probability of zero counts as 1e-300, and makes the variance huge.
        """
        self._require_classes("logit_variance")
        return mixtures.weighted_variance(mixtures.centred_logits(self.logits), self.member_weights).mean(-1)

    @property
    def aleatoric_covariance(self) -> Tensor:
        """Return E[diag(p) - p p^T] (N, K, K): the mean covariance of the label within members (Kwon et al. 2020)."""
        self._require_classes("aleatoric_covariance")
        within = torch.diag_embed(self.average(self.probs)) - mixtures.second_moment(self.probs, self.member_weights)
        return self._mixed(within)

    @property
    def epistemic_covariance(self) -> Tensor:
        """Return E[(p - mean)(p - mean)^T] (N, K, K): the covariance of members' probabilities, divided by S."""
        members = mixtures.second_moment(self.probs - self.mean, self.member_weights)
        return self._mixed(members, lambda blend: blend.class_covariance(self.mean))

    @property
    def total_covariance(self) -> Tensor:
        """Return diag(mean) - mean mean^T (N, K, K): the covariance of a one-hot label; aleatoric plus epistemic."""
        self._require_classes("total_covariance")
        mean = self.mean_probs
        return torch.diag_embed(mean) - mean[:, :, None] * mean[:, None, :]

    @cached_property
    def distribution(self) -> mixtures.Components:
        """Return each member's distribution of y, in the target's units: Gaussians, or curves through quantiles."""
        if self.task != REGRESSION:
            belong = "quantiles, intervals and members' means of y belong to regression"
            hint = "read probs, entropy, mutual_information or aleatoric_var"
            raise Misuse(f"{belong}, and this is a {self.task}: {hint}")
        return self.likelihood.distribution(self.outputs.double())

    @cached_property
    def density(self) -> tuple[mixtures.Components, Tensor]:
        """Return the components (C, N, K) of the distribution of y, and their weights (C,).

        They are the members, or for a moment-matched likelihood one Gaussian of their mixture's mean and variance.
        """
        if not self.likelihood.moment_matched:
            return self.distribution, self.member_weights
        return mixtures.Normals(self.mean[None], self.total_var[None], self.outliers), self.member_weights.new_ones(1)

    @property
    def outliers(self) -> float:
        """Return the share of outliers in the noise of a regression, 0 for Gaussian noise."""
        components = self._first.distribution if self.task == REGRESSION else None
        return components.outliers if isinstance(components, mixtures.Normals) else 0.0

    @property
    def is_gaussian(self) -> bool:
        """Return whether this is a regression whose members predict Gaussians."""
        return self.task == REGRESSION and isinstance(self._first.distribution, mixtures.Normals)

    @property
    def member_mean(self) -> Tensor:
        """Return the latent mean f (S, N, K) of each member, in the target's units."""
        return self.distribution.mean

    @property
    def member_var(self) -> Tensor:
        """Return the noise variance (S, N, K) of each member around its mean."""
        return self.distribution.var

    @property
    def aleatoric_var(self) -> Tensor:
        """Return the mean noise variance (N, K) of the members; for classes, the diagonal of `aleatoric_covariance`."""
        return self._mixed(self.average(self.member_var if self.task == REGRESSION else self.probs * (1 - self.probs)))

    @property
    def epistemic_var(self) -> Tensor:
        """Return the variance (N, K) of members' means, or of their probabilities, divided by S and not S - 1."""
        means = self.member_mean if self.task == REGRESSION else self.probs
        members = mixtures.weighted_variance(means, self.member_weights)
        around = members if self.blend is None else members + (self.average(means) - self.mean).square()
        return self._mixed(around, lambda blend: blend.var + (blend.mean - self.mean).square())

    @property
    def total_var(self) -> Tensor:
        """Return the variance (N, K) of y: aleatoric plus epistemic, by the law of total variance.

        Over classes, where y is the one-hot label, it sums to 1 - |mean|^2, which is at most 1 - 1/K.
        """
        return self.aleatoric_var + self.epistemic_var

    def cdf(self, y: Any) -> Tensor:
        """Compute the predictive probability P(Y <= y), for each target separately.

        Args:
            y: Targets (N, K).

        Returns:
            Probabilities (N, K).

        Raises:
            Misuse: If this is not a regression.
        """
        members = mixtures.mixture_cdf(self.targets(y), *self.density)
        if self.likelihood.moment_matched:
            return members
        return self._mixed(members, lambda blend: blend.density.cdf(self.targets(y))[0])

    def quantile(self, level: float) -> Tensor:
        """Compute a quantile of y.

        Args:
            level: Probability in (0, 1).

        Returns:
            Quantiles (N, K), exact to 1e-12 of the range of the members' quantiles.

        Raises:
            Misuse: If this is not a regression.
        """
        members = mixtures.mixture_quantile(level, *self.density)
        if self.blend is None or self.likelihood.moment_matched:
            return members
        return self.blend.quantile(level, members, *self.density)

    def interval(self, level: float) -> tuple[Tensor, Tensor]:
        """Compute the central predictive interval.

        Args:
            level: Its probability, in (0, 1).

        Returns:
            The ends (low, high), each (N, K).

        Raises:
            Misuse: If `level` is outside (0, 1), or this is not a regression.
        """
        if not 0 < level < 1:
            raise Misuse(f"interval({level}): expected a probability between 0 and 1, such as 0.9")
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def uncertainties(self) -> dict[str, Tensor]:
        """Decompose the uncertainty of every input.

        | name | definition, for one class per input |
        |---|---|
        | `confidence` | the largest mean probability |
        | `entropy` | of the mean probabilities: total uncertainty, in nats |
        | `expected_entropy` | mean entropy of the members: aleatoric, in nats |
        | `mutual_information` | the difference: epistemic, in nats |
        | `aleatoric` | trace of E[diag(p) - p p^T] (Kwon et al. 2020) |
        | `epistemic` | trace of E[(p - mean)(p - mean)^T] |
        | `aleatoric_predicted` `epistemic_predicted` | the same matrices' diagonal entry of the predicted class |

        The two traces add up to 1 - |mean|^2, which is at most 1 - 1/K. Epistemic terms of a single member are zero.
        For several labels per input there are the entropies and the mutual information, summed over labels.

        Returns:
            Values (N,) by name.

        Raises:
            Misuse: If this is a regression, which has `aleatoric_var`, `epistemic_var` and `total_var`.

        >>> parts = Predictive.from_probs([[[1.0, 0.0]], [[0.0, 1.0]]]).uncertainties()
        >>> parts["aleatoric"].item(), parts["epistemic"].item(), parts["epistemic_predicted"].item()
        (0.0, 0.5, 0.25)
        """
        return tables.uncertainties(self)

    def arrays(self, *, per_member: bool = False, first: int = 0) -> dict[str, np.ndarray]:
        """Return predictions and uncertainties as arrays by name.

        Args:
            per_member: Whether to add the predictions (S, N, K) of every member.
            first: Index of the first input among all, which random conformal sets depend on.

        Returns:
            Arrays (N,) or (N, K). Post-hoc steps add the conformal set (N, K) or interval of each input and whether to
            answer it.
        """
        return tables.arrays(self, per_member, first)

    def columns(self, *, first: int = 0) -> dict[str, np.ndarray]:
        """Return predictions and uncertainties as columns of a table.

        Args:
            first: As for `arrays`.

        Returns:
            Columns (N,) by name: first the keys of the inputs, if any (`index` of a pandas table, `file` of images),
            then those of `arrays`, with a column for each class or target; the classes of a set as one text.
        """
        values = tables.value_columns(self, first)
        if both := self.keys.keys() & values.keys():
            raise Misuse(f"keep={min(both)!r} is also the name of a column of predictions: rename it in the table")
        return {**self.keys, **values}

    def to_pandas(self) -> Any:
        """Return a pandas table with one row per input: the columns that `murmur predict` writes."""
        import pandas as pd

        return pd.DataFrame(self.columns())

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self))}</p>{self.at(slice(0, 5)).to_pandas()._repr_html_()}"

    @property
    def _first(self) -> "Predictive":
        """Return the first member on the first input: enough to know K without computing the rest."""
        return replace(self, outputs=self.outputs[:1, :1], weights=None, keys={}, uncalibrated=None, outside=None)

    def labels(self, y: Any) -> Tensor:
        """Check labels and return them as class indices.

        Args:
            y: Labels (N,). A tensor holds indices, as `data.test.y` does. In an array or list, strings are class names,
                and so are numbers if the classes are numbers other than 0 to K - 1.

        Returns:
            Class indices (N,).

        Raises:
            Misuse: If a label is not a class, or their number is not N.
        """
        self._require_classes("a class index")
        if self.names and not isinstance(y, Tensor):
            y = as_array(y)
            numbers = all(map(is_number, self.names)) and self.names != tuple(map(str, range(len(self.names))))
            if y.ndim == 1 and (y.dtype.kind in "UO" or (y.dtype.kind in "iuf" and numbers)):
                y = encode_labels(y, None, self.names)
        classes = self._first.probs.shape[-1]
        return checks.checked_labels(y, inputs=self.outputs.shape[1], classes=classes).to(self.outputs.device)

    def targets(self, y: Any) -> Tensor:
        """Check targets and return them as values.

        Args:
            y: Targets (N, K), or zeros and ones of labels; (N,) stands for one target.

        Returns:
            Values (N, K), float64.

        Raises:
            Misuse: If they have another shape or are not finite.
        """
        labels = self.task == MULTI_LABEL
        width = self.outputs.shape[-1] if labels else self._first.member_mean.shape[-1]
        targets = checks.checked_targets(y, inputs=self.outputs.shape[1], width=width).to(self.outputs.device)
        if labels and not ((targets == 0) | (targets == 1)).all():
            raise Misuse("targets of a multi-label task other than 0 and 1: expected zeros and ones")
        return targets

    def checked(self, y: Any) -> Tensor:
        """Check the targets of this task.

        Args:
            y: Labels (N,), or targets (N, K).

        Returns:
            Class indices (N,), or values or labels (N, K).
        """
        return self.labels(y) if self.task == CLASSIFICATION else self.targets(y)

    def at(self, inputs: Any) -> "Predictive":
        """Select inputs.

        Args:
            inputs: A slice, indices, or a mask (N,).

        Returns:
            The predictive of these inputs, in their order.
        """
        index = inputs if isinstance(inputs, slice) else torch.as_tensor(unmasked(inputs))
        rows = index if isinstance(index, slice) else index.cpu().numpy()
        before = None if self.uncalibrated is None else self.uncalibrated.at(inputs)
        far, keys = None if self.outside is None else self.outside.at(index), take_keys(self.keys, rows)
        return replace(self, outputs=self.outputs[:, index], keys=keys, uncalibrated=before, outside=far)

    def with_logits(self, logits: Tensor) -> "Predictive":
        """Replace the logits.

        Args:
            logits: Logits (S, N, K), which become the outputs.

        Returns:
            The predictive of the same members with these logits.
        """
        plain = (MultiLabel if self.task == MULTI_LABEL else Categorical)(logits.shape[-1])
        return Predictive(logits, plain, self.weights, self.names, self.posthoc, self.keys, outside=self.outside)

    def select(self, members: Sequence[int] | Tensor) -> "Predictive":
        """Select members.

        Args:
            members: Their indices; negative ones count from the end.

        Returns:
            The predictive of these members, in this order; their weights are scaled to sum to one.

        Raises:
            Misuse: If there is no such member.
        """
        index = checks.checked_members(members, count=len(self.outputs)).to(self.outputs.device)
        weights = None if self.weights is None else self.weights[index] / self.weights[index].sum()
        before = None if self.uncalibrated is None else self.uncalibrated.select(members)
        return replace(self, outputs=self.outputs[index], weights=weights, uncalibrated=before)

    def batches(self, size: int) -> Iterator["Predictive"]:
        """Split into predictives of successive inputs.

        Args:
            size: Largest number of inputs in each.

        Yields:
            Predictives whose outputs are views.
        """
        for first in range(0, self.outputs.shape[1], size):
            yield self.at(slice(first, first + size))

    @staticmethod
    def concatenate(parts: Sequence["Predictive"]) -> "Predictive":
        """Join predictives of the same members for successive inputs: the inverse of `batches`.

        Args:
            parts: One or more predictives of one likelihood.

        Returns:
            The predictive of all inputs.

        Raises:
            Misuse: If there are none, or their likelihoods differ.
        """
        checks.check_alike([part.likelihood for part in parts])
        outputs, keys = torch.cat([part.outputs for part in parts], dim=1), join_keys([part.keys for part in parts])
        before = [part.uncalibrated for part in parts if part.uncalibrated is not None]
        uncalibrated = Predictive.concatenate(before) if len(before) == len(parts) else None
        far = outside.joined([part.outside for part in parts])
        return replace(parts[0], outputs=outputs, keys=keys, uncalibrated=uncalibrated, outside=far)

    @staticmethod
    def pool(parts: Sequence["Predictive"]) -> "Predictive":
        """Join the members of several predictives for the same inputs.

        Args:
            parts: One or more predictives of one likelihood; they are weighted equally.

        Returns:
            The predictive of all their members.

        Raises:
            Misuse: If there are none, or their likelihoods differ.
        """
        checks.check_alike([part.likelihood for part in parts])
        weights = torch.cat([part.member_weights for part in parts]) / len(parts)
        outputs = torch.cat([part.outputs for part in parts])
        return replace(parts[0], outputs=outputs, weights=weights, uncalibrated=None)

    @staticmethod
    def from_probs(probs: Any, weights: Any = None) -> "Predictive":
        """Make a predictive from class probabilities of any source.

        Args:
            probs: Probabilities (S, N, K), or (N, K) for one model.
            weights: Weights (S,) of the members; None: equal.

        Returns:
            A predictive whose outputs are the logarithms of the probabilities.

        Raises:
            Misuse: If rows are not probabilities.

        >>> Predictive.from_probs([[0.7, 0.3], [0.0, 1.0]]).predicted.tolist()
        [0, 1]
        """
        logits = checks.checked_logits(probs)
        return Predictive(logits, Categorical(logits.shape[-1]), checks.as_weights(weights))

    @staticmethod
    def from_moments(mean: Any, std: Any, weights: Any = None, outliers: float = 0.0) -> "Predictive":
        """Make a predictive from Gaussian means and standard deviations, in the target's units.

        Args:
            mean: Means (S, N, K) of the members.
            std: Noise of each member around its mean, (S, N, K) or one number for all.
            weights: Weights (S,) of the members; None: equal.
            outliers: Share of outliers in the noise, which then has heavy tails and the same standard deviation
                (`HeteroscedasticGaussian`).

        Returns:
            A predictive of Gaussians, or of Gaussians with outliers.

        Raises:
            Misuse: If shapes differ, or numbers are not finite, or a standard deviation is not positive.

        >>> two = Predictive.from_moments([[[0.0]], [[2.0]]], 0.5)
        >>> two.epistemic_var.item(), two.aleatoric_var.item()
        (1.0, 0.25)
        """
        outputs = checks.checked_moments(mean, std)
        return Predictive(outputs, MeanAndStd(outputs.shape[-1] // 2, outliers), checks.as_weights(weights))
