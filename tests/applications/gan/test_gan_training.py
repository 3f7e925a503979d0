"""A generator and a discriminator that learn from each other, against the same game written by hand."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from murmuration.applications.gan import training as gan_training
from murmuration.applications.gan.networks import discriminator, generator
from murmuration.applications.gan.training import (
    LATENTS,
    SHEET,
    WEIGHTS,
    Gan,
    GanConfig,
    discriminate,
    generate,
    init_gan,
    latents,
    load_state,
    run_epoch,
    state_tensors,
    train_step,
)
from murmuration.core.weights import WEIGHTS as FAMILIES
from murmuration.core.weights.gaussian import STD_PARAM
from murmuration.core.weights.priors import gaussian_kl
from murmuration.system.errors import Failure, Misuse
from murmuration.system.option_text import parse
from murmuration.system.streams import Noise, global_stream, many_normals

PLAY = GanConfig(latent=5, epochs=2, batch_size=8, lr=1e-3)
REAL = torch.rand(20, 1, 8, 8, generator=torch.Generator().manual_seed(1)) * 2 - 1
MAKER, JUDGE = partial(generator, 1, 8, latent=5, width=3), partial(discriminator, 1, 8, width=3)
GAUSSIAN = "gaussian:estimator=draw,prior=gaussian_0.1,beta=0.3,kl_warmup=0,samples=2,draws=6"


def game(weights: str = GAUSSIAN, play: GanConfig = PLAY) -> Gan:
    return init_gan(MAKER, JUDGE, REAL, weights=parse(weights, "weights", FAMILIES), config=play)


def fresh() -> tuple[torch.nn.Module, torch.nn.Module]:
    """Both networks as a game with seed 0 begins them."""
    modules = []
    for index, build in enumerate((MAKER, JUDGE)):
        with global_stream(0, "initialisation", index):
            modules.append(build())
    return modules[0], modules[1]


def equal(found: Gan, maker: torch.nn.Module, means: dict[str, Tensor]) -> None:
    for population, expected in (
        (found.generator.population, dict(maker.named_parameters())),
        (found.discriminator.population, means),
    ):
        assert population.own.keys() == expected.keys()
        for name, tensor in expected.items():
            torch.testing.assert_close(population.own[name][0], tensor.detach(), rtol=1e-5, atol=1e-7)
    for name, tensor in maker.named_buffers():
        torch.testing.assert_close(found.generator.population.buffers[name][0], tensor, rtol=1e-5, atol=1e-6)


def test_with_numbers_for_weights_it_is_the_usual_game():
    """Two turns of a DCGAN as everyone writes it: binary cross-entropies and two Adams."""
    found, (maker, judge) = game("point"), fresh()
    movers = [torch.optim.Adam(net.parameters(), PLAY.lr, (0.5, 0.999)) for net in (maker, judge)]
    bce, one, zero = F.binary_cross_entropy_with_logits, torch.ones(8, 1, 1, 1), torch.zeros(8, 1, 1, 1)
    for step in range(2):
        real = REAL[8 * step : 8 * step + 8]
        record = train_step(found, real, step)
        made = maker(latents(PLAY, LATENTS, 8, step))
        movers[1].zero_grad()
        loss = bce(judge(real), one) + bce(judge(made.detach()), zero)
        loss.backward()
        movers[1].step()
        movers[0].zero_grad()
        fooled = bce(judge(made), one)
        fooled.backward()
        movers[0].step()
        assert record["discriminator_loss"] == pytest.approx(loss.item(), rel=1e-5)
        assert record["generator_loss"] == pytest.approx(fooled.item(), rel=1e-5)
        assert record["complexity"] == 0
    equal(found, maker, dict(judge.named_parameters()))


def test_with_distributions_it_is_the_bound_over_draws():
    """One turn by hand: two draws w = m + s e for both losses, and beta / N times the sum of all KL."""
    found, (maker, judge), noise = game(), fresh(), Noise(0, WEIGHTS, 0)
    leaves = {name: t[0].clone().requires_grad_() for name, t in found.discriminator.population.own.items()}
    names = sorted(dict(judge.named_parameters()))
    assert set(leaves) == {*names, *(name + STD_PARAM for name in names)}

    def drawn() -> dict[str, Tensor]:
        eps = many_normals([noise], [leaves[n].detach().unsqueeze(0) for n in names])
        return {n: leaves[n] + F.softplus(leaves[n + STD_PARAM]) * e[0] for n, e in zip(names, eps, strict=True)}

    record = train_step(found, REAL[:8], 0)
    made = maker(latents(PLAY, LATENTS, 8, 0))
    loss = torch.zeros(())
    for _ in range(2):
        weights = drawn()
        loss = loss + F.softplus(-functional_call(judge, weights, REAL[:8])).mean() / 2
        loss = loss + F.softplus(functional_call(judge, weights, made.detach())).mean() / 2
    kl = sum(gaussian_kl(leaves[name], F.softplus(leaves[name + STD_PARAM]), 0.0, 0.1).sum() for name in names)
    assert record["discriminator_loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert record["complexity"] == pytest.approx(float(kl), rel=1e-5)
    mover = torch.optim.Adam(leaves.values(), PLAY.lr, (0.5, 0.999))
    (loss + 0.3 / 20 * kl).backward()
    mover.step()

    fooled = sum(F.softplus(-functional_call(judge, drawn(), made)).mean() for _ in range(2)) / 2
    assert record["generator_loss"] == pytest.approx(float(fooled), rel=1e-5)
    mover = torch.optim.Adam(maker.parameters(), PLAY.lr, (0.5, 0.999))
    fooled.backward()
    mover.step()
    equal(found, maker, leaves)


def test_only_the_discriminator_costs_anything():
    """The KL is a function of the discriminator's weights, and the generator has none."""
    found, noise = game(), [Noise(0, WEIGHTS)]
    maker, judge = found.generator.leaves(), found.discriminator.leaves()
    made = found.generator.outputs(maker, latents(PLAY, LATENTS, 8), noise, training=True)
    found.discriminator.outputs(judge, made, noise, training=True)
    cost = found.discriminator.family.complexity(judge, {}, {}, noise)
    assert found.generator.family.complexity(maker, {}, {}, noise) is None
    assert not any(name.endswith(STD_PARAM) for name in maker)
    assert torch.autograd.grad(cost.sum(), list(maker.values()), allow_unused=True, retain_graph=True) == (
        (None,) * len(maker)
    )
    slopes = dict(zip(judge, torch.autograd.grad(cost.sum(), list(judge.values())), strict=True))
    assert {name for name, slope in slopes.items() if not slope.any()} == {"0.bias", "2.bias"}  # means of zero, as yet


@pytest.mark.parametrize("weights", ["point", GAUSSIAN, "gaussian", "gaussian:estimator=flipout", "dropout"])
def test_a_game_goes_on_where_another_stood(weights: str):
    whole, half = game(weights), game(weights)
    for epoch in range(2):
        run_epoch(whole, REAL, epoch)
    run_epoch(half, REAL, 0)
    again = game(weights)
    load_state(again, {name: tensor.clone() for name, tensor in state_tensors(half).items()})
    run_epoch(again, REAL, 1)
    expected, found = state_tensors(whole), state_tensors(again)
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert not all(torch.equal(expected[name], tensor) for name, tensor in state_tensors(half).items())


def test_a_draw_judges_all_pictures(monkeypatch):
    found = game()
    told = discriminate(found, REAL)
    assert told.outputs.shape == (6, 20, 2)
    assert len({tuple(row) for row in told.outputs[..., 1].tolist()}) == 6
    monkeypatch.setattr(gan_training, "CHUNK", 7)
    torch.testing.assert_close(discriminate(found, REAL).outputs, told.outputs, rtol=1e-4, atol=1e-6)
    assert (told.mutual_information > 0).all()
    alone = discriminate(game("point"), REAL)
    assert alone.outputs.shape == (1, 20, 2)
    with torch.no_grad():
        torch.testing.assert_close(alone.mean[:, 1].float(), fresh()[1](REAL).flatten().sigmoid())


@pytest.mark.parametrize("weights", ["masks", "moped"])
def test_weights_that_mean_nothing_here_are_refused(weights: str):
    with pytest.raises(Misuse, match="a discriminator is one network with fresh weights: write point, gaussian or dr"):
        game(weights)


def test_a_picture_is_made_by_itself_of_the_same_numbers():
    found = game()
    run_epoch(found, REAL, 0)
    numbers = latents(PLAY, SHEET, 6)
    assert torch.equal(numbers, latents(PLAY, SHEET, 6))
    assert not torch.equal(numbers, latents(PLAY, LATENTS, 6))
    before = {name: tensor.clone() for name, tensor in state_tensors(found).items()}
    whole = generate(found, numbers)
    torch.testing.assert_close(generate(found, numbers[2:3]), whole[2:3], rtol=1e-4, atol=1e-5)
    assert all(torch.equal(before[name], tensor) for name, tensor in state_tensors(found).items())


def test_a_game_that_diverged_says_so():
    with pytest.raises(Failure, match="is nan in epoch 1: training diverged; try a lower lr"):
        run_epoch(game(), REAL * torch.nan, 0)


def test_another_games_tensors_are_refused():
    with pytest.raises(Failure, match=r"'discriminator/own/0\.weight:std_param' is missing or of another shape"):
        load_state(game(), state_tensors(game("point")))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"latent": 0}, "latent=0: need at least 1"),
        ({"batch_size": 1}, "batch_size=1: need at least 2"),
        ({"seed": -1}, "seed=-1: need at least 0"),
        ({"lr": 0.0}, "lr=0.0: need a positive number such as 0.0002"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict, message: str):
    with pytest.raises(Misuse, match=message):
        GanConfig(**settings)
