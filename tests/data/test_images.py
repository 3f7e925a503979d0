"""Image folders, idx and CIFAR files written byte by byte and read back."""

import gzip
import os
import socket
import struct
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import murmuration as mm
from murmuration.data import open_data, open_inputs, open_split
from murmuration.data.images import middle, resize_and_crop
from murmuration.data.inputs import open_keyed_inputs
from murmuration.data.preparation import TablePreparation
from murmuration.system.errors import Failure, Misuse


def bytes_like(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


def write_classes(
    folder: Path, count: int, names: tuple[str, ...], shape: tuple[int, ...], seed: int = 0
) -> np.ndarray:
    """Images (len(names) * count, *shape), written as folder/name/i.png."""
    pixels = bytes_like(len(names) * count, *shape, seed=seed)
    for i, image in enumerate(pixels):
        place = folder / names[i // count]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place / f"{i:03d}.png")
    return pixels


def write_idx(path: Path, values: np.ndarray, packed: bool) -> None:
    content = bytes((0, 0, 8, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()
    path.with_name(path.name + ".gz" * packed).write_bytes(gzip.compress(content) if packed else content)


def idx_folder(folder: Path, packed: bool = False) -> dict[str, np.ndarray]:
    made = {}
    for part, count in (("train", 50), ("t10k", 20)):
        made[part] = bytes_like(count, 4, 5, seed=count)
        write_idx(folder / f"{part}-images-idx3-ubyte", made[part], packed)
        write_idx(folder / f"{part}-labels-idx1-ubyte", (np.arange(count) % 5).astype(np.uint8), packed)
    return made


def cifar_folder(folder: Path, hundred: bool = False) -> dict[str, np.ndarray]:
    """CIFAR files with 12 images each; label k of image i is i % 4, the coarse label is 0."""
    names = {"train.bin": 1, "test.bin": 2} if hundred else {f"data_batch_{k}.bin": k for k in (1, 2)}
    names |= {} if hundred else {"test_batch.bin": 3}
    made = {}
    for name, seed in names.items():
        planes = bytes_like(12, 3072, seed=seed)
        labels = (np.arange(12) % 4).astype(np.uint8)[:, None]
        coarse = np.zeros((12, 1 if hundred else 0), np.uint8)
        np.concatenate([coarse, labels, planes], axis=1).tofile(folder / name)
        made[name] = planes.reshape(12, 3, 32, 32)
    return made


def test_colour_folders(tmp_path: Path) -> None:
    pixels = write_classes(tmp_path, 10, ("cat", "ant"), (6, 5, 3))
    data = open_data(str(tmp_path), prepare="none")
    assert data.classes == ("ant", "cat")
    assert data.input_shape == (3, 6, 5)
    assert [len(split) for split in (data.train, data.val, data.test)] == [14, 2, 4]
    for split in (data.train, data.val, data.test):
        for x, y in zip(split.prepared, split.y, strict=True):
            i = next(i for i, p in enumerate(pixels) if np.array_equal(p, x.permute(1, 2, 0).numpy()))
            assert data.classes[y] == ("cat" if i < 10 else "ant")


def test_grey_folders_have_one_channel_and_numeric_classes_in_order(tmp_path: Path) -> None:
    pixels = write_classes(tmp_path, 4, ("10", "9"), (6, 5))
    data = open_data(tmp_path, prepare="none")
    assert data.input_shape == (1, 6, 5)
    assert data.classes == ("9", "10")
    assert data.train.prepared.sum() + data.val.prepared.sum() + data.test.prepared.sum() == pixels.sum()


def test_one_colour_image_makes_all_colour(tmp_path: Path) -> None:
    write_classes(tmp_path, 4, ("a", "b"), (6, 5))
    Image.fromarray(bytes_like(6, 5, 3)).save(tmp_path / "a" / "colour.png")
    assert open_data(tmp_path).input_shape == (3, 6, 5)


def test_sixteen_bit_greys_keep_their_upper_byte(tmp_path: Path) -> None:
    deep = np.random.default_rng(0).integers(0, 2**16, (8, 4, 4)).astype(np.uint16)
    for i, image in enumerate(deep):
        (tmp_path / "ab"[i % 2]).mkdir(exist_ok=True)
        Image.fromarray(image).save(tmp_path / "ab"[i % 2] / f"{i}.png")
    data = open_data(tmp_path, prepare="none")
    assert data.train.prepared.sum() + data.val.prepared.sum() + data.test.prepared.sum() == (deep >> 8).sum()


def test_train_and_test_folders_are_kept(tmp_path: Path) -> None:
    write_classes(tmp_path / "train", 10, ("a", "b"), (4, 4))
    test = write_classes(tmp_path / "test", 3, ("a", "b"), (4, 4), seed=1)
    data = open_data(tmp_path, prepare="none")
    assert [len(split) for split in (data.train, data.val, data.test)] == [18, 2, 6]
    assert np.array_equal(data.test.prepared[:, 0].numpy(), test)
    write_classes(tmp_path / "val", 2, ("a", "b"), (4, 4), seed=2)
    assert len(open_data(tmp_path).val) == 4


def test_flat_folders_serve_prediction_alone(tmp_path: Path) -> None:
    write_classes(tmp_path / "train", 5, ("a", "b"), (4, 4))
    data = open_data(tmp_path / "train")
    flat = write_classes(tmp_path, 3, ("flat",), (4, 4), seed=5)
    x = open_inputs(tmp_path / "flat", preparation=data.preparation)
    assert torch.equal(x, data.preparation.apply(flat))
    with pytest.raises(Misuse, match="holds images but no class folders: expected one folder for each class"):
        open_data(tmp_path / "flat")


def test_labels_of_another_folder_are_mapped_by_name(tmp_path: Path) -> None:
    write_classes(tmp_path / "run", 5, ("ant", "bee", "cow"), (4, 4))
    data = open_data(tmp_path / "run")
    write_classes(tmp_path / "later", 2, ("cow", "bee"), (4, 4))
    options = {"preparation": data.preparation, "task": data.task, "classes": data.classes}
    assert open_split(tmp_path / "later", **options).y.tolist() == [1, 1, 2, 2]
    write_classes(tmp_path / "later", 1, ("yak",), (4, 4))
    with pytest.raises(Misuse, match=r"label 'yak' .* is not among the classes: expected ant, bee, cow"):
        open_split(tmp_path / "later", **options)


def test_bytes_for_a_run_with_another_white(tmp_path: Path) -> None:
    digits = open_data("digits")
    pixels = digits.preparation.pixels_of(digits.test.prepared[:3])[..., 0]
    for i, image in enumerate(pixels):
        Image.fromarray(image).save(tmp_path / f"{i}.png")
    x = open_inputs(tmp_path, preparation=digits.preparation)
    # a byte rounds a grey of 0..16 by at most half of 16/255
    assert (x - digits.test.prepared[:3]).abs().max() <= 0.51 * 16 / 255 / digits.preparation.std[0]


def test_bad_folders(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"no images in .*: expected class folders of"):
        open_data(tmp_path)
    write_classes(tmp_path, 3, ("a", "b"), (4, 4))
    Image.fromarray(bytes_like(5, 6)).save(tmp_path / "b" / "odd.png")
    with pytest.warns(UserWarning, match="2 sizes: all are resized and cropped to 64x64; write size="):
        assert open_data(tmp_path).input_shape == (1, 64, 64)
    (tmp_path / "b" / "odd.png").write_bytes(b"not an image")
    with pytest.raises(Failure, match=r"damaged image '.*odd.png'"):
        open_data(tmp_path)
    whole = (tmp_path / "b" / "003.png").read_bytes()
    (tmp_path / "b" / "odd.png").write_bytes(whole[: len(whole) // 2 + 8])
    with pytest.raises(Failure, match=r"damaged image '.*odd.png'"):
        open_data(tmp_path)


@pytest.mark.parametrize("packed", [False, True])
def test_idx_files(tmp_path: Path, packed: bool) -> None:
    made = idx_folder(tmp_path, packed)
    data = open_data(tmp_path, prepare="none")
    assert np.array_equal(data.test.prepared[:, 0].numpy(), made["t10k"])
    assert data.test.y.tolist() == [i % 5 for i in range(20)]
    assert data.classes == tuple("01234")
    assert [len(split) for split in (data.train, data.val, data.test)] == [45, 5, 20]
    split = open_split(tmp_path, preparation=data.preparation, task=data.task, classes=data.classes)
    assert torch.equal(split.prepared, data.test.prepared)
    assert torch.equal(split.y, data.test.y)
    assert torch.equal(open_inputs(tmp_path, preparation=data.preparation), data.test.prepared)


def test_damaged_idx_files(tmp_path: Path) -> None:
    idx_folder(tmp_path)
    images = tmp_path / "train-images-idx3-ubyte"
    whole = images.read_bytes()
    images.write_bytes(whole[:-7])
    with pytest.raises(Failure, match=r"train-images-idx3-ubyte' is damaged: expected 1016 bytes, got 1009"):
        open_data(tmp_path)
    images.write_bytes(b"\x00\x00\x0d\x03" + whole[4:])
    with pytest.raises(Failure, match="is not an idx file of bytes with 3 axes: it begins 00 00 0d 03"):
        open_data(tmp_path)
    images.unlink()
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(whole)[:-20])
    with pytest.raises(Failure, match=r"cannot read '.*train-images-idx3-ubyte.gz' \(\d+ bytes\)"):
        open_data(tmp_path)
    write_idx(images, bytes_like(49, 4, 5), packed=False)
    with pytest.raises(Failure, match="has 49 images but 50 labels"):
        open_data(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").unlink()
    with pytest.raises(Misuse, match="has no labels beside it"):
        open_data(tmp_path)


def test_cifar_10(tmp_path: Path) -> None:
    made = cifar_folder(tmp_path)
    data = open_data(tmp_path, prepare="none")
    assert data.classes == tuple("0123")
    assert np.array_equal(data.test.prepared.numpy(), made["test_batch.bin"])
    assert data.test.y.tolist() == [i % 4 for i in range(12)]
    train = np.concatenate([made["data_batch_1.bin"], made["data_batch_2.bin"]])
    assert data.train.prepared.sum() + data.val.prepared.sum() == train.sum(dtype=np.int64)
    (tmp_path / "batches.meta.txt").write_text("plane\ncar\nbird\ncat\n\n")
    assert open_data(tmp_path).classes == ("plane", "car", "bird", "cat")
    (tmp_path / "batches.meta.txt").write_text("plane\ncar\n")
    with pytest.raises(Misuse, match="label 2 has no name: expected 0 to 1"):
        open_data(tmp_path)


def test_cifar_100_takes_the_fine_label(tmp_path: Path) -> None:
    made = cifar_folder(tmp_path, hundred=True)
    (tmp_path / "fine_label_names.txt").write_text("apple\nbear\nbed\nbee\n")
    data = open_data(tmp_path, prepare="none")
    assert data.classes == ("apple", "bear", "bed", "bee")
    assert data.test.y.tolist() == [i % 4 for i in range(12)]
    assert np.array_equal(data.test.prepared.numpy(), made["test.bin"])


def test_damaged_cifar_file(tmp_path: Path) -> None:
    cifar_folder(tmp_path)
    path = tmp_path / "data_batch_2.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Failure, match=r"expected 36876 bytes \(records of 3073\), got 36875"):
        open_data(tmp_path)
    (tmp_path / "train.bin").write_bytes(b"")
    with pytest.raises(Misuse, match="mixes CIFAR-10 and CIFAR-100 files"):
        open_data(tmp_path)


def test_very_long_images_are_cropped_before_they_are_scaled(tmp_path: Path) -> None:
    """Scaled whole, one of 1 x 30,000 pixels would take 64 x 1,920,000 of them."""
    stripes = np.arange(30_000) % 2 * 255
    planes = np.broadcast_to(stripes.astype(np.uint8), (1, 3, 1, 30_000))
    found = resize_and_crop(planes, (64, 64))
    assert found.shape == (1, 3, 64, 64)
    assert {0, 255} >= set(np.unique(found[0, 0, :, 32])) or found[0, 0, :, 32].std() == 0
    usual = np.random.default_rng(0).integers(0, 256, (1, 3, 40, 90), dtype=np.uint8)
    assert np.array_equal(middle(usual, (8, 8)), usual)


def test_names_of_images_that_are_no_files_are_noted_once(tmp_path: Path) -> None:
    write_classes(tmp_path, 4, ("cats", "dogs"), (4, 4))
    (tmp_path / "cats" / "gone.png").symlink_to(tmp_path / "nowhere.png")
    (tmp_path / "cats" / "loop.png").symlink_to("loop.png")
    os.mkfifo(tmp_path / "dogs" / "pipe.png")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(tmp_path / "dogs" / "s.png"))
    (tmp_path / "dogs" / "linked.png").symlink_to(tmp_path / "cats" / "000.png")  # a link to a file is a file
    write = r"4 of 13 images are links to nothing, pipes or sockets, such as '(cats/)?gone.png': they are left out"
    with pytest.warns(UserWarning, match=write) as notes:
        data = open_data(tmp_path)
    assert len(notes) == 1
    assert len(data.train) + len(data.val) + len(data.test) == 9
    with pytest.warns(UserWarning, match=r"2 of 6 images are links"):
        open_inputs(tmp_path / "cats", preparation=data.preparation)


@pytest.mark.parametrize("target", ["..", ".", "../..", "cats", "cats/kittens"])
def test_class_folders_that_hold_each_other_are_refused(tmp_path: Path, target: str) -> None:
    folder = tmp_path / "animals"
    write_classes(folder, 4, ("cats", "dogs"), (4, 4))
    write_classes(folder / "cats", 2, ("kittens",), (4, 4))
    (folder / "all").symlink_to(folder / target, target_is_directory=True)
    with pytest.raises(Misuse, match=r"class folder '.*all' is a link .*remove the link") as error:
        open_data(folder)
    assert "\n" not in str(error.value)
    (folder / "all").unlink()
    other = write_classes(tmp_path / "elsewhere", 3, ("birds",), (4, 4))
    (folder / "birds").symlink_to(tmp_path / "elsewhere" / "birds", target_is_directory=True)
    with warnings.catch_warnings(action="error"):
        data = open_data(folder)
    assert data.classes == ("birds", "cats", "dogs")
    assert len(data.train) + len(data.val) + len(data.test) == 10 + len(other)


def test_few_damaged_images_are_left_out_with_one_note(tmp_path: Path) -> None:
    write_classes(tmp_path, 60, ("a", "b"), (4, 4))
    files = sorted(tmp_path.rglob("*.png"))
    files[70].write_bytes(files[70].read_bytes()[:60])
    with pytest.warns(
        UserWarning, match=rf"1 of {len(files)} images are damaged, such as 'b.*: they are left out; write"
    ):
        data = open_data(tmp_path)
    assert sum(len(split) for split in (data.train, data.val, data.test)) == len(files) - 1
    assert data.classes == ("a", "b")
    kept = np.concatenate([split.keys["file"] for split in (data.train, data.val, data.test)])
    assert files[70].relative_to(tmp_path).as_posix() not in kept
    with pytest.raises(Failure, match=r"damaged image .*: remove or replace the file"):
        open_data(tmp_path, strict=True)
    for path in files[:3]:
        path.write_bytes(b"no image")
    with pytest.raises(Failure, match=r"4 of .* such as 'a.*up to 1 \(1 %\) would be left out; remove or replace them"):
        open_data(tmp_path)


def test_images_for_a_run_trained_on_a_table_are_refused(tmp_path: Path) -> None:
    write_classes(tmp_path, 2, ("a",), (4, 4))
    (tmp_path / "a" / "000.png").write_bytes(b"damaged")
    for path in (tmp_path, tmp_path / "a" / "000.png"):
        with pytest.raises(Misuse, match=r"holds images, and this run was trained on a table: expected FILE.csv"):
            open_inputs(str(path), preparation=TablePreparation(()))


def test_a_damaged_image_of_new_ones_is_left_out_with_one_note(tmp_path: Path) -> None:
    write_classes(tmp_path, 60, ("a", "b"), (4, 4))
    data = open_data(tmp_path)
    file = sorted((tmp_path / "b").iterdir())[7]
    file.write_bytes(file.read_bytes()[:60])
    with pytest.warns(UserWarning, match=r"1 of 60 images are damaged, such as .*: they are left out$") as notes:
        opened = open_keyed_inputs(tmp_path / "b", preparation=data.preparation)
    assert len(notes) == 1
    assert len(opened.x) == len(opened.keys["file"]) == 59
    assert file.name not in opened.keys["file"]


@pytest.mark.parametrize("count", [20, 60])
def test_one_damaged_image_of_new_ones_is_left_out_as_in_training(tmp_path: Path, count: int) -> None:
    images = np.random.default_rng(0).integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)
    for index, pixels in enumerate(images):
        Image.fromarray(pixels).save(tmp_path / f"{index:02}.png")
    cut = tmp_path / "07.png"
    cut.write_bytes(cut.read_bytes()[:90])
    ensemble = mm.fit("small-cnn", (images, np.arange(count) % 2), members=1, epochs=1, progress=False)
    if count < 50:
        with pytest.raises(Failure, match=r"damaged image '.*07.png' .*: remove or replace the file"):
            ensemble.predict(tmp_path)
        return
    with pytest.warns(UserWarning, match=r"1 of 60 images are damaged, such as '07.png'"):
        predicted = ensemble.predict(tmp_path)
    assert len(predicted.keys["file"]) == 59
