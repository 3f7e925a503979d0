"""Data sets of the Hugging Face hub, `hf:NAME` or `hf:NAME:CONFIGURATION`, behind the extra `hf`."""

from typing import Any

import numpy as np

from murmuration.data.images import PART_FOLDERS, one_line, stack_pictures
from murmuration.data.names import listed
from murmuration.data.raw import Part, Raw, Request
from murmuration.data.tables import table_raw
from murmuration.errors import Failure, Misuse

LABEL_COLUMNS = ("label", "labels", "fine_label", "target")


def is_hub_name(source: Any) -> bool:
    """Whether a source is written `hf:NAME`."""
    return isinstance(source, str) and source.startswith("hf:")


def load_hub(source: str, request: Request) -> Raw:
    """The pictures or the table of a data set on the hub, with the parts it comes in."""
    found = fetch(source)
    parts = {PART_FOLDERS[name]: part for name, part in found.items() if name in PART_FOLDERS}
    if not parts:
        raise Misuse(f"'{source}' has the parts {listed(found)}: expected train, validation or test")
    first = next(iter(parts.values()))
    target = label_column(first.features, request.target) if request.labelled else None
    names = getattr(first.features[target], "names", None) if target else None
    pictures = [name for name, kind in first.features.items() if type(kind).__name__ == "Image"]
    if not pictures:
        asked = Request(target, request.seed, request.labelled)
        tables = {key: table_raw(part.to_pandas(), asked, f"'{source}'") for key, part in parts.items()}
        raws = {key: raw.parts["all"] for key, raw in tables.items()}
        return Raw(raws, names=tuple(names) if names else None, targets=(target,) if target else ())
    read = {key: picture_part(part, pictures[0], target, request.size) for key, part in parts.items()}
    return Raw(read, "classification", tuple(names) if names else None, peak=255.0)


def fetch(source: str) -> Any:
    """The data sets by part name that `datasets.load_dataset` returns; no code from the hub is run."""
    try:
        import datasets
    except ImportError:
        raise Misuse(f"'{source}' needs the datasets package: pip install 'murmuration[hf]'") from None
    name, _, configuration = source.removeprefix("hf:").partition(":")
    # Versions before 4 can run a loading script that comes with the data, unless told not to.
    scripts = int(datasets.__version__.split(".")[0]) < 4
    options = {"trust_remote_code": False} if scripts else {}
    try:
        return datasets.load_dataset(name, configuration or None, **options)
    except Exception as error:  # the hub's client raises errors of a dozen libraries
        raise Failure(f"cannot fetch '{source}': {one_line(error)}") from None


def label_column(features: Any, target: str | tuple[str, ...] | None) -> str:
    """The column that holds the labels: the one asked for, or the one with a usual name."""
    wanted = LABEL_COLUMNS if target is None else (target,) if isinstance(target, str) else target
    for name in wanted:
        if name in features:
            return name
    raise Misuse(f"no column {listed(wanted)}: write target=..., one of {listed(features)}")


def picture_part(rows: Any, picture: str, target: str | None, size: tuple[int, int] | None) -> Part:
    """Pictures (N, C, H, W) and labels of one part."""
    names = [f"row {i}" for i in range(len(rows))]
    planes = stack_pictures(names, lambda i: rows[i][picture], size)
    return Part(planes, None if target is None else np.asarray(rows[target]))
