"""The experiment on a grid small enough for seconds, and verdicts on records made by hand."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from check_report import report_check

import murmuration.studies.papers.embedded.theorems as theorems
from murmuration.data import open_data
from murmuration.runs.directory import versions
from murmuration.studies.papers import reproduce
from murmuration.studies.papers.embedded import record as record_module
from murmuration.studies.papers.embedded.cells import (
    count_steps,
    crossing,
    embedded_parameters,
    find_largest_step,
    matching_width,
    summarise_kernels,
    train_cell,
)
from murmuration.studies.papers.embedded.page import page, parameters_panel
from murmuration.studies.papers.embedded.predictions import PREDICTIONS, members_tolerated, undertrained, verdicts
from murmuration.studies.papers.embedded.record import Results, about, run
from murmuration.studies.papers.embedded.settings import ARMS, MEANS, PROBED, Cell, Grid, Setting, between_name
from murmuration.studies.papers.record import RECORD
from murmuration.system.errors import Failure, Misuse
from murmuration.system.files import write_record
from murmuration.system.records import plain_json

TINY = Setting(("panels",), data="two-moons", base=4, epochs=1, inputs=3)
GRID = Grid(widths=(1, 2), models=(1, 2), arms=("naive", "independent", "single"), seeds=(0,))
SEEDS = (0, 1, 2)
NOISE = (-0.0003, 0.0001, 0.0002)  # of accuracies, one a seed


def quiet(text: str, done: int, total: int) -> None:
    return None


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run(tmp_path_factory.mktemp("embedded"), TINY, GRID, quiet)


def test_one_member_alone_is_trained_once_for_all_arms(made):
    cells = [record_module.cell_of(entry) for entry in made["cells"]]
    assert len(cells) == len(set(cells)) == 2 + 3 * 2  # M=1 at two widths; M=2 of three arms
    assert {cell.arm for cell in cells if cell.models == 1} == {"naive"}
    found = Results(made)
    alone = Cell("naive", 1.0, 1, 0)
    assert found.score(alone._replace(arm="independent"), "accuracy") == found.score(alone, "accuracy")


def test_parameters_are_those_stored(made):
    found = Results(made)
    assert found.score(Cell("naive", 1.0, 2, 0), "parameters") == 2 * (2 * 4 + 4 + 4 * 4 + 4 + 4 * 2 + 2)
    embedded = found.score(Cell("independent", 1.0, 2, 0), "parameters")
    kernels, factors = 4 * (2 + 4 + 2), 2 * (3 * 2 * 4 + 2)  # once; per member two factors and a bias a neuron
    assert embedded == kernels + factors == embedded_parameters(TINY, open_data("two-moons"), 4, 2)
    single = Cell("single", 1.0, 2, 0)
    wide = matching_width(TINY, open_data("two-moons"), int(embedded))
    assert found.score(single, "neurons") == wide
    sizes = [abs(n * n + n * 6 + 2 - embedded) for n in (wide - 1, wide, wide + 1)]
    assert min(sizes) == sizes[1]


@pytest.mark.parametrize("layers", [1, 3])
def test_parameters_are_counted_at_other_depths(layers):
    data, setting = open_data("two-moons"), replace(TINY, layers=layers)
    entry = train_cell(Cell("independent", 1.0, 2, 0), setting, data)
    kernels = 4 * (2 + (layers - 1) * 4 + 2)
    assert entry["parameters"] == kernels + 2 * (3 * layers * 4 + 2)
    plain = train_cell(Cell("naive", 1.0, 1, 0), setting, data)
    assert matching_width(setting, data, plain["parameters"]) == 4


def test_a_convolutional_arm_trains_and_is_matched(digits):
    setting = replace(TINY, data="digits", net="small-cnn", base=2, train=128)
    data = record_module.cut(open_data("digits"), setting)
    assert len(data.train) == 128
    entry = train_cell(Cell("independent", 1.0, 2, 0), setting, data)
    kernels = 9 * (1 * 2 + 2 * 4 + 4 * 4) + 4 * 10  # one pixel is left after three poolings
    factors = 3 * (2 + 4 + 4) + 10  # two factors and a bias for each channel; biases of the head
    assert entry["parameters"] == kernels + 2 * factors
    with pytest.raises(Misuse, match="small-cnn takes images"):
        record_module.cut(open_data("two-moons"), replace(setting, data="two-moons"))


def test_what_is_known_is_not_computed_again(tmp_path, monkeypatch, made):
    calls: list[Cell] = []

    def counted(cell: Cell, setting: Setting, data: Any) -> dict[str, Any]:
        calls.append(cell)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return train_cell(cell, setting, data)

    monkeypatch.setattr(record_module, "MEASURES", {**record_module.MEASURES, "trained": counted, "wider": counted})
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, TINY, GRID, quiet)
    assert len(json.loads((tmp_path / RECORD).read_text())["cells"]) == 3
    calls[:] = [Cell("", 0, 0, 0)] * 4  # so that nothing is interrupted again
    whole = run(tmp_path, TINY, GRID, quiet)
    assert len(calls) == 4 + len(GRID.cells()) - 3

    def told(record: dict[str, Any]) -> list[dict[str, Any]]:
        return [{key: value for key, value in entry.items() if key != "seconds"} for entry in record["cells"]]

    assert told(whole) == told(made)
    assert run(tmp_path, TINY, replace(GRID, models=(2,)), quiet) == whole
    assert len(calls) == 4 + len(GRID.cells()) - 3


def test_records_of_something_else_are_refused(tmp_path, made):
    write_record(tmp_path / RECORD, made)
    with pytest.raises(Misuse, match="was made with epochs=1, not 2"):
        run(tmp_path, replace(TINY, epochs=2), GRID, quiet)
    (tmp_path / RECORD).write_text("[]")
    with pytest.raises(Failure, match="is not a record of the experiment embedded"):
        run(tmp_path, TINY, GRID, quiet)
    with pytest.raises(Misuse, match="data='x-sin-x' is a regression"):
        run(tmp_path / "new", replace(TINY, data="x-sin-x"), GRID, quiet)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"arms": ("naiv",)}, "did you mean 'naive'"),
        ({"widths": (0.0,)}, "positive multiples"),
        ({"models": (2, 2)}, "each once"),
        ({"seeds": (-1,)}, "seeds at least 0"),
    ],
)
def test_bad_grids_are_refused(change, words):
    with pytest.raises(Misuse, match=words):
        replace(GRID, **change)


def test_the_grid_leaves_no_arm_out():
    cells = Grid().cells()
    lines = [cell for cell in cells if cell.arm in ("independent", "collective", "masks-0.5")]
    assert len(lines) == 3 * 5 * 6 * 12
    assert sum(cell.arm.startswith("interpolation") for cell in cells) == len(MEANS) * 12
    assert {cell.arm.split("-0")[0] for cell in cells} == {name.split("-0")[0] for name in ARMS}


def test_members_of_both_regimes_feel_each_other_as_theory_says():
    data, setting = open_data("two-moons"), replace(TINY, base=128)
    ratios = {arm: train_cell(Cell(arm, 1.0, 4, 0), setting, data)["tangent_ratio"] for arm in ("independent",)}
    ratios["collective"] = train_cell(Cell("collective", 1.0, 4, 0), setting, data)["tangent_ratio"]
    assert abs(ratios["independent"]) < 0.05  # 0 in the limit, off by about N^(-1/2) / sqrt(pairs)
    assert 0.25 < ratios["collective"] < 0.6


def test_the_largest_eigenvalue_of_equal_members_is_their_number():
    kernels = summarise_kernels(torch.ones(5, 5))
    assert kernels.ratio == pytest.approx(1.0)
    assert kernels.top == pytest.approx(5.0)


def test_probes_find_steps_that_learn():
    data = open_data("two-moons")
    found = find_largest_step(Cell("largest-step", 1.0, 2, 0), replace(TINY, largest_step_epochs=1), data)
    assert math.log2(found["value"]) * 2 == pytest.approx(round(math.log2(found["value"]) * 2))
    assert 0.01 < found["value"] < 16
    few = count_steps(Cell("steps", 4.0, 2, 0), replace(TINY, steps_epochs=30, steps_lr=0.3), data)["value"]
    many = count_steps(Cell("steps", 4.0, 2, 0), replace(TINY, steps_epochs=60, steps_lr=0.15), data)["value"]
    assert few < many
    assert count_steps(Cell("steps", 1.0, 2, 0), replace(TINY, steps_epochs=1, steps_lr=1e-6), data)["value"] is None


def test_crossings_lie_between_epochs():
    assert crossing([8.0, 4.0, 1.0], 2.0) == pytest.approx(1.5)
    assert crossing([1.0, 0.5], 2.0) == 0.0


def by_hand(kind: str) -> dict[str, Any]:
    """A record in which all predictions hold ("right") or all fail ("wrong")."""
    right, setting = kind == "right", Setting(base=32)
    cells: list[dict[str, Any]] = []
    for seed, noise in zip(SEEDS, NOISE, strict=True):
        for width in (0.25, 0.5, 1.0, 2.0, 4.0):
            for models in (1, 2, 4, 8, 16, 32, 64):
                full = models / setting.neurons(width) if right else models / 32
                fall = 0.0 if full <= 1 / 4 else 0.02 * math.log2(full * 4)
                lost = fall / 4 if right else 2 * fall
                gain = 0.02 * (1 - 1 / models) if right else 0.01 * math.log2(models)
                base = 0.95 + noise
                lines = {
                    "naive": (base + gain, base, 1.0),
                    "independent": (base + gain - lost, base, 1 - fall) if right else (0.9 - lost, 0.9, 1 - fall),
                    "collective": (base + gain, base, 1.0),
                }
                for arm, (accuracy, member, train) in lines.items():
                    if models == 1 and arm != "naive":
                        continue
                    extra = 0.0 if arm != "collective" or right else 0.01 * math.log2(models)
                    cell = Cell(arm, width, models, seed)._asdict()
                    scores = {"accuracy": accuracy - extra, "member_accuracy": member - extra}
                    cells.append({**cell, **scores, "member_train_accuracy": train + noise, "parameters": 1})
        slow = 1 if right else 0
        for models in PROBED["step"][1]:
            cells.append({**Cell("largest-step", 1.0, models, seed)._asdict(), "value": (1 + noise) / models**slow})
            cells.append({**Cell("largest-step-mean", 1.0, models, seed)._asdict(), "value": models ** (slow - 1.0)})
        for models in PROBED["steps"][1]:
            cells.append({**Cell("steps", 1.0, models, seed)._asdict(), "value": 10.0 + noise})
            cells.append({**Cell("steps-mean", 1.0, models, seed)._asdict(), "value": 10.0 * models**slow})
        for mean in MEANS:
            top = 2.0 * (1 + 10 * mean**2) if right else 2.0 * (1 + 0.3 * mean**2)
            top = top if right or mean < 0.9 else 4.0
            cell = Cell(between_name(mean), PROBED["interpolation"][0], 16, seed)._asdict()
            cells.append({**cell, "top_alignment": top * (1 + noise)})
    begun = {"experiment": "embedded", "setting": plain_json(setting), "versions": versions()}
    return {**begun, "data": about(open_data("two-moons")), "cells": cells, "theorems": []}


@pytest.mark.parametrize(("kind", "word"), [("right", "holds"), ("wrong", "does not hold")])
def test_verdicts_follow_the_record(kind, word):
    assert {each.name: each.word for each in verdicts(by_hand(kind))} == {f"P{n}": word for n in range(1, 8)}


def test_without_cells_or_seeds_nothing_can_be_told():
    record = by_hand("right")
    assert {each.word for each in verdicts({**record, "cells": []})} == {"not run"}
    alone = {**record, "cells": [cell for cell in record["cells"] if cell["seed"] == 0]}
    assert {each.word for each in verdicts(alone)} == {"cannot tell"}
    assert len(PREDICTIONS) == 7


def test_two_seeds_that_agree_are_no_interval():
    """Slopes of two seeds may be equal by chance: Student's interval then has no width and decides anything."""
    for record in (by_hand("right"), by_hand("wrong")):
        twice = [{**cell, "seed": seed} for cell in record["cells"] if cell["seed"] == 0 for seed in (0, 1)]
        assert {each.word for each in verdicts({**record, "cells": twice})} == {"cannot tell"}


def test_arms_that_were_not_run_are_named():
    record = by_hand("right")
    some = [cell for cell in record["cells"] if cell["arm"] in ("independent", "naive", "steps")]
    found = {each.name: each for each in verdicts({**record, "cells": some})}
    assert [name for name, each in found.items() if each.word == "not run"] == ["P4", "P5", "P6", "P7"]
    assert found["P6"].missing == ("the arm steps-mean",)
    assert found["P7"].note == "needs the arm interpolation"
    text = page({**record, "cells": some})
    assert "Of 12 predictions: 3 hold; 9 were not run." in text
    assert "no switch was seen" not in text
    one = [cell for cell in record["cells"] if not cell["arm"].startswith("steps")]
    assert "Of 12 predictions: 6 hold; 6 were not run." in page({**record, "cells": one})
    assert "Of 12 predictions: 7 do not hold; 5 were not run." in page(by_hand("wrong"))


def test_undertrained_networks_are_warned_of():
    record = by_hand("right")
    assert undertrained(Results(record)) == ""
    poor = [{**cell, "member_train_accuracy": 0.6} if "parameters" in cell else cell for cell in record["cells"]]
    told = undertrained(Results({**record, "cells": poor}))
    assert told.startswith("Undertrained: after 14 epochs separate networks of N = 128 classify 60.0 % of their")
    assert told in page({**record, "cells": poor})
    assert "Undertrained" not in page(record)


def test_the_axis_of_parameters_has_several_ticks():
    record = by_hand("right")
    sized = [
        {**cell, "parameters": 3000 * cell["models"]} if "parameters" in cell else cell for cell in record["cells"]
    ]
    drawn = parameters_panel(Results({**record, "cells": sized}))
    assert len([tick for tick in drawn.layout["xaxis"]["tickvals"] if 3000 <= tick <= 200_000]) > 3


def test_tolerance_is_read_off_the_curve():
    assert members_tolerated(Results(by_hand("right")), 1.0, 0) == pytest.approx(
        8 * math.sqrt(2)
    )  # half of 0.02, in log M
    assert members_tolerated(Results(by_hand("right")), 4.0, 0) == pytest.approx(32 * math.sqrt(2))


@pytest.mark.parametrize("record", ["tiny", "right"])
def test_the_page_is_sound(tmp_path, made, record):
    text = page(made if record == "tiny" else by_hand("right"), "murmur <b>")
    (tmp_path / "report.html").write_text(text)
    assert report_check(tmp_path / "report.html") == []
    assert "murmur &lt;b&gt;" in text
    assert ("does not hold" in text) or record == "right" or "cannot tell" in text
    for panel in ("independent-accuracy", "independent-member-train-accuracy", "parameters"):
        assert f'id="{panel}"' in text


def test_examples_of_the_docs_run(capsys):
    page = Path(__file__).parents[3] / "docs" / "embedded.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    exec("\n".join(blocks), {})
    assert capsys.readouterr().out.split()[-1] == "5"


def test_the_table_knows_its_experiments():
    with pytest.raises(Misuse, match="unknown experiment 'embeded': did you mean 'embedded'"):
        reproduce("embeded", {}, Path("out"), lambda text, done, total: None, "")


def test_kurtosis_and_correlation_of_known_laws():
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(20000, 2, 1, 1, generator=generator, dtype=torch.float64)
    assert float(theorems.excess_kurtosis(normal)) == pytest.approx(0, abs=4 * math.sqrt(24 / 40000))
    uniform = torch.rand(20000, 2, 1, 1, generator=generator, dtype=torch.float64) - 0.5
    assert float(theorems.excess_kurtosis(uniform)) == pytest.approx(-1.2, abs=0.05)
    common = normal[:, :1] * 0.6**0.5 + normal * 0.4**0.5  # S_o / S_d of members 0 and 1: known in closed form
    a, b = common[:, 0].square().mean(), common[:, 1].square().mean()
    expected = float(2 * (common[:, 0] * common[:, 1]).mean() / (a + b))
    assert float(theorems.member_correlation(common)) == pytest.approx(expected, abs=1e-12)
    assert float(theorems.member_correlation(normal)) == pytest.approx(0, abs=4 / math.sqrt(20000))


def theorem_entries(spread: float, limit: float) -> list[dict[str, Any]]:
    """Measurements that follow N^spread, with a correlation of collective members."""
    entries = []
    for arm in theorems.ARMS:
        for width in theorems.WIDTHS:
            for seed, noise in zip(SEEDS, NOISE, strict=True):
                falls = (1 + noise) * width**spread
                measures = {"kurtosis": falls**2, "spread": falls, "between": falls, "change": falls}
                correlation = limit + noise if arm == "collective" else noise
                entries.append({"arm": arm, "neurons": width, "seed": seed, "correlation": correlation, **measures})
    return entries


def test_verdicts_on_theorems_follow_the_measurements():
    limit = theorems.limit_correlation("collective", 2)
    assert {v.word for v in theorems.verdicts(theorem_entries(-0.5, limit), 2)} == {"holds"}
    assert {v.word for v in theorems.verdicts(theorem_entries(0.0, limit + 0.2), 2)} == {"does not hold"}
    assert {v.word for v in theorems.verdicts([], 2)} == {"not run"}


def test_theorems_are_measured_and_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(theorems, "WIDTHS", (8, 16))
    monkeypatch.setattr(theorems, "DRAWS", 3)
    monkeypatch.setattr(theorems, "KERNEL_DRAWS", 2)
    options = {"parts": ("theorems",), "data": "two-moons", "seeds": (0,)}
    outcome = reproduce("embedded", options, tmp_path / "x", quiet, "")
    assert len(outcome.record["theorems"]) == 4
    assert [v["verdict"] for v in outcome.record["verdicts"] if v["name"] == "theorem 2.2"] == [
        "cannot tell"
    ]  # one seed
    (tmp_path / "page.html").write_text(outcome.page)
    assert report_check(tmp_path / "page.html") == []
    assert 'id="theorem-kurtosis"' in outcome.page
    again = reproduce("embedded", options | {"seeds": (0, 1)}, tmp_path / "x", quiet, "")
    assert again.record["theorems"][:4] == outcome.record["theorems"]
    assert len(again.record["theorems"]) == 8


def test_a_grid_that_ends_before_saturation_does_not_judge_it():
    record = by_hand("right")
    few = [cell for cell in record["cells"] if cell["models"] <= 8 or "value" in cell or "top_alignment" in cell]
    verdict = next(v for v in verdicts({**record, "cells": few}) if v.name == "P4")
    assert (verdict.word, verdict.note) == ("not run", "needs M of at least 16")
