"""Long files, read in bounded memory, and two files of the same rows."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from prediction_files import joined, saved, some_probs

from murmuration.evaluation.audit import check_same_targets, open_predictions
from murmuration.evaluation.audit.predictions import MOST_ROWS, Predictions
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Misuse


class TestManyRows:
    def test_chunks_are_bounded_in_order_and_can_be_read_again(self, tmp_path):
        rows = MOST_ROWS + 10
        probs = some_probs(rows, 2)
        found = open_predictions(saved(tmp_path / "x.npz", probs=probs, y=np.arange(rows) % 2))
        expected = Predictive.from_probs(probs).outputs
        for _ in range(2):
            assert [part.outputs.shape[1] for part in found.chunks()] == [MOST_ROWS, 10]
            assert torch.equal(joined(found).outputs, expected)
        assert [len(y) for _, y in found.pairs()] == [MOST_ROWS, 10]
        chosen = np.arange(5, rows, 40)  # more than are read at once
        assert torch.equal(found.rows_at(chosen).outputs, expected[:, chosen])

    def test_a_wrong_row_far_down_is_found_when_it_is_read(self, tmp_path):
        rows = MOST_ROWS + 10
        probs = some_probs(rows, 2)
        probs[MOST_ROWS + 3] *= 2
        found = open_predictions(saved(tmp_path / "x.npz", probs=probs, y=np.arange(rows) % 2))
        message = rf"x.npz': probs\[{MOST_ROWS + 3}\] sums to 2: expected"
        with pytest.raises(Misuse, match=message):
            list(found.chunks())
        with pytest.raises(Misuse, match=message):
            found.rows_at(np.array([1, MOST_ROWS + 3]))

    @pytest.mark.slow
    def test_memory_does_not_grow_with_the_file(self, tmp_path):
        probs = np.full((5, 200_000, 20), 0.05, dtype=np.float32)
        y = np.zeros(200_000, dtype=np.int8)
        saved(tmp_path / "small.npz", probs=probs[:, :20_000], y=y[:20_000])
        saved(tmp_path / "large.npz", probs=probs, y=y)
        np.savez_compressed(tmp_path / "packed.npz", probs=probs, y=y)
        code = """if True:
            import resource, sys
            import numpy as np
            from murmuration.evaluation.audit import open_predictions
            def peak(path):
                found = open_predictions(path)
                rows = sum(part.outputs.shape[1] for part in found.chunks())
                found.rows_at(np.arange(0, rows, 1000))
                return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            print(*map(peak, sys.argv[1:]))
        """
        files = [str(tmp_path / f"{name}.npz") for name in ("small", "large", "packed")]
        done = subprocess.run([sys.executable, "-c", code, *files], capture_output=True, text=True, check=True)
        small, large, packed = (int(kilobytes) / 1024 for kilobytes in done.stdout.split())
        assert (tmp_path / "large.npz").stat().st_size > 80e6
        assert large - small < 12  # MB; the labels take 1.6
        assert packed - small < 12


class TestSameRows:
    def make(self, tmp_path: Path, name: str, **arrays: object) -> Predictions:
        return open_predictions(saved(tmp_path / f"{name}.npz", **arrays))

    def test_the_first_row_that_differs_is_named(self, tmp_path):
        probs = some_probs(4, 3)
        a = self.make(tmp_path, "a", probs=probs, names=["x", "y", "z"], y=[0, 1, 2, 0])
        check_same_targets(a, self.make(tmp_path, "b", probs=probs, y=[0, 1, 2, 0]))  # without names
        with pytest.raises(Misuse, match=r"^row 3 is 'z' in 'a' and '1' in 'c': expected predictions of the same rows"):
            check_same_targets(a, self.make(tmp_path, "c", probs=probs, y=[0, 1, 1, 1]))
        with pytest.raises(Misuse, match=r"^'a' has 4 rows and 'd' has 3: expected"):
            check_same_targets(a, self.make(tmp_path, "d", probs=probs[:3], y=[0, 1, 1]))
        with pytest.raises(Misuse, match=r"^class 1 is 'y' in 'a' and 'w' in 'e': expected the same classes"):
            check_same_targets(a, self.make(tmp_path, "e", probs=probs, names=["x", "w", "z"], y=[0, 1, 2, 0]))
        with pytest.raises(Misuse, match=r"^'a' has 3 classes and 'f' has 2: expected the same classes"):
            check_same_targets(a, self.make(tmp_path, "f", probs=some_probs(4, 2), y=[0, 1, 1, 0]))
        numbers = self.make(tmp_path, "g", mean=np.zeros(4), std=1.0, y=[0.0, 1, 2, 0])
        with pytest.raises(Misuse, match=r"^'a' is a classification and 'g' a regression: expected one task"):
            check_same_targets(a, numbers)

    def test_numbers_may_be_rounded_as_texts_are(self, tmp_path):
        y = np.array([1 / 3, 2.0, 1e6])
        a = self.make(tmp_path, "a", mean=np.zeros(3), std=1.0, y=y)
        check_same_targets(a, self.make(tmp_path, "b", mean=np.zeros(3), std=1.0, y=y.round(8)))
        with pytest.raises(Misuse, match=r"^row 2 is 2 in 'a' and 2.001 in 'c': expected"):
            check_same_targets(a, self.make(tmp_path, "c", mean=np.zeros(3), std=1.0, y=y + np.array([0, 1e-3, 0])))
