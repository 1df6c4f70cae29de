"""The one place that names what a dataset consists of, for writer, reader, validator and documentation alike.

`N` rows, `D` features, `K` classes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from protodask.engine.blocks import Block
from protodask.errors import InputError

FORMAT_VERSION = 5
"""The newest form of a dataset: 5 has appended rows in parts of their own, 4 has missing values, 3 says where its rows
are from, 2 has groups. What has none of these is written as version 1, which older readers know.
"""

IS_MISSING = " is missing"
"""After the name of a column, that of the feature which says where its value is missing."""

Label = str | int | bool
"""A class as the user wrote it."""

LabelKey = tuple[type, Label]
"""What tells labels apart: True is no 1."""


def label_numbers(*labels: Sequence[Label]) -> dict[LabelKey, int]:
    """All these labels, numbered in the order in which they come."""
    keys = dict.fromkeys((type(label), label) for some_labels in labels for label in some_labels)
    return {key: number for number, key in enumerate(keys)}


def numbers_of(labels: Sequence[Label], known: Mapping[LabelKey, int]) -> NDArray[np.int64]:
    """The number of each label, -1 where it has none."""
    return np.array([known.get((type(label), label), -1) for label in labels], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Variable:
    """An array of the dataset."""

    name: str
    dims: tuple[str, ...]
    dtypes: tuple[str, ...]


FEATURES = Variable("features", ("row", "feature"), ("float32", "float64"))  # encoded, in raw units
TARGET = Variable("target", ("row",), ("int32",))  # index into the classes
WEIGHT = Variable("weight", ("row",), ("float64",))  # sample weight, >= 0
INCLUSION = Variable("inclusion", ("row",), ("float64",))  # probability that the row was kept, in (0, 1]
GROUP = Variable("group", ("row",), ("int64",))  # code of the group the row belongs to, >= 0
VARIABLES = (FEATURES, TARGET, WEIGHT, INCLUSION, GROUP)

MARKED = "marked"
"""Array of a block that says which of its rows have features that cannot be used, (n,); it is not stored."""


MOST_TEXTS = 1000
"""Categories of a column of which nobody said that it holds categories: they would be a feature each."""

FEW_TEXTS = 20
"""Up to so many, nearly every row may have another."""


def like_identifier(n_labels: int, n_rows: int) -> bool:
    """Whether a column of so many categories rather says which row it is."""
    return n_labels > FEW_TEXTS and (n_labels > MOST_TEXTS or 2 * n_labels > n_rows)


TIME_TEXT = re.compile(
    r"\d{4}-\d\d?-\d\d?(?:[T ]\d.*)?|\d\d?([./])\d\d?\1\d{4}(?: \d.*)?|\d\d?:\d\d(?::\d\d(?:\.\d+)?)?",
)
"""A day, with or without a time, or a time of a day."""

NUMBER_TEXT = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")
"""A number as tables have it that are read."""

WRITTEN_NUMBER = re.compile(
    r"[-+]?(?:[$€£¥] ?)?[-+]?(?:\d{1,3}(?:[., '\u00a0\u202f]\d{3})+|\d+)(?:[.,]\d+)?(?:[ \u00a0\u202f]?[%€$£¥])?"
)
"""A number as people write it: with a decimal comma, thousands apart, a currency or a per cent sign."""

MISSING_MARKS = frozenset(
    ("", "-", "--", "---", "?", ".", "..", "*", "n.a.", "n. a.", "na", "k.a.", "k. a.", "missing", "unknown", "nil")
)
"""What stands for a missing value in many tables, in small letters, and is text to what reads them."""


def meant_otherwise(labels: Collection[Label]) -> tuple[str, str] | None:
    """What the categories of a column seem to be rather, and what to do about it; None if they may well be categories.

    Those are times, numbers beside marks of what is missing, and numbers that are written in another way than is read.
    """
    texts = sorted(str(label).strip() for label in labels) if all(isinstance(label, str) for label in labels) else []
    known = [text for text in texts if text.lower() not in MISSING_MARKS]
    if len(known) < 2:
        return None
    if all(TIME_TEXT.fullmatch(text) for text in known):
        return (
            f"times such as {known[-1]!r}",
            "Make numbers of them, such as the days since some date, or leave the column out: later times are none of "
            "these.",
        )
    written = next((text for text in known if not NUMBER_TEXT.fullmatch(text)), None)
    marks = [repr(text) for text in dict.fromkeys(texts) if text.lower() in MISSING_MARKS]
    aside = f" but for {', '.join(marks)}" if marks else ""
    if written is None and marks:
        return f"numbers{aside}", "Leave missing values empty to have them read as such."
    if written is not None and all(WRITTEN_NUMBER.fullmatch(text) for text in known):
        told = "Leave missing values empty, and write numbers" if marks else "Write them"
        return (
            f"numbers such as {written!r}{aside}",
            f"{told} with a point alone and without units to have them read as such, or leave the column out.",
        )
    return None


NAMELESS = re.compile(r"Unnamed: \d+")
"""What a column without a name is called."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the source table and how it becomes features.

    `numeric`: one feature, as it is. `ordinal`: one feature, the position in `categories`. `nominal`: a feature for
    each of the `categories`, 1 where the value is that category and 0 elsewhere.
    """

    name: str
    kind: Literal["numeric", "nominal", "ordinal"] = "numeric"
    categories: tuple[Label, ...] = ()
    filled: float | None = None
    """What a missing value counts as, as a feature: the mean of those that are known, 0 if none is, and no category (0)
    in a nominal column. None: nothing may be missing. NaN: what is missing stays so."""
    marked: bool = False
    """Whether a further feature, the last, is 1 where the value is missing and 0 elsewhere."""

    @property
    def feature_names(self) -> tuple[str, ...]:
        names: tuple[str, ...] = (self.name,)
        if self.kind == "nominal":
            names = tuple(f"{self.name}={category}" for category in self.categories)
        return (*names, f"{self.name}{IS_MISSING}") if self.marked else names

    def with_missing(self, known: int, missing: int, total: float) -> Column:
        """The column, given in how many rows the value is missing, and in how many of positive weight it is known, with
        the sum of these as a feature.

        There may be none of these: rows of a fold, or of a month, need not have what others have.
        """
        if missing == 0:
            return self
        if known == 0:  # nothing can be learnt of it, until rows are appended; the mark says which had none
            return replace(self, filled=0.0, marked=True)
        if not math.isfinite(total):
            raise InputError(
                "overflow",
                f"The values of column {self.name!r} are so large that their sum overflows.",
                "Rescale it, or take its logarithm.",
            )
        return replace(self, filled=total / known, marked=True)


def check_dtype(dtype: str) -> None:
    """Refuse a type that features are not stored as."""
    if dtype not in FEATURES.dtypes:
        raise InputError("bad-setting", f"The dtype {dtype!r} is not supported.", "Use float32 or float64.")


def check_block_rows(rows: int) -> None:
    """Refuse a number of rows that blocks do not have."""
    if rows < 1 or rows & (rows - 1):
        raise InputError("bad-setting", f"block_rows is {rows}.", "Give a power of two, or leave it out.")


def feature_names(columns: Iterable[Column]) -> tuple[str, ...]:
    """Of all features of some columns."""
    return tuple(name for column in columns for name in column.feature_names)


def row_weights(block: Block) -> NDArray[np.float64] | None:
    """Records each row stands for, `s = weight / inclusion` (N,), or None where every row counts once."""
    weight = block.arrays.get(WEIGHT.name)
    inclusion = block.arrays.get(INCLUSION.name)
    if weight is None and inclusion is None:
        return None
    for name, values in ((WEIGHT.name, weight), (INCLUSION.name, inclusion)):
        if values is not None and values.dtype.kind not in "fiub":
            raise InputError("wrong-type", f"The {name} is of type {values.dtype}.", "Give one number for each row.")
    total = np.ones(block.n_rows) if weight is None else np.asarray(weight, dtype=np.float64)
    with np.errstate(over="ignore"):  # who uses weights refuses infinite ones, and says of which row
        return total if inclusion is None else total / inclusion
