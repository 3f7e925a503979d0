"""Inputs outside of the training range: counted, widened towards the prediction without inputs, not answered."""

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import murmuration as mm
from murmuration.data.preparation import fit_array, fit_table
from murmuration.data.ranges import ranges_of
from murmuration.evaluation.metrics.per_example import number_columns
from murmuration.prediction.outside import Baseline, Outside, fit_baseline, outside_of
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Misuse

WEIGHTS = (0.0, 0.3, 0.999)
PLAN = {"members": 2, "epochs": 2, "seed": 0}


def outside(weights=WEIGHTS) -> Outside:
    return Outside(torch.ones(len(weights), dtype=torch.long), torch.tensor(weights, dtype=torch.float64))


def regression(members: int = 3) -> Predictive:
    rng = np.random.default_rng(0)
    mean, std = rng.normal(size=(members, 3, 2)), rng.uniform(0.5, 2, (members, 3, 2))
    return Predictive.from_moments(mean, std, np.array([0.5, 0.3, 0.2]))


def classes() -> Predictive:
    return Predictive.from_probs(np.random.default_rng(0).dirichlet(np.ones(4), (3, 3)), np.array([0.5, 0.3, 0.2]))


NUMBERS = Baseline((1.0, -2.0), (4.0, 9.0))
FREQUENCIES = Baseline((0.1, 0.2, 0.3, 0.4), (0.09, 0.16, 0.21, 0.24))
Y = torch.tensor([[0.3, -1.0], [1.5, 2.0], [-0.7, 0.1]], dtype=torch.float64)
LABELS = torch.tensor([0, 2, 3])
REGRESSION_PARTS = ("mean", "aleatoric_var", "epistemic_var", "total_var")
CLASS_PARTS = ("mean", "entropy", "expected_entropy", "mutual_information", "aleatoric_var", "epistemic_var")
CLASS_PARTS = (*CLASS_PARTS, "aleatoric_covariance", "epistemic_covariance", "total_covariance")


def with_member(pred: Predictive, row: int, weight: float) -> Predictive:
    """Return the mixture of one row, with the baseline as one more member."""
    means, stds = pred.member_mean[:, row : row + 1], pred.member_var[:, row : row + 1].sqrt()
    mean, var = NUMBERS.moments
    weights = torch.cat([(1 - weight) * pred.member_weights, torch.tensor([weight], dtype=torch.float64)])
    return Predictive.from_moments(
        torch.cat([means, mean[None, None]]), torch.cat([stds, var.sqrt()[None, None]]), weights
    )


def with_classes(pred: Predictive, row: int, weight: float) -> Predictive:
    """Return the mixture of one row, with one more member for every class, which is certain of it."""
    frequencies = FREQUENCIES.moments[0]
    probs = torch.cat([pred.probs[:, row : row + 1], torch.eye(4, dtype=torch.float64)[:, None]])
    return Predictive.from_probs(probs, torch.cat([(1 - weight) * pred.member_weights, weight * frequencies]))


@pytest.mark.parametrize("row", range(3))
def test_a_regression_is_the_mixture_with_the_baseline_whose_variance_is_epistemic(row):
    plain = regression()
    wide, expected = replace(plain, outside=outside(), baseline=NUMBERS), with_member(plain, row, WEIGHTS[row])
    torch.testing.assert_close(wide.mean[row], expected.mean[0])
    torch.testing.assert_close(wide.total_var[row], expected.total_var[0])
    assert torch.equal(wide.total_var, wide.aleatoric_var + wide.epistemic_var)
    torch.testing.assert_close(wide.aleatoric_var[row], (1 - WEIGHTS[row]) * plain.aleatoric_var[row])
    torch.testing.assert_close(wide.log_prob(Y)[row], expected.log_prob(Y[row : row + 1])[0])
    torch.testing.assert_close(wide.cdf(Y)[row], expected.cdf(Y[row : row + 1])[0])
    for level in (0.05, 0.5, 0.95):
        torch.testing.assert_close(wide.quantile(level)[row], expected.quantile(level)[0])


@pytest.mark.parametrize("row", range(3))
def test_classes_are_the_mixture_with_members_that_are_certain_of_one_class_each(row):
    plain = classes()
    wide, expected = replace(plain, outside=outside(), baseline=FREQUENCIES), with_classes(plain, row, WEIGHTS[row])
    for name in CLASS_PARTS:
        torch.testing.assert_close(getattr(wide, name)[row], getattr(expected, name)[0], msg=name)
    assert torch.equal(wide.total_var, wide.aleatoric_var + wide.epistemic_var)
    torch.testing.assert_close(wide.log_prob(LABELS)[row], expected.log_prob(LABELS[row : row + 1])[0])
    parts, expected_parts = wide.uncertainties(), expected.uncertainties()
    for name, values in parts.items():
        torch.testing.assert_close(values[row], expected_parts[name][0], msg=name)


def test_labels_of_several_are_mixed_one_by_one():
    logits = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    plain = Predictive(logits, mm.MultiLabel(4))
    wide = replace(plain, outside=outside(), baseline=FREQUENCIES)
    for row, weight in enumerate(WEIGHTS):
        expected = (1 - weight) * plain.mean[row] + weight * FREQUENCIES.moments[0]
        torch.testing.assert_close(wide.mean[row], expected)
        torch.testing.assert_close(wide.total_var[row], expected * (1 - expected))
    assert torch.equal(
        wide.log_prob((Y > 0).double().repeat(1, 2))[:1], plain.log_prob((Y > 0).double().repeat(1, 2))[:1]
    )


def test_inputs_within_the_range_keep_their_bits():
    for plain, baseline, y in ((regression(), NUMBERS, Y), (classes(), FREQUENCIES, LABELS)):
        wide = replace(plain, outside=outside(), baseline=baseline)
        names = REGRESSION_PARTS if plain.task == "regression" else CLASS_PARTS
        for name in names:
            assert torch.equal(getattr(wide, name)[0], getattr(plain, name)[0]), name
            assert not torch.equal(getattr(wide, name)[2], getattr(plain, name)[2]), name
        assert torch.equal(wide.log_prob(y)[0], plain.log_prob(y)[0])
        if plain.task == "regression":
            assert torch.equal(wide.cdf(y)[0], plain.cdf(y)[0])
            assert torch.equal(wide.quantile(0.9)[0], plain.quantile(0.9)[0])
        else:
            assert all(torch.equal(v[0], plain.uncertainties()[name][0]) for name, v in wide.uncertainties().items())
        near = replace(plain, outside=outside((0.0, 0.0, 0.0)), baseline=baseline)
        assert torch.equal(near.mean, plain.mean)


def test_outside_follows_selected_and_joined_inputs():
    wide = replace(classes(), outside=outside(), baseline=FREQUENCIES)
    parts = list(wide.batches(2))
    assert [part.outside.weight.tolist() for part in parts] == [[0.0, 0.3], [0.999]]
    again = Predictive.concatenate(parts)
    assert torch.equal(again.mean, wide.mean)
    assert torch.equal(wide.at([2, 0]).entropy, wide.entropy[[2, 0]])
    assert wide.select([0]).outside is wide.outside
    with pytest.raises(Misuse, match="outside of 2 inputs, and there are 3"):
        replace(wide, outside=wide.outside.at(slice(2)))


def test_baselines_by_hand():
    assert fit_baseline(torch.tensor([0, 0, 1]), "classification", 3).mean == pytest.approx((3 / 6, 2 / 6, 1 / 6))
    assert fit_baseline(torch.tensor([[1.0], [3.0]]), "regression", 2) == Baseline((2.0,), (1.0,))
    assert fit_baseline(torch.tensor([[5.0], [5.0]]), "regression", 2).var == (1.0,)
    assert fit_baseline(torch.tensor([[1, 0], [1, 1]]), "multi-label", 2).mean == (0.75, 0.5)
    with pytest.raises(Misuse, match="expected positive ones"):
        Baseline((1.0,), (0.0,))


TABLE = pd.DataFrame({"a": np.arange(41.0), "b": [*range(40), np.nan], "c": ["x", "y"] * 20 + ["x"]})


def test_values_outside_are_counted_by_hand():
    preparation = fit_table(TABLE)
    rows = pd.DataFrame(
        {"a": [0.0, 40.0, 41.0, -1.0, 80.0], "b": [0.0, 39.0, None, 39.5, -39.0], "c": ["x", "y", "z", None, "x"]}
    )
    count, distance = ranges_of(preparation).outside(preparation.apply(rows))
    assert count.tolist() == [0, 0, 2, 3, 2]  # `b` was missing in training too, `c` was not
    unknown = np.sqrt(0.9**2 / 3)  # the numbers are within the margin
    assert distance[:4].tolist() == pytest.approx([0, 0, unknown, unknown])
    a, b = 40 / 40 - 0.1, 39 / 39 - 0.1
    assert distance[4].item() == pytest.approx(np.sqrt((a**2 + b**2) / 3), rel=1e-6)
    weight = outside_of(ranges_of(preparation), preparation.apply(rows)).weight
    assert weight[4].item() == pytest.approx(distance[4].item() ** 4 / (distance[4].item() ** 4 + 0.5**4))


@pytest.mark.parametrize("way", ["standardise", "robust"])
def test_training_rows_are_inside_and_distances_do_not_depend_on_scaling(way):
    x = np.random.default_rng(0).gamma(1.0, size=(90, 3))
    preparation = fit_array(x, (), way)
    count, distance = ranges_of(preparation).outside(preparation.apply(x))
    assert count.sum() == 0
    assert distance.sum() == 0
    far = x.max(0) + 3 * (x.max(0) - x.min(0))
    count, distance = ranges_of(preparation).outside(preparation.apply(np.stack([far, x.min(0) - 1e6])))
    assert count.tolist() == [3, 3]
    assert distance[0].item() == pytest.approx(2.9, rel=1e-3)
    assert distance[1].item() > 1e2


def test_unprepared_inputs_have_no_ranges():
    assert ranges_of(fit_array(np.zeros((5, 2)), (), "none")) is None
    assert mm.fit("mlp", "two-moons", members=1, epochs=1).predict(torch.full((2, 2), 1e3)).outside is None


def fitted_table(**settings) -> tuple[mm.Ensemble, pd.DataFrame]:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"km": rng.gamma(3, 30, 240), "year": rng.integers(2005, 2024, 240), "hp": rng.normal(size=240)}
    )
    table["price"] = 100 - 0.2 * table["km"] + 3 * (table["year"] - 2005) + rng.normal(size=240)
    return mm.fit("mlp:hidden=8", table, target="price", members=3, epochs=8, **settings), table


def test_numbers_far_outside_are_not_answered_with_confidence():
    ensemble, table = fitted_table(posthoc=mm.PostHocConfig(abstain_cost=1000.0))
    row = table.iloc[[3]]
    far = pd.concat([row, row.assign(km=1e12), row.assign(km=1e12, year=10**9, hp=1e9)])
    pred = ensemble.predict(far)
    spread = table["price"].std()
    assert pred.outside.count.tolist() == [0, 1, 3]
    assert (pred.total_var[1:].sqrt() > 0.8 * spread).all()
    assert (pred.epistemic_var[1:] > 0.9 * pred.total_var[1:]).all()
    low, high = pred.interval(0.9)
    assert ((high - low)[1:] > 2 * spread).all()
    assert ((low < table["price"].mean()) & (table["price"].mean() < high))[1:].all()
    frame = pred.to_pandas()
    assert frame["outside"].tolist() == [0, 1, 3]
    assert frame["answered"].tolist() == [True, False, False]
    alone = ensemble.predict(row)
    for name in REGRESSION_PARTS:
        assert torch.equal(getattr(alone, name), getattr(ensemble.predict(row, calibrated=True), name))


def test_arrays_far_outside_have_the_frequencies_of_the_classes():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 4))
    y = (x[:, 0] + 0.3 * rng.normal(size=300) > 0.5).astype(int)
    ensemble = mm.fit("mlp:hidden=8", (x, y), **PLAN)
    pred = ensemble.predict(np.concatenate([x[:5], 1000 * x[:5]]))
    frequencies = torch.tensor(ensemble.posthoc.baseline.mean, dtype=torch.float64)
    assert (pred.mean[5:] - frequencies).abs().max() < 1e-3
    entropy = -(frequencies * frequencies.log()).sum()
    assert (pred.mutual_information[5:] - entropy).abs().max() < 1e-2
    assert not pred.to_pandas()["answered"][5:].any()
    raw = ensemble.predict(np.concatenate([x[:5], 1000 * x[:5]]), calibrated=False)
    assert raw.confidence[5:].max() > 0.9  # the members as they are
    assert torch.equal(raw.outside.count, pred.outside.count)


def test_saved_runs_and_streams_widen_alike(tmp_path):
    ensemble, table = fitted_table()
    ensemble.save(tmp_path / "run")
    far = pd.concat([table.iloc[:5], table.iloc[:5] * 50])
    far.to_parquet(tmp_path / "far.parquet")
    expected = ensemble.predict(far)
    assert torch.equal(mm.load(tmp_path / "run").predict(far).total_var, expected.total_var)
    for in_memory in (True, False):
        file = tmp_path / f"{in_memory}.csv"
        mm.save_predictions(ensemble, tmp_path / "far.parquet", file, in_memory=in_memory)
        written = pd.read_csv(file)
        assert written["outside"].tolist() == expected.outside.count.tolist()
        np.testing.assert_allclose(written["total_std_price"], expected.total_var.sqrt()[:, 0], rtol=1e-8)


def test_far_away_intervals_and_variances_are_those_of_the_baseline_however_far_networks_extrapolate():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    y = 100 + 3 * rng.normal(size=200)
    ensemble = mm.fit(lambda: torch.nn.Linear(2, 2), (x, y), members=3, epochs=3, posthoc=mm.PostHocConfig())
    (mean,), (var,) = ensemble.posthoc.baseline.moments
    far = np.array([[scale, 0.0] for scale in (1e4, 1e6, 1e12, 9.97e36)])
    pred = ensemble.predict(np.concatenate([x[:1], far]))
    assert ensemble.predict(far, calibrated=False).member_mean.abs().max() > 1e30
    for level in (0.05, 0.5, 0.95):
        expected = (mean + var.sqrt() * torch.special.ndtri(torch.tensor(level))).expand(4, 1)
        torch.testing.assert_close(pred.quantile(level)[1:], expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(pred.mean[1:], mean.expand(4, 1), rtol=1e-4, atol=0)
    torch.testing.assert_close(pred.total_var[1:], var.expand(4, 1), rtol=1e-3, atol=0)


def test_quantiles_of_members_that_are_far_off_keep_the_bits_of_the_scale_of_the_baseline():
    means = np.array([[[1e30], [-1e30], [1e30]]] * 2)
    weights = (1.0, 1 - 1e-9, 0.9)
    wide = replace(
        Predictive.from_moments(means, np.ones((2, 3, 1))), outside=outside(weights), baseline=Baseline((1.0,), (4.0,))
    )
    normal = torch.distributions.Normal(torch.tensor(1.0).double(), torch.tensor(2.0).double())
    levels = torch.tensor([0.6, (0.6 - 1e-9) / (1 - 1e-9), 0.6 / 0.9], dtype=torch.float64)
    torch.testing.assert_close(wide.quantile(0.6)[:, 0], normal.icdf(levels), rtol=1e-10, atol=0)


def test_imputed_values_count_where_training_had_none_missing():
    ensemble, table = fitted_table()
    gap = table.iloc[:4].assign(hp=[None, 0.0, None, 0.0])
    with pytest.warns(UserWarning, match="2 of 4 values of column 'hp' are missing, and none was in training"):
        pred = ensemble.predict(gap)
    assert (pred.outside.count - ensemble.predict(table.iloc[:4]).outside.count).tolist() == [1, 0, 1, 0]


def test_missing_values_that_training_had_too_do_not_count():
    table = TABLE.assign(c=[None, *TABLE.c[1:]])
    gaps = pd.DataFrame({"a": [1.0, 1.0], "b": [None, 1.0], "c": [None, "x"]})
    count, distance = ranges_of(fit_table(table)).outside(fit_table(table).apply(gaps))
    assert (count.tolist(), distance.tolist()) == ([0, 0], [0, 0])


def test_unknown_categories_widen_unless_training_had_rare_ones():
    rows = np.arange(300)
    table = pd.DataFrame({"kind": np.array(["a", "b", "c"])[rows % 3], "y": 50.0 * (rows % 3) + rows % 5})
    new = pd.DataFrame({"kind": ["b", "zzz"]})
    ensemble = mm.fit("mlp:hidden=8", table, target="y", members=2, epochs=2)
    predictive = ensemble.predict(new)
    assert predictive.outside.count.tolist() == [0, 1]
    assert torch.allclose(predictive.outside.weight, torch.tensor([0, 0.9**4 / (0.9**4 + 0.5**4)]).double())
    assert predictive.total_var[1, 0] > 0.5 * table["y"].var()
    rare = table.assign(kind=table["kind"].where(rows != 7, "rare"))
    ranges = ranges_of(fit_table(rare[["kind"]]))
    count, distance = ranges.outside(fit_table(rare[["kind"]]).apply(new))
    assert (count.tolist(), distance.tolist()) == ([0, 1], [0, 0])


def test_evaluation_scores_what_predict_returns():
    ensemble, table = fitted_table()
    far = pd.concat([table.iloc[:60], table.iloc[:60] * 3])
    expected = mm.score(ensemble.predict(far), far["price"].to_numpy())
    assert mm.evaluate(ensemble, far).scores["nll"] == pytest.approx(expected["nll"])


@pytest.mark.parametrize("outliers", [0.0, 0.1])
def test_the_crps_of_a_mixture_with_the_baseline_is_its_integral(outliers):
    rng = np.random.default_rng(0)
    plain = Predictive.from_moments(rng.normal(size=(3, 3, 1)), rng.uniform(0.5, 2, (3, 3, 1)), outliers=outliers)
    wide = replace(plain, outside=outside(), baseline=Baseline((1.0,), (4.0,)))
    y = torch.tensor([[0.3], [1.5], [-0.7]], dtype=torch.float64)
    grid = torch.linspace(-40, 40, 40_001, dtype=torch.float64)
    cdf = torch.stack([wide.cdf(t.expand(3, 1))[:, 0] for t in grid[::20]], 1)  # (N, G)
    steps = grid[::20]
    expected = torch.trapezoid((cdf - (steps >= y).double()).square(), steps, dim=1)
    got = number_columns(wide, y)["crps"]
    torch.testing.assert_close(got, expected, rtol=0, atol=2e-2)
    assert torch.equal(got[:1], number_columns(plain, y)["crps"][:1])


def test_a_file_of_predictions_names_the_columns_outside(tmp_path: Path):
    table = pd.DataFrame({"km": np.arange(60.0), "hp": np.arange(60.0) % 7, "brand": ["a", "b"] * 30})
    ensemble = mm.fit("mlp:hidden=4", table.assign(y=[0, 1, 1] * 20), target="y", members=1, epochs=1, progress=False)
    inside = table.iloc[20:25]
    far = inside.assign(km=[20.0, 21.0, 1e4, 23.0, -9.0], brand=["a", "c", "a", "b", "c"])
    with pytest.warns(UserWarning, match="outside of training") as notes:
        mm.save_predictions(ensemble, far, tmp_path / "p.csv")
    message = "3 of 5 rows have inputs outside of training (columns km, brand); see the column outside"
    assert [str(note.message) for note in notes] == [message]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mm.save_predictions(ensemble, inside, tmp_path / "p.csv")
    arrays = mm.fit("mlp:hidden=4", (np.arange(60.0)[:, None], [0, 1, 1] * 20), members=1, epochs=1, progress=False)
    with pytest.warns(UserWarning, match="^1 of 2 rows have inputs outside of training; see the column outside$"):
        mm.save_predictions(arrays, np.array([[3.0], [900.0]]), tmp_path / "p.npz")
