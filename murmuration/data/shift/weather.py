"""Weather: fog, snow, frost and spatter laid over an image.

Spatter follows CIFAR-10-C step by step for many images (N, H, W) at once: edges by Canny 1986, distances by Borgefors'
chamfer 1986, histogram equalisation, embossing.
"""

from functools import lru_cache
from typing import Any

import numpy as np

from murmuration.data.shift.blurs import apply_map, smear, smooth, zoom_map
from murmuration.data.shift.randomness import Draws

GREY = (np.float32(0.299), np.float32(0.587), np.float32(0.114))  # luma weights of red, green and blue (ITU-R BT.601)
ICE = np.array([0.86, 0.94, 1.0], dtype=np.float32)  # the colour of frost
FROSTS, FROST_SIDE = 5, 160  # sheets of frost and their side in pixels
WATER = np.array([175, 238, 238], dtype=np.float32) / 255  # pale turquoise
MUD = np.array([63, 42, 20], dtype=np.float32) / 255  # brown
FAR = 20.0  # pixels; all distances beyond count the same
EMBOSS = (-2, -1, 0, -1, 1, 1, 0, 1, 2)  # weights of a pixel and its eight neighbours, row by row


def fog(x: np.ndarray, parameters: tuple[float, float], draws: Draws) -> np.ndarray:
    """Return (x + c0 P) M / (M + c0), (N, H, W, C), with P a plasma of decay c1 and M the maximum of the image."""
    thickness, decay = parameters
    height, width = x.shape[1:3]
    side = 1 << (max(height, width) - 1).bit_length()
    brightest = x.max(axis=(1, 2, 3), keepdims=True)
    x += np.float32(thickness) * plasma(draws.uniforms((side * side,)), decay)[:, :height, :width, None]
    x *= brightest / (brightest + np.float32(thickness))
    return x


def plasma(uniforms: np.ndarray, decay: float) -> np.ndarray:
    """Draw cloudy maps (N, S, S) in 0..1 by the diamond-square method on a torus, from uniforms (N, S²), S = 2^n.

    Every new point is the mean of its four neighbours plus w U(-w, w); w starts at 100 and is divided by `decay`
    whenever the grid is halved, so that the roughness falls with its square.
    """
    count, side = len(uniforms), int(np.sqrt(uniforms.shape[1]))
    out = np.zeros((count, side, side), dtype=np.float32)
    wibble, step, used = 100.0, side, 0
    while step >= 2:
        half, points = step // 2, 3 * (side // step) ** 2
        rough = uniforms[:, used : used + points].reshape(count, 3, side // step, side // step)
        rough = np.float32(wibble**2) * (2 * rough - 1)
        used += points
        corners = out[:, ::step, ::step]
        tops = corners + np.roll(corners, -1, axis=1)
        centres = (tops + np.roll(tops, -1, axis=2)) / 4 + rough[:, 0]
        out[:, half::step, half::step] = centres
        across = centres + np.roll(centres, 1, axis=1) + corners + np.roll(corners, -1, axis=2)
        out[:, ::step, half::step] = across / 4 + rough[:, 1]
        down = centres + np.roll(centres, 1, axis=2) + corners + np.roll(corners, -1, axis=1)
        out[:, half::step, ::step] = down / 4 + rough[:, 2]
        step, wibble = half, wibble / decay
    out -= out.min(axis=(1, 2), keepdims=True)
    return out / out.max(axis=(1, 2), keepdims=True)


def snow(x: np.ndarray, parameters: tuple[float, ...], draws: Draws) -> np.ndarray:
    """Pale x (N, H, W, C), and add falling flakes and the same flakes turned by 180 degrees.

    Flakes are N(m, s²) enlarged by z, zero below t, smeared along a steep angle; x becomes
    κ x + (1 - κ) max(x, 1.5 grey + 0.5).
    """
    mean, deviation, enlarged, threshold, radius, length, weight_of_x = parameters
    height, width, colours = x.shape[1:]
    layer = (mean + np.float32(deviation) * draws.normals((height, width)))[..., None].astype(np.float32)
    if enlarged > 1:
        layer = apply_map(layer, zoom_map(height, width, (enlarged,)))
    layer[layer < threshold] = 0
    layer = smear(np.minimum(layer, 1), (int(radius), length), -135 + 90 * draws.uniforms((), purpose=1))
    grey = x if colours == 1 else sum(weight * x[..., i : i + 1] for i, weight in enumerate(GREY))
    pale = np.maximum(x, grey * np.float32(1.5) + np.float32(0.5))
    return np.float32(weight_of_x) * x + np.float32(1 - weight_of_x) * pale + layer + layer[:, ::-1, ::-1]


def frost(x: np.ndarray, parameters: tuple[float, float], draws: Draws) -> np.ndarray:
    """Return c0 x + c1 F, (N, H, W, C), with F a random window of one of five sheets of frost."""
    height, width, colours = x.shape[1:]
    sheets = np.stack([frost_sheet(number, max(FROST_SIDE, 2 * max(height, width))) for number in range(FROSTS)])
    free = np.array([FROSTS, sheets.shape[1] - height, sheets.shape[2] - width])
    sheet, row, column = (draws.uniforms((3,)) * free).astype(np.intp).T
    windows = np.lib.stride_tricks.sliding_window_view(sheets, (height, width), axis=(1, 2))
    ice = windows[sheet, row, column][..., None]  # (N, H, W, 1)
    x *= np.float32(parameters[0])
    x += np.float32(parameters[1]) * ice * (ICE if colours == 3 else ICE @ np.array(GREY))
    return x


@lru_cache(maxsize=16)
def frost_sheet(number: int, side: int) -> np.ndarray:
    """Draw a sheet of frost (side, side) in 0..1: feathers of ice over a cloudy film, determined by its number.

    CIFAR-10-C cuts windows out of photographs; these are drawn instead. Each feather is a stem with side branches at
    60 degrees that shorten towards its tip, drawn at three times the size and shrunk.
    """
    from PIL import Image, ImageDraw

    generator = np.random.Generator(np.random.Philox(key=number))
    canvas = Image.new("L", (3 * side, 3 * side))
    pen = ImageDraw.Draw(canvas)
    for _ in range(side * side // 110):
        draw_feather(pen, generator, 3 * side)
    feathers = np.asarray(canvas.resize((side, side), Image.Resampling.BOX), dtype=np.float32) / 255
    size = 1 << (side - 1).bit_length()
    film = plasma(generator.random((1, size * size), dtype=np.float32), 1.6)[0, :side, :side]
    return np.clip(0.25 + 0.4 * film + 0.75 * feathers * (0.3 + 0.7 * film), 0, 1)


def draw_feather(pen: Any, generator: np.random.Generator, side: int) -> None:
    """Draw one feather of ice at a random position of a canvas of this side."""
    x, y, angle, length, light = generator.random(5) * (side, side, 2 * np.pi, 1, 1)
    length, shade = 24 + 60 * length**2, int(110 + 145 * light)

    def line(start_x: float, start_y: float, direction: float, reach: float, width: int) -> None:
        end = (start_x + reach * np.cos(direction), start_y + reach * np.sin(direction))
        pen.line([(start_x, start_y), end], fill=shade, width=width)

    line(x, y, angle, length, 3)
    for fraction in np.arange(0.1, 0.95, 0.14):
        root_x, root_y = x + fraction * length * np.cos(angle), y + fraction * length * np.sin(angle)
        for side_angle in (angle + np.pi / 3, angle - np.pi / 3):
            line(root_x, root_y, side_angle, 0.4 * length * (1 - fraction), 2)


def spatter(x: np.ndarray, parameters: tuple[float, ...], draws: Draws) -> np.ndarray:
    """Cover x (N, H, W, C) with drops of liquid: N(m, s²), smoothed by σ, zero below t; w is the opacity of water.

    Water is added to the image, mud (the last parameter is 1) covers it. On images of one channel, drops have the mean
    of their colour.
    """
    mean, deviation, sigma, threshold, weight, is_mud = parameters
    layer = smooth(np.float32(mean) + np.float32(deviation) * draws.normals(x.shape[1:3]), sigma)
    layer[layer < threshold] = 0
    colour = MUD if is_mud else WATER
    colour = colour if x.shape[3] == 3 else colour.mean(keepdims=True)
    if is_mud:
        mask = smooth((layer > threshold).astype(np.float32), weight)[..., None]
        mask[mask < 0.8] = 0
        return x * (1 - mask) + colour * mask
    x += (np.float32(weight) * drops(np.floor(layer * 255) % 256))[..., None] * colour
    return x


def drops(layer: np.ndarray) -> np.ndarray:
    """Return the light (N, H, W) that drops of water add, at most 1 in every image, for a layer of liquid in 0..255."""
    distance = np.minimum(chamfer(edges(layer)), FAR)
    height = equalise(np.floor(box_mean(distance) + np.float32(1e-4)).astype(np.intp))
    relief = sum(weight * near for weight, near in zip(EMBOSS, neighbours(height), strict=True))
    light = layer * np.rint(box_mean(np.clip(relief, 0, 255)))
    brightest = light.max(axis=(1, 2), keepdims=True)
    return light / np.where(brightest > 0, brightest, 1)


def neighbours(x: np.ndarray, border: str = "reflect") -> list[np.ndarray]:
    """Return the three by three neighbours of all pixels, row by row, each (N, H, W); the fifth is x itself."""
    fill = np.pad(x, ((0, 0), (1, 1), (1, 1)), mode=border)  # type: ignore[call-overload]
    height, width = x.shape[1:]
    return [fill[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]


def box_mean(x: np.ndarray) -> np.ndarray:
    """Return the mean (N, H, W) of each pixel and its eight neighbours."""
    return sum(neighbours(x)) / np.float32(9)  # type: ignore[return-value]


def edges(layer: np.ndarray, low: float = 50, high: float = 150) -> np.ndarray:
    """Find the Canny edges (N, H, W) of images in 0..255: gradient ridges above `low` connected to one above `high`."""
    a, b, c, d, _, f, g, h, i = neighbours(layer, "edge")
    right = (c + 2 * f + i) - (a + 2 * d + g)
    down = (g + 2 * h + i) - (a + 2 * b + c)
    size = np.abs(right) + np.abs(down)
    ridge = (size > low) & is_ridge(size, right, down)
    strong = ridge & (size > high)
    while True:
        grown = ridge & np.logical_or.reduce(neighbours(strong, "constant"))
        if (grown == strong).all():
            return strong
        strong = grown


def is_ridge(size: np.ndarray, right: np.ndarray, down: np.ndarray) -> np.ndarray:
    """Return whether a gradient (N, H, W) is the largest along its own direction, rounded to 45 degrees."""
    a, b, c, d, _, f, g, h, i = neighbours(size, "constant")
    flat = np.abs(down) < np.abs(right) * np.tan(np.pi / 8)
    steep = np.abs(down) > np.abs(right) * np.tan(3 * np.pi / 8)
    across = np.where(right * down < 0, (size > c) & (size > g), (size > a) & (size > i))
    return np.where(flat, (size > d) & (size >= f), np.where(steep, (size > b) & (size >= h), across))


def chamfer(marked: np.ndarray) -> np.ndarray:
    """Return the chamfer distance (N, H, W) to the nearest marked pixel: steps of 1, 1.4 and 2.1969 (a knight's move).

    Two passes, down and up; inside a row a running minimum of (distance - column) covers the steps of 1.
    """
    far, (count, height, width) = np.float32(4 * FAR), marked.shape
    ramp = np.arange(width, dtype=np.float32)
    out = np.full((height + 2, count, width + 4), far, dtype=np.float32)  # two rows above, two columns on either side
    rows = np.where(marked, np.float32(0), far).transpose(1, 0, 2)
    for _ in range(2):
        out[:2] = far
        for row in range(height):
            best = rows[row]
            for step, up, shift in STEPS:
                best = np.minimum(best, out[row + 2 - up, :, 2 + shift : 2 + shift + width] + step)
            out[row + 2, :, 2:-2] = np.minimum.accumulate(best - ramp, axis=1) + ramp
        rows = out[2:, :, 2:-2][::-1, :, ::-1].copy()
    return rows.transpose(1, 0, 2)


COSTS = {1: ((1, 0),), 1.4: ((1, -1), (1, 1)), 2.1969: ((1, -2), (1, 2), (2, -1), (2, 1))}
STEPS = [(np.float32(cost), up, aside) for cost, moves in COSTS.items() for up, aside in moves]  # rows and columns


def equalise(levels: np.ndarray) -> np.ndarray:
    """Equalise the histogram of integers (N, H, W) in 0..FAR to 0..255; an image of a single level keeps it."""
    count, pixels, bins = len(levels), levels[0].size, int(FAR) + 1
    flat = (levels + bins * np.arange(count)[:, None, None]).ravel()
    histogram = np.bincount(flat, minlength=count * bins).reshape(count, bins)
    below = histogram.cumsum(axis=1)
    lowest = np.take_along_axis(histogram, (histogram > 0).argmax(axis=1)[:, None], axis=1)
    rank = np.rint((below - lowest) * (255 / np.maximum(pixels - lowest, 1)))
    rank = np.where(lowest == pixels, np.arange(bins), np.maximum(rank, 0))
    return rank.astype(np.float32).ravel()[flat].reshape(levels.shape)
