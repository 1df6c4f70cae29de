"""The attributes of a dataset: what is written next to its arrays, and the strict reading of it.

`N` rows, `D` features, `K` classes.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from protodask.data.arrays.plain_arrays import ArraySpec, PlainArray, shortened
from protodask.data.format.parts import MAX_COMMITS, NAME, Part, fits, key_of
from protodask.data.format.schema import (
    FEATURES,
    FORMAT_VERSION,
    GROUP,
    INCLUSION,
    VARIABLES,
    WEIGHT,
    Column,
    Label,
    Variable,
    feature_names,
)
from protodask.data.format.segments import MAX_SEGMENTS
from protodask.data.format.summary import Summary
from protodask.data.places.bounded import MAX_JSON_BYTES
from protodask.data.places.records import Fields, RecordKind, describe_columns, hash_json, recognize, seal, unseal
from protodask.data.places.storage import DATASET
from protodask.engine import Block, Layout
from protodask.errors import FormatError, InputError

MAX_BLOCK_BYTES = 2**30
"""No block is larger: a bound on what a damaged or hostile file can make a reader allocate."""

DIGEST_BYTES = 16
DIGEST_MODULUS = 1 << (8 * DIGEST_BYTES)

BLOCK_CHECK_BYTES = 8
"""Of a block's digest, this much is kept for each block: enough to tell that a block is not the one written there."""

MOMENTS = ("mean", "squares", "minimum", "maximum")
"""What a summary says of each feature."""

INGEST_AGAIN = "Ingest the data again, or restore the dataset from a copy."

RECORD = RecordKind(
    "dataset",
    DATASET.format,
    FORMAT_VERSION,
    "Make one with `ingest()` or `sample_data()`.",
    INGEST_AGAIN,
)


@dataclass(frozen=True)
class Metadata:
    """Everything a dataset's attributes say."""

    n_rows: int
    block_rows: int
    dtype: str
    classes: tuple[Label, ...]
    columns: tuple[Column, ...]
    target_name: str
    weight_name: str | None
    inclusion_name: str | None
    dropped: tuple[str, ...]
    """Columns of the source tables that were left out, so that later tables may have them too."""
    summary: Summary
    content: int = 0
    """Sum of the block digests modulo 2**128: an append needs to hash its own blocks only."""
    block_checks: bytes = b""
    """The first 8 bytes of each block's digest, so that a block that stands in the wrong place is noticed."""
    notes: tuple[str, ...] = ()
    identity: str = ""
    """Drawn when the dataset is made and kept by appends: tells it from another that takes its place."""
    group_name: str | None = None
    segments: str | None = None
    """Hash of the list that says from which sources the rows are, if there is one."""
    n_segments: int = 0
    segments_in: str = ""
    """The group in `appends` that has the list, if an append wrote it."""
    commit: int = 0
    """How often the dataset was changed since it was made."""
    parts: tuple[Part, ...] = ()
    """Where the rows lie; empty where all of them are those of the first writing."""
    changes: tuple[str, ...] = ()
    """What the last commits are called, so that whoever made one finds that it counts."""

    @property
    def version(self) -> int:
        """The oldest version of the format that can hold it.

        Who knows no list of sources must not append: it would be lost.
        """
        if self.commit:
            return FORMAT_VERSION
        if any(column.filled is not None for column in self.columns):
            return 4
        if self.segments is not None:
            return 3
        return 2 if self.group_name is not None else 1

    @property
    def is_weighted(self) -> bool:
        """Whether its rows stand for different numbers of records."""
        return self.weight_name is not None or self.inclusion_name is not None

    @property
    def feature_names(self) -> tuple[str, ...]:
        return feature_names(self.columns)

    @property
    def n_features(self) -> int:
        return sum(len(column.feature_names) for column in self.columns)

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The arrays this dataset has."""
        names = {WEIGHT: self.weight_name, INCLUSION: self.inclusion_name, GROUP: self.group_name}
        present = {variable: name is not None for variable, name in names.items()}
        return tuple(variable for variable in VARIABLES if present.get(variable, True))

    def spec_of(self, variable: Variable) -> ArraySpec:
        """An array, whatever the number of rows."""
        dtype = self.dtype if variable is FEATURES else variable.dtypes[0]
        return ArraySpec(variable.name, dtype, self.n_features if len(variable.dims) == 2 else None)

    def array_of(self, variable: Variable, root: str, part: Part) -> PlainArray:
        """An array as it is in a part, of the dataset whose group lies at `root`."""
        form = self.spec_of(variable).form(root, Layout(part.rows, self.block_rows))
        # Earlier versions appended in place, and may have been killed at it.
        return replace(form, name=key_of(part.name, variable.name), growing=not part.name)

    @property
    def row_bytes(self) -> int:
        return sum(self.spec_of(variable).row_bytes for variable in self.variables)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the content, of what it means, and of its statistics to the last bit: all that training starts from.

        The same for the same data written in the same way, wherever it lies and whatever files it came from. Rows that
        were appended may have statistics that differ from those of one writing in their rounding, and another
        fingerprint then; `content` is the same even so.
        """
        return hash_json(
            [
                _schema_record(self),
                self.n_rows,
                self.block_rows,
                f"{self.content:032x}",
                _exact_record(self.summary),
            ]
        )

    @property
    def all_parts(self) -> tuple[Part, ...]:
        """Where the rows lie, in order."""
        return self.parts or (Part("", 0, self.n_rows),)

    def block_check(self, number: int) -> bytes:
        """What `check_of` says of the digest of a block."""
        return self.block_checks[BLOCK_CHECK_BYTES * number : BLOCK_CHECK_BYTES * (number + 1)]


def block_digest(block: Block) -> int:
    """128-bit hash of a block's number and the raw bytes of its arrays."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    digest.update(f"{block.number}:{block.n_rows}".encode())
    for variable in VARIABLES:
        if variable.name in block:
            digest.update(variable.name.encode())
            digest.update(np.ascontiguousarray(block[variable.name]).reshape(-1).view(np.uint8).data)
    return int.from_bytes(digest.digest(), "big")


def check_of(digest: int) -> bytes:
    """The part of a block's digest that is kept for each block."""
    return digest.to_bytes(DIGEST_BYTES, "big")[:BLOCK_CHECK_BYTES]


def _schema_record(metadata: Metadata) -> dict[str, Any]:
    return {
        "dtype": metadata.dtype,
        "classes": list(metadata.classes),
        "columns": describe_columns(metadata.columns),
        "target_name": metadata.target_name,
        "weight_name": metadata.weight_name,
        "inclusion_name": metadata.inclusion_name,
        # Not there where there are no groups, so that such a dataset has the fingerprint it always had.
        **({} if metadata.group_name is None else {"group_name": metadata.group_name}),
    }


def _exact_record(summary: Summary) -> dict[str, Any]:
    return {
        "weight": float(summary.weight).hex(),
        **{name: [value.hex() for value in getattr(summary, name).tolist()] for name in ("class_weight", *MOMENTS)},
    }


def to_attributes(metadata: Metadata) -> dict[str, Any]:
    """The JSON object written as the attributes of the dataset's group."""
    summary = metadata.summary
    record = {
        "format": DATASET.format,
        "version": metadata.version,
        "n_rows": metadata.n_rows,
        "block_rows": metadata.block_rows,
        **_schema_record(metadata),
        "feature_names": list(metadata.feature_names),
        "dropped": list(metadata.dropped),
        "rows": summary.rows,
        "weight": float(summary.weight),
        **{name: getattr(summary, name).tolist() for name in ("class_rows", "class_weight", "deviation", *MOMENTS)},
        "notes": list(metadata.notes),
        "identity": metadata.identity,
        "content": f"{metadata.content:032x}",
        "block_checks": metadata.block_checks.hex(),
        "fingerprint": metadata.fingerprint,
    }
    if metadata.is_weighted and summary.largest_weight is not None:
        # It follows from the rows, so that the fingerprint covers it; readers of earlier versions pass over it.
        record["largest_weight"] = float(summary.largest_weight)
    if metadata.segments is not None:
        record |= {"segments": metadata.segments, "n_segments": metadata.n_segments}
    if metadata.commit:
        record |= {
            "commit": metadata.commit,
            "changes": list(metadata.changes),
            "segments_in": metadata.segments_in,
            "part_names": [part.name for part in metadata.all_parts],
            "part_first_blocks": [part.first_block for part in metadata.all_parts],
            "part_rows": [part.rows for part in metadata.all_parts],
        }
    return seal(record, RECORD.name)


def require_storable(metadata: Metadata, remedy: str = "Write another dataset, with fewer block_rows.") -> None:
    """Refuse, before its rows are read, a dataset with attributes that `to_attributes` could refuse at the end.

    Whatever the rows are: each statistic is taken to be as long as a number gets. The `remedy` is for large blocks.
    """
    if min(metadata.block_rows, metadata.n_rows) * metadata.row_bytes > MAX_BLOCK_BYTES:
        raise InputError(
            "over-limit",
            f"Blocks of {metadata.block_rows} rows would have more than {MAX_BLOCK_BYTES // 2**20} MiB.",
            remedy,
        )
    classes = len(metadata.classes)
    # 23 characters each, 24 with the sign, and 23 for the deviations that follow from this weight.
    longest = np.full(metadata.n_features, sys.float_info.min)
    summary = Summary(
        rows=metadata.n_rows,
        class_rows=np.full(classes, metadata.n_rows),
        class_weight=np.full(classes, sys.float_info.min),
        weight=1.2345678901234567e-100,
        mean=-longest,
        squares=longest,
        minimum=-longest,
        maximum=-longest,
        largest_weight=sys.float_info.min,
    )
    # Two hexadecimal digits a byte: more than this many are refused, and need not be made.
    check_bytes = min(BLOCK_CHECK_BYTES * -(-metadata.n_rows // metadata.block_rows), MAX_JSON_BYTES // 2)
    to_attributes(replace(metadata, summary=summary, block_checks=bytes(check_bytes)))


def from_attributes(attributes: object, where: str) -> Metadata:
    """Read and check the attributes of the dataset at `where`; whatever is wrong with them is a `FormatError`."""
    fields = recognize(attributes, RECORD, where)
    if fields.integer("n_rows", 0) == 0:
        raise FormatError(
            "unfinished", f"The dataset {where} was never finished: it has no committed rows.", INGEST_AGAIN
        )
    unseal(fields)
    metadata = _parse(fields)
    if metadata.fingerprint != fields.record.get("fingerprint"):
        fields.damaged("the fingerprint does not match")
    if list(metadata.feature_names) != fields.record.get("feature_names"):
        fields.damaged("the feature names do not follow from the columns")
    if min(metadata.block_rows, metadata.n_rows) * metadata.row_bytes > MAX_BLOCK_BYTES:
        fields.damaged("a block would be larger than any this package writes")
    return metadata


def _parts(fields: Fields, n_rows: int, block_rows: int) -> dict[str, Any]:
    """What appends have said of a dataset."""
    if "commit" not in fields.record:
        return {}
    segments_in = fields.text("segments_in")
    names = fields.texts("part_names")
    starts = fields.integers("part_first_blocks", len(names))
    rows = fields.integers("part_rows", len(names))
    parts = tuple(map(Part, names, starts, rows))
    if not parts or not fits(parts, n_rows, block_rows) or (segments_in and not NAME.fullmatch(segments_in)):
        fields.damaged("its parts are not those of its rows")
    return {
        "commit": fields.integer("commit", 1, MAX_COMMITS),
        "changes": fields.texts("changes"),
        "segments_in": segments_in,
        "parts": parts,
    }


def _largest_weight(fields: Fields) -> float | None:
    if fields.record.get("weight_name") is None and fields.record.get("inclusion_name") is None:
        return 1.0
    if "largest_weight" not in fields.record:
        return None
    largest = float(fields.floats("largest_weight", None)[0])
    if largest <= 0:
        fields.damaged("the largest weight is not positive")
    return largest


def _parse(fields: Fields) -> Metadata:
    n_rows = fields.integer("n_rows", 1)
    block_rows = fields.integer("block_rows", 1)
    if block_rows & (block_rows - 1):
        fields.damaged("block_rows is not a power of two")
    dtype = fields.text("dtype")
    if dtype not in FEATURES.dtypes:
        fields.damaged("the features have an unknown type")
    classes = fields.labels("classes")
    columns = fields.columns()
    width = sum(len(column.feature_names) for column in columns)
    # As many as there are blocks: so the number of blocks is bounded by the size of the file it stands in.
    n_blocks = -(-n_rows // block_rows)
    block_checks = fields.hexadecimal("block_checks", BLOCK_CHECK_BYTES * n_blocks)
    summary = Summary(
        rows=fields.integer("rows", 0, n_rows),
        class_rows=np.array(fields.integers("class_rows", len(classes)), dtype=np.int64),
        class_weight=fields.floats("class_weight", len(classes)),
        weight=float(fields.floats("weight", None)[0]),
        **{name: fields.floats(name, width) for name in MOMENTS},
        largest_weight=_largest_weight(fields),
    )
    if sum(summary.class_rows.tolist()) != summary.rows or (summary.minimum > summary.maximum).any():
        fields.damaged("counts or ranges contradict each other")
    if summary.weight <= 0 or (summary.class_weight < 0).any() or (summary.squares < 0).any():
        fields.damaged("weights or squares are negative")
    return Metadata(
        n_rows=n_rows,
        block_rows=block_rows,
        dtype=dtype,
        classes=classes,
        columns=columns,
        target_name=fields.text("target_name"),
        weight_name=fields.optional_text("weight_name"),
        inclusion_name=fields.optional_text("inclusion_name"),
        dropped=fields.texts("dropped"),
        summary=summary,
        content=int.from_bytes(fields.hexadecimal("content", DIGEST_BYTES), "big"),
        block_checks=block_checks,
        notes=fields.texts("notes"),
        identity=fields.optional_text("identity") or "",
        group_name=fields.optional_text("group_name"),
        segments=None if fields.record.get("segments") is None else fields.hexadecimal("segments", DIGEST_BYTES).hex(),
        n_segments=0 if fields.record.get("segments") is None else fields.integer("n_segments", 0, MAX_SEGMENTS),
        **_parts(fields, n_rows, block_rows),
    )


def check_same_schema(old: Metadata, new: Metadata) -> None:
    """Refuse to append what is encoded otherwise than the dataset."""
    for name in ("columns", "classes", "target_name", "weight_name", "inclusion_name", "group_name"):
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            if name == "columns":
                _name_column(before, after)
            what = name.removesuffix("_name")
            raise InputError(
                "columns-differ",
                f"The {what} of the rows to append are {shortened(after)}, those of the dataset {shortened(before)}.",
                "Append rows encoded like the dataset, or write another dataset.",
            )


def _name_column(before: Sequence[Column], after: Sequence[Column]) -> None:
    """Say of a column that differs in what a missing value counts as alone that it does."""
    for old, new in zip(before, after, strict=False):
        if old != new and replace(new, filled=old.filled, marked=old.marked) == old:
            raise InputError(
                "columns-differ",
                f"A missing value of column {old.name!r} counts as {old.filled} in the dataset, and as {new.filled} in "
                "the rows to append; None is not missing in any row.",
                "Append the tables that the rows are from: they are encoded like the dataset then.",
            )
