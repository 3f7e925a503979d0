"""Two networks that learn from each other: a generator, and a discriminator whose weights may be distributions.

The discriminator minimises, with D(x) the probability that a picture is real,

    mean of -log D(real)  +  mean of -log(1 - D(made))  +  beta KL(q || p) / N

and the generator the mean of -log D(made) (Goodfellow et al. 2014), both averaged over draws of the discriminator. The
generator's weights are numbers: the cost of a prior comes from the discriminator alone.

Each player is a population of one member, run and moved by what runs and moves members of ensembles.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from murmuration.dynamics import Optimizer, OptState, StepTime, TrainTime
from murmuration.engines.outputs import CHUNK
from murmuration.errors import Failure, Misuse
from murmuration.likelihoods import Categorical
from murmuration.population import Named, Population, populate
from murmuration.predictive import Predictive
from murmuration.streams import ALL_MEMBERS, Noise, global_stream
from murmuration.streams import generator as stream
from murmuration.weights import ELBO, NetworkWeights, Point, Structure, WeightFamily, run_members, trace_kernels

OPTIMIZER = Optimizer("adam", betas=(0.5, 0.999))  # Radford et al. (2016)
WEIGHTS, LATENTS, SHOWN, SCORED, JUDGED = range(5)  # who draws noise; each has a stream of its own


@dataclass(frozen=True)
class Play:
    """How the game goes."""

    latent: int = 100  # numbers that a picture is made of
    epochs: int = 100
    batch_size: int = 64
    lr: float = 2e-4
    seed: int = 0

    def __post_init__(self) -> None:
        for field, least in (("latent", 1), ("epochs", 1), ("batch_size", 2), ("seed", 0)):
            if getattr(self, field) < least:
                raise Misuse(f"{field}={getattr(self, field)}: need at least {least}")
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise Misuse(f"lr={self.lr}: need a positive number such as 0.0002")


@dataclass(frozen=True)
class Player:
    """One of the two networks, with the moments of its optimiser; both are moved in place."""

    structure: Structure
    family: NetworkWeights
    population: Population  # of one member
    moments: OptState

    def leaves(self) -> Named:
        """The weights (1, ...) as the ends of a graph: what gradients are taken by."""
        return {name: tensor.data.requires_grad_() for name, tensor in self.population.own.items()}

    def outputs(self, own: Named, x: Tensor, noise: list[Noise], *, training: bool) -> Tensor:
        """What the network makes of inputs (B, ...) with these weights; in training, noise may be the operators'."""
        realised = self.family.realise(own, {}, noise, training=training).with_buffers(self.population.buffers)
        return run_members(self.structure, realised, x[None], noise, direct=False)[0]

    def move(self, own: Named, loss: Tensor, lr: float, taken: int) -> None:
        """One step of these weights along the gradient of a loss; `taken` counts the steps before."""
        gradients = list(torch.autograd.grad(loss, list(own.values())))
        moments = [[named[name] for name in own] for named in self.moments.values()]
        with torch.no_grad():
            when = StepTime(lr, taken, TrainTime(taken, 1, 1), lambda likes: [])
            OPTIMIZER.update([self.population.own[name] for name in own], gradients, moments, when)


@dataclass(frozen=True)
class Game:
    """Both players, and what does not change from step to step."""

    generator: Player
    discriminator: Player
    objective: ELBO
    play: Play


def begin(
    generator: Callable[[], nn.Module],
    discriminator: Callable[[], nn.Module],
    real: Tensor,
    *,
    weights: WeightFamily,
    play: Play,
) -> Game:
    """A game about real pictures (N, C, H, W), between two networks with fresh weights.

    `weights` says what a weight of the discriminator is. It judges real and made pictures in one
    batch, so it should have no batch-norm. An epoch leaves out the examples that fill no batch.
    """
    if weights.separates_members or weights.init_from:
        raise Misuse("a discriminator is one network with fresh weights: write point, gaussian or dropout for them")
    objective = weights.objective(len(real), max(1, len(real) // play.batch_size), play.epochs)
    maker = _player(generator, Point(), torch.zeros(2, play.latent, 1, 1), play.seed, 0)
    judge = _player(discriminator, weights, real[:2], play.seed, 1)
    return Game(maker, judge, objective, play)


def _player(build: Callable[[], nn.Module], weights: WeightFamily, x: Tensor, seed: int, index: int) -> Player:
    with global_stream(seed, "initialisation", index):
        module = build()
    trace = trace_kernels(module, x)
    if weights.needs_kernels:
        trace.require_supported()
    population = weights.init(populate(lambda _: module, 1), trace, lambda member: stream(seed, "factors", member))
    return Player(Structure(module), weights.in_network(trace), population, OPTIMIZER.init(population.own))


def run_epoch(game: Game, real: Tensor, epoch: int) -> dict[str, float]:
    """Move both players through the real pictures (N, C, H, W) once; returns means over the epoch, by name."""
    steps, play = game.objective.steps_per_epoch, game.play
    order = torch.randperm(len(real), generator=stream(play.seed, "batches", ALL_MEMBERS, epoch))
    rows = order.split(play.batch_size)[:steps]
    records = [take_turns(game, real[row], epoch * steps + index) for index, row in enumerate(rows)]
    means = {name: sum(record[name] for record in records) / steps for name in records[0]}
    for name, value in means.items():
        if not math.isfinite(value):
            raise Failure(f"{name} is {value} in epoch {epoch + 1}: the game diverged; try a lower lr")
    return means


def take_turns(game: Game, real: Tensor, step: int) -> dict[str, float]:
    """Move the discriminator once, then the generator; returns both losses, the cost and the mean verdicts."""
    maker, judge, play = game.generator, game.discriminator, game.play
    maker.structure.train(True)
    judge.structure.train(True)
    noise, own = [Noise(play.seed, WEIGHTS, step)], maker.leaves()
    made = maker.outputs(own, latents(play, LATENTS, len(real), step), noise, training=True)
    record = _judge_moves(game, real, made.detach(), noise, step)
    losses = [
        F.softplus(-judge.outputs(judge.population.own, made, noise, training=False))
        for _ in range(game.objective.samples)
    ]
    loss = game.objective.combine(losses).mean()
    maker.move(own, loss, play.lr, step)
    return {"generator_loss": loss.item(), **record}


def _judge_moves(game: Game, real: Tensor, made: Tensor, noise: list[Noise], step: int) -> dict[str, float]:
    """The discriminator's turn: both kinds of pictures meet the same draws of its weights."""
    judge, play = game.discriminator, game.play
    own, pictures = judge.leaves(), torch.cat([real, made])
    logits = torch.stack(
        [judge.outputs(own, pictures, noise, training=True).flatten() for _ in range(game.objective.samples)]
    )  # (S, 2B)
    signs = torch.ones(len(pictures)).index_fill_(0, torch.arange(len(real), len(pictures)), -1.0)
    data = 2 * game.objective.combine(list(F.softplus(-signs * logits))).mean()  # a mean of each kind, added
    cost = judge.family.complexity(own, {}, judge.population.buffers, noise)
    judge.move(own, data if cost is None else data + game.objective.kl_weight(step) * cost.sum(), play.lr, step)
    verdicts = logits.detach().sigmoid().mean(0)
    return {
        "discriminator_loss": data.item(),
        "complexity": 0.0 if cost is None else cost.sum().item(),
        "real_called_real": verdicts[: len(real)].mean().item(),
        "made_called_real": verdicts[len(real) :].mean().item(),
    }


def latents(play: Play, who: int, count: int, moment: int = 0) -> Tensor:
    """Standard normal numbers (count, latent, 1, 1); the same for the same who and moment."""
    return torch.randn(count, play.latent, 1, 1, generator=stream(play.seed, "noise", who, moment))


@torch.no_grad()
def made_of(game: Game, numbers: Tensor) -> Tensor:
    """Pictures (N, C, H, W) that the generator makes of latent numbers (N, latent, 1, 1), each by itself."""
    maker = game.generator
    maker.structure.train(False)
    calm = [Noise(game.play.seed, WEIGHTS)]
    return torch.cat([maker.outputs(maker.population.own, part, calm, training=False) for part in numbers.split(CHUNK)])


@torch.no_grad()
def judged(game: Game, pictures: Tensor, draws: int | None = None) -> Predictive:
    """What draws of the discriminator say of pictures (N, C, H, W): class 0 is made, class 1 is real, (S, N, 2)."""
    judge = game.discriminator
    judge.structure.train(False)
    count = judge.family.family.resolve_draws(draws) if judge.family.stochastic else 1
    rows = []
    for draw in range(count):
        parts = [
            judge.outputs(judge.population.own, part, [Noise(game.play.seed, JUDGED, draw)], training=False).flatten()
            for part in pictures.split(CHUNK)  # the same stream for each part: a draw is one function
        ]
        rows.append(torch.cat(parts))
    logits = torch.stack(rows)
    return Predictive(torch.stack([torch.zeros_like(logits), logits], -1), Categorical(2))


def tensors_of(game: Game) -> Named:
    """All that a step changes, by name, as views: what a file must hold for the game to go on."""
    found: Named = {}
    for who, player in (("generator", game.generator), ("discriminator", game.discriminator)):
        found |= {f"{who}/{name}": tensor for name, tensor in player.population.to_tensors().items()}
        found |= {f"{who}/{kind}/{name}": t for kind, named in player.moments.items() for name, t in named.items()}
    return found


def restore(game: Game, tensors: Named) -> None:
    """Put a game where another of the same kind stood, from that one's `tensors_of`."""
    for name, tensor in tensors_of(game).items():
        if name not in tensors or tensors[name].shape != tensor.shape:
            raise Failure(f"'{name}' is missing or of another shape than {tuple(tensor.shape)}: another game's file?")
        tensor.copy_(tensors[name])
