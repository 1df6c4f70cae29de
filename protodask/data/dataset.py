"""A dataset on disk, as a source of blocks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.core.buffer.cpu import NDBuffer

from protodask.data.metadata import INGEST_AGAIN, Metadata, block_digest, check_of, from_attributes
from protodask.data.plain_arrays import PlainArray
from protodask.data.schema import FORMAT_VERSION, TARGET, Column, Label, Variable
from protodask.data.storage import locate, read_attributes
from protodask.data.summary import Summary
from protodask.engine import Block, Layout
from protodask.errors import FormatError, StorageError
from protodask.places import mask


@dataclass(frozen=True, eq=False)
class Dataset:
    """Encoded rows in a Zarr group, in fixed blocks.

    It names its place and holds no rows, so it is small to pickle; each process opens the arrays on first use. It
    shows the rows that were committed when it was opened: a later append does not change it.
    """

    path: str
    metadata: Metadata = field(repr=False)

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
        dataset = cls(where, from_attributes(read_attributes(where), where))
        _load_arrays(dataset)
        return dataset

    @property
    def layout(self) -> Layout:
        return Layout(self.metadata.n_rows, self.metadata.block_rows)

    @property
    def key(self) -> str:
        """The fingerprint: where it is equal, rows, their meaning and their statistics are equal to the last bit."""
        return self.metadata.fingerprint

    @property
    def resident(self) -> bool:
        return False

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
    def notes(self) -> tuple[str, ...]:
        """Remarks from ingest, and one for the constant features if there are any."""
        names = [name for name, constant in zip(self.feature_names, self.summary.constant, strict=True) if constant]
        if not names:
            return self.metadata.notes
        shown = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
        return (*self.metadata.notes, f"Constant features, kept with scale 1: {shown}.")

    def read(self, number: int) -> Block:
        """One block: "features" (rows, D), "target", and "weight" and "inclusion" where the dataset has them.

        The arrays are filled chunk by chunk, so that reading needs the block and one chunk of memory.
        """
        start, stop = self.layout.bounds(number)
        opened = _open_arrays(self)
        arrays = {
            variable.name: self._read_array(opened, variable, number, start, stop)
            for variable in self.metadata.variables
        }
        block = Block(number, start, arrays)
        if number not in opened.verified:
            # Each chunk has a checksum of its own, but may be that of another block, or of another dataset.
            if check_of(block_digest(block)) != self.metadata.block_check(number):
                raise FormatError(
                    f"Block {number} of the dataset {self.path} holds other rows than were written there.", INGEST_AGAIN
                )
            opened.verified.add(number)
        return block

    def _read_array(self, opened: _Opened, variable: Variable, number: int, start: int, stop: int) -> NDArray[Any]:
        stored, form = opened.arrays[variable.name], opened.forms[variable.name]
        step = self.metadata.chunk_rows(variable)
        rest = (0,) * (len(variable.dims) - 1)
        with self._reading(variable, number):  # before anything is allocated
            for chunk in range(start // step, -(-stop // step)):
                form.check_chunk(chunk, *rest)
        values = np.empty(self.metadata.shape_of(variable, stop - start), dtype=self.metadata.dtype_of(variable))
        for first in range(start, stop, step):
            last = min(first + step, stop)
            part = values[first - start : last - start]
            with self._reading(variable, number):
                stored.get_basic_selection(slice(first, last), out=NDBuffer.from_numpy_array(part))
            # What a missing chunk reads as is no legal value, so one value of each chunk tells.
            if _is_fill(part.reshape(-1)[0], variable):
                raise self._damaged(variable, number, "a chunk is missing")
        if variable is TARGET and (values.min() < 0 or values.max() >= len(self.classes)):
            raise self._damaged(variable, number, "it holds codes of no class")
        return values

    @contextmanager
    def _reading(self, variable: Variable, number: int) -> Iterator[None]:
        try:
            yield
        except (MemoryError, PermissionError, FormatError):
            raise
        except OSError as error:
            raise StorageError(
                f"Block {number} of {self.path} could not be read ({error}).", "Check the storage and repeat."
            ) from error
        except Exception as error:  # a wrong checksum or length is a ValueError
            raise self._damaged(variable, number, str(error)) from error

    def _damaged(self, variable: Variable, number: int, reason: str) -> FormatError:
        return FormatError(
            f"The array {variable.name!r} of the dataset {self.path} is damaged in block {number} ({reason}).",
            INGEST_AGAIN,
        )

    def describe(self) -> dict[str, Any]:
        """What there is to know without reading rows, ready for JSON."""
        summary = self.summary
        return {
            "kind": "dataset",
            "path": mask(self.path),
            "format_version": FORMAT_VERSION,
            "fingerprint": self.key,
            "rows": self.n_rows,
            "features": self.n_features,
            "dtype": self.metadata.dtype,
            "block_rows": self.metadata.block_rows,
            "blocks": self.layout.n_blocks,
            "bytes": self.n_rows * self.metadata.row_bytes,
            "target": self.target_name,
            "weight": self.metadata.weight_name,
            "inclusion": self.metadata.inclusion_name,
            "total_weight": float(summary.weight),
            "classes": [
                {"label": label, "rows": int(rows), "weight": float(weight)}
                for label, rows, weight in zip(self.classes, summary.class_rows, summary.class_weight, strict=True)
            ],
            "columns": [
                {"name": column.name, "kind": column.kind, "categories": list(column.categories)}
                for column in self.columns
            ],
            "feature_summary": [
                {"name": name, "mean": mean, "deviation": deviation, "minimum": low, "maximum": high}
                for name, mean, deviation, low, high in zip(
                    self.feature_names,
                    summary.mean.tolist(),
                    summary.deviation.tolist(),
                    summary.minimum.tolist(),
                    summary.maximum.tolist(),
                    strict=True,
                )
            ],
            "notes": list(self.notes),
        }


def _is_fill(value: Any, variable: Variable) -> bool:
    return bool(np.isnan(value)) if np.isnan(variable.fill) else bool(value == variable.fill)


@dataclass(frozen=True)
class _Opened:
    """The arrays of a dataset in this process."""

    forms: Mapping[str, PlainArray]
    arrays: Mapping[str, zarr.Array[Any]]
    verified: set[int]
    """Blocks that were found to be those that were written, digest and all; after that their checksums suffice."""


@lru_cache(maxsize=64)
def _open_arrays(dataset: Dataset) -> _Opened:
    """The arrays, opened once in a process; the fingerprint tells apart what one path held over time."""
    return _load_arrays(dataset)


def _load_arrays(dataset: Dataset) -> _Opened:
    path, metadata = dataset.path, dataset.metadata
    forms: dict[str, PlainArray] = {}
    arrays: dict[str, zarr.Array[Any]] = {}
    for variable in metadata.variables:
        form = PlainArray(
            root=path,
            name=variable.name,
            dtype=metadata.dtype_of(variable).name,
            shape=metadata.shape_of(variable, metadata.n_rows),
            chunks=metadata.shape_of(variable, metadata.chunk_rows(variable)),
            fill=variable.fill,
            growing=True,
        )
        try:
            arrays[variable.name] = form.open()
        except FormatError:
            raise
        except PermissionError as error:
            raise StorageError(f"{path} cannot be read ({error}).", "Check that you may read it.") from error
        except (FileNotFoundError, NotADirectoryError) as error:
            raise FormatError(f"The dataset {path} has no array {variable.name!r}.", INGEST_AGAIN) from error
        except Exception as error:  # Zarr checks its own metadata with whatever exception is at hand
            raise FormatError(
                f"The array {variable.name!r} of the dataset {path} cannot be used ({error}).", INGEST_AGAIN
            ) from error
        forms[variable.name] = form
    return _Opened(forms, arrays, set())
