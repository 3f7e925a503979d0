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
    named = (options.target,) if isinstance(options.target, str) else options.target
    candidates = named or LABEL_COLUMNS  # without a name, the first of the usual ones
    target = next((name for name in candidates if name in first.features), None) if options.labelled else None
    if options.labelled and target is None:
        raise Misuse(f"no column {listed(candidates)}: write target=..., one of {listed(first.features)}")
    names = getattr(first.features[target], "names", None) if target else None
    classes = tuple(names) if names else None
    images = [name for name, kind in first.features.items() if type(kind).__name__ == "Image"]
    if not images:
        plain, place = LoadOptions(target, options.seed, options.labelled), f"'{source}'"
        tables = {key: table_raw(rows.to_pandas(), plain, place).parts["all"] for key, rows in parts.items()}
        return RawData(tables, class_names=classes, target_names=(target,) if target else ())
    image_parts, resized = {}, False
    for key, rows in parts.items():
        opened: Any = lambda i, rows=rows: rows[i][images[0]]  # noqa: E731
        planes, part_resized = stack_images([f"row {i}" for i in range(len(rows))], opened, options)
        image_parts[key] = RawPart(planes, None if target is None else np.asarray(rows[target]))
        resized |= part_resized
    return RawData(image_parts, "classification", classes, peak=255.0, resized=resized)


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
