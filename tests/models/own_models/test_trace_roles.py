"""The table of parameters: what each is, what the recipe makes of it, and the reason where it leaves it out."""

import json

import pytest
import torch
from networks import NETWORKS, data_for
from torch import nn

import murmuration as mm
from murmuration.core.recipe import make_recipe
from murmuration.core.roles import ParameterRoles
from murmuration.reports.page import render
from murmuration.reports.report import report_of
from murmuration.system.errors import Misuse
from murmuration.training.plan import Plan

PLAN = Plan(epochs=1, batch_size=16, posthoc=None, engine="loop")


def roles(name: str, recipe: str, **answers: str) -> ParameterRoles:
    net = NETWORKS[name]
    return mm.parameter_roles(net.build, make_recipe(recipe, **answers), data_for(net.inputs))


def test_kinds_of_a_vision_transformer():
    found = roles("vit", "bayes")
    kinds = {row.name: row.kind for row in found}
    assert kinds == {
        "token": "added",
        "position": "added",
        "patches.weight": "kernel",
        "patches.bias": "bias",
        "norm.weight": "norm",
        "norm.bias": "norm",
        "head.weight": "kernel",
        "head.bias": "bias",
        "kernels.weight": "kernel",
        "kernels.bias": "bias",
    }
    assert {row.name for row in found if row.gaussian} == {n for n, kind in kinds.items() if kind in ("kernel", "bias")}
    assert found["position"].reason.startswith("added to activations")
    assert all(row.sharing == "own" for row in found)


def test_batch_ensemble_shares_and_scales():
    found = roles("masked-linear", "batch-ensemble")
    assert found["stem.weight"].sharing == "shared"
    assert {row.name: row.scaled for row in found} == {
        "stem.weight": "in, out",
        "stem.bias": "",
        "head.weight": "in, out",
        "head.bias": "",
    }
    assert found["head.bias"].sharing == "own"


def test_dropout_names_the_kernels_whose_inputs_are_dropped():
    found = roles("plain", "mc-dropout")
    assert {row.name: row.dropped for row in found if row.kind == "kernel"} == {"0.weight": 0.0, "2.weight": 0.1}
    assert found["0.weight"].reason == "its inputs are those of the network"
    own = roles("mha-dropout", "mc-dropout")
    assert own["head.weight"].reason == "dropout of the net itself is active"


def test_the_last_layer_and_fixed_parameters():
    found = roles("gated", "bayes-last-layer")
    assert [row.name for row in found if row.gaussian] == ["head.weight", "head.bias"]
    assert found["gate.weight"].reason == "not in where=last"
    frozen = roles("frozen", "bayes")
    assert frozen["body.0.weight"].sharing == "fixed"
    assert frozen["body.0.weight"].reason == "requires_grad=False"
    assert frozen["head.weight"].gaussian


def test_a_refusal_is_the_last_line():
    found = roles("lstm", "bayes")
    assert found.refusal.startswith("'recurrent.weight_ih_l0' is multiplied by torch.lstm")
    assert str(found).splitlines()[-1] == f"refused: {found.refusal}"
    drawn = roles("lstm", "bayes", weights="gaussian:estimator=draw")
    assert not drawn.refusal
    assert all(row.gaussian for row in drawn)
    assert drawn["recurrent.weight_hh_l0"].reason == "drawn once a pass, whatever the estimator"


def test_the_table_as_text_frame_and_json():
    found = roles("plain", "bayes")
    lines = str(found).splitlines()
    assert lines[0].split() == ["parameter", "shape", "kind", "sharing", "weights", "scaled", "dropped", "reason"]
    assert lines[1].split() == ["0.weight", "8", "x", "6", "kernel", "own", "Gaussian"]
    assert len(lines) == 5
    assert found.to_frame()["gaussian"].tolist() == [True] * 4
    assert ParameterRoles.from_json(json.loads(json.dumps(found.to_json()))) == found
    assert "Gaussian" in found._repr_html_()
    with pytest.raises(Misuse, match="unknown parameter 'stem'"):
        found["stem"]


def test_inputs_alone_need_a_module():
    assert mm.parameter_roles(nn.Linear(4, 3), "deep-ensemble", torch.zeros(2, 4))["weight"].sharing == "own"
    with pytest.raises(Misuse, match="give data with y"):
        mm.parameter_roles("mlp", "bayes", torch.zeros(2, 4))


def test_a_run_says_stores_and_reports_its_parameters(tmp_path):
    said: list[str] = []
    net, data = NETWORKS["gated"], data_for("table")
    ensemble = mm.fit(
        net.build,
        data,
        recipe="bayes-last-layer",
        plan=PLAN,
        out=tmp_path / "run",
        progress=lambda text, *_: said.append(text),
    )
    assert "6 parameters, of which 2 Gaussian (head.weight, head.bias)" in said
    again = mm.load(tmp_path / "run", net=net.build)
    assert again.parameter_roles == ensemble.parameter_roles
    assert again.parameter_roles == roles("gated", "bayes-last-layer")
    page = render(report_of([mm.evaluate(again, data)]))
    assert "2 Gaussian (head.weight, head.bias)" in page
    assert "not in where=last" in page


def test_every_recipe_has_a_table():
    ensemble = mm.fit(NETWORKS["frozen"].build, data_for("table"), members=2, plan=PLAN, progress=False)
    assert {row.sharing for row in ensemble.parameter_roles} == {"own", "fixed"}
    assert ensemble.parameter_roles["body.1.weight"].kind == "norm"
