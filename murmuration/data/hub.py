"""Data sets of the Hugging Face hub, `hf:NAME` or `hf:NAME:CONFIGURATION` (needs the extra `hf`)."""

from typing import Any

import numpy as np

from murmuration.data.images import PART_FOLDERS, stack_images
from murmuration.data.raw import LoadOptions, RawData, RawPart
from murmuration.data.tables import table_raw
from murmuration.system.errors import Failure, Misuse, first_line, listed

LABEL_COLUMNS = ("label", "labels", "fine_label", "target")


def load_hub(source: str, options: LoadOptions) -> RawData:
    """Load the images or the table of a data set of the hub, in the parts it comes in."""
    splits = fetch(source)
    parts = {PART_FOLDERS[name]: part for name, part in splits.items() if name in PART_FOLDERS}
    if not parts:
        raise Misuse(f"'{source}' has the parts {listed(splits)}: expected train, validation or test")
    first = next(iter(parts.values()))
    target = label_column(first.features, options.target) if options.labelled else None
    names = getattr(first.features[target], "names", None) if target else None
    images = [name for name, kind in first.features.items() if type(kind).__name__ == "Image"]
    if not images:
        table_options = LoadOptions(target, options.seed, options.labelled)
        tables = {key: table_raw(part.to_pandas(), table_options, f"'{source}'") for key, part in parts.items()}
        raws = {key: raw.parts["all"] for key, raw in tables.items()}
        return RawData(raws, class_names=tuple(names) if names else None, target_names=(target,) if target else ())
    image_parts, resized = {}, False
    for key, rows in parts.items():
        row_names = [f"row {i}" for i in range(len(rows))]
        opened: Any = lambda i, rows=rows: rows[i][images[0]]  # noqa: E731
        planes, part_resized = stack_images(row_names, opened, options)
        image_parts[key] = RawPart(planes, None if target is None else np.asarray(rows[target]))
        resized |= part_resized
    return RawData(image_parts, "classification", tuple(names) if names else None, peak=255.0, resized=resized)


def fetch(source: str) -> Any:
    """Fetch a data set by `datasets.load_dataset`, as {name of the part: rows}; no code from the hub is run."""
    try:
        import datasets
    except ImportError:
        raise Misuse(f"'{source}' needs the datasets package: pip install 'torch-murmuration[hf]'") from None
    name, _, configuration = source.removeprefix("hf:").partition(":")
    # versions before 4 run a loading script that comes with the data, unless this is off
    safe = {"trust_remote_code": False} if int(datasets.__version__.split(".")[0]) < 4 else {}
    try:
        return datasets.load_dataset(name, configuration or None, **safe)
    except Exception as error:  # the hub's client raises errors of a dozen libraries
        raise Failure(f"cannot fetch '{source}': {first_line(error)}") from None


def label_column(features: Any, target: str | tuple[str, ...] | None) -> str:
    """Return the column of the labels: `target`, or the first with a usual name."""
    candidates = LABEL_COLUMNS if target is None else (target,) if isinstance(target, str) else target
    for name in candidates:
        if name in features:
            return name
    raise Misuse(f"no column {listed(candidates)}: write target=..., one of {listed(features)}")
