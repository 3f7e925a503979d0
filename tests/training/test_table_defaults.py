"""Defaults for tables: filled in where nothing is given, never over a caller's value, the same at the command line."""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import murmuration as mm
from murmuration.cli import main
from murmuration.core.recipe import make_recipe
from murmuration.training.plan import Plan
from murmuration.training.table_defaults import defaults_for, filled_settings, table_defaults, table_noise

QUICK = {"members": 2, "steps": 6, "posthoc": None}


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(90, 2))
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": draw.choice(["u", "v"], 90), "y": x[:, 0] ** 2})


def test_the_defaults_follow_the_size():
    for rows in (20, 500, 999, 1000, 100_000):
        found = table_defaults(rows, 5)
        steps = max(1, rows // found.plan["batch_size"])
        assert found.plan["patience"] >= 16
        assert found.plan["patience"] * steps >= 100
        Plan(**found.plan)
    assert "embed" not in table_defaults(500, 5000).net


def test_the_learning_rate_of_large_tables_decays_over_a_budget_that_ends():
    below, large, huge, million = (table_defaults(rows, 5).plan for rows in (9_999, 10_000, 50_000, 1_000_000))
    assert (below["schedule"], below["steps"], below["batch_size"]) == ("constant", 10_000, 128)
    assert {large["schedule"], huge["schedule"], million["schedule"]} == {"hold-linear:0.01"}
    assert large["steps"] == 25 * math.ceil(10_000 / 128)
    assert [(plan["steps"], plan["batch_size"], plan["lr"]) for plan in (huge, million)] == [
        (4900, 256, 0.003),
        (5000, 256, 0.003),
    ]


def test_fit_fills_in_what_is_left_out(frame):
    ensemble = mm.fit(None, frame, target="y", **QUICK)
    data = mm.open_data(frame, target="y", val=0.15, test=0.0)
    found = table_defaults(len(data.train), data.input_shape[0])
    assert ensemble.manifest.net["name"] == found.net
    plan = ensemble.manifest.plan
    assert {name: plan[name] for name in found.plan} == {**found.plan, "steps": 6}
    given = mm.fit(found.net, frame, target="y", **{**found.plan, **QUICK})
    assert torch.equal(given.predict(frame).outputs, ensemble.predict(frame).outputs)


def test_a_caller_s_values_stay(frame):
    plan = mm.fit(None, frame, target="y", members=2, epochs=1, lr=0.1, patience=3, posthoc=None).manifest.plan
    found = [plan[name] for name in ("epochs", "steps", "lr", "patience", "optimizer")]
    assert found == [1, None, 0.1, 3, "adamw"]
    plan = mm.fit(None, frame, target="y", optimizer="sgd", **QUICK).manifest.plan
    assert (plan["lr"], plan["weight_decay"], plan["stop_by"]) == (Plan().lr, None, "ensemble")
    plan = mm.fit(None, frame, target="y", optimizer="adamw", weight_decay=0.2, **QUICK).manifest.plan
    assert (plan["lr"], plan["weight_decay"]) == (table_defaults(76, 4).plan["lr"], 0.2)
    assert "steps" not in filled_settings(table_defaults(100, 3), {"patience": None})
    own = filled_settings(table_defaults(100, 3), {"optimizer": torch.optim.RMSprop})
    assert not {"lr", "weight_decay"} & {*own}


@pytest.mark.parametrize(
    "settings",
    [
        {"net": lambda: torch.nn.Linear(5, 2)},
        {"net": "linear"},
        {"net": "mlp", "plan": Plan(members=2, epochs=1)},
        {"net": None, "plan": Plan(members=2, epochs=1)},
        {"net": None, "recipe": "swa"},
        {"net": "mlp", "recipe": "swa"},
    ],
)
def test_own_networks_plans_and_special_recipes_have_the_usual_settings(settings, frame):
    quick = {} if "plan" in settings else {"epochs": 4, "members": 1 if "recipe" in settings else 2}
    record = mm.fit(data=frame, target="y", posthoc=None, **quick, **settings).manifest
    assert (record.plan["lr"], record.plan["patience"]) == (Plan().lr, None)


def test_a_named_network_keeps_its_name_and_gets_the_settings(frame):
    found = mm.fit("mlp:hidden=8", frame, target="y", **QUICK)
    plan = found.manifest.plan
    assert found.manifest.net["name"] == "mlp:hidden=8"
    assert {name: plan[name] for name in table_defaults(76, 4).plan} == {**table_defaults(76, 4).plan, "steps": 6}
    start = mm.fit("mlp:hidden=8", frame, target="y", init_from=found.member(0), epochs=1, posthoc=None)
    assert (start.manifest.plan["lr"], start.manifest.plan["patience"]) == (Plan().lr, None)


def test_images_toys_and_features_are_no_tables(digits):
    deep = make_recipe("deep-ensemble")
    assert defaults_for(digits, deep) is None
    assert defaults_for(mm.open_data("two-moons"), deep) is None
    assert defaults_for(mm.open_data("diabetes"), deep) == replace(table_defaults(310, 10), loss=table_noise(310))
    rows = mm.open_data((np.random.default_rng(0).normal(size=(50, 3)), np.arange(50.0)))
    assert defaults_for(rows, deep) == replace(table_defaults(len(rows.train), 3), loss=table_noise(len(rows.train)))
    assert defaults_for(rows, make_recipe("tabm")) is not None
    for name in ("forde", "bayes", "swag", "batch-ensemble-independent", "ivon"):
        assert defaults_for(rows, make_recipe(name)) is None


def test_the_command_line_does_the_same(frame, tmp_path, capsys):
    frame.to_csv(tmp_path / "t.csv", index=False)
    command = ["train", str(tmp_path / "t.csv"), "--target", "y", "--members", "2", "--steps", "6", "--lr", "0.01"]
    assert main([*command, "--out", str(tmp_path / "run"), "--json"]) in (0, None)
    capsys.readouterr()
    written = json.loads((tmp_path / "run" / "run.json").read_text())
    data = mm.open_data(tmp_path / "t.csv", target="y")
    found = table_defaults(len(data.train), data.input_shape[0])
    assert written["net"]["name"] == found.net
    assert {name: written["plan"][name] for name in found.plan} == {**found.plan, "steps": 6, "lr": 0.01}
    told = f"Network: {found.net}, trained by adamw, learning rate 0.01, weight decay 0.01, batches of 32."
    assert told in (tmp_path / "run" / "report.html").read_text()
    again = mm.fit(None, data, members=2, steps=6, lr=0.01)
    ours = mm.load(tmp_path / "run").predict(frame, calibrated=False).outputs
    assert torch.equal(ours, again.predict(frame, calibrated=False).outputs)
