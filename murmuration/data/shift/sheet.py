"""A contact sheet: what every corruption does to a picture, to be looked at."""

from collections.abc import Sequence

import numpy as np

from murmuration.data.shift.pictures import CORRUPTIONS, corrupt, corruption_named
from murmuration.errors import Misuse

VISIBLE = 64  # pixels a picture is enlarged to at least, if whole multiples allow
GAP, LABEL, LINE = 4, 152, 16  # pixels between pictures, for a name beside them, for a line of text
PAPER, INK = 255, 40


def sheet(
    images: np.ndarray,
    *,
    names: Sequence[str] | None = None,
    severities: Sequence[int] = (1, 2, 3, 4, 5),
    blocks: int = 1,
    seed: int = 0,
) -> np.ndarray:
    """A picture (H, W, 3) uint8: a row a corruption, a column for the clean picture and for each severity.

    The rows take turns with the pictures (N, H, W), (N, H, W, 1) or (N, H, W, 3) given. `blocks` rows stand side by
    side, for a flatter sheet. Small pictures are enlarged by whole multiples.
    """
    chosen = [corruption_named(name).name for name in (CORRUPTIONS if names is None else names)]
    if not chosen or not len(images) or blocks < 1:
        raise Misuse(
            f"a sheet of {len(chosen)} corruptions of {len(images)} pictures in {blocks} blocks:"
            " expected one of each at least"
        )
    rows = []
    for number, name in enumerate(chosen):
        place = number % len(images)
        clean = images[place : place + 1]
        spoilt = [corrupt(clean, name, severity, seed=seed, first=place) for severity in severities]
        rows.append([enlarged(picture[0]) for picture in (clean, *spoilt)])
    heads = ["clean", *map(str, severities)]
    depth = -(-len(rows) // blocks)
    parts = [slice(start, start + depth) for start in range(0, len(rows), depth)]
    sides = [block(chosen[part], heads, rows[part], depth) for part in parts]
    return np.concatenate(sides, axis=1)


def enlarged(picture: np.ndarray) -> np.ndarray:
    """A picture (H, W) or (H, W, C) of bytes or floats as (k H, k W, 3) uint8, every pixel a square of side k."""
    levels = picture if picture.dtype == np.uint8 else np.rint(255 * picture.astype(np.float64)).astype(np.uint8)
    colours = np.broadcast_to(levels.reshape(*levels.shape[:2], -1), (*levels.shape[:2], 3))
    times = max(1, VISIBLE // max(levels.shape[:2]))
    return colours.repeat(times, axis=0).repeat(times, axis=1)


def block(names: Sequence[str], heads: Sequence[str], rows: list[list[np.ndarray]], depth: int) -> np.ndarray:
    """Rows of pictures (H, W, 3) with their names to the left and the heads of the columns above, room for `depth`."""
    from PIL import Image, ImageDraw

    height, width = rows[0][0].shape[:2]
    down, across = max(height, LINE) + GAP, width + GAP
    page = Image.new("RGB", (LABEL + len(heads) * across + GAP, LINE + depth * down + GAP), (PAPER,) * 3)
    pen = ImageDraw.Draw(page)
    for column, head in enumerate(heads):
        pen.text((LABEL + column * across, 2), head, fill=(INK,) * 3)
    for row, (name, pictures) in enumerate(zip(names, rows, strict=True)):
        top = LINE + row * down
        pen.text((GAP, top + height // 2 - LINE // 2), name, fill=(INK,) * 3)
        for column, picture in enumerate(pictures):
            page.paste(Image.fromarray(picture), (LABEL + column * across, top))
    return np.asarray(page)
