"""Budgets in steps, and early stopping by the mixture."""

import numpy as np
import pytest
import torch

import murmuration as mm
from murmuration.training.plan import Plan

NET = "mlp:hidden=8"


@pytest.fixture(scope="module")
def data() -> mm.Data:
    x = np.random.default_rng(0).normal(size=(100, 3))
    return mm.open_data((x, x[:, 0] + np.random.default_rng(1).normal(size=100)), val=0.3, test=0.2)


@pytest.mark.parametrize(("steps", "epochs"), [(1, 1), (4, 1), (5, 2), (20, 5)])
def test_steps_are_whole_epochs(steps, epochs, data):
    """50 training rows in batches of 15: four steps an epoch."""
    ensemble = mm.fit(NET, data, members=2, steps=steps, batch_size=15, posthoc=None)
    assert len(ensemble.history) == epochs
    assert ensemble.manifest.plan["steps"] == steps
    by_epochs = mm.fit(NET, data, members=2, epochs=epochs, batch_size=15, posthoc=None)
    assert torch.equal(ensemble.predict(data.test.x).outputs, by_epochs.predict(data.test.x).outputs)


@pytest.mark.parametrize("recipe", ["deep-ensemble", "tabm"])
def test_the_mixture_decides_for_all(recipe, data):
    settings = {"members": 3, "epochs": 40, "lr": 0.03, "patience": 4, "posthoc": None, "batch_size": 16}
    ensemble = mm.fit(NET, data, recipe=recipe, stop_by="ensemble", **settings)
    scores = [record["ensemble"]["val_nll"] for record in ensemble.history]
    best = int(np.argmin(scores))
    assert best + 1 < len(scores) == min(best + 1 + 4, 40)
    found = -ensemble.predict(data.val.x).log_prob(data.val.y).mean()
    assert float(found) == pytest.approx(scores[best], rel=1e-5)


def test_members_alone_keep_epochs_of_their_own(data):
    settings = {"members": 3, "epochs": 40, "lr": 0.03, "patience": 4, "posthoc": None, "batch_size": 16}
    ensemble = mm.fit(NET, data, stop_by="member", **settings)
    by_member = np.array([record["val_nll"] for record in ensemble.history], dtype=float)
    assert len(set(np.nanargmin(by_member, axis=0).tolist())) > 1


def test_misuse():
    with pytest.raises(mm.Misuse, match="unknown stop_by"):
        Plan(stop_by="mixture")
    with pytest.raises(mm.Misuse, match="steps=0"):
        Plan(steps=0)
