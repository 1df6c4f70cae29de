"""Arrays in the directory of a run: one file, checksummed, written whole or not at all.

A file holds a head, a JSON list of `[name, dtype, shape]`, and the bytes of the arrays one after the other. Whoever
finds it torn, damaged or of another run takes it for absent: what it holds can be computed again.
"""

from __future__ import annotations

import json
import math
import os
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.places.bounded import open_inside

_HEAD = struct.Struct("<4sII")
_MAGIC = b"arrs"

PLAIN_TYPES = {np.dtype(name).str: np.dtype(name) for name in ("bool", "int32", "int64", "float32", "float64")}
"""What an array may hold; nothing else is read."""

LONGEST_LIST = 2**16
"""Bytes of the list of arrays: names and shapes of a handful."""


def pack_arrays(arrays: Mapping[str, NDArray[Any]], seal: int) -> list[bytes]:
    """The parts of a file with these arrays; `seal` is where its checksum begins."""
    plain = {name: np.ascontiguousarray(values) for name, values in arrays.items()}
    listed = json.dumps([[name, values.dtype.str, values.shape] for name, values in plain.items()]).encode()
    body = [listed, *(values.tobytes() for values in plain.values())]
    checksum = seal
    for part in body:
        checksum = zlib.crc32(part, checksum)
    return [_HEAD.pack(_MAGIC, checksum, len(listed)), *body]


def read_arrays(path: str, seal: int) -> dict[str, NDArray[Any]] | None:
    """The arrays of a file, or None where there is no such file or it is not as it was written."""
    try:
        with open_inside(*os.path.split(path)) as file:
            head = file.read(_HEAD.size)
            if len(head) < _HEAD.size:
                return None
            magic, checksum, length = _HEAD.unpack(head)
            if magic != _MAGIC or length > LONGEST_LIST:
                return None
            listed = file.read(length)
            # The checksum covers the list, but what is allocated must fit the file before it can be checked.
            shapes = _parse_list(listed)
            if shapes is None or _HEAD.size + length + _total_bytes(shapes) != os.fstat(file.fileno()).st_size:
                return None
            body = file.read()
    except FileNotFoundError:
        return None
    if zlib.crc32(body, zlib.crc32(listed, seal)) != checksum:
        return None
    arrays: dict[str, NDArray[Any]] = {}
    first = 0
    for name, dtype, shape in shapes:
        count = math.prod(shape)
        arrays[name] = np.frombuffer(body, dtype=dtype, count=count, offset=first).reshape(shape).copy()
        first += count * dtype.itemsize
    return arrays


Shapes = list[tuple[str, np.dtype[Any], tuple[int, ...]]]


def _parse_list(listed: bytes) -> Shapes | None:
    try:
        found: Shapes = []
        for name, dtype, shape in json.loads(listed):
            if not all(isinstance(size, int) and size >= 0 for size in shape):
                return None
            found.append((str(name), PLAIN_TYPES[dtype], tuple(shape)))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return found


def _total_bytes(shapes: Shapes) -> int:
    return sum(math.prod(shape) * dtype.itemsize for _, dtype, shape in shapes)
