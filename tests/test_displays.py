"""What objects print in a console and in a notebook, and reports of evaluations that exist already."""

import json
import pickle

import pytest

import murmuration as mm
from murmuration.system.errors import Misuse


@pytest.fixture(scope="module")
def ensemble() -> mm.Ensemble:
    return mm.fit("mlp", "two-moons", members=2, epochs=1)


def test_a_recipe_prints_its_answers() -> None:
    recipe = mm.make_recipe("forde")
    assert repr(recipe) == f"Recipe({recipe})"
    assert "coupling input-gradients:lengthscales=pca" in repr(recipe)
    assert "<th>dynamics</th><td>optimizer</td>" in recipe._repr_html_()


def test_a_plan_prints_what_differs_from_the_defaults() -> None:
    plan = mm.Plan(members=3, augment=("flip",), posthoc=None)
    assert repr(plan) == "Plan(members=3, augment=('flip',), posthoc=None)"
    assert repr(mm.Plan()) == "Plan()"
    assert eval(repr(plan), {"Plan": mm.Plan}) == plan


def test_estimated_costs_print_as_a_few_lines() -> None:
    estimate = mm.estimate_costs("mlp", "two-moons", members=2, epochs=3)
    title, *rows = repr(estimate).splitlines()
    assert title.startswith("CostEstimate of deep-ensemble: 2 members, 3 epochs, ")
    assert [row.split(":")[0].strip() for row in rows] == [
        *("total", "training", "a step", "memory of a process", "disk")
    ]
    assert "<th>disk</th>" in estimate._repr_html_()


def test_scores_are_a_dict_that_prints_as_a_table(ensemble: mm.Ensemble) -> None:
    data = mm.open_data("two-moons")
    scores = mm.score(ensemble.predict(data.test), data.test.y)
    head, *rows = repr(scores).splitlines()
    assert head.split() == ["score", "value", "95", "%", "interval"]
    assert [row.split()[0] for row in rows] == [*scores]
    accuracy = next(row for row in rows if row.startswith("accuracy "))
    assert accuracy.split()[1] == f"{scores['accuracy']:.3g}"
    assert "<th>nll</th>" in scores._repr_html_()
    assert isinstance(scores, dict)
    assert json.loads(json.dumps(scores)) == {name: float(score) for name, score in scores.items()}
    again = pickle.loads(pickle.dumps(scores))
    assert again == scores
    assert again["nll"].low == scores["nll"].low


def test_a_report_takes_evaluations(ensemble: mm.Ensemble, tmp_path) -> None:
    data = mm.open_data("two-moons")
    first, second = (mm.evaluate(ensemble, data, name=name) for name in ("first", "second"))
    assert mm.report(first).evaluations == (first,)
    report = mm.report([first, second], path=tmp_path / "report.html")
    assert [evaluation.name for evaluation in report.evaluations] == ["first", "second"]
    assert "<html" in (tmp_path / "report.html").read_text()
    with pytest.raises(Misuse, match=r"report of an ensemble without data: write mm\.report\(ensemble, data"):
        mm.report(ensemble)
    with pytest.raises(Misuse, match=r"write mm\.report\(evaluations, path='report\.html'\)"):
        mm.report(first, data)
    with pytest.raises(Misuse, match="report of a list: expected ensembles, or evaluations"):
        mm.report([ensemble])
