"""Every corruption against a plain rendering of its formula, one image and often one pixel at a time."""

import colorsys
from io import BytesIO

import numpy as np
import pytest
from numpy.testing import assert_allclose
from PIL import Image
from scipy import ndimage

from murmuration.data.shift import blurs, digital, weather
from murmuration.data.shift.images import CORRUPTIONS, corrupt
from murmuration.data.shift.randomness import draws_for

GENERATOR = np.random.default_rng(0)
BYTES = ndimage.gaussian_filter(GENERATOR.integers(0, 256, (4, 32, 32, 3)), (0, 1, 1, 0)).astype(np.uint8)
BYTES[0, :8, :8], BYTES[1, 3], BYTES[2, :4] = 0, 255, GENERATOR.integers(0, 256, (4, 32, 1))  # black, white, grey
X = BYTES / 255
ROUNDING = 3e-6  # of numbers in 0..1 in single precision after a few dozen operations
SEVERITIES = pytest.mark.parametrize("severity", range(1, 6))


def ours(name: str, severity: int) -> np.ndarray:
    return corrupt(X, name, severity)


def parameters(name: str, severity: int) -> tuple:
    return CORRUPTIONS[name].severities[severity - 1]


@SEVERITIES
def test_gaussian_blur(severity: int) -> None:
    c = (0.4, 0.6, 0.7, 0.8, 1)[severity - 1]
    expected = [[ndimage.gaussian_filter(p[..., i], c, mode="nearest", truncate=4) for i in range(3)] for p in X]
    assert_allclose(ours("gaussian_blur", severity), np.moveaxis(expected, 1, 3), atol=ROUNDING)


@SEVERITIES
def test_defocus_blur(severity: int) -> None:
    radius, b = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))[severity - 1]
    y, x = np.mgrid[-8:9, -8:9]
    kernel = (x**2 + y**2 <= radius**2).astype(float)
    near = np.exp(-(np.mgrid[-1:2, -1:2] ** 2).sum(0) / (2 * b * b))
    kernel = ndimage.convolve(kernel / kernel.sum(), near / near.sum(), mode="constant")
    expected = [[ndimage.correlate(p[..., i], kernel, mode="mirror") for i in range(3)] for p in X]
    assert_allclose(ours("defocus_blur", severity), np.moveaxis(expected, 1, 3), atol=ROUNDING)


def zoomed(image: np.ndarray, factor: float) -> np.ndarray:
    side = len(image)
    kept = int(np.ceil(side / factor))
    top = (side - kept) // 2
    large = ndimage.zoom(image[top : top + kept, top : top + kept], (factor, factor, 1), order=1)
    trim = (len(large) - side) // 2
    return large[trim : trim + side, trim : trim + side]


@SEVERITIES
def test_zoom_blur(severity: int) -> None:
    factors = np.arange(1, (1.06, 1.11, 1.16, 1.21, 1.26)[severity - 1], 0.01)
    expected = [(p + sum(zoomed(p, z) for z in factors)) / (len(factors) + 1) for p in X]
    assert_allclose(ours("zoom_blur", severity), expected, atol=ROUNDING)


@SEVERITIES
def test_glass_blur_goes_from_the_last_pixel_to_the_third(severity: int) -> None:
    sigma, passes = parameters("glass_blur", severity)
    words = draws_for(0, "glass_blur", severity, range(len(X))).words((passes, 30, 30))
    for image, word, out in zip(X, words, ours("glass_blur", severity), strict=True):
        levels = np.floor(ndimage.gaussian_filter(image, (sigma, sigma, 0), mode="nearest") * 255 + 2e-4)
        for turn in range(passes):
            for row in range(31, 1, -1):
                for column in range(31, 1, -1):
                    up, left = int(word[turn, row - 2, column - 2]) & 1, int(word[turn, row - 2, column - 2]) >> 1 & 1
                    levels[row, column] = levels[row - up, column - left]
        assert_allclose(out, ndimage.gaussian_filter(levels / 255, (sigma, sigma, 0), mode="nearest"), atol=ROUNDING)


def smear(image: np.ndarray, radius: int, sigma: float, degrees: float) -> np.ndarray:
    weights = np.exp(-(np.arange(2 * radius + 1) ** 2) / (2 * sigma**2))
    height, width = image.shape[:2]
    out = np.zeros_like(image)
    for i, weight in enumerate(weights / weights.sum()):
        down = int(np.ceil(i * np.sin(np.deg2rad(degrees)) - 0.5))
        right = int(np.ceil(i * np.cos(np.deg2rad(degrees)) - 0.5))
        rows = np.clip(np.arange(height) + down, 0, height - 1)
        out += weight * image[rows][:, np.clip(np.arange(width) + right, 0, width - 1)]
    return out


@SEVERITIES
def test_motion_blur(severity: int) -> None:
    draws = draws_for(0, "motion_blur_approximate", severity, range(len(X)))
    angles = 90 * draws.uniforms(()) - 45
    how = parameters("motion_blur_approximate", severity)
    expected = [smear(p, *how, angle) for p, angle in zip(X, angles, strict=True)]
    assert_allclose(ours("motion_blur", severity), expected, atol=2e-5)  # weights below a millionth are left out


@SEVERITIES
def test_brightness_and_saturation_by_colour_space(severity: int) -> None:
    more = (0.05, 0.1, 0.15, 0.2, 0.3)[severity - 1]
    scale, offset = ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2))[severity - 1]
    brighter, coloured = ours("brightness", severity), ours("saturate", severity)
    for place in np.ndindex(2, 8, 32):
        h, s, v = colorsys.rgb_to_hsv(*X[place])
        assert_allclose(brighter[place], colorsys.hsv_to_rgb(h, s, min(v + more, 1)), atol=ROUNDING)
        wanted = min(s * scale + offset, 1)
        assert_allclose(coloured[place], colorsys.hsv_to_rgb(h, wanted, v), atol=ROUNDING)


def saturation(x: np.ndarray) -> float:
    return float((1 - x.min(-1) / np.maximum(x.max(-1), 1e-9)).mean())


def test_saturate_takes_colour_away_then_adds_it() -> None:
    clean = saturation(X)
    assert saturation(ours("saturate", 2)) < clean < saturation(ours("saturate", 5))


def test_grey_images_grow_brighter_and_keep_their_missing_colour() -> None:
    x = X[..., 0]
    assert_allclose(corrupt(x, "brightness", 3), np.minimum(x + 0.15, 1), atol=ROUNDING)
    assert np.array_equal(corrupt(x, "saturate", 5), x.astype(np.float32))


def test_full_contrast_and_no_light_change_nothing() -> None:
    draws = draws_for(0, "contrast", 1, range(len(X)))
    for change, nothing in ((digital.contrast, 1.0), (digital.brightness, 0.0), (digital.saturate, (1.0, 0.0))):
        assert_allclose(change(X.astype(np.float32), nothing, draws), X, atol=ROUNDING)


@SEVERITIES
def test_contrast_moves_colours_towards_their_mean(severity: int) -> None:
    c = (0.75, 0.5, 0.4, 0.3, 0.15)[severity - 1]
    out, mean = ours("contrast", severity), X.mean((1, 2), keepdims=True)
    assert_allclose(out, mean + c * (X - mean), atol=ROUNDING)
    assert_allclose(out.mean((1, 2)), mean[:, 0, 0], atol=ROUNDING)


@pytest.mark.parametrize("side", [4, 5, 7, 8, 20, 28, 31, 32, 33, 96])
def test_pixelate_is_pillows_box_filter(side: int) -> None:
    x = GENERATOR.integers(0, 256, (2, side, side + 3, 3), dtype=np.uint8)
    for severity, c in enumerate((0.95, 0.9, 0.85, 0.75, 0.65), start=1):
        small, box = (int((side + 3) * c), int(side * c)), Image.Resampling.BOX
        expected = [np.asarray(Image.fromarray(p).resize(small, box).resize((side + 3, side), box)) for p in x]
        assert np.array_equal(corrupt(x, "pixelate", severity), expected)


def test_pixelate_has_the_sizes_of_cifar_10_c() -> None:
    ramp = np.arange(0, 256, 8, dtype=np.uint8)  # one level a column: as many remain as there are pixels
    x = np.tile(ramp, (1, 32, 1))
    assert [len(np.unique(corrupt(x, "pixelate", severity))) for severity in range(1, 6)] == [30, 28, 27, 24, 20]


@SEVERITIES
@pytest.mark.parametrize("colours", [1, 3])
def test_jpeg_is_pillows(severity: int, colours: int) -> None:
    x = BYTES if colours == 3 else BYTES[..., 0]
    for image, out in zip(x, corrupt(x, "jpeg_compression", severity), strict=True):
        file = BytesIO()
        Image.fromarray(image).save(file, "JPEG", quality=(80, 65, 58, 50, 40)[severity - 1])
        assert np.array_equal(out, np.asarray(Image.open(file)))


@SEVERITIES
def test_elastic_transform(severity: int) -> None:
    alpha, sigma, f = (32 * amount for amount in parameters("elastic_transform", severity))
    draws = draws_for(0, "elastic_transform", severity, range(len(X)))
    jitters, moves = f * (2 * draws.uniforms((3, 2)) - 1), 2 * draws.uniforms((2, 32, 32), purpose=1) - 1
    points = np.array([[26, 26], [26, 6], [6, 6]])  # (x, y)
    y, x = np.mgrid[:32, :32]
    for image, jitter, move, out in zip(X, jitters, moves, ours("elastic_transform", severity), strict=True):
        forward = np.linalg.solve(np.c_[points, np.ones(3)], points + jitter)  # rows (x, y, 1) -> (x', y')
        inverse = np.linalg.inv(np.c_[forward, [0, 0, 1]])
        column, row = np.moveaxis(np.stack([x, y, np.ones_like(x)], -1) @ inverse, 2, 0)[:2]
        down, right = (alpha * ndimage.gaussian_filter(m, sigma, mode="reflect", truncate=3) for m in move)
        for i in range(3):
            plane = ndimage.map_coordinates(image[..., i], (row, column), order=1, mode="mirror")
            plane = ndimage.map_coordinates(plane, (y + down, x + right), order=1, mode="reflect")
            steepest = max(np.abs(np.diff(image[..., i], axis=axis)).max() for axis in (0, 1))
            assert abs(out[..., i] - plane).max() < 2 * steepest * 1.1 / 64  # positions are rounded to 1/32


def naive_plasma(uniforms: list[float], side: int, decay: float) -> np.ndarray:
    out, step, wibble = np.zeros((side, side)), side, 100.0

    def put(row: int, column: int, near: list[tuple[int, int]]) -> None:
        mean = sum(out[r % side, c % side] for r, c in near) / 4
        out[row, column] = mean + wibble * wibble * (2 * uniforms.pop(0) - 1)

    while step >= 2:
        half, grid = step // 2, range(0, side, step)
        for r in grid:
            for c in grid:
                put(r + half, c + half, [(r, c), (r + step, c), (r, c + step), (r + step, c + step)])
        for down, right in ((0, half), (half, 0)):
            for r in grid:
                for c in grid:
                    y, x = r + down, c + right
                    put(y, x, [(y - half, x), (y + half, x), (y, x - half), (y, x + half)])
        step, wibble = half, wibble / decay
    out -= out.min()
    return out / out.max()


@SEVERITIES
def test_fog(severity: int) -> None:
    thickness, decay = ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75))[severity - 1]
    uniforms = draws_for(0, "fog", severity, range(len(X))).uniforms((1024,))
    for image, row, out in zip(X, uniforms, ours("fog", severity), strict=True):
        cloud = naive_plasma(row.astype(float).tolist(), 32, decay)[..., None]
        expected = (image + thickness * cloud) * image.max() / (image.max() + thickness)
        assert_allclose(out, expected, atol=ROUNDING)


@SEVERITIES
@pytest.mark.parametrize("colours", [1, 3])
def test_snow_is_a_pale_image_and_two_layers_of_flakes(severity: int, colours: int) -> None:
    m, s, z, t, radius, sigma, kept = parameters("snow_approximate", severity)
    draws = draws_for(0, "snow_approximate", severity, range(len(X)))
    x = X[..., :colours]
    out = corrupt(x, "snow", severity)
    angles = -135 + 90 * draws.uniforms((), purpose=1)
    for image, noise, angle, result in zip(x, draws.normals((32, 32)), angles, out, strict=True):
        layer = zoomed((m + s * noise)[..., None].astype(float), z)
        layer = smear(np.clip(np.where(layer < t, 0, layer), 0, 1), int(radius), sigma, angle)
        grey = image @ [0.299, 0.587, 0.114] if colours == 3 else image[..., 0]
        pale = kept * image + (1 - kept) * np.maximum(image, 1.5 * grey[..., None] + 0.5)
        assert_allclose(result, np.clip(pale + layer + np.rot90(layer, 2), 0, 1), atol=2e-5)


@SEVERITIES
def test_frost_adds_a_share_of_ice_to_a_share_of_the_image(severity: int) -> None:
    image, ice = ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))[severity - 1]
    draws = draws_for(0, "frost_approximate", severity, range(len(X)))
    alone = weather.frost(np.zeros_like(X, dtype=np.float32), (image, ice), draws)
    assert_allclose(ours("frost", severity), np.minimum(image * X + alone, 1), atol=ROUNDING)
    sheets = np.stack([weather.frost_sheet(number, 160) for number in range(5)])
    windows = np.lib.stride_tricks.sliding_window_view(sheets, (32, 32), axis=(1, 2))
    near = windows[abs(windows[..., 0, 0] - alone[0, 0, 0, 2] / ice) < 1e-5]
    assert abs(near - alone[0, ..., 2] / ice).max((1, 2)).min() < 1e-5


def test_frost_is_the_same_every_time_and_never_twice() -> None:
    again = weather.frost_sheet.__wrapped__(0, 160)
    assert np.array_equal(weather.frost_sheet(0, 160), again)
    assert again.std() > 0.1
    assert abs(weather.frost_sheet(1, 160) - again).mean() > 0.05


def test_kernels_sum_to_one() -> None:
    for how in CORRUPTIONS["defocus_blur"].severities:
        assert_allclose(blurs.defocus_map(9, 7, how).sum(1), 1, atol=1e-6)
    assert_allclose(blurs.zoom_map(9, 7, (1.0, 1.2), keep=1).sum(1), 1, atol=1e-6)
