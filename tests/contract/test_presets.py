"""The laws that every preset obeys. A new preset joins by being in the table."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch

import murmuration as mm
from murmuration.core.coupling import InputGradientSpace
from murmuration.core.presets import PRESETS
from murmuration.core.recipe import make_recipe, recipe_from_json
from murmuration.data import Data
from murmuration.training.plan import Plan

PLAN = Plan(epochs=2, batch_size=64, engine="loop", lr=3e-3)
MEMBERS = 3  # of recipes that have no number of their own
# forde-pca is forde under its full name, forde-tuned trains once for every alpha, the others have a near relative here.
LONG = ("forde-pca", "forde-tuned", "forde-identity", "batch-ensemble-independent")
LONG += ("bayes-flipout", "bayes-last-layer", "rank1-bnn", "ivon", "weight-rde", "feature-rde", "mask-ensemble")
LONG += ("multi-swag", "snapshot", "ride", "sade", "tabm-mini", "packed")
EVERY = pytest.mark.parametrize(
    "preset", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in PRESETS]
)


@pytest.fixture(autouse=True)
def _few_alphas(monkeypatch):
    """A sweep of two candidates obeys the same laws as one of six, in less than half the time."""
    monkeypatch.setattr("murmuration.core.coupling.input_gradients.ALPHAS", (0.0, 0.4))
    monkeypatch.setattr("murmuration.training.tuning.SEVERITIES", (3,))


def fit(preset: str | mm.Recipe, data: Data, net: str = "mlp", **settings) -> mm.Ensemble:
    others = {name: settings.pop(name) for name in ("out", "noise_std", "likelihood") if name in settings}
    settings.setdefault("members", make_recipe(preset).members or MEMBERS)
    return mm.fit(net, data, recipe=preset, plan=replace(PLAN, **settings), **others)


@pytest.fixture(scope="module")
def usual(digits: Data) -> Callable[[str], mm.Ensemble]:
    """The ensemble of a preset as the loop trains it, once for all laws that only look at it."""
    return cache(lambda preset: fit(preset, digits))


def bits(ensemble: mm.Ensemble) -> dict[str, torch.Tensor]:
    return ensemble.groups[0].population.to_tensors()


def assert_same_bits(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    assert all(torch.equal(a[key], b[key]) for key in a)


@EVERY
@pytest.mark.parametrize(
    "engine",
    ["loop", *(pytest.param(name, marks=pytest.mark.slow) for name in ("stacked", "threads", "threads-stacked"))],
)
def test_same_seed_same_bits(preset, engine, digits: Data):
    first, second = (fit(preset, digits, engine=engine) for _ in range(2))
    assert_same_bits(bits(first), bits(second))
    other = fit(preset, digits, engine=engine, seed=1)
    assert any(not torch.equal(tensor, bits(other)[key]) for key, tensor in bits(first).items())


@EVERY
@pytest.mark.parametrize(
    "engine", ["stacked", *(pytest.param(name, marks=pytest.mark.slow) for name in ("threads", "threads-stacked"))]
)
def test_every_engine_gives_the_loop_s_answer(preset, engine, digits: Data, usual):
    """Probabilities after two epochs; 1e-3 is a thousand roundings, a hundredth of what members differ by."""
    reference, found = usual(preset), fit(preset, digits, engine=engine)
    difference = reference.predict(digits.test.x).probs - found.predict(digits.test.x).probs
    assert difference.abs().max() < 1e-3


@EVERY
def test_one_member_is_the_single_net(preset, digits: Data):
    """Whether a tensor is shared makes no difference then; what a weight is does."""
    chosen = make_recipe(preset)
    if (chosen.members == 1 and chosen.weights.stochastic) or chosen.dynamics != make_recipe("single").dynamics:
        # a member of an ensemble of such networks is the reference
        crowd = make_recipe("deep-ensemble", weights=chosen.weights, dynamics=chosen.dynamics)
        assert_same_bits(bits(fit(preset, digits, members=1)), bits(fit(crowd, digits, members=1)))
        return
    alone, single = fit(preset, digits, members=1), fit("single", digits, likelihood=chosen.loss)
    assert_same_bits(alone.member(0).state_dict(), single.member(0).state_dict())
    assert alone.history[-1]["train_loss"] == single.history[-1]["train_loss"]


@pytest.mark.parametrize("net", ["mlp", "small-cnn"])
def test_threads_with_own_batches_are_separate_runs(net, digits: Data):
    together = bits(fit("deep-ensemble", digits, net, engine="threads"))
    for member in range(3):
        alone = bits(fit("single", digits, net, engine="threads", first_member=member))
        assert_same_bits({key: tensor[member : member + 1] for key, tensor in together.items()}, alone)


@EVERY
def test_saving_and_loading_change_nothing(preset, digits: Data, tmp_path: Path):
    ensemble = fit(preset, digits, out=tmp_path / "run")
    again = mm.load(tmp_path / "run")
    assert_same_bits(bits(ensemble), bits(again))
    assert again.recipe == ensemble.recipe
    assert torch.equal(again.predict(digits.test.x).outputs, ensemble.predict(digits.test.x).outputs)


@pytest.mark.slow
@EVERY
def test_killing_and_resuming_change_nothing(preset, digits: Data, usual, tmp_path: Path):
    undisturbed = usual(preset)

    def stop(text, done, total, record):
        if done == 25:
            raise InterruptedError

    plan = replace(PLAN, members=make_recipe(preset).members or MEMBERS)
    with pytest.raises(InterruptedError):
        mm.fit("mlp", digits, recipe=preset, plan=plan, out=tmp_path / "run", progress=stop, checkpoint_seconds=0)
    resumed = mm.resume(tmp_path / "run")
    assert_same_bits(bits(undisturbed), bits(resumed))
    assert resumed.history == undisturbed.history


@EVERY
def test_history_tells_what_members_feel_of_each_other(preset, usual):
    records = usual(preset).history
    if make_recipe(preset).coupling is None:
        assert all("coupling" not in record for record in records)
        return
    for record in records:
        felt = record["coupling"]
        assert 0 < felt["mean_kernel"] < 1
        assert -1 < felt["cosine"] < 1
        assert felt["push_to_loss"] > 0


@EVERY
def test_inputs_are_not_modified(preset, digits: Data):
    def copies() -> list[torch.Tensor]:
        splits = (digits.train, digits.val, digits.test)
        return [torch.as_tensor(v).clone() for split in splits for v in (split.x, split.y, split.prepared)]

    before = copies()
    ensemble = fit(preset, digits)
    ensemble.predict(digits.test.x)
    ensemble.predict(digits.test.prepared, prepared=True)
    assert all(torch.equal(now, then) for now, then in zip(copies(), before, strict=True))


@EVERY
def test_total_is_aleatoric_plus_epistemic(preset, digits: Data, usual):
    predictive = usual(preset).predict(digits.test.x[:50])
    parts = predictive.aleatoric_covariance + predictive.epistemic_covariance
    torch.testing.assert_close(parts, predictive.total_covariance, rtol=0, atol=1e-12)
    entropies = predictive.expected_entropy + predictive.mutual_information
    torch.testing.assert_close(entropies, predictive.entropy, rtol=0, atol=1e-12)


@EVERY
def test_members_are_plain_networks(preset, digits: Data, usual):
    ensemble = deterministic = usual(preset)
    if ensemble.family.stochastic:
        deterministic = replace(ensemble, recipe=make_recipe(ensemble.recipe, weights="point", dynamics="optimizer"))
    outputs = deterministic.predict(digits.test.x[:20], calibrated=False).outputs
    for index in range(ensemble.members):
        with torch.no_grad():
            alone = ensemble.member(index)(digits.test.prepared[:20])
        torch.testing.assert_close(alone, outputs[index], rtol=1e-5, atol=1e-5)


def with_squares(data: Data) -> Data:
    """The same examples with x and x^2 as inputs, as Izmailov et al. (2019) have it."""
    splits = (data.train, data.val)
    x, y = (torch.cat([getattr(split, name) for split in splits]) for name in ("prepared", "y"))
    return mm.open_data((torch.cat([x, x.square()], dim=1), y))


@pytest.mark.slow
@EVERY
def test_regression_works_as_classification_does(preset):
    data = mm.open_data("x-sin-x")
    if make_recipe(preset).loss is not None:
        with pytest.raises(mm.Misuse, match=f"recipe {preset} is for classification"):
            fit(preset, data)
        return
    coupling = make_recipe(preset).coupling
    if coupling is not None and isinstance(coupling.space, InputGradientSpace):  # which needs inputs of two numbers
        data = with_squares(data)
    # A member that shares its weights may hide behind a large noise of its own while the others learn: fix the noise.
    known = 0.5 if make_recipe(preset).sharing.what != "own" else None
    # Fewer cycles leave no members of the first epochs; plain gradient steps need a smaller rate than Adam, and longer.
    others = {"snapshot": "snapshot:cycles=2", "csgmcmc": "csgmcmc:cycles=1,lr_multiplier=1"}
    recipe, epochs = make_recipe(preset, dynamics=others.get(preset)), 150 if preset == "csgmcmc" else 60
    ensemble = fit(recipe, data, epochs=epochs, batch_size=32, lr=0.01, noise_std=known)
    predictive = ensemble.predict(data.test.x)
    torch.testing.assert_close(
        predictive.aleatoric_var + predictive.epistemic_var, predictive.total_var, rtol=1e-12, atol=1e-12
    )
    spread = data.train.y.std().item()
    inside = ensemble.predict(data.train.x)
    assert mm.score(inside, data.train.y)["rmse"] < 0.5 * spread  # it learned something


@EVERY
def test_a_recipe_survives_json_and_reads_well(preset):
    chosen = make_recipe(preset)
    assert recipe_from_json(chosen.to_json()) == chosen
    assert str(chosen).startswith(f"{preset}: sharing ")
