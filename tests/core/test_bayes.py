"""Networks whose weights are distributions, through the public functions: what they predict, and what is kept."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import murmuration as mm
from murmuration.core.recipe import Recipe, make_recipe
from murmuration.core.weights.gaussian import ESTIMATORS, STD_PARAM
from murmuration.data import Data, open_data
from murmuration.prediction.ensemble import Ensemble
from murmuration.training.plan import Plan

PLAN = Plan(members=2, epochs=1, batch_size=32, engine="loop", lr=1e-2)
BAYESIAN = ["bayes", "bayes-flipout", "bayes-last-layer", "rank1-bnn"]


def plan_of(preset: str) -> Plan:
    """The plan with the preset's own number of members, or two."""
    return replace(PLAN, members=make_recipe(preset).members or 2)


@pytest.fixture(scope="module")
def little(digits: Data) -> Data:
    return open_data((digits.train.prepared[:160], digits.train.y[:160]))


@pytest.fixture(scope="module")
def trained(little: Data) -> dict[tuple[str, str], Ensemble]:
    return {
        (preset, net): mm.fit(net, little, recipe=preset, plan=plan_of(preset), posthoc=None)
        for preset in BAYESIAN
        for net in ("mlp", "small-cnn")
    }


def fitted(little: Data, weights: str, net: str = "mlp", base: str = "deep-ensemble", **settings) -> Ensemble:
    return mm.fit(
        net, little, recipe=make_recipe(base, weights=weights), plan=replace(plan_of(base), **settings), posthoc=None
    )


EVERY = pytest.mark.parametrize("preset", BAYESIAN)
NETS = pytest.mark.parametrize("net", ["mlp", "small-cnn"])


@EVERY
@NETS
def test_one_picture_has_epistemic_uncertainty(preset: str, net: str, trained, little: Data):
    """Draws of one function each: they differ on a single input, as on copies of it."""
    ensemble, one = trained[preset, net], little.test.prepared[:1]
    predictive = ensemble.predict(one, prepared=True)
    assert predictive.epistemic_covariance.diagonal(dim1=-2, dim2=-1).sum() > 1e-6
    assert predictive.mutual_information.item() > 1e-6
    repeated = ensemble.predict(one.expand(4, *one.shape[1:]), prepared=True).outputs
    torch.testing.assert_close(repeated, predictive.outputs.expand_as(repeated), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@NETS
def test_draws_of_one_network_alone_differ_on_one_picture(net: str, estimator: str, little: Data):
    """However its noise came about in training, and with no second network to differ from."""
    ensemble = fitted(little, f"gaussian:estimator={estimator},draws=5", net, members=1)
    predictive = ensemble.predict(little.test.x[:1])
    assert predictive.outputs.shape == (5, 1, 10)
    assert predictive.epistemic_covariance.diagonal(dim1=-2, dim2=-1).sum() > 1e-6
    assert predictive.mutual_information.item() > 1e-6


@pytest.mark.slow
@EVERY
@NETS
def test_a_draw_is_one_function_of_all_inputs(preset: str, net: str, trained, little: Data):
    ensemble, x = trained[preset, net], little.test.prepared[:9]
    whole = ensemble.predict(x, prepared=True).outputs
    parts = [ensemble.predict(part, prepared=True).outputs for part in (x[:2], x[2:])]
    torch.testing.assert_close(whole, torch.cat(parts, 1), rtol=1e-4, atol=1e-4)
    assert torch.equal(whole, ensemble.predict(x, prepared=True).outputs)
    assert len({tuple(each.flatten().tolist()) for each in whole}) == len(whole)


@NETS
def test_a_draw_is_held_from_one_chunk_to_the_next(net: str, trained, little: Data, monkeypatch):
    ensemble, x = trained["bayes", net], little.test.prepared[:10]
    whole = ensemble.predict(x, draws=3, prepared=True).outputs
    monkeypatch.setattr("murmuration.core.engines.outputs.CHUNK", 4)
    torch.testing.assert_close(ensemble.predict(x, draws=3, prepared=True).outputs, whole, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@EVERY
def test_each_member_answers_as_often_as_asked(preset: str, trained, little: Data):
    ensemble = trained[preset, "mlp"]
    usual = 5 if preset == "rank1-bnn" else 30
    assert len(ensemble.predict(little.test.x[:2]).outputs) == usual * ensemble.members
    assert len(ensemble.predict(little.test.x[:2], draws=4).outputs) == 4 * ensemble.members


@EVERY
@NETS
def test_a_member_is_the_network_of_the_means(preset: str, net: str, trained, little: Data):
    """Draws with tiny standard deviations equal the member; draws with its own scatter around their mean."""
    ensemble, x = trained[preset, net], little.test.prepared[:5]
    group = ensemble.groups[0]
    narrow = group.population.clone()
    for named in (narrow.own, narrow.shared):
        for name in named:
            if name.endswith(STD_PARAM):
                named[name].fill_(-40.0)
    narrowed = replace(ensemble, groups=(replace(group, population=narrow),)).predict(x, draws=2, prepared=True).outputs
    for index in range(ensemble.members):
        with torch.no_grad():
            alone = ensemble.member(index)(x)
        torch.testing.assert_close(narrowed[2 * index], alone, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(narrowed[2 * index + 1], alone, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_predictions_draw_weights_with_the_spreads_that_were_learned():
    """One layer: outputs over 4000 draws have mean mu x + b and variance sigma^2 x^2 + sigma_b^2."""
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    y = (x @ torch.tensor([[1.0], [-2.0], [0.5]])) + 1
    ensemble = mm.fit(
        lambda: nn.Linear(3, 1), (x, y), recipe="bayes", plan=plan_of("bayes"), noise_std=0.5, posthoc=None
    )
    draws, inputs = 4000, x[:4]
    outputs = ensemble.predict(inputs, draws=draws, prepared=True).outputs[..., 0].double()
    own = {name: tensor[0].double() for name, tensor in ensemble.groups[0].population.own.items()}
    std = {name: nn.functional.softplus(own[name + STD_PARAM]) for name in ("weight", "bias")}
    mean = inputs.double() @ own["weight"].T + own["bias"]
    variance = inputs.double().square() @ std["weight"].square().T + std["bias"].square()
    assert ((outputs.mean(0) - mean[:, 0]).abs() < 4 * (variance[:, 0] / draws).sqrt()).all()
    assert ((outputs.var(0) / variance[:, 0] - 1).abs() < 4 * (2 / draws) ** 0.5).all()


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["gaussian:estimator=draw", "gaussian:estimator=flipout,prior=mixture_0.5_1_0.1"])
@pytest.mark.parametrize("base", ["deep-ensemble", "batch-ensemble"])
def test_saving_and_stopping_keep_every_bit(base: str, weights: str, little: Data, tmp_path: Path):
    chosen, x = make_recipe(base, weights=weights + ",draws=3"), little.test.prepared[:6]
    whole = mm.fit("mlp", little, recipe=chosen, plan=replace(PLAN, epochs=2), out=tmp_path / "whole", posthoc=None)
    again = mm.load(tmp_path / "whole")
    expected, found = (e.groups[0].population.to_tensors() for e in (whole, again))
    assert any(name.endswith(STD_PARAM) for name in expected)
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert torch.equal(whole.predict(x, prepared=True).outputs, again.predict(x, prepared=True).outputs)

    def stop(text, done, total, record):
        if done == 5:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        mm.fit(
            "mlp",
            little,
            recipe=chosen,
            plan=replace(PLAN, epochs=2),
            out=tmp_path / "part",
            progress=stop,
            checkpoint_seconds=0,
            posthoc=None,
        )
    resumed = mm.resume(tmp_path / "part", data=little).groups[0].population.to_tensors()
    assert all(torch.equal(expected[name], resumed[name]) for name in expected)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["stacked", "threads", "threads-stacked"])
@pytest.mark.parametrize("net", ["mlp", "small-cnn"])
def test_every_engine_gives_the_loop_s_answer(net: str, engine: str, little: Data):
    """Probabilities after one epoch of two Bayesian members that share nothing; the bound of all recipes."""
    loop, other = (fitted(little, "gaussian:draws=4", net, engine=e) for e in ("loop", engine))
    x = little.test.prepared[:8]
    assert (loop.predict(x, prepared=True).probs - other.predict(x, prepared=True).probs).abs().max() < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(
    "weights",
    [
        "gaussian:where=last",
        "gaussian:where=*.weight,bias=point",
        "gaussian:bias=point,std_param=alpha",
        "gaussian:std_param=alpha-channel,prior=ard",
        "gaussian:std_param=alpha-layer,prior=log-uniform",
    ],
)
def test_every_choice_trains(weights: str, little: Data):
    ensemble = fitted(little, weights, "small-cnn", epochs=2)
    assert all(not record["diverged"] for record in ensemble.history)
    assert ensemble.history[1]["train_loss"][0] < ensemble.history[0]["train_loss"][0]
    assert ensemble.predict(little.test.x[:3], draws=2).outputs.isfinite().all()


def test_distributions_join_other_answers(little: Data):
    """An ensemble of Bayesian networks whose outputs repel each other; validation is by the networks of the means."""
    chosen = make_recipe(Recipe("mixed"), weights="gaussian:draws=3", coupling="outputs")
    ensemble = mm.fit("mlp", little, recipe=chosen, plan=replace(PLAN, batch_order="same"), posthoc=None)
    assert len(ensemble.predict(little.test.x[:3]).outputs) == 6
    assert ensemble.history[-1]["coupling"]["mean_kernel"] > 0
    deterministic = replace(ensemble, recipe=make_recipe(ensemble.recipe, weights="point"))
    found = -deterministic.predict(little.val.x).log_prob(little.val.y).mean().item()
    assert ensemble.history[-1]["ensemble"]["val_nll"] == pytest.approx(found, rel=1e-5)


class Thinking(nn.Module):
    """A network that looks at its numbers before it goes on: no engine can stack it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 2, 3), nn.Linear(72, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x)
        if hidden.abs().max().item() > 1e6:
            raise ValueError("out of all proportion")
        return self.second(hidden.relu().flatten(1))


@pytest.mark.parametrize("net", ["small-cnn", Thinking()])
def test_a_few_inputs_get_the_answers_they_get_among_many(net, little: Data):
    """Draws are stacked for a few inputs where the network allows it: the same draws, up to rounding."""
    ensemble = mm.fit(net, little, recipe="bayes", plan=Plan(epochs=1, engine="loop"), posthoc=None)
    many = ensemble.predict(little.test.x[:40], draws=4).outputs
    few = ensemble.predict(little.test.x[:3], draws=4).outputs
    torch.testing.assert_close(few, many[:, :3], rtol=1e-5, atol=1e-5)
    assert (many[0] - many[1]).abs().max() > 1e-3


@pytest.mark.slow
def test_the_example_of_the_docs_runs(capsys):
    page = Path(__file__).parents[2] / "docs" / "bayes.md"
    exec("\n".join(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)), {})
    shown = capsys.readouterr().out
    assert shown.startswith("torch.Size([359, 10]) True\nparameter ")
    assert "4.weight   10 x 16  kernel  own      Gaussian" in shown
