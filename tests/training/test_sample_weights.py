"""Sample weights, and targets far from zero, in whole training runs."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import murmuration as mm
from murmuration.data import Data
from murmuration.training.spec import mean_one

BOUND = mm.make_recipe("bayes", weights="gaussian:estimator=draw,beta=0,samples=2,reduction=log-mean-exp")


def regression(shift: float = 0.0, count: int = 80) -> Data:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, 3))
    return mm.open_data((x, shift + 10 * np.sin(x[:, 0]) + rng.normal(size=count)))


def rows_of(split: mm.Split, rows: torch.Tensor, weight: torch.Tensor | None = None) -> mm.Split:
    return replace(split[rows], weight=weight)


@pytest.mark.parametrize("engine", ["loop", "stacked"])
@pytest.mark.parametrize("recipe", ["deep-ensemble", "weight-rde", BOUND], ids=["deep-ensemble", "weight-rde", "bound"])
def test_an_example_of_weight_two_is_the_example_twice(recipe: str | mm.Recipe, engine: str) -> None:
    """Full batches and plain SGD: the same sum of gradients, in another order, so that members differ by rounding."""
    data, noise_std = regression(), 3.0
    count = len(data.train)
    weight = 1.0 + (torch.arange(count) % 3 == 0)
    twice = torch.arange(count).repeat_interleave(weight.long())
    plan = mm.Plan(members=2, epochs=5, batch_size=1000, lr=0.05, optimizer="sgd", momentum=0.0, engine=engine)
    everything = torch.arange(count)
    likelihood = mm.fit("mlp", data, members=1, epochs=1, noise_std=noise_std, posthoc=None).likelihood

    def outputs(train: mm.Split) -> torch.Tensor:
        found = mm.fit("mlp", replace(data, train=train), recipe=recipe, plan=plan, likelihood=likelihood, posthoc=None)
        return found.predict(data.test.x).outputs

    weighted = outputs(rows_of(data.train, everything, 7 * weight))  # their scale does not matter
    repeated = outputs(rows_of(data.train, twice))
    plain = outputs(data.train)
    torch.testing.assert_close(weighted, repeated, atol=1e-5, rtol=0)
    assert (plain - repeated).abs().max() > 1e-3
    same = outputs(rows_of(data.train, everything, torch.ones(count)))
    torch.testing.assert_close(same, plain, atol=0, rtol=0)


def test_examples_without_weight_do_not_count() -> None:
    data = regression()
    weight = torch.ones(len(data.train))
    weight[::2] = 0
    poisoned = data.train.y.clone()
    poisoned[::2] = 1e6
    plan = mm.Plan(members=1, epochs=2, engine="loop")
    likelihood = mm.Gaussian(1.0, shift=(0.0,))
    clean, other = (
        mm.fit(
            "mlp",
            replace(data, train=replace(data.train, y=y, weight=weight)),
            plan=plan,
            likelihood=likelihood,
            posthoc=None,
        ).predict(data.test.x)
        for y in (data.train.y, poisoned)
    )
    assert torch.equal(clean.outputs, other.outputs)


def test_weights_are_divided_by_their_mean_and_checked() -> None:
    found = mean_one(torch.tensor([1.0, 3.0, 0.0]), 3)
    assert found is not None
    np.testing.assert_allclose(found, [0.75, 2.25, 0.0])
    assert mean_one(None, 3) is None
    for wrong in (
        torch.tensor([1.0, 2.0]),
        torch.tensor([1.0, -1.0, 2.0]),
        torch.zeros(3),
        torch.full((3,), torch.nan),
    ):
        with pytest.raises(mm.Misuse, match=r"sample weights of shape .*: expected \(3,\) finite numbers"):
            mean_one(wrong, 3)


@pytest.mark.parametrize("likelihood", [None, mm.Quantiles((0.1, 0.5, 0.9))])
def test_a_large_shift_of_the_targets_changes_nothing_but_the_shift(likelihood: mm.Likelihood | None) -> None:
    """Timestamps of 1.7e9 with a deviation of 7: one float32 step there is 128."""
    scores = []
    for shift in (0.0, 1.7e9):
        data = regression(shift)
        ensemble = mm.fit(
            "mlp", data, members=2, epochs=5, likelihood=likelihood, plan=mm.Plan(engine="loop"), posthoc=None
        )
        found = mm.score(ensemble.predict(data.test.x), data.test.y)
        scores.append([float(found["rmse"]), float(found["nll"]), ensemble.history[-1]["val_rmse"][0]])
    assert scores[0][0] < 7  # something was learned: the deviation of the targets is 7.1
    np.testing.assert_allclose(scores[1], scores[0], rtol=1e-4)
