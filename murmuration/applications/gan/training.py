"""Adversarial training of a generator and a discriminator, whose weights may be Gaussian.

The discriminator minimises, with D(x) the probability that an image is real,

    mean of -log D(real)  +  mean of -log(1 - D(generated))  +  beta KL(q || p) / N

and the generator the mean of -log D(generated) (Goodfellow et al. 2014), both averaged over draws of the discriminator.
The generator has point weights, so the KL is that of the discriminator alone. Each network is a population of one
member.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from murmuration.core.dynamics import Optimizer, StepTime, TrainTime
from murmuration.core.dynamics.base import OptState
from murmuration.core.engines.outputs import CHUNK
from murmuration.core.population import Named, Population, populate
from murmuration.core.weights import ELBO, NetworkWeights, Point, Structure, WeightFamily, run_members, trace_kernels
from murmuration.likelihoods import Categorical
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Failure, Misuse
from murmuration.system.streams import ALL_MEMBERS, Noise, generator as stream, global_stream

OPTIMIZER = Optimizer("adam", betas=(0.5, 0.999))  # Radford et al. (2016)
WEIGHTS, LATENTS, SHEET, SCORED, PREDICTION = range(5)  # purposes of random numbers, each with its own stream


@dataclass(frozen=True)
class GanConfig:
    """Settings of adversarial training."""

    latent: int = 100  # dimensions of the latent variable
    epochs: int = 100
    batch_size: int = 64
    lr: float = 2e-4
    seed: int = 0

    def __post_init__(self) -> None:
        for field, least in {"latent": 1, "epochs": 1, "batch_size": 2, "seed": 0}.items():
            if getattr(self, field) < least:
                raise Misuse(f"{field}={getattr(self, field)}: need at least {least}")
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise Misuse(f"lr={self.lr}: need a positive number such as 0.0002")


@dataclass(frozen=True)
class GanNetwork:
    """One of the two networks, with its optimiser state; both are updated in place."""

    structure: Structure
    family: NetworkWeights
    population: Population  # of one member
    moments: OptState

    def leaves(self) -> Named:
        """Return the weights (1, ...) as leaves of the graph, for gradients."""
        return {name: tensor.data.requires_grad_() for name, tensor in self.population.own.items()}

    def outputs(self, own: Named, x: Tensor, noise: list[Noise], *, training: bool) -> Tensor:
        """Return outputs for inputs x (B, ...) with these weights.

        In training, operators may draw the weights' noise.
        """
        realised = self.family.realise(own, {}, noise, training=training).with_buffers(self.population.buffers)
        return run_members(self.structure, realised, x[None], noise, direct=False)[0]

    def step(self, own: Named, loss: Tensor, lr: float, step: int) -> None:
        """Take one optimiser step on a loss; `step` is the number of steps before it."""
        gradients = list(torch.autograd.grad(loss, list(own.values())))
        moments = [[named[name] for name in own] for named in self.moments.values()]
        with torch.no_grad():
            when = StepTime(lr, step, TrainTime(step, 1, 1), lambda likes: [])
            OPTIMIZER.update([self.population.own[name] for name in own], gradients, moments, when)


@dataclass(frozen=True)
class Gan:
    """Both networks, the objective and the settings."""

    generator: GanNetwork
    discriminator: GanNetwork
    objective: ELBO
    config: GanConfig


def init_gan(
    generator: Callable[[], nn.Module],
    discriminator: Callable[[], nn.Module],
    real: Tensor,
    *,
    weights: WeightFamily,
    config: GanConfig,
) -> Gan:
    """Return a GAN with fresh weights for real images (N, C, H, W).

    `weights` is the weight family of the discriminator. Real and generated images go through it in one batch, so it
    should have no batch-norm. An epoch leaves out the last examples that do not fill a batch.
    """
    if weights.separates_members or weights.init_from:
        raise Misuse("a discriminator is one network with fresh weights: write point, gaussian or dropout for them")
    objective = weights.objective(len(real), max(1, len(real) // config.batch_size), config.epochs)
    first = _network(generator, Point(), torch.zeros(2, config.latent, 1, 1), config.seed, 0)
    return Gan(first, _network(discriminator, weights, real[:2], config.seed, 1), objective, config)


def _network(build: Callable[[], nn.Module], weights: WeightFamily, x: Tensor, seed: int, index: int) -> GanNetwork:
    with global_stream(seed, "initialisation", index):
        module = build()
    trace = trace_kernels(module, x)
    if weights.needs_kernels:
        trace.require_supported()
    population = weights.init(populate(lambda _: module, 1), trace, lambda member: stream(seed, "factors", member))
    return GanNetwork(Structure(module), weights.in_network(trace), population, OPTIMIZER.init(population.own))


def run_epoch(gan: Gan, real: Tensor, epoch: int) -> dict[str, float]:
    """Train both networks on the real images (N, C, H, W) for one epoch; returns means over the epoch, by name."""
    steps, config = gan.objective.steps_per_epoch, gan.config
    order = torch.randperm(len(real), generator=stream(config.seed, "batches", ALL_MEMBERS, epoch))
    rows = order.split(config.batch_size)[:steps]
    records = [train_step(gan, real[row], epoch * steps + index) for index, row in enumerate(rows)]
    means = {name: sum(record[name] for record in records) / steps for name in records[0]}
    for name, value in means.items():
        if not math.isfinite(value):
            raise Failure(f"{name} is {value} in epoch {epoch + 1}: training diverged; try a lower lr")
    return means


def train_step(gan: Gan, real: Tensor, step: int) -> dict[str, float]:
    """Take one step of the discriminator, then one of the generator.

    Returns:
        Losses, KL and mean probabilities of real.
    """
    generator, discriminator, config = gan.generator, gan.discriminator, gan.config
    generator.structure.train(True)
    discriminator.structure.train(True)
    noise, own = [Noise(config.seed, WEIGHTS, step)], generator.leaves()
    generated = generator.outputs(own, latents(config, LATENTS, len(real), step), noise, training=True)
    record = _discriminator_step(gan, real, generated.detach(), noise, step)
    judge = partial(discriminator.outputs, discriminator.population.own, generated, noise, training=False)
    loss = gan.objective.combine([F.softplus(-judge()) for _ in range(gan.objective.samples)]).mean()
    generator.step(own, loss, config.lr, step)
    return {"generator_loss": loss.item(), **record}


def _discriminator_step(gan: Gan, real: Tensor, generated: Tensor, noise: list[Noise], step: int) -> dict[str, float]:
    """Return one step of the discriminator, with the same draws of its weights for real and generated images."""
    discriminator, config = gan.discriminator, gan.config
    own, images = discriminator.leaves(), torch.cat([real, generated])
    judge = partial(discriminator.outputs, own, images, noise, training=True)
    logits = torch.stack([judge().flatten() for _ in range(gan.objective.samples)])  # (S, 2B)
    signs = torch.ones(len(images)).index_fill_(0, torch.arange(len(real), len(images)), -1.0)
    data = 2 * gan.objective.combine(list(F.softplus(-signs * logits))).mean()  # mean over real plus over generated
    kl = discriminator.family.complexity(own, {}, discriminator.population.buffers, noise)
    discriminator.step(own, data if kl is None else data + gan.objective.kl_weight(step) * kl.sum(), config.lr, step)
    probabilities = logits.detach().sigmoid().mean(0)
    return {
        "discriminator_loss": data.item(),
        "complexity": 0.0 if kl is None else kl.sum().item(),
        "real_probability_of_real": probabilities[: len(real)].mean().item(),
        "real_probability_of_generated": probabilities[len(real) :].mean().item(),
    }


def latents(config: GanConfig, purpose: int, count: int, step: int = 0) -> Tensor:
    """Return standard normal latents (count, latent, 1, 1), determined by seed, purpose and step."""
    return torch.randn(count, config.latent, 1, 1, generator=stream(config.seed, "noise", purpose, step))


@torch.no_grad()
def generate(gan: Gan, latent: Tensor) -> Tensor:
    """Return generated images (N, C, H, W) from latents (N, latent, 1, 1), in evaluation mode."""
    network, noise = gan.generator, [Noise(gan.config.seed, WEIGHTS)]
    network.structure.train(False)
    parts = latent.split(CHUNK)
    return torch.cat([network.outputs(network.population.own, part, noise, training=False) for part in parts])


@torch.no_grad()
def discriminate(gan: Gan, images: Tensor, draws: int | None = None) -> Predictive:
    """Return predictions (S, N, 2) by draws of the discriminator for images (N, C, H, W).

    Class 0 generated, class 1 real.
    """
    network = gan.discriminator
    network.structure.train(False)
    count = network.family.family.resolve_draws(draws) if network.family.stochastic else 1

    def logits_of(part: Tensor, draw: int) -> Tensor:  # the same stream for every part: a draw is one function
        noise = [Noise(gan.config.seed, PREDICTION, draw)]
        return network.outputs(network.population.own, part, noise, training=False).flatten()

    parts = images.split(CHUNK)
    logits = torch.stack([torch.cat([logits_of(part, draw) for part in parts]) for draw in range(count)])
    return Predictive(torch.stack([torch.zeros_like(logits), logits], -1), Categorical(2))


def state_tensors(gan: Gan) -> Named:
    """Return all tensors that a step changes, by name, as views: the contents of a checkpoint."""
    tensors: Named = {}
    for role, network in (("generator", gan.generator), ("discriminator", gan.discriminator)):
        tensors |= {f"{role}/{name}": tensor for name, tensor in network.population.to_tensors().items()}
        tensors |= {f"{role}/{kind}/{name}": t for kind, named in network.moments.items() for name, t in named.items()}
    return tensors


def load_state(gan: Gan, tensors: Named) -> None:
    """Load the `state_tensors` of a GAN of the same architecture, in place."""
    for name, tensor in state_tensors(gan).items():
        if name not in tensors or tensors[name].shape != tensor.shape:
            raise Failure(f"'{name}' is missing or of another shape than {tuple(tensor.shape)}: a file of another GAN?")
        tensor.copy_(tensors[name])
