"""Mistakes with networks of one's own that would train without a word, or be refused without advice."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import murmuration as mm
from murmuration.system.errors import Misuse

X = np.random.default_rng(0).normal(size=(80, 4)).astype(np.float32)
CLASSES, NUMBERS = (X[:, 0] > 0).astype(int), X[:, 0] + 0.1 * X[:, 1]
PLAN = {"members": 2, "epochs": 1, "seed": 0, "batch_size": 32}


class Net(nn.Module):
    """A network without `__len__`."""

    def __init__(self, outputs: int = 2, last: nn.Module | None = None) -> None:
        super().__init__()
        self.body, self.last = nn.Linear(4, outputs), last or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.body(x))


class Probabilities(mm.Likelihood):
    """A likelihood that takes probabilities."""

    task, width = "classification", 2

    def logits(self, outputs: Tensor) -> Tensor:
        return outputs.clamp_min(1e-6).log()

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return -self.logits(outputs).gather(-1, y[..., None])[..., 0]


def warnings_of(*arguments: object, **settings: object) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        mm.fit(*arguments, posthoc=False, **{**PLAN, **settings})
    return [str(warning.message) for warning in caught]


def test_a_network_that_ends_in_softmax_raises_one_warning() -> None:
    (message,) = warnings_of(lambda: Net(last=nn.Softmax(-1)), (X, CLASSES))
    assert message.startswith("the network seems to end in softmax")
    assert "logits are expected; remove it" in message


@pytest.mark.parametrize("last", [nn.Identity(), nn.LogSoftmax(-1), nn.Sigmoid(), nn.ReLU()])
def test_other_last_layers_raise_no_warning(last: nn.Module) -> None:
    assert warnings_of(lambda: Net(last=last), (X, CLASSES)) == []


def test_a_likelihood_of_probabilities_takes_softmax_without_a_warning() -> None:
    net = lambda: Net(last=nn.Softmax(-1))  # noqa: E731
    assert warnings_of(net, (X, CLASSES), likelihood=Probabilities()) == []
    assert warnings_of(net, (X, NUMBERS)) == []  # two outputs of a regression that happen to be so


def test_given_models_that_end_in_softmax_raise_a_warning() -> None:
    ensemble = mm.Ensemble.from_models([Net(last=nn.Softmax(-1)) for _ in range(2)])
    with pytest.warns(UserWarning, match="seem to end in softmax: logits are expected"):
        ensemble.predict(X)


def test_a_regression_network_of_one_output_is_told_what_is_missing() -> None:
    with pytest.raises(Misuse) as refusal:
        mm.fit(lambda: Net(1), (X, NUMBERS), **PLAN)
    assert "two outputs a target, mean and noise" in str(refusal.value)
    assert "likelihood=mm.Gaussian(noise_std=...)" in str(refusal.value)
    assert "mm.with_noise(net)" in str(refusal.value)


@pytest.mark.parametrize("instance", [False, True])
def test_the_noise_output_is_added_and_learned(tmp_path, instance: bool) -> None:
    net = mm.with_noise(Net(1) if instance else lambda: Net(1))
    ensemble = mm.fit(net, (X, NUMBERS), out=tmp_path / "run", **{**PLAN, "epochs": 40, "lr": 0.05})
    pred = ensemble.predict(X)
    assert mm.score(pred, NUMBERS)["rmse"] < 0.1 * NUMBERS.std()
    variances = pred.member_var if hasattr(pred, "member_var") else pred.aleatoric_var
    assert float(variances.std() / variances.mean()) < 0.5  # the same for all inputs, apart from members
    noises = [float(ensemble.member(i).noise.detach()) for i in range(2)]
    assert noises[0] != noises[1]
    assert max(noises) < 0
    again = mm.load(tmp_path / "run", net=net)
    assert torch.equal(again.predict(X).outputs, pred.outputs)


def test_with_noise_says_how_many_targets_and_refuses_names() -> None:
    y = np.stack([NUMBERS, -NUMBERS], 1)
    with pytest.raises(Misuse, match="with_noise for 1 targets and a net of 2 outputs: write targets=2"):
        mm.fit(mm.with_noise(lambda: Net(2)), (X, y), **PLAN)
    assert mm.fit(mm.with_noise(lambda: Net(2), targets=2), (X, y), **PLAN).predict(X).mean.shape == (80, 2)
    with pytest.raises(Misuse, match=r"a net of outputs \(2,\): expected \(N, 1\), a column for each target"):
        mm.fit(mm.with_noise(torch.nn.Sequential(Net(1), torch.nn.Flatten(0))), (X, NUMBERS), **PLAN)
    with pytest.raises(Misuse, match="write 'mlp' alone"):
        mm.with_noise("mlp")


def test_quantiles_are_named_in_the_refusal() -> None:
    with pytest.raises(Misuse, match=r"needs \(2, 5\), 5 quantiles of each target"):
        mm.fit(lambda: Net(1), (X, NUMBERS), likelihood=mm.Quantiles(), **PLAN)


def test_the_plain_network_inside_a_compiled_one_is_used() -> None:
    compiled = torch.compile(Net(), backend="eager")
    ensemble = mm.fit(compiled, (X, CLASSES), **PLAN)
    assert type(ensemble.member(0)) is Net
    tables = mm.fit(compiled, (X, CLASSES), members=1, steps=2)
    assert type(tables.member(0)) is Net


class Lightning(Net):
    def training_step(self, batch: object, index: int) -> None: ...

    def configure_optimizers(self) -> None: ...


def test_a_training_loop_of_the_network_raises_one_warning() -> None:
    (message,) = warnings_of(Lightning, (X, CLASSES))
    assert message.startswith("training_step and configure_optimizers of Lightning are not used")
    assert "write likelihood=, optimizer=, lr= and schedule= of fit" in message


def test_targets_may_come_third() -> None:
    together, apart = (mm.fit("mlp", *data, **PLAN) for data in (((X, CLASSES),), (X, CLASSES)))
    assert torch.equal(together.predict(X).outputs, apart.predict(X).outputs)
    with pytest.raises(Misuse, match="for a column of a table write target='price'"):
        mm.fit("mlp", pd.DataFrame({"km": X[:, 0], "price": NUMBERS}), "price", **PLAN)
    for data in ("digits", mm.open_data("digits")):
        with pytest.raises(Misuse, match="y= with 'digits', which has targets of its own: leave it out"):
            mm.fit("mlp", data, CLASSES, **PLAN)


def test_an_unknown_net_is_refused_before_the_progress_bar(capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[object] = []
    with pytest.raises(Misuse, match="unknown net 'mpl': did you mean 'mlp'") as refusal:
        mm.fit("mpl", (X, CLASSES), progress=lambda *news: calls.append(news))
    assert calls == []
    lines = refusal.value._render_traceback_()
    assert len(lines) == 2
    assert 'mm.fit("mpl", (X, CLASSES)' in lines[0]
    assert lines[1].startswith("Misuse: unknown net 'mpl'")


def test_predictions_come_first_in_a_score() -> None:
    pred = mm.Predictive.from_probs([[0.9, 0.1], [0.2, 0.8]])
    with pytest.raises(
        Misuse, match=r"score got a ndarray of shape \(2,\) first: .*mm.score\(ensemble.predict\(x\), y\)"
    ):
        mm.score(np.array([0, 1]), pred)


def test_a_device_that_is_not_here_lists_those_that_are() -> None:
    with pytest.raises(
        Misuse, match=r"device='gpu' is not available here: write device='cpu' \(available: cpu, .*auto\)"
    ):
        mm.Plan(device="gpu")
