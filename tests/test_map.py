"""The table "where to put a change" of the map: every row is carried out as it says, and used."""

import re
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import murmuration as mm
from murmuration.core.coupling import COUPLINGS, bandwidths, estimators
from murmuration.core.dynamics import DYNAMICS
from murmuration.core.presets import PRESETS, Preset
from murmuration.core.weights import WEIGHTS
from murmuration.core.weights.family import Point
from murmuration.data import formats
from murmuration.data.shift import images, tables
from murmuration.evaluation.metrics.scores import MEASURES
from murmuration.models.estimators.table import MODELS
from murmuration.models.nets.table import NETS, NetEntry
from murmuration.system import plugins
from murmuration.system.option_text import Answer

MAP = (Path(mm.__file__).parent / "README.md").read_text()
PLAN = {"members": 2, "epochs": 1, "batch_size": 256, "engine": "loop"}


def test_this_file_carries_out_every_row():
    changes = MAP.split("**Where to put a change.", 1)[1].split("\n**", 1)[0]
    rows = [row for row in re.findall(r"^\| ([a-z][^|]*) \|", changes, re.MULTILINE) if row != "change"]
    tested = {test.__doc__ for name, test in globals().items() if name.startswith("test_row")}
    elsewhere = {"a calibrator", "a training loop"}  # tests/contract/test_calibrators.py, tests/training/test_method.py
    assert set(rows) == tested | elsewhere


@dataclass(frozen=True)
class FirstOutputs(mm.Space):
    """The outputs on the first two examples of a batch."""

    def features(self, inputs: mm.SpaceInputs) -> Tensor:
        return inputs.outputs[:, :2].flatten(1).unsqueeze(1)


def test_row_space(monkeypatch):
    """a coupling space"""
    monkeypatch.setitem(COUPLINGS, "first-outputs", Answer(mm.Repulsion(FirstOutputs()), "outputs of two examples"))
    recipe = mm.make_recipe("deep-ensemble", coupling="first-outputs:every=2")
    assert mm.fit("mlp", "two-moons", recipe=recipe, **PLAN).history[-1]["coupling"]


def test_row_estimator(monkeypatch):
    """an estimator or bandwidth"""
    monkeypatch.setitem(estimators.ESTIMATORS, "plain", estimators.Estimator("G_i", lambda kernel: torch.ones(())))
    monkeypatch.setitem(bandwidths.BANDWIDTHS, "one", bandwidths.Bandwidth("1", lambda squared: torch.ones(())))
    recipe = mm.make_recipe("weight-rde", coupling="weights:estimator=plain,bandwidth=one")
    assert mm.fit("mlp", "two-moons", recipe=recipe, **PLAN).members == 2


@dataclass(frozen=True)
class FirstWeights(mm.Dynamics):
    """Members at their weights after the first step."""

    def keep(self, time: mm.TrainTime) -> bool:
        return time.step == 1

    def collect(self, path: mm.WeightPath, population, rows: Tensor) -> None:
        path.points["first"] = population.clone()

    def finish(self, path: mm.WeightPath, population, streams):
        return path.points["first"], torch.arange(population.members)


def test_row_dynamics(monkeypatch):
    """a dynamics"""
    monkeypatch.setitem(DYNAMICS, "first", Answer(FirstWeights(), "the weights after one step"))
    first, last = (
        mm.fit("mlp", "two-moons", recipe=mm.make_recipe(dynamics=name), **{**PLAN, "epochs": 2})
        for name in ("first", "optimizer")
    )
    assert not torch.equal(first.member(0).state_dict()["head.weight"], last.member(0).state_dict()["head.weight"])


@dataclass(frozen=True)
class HalfPoint(Point):
    """Point estimates by another name."""


def test_row_weights(monkeypatch):
    """a weight family"""
    monkeypatch.setitem(WEIGHTS, "half-point", Answer(HalfPoint(), "point estimates"))
    assert mm.fit("mlp", "two-moons", recipe=mm.make_recipe(weights="half-point"), **PLAN).members == 2


def test_row_preset(monkeypatch):
    """a preset"""
    recipe = mm.make_recipe("deep-ensemble", coupling="outputs")
    monkeypatch.setitem(PRESETS, "mine", Preset(replace(recipe, name="mine"), "mine", "everything", "nothing"))
    assert mm.fit("mlp", "two-moons", recipe="mine", **PLAN).recipe.name == "mine"


def test_row_likelihood(monkeypatch, tmp_path: Path):
    """a likelihood"""
    from murmuration import likelihoods

    @dataclass(frozen=True)
    class Sharper(mm.Categorical):
        """Logits times two."""

    monkeypatch.setattr(likelihoods, "BUILT_IN", (*likelihoods.BUILT_IN, Sharper))
    mm.fit("mlp", "two-moons", likelihood=Sharper(2), out=tmp_path / "run", **PLAN)
    assert isinstance(mm.load(tmp_path / "run").likelihood, Sharper)


def test_row_format(monkeypatch, tmp_path: Path):
    """a data format"""
    from murmuration.data.raw import RawData, RawPart

    def load(source, options):
        return RawData({"all": RawPart(np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 2)})

    row = formats.Format("NAME.mine", "sixty rows", lambda source: str(source).endswith(".mine"), load)
    monkeypatch.setattr(formats, "FORMATS", (row, *formats.FORMATS))
    (tmp_path / "x.mine").touch()
    assert mm.open_data(tmp_path / "x.mine").input_shape == (3,)


def test_row_corruption(monkeypatch):
    """a corruption"""
    black = images.Corruption("black", "noise", "black", (1, 1, 1, 1, 1), lambda image, *rest: image * 0)
    monkeypatch.setitem(images.CORRUPTIONS, "black", black)  # made of the rows of `TABLE`
    assert not images.corrupt(np.full((2, 4, 4), 100, dtype=np.uint8), "black", 1).any()
    shift = tables.TableShift(lambda x, *rest: x.fill(0), "all", (1, 1, 1, 1, 1), "all zero")
    monkeypatch.setitem(tables.TABLE_SHIFTS, "zeros", shift)
    data = mm.open_data("diabetes")
    assert "zeros" in tables.table_shifts_for(data.preparation)
    assert not tables.shift_table(data.test.prepared, data.preparation, "zeros", 1).any()


def test_row_network(monkeypatch):
    """a network, a table network"""

    def tiny(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(input_shape)), outputs))

    monkeypatch.setitem(NETS, "tiny", replace(NETS["linear"], factory=tiny, options=(), table_settings=True))
    ensemble = mm.fit("tiny", "diabetes", members=2, steps=20)
    assert ensemble.manifest.plan["stop_by"] == "ensemble"  # the settings of tables


def test_row_model(monkeypatch, tmp_path: Path):
    """a model that is not a network"""
    from sklearn.linear_model import LinearRegression

    row = replace(MODELS["ridge"], fit=lambda request: LinearRegression().fit(request.train.x, request.train.y))
    monkeypatch.setitem(MODELS, "least-squares", row)
    ensemble = mm.fit("least-squares", "diabetes")
    ensemble.save(tmp_path / "run")
    x = mm.open_data("diabetes").test
    assert torch.equal(mm.load(tmp_path / "run").predict(x).outputs, ensemble.predict(x).outputs)


def test_row_export(monkeypatch, tmp_path: Path):
    """an export target"""
    from murmuration.prediction import export

    monkeypatch.setitem(export.EXPORTS, ".sizes", lambda module, x: str(tuple(module(x)["mean"].shape)).encode())
    ensemble = mm.fit("mlp", "two-moons", **PLAN)
    ensemble.export(tmp_path / "model.sizes")
    assert (tmp_path / "model.sizes").read_bytes() == b"(2, 2)"


def test_row_measure(monkeypatch):
    """a measure"""
    row = replace(MEASURES["classification"]["accuracy"], name="hits", label="Hits")
    monkeypatch.setitem(MEASURES["classification"], "hits", row)
    probs, labels = np.eye(2)[None, [0, 1, 0]], np.array([0, 1, 1])
    assert float(mm.score(mm.Predictive.from_probs(probs), labels)["hits"]) == pytest.approx(2 / 3)


def test_row_command(monkeypatch, capsys):
    """a command, kind of run, report section, a network of your package"""
    import sys
    from types import ModuleType

    import typer

    from murmuration.cli import program  # with the commands of the distribution, before they are replaced

    module = ModuleType("greeting_command")
    exec('def greet() -> None:\n    """Greet."""\n    print("hello")', module.__dict__)
    monkeypatch.setitem(sys.modules, "greeting_command", module)
    module.TINY = NetEntry(lambda shape, outputs: nn.Linear(*shape, outputs), (), "a line", tables=True)
    names = {"murmuration.commands": ("greet", "greet"), "murmuration.nets": ("tiny", "TINY")}
    points = {group: EntryPoint(name, f"greeting_command:{place}", group) for group, (name, place) in names.items()}
    monkeypatch.setattr(plugins, "entry_points", lambda group: [points[group]] if group in points else [])
    plugins.plugins.cache_clear()
    try:
        monkeypatch.setattr(program, "app", typer.Typer(cls=program.PlainGroup))
        for name, command in {"list": program.lists.list_names, **plugins.plugins("murmuration.commands")}.items():
            program._add(name, command, "Commands")
        assert program.main(["greet"]) == 0
        assert capsys.readouterr().out == "hello\n"
        assert mm.fit("tiny", "two-moons", **PLAN).manifest.net == {"name": "tiny"}
    finally:
        plugins.plugins.cache_clear()
