"""Archives of predictions: every name, shape and packing gives the same numbers."""

import tempfile

import numpy as np
import pytest
import torch
from prediction_files import RNG, joined, saved, some_probs

from murmuration.evaluation.audit import open_predictions
from murmuration.evaluation.audit.outputs import kernels
from murmuration.prediction.predictive import Predictive


@pytest.fixture
def classified() -> tuple[np.ndarray, np.ndarray]:
    return some_probs(3, 40, 4), RNG.integers(0, 4, 40)


class TestArrays:
    def test_stored_compressed_transposed_and_swapped_bytes_are_the_same_bits(self, tmp_path, classified):
        probs, y = classified
        expected = Predictive.from_probs(probs).outputs
        np.savez_compressed(tmp_path / "c.npz", probs=probs, y=y)
        files = {
            "s": saved(tmp_path / "s.npz", probs=probs, y=y),
            "c": tmp_path / "c.npz",
            "f": saved(tmp_path / "f.npz", probs=np.asfortranarray(probs), y=y),
            "b": saved(tmp_path / "b.npz", probs=probs.astype(">f8"), y=y.astype(">i4")),
        }
        chosen = np.array([0, 7, 39])
        for path in files.values():
            found = open_predictions(path)
            assert torch.equal(joined(found).outputs, expected)
            assert torch.equal(found.rows_at(chosen).outputs, expected[:, chosen])
            assert found.targets.tolist() == y.tolist()
            assert (found.name, found.members, found.rows) == (path.stem, 3, 40)
            assert (found.task, found.classes, found.form) == ("classification", ("0", "1", "2", "3"), "probabilities")

    def test_an_npy_of_one_model_with_labels_beside_it(self, tmp_path, classified):
        probs, y = classified[0][0], classified[1]
        np.save(tmp_path / "p.npy", probs)
        np.save(tmp_path / "y.npy", y)
        found = open_predictions(tmp_path / "p.npy", labels=tmp_path / "y.npy")
        assert torch.equal(joined(found).outputs, Predictive.from_probs(probs).outputs)

    @pytest.mark.parametrize("name", ["probs", "probabilities", "predict_proba"])
    def test_every_name_and_float32(self, tmp_path, classified, name):
        probs = classified[0][0].astype(np.float32)
        found = open_predictions(saved(tmp_path / "x.npz", **{name: probs}, y_true=classified[1]))
        assert torch.equal(joined(found).outputs, Predictive.from_probs(probs.astype(float)).outputs)

    def test_logits_are_kept_and_their_softmax_are_the_probabilities(self, tmp_path):
        logits, y = RNG.normal(size=(2, 9, 3)) * 5, np.arange(9) % 3
        found = open_predictions(saved(tmp_path / "x.npz", logits=logits, y=y))
        assert found.form == "logits"
        assert torch.equal(joined(found).outputs, torch.from_numpy(logits))
        exp = np.exp(logits)
        assert np.allclose(joined(found).probs, exp / exp.sum(-1, keepdims=True), atol=1e-15)

    def test_one_number_a_row_is_the_second_of_two_classes(self, tmp_path):
        p, y = np.array([0.2, 0.9, 0.0]), [0, 1, 0]
        one = joined(open_predictions(saved(tmp_path / "a.npz", probs=p, y=y)))
        assert np.allclose(one.mean, np.stack([1 - p, p], -1), atol=1e-15)
        z = np.array([-1.0, 2.0, 0.0])
        two = joined(open_predictions(saved(tmp_path / "b.npz", logits=z, y=y)))
        assert np.allclose(two.mean[:, 1], 1 / (1 + np.exp(-z)), atol=1e-15)
        members = np.array([[0.2, 0.9, 0.0], [0.4, 0.7, 0.5]])
        three = joined(open_predictions(saved(tmp_path / "c.npz", member_probs=members, y=y)))
        assert np.allclose(three.probs[..., 1], members, atol=1e-15)

    def test_what_members_say_goes_before_their_mean(self, tmp_path, classified):
        probs, y = classified
        path = saved(tmp_path / "x.npz", probs=probs.mean(0), member_probs=probs, y=y)
        assert open_predictions(path).members == 3

    def test_moments_of_every_shape(self, tmp_path):
        mean, std, y = RNG.normal(size=(2, 6, 3)), RNG.random((2, 6, 3)) + 0.1, RNG.normal(size=(6, 3))
        for k, (arrays, m, s, t) in enumerate(
            [
                ({"mean": mean, "std": std}, mean, std, y),
                ({"mean": mean[0], "var": std[0] ** 2}, mean[:1], std[:1], y),
                ({"mean": mean[0, :, 0], "total_std": std[0, :, 0]}, mean[:1, :, :1], std[:1, :, :1], y[:, 0]),
                ({"member_mean": mean[..., 0], "member_std": std[..., 0]}, mean[..., :1], std[..., :1], y[:, 0]),
                ({"mean": mean[0, :, 0], "std": 0.5}, mean[:1, :, :1], np.full((1, 6, 1), 0.5), y[:, 0]),
            ]
        ):
            found = open_predictions(saved(tmp_path / f"{k}.npz", y=t, **arrays))
            pred = joined(found)
            assert np.array_equal(pred.member_mean, m)
            assert np.allclose(pred.member_var, s**2, rtol=1e-14)
            assert found.targets.tolist() == t.reshape(6, -1).tolist()
            assert (found.task, found.classes, found.form, found.members) == ("regression", (), "moments", len(m))

    def test_samples_keep_their_mean_and_variance(self, tmp_path):
        for draws in (RNG.gamma(2.0, size=(50, 8)), RNG.normal(size=(2, 8, 3))):
            y = np.zeros(draws.shape[1:])
            found = open_predictions(saved(tmp_path / "x.npz", samples=draws, y=y))
            pred = joined(found)
            assert (found.form, found.members) == ("samples", len(draws))
            assert np.allclose(pred.mean.squeeze(-1) if draws.ndim == 2 else pred.mean, draws.mean(0), atol=1e-12)
            assert np.allclose(pred.total_var.reshape(y.shape), draws.var(0), rtol=1e-12)

    def test_samples_approach_the_density_they_came_from(self):
        draws = np.random.default_rng(0).normal(size=(4000, 1, 1))
        pred = Predictive.from_moments(*kernels(draws))
        grid = [-1.5, 0.0, 1.0]
        found = [pred.log_prob([[y]]).exp().item() for y in grid]
        # the density of a kernel estimate has a standard error of about sqrt(p / (2 sqrt(pi) S h)) = 0.011 at its peak
        assert np.allclose(found, np.exp(-np.square(grid) / 2) / np.sqrt(2 * np.pi), atol=0.035)

    def test_unpacked_files_go_away_with_the_predictions(self, tmp_path, classified, monkeypatch):
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        np.savez_compressed(tmp_path / "x.npz", probs=classified[0], y=classified[1])
        found = open_predictions(tmp_path / "x.npz")
        assert len(list(tmp_path.glob("murmur-*/array.npy"))) == 1
        del found
        assert list(tmp_path.glob("murmur-*")) == []
