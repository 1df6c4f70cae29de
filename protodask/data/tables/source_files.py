"""The files that a path, a folder or a glob stands for, and what tells one from another: light to import.

A file is told by the digest of its content, whatever it is called. Reading thousands of files only to find that none is
new would be slow, so a `DigestCache` remembers the digests of files that have not changed since.
"""

from __future__ import annotations

import glob
import hashlib
import itertools
import json
import lzma
import os
import re
import stat
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from protodask.data.places.bounded import PIECE_BYTES
from protodask.data.places.locations import file_system, is_url, locate, storage_errors
from protodask.errors import InputError, ProtodaskError, StorageError, some
from protodask.places import mask

PARQUET_ENDINGS = (".parquet", ".pq", ".parq")
PACKED = (".gz", ".bz2", ".xz")
TEXT_ENDINGS = (".csv", ".tsv", ".txt")
CSV_ENDINGS = tuple(f"{ending}{packed}" for ending in TEXT_ENDINGS for packed in ("", *PACKED))

ISAL = "igzip_lib"
"""Of the errors of the package isal, by which fsspec decompresses where it is installed."""

DIGEST_BYTES = 16

COARSE_NS = 2 * 10**9
"""The coarsest clock of a file system, FAT's: a file that changed later than this before it was read may change once
more without a trace, so its digest is not remembered.
"""

ABANDONED_SECONDS = 60.0
"""What is being written for so long was left by a process that was killed."""

MAX_REMEMBERED = 200_000
MAX_CACHE_BYTES = 128 * 2**20


@dataclass(frozen=True)
class SourceFile:
    """A file to take rows from."""

    path: str
    """Absolute, or a URL."""
    name: str
    """Below the folder or the first part of the glob it was found by, with slashes; of a single file, its own."""
    size: int
    """Bytes."""
    modified_ns: int
    """When it was changed, in nanoseconds since 1970; 0 where an object store does not tell."""
    version: str
    """Another one whenever the file is changed or replaced: size, times and inode, or the ETag or time of an
    object; nothing where a store tells neither."""
    settled: bool = True
    """Whether it was changed so long ago that it counts as complete; else it is left for the next time."""


@dataclass(frozen=True)
class Unusable:
    """A file that cannot be looked at, or is none: a pipe, say, or a link to itself."""

    name: str
    error: ProtodaskError


def is_table_path(path: str) -> bool:
    """Whether a path names CSV or Parquet data by its ending."""
    return path.lower().endswith((*CSV_ENDINGS, *PARQUET_ENDINGS))


def is_parquet_path(path: str) -> bool:
    """Whether a path names Parquet data by its ending."""
    return path.lower().endswith(PARQUET_ENDINGS)


def is_packed(path: str) -> bool:
    """Whether a file is compressed, by its ending."""
    return path.lower().endswith(PACKED)


@contextmanager
def table_errors(path: str, remedy: str = "Check the file.") -> Iterator[None]:
    """Say in the package's words why a file cannot be read, or what it is compressed by."""
    try:
        yield
    except ProtodaskError:
        raise
    except FileNotFoundError as error:
        raise StorageError("not-found", f"There is no file {mask(path)}.", "Check the path.") from error
    except Exception as error:
        module = type(error).__module__.partition(".")[0]
        of_bytes = isinstance(error, OSError | EOFError | zlib.error | lzma.LZMAError) or module == ISAL
        if of_bytes and is_packed(path) and getattr(error, "errno", None) is None:
            raise InputError(
                "unreadable",
                f"{mask(path)} cannot be decompressed ({error}).",
                "Check that it is whole, and its ending.",
            ) from error
        if of_bytes:
            raise StorageError("unreadable", f"{mask(path)} cannot be read ({error}).", "Check the file.") from error
        # The parsers' errors are of this kind, but for some of Arrow's.
        if not isinstance(error, ValueError) and module != "pyarrow":
            raise
        if isinstance(error, UnicodeDecodeError):
            remedy = "Save it as UTF-8."
        said = " ".join(str(error).split())  # some end with an empty line
        raise InputError("unreadable", f"{mask(path)} cannot be read ({said}).", remedy) from error


def changed_meanwhile(path: str) -> StorageError:
    """What to raise where a file is not what it was when it was looked at first."""
    return StorageError(
        "changed-meanwhile", f"{mask(path)} changed while it was read.", "Repeat once nobody writes to it."
    )


def _in_order(path: str) -> tuple[list[str | int], str]:
    """Sorts paths by their letters, and by the numbers among these: 2 is before 10."""
    return [int(part) if number % 2 else part for number, part in enumerate(re.split(r"(\d+)", path))], path


def find_files(source: str) -> list[str]:
    """The CSV and Parquet files a path, glob or folder stands for, in their natural order; at least one."""
    found = [path for path, _ in _listed(source)]
    if os.path.isdir(source):
        _warn_of_others(source)
    if not found:
        raise InputError(
            "not-found", f"There are no CSV or Parquet files at {source}.", "Check the path; endings tell the format."
        )
    return found


OTHER_TABLES = re.compile(r"\.(xlsx?|ods|jsonl|feather|arrow|orc|avro|zip|zst)$", re.IGNORECASE)
"""Endings of files that have tables in them, too, and are not read."""


def _warn_of_others(folder: str) -> None:
    """Say which files of a folder are no tables that are read, though they may hold some."""
    names = [os.path.relpath(path, folder) for path in _below(folder) if OTHER_TABLES.search(path)]
    others = sorted(name for name in names if re.search(r"(^|/)[._]", name) is None)
    if others:
        warnings.warn(f"Files in {folder} that are neither CSV nor Parquet are left out: {some(others)}.", stacklevel=2)


def check_settle(settle: float) -> None:
    """Refuse what is no time for which files are left: with a NaN no file would ever be found, and nobody told."""
    if not 0 <= settle < float("inf"):
        raise InputError("bad-setting", f"settle is {settle!r}.", "Give a number of seconds from 0.")


def source_files(source: str, settle: float = 0.0, unusable: list[Unusable] | None = None) -> tuple[SourceFile, ...]:
    """The same files with what is known of each; those that changed within `settle` seconds from now are not settled.

    A folder or a glob may have none. One that cannot be used is an error, or is added to `unusable`.
    """
    check_settle(settle)
    if is_url(source):
        return tuple(_objects(source, settle))
    if not os.path.exists(source) and not glob.has_magic(source):
        raise StorageError("not-found", f"There is nothing at {source}.", "Check the path.")
    now, files = time.time_ns(), []
    for path, name in _listed(source):
        try:
            status = _status(path)
        except FileNotFoundError:  # taken away since it was listed
            continue
        except ProtodaskError as error:
            if unusable is None:
                raise
            unusable.append(Unusable(name, error))
            continue
        settled = _is_settled(status.st_mtime_ns, now, settle)
        files.append(SourceFile(path, name, status.st_size, status.st_mtime_ns, _version(status), settled))
    return tuple(files)


def _is_settled(modified_ns: int, now_ns: int, settle: float) -> bool:
    # A time in the future is that of a server whose clock is ahead, or no true one; it must not hold forever.
    return abs(now_ns - modified_ns) >= settle * 1e9


def files_of(
    sources: Iterable[str], settle: float = 0.0, unusable: list[Unusable] | None = None
) -> tuple[SourceFile, ...]:
    """The files of several sources, each once, by names that differ."""
    found = {file.path: file for source in sources for file in source_files(source, settle, unusable)}
    counts = Counter(file.name for file in found.values())
    return tuple(
        file if counts[file.name] == 1 else replace(file, name=file.path.lstrip("/")) for file in found.values()
    )


def _status(path: str) -> os.stat_result:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StorageError(
            "unreadable", f"{path} cannot be looked at ({error}).", "Check that you may read it."
        ) from error
    if not stat.S_ISREG(status.st_mode):
        raise InputError("wrong-kind", f"{path} is not a regular file.", "Give files, not pipes or devices.")
    return status


def _listed(source: str) -> list[tuple[str, str]]:
    """Paths and names, in the natural order of the paths."""
    if is_url(source):
        return [(path, _name_below(source, path)) for path, _ in _remote(source, detailed=False)]
    if os.path.isdir(source):
        base, found = source, list(_below(source))
    elif os.path.exists(source):
        return [(os.path.abspath(source), os.path.basename(source))]
    else:
        base, found = _fixed_part(source)[0] or ".", []
        for path in globbed(source):
            found += _below(path) if os.path.isdir(path) and is_table_path(path) else [path]
    base = os.path.abspath(base)
    paths = sorted({os.path.abspath(path) for path in found if _is_wanted(path)}, key=_in_order)
    return [(path, os.path.relpath(path, base).replace(os.sep, "/")) for path in paths]


def _below(folder: str) -> Iterator[str]:
    return (os.path.join(inner, name) for inner, _, names in os.walk(folder, onerror=_refuse) for name in names)


def _refuse(error: OSError) -> None:
    """A folder that nobody may read, or on a disk that is away, is not an empty one."""
    if not isinstance(error, FileNotFoundError):
        raise StorageError(
            "unreadable",
            f"The folder {error.filename} cannot be read ({error.strerror}).",
            "Check that you may read it.",
        ) from error


def _is_wanted(path: str) -> bool:
    return is_table_path(path) and not os.path.basename(path).startswith((".", "_"))


def globbed(pattern: str) -> list[str]:
    """The local paths that a glob stands for."""
    base, rest = _fixed_part(pattern)
    return glob.glob(glob.escape(base) + rest, recursive=True)


def check_present(path: str) -> None:
    """Refuse a path or glob at which there is nothing; of URLs nothing is known yet."""
    where = locate(path)
    if not is_url(where) and not os.path.exists(where) and not globbed(where):
        raise StorageError("not-found", f"There is nothing at {path}.", "Check the path.")


def _fixed_part(pattern: str) -> tuple[str, str]:
    """The folder in front of a glob, and the rest; a folder that is there may have wildcards in its name."""
    parts = pattern.replace(os.sep, "/").split("/")
    folders = itertools.accumulate(parts[:-1], "{}/{}".format)
    fixed = sum(1 for _ in itertools.takewhile(lambda path: not glob.has_magic(path) or os.path.isdir(path), folders))
    return "".join(f"{part}/" for part in parts[:fixed]), "/".join(parts[fixed:])


def _version(status: os.stat_result) -> str:
    return f"{status.st_size}-{status.st_mtime_ns}-{status.st_ctime_ns}-{status.st_ino}"


def is_unchanged(file: SourceFile) -> bool:
    """Whether a file is still the one that was listed."""
    if is_url(file.path):
        return any(found.version == file.version for found in _objects(file.path, 0.0))
    try:
        return _version(os.stat(file.path)) == file.version
    except OSError:
        return False


def open_file(path: str, compression: str | None = None) -> Any:
    """A file or an object for reading its bytes; with "infer", decompressed if it is one that is read so.

    A pipe is refused, since opening one that nobody writes to would wait for ever.
    """
    if not is_url(path):
        _status(path)
    compression = compression if is_packed(path) else None
    if not is_url(path) and compression is None:
        return open(path, "rb")
    import fsspec

    files, name = file_system(path) if is_url(path) else (fsspec.filesystem("file"), path)
    return files.open(name, "rb", compression=compression)


def content_digest(path: str) -> str:
    """BLAKE2b of the bytes of a file or object, 32 hexadecimal digits."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    with storage_errors(path, "reading"), open_file(path) as file:
        while piece := file.read(PIECE_BYTES):  # not every file of fsspec can do what `hashlib.file_digest` asks of it
            digest.update(piece)
    return digest.hexdigest()


def bytes_digest(content: bytes) -> str:
    """The digest of a file with this content."""
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).hexdigest()


def digest_of(file: SourceFile) -> str | None:
    """The digest of a file's content as it was listed, or None if it has changed since, or is changing."""
    if not file.version:
        raise InputError(
            "unsupported",
            f"The store of {mask(file.path)} does not tell when an object changes: it has neither ETags nor times.",
            "Copy the files to a folder, and name that as the source.",
        )
    if not is_unchanged(file):
        return None
    try:
        digest = content_digest(file.path)
    except StorageError:
        if is_unchanged(file):
            raise
        return None
    return digest if is_unchanged(file) else None


class DigestCache:
    """Remembers digests in a small file, so that only files that are new or changed are read.

    The file may be lost, damaged or impossible to write: then files are read again. With no file, digests are
    remembered as long as this object lasts.
    """

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._known = {} if path is None else _read_cache(path)
        self._changed = False

    def digest_of(self, file: SourceFile, known: Container[str] = ()) -> str | None:
        """What `digest_of` finds, without reading a file that has been read before and not changed since.

        Of an object that is `known` by the digest that it had in earlier versions, that one.
        """
        if is_url(file.path) and (earlier := _digest_of_version(file)) in known:
            return earlier
        remembered = self._known.pop(file.path, None)
        if remembered is not None:  # what is asked for now is the last to be forgotten
            self._known[file.path] = remembered
            if remembered[0] == file.version:
                return remembered[1]
        digest = digest_of(file)
        if digest is not None and time.time_ns() - file.modified_ns > COARSE_NS:
            self._known[file.path] = [file.version, digest]
            self._changed = True
        return digest

    def has_read(self, file: SourceFile) -> bool:
        """Whether there was a file here that had as many bytes, which may be this one."""
        remembered = self._known.get(file.path)
        return remembered is not None and remembered[0].partition("-")[0] == str(file.size)

    def save(self) -> None:
        """Write the file, whole or not at all, if there is anything new; that it cannot be written is no error."""
        if self._path is None or not self._changed:
            return
        kept = dict([*self._known.items()][-MAX_REMEMBERED:])
        aside = f"{self._path}.partial"
        with suppress(OSError):
            try:
                file = open(aside, "x", encoding="utf-8")  # noqa: SIM115 - closed below, whoever else writes is let
            except FileExistsError:
                if time.time() - os.path.getmtime(aside) > ABANDONED_SECONDS:
                    os.unlink(aside)
                return
            try:
                with file:
                    json.dump({"format": CACHE_FORMAT, "files": kept}, file)
                os.replace(aside, self._path)
            except OSError:
                os.unlink(aside)
            else:
                self._changed = False


CACHE_FORMAT = "protodask-digests-1"


def _read_cache(path: str) -> dict[str, list[str]]:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode) or os.path.getsize(path) > MAX_CACHE_BYTES:
            return {}
        with open(path, encoding="utf-8") as file:
            record = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    files = record.get("files") if isinstance(record, dict) and record.get("format") == CACHE_FORMAT else None
    entries = files.items() if isinstance(files, dict) else ()
    return {name: entry for name, entry in entries if isinstance(entry, list) and list(map(type, entry)) == [str, str]}


def cache_beside(out: str) -> str | None:
    """Where the digests of the files that go into `out` are remembered: beside it, or in the user's folder of caches.

    None where there is no such folder.
    """
    if not is_url(out):
        folder, name = os.path.split(os.path.abspath(out))
        return os.path.join(folder, f".{name}.digests")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    name = bytes_digest(out.encode("utf-8", "surrogatepass"))
    folder = os.path.join(home, "protodask")
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError:
        return None
    return os.path.join(folder, f"{name}.digests")


def _remote(source: str, detailed: bool) -> list[tuple[str, dict[str, Any]]]:
    """URLs of the objects at a URL, in their order, and, `detailed`, what the store says of each."""
    protocol = source.split("://", 1)[0]
    with storage_errors(source, "reading"):
        files, place = file_system(source)
        files.invalidate_cache()  # another process may have written since
        paths = [place]
        if "*" in place and not files.exists(place):
            paths = [path for path in files.glob(place) if not files.isdir(path)]
        found: dict[str, dict[str, Any]] = {}
        for path in paths:
            if files.isdir(path):
                found |= files.find(path, detail=True)
                continue
            found[path] = {}
            if detailed:
                with suppress(FileNotFoundError):  # taken away since it was listed
                    found[path] = files.info(path)
    urls = ((name if is_url(name) else f"{protocol}://{name}", details) for name, details in found.items())
    return sorted((item for item in urls if _is_wanted(item[0])), key=lambda item: _in_order(item[0]))


def _name_below(source: str, path: str) -> str:
    base = source.split("*", 1)[0].rpartition("/")[0] if "*" in source else source.rstrip("/")
    return path[len(base) + 1 :] if path.startswith(f"{base}/") else path.rpartition("/")[2]


def _objects(source: str, settle: float) -> Iterator[SourceFile]:
    now = time.time_ns()
    for path, details in _remote(source, detailed=True):
        modified = modified_ns(details)
        if details:
            size = int(details.get("size") or 0)
            version = object_version(details) or (f"{size}-{modified}" if modified else "")
            settled = _is_settled(modified, now, settle)
            yield SourceFile(path, _name_below(source, path), size, modified, version, settled)


def object_version(details: dict[str, Any]) -> str:
    """What tells an object in a store from others that had its name, or nothing where the store does not say."""
    tag = details.get("ETag") or details.get("etag")
    return f"{details.get('size')}-{tag}" if tag else ""


def modified_ns(details: dict[str, Any]) -> int:
    """When an object was changed, in nanoseconds since 1970, or 0 where the store does not say."""
    for key in ("LastModified", "last_modified", "mtime", "updated", "created"):
        value = details.get(key)
        if isinstance(value, datetime):
            return int(value.timestamp() * 1e9)
        if isinstance(value, float):
            return int(value * 1e9)
    return 0


def _digest_of_version(file: SourceFile) -> str:
    """What earlier versions told an object by, without reading it."""
    return bytes_digest(file.version.encode())


def is_out_of_reach(file: SourceFile, error: ProtodaskError) -> bool:
    """Whether an error in reading an object says that its store cannot be reached, and not only this one."""
    return is_url(file.path) and not isinstance(error.__cause__, (PermissionError, FileNotFoundError))
