"""Where the scores of all rows are kept between batches."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass

from protodask.data.arrays.array_store import ArrayStore, store_key
from protodask.data.arrays.plain_arrays import ArraySpec
from protodask.data.places.locations import is_url, locate, storage_errors
from protodask.engine import Arrays, Engine, Source, array_source
from protodask.prototypes.candidates import SCORES


@dataclass(frozen=True)
class MemoryScores:
    """Keeps them in the memory of this process: rows x classes x 8 bytes."""

    def keep(self, engine: Engine, source: Source, function: Callable[..., Arrays], *args: object) -> Source:
        arrays = engine.collect(source, function, *args, label="score")
        return array_source(arrays, source.layout.block_rows)

    def clear(self) -> None:
        """The source is all there was."""


@dataclass(frozen=True)
class StoredScores:
    """Keeps them in a Zarr store inside `folder`, one at a time."""

    folder: str
    n_classes: int

    def keep(self, engine: Engine, source: Source, function: Callable[..., Arrays], *args: object) -> Source:
        key = store_key()
        where = locate(os.path.join(self.folder, f"scores-{key}.zarr"))
        store = ArrayStore(where, source.layout, (ArraySpec(SCORES, "float64", self.n_classes),), key)
        with storage_errors(where, "writing"):
            store.create()
        engine.map(source, function, *args, sink=store, label="score")
        self._remove_others(where)
        return store

    def clear(self) -> None:
        self._remove_others(None)

    def _remove_others(self, kept: str | None) -> None:
        if is_url(self.folder) or not os.path.isdir(self.folder):
            return
        for name in os.listdir(self.folder):
            path = os.path.join(self.folder, name)
            if name.startswith("scores-") and path != kept:
                shutil.rmtree(path, ignore_errors=True)


ScoreKeeper = MemoryScores | StoredScores
"""Keeps the unscaled probabilities of all rows between batches: in memory, or in a store the workers can reach.

`keep` maps `function(block, *args)` over `source` and returns the result as a source, `clear` lets go of what is kept.
"""


def fresh_scores(folder: str, n_classes: int) -> StoredScores:
    """A keeper inside a folder, which is made, and emptied of what a process that was killed has left."""
    with storage_errors(folder, "writing"):
        os.makedirs(folder, exist_ok=True)
    keeper = StoredScores(folder, n_classes)
    keeper.clear()
    return keeper
