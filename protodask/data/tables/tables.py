"""Tables in partitions, and the source of encoded blocks made from one."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from protodask.data.arrays.row_arrays import RowArray, check_beside
from protodask.data.arrays.rows import ReadByRanges, spans
from protodask.data.format.schema import FEATURES, GROUP, INCLUSION, MARKED, TARGET, WEIGHT, Column, Label
from protodask.data.tables.encoding import (
    BadRows,
    KeptTable,
    MatrixTable,
    Problem,
    Table,
    Unseen,
    Values,
    check_column_names,
    encode_features,
    encode_group,
    encode_inclusion,
    encode_labels,
    encode_number,
    encode_weight,
    first_problem,
    select_rows,
    table_rows,
)
from protodask.data.tables.kept_columns import KEPT, NOTHING_KEPT, Kept, kept_of_arrays, pack
from protodask.engine import Arrays, Layout
from protodask.errors import InputError, StorageError

RECENT_BYTES = 96 * 2**20
"""Partitions a process remembers: a partition often ends inside a block, and the next block needs its other rows.

A larger one is remembered alone: whoever reads the next block would have to have all of it in memory again.
"""

OBJECT_BYTES = 64
"""About what a short text takes besides its reference."""


@dataclass(frozen=True)
class Partitions:
    """A table in partitions of unknown length, in a fixed order; each fits into memory."""

    names: tuple[str, ...]
    text: frozenset[str]
    """Columns that hold something else than numbers and truth values."""
    pieces: Sequence[Any] = field(repr=False)  # a URL may hold a secret
    """What tells the partitions apart: ranges of rows, or parts of files."""
    read_piece: Callable[[Any], Table] = field(repr=False)
    """Reads one of them; picklable, and small unless the table is in memory."""
    left_out: frozenset[str] = frozenset()
    """Columns that are there besides, and were to be left out."""
    places: tuple[str, ...] = ()
    """What each partition is a part of, such as a file, for messages; none where nobody knows."""
    counts: tuple[int, ...] = ()
    """Partitions of each file, if it is of files."""
    untyped: bool = False
    """Whether labels come as text whatever they are, as from CSV files."""
    resident: bool = False
    valueless: frozenset[str] = frozenset()
    """Columns of objects without any value, which may be of text as well as of numbers."""
    parts: tuple[Partitions, ...] = field(default=(), repr=False)
    """Tables that it is made of, one after the other."""
    key: str = field(default_factory=lambda: uuid4().hex)

    @property
    def n_partitions(self) -> int:
        return len(self.pieces)

    def place(self, partition: int) -> str:
        return self.places[partition] if self.places else ""

    def read(self, partition: int) -> Table:
        return self.read_piece(self.pieces[partition])


@dataclass(frozen=True)
class Encoder:
    """How the columns of a table become the arrays of a block."""

    columns: tuple[Column, ...]
    classes: tuple[Label, ...]
    target_name: str | None
    weight_name: str | None = None
    inclusion_name: str | None = None
    dtype: str = "float32"
    unseen: Unseen = "error"
    group_name: str | None = None
    numbers: tuple[tuple[str, str], ...] = ()
    """Further arrays of a block, float64, and the columns they hold."""
    kept: tuple[str, ...] = ()
    """Columns that are handed on as they are, in the array `KEPT`."""
    bad_rows: BadRows = "error"
    """With "mark", blocks say in the array `MARKED` which rows have features that cannot be used."""

    @property
    def n_features(self) -> int:
        return sum(len(column.feature_names) for column in self.columns)

    @property
    def row_bytes(self) -> int:
        group = 0 if self.group_name is None else 8
        return self.n_features * np.dtype(self.dtype).itemsize + 4 + 8 + 8 + group + 8 * len(self.numbers)

    @property
    def roles(self) -> tuple[str, ...]:
        """The columns that are no features: of target, weight, inclusion and group those there are."""
        named = (self.target_name, self.weight_name, self.inclusion_name, self.group_name)
        return tuple(name for name in named if name is not None)

    @property
    def labels(self) -> tuple[str, ...]:
        """Columns to be read as labels rather than numbers."""
        labels = [column.name for column in self.columns if column.kind != "numeric"]
        return (*labels, *(name for name in (self.target_name, self.group_name) if name is not None))

    def _beside(self) -> Iterator[tuple[str, str, str, Callable[[Values, str], tuple[Values, Problem | None]]]]:
        """The arrays besides the features: their names, types and columns, and what makes them of these."""

        def codes(values: Values, name: str) -> tuple[Values, Problem | None]:
            return encode_labels(values, self.classes, name)

        for variable, column, encode in (
            (TARGET, self.target_name, codes),
            (WEIGHT, self.weight_name, encode_weight),
            (INCLUSION, self.inclusion_name, encode_inclusion),
            (GROUP, self.group_name, encode_group),
        ):
            if column is not None:
                yield variable.name, variable.dtypes[0], column, encode
        for array, column in self.numbers:
            yield array, "float64", column, encode_number

    def empty(self, rows: int) -> dict[str, NDArray[Any]]:
        """Arrays for so many rows."""
        arrays: dict[str, NDArray[Any]] = {FEATURES.name: np.empty((rows, self.n_features), dtype=self.dtype)}
        arrays |= {array: np.empty(rows, dtype=dtype) for array, dtype, _, _ in self._beside()}
        if self.bad_rows == "mark":
            arrays[MARKED] = np.zeros(rows, dtype=np.bool_)
        return arrays

    def encode(self, table: Table, out: Arrays) -> Problem | None:
        """Fill `out` with the rows of the table; returns the first value that cannot be used."""
        if isinstance(table, KeptTable):
            table = table.table
        problems = [encode_features(table, self.columns, out[FEATURES.name], self.unseen, out.get(MARKED))]
        for array, _, column, encode in self._beside():
            out[array][...], problem = encode(table[column], column)
            problems.append(problem)
        return first_problem(problems)


@dataclass(frozen=True)
class TableSource(ReadByRanges):
    """Encoded blocks of a table: a block reads the partitions its rows lie in, and nothing else."""

    table: Partitions
    encoder: Encoder
    edges: tuple[int, ...]
    """First row of each partition, and the number of all rows."""
    layout: Layout
    marked: int = 0
    """Rows that are marked, since their features cannot be used."""

    @property
    def key(self) -> str:
        return f"{self.table.key}/{self.layout.block_rows}/{self.encoder.dtype}"

    @property
    def resident(self) -> bool:
        return self.table.resident

    @property
    def classes(self) -> tuple[Label, ...]:
        return self.encoder.classes

    def rows(self, start: int, stop: int) -> Arrays:
        """Any range of rows."""
        arrays = self.encoder.empty(stop - start)
        kept: list[Any] = []
        for partition, first, last in spans(self.edges, start, stop):
            before, end = self.edges[partition : partition + 2]
            table = self._partition(partition, keep=last < end)
            part = {name: values[first - start : last - start] for name, values in arrays.items()}
            chosen = select_rows(table, first - before, last - before)
            problem = self.encoder.encode(chosen, part)
            if problem is not None:
                raise problem.shifted(first).error()
            if isinstance(chosen, KeptTable):
                kept.append(chosen.kept)
        return {**arrays, KEPT: pack(kept)} if kept else arrays

    def check(self, row: int) -> None:
        """Refuse a row that has a value that cannot be used, also where such rows are marked."""
        replace(self, encoder=replace(self.encoder, bad_rows="error")).rows(row, row + 1)

    def _partition(self, partition: int, keep: bool) -> Table:
        table = self.table.read(partition) if self.table.resident else _RECENT.read(self.table, partition, keep)
        if table_rows(table) != self.edges[partition + 1] - self.edges[partition]:
            raise StorageError(
                "changed-meanwhile", "The table changed while it was being read.", "Repeat once nobody writes to it."
            )
        return table


class _RecentTables:
    """The partitions read last, up to `RECENT_BYTES`."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str, int], tuple[Table, int]] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, table: Partitions, partition: int, keep: bool) -> Table:
        """A partition; without `keep` nothing of it is held on to, because its last row was asked for."""
        name = (table.key, partition)
        with self._lock:
            held = self._held.get(name) if keep else self._held.pop(name, None)
        if held is not None:
            return held[0]
        found = table.read(partition)
        if keep:
            with self._lock:
                self._held[name] = (found, table_bytes(found))
                while len(self._held) > 1 and sum(size for _, size in self._held.values()) > RECENT_BYTES:
                    self._held.popitem(last=False)
        return found


_RECENT = _RecentTables()


def table_bytes(table: Table) -> int:
    """About the memory a partition takes."""
    if isinstance(table, KeptTable):
        return table_bytes(table.table) + int(table.kept.nbytes)
    arrays = [table.matrix, *table.others.values()] if isinstance(table, MatrixTable) else list(table.values())
    return sum(array.nbytes + (OBJECT_BYTES * array.size if array.dtype.kind == "O" else 0) for array in arrays)


def arrays_table(
    names: tuple[str, ...], features: RowArray, others: Mapping[str, RowArray], kept: Kept = NOTHING_KEPT
) -> Partitions:
    """A table of a matrix, whose columns have these names, and columns besides it."""
    shape = features.shape
    if len(shape) != 2:
        raise InputError("wrong-shape", f"The features have the shape {shape}.", "Give a matrix: rows by features.")
    for name, array in others.items():
        check_beside(f"array {name!r}", array.shape, shape[0])
    text = [name for name, array in others.items() if array.dtype.kind not in "biuf"]
    return Partitions(
        (*names, *others),
        frozenset((*(() if features.dtype.kind in "biuf" else names), *text)),
        tuple(itertools.pairwise(features.edges)),
        partial(_read_arrays, names, features, others, kept),
        # By the features alone: columns in memory beside them are small, and travel with the table.
        resident=features.resident,
    )


def _read_arrays(
    names: tuple[str, ...], features: RowArray, others: Mapping[str, RowArray], kept: Kept, rows: tuple[int, int]
) -> Table:
    table = MatrixTable(names, features.slice(*rows), {name: array.slice(*rows) for name, array in others.items()})
    return KeptTable(table, kept_of_arrays({name: table[name] for name in kept.names})) if kept.names else table


def join_tables(tables: Sequence[Partitions]) -> Partitions:
    """Tables one after the other: the columns that all of them have, in the order of the first."""
    if len(tables) == 1:
        return tables[0]
    common = frozenset(tables[0].names).intersection(*(table.names for table in tables))
    pieces = [(table, number) for table in tables for number in range(table.n_partitions)]
    return Partitions(
        tuple(name for name in tables[0].names if name in common),
        frozenset[str]().union(*(table.text for table in tables)),
        pieces,
        _read_of_table,
        frozenset[str]().union(*(table.left_out for table in tables)),
        tuple(table.place(number) for table, number in pieces),
        tuple(itertools.chain.from_iterable(table.counts for table in tables)),
        untyped=any(table.untyped for table in tables),
        resident=all(table.resident for table in tables),
        valueless=frozenset[str]().union(*(table.valueless for table in tables)),
        parts=tuple(tables),
    )


def _read_of_table(piece: tuple[Partitions, int]) -> Table:
    table, number = piece
    return table.read(number)


def names_by_table(table: Partitions) -> dict[str, tuple[str, ...]]:
    """The columns of each of the tables that a table is made of, by what messages call it."""
    if not table.parts:
        return {"The table": table.names}
    found: dict[str, tuple[str, ...]] = {}
    for number, part in enumerate(table.parts):
        found[part.place(0) or f"Table {number + 1} of {len(table.parts)}"] = part.names
    return found


def check_same_columns(table: Partitions) -> None:
    """Refuse a table that is made of tables of other columns than the first has."""
    (_, expected), *others = names_by_table(table).items()
    for where, names in others:
        check_column_names(names, expected, where)
