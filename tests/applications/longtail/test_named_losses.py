"""Losses by name: every loss with recipes of every kind, the command line, and refusals."""

import json

import numpy as np
import pytest
import torch

import murmuration as mm
from murmuration.cli import main
from murmuration.likelihoods import LOSSES, likelihood_by_name

RECIPES = ("deep-ensemble", "batch-ensemble", "bayes", "forde")
ON_KERNELS = ("batch-ensemble", "bayes")  # they act on the kernel of the last layer


@pytest.fixture(scope="module")
def moons() -> mm.Data:
    generator = np.random.default_rng(0)
    y = np.arange(160) % 2
    return mm.open_data((generator.normal(size=(160, 2)) + y[:, None], y), imbalance=5)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_trains_by_recipes_of_every_kind(loss: str, recipe: str, moons: mm.Data, tmp_path) -> None:
    text = f"{loss}:scale=1" if loss.startswith("ldam") and recipe in ON_KERNELS else loss
    settings = {"recipe": recipe, "members": 1 if recipe == "bayes" else 3, "epochs": 2, "posthoc": None}
    run = mm.fit("mlp", moons, likelihood=text, out=tmp_path / "run", **settings)
    losses = [record["train_loss"] for record in run.history]
    assert torch.tensor(losses).isfinite().all()
    assert losses[-1] != losses[0]
    again = mm.load(tmp_path / "run")
    assert again.likelihood == run.likelihood
    assert torch.equal(again.predict(moons.test).outputs, run.predict(moons.test).outputs)


def test_names_stand_for_objects() -> None:
    def named(text: str) -> mm.Likelihood:
        return likelihood_by_name(text, "classification", 10)

    assert named("class-balanced") == mm.Categorical(10, class_weight="effective")
    assert named("cross-entropy:label_smoothing=0.1") == mm.Categorical(10, label_smoothing=0.1)
    assert named("balanced-softmax") == mm.LogitAdjusted(10)
    assert named("ldam") == mm.LDAM(10, reweight_from=None)
    assert named("ldam-drw:margin=0.3") == mm.LDAM(10, margin=0.3)
    assert likelihood_by_name("focal", "classification", 3, "softplus") == mm.Focal(3, link="softplus")


def test_a_named_loss_gives_the_bits_of_its_object(moons: mm.Data) -> None:
    runs = [mm.fit("mlp", moons, likelihood=each, members=1, epochs=2, posthoc=None) for each in ("focal", mm.Focal(2))]
    for one, other in zip(*(run.member(0).parameters() for run in runs), strict=True):
        assert torch.equal(one, other)


def test_a_last_layer_of_cosines_comes_with_margins(moons: mm.Data) -> None:
    run = mm.fit("mlp", moons, likelihood="ldam", members=1, epochs=1, posthoc=None)
    assert run.manifest.net["cosines"] is True
    outputs = run.predict(moons.test).outputs
    assert (outputs.abs() <= 1).all()
    plain = mm.fit("mlp", moons, likelihood="ldam:scale=1", members=1, epochs=1, posthoc=None)
    assert "cosines" not in plain.manifest.net


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"likelihood": "hinge"}, "^likelihood='hinge' is unknown: Known: cross-entropy, "),
        ({"likelihood": "focal:tau=1"}, "unknown setting of a loss"),
        ({"likelihood": "focal:classes=3"}, "unknown setting of a loss"),
        ({"likelihood": "ldam", "recipe": "bayes"}, "cannot act on a last layer of cosines: write .*ldam:scale=1"),
        (
            {"likelihood": "focal", "data": "diabetes"},
            "loss focal is for classification, and this data is a regression",
        ),
        ({"likelihood": "focal", "noise_std": 0.1}, "give the likelihood alone"),
    ],
)
def test_losses_that_do_not_fit_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(mm.Misuse, match=message):
        mm.fit("mlp", settings.pop("data", "two-moons"), epochs=1, **settings)


def test_the_command_line_cuts_a_tail_and_takes_a_loss_and_a_sampler(tmp_path, capsys) -> None:
    words = "train two-moons --net mlp --members 2 --epochs 1 --imbalance 5 --loss logit-adjusted:tau=1.5"
    main([*words.split(), "--sampler", "square-root", "--out", str(tmp_path / "run"), "--json"])
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["likelihood"]["tau"] == 1.5
    assert record["plan"]["sampler"] == "square-root"
    assert record["data"]["source"]["imbalance"] == 5
    first, last = record["likelihood"]["counts"]
    assert first == pytest.approx(5 * last, rel=0.02)
    capsys.readouterr()
    main(["evaluate", str(tmp_path / "run"), "--json"])
    assert json.loads(capsys.readouterr().out)
