"""Features of a pretrained network in the place of inputs: computed once, kept by the SHA-256 of each input.

A killed computation continues where it was: features are written in pieces of 128 inputs, each file whole or not at
all. An input whose features are known is not computed again, in whatever order or split it comes.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from murmuration.data import Data, Preparation, open_data
from murmuration.data.formats import load_source
from murmuration.data.input_kinds import network_inputs
from murmuration.data.preparation import FEATURES_AT_ONCE, FeaturePreparation, preparation_from_json
from murmuration.data.raw import PARTS, LoadOptions, RawData, hash_array, hash_kind, hash_values
from murmuration.models.nets.backbone import Backbone, build_backbone, features_of, trained_backbone, usual_size
from murmuration.system.errors import Misuse
from murmuration.system.files import read_tensors, require_digest, write_tensors, write_whole
from murmuration.system.progress import counting_bar

KEY = 16  # bytes of a SHA-256 by which features are found
TIMED = 8  # inputs whose features are timed before the others
BACKBONE, STORED = "backbone.safetensors", "features.safetensors"  # in a run directory
PIECES = ".features"  # after the name of a run directory or file: the folder of pieces until it is written
Count = Callable[[str, int, int], None]  # of a progress bar: text, done, total
Say = Callable[[str], None]


def say_nothing(text: str) -> None:
    """The default of `say`: no output."""


def count_nothing(text: str, done: int, total: int) -> None:
    """The default of `count`: no output."""


@dataclass(eq=False)
class Features:
    """Prepared inputs (N, ...) -> features (N, D): those that are known, and the others by the backbone."""

    backbone: Backbone
    record: dict[str, Any]  # of the backbone, in run.json
    folder: Path | None = None  # of the pieces
    known: dict[bytes, Tensor] = field(default_factory=dict)  # key of an input -> (D,)
    pieces: int = 0

    def __call__(self, x: Tensor) -> Tensor:
        """Features of prepared inputs; new ones are not kept."""
        keys = keys_of(x) if self.known else []
        missing = [place for place, key in enumerate(keys) if key not in self.known] if self.known else range(len(x))
        if len(missing) == len(x):
            return features_of(self.backbone, x)
        made = dict(zip(missing, features_of(self.backbone, x[list(missing)]), strict=True)) if missing else {}
        return torch.stack([made[place] if place in made else self.known[key] for place, key in enumerate(keys)])

    def keep(self, x: Tensor) -> Tensor:
        """Features of prepared inputs, kept in memory and as a piece on the disk, if there is a folder."""
        keys = keys_of(x)
        new = {key: place for place, key in reversed(list(enumerate(keys))) if key not in self.known}
        if new:
            places = sorted(new.values())
            made = features_of(self.backbone, x[places])
            self.known |= {keys[place]: row for place, row in zip(places, made, strict=True)}
            if self.folder is not None:
                self.pieces += 1
                write_stored(self.folder / f"{self._name}-{self.pieces:06d}.safetensors", self.known, list(new))
        return torch.stack([self.known[key] for key in keys])

    def read_pieces(self) -> None:
        """The features of an earlier, killed computation by the same network."""
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        for stale in self.folder.glob(".*.partial"):
            stale.unlink(missing_ok=True)
        for file in sorted(self.folder.glob(f"{self._name}-*.safetensors")):
            self.known |= read_stored(file)
            self.pieces = int(file.stem.rpartition("-")[2])

    def remove_pieces(self) -> None:
        """Remove the pieces, when what they were for is written."""
        if self.folder is not None:
            for file in self.folder.glob("*.safetensors"):
                file.unlink(missing_ok=True)
            if self.folder.is_dir() and not any(self.folder.iterdir()):
                self.folder.rmdir()

    def save(self, run: Path) -> None:
        """Write the backbone and the known features into a run directory."""
        write_tensors(run / BACKBONE, self.backbone.state_dict())
        if self.known:
            write_stored(run / STORED, self.known, list(self.known))

    @property
    def _name(self) -> str:
        return str(self.record["sha256"])[:16]


def keys_of(x: Tensor) -> list[bytes]:
    """A key for every input (N, ...), made of its values."""
    rows = x.detach().contiguous().numpy()
    return [hashlib.sha256(row.tobytes()).digest()[:KEY] for row in rows]


def write_stored(file: Path, known: dict[bytes, Tensor], keys: list[bytes]) -> None:
    """Write the features of these keys as one file."""
    names = torch.from_numpy(np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(-1, KEY).copy())
    write_tensors(file, {"keys": names, "features": torch.stack([known[key] for key in keys])})


def read_stored(file: Path, digest: str | None = None) -> dict[bytes, Tensor]:
    """The features of a file by their keys."""
    found = read_tensors(file, digest)
    return {bytes(key): row for key, row in zip(found["keys"].numpy(), found["features"], strict=True)}


@dataclass(frozen=True)
class FeatureSource:
    """Which network computes features, and where they are kept: the argument `features` of `open_data`."""

    net: str
    weights: bool | str | Path = True  # published, or those of a file
    size: tuple[int, int] | None = None  # (H, W) that images are resized to; None: their own
    folder: Path | None = None  # of the pieces
    stored: Features | None = None  # those of a run
    count: Count = count_nothing
    say: Say = say_nothing

    def open(self, inputs: Preparation) -> Features:
        """The features of inputs prepared so: those of the run, or by the trained network."""
        if self.stored is not None:
            return self.stored
        shape: tuple[int, ...] = inputs.shape  # type: ignore[union-attr]
        backbone, record = trained_backbone(self.net, self.weights, inputs, shape, self.size)
        found = Features(backbone, record, self.folder)
        found.read_pieces()
        return found

    def embed(self, features: Features, blocks: Iterable[tuple[str, Tensor]], total: int) -> dict[str, Tensor]:
        """The features (N, D) of every part, from blocks of prepared inputs; the estimated time is told first."""
        found: dict[str, list[Tensor]] = {}
        done = 0
        for part, x in blocks:
            if not done and self.say is not say_nothing:
                self.say(self.estimate(features, x, total))
            self.count("", done, total)
            found.setdefault(part, []).append(features.keep(x))
            done += len(x)
        self.count("", done, total)
        return {part: torch.cat(made) for part, made in found.items()}

    def estimate(self, features: Features, x: Tensor, total: int) -> str:
        """How long the features of so many inputs will take, from the time of a few."""
        few = x[:TIMED]
        features_of(features.backbone, few)
        began = time.perf_counter()
        features_of(features.backbone, few)
        each = (time.perf_counter() - began) / len(few)
        left = max(0, total - len(features.known))
        kept = f", {total - left:,} of them kept from before" if left < total else ""
        shape = "x".join(map(str, features.backbone.shape))
        return (
            f"features of {total:,} inputs by {self.net} ({shape}){kept}: about {duration(left * each)},"
            f" {1e3 * each:.2g} ms each"
        )


def duration(seconds: float) -> str:
    """A time in words.

    >>> duration(0.2), duration(75), duration(5000)
    ('1 s', '75 s', '83 min')
    """
    if seconds < 120:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def stored_features(
    run: Path, record: dict[str, Any], inputs: Preparation, digests: dict[str, str], known: bool = True
) -> Features:
    """The features of a run: its backbone, and with `known` those of the examples that it was trained on.

    `digests` are the SHA-256 of the files of the run.
    """
    backbone = build_backbone(record["net"], tuple(record["shape"]), inputs)
    backbone.load_state_dict(read_tensors(require_digest(run / BACKBONE, digests.get(BACKBONE))))
    kept = read_stored(run / STORED, digests[STORED]) if known and STORED in digests else {}
    return Features(backbone, record, known=kept)


def stored_preparation(record: dict[str, Any], run: Path, digests: dict[str, str]) -> Preparation:
    """The preparation of a run, with the backbone of one that computes features."""
    if record["kind"] != "features":
        return preparation_from_json(record)
    inputs = preparation_from_json(record["inputs"])
    return preparation_from_json(record, stored_features(run, record["network"], inputs, digests, known=False))


def save_features(run: Path, preparation: Preparation | None) -> None:
    """Write the backbone and the known features into a run directory, if its preparation computes features."""
    if isinstance(preparation, FeaturePreparation) and isinstance(preparation.features, Features):
        preparation.features.save(run)


def remove_pieces(preparation: Preparation | None) -> None:
    """Remove the pieces of the features of a preparation, when a run holds them."""
    if isinstance(preparation, FeaturePreparation) and isinstance(preparation.features, Features):
        preparation.features.remove_pieces()


def features_again(run: Path | None, record: dict[str, Any], digests: dict[str, str]) -> FeatureSource:
    """The source of the features of a run, from the record of its preparation and the digests of its files."""
    if run is None:
        raise Misuse(
            f"features by {record['network']['net']} of a run that is not on the disk: give data=mm.embed(...)"
        )
    found = stored_features(run, record["network"], preparation_from_json(record["inputs"]), digests)
    return FeatureSource(record["network"]["net"], stored=found)


def feature_source(
    net: str,
    weights: bool | str | Path = True,
    size: int | tuple[int, int] | None = None,
    *,
    out: str | Path | None = None,
    count: Count = count_nothing,
    say: Say = say_nothing,
) -> FeatureSource:
    """The source of features with the usual size of its images where none is given; pieces are written beside `out`."""
    chosen = (size, size) if isinstance(size, int) else size
    folder = None if out is None else Path(out).with_name(Path(out).name + PIECES)
    return FeatureSource(net, weights, chosen or usual_size(net), folder, count=count, say=say)


def embed(
    source: Any,
    net: str = "efficientnet-lite0",
    *,
    weights: bool | str | Path = True,
    size: int | tuple[int, int] | None = None,
    out: str | Path | None = None,
    progress: bool | None = None,
    say: Say = say_nothing,
    **reading: Any,
) -> Data:
    """Images as features of a pretrained network: a `Data` that `fit` trains heads on, and that predicts from images.

    `source` and further keywords are those of `open_data`. `net` is the name of a network, `weights` True for its
    published ones or a file of them. Images are resized and cropped to `size`, 128 pixels for the networks with
    published weights, else their own. Features are standardised unless `prepare="none"`. With `out`, the run directory
    to come, they are written beside it in pieces while they are computed, from which a killed computation continues.

    >>> photos = np.zeros((6, 3, 8, 8), dtype=np.uint8), [0, 1, 0, 1, 0, 1]
    >>> embed(photos, "mlp")
    Traceback (most recent call last):
    murmuration.system.errors.Misuse: pretrained mlp: its weights are not here; give a file of them, or a net of ...
    """
    if isinstance(source, Data):
        raise Misuse("embed got a Data, which is prepared already: give its source, such as the folder of images")
    with counting_bar(f"features by {net}", progress is False) as count:
        found = feature_source(net, weights, size, out=out, count=count, say=say)
        return open_data(source, size=found.size, features=found, **reading)


def write_features(
    source: Any, features: FeatureSource, out: Path, options: LoadOptions | None = None
) -> dict[str, Any]:
    """Write the features of all parts of a source to an npz file that `open_data` reads; returns its description.

    Image files are decoded as they are needed. The file holds x and y, or those of the parts of the source (`x_train`,
    ...), `classes`, the fingerprint of the data and the record of the network.
    """
    name, raw = load_source(source, replace(options or LoadOptions(), in_memory=False, size=features.size))
    inputs = network_inputs(raw, name)
    found = features.open(inputs)
    digest = hashlib.sha256()
    blocks = ((part, inputs.apply(x)) for part, x in read_blocks(raw, digest))
    made = features.embed(found, blocks, sum(map(len, raw.parts.values())))
    arrays: dict[str, np.ndarray] = {}
    for part, rows in made.items():
        suffix, targets = "" if part == "all" else f"_{part}", raw.parts[part].targets
        arrays[f"x{suffix}"] = rows.numpy()
        if targets is not None:
            arrays[f"y{suffix}"] = targets.astype(str) if targets.dtype == object else targets
    if raw.class_names is not None:
        arrays["classes"] = np.array(raw.class_names)
    about = {"data": name, "fingerprint": digest.hexdigest(), "network": found.record}
    arrays["about"] = np.array(json.dumps(about))
    write_whole(out, lambda temporary: save_arrays(temporary, arrays))
    found.remove_pieces()
    sizes, width = {part: len(rows) for part, rows in made.items()}, next(iter(made.values())).shape[1]
    return {**about, "examples": sizes, "features": width, "out": str(out)}


def save_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    with open(path, "wb") as file:  # of a path, numpy would change the name
        np.savez(file, **arrays)  # type: ignore[arg-type]  # its stub takes the arrays for a switch


def read_blocks(raw: RawData, digest: Any) -> Iterator[tuple[str, np.ndarray]]:
    """The inputs of every part, some rows at a time, with their part; what passes is added to the digest.

    It is then that of `fingerprint`.
    """
    for name in [part for part in PARTS if part in raw.parts]:
        part = raw.parts[name]
        digest.update(name.encode())
        hash_kind(digest, part.inputs.dtype, part.inputs.shape)
        for first in range(0, len(part), FEATURES_AT_ONCE):
            block = part.inputs[first : first + FEATURES_AT_ONCE]
            hash_values(digest, block)
            yield name, block
        if part.targets is not None:
            hash_array(digest, part.targets)
