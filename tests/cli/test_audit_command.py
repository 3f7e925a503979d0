"""`murmur audit` says of anyone's predictions what the library says, and of no predictions why not, in one line."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from check_report import report_check
from cli_fixtures import assert_refused, tree
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier, RandomForestRegressor

import murmuration as mm
from murmuration.evaluation.audit import open_predictions
from murmuration.evaluation.metrics import paired_test, score_examples

pytest_plugins = ["cli_fixtures"]
CLASSIFIERS = {
    "forest": RandomForestClassifier(20, random_state=0),
    "boosting": HistGradientBoostingClassifier(max_iter=10, random_state=0),
}
DATA = {"cancer": load_breast_cancer, "wine": load_wine}


def halves(load) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """What to learn from and what to predict: every other example."""
    x, y = load(return_X_y=True)
    return x[::2], y[::2], x[1::2], y[1::2]


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of predictions by models of scikit-learn; nothing may be written into it."""
    folder = tmp_path_factory.mktemp("shelf")
    for data, load in DATA.items():
        x, y, asked, true = halves(load)
        for name, model in CLASSIFIERS.items():
            probs = model.fit(x, y).predict_proba(asked)
            columns = {f"prob_{k}": probs[:, k] for k in range(probs.shape[1])}
            sites = np.where(asked[:, 0] > np.median(asked[:, 0]), "north", "south")
            pd.DataFrame({**columns, "label": true, "site": sites}).to_csv(folder / f"{data}-{name}.csv", index=False)
    x, y, asked, true = halves(load_diabetes)
    trees = RandomForestRegressor(20, random_state=0, min_samples_leaf=3).fit(x, y).estimators_
    draws = np.stack([each.predict(asked) for each in trees])
    np.savez(folder / "diabetes.npz", samples=draws, y=true)
    pd.DataFrame({"mean": draws.mean(0), "std": 55.0, "y": true}).to_csv(folder / "numbers.csv", index=False)
    return folder


def scored(file: Path) -> dict[str, dict[str, float]]:
    """The scores of a file by the library alone."""
    (pair,) = open_predictions(file).pairs()
    return {name: score.to_json() for name, score in mm.score(*pair).items()}


def by_hand(file: Path) -> dict[str, dict[str, float]]:
    """The scores of a table of probabilities, without the reader of files."""
    table = pd.read_csv(file)
    probs = table.filter(regex="^prob_").to_numpy()
    return {name: score.to_json() for name, score in mm.score(mm.Predictive.from_probs(probs), table["label"]).items()}


@pytest.mark.slow
@pytest.mark.parametrize("model", CLASSIFIERS)
@pytest.mark.parametrize("data", DATA)
def test_classes(murmur, shelf, tmp_path, data, model):
    file, before = shelf / f"{data}-{model}.csv", tree(shelf)
    ended = murmur("audit", file, "--json", "--out", tmp_path / "found.html")
    found = json.loads(ended.out)["results"][f"{data}-{model}"]
    assert (ended.code, ended.err) == (0, "")
    assert found["metrics"] == by_hand(file)
    assert found["data"]["examples"] == len(pd.read_csv(file))
    assert report_check(tmp_path / "found.html") == []
    assert tree(shelf) == before


def test_numbers_from_draws(murmur, shelf, tmp_path):
    ended = murmur("audit", shelf / "diabetes.npz", "--out", tmp_path / "found.json", "--json")
    record = json.loads(ended.out)
    found, whole = record["results"]["diabetes"], scored(shelf / "diabetes.npz")
    assert found["metrics"] == {name: whole[name] for name in found["metrics"]}
    assert {"rmse", "nll", "crps", "coverage_90"} < set(found["metrics"])
    assert not {"aleatoric_std", "epistemic_std", "member_nll"} & set(found["metrics"])  # draws are no members
    assert "members" not in found
    with np.load(shelf / "diabetes.npz") as stored:
        rmse = np.sqrt(((stored["samples"].mean(0) - stored["y"]) ** 2).mean())
    assert record["results"]["diabetes"]["metrics"]["rmse"]["value"] == pytest.approx(rmse, rel=1e-9)
    assert json.loads((tmp_path / "found.json").read_text()) == record


@pytest.mark.slow
def test_several_are_compared_row_by_row(murmur, shelf, tmp_path):
    files = [shelf / f"cancer-{model}.csv" for model in CLASSIFIERS]
    ended = murmur("audit", *files, "--json", "--out", tmp_path / "both.html")
    record = json.loads(ended.out)
    assert {name: each["metrics"] for name, each in record["results"].items()} == {f.stem: by_hand(f) for f in files}
    (one, y), (other, _) = (next(open_predictions(file).pairs()) for file in files)
    for test in record["tests"]:
        expected = paired_test(score_examples(one, y), score_examples(other, y), test["name"])
        assert test.items() >= expected.to_json().items()
        size = test["sentence"].partition(": ")[2].split()[0]  # of NLL it stands in the verdict, and once
        stated = size in " ".join(record["verdict"]) if test["name"] == "nll" else test["sentence"] in record["notes"]
        assert stated
    assert {test["name"] for test in record["tests"]} == {"accuracy", "nll"}
    assert report_check(tmp_path / "both.html") == []


@pytest.mark.slow
def test_groups_stand_in_the_table_and_the_record(murmur, shelf, tmp_path):
    table = pd.read_csv(shelf / "wine-forest.csv")
    table["site"] = np.where(np.arange(len(table)) < 30, "far", "near")
    wrong = table["site"] == "far"
    table.loc[wrong, "label"] = (table.loc[wrong, "label"] + 1) % 3
    table.to_csv(tmp_path / "sites.csv", index=False)
    record = json.loads(murmur("audit", tmp_path / "sites.csv", "--group", "site", "--json").out)
    far, near = record["results"]["sites"]["groups"]["site"]
    assert (far["value"], far["examples"], far["worse"]) == ("far", 30, True)
    assert (near["value"], near["examples"], near["worse"]) == ("near", len(table) - 30, False)
    lines = murmur("audit", tmp_path / "sites.csv", "--group", "site").out.splitlines()
    row = next(line for line in lines if line.startswith(" far "))
    assert row.split()[1:3] == ["30", f"{far['scores']['accuracy']['value']:.3g}"]
    assert row.split()[-1] == "worse"


@pytest.mark.slow
def test_the_report_stands_beside_the_file_and_replaces_none_unless_forced(murmur, shelf, tmp_path):
    file = tmp_path / "mine.csv"
    file.write_bytes((shelf / "wine-forest.csv").read_bytes())
    names, first = ["mine-audit.html", "mine-audit-2.html", "mine-audit-3.html"], b""
    for name in names:
        ended = murmur("audit", file)
        assert ended.code == 0
        assert ended.out.splitlines()[-1] == f"report: {tmp_path / name}"
        first = first or (tmp_path / name).read_bytes()
    assert (tmp_path / names[0]).read_bytes() == first
    (tmp_path / names[0]).write_text("old")
    assert murmur("audit", file, "--force").out.splitlines()[-1] == f"report: {tmp_path / names[0]}"
    assert sorted(tree(tmp_path)) == sorted([*names, "mine.csv"])
    assert all(report_check(tmp_path / name) == [] for name in names)


def test_files_of_one_stem_are_told_apart_by_their_suffixes(murmur, shelf, tmp_path):
    table = pd.read_csv(shelf / "wine-forest.csv")
    table.to_csv(tmp_path / "rf.csv", index=False)
    np.savez(tmp_path / "rf.npz", probs=table.filter(regex="^prob_").to_numpy() * 0.9 + 0.1 / 3, y=table["label"])
    ended = murmur("audit", tmp_path / "rf.csv", tmp_path / "rf.npz")
    assert ended.code == 0, ended.err
    assert "Use rf.csv: its NLL is" in ended.out or "Use rf.npz: its NLL is" in ended.out
    assert (tmp_path / "rf-audit.html").exists()


def page_text(path: Path) -> str:
    """The words of a page, without its scripts and style."""
    plain = re.sub(r"<(script|style).*?</\1>", "", path.read_text(), flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", plain))


@pytest.mark.slow
def test_the_page_speaks_of_models_and_says_which_rows_its_numbers_are_of(murmur, shelf, tmp_path):
    rows, held_out = 89, 44
    pair = shelf / "wine-forest.csv", shelf / "wine-boosting.csv"
    table = pd.read_csv(pair[0])
    probs = table.filter(regex="^prob_").to_numpy()
    np.savez(tmp_path / "trees.npz", probs=np.stack([probs, probs[:, [0, 2, 1]]]), y=table["label"])
    for files in (pair[:1], pair, (tmp_path / "trees.npz",)):
        ended = murmur("audit", *files, "--out", tmp_path / "page.html", "--force")
        words = page_text(tmp_path / "page.html") + ended.out
        found = re.findall(
            r"\b(recipes?|ensembles?|test examples?|validation examples?|training)\b", words, re.IGNORECASE
        )
        assert set(found) <= {"training"}, found  # more training data would reduce epistemic uncertainty
        assert f"Audit of {files[0].stem}" in words
        assert f"of {rows} rows correctly" in words
        assert f"Numbers are of all rows, but for the {held_out} held-out rows on which" in words
        assert f"{held_out} held-out rows (target" in words
        for said in re.findall(r"from (\S+ %) to (\S+ %)\.", words):
            assert said[0] != said[1]


def test_one_member_is_not_called_several(murmur, shelf, tmp_path):
    out = murmur("audit", shelf / "wine-forest.csv", "--out", tmp_path / "a.html").out
    assert out.startswith("wine-forest, 1 member, 89 rows\n")
    assert not any(
        word in out for word in ("a member alone", "Mutual information", "Disagreement", "Diversity", "fair")
    )
    probs = pd.read_csv(shelf / "wine-forest.csv").filter(regex="^prob_").to_numpy()
    np.savez(tmp_path / "two.npz", probs=np.stack([probs, probs[:, [0, 2, 1]]]), y=np.arange(len(probs)) % 3)
    several = murmur("audit", tmp_path / "two.npz").out
    assert several.startswith("two, 2 members, 89 rows\n")
    assert all(word in several for word in ("a member alone", "Mutual information", "Diversity"))


def test_tables_keep_numbers_whole(murmur, shelf, tmp_path):
    name = "a-name-that-someone-wrote-down-in-full-without-a-thought-of-the-tables-it-would-stand-in"
    (tmp_path / f"{name}.csv").write_bytes((shelf / "wine-forest.csv").read_bytes())
    lines = murmur("audit", tmp_path / f"{name}.csv", shelf / "wine-boosting.csv").out.splitlines()
    assert lines[0] == "89 rows"
    heads = next(line for line in lines if "Accuracy ↑" in line)
    numbers = next(line for line in lines if line.startswith(" a-name"))
    assert max(len(line) for line in lines if not line.startswith(("- ", "report"))) <= 100
    for place, value in enumerate(by_hand(shelf / "wine-forest.csv")[key]["value"] for key in ("accuracy", "nll")):
        assert numbers.split()[place + 1] == f"{value:.3g}"
    for head, value in zip(("Accuracy ↑", "NLL ↓", "ECE ↓"), numbers.split()[1:], strict=True):
        assert numbers.index(value) + len(value) == heads.index(head) + len(head)


PROBS = np.tile([0.5, 0.3, 0.2], (30, 1))
LABELS = np.arange(30) % 3


def archive(**arrays: object):
    def make(folder: Path) -> str:
        np.savez(folder / "given.npz", **arrays)
        return "given.npz"

    return make


def table(text: str, name: str = "given.csv"):
    def make(folder: Path) -> str:
        (folder / name).write_text(text)
        return name

    return make


def rows(**columns: object):
    return table(pd.DataFrame({"prob_a": [0.5] * 30, "prob_b": [0.5] * 30, **columns}).to_csv(index=False))


def cut(folder: Path) -> str:
    np.savez(folder / "given.npz", probs=PROBS, y=LABELS)
    content = (folder / "given.npz").read_bytes()
    (folder / "given.npz").write_bytes(content[: len(content) // 2])
    return "given.npz"


def directory(folder: Path) -> str:
    (folder / "given.csv").mkdir()
    return "given.csv"


AB = ["a", "b"] * 15
BAD = [  # what the file is, the code, words of the message
    (rows(label=AB, prob_a=[0.9] + [0.5] * 29), 2, ("row 1 of columns prob_a, prob_b sums to 1.4", "sum to 1")),
    (rows(truth=AB), 2, ("no labels: expected a column label", "--label-column NAME", "--label-file FILE")),
    (rows(label=[*AB[:-1], "c"]), 2, ("label 'c' (row 30) of column label", "Known: a, b")),
    (rows(label=[*AB[:-1], None]), 2, ("column label is missing in 1 of 30 rows (row 30)", "remove them")),
    (rows(label=AB, prob_a=["some"] + [0.5] * 29), 2, ("column 'prob_a' holds 'some' in row 1", "expected a number")),
    (rows(label=AB, prob_a=[None] + [0.5] * 29), 2, ("row 1 of column prob_a is nan", "expected 0 to 1")),
    (rows(label=AB, y=AB), 2, ("columns label and y could both be the labels", "--label-column NAME")),
    (rows(label=AB, mean=0.0, std=1.0), 2, ("class probabilities and also a mean", "--task TASK")),
    (table(""), 2, ("given.csv", "is empty", "expected a header line and rows")),
    (table("prob_a,prob_b,label\n"), 2, ("has no rows", "expected a header line and rows")),
    (table("x,label\n1,2\n3,4\n"), 2, ("no predictions: expected columns prob_<class> or prob (classification)",)),
    (table("hello", "given.txt"), 2, ("suffix '.txt'", ".npz, .npy, .csv, .parquet")),
    (table("", "given.npz"), 2, ("given.npz", "is empty", "np.savez")),
    (directory, 2, ("'given.csv' is a folder", "expected a file")),
    (lambda folder: "missing.csv", 2, ("no file 'missing.csv'", ".npz, .npy, .csv, .parquet")),
    (cut, 1, ("given.npz", "cut off", "write it again")),
    (archive(probs=np.array([{}, None] * 15, dtype=object), y=LABELS), 2, ("Python objects", "expected numbers")),
    (archive(probs=PROBS[:-2], y=LABELS), 2, ("(28, 3)", "28 rows, but array y has 30", "expected as many")),
    (archive(probs=PROBS.T, y=LABELS), 2, ("expected rows first, (N, K); write probs.T",)),
    (archive(probs=PROBS), 2, ("no labels: expected an array label", "--label-file FILE")),
    (archive(probs=np.where(LABELS[:, None] == 2, np.nan, PROBS), y=LABELS), 2, ("probs[2, 0] is nan", "0 to 1")),
    (archive(probs=np.log(PROBS), y=LABELS), 2, ("probs[0, 0] is -0.69", "if these are logits")),
    (archive(probs=PROBS.astype(str), y=LABELS), 2, ("array probs holds texts", "expected numbers")),
    (archive(probs=PROBS, y=LABELS + 5), 2, ("label '5' (row 1) of array y", "expected 0 to 2")),
    (archive(probs=PROBS, mean=LABELS, std=1.0, y=LABELS), 2, ("arrays probs and mean", "--task TASK")),
]


@pytest.mark.parametrize(("make", "code", "words"), BAD)
def test_files_that_are_no_predictions(murmur, tmp_path, monkeypatch, make, code, words):
    monkeypatch.chdir(tmp_path)
    file, before = make(tmp_path), tree(tmp_path)
    assert_refused(murmur("audit", file), code, words)
    assert_refused(murmur("audit", file, "--json"), code, words)
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    ("files", "more", "words"),
    [
        ("wine-forest", ("--group", "sight"), ("no column 'sight' for the groups: did you mean 'site'?",)),
        ("wine-forest", ("--label-column", "lable"), ("no column 'lable' for the labels: did you mean 'label'?",)),
        ("wine-forest", ("--label-file", "missing.csv"), ("no file 'missing.csv'",)),
        ("wine-forest", ("--task", "regression"), ("no predictions for task 'regression'", "columns mean and std;")),
        (
            "numbers",
            ("--task", "classification"),
            ("no predictions for task 'classification'", "prob_<class> or prob;"),
        ),
        ("wine-forest", ("--task", "regress"), ("unknown task 'regress'", "did you mean 'regression'")),
        ("wine-forest", ("--coverage", "2"), ("--coverage 2.0", "between 0 and 1, such as 0.9")),
        ("wine-forest", ("--calibrate", "vektor"), ("'vektor'", "did you mean 'vector'")),
        ("wine-forest", ("--conformal", "quantile"), ("--conformal quantile", "Known: aps, lac, mondrian, raps")),
        (
            "numbers",
            ("--calibrate", "vector"),
            ("regression 'vector'", "Known: member_temperature, moment_matching, noise_scaling, none, temperature"),
        ),
        ("numbers", ("--conformal", "lac"), ("--conformal lac", "Known: absolute, normalised, quantile")),
        ("wine-forest", ("--out", "found.txt"), ("--out found.txt", ".html or .json")),
        ("wine-forest", ("--out", "no/found.html"), ("the folder no does not exist",)),
        ("wine-forest", ("--out", "mine.html"), ("--out mine.html exists already", "--force")),
        ("wine-forest", ("--lables", "y.csv"), ("unknown option --lables", "--label-file")),
        ("wine-forest cancer-forest", (), ("'wine-forest' has 89 rows and 'cancer-forest' has 284", "the same rows")),
        ("wine-forest numbers", (), ("is a classification and 'numbers' a regression", "expected one task")),
        ("wine-forest wine-forest", (), ("wine-forest.csv' is given twice", "give each file once")),
        ("", (), ("FILE is missing",)),
    ],
)
def test_words_that_make_no_audit(murmur, shelf, tmp_path, monkeypatch, files, more, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.html").write_text("mine")
    before = tree(shelf), tree(tmp_path)
    assert_refused(murmur("audit", *(shelf / f"{name}.csv" for name in files.split()), *more), 2, words)
    assert (tree(shelf), tree(tmp_path)) == before


def test_rows_in_another_order(murmur, shelf, tmp_path):
    turned = pd.read_csv(shelf / "wine-forest.csv")[::-1]
    turned.to_csv(tmp_path / "turned.csv", index=False)
    ended = murmur("audit", shelf / "wine-forest.csv", tmp_path / "turned.csv")
    assert_refused(ended, 2, ("row 1 is '0' in 'wine-forest' and '2' in 'turned'", "in the same order"))


def test_labels_of_another_file(murmur, shelf, tmp_path):
    whole = pd.read_csv(shelf / "wine-forest.csv")
    whole[["label"]].rename(columns={"label": "outcome"}).to_csv(tmp_path / "truth.csv", index=False)
    whole.drop(columns=["label", "site"]).to_csv(tmp_path / "bare.csv", index=False)
    words = (
        "audit",
        tmp_path / "bare.csv",
        "--label-file",
        tmp_path / "truth.csv",
        "--label-column",
        "outcome",
        "--json",
    )
    found = json.loads(murmur(*words).out)["results"]["bare"]["metrics"]
    assert found == by_hand(shelf / "wine-forest.csv")
