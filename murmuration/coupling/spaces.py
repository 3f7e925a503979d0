"""What a member shows the others: its weights, outputs, features or input gradients.

A space has two halves. `show` runs for some members where they are, with their graph. `push` runs once for all, on what
they showed, and answers with cotangents in the same shape; no network is involved.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from murmuration.coupling.forces import FORCES, Felt, ssge_at
from murmuration.coupling.lengthscales import Metric
from murmuration.coupling.settings import Repulsion
from murmuration.errors import Misuse
from murmuration.likelihoods import identity

SMALLEST = 1e-20  # added to squared norms of gradients
SILENT = 16  # a gradient shorter than so many roundings of one, or than 1e-8, is not pushed: its direction is noise


@dataclass(frozen=True)
class Shown:
    """What a group of m members has at hand when it shows itself; all of it differentiable."""

    weights: dict[str, Tensor]  # (m, ...) each, as realised for this step
    own: tuple[str, ...]  # names of the weights that are not shared
    x: Tensor  # (m, B, ...) inputs
    y: Tensor  # (m, B, ...) targets
    outputs: Tensor  # (m, B, K)
    losses: Tensor  # (m,) mean loss of each member
    features: Tensor | None = None  # (m, B, F), where a space asks for them
    run: Callable[[dict[str, Tensor], Tensor], Tensor] | None = None  # weights, x -> outputs; changes no buffer
    draw: Callable[[Tensor], Tensor] | None = None  # standard normal numbers like a tensor (m, ...), a stream a member
    apart: tuple[Tensor, Tensor] | None = None  # outputs (m, r, K), inputs of examples that ran apart
    link: Callable[[Tensor], Tensor] = identity  # outputs -> logits, whose softmax are probabilities


class Space(Protocol):
    """A space: what is shown in it, and how those who show themselves are pushed."""

    def show(self, shown: Shown) -> Tensor:
        """What each of m members shows, (m, ...), with its graph."""

    def push(self, signatures: Tensor) -> Felt:
        """Cotangents (M, ...) of the repulsion, from the detached signatures (M, ...) of all members."""


@dataclass(frozen=True)
class WeightSpace:
    """The weights themselves, (m, 1, P)."""

    settings: Repulsion

    def show(self, shown: Shown) -> Tensor:
        return torch.cat([shown.weights[name].flatten(1) for name in sorted(shown.own)], dim=1).unsqueeze(1)

    def push(self, signatures: Tensor) -> Felt:
        return FORCES[self.settings.estimator](signatures, self.settings.bandwidth)


@dataclass(frozen=True)
class OutputSpace:
    """Class probabilities, logits or means on the batch as one long vector, (m, 1, B K).

    With a prior of functions a second vector follows: the outputs of weights drawn from the prior of weights.
    """

    settings: Repulsion

    def show(self, shown: Shown) -> Tensor:
        rows = part(shown.x.shape[1], self.settings.share)
        mine = self.form(shown.outputs[:, :rows], shown).flatten(1).unsqueeze(1)
        kind, scale = self.settings.prior_of()
        if kind != "weights":
            return mine
        assert shown.run is not None
        assert shown.draw is not None
        with torch.no_grad():
            strangers = {name: scale * shown.draw(weight) for name, weight in shown.weights.items()}
            theirs = self.form(shown.run(strangers, shown.x[:, :rows].detach()), shown).flatten(1)
        return torch.cat([mine, theirs.unsqueeze(1)], dim=1)

    def form(self, outputs: Tensor, shown: Shown) -> Tensor:
        if shown.y.is_floating_point():
            return means_of(outputs, shown.y)
        return shown.link(outputs).softmax(-1) if self.settings.shown == "probs" else outputs

    def push(self, signatures: Tensor) -> Felt:
        mine = signatures[:, :1]
        felt = FORCES[self.settings.estimator](mine, self.settings.bandwidth)
        kind, scale = self.settings.prior_of()
        if kind == "weights":
            score = ssge_at(signatures[:, 1], mine[:, 0], self.settings.bandwidth)
            cotangents = torch.stack([felt.cotangents[:, 0] - score, torch.zeros_like(score)], dim=1)
            return felt.replaced(cotangents)
        return felt.replaced(felt.cotangents + prior_gradient(kind, scale, mine))


@dataclass(frozen=True)
class FeatureSpace:
    """Penultimate features on the batch, and what the loss feels of them: (m, 2, B F).

    Members are told apart along the few directions in which their losses change: the leading eigenvectors of the Gram
    matrix of the features' gradients.
    """

    settings: Repulsion

    def show(self, shown: Shown) -> Tensor:
        assert shown.features is not None
        felt = torch.autograd.grad(shown.losses.sum(), shown.features, retain_graph=True)[0]
        rows = part(shown.x.shape[1], self.settings.share)
        return torch.stack([shown.features[:, :rows].flatten(1), felt[:, :rows].detach().flatten(1)], dim=1)

    def push(self, signatures: Tensor) -> Felt:
        features, gradients = signatures[:, 0], signatures[:, 1]
        basis = leading(gradients, self.settings.projection, self.settings.directions)  # (B F, r)
        felt = FORCES[self.settings.estimator]((features @ basis).unsqueeze(1), self.settings.bandwidth)
        along = felt.cotangents[:, 0] @ basis.mT + prior_gradient(*self.settings.prior_of(), features)
        return felt.replaced(torch.stack([along, torch.zeros_like(along)], dim=1))


@dataclass(frozen=True)
class InputGradientSpace:
    """The normalised gradient of the true label's logit by each input, in a metric: (m, B, R).

    For numbers, the gradient of the sum of the predicted means. A share of the batch runs apart from the rest of it, or
    where the network mixes examples, once more.
    """

    settings: Repulsion
    metric: Metric

    def show(self, shown: Shown) -> Tensor:
        if self.settings.share == 1:
            return self.metric(normalised(self.gradients(shown.outputs, shown.x, shown.y, shown.link)))
        if shown.apart is None:
            assert shown.run is not None
            x = shown.x[:, : part(shown.x.shape[1], self.settings.share)].detach().requires_grad_()
            outputs = shown.run(shown.weights, x)
        else:
            outputs, x = shown.apart
        return self.metric(normalised(self.gradients(outputs, x, shown.y[:, : x.shape[1]], shown.link)))

    def gradients(self, outputs: Tensor, x: Tensor, y: Tensor, link: Callable[[Tensor], Tensor] = identity) -> Tensor:
        """Gradients (m, B, D) of one number an example by its input."""
        if y.is_floating_point():
            told = means_of(outputs, y)
        else:
            values = outputs if self.settings.shown == "logit" else F.log_softmax(link(outputs), dim=-1)
            told = values.gather(-1, y.unsqueeze(-1))
        return torch.autograd.grad(told.sum(), x, create_graph=True)[0].flatten(2)

    def push(self, signatures: Tensor) -> Felt:
        return FORCES[self.settings.estimator](signatures, self.settings.bandwidth)


def part(batch: int, share: float) -> int:
    """How many examples of a batch stand for all."""
    return max(1, round(share * batch))


def means_of(outputs: Tensor, y: Tensor) -> Tensor:
    """The predicted means (m, B, targets) among the outputs of a regression."""
    return outputs[..., : y.shape[-1]]


def normalised(gradients: Tensor) -> Tensor:
    """Gradients (..., D) on the sphere; one that is as good as zero becomes zero, and feels nothing."""
    length = torch.linalg.vector_norm(gradients, dim=-1, keepdim=True)
    shortest = max(1e-8, SILENT * torch.finfo(gradients.dtype).eps)
    return gradients * ((length.detach() > shortest) / (length.square() + SMALLEST).sqrt())


def leading(vectors: Tensor, count: int, which: str) -> Tensor:
    """Orthonormal directions (D, r) that span the vectors (M, D) best (`largest`), or of what they span, worst."""
    precise = vectors.double()
    values, combinations = torch.linalg.eigh(precise @ precise.mT)  # ascending
    sound = values > 1e-10 * values[-1].clamp_min(1e-30)
    values, combinations = values[sound], combinations[:, sound]
    chosen = slice(-count, None) if which == "largest" else slice(None, count)
    directions = precise.mT @ (combinations[:, chosen] / values[chosen].sqrt())
    return directions.to(vectors)


def prior_gradient(kind: str, scale: float, values: Tensor) -> Tensor:
    """The gradient of minus the log prior: gaussian (scale / 2 |v|^2), cauchy (sum of log(1 + scale v^2)), or none."""
    if kind == "gaussian":
        return scale * values
    return 2 * scale * values / (1 + scale * values.square()) if kind == "cauchy" else torch.zeros_like(values)


def space_of(settings: Repulsion, metric: Metric, input_width: int) -> Space:
    """The space that settings name, for inputs of so many numbers."""
    if settings.space == "input-gradients":
        if input_width == 1:
            raise Misuse(
                "inputs of one number have input gradients of one sign or the other, which no force can turn: use"
                " --coupling outputs or weights, or give the network two features of it, such as x/2 and (x/2)^2"
            )
        return InputGradientSpace(settings, metric)
    others: dict[str, Callable[[Repulsion], Space]] = {
        "weights": WeightSpace,
        "outputs": OutputSpace,
        "features": FeatureSpace,
    }
    return others[settings.space](settings)
