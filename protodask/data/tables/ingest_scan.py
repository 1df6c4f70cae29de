"""One look at a table before it is written: how many rows its partitions have, which labels, and what is wrong."""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.arrays.rows import REMOVE, BlockNumbers
from protodask.data.format.schema import FEATURES, MARKED, WEIGHT, Column, Label, LabelKey, check_block_rows
from protodask.data.tables.encoding import (
    FILL,
    MISSING,
    UNSEEN,
    BadRows,
    KeptTable,
    Missing,
    Problem,
    Table,
    Unseen,
    check_unseen,
    columns_besides,
    distinct_labels,
    first_of,
    first_problem,
    label_codes,
    table_rows,
)
from protodask.data.tables.ingest_sources import open_table
from protodask.data.tables.kept_columns import (
    KEPT_COPIES,
    NOTHING_KEPT,
    Kept,
    check_kept_there,
    different_types,
    require_pyarrow,
)
from protodask.data.tables.tables import Encoder, Partitions, TableSource, names_by_table
from protodask.engine import (
    Block,
    Engine,
    EngineLike,
    Layout,
    Reduction,
    choose_block_rows,
    identity,
    open_engine,
    thread_engine,
)
from protodask.engine.records import add_records, merged_by
from protodask.engine.threads import ThreadScheduler
from protodask.errors import InputError, count, named_twice, some

MAX_LABELS = 10_000
"""Distinct values of a nominal column or a target: more are an identifier or a measurement, not categories."""


@dataclass(frozen=True)
class Scanned:
    """What one look at some partitions found."""

    rows: tuple[int, ...] = field(metadata=merged_by(operator.add))
    """Rows of each partition."""
    labels: Mapping[str, frozenset[LabelKey]]
    """Labels that occur in the columns asked about."""
    problem: Problem | None = field(metadata=merged_by(lambda first, second: first or second))
    crowded: frozenset[str] = frozenset()
    """Columns with more labels than are sensible; theirs are no longer collected."""
    kept: frozenset[tuple[tuple[str, str], ...]] = frozenset()
    """Names and types of the columns that are handed on, as they occur."""
    kept_bytes: int = 0
    """Of those columns in memory."""
    missing: Mapping[str, int] = field(default_factory=dict)
    """Rows in which the value of a column is missing, of those of which that may be."""
    known: Mapping[str, int] = field(default_factory=dict)
    """Rows of positive weight in which the value of such a column that is a number or has an order is known."""
    sums: Mapping[str, float] = field(default_factory=dict)
    """Of these values, as a feature."""
    marked: int = 0
    """Rows that the encoder marks."""
    unseen: Mapping[str, int] = field(default_factory=dict)
    """Rows whose value of a column is no category of it, where such ones count as none."""
    uncategorized: Mapping[str, int] = field(default_factory=dict)
    """Rows in which no feature of a nominal column is other than 0, where values that are no category count as none and
    `unseen` does not say of how many they are."""
    distinct: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Different values of columns in samples, and how many of them float32 tells apart, where that may be fewer."""

    @property
    def merged(self) -> dict[str, tuple[int, int]]:
        """The same of columns of which too few are told apart."""
        return {name: counts for name, counts in self.distinct.items() if counts[1] < LEAST_APART * counts[0]}


@dataclass(frozen=True)
class Scan:
    """What to look for: `open_labels` are columns whose labels are to be found, the encoder tries all others.

    In those of its columns in which missing values stay missing, they are counted.
    """

    table: Partitions
    encoder: Encoder
    open_labels: tuple[str, ...]
    target_name: str | None
    missing: Missing = "error"
    """Of the columns whose labels are to be found, other than the target."""
    count_distinct: bool = False
    """Whether to look for values that float32 does not tell apart, where that is what features are stored as."""
    count_unseen: bool = False
    """Whether to count values that are no categories, where such ones count as none."""


def _scan_partition(block: Block, scan: Scan) -> Scanned:
    table = scan.table.read(block.number)
    rows = table_rows(table)
    arrays = scan.encoder.empty(rows)
    problems = [scan.encoder.encode(table, arrays)]
    missing, known, sums = _known_values(scan.encoder.columns, arrays[FEATURES.name], arrays.get(WEIGHT.name))
    labels: dict[str, frozenset[LabelKey]] = {}
    for name in scan.open_labels:
        labels[name] = distinct_labels(table[name], name)
        absent = label_codes(table[name], ()) == MISSING
        target = name == scan.target_name
        if scan.missing == "fill" and not target:
            missing[name] = int(np.count_nonzero(absent))
        else:
            lacking = partial(Problem, column=name, seen="has a missing value", remedy=REMOVE if target else FILL)
            problems.append(first_of(absent, lacking))
        if target:
            problems.append(_measurement(table, name))
    kept = table.kept if isinstance(table, KeptTable) else None
    return _limited(
        Scanned(
            rows=(rows,),
            labels=labels,
            problem=first_problem(problems),
            kept=frozenset(() if kept is None else {tuple((field.name, str(field.type)) for field in kept.schema)}),
            kept_bytes=0 if kept is None else int(kept.nbytes),
            missing=missing,
            known=known,
            sums=sums,
            marked=int(np.count_nonzero(arrays.get(MARKED, False))),
            unseen=_unseen_values(table, scan.encoder.columns) if scan.count_unseen else {},
            uncategorized=_uncategorized(scan, arrays),
            distinct=_distinct_values(table, scan.encoder.columns) if scan.count_distinct else {},
        )
    )


def _known_values(
    columns: Sequence[Column], features: NDArray[Any], weight: NDArray[np.float64] | None
) -> tuple[dict[str, int], dict[str, int], dict[str, float]]:
    """Of the columns in which missing values stay so, the number of these, and that and the sum of the others in rows
    of positive weight.
    """
    if any(column.filled is None or not math.isnan(column.filled) for column in columns):
        return {}, {}, {}
    names = [column.name for column in columns]
    absent = np.isnan(features)
    missing = absent.sum(axis=0)
    if weight is not None:
        features, absent = features[weight > 0], absent[weight > 0]
    if missing.any():
        features = np.where(absent, 0, features)
    with np.errstate(over="ignore", invalid="ignore"):  # values too large are refused when they are written
        totals = features.sum(axis=0, dtype=np.float64)
    known = len(features) - absent.sum(axis=0)
    counts, others, sums = (dict(zip(names, found.tolist(), strict=True)) for found in (missing, known, totals))
    return counts, others, sums


def _unseen_values(table: Table, columns: Sequence[Column]) -> dict[str, int]:
    """Of nominal columns, the number of rows whose value is no category."""
    nominal = [column for column in columns if column.kind == "nominal"]
    counts = {
        column.name: int(np.count_nonzero(label_codes(table[column.name], column.categories) == UNSEEN))
        for column in nominal
    }
    return {name: rows for name, rows in counts.items() if rows}


def _uncategorized(scan: Scan, arrays: Mapping[str, NDArray[Any]]) -> dict[str, int]:
    """Of nominal columns, the number of rows that have none of its categories, and are not marked as missing or bad."""
    if scan.encoder.unseen != "zero" or scan.count_unseen:
        return {}
    counts: dict[str, int] = {}
    used = ~arrays[MARKED] if MARKED in arrays else slice(None)
    first = 0
    for column in scan.encoder.columns:
        part = arrays[FEATURES.name][:, first : first + len(column.feature_names)]
        first += part.shape[1]
        if column.kind == "nominal" and column.categories:
            counts[column.name] = int(np.count_nonzero(~part[used].any(axis=1)))
    return {name: rows for name, rows in counts.items() if rows}


LEAST_ROWS = 20
"""Rows of which it means something that most are strange."""


def warn_of_uncategorized(counts: Mapping[str, int], rows: int) -> None:
    """Say of which columns most values count as no category: rather they are written otherwise."""
    most = [f"{name!r} ({strange:,} of {rows:,} rows)" for name, strange in counts.items() if 2 * strange > rows]
    if most and rows >= LEAST_ROWS:
        warnings.warn(
            f"Most values of a column are none of the categories that it had at the ingest, and count as none: "
            f"{some(most)}. Check how they are written.",
            stacklevel=4,
        )


def warn_of_unseen(unseen: Mapping[str, int]) -> None:
    """Say in how many rows to be added a value counts as no category."""
    if unseen:
        said = [f"{name!r} ({count(rows, 'row')})" for name, rows in unseen.items()]
        warnings.warn(
            f"Values that are no categories of the dataset count as none: {some(said)}. It knows them once it is made "
            "anew.",
            stacklevel=4,
        )


SAMPLE_ROWS = 2048
"""Of a partition, whose different values are counted: sorting all would take as long as reading them."""

LEAST_APART = 0.95
"""The share of different values that float32 tells apart: of values drawn at random a thousandth may fall together."""

NOISE = 2.0**-44
"""Values that differ by less, relative to them, are one: sums that were rounded differ by some 1e-16."""


def _distinct_values(table: Table, columns: Sequence[Column]) -> dict[str, tuple[int, int]]:
    """Different values of numeric columns in some rows, and how many of them are left as float32."""
    step = -(-table_rows(table) // SAMPLE_ROWS) or 1
    found: dict[str, tuple[int, int]] = {}
    for column in columns:
        values = table[column.name][::step] if column.kind == "numeric" else np.empty(0)
        if values.dtype.kind not in "iuf":
            continue
        values = values[np.isfinite(values)].astype(np.float64)
        with np.errstate(over="ignore"):
            rounded = values.astype(np.float32)
        if (rounded != values).any():
            ordered = np.sort(values)
            apart = np.diff(ordered) > NOISE * np.abs(ordered[1:])
            found[column.name] = 1 + int(np.count_nonzero(apart)), len(np.unique(rounded))
    return found


def _measurement(table: Table, name: str) -> Problem | None:
    values = table[name]
    if values.dtype.kind != "f":
        return None

    def broken(row: int) -> Problem:
        remedy = "A target holds classes: text, whole numbers or truth values."
        return Problem(row, name, f"has the value {values[row]!s}, which is no class,", remedy)

    return first_of(np.isfinite(values) & (values != np.floor(values)), broken)


def _merge_scanned(left: Scanned, right: Scanned) -> Scanned:
    problem = right.problem and right.problem.shifted(sum(left.rows))
    return _limited(add_records(left, replace(right, problem=problem)))


def _limited(found: Scanned) -> Scanned:
    """What was found, without the labels of columns that have too many."""
    over = found.crowded | {name for name, labels in found.labels.items() if len(labels) > MAX_LABELS}
    return replace(found, labels={**found.labels, **dict.fromkeys(over, frozenset())}, crowded=over)


SCAN: Reduction[Scanned, Scanned] = Reduction(_scan_partition, _merge_scanned, identity)


def run_scan(scan: Scan, engine: Engine, may_be_empty: bool = False) -> Scanned:
    """Look at all partitions of a table; what cannot be used is an error."""
    numbers = BlockNumbers(Layout(scan.table.n_partitions, 1))
    if scan.table.n_partitions == 0:
        raise InputError("no-rows", "There are no rows.", "Give a table with rows.")
    if scan.table.resident and not isinstance(engine.scheduler, ThreadScheduler):
        # The table is in this process; a cluster would have to be sent all of it to count its labels.
        with thread_engine() as local:
            found = local.reduce(numbers, SCAN, scan, label="scan")
    else:
        found = engine.reduce(numbers, SCAN, engine.share(scan), label="scan")
    if found.crowded:
        name = min(found.crowded)
        raise InputError(
            "over-limit",
            f"Column {name!r} has more than {MAX_LABELS} different values.",
            "Such a column is no class or category: drop it, make it coarser, or leave it a number.",
        )
    if found.problem is not None:
        problem, among = located(found.problem, scan.table, found.rows)
        raise problem.error(among)
    if sum(found.rows) == 0 and not may_be_empty:
        raise InputError("no-rows", "There are no rows.", "Give a table with rows.")
    if len(found.kept) > 1:
        one, other, *_ = sorted(found.kept)
        name, first, second = next((a[0], a[1], b[1]) for a, b in zip(one, other, strict=True) if a != b)
        raise different_types(name, first, second)
    return found


def located(problem: Problem, table: Partitions, rows: Sequence[int]) -> tuple[Problem, str]:
    """A problem and among what its row is counted: of several files, or a table made of parts, in the one it is in."""
    places = [table.place(partition) for partition in range(table.n_partitions)]
    edges = np.cumsum([0, *rows])
    place = places[int(np.searchsorted(edges, problem.row, side="right")) - 1]
    if not place or (len(set(places)) == 1 and not table.parts):
        return problem, ""
    return problem.shifted(-int(edges[places.index(place)])), f" of {place}"


def encoded_source(
    table: Partitions, encoder: Encoder, rows: Sequence[int], block_rows: int | None, kept_bytes: int = 0
) -> TableSource:
    """The rows of a table as blocks, `rows` of them in each partition; `kept_bytes` are to be handed on."""
    edges = (0, *np.cumsum(rows, dtype=np.int64).tolist())
    row_bytes = encoder.row_bytes + KEPT_COPIES * kept_bytes // max(edges[-1], 1)
    wanted = choose_block_rows(edges[-1], row_bytes) if block_rows is None else block_rows
    check_block_rows(wanted)
    return TableSource(table, encoder, edges, Layout(edges[-1], wanted))


def table_source(
    sources: Any,
    columns: Sequence[Column],
    *,
    classes: Sequence[Label] = (),
    target_name: str | None = None,
    weight_name: str | None = None,
    inclusion_name: str | None = None,
    group_name: str | None = None,
    numbers: Mapping[str, str] | None = None,
    keep: Sequence[str] = (),
    dropped: Sequence[str] = (),
    unseen: Unseen = "error",
    bad_rows: BadRows = "error",
    dtype: str = "float32",
    block_rows: int | None = None,
    tell_unseen: bool = False,
    engine: EngineLike = None,
) -> TableSource:
    """Tables or arrays, encoded block by block by the columns of an ingest, for scoring.

    One pass finds the rows of each partition and checks all values; with `bad_rows="mark"` a row of features that
    cannot be used is no error, and blocks say in the array `MARKED` which ones are such. Target, weight, inclusion and
    group are taken along where the tables have them; `dropped` columns are left out, and others that nobody knows, too,
    of which a warning says so. `numbers` says which columns, besides all of these, blocks have as arrays of which
    names; they must be there, finite, and are read as float64. Columns to `keep`, which may be any of these or others,
    are handed on as they are, in the array `KEPT` (see `kept_columns`). With `tell_unseen` a warning says in how many
    rows a value is no category, where those count as none.
    """
    check_unseen(unseen)
    if bad_rows not in ("error", "mark"):
        raise InputError("bad-setting", f"bad_rows is {bad_rows!r}.", "Give 'error' or 'mark'.")
    labels = [column.name for column in columns if column.kind != "numeric"]
    names = [column.name for column in columns]
    texts = [name for name in (target_name, group_name) if name is not None]
    further = dict(numbers or {})
    called = names or None  # of a matrix that is not asked for, any names will do
    optional = [name for name in (target_name, weight_name, inclusion_name, group_name) if name is not None]
    kept = kept_columns(columns, [*optional, *further.values()], keep)
    left_out = [name for name in dropped if name not in kept.names]
    if not classes and target_name is not None and target_name not in [*names, *further.values(), *kept.names]:
        left_out.append(target_name)  # which nobody asks for then
    opening = partial(
        open_table,
        sources,
        [*labels, *texts],
        target=target_name,
        features=called,
        others=(weight_name, inclusion_name, group_name, *further.values()),
        kept=kept,
    )
    table = opening(left_out)
    by_table = names_by_table(table)
    for where, there in by_table.items():
        check_kept_there(kept.names, there, where)
    besides = columns_besides(by_table, [*names, *further.values(), *kept.names], [*optional, *left_out])
    if besides:
        table = opening([*left_out, *besides])
    for name in optional:
        if name not in left_out:
            _check_everywhere(name, by_table)
    present = set(table.names)
    encoder = Encoder(
        columns=tuple(columns),
        classes=tuple(classes),
        target_name=target_name if target_name in present and classes else None,
        weight_name=weight_name if weight_name in present else None,
        inclusion_name=inclusion_name if inclusion_name in present else None,
        group_name=group_name if group_name in present else None,
        dtype=dtype,
        unseen=unseen,
        numbers=tuple(further.items()),
        kept=kept.names,
        bad_rows=bad_rows,
    )
    with open_engine(engine) as opened:
        found = run_scan(Scan(table, encoder, (), None, count_unseen=tell_unseen), opened)
    warn_of_unseen(found.unseen)
    warn_of_uncategorized(found.uncategorized, sum(found.rows))
    return replace(encoded_source(table, encoder, found.rows, block_rows, found.kept_bytes), marked=found.marked)


def _check_everywhere(name: str, by_table: Mapping[str, Sequence[str]]) -> None:
    """Refuse a column that some tables have and others do not."""
    having = [where for where, names in by_table.items() if name in names]
    lacking = [where for where in by_table if where not in having]
    if having and lacking:
        raise InputError(
            "columns-differ",
            f"Column {name!r} is in {having[0]} and not in {some(lacking)}.",
            "Give tables that all have it, or leave it out of all with `drop`.",
        )


def kept_columns(columns: Sequence[Column], others: Sequence[str], keep: Sequence[str]) -> Kept:
    """What is to be known of columns to keep, where `columns` are features and `others` have another part to play."""
    if not keep:
        return NOTHING_KEPT
    if twice := sorted(named_twice(keep)):
        raise InputError("named-twice", f"Column {twice[0]!r} is to be kept twice.", "Name it once.")
    require_pyarrow()
    numeric = {column.name for column in columns if column.kind == "numeric"}
    used = {column.name for column in columns} | set(others)
    return Kept(tuple(keep), frozenset(numeric & set(keep)), frozenset(set(keep) - used))
