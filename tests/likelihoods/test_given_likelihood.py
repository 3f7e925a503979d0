"""A likelihood given to `fit` by the caller: used as it is, kept with the run, resumed to the same bits."""

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import murmuration as mm
from murmuration.likelihoods import Standardised

GIVEN = mm.Gaussian(0.3, targets=2)


def data() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    return x, torch.stack([x.sum(1), x[:, 0]], 1)


def test_it_is_used_and_comes_back_from_the_run(tmp_path: Path):
    ensemble = mm.fit("mlp", data(), members=2, epochs=1, likelihood=GIVEN, out=tmp_path / "run", posthoc=None)
    assert ensemble.likelihood == GIVEN
    again = mm.load(tmp_path / "run")
    assert again.likelihood == GIVEN
    x = torch.randn(4, 3)
    assert torch.equal(again.predict(x, prepared=True).outputs, ensemble.predict(x, prepared=True).outputs)


def test_a_killed_run_goes_on_with_it(tmp_path: Path):
    def kill(text, done, total, record):
        if done >= 1:
            raise KeyboardInterrupt

    settings = {"members": 2, "likelihood": GIVEN, "plan": mm.Plan(epochs=2, batch_size=16, engine="loop")}
    with suppress(KeyboardInterrupt):
        mm.fit("mlp", data(), out=tmp_path / "killed", progress=kill, checkpoint_seconds=0, **settings, posthoc=None)
    assert not (tmp_path / "killed" / "members.safetensors").exists()
    resumed, undisturbed = mm.resume(tmp_path / "killed", data=data()), mm.fit("mlp", data(), **settings, posthoc=None)
    assert resumed.likelihood == GIVEN
    x = torch.randn(4, 3)
    assert torch.equal(resumed.predict(x, prepared=True).outputs, undisturbed.predict(x, prepared=True).outputs)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"likelihood": GIVEN, "noise_std": 0.1}, "give the likelihood alone"),
        ({"likelihood": mm.Categorical(2)}, "a likelihood of classification for data of regression"),
    ],
)
def test_what_does_not_fit_is_refused(settings: dict, told: str):
    with pytest.raises(mm.Misuse, match=told):
        mm.fit("mlp", data(), epochs=1, **settings, posthoc=None)


@pytest.mark.parametrize("noise_std", [0.0, -1.0, float("nan"), float("inf")])
def test_the_noise_is_positive(noise_std: float):
    with pytest.raises(mm.Misuse, match="expected a positive number"):
        mm.Gaussian(noise_std)


@dataclass(frozen=True)
class Tilted(Standardised):
    """Expectile regression of one target: member i has the level `levels[i]`; targets are standardised."""

    levels: tuple[float, ...] = (0.1, 0.5, 0.9)
    shift: tuple[float, ...] | None = None
    scale: tuple[float, ...] | None = None
    table: object = None  # a run directory cannot hold it
    width = 1

    def loss(self, outputs: Tensor, y: Tensor, weight: Tensor | None = None, member: Tensor | None = None) -> Tensor:
        error = (y - outputs).squeeze(-1)  # (m, N)
        level = outputs.new_tensor(self.levels)[member][:, None]
        losses = torch.where(error > 0, level, 1 - level) * error.square()
        return losses if weight is None else losses * weight

    def mean_var(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        shift, scale = (outputs.new_tensor(each) for each in self.units)
        return outputs * scale + shift, torch.ones_like(outputs) * scale.square()


def constant_inputs() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return np.zeros((200, 1)) + 1e-3 * rng.normal(size=(200, 1)), 1e6 + rng.exponential(5.0, size=200)


@pytest.mark.parametrize("engine", ["loop", "stacked", "threads"])
def test_members_may_have_different_losses_on_every_engine(engine: str):
    """At the minimum, the derivative by the bias vanishes: errors above and below balance by the member's level."""
    opened = mm.open_data(constant_inputs())
    plan = mm.Plan(members=3, epochs=100, batch_size=1000, lr=0.5, optimizer="sgd", momentum=0.0, engine=engine)
    pred = mm.fit(torch.nn.Linear(1, 1), opened, likelihood=Tilted(), plan=plan, posthoc=None).predict(opened.train.x)
    for level, mean in zip((0.1, 0.5, 0.9), pred.member_mean, strict=True):
        error = opened.train.y - mean
        balance = level * error.clamp_min(0).mean() - (1 - level) * (-error).clamp_min(0).mean()
        assert abs(balance.item()) < 1e-3 * opened.train.y.std().item(), level


def test_the_index_of_a_member_is_that_of_its_streams():
    opened = mm.open_data(constant_inputs())
    plan = mm.Plan(members=3, epochs=1, engine="loop")
    three = mm.fit("mlp", opened, likelihood=Tilted(), plan=plan, posthoc=None).predict(opened.test.x)
    last = mm.fit("mlp", opened, likelihood=Tilted(), plan=replace(plan, members=1, first_member=2), posthoc=None)
    assert torch.equal(last.predict(opened.test.x).outputs[0], three.outputs[2])


def test_one_of_ones_own_is_given_again_to_load_and_resume(tmp_path: Path):
    settings = {"members": 2, "plan": mm.Plan(epochs=2, batch_size=16, engine="loop")}
    ensemble = mm.fit(
        "mlp", constant_inputs(), likelihood=Tilted(table=object()), out=tmp_path / "run", **settings, posthoc=None
    )
    with pytest.raises(mm.Misuse, match="the run's likelihood is Tilted, which is user-defined: pass it again"):
        mm.load(tmp_path / "run")
    with pytest.raises(mm.Misuse, match="likelihood= is a Gaussian, and the run was trained with Tilted"):
        mm.load(tmp_path / "run", likelihood=mm.Gaussian(1.0))
    again = mm.load(tmp_path / "run", likelihood=Tilted())
    assert again.likelihood == replace(ensemble.likelihood, table=None)  # shift and scale come from the run
    x = torch.randn(4, 1)
    assert torch.equal(again.predict(x).mean, ensemble.predict(x).mean)

    def kill(text, done, total, record):
        if done >= 1:
            raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        mm.fit(
            "mlp",
            constant_inputs(),
            likelihood=Tilted(),
            out=tmp_path / "killed",
            progress=kill,
            checkpoint_seconds=0,
            **settings,
            posthoc=None,
        )
    resumed = mm.resume(tmp_path / "killed", data=constant_inputs(), likelihood=Tilted())
    assert torch.equal(resumed.predict(x).outputs, ensemble.predict(x).outputs)


def test_one_of_ones_own_is_evaluated_and_written(tmp_path: Path):
    opened = mm.open_data(constant_inputs())
    plan = mm.Plan(members=2, epochs=2, engine="loop", posthoc=mm.PostHocConfig())
    ensemble = mm.fit("mlp", opened, likelihood=Tilted(), plan=plan, posthoc=None)
    mm.save_predictions(ensemble, opened.test.x, tmp_path / "p.csv")
    assert (tmp_path / "p.csv").read_text().startswith("mean,aleatoric_std")
    mm.report(ensemble, opened, tmp_path / "r.html")


class NoTask(Tilted):
    task = "ranking"


class NoWidth(Tilted):
    width = None


@pytest.mark.parametrize(
    ("likelihood", "told"),
    [
        ("focal", "loss focal is for classification, and this data is a regression"),
        (Tilted, "derive its class from mm.Likelihood"),
        (NoTask(), "NoTask has task 'ranking': write task = 'classification'"),
        (NoWidth(), "NoWidth has width None: write width ="),
        (mm.MultiLabel(3), r"holds other values than 0 and 1: expected zeros and ones"),
    ],
)
def test_what_is_no_likelihood_is_refused(likelihood, told: str):
    with pytest.raises(mm.Misuse, match=told):
        mm.fit("mlp", constant_inputs(), epochs=1, likelihood=likelihood, posthoc=None)


def test_a_regression_without_moments_trains_no_further_than_its_first_validation():
    class Bare(mm.Likelihood):
        task = "regression"
        width = 1

        def loss(self, outputs: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
            return (outputs - y).abs().sum(-1)

    with pytest.raises(mm.Misuse, match=r"Bare has no mean_var\(outputs\)"):
        mm.fit("mlp", constant_inputs(), epochs=1, likelihood=Bare(), posthoc=None)


@dataclass(frozen=True)
class Laplaces:
    """Laplace distributions of variance 2, as components of a mixture."""

    mean: Tensor  # (S, N, K)

    @property
    def laplace(self) -> torch.distributions.Laplace:
        return torch.distributions.Laplace(self.mean, 1.0)

    @property
    def var(self) -> Tensor:
        return self.laplace.variance

    def log_prob(self, y: Tensor) -> Tensor:
        return self.laplace.log_prob(y)

    def cdf(self, y: Tensor) -> Tensor:
        return self.laplace.cdf(y)

    def quantile(self, level: float) -> Tensor:
        return self.laplace.icdf(torch.tensor(level).double())


class Absolute(mm.Likelihood):
    """Regression by absolute errors: the negative log density of a Laplace distribution, without its constant."""

    task = "regression"
    width = 1

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
        return (outputs - y).abs().sum(-1)

    def distribution(self, outputs: Tensor) -> Laplaces:
        return Laplaces(outputs)


def test_a_distribution_that_is_not_gaussian_is_predicted_and_scored_as_it_is():
    outputs = torch.tensor([[[0.0], [1.0]], [[2.0], [1.0]]]).double()
    pred, y = mm.Predictive(outputs, Absolute()), torch.tensor([[1.0], [3.0]]).double()
    members = torch.distributions.Laplace(outputs, 1.0)
    torch.testing.assert_close(pred.log_prob(y), members.log_prob(y).exp().mean(0).log()[:, 0])
    torch.testing.assert_close(pred.cdf(pred.quantile(0.9)), torch.full((2, 1), 0.9).double())
    torch.testing.assert_close(pred.total_var, torch.tensor([[3.0], [2.0]]).double())
    found = mm.score(pred, y)
    assert float(found["rmse"]) == pytest.approx(2**0.5)
    assert "crps" not in found
    with pytest.raises(mm.Misuse, match="'temperature' needs Gaussians, and Absolute predicts others: take conformal"):
        mm.fit_calibrator("temperature", pred, y)
    data = mm.open_data(constant_inputs())
    ensemble = mm.fit("mlp", data, members=1, epochs=1, likelihood=Absolute())
    assert np.isfinite(ensemble.history[-1]["val_nll"][0])


def test_the_default_calibrator_is_left_out_where_it_cannot_serve(tmp_path: Path):
    data = mm.open_data(constant_inputs())
    with pytest.warns(UserWarning, match="no calibrator: 'temperature' needs Gaussians, and Absolute") as notes:
        ensemble = mm.fit("mlp", data, members=2, epochs=1, likelihood=Absolute())
    assert sum("no calibrator" in str(note.message) for note in notes) == 1
    assert ensemble.posthoc is not None
    assert ensemble.posthoc.calibrator is None
    assert [rule.method for rule in ensemble.posthoc.conformal] == ["quantile", "absolute", "normalised"]
    mm.report(ensemble, data, tmp_path / "report.html")
    with pytest.warns(UserWarning, match="no calibrator") as notes:
        evaluation = mm.evaluate(replace(ensemble, posthoc=None), data)
    assert len(notes) == 1
    assert evaluation.coverage
    assert not evaluation.calibrated


def test_a_calibrator_asked_for_by_name_is_refused_where_it_cannot_serve():
    data = mm.open_data(constant_inputs())
    ensemble = mm.fit("mlp", data, members=2, epochs=1, likelihood=Absolute(), posthoc=None)
    with pytest.raises(mm.Misuse, match=r"mm.PostHocConfig\(calibrate=\"none\"\)"):
        ensemble.fit_posthoc(data.val, config=mm.PostHocConfig(calibrate="temperature"))


def own_classes(loss, **attributes) -> mm.Likelihood:
    """Return a likelihood of two classes with this loss; None removes an attribute."""
    attributes = {"task": "classification", "width": 2, **attributes}
    kept = {name: value for name, value in attributes.items() if value is not None}
    return type("Own", (mm.Likelihood,), {"loss": loss, **kept})()


def cross_entropy(self, outputs: Tensor, y: Tensor) -> Tensor:
    return torch.nn.functional.cross_entropy(outputs.movedim(-1, 1), y, reduction="none")


WRONG_LOSSES = {
    "nothing": (lambda self, outputs, y: None, "Own.loss returned None: expected a tensor .*, members and examples"),
    "a number": (lambda self, outputs, y: 1.0, "Own.loss returned a float: expected a tensor"),
    "a mean": (lambda self, outputs, y: cross_entropy(self, outputs, y).mean(), r"returned shape \(\): expected"),
    "detached": (lambda self, outputs, y: cross_entropy(self, outputs, y).detach(), "without a graph to the outputs"),
}


@pytest.mark.parametrize("engine", ["loop", "stacked"])
@pytest.mark.parametrize("case", WRONG_LOSSES)
def test_a_loss_of_another_kind_is_refused_in_one_line(case: str, engine: str):
    loss, told = WRONG_LOSSES[case]
    with pytest.raises(mm.Misuse, match=told):
        mm.fit("mlp", "two-moons", likelihood=own_classes(loss), members=2, epochs=1, engine=engine, posthoc=None)


@pytest.mark.parametrize(
    ("attributes", "told"),
    [
        ({"task": "classify"}, "Own has task 'classify': write task = 'classification'"),
        ({"task": None}, "Own has task None"),
        ({"width": None}, "Own has width None: write width = "),
        ({"width": 2.0}, "Own has width 2.0"),
    ],
)
def test_task_and_width_are_checked_everywhere(attributes: dict, told: str):
    likelihood = own_classes(cross_entropy, **attributes)
    with pytest.raises(mm.Misuse, match=told):
        mm.fit("mlp", "two-moons", likelihood=likelihood, members=2, epochs=1, posthoc=None)
    with pytest.raises(mm.Misuse, match=told):
        mm.Method("mlp", likelihood, inputs=torch.randn(20, 2), members=2)
