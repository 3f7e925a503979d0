"""A DCGAN whose discriminator has Gaussian weights, with scores of the generated images.

python examples/bayesian_gan.py                                    # digits, some minutes on one core
python examples/bayesian_gan.py --weights point --out runs/point   # the same with a plain discriminator
python examples/bayesian_gan.py path/to/cifar-10-batches-bin --width 64 --foreign path/to/svhn --out runs/cifar

It writes into --out: sheets/*.png (generated from the same latents), history.jsonl, summary.json, a classifier of the
real images whose features score generated ones, and a checkpoint. Killed at any moment and run again with the same
options, it continues from the last whole epoch and ends with the same bits; --epochs may grow.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch
from PIL import Image
from torch import Tensor

import murmuration as mm
from murmuration.applications.gan import training as gan_training
from murmuration.applications.gan.metrics import frechet_distance, precision_recall
from murmuration.applications.gan.networks import discriminator, generator
from murmuration.applications.gan.training import Gan, GanConfig
from murmuration.core.weights import WEIGHTS as FAMILIES
from murmuration.data import open_inputs
from murmuration.data.dataset import Data, Split
from murmuration.data.inputs import prepare_raw
from murmuration.data.preparation import ImagePreparation
from murmuration.evaluation.ood import module_features
from murmuration.runs import directory as runs
from murmuration.system import files
from murmuration.system.errors import Failure, Misuse
from murmuration.system.option_text import parse

# A draw of weights is one function, which is what the generator should face. On 1,258 digits a beta of 0.1 leaves a
# discriminator that finds negatives of digits as real as digits. Nothing is warmed up, so that a longer run begins as a
# shorter one does.
WEIGHTS = "gaussian:estimator=draw,beta=0.01,kl_warmup=0"
STATE = "gan.json"  # where the gan stands; names the file with its tensors
SCORED = 2000  # images at most that are compared with as many real ones
JUDGED = 500  # images at most of each kind that the discriminator gives its opinion of
LESSONS = 30  # epochs at most of the classifier
SIDE, GAP = 8, 2  # of a sheet: images in a row, pixels between them


def options() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form, allow_abbrev=False)
    add = parser.add_argument
    add("data", nargs="?", default="digits", help="a built-in name, or anything else that open_data opens (digits)")
    add("--out", type=Path, default=Path("runs/gan"), help="folder of the run (runs/gan)")
    add("--weights", default=WEIGHTS, help=f"weight family of the discriminator: point, or ({WEIGHTS})")
    add("--size", type=int, default=32, help="side of the images: 32, 64 (32)")
    add("--width", type=int, default=16, help="channels of the largest maps; 64 in the paper (16)")
    add("--latent", type=int, default=100, help="dimensions of the latent (100)")
    add("--epochs", type=int, default=200, help="epochs (200)")
    add("--batch", type=int, default=32, help="batch size; 64 in the paper (32)")
    add("--lr", type=float, default=2e-4, help="learning rate of both networks (0.0002)")
    add("--seed", type=int, default=0, help="random seed (0)")
    add("--examples", type=int, help="train on so many images at most")
    add("--every", type=int, default=10, help="epochs between sheets and scores (10)")
    add("--foreign", help="images of another kind: what the discriminator says of them is printed too")
    parser.error = refuse
    return parser


def refuse(message: str) -> NoReturn:
    raise Misuse(f"{message}; see --help")


def open_images(source: str, size: int, most: int | None) -> Data:
    """Labelled images (N, C, size, size) with values from -1 to 1."""
    if most is not None and most < 2:
        raise Misuse(f"--examples {most}: need at least 2")
    data = mm.open_data(source, prepare="unit")
    if not isinstance(data.preparation, ImagePreparation) or data.task != "classification":
        raise Misuse(f"{source} holds no labelled images: choose digits, or a folder with one folder for each class")
    half = (0.5,) * data.input_shape[0]
    preparation = ImagePreparation((data.input_shape[0], size, size), 1.0, half, half)

    def prepared(split: Split, most: int | None = None) -> Split:
        return Split(prepare_raw(split.prepared[:most].numpy(), 1.0, preparation, adapt=True), split.y[:most])

    train, val, test = prepared(data.train, most), prepared(data.val), prepared(data.test)
    return replace(data, train=train, val=val, test=test, preparation=preparation, source=None)


def begin(chosen: argparse.Namespace, data: Data) -> tuple[Gan, dict[str, Any]]:
    """The GAN before training, and the settings with which alone a run can be continued."""
    config = GanConfig(chosen.latent, chosen.epochs, chosen.batch, chosen.lr, chosen.seed)
    weights, channels = parse(chosen.weights, "weights", FAMILIES), data.input_shape[0]
    gan = gan_training.init_gan(
        partial(generator, channels, chosen.size, latent=chosen.latent, width=chosen.width),
        partial(discriminator, channels, chosen.size, width=chosen.width),
        data.train.prepared,
        weights=weights,
        config=config,
    )
    settings = {"data": data.fingerprint, "examples": len(data.train), "size": chosen.size, "width": chosen.width}
    settings |= {name: value for name, value in asdict(config).items() if name != "epochs"}
    settings |= {"weights": chosen.weights.partition(":")[0]}
    settings |= {each.name: str(getattr(weights, each.name)) for each in fields(weights)}
    return gan, settings | {"epochs of warming up": int(config.epochs * getattr(weights, "kl_warmup", 0))}


@dataclass(frozen=True)
class FeatureScores:
    """Scores of generated images against features (N, D) of test images."""

    classifier: mm.Ensemble
    known: Tensor

    def scores(self, images: Tensor) -> dict[str, float]:
        """Frechet distance, precision and recall of images (M, C, H, W)."""
        found = features(self.classifier, images)
        precision, recall = precision_recall(self.known, found)
        return {"frechet": frechet_distance(self.known, found), "precision": precision, "recall": recall}


def features(classifier: mm.Ensemble, images: Tensor) -> Tensor:
    return torch.cat(list(module_features(classifier.member(0), images)))


def show_epoch(text: str, done: int, total: int, record: dict[str, Any] | None) -> None:
    """Print a line at the end of every epoch of the classifier."""
    if record is not None:
        print(f"classifier: epoch {record['epoch']}", flush=True)


def feature_scores(data: Data, path: Path, seed: int) -> FeatureScores:
    """Scores by the features of a classifier of the real images, trained now or before."""
    if path.exists():
        classifier = mm.resume(path, data=data, show=show_epoch)
    else:
        print("first trains a classifier of the real images, whose features score generated ones", flush=True)
        epochs = min(LESSONS, max(3, 60_000 // len(data.train)))
        plan = mm.Plan(members=1, epochs=epochs, lr=1e-3, batch_size=64, seed=seed, engine="loop")
        classifier = mm.fit("lenet5", data, recipe="single", plan=plan, out=path, progress=show_epoch)
    return FeatureScores(classifier, features(classifier, data.test.prepared[:SCORED]))


def write_sheet(path: Path, images: Tensor, preparation: ImagePreparation) -> None:
    """Write images (N, C, H, W) in rows, as one PNG."""
    pixels = torch.from_numpy(preparation.pixels_of(images[: SIDE * SIDE]))
    step, zoom = pixels.shape[1] + GAP, max(1, 64 // pixels.shape[1])
    sheet = torch.full((SIDE * step + GAP, SIDE * step + GAP, 3), 128, dtype=torch.uint8)
    for place, picture in enumerate(pixels):
        top, left = GAP + place // SIDE * step, GAP + place % SIDE * step
        sheet[top : top + step - GAP, left : left + step - GAP] = picture[..., :3]  # grey is repeated
    image = Image.fromarray(sheet.numpy()).resize((len(sheet) * zoom,) * 2, Image.Resampling.NEAREST)
    path.parent.mkdir(exist_ok=True)
    files.write_whole(path, lambda temporary: image.save(temporary, format="PNG"))


def save(out: Path, gan: Gan, settings: dict[str, Any], history: list[dict[str, float]]) -> None:
    """Write a checkpoint: tensors first, then the small file that names them, then old tensors are removed."""
    file = out / f"state-{len(history):05d}.safetensors"
    files.write_tensors(file, gan_training.state_tensors(gan))
    files.write_json(out / STATE, {"settings": settings, "file": file.name, "history": history})
    runs.write_history(out, history)
    for old in out.glob("state-*.safetensors"):
        if old != file:
            old.unlink()


def continue_run(out: Path, gan: Gan, settings: dict[str, Any]) -> list[dict[str, float]]:
    """The history of the run in this folder, whose state is loaded into the GAN; empty if there is none yet."""
    runs.remove_partial_files(out)
    if not (out / STATE).exists():
        runs.require_free(out)
        out.mkdir(parents=True, exist_ok=True)
        files.write_json(out / STATE, {"settings": settings, "file": None, "history": []})
        return []
    found = files.read_json(out / STATE)
    for name, value in settings.items():
        before = found["settings"].get(name)
        if before != value:
            raise Misuse(
                f"{out} was begun with {name}={before}, now {value}: choose another --out, or the same settings"
            )
    if found["file"] is not None:
        gan_training.load_state(gan, files.read_tensors(out / found["file"]))
        print(f"{out}: continues after epoch {len(found['history'])}")
    return found["history"]


def discriminator_scores(gan: Gan, kinds: dict[str, Tensor]) -> dict[str, dict[str, float]]:
    """The discriminator on several sets of images: probability of real, and disagreement of its draws."""
    found = {}
    for name, images in kinds.items():
        predictive = gan_training.discriminate(gan, images[:JUDGED])
        found[name] = {
            "probability_of_real": float(predictive.mean[:, 1].mean()),
            "logit_deviation": float(predictive.outputs[..., 1].double().std(0, correction=0).mean()),
            "mutual_information": float(predictive.mutual_information.mean()),
        }
    return found


def line(record: dict[str, float]) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in record.items())


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Train, score and print; the summary is also written to summary.json."""
    chosen = options().parse_args(arguments)
    if chosen.every < 1:
        raise Misuse(f"--every {chosen.every}: need at least 1")
    data = open_images(chosen.data, chosen.size, chosen.examples)
    real, unseen, out = data.train.prepared, data.test.prepared, chosen.out
    foreign = {}
    if chosen.foreign is not None:
        foreign["foreign"] = open_inputs(chosen.foreign, preparation=data.preparation, adapt=True)
    gan, settings = begin(chosen, data)
    history = continue_run(out, gan, settings)
    judge = feature_scores(data, out / "classifier", chosen.seed)
    draw = partial(write_sheet, preparation=data.preparation)
    shown, scored = (
        gan_training.latents(gan.config, who, count)
        for who, count in ((gan_training.SHEET, SIDE * SIDE), (gan_training.SCORED, len(judge.known)))
    )
    draw(out / "sheets" / "real.png", real)
    for epoch in range(len(history) + 1, chosen.epochs + 1):
        record = {"epoch": epoch, **gan_training.run_epoch(gan, real, epoch - 1)}
        if epoch % chosen.every == 0:
            draw(out / "sheets" / f"epoch-{epoch:04d}.png", gan_training.generate(gan, shown))
            record |= judge.scores(gan_training.generate(gan, scored))
        history.append(record)
        save(out, gan, settings, history)
        print(line(record), flush=True)

    draw(out / "sheets" / "last.png", gan_training.generate(gan, shown))
    generated = gan_training.generate(gan, scored)
    found = discriminator_scores(gan, {"real": unseen, "generated": generated, "negatives": -unseen, **foreign})
    scores_of = {"generated": judge.scores(generated), "training": judge.scores(real[: len(generated)])}
    summary = {"epochs": len(history), "scores": scores_of, "discriminator": found}
    files.write_json(out / "summary.json", summary)
    for title, rows in (("scores of", scores_of), ("the discriminator on", found)):
        for name, record in rows.items():
            print(f"{title} {name:9} {line(record)}")
    return summary


if __name__ == "__main__":
    try:
        main()
    except (Misuse, Failure) as error:
        print(f"bayesian_gan: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, Misuse) else 1)
