"""What all corruptions promise: shapes and types, independence of the batch, the sizes of the noise."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from murmuration.cli import main
from murmuration.data import open_data
from murmuration.data.shift import (
    TABLE_SHIFTS,
    TableShift,
    corruptions_for,
    images as table,
    select_corruptions,
    shift_inputs,
)
from murmuration.data.shift.digital import alias_tables
from murmuration.data.shift.images import CORRUPTIONS, corrupt, corruption_named, sheet
from murmuration.data.shift.randomness import draws_for
from murmuration.system.errors import Misuse

NAMES = list(CORRUPTIONS)
RANDOM = [n for n in NAMES if CORRUPTIONS[n].kind == "noise"] + ["glass_blur", "fog", "elastic_transform", "spatter"]
RANDOM += ["motion_blur_approximate", "snow_approximate", "frost_approximate"]
EIGHT_BITS = ("glass_blur", "pixelate", "jpeg_compression")  # these work on 8-bit images in between


def images(count: int = 6, height: int = 32, width: int = 32, colours: int = 3, seed: int = 5) -> np.ndarray:
    """Bytes (N, H, W, C): a slope of colour with three flat rectangles on it."""
    generator = np.random.default_rng(seed)
    y, x = np.linspace(0, 1, height)[:, None, None], np.linspace(0, 1, width)[:, None]
    slopes = generator.uniform(20, 110, (2, count, 1, 1, colours))
    out = slopes[0] * y + slopes[1] * x + generator.uniform(10, 30, (count, 1, 1, colours))
    for image in out:
        for _ in range(3):
            top, left = generator.integers(0, height - 2), generator.integers(0, width - 2)
            image[top : top + height // 3, left : left + width // 3] = generator.uniform(0, 255, colours)
    return out.astype(np.uint8)


def grey(level: float, count: int = 20) -> np.ndarray:
    return np.full((count, 32, 32, 3), level, dtype=np.float32)


def test_the_table_is_that_of_cifar_10_c() -> None:
    plain = [name.removesuffix("_approximate") for name in NAMES]
    assert plain[:10] == [
        "gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur",
        "motion_blur", "zoom_blur", "snow", "frost", "fog",
    ]  # fmt: skip
    assert plain[10:] == [
        "brightness", "contrast", "elastic_transform", "pixelate", "jpeg_compression",
        "speckle_noise", "gaussian_blur", "spatter", "saturate",
    ]  # fmt: skip
    assert all(len(corruption.severities) == 5 for corruption in CORRUPTIONS.values())
    assert [name for name in NAMES if not CORRUPTIONS[name].exact] == [n for n in NAMES if n.endswith("_approximate")]
    assert {c.kind for c in CORRUPTIONS.values()} == {"noise", "blur", "weather", "digital"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(8, 8), (5, 4, 1), (9, 14, 3), (32, 32, 3)])
def test_any_size_and_either_type_and_never_in_place(name: str, shape: tuple[int, ...]) -> None:
    colours = shape[2] if len(shape) == 3 else 1
    x = images(3, shape[0], shape[1], colours).reshape(3, *shape)
    before = x.copy()
    for severity in (1, 5):
        as_bytes = corrupt(x, name, severity)
        as_floats = corrupt((x / 255).astype(np.float32), name, severity)
        assert as_bytes.dtype == np.uint8
        assert as_floats.dtype == np.float32
        assert as_bytes.shape == as_floats.shape == x.shape
        assert as_floats.min() >= 0
        assert as_floats.max() <= 1
        if name not in EIGHT_BITS:  # truncation takes up to one level away
            below = 255 * as_floats.astype(np.float64) - as_bytes
            assert below.min() > -1e-3
            assert below.max() < 1 + 1e-3
    assert np.array_equal(x, before)
    assert (as_bytes != x).any() or name in ("saturate", "impulse_noise", "spatter")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("colours", [1, 3])
def test_an_image_does_not_see_its_batch(name: str, colours: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = (images(9, 16, 13, colours) / 255).astype(np.float32)
    for severity in (1, 3, 5):
        whole = corrupt(x, name, severity, seed=3, first=100)
        for part in (slice(0, 1), slice(4, 5), slice(3, 8)):
            assert np.array_equal(whole[part], corrupt(x[part], name, severity, seed=3, first=100 + part.start))
        with monkeypatch.context() as patch:
            patch.setattr(table, "AT_ONCE", 2 * 16 * 13)
            assert np.array_equal(whole, corrupt(x, name, severity, seed=3, first=100))


@pytest.mark.parametrize("name", RANDOM)
def test_seeds_places_and_severities_have_their_own_numbers(name: str) -> None:
    x = (images(1) / 255).astype(np.float32).repeat(2, axis=0)
    same = corrupt(x, name, 3)
    assert np.array_equal(same, corrupt(x, name, 3))
    assert not np.array_equal(same[0], same[1])
    assert not np.array_equal(same, corrupt(x, name, 3, seed=1))
    assert not np.array_equal(same[0], corrupt(x[:1], name, 3, first=7)[0])
    assert not np.array_equal(same, corrupt(x, name, 4))
    words = [draws_for(0, name, severity, range(1)).words((4,)) for severity in (1, 2)]
    assert not np.array_equal(*words)


def test_no_images_give_no_images() -> None:
    assert corrupt(np.zeros((0, 8, 8), np.uint8), "fog", 1).shape == (0, 8, 8)


@pytest.mark.parametrize("severity", range(1, 6))
def test_gaussian_and_speckle_noise_have_their_deviation(severity: int) -> None:
    for name, level in (("gaussian_noise", 0.5), ("speckle_noise", 0.4)):
        size = CORRUPTIONS[name].severities[severity - 1] * (1 if name == "gaussian_noise" else level)
        residual = corrupt(grey(level), name, severity).astype(np.float64) - np.float32(level)
        assert abs(residual.mean()) < 4 * size / math.sqrt(residual.size)
        assert abs(residual.std() / size - 1) < 4 / math.sqrt(2 * residual.size)


def test_speckle_leaves_black_alone() -> None:
    assert corrupt(grey(0), "speckle_noise", 5).max() == 0


@pytest.mark.parametrize("severity", range(1, 6))
@pytest.mark.parametrize("level", [102 / 255, 0.4321])
def test_shot_noise_has_mean_x_and_variance_x_over_c(severity: int, level: float) -> None:
    photons = CORRUPTIONS["shot_noise"].severities[severity - 1]
    out = corrupt(grey(level), "shot_noise", severity).astype(np.float64)
    variance = level / photons
    assert abs(out.mean() - level) < 4 * math.sqrt(variance / out.size)
    assert abs(out.var() / variance - 1) < 4 * math.sqrt((2 + 1 / (photons * level)) / out.size)
    counts = out * photons
    assert abs(counts - np.rint(counts)).max() < 1e-3


@pytest.mark.parametrize("photons", [500, 50])
def test_the_tables_of_counts_are_the_poisson_distribution(photons: int) -> None:
    from scipy.stats import poisson

    thresholds, others, starts = alias_tables(photons)
    columns = thresholds.shape[1]
    own = thresholds * columns / 2.0**32
    for level in (0, 1, 100, 255):
        mass = own[level] + np.bincount(others[level], weights=1 - own[level], minlength=columns)
        expected = poisson.pmf(starts[level] + np.arange(columns), photons * level / 255)
        assert abs(expected.sum() - 1) < 1e-8
        assert abs(mass / columns - expected).max() < 1e-8


@pytest.mark.parametrize("severity", range(1, 6))
def test_impulse_noise_hits_its_share_with_as_much_salt_as_pepper(severity: int) -> None:
    share = CORRUPTIONS["impulse_noise"].severities[severity - 1]
    out = corrupt(grey(0.5), "impulse_noise", severity)
    salt, pepper = (out == 1).sum(), (out == 0).sum()
    hits = salt + pepper
    assert (out == 0.5).sum() == out.size - hits
    assert abs(hits / out.size - share) < 4 * math.sqrt(share * (1 - share) / out.size)
    assert abs(salt / hits - 0.5) < 4 * math.sqrt(0.25 / hits)


BLURS = ("defocus_blur", "zoom_blur", "gaussian_blur", "motion_blur_approximate")


@pytest.mark.parametrize("name", [*BLURS, "glass_blur", "elastic_transform", "pixelate"])
def test_one_colour_stays_what_it_is(name: str) -> None:
    x = np.arange(250, dtype=np.uint8)[:, None, None, None].repeat(8, 1).repeat(9, 2) + np.arange(3, dtype=np.uint8)
    for severity in range(1, 6):
        assert np.array_equal(corrupt(x, name, severity), x)


@pytest.mark.parametrize("name", [*BLURS, "gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"])
def test_higher_severities_change_more(name: str) -> None:
    x = images(32) / 255
    severities = (1, 2, 3, 5) if name.startswith("motion") else range(1, 6)  # 3 and 4 differ in a negligible tail
    errors = [np.square(corrupt(x, name, severity) - x).mean() for severity in severities]
    assert errors == sorted(errors)
    assert errors[0] > 0


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("motion_blur", "motion_blur_approximate"),
        ("frosted_glass_blur", "glass_blur"),
        ("elastic", "elastic_transform"),
        ("snow", "snow_approximate"),
        ("fog", "fog"),
    ],
)
def test_official_names_are_understood(alias: str, name: str) -> None:
    assert corruption_named(alias) is CORRUPTIONS[name]
    x = images(2)
    assert np.array_equal(corrupt(x, alias, 2), corrupt(x, name, 2))


def test_misuse_is_told_in_one_line() -> None:
    x = images(2)
    with pytest.raises(Misuse, match="unknown corruption 'fgo': did you mean 'fog'"):
        corrupt(x, "fgo", 1)
    for severity in (0, 6, True, 2.0):
        with pytest.raises(Misuse, match=rf"^severity {severity}: expected an integer from 1 to 5$"):
            corrupt(x, "fog", severity)  # type: ignore[arg-type]
    with pytest.raises(Misuse, match="images of type int64: expected an array of uint8"):
        corrupt(x.astype(np.int64), "fog", 1)
    with pytest.raises(Misuse, match="images of type list"):
        corrupt([[1]], "fog", 1)  # type: ignore[arg-type]
    with pytest.raises(Misuse, match=r"shape \(2, 32, 32, 2\): expected \(N, H, W\)"):
        corrupt(x[..., :2], "fog", 1)
    with pytest.raises(Misuse, match="images of 3 x 32 pixels: expected 4 a side at least"):
        corrupt(x[:, :3], "fog", 1)
    with pytest.raises(Misuse, match=r"images from 0 to 255: expected floats in 0\.\.1"):
        corrupt(x.astype(float) * (255 / x.max()) * (x > x.min()), "fog", 1)
    with pytest.raises(Misuse, match="from nan to nan"):
        corrupt(np.full((1, 8, 8), np.nan), "fog", 1)
    with pytest.raises(Misuse, match="seed -1 and first 0"):
        corrupt(x, "fog", 1, seed=-1)


def test_a_sheet_shows_every_corruption_at_every_severity() -> None:
    x = images(2, 8, 8, 1)[..., 0]
    page = sheet(x, names=["contrast", "motion_blur"], severities=[1, 5])
    assert page.dtype == np.uint8
    assert page.shape[2] == 3
    square = np.ones((8, 8, 1), np.uint8)

    def tile(row: int, column: int) -> np.ndarray:
        return page[16 + 68 * row :, 152 + 68 * column :][:64, :64]

    assert np.array_equal(tile(0, 0), np.kron(x[0][..., None], square).repeat(3, 2))
    assert np.array_equal(tile(0, 2), np.kron(corrupt(x[:1], "contrast", 5)[0][..., None], square).repeat(3, 2))
    expected = corrupt(x[1:], "motion_blur", 1, first=1)[0]
    assert np.array_equal(tile(1, 1), np.kron(expected[..., None], square).repeat(3, 2))
    assert (page[16:84, :152] < 128).any()  # a name is written beside the row
    flat = sheet(x / 255, names=["contrast", "motion_blur"], severities=[1, 5], blocks=2)
    assert flat.shape[1] == 2 * page.shape[1]
    with pytest.raises(Misuse, match="a sheet of 18 corruptions of 0 images"):  # saturate does nothing to grey
        sheet(x[:0])
    with pytest.raises(Misuse, match="a sheet of 19 corruptions of 0 images"):
        sheet(images(2, 8, 8, 3)[:0])


def test_nothing_heavy_is_imported_with_the_table() -> None:
    for path in Path(table.__file__).parent.glob("*.py"):
        lines = path.read_text().splitlines()
        assert not [line for line in lines if line.startswith(("import scipy", "from scipy", "from PIL", "import PIL"))]


def test_a_new_corruption_is_one_row(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """It is listed, applied to prepared images and named in errors."""
    row = table.Corruption(
        "inverted", "digital", "black for white", (1, 2, 3, 4, 5), lambda x, parameters, draws: 1 - x
    )
    data = open_data("digits")
    assert "inverted" not in corruptions_for(data.preparation)
    monkeypatch.setitem(CORRUPTIONS, row.name, row)
    assert select_corruptions(data.preparation)[-1] == "inverted"
    pixels = data.preparation.pixels_of(shift_inputs(data.test.prepared[:3], data.preparation, "inverted", 2))
    np.testing.assert_allclose(pixels, 255 - data.preparation.pixels_of(data.test.prepared[:3]).astype(int), atol=1)
    with pytest.raises(Misuse, match="unknown corruption 'invert': did you mean 'inverted'"):
        corrupt(images(1), "invert", 1)
    assert main(["list", "corruptions", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["inverted"]
    assert listed == {"inputs": "images", "kind": "digital", "exact": "yes", "description": "black for white"}


def test_a_new_shift_of_tables_is_one_row(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    def zero(values, layout, strength, draws) -> None:
        values[:, layout.numbers] = 0

    monkeypatch.setitem(TABLE_SHIFTS, "zeros", TableShift(zero, "numeric", (1, 2, 3, 4, 5), "all numbers 0"))
    data = open_data("iris")
    assert select_corruptions(data.preparation)[-1] == "zeros"
    assert not shift_inputs(data.test.prepared, data.preparation, "zeros", 1).any()
    assert main(["list", "corruptions", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["zeros"]["description"] == "all numbers 0"
