"""The attributes of a dataset: what is written next to its arrays, and the strict reading of it.

`N` rows, `D` features, `K` classes.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from protodask.data.schema import (
    FEATURES,
    FORMAT_NAME,
    FORMAT_VERSION,
    INCLUSION,
    VARIABLES,
    WEIGHT,
    Column,
    Label,
    Variable,
)
from protodask.data.summary import Summary
from protodask.engine import Block
from protodask.errors import FormatError

MAX_BLOCK_BYTES = 2**30
"""No block is larger: a bound on what a damaged or hostile file can make a reader allocate."""

MAX_CHUNK_BYTES = 8 * 2**20
"""A chunk is what a read needs beyond its block, so it is smaller than one; 8 MiB still reads at full speed."""

DIGEST_BYTES = 16
DIGEST_MODULUS = 1 << (8 * DIGEST_BYTES)

INGEST_AGAIN = "Ingest the data again, or restore the dataset from a copy."

KINDS: tuple[Literal["numeric", "nominal", "ordinal"], ...] = ("numeric", "nominal", "ordinal")


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
    content: int
    """Sum of the block digests modulo 2**128: an append needs to hash its own blocks only."""
    notes: tuple[str, ...] = ()
    identity: str = ""
    """Drawn when the dataset is made and kept by appends: tells it from another that takes its place."""

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(name for column in self.columns for name in column.feature_names)

    @property
    def n_features(self) -> int:
        return sum(len(column.feature_names) for column in self.columns)

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The arrays this dataset has."""
        present = {WEIGHT: self.weight_name is not None, INCLUSION: self.inclusion_name is not None}
        return tuple(variable for variable in VARIABLES if present.get(variable, True))

    def dtype_of(self, variable: Variable) -> np.dtype[Any]:
        return np.dtype(self.dtype if variable is FEATURES else variable.dtypes[0])

    def shape_of(self, variable: Variable, rows: int) -> tuple[int, ...]:
        return (rows, self.n_features) if len(variable.dims) == 2 else (rows,)

    def chunk_rows(self, variable: Variable) -> int:
        """Rows of a chunk: a block's, halved until a chunk has at most 8 MiB."""
        row_bytes = self.dtype_of(variable).itemsize * math.prod(self.shape_of(variable, 1))
        rows = self.block_rows
        while rows > 1 and rows * row_bytes > MAX_CHUNK_BYTES:
            rows //= 2
        return rows

    @property
    def row_bytes(self) -> int:
        return sum(
            self.dtype_of(variable).itemsize * math.prod(self.shape_of(variable, 1)) for variable in self.variables
        )

    @property
    def fingerprint(self) -> str:
        """Hash of the content, of what it means, and of its statistics to the last bit: all that training starts from.

        The same for the same data written in the same way, wherever it lies. Rows that were appended may have
        statistics that differ from those of one writing in their rounding, and another fingerprint then; `content`
        is the same even so.
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

    def extended(self, rows: int, summary: Summary, content: int) -> Metadata:
        """The same dataset after an append."""
        return replace(self, n_rows=rows, summary=summary, content=content)


def block_digest(block: Block) -> int:
    """128-bit hash of a block's number and the raw bytes of its arrays."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    digest.update(f"{block.number}:{block.n_rows}".encode())
    for variable in VARIABLES:
        if variable.name in block:
            digest.update(variable.name.encode())
            digest.update(np.ascontiguousarray(block[variable.name]).reshape(-1).view(np.uint8).data)
    return int.from_bytes(digest.digest(), "big")


def hash_json(value: object) -> str:
    """Hash of a JSON value in its canonical form."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).hexdigest()


def _schema_record(metadata: Metadata) -> dict[str, Any]:
    return {
        "dtype": metadata.dtype,
        "classes": list(metadata.classes),
        "columns": [
            {"name": column.name, "kind": column.kind, "categories": list(column.categories)}
            for column in metadata.columns
        ],
        "target_name": metadata.target_name,
        "weight_name": metadata.weight_name,
        "inclusion_name": metadata.inclusion_name,
    }


def _exact_record(summary: Summary) -> dict[str, Any]:
    return {
        "weight": float(summary.weight).hex(),
        **{
            name: [value.hex() for value in values.tolist()]
            for name, values in (
                ("class_weight", summary.class_weight),
                ("mean", summary.mean),
                ("squares", summary.squares),
                ("minimum", summary.minimum),
                ("maximum", summary.maximum),
            )
        },
    }


def to_attributes(metadata: Metadata) -> dict[str, Any]:
    """The JSON object written as the attributes of the dataset's group."""
    summary = metadata.summary
    record = {
        "format": FORMAT_NAME,
        "version": FORMAT_VERSION,
        "n_rows": metadata.n_rows,
        "block_rows": metadata.block_rows,
        **_schema_record(metadata),
        "feature_names": list(metadata.feature_names),
        "dropped": list(metadata.dropped),
        "rows": summary.rows,
        "weight": float(summary.weight),
        "class_rows": summary.class_rows.tolist(),
        "class_weight": summary.class_weight.tolist(),
        "mean": summary.mean.tolist(),
        "deviation": summary.deviation.tolist(),
        "squares": summary.squares.tolist(),
        "minimum": summary.minimum.tolist(),
        "maximum": summary.maximum.tolist(),
        "notes": list(metadata.notes),
        "identity": metadata.identity,
        "content": f"{metadata.content:032x}",
        "fingerprint": metadata.fingerprint,
    }
    return {**record, "checksum": hash_json(record)}


def unfinished_attributes() -> dict[str, Any]:
    """What stands in a dataset that is being written in place."""
    return {"format": FORMAT_NAME, "version": FORMAT_VERSION, "n_rows": 0}


def from_attributes(attributes: object, where: str) -> Metadata:
    """Read and check the attributes of the dataset at `where`; whatever is wrong with them is a `FormatError`."""
    if not isinstance(attributes, Mapping) or attributes.get("format") != FORMAT_NAME:
        raise FormatError(
            f"{where} is not a protodask dataset.", "Make one with `protodask ingest` or `protodask sample-data`."
        )
    fields = Fields(attributes, where)
    version = fields.integer("version", 1)
    if version > FORMAT_VERSION:
        raise FormatError(
            f"The dataset {where} has format version {version}, and this protodask reads up to {FORMAT_VERSION}.",
            "Upgrade protodask to read it.",
        )
    if fields.integer("n_rows", 0) == 0:
        raise FormatError(f"The dataset {where} was never finished: it has no committed rows.", INGEST_AGAIN)
    record = {name: value for name, value in attributes.items() if name != "checksum"}
    try:
        intact = hash_json(record) == attributes.get("checksum")
    except (TypeError, ValueError, RecursionError):
        intact = False
    if not intact:
        fields.damaged("their checksum does not match")
    metadata = _parse(fields)
    if metadata.fingerprint != attributes.get("fingerprint"):
        fields.damaged("the fingerprint does not match")
    if list(metadata.feature_names) != attributes.get("feature_names"):
        fields.damaged("the feature names do not follow from the columns")
    if min(metadata.block_rows, metadata.n_rows) * metadata.row_bytes > MAX_BLOCK_BYTES:
        fields.damaged("a block would be larger than any this package writes")
    return metadata


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
    content = fields.text("content")
    if len(content) != 2 * DIGEST_BYTES or set(content) - set("0123456789abcdef"):
        fields.damaged("content is not a digest")
    summary = Summary(
        rows=fields.integer("rows", 0, n_rows),
        class_rows=np.array(fields.integers("class_rows", len(classes)), dtype=np.int64),
        class_weight=fields.floats("class_weight", len(classes)),
        weight=float(fields.floats("weight", None)[0]),
        mean=fields.floats("mean", width),
        squares=fields.floats("squares", width),
        minimum=fields.floats("minimum", width),
        maximum=fields.floats("maximum", width),
    )
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
        content=int(content, 16),
        notes=fields.texts("notes"),
        identity=fields.optional_text("identity") or "",
    )


@dataclass(frozen=True)
class Fields:
    """Typed access to a JSON object nobody vouches for."""

    record: Mapping[str, Any]
    where: str
    what: str = "dataset"
    remedy: str = INGEST_AGAIN

    def damaged(self, reason: str) -> NoReturn:
        raise FormatError(f"The attributes of the {self.what} {self.where} are damaged: {reason}.", self.remedy)

    def integer(self, name: str, low: int, high: int = 2**62) -> int:
        return self._integer(self.record.get(name), name, low, high)

    def _integer(self, value: object, name: str, low: int = 0, high: int = 2**62) -> int:
        if type(value) is not int or not low <= value <= high:
            self.damaged(f"{name} is not an integer in its range")
        return value

    def integers(self, name: str, length: int) -> list[int]:
        return [self._integer(value, name) for value in self._list(name, length)]

    def text(self, name: str) -> str:
        return self._text(self.record.get(name), name)

    def _text(self, value: object, name: str) -> str:
        if not isinstance(value, str):
            self.damaged(f"{name} is not text")
        return value

    def optional_text(self, name: str) -> str | None:
        return None if self.record.get(name) is None else self.text(name)

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(self._text(value, name) for value in self._list(name, None))

    def floats(self, name: str, length: int | None) -> NDArray[np.float64]:
        """A list of `length` finite numbers, or a single one where `length` is None."""
        values = [self.record.get(name)] if length is None else self._list(name, length)
        if any(type(value) not in (int, float) or not _is_finite(value) for value in values):
            self.damaged(f"{name} holds something else than finite numbers")
        return np.array(values, dtype=np.float64)

    def labels(self, name: str) -> tuple[Label, ...]:
        return self._labels(self._list(name, None), name)

    def _labels(self, values: object, name: str) -> tuple[Label, ...]:
        if not isinstance(values, list) or any(not isinstance(value, (str, int, bool)) for value in values):
            self.damaged(f"{name} holds something else than labels")
        if len({(type(value), value) for value in values}) != len(values):
            self.damaged(f"{name} holds a label twice")
        return tuple(values)

    def columns(self) -> tuple[Column, ...]:
        found = []
        for record in self._list("columns", None):
            if not isinstance(record, Mapping):
                self.damaged("a column is not described")
            name = self._text(record.get("name"), "the name of a column")
            kind = next((kind for kind in KINDS if kind == record.get("kind")), None)
            if kind is None:
                self.damaged(f"the column {name!r} is of no known kind")
            categories = self._labels(record.get("categories"), f"the categories of {name!r}")
            if (kind == "numeric") != (not categories):
                self.damaged(f"the categories of {name!r} do not fit its kind")
            found.append(Column(name, kind, categories))
        if not found:
            self.damaged("there are no columns")
        return tuple(found)

    def _list(self, name: str, length: int | None) -> list[Any]:
        values = self.record.get(name)
        if not isinstance(values, list) or (length is not None and len(values) != length):
            self.damaged(f"{name} is not a list of the right length")
        return values


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond the range of float64
        return False
