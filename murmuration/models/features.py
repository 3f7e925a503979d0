"""Features of a pretrained network instead of inputs: computed once, cached by the SHA-256 of each input.

A killed computation resumes: features are written in pieces of 128 inputs, each file atomically. Features in the cache
are not computed again, whatever the order and split of the inputs.
"""

import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from murmuration.data import Data, Preparation, open_data
from murmuration.data.dataset import network_inputs
from murmuration.data.formats import load_source
from murmuration.data.preparation import FEATURES_AT_ONCE, FeaturePreparation, preparation_from_json
from murmuration.data.raw import PARTS, LoadOptions, RawData, hash_array, hash_kind, hash_values
from murmuration.models.nets.backbone import Backbone, build_backbone, features_of, trained_backbone, usual_size
from murmuration.system.errors import Misuse
from murmuration.system.files import partials, read_tensors, remove_partial, require_digest, write_tensors, write_whole
from murmuration.system.progress import counting_bar

KEY = 16  # bytes of a SHA-256 that are the key of an input
TIMED = 8  # inputs whose features are timed before the others
BACKBONE, STORED = "backbone.safetensors", "features.safetensors"  # in a run directory
PIECES = ".features"  # after the name of a run directory or file: the folder of pieces until it is written
Count = Callable[[str, int, int], None]  # of a progress bar: text, done, total
Say = Callable[[str], None]


def say_nothing(text: str) -> None:
    """Print nothing: the default of `say`."""


def count_nothing(text: str, done: int, total: int) -> None:
    """Show no progress: the default of `count`."""


@dataclass(eq=False)
class Features:
    """Prepared inputs (N, ...) -> features (N, D), from the cache or else by the backbone."""

    backbone: Backbone
    record: dict[str, Any]  # of the backbone, in run.json
    folder: Path | None = None  # of the pieces
    cached: dict[bytes, Tensor] = field(default_factory=dict)  # key of an input -> (D,)
    pieces: int = 0

    def __call__(self, x: Tensor) -> Tensor:
        """Compute features of prepared inputs without adding them to the cache."""
        keys = keys_of(x) if self.cached else []
        missing = [i for i, key in enumerate(keys) if key not in self.cached]
        if len(missing) == len(keys):
            return features_of(self.backbone, x)
        computed = dict(zip(missing, features_of(self.backbone, x[missing]), strict=True)) if missing else {}
        return torch.stack([computed[i] if i in computed else self.cached[key] for i, key in enumerate(keys)])

    def keep(self, x: Tensor) -> Tensor:
        """Compute features of prepared inputs and cache them in memory and, if there is a folder, on disk."""
        keys = keys_of(x)
        new = {key: i for i, key in reversed(list(enumerate(keys))) if key not in self.cached}
        if new:
            places = sorted(new.values())
            computed = features_of(self.backbone, x[places])
            self.cached |= {keys[i]: row for i, row in zip(places, computed, strict=True)}
            if self.folder is not None:
                self.pieces += 1
                write_stored(self.folder / f"{self._name}-{self.pieces:06d}.safetensors", self.cached, list(new))
        return torch.stack([self.cached[key] for key in keys])

    def read_pieces(self) -> None:
        """Read the features of an earlier, killed computation by the same network."""
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        for stale in partials(self.folder):
            remove_partial(stale)
        for file in sorted(self.folder.glob(f"{self._name}-*.safetensors")):
            self.cached |= read_stored(file)
            self.pieces = int(file.stem.rpartition("-")[2])

    def remove_pieces(self) -> None:
        """Remove the pieces, once the run or file they were for is written."""
        if self.folder is not None:
            for file in self.folder.glob("*.safetensors"):
                file.unlink(missing_ok=True)
            if self.folder.is_dir() and not any(self.folder.iterdir()):
                self.folder.rmdir()

    def save(self, run: Path) -> None:
        """Write the backbone and the cached features into a run directory."""
        write_tensors(run / BACKBONE, self.backbone.state_dict())
        if self.cached:
            write_stored(run / STORED, self.cached, list(self.cached))

    @property
    def _name(self) -> str:
        return str(self.record["sha256"])[:16]


def keys_of(x: Tensor) -> list[bytes]:
    """Hash the values of every input (N, ...)."""
    return [hashlib.sha256(row.tobytes()).digest()[:KEY] for row in x.detach().contiguous().numpy()]


def write_stored(file: Path, cached: dict[bytes, Tensor], keys: list[bytes]) -> None:
    """Write the features of these keys as one file."""
    names = torch.from_numpy(np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(-1, KEY).copy())
    write_tensors(file, {"keys": names, "features": torch.stack([cached[key] for key in keys])})


def read_stored(file: Path, digest: str | None = None) -> dict[bytes, Tensor]:
    """Read the features of a file by their keys."""
    tensors = read_tensors(file, digest)
    return {bytes(key): row for key, row in zip(tensors["keys"].numpy(), tensors["features"], strict=True)}


@dataclass(frozen=True)
class FeatureSource:
    """The network that computes features and the folder of its cache: the argument `features` of `open_data`."""

    net: str
    weights: bool | str | Path = True  # published, or those of a file
    size: tuple[int, int] | None = None  # (H, W) that images are resized to; None: their own
    folder: Path | None = None  # of the pieces
    stored: Features | None = None  # those of a run
    count: Count = count_nothing
    say: Say = say_nothing

    def open(self, inputs: Preparation) -> Features:
        """Open the features of the run, or those of the trained network for inputs of this preparation."""
        if self.stored is not None:
            return self.stored
        shape: tuple[int, ...] = inputs.shape  # type: ignore[union-attr]
        features = Features(*trained_backbone(self.net, self.weights, inputs, shape, self.size), self.folder)
        features.read_pieces()
        return features

    def embed(self, features: Features, blocks: Iterable[tuple[str, Tensor]], total: int) -> dict[str, Tensor]:
        """Compute the features (N, D) of every part from blocks of prepared inputs; first print the estimated time."""
        parts, done = defaultdict[str, list[Tensor]](list), 0
        for part, x in blocks:
            if not done and self.say is not say_nothing:
                self.say(self.estimate(features, x, total))
            self.count("", done, total)
            parts[part].append(features.keep(x))
            done += len(x)
        self.count("", done, total)
        return {part: torch.cat(rows) for part, rows in parts.items()}

    def estimate(self, features: Features, x: Tensor, total: int) -> str:
        """Estimate, from a few inputs, how long the features of `total` inputs will take."""
        sample = x[:TIMED]
        features_of(features.backbone, sample)
        began = time.perf_counter()
        features_of(features.backbone, sample)
        seconds = (time.perf_counter() - began) / len(sample)
        missing = max(0, total - len(features.cached))
        reused = f", {total - missing:,} of them kept from before" if missing < total else ""
        inputs = f"{total:,} inputs by {self.net} ({'x'.join(map(str, features.backbone.shape))}){reused}"
        return f"features of {inputs}: about {duration(missing * seconds)}, {1e3 * seconds:.2g} ms each"


def duration(seconds: float) -> str:
    """Format a duration.

    >>> duration(0.2), duration(75), duration(5000)
    ('1 s', '75 s', '83 min')
    """
    if seconds < 120:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def stored_features(
    run: Path, record: dict[str, Any], inputs: Preparation, digests: dict[str, str], cached: bool = True
) -> Features:
    """Read the backbone of a run, and with `cached` the features of the examples that it was trained on.

    `digests` are the SHA-256 of the files of the run.
    """
    backbone = build_backbone(record["net"], tuple(record["shape"]), inputs)
    backbone.load_state_dict(read_tensors(require_digest(run / BACKBONE, digests.get(BACKBONE))))
    rows = read_stored(run / STORED, digests[STORED]) if cached and STORED in digests else {}
    return Features(backbone, record, cached=rows)


def stored_preparation(record: dict[str, Any], run: Path, digests: dict[str, str]) -> Preparation:
    """Restore the preparation of a run, with its backbone if it computes features."""
    if record["kind"] != "features":
        return preparation_from_json(record)
    inputs = preparation_from_json(record["inputs"])
    return preparation_from_json(record, stored_features(run, record["network"], inputs, digests, cached=False))


def save_features(run: Path, preparation: Preparation | None) -> None:
    """Write the backbone and the cached features into a run directory, if its preparation computes features."""
    if isinstance(preparation, FeaturePreparation) and isinstance(preparation.features, Features):
        preparation.features.save(run)


def remove_pieces(preparation: Preparation | None) -> None:
    """Remove the pieces of the features of a preparation, once a run holds them."""
    if isinstance(preparation, FeaturePreparation) and isinstance(preparation.features, Features):
        preparation.features.remove_pieces()


def features_again(run: Path | None, record: dict[str, Any], digests: dict[str, str]) -> FeatureSource:
    """Restore the source of the features of a run, from the record of its preparation and the digests of its files."""
    if run is None:
        raise Misuse(f"features by {record['network']['net']} of a run that is not on disk: give data=mm.embed(...)")
    features = stored_features(run, record["network"], preparation_from_json(record["inputs"]), digests)
    return FeatureSource(record["network"]["net"], stored=features)


def feature_source(
    net: str,
    weights: bool | str | Path = True,
    size: int | tuple[int, int] | None = None,
    *,
    out: str | Path | None = None,
    count: Count = count_nothing,
    say: Say = say_nothing,
) -> FeatureSource:
    """Make a source of features, by default of the network's usual image size; pieces are written beside `out`."""
    sides = (size, size) if isinstance(size, int) else size
    folder = None if out is None else Path(out).with_name(Path(out).name + PIECES)
    return FeatureSource(net, weights, sides or usual_size(net), folder, count=count, say=say)


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
    """Open images as features of a pretrained network, to train heads on.

    Features are standardised unless `prepare="none"`. The run predicts from images.

    Args:
        source: Images, as for `open_data`.
        net: Name of a network.
        weights: True for its published weights, or a file of them.
        size: Pixels to which images are resized and cropped: 128 by default for networks with published weights, else
            their size.
        out: The future run directory; features are written beside it while they are computed, so that a killed
            computation can resume.
        progress: False hides the progress bar.
        say: Called with the estimated time.
        **reading: Further arguments of `open_data`.

    Returns:
        A `Data` for `fit`.

    Raises:
        Misuse: If the source is not images, or the weights are not on this machine.

    >>> photos = np.zeros((6, 3, 8, 8), dtype=np.uint8), [0, 1, 0, 1, 0, 1]
    >>> embed(photos, "mlp")
    Traceback (most recent call last):
    murmuration.system.errors.Misuse: pretrained mlp: its weights are not here; give a file of them, or a net of ...
    """
    if isinstance(source, Data):
        raise Misuse("embed got a Data, which is prepared already: give its source, such as the folder of images")
    with counting_bar(f"features by {net}", progress is False) as count:
        features = feature_source(net, weights, size, out=out, count=count, say=say)
        return open_data(source, size=features.size, features=features, **reading)


def write_features(
    source: Any, features: FeatureSource, out: Path, options: LoadOptions | None = None
) -> dict[str, Any]:
    """Write the features of all parts of a source to an npz file for `open_data`, and return its description.

    Image files are decoded when needed. The file holds x and y, or those of the parts of the source (`x_train`, ...),
    `classes`, the fingerprint of the data and the record of the network.
    """
    name, raw = load_source(source, replace(options or LoadOptions(), in_memory=False, size=features.size))
    inputs, digest = network_inputs(raw, name), hashlib.sha256()
    network = features.open(inputs)
    blocks = ((part, inputs.apply(x)) for part, x in read_blocks(raw, digest))
    parts = features.embed(network, blocks, sum(map(len, raw.parts.values())))
    arrays: Any = {}
    for part, rows in parts.items():
        suffix, targets = "" if part == "all" else f"_{part}", raw.parts[part].targets
        arrays[f"x{suffix}"] = rows.numpy()
        if targets is not None:
            arrays[f"y{suffix}"] = targets.astype(str) if targets.dtype == object else targets
    if raw.class_names is not None:
        arrays["classes"] = np.array(raw.class_names)
    about = {"data": name, "fingerprint": digest.hexdigest(), "network": network.record}
    arrays["about"] = np.array(json.dumps(about))

    def save(path: Path) -> None:
        with open(path, "wb") as file:  # given a path, numpy would change the name
            np.savez(file, **arrays)

    write_whole(out, save)
    network.remove_pieces()
    sizes = {part: len(rows) for part, rows in parts.items()}
    return {**about, "examples": sizes, "features": rows.shape[1], "out": str(out)}


def read_blocks(raw: RawData, digest: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Yield blocks of inputs with the name of their part, and feed them to the digest, which becomes `fingerprint`."""
    for name, part in ((name, raw.parts[name]) for name in PARTS if name in raw.parts):
        digest.update(name.encode())
        hash_kind(digest, part.inputs.dtype, part.inputs.shape)
        for first in range(0, len(part), FEATURES_AT_ONCE):
            block = part.inputs[first : first + FEATURES_AT_ONCE]
            hash_values(digest, block)
            yield name, block
        if part.targets is not None:
            hash_array(digest, part.targets)
