"""Arrays: npz files, pairs and datasets all say the same."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from murmuration.data import ImagePreparation, open_data, open_inputs, open_split
from murmuration.system.errors import Failure, Misuse


def example(rows: int = 40) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(rows, 3)).astype(np.float32), np.arange(rows) % 2


def test_npz_pair_tensors_and_dataset_agree(tmp_path: Path) -> None:
    x, y = example()
    np.savez(tmp_path / "a.npz", x=x, y=y)
    tensors = (torch.from_numpy(x).requires_grad_(), torch.from_numpy(y))
    sources = [tmp_path / "a.npz", (x, y), tensors, TensorDataset(*tensors)]
    opened = [open_data(source, in_memory=True) for source in sources]
    for data in opened:
        assert data.fingerprint == opened[0].fingerprint
        assert torch.equal(data.train.prepared, opened[0].train.prepared)
        assert torch.equal(data.test.y, opened[0].test.y)
    assert [data.name for data in opened[1:]] == ["tensors", "tensors", "dataset"]
    assert opened[0].task == "classification"


def test_each_row_keeps_its_target() -> None:
    x, _ = example()
    data = open_data((x, x[:, :2] * 3.0))
    for split in (data.train, data.val, data.test):
        raw = split.prepared * torch.tensor(data.preparation.std) + torch.tensor(data.preparation.mean)
        assert torch.allclose(split.y, raw[:, :2].double() * 3, atol=1e-5)


def test_parts_in_an_npz_are_kept(tmp_path: Path) -> None:
    x, y = example()
    np.savez(tmp_path / "k.npz", x_train=x, y_train=y, x_test=x[:6] + 1, y_test=y[:6])
    data = open_data(tmp_path / "k.npz")
    assert [len(split) for split in (data.train, data.val, data.test)] == [36, 4, 6]
    assert torch.equal(data.test.prepared, data.preparation.apply(x[:6] + 1))
    np.savez(tmp_path / "v.npz", x_train=x, y_train=y, x_val=x[:5], y_val=y[:5], x_test=x[:6], y_test=y[:6])
    data = open_data(tmp_path / "v.npz")
    assert [len(split) for split in (data.train, data.val, data.test)] == [40, 5, 6]
    assert np.allclose(data.preparation.mean, x.mean(0), atol=1e-6)


def test_bytes_are_images_and_text_labels_are_classes(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 256, (30, 6, 5, 3)).astype(np.uint8)
    np.savez(tmp_path / "p.npz", x=x, y=np.resize(["no", "yes"], 30))
    data = open_data(tmp_path / "p.npz")
    assert isinstance(data.preparation, ImagePreparation)
    assert data.input_shape == (3, 6, 5)
    assert data.classes == ("no", "yes")
    floats = open_inputs(x / 255, preparation=data.preparation)
    assert torch.allclose(floats, open_inputs(x, preparation=data.preparation), atol=1e-5)


def test_evaluating_and_predicting_with_an_earlier_preparation(tmp_path: Path) -> None:
    x, y = example()
    data = open_data((x, y))
    options = {"preparation": data.preparation, "task": data.task, "classes": data.classes}
    split = open_split((x[:7], y[:7]), **options)
    assert torch.equal(split.prepared, data.preparation.apply(x[:7]))
    assert split.y.tolist() == y[:7].tolist()
    np.savez(tmp_path / "x.npz", x=x[:7])
    for source in (tmp_path / "x.npz", x[:7], torch.from_numpy(x[:7]), (x[:7], None)):
        assert torch.equal(open_inputs(source, preparation=data.preparation), split.prepared)
    with pytest.raises(Misuse, match="has no array y: found x"):
        open_split(tmp_path / "x.npz", **options)


def test_regression_split_in_its_own_units() -> None:
    x, _ = example()
    data = open_data((x, x[:, 0] * 100 + 7))
    split = open_split((x, x[:, 0] * 100 + 7), preparation=data.preparation, task="regression", classes=())
    assert torch.equal(split.y[:, 0], torch.from_numpy(x[:, 0] * 100 + 7).double())


def test_one_dimensional_inputs_become_a_column() -> None:
    data = open_data((np.linspace(0, 1, 20), np.linspace(0, 1, 20) ** 2))
    assert data.input_shape == (1,)
    assert data.task == "regression"


class Endless(IterableDataset):
    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(())


class Ragged(Dataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return torch.zeros(i + 1), 0


def test_bad_arrays(tmp_path: Path) -> None:
    x, y = example()
    with pytest.raises(Misuse, match="x has 40 rows but its targets have 39: expected equal numbers"):
        open_data((x, y[:-1]))
    bad = x.copy()
    bad[3, 1] = np.inf
    with pytest.raises(Misuse, match=r"x\[3, 1\] is inf \(1 such values\): expected finite numbers"):
        open_data((bad, y))
    with pytest.raises(Misuse, match=r"target is missing in 40 of 40 rows \(row 1, 2, 3, 4, 5, ... \(40 in all\)\)"):
        open_data((x, np.full(40, np.nan)))
    with pytest.raises(Misuse, match=r"one array of shape \(40, 3\): expected a pair"):
        open_data(x)
    with pytest.raises(Misuse, match=r"targets have type float64 and shape \(\)"):
        open_data((x, 3.0))
    with pytest.raises(Misuse, match="Endless is not a map-style data set"):
        open_data(Endless())
    with pytest.raises(
        Misuse, match="Ragged gives examples that do not form a batch: stack expects each tensor to be equal size"
    ):
        open_data(Ragged())
    with pytest.raises(Misuse, match="examples have different shapes"):
        open_data(([[1.0], [1.0, 2.0]], [0, 1]))
    with pytest.raises(Misuse, match=r"x has the shape \(40, 0\): expected at least one row and one value"):
        open_data((x[:, :0], y))
    with pytest.raises(Misuse, match="x has type complex128"):
        open_data((x.astype(complex), y))


def test_bad_npz(tmp_path: Path) -> None:
    x, y = example()
    path = tmp_path / "b.npz"
    np.savez(path, x=np.array([{}, []], dtype=object), y=y)
    with pytest.raises(Misuse, match=r"b.npz': array x holds Python objects: expected numbers or texts"):
        open_data(path)
    np.savez(path, inputs=x, y=y)
    with pytest.raises(Misuse, match=r"has no array x \(or x_train\): found inputs, y"):
        open_data(path)
    np.savez(path, x=x)
    with pytest.raises(Misuse, match="has no array y: found x"):
        open_data(path)
    np.savez(path, x=x, x_test=x, y=y)
    with pytest.raises(Misuse, match="holds x and also x_test: expected one or the other"):
        open_data(path)
    np.savez(path, x_test=x, y_test=y)
    with pytest.raises(Misuse, match="only the parts test: expected a training part"):
        open_data(path)
    np.savez(path, x=x, y=y)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(Failure, match=r"cannot read .*b\.npz|not an npz"):
        open_data(path)
    path.write_bytes(b"hello")
    with pytest.raises(Failure, match=r"b.npz' is not an npz archive"):
        open_data(path)
    np.save(tmp_path / "single.npy", x)
    (tmp_path / "single.npy").rename(path)
    with pytest.raises(Misuse, match="holds a single array: expected an npz archive"):
        open_data(path)
