"""Examples that are read when they are needed: torch datasets, data loaders and rows of files, never whole in memory.

Every example of a torch dataset is read with Python's, numpy's and torch's global generators at a seed of its own, so
that random augmentation follows from the run's seed, the member, the epoch and the place in it, in any number of worker
processes. Rows of files are read as they are.
"""

import copy
import hashlib
import math
import random
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, SequentialSampler, SubsetRandomSampler
from torch.utils.data.dataloader import default_collate

from murmuration.data.arrays import checked_part
from murmuration.data.file_rows import FileRows
from murmuration.data.parquet import FileTable
from murmuration.data.preparation import ImagePreparation, Preparation, SeveralPreparation, unchanged
from murmuration.data.raw import LoadOptions, RawData, RawPart, SeveralInputs, as_array, hash_array, several_inputs
from murmuration.system.errors import Misuse, first_line
from murmuration.system.streams import ALL_MEMBERS, stream_seed

PROBED = 8  # examples that are read twice before training, to find out whether reading draws random numbers
CHUNK = 64  # examples read at once where no loader says otherwise
CHUNK_VALUES, MOST_ROWS = 2**24, 4096  # of prepared rows that are predicted at once

READING = threading.Lock()  # global generators belong to the process, so one thread reads at a time
Request = tuple[int, int]  # the index of an example and the seed it is read with
Examples = tuple[Any, np.ndarray | None]  # inputs (B, ...), or several of them, and targets (B, ...)


class NotInMemory(Misuse, AttributeError):  # noqa: N818  # a Misuse, as all that users see
    """A tensor's method asked of inputs that are read when they are needed."""


@dataclass(frozen=True, eq=False)
class Source:
    """A map-style dataset, how its examples become batches, and the settings of the caller's loader."""

    dataset: Any
    collate: Callable[[list], Any] = default_collate
    workers: int = 0
    options: tuple[tuple[str, Any], ...] = ()  # further arguments of a DataLoader
    batch_size: int | None = None  # of the caller's loader; None: a dataset alone
    sampler: Any = None  # the same
    drop_last: bool = False
    draws: bool = False  # whether reading an example draws random numbers
    repeatable: bool = True  # whether the same seed gives the same example

    def read(self, requests: Iterable[list[Request]]) -> Iterator[Examples]:
        """The examples of each list of requests as one batch; worker processes read ahead."""
        loader: DataLoader = DataLoader(
            Seeded(self.dataset),
            batch_sampler=requests,  # any iterable will do
            num_workers=self.workers,
            collate_fn=self.collate,
            generator=torch.Generator(),  # or torch's global one would be drawn from
            **(dict(self.options) if self.workers else {}),
        )
        batches = iter(loader)
        while True:
            with READING, kept_generators():
                batch = next(batches, None)
            if batch is None:
                return
            yield self.parted(batch)

    def parted(self, batch: Any) -> Examples:
        """A collated batch as inputs and targets."""
        if not isinstance(batch, tuple | list):
            return as_inputs(batch), None
        if len(batch) != 2:
            raise Misuse(f"{self.name} gives {len(batch)} values an example: expected pairs (x, y)")
        return as_inputs(batch[0]), as_array(batch[1])

    @property
    def name(self) -> str:
        return type(self.dataset).__name__


@dataclass(frozen=True, eq=False)
class RowSource:
    """Rows of files as a source of examples: the inputs alone, whose targets are in memory; no random numbers."""

    inputs: FileRows | FileTable
    batch_size: ClassVar[None] = None
    sampler: ClassVar[None] = None
    drop_last: ClassVar[bool] = False
    draws: ClassVar[bool] = False
    repeatable: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return "files"

    def read(self, requests: Iterable[list[Request]]) -> Iterator[Examples]:
        """The inputs at the places of each list of requests."""
        places = (self.inputs.places[[place for place, _ in each]] for each in requests)
        batches = map(self.inputs.read, places) if isinstance(self.inputs, FileTable) else self.inputs.batches(places)
        yield from ((x, None) for x in batches)

    def read_here(self, places: np.ndarray) -> Any:
        """The inputs at places, read by this process."""
        return self.inputs.read(self.inputs.places[places])


def rows_at_once(shape: Sequence[int]) -> int:
    """The number of prepared inputs (N, ...) that are read and predicted at once: a power of 2, at most 64 MB.

    >>> rows_at_once((10**6, 20)), rows_at_once((10**6, 3, 64, 64))
    (4096, 1024)
    """
    fitting = CHUNK_VALUES // max(1, math.prod(shape[1:]))
    return max(1, min(MOST_ROWS, 1 << max(0, fitting.bit_length() - 1)))


class Seeded(Dataset):
    """A dataset whose example (index, seed) is read with all global generators at that seed."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __getitem__(self, request: Request) -> Any:
        index, seed = request
        seed_generators(seed)
        return self.dataset[index]


def seed_generators(seed: int) -> None:
    """Set Python's, numpy's and torch's global generators; not torch.manual_seed, which also queues accelerators."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  # the global generator, which a dataset may draw from
    torch.default_generator.manual_seed(seed)


def generator_states() -> tuple:
    return random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002


@contextmanager
def kept_generators() -> Iterator[None]:
    """A block after which the global generators are as they were before."""
    python, numpy, tensor = generator_states()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        torch.set_rng_state(tensor)


def as_inputs(x: Any) -> Any:
    """The inputs of a collated batch: an array (B, ...), or several of them."""
    if isinstance(x, dict | list | tuple):
        found = several_inputs(x if isinstance(x, dict) else tuple(x))
        return as_array(next(iter(x.values())) if isinstance(x, dict) else x[0]) if found is None else found
    return as_array(x)


@dataclass(frozen=True, eq=False, repr=False)
class Streamed:
    """Inputs (N, ...) of a dataset, read whenever some of them are asked for: `x[rows]`, `x.split(size)`.

    It stands where inputs in memory would be a tensor. Such reads have a fixed seed for every example, so that they
    give the same values each time; `read` takes other seeds.
    """

    source: Source | RowSource
    rows: np.ndarray  # (N,) indices of the dataset
    preparation: Preparation | None = None  # None: before one is chosen
    digest: str = ""  # of all inputs as read with their fixed seeds
    apply: Callable[[Any], Tensor] | None = None  # raw inputs of a batch -> prepared ones
    encode: Callable[[np.ndarray], Tensor] | None = None  # targets as the dataset gives them -> as the loss takes them

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"Streamed({len(self):,} examples of {self.source.name})"

    def __getattr__(self, name: str) -> Any:
        raise NotInMemory(
            f"'{name}' of examples that are read when needed: this takes all of them in memory; write"
            " mm.open_data(dataset, in_memory=True)"
        )

    @property
    def shape(self) -> tuple[int, ...]:
        assert self.apply is not None
        return (len(self), *self.apply(self.first).shape[1:])

    @cached_property
    def first(self) -> Any:
        """The raw inputs of one example, (1, ...)."""
        index = self.rows[:1] if len(self) else np.zeros(1, dtype=np.int64)
        if isinstance(self.source, RowSource):
            return self.source.read_here(index)
        return next(replace(self.source, workers=0).read([self.requests(index)]))[0]

    def whole(self) -> Any:
        """The raw inputs of all examples of a dataset in memory, (N, ...) or several of them."""
        parts = (self.rows[first : first + CHUNK] for first in range(0, len(self), CHUNK))
        found = [x for x, _ in self.source.read(self.requests(part) for part in parts)]
        if not isinstance(found[0], SeveralInputs):
            return np.concatenate(found)
        names = found[0].arrays
        joined = {name: np.concatenate([part.arrays[name] for part in found]) for name in names}
        return SeveralInputs(joined, found[0].positional)

    def requests(self, indices: np.ndarray) -> list[Request]:
        """Requests for examples at their fixed seeds."""
        if isinstance(self.source, RowSource):
            return [(i, 0) for i in indices.tolist()]
        return [(int(i), stream_seed(0, "examples", ALL_MEMBERS, int(i))) for i in indices]

    def subset(self, rows: np.ndarray) -> "Streamed":
        """Some of the examples, still to be read."""
        return replace(self, rows=self.rows[rows])

    def prepared(
        self,
        preparation: Preparation,
        apply: Callable[[Any], Tensor] | None = None,
        encode: Callable[[np.ndarray], Tensor] | None = None,
    ) -> "Streamed":
        """The same examples prepared, with targets encoded."""
        return replace(self, preparation=preparation, apply=apply or preparation.apply, encode=encode)

    def then(self, encode: Callable[[Tensor], Tensor]) -> "Streamed":
        """The same examples with targets encoded further."""
        before = self.encode
        if before is None:  # targets are in memory
            return self
        return replace(self, encode=lambda y: encode(before(y)))

    def read(self, requests: Iterable[tuple[np.ndarray, np.ndarray]]) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Prepared inputs (B, ...) and encoded targets of batches, each given by its places and seeds (B,).

        Targets are None for rows of files: they are in memory.
        """
        assert self.apply is not None
        asked = (list(zip(self.rows[places].tolist(), seeds.tolist(), strict=True)) for places, seeds in requests)
        for x, y in self.source.read(asked):
            yield self.apply(x), None if self.encode is None else self.encode(y)  # type: ignore[arg-type]

    def split(self, size: int) -> Iterator[Tensor]:
        """Prepared inputs of so many examples at a time, in order."""
        assert self.apply is not None
        parts = (self.rows[first : first + size] for first in range(0, len(self), size))
        yield from (self.apply(x) for x, _ in self.source.read(self.requests(part) for part in parts))

    def __getitem__(self, rows: Any) -> Tensor:
        """Prepared inputs of some examples, in memory."""
        chosen = self.subset(rows.numpy() if isinstance(rows, Tensor) else rows)
        if not len(chosen):
            assert self.apply is not None
            return self.apply(self.first)[:0]
        return torch.cat(list(chosen.split(self.chunk)))

    @property
    def chunk(self) -> int:
        """The number of examples to read at once: that of a loader, or `rows_at_once` of files."""
        if not isinstance(self.source, RowSource):
            return self.source.batch_size or CHUNK
        return rows_at_once(self.shape)

    @property
    def of_files(self) -> bool:
        """Whether the examples are rows of files."""
        return isinstance(self.source, RowSource)

    def sample(self, most: int) -> Tensor:
        """Prepared inputs of at most so many examples, evenly spaced, in memory."""
        return self[np.linspace(0, len(self) - 1, min(most, len(self))).astype(np.int64)]

    # the caller's loader

    @property
    def draws_per_epoch(self) -> int:
        """The number of examples in an epoch: all, or as many as the sampler of the caller's loader draws."""
        return len(self) if self.own_sampler is None else len(self.own_sampler)

    @property
    def own_sampler(self) -> Any:
        """A sampler of the caller's that is neither in order nor a random order of all examples."""
        given = self.source.sampler
        return None if given is None or isinstance(given, SequentialSampler) or is_shuffle(given) else given

    @property
    def in_order(self) -> bool:
        """Whether the caller's loader reads all examples in order."""
        return isinstance(self.source.sampler, SequentialSampler)

    def order(self, seed: int) -> Tensor:
        """The places of an epoch's examples as the caller's own sampler draws them from this seed."""
        sampler = copy.copy(self.own_sampler)
        if hasattr(sampler, "generator"):
            sampler.generator = torch.Generator().manual_seed(seed)
        if callable(set_epoch := getattr(sampler, "set_epoch", None)):  # as torch's DistributedSampler
            set_epoch(seed % 2**31)
        with kept_generators():
            seed_generators(seed)
            return torch.tensor(list(sampler), dtype=torch.int64)


def streamed_rows(inputs: FileRows | FileTable) -> Streamed:
    """Rows of files as inputs that are read when they are needed, not yet prepared."""
    return Streamed(RowSource(inputs), np.arange(len(inputs)))


def is_shuffle(sampler: Any) -> bool:
    """Whether a sampler is a random order of all examples, `shuffle=True` of a DataLoader, or of a subset of them."""
    if isinstance(sampler, SubsetRandomSampler):
        return True
    return isinstance(sampler, RandomSampler) and not sampler.replacement and len(sampler) == len(sampler.data_source)


def is_reordered(loader: DataLoader) -> bool:
    """Whether a loader reads the examples of its dataset in another order than theirs."""
    return not isinstance(loader.dataset, IterableDataset) and not isinstance(loader.sampler, SequentialSampler)


# opening


def is_streamable(source: Any) -> bool:
    """Whether an object is a torch dataset or data loader, or two or three of them."""
    return isinstance(source, Dataset | DataLoader) or are_parts(source)


def are_parts(source: Any) -> bool:
    """Whether an object is (train, val) or (train, val, test) of torch datasets or data loaders."""
    if not isinstance(source, tuple | list) or len(source) not in (2, 3):
        return False
    return all(isinstance(each, Dataset | DataLoader) for each in source)


def load_stream(source: Any, options: LoadOptions) -> RawData:
    """A dataset or data loader, or (train, val[, test]) of them: inputs stay where they are, targets are read once.

    With the option `in_memory` the inputs are read too, once for all.
    """
    several = isinstance(source, tuple | list)
    named = dict(zip(("train", "val", "test"), source, strict=False)) if several else {"all": source}
    parts = {name: stream_part(each, options, name) for name, each in named.items()}
    if not options.in_memory:
        return RawData(parts)
    return RawData({name: in_memory(part) for name, part in parts.items()})


def in_memory(part: RawPart) -> RawPart:
    """A part with its inputs in memory."""
    inputs = part.inputs.whole()
    return (
        replace(part, inputs=inputs) if isinstance(inputs, SeveralInputs) else checked_part(inputs, part.targets, "x")
    )


def stream_part(given: Any, options: LoadOptions, name: str = "all") -> RawPart:
    """One dataset or loader as a part of a source; targets, if they are wanted, from one pass over all examples."""
    source = probed(source_of(given, name))
    chosen = source.sampler.indices if isinstance(source.sampler, SubsetRandomSampler) else range(len(source.dataset))
    inputs = Streamed(source, np.sort(np.asarray(chosen, dtype=np.int64)))
    if not options.labelled:
        return RawPart(inputs)
    targets, digest = read_targets(inputs)
    return RawPart(replace(inputs, digest=digest), targets)


def source_of(given: Any, name: str) -> Source:
    """The dataset and settings of a loader, or a dataset alone; refuses what cannot be read by index."""
    dataset = given.dataset if isinstance(given, DataLoader) else given
    kind = type(dataset).__name__
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise Misuse(f"{kind} is no map-style data set: members draw batches by index; give it __getitem__ and __len__")
    if not len(dataset):
        raise Misuse(f"{kind} is empty: expected pairs (x, y)")
    if not isinstance(given, DataLoader):
        return Source(dataset)
    if given.batch_size is None:
        raise Misuse("a DataLoader with a batch_sampler, or without batches: write batch_size= and sampler= instead")
    names = ("worker_init_fn", "timeout", "multiprocessing_context", "prefetch_factor")
    settings = tuple((each, getattr(given, each)) for each in names)
    made = Source(
        dataset, given.collate_fn, given.num_workers, settings, given.batch_size, given.sampler, given.drop_last
    )
    if name in ("val", "test") and (given.drop_last or Streamed(made, np.arange(1)).own_sampler is not None):
        raise Misuse(f"the DataLoader of {name} examples leaves some out: write it without sampler= and drop_last=")
    return made


def probed(source: Source) -> Source:
    """The source with what a few of its examples say: whether reading draws random numbers, and can be repeated."""
    places = np.unique(np.linspace(0, len(source.dataset) - 1, PROBED).astype(np.int64))
    requests = Streamed(source, places).requests(places)
    draws, seen, seeded = False, [], Seeded(source.dataset)
    with kept_generators():
        for request in requests:
            seed_generators(request[1])
            before = generator_states()
            seen.append([seeded[request]])
            draws = draws or not same_states(before, generator_states())
            seen[-1].append(seeded[request])
    try:
        first, again = (source.parted(source.collate([pair[i] for pair in seen])) for i in (0, 1))
    except (TypeError, RuntimeError, ValueError) as error:
        if isinstance(error, Misuse):
            raise
        raise Misuse(f"{source.name} gives examples that do not form a batch: {first_line(error)}") from error
    repeatable = hash_inputs(first[0]).digest() == hash_inputs(again[0]).digest()
    if not repeatable:
        warnings.warn(
            f"{source.name} draws from a random generator of its own: runs on it cannot be repeated or resumed bit for"
            " bit; draw from the global generators of torch, numpy or random, which are seeded for every example",
            stacklevel=2,
        )
    return replace(source, draws=draws or not repeatable, repeatable=repeatable)


def same_states(a: tuple, b: tuple) -> bool:
    """Whether two states of the global generators are equal."""
    numpy = all(np.array_equal(x, y) for x, y in zip(a[1], b[1], strict=True))
    return a[0] == b[0] and numpy and torch.equal(a[2], b[2])


def hash_inputs(x: Any, digest: Any = None) -> Any:
    """A sha256 with the inputs of a batch added."""
    digest = digest or hashlib.sha256()
    for array in x.arrays.values() if isinstance(x, SeveralInputs) else (x,):
        hash_array(digest, array)
    return digest


def read_targets(inputs: Streamed) -> tuple[np.ndarray, str]:
    """The targets (N, ...) of all examples, and a fingerprint of their inputs as read with fixed seeds."""
    source, found, digest = inputs.source, [], hashlib.sha256()
    parts = (inputs.rows[first : first + CHUNK] for first in range(0, len(inputs), CHUNK))
    for x, y in source.read(inputs.requests(part) for part in parts):
        if y is None:
            raise Misuse(f"{source.name} gives inputs alone: expected pairs (x, y)")
        found.append(y)
        if source.repeatable:
            hash_inputs(x, digest)
    return np.concatenate(found), digest.hexdigest()


def as_given(inputs: Streamed, kind: str | None) -> Preparation:
    """The preparation that takes a dataset's inputs as they are; pixels in bytes become floating-point numbers."""
    first = inputs.first

    def one(values: np.ndarray) -> Any:
        pixels = values.dtype == np.uint8 and values.ndim > 2 and kind != "tokens"
        return unchanged(torch.from_numpy(values.astype(np.float32) if pixels else values))

    if isinstance(first, SeveralInputs):
        return SeveralPreparation(tuple((name, one(v)) for name, v in first.arrays.items()), first.positional)
    if kind != "images":
        return one(first)
    if first.ndim != 4:
        raise Misuse(f"inputs='images' with examples of shape {first.shape[1:]}: expected (C, H, W)")
    channels, height, width = first.shape[1:]
    integers = first.dtype.kind in "iu"
    peak, plain = 255.0 if integers else 1.0, ((0.0,) * channels, (1.0,) * channels)
    return ImagePreparation((channels, height, width), peak, *plain, integers)
