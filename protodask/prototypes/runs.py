"""The directory of a run: settings, the candidates of its batches, and a log of evaluations from which it goes on.

L-BFGS-B is deterministic and its state cannot be taken out, so a run is resumed by replaying: as long as the log has
the answer to what the solver asks, nothing is computed. What is recorded is sealed with the run's settings and its
own name, so that a file of another run or batch is no answer; what is torn or damaged is computed again.

Arrays are a file each, checksummed, written whole or not at all: a head, a JSON list of `[name, dtype, shape]`, and the
bytes of the arrays one after the other. Whoever finds it torn, damaged or of another run takes it for absent.
"""

from __future__ import annotations

import json
import math
import os
import platform
import struct
import time
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from protodask._version import __version__
from protodask.data.places.bounded import open_inside, open_to_append, read_json
from protodask.data.places.local_files import flush, flush_handle, make_durable
from protodask.data.places.locations import is_url, locate, storage_errors
from protodask.data.places.own_folder import SETTINGS_FILE, make_folder
from protodask.data.places.records import CHECKSUM, Fields, RecordKind, recognize, seal, unseal
from protodask.data.places.whole_files import write_whole
from protodask.engine import Arrays
from protodask.engine.records import Floats
from protodask.errors import FormatError, InputError, StorageError
from protodask.places import mask
from protodask.prototypes.solver import Evaluation, Function

HISTORY_FILE = "history.json"
"""Written last: a run that has it is finished."""

RECORD = RecordKind(
    "run",
    "protodask-run",
    1,
    "Give the folder that `run_dir` named.",
    "Remove the run directory and start the run again.",
)

MOST_PARAMETERS = 2**24
"""Far more than a problem has: a bound on what a damaged log can make a reader allocate."""

MADE_OF = "of"
"""Name of what tells arrays from those that were made of something else."""

NOT_SETTINGS = ("environment", CHECKSUM)
"""What a run's record says besides its settings."""

PARTIAL = ".partial"
"""Ending of a file that is being written: one name, because the run has one driver, so that the next one takes it."""

FLUSH_SECONDS = 1.0
"""Evaluations of at most this long are lost when the machine fails; when only the process does, none are."""

_HEAD = struct.Struct("<4sIqI")
_MAGIC = b"eval"


class RunLog(Protocol):
    """Remembers what was computed before an interruption."""

    def recorded(self, batch: int, stage: str, function: Function) -> Function:
        """`function`, for one stage of the training of one round: a precision."""
        return function

    def arrays(self, batch: int, name: str, make: Callable[[], Arrays], of: int = 0) -> Arrays:
        """The arrays of a round under a name, made only if none of the same number are remembered."""
        return make()


class _NoLog(RunLog):
    """Remembers nothing."""


NO_LOG: RunLog = _NoLog()


@dataclass(frozen=True)
class RunDirectory:
    """A folder that belongs to one configuration on one dataset."""

    path: str
    seal: int = 0
    """Checksum of the settings, with which the checksums of all records begin."""

    @classmethod
    def open(cls, path: str | os.PathLike[str], settings: Mapping[str, Any]) -> RunDirectory:
        """Make the directory, or take up the run in it if it has the same settings."""
        where = run_place(path)
        record = {"format": RECORD.format, "version": RECORD.version, **json.loads(json.dumps(settings))}
        with storage_errors(where, "writing"):
            make_folder(os.path.realpath(where))
            file = os.path.join(where, SETTINGS_FILE)
            if os.path.exists(file):
                _check_settings(where, read_run(where), record)
            else:
                known = SETTINGS_FILE + PARTIAL  # left by a process that was killed at its first step
                if any(not name.startswith(".") and name != known for name in os.listdir(where)):
                    raise InputError(
                        "wrong-kind",
                        f"{where} has files in it and is no run directory.",
                        "Choose an empty or new folder.",
                    )
                _write_json(file, seal({**record, "environment": environment()}, RECORD.name))
                make_durable(where)
        return cls(where, _seal(record))

    @classmethod
    def existing(cls, path: str) -> RunDirectory:
        """The run at a path, to be looked at."""
        return cls(path, _seal(read_run(path)))

    def recorded(self, batch: int, stage: str, function: Function) -> Function:
        """`function`, answered from the log as far as it goes, and logged from there on."""
        name = f"batch-{batch}-{stage}.log"
        return _RecordedFunction(os.path.join(self.path, name), self.seal_of(name), function)

    def arrays(self, batch: int, name: str, make: Callable[[], Arrays], of: int = 0) -> dict[str, NDArray[Any]]:
        """The arrays of a batch that were recorded under a name; made and recorded now where they were not.

        Where what they are made `of` is not the run's alone, those of another number are made anew.
        """
        file_name = f"batch-{batch}-{name}.arrays"
        path, seal = os.path.join(self.path, file_name), self.seal_of(file_name)
        found = read_arrays(path, seal)
        if found is None or found.get(MADE_OF, np.zeros(1)).tolist() != [of]:
            found = {**make(), **({MADE_OF: np.array([of])} if of else {})}
            with storage_errors(self.path, "writing"):
                _write(path, pack_arrays(found, seal))
        return found

    def seal_of(self, name: str) -> int:
        """Where the checksums of the records in a file of this run begin."""
        return zlib.crc32(name.encode(), self.seal)

    @property
    def untouched(self) -> bool:
        """Whether no evaluation was recorded and no store kept, here or in a run inside: then nothing is lost with the
        directory.
        """
        return not any(
            name.endswith((".log", ".zarr")) or "-steps-" in name
            for _, folders, files in os.walk(self.path)
            for name in (*folders, *files)
        )

    def finish(self, history: list[dict[str, Any]]) -> None:
        """Write down how the batches went."""
        with storage_errors(self.path, "writing"):
            _write_json(
                os.path.join(self.path, HISTORY_FILE), seal({"run": self.seal, "batches": history}, RECORD.name)
            )


def run_place(path: str | os.PathLike[str]) -> str:
    """Where a run directory lies: it is locked and appended to, so a URL is refused."""
    where = locate(path)
    if is_url(where):
        raise InputError("not-local", f"The run directory {mask(where)} is a URL.", "Name a local folder.")
    return where


def read_run(path: str) -> dict[str, Any]:
    """The settings of a run directory."""
    try:
        record = _read_json(path, SETTINGS_FILE, RECORD.remedy)
    except FileNotFoundError as error:
        raise FormatError("wrong-kind", f"{path} is not a protodask run.", RECORD.make) from error
    fields = unseal(recognize(record, RECORD, path))
    return dict(fields.record)


def read_history(path: str, run: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """How the batches of a run (what `read_run` gives) went, or None while it has not ended."""
    again = "Run the fit again with this run directory."
    try:
        record = _read_json(path, HISTORY_FILE, again)
    except FileNotFoundError:
        return None
    if not isinstance(record, dict):
        raise FormatError("wrong-kind", f"{path}/{HISTORY_FILE} is not the history of a run.", again)
    fields = Fields(record, path, "history of the run", again)
    unseal(fields)
    if fields.integer("run", 0) != _seal(run):
        raise FormatError("other-run", f"{path}/{HISTORY_FILE} is the history of another run.", again)
    return fields.objects("batches")


def _read_json(path: str, name: str, remedy: str) -> Any:
    """What a file of a run holds."""
    try:
        return read_json(path, name)
    except (FormatError, FileNotFoundError):
        raise
    except OSError as error:
        raise StorageError(
            "unreadable", f"{path}/{name} cannot be read ({error}).", "Check that you may read it."
        ) from error
    except ValueError as error:
        raise FormatError("damaged", f"{path}/{name} is damaged ({error}).", remedy) from error


def _seal(record: Mapping[str, Any]) -> int:
    """Checksum of the settings of a run; it may be resumed in another environment."""
    settings = {name: value for name, value in record.items() if name not in NOT_SETTINGS}
    return zlib.crc32(json.dumps(settings, sort_keys=True).encode())


def _check_settings(where: str, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    before = dict(_flatten({name: value for name, value in found.items() if name not in NOT_SETTINGS}))
    now = dict(_flatten(wanted))
    changed = [
        f"{_short(name)} was {_said(before, name)} and is {_said(now, name)}"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    ]
    if changed:
        raise InputError(
            "other-run",
            f"The run in {where} is another one: {'; '.join(changed[:MOST_NAMED])}.",
            "Repeat it with its own settings and data, choose another run directory, or remove this one.",
        )


def _said(settings: Mapping[str, Any], name: str) -> str:
    return _short(repr(settings[name])) if name in settings else "not given"


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_NAMED else f"{text[:LONGEST_NAMED]}..."


MOST_NAMED, LONGEST_NAMED = 10, 100
"""Differences that are named, and characters of each: a record may have been written by anybody."""


def _flatten(record: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _write_json(path: str, value: Any) -> None:
    _write(path, [json.dumps(value, indent=2).encode()])


def _write(path: str, parts: Iterable[bytes]) -> None:
    write_whole(path, path + PARTIAL, parts)


def environment() -> dict[str, str]:
    """What the bits of a result depend on besides data and settings."""
    return {
        "protodask": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": platform.machine(),
        "processor": _processor(),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()


class _RecordedFunction:
    """Answers from a log of evaluations while it matches, then computes and appends."""

    def __init__(self, path: str, seal: int, function: Function) -> None:
        self._path = path
        self._seal = seal
        self._function = function
        self._past: Generator[Entry, None, None] | None = None
        self._good_bytes = 0
        self._replaying = True
        self._flushed = time.monotonic()

    def __call__(self, theta: Floats) -> Evaluation:
        if self._replaying:
            if self._past is None:
                self._past = read_log(self._path, self._seal, len(theta))
            entry = next(self._past, None)
            if entry is not None and entry.theta == theta.tobytes():
                self._good_bytes = entry.end
                return entry.evaluation
            self._past.close()
            self._replaying = False
            self._cut()
        found = self._function(theta)
        self._append(_pack(theta, found, self._seal))
        return found

    def _cut(self) -> None:
        """Drop what follows the last entry that could be used."""
        with storage_errors(self._path, "writing"), open_to_append(*os.path.split(self._path)) as file:
            file.truncate(self._good_bytes)
            flush_handle(file.fileno())
        flush(os.path.dirname(self._path))

    def _append(self, record: bytes) -> None:
        with storage_errors(self._path, "writing"), open_to_append(*os.path.split(self._path)) as file:
            file.write(record)
            file.flush()
            if time.monotonic() - self._flushed > FLUSH_SECONDS:
                flush_handle(file.fileno())
                self._flushed = time.monotonic()


@dataclass(frozen=True)
class Entry:
    """An evaluation on record."""

    theta: bytes
    evaluation: Evaluation
    end: int


def _pack(theta: Floats, found: Evaluation, seal: int) -> bytes:
    """A head, the value, the loss of held-out rows where there are such, `theta` and the gradient."""
    numbers = [found.value] if math.isnan(found.held_out) else [found.value, found.held_out]
    body = struct.pack(f"<{len(numbers)}d", *numbers) + theta.tobytes() + found.gradient.tobytes()
    return _HEAD.pack(_MAGIC, zlib.crc32(body, seal), len(body), len(theta)) + body


def read_log(path: str, seal: int, parameters: int | None = None) -> Generator[Entry, None, None]:
    """The entries of a log up to the first that is torn or damaged, or has another number of parameters than this."""
    try:
        opened = open_inside(*os.path.split(path))
    except FileNotFoundError:
        return
    end = 0
    with opened as file:
        size = os.fstat(file.fileno()).st_size
        while True:
            head = file.read(_HEAD.size)
            if len(head) < _HEAD.size:
                return
            magic, checksum, length, count = _HEAD.unpack(head)
            end += _HEAD.size + length
            numbers = (length - 16 * count) // 8
            if magic != _MAGIC or count > MOST_PARAMETERS or end > size:
                return
            if numbers not in (1, 2) or length != 8 * numbers + 16 * count:
                return
            if parameters is not None and count != parameters:
                return
            body = file.read(length)
            if zlib.crc32(body, seal) != checksum:
                return
            values = struct.unpack_from(f"<{numbers}d", body)
            first = 8 * numbers
            gradient = np.frombuffer(body, dtype=np.float64, offset=first + 8 * count).copy()
            held_out = values[1] if numbers == 2 else math.nan
            yield Entry(body[first : first + 8 * count], Evaluation(values[0], gradient, held_out), end)


_ARRAYS_HEAD = struct.Struct("<4sII")
_ARRAYS_MAGIC = b"arrs"

PLAIN_TYPES = {np.dtype(name).str: np.dtype(name) for name in ("bool", "int32", "int64", "float32", "float64")}
"""What an array may hold; nothing else is read."""

LONGEST_LIST = 2**16
"""Bytes of the list of arrays: names and shapes of a handful."""


def pack_arrays(arrays: Arrays, seal: int) -> list[bytes]:
    """The parts of a file with these arrays; `seal` is where its checksum begins."""
    plain = {name: np.ascontiguousarray(values) for name, values in arrays.items()}
    listed = json.dumps([[name, values.dtype.str, values.shape] for name, values in plain.items()]).encode()
    body = [listed, *(values.tobytes() for values in plain.values())]
    checksum = seal
    for part in body:
        checksum = zlib.crc32(part, checksum)
    return [_ARRAYS_HEAD.pack(_ARRAYS_MAGIC, checksum, len(listed)), *body]


def read_arrays(path: str, seal: int) -> dict[str, NDArray[Any]] | None:
    """The arrays of a file, or None where there is no such file or it is not as it was written."""
    try:
        with open_inside(*os.path.split(path)) as file:
            head = file.read(_ARRAYS_HEAD.size)
            if len(head) < _ARRAYS_HEAD.size:
                return None
            magic, checksum, length = _ARRAYS_HEAD.unpack(head)
            if magic != _ARRAYS_MAGIC or length > LONGEST_LIST:
                return None
            listed = file.read(length)
            # The checksum covers the list, but what is allocated must fit the file before it can be checked.
            shapes = _parse_list(listed)
            if shapes is None or _ARRAYS_HEAD.size + length + _total_bytes(shapes) != os.fstat(file.fileno()).st_size:
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
