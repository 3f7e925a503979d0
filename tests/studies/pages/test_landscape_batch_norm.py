"""Studies of networks with batch-norm compute statistics from the inputs that the networks were trained on."""

import torch
from torch import nn

import murmuration as mm
from murmuration.studies.pages.studies import STUDIES, Choices, Subject
from murmuration.studies.similarity import network_similarity
from murmuration.studies.weight_space import inputs_of


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def test_training_inputs_are_prepared_once():
    rng = torch.Generator().manual_seed(0)
    x = 50 + 20 * torch.randn(80, 2, generator=rng)  # far from standardised: preparing twice would move it to -2.5
    data = mm.open_data((x, (x[:, 0] > 50).long()))
    ensemble = mm.fit(net, data, members=2, epochs=2, posthoc=None, progress=False)
    subject = Subject(ensemble, data, data.test, None, Choices(), None)
    assert torch.equal(inputs_of(ensemble, subject.train), data.train.prepared)
    found = STUDIES["similarity"].run(subject).record
    expected = network_similarity(ensemble, data.test, train=data.train)
    (members,) = (each for name, each in found.parts.items() if name == "members")
    assert (members.accuracy == expected.accuracy).all()
    assert (members.disagreement == expected.disagreement).all()
