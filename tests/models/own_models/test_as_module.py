"""An ensemble as one module: the numbers of `predict`, exported by torch."""

import copy
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import murmuration as mm
from murmuration.system.errors import Misuse

rng = np.random.default_rng(0)
Y = rng.integers(3, size=90)
X = 5 + 2 * rng.normal(size=(90, 4)) + Y[:, None]


def dense(outputs: int = 3) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, outputs))


def fitted(net=dense, data=(X, Y), **settings) -> mm.Ensemble:
    return mm.fit(net, data, **{"members": 2, "epochs": 2, "batch_size": 16, "val": 0.3, **settings})


def assert_same(found: dict[str, Tensor], predicted: mm.Predictive) -> None:
    """Float32 rounding of numbers that are computed in float64 from outputs in float32."""
    for name, value in found.items():
        expected = getattr(predicted, name)
        assert value.dtype == torch.float32
        assert value.shape == expected.shape
        torch.testing.assert_close(value.double(), expected, rtol=1e-4, atol=1e-5)


CASES = {
    "deep-ensemble": {},
    "batch-ensemble": {"recipe": "batch-ensemble"},
    "mask-ensemble": {"recipe": "mask-ensemble"},
    "bayes": {"recipe": "bayes", "members": 1},
    "rank1-bnn": {"recipe": "rank1-bnn"},
    "swag": {"recipe": "swag", "members": 1, "epochs": 4},
    "vector scaling": {"posthoc": mm.PostHocConfig(calibrate="vector")},
}


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
def test_the_module_predicts_what_the_ensemble_does_from_raw_inputs(settings):
    ensemble = fitted(**settings)
    module = ensemble.as_module()
    assert not module.training
    assert ensemble.posthoc is not None
    with torch.no_grad():
        found = module(torch.from_numpy(X[:20]))
    assert sorted(found) == ["entropy", "expected_entropy", "mean", "mutual_information"]
    assert_same(found, ensemble.predict(X[:20]))
    plain = ensemble.as_module(calibrated=False)
    assert_same(plain(torch.from_numpy(X[:20])), ensemble.predict(X[:20], calibrated=False))


def test_regressions_images_tokens_and_given_models():
    numbers = fitted(lambda: dense(4), (X, X[:, :2] * 3 + 1))
    assert_same(numbers.as_module()(torch.from_numpy(X)), numbers.predict(X))
    assert sorted(numbers.as_module()(torch.from_numpy(X))) == ["aleatoric_var", "epistemic_var", "mean", "total_var"]
    pictures = rng.integers(255, size=(90, 1, 4, 4)).astype(np.uint8)
    images = fitted(lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 3)), (pictures, Y), inputs="images")
    assert_same(images.as_module()(torch.from_numpy(pictures)), images.predict(pictures))
    given = mm.Ensemble.from_models([nn.Linear(4, 2) for _ in range(3)], task="regression", noise_std=0.5)
    assert_same(given.as_module()(torch.from_numpy(X).float()), given.predict(X))


def test_draws_are_as_many_as_asked_for_and_masks_are_refused():
    bayes = fitted(recipe="bayes", members=1)
    module = bayes.as_module(draws=3)
    assert len(module.members) == 3
    expected = bayes.predict(X, draws=3)
    assert_same(module(torch.from_numpy(X)), expected)
    dropout = fitted(recipe="mc-dropout", members=1)
    with pytest.raises(Misuse, match="its draws are dropout masks, not weights; write draws=1"):
        dropout.as_module()
    assert len(dropout.as_module(draws=1).members) == 1


def test_tables_take_prepared_inputs():
    import pandas as pd

    frame = pd.DataFrame(X, columns=list("abcd")).assign(kind=np.where(X[:, 0] > 5, "low", "high"), y=Y)
    ensemble = mm.fit("mlp", frame, target="y", members=2, epochs=1)
    with pytest.raises(Misuse, match="write prepared=True, and give the module"):
        ensemble.as_module()
    inputs = frame.drop(columns="y")
    assert_same(ensemble.as_module(prepared=True)(ensemble.prepare(inputs)), ensemble.predict(inputs))


def test_other_shapes_and_complex_numbers_are_refused():
    module = fitted().as_module()
    for x in (torch.zeros(24, 1), torch.zeros(24, 5), torch.zeros(4), torch.zeros(24, 4, 1)):
        with pytest.raises(Misuse, match=r"expected real numbers of shape \(N, 4,\)"):
            module(x)
    with pytest.raises(Misuse, match=r"type torch.complex64: expected real numbers"):
        module(torch.zeros(24, 4, dtype=torch.complex64))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e39])
@pytest.mark.parametrize("prepare", ["standardise", "quantile"])
def test_inputs_beyond_single_precision_have_no_answer(value, prepare):
    module, x = fitted(prepare=prepare).as_module(), torch.from_numpy(X[:3].copy())
    expected = module(x)
    x[1, 2] = value
    for name, answer in module(x).items():
        assert answer[1].isnan().all(), name
        torch.testing.assert_close(answer[[0, 2]], expected[name][[0, 2]])


def test_the_module_keeps_nothing_of_the_ensemble():
    ensemble = fitted(posthoc=None)
    module = ensemble.as_module()
    before = module(torch.from_numpy(X))["mean"].clone()
    for tensor in ensemble.groups[0].population.own.values():
        tensor.zero_()
    assert torch.equal(module(torch.from_numpy(X))["mean"], before)
    assert torch.equal(copy.deepcopy(module)(torch.from_numpy(X))["mean"], before)


class AddsInPlace(nn.Module):
    """A network that overwrites its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x += 1
        return self.head(x.relu_())


def test_networks_that_overwrite_their_inputs_leave_them_to_other_members_and_to_the_caller(tmp_path):
    x = torch.from_numpy(4 * X[:9] - 30).float()
    ensemble, before = fitted(AddsInPlace, members=3), x.clone()
    module, expected = ensemble.as_module(), ensemble.predict(x)
    assert expected.outside.count.any()
    assert_same(module(x), expected)
    ensemble.export(tmp_path / "model.pt2")
    assert_same(torch.export.load(tmp_path / "model.pt2").module()(x), expected)
    given = mm.Ensemble.from_models([AddsInPlace() for _ in range(2)])
    expected = given.predict(x)
    assert_same(given.as_module()(x), expected)
    assert torch.equal(x, before)


class Draws(nn.Module):
    """A network with dropout in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(self.head(x), 0.5)


class Noisy(Draws):
    """A network that adds noise."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x + torch.randn_like(x))


@pytest.mark.parametrize("net", [Draws, Noisy])
def test_networks_that_draw_random_numbers_are_refused(net, tmp_path):
    ensemble, refused = (
        fitted(net),
        pytest.raises(Misuse, match=r"draws random numbers .*F.dropout\(x, p, self.training"),
    )
    for refuse in (ensemble.as_module, lambda: ensemble.export(tmp_path / "model.pt2")):
        with refused:
            refuse()
    given, x = mm.Ensemble.from_models([net() for _ in range(2)]), torch.zeros(3, 4)
    state = torch.get_rng_state()
    for refuse in (given.as_module(), lambda x: given.export(tmp_path / "model.pt2", x)):
        with refused:
            refuse(x)
    assert torch.equal(torch.get_rng_state(), state)
    assert not (tmp_path / "model.pt2").exists()


def test_answers_need_no_gradients_and_calls_warn_of_nothing():
    module, x = fitted().as_module(), torch.from_numpy(X[:5])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not any(value.requires_grad for value in module(x).values())
        assert module(x.requires_grad_())["mean"].requires_grad  # derivatives with respect to inputs


EXPORTED = {
    "classes": lambda: fitted(),
    "classes, softplus": lambda: fitted(link="softplus"),
    "classes, adjusted": lambda: fitted(posthoc=mm.PostHocConfig(calibrate="logit_adjustment")),
    "classes, isotonic": lambda: fitted(posthoc=mm.PostHocConfig(calibrate="isotonic")),
    "classes, pooled": lambda: fitted(posthoc=mm.PostHocConfig(calibrate="pool_temperature")),
    "classes, shared kernels": lambda: fitted(recipe="batch-ensemble"),
    "numbers": lambda: fitted(lambda: dense(4), (X, X[:, :2] * 3 + 1), posthoc=STRETCHED),
    "noise": lambda: fitted(lambda: dense(2), (X, X[:, 0]), posthoc=mm.PostHocConfig(calibrate="noise_scaling")),
    "table": lambda: fitted("mlp:embed=piecewise-relu", (X, X[:, 0].round()), posthoc=STRETCHED),
}
STRETCHED = mm.PostHocConfig(calibrate="temperature")


@pytest.mark.parametrize("made", EXPORTED)
def test_torch_exports_it_with_any_number_of_inputs(made):
    ensemble = EXPORTED[made]()
    assert ensemble.posthoc is not None
    assert ensemble.posthoc.calibrator is not None
    module = ensemble.as_module()
    batch = torch.export.Dim("batch", min=1, max=4096)
    exported = torch.export.export(module, (torch.from_numpy(X[:7]),), dynamic_shapes=({0: batch},)).module()
    for rows in (1, 7, 90):
        found, expected = exported(torch.from_numpy(X[:rows])), module(torch.from_numpy(X[:rows]))
        for name, value in found.items():
            torch.testing.assert_close(value, expected[name])


@pytest.mark.parametrize("made", EXPORTED)
def test_onnx_runtime_runs_it(made, tmp_path: Path):
    import onnxruntime

    module, file, inputs = EXPORTED[made]().as_module(), str(tmp_path / "m.onnx"), torch.from_numpy(X[:7])
    if made == "table":  # quantiles are looked up, which ONNX has no operator for
        module.prepare, inputs = nn.Identity(), module.prepare(inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (inputs,), file, dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(file)
    outputs = session.run(None, {session.get_inputs()[0].name: inputs.numpy()})
    for value, expected in zip(outputs, module(inputs).values(), strict=True):
        np.testing.assert_allclose(value, expected.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_an_exported_file_predicts_as_the_ensemble_for_any_number_of_inputs(tmp_path: Path):
    ensemble = mm.fit("mlp", "two-moons", members=2, epochs=1)
    ensemble.export(tmp_path / "moons.pt2")
    program = torch.export.load(tmp_path / "moons.pt2").module()
    for rows in (1, 7):
        x = mm.open_data("two-moons").test.x[:rows]
        mean, expected = program(torch.as_tensor(x).float())["mean"], ensemble.predict(x).mean.float()
        torch.testing.assert_close(mean, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(mm.Misuse, match=r"unknown ending of an exported file '\.onyx'"):
        ensemble.export(tmp_path / "moons.onyx")
    with pytest.raises(mm.Misuse, match="shape of inputs is unknown"):
        mm.Ensemble.from_models([torch.nn.Linear(2, 2)]).export(tmp_path / "given.pt2")


def test_an_export_says_nothing_of_torch_on_the_screen(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    branches = mm.Ensemble.from_models([Branching()])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted().export(tmp_path / "model.pt2")
        with pytest.raises(mm.Misuse, match=r"branches on values; write torch\.where"):
            branches.export(tmp_path / "given.pt2", X[:, :4])
    assert capfd.readouterr() == ("", "")
    assert not (tmp_path / "given.pt2").exists()


class Branching(nn.Linear):
    """A network that branches on the values of its inputs."""

    def __init__(self) -> None:
        super().__init__(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x if x.sum() > 0 else -x)


def test_the_module_widens_predictions_outside_of_training_as_predict_does(tmp_path):
    far = np.concatenate([X[:5], X[:5] * 1000]).astype(np.float32)
    for ensemble in (fitted(), fitted(data=(X, X[:, :2] * 3.0), net="mlp:hidden=8", prepare="robust")):
        assert_same(ensemble.as_module()(torch.from_numpy(far)), ensemble.predict(far))
        ensemble.export(tmp_path / "model.pt2")
        assert_same(torch.export.load(tmp_path / "model.pt2").module()(torch.from_numpy(far)), ensemble.predict(far))
