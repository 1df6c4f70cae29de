"""Rows of plain arrays, chunk by chunk straight to their place, without Zarr.

A chunk is read only if it has the size that its shape comes to, and its checksum is right. From a disk one comes after
the other; an object store, where a chunk takes longer to begin than to arrive, is asked for several together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from protodask.data.arrays.plain_arrays import CHECKSUM_BYTES, MAX_CHUNK_BYTES, PlainArray
from protodask.data.places.bounded import file_status, open_known, read_objects
from protodask.data.places.locations import is_url

AT_ONCE_BYTES = 2 * (MAX_CHUNK_BYTES + CHECKSUM_BYTES)
"""Of the chunks that one reader asks an object store for together, where that is more than one chunk."""


class DamagedArrayError(ValueError):
    """What is wrong with the array `name`."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name = name


def read_rows(arrays: Sequence[PlainArray], start: int, stop: int) -> list[NDArray[Any]]:
    """The rows `start .. stop - 1` of arrays of one store; where one is damaged, a `DamagedArrayError`."""
    local = not is_url(arrays[0].root)
    if local:  # before anything is allocated
        for array in arrays:
            for number in _chunks(array, start, stop):
                _check_file(array, number)
    found = [np.empty((stop - start, *array.shape[1:]), np.dtype(array.dtype).newbyteorder("<")) for array in arrays]
    pieces = [piece for array, values in zip(arrays, found, strict=True) for piece in _pieces(array, values, start)]
    if local:
        for piece in pieces:
            piece.read()
    else:
        for wave in _waves(pieces):
            _ask(arrays[0].root, wave)
    return [values.astype(values.dtype.newbyteorder("="), copy=False) for values in found]


def _chunks(array: PlainArray, start: int, stop: int) -> range:
    """Numbers of the chunks that hold some rows."""
    if start == stop or 0 in array.shape:
        return range(0)
    return range(start // array.chunks[0], -(-stop // array.chunks[0]))


def _check_file(array: PlainArray, number: int) -> None:
    """Refuse a chunk whose file is missing, no file at all, or not of the size it must have."""
    try:
        _check_size(array, file_status(array.root, array.key(number)).st_size)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DamagedArrayError(array.name, "a chunk is missing") from error


def _check_size(array: PlainArray, found: int) -> None:
    if found != array.chunk_bytes:
        raise DamagedArrayError(array.name, f"a chunk has {found} bytes where {array.chunk_bytes} were expected")


class _Piece(NamedTuple):
    """What is wanted of a chunk, and what is not."""

    array: PlainArray
    number: int
    before: NDArray[np.uint8]
    values: NDArray[np.uint8]
    """Where its bytes go."""
    after: NDArray[np.uint8]
    """To the end, with the checksum."""

    def read(self) -> None:
        """From its file."""
        with open_known(self.array.root, self.array.key(self.number)) as file:
            if any(file.readinto(part.data) != len(part) for part in self._parts):
                raise DamagedArrayError(self.array.name, "a chunk became shorter while it was read")
        self._check()

    def take(self, content: memoryview | None) -> None:
        """Out of the content of its object."""
        if content is None:
            raise DamagedArrayError(self.array.name, "a chunk is missing")
        _check_size(self.array, len(content))
        first = 0
        for part in self._parts:
            part[:] = content[first : first + len(part)]
            first += len(part)
        self._check()

    @property
    def _parts(self) -> tuple[NDArray[np.uint8], ...]:
        return self.before, self.values, self.after

    def _check(self) -> None:
        checksum = 0
        for part in (self.before, self.values, self.after[:-CHECKSUM_BYTES]):
            checksum = google_crc32c.extend(checksum, part)
        if checksum != int.from_bytes(self.after[-CHECKSUM_BYTES:], "little"):
            raise DamagedArrayError(self.array.name, "the checksum of a chunk is another one")


def _pieces(array: PlainArray, values: NDArray[Any], start: int) -> Iterator[_Piece]:
    """Of all chunks that hold the rows from `start` on, which go to `values`."""
    step, stop = array.chunks[0], start + len(values)
    row_bytes = (array.chunk_bytes - CHECKSUM_BYTES) // step
    for number in _chunks(array, start, stop):
        first, last = max(start, number * step), min(stop, (number + 1) * step)
        before = (first - number * step) * row_bytes
        after = ((number + 1) * step - last) * row_bytes + CHECKSUM_BYTES
        part = values[first - start : last - start].reshape(-1).view(np.uint8)
        yield _Piece(array, number, np.empty(before, np.uint8), part, np.empty(after, np.uint8))


def _ask(root: str, wave: Sequence[_Piece]) -> None:
    # A function of its own, so that nothing of a wave is held while the next one arrives.
    wanted = [(piece.array.key(piece.number), piece.array.chunk_bytes) for piece in wave]
    for piece, content in zip(wave, read_objects(root, wanted), strict=True):
        piece.take(content)


def _waves(pieces: Sequence[_Piece]) -> Iterator[list[_Piece]]:
    """Pieces in order, as many together as may be asked for at once, and one at least."""
    wave: list[_Piece] = []
    for piece in pieces:
        if wave and sum(other.array.chunk_bytes for other in (*wave, piece)) > AT_ONCE_BYTES:
            yield wave
            wave = []
        wave.append(piece)
    if wave:
        yield wave
