"""Data sets of the Hugging Face hub, `hf:NAME` or `hf:NAME:CONFIGURATION` (needs the extra `hf`)."""

from typing import Any

import numpy as np

from murmuration.data.images import PART_FOLDERS, stack_images
from murmuration.data.raw import LoadOptions, RawData, RawPart
from murmuration.data.tables import table_raw
from murmuration.system.errors import Failure, Misuse, first_line, listed

LABEL_COLUMNS = ("label", "labels", "fine_label", "target")


def load_hub(source: str, options: LoadOptions) -> RawData:
    """The images or the table of a data set of the hub, in its own parts."""
    found = fetch(source)
    parts = {PART_FOLDERS[name]: part for name, part in found.items() if name in PART_FOLDERS}
    if not parts:
        raise Misuse(f"'{source}' has the parts {listed(found)}: expected train, validation or test")
    first = next(iter(parts.values()))
    target = label_column(first.features, options.target) if options.labelled else None
    names = getattr(first.features[target], "names", None) if target else None
    images = [name for name, kind in first.features.items() if type(kind).__name__ == "Image"]
    if not images:
        wanted = LoadOptions(target, options.seed, options.labelled)
        tables = {key: table_raw(part.to_pandas(), wanted, f"'{source}'") for key, part in parts.items()}
        raws = {key: raw.parts["all"] for key, raw in tables.items()}
        return RawData(raws, class_names=tuple(names) if names else None, target_names=(target,) if target else ())
    read = {key: image_part(part, images[0], target, options) for key, part in parts.items()}
    resized = any(found for _, found in read.values())
    given = {key: part for key, (part, _) in read.items()}
    return RawData(given, "classification", tuple(names) if names else None, peak=255.0, resized=resized)


def fetch(source: str) -> Any:
    """The data sets by part name that `datasets.load_dataset` returns; no code from the hub is run."""
    try:
        import datasets
    except ImportError:
        raise Misuse(f"'{source}' needs the datasets package: pip install 'torch-murmuration[hf]'") from None
    name, _, configuration = source.removeprefix("hf:").partition(":")
    # Versions before 4 can run a loading script that comes with the data, unless told not to.
    scripts = int(datasets.__version__.split(".")[0]) < 4
    safe = {"trust_remote_code": False} if scripts else {}
    try:
        return datasets.load_dataset(name, configuration or None, **safe)
    except Exception as error:  # the hub's client raises errors of a dozen libraries
        raise Failure(f"cannot fetch '{source}': {first_line(error)}") from None


def label_column(features: Any, target: str | tuple[str, ...] | None) -> str:
    """The column of the labels: `target`, or the first with a usual name."""
    wanted = LABEL_COLUMNS if target is None else (target,) if isinstance(target, str) else target
    for name in wanted:
        if name in features:
            return name
    raise Misuse(f"no column {listed(wanted)}: write target=..., one of {listed(features)}")


def image_part(rows: Any, image: str, target: str | None, options: LoadOptions) -> tuple[RawPart, bool]:
    """Images (N, C, H, W) and labels of one part, and whether the images were resized."""
    names = [f"row {i}" for i in range(len(rows))]
    planes, resized = stack_images(names, lambda i: rows[i][image], options)
    return RawPart(planes, None if target is None else np.asarray(rows[target])), resized
