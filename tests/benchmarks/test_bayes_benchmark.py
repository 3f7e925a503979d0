"""What the benchmark of Bayesian networks times does what it says; its timings are for people."""

import bayes
import pytest
import torch


@pytest.mark.slow
@pytest.mark.parametrize("weights", bayes.WEIGHTS.values())
def test_the_timed_steps_train(weights: str):
    step = bayes.our_step(weights)
    losses = [step().mean().item() for _ in range(46)]
    assert losses[-1] < losses[25]  # from there on beta stays as it is


def test_draws_by_hand_have_the_law_of_predictions():
    """Means over 30 draws of each, on two pictures, within five standard errors of their difference."""
    ensemble, x = bayes.trained(), bayes.examples(2)[0]
    ours, theirs = ensemble.predict(x, draws=bayes.DRAWS, prepared=True).outputs, bayes.drawn_by_hand(ensemble, x)()
    error = ((ours.var(0) + theirs.var(0)) / bayes.DRAWS).sqrt()
    assert ours.shape == theirs.shape
    assert ((ours.mean(0) - theirs.mean(0)).abs() < 5 * error).all()
    torch.testing.assert_close(ours.std(), theirs.std(), rtol=0.5, atol=0)
