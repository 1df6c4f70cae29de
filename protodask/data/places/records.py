"""Sealed records: JSON objects with a format, a version and a checksum, as datasets, models and the like carry them.

Light to import: NumPy is imported for records with numbers alone.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from protodask.data.places.bounded import MAX_JSON_BYTES, MAX_JSON_ITEMS
from protodask.errors import FormatError, InputError, named_twice

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from protodask.data.format.schema import Column, Label

CHECKSUM = "checksum"
HASH_BYTES = 16

INDENT_BYTES = 16
"""A bound on the line break and the indentation that a value gets in a file."""

HEAD = 2**10
"""Values and bytes that a file may have besides the record in it."""

LABEL_RANGE = range(-(2**63), 2**64)
"""Labels that are numbers fit 64 bits, as those of every table do."""

KINDS: tuple[Literal["numeric", "nominal", "ordinal"], ...] = ("numeric", "nominal", "ordinal")


def canonical_json(value: object) -> str:
    """The one text a JSON value has here."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def hash_text(text: str) -> str:
    """Hash of a text, 32 hexadecimal digits."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=HASH_BYTES).hexdigest()


def hash_json(value: object) -> str:
    """Hash of a JSON value in its canonical form."""
    return hash_text(canonical_json(value))


@dataclass(frozen=True)
class Kind:
    """What is written: how it is called, and how one is told from what must not be overwritten."""

    name: str
    format: str


@dataclass(frozen=True)
class RecordKind(Kind):
    """What a record is of, and what to do where there is none or it is damaged."""

    version: int
    make: str
    remedy: str
    relatives: tuple[Relative, ...] = ()

    def sealed(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """A record of this kind with what tells it from others, and its checksum."""
        return seal({"format": self.format, "version": self.version, **record}, self.name)


@dataclass(frozen=True)
class Relative:
    """Another format that is easily taken for a kind of record: what it is of, and what to use for it instead."""

    format: str
    what: str
    instead: str


def seal(record: Mapping[str, Any], what: str) -> dict[str, Any]:
    """The record with its checksum; one that a reader would refuse for its size is not written either."""
    try:
        text = canonical_json(record)
    except ValueError as error:
        raise InputError(
            "overflow",
            f"The description of the {what} has numbers that are not finite, as sums of very large ones are.",
            "Bring features and weights to sizes that can be squared and added up.",
        ) from error
    items = text.count(",") + text.count("[") + text.count("{")
    if items > MAX_JSON_ITEMS - HEAD or len(text) + INDENT_BYTES * items > MAX_JSON_BYTES - HEAD:
        raise InputError(
            "over-limit",
            f"The description of the {what} has {items} values and {len(text)} characters, which is too much.",
            "Use fewer features, categories or classes, or larger blocks.",
        )
    return {**record, CHECKSUM: hash_text(text)}


def recognize(attributes: object, kind: RecordKind, where: str) -> Fields:
    """The fields of a record of some kind, once format and version are right; the checksum is looked at by `unseal`."""
    if not isinstance(attributes, Mapping) or attributes.get("format") != kind.format:
        found = attributes.get("format") if isinstance(attributes, Mapping) else None
        for relative in kind.relatives:
            if relative.format == found:
                raise FormatError("wrong-kind", f"{where} is {relative.what}.", relative.instead)
        raise FormatError("wrong-kind", f"{where} is not a protodask {kind.name}.", kind.make)
    fields = Fields(attributes, where, kind.name, kind.remedy)
    version = fields.integer("version", 1)
    if version > kind.version:
        raise FormatError(
            "newer-format",
            f"The {kind.name} {where} has format version {version}, and this protodask reads up to {kind.version}.",
            "Upgrade protodask to read it.",
        )
    return fields


def describe_columns(columns: Sequence[Column]) -> list[dict[str, Any]]:
    """What `Fields.columns` reads. What is said of missing values is there where they may occur."""
    return [
        {
            "name": column.name,
            "kind": column.kind,
            "categories": list(column.categories),
            **({} if column.filled is None else {"filled": column.filled, "marked": column.marked}),
        }
        for column in columns
    ]


def unseal(fields: Fields) -> Fields:
    """The fields of a record that is what was sealed; any other is refused."""
    record = {name: value for name, value in fields.record.items() if name != CHECKSUM}
    try:
        intact = hash_json(record) == fields.record.get(CHECKSUM)
    except (TypeError, ValueError, RecursionError):
        intact = False
    if not intact:
        fields.damaged("their checksum does not match")
    return fields


@dataclass(frozen=True)
class Fields:
    """Typed access to a JSON object nobody vouches for."""

    record: Mapping[str, Any]
    where: str
    what: str
    remedy: str

    def damaged(self, reason: str) -> NoReturn:
        raise FormatError(
            "damaged", f"The attributes of the {self.what} {self.where} are damaged: {reason}.", self.remedy
        )

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

    def hexadecimal(self, name: str, length: int) -> bytes:
        """So many bytes, written with two digits each."""
        text = self.text(name)
        if len(text) != 2 * length or set(text) - set("0123456789abcdef"):
            self.damaged(f"{name} is not the digest it should be")
        return bytes.fromhex(text)

    def optional_text(self, name: str) -> str | None:
        return None if self.record.get(name) is None else self.text(name)

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(self._text(value, name) for value in self._list(name, None))

    def floats(self, name: str, length: int | None) -> NDArray[np.float64]:
        """A list of `length` finite numbers, or a single one where `length` is None."""
        import numpy as np

        values = [self.record.get(name)] if length is None else self._list(name, length)
        if any(type(value) not in (int, float) or not _is_finite(value) for value in values):
            self.damaged(f"{name} holds something else than finite numbers")
        return np.array(values, dtype=np.float64)

    def labels(self, name: str) -> tuple[Label, ...]:
        return self._labels(self._list(name, None), name)

    def _labels(self, values: object, name: str) -> tuple[Label, ...]:
        if not isinstance(values, list) or any(not isinstance(value, (str, int, bool)) for value in values):
            self.damaged(f"{name} holds something else than labels")
        if any(type(value) is int and value not in LABEL_RANGE for value in values):
            self.damaged(f"{name} holds a number of more than 64 bits")
        if named_twice((type(value), value) for value in values):
            self.damaged(f"{name} holds a label twice")
        return tuple(values)

    def objects(self, name: str) -> list[dict[str, Any]]:
        values = self._list(name, None)
        if not all(isinstance(value, dict) for value in values):
            self.damaged(f"{name} holds something else than objects")
        return values

    def columns(self) -> tuple[Column, ...]:
        from protodask.data.format.schema import Column

        found = []
        for record in self._list("columns", None):
            if not isinstance(record, Mapping):
                self.damaged("a column is not described")
            name = self._text(record.get("name"), "the name of a column")
            kind = next((kind for kind in KINDS if kind == record.get("kind")), None)
            if kind is None:
                self.damaged(f"the column {name!r} is of no known kind")
            categories = self._labels(record.get("categories"), f"the categories of {name!r}")
            filled, marked = record.get("filled"), record.get("marked", False)
            none_known = kind == "nominal" and marked is True  # of a column without any value
            if (kind == "numeric") != (not categories) and not (none_known and not categories):
                self.damaged(f"the categories of {name!r} do not fit its kind")
            if filled is not None and (type(filled) not in (int, float) or not _is_finite(filled)):
                self.damaged(f"what is missing in {name!r} counts as no number")
            if type(marked) is not bool or (marked and filled is None):
                self.damaged(f"it is not said whether values are missing in {name!r}")
            found.append(Column(name, kind, categories, None if filled is None else float(filled), marked))
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
