"""Members that repel each other, on two toys where the eye can judge: is there more doubt where no data was?

python examples/repulsion_toys.py                 80 s on one core; with --seeds 0,1,2 three times as long

The toys and their training are those of `murmur reproduce forde --parts toys`, which has another page and verdicts.
It writes repulsion-line.png (regression with two gaps) and repulsion-plane.png (five classes in the plane), a panel a
recipe, prints how much the members disagree near the data and away from it, and writes that to repulsion-toys.json,
the record of the table in docs/results/repulsion.md. Pictures are of the first seed.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

import murmuration as mm
from murmuration.studies.papers.forde.toys import MEMBERS, Toy, line, plane
from murmuration.system.files import write_json

RECIPES = ("deep-ensemble", "weight-rde", "function-rde", "feature-rde", "svgd", "forde-identity", "forde-pca")
QUICK = ("deep-ensemble", "function-rde", "feature-rde", "forde-identity")
PAPER, INK, LINE, POINT = (255, 255, 255), (40, 44, 52), (31, 78, 160), (214, 96, 36)
BANDS = ((214, 227, 247), (166, 193, 235))  # two standard deviations and one
CLASSES = ((214, 96, 36), (46, 139, 87), (190, 60, 140), (120, 90, 40), (30, 110, 190))
HEAT = ((255, 255, 255), (143, 177, 222), (28, 45, 105))  # no doubt to all the doubt there can be
FRAME = (190, 196, 206)
SHARP = 2  # drawn so many times larger, then shrunk: smooth edges
SIDE, HEAD, GUTTER, COLUMNS = 250 * SHARP, 26 * SHARP, 10 * SHARP, 4  # of panels


def line_panel(toy: Toy, predictive: mm.Predictive) -> Image.Image:
    """The mean, one and two epistemic deviations around it, and the training points."""
    train = mm.open_data(toy.name).train
    mean, std = predictive.mean[:, 0].numpy(), predictive.epistemic_var[:, 0].sqrt().numpy()
    image, pen = blank(SIDE, SIDE)

    def at(x: np.ndarray, y: np.ndarray) -> list[tuple[float, float]]:
        return list(zip(((x + 10) / 20 * SIDE).tolist(), ((2.5 - y) / 4.5 * SIDE).tolist(), strict=True))

    for reach, fill in zip((2, 1), BANDS, strict=True):
        pen.polygon(at(toy.grid, mean + reach * std) + at(toy.grid, mean - reach * std)[::-1], fill=fill)
    for x, y in at(2 * train.prepared[:, 0].numpy(), train.y[:, 0].numpy()):
        dot(pen, x, y, POINT)
    pen.line(at(toy.grid, mean), fill=LINE, width=2 * SHARP)
    return image


def plane_panel(toy: Toy, predictive: mm.Predictive) -> Image.Image:
    """The entropy as colour, and the training points in the colours of their classes."""
    train = mm.open_data(toy.name).train
    side = round(len(toy.grid) ** 0.5)
    image = heat(predictive.entropy.numpy().reshape(side, side) / np.log(5))
    image = image.resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    pen = ImageDraw.Draw(image)
    for (x, y), label in zip(train.prepared.tolist(), train.y.tolist(), strict=True):
        dot(pen, (x + 12) / 24 * SIDE, (12 - y) / 24 * SIDE, CLASSES[label])
    return image


def line_legend() -> Image.Image:
    image, pen = blank(SIDE, SIDE)
    words = ("mean of 16 members", "one epistemic deviation", "two", "training points")
    for place, (word, fill) in enumerate(zip(words, (LINE, *BANDS[::-1], POINT), strict=True)):
        top = (40 + 30 * place) * SHARP
        pen.rectangle((12 * SHARP, top, 36 * SHARP, top + 14 * SHARP), fill=fill)
        pen.text((46 * SHARP, top), word, INK, font(13))
    return image


def plane_legend() -> Image.Image:
    image, pen = blank(SIDE, SIDE)
    image.paste(heat(np.linspace(0, 1, SIDE - 24 * SHARP)[None].repeat(14 * SHARP, 0)), (12 * SHARP, 64 * SHARP))
    pen.text((12 * SHARP, 40 * SHARP), "entropy of the mean prediction", INK, font(13))
    pen.text((12 * SHARP, 84 * SHARP), "0", INK, font(13))
    pen.text((SIDE - 12 * SHARP, 84 * SHARP), "ln 5", INK, font(13), anchor="ra")
    return image


def sheet(panels: dict[str, Image.Image]) -> Image.Image:
    """All panels in rows, each under its name."""
    rows = -(-len(panels) // COLUMNS)
    step = SIDE + GUTTER, SIDE + HEAD + GUTTER
    image, pen = blank(COLUMNS * step[0] + GUTTER, rows * step[1] + GUTTER)
    for place, (name, panel) in enumerate(panels.items()):
        left, top = GUTTER + place % COLUMNS * step[0], GUTTER + place // COLUMNS * step[1]
        pen.text((left, top), name, INK, font(15))
        image.paste(panel, (left, top + HEAD))
        if name:
            pen.rectangle((left, top + HEAD, left + SIDE, top + HEAD + SIDE), outline=FRAME, width=SHARP)
    return image.resize((image.width // SHARP, image.height // SHARP), Image.Resampling.LANCZOS).quantize(256)


def blank(width: int, height: int) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    image = Image.new("RGB", (width, height), PAPER)
    return image, ImageDraw.Draw(image)


def heat(shares: np.ndarray) -> Image.Image:
    """A picture (H, W) of shares from 0 to 1."""
    stops = np.linspace(0, 1, len(HEAT))
    channels = [np.interp(shares, stops, [colour[c] for colour in HEAT]) for c in range(3)]
    return Image.fromarray(np.stack(channels, axis=-1).round().astype(np.uint8))


def dot(pen: ImageDraw.ImageDraw, x: float, y: float, fill: tuple[int, int, int]) -> None:
    radius = 1.8 * SHARP
    pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=fill)


def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size * SHARP)


def study(
    toy: Toy, recipes: tuple[str, ...], members: int, epochs: int, seed: int = 0
) -> tuple[Image.Image, dict[str, dict[str, float]]]:
    """The picture of a toy, and every recipe's doubt by place."""
    panel = line_panel if toy.noise else plane_panel
    panels: dict[str, Image.Image] = {}
    found: dict[str, dict[str, float]] = {}
    print(f"{toy.name}, seed {seed}: {'epistemic deviation' if toy.noise else 'entropy'} {', '.join(toy.places)}")
    for name in recipes:
        predictive = toy.fit(name, members, epochs, seed)
        found[name] = toy.by_place(toy.uncertainty(predictive))
        panels[name] = panel(toy, predictive)
        print(f"  {name:16}", "  ".join(f"{value:.3f}" for value in found[name].values()), flush=True)
    return sheet({**panels, "": line_legend() if toy.noise else plane_legend()}), found


def main(quick: bool = False, seeds: tuple[int, ...] = (0,)) -> dict[str, float]:
    """Train, draw (into this folder, unless quick) and tell how much doubt there is where: "toy recipe place" -> it."""
    runs = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) if quick else Path()
        for toy, file in ((line(), "repulsion-line.png"), (plane(), "repulsion-plane.png")):
            members, epochs = (4, toy.epochs // 10) if quick else (MEMBERS, toy.epochs)
            for seed in seeds:
                picture, numbers = study(toy, QUICK if quick else RECIPES, members, epochs, seed)
                if seed == seeds[0]:
                    picture.save(folder / file, optimize=True)
                runs += [{"toy": toy.name, "recipe": name, "seed": seed, **doubt} for name, doubt in numbers.items()]
        write_json(folder / "repulsion-toys.json", {"members": members, "runs": runs})
    shown = [run for run in runs if run["seed"] == seeds[0]]
    return {
        f"{run['toy']} {run['recipe']} {place}": run[place]
        for run in shown
        for place in run
        if place not in ("toy", "recipe", "seed")
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0")
    main(seeds=tuple(int(seed) for seed in parser.parse_args().seeds.split(",")))
