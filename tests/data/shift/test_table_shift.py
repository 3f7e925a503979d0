"""Shifts of tables: exact moves, shares within binomial error, and rows that do not know their batch."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from murmuration.data import ArrayPreparation, ImagePreparation, TablePreparation
from murmuration.data.preparation import SeveralPreparation, fit_array, fit_table
from murmuration.data.shift import (
    CORRUPTIONS,
    TABLE_SHIFTS,
    corruptions_for,
    select_corruptions,
    select_severities,
    shift_inputs,
    shift_table,
)
from murmuration.system.errors import Misuse

ROWS = 4000
LEVELS = ("blue", "green", "red")


def mixed_table(rows: int = ROWS, seed: int = 0) -> pd.DataFrame:
    """Numbers with and without missing ones, levels with and without, in alternating order."""
    rng = np.random.default_rng(seed)
    colour = rng.choice(LEVELS, rows).astype(object)
    holes = rng.uniform(size=rows)
    return pd.DataFrame(
        {
            "age": rng.normal(40.0, 10.0, rows),
            "colour": colour,
            "income": np.where(holes < 0.1, np.nan, rng.lognormal(3.0, 1.0, rows)),
            "size": np.where(holes > 0.9, None, np.where(holes > 0.5, "L", "S")),
            "height": rng.uniform(0.0, 2.0, rows),
        }
    )


TABLE = mixed_table()
PREPARATION = fit_table(TABLE)
X = PREPARATION.apply(TABLE)
# age | blue green red unseen | income, missing | L S missing unseen | height
NUMBERS, FLAG, COLOUR, SIZE = [0, 5, 11], 6, slice(1, 5), slice(7, 11)
PRESENT = torch.ones(ROWS, 3, dtype=torch.bool)
PRESENT[:, 1] = X[:, FLAG] == 0


def moved(name: str, severity: int, **place: int) -> Tensor:
    return shift_table(X, PREPARATION, name, severity, **place)


def within_binomial(share: float, probability: float, count: int) -> bool:
    return abs(share - probability) < 4 * np.sqrt(probability * (1 - probability) / count)


def test_the_layout_is_as_the_tests_say() -> None:
    assert [PREPARATION.names[i] for i in NUMBERS] == ["age", "income", "height"]
    assert PREPARATION.names[COLOUR] == ("colour=blue", "colour=green", "colour=red", "colour unseen")
    assert PREPARATION.names[SIZE] == ("size=L", "size=S", "size missing", "size unseen")
    assert PREPARATION.names[FLAG] == "income missing"


@pytest.mark.parametrize("severity", range(1, 6))
def test_noise_is_normal_with_the_stated_deviation(severity: int) -> None:
    sigma = TABLE_SHIFTS["feature_noise"].severities[severity - 1]
    noise = (moved("feature_noise", severity) - X)[:, NUMBERS].double()
    z = noise[PRESENT] / sigma
    assert abs(z.mean()) < 4 / np.sqrt(len(z))
    assert abs(z.var() - 1) < 4 * np.sqrt(2 / len(z))
    assert abs((z**4).mean() - 3) < 4 * np.sqrt(96 / len(z))  # the variance of z^4 is 105 - 9
    assert abs(torch.corrcoef(noise.T)[0, 2]) < 4 / np.sqrt(ROWS)
    assert not noise[~PRESENT].any()  # a missing number is the median still


def test_noise_drift_and_scale_leave_categories_and_flags_alone() -> None:
    others = [i for i in range(X.shape[1]) if i not in NUMBERS]
    for name in ("feature_noise", "covariate_drift", "scale_drift"):
        assert torch.equal(moved(name, 5)[:, others], X[:, others])


@pytest.mark.parametrize("severity", range(1, 6))
def test_drift_moves_every_number_by_the_same_deviations(severity: int) -> None:
    step = TABLE_SHIFTS["covariate_drift"].severities[severity - 1]
    difference = (moved("covariate_drift", severity) - X)[:, NUMBERS]
    for j in range(3):
        there = difference[PRESENT[:, j], j]
        assert (there - there[0].sign() * step).abs().max() < 2e-6  # float32 near 4
    assert not difference[~PRESENT].any()
    raw = TABLE["age"].mean() + difference[0, 0].sign().item() * step * TABLE["age"].std(ddof=0)
    again = PREPARATION.apply(TABLE.assign(age=TABLE["age"] - TABLE["age"].mean() + raw))
    assert torch.allclose(again[:, 0], moved("covariate_drift", severity)[:, 0], atol=1e-5)


def test_both_directions_of_drift_occur_and_follow_from_the_seed() -> None:
    wide = ArrayPreparation((400,), (0.0,) * 400, (1.0,) * 400)
    zeros = torch.zeros(2, 400)
    signs = [shift_table(zeros, wide, "covariate_drift", 3, seed=seed) for seed in (0, 0, 1)]
    assert torch.equal(signs[0], signs[1])
    assert set(signs[0].unique().tolist()) == {-1.0, 1.0}
    assert within_binomial((signs[0][0] > 0).double().mean().item(), 0.5, 400)
    assert within_binomial((signs[0][0] == signs[2][0]).double().mean().item(), 0.5, 400)


@pytest.mark.parametrize("severity", range(1, 6))
def test_scale_drift_is_a_gain_around_the_mean(severity: int) -> None:
    factor = TABLE_SHIFTS["scale_drift"].severities[severity - 1]
    after = moved("scale_drift", severity)
    for j, column in enumerate(NUMBERS):
        there = PRESENT[:, j]
        gain = (after[there, column] @ X[there, column]) / (X[there, column] @ X[there, column])
        assert min(abs(gain - factor), abs(gain - 1 / factor)) < 1e-5
        assert torch.allclose(after[there, column], gain * X[there, column], atol=1e-5)


@pytest.mark.parametrize("severity", range(1, 6))
def test_missing_cells_are_prepared_as_missing_cells_of_a_table(severity: int) -> None:
    after = moved("missing_values", severity)
    lost = TABLE.copy()
    changed = {
        "age": after[:, 0] != X[:, 0],
        "colour": (after[:, COLOUR] != X[:, COLOUR]).any(1),
        "income": after[:, FLAG] != X[:, FLAG],
        "size": (after[:, SIZE] != X[:, SIZE]).any(1),
        "height": after[:, 11] != X[:, 11],
    }
    for name, rows in changed.items():
        there = TABLE[name].notna().to_numpy()
        share = rows.numpy()[there].mean()
        assert within_binomial(share, TABLE_SHIFTS["missing_values"].severities[severity - 1], there.sum()), name
        lost.loc[rows.numpy(), name] = None
    assert torch.equal(PREPARATION.apply(lost), after)  # medians, flags and levels bit for bit
    unseen, missing = after[changed["colour"], 4], after[changed["size"], 9]
    assert (unseen == 1).all()  # training had no missing colour
    assert (missing == 1).all()


@pytest.mark.parametrize("severity", range(1, 6))
def test_swaps_replace_known_categories_by_others(severity: int) -> None:
    probability = TABLE_SHIFTS["category_swaps"].severities[severity - 1]
    after = moved("category_swaps", severity)
    assert torch.equal(after[:, NUMBERS], X[:, NUMBERS])
    for block, count in ((COLOUR, 3), (SIZE, 2)):
        hot, before = after[:, block], X[:, block]
        assert ((hot == 0) | (hot == 1)).all()
        assert (hot.sum(1) == 1).all()
        known = before.argmax(1) < count
        assert torch.equal(hot[~known], before[~known])  # what is missing cannot be miscoded
        swapped = (hot != before).any(1)[known]
        assert within_binomial(swapped.double().mean().item(), probability, int(known.sum()))
        assert (hot[known].argmax(1) < count).all()
    red = (X[:, 3] == 1) & (after[:, 3] == 0)
    assert within_binomial(after[red, 1].mean().item(), 0.5, int(red.sum()))  # red becomes blue as often as green


@pytest.mark.parametrize("name", TABLE_SHIFTS)
def test_rows_do_not_know_their_batch(name: str) -> None:
    whole = moved(name, 3, seed=5, first=100)
    for start, end in ((0, 1), (1, 2), (0, 7), (1023, 1025), (3990, ROWS)):
        part = shift_table(X[start:end], PREPARATION, name, 3, seed=5, first=100 + start)
        assert torch.equal(part, whole[start:end])
    assert shift_table(X[:0], PREPARATION, name, 3).shape == (0, X.shape[1])


@pytest.mark.parametrize("name", ["feature_noise", "missing_values", "category_swaps"])
def test_rows_and_seeds_draw_their_own_numbers(name: str) -> None:
    same = X[:1].repeat(300, 1)
    out = shift_table(same, PREPARATION, name, 5)
    assert len(out.unique(dim=0)) >= 3
    assert not torch.equal(out, shift_table(same, PREPARATION, name, 5, seed=1))
    assert not torch.equal(out, shift_table(same, PREPARATION, name, 5, first=1))
    assert torch.equal(out[1:], shift_table(same, PREPARATION, name, 5, first=1)[:-1])


@pytest.mark.parametrize("name", TABLE_SHIFTS)
def test_severity_grows_and_inputs_stay_as_they_are(name: str) -> None:
    before = X.clone()
    changes = [(moved(name, severity) - X).abs() for severity in range(1, 6)]
    assert torch.equal(before, X)
    for less, more in pairwise(changes):
        assert (more >= less - 1e-6).all() if name != "category_swaps" else (more.sum(1) >= less.sum(1)).all()
        assert more.sum() > less.sum()


def test_large_tables_are_shifted_in_blocks_that_do_not_show() -> None:
    wide = ArrayPreparation((300,), (0.0,) * 300, (1.0,) * 300)
    x = torch.zeros(2000, 300)  # 600 000 values, three blocks
    whole = shift_table(x, wide, "feature_noise", 5)
    assert torch.equal(whole[1500:], shift_table(x[1500:], wide, "feature_noise", 5, first=1500))
    assert abs(whole.double().std() - 1) < 4 / np.sqrt(2 * whole.numel())


def test_arrays_have_numbers_alone_and_lose_them_to_the_mean() -> None:
    x = np.random.default_rng(1).normal(3.0, 2.0, (500, 4))
    preparation = fit_array(x, (), prepare="standardise")
    out = shift_table(preparation.apply(x), preparation, "missing_values", 5)
    changed = out != preparation.apply(x)
    assert within_binomial(changed.double().mean().item(), 0.5, 2000)
    assert not out[changed].any()
    assert list(corruptions_for(preparation)) == ["feature_noise", "covariate_drift", "scale_drift", "missing_values"]


def categories_only(*columns: str) -> TablePreparation:
    return fit_table(TABLE[list(columns)])


def test_each_kind_of_input_is_offered_what_applies() -> None:
    assert corruptions_for(PREPARATION) == TABLE_SHIFTS
    assert list(corruptions_for(categories_only("colour"))) == ["missing_values", "category_swaps"]
    assert list(corruptions_for(fit_table(TABLE.assign(colour="red")[["colour"]]))) == ["missing_values"]
    grey = ImagePreparation((1, 8, 8), 16.0, (4.0,), (6.0,))
    assert list(corruptions_for(grey)) == [name for name in CORRUPTIONS if name != "saturate"]  # grey has no colour
    assert select_corruptions(replace(grey, shape=(3, 8, 8))) == list(CORRUPTIONS)
    assert select_corruptions(PREPARATION, ["scale_drift", "feature_noise", "scale_drift"]) == [
        "scale_drift",
        "feature_noise",
    ]
    assert select_severities() == [1, 2, 3, 4, 5]
    assert select_severities([4, 2]) == [2, 4]
    assert all(len(shift.severities) == 5 for shift in TABLE_SHIFTS.values())


def test_what_cannot_be_done_is_refused_in_one_line() -> None:
    with pytest.raises(Misuse, match=r"^severity 6: expected an integer from 1 to 5$"):
        moved("feature_noise", 6)
    with pytest.raises(Misuse, match=r"^severity 0: expected"):
        select_severities([1, 0])
    with pytest.raises(Misuse, match=r"^seed -1 and first 0: expected integers from 0$"):
        moved("feature_noise", 1, seed=-1)
    with pytest.raises(Misuse, match=r"^unknown corruption 'feature_nose': did you mean 'feature_noise'"):
        moved("feature_nose", 1)
    with pytest.raises(Misuse, match=r"^unknown corruption 'feature_nose': did you mean 'feature_noise'"):
        select_corruptions(PREPARATION, ["feature_nose"])
    with pytest.raises(Misuse, match=r"^no corruption given: expected some of feature_noise, "):
        select_corruptions(PREPARATION, [])
    with pytest.raises(Misuse, match=r"^no severity given: expected some of 1, 2, 3, 4, 5$"):
        select_severities([])
    numbers = fit_table(TABLE[["age"]])
    with pytest.raises(
        Misuse, match=r"^category_swaps changes categorical columns and this table has none: expected one"
    ):
        shift_inputs(numbers.apply(TABLE[["age"]]), numbers, "category_swaps", 1)
    with pytest.raises(Misuse, match=r"^examples have the shape \(3,\): expected \(12,\), as in training$"):
        shift_table(torch.zeros(2, 3), PREPARATION, "feature_noise", 1)
    with pytest.raises(Misuse, match=r"^inputs of shape \(2, 9\) are not a table: expected rows of D columns"):
        corruptions_for(ArrayPreparation((2, 9), (0.0, 0.0), (1.0, 1.0)))
    several = SeveralPreparation((("0", ArrayPreparation((2,), (0.0, 0.0), (1.0, 1.0))),), True)
    with pytest.raises(Misuse, match=r"^several inputs are not a table"):
        corruptions_for(several)
    with pytest.raises(Misuse, match=r"^images of 5 channels: expected grey \(1\) or colour \(3 or 4\) for"):
        corruptions_for(ImagePreparation((5, 8, 8), 255.0, (0.0,) * 5, (1.0,) * 5))
