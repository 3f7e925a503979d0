"""Tutorials run cell by cell, as the documentation shows them, and find what their text says."""

import re

import documented_commands as documented
import numpy as np
import pytest
import tutorials

BY_NAME = {path.stem: path for path in tutorials.TUTORIALS}


def run(name):
    return tutorials.run(BY_NAME[name])


def printed(outputs):
    return "\n".join(text for cell in outputs for text in cell if text.startswith("```"))


def test_every_tutorial_is_run_here():
    names = {"01_first_table", "02_photos", "03_own_network", "04_calibration", "05_comparing_recipes"}
    assert set(BY_NAME) == names | {"06_repulsion", "07_loss_landscape", "08_continual"}


@pytest.mark.parametrize("name", BY_NAME)
def test_a_tutorial_is_a_page_and_a_notebook(name):
    page = tutorials.page(BY_NAME[name], executed=False)
    assert page.startswith("# ")
    assert "```python" in page
    assert '"nbformat"' in tutorials.notebook(BY_NAME[name])
    for command in filter(documented.is_first_floor, re.findall(r"^(murmur .*)$", page, re.MULTILINE)):
        documented.parse(command)


def test_a_cell_shows_what_it_prints_and_its_last_value():
    names = {}
    assert tutorials.run_cell("a = 2\nprint('seen')\na + 1", names) == ["```text\nseen\n```", "```text\n3\n```"]
    assert tutorials.run_cell("b = a", names) == []
    assert names["b"] == 2


@pytest.mark.slow
def test_intervals_of_the_first_table_cover():
    names, outputs = run("01_first_table")
    assert 0.8 <= names["covered"] <= 1
    assert float(names["scores"]["rmse"]) < 65
    assert any("data-figure" in text for text in outputs[-1])


@pytest.mark.slow
def test_photos_are_classified_and_noise_is_far_away():
    names, _ = run("02_photos")
    assert float(names["evaluation"].scores["accuracy"]) > 0.7
    assert float(names["detections"]["mahalanobis"].auroc) > 0.9
    assert float(names["detections"]["entropy"].auroc) < 0.7  # the text says that probabilities miss it


@pytest.mark.slow
def test_noise_and_doubt_are_told_apart():
    names, outputs = run("03_own_network")
    assert abs(names["noise"] - 0.2) < 0.05  # standard error of a standard deviation from 280 examples is 0.01
    assert names["doubt"][1] > 2 * names["doubt"][0]
    assert "Linear(in_features=1" in printed(outputs)


@pytest.mark.slow
def test_calibration_helps_and_shift_breaks_the_promise():
    names, _ = run("04_calibration")
    scores = {name: tutorials_score(names[name], names["data"]) for name in ("before", "after")}
    assert scores["after"] < scores["before"]
    assert 0.85 < names["held"].mean() < 0.96
    severe = names["evaluation"].shift.by_severity[5]
    assert float(severe["set_coverage"]) < 0.8


def tutorials_score(predictive, data):
    return -float(predictive.log_prob(data.test.y).mean())


@pytest.mark.slow
def test_recipes_are_compared():
    names, outputs = run("05_comparing_recipes")
    assert list(names["compared"].table.index)[:3] == ["single", "deep-ensemble", "snapshot"]
    assert printed(outputs).count("NLL of ") == 3


@pytest.mark.slow
def test_repelled_members_disagree_far_from_the_data():
    names, _ = run("06_repulsion")
    far = names["nearest"] > 4
    entropy = {recipe: float(values[far].mean()) for recipe, values in names["entropy"].items()}
    assert entropy["function-rde"] > entropy["deep-ensemble"]


@pytest.mark.slow
def test_runs_are_far_apart_in_the_landscape():
    names, _ = run("07_loss_landscape")
    cosine = names["members"].cosine
    assert np.abs(cosine[~np.eye(3, dtype=bool)]).max() < 0.1
    excess = {name: names["paths"][name].barrier().excess for name in ("linear", "bezier")}
    assert excess["bezier"] < excess["linear"]


@pytest.mark.slow
def test_a_plain_network_forgets():
    names, _ = run("08_continual")
    assert names["final"]["adam"] < names["final"]["replay"] < names["final"]["lda"]
