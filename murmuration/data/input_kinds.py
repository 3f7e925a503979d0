"""The kind of a source's inputs (a table, images, numbers, tokens, several of these) and its fitted preparation."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from murmuration.data.preparation import (
    FEATURES_AT_ONCE,
    FeaturePreparation,
    ImagePreparation,
    Inputs,
    Preparation,
    Prepare,
    SeveralPreparation,
    TokenPreparation,
    fit_array,
    fit_images,
    fit_table,
    image_shape,
    pixel_peak,
)
from murmuration.data.raw import RawData, RawPart, SeveralInputs, is_table, take
from murmuration.data.streamed import Streamed, as_given
from murmuration.system.errors import Misuse


class FeatureNetwork(Protocol):
    """A fixed network whose features replace the inputs: see `models/features.py`."""

    @property
    def net(self) -> str:
        """Its name."""

    def open(self, inputs: Preparation) -> Any:
        """Load the network.

        Args:
            inputs: Preparation of the inputs that the network takes.

        Returns:
            A map from prepared inputs to features, with the attribute `record` that is stored in run.json.
        """

    def embed(self, features: Any, blocks: Iterable[tuple[str, Tensor]], total: int) -> Mapping[str, Tensor]:
        """Compute the features of all examples.

        Args:
            features: The map that `open` returned.
            blocks: Names of parts with blocks of their prepared inputs.
            total: Number of examples in all blocks, for progress.

        Returns:
            The features (N, D) of every part.
        """


def image_peak(raw: RawData, inputs: Inputs | None = None) -> float | None:
    """Return the value of a white pixel if the source holds images, else None."""
    read = [part.inputs.first for part in raw.parts.values() if isinstance(part.inputs, Streamed)]
    if read:  # one example each
        return 255.0 if isinstance(read[0], np.ndarray) and read[0].ndim == 4 else None
    if inputs in ("tokens", "numbers") or any(isinstance(part.inputs, SeveralInputs) for part in raw.parts.values()):
        return None
    if raw.peak is not None or any(is_table(part.inputs) for part in raw.parts.values()):
        return raw.peak
    peaks: list[Any] = [pixel_peak(part.inputs, asked=inputs == "images") for part in raw.parts.values() if len(part)]
    return None if None in peaks else max(peaks)


def fit_preparation(raw: RawData, x: Any, prepare: Prepare, inputs: Inputs | None) -> Preparation:
    """Fit the preparation of the training inputs: a table, images, numbers, tokens, or several of these."""
    if isinstance(x, Streamed):
        if prepare != "none":
            got = f"prepare='{prepare}' with a Dataset or DataLoader, whose inputs are taken as they are"
            raise Misuse(f"{got}: do it in the data set, or write in_memory=True")
        return as_given(x, inputs)
    if isinstance(x, SeveralInputs):

        def fit_one(values: np.ndarray) -> Any:
            tokens = values.dtype.kind in "iu" and (values.dtype != np.uint8 or values.ndim <= 2)  # not bytes of images
            kind = None if inputs == "tokens" and not tokens else inputs
            return fit_preparation(replace(raw, parts={"all": RawPart(values)}), values, prepare, kind)

        return SeveralPreparation(tuple((name, fit_one(v)) for name, v in x.arrays.items()), x.positional)
    if is_table(x):
        if inputs == "tokens" or prepare == "none":
            raise Misuse("a table with inputs='tokens' or prepare='none': give the columns as an array instead")
        return fit_table(x, raw.target_names, raw.ignored, "standardise" if prepare == "unit" else prepare)
    if inputs == "tokens" and x.dtype.kind not in "iu":
        raise Misuse(f"inputs='tokens' with x of type {x.dtype}: expected whole numbers, such as int64")
    if inputs == "tokens" or (prepare == "none" and x.dtype.kind in "iub" and image_peak(raw, inputs) is None):
        return TokenPreparation(x.shape[1:])
    peak = image_peak(raw, inputs)
    if peak is not None:
        return fit_images(x, peak, prepare, raw.resized)
    if inputs == "images":
        raise Misuse(f"inputs='images' with x of shape {x.shape}: expected pixels in 0..1 or 0..255, (N, H, W[, C])")
    if prepare == "unit":
        raise Misuse("prepare='unit' is for images: write 'standardise' or 'none'")
    if x.ndim == 4 and image_shape(x) != x.shape[1:] and inputs is None:
        got = f"x of shape {x.shape} has colours last and values outside 0..255"
        raise Misuse(f"{got}: expected pixels, or channels first (N, C, H, W)")
    return fit_array(x, raw.feature_names, "none" if raw.as_is and prepare == "standardise" else prepare)


def fit_features(
    raw: RawData,
    features: FeatureNetwork | None,
    training: tuple[str, np.ndarray],
    prepare: Prepare,
    name: str,
    inputs: Inputs | None,
) -> tuple[Preparation, dict[str, Tensor]]:
    """Fit the preparation that computes features, and return it with the scaled features (N, D) of every part.

    `training` is the part and rows that train. Without a feature network, fit the preparation of the inputs.
    """
    part, rows = training
    if features is None:
        return fit_preparation(raw, take(raw.parts[part].inputs, rows), prepare, inputs), {}
    if prepare == "unit":
        raise Misuse("prepare='unit' is for images, and members take features: write 'standardise' or 'none'")
    first = network_inputs(raw, name, inputs)
    network = features.open(first)
    starts = ((part, at) for part in raw.parts for at in range(0, len(raw.parts[part]), FEATURES_AT_ONCE))
    blocks = ((part, first.apply(raw.parts[part].inputs[at : at + FEATURES_AT_ONCE])) for part, at in starts)
    embedded = features.embed(network, blocks, sum(map(len, raw.parts.values())))
    scale = fit_array(embedded[part].numpy()[rows], (), prepare)
    scaled = {name: scale.apply(x) for name, x in embedded.items()}
    return FeaturePreparation(first, scale, network.record, network), scaled


def network_inputs(raw: RawData, name: str, inputs: Inputs | None = None) -> ImagePreparation | TokenPreparation:
    """Return the preparation of the inputs of a feature network: pixels from 0 to 1, or tokens as they are."""
    first: Any = next(iter(raw.parts.values())).inputs
    if isinstance(first, Streamed):
        raise Misuse(f"features of a {name}, which is read as it is needed: write in_memory=True")
    if inputs == "tokens":
        return TokenPreparation(first.shape[1:])
    peak = None if is_table(first) or isinstance(first, SeveralInputs) else image_peak(raw, inputs)
    if peak is None:
        kind = "a table" if is_table(first) else f"examples of shape {getattr(first, 'shape', (0,))[1:]}"
        raise Misuse(f"{name} holds {kind}, and features are those of images: expected images, of any size")
    return fit_images(first[:1], peak, "unit", raw.resized)
