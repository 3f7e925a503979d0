"""Streams of tasks: splits of one data set, lists of data sets, batches from any step, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
import torch

from murmuration.applications.continual.task_streams import BatchPlan, batches, open_stream, segment_starts
from murmuration.system.errors import Misuse


def write_csv(path: Path, labels: str, shift: float = 0.0, columns: int = 2, rows: int = 40) -> str:
    generator = np.random.default_rng(len(path.stem))
    x = generator.normal(size=(rows, columns)) + shift
    head = ",".join([*(f"x{i}" for i in range(columns)), "kind"])
    lines = [",".join([*(f"{v:.4f}" for v in row), labels[i % len(labels)]]) for i, row in enumerate(x)]
    path.write_text("\n".join([head, *lines]) + "\n")
    return str(path)


def test_a_split_has_every_example_of_its_classes_once() -> None:
    stream = open_stream("split:digits:5x2")
    assert stream.segments == ((0,), (1,), (2,), (3,), (4,))
    assert stream.scenario == "class"
    assert sum(len(task.train) + len(task.test) for task in stream.tasks) == 1797
    for task in stream.tasks:
        assert set(task.train.y.tolist()) == set(task.test.y.tolist()) == set(task.labels)


def test_inputs_are_prepared_by_the_first_task_alone(tmp_path: Path) -> None:
    sources = [write_csv(tmp_path / "a.csv", "uv"), write_csv(tmp_path / "later.csv", "uv", shift=5.0)]
    stream = open_stream(sources, target="kind")
    assert stream.scenario == "domain"
    first, second = (task.train.prepared for task in stream.tasks)
    torch.testing.assert_close(first.mean(0), torch.zeros(2), atol=1e-6, rtol=0)
    assert float(second.mean()) > 3


def test_data_sets_without_a_common_label_bring_classes_of_their_own(tmp_path: Path) -> None:
    stream = open_stream([write_csv(tmp_path / "a.csv", "uv"), write_csv(tmp_path / "b.csv", "zw")], target="kind")
    assert (stream.scenario, stream.classes) == ("class", ("u", "v", "w", "z"))
    assert [task.labels for task in stream.tasks] == [(0, 1), (2, 3)]


def test_domains_of_a_split_have_labels_of_their_own() -> None:
    stream = open_stream("split:digits:3+7/1+9", scenario="domain")
    original = open_stream("split:digits:3+7/1+9")
    for task, other in zip(stream.tasks, original.tasks, strict=True):
        assert task.labels == (0, 1)
        assert torch.equal(task.train.y, (other.train.y == other.labels[1]).long())
        assert torch.equal(task.train.prepared, other.train.prepared)


def test_batches_are_the_same_from_any_step() -> None:
    stream, plan = open_stream("split:digits:2x2"), BatchPlan(50, epochs=2)
    whole = list(batches(stream, plan))
    assert [batch.step for batch in whole] == list(range(segment_starts(stream, plan)[-1]))
    assert {len(batch.y) for batch in whole} <= {48, 49, 50}  # 289 and 288 examples in 6 batches
    rest = list(batches(stream, plan, start=9))
    for batch, other in zip(rest, whole[9:], strict=True):
        assert (batch.step, batch.segment) == (other.step, other.segment)
        assert torch.equal(batch.x, other.x)
        assert torch.equal(batch.y, other.y)


def test_a_recurring_task_shows_other_examples() -> None:
    stream = open_stream("split:digits:2x2", order=[1, 2, 1])
    first, again = stream.segment_rows(0)[0], stream.segment_rows(2)[0]
    assert len(first) + len(again) == len(stream.tasks[0].train)
    assert not (first[:, None] == again).flatten(2).all(2).any()  # digits holds no image twice
    assert [stream.seen(segment) for segment in range(3)] == [[0], [0, 1], [0, 1]]


def test_joint_training_is_one_segment() -> None:
    stream = open_stream("split:digits:5x2").joint()
    assert len(stream.segment_rows(0)[1]) == sum(len(task.train) for task in stream.tasks)
    assert stream.seen(0) == [0, 1, 2, 3, 4]


def test_projections_and_fewer_examples() -> None:
    stream = open_stream("split:digits:2x2", project=16, examples=30)
    assert stream.input_shape == (16,)
    assert [len(task.train) for task in stream.tasks] == [30, 30]
    whole = open_stream("split:digits:2x2").tasks[0].test.prepared.flatten(1)
    full = open_stream("split:digits:2x2", project=64).tasks[0].test.prepared
    torch.testing.assert_close(full.norm(dim=1), whole.norm(dim=1))  # a rotation


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("split:digits:6x2", "asks for 12 classes, and the data has 10: it would end in the middle; write 5x2"),
        ("split:digits:0+1/1+2", "class 1 is in tasks 1 and 2"),
        ("split:digits:5x1", "task 1 .0. has one class, 0: expected at least 2"),
        ("split:digits:2", "expected tasks x classes such as 5x2"),
        ("split:digits:0+1/2+x", "unknown class 'x'"),
        ("digits", "is one data set, which is one task"),
        (["split:digits:5x2", "wine"], "expected one split:DATA:5x2 alone"),
        (["wine", "iris"], "the tasks have some labels in common|does not fit task 1"),
        (["wine", "diabetes"], "task 2 .diabetes.: diabetes is regression"),
        ([], "no data: write"),
    ],
)
def test_what_is_no_stream_is_refused(source, message: str) -> None:
    with pytest.raises(Misuse, match=message):
        open_stream(source)


@pytest.mark.parametrize(
    ("tables", "options", "message"),
    [
        ((("uv", 2), ("vw", 2)), {}, "some labels in common and others not: write scenario='domain'"),
        ((("uv", 2), ("uv", 2)), {"scenario": "class"}, "class u is in tasks 1 and 2"),
        ((("uv", 3), ("uv", 2)), {}, "task 2 .*b.csv. does not fit task 1"),
        ((("uv", 2), ("u", 2)), {"scenario": "domain"}, "task 2 .*b.csv.: every row has the label 'u'"),
        ((("uv", 2), ("uv", 2)), {"order": [1, 3]}, "order=1,3: expected numbers of tasks, 1 to 2"),
        ((("uv", 2), ("uv", 2)), {"order": [1, 1]}, "task 1 follows itself"),
        ((("uv", 2), ("uv", 2)), {"order": [2]}, "order=2 leaves out task 1"),
        ((("uv", 2), ("uv", 2)), {"project": 3}, "project=3: expected at least 2 and at most 2"),
        ((("uv", 2), ("uv", 2)), {"scenario": "both"}, "unknown scenario 'both'"),
    ],
)
def test_data_sets_that_do_not_fit_are_refused(tmp_path: Path, tables, options, message: str) -> None:
    sources = [
        write_csv(tmp_path / f"{name}.csv", labels, columns=columns)
        for name, (labels, columns) in zip("ab", tables, strict=True)
    ]
    with pytest.raises(Misuse, match=message):
        open_stream(sources, target="kind", **options)


def test_columns_that_the_first_task_lacks_are_left_out_with_a_note(tmp_path: Path) -> None:
    sources = [write_csv(tmp_path / f"{name}.csv", "uv", columns=count) for name, count in (("a", 2), ("b", 3))]
    with pytest.warns(UserWarning, match="x2"):
        stream = open_stream(sources, target="kind")
    assert {task.train.prepared.shape[1] for task in stream.tasks} == {2}


def test_features_of_another_width_and_empty_tasks_are_refused(tmp_path: Path) -> None:
    for name, width, rows in (("a", 4, 30), ("b", 5, 30), ("c", 4, 0)):
        np.savez(tmp_path / f"{name}.npz", x=np.random.default_rng(0).normal(size=(rows, width)), y=np.arange(rows) % 2)
    a, b, c = (str(tmp_path / f"{name}.npz") for name in "abc")
    with pytest.raises(Misuse, match=r"task 2 .*b.npz. does not fit task 1: .*5"):
        open_stream([a, b])
    with pytest.raises(Misuse, match=r"task 2 .*c.npz.: x has the shape .0, 4."):
        open_stream([a, c])


def test_many_whole_numbers_are_classes(tmp_path) -> None:
    """Features with labels 0 to 39 and no names of classes: elsewhere one has to say that these are no quantities."""
    rng = np.random.default_rng(0)
    y = np.arange(400) % 40
    np.savez(
        tmp_path / "features.npz",
        x_train=rng.normal(size=(400, 3)),
        y_train=y,
        x_test=rng.normal(size=(80, 3)),
        y_test=y[:80],
    )
    stream = open_stream(f"split:{tmp_path / 'features.npz'}:4x10")
    assert [len(task.labels) for task in stream.tasks] == [10] * 4
