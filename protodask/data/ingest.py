"""From tables and arrays to a dataset: one pass to look at the data, one to encode and write it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from protodask.data.dataset import Dataset
from protodask.data.encoding import (
    KeptTable,
    Problem,
    Table,
    Unseen,
    check_column_names,
    distinct_labels,
    first_problem,
    label_codes,
    settle_labels,
    table_rows,
)
from protodask.data.ingest_sources import open_table
from protodask.data.kept_columns import NOTHING_KEPT, Kept, different_types, require_pyarrow
from protodask.data.metadata import Metadata, require_storable
from protodask.data.rows import BlockNumbers
from protodask.data.schema import FEATURES, GROUP, TARGET, WEIGHT, Column, Label
from protodask.data.storage import check_free, locate
from protodask.data.summary import empty_summary
from protodask.data.tables import Encoder, Partitions, TableSource
from protodask.data.writer import write_dataset
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
from protodask.engine.threads import ThreadScheduler
from protodask.errors import InputError, some

MAX_LABELS = 10_000
"""Distinct values of a nominal column or a target: more are an identifier or a measurement, not categories."""


@dataclass(frozen=True)
class Scanned:
    """What one look at some partitions found."""

    rows: tuple[int, ...]
    """Rows of each partition."""
    labels: Mapping[str, frozenset[Label]]
    """Labels that occur in the columns asked about."""
    crowded: frozenset[str]
    """Columns with more labels than are sensible; theirs are no longer collected."""
    problem: Problem | None
    kept: frozenset[tuple[tuple[str, str], ...]] = frozenset()
    """Names and types of the columns that are handed on, as they occur."""


@dataclass(frozen=True)
class _Scan:
    """What to look for: `open_labels` are columns whose labels are to be found, the encoder tries all others."""

    table: Partitions
    encoder: Encoder
    open_labels: tuple[str, ...]
    target_name: str | None


def _scan_partition(block: Block, scan: _Scan) -> Scanned:
    table = scan.table.read(block.number)
    rows = table_rows(table)
    problems = [scan.encoder.encode(table, scan.encoder.empty(rows))]
    labels: dict[str, frozenset[Label]] = {}
    for name in scan.open_labels:
        labels[name] = frozenset(distinct_labels(table[name]))
        problems.append(_missing_label(table, name))
        if name == scan.target_name:
            problems.append(_measurement(table, name))
    found = _limited((rows,), labels, frozenset(), first_problem(problems))
    if not isinstance(table, KeptTable):
        return found
    types = tuple((field.name, str(field.type)) for field in table.kept.schema)
    return replace(found, kept=frozenset({types}))


def _missing_label(table: Table, name: str) -> Problem | None:
    missing = label_codes(table[name], ()) == -2
    if not missing.any():
        return None
    return Problem(int(np.argmax(missing)), name, "has a missing value", "Fill in or remove such rows first.")


def _measurement(table: Table, name: str) -> Problem | None:
    values = table[name]
    if values.dtype.kind != "f":
        return None
    broken = np.isfinite(values) & (values != np.floor(values))
    if not broken.any():
        return None
    row = int(np.argmax(broken))
    remedy = "A target holds classes: text, whole numbers or truth values."
    return Problem(row, name, f"has the value {values[row]!s}, which is no class,", remedy)


def _merge_scanned(left: Scanned, right: Scanned) -> Scanned:
    labels = {name: left.labels[name] | right.labels[name] for name in left.labels}
    problem = left.problem
    if problem is None and right.problem is not None:
        problem = right.problem.shifted(sum(left.rows))
    merged = _limited(left.rows + right.rows, labels, left.crowded | right.crowded, problem)
    return replace(merged, kept=left.kept | right.kept)


def _limited(
    rows: tuple[int, ...], labels: Mapping[str, frozenset[Label]], crowded: frozenset[str], problem: Problem | None
) -> Scanned:
    over = crowded | {name for name, found in labels.items() if len(found) > MAX_LABELS}
    kept = {name: frozenset[Label]() if name in over else found for name, found in labels.items()}
    return Scanned(rows, kept, over, problem)


SCAN: Reduction[Scanned, Scanned] = Reduction(_scan_partition, _merge_scanned, identity)


def _run_scan(scan: _Scan, engine: Engine) -> Scanned:
    numbers = BlockNumbers(Layout(scan.table.n_partitions, 1))
    if scan.table.n_partitions == 0:
        raise InputError("There are no rows.", "Give a table with rows.")
    if scan.table.resident and not isinstance(engine.scheduler, ThreadScheduler):
        # The table is in this process; a cluster would have to be sent all of it to count its labels.
        with thread_engine() as local:
            found = local.reduce(numbers, SCAN, scan, label="scan")
    else:
        found = engine.reduce(numbers, SCAN, engine.share(scan), label="scan")
    if found.crowded:
        name = min(found.crowded)
        raise InputError(
            f"Column {name!r} has more than {MAX_LABELS} different values.",
            "Such a column is no class or category: drop it, make it coarser, or leave it a number.",
        )
    if found.problem is not None:
        raise found.problem.error()
    if sum(found.rows) == 0:
        raise InputError("There are no rows.", "Give a table with rows.")
    if len(found.kept) > 1:
        one, other, *_ = sorted(found.kept)
        name, first, second = next((a[0], a[1], b[1]) for a, b in zip(one, other, strict=True) if a != b)
        raise different_types(name, first, second)
    return found


def _source(table: Partitions, encoder: Encoder, rows: Sequence[int], block_rows: int | None) -> TableSource:
    edges = (0, *np.cumsum(rows, dtype=np.int64).tolist())
    wanted = choose_block_rows(edges[-1], encoder.row_bytes) if block_rows is None else block_rows
    if wanted < 1 or wanted & (wanted - 1):
        raise InputError(f"block_rows is {wanted}.", "Give a power of two, or leave it out.")
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
    dtype: str = "float32",
    block_rows: int | None = None,
    engine: EngineLike = None,
) -> TableSource:
    """Tables or arrays, encoded block by block by the columns of an ingest, for scoring.

    One pass finds the rows of each partition and checks all values. Target, weight, inclusion and group are taken
    along where the tables have them; `dropped` columns are allowed and ignored. `numbers` says which columns, besides
    all of these, blocks have as arrays of which names; they must be there, finite, and are read as float64. Columns to
    `keep`, which may be any of these or others, are handed on as they are, in the array `KEPT` (see `kept_columns`).
    """
    if unseen not in ("error", "zero"):
        raise InputError(f"unseen is {unseen!r}.", "Give 'error' or 'zero'.")
    labels = [column.name for column in columns if column.kind != "numeric"]
    names = [column.name for column in columns]
    texts = [name for name in (target_name, group_name) if name is not None]
    further = dict(numbers or {})
    called = names or None  # of a matrix that is not asked for, any names will do
    optional = [name for name in (target_name, weight_name, inclusion_name, group_name) if name is not None]
    kept = kept_columns(columns, [*optional, *further.values()], keep)
    left_out = [name for name in dropped if name not in kept.names]
    table = open_table(sources, [*labels, *texts], left_out, target_name, called, group_name, further.values(), kept)
    check_column_names(table.names, [*names, *further.values(), *kept.names], [*optional, *left_out])
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
    )
    with open_engine(engine) as opened:
        found = _run_scan(_Scan(table, encoder, (), None), opened)
    return _source(table, encoder, found.rows, block_rows)


def kept_columns(columns: Sequence[Column], others: Sequence[str], keep: Sequence[str]) -> Kept:
    """What is to be known of columns to keep, where `columns` are features and `others` have another part to play."""
    if not keep:
        return NOTHING_KEPT
    if twice := sorted({name for name in keep if list(keep).count(name) > 1}):
        raise InputError(f"Column {twice[0]!r} is to be kept twice.", "Name it once.")
    require_pyarrow()
    numeric = {column.name for column in columns if column.kind == "numeric"}
    used = {column.name for column in columns} | set(others)
    return Kept(tuple(keep), frozenset(numeric & set(keep)), frozenset(set(keep) - used))


def ingest(
    sources: Any,
    out: str | os.PathLike[str],
    *,
    target: str | None = None,
    categorical: Sequence[str] = (),
    ordinal: Mapping[str, Sequence[Label]] | None = None,
    weight: str | None = None,
    inclusion: str | None = None,
    group: str | None = None,
    drop: Sequence[str] = (),
    append: bool = False,
    overwrite: bool = False,
    dtype: str = "float32",
    block_rows: int | None = None,
    feature_names: Sequence[str] | None = None,
    engine: EngineLike = None,
) -> Dataset:
    """Make a dataset from tables or arrays, or with `append` add their rows to one.

    `sources` is one of these, or a list of several: the path, glob or folder of CSV or Parquet files; a .npy or .npz
    file; a Zarr group with arrays of features and target; a pandas or dask data frame; a pair (X, y) of arrays of
    NumPy, dask or Zarr, or of paths of .npy files or Zarr arrays. Tables must name their `target` column; arrays have
    columns x0, x1, ... (or `feature_names`) and "target".

    `categorical` columns become a feature for each category, `ordinal` ones the position in the order given. Rows of
    one value in the column (or the array besides features and target) `group` belong together. With `append` all of
    this is the dataset's, and new categories or classes are an error.
    """
    if append and overwrite:
        raise InputError("Both append and overwrite are asked for.", "Choose one.")
    where = locate(out)
    if dtype not in FEATURES.dtypes:
        raise InputError(f"The dtype {dtype!r} is not supported.", "Use float32 or float64.")
    if append:
        if categorical or ordinal:
            raise InputError("An append encodes its rows like the dataset.", "Leave out categorical and ordinal.")
        roles = {"target": target, "weight": weight, "inclusion": inclusion, "group": group}
        return _ingest_more(sources, Dataset.open(where), roles, drop, engine)
    check_free(where, overwrite)
    orders = {name: tuple(order) for name, order in (ordinal or {}).items()}
    if both := sorted(set(categorical) & set(orders)):
        raise InputError(f"Column {both[0]!r} is said to be categorical and ordinal.", "Choose one.")
    _check_orders(orders)
    texts = [name for name in (target, group) if name is not None]
    table = open_table(sources, [*categorical, *orders, *texts], drop, target, feature_names, group)
    names = set(table.names)
    target = target or ("target" if "target" in names else None)
    if target is None:
        raise InputError("It is not said which column is the target.", "Name it with --target.")
    roles = {"target": target, "weight": weight, "inclusion": inclusion, "group": group}
    features = _feature_columns(table, roles, (*categorical, *orders))
    columns = tuple(_column(name, categorical, orders) for name in features)
    _require_storable(columns, target, drop)
    closed = tuple(column for column in columns if column.kind != "nominal")
    tried = Encoder(closed, (), None, weight, inclusion, np.dtype(dtype).name, group_name=group)
    with open_engine(engine) as opened:
        wanted = (*(column.name for column in columns if column.kind == "nominal"), target)
        found = _run_scan(_Scan(table, tried, wanted, target), opened)
        classes = settle_labels(found.labels[target], table.untyped)
        _refuse_measurements(classes, target, table.untyped)
        if len(classes) < 2:
            raise InputError(
                f"The target {target!r} has one class only ({classes[0]!r}).", "Give data of two or more classes."
            )
        columns = tuple(
            replace(column, categories=settle_labels(found.labels[column.name], table.untyped))
            if column.kind == "nominal"
            else column
            for column in columns
        )
        encoder = replace(tried, columns=columns, classes=classes, target_name=target)
        source = _source(table, encoder, found.rows, block_rows)
        return write_dataset(
            source,
            where,
            classes=classes,
            columns=columns,
            target_name=target,
            weight_name=weight,
            inclusion_name=inclusion,
            group_name=group,
            dropped=tuple(drop),
            engine=opened,
            dtype=encoder.dtype,
            block_rows=block_rows,
            overwrite=overwrite,
        )


def ingest_arrays(
    X: Any,
    y: Any,
    out: str | os.PathLike[str],
    *,
    weight: Any = None,
    group: Any = None,
    overwrite: bool = False,
    dtype: str = "float32",
    block_rows: int | None = None,
    engine: EngineLike = None,
) -> Dataset:
    """Make a dataset from numbers (N, D), labels (N,), weights (N,) and groups (N,).

    They are NumPy, dask or Zarr arrays, or data frames.
    """
    arrays = {FEATURES.name: _as_array(X), TARGET.name: _as_array(y)}
    if weight is not None:
        arrays[WEIGHT.name] = _as_array(weight)
    if group is not None:
        arrays[GROUP.name] = _as_array(group)
    names = [str(name) for name in X.columns] if hasattr(X, "columns") else None
    if names is not None and {TARGET.name, WEIGHT.name, GROUP.name} & set(names):
        names = [f"feature {name}" for name in names]
    return ingest(
        arrays,
        out,
        target=TARGET.name,
        weight=None if weight is None else WEIGHT.name,
        group=None if group is None else GROUP.name,
        overwrite=overwrite,
        dtype=dtype,
        block_rows=block_rows,
        feature_names=names,
        engine=engine,
    )


def _as_array(values: Any) -> Any:
    if not hasattr(values, "to_numpy") and not hasattr(values, "to_dask_array"):
        return values
    matrix = values.ndim == 2
    kinds = list(values.dtypes) if matrix else [values.dtype]
    if not all(isinstance(kind, np.dtype) for kind in kinds):
        # pandas' own types: a matrix of numbers becomes floats, missing ones NaN; labels keep what they are.
        numbers = matrix and all(getattr(kind, "kind", "O") in "biuf" for kind in kinds)
        values = values.astype("float64" if numbers else object)
    return values.to_dask_array(lengths=True) if hasattr(values, "to_dask_array") else values.to_numpy()


def _ingest_more(
    sources: Any,
    dataset: Dataset,
    given_roles: Mapping[str, str | None],
    drop: Sequence[str],
    engine: EngineLike,
) -> Dataset:
    known = dataset.metadata
    before = {
        "target": known.target_name,
        "weight": known.weight_name,
        "inclusion": known.inclusion_name,
        "group": known.group_name,
    }
    for what, given in given_roles.items():
        if given is not None and given != before[what]:
            raise InputError(
                f"The {what} of the dataset is {before[what]!r}, not {given!r}.", "Leave it out: an append keeps it."
            )
    dropped = (*known.dropped, *(name for name in drop if name not in known.dropped))
    roles = [name for name in before.values() if name is not None]
    with open_engine(engine) as opened:
        source = table_source(
            sources,
            known.columns,
            classes=known.classes,
            target_name=known.target_name,
            weight_name=known.weight_name,
            inclusion_name=known.inclusion_name,
            group_name=known.group_name,
            dropped=dropped,
            dtype=known.dtype,
            engine=opened,
        )
        check_column_names(source.table.names, [*(column.name for column in known.columns), *roles])
        return write_dataset(
            source,
            dataset.path,
            classes=known.classes,
            columns=known.columns,
            target_name=known.target_name,
            weight_name=known.weight_name,
            inclusion_name=known.inclusion_name,
            group_name=known.group_name,
            dropped=dropped,
            engine=opened,
            dtype=known.dtype,
            append=True,
        )


def _require_storable(columns: Sequence[Column], target: str, dropped: Sequence[str]) -> None:
    """Refuse more columns than a dataset can have; classes and categories, not known yet, only add to them."""
    width = sum(len(column.feature_names) for column in columns)
    require_storable(
        Metadata(
            n_rows=1,
            block_rows=1,
            dtype=FEATURES.dtypes[0],
            classes=(),
            columns=tuple(columns),
            target_name=target,
            weight_name=None,
            inclusion_name=None,
            dropped=tuple(dropped),
            summary=empty_summary(width, 0),
            content=0,
            block_checks=b"",
        )
    )


def _feature_columns(table: Partitions, roles: Mapping[str, str | None], declared: Sequence[str]) -> list[str]:
    """The columns that are features; all that the user named must be there, and all text declared."""
    names = set(table.names)
    for what, name in roles.items():
        if name is not None and name not in names:
            raise InputError(f"There is no column {name!r} for the {what}.", f"The columns are {some(table.names)}.")
    if absent := [name for name in declared if name not in names]:
        raise InputError(f"There is no column {absent[0]!r}.", f"The columns are {some(table.names)}.")
    taken = [name for name in roles.values() if name is not None]
    if len(set(taken)) != len(taken):
        raise InputError(
            "One column has two of the roles target, weight, inclusion and group.", "Name different columns."
        )
    features = [name for name in table.names if name not in taken]
    if not features:
        raise InputError("There are no feature columns.", "Give a table with columns besides the target.")
    wrong = [name for name in features if name in table.text and name not in declared]
    if wrong and not any(table_rows(table.read(partition)) for partition in range(table.n_partitions)):
        raise InputError("There are no rows.", "Give a table with rows.")
    if wrong:
        raise InputError(
            f"These columns are not numbers: {some(wrong)}.",
            f"Say what they are with --categorical {wrong[0]} or --ordinal, or leave them out with --drop.",
        )
    return features


def _refuse_measurements(classes: Sequence[Label], target: str, untyped: bool) -> None:
    """Text of a CSV file that is all numbers, and not all whole ones, is a measurement."""
    if not untyped:
        return
    numbers = [_number(label) for label in classes]
    broken = [label for label, number in zip(classes, numbers, strict=True) if number is not None and number % 1]
    if broken and all(number is not None for number in numbers):
        raise InputError(
            f"Column {target!r} has the value {broken[0]}, which is no class.",
            "A target holds classes: text, whole numbers or truth values.",
        )


def _number(label: Label) -> float | None:
    try:
        return float(label)
    except ValueError:
        return None


def _column(name: str, categorical: Sequence[str], orders: Mapping[str, tuple[Label, ...]]) -> Column:
    if name in orders:
        return Column(name, "ordinal", orders[name])
    return Column(name, "nominal" if name in categorical else "numeric")


def _check_orders(orders: Mapping[str, tuple[Label, ...]]) -> None:
    for name, order in orders.items():
        if len(order) < 2 or len(set(map(str, order))) != len(order):
            raise InputError(
                f"The order of {name!r} has too few or repeated categories.", "Give each category once, lowest first."
            )
