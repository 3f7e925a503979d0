"""A learner in a stream: scores, detection by hand, killed and resumed, and all methods on a small stream."""

from pathlib import Path

import numpy as np
import pytest
import torch

from murmuration.applications.continual.harness import (
    Progress,
    detection_of,
    evaluated,
    meanings,
    note_task,
    restored,
    run_learner,
    run_method,
)
from murmuration.applications.continual.methods import METHODS, MethodSettings, method_named
from murmuration.applications.continual.task_streams import BatchPlan, TaskStream, open_stream
from murmuration.system.errors import Failure, Misuse

PLAN = BatchPlan(16, epochs=2)
SETTINGS = MethodSettings(couplings=2, hidden=8, settle=2, warmup=2, window=10, members=2, capacity=20)


@pytest.fixture(scope="module")
def stream() -> TaskStream:
    """Three tasks of two classes, 32 examples each, in 6 dimensions."""
    generator = np.random.default_rng(0)
    centres = 4 * generator.normal(size=(6, 6))
    y = np.arange(240) % 6
    x = centres[y] + generator.normal(size=(240, 6))
    return open_stream([(x[y // 2 == t], y[y // 2 == t]) for t in range(3)], examples=32)


def plain(record: dict) -> dict:
    return {name: value for name, value in record.items() if name != "seconds"}


@pytest.mark.parametrize("name", METHODS)
def test_a_killed_run_continues_with_the_same_bits(name: str, stream: TaskStream, tmp_path: Path) -> None:
    whole = run_method(name, stream, PLAN, SETTINGS)

    def kill(text: str, done: int, total: int) -> None:
        if done == total * 2 // 3 + 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_method(name, stream, PLAN, SETTINGS, place=tmp_path, show=kill, every=0)
    steps: list[int] = []
    again = run_method(name, stream, PLAN, SETTINGS, place=tmp_path, show=lambda _, done, __: steps.append(done))
    assert steps[0] > 1  # it did not begin again
    assert plain(again.record) == plain(whole.record)
    assert set(again.samples) == set(whole.samples)
    for task, samples in whole.samples.items():
        assert torch.equal(samples, again.samples[task])


def test_the_checkpoint_of_another_stream_is_refused(stream: TaskStream, tmp_path: Path) -> None:
    run_method("ncm", stream, PLAN, SETTINGS, place=tmp_path)
    with pytest.raises(Failure, match="checkpoint of another stream"):
        run_method("ncm", stream, BatchPlan(8), SETTINGS, place=tmp_path)


def test_what_methods_reach(stream: TaskStream) -> None:
    """Well separated classes: discriminant analysis is right, plain training forgets, joint training does not."""
    lda, adam, joint = (run_method(name, stream, BatchPlan(16, 20), SETTINGS) for name in ("lda", "adam", "joint"))
    assert lda.accuracy.final_average > 0.95
    assert lda.record["task_id"]["final_average"] >= lda.accuracy.final_average
    assert adam.accuracy.final_average < 0.8
    assert adam.accuracy.forgetting > 0.4
    assert joint.accuracy.final_average > 0.95
    assert joint.accuracy.values.shape == (1, 3)
    assert np.isnan(lda.accuracy.values).tolist() == [[False, True, True], [False, False, True], [False] * 3]
    assert adam.record["detection"] is None
    losses = adam.record["losses"]
    assert losses[-1]["step"] == adam.record["steps"]
    assert losses[0]["loss"] > losses[9]["loss"]


def test_new_labels_make_a_change(stream: TaskStream) -> None:
    outcome = run_method("hcl-fr", stream, PLAN, SETTINGS)
    found = outcome.record["detection"]
    assert (found["misses"], found["false_alarms"], found["mean_delay"]) == (0, 0, 0)
    assert outcome.record["events"] == [[0, 0], [4, 1], [8, 2]]
    assert outcome.record["tasks_found"] == 3
    assert outcome.samples[1].shape[1:] == (6,)


def test_detection_by_hand() -> None:
    """Five segments of ten steps; the second is missed, the fourth recurs and is named right, the last is not."""
    order, starts = [0, 1, 2, 0, 2], [0, 10, 20, 30, 40, 50]
    events = [[0, 0], [5, 1], [23, 2], [31, 0], [35, 1], [40, 3]]
    found = detection_of(order, starts, events, {0: 0, 1: 0, 2: 2, 3: 1})
    assert [change["delay"] for change in found["changes"]] == [None, 3, 1, 0]
    assert [change["right"] for change in found["changes"]] == [False, True, True, False]
    assert [change["recurring"] for change in found["changes"]] == [False, False, True, True]
    assert (found["misses"], found["false_alarms"], found["mean_delay"]) == (1, 2, pytest.approx(4 / 3))
    assert (found["recurring"], found["recognised"]) == (2, 1)
    assert detection_of([0, 1], [0, 5, 9], [[0, 0]], {})["mean_delay"] is None


def test_tasks_of_the_learner_are_translated() -> None:
    class Named:
        """Calls everything label 0 of its task 7."""

        def classify(self, x):
            return torch.zeros(len(x)).long(), torch.full((len(x),), 7)

    domains = open_stream("split:digits:2x2", scenario="domain", examples=20)
    progress = Progress()
    for step, (task, found) in enumerate([(0, 7), (1, 7), (1, 7)]):
        note_task(progress, step, task, found)
    assert progress.events == [[0, 7]]
    accuracy, task_id = evaluated(Named(), domains, 1, meanings(progress.counts))
    assert task_id == [0, 1]
    assert accuracy == pytest.approx([float((task.test.y == 0).double().mean()) for task in domains.tasks])
    assert evaluated(Named(), domains, 0, None)[1] == [0, None]


def test_an_empty_directory_begins_anew(stream: TaskStream, tmp_path: Path) -> None:
    learner = method_named("lda").build(stream, SETTINGS)
    assert restored(tmp_path / "none", learner, stream, PLAN) == Progress()
    assert run_learner(learner, stream, PLAN, place=tmp_path / "new").record["steps"] == 12


def test_unknown_methods_and_flows_are_refused(stream: TaskStream) -> None:
    with pytest.raises(Misuse, match="unknown method 'hcl': did you mean"):
        method_named("hcl")
    with pytest.raises(Misuse, match="unknown flow 'glow'"):
        MethodSettings(flow="glow")
    with pytest.raises(Misuse, match="flow='image' for inputs of shape"):
        run_method("hcl-fr", stream, PLAN, MethodSettings(flow="image"))
