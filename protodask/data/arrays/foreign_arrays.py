"""Zarr arrays that others wrote: opened only if reading them needs bounded memory and runs no code of theirs."""

from __future__ import annotations

import itertools
import math
import os
import struct
from collections.abc import Iterator
from typing import Any

import zarr
from zarr.codecs import BloscCodec

from protodask.data.places.bounded import MAX_JSON_BYTES, RESTORE, file_status, open_inside
from protodask.data.places.locations import is_url, open_store
from protodask.errors import FormatError, InputError, StorageError

MAX_CHUNK_BYTES = 2**31
"""What one chunk or shard may unpack to: it is read whole, however few of its rows are wanted."""

METADATA_FILES = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")

CODECS = {
    "bytes", "transpose", "crc32c", "gzip", "zstd", "blosc", "sharding_indexed", "vlen-utf8", "vlen-bytes",
    "zlib", "bz2", "lzma", "lz4", "crc32", "adler32", "fletcher32", "jenkins_lookup3", "shuffle",
    "delta", "fixedscaleoffset", "quantize", "packbits", "bitround", "astype", "categorize", "zfpy", "pcodec",
}  # fmt: skip
"""Codecs that turn bytes into numbers or text. Zarr knows others: one unpickles, which runs what a file says."""

WRITE_AGAIN = "Write the array again, with the codecs that Zarr uses by itself."


def open_foreign_array(path: str, name: str = "") -> zarr.Array[Any]:
    """The array `name` in the store at a path or URL; shapes and codecs are looked at, no chunk is read."""
    where = f"{path}/{name}" if name else path
    check_metadata_files(path, name)
    try:
        array = zarr.open_array(open_store(path, read_only=True), path=name, mode="r")
        set(_codec_names(array))  # which may not be there, or be something else
    except FileNotFoundError as error:
        raise StorageError("not-found", f"There is no Zarr array at {where}.", "Check the path.") from error
    except PermissionError as error:
        raise StorageError("unreadable", f"{where} cannot be read ({error}).", "Check that you may read it.") from error
    except Exception as error:  # Zarr checks its own metadata with whatever exception is at hand
        raise InputError("unreadable", f"{where} is not a readable Zarr array ({error}).", "Check the path.") from error
    check_encoding(array, where)
    return array


def check_encoding(array: zarr.Array[Any], where: str) -> None:
    """Refuse an array with codecs that are not read here, or with chunks that take too much memory."""
    codecs = sorted(set(_codec_names(array)))
    if unknown := [codec for codec in codecs if codec.removeprefix("numcodecs.") not in CODECS]:
        raise InputError(
            "unsupported", f"{where} is encoded by {', '.join(unknown)}, which is not read here.", WRITE_AGAIN
        )
    size = max(array.dtype.itemsize, 1) * math.prod(array.shards or array.chunks)
    if size > MAX_CHUNK_BYTES:
        raise InputError(
            "over-limit",
            f"A chunk of {where} has {size} bytes, and a chunk is read whole.",
            f"Write the array again in chunks of at most {MAX_CHUNK_BYTES} bytes.",
        )


def check_metadata_files(path: str, name: str = "") -> None:
    """Refuse a local store with a link, a pipe or a huge file for its metadata: opening it might not end."""
    if is_url(path):
        return
    for file in METADATA_FILES:
        inner = f"{name}/{file}" if name else file
        try:
            size = file_status(path, inner).st_size
        except (FileNotFoundError, NotADirectoryError):
            continue
        if size > MAX_JSON_BYTES:
            raise FormatError(
                "over-limit", f"{path}/{inner} has {size} bytes.", f"No file of its kind is so large. {RESTORE}"
            )


def check_group_files(path: str) -> None:
    """The same for a store and the arrays in it."""
    check_metadata_files(path)
    if os.path.isdir(path):
        for name in sorted(os.listdir(path)):
            if name not in METADATA_FILES and os.path.isdir(os.path.join(path, name)):
                check_metadata_files(path, name)


def check_chunk_files(array: zarr.Array[Any], path: str, first: int, last: int) -> None:
    """Refuse chunks of the rows `first .. last` that are no files, or that Blosc would read beyond their end."""
    if is_url(path):
        return
    shape = array.shards or array.chunks
    rows = range(first // shape[0], -(-last // shape[0]))
    others = (range(-(-length // step)) for length, step in zip(array.shape[1:], shape[1:], strict=True))
    by_blosc = _is_blosc(array)
    for coordinates in itertools.product(rows, *others):
        name = f"{array.path}/{array.metadata.encode_chunk_key(coordinates)}".lstrip("/")
        try:
            size = file_status(path, name).st_size
        except FileNotFoundError:  # all of its values are the fill value
            continue
        if size > MAX_CHUNK_BYTES:
            raise ValueError(f"{name} has {size} bytes")
        if by_blosc and array.size:
            with open_inside(path, name) as file:
                _check_blosc(file.read(BLOSC_HEAD.size), size)


BLOSC_HEAD = struct.Struct("<4xIII")
"""Version and flags, then the bytes unpacked, of a block, and packed."""


def _check_blosc(head: bytes, size: int) -> None:
    # Blosc itself takes the length in the head for true, and reads what lies behind a chunk that was cut short.
    if len(head) < BLOSC_HEAD.size:
        raise ValueError("a chunk is too short")
    unpacked, _, packed = BLOSC_HEAD.unpack(head)
    if packed != size or unpacked > MAX_CHUNK_BYTES:
        raise ValueError(f"a chunk of {size} bytes says that it has {packed}, and {unpacked} unpacked")


def _is_blosc(array: zarr.Array[Any]) -> bool:
    metadata: Any = array.metadata
    if metadata.zarr_format == 2:
        return metadata.compressor is not None and metadata.compressor.codec_id == "blosc"
    return isinstance(metadata.codecs[-1], BloscCodec)


def _codec_names(array: zarr.Array[Any]) -> Iterator[str]:
    record: Any = array.metadata.to_dict()
    if array.metadata.zarr_format == 3:
        yield from _named(record["codecs"])
    else:
        for codec in (*(array.metadata.filters or ()), array.metadata.compressor):
            if codec is not None:
                yield str(codec.codec_id)


def _named(codecs: Any) -> Iterator[str]:
    for codec in codecs:
        yield str(codec["name"])
        settings = codec.get("configuration") or {}
        yield from _named(settings.get("codecs", ()))
        yield from _named(settings.get("index_codecs", ()))
