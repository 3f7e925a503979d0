"""`DataOptions`: the options of `open_data`. The command line reads the declarations without torch."""

from dataclasses import dataclass
from numbers import Integral
from typing import Annotated, Any, Literal

from murmuration.system.errors import Misuse, names_of
from murmuration.system.settings import AtLeast, Doc, Number, Switch, check_settings, documented

Task = Literal["classification", "multi-label", "regression"]
Prepare = Literal["standardise", "robust", "quantile", "unit", "none"]
Inputs = Literal["numbers", "images", "tokens"]


@documented
@dataclass(frozen=True)
class DataOptions:
    """How a source is read, split and prepared."""

    target: Annotated[
        tuple[str, ...] | str | None,
        Doc("Target column of a table, or several; of an .npy file, the .npy file of its targets."),
    ] = None
    task: Annotated[
        Task | None, Doc("Kind of target: classification, multi-label or regression; by default inferred.")
    ] = None
    seed: Annotated[int, Doc("Seed of the split, and of toy data."), AtLeast(0)] = 0
    inputs: Annotated[
        Inputs | None,
        Doc(
            "What arrays hold: tokens (indices for an embedding), images (N, H, W), or numbers as they are; by default "
            "recognised."
        ),
    ] = None
    prepare: Annotated[
        Prepare | None,
        Doc(
            "Scaling of inputs: standardise (default); robust (median and interquartile range, clipped smoothly) or "
            "quantile (to a normal distribution) for rows of numbers; unit (images from 0 to 1) or none."
        ),
    ] = None
    size: Annotated[
        int | tuple[int, int] | None, Doc("Pixels to which image files are resized and cropped: height and width.")
    ] = None
    in_memory: Annotated[
        bool | None,
        Doc(
            "Hold all inputs in memory, or read and prepare rows when they are needed; by default a Dataset or "
            "DataLoader is read when needed and not prepared, and so are .npz, .npy, .parquet and image files above "
            "1 GiB (4 bytes a value). Results are the same."
        ),
        Switch(),
    ] = None
    val: Annotated[
        Any,
        Doc(
            "Validation data: a share such as 0.2, or other data such as a file; in Python also indices, a mask or a "
            "scikit-learn splitter."
        ),
    ] = None
    test: Annotated[Any, Doc('Test data, like val; "none" for no test split: all rows train and validate.')] = None
    groups: Annotated[Any, Doc("Group column, in Python also an array (N,); rows of one group stay in one split.")] = (
        None
    )
    time: Annotated[
        Any, Doc("Time column, in Python also an array (N,); the latest rows test, those before them validate.")
    ] = None
    weight: Annotated[Any, Doc("Column of sample weights, in Python also an array (N,).")] = None
    imbalance: Annotated[
        float | None,
        Doc(
            "Cut a long tail: drop training rows at random until the first class has this many times the examples of "
            "the last."
        ),
        Number(100),
    ] = None
    drop: Annotated[
        tuple[str, ...], Doc("Columns that are not inputs, in addition to those of groups, time and weight.")
    ] = ()
    keep: Annotated[
        tuple[str, ...],
        Doc("Columns that are inputs even if they look like identifiers or free text, which are left out otherwise."),
    ] = ()
    text: Annotated[
        tuple[str, ...], Doc("Columns of free text whose most frequent words are inputs, a column for each word.")
    ] = ()
    strict: Annotated[
        bool,
        Doc("Refuse a single damaged image; by default up to 1 %, rounded (one of 50), are left out with a note."),
        Switch(),
    ] = False

    def __post_init__(self) -> None:
        if type(self.in_memory).__name__ == "bool_":  # of numpy
            object.__setattr__(self, "in_memory", bool(self.in_memory))
        if not isinstance(self.target, str | None):
            names_of("target", self.target)
        sides = self.size if isinstance(self.size, tuple | list) and len(self.size) == 2 else (self.size, self.size)
        if self.size is not None and not all(isinstance(side, Integral) for side in sides):
            raise Misuse(f"size={self.size!r}: need a number of pixels such as 64, or (height, width)")
        for name in ("drop", "keep", "text"):
            object.__setattr__(self, name, tuple(filter(None, names_of(name, getattr(self, name)))))
        check_settings(self)
