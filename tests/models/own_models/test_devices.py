"""Devices: `auto`, runs, checkpoints, ensembles and predictions that move, on a pretended accelerator.

There is no accelerator where these tests run. `pretend_device` raises where tensors of two devices meet, and computes
with the CPU's kernels, so that a run on it has the bits of a run on the CPU wherever no noise is drawn.
"""

import functools
import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from device_fixtures import CLASSES, ROWS, Dense, fused_kernels, small, table  # noqa: F401
from pretend_device import NAME, Settings, pretended
from torch import Tensor, nn

import murmuration as mm
from murmuration.cli import main
from murmuration.core.presets import PRESETS
from murmuration.evaluation.weight_diagnosis import diagnose
from murmuration.likelihoods import fit_likelihood
from murmuration.likelihoods.base import member_losses
from murmuration.runs import checkpoints
from murmuration.runs.manifest import Manifest
from murmuration.system import streams
from murmuration.system.devices import resolve_device
from murmuration.system.errors import Misuse
from murmuration.system.files import write_record
from murmuration.training.head_only import with_features
from murmuration.training.run import ProgressCallback

pytestmark = pytest.mark.usefixtures("fused_kernels")

pytest_plugins = ["device_fixtures"]


class Net(nn.Module):
    """A small network of parts with batch normalisation."""

    def __init__(self, outputs: int = CLASSES) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2))
        self.head = nn.Linear(16, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


class Noisy(nn.Module):
    """A network whose noise comes from torch's global generator."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(2, 8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.layer(x).relu()
        if self.training:
            hidden = hidden * (torch.rand_like(hidden) > 0.3)
        return self.head(hidden)


def images() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(CLASSES, size=ROWS)
    return rng.normal(size=(ROWS, 1, 4, 4)) + y[:, None, None, None], y


def tensors(ensemble: mm.Ensemble) -> dict[str, Tensor]:
    return ensemble.groups[0].population.to_tensors()


def same_bits(a: mm.Ensemble, b: mm.Ensemble) -> bool:
    mine, theirs = tensors(a), tensors(b)
    return mine.keys() == theirs.keys() and all(torch.equal(t.cpu(), theirs[name].cpu()) for name, t in mine.items())


# the pretended device itself


def test_the_pretended_device_refuses_tensors_of_two_devices():
    with pretended() as device:
        here, there = torch.ones(3, 2), torch.ones(3, 2).to(device)
        for mixed in (
            lambda: here + there,
            lambda: torch.cat([here, there]),
            lambda: there.gather(0, torch.zeros(1, 2, dtype=torch.int64)),
            lambda: nn.Linear(2, 1)(there),
            lambda: there.normal_(generator=torch.Generator()),
        ):
            with pytest.raises(RuntimeError, match=r"device|generator on"):
                mixed()
        with pytest.raises(RuntimeError):
            there.numpy()
        assert torch.equal((there + torch.tensor(1.0)).cpu(), here + 1)  # a tensor without axes may be anywhere
        there[torch.tensor([0])] = 5.0  # and so may an index
        assert there.cpu()[0, 0] == 5
    with pretended(double=False) as device, pytest.raises(TypeError, match="float64"):
        torch.ones(2).to(device).double()


def test_the_pretended_device_is_missing_outside_its_block():
    with pytest.raises(Misuse, match="device='pretend' is not available here: write device='cpu'"):
        mm.Plan(device=NAME)


# names


def test_auto_is_cuda_then_mps_then_the_cpu(monkeypatch):
    assert (
        resolve_device("auto") == ("cuda" if torch.cuda.is_available() else "cpu") or torch.backends.mps.is_available()
    )
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == "mps"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert resolve_device("auto") == "cuda"


def test_the_plan_records_what_auto_became(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    ensemble = small(device="auto")
    assert ensemble.manifest.plan["device"] == "cpu"
    assert str(ensemble.device) == "cpu"


@pytest.mark.parametrize("name", ["meta", "cuda:99", "gpu"])
def test_a_device_that_holds_no_numbers_or_is_missing_is_refused_in_one_line(name):
    with pytest.raises(Misuse, match=f"device='{name}' .*write device='cpu'") as refused:
        mm.Plan(device=name)
    assert "\n" not in str(refused.value)


# training


@pytest.mark.parametrize("recipe", sorted(set(PRESETS) - {"forde-tuned"}))
def test_every_preset_trains_on_a_device_that_has_no_double_precision(recipe):
    with pretended(double=False) as device:
        long = {"batch_size": 1} if recipe == "csgmcmc" else {"batch_size": 4}
        made = small(recipe=recipe, members=PRESETS[recipe].value.members or 2, device=device, **long)
        assert str(made.device) == device == made.manifest.plan["device"]
        assert made.predict(np.zeros((3, 2))).outputs.device.type == "cpu"


@pytest.mark.parametrize(
    ("recipe", "engine"),
    [
        ("deep-ensemble", "loop"),
        ("deep-ensemble", "threads"),
        ("forde", "stacked"),
        ("forde", "threads"),
        ("swa", "loop"),
        ("batch-ensemble", "threads-stacked"),
        ("function-rde", "stacked"),
        ("snapshot", "threads"),
    ],
)
def test_a_run_without_noise_has_the_bits_of_the_cpu(recipe, engine):
    settings = {"recipe": recipe, "engine": engine, "epochs": 2, "lr": 1e-3, "batch_size": 4}
    with pretended() as device:
        there = small(device=device, **settings)
        assert Settings.operators > 100
        here = small(**settings)
        assert there.manifest.engine["name"] == here.manifest.engine["name"]
        assert same_bits(there, here)
        x = table()[0]
        assert torch.equal(there.predict(x).outputs, here.predict(x).outputs)


@pytest.mark.parametrize("target", ["numbers", "labels"])
def test_regressions_and_labels_need_no_double_precision(target):
    x, y = table()
    y = np.stack([y, y + 1], 1).astype(float) if target == "numbers" else np.stack([y > 0, y > 1], 1).astype(int)
    with pretended(double=False) as device:
        net = functools.partial(Dense, 2 * y.shape[1] if target == "numbers" else y.shape[1])
        made = small(net, (x, y), task="regression" if target == "numbers" else "multi-label", device=device, epochs=2)
        assert made.predict(x).outputs.isfinite().all()


LIKELIHOODS = [
    mm.Categorical(CLASSES, class_weight="balanced", label_smoothing=0.1),
    mm.Categorical(CLASSES, link="softplus"),
    mm.Focal(CLASSES, class_weight=(1.0, 2.0, 3.0)),
    mm.LogitAdjusted(CLASSES),
    mm.LDAM(CLASSES),
    mm.Experts(CLASSES),
    mm.MultiLabel(2, positive_weight=(1.0, 2.0)),
    mm.Gaussian(0.1),
    mm.HeteroscedasticGaussian(),
    mm.Quantiles(),
]


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=repr)
def test_the_loss_of_every_likelihood_is_computed_on_the_device(likelihood):
    labels = torch.arange(8) % CLASSES
    y = {"classification": labels, "multi-label": torch.stack([labels > 0, labels > 1], 1).float()}
    y = y.get(likelihood.task, torch.randn(8, 2, dtype=torch.float64))
    fitted = fit_likelihood(likelihood, likelihood.task, y)
    outputs, weight, encoded = torch.randn(2, 8, fitted.width), torch.rand(2, 8), fitted.encode(y)
    member = torch.arange(2)
    expected = member_losses(fitted, outputs, encoded.expand(2, *encoded.shape), weight, member)
    with pretended(double=False) as device:
        given = [t.to(device) for t in (outputs, encoded.expand(2, *encoded.shape), weight, member)]
        assert torch.equal(member_losses(fitted, *given).cpu(), expected)


def test_images_with_batch_norm_dropout_and_early_stopping_train_on_a_device():
    with pretended() as device:
        for engine in ("loop", "stacked", "threads"):
            made = small(Net, images(), device=device, engine=engine, patience=1, augment="flip")
            assert str(made.device) == device
            assert made.manifest.engine["name"] == engine


def test_noise_of_the_global_generator_is_reproducible_on_a_device_and_changes_no_global_state():
    with pretended() as device:
        before = Settings.generator.get_state()
        first = small(Noisy, device=device, epochs=2)
        assert torch.equal(Settings.generator.get_state(), before)
        torch.rand(5, device=device)  # the device's global generator stands elsewhere now
        assert same_bits(first, small(Noisy, device=device, epochs=2))


def test_global_generators_are_those_of_the_cpu_and_of_the_device(monkeypatch):
    cuda = [torch.Generator(), torch.Generator()]
    monkeypatch.setattr(torch.cuda, "default_generators", cuda)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    assert streams.global_generators("cuda") == [torch.default_generator, cuda[1]]
    assert streams.global_generators("cuda:0") == [torch.default_generator, cuda[0]]
    assert streams.global_generators("cpu") == [torch.default_generator]


def test_bits_of_a_device_are_sixteen_independent_fair_bits():
    with pretended() as device:
        bits = streams.Noise(0, 0).bits(40_000, torch.device(device)).cpu()
    assert bits.dtype == torch.int16
    columns = (bits.int().unsqueeze(1) >> torch.arange(16)) & 1  # (count, 16)
    standard_error = 0.5 / len(bits) ** 0.5
    assert ((columns.float().mean(0) - 0.5).abs() < 5 * standard_error).all()
    products = torch.corrcoef(columns.T.float()) - torch.eye(16)
    assert (products.abs() < 5 / len(bits) ** 0.5).all()


def test_a_frozen_backbone_computes_its_features_on_the_device():
    with pretended() as device:
        trained = small(Net, images(), members=1).member(0)
        recipe = mm.make_recipe("last-layer-ensemble", sharing="backbone:frozen=yes")
        there, here = (small(trained, images(), recipe=recipe, device=place) for place in (device, "cpu"))
        assert {str(t.device) for t in tensors(there).values()} == {device}
        assert same_bits(there, here)
        split = mm.open_data(images()).train
        before = Settings.operators
        features = with_features(trained, split, torch.device(device))
        assert Settings.operators > before
        assert features.prepared.device.type == "cpu"
        assert next(trained.parameters()).device.type == "cpu"


def test_a_factory_may_build_on_the_device_of_training_alone():
    with pretended() as device:
        made = small(lambda: Net().to(device), images(), device=device)
        assert same_bits(made, small(Net, images(), device=device))
        with pytest.raises(Misuse, match=f"the net is on {device}, and device='cpu': write device='{device}'"):
            small(lambda: Net().to(device), images())


def test_a_plain_tensor_of_a_network_which_would_stay_on_the_cpu_is_refused():
    class Plain(Dense):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.ones(2)

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x * self.scale)

    small(Plain)
    with (
        pretended() as device,
        pytest.raises(Misuse, match=r"'scale' of the net .*: write self.register_buffer for it"),
    ):
        small(Plain, device=device)


def test_models_on_a_device_are_an_ensemble_there():
    nets = [nn.Linear(4, CLASSES) for _ in range(2)]
    x = torch.randn(5, 4)
    expected = mm.Ensemble.from_models(nets).predict(x).outputs
    with pretended() as device:
        there = mm.Ensemble.from_models([net.to(device) for net in nets])
        assert str(there.device) == device
        assert torch.equal(there.predict(x).outputs, expected)


# moving


def test_an_ensemble_moves_and_predicts_the_same():
    here = small(Net, images(), posthoc=True)
    with pretended() as device:
        there = here.to(device)
        assert str(there.device) == device
        assert str(here.device) == "cpu"
        assert torch.equal(there.predict(images()[0]).outputs, here.predict(images()[0]).outputs)
        assert str(next(there.member(1).parameters()).device) == device
        assert same_bits(there.to("cpu"), here)
        assert str(there.to("cpu").device) == "cpu"
        before = Settings.operators
        there.predict(images()[0])
        assert Settings.operators > before
    with pytest.raises(Misuse, match="write device='cpu'"):
        here.to("meta")


def test_a_saved_ensemble_loads_on_the_device_it_was_trained_on_or_any_other(tmp_path):
    with pretended() as device:
        made = small(device=device, out=tmp_path / "run")
        assert str(mm.load(tmp_path / "run", net=Dense).device) == device
        assert str(mm.load(tmp_path / "run", net=Dense, device="cpu").device) == "cpu"
        assert same_bits(mm.load(tmp_path / "run", net=Dense), made)
        made = made.to("cpu")
    with pytest.warns(UserWarning, match="the run was trained on pretend:0, which is not available here: .*on the CPU"):
        loaded = mm.load(tmp_path / "run", net=Dense)
    assert str(loaded.device) == "cpu"
    assert same_bits(loaded, made)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mm.load(tmp_path / "run", net=Dense, device="cpu")
    with pytest.raises(Misuse, match="not available here: write device='cpu'"):
        mm.load(tmp_path / "run", net=Dense, device=NAME)


class Stop(Exception):  # noqa: N818
    """Ends a training run after some steps."""


def killed(path, after: int, monkeypatch, **settings) -> None:
    """A run that ends after so many steps, with a checkpoint of the last."""
    report = ProgressCallback._report

    def stopping(self, progress, record):
        report(self, progress, record)
        if progress.state.step == after:
            raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(ProgressCallback, "_report", stopping)
        with pytest.raises(Stop):
            small(out=path, checkpoint_seconds=0, **settings)


RESUMED = {
    "adam": {},
    "swag": {"recipe": "swag", "members": 1, "batch_size": 4},
    "ivon": {"recipe": "ivon", "members": 1},
    "batch-ensemble": {"recipe": "batch-ensemble"},
    "torch optimizer": {"optimizer": functools.partial(torch.optim.Adam, foreach=False), "engine": "loop"},
}


@pytest.mark.parametrize("settings", RESUMED.values(), ids=RESUMED)
def test_a_run_on_a_device_resumes_there_with_the_same_bits(settings, tmp_path, monkeypatch):
    settings = {"epochs": 2, **settings}
    again = {name: value for name, value in settings.items() if name == "optimizer"}
    with pretended() as device:
        whole = small(device=device, **settings)
        killed(tmp_path / "run", 3, monkeypatch, device=device, **settings)
        resumed = resume_again(tmp_path / "run", **again)
        assert str(resumed.device) == device
        assert same_bits(resumed, whole)


def resume_again(path, **settings) -> mm.Ensemble:
    return mm.resume(path, net=Dense, data=table(), **settings)


def test_a_run_on_a_device_goes_on_where_the_device_is_missing_if_asked_to(tmp_path, monkeypatch):
    with pretended() as device:
        killed(tmp_path / "run", 3, monkeypatch, device=device, epochs=2)
    with pytest.raises(
        Misuse, match="trained on pretend:0, which is not available here: write device='cpu'"
    ) as refused:
        resume_again(tmp_path / "run")
    assert "\n" not in str(refused.value)
    resumed = resume_again(tmp_path / "run", device="cpu")
    assert str(resumed.device) == "cpu"
    assert same_bits(resumed, small(epochs=2))
    assert resumed.manifest.plan["device"] == "cpu"
    assert resumed.manifest.devices == ["pretend:0", "cpu"]
    assert json.loads((tmp_path / "run" / "run.json").read_text())["devices"] == ["pretend:0", "cpu"]


def test_a_run_on_the_cpu_goes_on_on_a_device(tmp_path, monkeypatch):
    optimizer_ = functools.partial(torch.optim.Adam, foreach=False)
    for name, settings in {"adam": {}, "torch": {"optimizer": optimizer_, "engine": "loop"}}.items():
        killed(tmp_path / name, 3, monkeypatch, epochs=2, **settings)
        whole = small(epochs=2, **settings)
        with pretended() as device:
            resumed = resume_again(tmp_path / name, device=device, optimizer=settings.get("optimizer"))
            assert str(resumed.device) == device
            assert same_bits(resumed, whole)


def test_a_checkpoint_holds_the_place_of_every_tensor(tmp_path, monkeypatch):
    with pretended() as device:
        killed(tmp_path / "run", 7, monkeypatch, device=device, recipe="swa", members=1, batch_size=4)
        progress = checkpoints.load_checkpoint(tmp_path / "run", device)
        assert progress is not None
        moved = [progress.state.population, progress.kept, *progress.state.path.points.values()]
        assert {str(t.device) for each in moved for t in each.to_tensors().values()} == {device}
        assert {str(t.device) for kind in progress.state.opt_state.values() for t in kind.values()} == {device}
        small_ones = (progress.state.active, progress.best, progress.waited, progress.kept_epoch, progress.loss_sum)
        assert {t.device.type for t in small_ones} == {"cpu"}


# analysis


def test_weights_of_a_bayesian_run_on_a_device_are_diagnosed():
    with pretended() as device:
        ensemble = small(device=device, recipe="bayes", members=1)
        found = diagnose(ensemble, ensemble.prepare(table()[0]))
        assert found is not None


def test_post_hoc_steps_of_an_ensemble_on_a_device():
    settings = {"posthoc": True, "data": tuple(np.concatenate([part] * 5) for part in table())}
    here = small(**settings)
    with pretended() as device:
        there = small(**settings, device=device)
        assert there.posthoc is not None
        assert here.posthoc is not None
        x = table()[0]
        # weights differ by a rounding: the CPU's optimizer joins tensors that do not fill its vectors
        torch.testing.assert_close(there.predict(x).probs, here.predict(x).probs, rtol=0, atol=1e-7)


# command line


def run_command(capsys, *words: object) -> tuple[int, str]:
    code = main([str(word) for word in words])
    return code, capsys.readouterr().err


@pytest.mark.filterwarnings("always::UserWarning")
def test_commands_take_a_device_and_name_the_flag_where_one_is_missing(tmp_path, capsys, monkeypatch):
    run = tmp_path / "run"
    trained = ["train", "two-moons", "--net", "mlp", "--members", "1", "--epochs", "1", "--batch-size", "256"]
    assert run_command(capsys, *trained, "--device", "auto", "--precision", "bf16", "--out", run, "--json")[0] == 0
    manifest = json.loads((run / "run.json").read_text())
    assert manifest["plan"]["device"] in ("cpu", "cuda", "mps")
    assert manifest["plan"]["precision"] == "bf16"
    elsewhere = {**manifest["plan"], "device": "cuda:77"}
    write_record(run / "run.json", {**manifest, "plan": elsewhere})
    predict = ["predict", run, "two-moons", "--out", tmp_path / "predictions.csv", "--force"]
    code, told = run_command(capsys, *predict)
    assert (code, told) == (
        0,
        "note: the run was trained on cuda:77, which is not available here: its members are on the CPU\n",
    )
    assert run_command(capsys, *predict, "--device", "cpu") == (0, "")
    assert run_command(capsys, "evaluate", run, "--device", "cpu", "--json") == (0, "")
    code, told = run_command(capsys, *predict, "--device", "cuda:77")
    assert (code, told) == (
        2,
        "error: --device cuda:77 is not available here: write --device cpu (available: cpu, auto)\n",
    )
    monkeypatch.setattr(
        "murmuration.cli.training.read_manifest",
        lambda path: replace(Manifest.from_json(manifest, "run.json"), status="training"),
    )
    write_record(run / "run.json", {**manifest, "status": "training", "plan": elsewhere})
    code, told = run_command(capsys, "resume", run)
    assert (code, told.splitlines()[-1]) == (
        2,
        "error: the run was trained on cuda:77, which is not available here: write --device cpu",
    )
