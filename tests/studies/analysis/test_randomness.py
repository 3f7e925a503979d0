"""The factorial of initialisation and batch order: zero where nothing differs, means over runs, continued if killed."""

import json
from dataclasses import replace

import numpy as np
import pytest

import murmuration as mm
from murmuration.data import Data
from murmuration.studies import Factorial, factorial
from murmuration.studies.randomness import MEASURES, over_runs

SETTINGS = {"runs": 2, "epochs": 1, "batch_size": 32, "lrs": (2e-3, 1e-2)}


@pytest.fixture(scope="module")
def little() -> Data:
    digits = mm.open_data("digits")
    return replace(digits, train=digits.train[:160], val=digits.val[:20], test=digits.test[:100])


@pytest.fixture(scope="module")
def found(little) -> Factorial:
    return factorial("small-cnn", little, **SETTINGS)


@pytest.mark.slow
def test_members_that_differ_in_nothing_are_equal(found):
    for measure in ("disagreement", "diversity", "distance"):
        assert (getattr(found, measure)[:, 0, 0] == 0).all()
    assert (found.distance.reshape(2, 4, 2)[:, 1:] > 0).all()
    assert found.cosine[:, 0, 0] == pytest.approx(1, abs=1e-12)
    determinism, *others = found.verdicts
    assert determinism.word == "holds"
    assert {verdict.word for verdict in others} == {"cannot tell"}  # two runs have no interval


def test_different_initial_weights_are_far_apart(found):
    assert (found.cosine[:, 0, 1] > 0.5).all()  # a few steps from one start
    assert (np.abs(found.cosine[:, 1]) < 0.2).all()
    assert found.examples == 100


def test_cells_are_those_of_plain_training(found, little):
    run = {"members": 2, "epochs": 1, "batch_size": 32, "engine": "threads", "posthoc": None}
    for place, same in (((1, 0, 1, 1), ("initialisation",)), ((0, 1, 1, 0), ()), ((0, 1, 0, 1), ("batches", "noise"))):
        ensemble = mm.fit("small-cnn", little, **run, lr=found.lrs[place[0]], seed=place[3], same=same)
        labels = ensemble.predict(little.test).outputs.argmax(-1)
        errors = (labels != little.test.y).double().mean(1)
        apart = (labels[0] != labels[1]).double().mean().item()
        assert found.disagreement[place] == pytest.approx(apart, abs=1e-12)
        assert found.diversity[place] == pytest.approx((apart / errors).mean().item(), abs=1e-12)
        assert found.accuracy[place] == pytest.approx(1 - errors.mean().item(), abs=1e-12)


def test_tables_and_records(found):
    frame = found.frame()
    assert len(frame) == 2 * 2 * 2 * len(MEASURES)
    row = frame[(frame.lr == 1e-2) & (frame.initialisation == "same") & (frame.batches == "different")]
    values = found.disagreement[1, 0, 1]
    got = row[row.measure == "disagreement"].iloc[0]
    assert (got["mean"], got["standard_error"], got["runs"]) == pytest.approx(
        (values.mean(), values.std(ddof=1) / np.sqrt(2), 2)
    )
    record = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert np.array_equal(record["disagreement"], found.disagreement)
    assert record["about"]["plan"]["members"] == 2


def test_standard_errors_are_those_of_the_bootstrap_over_runs():
    values = np.array([0.1, 0.4, 0.25, 0.3, np.nan])
    mean, error = over_runs(values)
    draws = np.random.default_rng(0).choice(values[:4], (40_000, 4)).mean(1)
    assert mean == pytest.approx(0.2625)
    assert error == pytest.approx(draws.std() * np.sqrt(4 / 3), rel=4 / np.sqrt(2 * 40_000))
    assert np.isnan(over_runs(np.array([0.1]))[1])


@pytest.mark.slow
def test_a_killed_factorial_continues_without_loss(found, little, tmp_path, monkeypatch):
    """Killed between two runs and within one: finished runs are read, a begun one is resumed."""
    from murmuration.studies import randomness as module

    fits, settings = [], {**SETTINGS, "lrs": (1e-2,)}
    train = module.fit

    def counted(*args, **kwargs):
        def show(text, done, total, record):
            if len(fits) == 3 and done == 3:
                raise KeyboardInterrupt

        fits.append(1)
        return train(*args, **{**kwargs, "progress": show, "checkpoint_seconds": 0})

    monkeypatch.setattr(module, "fit", counted)
    with pytest.raises(KeyboardInterrupt):
        factorial("small-cnn", little, **settings, folder=tmp_path)
    assert len(list(tmp_path.glob("*/run.json"))) == 1
    again = factorial("small-cnn", little, **settings, folder=tmp_path)
    assert len(fits) == 8  # the third was resumed
    for measure in MEASURES:
        assert np.array_equal(getattr(again, measure)[0], getattr(found, measure)[1])
    assert not list(tmp_path.glob("*/"))
    fewer = factorial("small-cnn", little, **{**settings, "runs": 1, "seed": 1}, folder=tmp_path)
    assert len(fits) == 8  # nothing is trained again
    assert np.array_equal(fewer.accuracy[..., 0], again.accuracy[..., 1])


def test_refusals(little):
    for settings, words in (
        ({"lr": 0.1}, "lr= with factorial"),
        ({"members": 1}, "members=1: a factorial compares members"),
        ({"runs": 0}, "runs=0"),
        ({"recipe": "function-rde"}, "function-rde has the same batches"),
        ({"nonsense": 1}, "unknown keyword of fit 'nonsense'"),
    ):
        with pytest.raises(mm.Misuse, match=words) as refused:
            factorial("mlp", little, **settings)
        assert "\n" not in str(refused.value)
    with pytest.raises(mm.Misuse, match="regression"):
        factorial("mlp", (np.random.default_rng(0).normal(size=(60, 2)), np.linspace(0, 1, 60)), task="regression")
