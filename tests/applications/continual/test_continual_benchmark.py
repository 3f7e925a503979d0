"""The benchmarks: contenders compute the same, cells are kept, and tables say what the record says."""

import continual as throughput
import continual_streams as cells
import continual_table
import torch
from markdown_tables import table_rows

from murmuration.applications.continual.flows import vector_flow


def test_the_plain_flow_is_the_same_flow() -> None:
    torch.manual_seed(0)
    plain = throughput.PlainFlow()
    flow = vector_flow(throughput.DIMENSIONS, couplings=throughput.COUPLINGS, hidden=throughput.HIDDEN)
    for coupling, net, bound in zip(flow.layers, plain.nets, plain.bounds, strict=True):
        coupling.net.load_state_dict(net.state_dict())
        coupling.bound.data.copy_(bound)
    x, _ = throughput.batch()
    for found, expected in zip(flow(x), plain(x), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_the_contenders_take_a_step() -> None:
    found = throughput.measure({"murmuration": throughput.ours(), "plain": throughput.plain()}, rounds=1)
    assert min(found.values()) > 0


def test_the_stream_of_twenty_changes() -> None:
    stream = cells.permuted(0)
    order = [tasks[0] for tasks in stream.segments]
    assert len(order) == 21
    assert sum(task in order[:place] for place, task in enumerate(order)) == 5
    assert len(stream.tasks) == 16
    first, other = (task.train.prepared for task in stream.tasks[:2])
    assert torch.equal(first.sort(1).values, other.sort(1).values)
    assert not torch.equal(first, other)


def cell(method: str, seed: int, final: float, detection: dict | None = None) -> dict:
    stream = "split-mnist" if detection is None else "changes-digits"
    kept = {"final_average": final, "forgetting": 0.1, "task_id": None, "memory": {"network": 2**20}}
    return {"stream": stream, "method": method, "seed": seed, "detection": detection, **kept}


def test_tables_say_what_the_record_says() -> None:
    noticed = {"changes": 20, "misses": 1, "false_alarms": 2, "mean_delay": 1.5, "recurring": 5, "recognised": 4}
    record = {"cells": [cell("hcl-fr", 0, 0.9), cell("hcl-fr", 1, 0.8), cell("hcl-gr", 0, 0.7, noticed)]}
    rows = table_rows(continual_table.continual_table(record))
    assert rows[1][:3] == ["split-mnist", "`hcl-fr`", "2"]
    assert rows[1][3].startswith("85.0 ± ")
    assert rows[1][4] == "90.89"
    assert rows[2] == ["changes-digits", "`hcl-gr`", "1", "70.0", "", "10.0", "", "1.00 MB"]
    (row,) = table_rows(continual_table.detection_table(record))[1:]
    assert row == ["changes-digits", "`hcl-gr`", "1", "20", "1", "2", "1.5 batches", "4 of 5"]


def test_the_sentence_names_the_method_of_highest_mean() -> None:
    cells = [cell("hcl-fr", 0, 0.7), cell("lda", 0, 0.9), cell("lda", 1, 0.7), cell("joint", 0, 0.95)]
    assert continual_table.winners_sentence({"cells": cells}).endswith(
        "is that of `lda` in split-mnist (80.0 %, `hcl-fr` has 70.0 %)."
    )


def test_the_table_of_identification_has_a_row_for_each_ensemble() -> None:
    named = {"density": 0.9, "disagreement": 0.5, "typicality": 0.75}
    record = {"cells": [cell("lda", 0, 0.8), cell("hcl-bayes", 0, 0.9) | {"identified": named}]}
    (row,) = table_rows(continual_table.identification_table(record))[1:]
    assert row == ["split-mnist", "`hcl-bayes`", "1", "90.0", "50.0", "75.0"]


def test_a_cell_is_kept_once_and_in_order(tmp_path) -> None:
    path = tmp_path / "continual.json"
    for method, final in (("lda", 0.5), ("hcl-fr", 0.6), ("lda", 0.7)):
        cells.add_cell(cell(method, 0, final), path)
    found = cells.read_json(path)["cells"]
    assert [(each["method"], each["final_average"]) for each in found] == [("hcl-fr", 0.6), ("lda", 0.7)]
