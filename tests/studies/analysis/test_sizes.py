"""Ensembles, subspaces and averages against ensemble size: exact subsets, scores by hand, corruptions, continuation."""

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import murmuration as mm
from murmuration.studies.divergence import jensen_shannon
from murmuration.studies.size_verdicts import (
    ByExample,
    addition_verdict,
    divergence_verdict,
    example_scores,
    growth_verdict,
    order_verdicts,
)
from murmuration.studies.sizes import (
    SCORED,
    Condition,
    Inputs,
    Sizes,
    ensemble_sizes,
    point_scores,
    runs_of,
    size_scores,
)
from murmuration.studies.subspaces import sample_subspace
from murmuration.studies.trajectory import open_trajectory
from murmuration.studies.weight_space import points_of
from murmuration.system.records import plain_json

SETTINGS = {"random": {"threshold": None, "radius": 0.5}, "pca": {"scale": 0.3, "rank": 2}}


def drawn(runs=4, inputs=50, classes=5):
    torch.manual_seed(0)
    return torch.randn(runs, inputs, classes).mul(2).softmax(-1), torch.arange(inputs) % classes


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "digits"
    data = mm.open_data("digits")
    ensemble = mm.fit("mlp", data, members=3, epochs=4, posthoc=None, trajectory="every-epoch", out=out)
    return ensemble, open_trajectory(out), data


def test_scores_are_those_of_the_table_of_measures():
    probs, y = drawn()
    expected = mm.score(mm.Predictive.from_probs(probs.mean(0)), y)
    np.testing.assert_allclose(point_scores(probs.mean(0), y), [expected[name] for name in SCORED], rtol=1e-6)


def test_golden_brier_scores_and_calibration_errors():
    def brier(rows, labels):
        return point_scores(torch.tensor(rows), torch.tensor(labels), ["brier"])[0]

    assert brier([[1.0, 0.0]], [0]) == 0
    assert brier([[1.0, 0.0]], [1]) == 2
    assert brier([[0.1] * 10], [3]) == pytest.approx(0.9)
    assert brier([[0.7, 0.2, 0.1]], [0]) == pytest.approx(0.14)
    sure = torch.tensor([[0.8, 0.2]]).repeat(10, 1)
    assert point_scores(sure, torch.tensor([0] * 8 + [1] * 2), ["ece"])[0] == pytest.approx(0, abs=1e-7)
    surer = torch.tensor([[0.9, 0.1]]).repeat(10, 1)
    assert point_scores(surer, torch.tensor([0] * 5 + [1] * 5), ["ece"])[0] == pytest.approx(0.4)
    certain = torch.tensor([[1.0, 0.0]]).repeat(4, 1)
    assert point_scores(certain, torch.tensor([0, 0, 0, 1]), ["ece"])[0] == pytest.approx(0.25)  # in the last bin
    assert point_scores(certain[:1], torch.tensor([1]), ["nll"])[0] == pytest.approx(-math.log(1e-12))


def test_ensembling_lowers_the_brier_score_by_the_ambiguity_and_the_nll():
    probs, y = drawn()
    probs = probs.double()
    single = np.stack([point_scores(each, y) for each in probs]).mean(0)
    together = point_scores(probs.mean(0), y)
    ambiguity = (probs - probs.mean(0)).square().sum(-1).mean().item()
    place = SCORED.index("brier")
    assert together[place] == pytest.approx(single[place] - ambiguity, abs=1e-12)
    assert together[SCORED.index("nll")] <= single[SCORED.index("nll")]


def test_sizes_average_over_all_subsets():
    probs, y = drawn()
    means, deviations = size_scores(probs, y, (1, 2, 3, 4, 5))
    for size in (1, 2, 3, 4):
        subsets = [point_scores(probs[list(s)].double().mean(0), y) for s in itertools.combinations(range(4), size)]
        np.testing.assert_allclose(means[size - 1], np.mean(subsets, axis=0), rtol=1e-12)
        np.testing.assert_allclose(deviations[size - 1], np.std(subsets, axis=0), atol=1e-12)
    assert np.isnan(means[4]).all()  # there are four runs
    again, _ = size_scores(probs[[2, 0, 3, 1]], y, (1, 2, 3, 4, 5))
    np.testing.assert_allclose(again, means, rtol=1e-6)  # the order of members is irrelevant
    same, none = size_scores(probs[:1].expand(4, 50, 5), y, (1, 3))
    np.testing.assert_allclose(same[0], same[1], rtol=1e-6)  # an ensemble of equal members is the member
    np.testing.assert_allclose(none, 0, atol=1e-7)
    few = size_scores(probs, y, (2,), most=2, seed=1)[0]
    assert not np.allclose(few, means[1])


@pytest.mark.slow
def test_methods_against_size_clean_corrupted_and_ood(trained, tmp_path):
    ensemble, path, data = trained
    settings = {"count": 6, "settings": SETTINGS, "samplers": ("random", "pca"), "examples": 80, "val": data.val}
    names = ["gaussian_noise", "contrast"]
    found = ensemble_sizes(
        ensemble, path, data, **settings, shift=names, severities=(1, 4), ood={"noise": torch.rand(20, 8, 8).numpy()}
    )
    assert found.methods == ("original", "average", "trajectory", "random", "pca")
    assert found.sizes == (1, 2, 3)
    assert found.severities == (0, 1, 4)
    assert found.subsets[0].tolist() == [3, 3, 1]
    assert found.exact.all()
    split = data.test[:80]
    probs = ensemble.predict(split).probs
    for size in (1, 2, 3):
        expected = size_scores(probs, split.y, (size,))[0][0]
        np.testing.assert_allclose([found.score("original", size, m) for m in SCORED], expected, rtol=1e-5, atol=1e-7)
    samples = sample_subspace(ensemble, path, 2, "pca", 6, **SETTINGS["pca"]).ensemble(ensemble).predict(split)
    alone = [
        point_scores(
            sample_subspace(ensemble, path, run, "pca", 6, **SETTINGS["pca"])
            .ensemble(ensemble)
            .predict(split)
            .mean_probs,
            split.y,
        )[2]
        for run in range(3)
    ]
    assert found.score("pca", 1, "brier") == pytest.approx(np.mean(alone), rel=1e-5)
    clean = Condition("", 0)
    assert found.together == 3
    assert found.divergences["independent"][clean] == pytest.approx(jensen_shannon(probs).mean().item(), rel=1e-5)
    assert found.divergence("pca") < found.divergence("independent")
    assert samples.probs.shape[0] == 6
    assert found.ood_names == ("noise",)
    assert found.divergences["independent"][Condition("noise", 0, True)] > 0
    assert {"independent", "trajectory", "random", "pca"} == set(found.divergences)  # one network does not diverge
    table = found.frame()
    assert list(table.columns) == ["method", "size", "condition", "severity", "measure", "value", "std", "subsets"]
    assert len(table) == 5 * 3 * 5 * 4 + 4 * 6
    json.dumps(plain_json(found), allow_nan=False)
    assert len(found.verdicts) == 3

    one = ensemble_sizes(ensemble, path, data, **settings, shift=["contrast"], severities=(4,))
    by_type = table.query("condition == 'contrast' and severity == 4 and measure == 'nll' and method == 'pca'")
    assert [one.score("pca", k, "nll", 4) for k in (1, 2, 3)] == pytest.approx(by_type["value"].tolist(), rel=1e-6)
    both = table.query("severity == 4 and measure == 'nll' and method == 'pca' and size == 3")["value"]
    assert found.score("pca", 3, "nll", 4) == pytest.approx(both.mean())
    assert one.score("original", 1, "brier") == pytest.approx(found.score("original", 1, "brier"), rel=1e-6)


def test_a_killed_comparison_continues_from_its_predictions(trained, tmp_path, monkeypatch):
    ensemble, _, data = trained
    given = {"samplers": ("dropout",), "count": 5, "examples": 40, "folder": tmp_path / "cells"}
    first = ensemble_sizes(ensemble, None, data, **given)
    assert first.methods == ("original", "dropout")  # without a trajectory
    (tmp_path / "cells" / "dropout-1-clean-0.npz").unlink()
    import murmuration.studies.sizes as sizes

    made, real = [], sizes.predictions_of
    monkeypatch.setattr(sizes, "predictions_of", lambda *a, **k: made.append(1) or real(*a, **k))
    again = ensemble_sizes(ensemble, None, data, **given)
    assert len(made) == 1
    np.testing.assert_array_equal(first.scores, again.scores)
    stored = np.load(tmp_path / "cells" / "original-0-clean-0.npz")
    assert stored["probs"].dtype == np.float32
    assert stored["probs"].shape == (40, 10)


def test_other_networks_beside_them_leave_the_predictions_of_the_runs_as_they_are(trained, tmp_path, monkeypatch):
    ensemble, _, data = trained
    given = {"samplers": ("dropout",), "count": 5, "examples": 40, "folder": tmp_path / "cells"}
    first = ensemble_sizes(ensemble, None, data, **given)
    import murmuration.studies.sizes as sizes

    made, real = [], sizes.predictions_of
    monkeypatch.setattr(sizes, "predictions_of", lambda *a, **k: made.append(1) or real(*a, **k))
    beside = ensemble_sizes(ensemble, None, data, others={"other": [ensemble]}, **given)
    assert len(made) == 1
    np.testing.assert_array_equal(beside.scores[:2], first.scores)
    changed = replace(ensemble, groups=tuple(replace(g, population=g.population.take([1, 0])) for g in ensemble.groups))
    ensemble_sizes(ensemble, None, data, others={"other": [changed]}, **given)  # the same name, other weights
    assert len(made) == 2
    with pytest.raises(mm.Misuse, match="named dropout, which is the name of a method here"):
        ensemble_sizes(ensemble, None, data, others={"dropout": [ensemble]}, **given)


def test_random_samples_are_judged_once_for_all_samplers(trained, monkeypatch):
    ensemble, _, data = trained
    from murmuration.studies.subspaces import Neighbourhood

    judged, real = [], Neighbourhood.accuracy

    def counted(self, vectors):
        found = list(vectors)
        judged.append(len(found))
        return real(self, found)

    monkeypatch.setattr(Neighbourhood, "accuracy", counted)
    near = {"radius": 0.1, "margin": 1.0}  # all are accepted
    settings = {"random": near, "pca-random": {**near, "rank": 2, "scale": 0.1}}
    given = {"count": 4, "settings": settings, "examples": 40, "val": data.val}
    ensemble_sizes(ensemble, None, data, samplers=("random", "pca-random"), **given)
    assert judged == [1, 4] * 3


def test_other_methods_are_split_into_runs(trained):
    ensemble, _, data = trained
    plan = {"members": 2, "epochs": 4, "posthoc": None}
    swag = mm.fit("mlp", data, recipe=mm.make_recipe("swag", dynamics="swag:draws=3"), **plan)
    parts = runs_of(swag)
    assert [part.members for part in parts] == [3, 3]
    everything = torch.cat([part.predict(data.test, calibrated=False).outputs for part in parts])
    torch.testing.assert_close(everything.mean(0), swag.predict(data.test).outputs.mean(0), rtol=1e-4, atol=1e-4)
    assert [part.members for part in runs_of(ensemble)] == [1, 1, 1]
    found = ensemble_sizes(
        ensemble, None, data, samplers=(), others={"swag": swag, "again": [ensemble, ensemble]}, examples=40
    )
    assert found.methods == ("original", "swag", "again")
    assert found.subsets.tolist() == [[3, 3, 1], [2, 1, 0], [2, 1, 0]]
    assert math.isnan(found.score("swag", 3, "nll"))
    whole = found.score("original", 3, "brier")
    assert found.score("again", 1, "brier") == pytest.approx(whole, rel=1e-5)
    assert found.score("again", 2, "brier") == pytest.approx(whole, rel=1e-5)
    few = ensemble_sizes([ensemble.member(0)], None, data, samplers=(), others={"three": ensemble}, examples=40)
    assert few.sizes == (1, 2, 3)
    assert few.verdicts == ()  # one run has no size to grow to, and nothing to diverge from


def test_plain_modules_and_what_is_refused(trained):
    ensemble, _, data = trained
    nets = [ensemble.member(index) for index in range(3)]
    split = data.test[:40]
    plain = ensemble_sizes(nets, None, (split.prepared, split.y), samplers=())
    whole = ensemble_sizes(ensemble, None, data, samplers=(), examples=40)
    np.testing.assert_allclose(plain.scores, whole.scores, rtol=1e-5, atol=1e-7)
    assert ensemble_sizes(nets, None, data, samplers=(), examples=20, shift=["contrast"]).severities == (
        0,
        1,
        2,
        3,
        4,
        5,
    )
    with pytest.raises(mm.Misuse, match="before their preparation"):
        ensemble_sizes(nets, None, (split.prepared, split.y), samplers=(), shift=["contrast"])
    with pytest.raises(mm.Misuse, match="accurate enough"):
        ensemble_sizes(nets, None, split, samplers=("random",), val=split, settings={"random": {"threshold": 1.5}})
    regression = mm.Ensemble.from_models([nn.Linear(3, 1)], task="regression")
    with pytest.raises(mm.Misuse, match="regression"):
        ensemble_sizes(regression, None, (torch.zeros(4, 3), torch.zeros(4)), samplers=())


def test_packs_of_networks_share_the_corrupted_inputs(trained, monkeypatch):
    ensemble, _, data = trained
    import murmuration.studies.sizes as sizes

    asked, real = [], Inputs.at
    monkeypatch.setattr(Inputs, "at", lambda self, condition: asked.append(condition) or real(self, condition))
    given = {"samplers": ("dropout",), "count": 4, "examples": 20, "shift": ["contrast"], "severities": (2,)}
    first = ensemble_sizes(ensemble, None, data, **given)
    assert len(asked) == 2  # clean and corrupted, once for all methods and runs
    parameters = points_of(ensemble).space.size
    monkeypatch.setattr(sizes.together_in_memory, "__defaults__", (4 * 5 * parameters,))
    again = ensemble_sizes(ensemble, None, data, **given)
    assert len(asked) == 2 + 2 * 4  # the runs and one sampled run do not fit together
    np.testing.assert_array_equal(first.scores, again.scores)


def synthetic(runs=4, inputs=400, classes=5, seed=0):
    """Runs with independent noise, subspaces that average some of it away, labels that the mean prefers."""
    rng = np.random.default_rng(seed)
    y = torch.from_numpy(rng.integers(classes, size=inputs))
    signal = 2.0 * torch.nn.functional.one_hot(y, classes).double()
    noisy = lambda scale: (signal + scale * torch.from_numpy(rng.normal(size=(runs, inputs, classes)))).softmax(-1)  # noqa: E731
    return {"original": noisy(2.0), "random": noisy(1.6)}, y


def record_of(divergences, methods=("original", "random", "pca", "diagonal", "trajectory")):
    clean, worst, ood = Condition("", 0), Condition("fog", 5), Condition("svhn", 0, True)
    scores = np.full((len(methods), 4, 2, 4), 0.7)
    scores[methods.index("pca"), :, 0, SCORED.index("accuracy")] = 0.6  # less accurate than one run
    groups = {
        group: {at: float(values[key].mean()) for at, key in ((clean, ("", 0)), (worst, ("", 5)), (ood, ("svhn", 0)))}
        for group, values in divergences.items()
    }
    counts = np.ones((len(methods), 4), dtype=int)
    return Sizes(methods, (1, 2, 3, 4), (clean, worst), SCORED, scores, scores, counts, counts > 0, groups, 4, 200)


def test_growth_and_addition_are_paired_over_runs_and_examples():
    probs, y = synthetic()
    values = ByExample({name: example_scores(rows, y) for name, rows in probs.items()}, {})
    scores = {name: np.array([point_scores(rows[[r]].mean(0), y) for r in range(4)]) for name, rows in probs.items()}
    whole = {name: point_scores(rows.mean(0), y) for name, rows in probs.items()}
    size = growth_verdict(values)
    column = {name: SCORED.index(name) for name in ("brier", "accuracy")}
    expected = [whole["original"][i] - scores["original"][:, i].mean() for i in column.values()]
    assert [each.value for each in size.estimates] == pytest.approx(expected)
    assert {each.over for each in size.estimates} == {"4 runs and 400 examples"}
    assert size.word == "holds"
    brier = column["brier"]
    record = record_of({}, ("original", "random", "pca"))
    added = addition_verdict(replace(record, methods=("original", "random")), values)
    expected = [
        whole["random"][brier] - whole["original"][brier],
        whole["original"][brier] - scores["random"][:, brier].mean(),
        scores["random"][:, brier].mean() - scores["original"][:, brier].mean(),
    ]
    assert [each.value for each in added.estimates] == pytest.approx(expected)


def test_brier_gain_by_the_jackknife_is_that_of_pairs():
    """The gain of all runs is half the mean squared distance of their predictions, times 1 - 1/R."""
    probs, y = synthetic()
    rows = probs["original"]
    values = ByExample({"original": example_scores(rows, y)}, {})
    apart = torch.stack([(rows[i] - rows[j]).square().sum(-1) for i, j in itertools.combinations(range(4), 2)])
    expected = -(1 - 1 / 4) * apart.mean().item() / 2
    assert growth_verdict(values).estimates[0].value == pytest.approx(expected)


def divergences(pca=0.2, growth=0.1):
    rng = np.random.default_rng(0)
    noise = lambda mean, runs: mean + 0.05 * rng.normal(size=(runs, 200))  # noqa: E731
    levels = {"independent": 0.5, "trajectory": 0.3, "random": 0.3, "pca": pca, "diagonal": 0.1}
    found = {}
    for group, level in levels.items():
        own = group == "independent"
        runs, worst = (1, level + growth) if own else (4, level)
        found[group] = {("", 0): noise(level, runs), ("", 5): noise(worst, runs), ("svhn", 0): noise(level, runs)}
    return found


def test_divergences_are_ordered_by_intervals():
    for pca, word in ((0.2, "holds"), (0.35, "does not hold"), (0.3, "cannot tell")):
        known = divergences(pca)
        values = ByExample({"original": {(0,): None, (0, 1, 2, 3): None}}, known)
        (verdict,) = order_verdicts(record_of(known), values)
        assert verdict.word == word
        assert len(verdict.estimates) == 5
    without = {group: rows for group, rows in divergences().items() if group != "pca"}
    assert list(order_verdicts(record_of(without), ByExample({}, without))) == []


def test_independent_runs_diverge_most_and_more_under_corruption():
    for growth, word in ((0.1, "holds"), (-0.1, "does not hold")):
        known = divergences(growth=growth)
        counts = {(0, 1, 2, 3): None}
        values = ByExample(dict.fromkeys(("original", "random", "pca", "diagonal", "trajectory"), counts), known)
        verdict = divergence_verdict(record_of(known), values)
        assert verdict.word == word
        assert len(verdict.estimates) == 6  # three accurate groups, at the severity and less clean
        assert "pca does not count" in verdict.note
        assert {each.over for each in verdict.estimates} == {"4 runs and 200 examples"}
