"""A contact sheet of corrupted images."""

from collections.abc import Sequence

import numpy as np

from murmuration.data.shift.images import CORRUPTIONS, corrupt, corruption_named
from murmuration.system.errors import Misuse

VISIBLE = 64  # pixels a side to which small images are enlarged, by whole multiples
GAP, LABEL, LINE = 4, 152, 16  # pixels between images, for a name beside them, for a line of text
PAPER, INK = 255, 40


def sheet(
    images: np.ndarray,
    *,
    names: Sequence[str] | None = None,
    severities: Sequence[int] = (1, 2, 3, 4, 5),
    blocks: int = 1,
    seed: int = 0,
) -> np.ndarray:
    """Draw a contact sheet (H, W, 3) uint8 with one row per corruption: the clean image, then each severity.

    Row i shows image i modulo N of images (N, H, W), (N, H, W, 1) or (N, H, W, 3). The rows are laid out in `blocks`
    side by side. Small images are enlarged by whole multiples. By default, all corruptions that change such images.
    """
    grey = images.ndim == 3 or images.shape[-1] == 1
    usual = [name for name, corruption in CORRUPTIONS.items() if not (grey and corruption.needs_colour)]
    selected = [corruption_named(name).name for name in (usual if names is None else names)]
    if not selected or not len(images) or blocks < 1:
        raise Misuse(
            f"a sheet of {len(selected)} corruptions of {len(images)} images in {blocks} blocks:"
            " expected at least one of each"
        )
    rows = []
    for number, name in enumerate(selected):
        index = number % len(images)
        clean = images[index : index + 1]
        corrupted = [corrupt(clean, name, severity, seed=seed, first=index) for severity in severities]
        rows.append([enlarge(image[0]) for image in (clean, *corrupted)])
    heads = ["clean", *map(str, severities)]
    depth = -(-len(rows) // blocks)
    parts = [slice(start, start + depth) for start in range(0, len(rows), depth)]
    sides = [block(selected[part], heads, rows[part], depth) for part in parts]
    return np.concatenate(sides, axis=1)


def enlarge(image: np.ndarray) -> np.ndarray:
    """Enlarge an image (H, W) or (H, W, C) of bytes or floats to (k H, k W, 3) uint8 by repeating pixels."""
    levels = image if image.dtype == np.uint8 else np.rint(255 * image.astype(np.float64)).astype(np.uint8)
    colours = np.broadcast_to(levels.reshape(*levels.shape[:2], -1), (*levels.shape[:2], 3))
    times = max(1, VISIBLE // max(levels.shape[:2]))
    return colours.repeat(times, axis=0).repeat(times, axis=1)


def block(names: Sequence[str], heads: Sequence[str], rows: list[list[np.ndarray]], depth: int) -> np.ndarray:
    """Draw one block (h, w, 3) with space for `depth` rows: names to the left of the images, column heads above."""
    from PIL import Image, ImageDraw

    height, width = rows[0][0].shape[:2]
    down, across = max(height, LINE) + GAP, width + GAP
    page = Image.new("RGB", (LABEL + len(heads) * across + GAP, LINE + depth * down + GAP), (PAPER,) * 3)
    pen = ImageDraw.Draw(page)
    for column, head in enumerate(heads):
        pen.text((LABEL + column * across, 2), head, fill=(INK,) * 3)
    for row, (name, images) in enumerate(zip(names, rows, strict=True)):
        top = LINE + row * down
        pen.text((GAP, top + height // 2 - LINE // 2), name, fill=(INK,) * 3)
        for column, image in enumerate(images):
            page.paste(Image.fromarray(image), (LABEL + column * across, top))
    return np.asarray(page)
