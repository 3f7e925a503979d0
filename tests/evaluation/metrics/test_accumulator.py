"""ScoreAccumulator: columns that grow with the inputs, by any number of workers, and never by the size of a chunk."""

import numpy as np
import pytest
import torch

from murmuration.evaluation.metrics import ExampleScores, score_examples
from murmuration.evaluation.metrics.example_scores import ScoreAccumulator, placed
from murmuration.likelihoods import Categorical
from murmuration.prediction.checks import ELEMENTS, inputs_at_once
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Misuse


def large(inputs: int = 3000, members: int = 4, classes: int = 60) -> tuple[Predictive, torch.Tensor]:
    """More than two pieces."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(members, inputs, classes, generator=generator)
    return Predictive(logits, Categorical(classes)), torch.randint(classes, (inputs,), generator=generator)


@pytest.mark.slow
def test_two_workers_and_any_chunks_give_the_same_columns(two_threads: None) -> None:
    pred, y = large()
    assert inputs_at_once(pred.outputs) * 2 < 3000
    assert inputs_at_once(pred.outputs) * 4 * 60 <= ELEMENTS
    together = score_examples(pred, y)
    chunked = ExampleScores.from_chunks(zip(pred.batches(700), y.split(700), strict=True))
    torch.set_num_threads(1)
    alone = score_examples(pred, y)
    for name, values in alone.columns.items():
        np.testing.assert_array_equal(together.columns[name], values, err_msg=name)
        np.testing.assert_allclose(chunked.columns[name], values, atol=1e-14, err_msg=name)
        assert values.flags.c_contiguous
    np.testing.assert_array_equal(together.agreement, alone.agreement)


def test_probabilities_are_taken_by_two_workers_as_by_one(two_threads: None) -> None:
    pred, _ = large()
    probs = pred.probs.float()
    together = Predictive.from_probs(probs)
    torch.set_num_threads(1)
    assert torch.equal(together.outputs, Predictive.from_probs(probs).outputs)
    normal = probs.double() / probs.double().sum(-1, keepdim=True)
    torch.testing.assert_close(together.probs, normal, atol=1e-15, rtol=1e-13)
    broken = probs.clone()
    broken[2, 2900, 7] = -0.5
    with pytest.raises(Misuse, match=r"probabilities at \[2, 2900\] sum to"):
        Predictive.from_probs(broken)


def test_what_else_is_known_is_kept_beside_the_columns() -> None:
    pred, y = large(inputs=100)
    gathering = ScoreAccumulator()
    for part, labels, first in zip(pred.batches(40), y.split(40), (0, 40, 80), strict=True):
        assert gathering.inputs == first
        gathering.add(part, labels, {"place": np.arange(first, first + len(labels))})
    found = gathering.result()
    np.testing.assert_array_equal(found.columns["place"], np.arange(100))
    np.testing.assert_array_equal(found.columns["label"], y)
    gathering.add(pred, y, {"place": np.arange(100, 200)})
    assert gathering.result().columns["place"].tolist() == list(range(200))
    assert found.columns["place"].shape == (100,)  # what was taken out stays as it was


def test_other_ensembles_are_refused_before_anything_is_kept() -> None:
    pred, y = large(inputs=50)
    gathering = ScoreAccumulator()
    gathering.add(pred, y)
    with pytest.raises(Misuse, match="a chunk has 2 members or a task unlike the first"):
        gathering.add(pred.select([0, 1]), y)
    with pytest.raises(Misuse, match="a chunk has 4 members or a task unlike the first"):
        gathering.add(Predictive.from_moments(np.zeros((4, 50, 1)), 1.0), np.zeros(50))
    assert gathering.result().inputs == 50


def test_arrays_double() -> None:
    array, sizes = None, []
    for first in range(0, 64, 4):
        array = placed(array, np.arange(first, first + 4), first)
        sizes.append(len(array))
    assert sorted(set(sizes)) == [4, 8, 16, 32, 64]
    assert array is not None
    assert array.tolist() == list(range(64))
    wide = placed(placed(None, np.ones((2, 3)), 0), np.zeros((2, 1)), 3)
    np.testing.assert_array_equal(wide[:, :4], [[1, 1, 1, 0]] * 2)
