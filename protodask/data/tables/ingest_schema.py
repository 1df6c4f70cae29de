"""What a table's columns become: worked out of the first rows, or kept as an earlier ingest had it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, get_args

import numpy as np

from protodask.data.format.metadata import Metadata, require_storable
from protodask.data.format.schema import FEATURES, FEW_TEXTS, TARGET, WRITTEN_NUMBER, Column, Label, check_dtype
from protodask.data.format.summary import empty_summary
from protodask.data.tables.encoding import (
    Missing,
    Unseen,
    check_categories,
    check_unseen,
    numeric_values,
    settle_labels,
    table_rows,
)
from protodask.data.tables.ingest_scan import Scan, Scanned, encoded_source, located, run_scan
from protodask.data.tables.tables import Encoder, Partitions, TableSource
from protodask.engine import Engine
from protodask.errors import InputError, named_twice, some

Orders = Mapping[str, tuple[Label, ...]]


@dataclass(frozen=True)
class Roles:
    """Columns that are no features, by name."""

    target: str | None = None
    weight: str | None = None
    inclusion: str | None = None
    group: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The columns there are."""
        return tuple(name for name in asdict(self).values() if name is not None)


@dataclass(frozen=True)
class Wanted:
    """What a user says of the columns."""

    roles: Roles
    categorical: tuple[str, ...] = ()
    orders: Orders = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    dtype: str = "float32"
    missing: Missing = "fill"
    text_is_categorical: bool = False
    """Whether columns of text of which nothing is said are categorical."""
    unseen: Unseen = "error"
    """What becomes of categories that a dataset does not have to which rows are added."""
    columns: tuple[Column, ...] | None = None
    """What the columns become, in their order and by whatever name, if that is known; new categories are none then."""

    @property
    def labels(self) -> list[str]:
        """Columns to be read as labels rather than numbers."""
        texts = [name for name in (self.roles.target or TARGET.name, self.roles.group) if name is not None]
        return [*self.categorical, *self.orders, *texts]


def orders_of(ordinal: Mapping[str, Sequence[Label]] | None) -> Orders:
    """The categories of ordinal columns, lowest first."""
    return {name: tuple(order) for name, order in (ordinal or {}).items()}


def check_wanted(wanted: Wanted) -> None:
    """Refuse what cannot be, whatever the table."""
    check_dtype(wanted.dtype)
    if wanted.missing not in get_args(Missing):
        raise InputError("bad-setting", f"missing is {wanted.missing!r}.", "Give 'fill' or 'error'.")
    check_unseen(wanted.unseen)
    if both := sorted(set(wanted.categorical) & set(wanted.orders)):
        raise InputError(
            "settings-conflict", f"Column {both[0]!r} is said to be categorical and ordinal.", "Choose one."
        )
    for name, order in wanted.orders.items():
        if len(order) < 2 or named_twice(map(str, order)):
            raise InputError(
                "bad-setting",
                f"The order of {name!r} has too few or repeated categories.",
                "Give each category once, lowest first.",
            )


def check_roles(given: Roles, known: Metadata) -> None:
    """Refuse roles that are not those of a dataset that is added to."""
    before = Roles(known.target_name, known.weight_name, known.inclusion_name, known.group_name)
    for what, kept in asdict(before).items():
        name = getattr(given, what)
        if name is not None and name != kept:
            raise InputError(
                "columns-differ",
                f"The {what} of the dataset is {kept!r}, not {name!r}.",
                "Leave it out: an append keeps it.",
            )


def check_columns(wanted: Wanted, known: Metadata) -> None:
    """Refuse what a dataset that is added to has otherwise; what is not said is as it has it."""
    check_roles(wanted.roles, known)
    columns = {column.name: column for column in known.columns}
    for name in (*wanted.categorical, *wanted.orders):
        kind = "nominal" if name in wanted.categorical else "ordinal"
        found = columns.get(name, Column(name))
        order = found.categories if kind == "nominal" else wanted.orders[name]
        if found.kind != kind or list(map(str, found.categories)) != list(map(str, order)):
            raise InputError(
                "columns-differ",
                f"Column {name!r} is not {'categorical' if kind == 'nominal' else 'ordinal in this order'} in the "
                "dataset that is there.",
                "Encode it as the dataset does, or make another dataset.",
            )


ENCODED = ("classes", "columns", "target_name", "weight_name", "inclusion_name", "group_name", "dtype")


def written_as(encoder: Encoder | Metadata) -> dict[str, Any]:
    """What `write_dataset` is told of the rows of an encoder, or of those of a dataset."""
    return {name: getattr(encoder, name) for name in ENCODED}


def encoder_like(known: Metadata, unseen: Unseen = "error") -> Encoder:
    """What encodes further rows like those of a dataset."""
    return Encoder(**written_as(known), unseen=unseen)


def encode_anew(
    table: Partitions, wanted: Wanted, engine: Engine, block_rows: int | None
) -> tuple[TableSource, Encoder]:
    """Look at a table once, and find what its columns become."""
    roles = wanted.roles
    names = set(table.names)
    target = roles.target or (TARGET.name if TARGET.name in names else None)
    if target is None:
        raise InputError("setting-missing", "It is not said which column is the target.", "Name it with `target`.")
    roles = replace(roles, target=target)
    said = {*wanted.categorical, *wanted.orders, *roles.names}
    texts = table.text | table.valueless if wanted.text_is_categorical else table.text
    text = [name for name in table.names if name in texts and name not in said]
    if wanted.text_is_categorical:
        wanted = replace(wanted, categorical=(*wanted.categorical, *text))
    features = _feature_columns(table, asdict(roles), (*wanted.categorical, *wanted.orders), wanted.drop)
    columns = tuple(
        Column(name, "ordinal", wanted.orders[name])
        if name in wanted.orders
        else Column(name, "nominal" if name in wanted.categorical else "numeric")
        for name in features
    )
    _require_storable(columns, target, wanted.drop)
    stays = math.nan if wanted.missing == "fill" else None
    closed = tuple(replace(column, filled=stays) for column in columns if column.kind != "nominal")
    if wanted.columns is not None:
        columns = tuple(replace(known, name=name) for known, name in zip(wanted.columns, features, strict=True))
        closed = columns
    tried = Encoder(
        closed,
        (),
        None,
        roles.weight,
        roles.inclusion,
        np.dtype(wanted.dtype).name,
        unseen="error" if wanted.columns is None else "zero",
        group_name=roles.group,
    )
    known = {column.name for column in closed}
    asked = (*(column.name for column in columns if column.name not in known), target)
    found = run_scan(Scan(table, tried, asked, target, wanted.missing, tried.dtype == "float32"), engine)
    _warn_of_merged(found.merged)
    classes = settle_labels(found.labels[target], table.untyped)
    _refuse_measurements(classes, target, table.untyped)
    if len(classes) < 2:
        raise InputError(
            "one-class",
            f"The target {target!r} has one class only ({classes[0]!r}).",
            "Give data of two or more classes.",
        )
    if wanted.columns is None:
        columns = tuple(_settled(column, found, table.untyped) for column in columns)
        for name in text:
            check_categories(name, [label for _, label in found.labels[name]], sum(found.rows))
    encoder = replace(tried, columns=columns, classes=classes, target_name=target)
    return encoded_source(table, encoder, found.rows, block_rows), encoder


def _warn_of_merged(merged: Mapping[str, tuple[int, int]]) -> None:
    if merged:
        said = [f"{name!r} ({left:,} of {values:,} values in a sample)" for name, (values, left) in merged.items()]
        warnings.warn(
            f"As float32, columns keep a part of their different values only: {some(said)}. Subtract what the values "
            "have in common, such as the first time, or use float64 to store and to fit (dtype='float64', "
            "precision='float64').",
            stacklevel=4,
        )


def _settled(column: Column, found: Scanned, untyped: bool) -> Column:
    if column.kind == "nominal":
        column = replace(column, categories=settle_labels(found.labels[column.name], untyped))
    name = column.name
    return column.with_missing(found.known.get(name, 0), found.missing.get(name, 0), found.sums.get(name, 0.0))


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
        )
    )


MARKS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}
"""What may stand between the columns of a file in place of commas."""


def _feature_columns(
    table: Partitions, roles: Mapping[str, str | None], declared: Sequence[str], dropped: Sequence[str]
) -> list[str]:
    """The columns that are features; all that the user named must be there, and all text declared."""
    names = set(table.names)
    for what, name in roles.items():
        if name is not None and name not in names:
            remedy = f"The columns are {some(table.names)}."
            header = ",".join(table.names)
            if mark := next((mark for mark in MARKS if name in header.split(mark)), None):
                remedy = (
                    f"The file has {MARKS[mark]} between its columns, and commas in their names: put these in quotes."
                )
            raise InputError("column-missing", f"There is no column {name!r} for the {what}.", remedy)
    absent = [name for name in declared if name not in names]
    absent += [name for name in dropped if name not in table.left_out]
    if absent:
        raise InputError(
            "column-missing", f"There is no column {absent[0]!r}.", f"The columns are {some(table.names)}."
        )
    taken = [name for name in roles.values() if name is not None]
    if named_twice(taken):
        raise InputError(
            "settings-conflict",
            "One column has two of the roles target, weight, inclusion and group.",
            "Name different columns.",
        )
    features = [name for name in table.names if name not in taken]
    if not features:
        raise InputError(
            "column-missing", "There are no feature columns.", "Give a table with columns besides the target."
        )
    wrong = [name for name in features if name in table.text and name not in declared]
    if wrong:
        raise InputError(
            "wrong-type",
            f"These columns are not numbers: {some(wrong)}{_first_text(table, wrong[0])}.",
            "Say which hold categories (`categorical`, or `ordinal` where they have an order), leave out identifiers "
            "and the like (`drop`), and make numbers of times before, such as the days since some date. "
            "`text_is_categorical` takes all text as categories.",
        )
    return features


def _first_text(table: Partitions, name: str) -> str:
    """The first value in a column that is not a number, if it is among the first rows; refused is a table without.

    Of several one that is none however numbers are written: beside it, decimal commas would be read in some files.
    """
    rows: list[int] = []
    for partition in range(table.n_partitions):
        part = table.read(partition)
        rows.append(table_rows(part))
        if rows[-1]:
            values = part[name].copy()
            if values.dtype.kind == "O":
                texts = (value.strip() if isinstance(value, str) else "" for value in values.tolist())
                values[[WRITTEN_NUMBER.fullmatch(text) is not None for text in texts]] = None
            problem = numeric_values(values, name)[1] or numeric_values(part[name], name)[1]
            if problem is None:
                return ""
            problem, among = located(problem, table, rows)
            return f"; {problem.told(among)}"
    raise InputError("no-rows", "There are no rows.", "Give a table with rows.")


def _refuse_measurements(classes: Sequence[Label], target: str, untyped: bool) -> None:
    """Text of a CSV file that is all numbers, not all whole ones, is a measurement; with commas, few may be pairs."""
    if not untyped:
        return
    many = len(classes) > FEW_TEXTS
    numbers = [_number(str(label).replace(",", ".") if many else label) for label in classes]
    broken = [label for label, number in zip(classes, numbers, strict=True) if number is not None and number % 1]
    if broken and all(number is not None for number in numbers):
        raise InputError(
            "bad-value",
            f"Column {target!r} has the value {broken[0]}, which is no class.",
            "A target holds classes: text, whole numbers or truth values.",
        )


def _number(label: Label) -> float | None:
    try:
        return float(label)
    except ValueError:
        return None
