"""Latent classes, streaming statistics, the detector of changes and the scores: printed values and limits."""

import math

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import KernelDensity

from murmuration.applications.continual.detection import DetectionConfig, TaskDetector, deviation, dose_deviation
from murmuration.applications.continual.harness import AccuracyMatrix, Outcome
from murmuration.applications.continual.latents import ClassStatistics, LatentClasses, no_classes, random_means
from murmuration.system.errors import Misuse


def test_the_printed_densities() -> None:
    """Oracle 36: f(x) = 2x + 1 at x = 0.4."""
    means = torch.tensor([[-2.0], [0], [2], [4]], dtype=torch.float64)
    classes = LatentClasses(means, torch.zeros(4).long(), torch.arange(4))
    z = torch.tensor([[1.8]], dtype=torch.float64)
    densities = classes.log_density(z) + math.log(2)  # log |df/dx|
    np.testing.assert_allclose(densities[0], (-7.445791, -1.845791, -0.245791, -2.645791), atol=5e-7)
    np.testing.assert_allclose(densities.softmax(1)[0], (0.000577, 0.156102, 0.773179, 0.070141), atol=1e-6)
    many = torch.randn(200, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3
    assert torch.equal(classes.classify(many), classes.log_density(many).argmax(1))
    index = torch.arange(200) % 4
    torch.testing.assert_close(classes.log_density_of(many, index), classes.log_density(many)[range(200), index])


def test_statistics_in_pieces_are_linear_discriminant_analysis() -> None:
    generator = np.random.default_rng(0)
    mixing = generator.normal(size=(5, 5))
    y = np.arange(300) % 3
    x = generator.normal(size=(300, 5)) @ mixing + 2 * generator.normal(size=(3, 5))[y]
    statistics = ClassStatistics(5)
    for rows in np.split(generator.permutation(300), [10, 130, 131]):
        statistics.update(torch.tensor(x[rows]), torch.tensor(y[rows]), task=0)
    within = sum(np.cov(x[y == c].T, bias=True) for c in range(3)) / 3
    np.testing.assert_allclose(statistics.covariance(0.0), within, atol=1e-12)
    reference = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.3, priors=np.full(3, 1 / 3)).fit(x, y)
    classes = statistics.classes(0.0)
    mixed = 0.7 * within + 0.3 * np.trace(within) / 5 * np.eye(5)
    np.testing.assert_allclose(statistics.covariance(0.3), mixed, atol=1e-12)
    plain = LinearDiscriminantAnalysis(solver="lsqr", priors=np.full(3, 1 / 3)).fit(x, y)
    found = classes.labels[classes.classify(torch.tensor(x).float())]
    assert np.array_equal(found, plain.predict(x))
    assert reference.score(x, y) > 0.5  # the data is not degenerate
    with pytest.raises(Misuse, match=r"features of shape \(4,\): expected \(5,\)"):
        statistics.update(torch.zeros(1, 4), torch.zeros(1).long(), 0)


def test_random_means_have_the_distance_asked_for() -> None:
    means = random_means(400, 50, 6.0, torch.Generator().manual_seed(0))
    squares = torch.pdist(means).square()
    assert squares.mean().item() == pytest.approx(36, rel=0.02)  # relative standard error below 0.5 %


def test_classes_of_tasks() -> None:
    classes = no_classes(2).with_classes(torch.zeros(2, 2), 0, torch.tensor([3, 5]))
    classes = classes.with_classes(torch.ones(1, 2), 1, torch.tensor([3]))
    assert classes.of(torch.tensor([5, 3]), 0).tolist() == [1, 0]
    assert classes.of(torch.tensor([3]), 1).tolist() == [2]
    with pytest.raises(Misuse, match="task 1 has no class 5"):
        classes.of(torch.tensor([5]), 1)


def test_the_printed_deviation() -> None:
    """Oracle 39: mean 10, deviation 0.790569."""
    values = [10, 11, 9, 10.5, 9.5]
    assert np.std(values, ddof=1) == pytest.approx(0.790569, abs=5e-7)
    assert deviation(values, 13) == pytest.approx(3.7947, abs=5e-5)


def batches(count: int, shift: float = 0.0, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 3)) + shift


def observed(detector: TaskDetector, rows: np.ndarray) -> list[str]:
    """Decisions on batches whose statistics do not depend on the task."""
    return [detector.observe(dict.fromkeys(range(9), row.tolist())) for row in rows]


def test_no_alarm_on_a_thousand_batches_of_one_task() -> None:
    assert set(observed(TaskDetector(), batches(1000))) == {"same"}


def test_the_score_of_dose_is_a_sum_of_kernel_densities() -> None:
    """Against scikit-learn's estimator, for a value inside, and far out where the tail is quadratic."""
    windows = batches(40).T
    width = 1.06 * windows.std(1, ddof=1) * 40**-0.2

    def score(values: np.ndarray, some: np.ndarray) -> float:
        parts = [KernelDensity(bandwidth=w).fit(row[:, None]) for w, row in zip(width, some, strict=True)]
        return sum(part.score([[value]]) for part, value in zip(parts, values, strict=True))

    scores = np.array([score(windows[:, i], np.delete(windows, i, 1)) for i in range(40)]) + 3 * np.log(39)
    for values in (np.zeros(3), np.full(3, 4.0)):
        expected = (scores.mean() - score(values, windows) - 3 * np.log(40)) / scores.std(ddof=1)
        assert dose_deviation(windows, values) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("rule", ["deviation", "dose"])
@pytest.mark.parametrize("shift", [10.0, -10.0])
def test_a_change_is_noticed_in_both_directions(shift: float, rule: str) -> None:
    detector = TaskDetector(DetectionConfig(rule=rule))
    observed(detector, batches(200))
    found = observed(detector, batches(5, shift, seed=1))
    assert found == ["unsure", "new", "same", "same", "same"]  # within confirm + 1 batches
    assert detector.task == 1


def test_a_recurring_task_is_recognised() -> None:
    detector = TaskDetector(DetectionConfig(warmup=10))
    observed(detector, batches(100))
    observed(detector, batches(100, 20.0, seed=1))
    assert detector.task == 1
    found = observed(detector, batches(4, seed=2))
    assert found == ["unsure", "recurring", "same", "same"]
    assert detector.task == 0
    assert set(detector.windows) == {0, 1}


def test_one_outlier_is_no_change() -> None:
    detector = TaskDetector(DetectionConfig(warmup=10))
    observed(detector, batches(50))
    assert observed(detector, batches(1, 30.0)) == ["unsure"]
    assert observed(detector, batches(20, seed=3)) == ["same"] * 20


def test_the_printed_scores() -> None:
    """Oracle 40."""
    nan = math.nan
    found = AccuracyMatrix(np.array([[0.98, nan, nan], [0.90, 0.95, nan], [0.80, 0.85, 0.97]]))
    assert found.final_average == pytest.approx(0.873333, abs=5e-7)
    assert found.forgetting == pytest.approx(0.14)
    assert AccuracyMatrix(np.array([[0.5]])).forgetting == 0
    again = AccuracyMatrix(np.array([[0.5, nan], [0.7, 0.9]]))
    assert (again.forgetting, again.largest_forgetting) == pytest.approx((-0.2, 0))
    for wrong in (np.zeros(3), np.array([[0.5, nan]])):
        with pytest.raises(Misuse, match="one row for each segment and one column"):
            AccuracyMatrix(wrong)


def test_scores_of_recurring_tasks_and_of_joint_training() -> None:
    """A task is lost from where it was first learned; joint training forgets nothing."""
    nan = math.nan
    again = AccuracyMatrix(np.array([[0.9, nan], [0.4, 0.8], [0.7, 0.6]]), (100, 25))
    assert (again.forgetting, again.largest_forgetting) == pytest.approx((0.2, 0.2))
    assert again.standard_error == pytest.approx(math.sqrt(0.7 * 0.3 / 100 + 0.6 * 0.4 / 25) / 2)
    joint = AccuracyMatrix(np.array([[0.9, 0.8]]))
    assert (joint.final_average, joint.forgetting, joint.largest_forgetting) == pytest.approx((0.85, 0, 0))
    assert math.isnan(joint.standard_error)
    assert Outcome({"accuracy": again.to_json()}, {}).accuracy.to_json() == again.to_json()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"window": 1}, "window=1"),
        ({"threshold": 0.0}, "threshold=0"),
        ({"confirm": 0}, "confirm=0"),
        ({"rule": "x"}, "rule='x'"),
    ],
)
def test_settings_are_checked(settings: dict, message: str) -> None:
    with pytest.raises(Misuse, match=message):
        DetectionConfig(**settings)
