"""A dataset on disk, as a source of blocks."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from protodask.data.arrays.plain_arrays import PlainArray
from protodask.data.arrays.plain_rows import DamagedArrayError, read_rows
from protodask.data.format.metadata import INGEST_AGAIN, Metadata, block_digest, check_of, from_attributes
from protodask.data.format.parts import Part, part_of
from protodask.data.format.schema import (
    INCLUSION,
    NAMELESS,
    TARGET,
    WEIGHT,
    Column,
    Label,
    like_identifier,
    meant_otherwise,
)
from protodask.data.format.segments import Segment, check_rows, prefix_of, read_segments, whole_segment
from protodask.data.format.summary import Summary
from protodask.data.places.locations import is_remote, is_url, locate
from protodask.data.places.records import describe_columns
from protodask.data.places.storage import find_group, group_exists, own_attributes, read_stable, version_of
from protodask.engine import Block, Layout, Source
from protodask.engine.sources import DerivedSource
from protodask.errors import FormatError, InputError, ProtodaskError, StorageError, named_twice, some
from protodask.places import mask, mask_text

LOOKS = 5
"""How often a block is looked for again that appends put into another part meanwhile."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Encoded rows in a Zarr group, in fixed blocks.

    It names its place and holds no rows, so it is small to pickle; each process opens the arrays on first use. It
    shows the rows that were committed when it was opened: a later append does not change it. When another dataset took
    its place, reading it is a `StorageError`: never are the other one's rows handed out as its own.
    """

    resident: ClassVar = False
    path: str
    metadata: Metadata = field(repr=False)
    group: str = field(default="", repr=False)
    """Where its arrays lie, if not at `path` itself."""

    def __repr__(self) -> str:
        return f"Dataset({mask(self.path)!r})"  # tasks are logged with their arguments

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dataset) and (self.path, self.key) == (other.path, other.key)

    def __hash__(self) -> int:
        return hash((self.path, self.key))

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Dataset:
        """Open a dataset and check its attributes and the shapes of its arrays; no row is read."""
        where = locate(path)
        return read_stable(where, lambda: cls.of(where, *find_group(where)))

    @classmethod
    def of(cls, where: str, place: str, attributes: object) -> Dataset:
        """The dataset whose group lies at `place`, with these attributes; its first and last part are looked at."""
        dataset = cls(where, from_attributes(attributes, where), "" if place == where else place)
        parts = dataset.metadata.all_parts
        for part in {parts[0], parts[-1]}:
            _load_part(dataset, part)
        _require_unreplaced(where, place, dataset.metadata.identity)
        return dataset

    @property
    def place(self) -> str:
        """The group with the arrays: `path`, or the generation below it that was current when this was opened."""
        return self.group or self.path

    @property
    def layout(self) -> Layout:
        return Layout(self.metadata.n_rows, self.metadata.block_rows)

    @property
    def key(self) -> str:
        """The fingerprint: where it is equal, rows, their meaning and their statistics are equal to the last bit."""
        return self.metadata.fingerprint

    @property
    def n_rows(self) -> int:
        return self.metadata.n_rows

    @property
    def n_features(self) -> int:
        return self.metadata.n_features

    @property
    def classes(self) -> tuple[Label, ...]:
        return self.metadata.classes

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.metadata.columns

    @property
    def feature_names(self) -> tuple[str, ...]:
        return self.metadata.feature_names

    @property
    def target_name(self) -> str:
        return self.metadata.target_name

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the features."""
        return np.dtype(self.metadata.dtype)

    @property
    def summary(self) -> Summary:
        return self.metadata.summary

    @property
    def array_names(self) -> tuple[str, ...]:
        """Names of the arrays a block has."""
        return tuple(variable.name for variable in self.metadata.variables)

    @property
    def has_weight(self) -> bool:
        return self.metadata.weight_name is not None

    @property
    def has_inclusion(self) -> bool:
        return self.metadata.inclusion_name is not None

    @property
    def has_group(self) -> bool:
        """Whether it says which rows belong together."""
        return self.metadata.group_name is not None

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Which rows came from which source, in the order of the rows; empty where the dataset does not say.

        Read on each call.
        """
        digest = self.metadata.segments
        if digest is None:
            return ()
        known = self
        for _ in range(LOOKS):
            metadata = known.metadata
            try:
                found = read_segments(known.place, str(metadata.segments), self.path, metadata.segments_in)
            except FormatError:
                # Appends remove lists that count no more, and theirs begin with this one.
                now = self._now()
                if now.metadata.segments_in == metadata.segments_in or now.metadata.segments is None:
                    raise
                known = now
                continue
            if metadata.segments != digest:
                prefix = prefix_of(found, self.n_rows, digest)
                if prefix is None:
                    raise _replaced(self.path)
                return prefix
            check_rows(found, self.n_rows, self.path)
            return found
        raise _replaced(self.path)

    @property
    def sources(self) -> tuple[Segment, ...]:
        """The same, with all rows from one source where the dataset does not say."""
        return self.segments or (whole_segment(self.path, self.key, self.n_rows),)

    def _now(self) -> Dataset:
        """The dataset as it is now; an error if it is not this one any more."""
        _require_unreplaced(self.path, self.place, self.metadata.identity, failed=True)
        now = Dataset.open(self.path)
        if now.metadata.identity != self.metadata.identity or now.n_rows < self.n_rows:
            raise _replaced(self.path)
        return now

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks from ingest, and on missing values, constant features and labels that look alike, if any."""
        found = list(self.metadata.notes)
        if names := [column.name for column in self.columns if column.marked]:
            found.append(
                f"Values are missing in {some(names)}: they count as the mean of the others, or as no category, and a "
                "feature of their own says where."
            )
        if names := [
            name for name, constant in zip(self.feature_names, self.summary.constant, strict=True) if constant
        ]:
            found.append(f"Constant features, of which nothing can be learnt: {some(names)}.")
        found.extend(
            f"{column.name!r} has {len(column.categories):,} categories in {self.n_rows:,} rows, like an identifier: "
            "each is a feature, of which there is little to learn."
            for column in self.columns
            if column.kind == "nominal" and like_identifier(len(column.categories), self.n_rows)
        )
        by_remedy: dict[str, list[tuple[str, str]]] = {}
        for column in self.columns:
            if column.kind == "nominal" and (meant := meant_otherwise(column.categories)):
                by_remedy.setdefault(meant[1], []).append((repr(column.name), meant[0]))
        for remedy, told in by_remedy.items():
            found.append(f"The categories of {some([name for name, _ in told])} are {told[0][1]}. {remedy}")
        if names := [column.name for column in self.columns if NAMELESS.fullmatch(column.name)]:
            found.append(
                f"Columns without a name are features, too: {some(names)}. Leave them out if they number the rows."
            )
        of_columns = [(f"Categories of {column.name!r}", column.categories) for column in self.columns]
        for what, labels in (("Classes", self.classes), *of_columns):
            if alike := _look_alike(labels):
                found.append(f"{what} that differ in spaces or in how their letters are composed: {some(alike)}.")
        return tuple(found)

    def read(self, number: int) -> Block:
        """One block: "features" (rows, D), "target", and "weight", "inclusion" and "group" where the dataset has them.

        The arrays are filled chunk by chunk, so that reading needs the block and, from an object store, two chunks of
        memory.
        """
        try:
            block = self._read_block(part_of(self.metadata.all_parts, number), number)
        except ProtodaskError:
            # What looks like damage may be another dataset, or a part that appends have put another in place of.
            block = self._read_moved(number)
        _require_unreplaced(self.path, self.place, self.metadata.identity)
        return block

    def _read_moved(self, number: int) -> Block:
        """A block whose part was removed: an append wrote it once more, with the rows that it added."""
        part = part_of(self.metadata.all_parts, number)
        for _ in range(LOOKS):
            now = self._now()
            if part in now.metadata.all_parts:
                break
            part = part_of(now.metadata.all_parts, number)
            try:
                return self._read_block(part, number)
            except ProtodaskError:
                continue
        return self._read_block(part, number)

    def _read_block(self, part: Part, number: int) -> Block:
        start, stop = self.layout.bounds(number)
        arrays = _open_part(self, part, self.place, self.metadata.identity)
        offset = self.layout.block_rows * part.first_block
        try:
            values = read_rows(arrays, start - offset, stop - offset)
        except DamagedArrayError as error:
            raise self._damaged(error.name.rpartition("/")[2], number, str(error)) from error
        except Exception as error:
            if not isinstance(error, OSError) and not is_remote(error):
                raise
            raise StorageError(
                "unreadable",
                f"Block {number} of {mask(self.path)} could not be read ({mask_text(str(error), self.path)}).",
                "Check the storage and repeat.",
            ) from error
        block = Block(number, start, dict(zip(self.array_names, values, strict=True)))
        codes = block[TARGET.name]
        if codes.min() < 0 or codes.max() >= len(self.classes):
            raise self._damaged(TARGET.name, number, "it holds codes of no class")
        verified = _verified(self, part, self.place)
        if number not in verified:
            # Each chunk has a checksum of its own, but may be that of another block, or of another dataset.
            if check_of(block_digest(block)) != self.metadata.block_check(number):
                raise FormatError(
                    "damaged",
                    f"Block {number} of the dataset {self.path} holds other rows than were written there.",
                    INGEST_AGAIN,
                )
            verified.add(number)
        return block

    def _damaged(self, array: str, number: int, reason: str) -> FormatError:
        return FormatError(
            "damaged",
            f"The array {array!r} of the dataset {self.path} is damaged in block {number} ({reason}).",
            INGEST_AGAIN,
        )

    def describe(self) -> dict[str, Any]:
        """What there is to know without reading rows, ready for JSON."""
        summary = self.summary
        statistics = {what: getattr(summary, what).tolist() for what in ("mean", "deviation", "minimum", "maximum")}
        return {
            "kind": "dataset",
            "path": mask(self.path),
            "format_version": self.metadata.version,
            "fingerprint": self.key,
            "rows": self.n_rows,
            "features": self.n_features,
            "dtype": self.metadata.dtype,
            "block_rows": self.metadata.block_rows,
            "blocks": self.layout.n_blocks,
            "parts": len(self.metadata.all_parts),
            "bytes": self.n_rows * self.metadata.row_bytes,
            "target": self.target_name,
            "weight": self.metadata.weight_name,
            "inclusion": self.metadata.inclusion_name,
            "group": self.metadata.group_name,
            "sources": None if self.metadata.segments is None else self.metadata.n_segments,
            "total_weight": float(summary.weight),
            "classes": [
                {"label": label, "rows": int(rows), "weight": float(weight)}
                for label, rows, weight in zip(self.classes, summary.class_rows, summary.class_weight, strict=True)
            ],
            "columns": describe_columns(self.columns),
            "feature_summary": [
                {"name": name, **{what: values[place] for what, values in statistics.items()}}
                for place, name in enumerate(self.feature_names)
            ],
            "notes": list(self.notes),
        }


def unweighted(data: Dataset) -> Source:
    """A dataset whose weights do not count: every row stands for itself, those of weight zero too.

    Its blocks have no weights and no inclusion probabilities, so that they are not cached either.
    """
    return DerivedSource(data, _without_weights, "unweighted")


def _without_weights(block: Block) -> Block:
    kept = {name: array for name, array in block.arrays.items() if name not in (WEIGHT.name, INCLUSION.name)}
    return Block(block.number, block.start, kept)


def no_dataset(given: object) -> InputError:
    """What to raise where something else is given in place of a dataset, such as its path."""
    return InputError(
        "wrong-type", f"A {type(given).__name__} is no dataset.", "Give a dataset: see `ingest` and `Dataset.open`."
    )


@lru_cache(maxsize=256)
def _verified(dataset: Dataset, part: Part, place: str) -> set[int]:
    """Blocks of a part that were found to be those that were written, digest and all; then their checksums suffice."""
    return set()


@lru_cache(maxsize=256)
def _open_part(dataset: Dataset, part: Part, place: str, identity: str) -> list[PlainArray]:
    """The arrays of a part of a dataset, looked at once in a process.

    `identity` and the dataset's fingerprint tell apart what one place held over time, and what is there must be what
    they say: the arrays of another dataset must not be kept under their names.
    """
    opened = _load_part(dataset, part)
    _require_unreplaced(dataset.path, place, identity)
    return opened


def _look_alike(labels: Sequence[Label]) -> list[str]:
    """Those that are seen as another one is."""
    seen = [unicodedata.normalize("NFC", " ".join(str(label).split())) for label in labels]
    alike = set(named_twice(seen))
    return [ascii(label) for label, own in zip(labels, seen, strict=True) if own in alike]


def _require_unreplaced(path: str, place: str, identity: str, failed: bool = False) -> None:
    """Refuse what was read through a path before this, if it was not of the dataset it was meant to be of.

    A generation in an object store has a name of its own: what is read there is of this dataset, or is not there.
    """
    if is_url(place):
        replaced = failed and not group_exists(place)
    else:
        version = version_of(place)
        replaced = version is None or _identity_at(path, place, version) != identity
    if replaced:
        raise _replaced(path)


def _replaced(path: str) -> StorageError:
    return StorageError(
        "changed-meanwhile",
        f"The dataset {mask(path)} was replaced or removed while it was being read.",
        "Repeat what you did, with the dataset that is there now.",
    )


@lru_cache(maxsize=64)
def _identity_at(path: str, place: str, version: object) -> object:
    """The identity of the dataset at a place, looked up once for each version of its attributes.

    Only what was found is kept: what is missing now, or cannot be read now, may be there at the next look.
    """
    attributes = own_attributes(place)
    if not isinstance(attributes, dict):
        raise _replaced(path)
    return attributes.get("identity", "")


def _load_part(dataset: Dataset, part: Part) -> list[PlainArray]:
    path, metadata = dataset.path, dataset.metadata
    arrays: list[PlainArray] = []
    for variable in metadata.variables:
        array = metadata.array_of(variable, dataset.place, part)
        try:
            array.check_form()
        except (FormatError, MemoryError):
            raise
        except (FileNotFoundError, NotADirectoryError) as error:
            raise FormatError("damaged", f"The dataset {path} has no array {variable.name!r}.", INGEST_AGAIN) from error
        except Exception as error:  # what is no JSON, is not of this form, or whatever a client raises
            if is_remote(error) or isinstance(error, OSError):
                wrong = "network and the credentials" if is_remote(error) else "storage"
                refused = isinstance(error, PermissionError)
                raise StorageError(
                    "unreadable",
                    f"The dataset {mask(path)} cannot be read ({mask_text(str(error), path)}).",
                    "Check that you may read it." if refused else f"Check the {wrong}, and repeat.",
                ) from error
            raise FormatError(
                "damaged", f"The array {variable.name!r} of the dataset {path} cannot be used ({error}).", INGEST_AGAIN
            ) from error
        arrays.append(array)
    return arrays
