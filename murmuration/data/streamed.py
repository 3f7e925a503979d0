"""Examples that are read when they are needed: torch datasets, data loaders and rows of files.

Each example of a torch dataset is read after seeding Python's, numpy's and torch's global generators, so that random
augmentation depends only on the run's seed, the member, the epoch and the position in it, whatever the number of worker
processes. Rows of files involve no random numbers.
"""

import copy
import hashlib
import math
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, SequentialSampler, SubsetRandomSampler
from torch.utils.data.dataloader import default_collate

from murmuration.data.arrays import checked_part
from murmuration.data.file_rows import FileRows
from murmuration.data.numpy_arrays import as_array
from murmuration.data.parquet import FileTable
from murmuration.data.preparation import ImagePreparation, Preparation, SeveralPreparation, unchanged
from murmuration.data.raw import LoadOptions, RawData, RawPart, SeveralInputs, hash_inputs, several_inputs
from murmuration.system.errors import Misuse, first_line, warn
from murmuration.system.streams import ALL_MEMBERS, kept_generators, stream_seed

WORKER_SETTINGS = ("num_workers", "worker_init_fn", "timeout", "multiprocessing_context", "prefetch_factor")
PROBED_EXAMPLES = 8  # read twice before training, to find out whether reading draws random numbers
EXAMPLES_AT_ONCE = 64  # read at once where no loader says otherwise
VALUES_AT_ONCE, MOST_ROWS = 2**24, 4096  # of prepared rows that are predicted at once

READ_LOCK = threading.Lock()  # global generators belong to the process, so one thread reads at a time
Request = tuple[int, int]  # the index of an example and the seed it is read with
Examples = tuple[Any, np.ndarray | None]  # inputs (B, ...), or several of them, and targets (B, ...)


class NotInMemory(Misuse, AttributeError):  # noqa: N818  # a Misuse, as all that users see
    """An attribute of tensors that streamed inputs do not have."""


@dataclass(frozen=True, eq=False)
class Source:
    """A map-style dataset, how its examples become batches, and the settings of the caller's loader."""

    dataset: Any
    settings: Mapping[str, Any] = field(default_factory=lambda: {"collate_fn": default_collate})  # of a DataLoader
    batch_size: int | None = None  # of the caller's loader; None: a dataset alone
    sampler: Any = None  # the same
    drop_last: bool = False
    draws: bool = False  # whether reading an example draws random numbers
    repeatable: bool = True  # whether the same seed gives the same example

    def read(self, requests: Iterable[list[Request]]) -> Iterator[Examples]:
        """Yield the examples of each list of requests as one batch; worker processes read ahead."""
        # any iterable of batches will do; without a generator, torch's global one would advance
        sampling: Any = {"batch_sampler": requests, "generator": torch.Generator()}
        batches = iter(DataLoader(Seeded(self.dataset), **sampling, **self.settings))
        while True:
            with READ_LOCK, all_kept():
                batch = next(batches, None)
            if batch is None:
                return
            yield self.parted(batch)

    def parted(self, batch: Any) -> Examples:
        """Split a collated batch into inputs and targets."""
        if not isinstance(batch, tuple | list):
            return as_inputs(batch), None
        if len(batch) != 2:
            raise Misuse(f"{self.name} gives {len(batch)} values an example: expected pairs (x, y)")
        return as_inputs(batch[0]), as_array(batch[1])

    @property
    def name(self) -> str:
        return type(self.dataset).__name__


@dataclass(frozen=True, eq=False)
class RowSource(Source):
    """Rows of files (`FileRows` or `FileTable`): inputs only, their targets are in memory; no random numbers."""

    name = "files"

    def read(self, requests: Iterable[list[Request]]) -> Iterator[Examples]:
        """Yield the inputs of each list of requests."""
        rows = self.dataset
        places = (rows.places[[index for index, _ in batch]] for batch in requests)
        batches = map(rows.read, places) if isinstance(rows, FileTable) else rows.batches(places)
        yield from ((x, None) for x in batches)


def rows_at_once(shape: Sequence[int]) -> int:
    """Return how many prepared inputs (N, ...) are read and predicted at once: a power of 2, at most 64 MB.

    >>> rows_at_once((10**6, 20)), rows_at_once((10**6, 3, 64, 64))
    (4096, 1024)
    """
    fitting = VALUES_AT_ONCE // max(1, math.prod(shape[1:]))
    return max(1, min(MOST_ROWS, 1 << max(0, fitting.bit_length() - 1)))


class Seeded(Dataset):
    """A dataset whose example (index, seed) is read after setting all global generators to that seed."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __getitem__(self, request: Request) -> Any:
        index, seed = request
        seed_generators(seed)
        return self.dataset[index]


def seed_generators(seed: int) -> None:
    """Seed Python's, numpy's and torch's global generators; not torch.manual_seed, which also queues accelerators."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  # the global generator, which a dataset may draw from
    torch.default_generator.manual_seed(seed)


def generator_states() -> tuple:
    """Return the states of Python's, numpy's and torch's global generators."""
    return random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002


@contextmanager
def all_kept() -> Iterator[None]:
    """Use Python's, numpy's and torch's global generators in one thread at a time; restore them at the end."""
    with kept_generators():
        python, numpy, _ = generator_states()
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


def as_inputs(x: Any) -> Any:
    """Convert the inputs of a collated batch to an array (B, ...), or several of them."""
    if not isinstance(x, dict | list | tuple):
        return as_array(x)
    inputs = several_inputs(x if isinstance(x, dict) else tuple(x))
    return as_array(next(iter(x.values())) if isinstance(x, dict) else x[0]) if inputs is None else inputs


@dataclass(frozen=True, eq=False, repr=False)
class Streamed:
    """Inputs (N, ...) of a dataset, read when they are needed: `x[rows]`, `x.split(size)`.

    It takes the place of a tensor of inputs. These reads use a fixed seed for every example, so that they return the
    same values each time; `read` takes other seeds.
    """

    source: Source
    rows: np.ndarray  # (N,) indices of the dataset
    preparation: Preparation | None = None  # None: before one is chosen
    digest: str = ""  # of all inputs as read with their fixed seeds
    apply: Any = None  # raw inputs of a batch -> prepared ones (B, ...)
    encode: Callable[[Any], Tensor] | None = None  # targets as the dataset gives them -> as the loss takes them

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"Streamed({len(self):,} examples of {self.source.name})"

    def __getattr__(self, name: str) -> Any:
        problem = f"'{name}' of examples that are read when needed"
        raise NotInMemory(f"{problem}: this takes all of them in memory; write mm.open_data(dataset, in_memory=True)")

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self), *self.apply(self.first).shape[1:])

    @cached_property
    def first(self) -> Any:
        """The raw inputs of one example, (1, ...)."""
        index = self.rows[:1] if len(self) else np.zeros(1, dtype=np.int64)
        if self.of_files:
            return self.source.dataset.read(self.source.dataset.places[index])  # in this process
        settings = {"collate_fn": self.source.settings["collate_fn"]}  # no worker processes
        return next(replace(self.source, settings=settings).read([self.requests(index)]))[0]

    def whole(self) -> Any:
        """Read the raw inputs of all examples of a dataset, (N, ...) or several of them."""
        batches = [x for x, _ in self.in_batches(EXAMPLES_AT_ONCE)]
        if not isinstance(batches[0], SeveralInputs):
            return np.concatenate(batches)
        arrays = {name: np.concatenate([batch.arrays[name] for batch in batches]) for name in batches[0].arrays}
        return SeveralInputs(arrays, batches[0].positional)

    def requests(self, indices: np.ndarray) -> list[Request]:
        """Return requests for examples at their fixed seeds."""
        if self.of_files:
            return [(i, 0) for i in indices.tolist()]
        return [(int(i), stream_seed(0, "examples", ALL_MEMBERS, int(i))) for i in indices]

    def in_batches(self, size: int) -> Iterator[Examples]:
        """Read raw inputs and targets of `size` examples at a time, in order, at their fixed seeds."""
        batches = (self.rows[first : first + size] for first in range(0, len(self), size))
        return self.source.read(map(self.requests, batches))

    def subset(self, rows: np.ndarray) -> "Streamed":
        """Select examples without reading them."""
        return replace(self, rows=self.rows[rows])

    def prepared(self, preparation: Preparation, apply: Any = None, encode: Any = None) -> "Streamed":
        """Prepare inputs and encode targets when they are read."""
        return replace(self, preparation=preparation, apply=apply or preparation.apply, encode=encode)

    def then(self, encode: Callable[[Tensor], Tensor]) -> "Streamed":
        """Apply a further encoding to targets when they are read."""
        before = self.encode  # None: targets are in memory
        return self if before is None else replace(self, encode=lambda y: encode(before(y)))

    def read(self, requests: Iterable[tuple[np.ndarray, np.ndarray]]) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Yield prepared inputs (B, ...) and encoded targets of batches, each given by its positions and seeds (B,).

        Targets are None for rows of files: they are in memory.
        """
        by_index = (list(zip(self.rows[places].tolist(), seeds.tolist(), strict=True)) for places, seeds in requests)
        for x, y in self.source.read(by_index):
            yield self.apply(x), None if self.encode is None else self.encode(y)

    def split(self, size: int) -> Iterator[Tensor]:
        """Yield prepared inputs of `size` examples at a time, in order."""
        yield from (self.apply(x) for x, _ in self.in_batches(size))

    def __getitem__(self, rows: Any) -> Tensor:
        """Read and prepare the inputs of these examples."""
        selected = self.subset(rows.numpy() if isinstance(rows, Tensor) else rows)
        return torch.cat(list(selected.split(self.chunk))) if len(selected) else self.apply(self.first)[:0]

    @property
    def chunk(self) -> int:
        """The number of examples to read at once: that of a loader, or `rows_at_once` of files."""
        return rows_at_once(self.shape) if self.of_files else self.source.batch_size or EXAMPLES_AT_ONCE

    @property
    def of_files(self) -> bool:
        """Whether the examples are rows of files."""
        return isinstance(self.source, RowSource)

    def sample(self, most: int) -> Tensor:
        """Read and prepare at most `most` examples, evenly spaced."""
        return self[np.linspace(0, len(self) - 1, min(most, len(self))).astype(np.int64)]

    # the caller's loader

    @property
    def own_sampler(self) -> Any:
        """The sampler of the caller's loader, unless it reads all examples in order or in random order."""
        sampler = self.source.sampler
        return None if isinstance(sampler, SequentialSampler) or is_shuffle(sampler) else sampler

    @property
    def in_order(self) -> bool:
        """Whether the caller's loader reads all examples in order."""
        return isinstance(self.source.sampler, SequentialSampler)

    def order(self, seed: int) -> Tensor:
        """Return the positions of an epoch's examples as the caller's sampler draws them from this seed."""
        sampler = copy.copy(self.own_sampler)
        if hasattr(sampler, "generator"):
            sampler.generator = torch.Generator().manual_seed(seed)
        if callable(set_epoch := getattr(sampler, "set_epoch", None)):  # as torch's DistributedSampler
            set_epoch(seed % 2**31)
        with all_kept():
            seed_generators(seed)
            return torch.tensor(list(sampler), dtype=torch.int64)


def streamed_rows(inputs: FileRows | FileTable) -> Streamed:
    """Wrap rows of files as streamed inputs, not yet prepared."""
    return Streamed(RowSource(inputs), np.arange(len(inputs)))


def is_shuffle(sampler: Any) -> bool:
    """Return whether a sampler is a random order of all examples (`shuffle=True` of a DataLoader), or of a subset."""
    if isinstance(sampler, RandomSampler):
        return not sampler.replacement and len(sampler) == len(sampler.data_source)
    return isinstance(sampler, SubsetRandomSampler)


def is_reordered(loader: DataLoader) -> bool:
    """Return whether a loader reads the examples of its dataset in another order than that of the dataset."""
    return not isinstance(loader.dataset, IterableDataset) and not isinstance(loader.sampler, SequentialSampler)


# opening


def is_streamable(source: Any) -> bool:
    """Return whether an object is a torch dataset or data loader, or two or three of them."""
    return isinstance(source, Dataset | DataLoader) or are_parts(source)


def are_parts(source: Any) -> bool:
    """Return whether an object is (train, val) or (train, val, test) of torch datasets or data loaders."""
    are_several = isinstance(source, tuple | list) and len(source) in (2, 3)
    return are_several and all(isinstance(part, Dataset | DataLoader) for part in source)


def load_stream(source: Any, options: LoadOptions) -> RawData:
    """Load a dataset or data loader, or (train, val[, test]) of them: read the targets once, stream the inputs.

    With the option `in_memory` the inputs are read too.
    """
    has_parts = isinstance(source, tuple | list)
    named = dict(zip(("train", "val", "test"), source, strict=False)) if has_parts else {"all": source}
    parts = {name: stream_part(dataset, options, name) for name, dataset in named.items()}
    for name, part in parts.items() if options.in_memory else ():
        x = part.inputs.whole()
        parts[name] = RawPart(x, part.targets) if isinstance(x, SeveralInputs) else checked_part(x, part.targets, "x")
    return RawData(parts)


def stream_part(dataset: Any, options: LoadOptions, name: str = "all") -> RawPart:
    """Open one dataset or loader as a part of a source; its targets, if needed, come from a pass over all examples."""
    source = probed(source_of(dataset, name))
    indices = source.sampler.indices if isinstance(source.sampler, SubsetRandomSampler) else range(len(source.dataset))
    inputs = Streamed(source, np.sort(np.asarray(indices, dtype=np.int64)))
    if not options.labelled:
        return RawPart(inputs)
    targets, digest = read_targets(inputs)
    return RawPart(replace(inputs, digest=digest), targets)


def source_of(loader: Any, name: str) -> Source:
    """Return the dataset and settings of a loader, or a dataset alone; refuse one that cannot be read by index."""
    dataset = loader.dataset if isinstance(loader, DataLoader) else loader
    kind = type(dataset).__name__
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise Misuse(f"{kind} is not a map-style data set, and members draw batches by index: add __getitem__, __len__")
    if not len(dataset):
        raise Misuse(f"{kind} is empty: expected pairs (x, y)")
    if not isinstance(loader, DataLoader):
        return Source(dataset)
    if loader.batch_size is None:
        raise Misuse("a DataLoader with a batch_sampler, or without batches: write batch_size= and sampler= instead")
    settings = {setting: getattr(loader, setting) for setting in WORKER_SETTINGS if loader.num_workers}
    settings |= {"collate_fn": loader.collate_fn}
    source = Source(dataset, settings, loader.batch_size, loader.sampler, loader.drop_last)
    if name in ("val", "test") and (loader.drop_last or Streamed(source, np.arange(1)).own_sampler is not None):
        raise Misuse(f"the DataLoader of {name} examples leaves some out: write it without sampler= and drop_last=")
    return source


def probed(source: Source) -> Source:
    """Read a few examples twice to find out whether reading draws random numbers, and whether it can be repeated."""
    indices = np.unique(np.linspace(0, len(source.dataset) - 1, PROBED_EXAMPLES).astype(np.int64))
    requests = Streamed(source, indices).requests(indices)
    draws, examples, seeded = False, [], Seeded(source.dataset)
    with all_kept():
        for request in requests:
            seed_generators(request[1])
            before = generator_states()
            examples.append([seeded[request]])
            draws = draws or not same_states(before, generator_states())
            examples[-1].append(seeded[request])
    try:
        collate = source.settings["collate_fn"]
        first, second = (source.parted(collate([pair[i] for pair in examples])) for i in (0, 1))
    except (TypeError, RuntimeError, ValueError) as error:
        if isinstance(error, Misuse):
            raise
        raise Misuse(f"{source.name} gives examples that do not form a batch: {first_line(error)}") from error
    repeatable = hash_inputs(hashlib.sha256(), first[0]).digest() == hash_inputs(hashlib.sha256(), second[0]).digest()
    if not repeatable:
        lost = "draws from a private random generator: runs on it cannot be repeated or resumed bit for bit"
        write = "draw from the global generators of torch, numpy or random, which are seeded for every example"
        warn(f"{source.name} {lost}; {write}")
    return replace(source, draws=draws or not repeatable, repeatable=repeatable)


def same_states(a: tuple, b: tuple) -> bool:
    """Return whether two states of the global generators are equal."""
    numpy = all(np.array_equal(x, y) for x, y in zip(a[1], b[1], strict=True))
    return a[0] == b[0] and numpy and torch.equal(a[2], b[2])


def read_targets(inputs: Streamed) -> tuple[np.ndarray, str]:
    """Read the targets (N, ...) of all examples, and compute a fingerprint of their inputs at fixed seeds."""
    source, targets, digest = inputs.source, [], hashlib.sha256()
    for x, y in inputs.in_batches(EXAMPLES_AT_ONCE):
        if y is None:
            named = isinstance(x, SeveralInputs) and not x.positional
            kind = f"dicts of {', '.join(x.arrays)}" if named else "inputs alone"
            raise Misuse(f"{source.name} gives {kind}: expected pairs (x, y), where x may be a dict")
        targets.append(y)
        if source.repeatable:
            hash_inputs(digest, x)
    return np.concatenate(targets), digest.hexdigest()


def as_given(inputs: Streamed, kind: str | None) -> Preparation:
    """Return the preparation that leaves a dataset's inputs unchanged, except that bytes of pixels become floats."""
    first = inputs.first

    def unchanged_array(values: np.ndarray) -> Any:
        pixels = values.dtype == np.uint8 and values.ndim > 2 and kind != "tokens"
        return unchanged(torch.from_numpy(values.astype(np.float32) if pixels else values))

    if isinstance(first, SeveralInputs):
        parts = tuple((name, unchanged_array(values)) for name, values in first.arrays.items())
        return SeveralPreparation(parts, first.positional)
    if kind != "images":
        return unchanged_array(first)
    if first.ndim != 4:
        raise Misuse(f"inputs='images' with examples of shape {first.shape[1:]}: expected (C, H, W)")
    zeros, ones = (0.0,) * first.shape[1], (1.0,) * first.shape[1]
    integers = first.dtype.kind in "iu"
    return ImagePreparation(first.shape[1:], 255.0 if integers else 1.0, zeros, ones, integers)
