"""HCL: the replay terms at and off the snapshot, the start as discriminant analysis, two tasks in the plane."""

import copy
import dataclasses

import numpy as np
import pytest
import torch
from hcl_factories import batch, learner, trained
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from murmuration.applications.continual.baselines import ClassMeans
from murmuration.applications.continual.detection import DetectionConfig
from murmuration.applications.continual.flows import image_flow, vector_flow
from murmuration.applications.continual.hcl import HCL, HCLConfig
from murmuration.applications.continual.learner import State
from murmuration.system.errors import Misuse


def accuracy(model: HCL, task: int) -> float:
    x, y = batch(task, seed=10_000, count=1000)
    labels, tasks = model.classify(x)
    return ((labels == y) & (tasks == task)).float().mean().item()


def test_functional_replay_is_zero_at_the_snapshot_and_leaves_it_alone() -> None:
    """Oracle 37."""
    model = trained(learner(), tasks=(0,), steps=20)
    x, y = batch(1, seed=5)
    for _ in range(3):
        model.observe(x, y, 1)
    assert model.snapshot is not None
    at_snapshot = learner()
    at_snapshot.flow.load_state_dict(model.snapshot.flow.state_dict())
    at_snapshot.classes, at_snapshot.snapshot, at_snapshot.task = model.classes, model.snapshot, 1
    loss = at_snapshot.losses(*at_snapshot.flow(x), y)["replay"]
    assert loss.item() < 1e-9  # rounding of an inverse, squared
    gradients = torch.autograd.grad(loss, list(at_snapshot.flow.parameters()))
    assert max(float(each.abs().max()) for each in gradients) < 1e-4
    with torch.no_grad():
        for parameter in at_snapshot.flow.parameters():
            parameter += 0.05
    assert at_snapshot.losses(*at_snapshot.flow(x), y)["replay"].item() > 1e-4
    inputs, z, _ = model.snapshot.draw(50, torch.Generator().manual_seed(0))
    torch.testing.assert_close(model.snapshot.flow(inputs)[0], z, atol=1e-5, rtol=0)
    before = copy.deepcopy(model.snapshot.flow.state_dict())
    trained(model, tasks=(1,), steps=10)
    for name, tensor in model.snapshot.flow.state_dict().items():
        assert torch.equal(tensor, before[name])
    assert not any(parameter.requires_grad for parameter in model.snapshot.flow.parameters())


def test_replay_keeps_the_first_task_and_plain_training_does_not() -> None:
    """Oracle 38, with the means of the published model."""
    kept = trained(learner(means="random", settle=0, strength=1.0), steps=100)
    assert accuracy(kept, 0) >= 0.95
    assert accuracy(trained(learner(means="random", settle=0, replay="none"), steps=100), 0) < 0.7


@pytest.mark.slow
@pytest.mark.parametrize("replay", ["functional", "generative"])
def test_replay_keeps_classes_placed_by_the_data(replay: str) -> None:
    model = trained(learner(replay=replay, strength=10.0), steps=80)
    assert min(accuracy(model, 0), accuracy(model, 1)) > 0.9


def test_it_begins_as_linear_discriminant_analysis() -> None:
    """Before the first step of the flow, labels are those of scikit-learn's analysis of the same examples."""
    generator = np.random.default_rng(0)
    y = np.arange(400) % 4
    x = generator.normal(size=(400, 6)) @ generator.normal(size=(6, 6)) + 3 * generator.normal(size=(4, 6))[y]
    torch.manual_seed(0)
    model = HCL(vector_flow(6), HCLConfig(agnostic=False, settle=100, shrinkage=0.0))
    for task in (0, 1):
        rows = np.flatnonzero(y // 2 == task)
        for some in np.split(rows, 4):
            model.observe(torch.tensor(x[some]).float(), torch.tensor(y[some]), task)
    reference = LinearDiscriminantAnalysis(solver="lsqr", priors=np.full(4, 0.25)).fit(x, y)
    fresh = generator.normal(size=(1000, 6)) * x.std(0) + x.mean(0)
    assert np.mean(model.classify(torch.tensor(fresh).float())[0].numpy() == reference.predict(fresh)) >= 0.999


def test_a_flow_that_does_not_move_stays_discriminant_analysis_of_all_examples() -> None:
    """Means and covariance come from all batches of a task, not from the first ones alone."""
    model, reference = learner(settle=2, lr=1e-20), ClassMeans((2,), shrinkage=0.1)
    for step in range(12):
        for task in (0, 1):
            x, y = batch(task, seed=step, count=8)
            model.observe(x, y, task)
            reference.observe(x, y, task)
    generator = torch.Generator().manual_seed(1)
    fresh = 4 * torch.randn(2000, 2, generator=generator)
    for found, expected in zip(model.classify(fresh), reference.classify(fresh), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.slow
def test_tasks_are_found_by_themselves() -> None:
    """Both tasks have labels 0 and 1, so only the inputs tell them apart; the first returns at the end."""
    detection = DetectionConfig(window=50, warmup=30)
    model = learner(agnostic=True, strength=10.0, detection=detection)
    trained(model, tasks=(0, 1), steps=100)
    assert sorted(model.settled) == [0, 1]
    assert model.detector.task == 1
    trained(model, tasks=(0,), steps=20)
    assert sorted(model.settled) == [0, 1]
    assert model.detector.task == 0
    assert min(accuracy(model, 0), accuracy(model, 1)) > 0.9


def test_a_batch_that_may_begin_another_task_is_not_learned() -> None:
    model = learner(agnostic=True, detection=DetectionConfig(window=50, warmup=10))
    trained(model, tasks=(0,), steps=60)
    before = copy.deepcopy(model.flow.state_dict())
    x, y = batch(1, seed=7)
    assert model.observe(x, y) == {}
    assert sorted(model.settled) == [0]
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.flow.state_dict().items())


def test_a_label_that_comes_late_is_placed() -> None:
    model = learner(settle=1)
    x, y = batch(0, seed=0)
    model.observe(x[y == 0], y[y == 0], 0)
    model.observe(x, y, 0)
    assert model.classes.pairs() == [(0, 0), (0, 1)]


def test_equal_seeds_give_equal_bits() -> None:
    first, second = (trained(learner(seed=3), steps=6) for _ in range(2))
    for name, tensor in first.flow.state_dict().items():
        assert torch.equal(tensor, second.flow.state_dict()[name])


@pytest.mark.slow
@pytest.mark.parametrize("means", ["data", "random"])
def test_a_restored_learner_continues_with_the_same_bits(means: str) -> None:
    settings = {"agnostic": True, "means": means, "detection": DetectionConfig(window=20, warmup=5), "strength": 5.0}
    whole, first, second = (learner(**settings) for _ in range(3))

    def steps(model: HCL, some: range) -> HCL:
        for step in some:
            model.observe(*batch(int(step >= 20), seed=step))
        return model

    steps(whole, range(40))
    state = steps(first, range(27)).state()
    second.restore(State({name: tensor.clone() for name, tensor in state.tensors.items()}, state.facts))
    steps(second, range(27, 40))
    assert sorted(whole.settled) == [0, 1]
    assert whole.snapshot is not None
    for name, tensor in whole.state().tensors.items():
        assert torch.equal(tensor, second.state().tensors[name]), name
    assert whole.state().facts == second.state().facts
    assert whole.memory() == second.memory()


def test_labels_give_away_a_task_that_follows_one_too_short_to_settle() -> None:
    model = learner(agnostic=True, settle=20)
    for step in range(6):
        x, y = batch(step // 2 % 2, seed=step)
        model.observe(x, y + 2 * (step // 2 % 2))  # task 0 with labels 0 and 1, task 1 with 2 and 3, task 0 again
    assert model.task == 0
    assert model.classes.pairs() == [(0, 0), (0, 1), (1, 2), (1, 3)]


def test_predictions_do_not_change_what_is_learned() -> None:
    quiet, asked = (learner(settle=3) for _ in range(2))
    for step in range(10):
        for model in (quiet, asked):
            model.observe(*batch(0, seed=step), 0)
        asked.classify(torch.zeros(1, 2))
        asked.generated(0, 2)
    for name, tensor in quiet.state().tensors.items():
        assert torch.equal(tensor, asked.state().tensors[name]), name


def test_a_rare_class_is_no_other_task() -> None:
    """A batch most of whose labels are known, and typical, is of the task at hand."""
    model = learner(agnostic=True, detection=DetectionConfig(window=50, warmup=5))
    for step in range(30):
        model.observe(*(part[batch(0, step)[1] == 0] for part in batch(0, step)))
    x, y = batch(0, 99, count=400)
    few = torch.cat([(y == 0).nonzero()[:30], (y == 1).nonzero()[:3]]).flatten()
    model.observe(x[few], y[few])
    assert sorted(model.settled) == [0]
    assert model.classes.labels_of(0) | model.labels_of(0) == {0, 1}


@pytest.mark.slow
def test_statistics_of_earlier_tasks_follow_the_flow() -> None:
    """However the flow has moved in task 1, a batch of task 0 is typical for task 0 by its corrected statistics."""
    model = learner(agnostic=True, strength=1.0, detection=DetectionConfig(window=50, warmup=20))
    trained(model, tasks=(0, 1), steps=60)
    assert sorted(model.settled) == [0, 1]
    with torch.no_grad():
        for layer in model.flow.layers:
            layer.net[-1].bias += 0.05
    x, y = batch(0, seed=777)
    with torch.no_grad():
        z, log_det = model.flow(x)
    plain = model.detector.distance(model.task_statistics(z, log_det, y, 0), 0)
    corrected = model.detector.distance(model.other_statistics(z, log_det, y)[0], 0)
    assert corrected < model.config.detection.threshold < plain


def test_images_are_learned_in_pixels_from_0_to_1() -> None:
    torch.manual_seed(0)
    model = HCL(image_flow((1, 4, 4), levels=1, steps=1, hidden=4), HCLConfig(settle=2, agnostic=False))
    generator = torch.Generator().manual_seed(0)
    for step in range(6):
        y = torch.arange(32) % 2
        x = ((0.3 * y[:, None, None, None] + 0.5 * torch.rand(32, 1, 4, 4, generator=generator)) * 255).round() / 255
        losses = model.observe(x, y, step // 3)
    assert set(losses) == {"likelihood", "replay"}
    assert (model.classify(x)[0] == y).float().mean() > 0.9
    images = model.generated(0, 10)
    assert images.shape[1:] == (1, 4, 4)
    assert 0 <= float(images.min()) <= float(images.max()) <= 1
    with pytest.raises(Misuse, match="pixels outside 0 to 1"):
        model.observe(2 * x + 1, y, 1)


def test_draws_are_of_known_classes_and_bounded() -> None:
    model = trained(learner(), steps=10)
    snapshot = dataclasses.replace(model.snapshot, largest=1.0)
    x, z, index = snapshot.draw(500, torch.Generator().manual_seed(1))
    assert len(x) == len(z) == len(index) < 500
    assert float(x.norm(dim=1).max()) <= 2.0
    assert set(index.tolist()) <= set(range(len(snapshot.classes)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: HCLConfig(replay="all"), "replay='all': expected functional"),
        (lambda: HCLConfig(means="best"), "means='best': expected"),
        (lambda: HCLConfig(lr=0), "lr=0: expected a positive"),
        (lambda: HCLConfig(shrinkage=2), "shrinkage=2: expected"),
        (lambda: HCLConfig(strength=-1), "strength=-1: expected"),
        (lambda: HCLConfig(settle=0), "settle=0: means of the data"),
        (lambda: learner().observe(*batch(0, 0)), "expected the task of every batch"),
        (lambda: learner(agnostic=True).observe(*batch(0, 0), 1), "expected no task"),
        (lambda: learner().classify(torch.zeros(1, 2)), "has seen no batch"),
        (lambda: learner().observe(torch.zeros(4, 3), torch.zeros(4).long(), 0), "shape .4, 3.: expected .2,. after"),
        (lambda: learner().observe(torch.full((4, 2), torch.nan), torch.zeros(4).long(), 0), "NaN or infinite"),
        (lambda: learner().observe(torch.zeros(4, 2), torch.zeros(3).long(), 0), "labels of shape .3,., torch.int64"),
        (lambda: learner().observe(torch.zeros(4, 2), torch.zeros(4), 0), "expected .4,. whole numbers"),
    ],
)
def test_what_does_not_fit_is_refused(make, message: str) -> None:
    with pytest.raises(Misuse, match=message):
        make()
