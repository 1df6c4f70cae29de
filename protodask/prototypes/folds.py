"""Folds: which rows are held out together, decided by the number of a row or of its group and by nothing else.

`N` rows, `K` classes, `F` folds, `G` groups. Rows of weight zero do not count: they have some fold or other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.arrays.keyed import keyed_draws, mix, stream_key
from protodask.data.format.schema import GROUP, INCLUSION, TARGET, WEIGHT, Label, row_weights
from protodask.engine import ArraySource, Block, Engine, Reduction, Source, identity, zip_sources
from protodask.engine.records import Integers
from protodask.engine.sources import DerivedSource, ViewedSource, leaves
from protodask.errors import InputError, count
from protodask.prototypes.candidates import more_rows, smallest_class

FOLD = "fold"
"""Name of the fold of each row, int8 (N,), in a block of a folded source."""

MAX_FOLDS = 100
"""More would be little else than leaving single rows out, at the price of a fit each; int8 holds up to 127."""

Folds = NDArray[np.int8]

_ROW_STREAM = 0x666F6C64
_GROUP_STREAM = 0x67726F75
"""What tells the draws here from those of candidates that have the same seed."""


@dataclass(frozen=True, eq=False)
class RowFolds:
    """Folds that share out every class evenly, to a row.

    The rows of a class are numbered in their order, `r = 0, 1, ...`; each run of `F` consecutive numbers gets a
    permutation of the folds, drawn for (seed, class, r // F). So the folds of a class differ by one row at most, they
    are the same however the rows are cut into blocks, and rows that are appended leave those of the others alone.
    """

    n_folds: int
    seed: int
    ranks: Integers = field(repr=False)
    """Rows of each class before each block, and in the last line all of them (blocks + 1, K)."""

    @cached_property
    def key(self) -> str:
        return _digest(f"rows:{self.n_folds}:{self.seed % 2**64}:{self.ranks.shape}", self.ranks)

    @property
    def class_rows(self) -> Integers:
        whole, rest = np.divmod(self.ranks[-1], self.n_folds)
        last = self._permutations(np.arange(len(whole)), whole)
        begun = np.arange(self.n_folds) < rest[:, None]
        extra = np.zeros((len(whole), self.n_folds), dtype=np.int64)
        np.put_along_axis(extra, last, begun.astype(np.int64), axis=1)
        rows: Integers = (whole[:, None] + extra).T
        return rows

    def folds(self, block: Block) -> Folds:
        target = block[TARGET.name]
        counted = _counted(block)
        if counted is None:
            return self._of_classes(target, block.number)
        found = np.zeros(len(target), dtype=np.int8)
        found[counted] = self._of_classes(target[counted], block.number)
        return found

    def _of_classes(self, target: NDArray[np.integer], number: int) -> Folds:
        n_classes, width = self.ranks.shape[1], self.n_folds
        first = self.ranks[number]
        counts = np.bincount(target, minlength=n_classes)
        # All runs that the block touches, class by class: one row of `permutations` each.
        begin = first // width
        runs = np.where(counts > 0, -(-(first + counts) // width) - begin, 0)
        before = np.cumsum(runs) - runs
        classes = np.repeat(np.arange(n_classes), runs)
        permutations = self._permutations(classes, np.arange(len(classes)) + (begin - before)[classes])
        # Sorted by class, the rows of a class stand next to each other in the permutations as well.
        order = np.argsort(target.astype(np.uint16) if n_classes <= 2**16 else target, kind="stable")
        offset = before * width + first % width - (np.cumsum(counts) - counts)
        found = np.empty(len(target), dtype=np.int8)
        found[order] = permutations.reshape(-1)[np.arange(len(target)) + np.repeat(offset, counts)]
        return found

    def _permutations(self, classes: Integers, runs: Integers) -> Integers:
        """The permutation of the folds for each pair of a class and the number of a run (n, F)."""
        key = stream_key(self.seed, _ROW_STREAM, np.arange(self.ranks.shape[1]))[classes]
        draws = keyed_draws(key[:, None], runs[:, None] * self.n_folds + np.arange(self.n_folds))
        return np.argsort(draws, axis=1)


@dataclass(frozen=True, eq=False)
class GroupFolds:
    """Folds that keep the rows of a group together, and the shares of the classes as even as that allows."""

    n_folds: int
    seed: int
    bits: int
    """Leading bits of a group's hash that tell groups apart: all 64, fewer where there are very many groups."""
    groups: NDArray[np.uint64] = field(repr=False)
    """The hashes, ascending (G,)."""
    fold_of_group: Folds = field(repr=False)
    class_rows: Integers = field(repr=False)

    @cached_property
    def key(self) -> str:
        head = f"groups:{self.n_folds}:{self.seed % 2**64}:{self.bits}:{len(self.groups)}"
        return _digest(head, self.groups, self.fold_of_group)

    def folds(self, block: Block) -> Folds:
        wanted = _shortened(_hashes(block), self.bits)
        place = np.minimum(np.searchsorted(self.groups, wanted), len(self.groups) - 1)
        # A group whose rows all have weight zero was not counted, and is in none.
        return np.where(self.groups[place] == wanted, self.fold_of_group[place], np.int8(0))


FoldAssignment = RowFolds | GroupFolds
"""The fold of every row of a source, 0 to `F - 1`; small to pickle.

`class_rows` are the rows of positive weight of each class in each fold (F, K), `key` is a digest of all that it depends
on besides the rows themselves, and `folds` gives the fold of each row of a block of that source.
"""


def _digest(head: str, *arrays: NDArray[np.generic]) -> str:
    digest = hashlib.blake2b(head.encode(), digest_size=16)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _counted(block: Block) -> NDArray[np.bool_] | None:
    """Which rows have a positive weight, or None if all do."""
    weights = row_weights(block)
    return None if weights is None or (weights > 0).all() else weights > 0


def make_folds(
    engine: Engine,
    source: Source,
    n_classes: int,
    n_folds: int = 5,
    seed: int = 0,
    grouped: bool = False,
    classes: Sequence[Label] | None = None,
    few: bool = False,
) -> FoldAssignment:
    """Assign the rows of a source of targets to folds, in one pass; `classes` are the names for errors.

    Classes of which some fold would have no row are refused unless there may be `few`.
    With `grouped`, by the array "group" of the source: the pass holds the counts by class of at most 16,384 groups
    and 32 MiB; of more groups, those whose hashes begin alike count as one, so that they share a fold.
    """
    given: Any = n_folds
    if not isinstance(given, int | np.integer) or not 2 <= given <= MAX_FOLDS:
        raise InputError("bad-setting", f"There would be {given!r} folds.", f"Give a number from 2 to {MAX_FOLDS}.")
    if source.layout.n_rows == 0:
        raise InputError("no-rows", "There are no rows to share out.", "Give data with rows.")
    names = list(range(n_classes)) if classes is None else list(classes)
    if grouped:
        if GROUP.name not in source.read(0):
            raise InputError(
                "column-missing",
                "The data do not say which rows belong together.",
                "Ingest them with `group` and the name of the column that does, or fold by rows.",
            )
        counts = engine.reduce(source, _COUNT_GROUPS, n_classes, label="groups")
        if not few:
            _require_classes((counts.rows > 0).sum(axis=0), n_folds, names, "group")
        dealt = _deal(counts, n_folds, seed)
        if not few and len(lacking := np.argwhere(dealt.class_rows == 0)):
            fold, code = lacking[0].tolist()
            raise InputError(
                "too-few",
                f"Groups kept together, fold {fold + 1} of {n_folds} would have no row of class {names[code]!r}.",
                "Ask for fewer folds, try another seed, or merge or drop the class.",
            )
        return dealt
    by_block = engine.reduce(source, _COUNT_CLASSES, n_classes, label="folds")
    ranks = np.zeros((len(by_block) + 1, n_classes), dtype=np.int64)
    np.cumsum(by_block, axis=0, out=ranks[1:])
    if not few:
        _require_classes(ranks[-1], n_folds, names, "row")
    return RowFolds(n_folds, seed, ranks)


def check_training_parts(assignment: FoldAssignment, classes: Sequence[Label], max_fraction: float) -> None:
    """Refuse folds that leave too few rows of a class to train on when one of them is held out.

    Training needs `smallest_class(max_fraction)` rows of positive weight of each class.
    """
    rows = assignment.class_rows
    amounts = rows.sum(axis=0)
    training = (amounts - rows).min(axis=0)
    least = smallest_class(max_fraction)
    for label, left, amount in zip(classes, training.tolist(), amounts.tolist(), strict=True):
        if left < least:
            folds = "Ask for other folds" if amount > least else "Folds of any number hold out one of its rows at least"
            raise InputError(
                "too-few",
                f"Without one of {assignment.n_folds} folds, {count(left, 'row is', 'rows are')} left of "
                f"class {label!r}, and training "
                f"with `max_fraction` {max_fraction} needs {least}.",
                f"{folds}{', ' if amount > least else ': '}{more_rows(left)}.",
            )


def _require_classes(counts: Integers, n_folds: int, names: Sequence[Label], what: str) -> None:
    for label, amount in zip(names, counts.tolist(), strict=True):
        if amount < n_folds:
            found = count(amount, what)
            fewer = f"Ask for at most {amount} folds, add {what}s" if amount > 1 else f"Add {what}s"
            raise InputError(
                "too-few",
                f"Class {label!r} has rows of positive weight in {found}, fewer than the {n_folds} folds."
                if what == "group"
                else f"Class {label!r} has {found} of positive weight, fewer than the {n_folds} folds.",
                f"{fewer}, or merge or drop the class.",
            )


def _count_block(block: Block, n_classes: int) -> Integers:
    target, counted = block[TARGET.name], _counted(block)
    return np.bincount(target if counted is None else target[counted], minlength=n_classes)[None, :]


def _stack(left: Integers, right: Integers) -> Integers:
    return np.concatenate([left, right])  # the tree merges in the order of the blocks


_COUNT_CLASSES: Reduction[Integers, Integers] = Reduction(_count_block, _stack, identity)

MAX_GROUPS = 2**14
"""Groups told apart: few enough to travel with every task (9 bytes each), and so many that it
hardly matters to the balance of the folds which of them are joined."""

MAX_GROUP_CELLS = 2**22
"""Groups times classes, 8 bytes each: a bound on a partial where there are many classes."""


@dataclass(frozen=True)
class GroupCounts:
    """Rows of positive weight by group and class, groups told apart by the first `bits` of their hashes.

    `bits` is the most, up to 64, that gives no more groups than allowed. It can only fall as groups are added, so that
    it depends on the set of groups alone, and counts merge as a monoid.
    """

    bits: int
    groups: NDArray[np.uint64]
    """Ascending (G,)."""
    rows: Integers
    """(G, K)"""


def _hashes(block: Block) -> NDArray[np.uint64]:
    return mix(np.ascontiguousarray(block[GROUP.name]).view(np.uint64))  # a bijection: it joins no groups


def _shortened(hashes: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    return hashes >> np.uint64(64 - bits)


def _most_bits(groups: NDArray[np.uint64], bits: int, most: int) -> int:
    """How many leading bits of ascending hashes of `bits` bits give no more than `most` different ones."""
    if len(groups) <= most:
        return bits
    differing = groups[1:] ^ groups[:-1]
    low, high = 0, bits
    while high - low > 1:
        middle = (low + high) // 2
        if 1 + np.count_nonzero(differing >> np.uint64(bits - middle)) <= most:
            low = middle
        else:
            high = middle
    return low


def count_groups(block: Block, n_classes: int) -> GroupCounts:
    """Counts of one block."""
    hashes, target, counted = _hashes(block), block[TARGET.name], _counted(block)
    if counted is not None:
        hashes, target = hashes[counted], target[counted]
    groups, position = np.unique(hashes, return_inverse=True)
    bits = _most_bits(groups, 64, _most_groups(n_classes))
    if bits < 64:
        shorter, joined = np.unique(_shortened(groups, bits), return_inverse=True)
        groups, position = shorter, joined[position]
    cells = np.bincount(position * n_classes + target, minlength=len(groups) * n_classes)
    return GroupCounts(bits, groups, cells.reshape(len(groups), n_classes))


def _most_groups(n_classes: int) -> int:
    return max(2, min(MAX_GROUPS, MAX_GROUP_CELLS // n_classes))


def merge_groups(left: GroupCounts, right: GroupCounts) -> GroupCounts:
    """Counts of both."""
    bits = min(left.bits, right.bits)
    both = np.concatenate([part.groups >> np.uint64(part.bits - bits) for part in (left, right)])
    ordered = np.unique(both)
    kept = _most_bits(ordered, bits, _most_groups(left.rows.shape[1]))
    groups, position = np.unique(both >> np.uint64(bits - kept), return_inverse=True)
    rows = np.zeros((len(groups), left.rows.shape[1]), dtype=np.int64)
    np.add.at(rows, position, np.concatenate([left.rows, right.rows]))
    return GroupCounts(kept, groups, rows)


_COUNT_GROUPS: Reduction[GroupCounts, GroupCounts] = Reduction(count_groups, merge_groups, identity)


def _deal(counts: GroupCounts, n_folds: int, seed: int) -> GroupFolds:
    """Deal groups out to folds, those that weigh most first, each to where it keeps the classes most even.

    With `n_k` rows of class `k`, `g_k` of them in the group and `c_fk` in fold `f` so far, the squares of the shares
    that the folds have of the classes, `sum_fk (c_fk / n_k)^2`, grow least in the fold of smallest
    `sum_k c_fk g_k / n_k^2`.
    """
    rows = counts.rows
    total = np.maximum(rows.sum(axis=0), 1)
    shares = rows / total
    draws = keyed_draws(stream_key(seed, _GROUP_STREAM), counts.groups)
    order = np.lexsort((draws, -np.square(shares).sum(axis=1)))
    held = np.zeros((n_folds, len(total)))
    fold_of_group = np.empty(len(order), dtype=np.int8)
    for group in order.tolist():
        share = shares[group]
        growth = (held * share).sum(axis=1)
        least = np.flatnonzero(growth == growth.min())
        # Where it makes no difference to the classes of the group, the emptiest fold, and among those any.
        fold = int(least[0]) if len(least) == 1 else _emptiest(held, least, int(draws[group]))
        held[fold] += share
        fold_of_group[group] = fold
    class_rows = np.zeros((n_folds, len(total)), dtype=np.int64)
    np.add.at(class_rows, fold_of_group, rows)
    return GroupFolds(n_folds, seed, counts.bits, counts.groups, fold_of_group, class_rows)


def _emptiest(held: NDArray[np.float64], folds: Integers, draw: int) -> int:
    filled = held[folds].sum(axis=1)
    emptiest = folds[filled == filled.min()]
    return int(emptiest[draw % len(emptiest)])


def folded_source(source: Source, assignment: FoldAssignment) -> Source:
    """The source with the fold of each row, as the array "fold", in its blocks.

    What is in memory gets the folds of all rows beside it, once. Of sources that are zipped, only those with what the
    folds are made from are read for them, and their blocks are cached with the folds in them. Of rows that are looked
    at through a function, as those without another fold are, the folds are found in each pass.
    """
    view, name = WithFolds(assignment), f"folds-{assignment.key}"
    if isinstance(source, ViewedSource):
        if not source.resident:
            return ViewedSource(source, view, name)
        return zip_sources(source, _fold_array(source, assignment))
    parts = leaves(source)
    needed = (TARGET.name, WEIGHT.name, INCLUSION.name, GROUP.name)
    asked = [part for part in parts if len(parts) == 1 or any(name in part.read(0) for name in needed)]
    base = zip_sources(*asked)
    if base.resident:
        return zip_sources(source, _fold_array(base, assignment))
    others = [part for part in parts if part not in asked]
    return zip_sources(DerivedSource(base, view, name), *others)


def _fold_array(source: Source, assignment: FoldAssignment) -> ArraySource:
    """The folds of all rows of a source that is in memory."""
    blocks = [assignment.folds(source.read(number)) for number in range(source.layout.n_blocks)]
    return ArraySource({FOLD: np.concatenate(blocks)}, source.layout, f"folds-{assignment.key}@{source.key}")


@dataclass(frozen=True)
class WithFolds:
    """A block with the folds of its rows."""

    assignment: FoldAssignment

    def __call__(self, block: Block) -> Block:
        return Block(block.number, block.start, {**block.arrays, FOLD: self.assignment.folds(block)})
