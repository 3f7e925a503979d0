"""Trajectories: checkpoints are the weights of shorter runs, of the plain networks, and survive a kill bit for bit."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import murmuration as mm
from murmuration.core.dynamics.schedules import TrainTime
from murmuration.core.dynamics.trajectory import parse_trajectory
from murmuration.data import Data
from murmuration.runs import checkpoints
from murmuration.runs.directory import TRAJECTORY
from murmuration.studies.trajectory import Trajectory, find_trajectory, open_trajectory, trajectory_of
from murmuration.studies.weight_space import points_of

PLAN = mm.Plan(members=2, epochs=3, batch_size=64, engine="loop", schedule="constant", posthoc=None)
STEPS = 5  # an epoch


@pytest.fixture(scope="module")
def little() -> Data:
    data = mm.open_data("two-moons")
    return replace(data, train=data.train[: 64 * STEPS], val=data.val[:50])


@pytest.fixture(scope="module")
def whole(tmp_path_factory, little) -> dict[str, bytes]:
    """The files of the trajectory of a run that was not disturbed."""
    path = tmp_path_factory.mktemp("whole") / "run"
    mm.fit("mlp", little, plan=PLAN, out=path, trajectory="every:0.4")
    return files(path)


class Killed(Exception):  # noqa: N818
    pass


def files(run: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted((run / TRAJECTORY).iterdir())}


def opened(path: Path, data: Data, **settings) -> tuple[mm.Ensemble, Trajectory]:
    ensemble = mm.fit("mlp", data, plan=PLAN, out=path, **{"trajectory": "every-epoch", **settings})
    return ensemble, open_trajectory(path)


def test_checkpoints_are_the_members_of_shorter_runs(tmp_path, little):
    ensemble, found = opened(tmp_path / "run", little)
    assert found.steps == (STEPS, 2 * STEPS, 3 * STEPS)
    assert found.epochs == (1.0, 2.0, 3.0)
    for epochs in (1, 2):
        shorter = points_of(mm.fit("mlp", little, plan=PLAN, epochs=epochs)).vectors
        for member in range(2):
            assert torch.equal(found.at(member, epochs - 1), shorter[member])
    for member, vector in enumerate(points_of(ensemble).vectors):
        assert torch.equal(list(found.vectors(member))[-1], vector)
        assert torch.equal(found.points.vectors[member], vector)
        assert torch.equal(torch.stack(list(found.vectors(member, last=2))), torch.stack([found.at(member, 1), vector]))
    begun = points_of(
        mm.fit("mlp", little, plan=PLAN, epochs=1, lr=1e-30)
    ).vectors  # Adam's steps are too small to move
    torch.testing.assert_close(torch.stack([found.start(0), found.start(1)]), begun, rtol=0, atol=0)
    assert found.trained(0) == [True] * 3


@pytest.mark.parametrize("kill", ["without a state", "before its state is written", "after its state is written"])
@pytest.mark.parametrize("steps", [1, STEPS + 1, 3 * STEPS])  # the last two are due
def test_a_killed_run_ends_with_the_same_files(tmp_path, monkeypatch, little, whole, steps, kill):
    write = checkpoints.save_checkpoint

    def write_and_kill(path, progress, *ranks):
        write(path, progress, *ranks)
        if progress.state.step >= steps:
            raise Killed

    def show(text, done, total, record):
        if done >= steps and not kill.startswith("after"):
            raise Killed

    settings = {"out": tmp_path / "run", "trajectory": "every:0.4", "progress": show}
    monkeypatch.setattr(checkpoints, "save_checkpoint", write_and_kill)
    with pytest.raises(Killed):
        mm.fit("mlp", little, plan=PLAN, **settings, checkpoint_seconds=1e9 if kill == "without a state" else 0)
    (tmp_path / "run" / TRAJECTORY / ".step-1.safetensors.lab.99.partial").write_bytes(b"cut")
    monkeypatch.setattr(checkpoints, "save_checkpoint", write)
    mm.resume(tmp_path / "run", data=little)
    assert files(tmp_path / "run") == whole
    assert len(whole) == 1 + 8


@pytest.mark.parametrize("recipe", ["batch-ensemble", "mask-ensemble", "bayes", "rank1-bnn", "swa"])
def test_checkpoints_are_the_plain_networks_that_members_amount_to(tmp_path, little, recipe):
    ensemble, found = opened(tmp_path / "run", little, recipe=recipe, members=1 if recipe == "swa" else 2)
    ends = points_of(ensemble).vectors
    assert torch.equal(found.points.vectors, ends)
    same = [torch.equal(found.at(member, -1), ends[member]) for member in range(found.members)]
    assert all(same) == (recipe != "swa")  # an average of the path is not its end


def test_paths_that_leave_several_members_end_at_their_last_checkpoint(tmp_path, little):
    ensemble, found = opened(tmp_path / "run", little, recipe="snapshot", members=2, schedule=None, epochs=6)
    assert (ensemble.members, found.members) == (10, 2)
    assert torch.equal(found.points.vectors[1], found.at(1, -1))
    assert torch.equal(points_of(ensemble).vectors[-1], found.at(1, -1))


def test_half_precision_stores_half_the_bytes(tmp_path, little):
    told = []
    ensemble, found = opened(
        tmp_path / "half", little, trajectory="last:2,float16", progress=lambda text, *rest: told.append(text)
    )
    assert found.epochs == (2.0, 3.0)
    exact = points_of(ensemble).vectors[1]
    assert found.at(1, -1).dtype == torch.float32
    assert ((found.at(1, -1) - exact).abs() <= 2**-11 * exact.abs() + 2**-25).all()  # half an ulp, or a subnormal one
    size = 2 * found.points.space.size * 2 / 1e6
    assert any(f"3 checkpoints of {size:.3g} MB, {3 * size:.3g} MB on the disk" in text for text in told)


def test_weights_beyond_half_precision_are_kept_as_they_are():
    population = points_of([nn.Linear(2, 2)]).population()
    population.own["weight"][0, 0, 0] = 1e6
    stored = parse_trajectory("every-epoch,float16").tensors(population)
    assert stored["own/weight"].dtype == torch.float32
    assert stored["own/bias"].dtype == torch.float16


def test_members_that_stopped_stay_where_they_are(tmp_path, little):
    ensemble, found = opened(tmp_path / "run", little, patience=1, epochs=12, lr=0.3, seed=1)
    stopped = [found.trained(member) for member in range(2)]
    assert not all(map(all, stopped))
    member = stopped.index(min(stopped))
    first = stopped[member].index(False)
    assert not any(stopped[member][first:])
    assert all(torch.equal(found.at(member, i), found.at(member, first)) for i in range(first, len(found)))
    assert torch.equal(found.points.vectors, points_of(ensemble).vectors)  # the best epochs


class SometimesInfinite(nn.Sequential):
    """A network whose initial weights are not finite in about half of all cases."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))
        with torch.no_grad():
            self[2].bias.mul_(torch.inf if self[0].weight[0, 0] > 0 else 1)


def test_members_that_are_left_out_of_the_ensemble_have_no_path(tmp_path, little):
    settings = {"plan": PLAN, "members": 4, "epochs": 1}
    ensemble = mm.fit(SometimesInfinite, little, **settings, out=tmp_path / "run", trajectory="every-epoch")
    found = open_trajectory(tmp_path / "run", net=SometimesInfinite)
    assert 0 < found.members < 4
    assert 0 not in ensemble.manifest.origins  # so that rows of files are not numbers of members
    for member, vector in enumerate(points_of(ensemble).vectors):
        assert torch.equal(found.at(member, -1), vector)


def test_heads_on_a_frozen_body_are_whole_networks(tmp_path, little):
    mm.fit("mlp", little, plan=PLAN, members=1, out=tmp_path / "body")
    recipe = mm.make_recipe("last-layer-ensemble", sharing=f"backbone:frozen={tmp_path / 'body'}")
    ensemble, found = opened(tmp_path / "run", little, recipe=recipe)
    assert torch.equal(torch.stack([found.at(0, -1), found.at(1, -1)]), points_of(ensemble).vectors)


def test_networks_trained_elsewhere():
    nets = [[nn.Linear(4, 3) for _ in range(5)] for _ in range(2)]
    found = trajectory_of(nets)
    assert (found.members, len(found), found.epochs) == (2, 5, (1.0, 2.0, 3.0, 4.0, 5.0))
    for member, path in enumerate(nets):
        for vector, net in zip(found.vectors(member), path, strict=True):
            assert torch.equal(vector, nn.utils.parameters_to_vector(net.parameters()).detach())
    with pytest.raises(mm.Misuse, match=r"start=\[net"):
        found.start(0)
    begun = trajectory_of(nets, start=[path[0] for path in nets]).start(1)
    assert torch.equal(begun, found.at(1, 0))


def test_times_of_checkpoints():
    total = TrainTime(40, 4, 10)
    assert parse_trajectory("every:3").steps(total) == [12, 24, 36, 40]
    assert parse_trajectory("every:0.1").steps(total) == list(range(1, 41))
    assert parse_trajectory("every:100").steps(total) == [40]
    assert parse_trajectory("last:30").steps(total) == parse_trajectory("every-epoch").steps(total)


@pytest.mark.parametrize("text", ["epoch", "every:0", "every:x", "last:0", "last:1.5", "every-epoch,int8", "every:nan"])
def test_other_texts_are_refused_in_one_line(text):
    with pytest.raises(mm.Misuse, match=r"trajectory='.*': write every-epoch") as refused:
        mm.Plan(trajectory=text)
    assert "\n" not in str(refused.value)


def test_misuse_is_refused(tmp_path, little):
    with pytest.raises(mm.Misuse, match=r"without out: .* give out="):
        mm.fit("mlp", little, plan=PLAN, trajectory="every-epoch")
    with pytest.raises(mm.Misuse, match="last:2 with patience"):
        mm.Plan(trajectory="last:2", patience=3)
    mm.fit("mlp", little, plan=PLAN, epochs=1, out=tmp_path / "run")
    with pytest.raises(mm.Misuse, match="no trajectory: train it with"):
        open_trajectory(tmp_path / "run")
    _, found = opened(tmp_path / "other", little, epochs=1)
    with pytest.raises(mm.Misuse, match="member 2 of a trajectory of 2"):
        found.at(2, 0)
    with pytest.raises(mm.Misuse, match="checkpoint 1 of a trajectory of 1"):
        found.at(0, 1)


def test_a_changed_checkpoint_of_a_trajectory_is_refused(tmp_path: Path, little: Data):
    run = tmp_path / "run"
    mm.fit("mlp", little, plan=replace(PLAN, epochs=1, trajectory="every-epoch"), out=run)
    assert find_trajectory(run) is not None
    file = run / "trajectory" / "step-000000000.safetensors"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content))
    with pytest.raises(mm.Failure, match=r"trajectory/step-000000000\.safetensors has changed"):
        find_trajectory(run)
