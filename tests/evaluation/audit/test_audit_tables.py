"""Tables of predictions: columns of every name, what `murmur predict` writes, labels and groups."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from prediction_files import RNG, joined, saved, some_probs

from murmuration.evaluation.audit import check_same_targets, open_predictions
from murmuration.evaluation.metrics import ExampleScores, score
from murmuration.prediction.prediction_files import Predictions, write_predictions
from murmuration.prediction.predictive import Predictive


@pytest.fixture
def classified() -> tuple[np.ndarray, np.ndarray]:
    return some_probs(3, 40, 4), RNG.integers(0, 4, 40)


class TestTables:
    @pytest.mark.parametrize("suffix", [".csv", ".parquet"])
    @pytest.mark.parametrize("prefix", ["prob_", "p_", "proba_", ""])
    def test_columns_of_classes(self, tmp_path, suffix, prefix):
        probs, labels = some_probs(30, 3), np.array(["cat", "dog", "owl"])[np.arange(30) % 3]
        table = pd.DataFrame(probs, columns=[prefix + name for name in ("owl", "cat", "dog")])
        table["label"], table["note"] = labels, "free text"
        path = tmp_path / f"x{suffix}"
        table.to_csv(path, index=True) if suffix == ".csv" else table.to_parquet(path)
        found = open_predictions(path)
        assert found.classes == ("owl", "cat", "dog")
        assert found.targets.tolist() == [1, 2, 0] * 10
        assert torch.equal(joined(found).outputs, Predictive.from_probs(probs).outputs)  # both keep every bit
        assert torch.equal(found.rows_at(np.array([3, 4])).outputs, Predictive.from_probs(probs[3:5]).outputs)

    def test_an_archive_and_a_table_of_one_model_agree(self, tmp_path):
        probs, y = some_probs(30, 3), np.arange(30) % 3
        pd.DataFrame({**{f"prob_{k}": probs[:, k] for k in range(3)}, "y": y}).to_csv(tmp_path / "t.csv", index=False)
        a, b = open_predictions(tmp_path / "t.csv"), open_predictions(saved(tmp_path / "a.npz", probs=probs, y=y))
        assert torch.equal(joined(a).outputs, joined(b).outputs)
        assert a.targets.tolist() == b.targets.tolist()
        check_same_targets(a, b)

    def test_members_in_columns(self, tmp_path, classified):
        probs, y = classified
        names = {f"{p}{m}_prob_{k}": probs[m, :, k] for m, p in enumerate(["m", "member", "member_"]) for k in range(4)}
        pd.DataFrame({**names, "prob_0": 0.5, "y": y}).to_csv(tmp_path / "x.csv", index=False)
        assert torch.equal(joined(open_predictions(tmp_path / "x.csv")).outputs, Predictive.from_probs(probs).outputs)

    def test_one_probability_is_of_the_larger_label(self, tmp_path):
        table = pd.DataFrame({"probability": [0.1, 0.8, 0.7], "target": ["no", "yes", "no"]})
        table.to_csv(tmp_path / "x.csv", index=False)
        found = open_predictions(tmp_path / "x.csv")
        assert found.classes == ("no", "yes")
        assert np.allclose(joined(found).mean[:, 1], [0.1, 0.8, 0.7], atol=1e-15)
        assert found.targets.tolist() == [0, 1, 0]

    def test_logit_columns_and_whole_floats_as_names(self, tmp_path):
        table = pd.DataFrame({"logit_0.0": [1.0, -2.0], "logit_1.0": [0.0, 3.0], "y": [0.0, 1.0]})
        table.to_csv(tmp_path / "x.csv", index=False)
        found = open_predictions(tmp_path / "x.csv")
        assert (found.classes, found.form, found.targets.tolist()) == (("0", "1"), "logits", [0, 1])
        assert joined(found).outputs.tolist() == [[[1.0, 0.0], [-2.0, 3.0]]]

    def test_a_class_may_have_a_column_and_no_label(self, tmp_path):
        table = pd.DataFrame({"a": [0.5, 0.1], "b": [0.25, 0.2], "c": [0.25, 0.7], "class": ["a", "c"]})
        table.to_csv(tmp_path / "x.csv", index=False)
        assert open_predictions(tmp_path / "x.csv").classes == ("a", "b", "c")

    @pytest.mark.parametrize(
        ("mean", "spread", "power"), [("mean", "std", 1), ("predicted", "sigma", 1), ("prediction", "var", 2)]
    )
    def test_means_and_spreads(self, tmp_path, mean, spread, power):
        table = pd.DataFrame({mean: [1.0, 2.0, 3.0], spread: [0.5, 1.0, 2.0], "y": [1, 2, 4], "q05": 0.0})
        table.to_csv(tmp_path / "x.csv", index=False, sep=";")
        pred = joined(open_predictions(tmp_path / "x.csv"))
        assert pred.mean[:, 0].tolist() == [1, 2, 3]
        assert np.allclose(pred.total_var[:, 0], np.array([0.5, 1, 2]) ** (2 / power), rtol=1e-14)

    def test_means_of_members(self, tmp_path):
        table = pd.DataFrame(
            {"m0_mean": [1.0, 2.0], "m0_std": 0.5, "m1_mean": [3.0, 2.0], "m1_std": 1.5, "y": [1.0, 2.5]}
        )
        table.to_csv(tmp_path / "x.csv", index=False)
        pred = joined(open_predictions(tmp_path / "x.csv"))
        assert pred.epistemic_var[:, 0].tolist() == [1, 0]
        assert pred.aleatoric_var[:, 0].tolist() == [1.25, 1.25]


class TestRoundTrip:
    def write(self, path: Path, pred: Predictive, names: tuple[str, ...], with_members: bool = False) -> Path:
        inputs = pred.outputs.shape[1]
        found = Predictions(pred.batches(7), inputs, names, len(pred.outputs), with_members)
        write_predictions(path, found)
        return path

    @pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
    def test_classes(self, tmp_path, suffix):
        pred, names = Predictive.from_probs(some_probs(3, 20, 2)), ("ham", "spam")
        y = np.arange(20) % 2
        path = self.write(tmp_path / f"x{suffix}", pred, names)
        (tmp_path / "y.txt").write_text("\n".join(np.array(names)[y]) + "\n\n")
        found = open_predictions(path, labels=tmp_path / "y.txt")
        assert (found.classes, found.targets.tolist()) == (names, y.tolist())
        assert np.allclose(joined(found).mean, pred.mean, atol=1e-9 if suffix == ".csv" else 1e-15)

    @pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
    @pytest.mark.parametrize("width", [1, 2])
    def test_numbers(self, tmp_path, suffix, width):
        pred = Predictive.from_moments(RNG.normal(size=(3, 20, width)), RNG.random((3, 20, width)) + 0.5)
        names, y = ("cost", "time")[:width], RNG.normal(size=(20, width))
        path = self.write(tmp_path / f"x{suffix}", pred, names)
        pd.DataFrame(y, columns=list(names)).assign(z=1.0).to_csv(tmp_path / "y.csv", index=False)
        found = open_predictions(path, labels=tmp_path / "y.csv", label=",".join(names))
        assert np.allclose(joined(found).mean, pred.mean, rtol=1e-8, atol=1e-12)
        assert np.allclose(joined(found).total_var, pred.total_var, rtol=1e-8)
        assert np.array_equal(found.targets, y)
        if width == 2 or suffix == ".npz":  # the file itself names its targets
            assert np.array_equal(open_predictions(path, labels=tmp_path / "y.csv").targets, y)

    def test_members_of_both_tasks_keep_every_score(self, tmp_path):
        pred, y = Predictive.from_probs(some_probs(3, 20, 4)), np.arange(20) % 4
        path = self.write(tmp_path / "a.npz", pred, ("a", "b", "c", "d"), with_members=True)
        np.savez(tmp_path / "y.npz", y=y)
        found = open_predictions(path, labels=tmp_path / "y.npz")
        assert found.members == 3
        theirs = ExampleScores.from_chunks(found.pairs()).scores(resamples=20)
        assert theirs == pytest.approx(dict(score(pred, y, resamples=20)), rel=1e-12)
        numbers = Predictive.from_moments(RNG.normal(size=(4, 20, 1)), RNG.random((4, 20, 1)) + 0.5)
        path = self.write(tmp_path / "b.npz", numbers, ("cost",), with_members=True)
        np.save(tmp_path / "y.npy", y.astype(float))
        again = joined(open_predictions(path, labels=tmp_path / "y.npy"))
        assert np.array_equal(again.member_mean, numbers.member_mean)
        assert np.allclose(again.member_var, numbers.member_var, rtol=1e-14)


class TestLabelsAndGroups:
    def test_labels_are_names_first_and_numbers_else(self, tmp_path):
        probs = some_probs(4, 2)
        cases = [
            ({"names": ["1", "2"], "y": [1, 2, 2, 1]}, [0, 1, 1, 0]),
            ({"names": ["1", "2"], "y": [0, 1, 1, 0]}, [0, 1, 1, 0]),
            ({"classes": ["no", "yes"], "label": ["no", "yes", "yes", "no"]}, [0, 1, 1, 0]),
            ({"names": ["no", "yes"], "y": [0.0, 1.0, 1.0, 0.0]}, [0, 1, 1, 0]),
            ({"names": [b"no", b"yes"], "y": [b"no", b"yes", b"yes", b"no"]}, [0, 1, 1, 0]),
            ({"y": [False, True, True, False]}, [0, 1, 1, 0]),
            ({"y": [[0], [1], [1], [0]]}, [0, 1, 1, 0]),
        ]
        for arrays, expected in cases:
            found = open_predictions(saved(tmp_path / "x.npz", probs=probs, **arrays))
            assert found.targets.tolist() == expected, arrays

    def test_labels_of_a_parquet_and_a_chosen_column(self, tmp_path):
        path = saved(tmp_path / "x.npz", probs=some_probs(3, 2))
        table = pd.DataFrame({"a": [0, 0, 1], "label": [1, 1, 1]})
        table.to_parquet(tmp_path / "y.parquet")
        assert open_predictions(path, labels=tmp_path / "y.parquet").targets.tolist() == [1, 1, 1]
        assert open_predictions(path, labels=tmp_path / "y.parquet", label="a").targets.tolist() == [0, 0, 1]
        table[["a"]].to_csv(tmp_path / "y.csv", index=False)
        assert open_predictions(path, labels=tmp_path / "y.csv").targets.tolist() == [0, 0, 1]

    def test_groups_of_texts_numbers_and_the_file_of_labels(self, tmp_path):
        path = saved(
            tmp_path / "x.npz", probs=some_probs(3, 2), group=["a", "b", "a"], age=[1.0, np.nan, 3.0], y=[0, 1, 1]
        )
        found = open_predictions(path)
        assert {k: v.tolist() for k, v in found.groups.items()} == {"group": ["a", "b", "a"]}
        found = open_predictions(path, groups=["age"])
        assert {k: v.tolist() for k, v in found.groups.items()} == {"age": ["1", "missing", "3"]}
        pd.DataFrame({"y": [0, 1, 1], "site": ["n", None, "s"]}).to_csv(tmp_path / "y.csv", index=False)
        found = open_predictions(path, labels=tmp_path / "y.csv", groups=["site", "group"])
        assert found.groups["site"].tolist() == ["n", "missing", "s"]
        assert found.groups["group"].tolist() == ["a", "b", "a"]

    def test_a_group_column_is_not_taken_for_a_class(self, tmp_path):
        table = pd.DataFrame({"0": [0.5, 0.1], "1": [0.5, 0.9], "year": [2001, 2002], "y": [0, 1]})
        table.to_csv(tmp_path / "x.csv", index=False)
        found = open_predictions(tmp_path / "x.csv", groups=["year"])
        assert (found.classes, found.groups["year"].tolist()) == (("0", "1"), ["2001", "2002"])

    def test_the_task_decides_where_a_file_holds_both(self, tmp_path):
        path = saved(tmp_path / "x.npz", probs=some_probs(3, 2), mean=[1.0, 2, 3], std=1.0, y=[0, 1, 1])
        assert open_predictions(path, task="classification").form == "probabilities"
        assert open_predictions(path, task="regression").form == "moments"


def test_an_apostrophe_is_removed_from_labels_and_columns_alike(tmp_path: Path) -> None:
    rows = {"prob_'-x": [0.9, 0.2], "prob_y": [0.1, 0.8], "label": ["'-x", "y"]}
    pd.DataFrame(rows).to_csv(tmp_path / "a.csv", index=False)
    opened = open_predictions(tmp_path / "a.csv")
    assert opened.classes == ("-x", "y")
    assert opened.targets.tolist() == [0, 1]
    rows["label"] = ["''-x", "y"]  # as we write the class '-x
    pd.DataFrame(rows).to_csv(tmp_path / "a.csv", index=False)
    assert open_predictions(tmp_path / "a.csv").classes == ("'-x", "y")
