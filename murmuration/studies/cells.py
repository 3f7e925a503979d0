"""Results of a long computation in pieces, kept in a folder so that a killed one can continue."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murmuration.system.files import read_json, write_bytes, write_json
from murmuration.system.records import plain_json

Arrays = dict[str, NDArray[Any]]
ABOUT = "about.json"


class Cells:
    """Named arrays by key. Those in the folder are read, all others computed and written whole or not at all.

    `about` says what the computation depends on (settings, digests of weights); a folder made with another `about` is
    begun anew. Without a folder nothing is kept.
    """

    def __init__(self, folder: Path | None, about: dict[str, Any]) -> None:
        self.folder = folder
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / ABOUT).exists() or read_json(folder / ABOUT) != plain_json(about):
            for stale in folder.glob("*.npz"):
                stale.unlink()
            write_json(folder / ABOUT, plain_json(about))

    def __call__(self, key: str, compute: Callable[[], Arrays]) -> Arrays:
        """Return the arrays of a cell; `key` is a file name without an ending."""
        if self.folder is None:
            return compute()
        file = self.folder / f"{key}.npz"
        try:
            with np.load(file, allow_pickle=False) as stored:
                return dict(stored)
        except (OSError, ValueError, zipfile.BadZipFile):  # not there, or damaged
            pass
        computed = compute()
        content = io.BytesIO()
        np.savez(content, **computed)  # type: ignore[arg-type]
        write_bytes(file, content.getvalue())
        return computed

    def missing(self, keys: list[str]) -> list[str]:
        """Return the keys that are still to be computed."""
        return keys if self.folder is None else [key for key in keys if not (self.folder / f"{key}.npz").exists()]
