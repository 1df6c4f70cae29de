"""Arrays of every kind, read by ranges of rows without having them in memory."""

from __future__ import annotations

import math
import mmap
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from protodask.data.arrays.foreign_arrays import check_chunk_files, check_encoding, open_foreign_array
from protodask.data.arrays.values import unmasked
from protodask.data.places.locations import locate
from protodask.errors import FormatError, InputError, ProtodaskError, StorageError, count, refusing

PARTITION_ROWS = 65_536
"""Rows of a partition where the data could be cut anywhere."""


@dataclass(frozen=True)
class RowArray:
    """Something with rows that can be sliced, whatever keeps it; small to pickle where that is not memory."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    edges: tuple[int, ...]
    """Rows where it is best cut, from 0 to the last."""
    slice: Callable[[int, int], NDArray[Any]] = field(repr=False, compare=False)
    """The rows from a first to before a last; not shown, since tasks are logged and a URL may hold a secret."""
    resident: bool = False
    token: str = field(default_factory=lambda: os.urandom(8).hex())
    """Another one for each opening, so that an array written anew at its place is not taken for the old one."""


def check_beside(what: str, shape: tuple[int, ...], rows: int) -> None:
    """Refuse an array that has not one value for each of so many rows of features."""
    if shape != (rows,):
        raise InputError(
            "wrong-shape",
            f"The {what} has the shape {shape}, for {count(rows, 'row')} of features.",
            "Give one value for each row.",
        )


def even_edges(rows: int, step: int) -> tuple[int, ...]:
    """Cuts every `step` rows."""
    return (*range(0, rows, max(step, 1)), rows)


def _edges(shape: tuple[int, ...], chunk_rows: int = 1) -> tuple[int, ...]:
    """Cuts between chunks that are about `PARTITION_ROWS` apart; none of what has no rows to be cut."""
    step = chunk_rows * max(1, PARTITION_ROWS // max(chunk_rows, 1))
    return even_edges(shape[0], step) if shape else (0,)


def _memory_rows(array: NDArray[Any]) -> RowArray:
    return RowArray(array.shape, array.dtype, _edges(array.shape), partial(_sliced, array), resident=True)


def _sliced(array: NDArray[Any], first: int, last: int) -> NDArray[Any]:
    return array[first:last]


def _npy_rows(path: str) -> RowArray:
    """A .npy file, mapped into memory where it is read."""
    mapped = _map_npy(path)
    return RowArray(mapped.shape, mapped.dtype, _edges(mapped.shape), partial(_sliced_file, path))


def _sliced_file(path: str, first: int, last: int) -> NDArray[Any]:
    # Copied, so that no mapped page counts as this process's memory for longer than the partition lives.
    return np.array(_map_npy(path)[first:last])


def _map_npy(path: str) -> np.memmap[Any, Any]:
    with numpy_errors(path, ".npy", "numpy.save"):
        mapped: np.memmap[Any, Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return mapped


@contextmanager
def numpy_errors(path: str, ending: str, writer: str) -> Iterator[None]:
    """Say in the package's words why a file of NumPy's, such as this `writer` makes, cannot be read."""
    try:
        yield
    except FileNotFoundError as error:
        raise StorageError("not-found", f"There is no file {path}.", "Check the path.") from error
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise InputError(
            "unreadable", f"{path} is not a readable {ending} file ({error}).", f"Write it again with {writer}."
        ) from error


def zarr_rows(path: str, name: str = "") -> RowArray:
    """A Zarr array in a store: read by whole chunks where it can be."""
    array = open_foreign_array(path, name)
    token = os.urandom(8).hex()
    shape, dtype, edges = _form(array)
    return RowArray(shape, dtype, edges, partial(_sliced_chunks, path, name, token), token=token)


def _form(array: Any) -> tuple[tuple[int, ...], np.dtype[Any], tuple[int, ...]]:
    """Shape, type and edges of a Zarr array."""
    chunk_rows = (array.shards or array.chunks)[0] if array.ndim else 1
    return tuple(array.shape), np.dtype(array.dtype), _edges(array.shape, chunk_rows)


def _sliced_chunks(path: str, name: str, token: str, first: int, last: int) -> NDArray[Any]:
    array = _opened_zarr_array(path, name, token)
    with _reading(f"the array {path}/{name}", first, last):
        check_chunk_files(array, path, first, last)
        return np.asarray(array[first:last])


def _sliced_store(array: Any, first: int, last: int) -> NDArray[Any]:
    with _reading(f"an array in a {type(array.store).__name__}", first, last):
        return np.asarray(array[first:last])


@contextmanager
def _reading(what: str, first: int, last: int) -> Iterator[None]:
    try:
        yield
    except (MemoryError, ProtodaskError):
        raise
    except Exception as error:  # a wrong checksum or length, in the words of any codec
        raise FormatError(
            "damaged", f"Rows {first} to {last} of {what} could not be read ({error}).", "Write the array again."
        ) from error


@lru_cache(maxsize=64)
def _opened_zarr_array(path: str, name: str, token: str) -> Any:
    return open_foreign_array(path, name)


def row_array(array: Any) -> RowArray:
    """An array of any kind, to be read by ranges of rows."""
    if isinstance(array, RowArray):
        return array
    if isinstance(array, (str, os.PathLike)):
        path = locate(array)
        return _npy_rows(path) if path.endswith(".npy") else zarr_rows(path)
    if isinstance(array, zarr.Array):
        return _rows_of_zarr(array)
    if hasattr(array, "dask") and hasattr(array, "chunks"):
        return _dask_rows(array)
    if isinstance(array, np.memmap) and _is_whole_file(array, str(array.filename)):
        return _npy_rows(str(array.filename))
    with refusing(ValueError, "wrong-shape", "The values are no array", "Give rows of one length."):
        return _memory_rows(np.asarray(unmasked(array)))


def _is_whole_file(array: np.memmap[Any, Any], path: str) -> bool:
    """Whether a memory map has the very values of a .npy file, so that tasks map that themselves.

    Views of one are of the map that they are of, and not of its file itself; those that may be written to may have
    values that are not in the file, or not yet for other machines.
    """
    base: object = array.base
    if array.mode != "r" or not isinstance(base, mmap.mmap) or not path.endswith(".npy"):
        return False
    try:
        again = _map_npy(path)
    except ProtodaskError:  # taken away since
        return False
    form = attrgetter("shape", "dtype", "strides", "offset")
    return bool(form(array) == form(again))


def _rows_of_zarr(array: Any) -> RowArray:
    from zarr.storage import MemoryStore

    if (place := _zarr_place(array)) is not None:
        return zarr_rows(*place)
    if isinstance(array.store, MemoryStore) or not array.store.read_only:
        return _memory_rows(np.asarray(array[...]))
    # In a store that has no path or URL of its own, such as a ZIP file: tasks get it with its store. That is one for
    # reading alone, since where a store is opened anew to write, what it has may be gone.
    check_encoding(array, f"The array in a {type(array.store).__name__}")
    return RowArray(*_form(array), partial(_sliced_store, array))


def _zarr_place(array: Any) -> tuple[str, str] | None:
    """Where a Zarr array lies, if tasks can open it themselves."""
    from zarr.storage import LocalStore

    if isinstance(array.store, LocalStore):
        return str(array.store.root.resolve()), array.path
    if array.store.__class__.__name__ == "FsspecStore":
        protocol = array.store.fs.protocol
        return f"{protocol if isinstance(protocol, str) else protocol[0]}://{array.store.path}", array.path
    return None


def refuse_futures(mappings: Iterable[Mapping[Any, Any]]) -> None:
    """Refuse a dask collection with parts that are results on a cluster: tasks cannot read those block by block."""
    for mapping in mappings:
        # By the module's name, because only the engine imports distributed.
        if any(type(value).__module__.partition(".")[0] == "distributed" for value in mapping.values()):
            raise InputError(
                "unsupported",
                "A dask collection was persisted on a cluster, so its rows are not in its graph any more.",
                "Pass the collection from before persist(), or write it to Parquet or Zarr and pass that.",
            )


def with_lengths(array: Any) -> Any:
    """A dask array that is not on a cluster, with chunks of known lengths."""
    # Futures lie in layers that are plain mappings; other layers would be spelled out by looking into them.
    refuse_futures(layer.mapping for layer in array.dask.layers.values() if hasattr(layer, "mapping"))
    if any(math.isnan(length) for length in array.shape):
        return array.copy().compute_chunk_sizes()  # a pass over the array: only that tells how long its chunks are
    return array


def _dask_rows(array: Any) -> RowArray:
    array = with_lengths(array)
    shape = tuple(int(length) for length in array.shape)
    edges = (0, *np.cumsum(array.chunks[0], dtype=np.int64).tolist())
    return RowArray(shape, array.dtype, edges, partial(_computed, array))


def _computed(array: Any, first: int, last: int) -> NDArray[Any]:
    return np.asarray(unmasked(array[first:last].compute(scheduler="synchronous")))
