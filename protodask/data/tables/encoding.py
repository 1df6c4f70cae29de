"""From the values of a table to features and codes; NumPy only.

`n` rows of a partition, `D` features, `K` classes.
"""

from __future__ import annotations

import hashlib
import math
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from protodask.data.arrays.rows import CHECK_ROWS, REMOVE
from protodask.data.arrays.values import is_pandas_missing
from protodask.data.format.schema import Column, Label, LabelKey, like_identifier, meant_otherwise
from protodask.data.places.records import LABEL_RANGE
from protodask.errors import InputError, some

Values = NDArray[Any]
Table = Mapping[str, Values]
"""Columns of equal length. Text and anything missing comes as objects, None where missing."""

Unseen = Literal["error", "zero"]
Missing = Literal["fill", "error"]
"""What becomes of missing values when it is found out what the columns of a table become: see `Column.filled`."""
BadRows = Literal["error", "mark"]
"""Whether a row with a value that cannot be used is an error, or marked where it is to be scored."""

UNSEEN = -1
MISSING = -2

INTEGER_TEXT = re.compile(r"(?:0|-?[1-9][0-9]{0,17})")
WHOLE_TEXT = re.compile(r"(-?[0-9]{1,18})\.0*")
BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True)
class MatrixTable(Mapping[str, Values]):
    """The columns of a matrix (n, D), and others besides; a numeric matrix is encoded in one step."""

    names: tuple[str, ...]
    matrix: Values
    others: Table

    @cached_property
    def _positions(self) -> Mapping[str, int]:
        return {name: position for position, name in enumerate(self.names)}

    def __getitem__(self, name: str) -> Values:
        found = self.others.get(name)
        return self.matrix[:, self._positions[name]] if found is None else found

    def __iter__(self) -> Iterator[str]:
        yield from self.names
        yield from self.others

    def __len__(self) -> int:
        return len(self.names) + len(self.others)


@dataclass(frozen=True)
class Problem:
    """The first value of a table that cannot be used."""

    row: int
    column: str
    seen: str
    remedy: str

    def shifted(self, rows: int) -> Problem:
        return replace(self, row=self.row + rows)

    def told(self, among: str = "") -> str:
        """What it is; rows are counted `among` others than all there are, if it is said."""
        return f"{self.column!r} {self.seen} in row {self.row}{among} (counted from 0)"

    def error(self, among: str = "") -> InputError:
        """What to raise."""
        return InputError("bad-value", f"Column {self.told(among)}.", self.remedy)


def check_unseen(unseen: str) -> None:
    """Refuse what is no way to take categories that were not there."""
    if unseen not in get_args(Unseen):
        raise InputError("bad-setting", f"unseen is {unseen!r}.", "Give 'error' or 'zero'.")


Marks = NDArray[np.bool_] | None
"""Where rows with a value that cannot be used are marked (n,); None where such a value is an error."""


def first_of(wrong: NDArray[np.bool_], problem: Callable[[int], Problem], marks: Marks = None) -> Problem | None:
    """The problem of the first row that is wrong; none where those are marked."""
    if marks is not None:
        marks |= wrong
        return None
    return problem(int(np.argmax(wrong))) if wrong.any() else None


def first_problem(problems: Iterable[Problem | None]) -> Problem | None:
    """The problem of the smallest row."""
    return min((problem for problem in problems if problem), key=lambda problem: problem.row, default=None)


@dataclass(frozen=True)
class KeptTable(Mapping[str, Values]):
    """A partition whose columns `kept`, an Arrow table, are handed on as they are."""

    table: Table
    kept: Any

    def __getitem__(self, name: str) -> Values:
        return self.table[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.table)

    def __len__(self) -> int:
        return len(self.table)


def table_rows(table: Table) -> int:
    """Rows of a partition."""
    match table:
        case MatrixTable():
            return len(table.matrix)
        case KeptTable():
            return int(table.kept.num_rows)
        case _:
            return len(next(iter(table.values())))


def select_rows(table: Table, first: int, last: int) -> Table:
    """Some rows of a partition, without a copy."""
    if isinstance(table, KeptTable):
        return KeptTable(select_rows(table.table, first, last), table.kept.slice(first, last - first))
    if isinstance(table, MatrixTable):
        others = {name: values[first:last] for name, values in table.others.items()}
        return MatrixTable(table.names, table.matrix[first:last], others)
    return {name: values[first:last] for name, values in table.items()}


def label_of(value: Any) -> Label | None:
    """The label a value stands for, None if it is missing. Whole floats are integers, other floats their text, and so
    are integers of more than 64 bits, which no file has as numbers.
    """
    value = _of_python(value)
    if value is None:  # also a date of NumPy's that is missing
        return None
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        if not value.is_integer():
            return repr(value)
        value = int(value)
    match value:
        case bool() | str():
            return value
        case int():
            number = int(value)  # of an enumeration, too, for which a range would look number by number
            return number if number in LABEL_RANGE else str(number)
        case bytes():
            return value.decode("utf-8", "replace")
        case _:
            return None if is_pandas_missing(value) else str(value)


def _of_python(value: Any) -> Any:
    """A value of NumPy's as one of Python's. Times that this does not know, such as nanoseconds, are text: to NumPy
    they are whole numbers.
    """
    if not isinstance(value, np.generic):
        return value
    plain = value.item()
    return str(value) if value.dtype.kind in "mM" and isinstance(plain, int) else plain


def settle_labels(labels: Iterable[LabelKey], untyped: bool) -> tuple[Label, ...]:
    """Distinct labels in their order: all of one type.

    `untyped` says that text may stand for numbers or truth values, as it does in CSV files: text that is all whole
    numbers becomes integers, text that is all true or false becomes booleans.
    """
    found = [label for _, label in labels]
    typed = [label for label in found if not isinstance(label, str)]
    text = [label for label in found if isinstance(label, str)]
    if text and (untyped or typed):
        parsed = [_parse_integer(label) for label in text]
        flags = [BOOLEANS.get(label.lower()) for label in text]
        if all(number is not None for number in parsed) and not any(isinstance(label, bool) for label in typed):
            found = [*typed, *(number for number in parsed if number is not None)]
        elif all(flag is not None for flag in flags) and all(isinstance(label, bool) for label in typed):
            found = [*typed, *(flag for flag in flags if flag is not None)]
    kinds = {type(label) for label in found}
    if len(kinds) > 1:
        return tuple(sorted({str(label) for label in found}))
    return tuple(sorted(set(found)))


def check_categories(name: str, labels: Collection[Label], n_rows: int) -> None:
    """Refuse to take a column of text for categories that looks like an identifier."""
    if not like_identifier(len(labels), n_rows):
        return
    seen = f"Column {name!r} has {len(labels):,} different texts in {n_rows:,} rows"
    if meant := meant_otherwise(labels):
        raise InputError("over-limit", f"{seen}, {meant[0]}.", meant[1])
    raise InputError(
        "over-limit",
        f"{seen}, like an identifier.",
        "Leave it out, make it coarser, or say that these are categories: `categorical` at an ingest, "
        ".astype('category') of a data frame.",
    )


def _parse_integer(text: str) -> int | None:
    if INTEGER_TEXT.fullmatch(text):
        return int(text)
    whole = WHOLE_TEXT.fullmatch(text)
    return int(whole[1]) if whole else None


def distinct_labels(values: Values, name: str) -> frozenset[LabelKey]:
    """The labels that occur in a column of this name; missing values are not among them."""
    found: Iterable[Any]
    if values.dtype.kind == "O":
        items = values.tolist()
        try:
            found = set(items)
            if 0 in found or 1 in found:  # as members they are False and True
                found = [item for _, item in {(type(item), item) for item in items}]
        except TypeError as error:
            raise InputError(
                "wrong-type",
                f"Column {name!r} holds lists or the like, which are no categories.",
                "Make columns of what is in them, or leave it out.",
            ) from error
    else:
        found = np.unique(values).tolist() if values.dtype.kind in "biufUT" else np.unique(values)
    return frozenset((type(label), label) for label in map(label_of, found) if label is not None)


def label_codes(values: Values, labels: Sequence[Label]) -> NDArray[np.int64]:
    """Position of each value in `labels`; -1 where it is not among them, -2 where it is missing.

    Values match labels by meaning, not by type: the text "3" and the float 3.0 are the integer 3.
    """
    return _coded(values, _code_lookup(labels))


def _coded(values: Values, code_of: Callable[[Any], int]) -> NDArray[np.int64]:
    """The code of each value; equal values are looked at once."""
    if values.dtype.kind == "O":
        items = values.tolist()
        try:
            codes = {item: code_of(item) for item in set(items)}
            if 0 in codes or 1 in codes:  # as keys they are False and True
                items = [(type(item), item) for item in items]
                codes = {key: code_of(key[1]) for key in set(items)}
        except TypeError:  # lists and such
            return np.fromiter(map(code_of, items), np.int64, len(items))
        return np.fromiter(map(codes.__getitem__, items), np.int64, len(items))
    found, inverse = np.unique(values, return_inverse=True)
    return np.fromiter(map(code_of, found), np.int64, len(found))[inverse]


def _code_lookup(labels: Sequence[Label]) -> Callable[[Any], int]:
    by_text = {str(label): code for code, label in enumerate(labels)}
    whole = all(type(label) is int for label in labels)
    flags = all(type(label) is bool for label in labels)

    def code_of(value: Any) -> int:
        label = label_of(value)
        if label is None:
            return MISSING
        if isinstance(label, str):
            if whole and (number := _parse_integer(label)) is not None:
                label = number
            elif flags and (flag := BOOLEANS.get(label.lower())) is not None:
                label = flag
        return by_text.get(str(label), UNSEEN)

    return code_of


def encode_labels(
    values: Values, classes: Sequence[Label], name: str = "target"
) -> tuple[NDArray[np.int32], Problem | None]:
    """Positions of labels in `classes` (n,), and the first label that has none."""
    codes = label_codes(values, classes)
    problem = _label_problem(values, codes, name, "class", "Give rows of the known classes only.")
    return codes.astype(np.int32), problem


FILL = (
    "Fill in or remove such rows first, or have missing values count as the mean or as no category: with "
    "missing='fill' where the dataset is made (anew with overwrite=True if it is there already), or unseen='zero' "
    "where a model scores."
)


def _label_problem(
    values: Values, codes: NDArray[np.int64], name: str, what: str, remedy: str, marks: Marks = None
) -> Problem | None:
    def problem(row: int) -> Problem:
        if codes[row] == MISSING:
            return Problem(row, name, "has a missing value", REMOVE if what == "class" else FILL)
        return Problem(row, name, f"has the {what} {_plain(values[row])!r}, which was not there at ingest,", remedy)

    return first_of(codes < 0, problem, marks)


def encode_features(
    table: Table, columns: Sequence[Column], out: NDArray[np.floating], unseen: Unseen = "error", marks: Marks = None
) -> Problem | None:
    """Fill `out` (n, D) with the features of the columns; returns the first value that cannot be used, if any.

    With `unseen="zero"` a nominal value that is none of the categories has 0 in all of its features. Rows in which a
    value cannot be used are noted in `marks`, if they are given: that is no problem then, and their features are 0.
    """
    problems: list[Problem | None] = []
    if (
        isinstance(table, MatrixTable)
        and table.names == tuple(column.name for column in columns)
        and table.matrix.dtype.kind in "biuf"
        and all(column.kind == "numeric" for column in columns)
    ):
        problems.append(_encode_matrix(table.matrix, columns, out, marks))
        columns = ()
    first = 0
    for column in columns:
        part = out[:, first : first + len(column.feature_names)]
        first += part.shape[1]
        if column.kind == "numeric":
            problems.append(_encode_numeric(table[column.name], column, part, marks))
        else:
            problems.append(_encode_categories(table[column.name], column, part, unseen, marks))
    if marks is not None:
        out[marks] = 0
    found = first_problem(problems)
    return replace(found, remedy=REMOVE) if found and unseen == "zero" and found.remedy == FILL else found


def _encode_matrix(
    matrix: Values, columns: Sequence[Column], out: NDArray[np.floating], marks: Marks
) -> Problem | None:
    """Numbers, all columns at once."""
    mark = np.cumsum([1 + column.marked for column in columns]) - 1
    place = mark - [column.marked for column in columns]
    direct = out.shape[1] == len(columns)
    with np.errstate(over="ignore"):
        out[:, slice(None) if direct else place] = matrix
    for position, column in enumerate(columns):
        if column.filled is not None:
            _fill(out[:, place[position] : mark[position] + 1], np.isnan(matrix[:, position]), column)
    places = None if direct else place
    return _unusable_number(out, columns, lambda row, position: matrix[row, position], places, marks)


def _fill(out: NDArray[np.floating], missing: NDArray[np.bool_], column: Column) -> None:
    """Put what a column has instead into the features of rows where its value is missing."""
    out[missing, 0] = column.filled
    if column.marked:
        out[:, -1] = missing


def _encode_categories(
    values: Values, column: Column, out: NDArray[np.floating], unseen: Unseen, marks: Marks
) -> Problem | None:
    codes = label_codes(values, column.categories)
    missing = codes == MISSING
    if column.kind == "ordinal":
        out[:, 0] = codes
        order = ", ".join(map(str, column.categories))
        remedy = f"The order given is {order}: add the category to it, or remove the rows."
    else:
        out[...] = 0
        known = np.flatnonzero(codes >= 0)
        out[known, codes[known]] = 1
        if unseen == "zero":
            codes = np.where(codes == UNSEEN, 0, codes)
        remedy = "Ingest again with all categories, or have unseen ones treated as all-zero (unseen='zero')."
    if column.filled is not None:
        _fill(out, missing, column)
        codes = np.where(missing, 0, codes)
    return _label_problem(values, codes, column.name, "category", remedy, marks)


def _encode_numeric(values: Values, column: Column, out: NDArray[np.floating], marks: Marks) -> Problem | None:
    numbers, problem = numeric_values(values, column.name, marks)
    with np.errstate(over="ignore"):
        out[:, 0] = numbers
    if column.filled is not None:
        _fill(out, np.isnan(numbers), column)
    unusable = _unusable_number(out[:, :1], (column,), lambda row, position: numbers[row], marks=marks)
    return first_problem([problem, unusable])


def numeric_values(values: Values, name: str, marks: Marks = None) -> tuple[Values, Problem | None]:
    """Values as numbers, NaN where missing and 0 where they are none, and the first that is none."""
    if values.dtype.kind in "biuf":
        return values, None
    listed = values.tolist() if values.dtype.kind in "OUT" else list(values)
    if set(map(type, listed)) <= {int, type(None)}:  # beside missing ones, whole numbers may come as objects
        with suppress(OverflowError):
            return np.array(listed, dtype=np.float64), None
    numbers = np.zeros(len(values))
    problem: Problem | None = None
    for row, value in enumerate(listed):
        plain = _of_python(value)  # of which `float` makes no numbers that mean nothing
        try:
            numbers[row] = math.nan if plain is None or is_pandas_missing(plain) else float(plain)
        except (TypeError, ValueError, OverflowError):
            if marks is not None:
                marks[row] = True
            elif problem is None:
                remedy = (
                    f"Correct the value, or say at the ingest that the column is not a number (categorical=[{name!r}])."
                )
                problem = Problem(row, name, f"has the value {_plain(value)!r}, which is not a number,", remedy)
    return numbers, problem


def _plain(value: Any) -> Any:
    plain = _of_python(value)
    if isinstance(plain, int) and plain.bit_length() > 256:
        return f"a whole number of {plain.bit_length():,} bits"  # Python itself refuses to show thousands of digits
    return plain[:100] if isinstance(plain, str) else plain


def _unusable_number(
    out: NDArray[np.floating],
    columns: Sequence[Column],
    original: Callable[[int, int], Any],
    places: NDArray[np.intp] | None = None,
    marks: Marks = None,
) -> Problem | None:
    """The first number that cannot be used, of columns that are in these `places` of the features, or are all."""
    stays = np.array([column.filled is not None for column in columns])
    for first in range(0, len(out), CHECK_ROWS):
        part = out[first : first + CHECK_ROWS]
        if places is not None:
            part = part[:, places]
        usable = np.isfinite(part)
        if usable.all():
            continue
        usable |= stays & np.isnan(part)
        if usable.all():
            continue
        if marks is not None:
            marks[first : first + CHECK_ROWS] |= ~usable.all(axis=1)
            continue
        row, position = (int(index) for index in np.argwhere(~usable)[0])
        row += first
        value, name = original(row, position), columns[position].name
        if np.isfinite(value):
            seen = f"has the value {_plain(value)!r}, which is too large for {out.dtype.name},"
            return Problem(row, name, seen, "Rescale the column, or store the dataset as float64.")
        seen = "has a missing or infinite value" if columns[position].filled is None else "has an infinite value"
        return Problem(row, name, seen, FILL if np.isnan(value) else REMOVE)
    return None


def encode_weight(values: Values, name: str) -> tuple[NDArray[np.float64], Problem | None]:
    """Sample weights (n,), and the first that is negative or no number."""
    numbers, problem = encode_number(values, name)

    def negative(row: int) -> Problem:
        return Problem(row, name, "has a negative weight", "Give weights of at least 0.")

    return numbers, first_problem([problem, first_of(numbers < 0, negative)])


def encode_inclusion(values: Values, name: str) -> tuple[NDArray[np.float64], Problem | None]:
    """Inclusion probabilities (n,), and the first outside (0, 1]."""
    numbers, problem = encode_number(values, name)

    def outside(row: int) -> Problem:
        seen = f"has the inclusion probability {numbers[row]}"
        return Problem(row, name, seen, "Give probabilities above 0 and at most 1.")

    return numbers, first_problem([problem, first_of((numbers <= 0) | (numbers > 1), outside)])


def encode_number(values: Values, name: str) -> tuple[NDArray[np.float64], Problem | None]:
    """Finite numbers (n,) that are no feature, and the first that is none."""
    numbers, problem = numeric_values(values, name)
    if problem is not None:
        problem = replace(problem, remedy="Correct the value, or name another column.")
    floats = np.ascontiguousarray(numbers, dtype=np.float64)
    unusable = _unusable_number(floats.reshape(-1, 1), (Column(name),), lambda row, position: floats[row])
    return floats, first_problem([problem, unusable and replace(unusable, remedy=REMOVE)])


def encode_group(values: Values, name: str) -> tuple[NDArray[np.int64], Problem | None]:
    """Codes of the groups that values name (n,), and the first that is missing.

    A code is 63 bits of a hash of the value's text: the same in any table and on any machine. Like labels, values are
    told apart by meaning: the text "3" and the float 3.0 are the integer 3, and True is 1. Should two groups have one
    code, their rows are kept together, which does no harm; of a million groups any two have one in 1 of 18 million
    cases.
    """
    codes = _coded(values, _group_code)
    remedy = "Fill in or remove such rows first; a row of its own needs a group of its own."
    return codes, first_of(codes == MISSING, lambda row: Problem(row, name, "has a missing value", remedy))


def _group_code(value: Any) -> int:
    label = label_of(value)
    if label is None:
        return MISSING
    if isinstance(label, str):
        number = _parse_integer(label)
        label = BOOLEANS.get(label.lower(), label) if number is None else number
    # Where they are keys of a dictionary, True is 1 and False is 0; so they are here.
    text = str(int(label) if isinstance(label, bool) else label).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8, person=b"protodask group").digest(), "big") >> 1


def check_column_names(found: Iterable[str], expected: Iterable[str], where: str = "The table") -> None:
    """Refuse a table that lacks columns or has others than expected."""
    missing, further = _differing_names(found, expected)
    if missing or further:
        raise _other_columns(missing, further, where)


def columns_besides(
    found: Iterable[str] | Mapping[str, Iterable[str]], expected: Iterable[str], optional: Iterable[str]
) -> list[str]:
    """The columns of a later table, or of several by what they are called, that nobody knows: a warning says that they
    are left out. One that lacks columns is refused.
    """
    wanted, allowed = list(expected), list(optional)
    besides: dict[str, None] = {}
    for where, names in (found if isinstance(found, Mapping) else {"The table": found}).items():
        missing, others = _differing_names(names, wanted, allowed)
        if missing:
            raise _other_columns(missing, others, where)
        besides.update(dict.fromkeys(others))
    further = list(besides)
    if further:
        named = some([repr(name) for name in further])
        warnings.warn(f"Columns that were not there at the ingest are left out: {named}.", stacklevel=3)
    return further


def _differing_names(
    found: Iterable[str], expected: Iterable[str], optional: Iterable[str] = ()
) -> tuple[list[str], list[str]]:
    present, wanted = list(found), list(expected)
    allowed = {*wanted, *optional}
    return [name for name in wanted if name not in set(present)], [name for name in present if name not in allowed]


def _other_columns(missing: Sequence[str], further: Sequence[str], where: str) -> InputError:
    said = [f"lacks {some([repr(name) for name in missing])}"] if missing else []
    said += [f"has {some([repr(name) for name in further])} besides"] if further else []
    return InputError(
        "columns-differ",
        f"{where} has other columns than expected: it {' and '.join(said)}.",
        "Give tables with the columns of the ingest; leave further ones out with `drop`.",
    )
