"""Ensembles of networks trained elsewhere: which tasks they have, and how they print."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from torch import nn

import murmuration as mm
from murmuration.system.errors import Misuse


def nets(count: int) -> list[nn.Module]:
    return [nn.Linear(4, 3) for _ in range(count)]


def test_an_unknown_task_is_refused_with_the_nearest_name():
    with pytest.raises(Misuse, match="unknown task 'clasification': did you mean 'classification'"):
        mm.Ensemble.from_models(nets(1), task="clasification")
    assert mm.Ensemble.from_models(nets(1), task="regression").likelihood is not None


def test_an_ensemble_prints_in_one_line(moons):
    trained = mm.fit("mlp", moons, plan=mm.Plan(members=2, epochs=1, engine="loop", posthoc=mm.PostHocConfig()))
    assert "2 members" in repr(trained)
    assert trained.posthoc is not None
    assert not trained.posthoc.choice.kept
    assert "recipe deep-ensemble, calibrator none (identity kept)" in repr(trained)
    kept = replace(trained.posthoc, choice=replace(trained.posthoc.choice, kept=True))
    assert "recipe deep-ensemble, calibrator temperature" in repr(replace(trained, posthoc=kept))
    for ensemble in (trained, mm.Ensemble.from_models([*nets(2), nn.Linear(4, 2)])):
        assert "\n" not in repr(ensemble)
        assert len(repr(ensemble)) < 140


def test_the_representation_names_task_classes_and_targets():
    settings = {"members": 1, "epochs": 1}
    assert repr(mm.fit("mlp:hidden=4", "iris", **settings)).endswith("classification of setosa, versicolor, virginica)")
    assert repr(mm.fit("mlp:hidden=4", "x-sin-x", **settings)).endswith(", regression)")
    table = mm.open_data("iris").train.x
    frame = pd.DataFrame(np.asarray(table), columns=["a", "b", "c", "price"])
    assert repr(mm.fit("mlp:hidden=4", frame, target="price", **settings)).endswith(", regression of price)")
