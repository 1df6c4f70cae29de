"""The arrays of a model: each a single chunk with a checksum, in the group that has the model's record.

Zarr writes them; NumPy alone reads them from a disk, so that a model answers without it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.arrays.plain_arrays import PlainArray, make_array
from protodask.data.arrays.plain_rows import read_rows
from protodask.errors import FormatError, StorageError

if TYPE_CHECKING:
    import zarr


def write_array(group: zarr.Group, path: str, values: NDArray[Any], dtype: str) -> None:
    """Write an array at a path inside a group."""
    contiguous = np.ascontiguousarray(values, dtype=dtype)
    # So that a missing file is always a loss, and no file makes a reader allocate more than it holds.
    config = {"write_empty_chunks": True}
    array = make_array(group, _form(str(group.store_path), path, dtype, contiguous.shape), config=config)
    array[...] = contiguous


def read_array(where: str, path: str, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Read an array of this form; whatever else is there is an exception, see `damage_named`."""
    array = _form(where, path, dtype, shape)
    array.check_form()
    return read_rows([array], 0, shape[0])[0]


def _form(where: str, path: str, dtype: str, shape: tuple[int, ...]) -> PlainArray:
    return PlainArray(where, path, dtype, shape, chunks=tuple(max(length, 1) for length in shape), fill=0)


@contextmanager
def damage_named(what: str, where: str, remedy: str) -> Iterator[None]:
    """Say of exceptions in reading arrays what they are of: `what` is a part of the model at `where`."""
    try:
        yield
    except (FormatError, MemoryError):
        raise
    except PermissionError as error:
        raise StorageError("unreadable", f"{where} cannot be read ({error}).", "Check that you may read it.") from error
    except Exception as error:  # what is no JSON, is not of this form, or whatever a client raises
        raise FormatError("damaged", f"{what} {where} cannot be read ({error}).", remedy) from error


def digest_arrays(arrays: Iterable[tuple[str, NDArray[Any], str]]) -> str:
    """Hash of arrays with their names and shapes, each as its type: name, values and type."""
    digest = hashlib.blake2b(digest_size=16)
    for name, values, dtype in arrays:
        contiguous = np.ascontiguousarray(values, dtype=dtype)
        digest.update(f"{name}:{contiguous.shape}".encode())
        digest.update(contiguous.tobytes())
    return digest.hexdigest()
