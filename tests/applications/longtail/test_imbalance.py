"""Long-tailed data and the losses for it: profiles, printed values, limits, gradients, and deferred re-weighting."""

import json
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import murmuration as mm
from murmuration.data.splits import long_tail_counts
from murmuration.likelihoods import likelihood_from_json
from murmuration.likelihoods.classes import Imbalanced, effective_weights, reversed_ranks
from murmuration.models.nets import with_cosine_head
from murmuration.models.nets.dense import mlp

COUNTS = (90.0, 9.0, 1.0)


def kinds(counts: tuple[float, ...] = COUNTS) -> dict[str, Imbalanced]:
    classes = len(counts)
    return {
        "adjusted": mm.LogitAdjusted(classes, counts, tau=1.3, class_weight="effective"),
        "margins": mm.LDAM(classes, counts, scale=1.7),
        "experts": mm.Experts(classes, counts),
    }


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("factor", "total"), [(100, 12406), (50, 13996), (10, 20431)])
def test_profiles_of_cifar10(factor: int, total: int) -> None:
    counts = long_tail_counts(5000, 10, factor)
    assert sum(counts) == total
    if factor == 100:
        assert counts == [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]


def test_profile_of_cifar100() -> None:
    counts = np.array(long_tail_counts(500, 100, 100))
    assert counts.sum() == 10847
    assert [(counts > 100).sum(), ((counts >= 20) & (counts <= 100)).sum(), (counts < 20).sum()] == [35, 35, 30]


def test_a_long_tailed_training_split_has_the_profile_and_leaves_the_others() -> None:
    data, cut = mm.open_data("digits"), mm.open_data("digits", imbalance=10)
    expected = long_tail_counts(int(data.train.y.bincount().min()), 10, 10)
    assert cut.train.y.bincount().tolist() == expected
    for part in ("val", "test"):
        assert np.array_equal(getattr(cut, part).x, getattr(data, part).x)
    assert torch.equal(mm.open_data(**cut.source).train.prepared, cut.train.prepared)
    assert abs(cut.train.prepared.mean().item()) < 1e-5  # standardised by its own rows
    assert cut.fingerprint != data.fingerprint
    assert {mm.open_data("digits", imbalance=10, seed=seed).fingerprint for seed in (0, 1)} > {cut.fingerprint}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mm.open_data("digits", imbalance=0.5), "imbalance=0.5: expected the size"),
        (lambda: mm.open_data("digits", imbalance=1e6), "imbalance=1e.06 of classes with"),
        (lambda: mm.open_data("diabetes", imbalance=10), "for data of regression"),
        (lambda: mm.LogitAdjusted(3, (1.0, 2.0)), "expected 3 positive numbers"),
        (lambda: mm.LogitAdjusted(3, tau=-1), "tau=-1: expected"),
        (lambda: mm.LDAM(3, scale=0), "scale=0: expected a positive"),
        (lambda: mm.LDAM(3, reweight_from=2), "reweight_from=2: expected a fraction"),
        (lambda: mm.LDAM(3, class_weight="balanced"), "give one of them"),
        (lambda: mm.LogitAdjusted(3).for_targets(torch.tensor([0, 2])), "class 1 has no training example"),
        (lambda: mm.LogitAdjusted(3).loss(torch.zeros(1, 1, 3), torch.zeros(1, 1).long()), "for_targets"),
        (lambda: mm.Experts(3, COUNTS).loss(torch.zeros(1, 1, 3), torch.zeros(1, 1).long()), "without member"),
    ],
)
def test_what_does_not_fit_is_refused(make, message: str) -> None:
    with pytest.raises(mm.Misuse, match=message):
        make()


def test_printed_values() -> None:
    """Oracle 41 of the specification."""
    equal, rare = torch.zeros(1, 1, 3, dtype=torch.float64), torch.tensor([[2]])
    assert mm.LogitAdjusted(3, COUNTS).loss(equal, rare).item() == pytest.approx(4.605170, abs=5e-7)
    assert mm.Categorical(3).loss(equal, rare).item() == pytest.approx(1.098612, abs=5e-7)
    np.testing.assert_allclose(effective_weights(COUNTS), (0.029833, 0.297124, 2.673043), atol=5e-7)
    np.testing.assert_allclose(mm.LDAM(3, COUNTS).margins(equal), (0.162334, 0.288675, 0.5), atol=5e-7)
    assert reversed_ranks(torch.tensor([0.9, 0.09, 0.01])).tolist() == pytest.approx([0.01, 0.09, 0.9])
    assert reversed_ranks(torch.tensor([0.2, 0.5, 0.1, 0.2])).sort().values.tolist() == pytest.approx(
        [0.1, 0.2, 0.2, 0.5]
    )


def test_equal_classes_reduce_every_loss_to_cross_entropy() -> None:
    outputs, y = drawn(3, 7, 4), torch.arange(21).view(3, 7) % 4
    plain, member = mm.Categorical(4).loss(outputs, y), torch.arange(3)
    same = kinds((5.0,) * 4)
    torch.testing.assert_close(same["adjusted"].for_targets(y.flatten()[:20]).loss(outputs, y), plain)
    torch.testing.assert_close(same["experts"].loss(outputs, y, member=member), plain)
    shifted = outputs - 0.5 * F.one_hot(y, 4)  # one margin for all classes
    torch.testing.assert_close(same["margins"].loss(outputs, y), mm.Categorical(4).loss(1.7 * shifted, y))


def test_experts_by_hand() -> None:
    outputs, y = drawn(4, 5, 3), torch.tensor([[0, 1, 2, 0, 1]]).expand(4, 5)
    log_pi = (torch.tensor(COUNTS, dtype=torch.float64) / 100).log()
    added = [0 * log_pi, log_pi, log_pi - 2 * log_pi.flip(0), 0 * log_pi]  # member 3 is of the first kind again
    expected = torch.stack(
        [F.cross_entropy(f + a, y[0], reduction="none") for f, a in zip(outputs, added, strict=True)]
    )
    torch.testing.assert_close(mm.Experts(3, COUNTS).loss(outputs, y, member=torch.arange(4)), expected)


@pytest.mark.parametrize("name", kinds())
def test_gradients_and_records(name: str) -> None:
    y = torch.tensor([[0, 1, 2, 2, 0]]).expand(3, 5)
    likelihood = kinds()[name].for_targets(torch.tensor([0] * 6 + [1] * 3 + [2]))
    weight, member = torch.linspace(0.1, 2, 15, dtype=torch.float64).view(3, 5), torch.arange(3)
    outputs = drawn(3, 5, 3, seed=2).requires_grad_()
    assert torch.autograd.gradcheck(lambda given: likelihood.loss(given, y, weight, member), outputs)
    torch.testing.assert_close(
        likelihood.loss(outputs, y, weight, member), likelihood.loss(outputs, y, member=member) * weight
    )
    assert likelihood_from_json(json.loads(json.dumps(likelihood.to_json()))) == likelihood


def test_reweighting_is_deferred() -> None:
    margins = mm.LDAM(3, COUNTS, reweight_from=0.8)
    assert margins.during(0.79) is margins
    assert margins.during(0.8).class_weight == effective_weights(COUNTS)
    seen: list[float] = []

    class Watched(mm.LDAM):
        def during(self, progress: float) -> mm.LDAM:
            seen.append(progress)
            return super().during(progress)

    data = mm.open_data("two-moons", imbalance=5)
    net = lambda: with_cosine_head(mlp((2,), 2))  # noqa: E731
    late = mm.fit(net, data, likelihood=Watched(2), members=1, epochs=5, posthoc=None)
    assert seen == [0, 0.2, 0.4, 0.6, 0.8]
    never = mm.fit(net, data, likelihood=mm.LDAM(2, reweight_from=None), members=1, epochs=5, posthoc=None)
    losses = [[record["train_loss"][0] for record in run.history] for run in (late, never)]
    assert losses[0][:4] == losses[1][:4]
    assert losses[0][4] != losses[1][4]


def test_margins_on_plain_outputs_are_refused() -> None:
    data = mm.open_data("two-moons", imbalance=5)
    with pytest.raises(mm.Misuse, match="expected cosines, at most 1; end the net in"):
        mm.fit(lambda: mlp((2,), 2), data, likelihood=mm.LDAM(2), members=1, epochs=20, posthoc=None)


@pytest.mark.slow
def test_the_adjusted_loss_predicts_as_if_classes_were_equally_frequent() -> None:
    """Two Gaussians with means -1 and 1, 20 to 1: the Bayes boundary of equal classes is 0, of these log(20) / 2."""
    generator = np.random.default_rng(0)
    y = (np.arange(4200) % 21 == 0).astype(int)
    x = (generator.normal(size=4200) + 2 * y - 1)[:, None]
    boundaries = {}
    for name, likelihood in {"plain": mm.Categorical(2), "adjusted": mm.LogitAdjusted(2)}.items():
        net = lambda: torch.nn.Linear(1, 2)  # noqa: E731
        run = mm.fit(net, (x, y), likelihood=likelihood, members=1, epochs=60, lr=0.05, posthoc=None, prepare="none")
        weight, bias = (tensor.detach() for tensor in run.member(0).parameters())
        boundaries[name] = ((bias[0] - bias[1]) / (weight[1, 0] - weight[0, 0])).item()
    error = 0.2  # four standard errors: 1 / (slope 2 * sqrt(information of 200 rare examples)) = 0.04, rounded up
    assert boundaries["adjusted"] == pytest.approx(0, abs=error)
    assert boundaries["plain"] == pytest.approx(math.log(20) / 2, abs=error)
