"""Several labels per input: predictive, scores, calibration, files, and what is refused."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import f1_score, hamming_loss

import murmuration as mm
from murmuration.data import Data
from murmuration.evaluation.ood import ood_columns
from murmuration.likelihoods import Categorical, MultiLabel
from murmuration.prediction.posthoc.calibration import LabelTemperatures, Temperature
from murmuration.prediction.predictive import Predictive

MEMBERS, INPUTS, LABELS = 3, 200, 4


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def made() -> tuple[Predictive, torch.Tensor]:
    outputs = drawn(1, INPUTS, LABELS) + 0.5 * drawn(MEMBERS, INPUTS, LABELS, seed=1)
    y = torch.rand(INPUTS, LABELS, generator=torch.Generator().manual_seed(2)) < outputs.sigmoid().mean(0)
    return Predictive(2 * outputs, MultiLabel(LABELS)), y.double()


def opened() -> Data:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 4))
    y = np.stack([x[:, 0] > 0, x[:, 1] + x[:, 2] > 0.5, rng.random(300) < 0.3], 1)
    return mm.open_data((x, y.astype(int)), task="multi-label")


def test_the_log_likelihood_is_that_of_independent_labels_given_a_member() -> None:
    pred, y = made()
    members = -F.binary_cross_entropy(pred.probs, y.expand_as(pred.probs), reduction="none").sum(-1)
    torch.testing.assert_close(pred.member_log_prob(y), members, atol=1e-10, rtol=0)
    torch.testing.assert_close(pred.log_prob(y), members.logsumexp(0) - np.log(MEMBERS), atol=1e-10, rtol=0)


def test_one_label_is_a_classification_of_two_classes() -> None:
    outputs = drawn(MEMBERS, INPUTS, 1)
    labels = Predictive(outputs, MultiLabel(1))
    classes = Predictive(torch.cat([torch.zeros_like(outputs), outputs], -1), Categorical(2))
    y = (drawn(INPUTS, seed=3) > 0).long()
    torch.testing.assert_close(labels.log_prob(y[:, None]), classes.log_prob(y), atol=1e-12, rtol=0)
    for name in ("entropy", "expected_entropy", "mutual_information"):
        torch.testing.assert_close(getattr(labels, name), getattr(classes, name), atol=1e-12, rtol=0)
    for name in ("aleatoric_var", "epistemic_var", "total_var"):
        torch.testing.assert_close(getattr(labels, name)[:, 0], getattr(classes, name)[:, 1], atol=1e-12, rtol=0)
    mine, theirs = mm.score(labels, y[:, None]), mm.score(classes, y)
    for name in ("accuracy", "nll", "mutual_information", "member_nll", "member_accuracy"):
        assert float(mine[name]) == pytest.approx(float(theirs[name]), rel=1e-12)
    assert 2 * float(mine["brier"]) == pytest.approx(float(theirs["brier"]), rel=1e-12)


def test_scores_are_those_of_sklearn() -> None:
    pred, y = made()
    found, said = mm.score(pred, y), pred.predicted.numpy()
    assert float(found["accuracy"]) == pytest.approx(1 - hamming_loss(y, said))
    assert float(found["exact_match"]) == pytest.approx((said == y.numpy()).all(1).mean())
    assert float(found["macro_f1"]) == pytest.approx(f1_score(y, said, average="macro"))
    probs, gaps = pred.mean.numpy(), []
    for k in range(LABELS):
        bins = np.ceil(probs[:, k] * 15).clip(1)
        gaps.append(sum(abs((y[:, k].numpy() - probs[:, k])[bins == b].sum()) for b in range(1, 16)) / INPUTS)
    assert float(found["ece"]) == pytest.approx(np.mean(gaps))
    for score in found.values():
        assert score.low <= score <= score.high


def test_a_label_that_is_never_predicted_nor_true_has_no_f1() -> None:
    pred = Predictive(torch.tensor([[[5.0, -5.0]], [[5.0, -5.0]]]), MultiLabel(2))
    assert float(mm.score(pred, [[1, 0]])["macro_f1"]) == 0.5


def test_each_label_gets_the_temperature_of_its_own_mixture() -> None:
    pred, y = made()
    found = mm.fit_calibrator("temperature", pred, y)
    assert isinstance(found, LabelTemperatures)
    for k in range(LABELS):
        z = pred.outputs[..., k]
        two = Predictive(torch.stack([torch.zeros_like(z), z], -1), Categorical(2))
        alone = mm.fit_calibrator("temperature", two, y[:, k].long())
        assert isinstance(alone, Temperature)
        assert found.temperatures[k] == pytest.approx(alone.temperature, rel=1e-9)
    calibrated = found(pred)
    assert calibrated.task == "multi-label"
    assert float(mm.score(calibrated, y)["nll"]) < float(mm.score(pred, y)["nll"])  # logits are twice too large


def test_it_is_trained_calibrated_saved_and_written(tmp_path: Path) -> None:
    data, plan = opened(), mm.Plan(members=2, epochs=15, engine="loop", posthoc=mm.PostHocConfig())
    ensemble = mm.fit("mlp", data, likelihood=mm.MultiLabel(3), plan=plan, out=tmp_path / "run")
    pred = ensemble.predict(data.test.x)
    assert pred.probs.shape == (2, len(data.test), 3)
    right = (pred.predicted == data.test.y).double().mean(0)
    assert right[0] > 0.85  # 60 examples of a separable label
    again = mm.load(tmp_path / "run")
    assert again.likelihood == MultiLabel(3)
    assert isinstance(again.posthoc.calibrator, LabelTemperatures)
    assert torch.equal(again.predict(data.test.x).outputs, pred.outputs)
    raw = ensemble.predict(data.val.x, calibrated=False).member_log_prob(data.val.y)
    assert ensemble.history[-1]["val_nll"] == pytest.approx((-raw.mean(1)).tolist(), rel=1e-5)
    mm.save_predictions(ensemble, data.test.x, tmp_path / "p.csv")
    first = next(csv.DictReader((tmp_path / "p.csv").open()))
    assert float(first["prob_1"]) == pytest.approx(pred.mean[0, 1].item(), rel=1e-6)
    assert int(first["predicted_0"]) == pred.predicted[0, 0].item()
    mm.save_predictions(ensemble, data.test.x, tmp_path / "p.npz", per_member=True)
    assert np.load(tmp_path / "p.npz")["member_probs"].shape == (2, len(data.test), 3)
    with pytest.raises(mm.Misuse, match="a report on multi-label predictions: there is none"):
        mm.report(ensemble, data, tmp_path / "r.html")


def test_zeros_and_ones_are_not_taken_for_a_regression() -> None:
    data, settings = opened(), {"members": 1, "epochs": 1, "engine": "loop"}
    pair = data.train.x, data.train.y.long()
    with pytest.raises(mm.Misuse, match=r"shape \(210, 3\) holds zeros and ones: write task='multi-label' for several"):
        mm.fit("mlp", pair, **settings)
    assert mm.fit("mlp", pair, task="regression", **settings).likelihood.task == "regression"
    for given in ({"task": "multi-label"}, {"likelihood": mm.MultiLabel(3)}):
        assert mm.fit("mlp", pair, **given, **settings).likelihood == mm.MultiLabel(3)
    assert mm.fit("mlp", data, **settings).likelihood == mm.MultiLabel(3)
    with pytest.raises(mm.Misuse, match=r"noise_std=0\.3 is for regression, and this data has labels"):
        mm.fit("mlp", data, noise_std=0.3, **settings)


@pytest.mark.parametrize("recipe", ["function-rde", "forde", "bayes"])
def test_recipes_train_on_labels(recipe: str) -> None:
    plan = mm.Plan(members=2, epochs=2, engine="loop")
    ensemble = mm.fit("mlp", opened(), recipe=recipe, likelihood=mm.MultiLabel(3), plan=plan)
    assert all(np.isfinite(record["train_loss"]).all() for record in ensemble.history)


@pytest.mark.parametrize(
    ("use", "told"),
    [
        (lambda pred, y: pred.confidence, "confidence is for one class per input"),
        (lambda pred, y: pred.disagreement, "disagreement is for one class"),
        (lambda pred, y: pred.energy, "energy is for one class"),
        (lambda pred, y: pred.total_covariance, "total_covariance is for one class"),
        (lambda pred, y: pred.labels(y), "a class index is for one class"),
        (lambda pred, y: pred.quantile(0.5), "belong to regression, and this is a multi-label"),
        (lambda pred, y: pred.log_prob(0.5 * y), "expected zeros and ones"),
        (lambda pred, y: mm.fit_calibrator("vector", pred, y), "belongs to classification, and this is a multi-label"),
        (lambda pred, y: mm.fit_conformal("lac", pred, y), "conformal prediction for multi-label: there is none"),
        (lambda pred, y: Temperature(2.0)(pred), "fitted for classification, and this is a multi-label"),
        (lambda pred, y: ood_columns(pred), "out-of-distribution scores of a multi-label"),
        (
            lambda pred, y: mm.fit(
                "mlp", opened(), likelihood=mm.MultiLabel(3), plan=mm.Plan(posthoc=mm.PostHocConfig(conformal="lac"))
            ),
            "conformal=lac for multi-label: there are no sets of labels",
        ),
    ],
)
def test_what_labels_do_not_have_is_refused(use, told: str) -> None:
    with pytest.raises(mm.Misuse, match=told):
        use(*made())
