"""What `fit` takes, `predict` takes: arrays, tensors, tables, paths and splits, in process and after `load`."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import picture
import pytest
import torch
from PIL import Image
from torch import nn

import murmuration as mm
from murmuration.cli import main
from murmuration.system.errors import Misuse

RNG = np.random.default_rng(0)
X = RNG.normal(3, 40, (200, 4))
Y = (X[:, 0] > 3).astype(np.int64)
PLAN = {"members": 2, "epochs": 2, "engine": "loop", "lr": 1e-2}
CLI_PLAN = ("--net", "mlp", "--members", "2", "--epochs", "1", "--engine", "loop")


def frame(count: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    size, colour = rng.normal(10, 5, count), rng.choice(["red", "green"], count)
    return pd.DataFrame({"size": size, "colour": colour, "price": 3 * size + (colour == "red") + 1000.0})


def photos(folder: Path, sizes: tuple[tuple[int, int], ...], each: int = 8) -> Path:
    rng = np.random.default_rng(2)
    for label, brightness in (("dark", 40), ("light", 200)):
        (folder / label).mkdir(parents=True)
        for i in range(each):
            pixels = rng.normal(brightness, 20, (*sizes[i % len(sizes)], 3)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{i}.png")
    return folder


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(50, 8), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.embedding(x).mean(1))


def outputs(ensemble: mm.Ensemble, x: object, **options: bool) -> torch.Tensor:
    return ensemble.predict(x, **options).outputs  # type: ignore[arg-type]


def test_predict_prepares_as_fit_did(tmp_path: Path) -> None:
    ensemble = mm.fit("mlp", (X, Y), out=tmp_path / "run", members=2, epochs=30, lr=1e-2, engine="loop")
    assert mm.score(ensemble.predict(X), Y)["accuracy"] > 0.95
    assert torch.equal(outputs(ensemble, X), outputs(ensemble, torch.from_numpy(X)))
    again = mm.load(tmp_path / "run")
    assert torch.equal(outputs(again, X), outputs(ensemble, X))
    exact = ensemble.prepare(X)
    assert torch.equal(outputs(again, exact, prepared=True), outputs(ensemble, X))
    parts = torch.cat([part.outputs for part in again.stream(X, 64)], 1)
    torch.testing.assert_close(parts, outputs(ensemble, X))  # products of other sizes may be rounded otherwise


@pytest.mark.parametrize("source", ["iris", "digits", "diabetes"])
def test_a_split_its_raw_and_its_prepared_inputs_are_predicted_alike(source: str) -> None:
    data = mm.open_data(source)
    ensemble = mm.fit("mlp", data, **PLAN)
    expected = outputs(ensemble, data.test.prepared, prepared=True)
    for given in (data, data.test, data.test.x):
        assert torch.equal(outputs(ensemble, given), expected)


def test_tables_by_name(tmp_path: Path) -> None:
    table = frame()
    table.to_csv(tmp_path / "prices.csv", index=False)
    ensemble = mm.fit("mlp", table, target="price", **PLAN)
    expected = outputs(ensemble, table)
    for given in (table[["colour", "price", "size"]], table.drop(columns="price"), str(tmp_path / "prices.csv")):
        assert torch.equal(outputs(ensemble, given), expected)
    pair = mm.fit("mlp", (table[["size", "colour"]], table["price"]), **PLAN)
    assert torch.equal(outputs(pair, table[["colour", "size"]]), expected)
    with pytest.raises(Misuse, match="no column 'colour' in the table: expected it; found size"):
        ensemble.predict(table[["size"]])
    with pytest.warns(UserWarning, match="the table has columns that training did not have, which are ignored: id"):
        ensemble.predict(table.assign(id=range(120)))
    with pytest.raises(Misuse, match=r"inputs of shape \(3, 2\) for a run trained on a table"):
        ensemble.predict(np.zeros((3, 2)))


def test_folders_of_photos_of_different_sizes(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos", ((20, 30), (40, 24), (25, 25)), each=12)
    with pytest.warns(UserWarning, match="the images have 3 sizes: all are resized and cropped to 64x64"):
        ensemble = mm.fit("small-cnn", str(folder), **PLAN)
    assert mm.fit("mlp", mm.open_data(folder, size=16), **PLAN).manifest.input_shape == [3, 16, 16]
    (tmp_path / "new").mkdir()
    Image.new("RGB", (90, 50), (250, 250, 250)).save(tmp_path / "new" / "a.jpg")
    Image.new("L", (30, 70), 10).save(tmp_path / "new" / "b.png")
    assert outputs(ensemble, tmp_path / "new").shape == (2, 2, 2)


def test_photos_are_upright_and_may_be_listed_in_a_table(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos", ((16, 16),))
    paths = sorted(folder.rglob("*.png"))
    listing = pd.DataFrame({"file": [str(path.relative_to(tmp_path)) for path in paths]})
    listing["label"] = [path.parent.name for path in paths]
    listing.to_csv(tmp_path / "listing.csv", index=False)
    data, plain = mm.open_data(tmp_path / "listing.csv", target="label"), mm.open_data(folder)
    assert (data.classes, data.input_shape) == (plain.classes, (3, 16, 16))
    assert torch.equal(data.train.prepared, plain.train.prepared)
    turned = Image.fromarray(np.arange(8 * 4 * 3, dtype=np.uint8).reshape(4, 8, 3))
    exif = turned.getexif()
    exif[0x0112] = 6  # turned by 90 degrees
    (tmp_path / "turned").mkdir()
    turned.save(tmp_path / "turned" / "a.png", exif=exif)
    preparation = mm.data.ImagePreparation((3, 8, 4), 255.0, (0.0,) * 3, (1.0,) * 3)
    found = mm.data.open_inputs(tmp_path / "turned", preparation=preparation)
    assert torch.equal(found[0, 0], torch.rot90(torch.from_numpy(np.array(turned))[..., 0], -1).float())


def test_tokens_only_where_asked() -> None:
    x = RNG.integers(0, 50, (80, 7))
    y = (x < 25).sum(1) > 3
    for options in ({"inputs": "tokens"}, {"prepare": "none"}):
        ensemble = mm.fit(Tokens, (x, y), **options, **PLAN)
        assert ensemble.prepare(x).dtype == torch.int64
        assert torch.equal(outputs(ensemble, x[:9]), outputs(ensemble, torch.from_numpy(x[:9])))
        with pytest.raises(Misuse, match="x has type float64 for a run trained on tokens: expected whole numbers"):
            ensemble.predict(x.astype(float))
    numbers = mm.fit("mlp", (x, y), **PLAN)
    assert numbers.prepare(x).dtype == torch.float32
    with pytest.raises(Misuse, match="coupling input-gradients with tokens, which have no gradient"):
        mm.fit(Tokens, (x, y), inputs="tokens", recipe="forde", **PLAN)
    with pytest.raises(Misuse, match="inputs='tokens' with x of type float64: expected whole numbers"):
        mm.fit(Tokens, (x / 2, y), inputs="tokens", **PLAN)


def test_series_are_not_images() -> None:
    x = RNG.uniform(0, 1, (60, 3, 20)).astype(np.float32)
    data = mm.open_data((x, np.arange(60) % 2))
    assert data.input_shape == (3, 20)
    assert mm.open_data((x, np.arange(60) % 2), inputs="images").input_shape == (1, 3, 20)
    images = np.repeat(np.arange(60, dtype=np.uint8)[:, None, None], 8, 1).repeat(8, 2)
    assert mm.open_data((images, np.arange(60) % 2)).input_shape == (1, 8, 8)


def test_later_images_in_other_units_are_rescaled_or_refused() -> None:
    pixels = RNG.integers(0, 256, (40, 6, 6)).astype(np.uint8)
    ensemble = mm.fit("mlp", (pixels, np.arange(40) % 2), **PLAN)
    assert torch.allclose(ensemble.prepare(pixels / 255.0), ensemble.prepare(pixels), atol=1e-5)
    dark = np.zeros((1, 6, 6))
    assert torch.equal(ensemble.prepare(dark), ensemble.prepare(dark.astype(np.uint8)))
    with pytest.raises(Misuse, match=r"images of zeros and ones for a run trained on pixels in 0\.\.255, which could"):
        ensemble.predict(np.eye(6)[None])
    floats = mm.fit("mlp", (pixels[:, None] / 255.0, np.arange(40) % 2), **PLAN)
    assert torch.allclose(floats.prepare(pixels[:, None]), floats.prepare(pixels[:, None] / 255.0), atol=1e-5)
    with pytest.raises(Misuse, match=r"images with values up to 255, and training's lie in 0\.\.1: divide them by 255"):
        floats.predict(np.full((1, 1, 6, 6), 255.0))


def test_what_does_not_fit_is_refused_in_one_line() -> None:
    ensemble = mm.fit("mlp", (X, Y), **PLAN)
    with pytest.raises(Misuse, match=r"examples have the shape \(3,\): expected \(4,\), as in training"):
        ensemble.predict(X[:, :3])
    with pytest.raises(Misuse, match=r"one example of shape \(4,\) without an axis for examples: write x\[None\]"):
        ensemble.predict(X[0], prepared=True)
    spoilt = X.copy()
    spoilt[3, 1] = np.nan
    with pytest.raises(Misuse, match=r"x\[3, 1\] is nan"):
        ensemble.predict(spoilt)
    with pytest.raises(Misuse, match="the inputs hold NaN or infinite values"):
        ensemble.predict(torch.full((2, 4), torch.nan), prepared=True)
    with pytest.raises(Misuse, match=r"x\[3, 1\] is nan"):
        mm.fit("mlp", (spoilt, Y), **PLAN)
    with pytest.raises(Misuse, match=r"net is a ndarray: the network comes first, mm.fit\('mlp', \(x, y\)\)"):
        mm.fit(X, Y)
    with pytest.raises(Misuse, match="val= with a Data, which is split and prepared: give them to open_data"):
        mm.fit("mlp", mm.open_data("iris"), val=0.3)


def test_fit_trains_on_all_but_a_validation_part() -> None:
    def sizes(**options: object) -> tuple[int, ...]:
        ensemble = mm.fit("mlp", (X, Y), **PLAN, **options)
        return tuple(ensemble.manifest.data["examples"].values())

    assert sizes() == (170, 30, 0)
    assert sizes(val=0.4) == (120, 80, 0)
    assert sizes(val=(X[:30], Y[:30])) == (200, 30, 0)
    assert sizes(val=np.arange(50)) == (150, 50, 0)
    assert sizes(val=np.arange(200) < 20, test=0.1) == (160, 20, 20)


def test_splitters_groups_and_times() -> None:
    from sklearn.model_selection import GroupKFold, KFold

    groups, times = np.arange(200) // 10, RNG.permutation(200)
    data = mm.open_data((X, Y), val=KFold(5), test=0.0)
    assert np.array_equal(data.val.x, X[:40])
    for options in ({"groups": groups}, {"groups": groups, "val": GroupKFold(5)}):
        data = mm.open_data((X, Y), **options)
        parts = [set(groups[[int(np.flatnonzero((row == X).all(1))[0]) for row in s.x]]) for s in splits(data)]
        assert sum(map(len, parts)) == len(set.union(*parts))
        assert all(parts)
    data = mm.open_data((X, Y), time=times)
    order = [times[[int(np.flatnonzero((row == X).all(1))[0]) for row in s.x]] for s in splits(data)]
    assert order[0].max() < order[1].min()
    assert order[1].max() < order[2].min()
    assert [len(each) for each in order] == [140, 20, 40]


def splits(data: mm.Data) -> tuple[mm.Split, mm.Split, mm.Split]:
    return data.train, data.val, data.test


def test_columns_that_are_not_inputs(tmp_path: Path) -> None:
    table = frame().assign(patient=[f"p{i // 4}" for i in range(120)], row=range(120), weight=1.5)
    with pytest.warns(UserWarning, match="column 'row' has 84 distinct values in 84 rows and the name of a key"):
        mm.open_data(table, target="price", groups="patient", weight="weight")
    data = mm.open_data(table, target="price", groups="patient", weight="weight", drop="row")
    assert data.feature_names == ("size", "colour=green", "colour=red", "colour unseen")
    assert data.train.weight is not None
    assert data.train.weight.unique().tolist() == [1.5]
    assert torch.equal(data.preparation.apply(table), data.preparation.apply(table[["size", "colour"]]))
    with pytest.raises(Misuse, match="no column 'pateint' in the table: did you mean 'patient'"):
        mm.open_data(table, target="price", groups="pateint")
    with pytest.raises(Misuse, match="'price' is the target: it cannot be dropped"):
        mm.open_data(table, target="price", drop="price")
    with pytest.raises(Misuse, match="groups='patient' names a column, but digits is not a table: give an array"):
        mm.open_data("digits", groups="patient")
    table.to_csv(tmp_path / "a.csv", index=False)
    table[:30].to_csv(tmp_path / "b.csv", index=False)
    both = mm.open_data(tmp_path / "a.csv", target="price", test=str(tmp_path / "b.csv"), drop="row,patient,weight")
    assert [len(split) for split in splits(both)] == [108, 12, 30]


def test_a_run_ends_calibrated_and_says_so() -> None:
    data = mm.open_data("diabetes")
    overfitted = mm.Plan(members=2, epochs=20, engine="loop")
    ensemble = mm.fit("mlp", data, plan=overfitted)
    assert ensemble.posthoc is not None
    assert "calibrator" in repr(ensemble)
    plain = mm.fit("mlp", data, plan=overfitted, posthoc=None)
    assert plain.posthoc is None
    assert torch.equal(plain.predict(data.test).outputs, ensemble.predict(data.test, calibrated=False).outputs)
    covered = [float(mm.score(each.predict(data.test), data.test.y)["coverage_90"]) for each in (plain, ensemble)]
    assert abs(covered[1] - 0.9) < abs(covered[0] - 0.9)


def test_labelled_examples_of_all_kinds() -> None:
    names = np.array(["no", "yes"])[Y]
    ensemble = mm.fit("mlp", (X, names), **PLAN)
    expected = mm.evaluate(ensemble, (X[:50], names[:50])).scores
    data = mm.open_data((X, names), test=np.arange(50))
    assert mm.evaluate(ensemble, data).scores["nll"] == expected["nll"]
    assert mm.evaluate(ensemble, data.test).scores["nll"] == expected["nll"]
    assert ensemble.fit_posthoc(X[:50], names[:50]).posthoc == ensemble.fit_posthoc(data.test).posthoc
    with pytest.raises(Misuse, match=r"label '0' \(row 1\) is not among the classes: expected no, yes"):
        ensemble.fit_posthoc(X[:50], np.zeros(50, dtype=int))
    with pytest.raises(Misuse, match="tensors has no test examples: evaluate on"):
        mm.evaluate(ensemble, mm.open_data((X, names), test=0.0))


def test_a_run_on_arrays_is_resumed_with_the_same_splits(tmp_path: Path) -> None:
    def stop(message: str, done: int, total: int, record: object) -> None:
        if done == 7:
            raise KeyboardInterrupt

    whole = mm.fit("mlp", (X, Y), val=0.3, **PLAN)
    with pytest.raises(KeyboardInterrupt):
        mm.fit("mlp", (X, Y), val=0.3, out=tmp_path / "run", progress=stop, checkpoint_seconds=0, **PLAN)
    with pytest.raises(Misuse, match="of the caller's own: give it again in Python, as data="):
        mm.resume(tmp_path / "run")
    resumed = mm.resume(tmp_path / "run", data=(X, Y))
    assert torch.equal(outputs(resumed, X), outputs(whole, X))


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.image, self.head = nn.Embedding(20, 4), nn.Conv2d(1, 3, 3), nn.Linear(4 + 3, 2)

    def forward(self, words: torch.Tensor, pixels: torch.Tensor) -> torch.Tensor:
        assert words.dtype == torch.int64
        seen = self.image(pixels).mean((2, 3))
        return self.head(torch.cat([self.embedding(words).mean(1), seen], dim=1))


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("recipe", ["deep-ensemble", "batch-ensemble", "bayes", "function-rde"])
def test_several_inputs_reach_forward(named: bool, recipe: str, tmp_path: Path) -> None:
    words, pixels = RNG.integers(0, 20, (120, 5)), RNG.integers(0, 256, (120, 6, 7), dtype=np.uint8)
    x = {"words": words, "pixels": pixels} if named else (words, pixels)
    y = pixels.mean((1, 2)) > 127
    ensemble = mm.fit(TwoInputs, (x, y), inputs="tokens", recipe=recipe, epochs=2, lr=1e-2, out=tmp_path / "run")
    few = {"words": words[:9], "pixels": pixels[:9]} if named else (words[:9], torch.from_numpy(pixels[:9]))
    said = outputs(ensemble, few, calibrated=False)
    torch.testing.assert_close(said, outputs(ensemble, x, calibrated=False)[:, :9], rtol=1e-4, atol=1e-4)
    again = mm.load(tmp_path / "run", net=TwoInputs)
    assert torch.equal(outputs(again, few, calibrated=False), said)
    if recipe == "deep-ensemble":
        module = ensemble.member(0).net
        images = (torch.from_numpy(pixels[:9]).float() - pixels_mean(ensemble)[0]) / pixels_mean(ensemble)[1]
        with torch.no_grad():
            alone = module(torch.from_numpy(words[:9]), images[:, None])
        torch.testing.assert_close(alone, said[0], rtol=1e-4, atol=1e-4)
        with pytest.raises(Misuse, match=r"for a run trained on several: expected a (dict|tuple) of arrays"):
            ensemble.predict(words)
        short = {"words": words[:8], "pixels": pixels[:9]} if named else (words[:8], pixels[:9])
        with pytest.raises(Misuse, match="several inputs with different numbers of examples"):
            ensemble.predict(short)


def pixels_mean(ensemble: mm.Ensemble) -> tuple[float, float]:
    preparation = ensemble.preparation.parts[1][1]  # type: ignore[union-attr]
    return preparation.mean[0], preparation.std[0]


def test_splits_that_would_break_a_promise_are_refused() -> None:
    from sklearn.model_selection import GroupKFold, KFold

    groups, times = np.arange(200) // 10, np.arange(200.0)
    for options, told in (
        ({"groups": groups, "time": times}, "groups= and time=: rows cannot be split by both"),
        ({"groups": groups % 7, "val": KFold(5)}, "groups are in both"),
        ({"time": times, "val": KFold(5)}, "time= with a splitter as val="),
        ({"val": GroupKFold(5)}, "val= cannot split the rows: .*; give groups=, a column's name or an array"),
        ({"time": np.full(200, np.nan)}, "time= holds missing values: expected a number in every row"),
        ({"time": times.astype(str)}, "time= holds text: expected a number in every row"),
    ):
        with pytest.raises(Misuse, match=told):
            mm.open_data((X, Y), **options)
    data = mm.open_data((X, Y), val=np.arange(30))  # named rows are held out before the test rows are drawn
    assert [len(split) for split in splits(data)] == [130, 30, 40]
    with pytest.raises(Misuse, match="has no validation examples: training needs some"):
        mm.fit("mlp", (X, Y), val=0.0, **PLAN)


def test_labels_are_scored_as_fit_took_them() -> None:
    names = np.array(["no", "yes"])[Y]
    pred = mm.fit("mlp", (X, names), **PLAN).predict(X)
    assert mm.score(pred, names)["accuracy"] == mm.score(pred, torch.from_numpy(Y))["accuracy"]
    with pytest.raises(Misuse, match=r"label 'maybe' \(row 1\) is not among the classes: expected no, yes"):
        mm.score(pred, ["maybe"] * 200)
    numbered = mm.fit("mlp", (X, Y + 1), **PLAN).predict(X)
    assert mm.score(numbered, Y + 1)["nll"] == mm.score(numbered, torch.from_numpy(Y))["nll"]
    with pytest.raises(Misuse, match=r"label '0' \(row \d+\) is not among the classes: expected 1, 2"):
        mm.score(numbered, Y)
    with pytest.raises(Misuse, match=r"labels as texts, and the classes have no known names: give indices 0\.\.1"):
        mm.score(mm.Predictive.from_probs([[0.5, 0.5]]), ["no"])
    assert mm.score(numbered, (Y + 1).astype(str))["nll"] == mm.score(numbered, torch.from_numpy(Y))["nll"]


@pytest.mark.parametrize(
    "texts", [[f"{i},{i % 7}" for i in range(60)], [f"{1 + i % 28}.0{1 + i % 9}.2022" for i in range(60)]]
)
def test_numbers_and_dates_in_local_writing_are_not_categories(texts: list[str]) -> None:
    assert mm.open_data(pd.DataFrame({"a": texts, "y": np.arange(60.0)}), target="y").feature_names == ("a",)


def test_lists_switches_and_sizes(tmp_path: Path) -> None:
    ensemble = mm.fit("mlp", (X[:, :1], Y), posthoc=False, **PLAN)
    assert ensemble.posthoc is None
    assert torch.equal(outputs(ensemble, [[1.0], [2.0]]), outputs(ensemble, np.array([[1.0], [2.0]])))
    with pytest.raises(Misuse, match=r"Categorical\(5\) for data of 2 classes: write Categorical\(2\)"):
        mm.fit("mlp", (X, Y), likelihood=mm.Categorical(5), **PLAN)
    with pytest.raises(Misuse, match=r"class_weight=\{0: 1, 1: 5\}: expected one number for each class"):
        mm.Categorical(2, class_weight={0: 1, 1: 5})
    with pytest.raises(Misuse, match=r"interval\(90\): expected a probability between 0 and 1, such as 0\.9"):
        mm.Predictive.from_moments(np.zeros((1, 2, 1)), np.ones((1, 2, 1))).interval(90)
    pd.DataFrame({"file": ["a/x.png", "b/y.png"] * 20, "label": ["a", "b"] * 20}).to_csv(
        tmp_path / "l.csv", index=False
    )
    with pytest.raises(Misuse, match="which is not a file: 40 of 40 are missing"):
        mm.open_data(tmp_path / "l.csv", target="label")


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ({"lr": "a"}, "lr='a': need a number such as 0.001"),
        ({"momentum": "a"}, "momentum='a': need a number such as 0.9"),
        ({"members": 2.5}, "members=2.5: need a whole number, at least 1"),
        ({"epochs": "3"}, "epochs='3': need a whole number, at least 1"),
        ({"seed": -1}, "seed=-1: need a whole number, at least 0"),
        ({"patience": 0}, "patience=0: need a whole number, at least 1"),
        ({"engine": 3}, "unknown engine '3'"),
        ({"optimizer": 3}, "optimizer=3: need a name as text"),
        ({"lr_multipliers": {"head.*": 0.1}}, r"need pairs such as \(\('head\.\*', 0\.1\),\)"),
        ({"posthoc": "yes"}, r"posthoc='yes': need True, False or mm\.PostHocConfig\("),
        ({"posthoc": 3}, "posthoc=3: need True, False or"),
        ({"learning_rate": 0.1}, r"unknown keyword of fit 'learning_rate': write lr=\.\.\."),
        ({"class_weight": "balanced"}, r"write likelihood=mm\.Categorical\(K, class_weight='balanced'\)"),
        ({"likelyhood": None}, r"did you mean 'likelihood'\? Known: .* \(\d+ in all\); see help\(mm\.fit\)"),
    ],
)
def test_settings_of_another_type_are_refused_by_name(setting: dict[str, object], told: str) -> None:
    with pytest.raises(Misuse, match=told):
        mm.fit("mlp", (X, Y), **setting)


def test_numbers_of_numpy_and_single_names_are_settings() -> None:
    plan = mm.Plan(members=np.int64(2), lr=np.float32(0.5), augment="flip", device=torch.device("cpu"))  # type: ignore[arg-type]
    assert (plan.members, plan.lr, plan.augment, plan.device) == (2, 0.5, ("flip",), "cpu")
    assert type(plan.members) is int
    with pytest.raises(Misuse, match="unknown augmentation 'flop': did you mean 'flip'"):
        mm.Plan(augment="flop")  # type: ignore[arg-type]


def test_network_factories_that_fail_are_named() -> None:
    def raising() -> nn.Module:
        raise RuntimeError("no weights\nin this file")

    with pytest.raises(Misuse, match=r"the net factory .*raising raised RuntimeError: no weights$"):
        mm.fit(raising, (X, Y))
    with pytest.raises(Misuse, match="Linear needs in_features, out_features: give a function without arguments, such"):
        mm.fit(nn.Linear, (X, Y))


def test_a_likelihood_of_regression_takes_numbers_for_quantities() -> None:
    assert mm.fit("mlp", (X, Y), likelihood=mm.Gaussian(0.5), **PLAN).manifest.data["task"] == "regression"
    assert mm.fit("mlp", (X, Y), likelihood=mm.Categorical(2), **PLAN).manifest.data["task"] == "classification"


def test_predictions_carry_the_index_of_a_table(tmp_path: Path) -> None:
    table = frame().set_index(pd.Index(range(10**10, 10**10 + 120), name="visit"))
    ensemble = mm.fit("mlp", table, target="price", **PLAN)
    found = ensemble.predict(table.iloc[5:9]).to_pandas()
    assert found.columns[0] == "index"
    assert found["index"].tolist() == table.index[5:9].tolist()
    for suffix, read in ((".csv", pd.read_csv), (".parquet", pd.read_parquet), (".npz", np.load)):
        mm.save_predictions(ensemble, table.iloc[5:9], tmp_path / f"p{suffix}")
        assert list(read(tmp_path / f"p{suffix}")["index"]) == table.index[5:9].tolist()
    assert "index" not in ensemble.predict(table.reset_index(drop=True)).to_pandas()
    texts = ensemble.predict(table.iloc[:2].set_axis(["a", "b"])).to_pandas()
    assert texts["index"].tolist() == ["a", "b"]
    levels = pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["ward", None])
    assert list(ensemble.predict(table.iloc[:2].set_axis(levels)).keys) == ["index_ward", "index_1"]
    pred = mm.Predictive.concatenate(list(ensemble.stream(table, 50)))
    assert pred.at([3, 1]).to_pandas()["index"].tolist() == table.index[[3, 1]].tolist()
    data = mm.open_data(table, target="price")
    assert set(ensemble.predict(data.test).keys["index"]) <= set(table.index)


def test_predictions_carry_the_names_of_image_files(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos", ((8, 8),), each=6)
    ensemble = mm.fit("mlp", str(folder), **PLAN)
    expected = ensemble.predict(folder)
    files = [f"{label}/{i}.png" for label in ("dark", "light") for i in range(6)]
    assert expected.to_pandas().iloc[:, 0].tolist() == files
    paths = [folder / name for name in files]
    for given in (paths, [str(path) for path in paths]):
        assert torch.equal(outputs(ensemble, given), expected.outputs)
        assert ensemble.predict(given).to_pandas()["file"].tolist() == [str(path) for path in paths]
    assert torch.equal(outputs(ensemble, [Image.open(path) for path in paths]), expected.outputs)
    pd.DataFrame({"photo": files[::-1]}).to_csv(folder / "list.csv", index=False)
    assert ensemble.predict(folder / "list.csv").to_pandas()["file"].tolist() == files[::-1]
    assert main(["train", str(folder), *CLI_PLAN, "--out", str(tmp_path / "run"), "--json"]) == 0
    assert main(["predict", str(tmp_path / "run"), str(folder), "--out", str(tmp_path / "p.csv")]) == 0
    assert pd.read_csv(tmp_path / "p.csv").iloc[:, 0].tolist() == files
    with pytest.raises(Misuse, match=r"'.*0\.png' is a single image: give a folder of images, or in Python a list, \["):
        ensemble.predict(paths[0])
    with pytest.raises(Misuse, match=r"a PIL object is a single image: .* \[image\]"):
        ensemble.predict(Image.open(paths[0]))
    with pytest.raises(Misuse, match=r"no file '.*x\.png': 1 of 2 images are missing"):
        ensemble.predict([paths[0], folder / "x.png"])
    pixels = np.asarray(Image.open(paths[0]))
    with pytest.raises(Misuse, match=r"one example of shape \(8, 8, 3\) without an axis for examples: write x\[None\]"):
        ensemble.predict(pixels)
    with pytest.raises(Misuse, match=r"\(3, 8, 8\) is one image or 3 grey ones: write x\[None\] for one"):
        ensemble.predict(pixels.transpose(2, 0, 1))


def test_one_row_without_its_axis_is_refused() -> None:
    ensemble = mm.fit("mlp", (X, Y), **PLAN)
    for row in (X[0], X[0].tolist(), torch.from_numpy(X[0])):
        with pytest.raises(Misuse, match=r"one example of shape \(4,\) without an axis for examples: write x\[None\]"):
            ensemble.predict(row)
    with pytest.raises(Misuse, match=r"one row as a pandas Series: write frame\.iloc\[\[0\]\]"):
        ensemble.predict(pd.Series(X[0]))
    column = mm.fit("mlp", (pd.Series(X[:, 0]), Y), **PLAN)
    assert torch.equal(outputs(column, pd.Series(X[:, 0])), outputs(column, X[:, :1]))


class WordsAndNumbers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(20, 4), nn.Linear(4 + 3, 2)

    def forward(self, words: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        assert (words.dtype, numbers.dtype) == (torch.int64, torch.float32)
        return self.head(torch.cat([self.embedding(words).mean(1), numbers], dim=1))


def test_tokens_beside_numbers_and_inputs_by_name() -> None:
    x = {"words": RNG.integers(0, 20, (60, 5)), "numbers": RNG.normal(50, 10, (60, 3))}
    ensemble = mm.fit(WordsAndNumbers, (x, np.arange(60) % 2), inputs="tokens", **PLAN)
    assert ensemble.prepare(x)[:, 5:].mean().abs() < 0.5  # standardised
    for given, told in (
        ({"words": x["words"]}, "inputs without numbers: expected a dict of arrays words, numbers, as in training"),
        ({**x, "more": x["words"]}, "inputs with more: expected"),
        ({"words": x["words"], "number": x["numbers"]}, "inputs without numbers and with number: expected"),
    ):
        with pytest.raises(Misuse, match=told):
            ensemble.predict(given)


def test_rows_named_for_validation() -> None:
    data = mm.open_data((X, Y), val=[3, 7], test=0.0)
    assert np.array_equal(data.val.x, X[[3, 7]])
    for rows, told in (
        ([1, 1, 2], "val= names row 1 more than once: expected every index once"),
        ([1, 200], "val= names the rows 200, which do not exist or are held out already: expected indices 0 to 199"),
        (np.ones(5, dtype=bool), "val= is a mask of 5 rows, 5 of them chosen: expected 200"),
    ):
        with pytest.raises(Misuse, match=told):
            mm.open_data((X, Y), val=rows)


def test_a_validation_file_has_weights_of_its_own(tmp_path: Path) -> None:
    table = frame().assign(weight=np.linspace(1, 2, 120))
    table.iloc[100:].to_csv(tmp_path / "val.csv", index=False)
    data = mm.open_data(table.iloc[:100], target="price", weight="weight", val=str(tmp_path / "val.csv"))
    assert data.val.weight is not None
    np.testing.assert_allclose(data.val.weight, table["weight"].iloc[100:], rtol=1e-6)
    without = table.iloc[100:].drop(columns="weight")
    assert mm.open_data(table.iloc[:100], target="price", weight="weight", val=without).val.weight is None


@pytest.fixture
def usual_handlers() -> Iterator[None]:
    """Python's handlers of interrupts; a process that a shell started in the background ignores Ctrl-C."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("usual_handlers")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_writes_a_checkpoint_between_steps(number: signal.Signals, tmp_path: Path) -> None:
    def stop(message: str, done: int, total: int, record: object) -> None:
        if done == 7:
            signal.raise_signal(number)

    before, whole = signal.getsignal(number), mm.fit("mlp", (X, Y), **PLAN)
    with pytest.raises(KeyboardInterrupt, match=r"stopped after step 7 of 12: continue with mm\.resume\('.*run'\)"):
        mm.fit("mlp", (X, Y), out=tmp_path / "run", progress=stop, checkpoint_seconds=1e9, **PLAN)
    assert [path.name for path in (tmp_path / "run" / "checkpoints").glob("step-*")] == ["step-000000007.safetensors"]
    assert signal.getsignal(number) == before
    resumed = mm.resume(tmp_path / "run", data=(X, Y))
    assert torch.equal(outputs(resumed, X), outputs(whole, X))


def test_an_interrupt_raised_by_a_callback_writes_a_checkpoint(tmp_path: Path) -> None:
    def stop(message: str, done: int, total: int, record: object) -> None:
        if record is not None:  # after the first epoch
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="stopped after step 6 of 12: continue with"):
        mm.fit("mlp", (X, Y), out=tmp_path / "run", progress=stop, checkpoint_seconds=1e9, **PLAN)
    resumed = mm.resume(tmp_path / "run", data=(X, Y))
    assert len(resumed.history) == 2
    assert torch.equal(outputs(resumed, X), outputs(mm.fit("mlp", (X, Y), **PLAN), X))
    with pytest.raises(KeyboardInterrupt, match=r"stopped after step 6 of 12$"):
        mm.fit("mlp", (X, Y), progress=stop, **PLAN)


def test_a_share_for_a_part_that_the_data_has_is_refused():
    with pytest.raises(mm.Misuse, match="test= for data that has a test part already, 500 examples: leave it out"):
        mm.open_data("two-moons", test=0.3)
    assert len(mm.open_data("two-moons", val=0.3).val) == 450


def test_none_means_left_out() -> None:
    settings = {"epochs": 1, "batch_size": 16, "posthoc": None}
    left_out, none = mm.fit("mlp", (X, Y), **settings), mm.fit("mlp", (X, Y), members=None, seed=None, **settings)
    assert none.members == left_out.members == 5  # of a deep ensemble
    assert torch.equal(none.predict(X).outputs, left_out.predict(X).outputs)


@pytest.mark.slow
def test_the_picture_of_the_report_shows_the_demo(tmp_path: Path) -> None:
    """The command of `make demo` leaves the scores in docs/report.png, and the ensemble wins by more than noise."""
    root = Path(__file__).parents[1]
    recipe = (root / "Makefile").read_text().partition("\ndemo:")[2].partition("\n\n")[0]
    words = recipe.replace("\\\n", " ").partition("murmur ")[2].replace("$(DEMO)", str(tmp_path / "demo")).split()
    assert main(words) == 0
    stored, made = json.loads((root / "docs" / "report.json").read_text()), picture.shown(tmp_path / "demo")
    assert made["fingerprint"] == stored["fingerprint"]
    assert made["nll"] == pytest.approx(stored["nll"], rel=0.02)  # processors round differently
    record = json.loads((tmp_path / "demo" / "results.json").read_text())
    differences = {test["name"]: test for test in record["tests"]}
    assert differences["nll"]["value"] > 0
    assert differences["nll"]["p_value"] < 0.05
