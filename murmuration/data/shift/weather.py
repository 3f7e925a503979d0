"""Weather: fog, snow and frost laid over a picture."""

from functools import lru_cache
from typing import Any

import numpy as np

from murmuration.data.shift.blurs import mapped, smeared, zoom_map
from murmuration.data.shift.randomness import Draws

GREY = (np.float32(0.299), np.float32(0.587), np.float32(0.114))  # how bright red, green and blue look (ITU-R BT.601)
ICE = np.array([0.86, 0.94, 1.0], dtype=np.float32)  # the colour of frost
FROSTS, FROST_SIDE = 5, 160  # sheets of frost and their side in pixels


def fog(x: np.ndarray, how: tuple[float, float], draws: Draws) -> np.ndarray:
    """(x + c0 P) M / (M + c0), (N, H, W, C), with P a plasma of decay c1 and M the largest number of the picture."""
    thickness, decay = how
    height, width = x.shape[1:3]
    side = 1 << (max(height, width) - 1).bit_length()
    brightest = x.max(axis=(1, 2, 3), keepdims=True)
    x += np.float32(thickness) * plasma(draws.uniforms((side * side,)), decay)[:, :height, :width, None]
    x *= brightest / (brightest + np.float32(thickness))
    return x


def plasma(uniforms: np.ndarray, decay: float) -> np.ndarray:
    """Cloudy maps (N, S, S) from 0 to 1 by the diamond-square method on a torus, out of uniforms (N, S²), S = 2^n.

    Every new point is the mean of its four neighbours plus w U(-w, w); w starts at 100 and is divided by `decay`
    whenever the grid is halved, so that the roughness falls with its square.
    """
    count, side = len(uniforms), int(np.sqrt(uniforms.shape[1]))
    out = np.zeros((count, side, side), dtype=np.float32)
    wibble, step, used = 100.0, side, 0
    while step >= 2:
        half = step // 2
        cells = (side // step) ** 2
        rough = uniforms[:, used : used + 3 * cells].reshape(count, 3, side // step, side // step)
        rough = np.float32(wibble**2) * (2 * rough - 1)
        used += 3 * cells
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


def snow(x: np.ndarray, how: tuple[float, ...], draws: Draws) -> np.ndarray:
    """x (N, H, W, C) paled, plus falling flakes and the same flakes turned by 180 degrees.

    Flakes are N(m, s²) enlarged by z, zero below t, smeared along a steep angle; x becomes
    κ x + (1 - κ) max(x, 1.5 grey + 0.5).
    """
    mean, deviation, enlarged, threshold, radius, length, kept = how
    height, width, colours = x.shape[1:]
    layer = (mean + np.float32(deviation) * draws.normals((height, width)))[..., None].astype(np.float32)
    if enlarged > 1:
        layer = mapped(layer, zoom_map(height, width, (enlarged,)))
    layer[layer < threshold] = 0
    layer = smeared(np.minimum(layer, 1), (int(radius), length), -135 + 90 * draws.uniforms((), purpose=1))
    grey = x if colours == 1 else sum(share * x[..., i : i + 1] for i, share in enumerate(GREY))
    pale = np.maximum(x, grey * np.float32(1.5) + np.float32(0.5))
    return np.float32(kept) * x + np.float32(1 - kept) * pale + layer + layer[:, ::-1, ::-1]


def frost(x: np.ndarray, how: tuple[float, float], draws: Draws) -> np.ndarray:
    """c0 x + c1 F, (N, H, W, C), with F a random window of one of five sheets of frost."""
    height, width, colours = x.shape[1:]
    sheets = np.stack([frost_sheet(number, max(FROST_SIDE, 2 * max(height, width))) for number in range(FROSTS)])
    free = np.array([FROSTS, sheets.shape[1] - height, sheets.shape[2] - width])
    which, top, left = (draws.uniforms((3,)) * free).astype(np.intp).T
    windows = np.lib.stride_tricks.sliding_window_view(sheets, (height, width), axis=(1, 2))
    ice = windows[which, top, left][..., None]  # (N, H, W, 1)
    x *= np.float32(how[0])
    x += np.float32(how[1]) * ice * (ICE if colours == 3 else ICE @ np.array(GREY))
    return x


@lru_cache(maxsize=16)
def frost_sheet(number: int, side: int) -> np.ndarray:
    """A made-up sheet of frost (side, side) in 0..1: feathers of ice over a cloudy film, always the same for a number.

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
    """One feather of ice somewhere on a canvas of the given side."""
    x, y, angle, length, light = generator.random(5) * (side, side, 2 * np.pi, 1, 1)
    length, shade = 24 + 60 * length**2, int(110 + 145 * light)

    def line(start_x: float, start_y: float, direction: float, reach: float, width: int) -> None:
        end = (start_x + reach * np.cos(direction), start_y + reach * np.sin(direction))
        pen.line([(start_x, start_y), end], fill=shade, width=width)

    line(x, y, angle, length, 3)
    for along in np.arange(0.1, 0.95, 0.14):
        root_x, root_y = x + along * length * np.cos(angle), y + along * length * np.sin(angle)
        for side_angle in (angle + np.pi / 3, angle - np.pi / 3):
            line(root_x, root_y, side_angle, 0.4 * length * (1 - along), 2)
