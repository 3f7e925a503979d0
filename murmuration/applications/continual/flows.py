"""Normalising flows: invertible networks with the log-determinant of their Jacobian.

A flow maps x (N, ...) to z of the same shape and back; `forward` returns z and log |det dz/dx| (N,). It begins as the
identity: the last layer of every coupling net is zero, and ActNorm is fitted to the first batch only if asked for.

`vector_flow` is a single-scale RealNVP (Dinh et al. 2017) for vectors, such as features of a pretrained network;
`image_flow` a flow in the manner of Glow (Kingma and Dhariwal 2018) for images: squeeze, then ActNorm, an invertible
1x1 convolution and an affine coupling, again and again. The coupling nets of vectors may be Bayesian: every draw of
their weights is a flow.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from murmuration.core.weights.gaussian import softplus_inverse
from murmuration.core.weights.priors import gaussian_kl
from murmuration.system.errors import Misuse

ALPHA = 0.05  # of a logit: pixels 0 and 1 become finite
SATURATED = 1e-6  # of a logit: an input from latents far away, whose sigmoid rounds to 0 or 1, has finite latents


class Coupling(nn.Module):
    """An affine coupling: half of the channels is kept and says how the other half is shifted and scaled.

    y = (x + t) exp(s) with s = bound tanh(raw), where (raw, t) = net(kept half) and `bound` (C,) is learned.
    """

    def __init__(self, channels: int, make_net: Callable[[int, int], nn.Module], *, swap: bool = False) -> None:
        super().__init__()
        self.swap, self.kept = swap, channels // 2 if swap else channels - channels // 2
        self.net = make_net(self.kept, 2 * (channels - self.kept))
        self.bound = nn.Parameter(torch.ones(channels - self.kept))

    def halves(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the channels that are kept, and those that change."""
        changed = x.shape[1] - self.kept
        return (x[:, changed:], x[:, :changed]) if self.swap else (x[:, : self.kept], x[:, self.kept :])

    def joined(self, kept: Tensor, changed: Tensor) -> Tensor:
        return torch.cat([changed, kept] if self.swap else [kept, changed], dim=1)

    def scale_and_shift(self, kept: Tensor) -> tuple[Tensor, Tensor]:
        raw, shift = self.net(kept).chunk(2, dim=1)
        return per_channel(self.bound, kept) * torch.tanh(raw), shift

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        unchanged, changed = self.halves(x)
        scale, shift = self.scale_and_shift(unchanged)
        return self.joined(unchanged, (changed + shift) * scale.exp()), scale.flatten(1).sum(1)

    def inverse(self, z: Tensor) -> Tensor:
        unchanged, changed = self.halves(z)
        scale, shift = self.scale_and_shift(unchanged)
        return self.joined(unchanged, changed * (-scale).exp() - shift)


def per_channel(values: Tensor, like: Tensor) -> Tensor:
    """Return values (C,) in a shape that broadcasts with inputs (N, C, ...)."""
    return values.view(-1, *(1,) * (like.dim() - 2))


class ActNorm(nn.Module):
    """A shift and a scale of each channel, set so that the first batch has mean 0 and variance 1 if `fit` is called."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.shift, self.log_scale = nn.Parameter(torch.zeros(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z = (x + per_channel(self.shift, x)) * per_channel(self.log_scale, x).exp()
        return z, (math.prod(x.shape[2:]) * self.log_scale.sum()).expand(len(x))

    def inverse(self, z: Tensor) -> Tensor:
        return z * (-per_channel(self.log_scale, z)).exp() - per_channel(self.shift, z)

    @torch.no_grad()
    def fit(self, x: Tensor) -> None:
        """Set shift and scale from the statistics of a batch."""
        axes = (0, *range(2, x.dim()))
        self.shift.copy_(-x.mean(axes))
        self.log_scale.copy_(-x.var(axes, correction=0).clamp_min(1e-6).log() / 2)


class Convolution1x1(nn.Module):
    """An invertible matrix across channels, P L U with P a fixed rotation's permutation, L and U triangular.

    It begins as a random rotation, and log |det| is the sum of the logarithms of U's diagonal.
    """

    permutation: Tensor
    sign: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        permutation, lower, upper = torch.linalg.lu(torch.linalg.qr(torch.randn(channels, channels)).Q)
        diagonal = upper.diagonal()
        self.register_buffer("permutation", permutation)
        self.register_buffer("sign", diagonal.sign())
        self.lower, self.upper = nn.Parameter(lower.tril(-1)), nn.Parameter(upper.triu(1))
        self.log_diagonal = nn.Parameter(diagonal.abs().log())

    def factors(self) -> tuple[Tensor, Tensor]:
        """Return L and U (C, C)."""
        eye = torch.eye(len(self.sign), dtype=self.lower.dtype, device=self.lower.device)
        return self.lower.tril(-1) + eye, self.upper.triu(1) + torch.diag(self.sign * self.log_diagonal.exp())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        lower, upper = self.factors()
        z = torch.einsum("ij,nj...->ni...", self.permutation @ lower @ upper, x)
        return z, (math.prod(x.shape[2:]) * self.log_diagonal.sum()).expand(len(x))

    def inverse(self, z: Tensor) -> Tensor:
        lower, upper = self.factors()
        columns = torch.einsum("ij,nj...->ni...", self.permutation.T, z).movedim(1, 0).flatten(1)  # (C, N positions)
        between = torch.linalg.solve_triangular(lower, columns, upper=False, unitriangular=True)
        solved = torch.linalg.solve_triangular(upper, between, upper=True)
        return solved.view(z.shape[1], z.shape[0], *z.shape[2:]).movedim(0, 1)


class Squeeze(nn.Module):
    """2x2 pixels become channels: (N, C, H, W) to (N, 4C, H/2, W/2)."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return F.pixel_unshuffle(x, 2), x.new_zeros(len(x))

    def inverse(self, z: Tensor) -> Tensor:
        return F.pixel_shuffle(z, 2)


class Logit(nn.Module):
    """Pixels in [0, 1] to the real line: logit(alpha + (1 - 2 alpha) x)."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        p = (ALPHA + (1 - 2 * ALPHA) * x).clamp(SATURATED, 1 - SATURATED)
        slope = math.log(1 - 2 * ALPHA) - p.log() - (1 - p).log()
        return p.logit(), slope.flatten(1).sum(1)

    def inverse(self, z: Tensor) -> Tensor:
        return (z.sigmoid() - ALPHA) / (1 - 2 * ALPHA)


class Flow(nn.Module):
    """Invertible layers one after another; z is flat, (N, D)."""

    def __init__(self, layers: Sequence[nn.Module], shape: tuple[int, ...], *, pixels: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.shape, self.dimensions = shape, math.prod(shape)  # of one input
        self.pixels = pixels  # whether inputs are pixels in [0, 1), which are dequantised first
        self.latent_shape = shape
        for _ in (layer for layer in layers if isinstance(layer, Squeeze)):
            channels, height, width = self.latent_shape
            self.latent_shape = (4 * channels, height // 2, width // 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return latents (N, D) and log |det dz/dx| (N,)."""
        total = x.new_zeros(len(x))
        for layer in self.layers:
            x, log_det = layer(x)
            total = total + log_det
        return x.flatten(1), total

    def inverse(self, z: Tensor) -> Tensor:
        """Return inputs (N, ...) from latents (N, D)."""
        x = z.view(len(z), *self.latent_shape)
        for layer in reversed(self.layers):
            x = layer.inverse(x)  # type: ignore[operator]
        return x

    @torch.no_grad()
    def fit_actnorm(self, x: Tensor) -> None:
        """Set every ActNorm from the statistics of its inputs for a first batch."""
        for layer in self.layers:
            if isinstance(layer, ActNorm):
                layer.fit(x)
            x, _ = layer(x)


def dense_net(inputs: int, outputs: int, *, hidden: int, layers: int) -> nn.Sequential:
    """Return a coupling net for vectors, zero at first."""
    widths = [inputs, *[hidden] * layers]
    parts = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*parts, zero(nn.Linear(widths[-1], outputs)))


def convolution_net(inputs: int, outputs: int, *, hidden: int) -> nn.Module:
    """Return a coupling net for images, zero at first: 3x3, 1x1 and 3x3 convolutions."""
    first, second = nn.Conv2d(inputs, hidden, 3, padding=1), nn.Conv2d(hidden, hidden, 1)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), zero(nn.Conv2d(hidden, outputs, 3, padding=1)))


def zero(layer: nn.Linear | nn.Conv2d) -> nn.Module:
    """Return the layer with weights and biases of zero."""
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    return layer


class BayesianLinear(nn.Module):
    """A linear layer with a Gaussian posterior over its weights; it runs on the last draw, at first on the means.

    The prior is centred at the initial weights, so that a flow tends to the identity, and has the standard deviation
    1 / sqrt(inputs). The posterior begins with `ratio` times that.
    """

    centre: Tensor

    def __init__(self, layer: nn.Linear, ratio: float = 0.01) -> None:
        super().__init__()
        self.prior_std = layer.in_features**-0.5
        means = torch.cat([layer.weight.detach(), layer.bias.detach()[:, None]], dim=1)  # (outputs, inputs + 1)
        self.mean = nn.Parameter(means.clone())
        self.rho = nn.Parameter(softplus_inverse(torch.full_like(means, ratio * self.prior_std)))
        self.register_buffer("centre", means)
        self.register_buffer("noise", torch.zeros_like(means))

    def forward(self, x: Tensor) -> Tensor:
        weight = self.mean + F.softplus(self.rho) * self.noise
        return F.linear(x, weight[:, :-1], weight[:, -1])

    def redraw(self, rng: torch.Generator | None) -> None:
        """Draw the weights again, or set them to their means without a generator."""
        self.noise = torch.zeros_like(self.mean) if rng is None else torch.randn(self.mean.shape, generator=rng)

    def divergence(self) -> Tensor:
        """Return KL(posterior || prior)."""
        return gaussian_kl(self.mean, F.softplus(self.rho), self.centre, self.prior_std).sum()


def bayesian_layers(flow: Flow) -> list[BayesianLinear]:
    return [module for module in flow.modules() if isinstance(module, BayesianLinear)]


def vector_flow(
    dimensions: int, *, couplings: int = 6, hidden: int = 256, layers: int = 2, bayesian: bool = False
) -> Flow:
    """Return a RealNVP for vectors (N, D), the identity at first.

    With `bayesian` coupling nets, by the means of the weights.

    >>> z, log_det = vector_flow(4)(torch.ones(2, 4))
    >>> z.tolist() == [[1.0] * 4] * 2, log_det.tolist()
    (True, [0.0, 0.0])
    """
    if dimensions < 2:
        raise Misuse(f"a flow of {dimensions} dimension: a coupling needs at least 2")

    def net(inputs: int, outputs: int) -> nn.Module:
        parts = dense_net(inputs, outputs, hidden=hidden, layers=layers)
        return nn.Sequential(*(BayesianLinear(m) if bayesian and isinstance(m, nn.Linear) else m for m in parts))

    return Flow([Coupling(dimensions, net, swap=bool(i % 2)) for i in range(couplings)], (dimensions,))


def image_flow(shape: tuple[int, ...], *, levels: int = 2, steps: int = 4, hidden: int = 64) -> Flow:
    """Return a flow for images (N, C, H, W) with pixels in [0, 1].

    `levels` squeezes, each followed by `steps` steps of Glow.

    All channels stay to the end, so that latents have one distance. Each step is ActNorm, an invertible 1x1 convolution
    and a coupling.
    """
    channels, height, width = shape
    if height % 2**levels or width % 2**levels:
        raise Misuse(f"images of {height}x{width} with levels={levels}: expected sides divisible by {2**levels}")

    net = partial(convolution_net, hidden=hidden)
    layers: list[nn.Module] = [Logit()]
    for _ in range(levels):
        channels *= 4
        layers.append(Squeeze())
        for _ in range(steps):
            layers += [ActNorm(channels), Convolution1x1(channels), Coupling(channels, net)]
    return Flow(layers, shape, pixels=True)


def dequantised(pixels: Tensor, noise: Tensor) -> Tensor:
    """Return pixels in [0, 1) from whole numbers 0 to 255 and uniform noise of the same shape."""
    return (pixels + noise) / 256
