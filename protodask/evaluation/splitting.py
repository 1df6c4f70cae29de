"""Dividing a dataset into rows to train on and rows held out, so that a row stays where it is when the dataset grows.

A row is held out where a draw that is keyed by its number, or by its group where the dataset has groups, is below the
share. Neither changes when rows are appended, so the parts of the longer dataset begin with those of the shorter one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.arrays.keyed import stream_key
from protodask.data.arrays.rows import BlockNumbers
from protodask.data.format.dataset import Dataset
from protodask.data.format.schema import GROUP
from protodask.data.places.locations import locate
from protodask.data.places.locks import sweep
from protodask.data.places.storage import check_free, check_outside, is_taken
from protodask.engine import Block, Engine, EngineLike, Reduction, identity, open_engine
from protodask.engine.records import Integers
from protodask.errors import InputError, ProtodaskError, count
from protodask.evaluation.chosen_rows import choose_rows, slabs, uniform_draws, write_chosen
from protodask.evaluation.interval import is_real
from protodask.evaluation.subsampling import checked_seed

_ROWS = 0x73706C72
_GROUPS = 0x73706C67
"""What tells the draws here from others of the same seed."""


@dataclass(frozen=True)
class Part:
    """One of the two parts: the rows with a draw below the share, or the others."""

    share: float
    seed: int
    held_out: bool
    by_group: bool

    def __call__(self, block: Block) -> NDArray[np.bool_]:
        """Whether each row of a block is in this part (n,)."""
        return self.of(block[GROUP.name] if self.by_group else block.rows)

    def of(self, numbers: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
        """The same, of the numbers of the rows or the codes of their groups."""
        key = stream_key(self.seed, _GROUPS if self.by_group else _ROWS)
        found = np.empty(len(numbers), dtype=np.bool_)
        for part in slabs(len(numbers)):
            found[part] = (uniform_draws(key, numbers[part]) < self.share) == self.held_out
        return found

    def inclusion(self, block: Block) -> None:
        """Rows stand for themselves, or for what they stood for before."""


def check_split(share: object, seed: object, out: str, held_out: str) -> None:
    """Refuse what cannot work whatever the dataset."""
    if not (is_real(share) and 0 < share < 1):
        raise InputError(
            "bad-setting", f"The share is {share!r}.", "Give the share of the rows to hold out, between 0 and 1."
        )
    checked_seed(seed)
    places = sorted((f"{locate(out)}/", f"{locate(held_out)}/"))
    if places[1].startswith(places[0]):
        raise InputError(
            "places-overlap",
            "Both parts are to be written to one place, or one into the other.",
            "Choose two places.",
        )


def split(
    dataset: Dataset,
    out: str | os.PathLike[str],
    held_out: str | os.PathLike[str],
    *,
    share: float = 0.2,
    seed: int = 0,
    engine: EngineLike = None,
    overwrite: bool = False,
) -> tuple[Dataset, Dataset]:
    """Write the rows to train on to `out` and about a `share` of all rows to `held_out`, each in its order.

    All rows of a group go to one part. The draw depends on the seed and the number of the row, or the code of its
    group: when the dataset grows, rows stay in the part they were in, and a row that is held out at a share is held out
    at every larger one. To divide a part once more, use another seed.

    The parts are written one after the other, the one held out first. A part that lies at its place as it is to be is
    left, so what a process that was killed in between left undone, a repetition completes. A pass over the dataset for
    each part, and one before if there are groups.
    """
    where, other = locate(out), locate(held_out)
    check_split(share, seed, where, other)
    seed, share = checked_seed(seed), float(share)
    for place in (where, other):
        check_outside(place, dataset.path, may_replace=False)
    with open_engine(engine) as opened:
        aside = Part(share, seed, True, dataset.has_group)
        numbers = BlockNumbers(dataset.layout)
        counted = opened.reduce(numbers, COUNT, opened.share(dataset), opened.share(aside), label="drawing rows")
        counts = np.array(counted)
        bounds = [dataset.layout.bounds(number) for number in range(dataset.layout.n_blocks)]
        rows = np.array([stop - start for start, stop in bounds])
        taken = int(counts.sum())
        if not 0 < taken < dataset.n_rows:
            unit = "group" if dataset.has_group else "row"
            raise InputError(
                "too-few",
                f"Of {count(dataset.n_rows, 'row')}, {'none' if taken == 0 else 'all'} would be held out.",
                f"Give another share or seed, or more rows: each {unit} is drawn by itself.",
            )
        rest = replace(aside, held_out=False)
        write_aside = _prepared(dataset, aside, counts, other, opened, overwrite)
        write_rest = _prepared(dataset, rest, rows - counts, where, opened, overwrite)
        kept = write_aside()
        return write_rest(), kept


def _prepared(
    dataset: Dataset, part: Part, counts: Integers, where: str, engine: Engine, overwrite: bool
) -> Callable[[], Dataset]:
    """Puts a part, with so many rows of each block, in its place, unless it is there.

    A place that is taken by something else is refused at once.
    """
    chosen, note = choose_rows(dataset, part, counts), _note(dataset, part)
    found = _same(where, note, chosen.layout.n_rows, dataset)
    if found is not None:
        sweep(where)  # who wrote it may have been killed just after
        return lambda: found
    check_free(where, overwrite)
    return lambda: write_chosen(chosen, where, note, engine, overwrite)


def _same(where: str, note: str, rows: int, dataset: Dataset) -> Dataset | None:
    """The dataset at a place, if it is the part with this note."""
    try:
        found = Dataset.open(where) if is_taken(where) else None
    except ProtodaskError:  # something else, which may not be overwritten
        return None
    if found is None or note not in found.metadata.notes:
        return None
    same = (found.n_rows, found.columns, found.classes) == (rows, dataset.columns, dataset.classes)
    return found if same else None


def _note(dataset: Dataset, part: Part) -> str:
    what = "Rows held out" if part.held_out else "Rows to train on"
    unit = "groups" if part.by_group else "rows"
    how = f"by {unit}, share {part.share!r}, seed {part.seed}"
    return f"{what} of {dataset.n_rows} of the dataset {dataset.key}: {how}."


def _count_block(number: Block, dataset: Dataset, part: Part) -> tuple[int, ...]:
    start, stop = dataset.layout.bounds(number.number)
    chosen = part(dataset.read(number.number)) if part.by_group else part.of(np.arange(start, stop))
    return (int(np.count_nonzero(chosen)),)


COUNT: Reduction[tuple[int, ...], tuple[int, ...]] = Reduction(_count_block, add, identity)
"""Rows of a part in each block, in whose order the tree merges; the dataset is read for its groups alone."""
