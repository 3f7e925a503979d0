"""Spaces and dynamics of one's own: settings that must agree on load, and mistakes that are refused in one line."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

import murmuration as mm
from murmuration.core.population import Population
from murmuration.data import Data
from murmuration.training import fitting

PLAN = mm.Plan(members=2, epochs=1, batch_size=128, engine="loop")


@dataclass(frozen=True)
class Margins(mm.Space):
    """The largest output minus the mean output, (m, 1, B)."""

    way: str = "right"

    def features(self, inputs: mm.SpaceInputs) -> Tensor:
        found = (inputs.outputs.amax(-1) - inputs.outputs.mean(-1)).unsqueeze(1)
        return {"right": found, "flat": found.squeeze(1), "detached": found.detach(), "whole": found.long()}[self.way]


@dataclass(frozen=True)
class LastHalf(mm.Dynamics):
    """The weights in the middle of the run and at its end."""

    way: str = "right"

    def keep(self, time: mm.TrainTime) -> bool:
        total = time.steps_per_epoch * time.epochs
        return time.step in (total // 2, total)

    def collect(self, path: mm.WeightPath, population: Population, rows: Tensor) -> None:
        name = str(len(path.points))
        path.points[name] = torch.zeros(1) if self.way == "tensor" else population.clone()  # type: ignore[assignment]

    def finish(self, path: mm.WeightPath, population: Population, streams: object) -> tuple[Population, Tensor]:
        members = Population.concatenate(list(path.points.values()))
        if self.way == "alone":
            return members  # type: ignore[return-value]
        return members, torch.arange(population.members).repeat(len(path.points))


def space(**settings) -> mm.Recipe:
    return mm.Recipe("margins", coupling=mm.Repulsion(Margins(**settings), weight=0.1))


def test_a_run_with_objects_of_one_s_own_needs_the_same_settings_again(moons: Data, tmp_path: Path):
    made = mm.fit("mlp", moons, recipe=space(), plan=PLAN, out=tmp_path / "run", posthoc=None)
    with pytest.raises(mm.Misuse, match=r"coupling Repulsion\(space=Margins\(.* is a user-defined object"):
        mm.load(tmp_path / "run")
    with pytest.raises(mm.Misuse, match="the run was made by margins with other answers"):
        mm.load(tmp_path / "run", recipe=space(bandwidth="rde"))
    again = mm.load(tmp_path / "run", recipe=space())
    assert torch.equal(again.predict(moons.test.x).outputs, made.predict(moons.test.x).outputs)


def test_tensors_keep_their_order_when_a_run_is_loaded(moons: Data, tmp_path: Path):
    """Files are sorted by name; a weight family that draws tensor by tensor depends on the order."""
    made = mm.fit("mlp", moons, plan=PLAN, out=tmp_path / "run", posthoc=None)
    own = made.groups[0].population.own
    assert list(own) != sorted(own)
    assert list(mm.load(tmp_path / "run").groups[0].population.own) == list(own)


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ("flat", r"Margins.features returned shape \(2, 128\): need \(members, samples, numbers\)"),
        ("detached", "Margins.features returned torch.float32 without a graph to the weights"),
        ("whole", "Margins.features returned torch.int64 without a graph"),
    ],
)
def test_features_that_cannot_repel_are_refused(way: str, message: str, moons: Data):
    with pytest.raises(mm.Misuse, match=message):
        mm.fit("mlp", moons, recipe=space(way=way), plan=PLAN, posthoc=None)


def test_points_without_counts_are_stored_and_resumed(moons: Data, tmp_path: Path):
    recipe = mm.Recipe("half", dynamics=LastHalf())
    whole = mm.fit("mlp", moons, recipe=recipe, plan=PLAN, posthoc=None)
    assert whole.members == 4
    total = mm.open_data("two-moons").train.prepared.shape[0] // 128

    def stop(message, done, all_steps, record):
        if done == total // 2 + 1:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        mm.fit(
            "mlp",
            moons,
            recipe=recipe,
            plan=PLAN,
            out=tmp_path / "run",
            progress=stop,
            checkpoint_seconds=0,
            posthoc=None,
        )
    resumed = mm.resume(tmp_path / "run", recipe=recipe)
    for name, tensor in whole.groups[0].population.own.items():
        assert torch.equal(tensor, resumed.groups[0].population.own[name])


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ("tensor", "LastHalf.collect put a Tensor in points: need a Population"),
        ("alone", r"LastHalf.finish must return \(population, rows\)"),
    ],
)
def test_a_dynamics_that_breaks_the_interface_is_refused(way: str, message: str, moons: Data):
    with pytest.raises(mm.Misuse, match=message):
        mm.fit("mlp", moons, recipe=mm.Recipe("half", dynamics=LastHalf(way)), plan=PLAN, posthoc=None)


def test_processes_that_are_started_again_pass_their_own_objects_on(moons: Data, tmp_path: Path, monkeypatch):
    """`torchrun` calls the same program again: the recipe, the optimizer and the arrays are those of the call."""
    data = (moons.train.x, moons.train.y)
    settings = {"recipe": space(), "optimizer": torch.optim.RMSprop, "plan": PLAN, "epochs": 2, "posthoc": None}
    whole = mm.fit("mlp:hidden=8", data, **settings)

    def stop(text: str, done: int, total: int, record: object) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mm.fit("mlp:hidden=8", data, **settings, out=tmp_path / "run", progress=stop)
    monkeypatch.setattr(fitting, "continues", lambda path: path is not None)
    again = mm.fit("mlp:hidden=8", data, **settings, out=tmp_path / "run")
    expected = whole.to_tensors()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in again.to_tensors().items())
    other = mm.fit("mlp:hidden=8", data, **settings, out=tmp_path / "run")  # complete by now: read
    assert other.members == 2


@dataclass(frozen=True)
class Returned(mm.Space):
    """A space whose features are what a function makes of the inputs."""

    make: object = None

    def features(self, inputs: mm.SpaceInputs) -> Tensor:
        return self.make(inputs)  # type: ignore[operator]


@pytest.mark.parametrize("engine", ["loop", "stacked"])
@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda inputs: None, r"Returned.features returned None: need a tensor \(members, samples, numbers\)"),
        (lambda inputs: [inputs.outputs], "Returned.features returned a list: need a tensor"),
        (lambda inputs: inputs.outputs[0], r"Returned.features returned .*: need "),
        (lambda inputs: inputs.outputs.sum(), r"Returned.features returned a Tensor of shape \(\): need a tensor"),
        (lambda inputs: inputs.outputs.flatten(1), r"returned shape \(2, .*: need \(members, samples, numbers\)"),
        (lambda inputs: inputs.features, "returned None: .* None unless needs holds 'features'"),
        (lambda inputs: inputs.features.flatten(2), "'NoneType' .* None unless needs holds 'features'"),
    ],
)
def test_features_of_another_kind_are_refused_in_one_line(moons: Data, engine: str, make, told: str):
    recipe = mm.Recipe("own", coupling=mm.Repulsion(Returned(make=make)))
    with pytest.raises(mm.Misuse, match=told) as refused:
        mm.fit("mlp", moons, recipe=recipe, members=2, epochs=1, engine=engine, posthoc=None)
    assert "\n" not in str(refused.value)


def test_a_space_without_features_keeps_its_own_errors(moons: Data):
    recipe = mm.Recipe("own", coupling=mm.Repulsion(Returned(make=lambda inputs: inputs.outputs.none)))
    with pytest.raises(AttributeError, match="'Tensor' object has no attribute 'none'"):
        mm.fit("mlp", moons, recipe=recipe, members=2, epochs=1, engine="loop", posthoc=None)


@pytest.mark.parametrize(
    ("given", "told"), [(Margins, "the class Margins: .*, such as Margins"), ("outputs", "a str"), (None, "None")]
)
def test_a_repulsion_takes_an_object(given, told: str):
    with pytest.raises(mm.Misuse, match=f"space= is {told}"):
        mm.Repulsion(given)


def test_needs_are_a_set():
    class Listed(Margins):
        @property
        def needs(self):
            return ["same-batch"]

    with pytest.raises(mm.Misuse, match="needs of Listed is a list: write frozenset"):
        Listed()
