import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import murmuration as mm
from murmuration.core.divergence import Divergence
from murmuration.core.engines import assemble, engine
from murmuration.core.recipe import make_recipe
from murmuration.data import Data
from murmuration.likelihoods import Categorical
from murmuration.models.nets import build_net
from murmuration.system.streams import stream_seed
from murmuration.training import TrainSpec, begin
from murmuration.training.loop import finish
from murmuration.training.plan import Plan


def tensors(ensemble: mm.Ensemble) -> dict[str, torch.Tensor]:
    population = ensemble.groups[0].population
    return {**population.own, **population.buffers}


def test_changing_one_stream_leaves_the_others(digits: Data):
    from murmuration.training.batches import epoch_batches

    def rows(plan: Plan, member: int) -> torch.Tensor:
        return epoch_batches(digits.train, plan, 0)(0).fetch(slice(member, member + 1))[1]

    own, same = Plan(members=3), Plan(members=3, batch_order="same")
    assert not torch.equal(rows(own, 0), rows(own, 1))
    assert torch.equal(rows(same, 0), rows(same, 1))
    assert torch.equal(rows(own, 2), rows(Plan(members=1, first_member=2), 0))


def test_same_initialisation_and_batches_give_the_same_bits(digits: Data):
    plan = Plan(engine="loop", batch_size=128)
    first, second = (mm.fit("mlp", digits, members=2, epochs=2, plan=plan, posthoc=None) for _ in range(2))
    assert all(torch.equal(tensors(second)[name], tensor) for name, tensor in tensors(first).items())


def test_an_epoch_sees_every_example_once(digits: Data):
    from murmuration.training.batches import epoch_batches, plan_slices

    plan = Plan(members=1, batch_size=100)
    steps = len(plan_slices(len(digits.train), plan))
    assert steps == -(-len(digits.train) // 100)
    marked = mm.Split(torch.arange(len(digits.train)).float().unsqueeze(1), digits.train.y)
    batches = epoch_batches(marked, plan, 3)
    seen = torch.cat([batches(i).fetch(slice(1))[0].flatten() for i in range(steps)])
    assert len(seen.unique()) == len(seen) == len(digits.train)


def test_a_member_that_diverges_goes_back_to_its_last_sound_epoch(digits: Data):
    """Member 1 begins with weights so large that its first step overflows; the others go on."""

    def build() -> nn.Module:
        net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
        if torch.initial_seed() == stream_seed(0, "initialisation", 1):
            nn.init.constant_(net[1].weight, 3e38)
        return net

    ensemble = mm.fit(
        build, digits, members=3, epochs=2, plan=Plan(engine="loop", batch_size=64, lr=0.01), posthoc=None
    )
    last = ensemble.history[-1]
    assert last["active"].count(False) == 1
    member = last["active"].index(False)
    assert "has its initial weights" in last["diverged"][str(member)]
    assert all(later < 0.8 for i, later in enumerate(last["val_nll"]) if i != member)
    assert last["ensemble"]["val_nll"] < 0.8  # of the two that are left
    assert ensemble.members == 2
    assert "left out of the ensemble" in ensemble.manifest.diverged[str(member)]


def test_a_member_that_diverges_late_goes_back_to_its_last_sound_epoch(digits: Data):
    """From the fourth epoch on the learning rate is absurd."""
    plan = Plan(engine="loop", optimizer="sgd", lr=0.05, schedule="steps:3=1e30", batch_size=64)
    ensemble = mm.fit("mlp", digits, members=2, epochs=5, plan=plan, posthoc=None)
    sound = mm.fit("mlp", digits, members=2, epochs=3, plan=replace(plan, schedule="constant"), posthoc=None)
    assert all("has its weights of epoch 3" in text for text in ensemble.manifest.diverged.values())
    assert len(ensemble.manifest.diverged) == 2
    assert all(torch.equal(tensors(sound)[name], tensor) for name, tensor in tensors(ensemble).items())


@pytest.mark.parametrize("patience", [None, 3])
@pytest.mark.parametrize("recipe", ["single", "batch-ensemble"])
def test_members_found_diverged_by_validation_are_restored_with_what_they_share(digits: Data, recipe: str, patience):
    """One step an epoch: validation always sees it first. From the fourth epoch on the learning rate is absurd."""
    few = replace(digits, train=digits.train[:32])
    plan = Plan(engine="loop", optimizer="sgd", lr=0.05, schedule="steps:3=1e30", patience=patience)
    ensemble = mm.fit("mlp", few, recipe=recipe, epochs=5, plan=plan)
    sound = mm.fit("mlp", few, recipe=recipe, epochs=3, plan=replace(plan, schedule="constant"))
    assert ensemble.members == sound.members > 0
    assert all("after step 4; has its weights of epoch 3" in text for text in ensemble.manifest.diverged.values())
    assert len(ensemble.manifest.diverged) == sound.members
    assert torch.equal(ensemble.predict(few.test.x).outputs, sound.predict(few.test.x).outputs)


def test_weights_collected_before_validation_finds_them_diverged_are_left_out(digits: Data):
    """Two snapshots: the second is finite, but its outputs are not."""
    recipe = make_recipe("snapshot")
    spec = TrainSpec(lambda: build_net("mlp", (1, 8, 8), 10), digits, Categorical(10), recipe, Plan(members=1))
    progress = begin(spec)
    state, path = progress.state, progress.state.path
    spec.method.dynamics.collect(path, state.population, torch.tensor([0]))
    spec.method.dynamics.collect(path, state.population.map(lambda tensor: tensor * 1e30), torch.tensor([0]))
    with assemble(engine("loop"), spec.member(0)) as team:
        assert finish(team, spec, progress).members == 2
        state.diverged[0] = Divergence("outputs not finite", restored=1)
        found = finish(team, spec, progress)
    assert found.members == 1
    assert all(torch.equal(found.own[name], tensor) for name, tensor in state.population.own.items())


def test_the_training_loss_of_a_stopped_member_is_absent(digits: Data, tmp_path: Path):
    """Member 1 diverges in its first epoch: no loss of it is recorded, not even zero, and the history is JSON."""

    def build() -> nn.Module:
        net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
        if torch.initial_seed() == stream_seed(0, "initialisation", 1):
            nn.init.constant_(net[1].weight, 3e38)
        return net

    plan = Plan(engine="loop", batch_size=64, lr=0.01)
    ensemble = mm.fit(build, digits, members=2, epochs=2, plan=plan, out=tmp_path / "run")

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    lines = (tmp_path / "run" / "history.jsonl").read_text().splitlines()
    records = [json.loads(line, parse_constant=refuse) for line in lines]
    assert records == ensemble.history
    stopped = records[-1]["active"].index(False)
    for record in records:
        assert record["train_loss"][stopped] is None
        assert record["train_loss"][1 - stopped] > 0


def test_a_run_in_which_nobody_learns_is_a_failure(digits: Data):
    with pytest.raises(mm.Failure, match=r"no member could be trained .* lower the learning rate"):
        mm.fit("mlp", digits, members=2, epochs=1, plan=Plan(optimizer="sgd", lr=1e12, engine="loop"), posthoc=None)


def test_a_new_run_in_which_nobody_learns_leaves_nothing_behind(digits: Data, tmp_path):
    """Resumed, it would diverge again."""
    plan = Plan(optimizer="sgd", lr=1e12, engine="loop", trajectory="every-epoch")
    with pytest.raises(mm.Failure, match="no member could be trained"):
        mm.fit("mlp", digits, members=2, epochs=1, plan=plan, posthoc=None, out=tmp_path / "run", checkpoint_seconds=0)
    assert not (tmp_path / "run").exists()


def test_early_stopping_keeps_each_member_s_best_epoch(digits: Data):
    plan = Plan(engine="loop", lr=0.05, schedule="constant", patience=2, batch_size=32)
    ensemble = mm.fit("mlp", digits, members=2, epochs=25, plan=plan, posthoc=None)
    history = ensemble.history
    assert len(history) < 25
    outputs = ensemble.predict(digits.val.x)
    for member in range(2):
        best = min(record["val_nll"][member] for record in history)
        found = -outputs.member_log_prob(digits.val.y)[member].mean().item()
        assert found == pytest.approx(best, rel=1e-4)


def test_history_tells_each_member_s_losses_and_scores(digits: Data):
    ensemble = mm.fit("mlp", digits, members=2, epochs=3, plan=Plan(engine="loop", lr=3e-3), posthoc=None)
    assert [record["epoch"] for record in ensemble.history] == [1, 2, 3]
    first, last = ensemble.history[0], ensemble.history[-1]
    assert all(b < a for a, b in zip(first["train_loss"], last["train_loss"], strict=True))
    predictive = ensemble.predict(digits.val.x)
    assert last["ensemble"]["val_nll"] == pytest.approx(-predictive.log_prob(digits.val.y).mean().item(), rel=1e-5)
    hits = (predictive.predicted == digits.val.y).double().mean().item()
    assert last["ensemble"]["val_accuracy"] == pytest.approx(hits)


def test_the_net_must_fit_the_data(digits: Data):
    with pytest.raises(mm.Misuse, match=r"gives outputs \(2, 7\) for 2 inputs: the data needs \(2, 10\)"):
        mm.fit(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 7)), digits, members=1, epochs=1, posthoc=None)
    with pytest.raises(mm.Misuse, match=r"cannot take inputs of shape \(1, 8, 8\)"):
        mm.fit(nn.Linear(5, 10), digits, members=1, epochs=1, posthoc=None)


def test_a_module_is_an_architecture_and_members_begin_apart(digits: Data):
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    ensemble = mm.fit(net, digits, members=3, epochs=1, plan=Plan(lr=1e-5), posthoc=None)
    weights = ensemble.groups[0].population.own["1.weight"]
    assert all((weights[i] - weights[j]).abs().max() > 0.05 for i in range(3) for j in range(i))

    class Opaque(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.matrix = nn.Parameter(torch.zeros(64, 10))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.flatten(1) @ self.matrix

    with pytest.raises(mm.Misuse, match="Opaque has parameters but no reset_parameters"):
        mm.fit(Opaque(), digits, members=2, epochs=1, posthoc=None)


def blobs(rows: int = 60) -> tuple[torch.Tensor, torch.Tensor]:
    """Return two inputs and the sign of the first."""
    x = torch.randn(rows, 2, generator=torch.Generator().manual_seed(0))
    return x, (x[:, 0] > 0).long()


@pytest.mark.parametrize(("lr", "regression", "patience"), [(1e6, False, None), (1e6, False, 3), (1e3, True, None)])
def test_training_that_failed_is_noted(lr: float, regression: bool, patience: int | None):
    x, y = blobs()
    settings = {"members": 2, "epochs": 2, "progress": False, "patience": patience, "lr": lr}
    with pytest.warns(UserWarning, match=r"training seems to have failed .*: lower the learning rate"):
        mm.fit("mlp:hidden=8", (x, x[:, 0] if regression else y), **settings)


@pytest.mark.parametrize("regression", [False, True])
def test_training_that_worked_is_not_noted(recwarn: pytest.WarningsRecorder, regression: bool):
    x, y = blobs()
    mm.fit("mlp:hidden=8", (x, x[:, 0] if regression else y), members=2, epochs=2, progress=False)
    assert not [note for note in recwarn if "failed" in str(note.message)]


class Branches(nn.Module):
    """A network with one layer for inputs with a positive sum and another for the others, and maybe one for none."""

    def __init__(self, spare: bool) -> None:
        super().__init__()
        self.above, self.below = nn.Linear(2, 2), nn.Linear(2, 2)
        self.spare = nn.Linear(2, 2) if spare else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.above(x) if x.sum() > 0 else self.below(x)


@pytest.mark.parametrize("spare", [False, True])
def test_layers_that_other_inputs_use_are_not_called_untrained(recwarn: pytest.WarningsRecorder, spare: bool):
    mm.fit(lambda: Branches(spare), blobs(), members=2, epochs=1, progress=False)
    notes = [str(note.message) for note in recwarn if "not trained" in str(note.message)]
    cause = "forward does not use them there, or detaches them ('spare.weight', 'spare.bias')"
    assert notes == ([f"2 of 6 parameters of the net are not trained by the first inputs: {cause}"] if spare else [])


def test_losses_beyond_single_precision_are_a_failure():
    x, _ = blobs()
    with pytest.raises(mm.Failure, match=r"no member could be trained .*: lower the learning rate"):
        mm.fit("mlp:hidden=8", (x, x[:, 0]), members=2, epochs=2, progress=False, patience=3, lr=1e6)
