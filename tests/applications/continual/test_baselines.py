"""Learners to compare with: memories against their laws, networks against plain loops, means against scikit-learn."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.neighbors import NearestCentroid
from torch import Tensor

from murmuration.applications.continual.baselines import (
    BalancedReservoir,
    ClassMeans,
    NetworkConfig,
    NetworkLearner,
    Reservoir,
)
from murmuration.applications.continual.learner import Learner, State
from murmuration.models.nets import build_net
from murmuration.system.errors import Misuse
from murmuration.system.streams import global_stream


def batch(labels: tuple[int, ...], seed: int, count: int = 32) -> tuple[Tensor, Tensor]:
    """A batch of four Gaussians at the corners of a square, of which some labels."""
    rng = torch.Generator().manual_seed(seed)
    corners = torch.tensor([[3.0, 3.0], [-3.0, 3.0], [-3.0, -3.0], [3.0, -3.0]])
    y = torch.tensor(labels)[torch.randint(len(labels), (count,), generator=rng)]
    return corners[y] + torch.randn(count, 2, generator=rng), y


def taught(learner: Learner, steps: int = 60, told: bool = False) -> Learner:
    for task, labels in enumerate(((0, 1), (2, 3))):
        for step in range(steps):
            learner.observe(*batch(labels, 1000 * task + step), task if told else None)
    return learner


def accuracy(learner: Learner, labels: tuple[int, ...]) -> float:
    x, y = batch(labels, 99, count=500)
    return (learner.classify(x)[0] == y).float().mean().item()


def network(**settings) -> NetworkLearner:
    return NetworkLearner((2,), 4, NetworkConfig(**{"lr": 1e-2, "capacity": 40, **settings}))


def test_a_reservoir_is_a_uniform_sample() -> None:
    """Of 60 examples in three parts, 15 are kept; every third of the stream is in it equally often."""
    counts = np.zeros(3)
    for seed in range(300):
        memory = Reservoir(15)
        for part in range(3):
            x = torch.arange(20 * part, 20 * part + 20).float()[:, None]
            memory.add(x, torch.zeros(20).long(), torch.Generator().manual_seed(3 * seed + part))
        assert len(memory) == 15
        assert len(memory.x.unique()) == 15
        counts += np.histogram(memory.x, bins=(0, 20, 40, 60))[0]
    error = math.sqrt(15 * 2 / 9 * 300)  # of a count; sampling without replacement has less
    assert np.abs(counts - 1500).max() < 4 * error


def test_a_balanced_reservoir_has_equally_many_of_each_class() -> None:
    memory, rng = BalancedReservoir(12), torch.Generator().manual_seed(0)
    for label, count in ((0, 100), (1, 50), (2, 30), (3, 2)):
        x = torch.full((count, 1), float(label))
        for some in x.split(7):
            memory.add(some, torch.full((len(some),), label), rng)
    assert sorted(memory.y.bincount().tolist()) == [2, 3, 3, 4]
    assert torch.equal(memory.x[:, 0].long(), memory.y)


def test_plain_training_is_a_plain_loop() -> None:
    learner = network(net="mlp", lr=1e-3)
    with global_stream(0, "initialisation", 0):
        net = build_net("mlp", (2,), 4)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for step in range(5):
        x, y = batch((0, 1, 2, 3), step)
        learner.observe(x, y)
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
    x, _ = batch((0, 1, 2, 3), 7)
    torch.testing.assert_close(learner.predict(x).outputs[0], net(x).detach(), atol=1e-5, rtol=1e-5)


def test_the_members_of_an_ensemble_are_trained_alone() -> None:
    """Without replay, a member of three is what it is alone."""
    together, alone = network(members=3), network()
    for step in range(5):
        together.observe(*batch((0, 1), step))
        alone.observe(*batch((0, 1), step))
    x, _ = batch((0, 1), 9)
    torch.testing.assert_close(together.predict(x).outputs[0], alone.predict(x).outputs[0], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(together.predict(x).outputs[1], alone.predict(x).outputs[0], atol=1e-3)


def test_replay_keeps_what_plain_training_forgets() -> None:
    assert accuracy(taught(network()), (0, 1)) < 0.2
    for settings in ({"memory": "reservoir"}, {"memory": "balanced"}, {"memory": "reservoir", "members": 2}):
        learner = taught(network(**settings))
        assert min(accuracy(learner, (0, 1)), accuracy(learner, (2, 3))) > 0.9


def test_the_penalty_is_that_of_the_fisher_information() -> None:
    """On one weight: the importance is the mean squared gradient, and the penalty half of it times the change."""
    learner = network(penalty=10.0, fisher_examples=64)
    for step in range(10):
        learner.observe(*batch((0, 1), step), 0)
    learner.consolidate()
    own = {name: tensor + 0.1 for name, tensor in learner.population.own.items()}
    total = sum(float(value.sum()) for value in learner.importance.values())
    assert float(learner.change(own)) == pytest.approx(total * 0.01 / 2, rel=1e-4)
    assert float(learner.change(learner.population.own)) == 0
    bias = learner.importance["head.bias"][0]  # the gradient of the loss is p - onehot(y): E = p (1 - p)
    x = batch((0, 1), 9)[0]
    expected = learner.predict(x).mean
    assert float(bias.sum()) == pytest.approx(float((expected * (1 - expected)).sum(1).mean()), abs=0.15)


def test_a_large_penalty_holds_the_weights() -> None:
    free, held = (taught(network(penalty=penalty), steps=20, told=True) for penalty in (1e-6, 1e6))

    def moved(learner: NetworkLearner) -> float:
        return sum(float((learner.population.own[n] - learner.anchor[n]).square().sum()) for n in learner.anchor)

    assert moved(held) < moved(free)
    with pytest.raises(Misuse, match="needs to be told where a task begins"):
        network(penalty=1.0).observe(*batch((0, 1), 0))


def test_class_means_are_the_nearest_centroid() -> None:
    learner = ClassMeans((2,), shrinkage=None)
    x, y = batch((0, 1, 2, 3), 0, 200)
    for rows in torch.arange(200).split(64):
        learner.observe(x[rows], y[rows])
    fresh = batch((0, 1, 2, 3), 1, 500)[0]
    assert np.array_equal(learner.classify(fresh)[0], NearestCentroid().fit(x, y).predict(fresh))
    assert set(learner.classify(fresh)[1].tolist()) == {-1}
    assert accuracy(taught(ClassMeans((2,))), (0, 1)) > 0.95


LEARNERS = {
    "adam": lambda: network(),
    "replay": lambda: network(memory="reservoir"),
    "balanced": lambda: network(memory="balanced"),
    "ewc": lambda: network(penalty=5.0, fisher_examples=8),
    "ensemble": lambda: network(memory="reservoir", members=2),
    "means": lambda: ClassMeans((2,)),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_a_restored_learner_continues_with_the_same_bits(name: str) -> None:
    told = name == "ewc"

    def steps(learner: Learner, some: range) -> Learner:
        for step in some:
            task = step // 4
            learner.observe(*batch(((0, 1), (2, 3))[task % 2], step), task if told else None)
        return learner

    whole, first, second = LEARNERS[name](), LEARNERS[name](), LEARNERS[name]()
    steps(whole, range(12))
    state = steps(first, range(6)).state()
    second.restore(State({name: tensor.clone() for name, tensor in state.tensors.items()}, state.facts))
    steps(second, range(6, 12))
    expected, found = whole.state(), second.state()
    assert set(expected.tensors) == set(found.tensors)
    for key, tensor in expected.tensors.items():
        assert torch.equal(tensor, found.tensors[key]), key
    assert expected.facts == found.facts
    assert whole.memory() == second.memory()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NetworkConfig(memory="all"), "memory='all': expected none, reservoir"),
        (lambda: NetworkConfig(members=0), "members=0: need a whole number"),
        (lambda: NetworkConfig(lr=0), "lr=0: expected a positive"),
        (lambda: NetworkConfig(penalty=-1), "penalty=-1: expected"),
        (lambda: Reservoir(0), "capacity=0: need"),
        (lambda: ClassMeans((2,), shrinkage=2), "shrinkage=2: expected"),
        (lambda: ClassMeans((2,)).classify(torch.zeros(1, 2)), "has seen no batch"),
        (lambda: network().classify(torch.zeros(1, 2)), "has seen no batch"),
        (lambda: network().observe(torch.zeros(3, 3), torch.zeros(3).long()), "inputs of shape .3, 3."),
        (lambda: network().observe(torch.full((3, 2), math.nan), torch.zeros(3).long()), "NaN or infinite"),
    ],
)
def test_bad_settings_and_batches_are_refused(make, message: str) -> None:
    with pytest.raises(Misuse, match=message):
        make()
