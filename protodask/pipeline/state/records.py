"""What runs of a pipeline remember: a folder with a record of each step that was done, and a lock.

    STATE/run-FILE.lock              held while a run of that pipeline file is under way; names its process
    STATE/run-PATH.json              how its last run ended, and what became of each step when it was last looked at
    STATE/steps/NAME.json            what was done: key, fingerprints of inputs and outputs, result
    STATE/steps/NAME.begun.json      a step has begun: what lies at its outputs since then is its own

`FILE` follows from where the pipeline file lies, `PATH` from the path that it is run by, as in the labels of metrics.
`NAME` follows from the kind of the step and from its outputs, so that steps may be moved within the file, and the
variables of the file may lead to other places. A record that is lost or damaged costs doing its step again, and that
somebody takes away what lies at its output, or allows it to be replaced: nothing says any more whose it is. Places are
noted without the secrets of their URLs.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from protodask.data.places.bounded import read_json
from protodask.data.places.locations import full_disk_of, storage_errors
from protodask.data.places.locks import CAN_LOCK, lock_handle
from protodask.data.places.whole_files import replace_file
from protodask.errors import StorageError
from protodask.pipeline.file.definition import STATE_FOLDER
from protodask.pipeline.telling.events import Done, Known, RunEnded, Status, StepIdentity, StepOutcome
from protodask.pipeline.telling.log import shortened
from protodask.pipeline.telling.result import plain, to_json
from protodask.places import mask

Note = TypeVar("Note")

RECORD_VERSION = 1
STEPS_FOLDER = "steps"
BEGUN = "begun.json"

WAITING_SECONDS = 0.2
"""Between looks whether the other run has ended."""


@dataclass(frozen=True)
class StepRecord:
    """What was done when a step was done last."""

    key: str
    """Hash of kind, settings, version and the fingerprints of the inputs."""
    inputs: Mapping[str, str | None]
    """Fingerprint of each place that counts for the key."""
    settings: Mapping[str, Any]
    outputs: Mapping[str, str | None]
    """Fingerprint of each place that was written."""
    seconds: float
    ended: str
    """Time, in ISO format."""
    result: Mapping[str, Any]
    """What the step left behind, as plain values."""
    version: str = ""
    """Of protodask."""
    refused: tuple[str, ...] = ()
    """Why a gate said no; empty where there is no gate, or it said yes."""
    files: Mapping[str, str | None] = field(default_factory=dict)
    """Fingerprint of the files of each place that was written, where that of the place is of its attributes alone."""


@dataclass(frozen=True)
class Begun:
    """A step that has begun and may not have ended."""

    key: str
    inputs: Mapping[str, str | None] = field(default_factory=dict)
    """Fingerprint of each place that it was to read, of those, too, that do not count for the key."""
    left: Mapping[str, str | None] = field(default_factory=dict)
    """Fingerprint of each place as the step left it when it failed or was stopped; empty where it was killed, or is
    under way.
    """


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let signals that end the process wait for the end of the block: who presses Ctrl-C often does so twice."""
    if threading.current_thread() is not threading.main_thread():  # where signals raise nothing
        yield
        return
    waiting: list[int] = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    before = {number: handler for number, handler in handlers.items() if handler is not None}
    for number in before:
        signal.signal(number, lambda given, _: waiting.append(given))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if waiting:
            signal.raise_signal(waiting[0])


def record_name(kind: str, written: tuple[str, ...], settings: Mapping[str, Any], occurrence: int) -> str:
    """What the record of a step is called: by what it writes, or by its settings if that is nothing.

    `occurrence` tells steps of one kind apart that write to the same places.
    """
    told: Any = list(written) or dict(settings)
    text = json.dumps([kind, told, occurrence], sort_keys=True)
    return f"{kind}-{hashlib.blake2b(text.encode('utf-8', 'surrogateescape'), digest_size=8).hexdigest()}"


@dataclass(frozen=True)
class State:
    """The folder of what runs of a pipeline remember. Files of one name may share it: records name places."""

    folder: str
    pipeline: str
    """Path of the pipeline file."""

    def _of_runs(self, ending: str, links: bool = False) -> str:
        """The place of what is noted of the runs of the pipeline file, by its path, or where links lead."""
        path = os.path.realpath(self.pipeline) if links else os.path.abspath(self.pipeline)
        name = hashlib.blake2b(os.fsencode(path), digest_size=4).hexdigest()
        return os.path.join(self.folder, f"run-{name}.{ending}")

    def _of_step(self, name: str, ending: str = "json") -> str:
        return os.path.join(self.folder, STEPS_FOLDER, f"{name}.{ending}")

    def last_run(self) -> RunEnded | None:
        """How the last run ended, and what is known since; without what became of the steps in it."""
        # It may have been run by another path, such as that of a working folder without links.
        values = _read(self._of_runs("json")) or _read(self._of_runs("json", links=True))
        try:
            return None if values is None else _end_of(values, self.pipeline)
        except (KeyError, TypeError, ValueError, OverflowError):
            return None

    def ended(self, end: RunEnded) -> None:
        """Note how a run has ended."""
        succeeded = end.known.succeeded
        values = {
            "run": end.run,
            "status": end.status,
            "message": shortened(end.message),
            "code": end.code,
            "reasons": shortened(list(end.reasons)),
            "ended": end.time.isoformat(),
            "seconds": end.seconds,
            "succeeded": None if succeeded is None else succeeded.isoformat(),
            "steps": [{**outcome.describe(), "waiting": outcome.waiting} for outcome in end.known.steps],
        }
        # A link may lead to another file with each deployment, and it is the same pipeline to those who watch it.
        _write(self._of_runs("json"), values)

    def record(self, name: str) -> StepRecord | None:
        """What was done last, or None if nothing is known of it."""
        return _note(StepRecord, _read(self._of_step(name)), version="", refused=[], files={})

    def beside(self, name: str) -> str | None:
        """The usual folder of another pipeline file that remembers the step of this name, as if it had been renamed."""
        parent, own = os.path.split(self.folder)
        if os.path.basename(parent) != STATE_FOLDER:
            return None
        others = glob.iglob(os.path.join(glob.escape(parent), "*", STEPS_FOLDER, f"{name}.json"))
        folders = sorted(os.path.relpath(path, parent).split(os.sep)[0] for path in others)
        usual = STATE_FOLDER if parent == os.path.abspath(STATE_FOLDER) else parent
        return next((os.path.join(usual, other) for other in folders if other != own), None)

    def why_unknown(self, name: str) -> str:
        """Why nothing is known of a step, in a few words."""
        if os.path.exists(self._of_step(name)):
            return "what was noted of it cannot be read"
        other = self.beside(name)
        return "it was never done" if other is None else f"it was never done by this file, but by that of {other}"

    def begun(self, name: str) -> Begun | None:
        """What began and has no record since."""
        return _note(Begun, _read(self._of_step(name, BEGUN)))

    def begin(self, name: str, begun: Begun) -> None:
        """Note that a step begins: whatever lies at its outputs from now on is its own."""
        _write(self._of_step(name, BEGUN), vars(begun))

    def done(self, name: str, record: StepRecord) -> None:
        """Note that a step was done."""
        _write(self._of_step(name), vars(record))
        self.not_begun(name)

    def not_begun(self, name: str) -> None:
        """Note that nothing of a step is unfinished: it was done, or left its outputs as they were."""
        with storage_errors(self.folder, "writing"), suppress(FileNotFoundError):
            os.unlink(self._of_step(name, BEGUN))

    @contextmanager
    def sole_run(self, wait: bool, waiting: Any = None) -> Iterator[bool]:
        """Whether this is the only run of the pipeline now; with `wait`, after the other one has ended.

        `waiting` is called once, with what is known of the other run, before the wait. The lock ends with the process.
        """
        if not CAN_LOCK:
            yield True
            return
        path = self._of_runs("lock", links=True)
        with _noting(path), storage_errors(path, "locking"):
            os.makedirs(self.folder, exist_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            while True:
                with suppress(StorageError):
                    lock_handle(handle, path)
                    break
                if not wait:
                    yield False
                    return
                if waiting is not None:
                    waiting(self.other_run())
                    waiting = None
                time.sleep(WAITING_SECONDS)
            with _noting(path), storage_errors(path, "writing"):
                os.ftruncate(handle, 0)
                os.pwrite(handle, f"{os.getpid()} {time.strftime('%Y-%m-%dT%H:%M:%S%z')}".encode(), 0)
            yield True
        finally:
            os.close(handle)

    def other_run(self) -> str:
        """Which run holds the lock, in a few words."""
        try:
            with open(self._of_runs("lock", links=True), encoding="ascii") as file:
                process, _, since = file.read(100).partition(" ")
        except (OSError, ValueError):
            process = since = ""
        return f"process {process}, since {since}" if process and since else "another process"


def _read(path: str) -> dict[str, Any] | None:
    try:
        values = read_json(*os.path.split(path))
    except (OSError, ValueError):
        return None
    # What another version of this package noted is as good as nothing.
    if not isinstance(values, dict) or values.get("format") != RECORD_VERSION:
        return None
    found: dict[str, Any] = plain(values)
    if found != values:  # earlier versions noted secrets, too
        with suppress(StorageError):
            _write(path, found)
    return found


def _write(path: str, values: Mapping[str, Any]) -> None:
    with _noting(path):
        replace_file(path, to_json({"format": RECORD_VERSION, **plain(values)}) + "\n")


def _noting(path: str) -> AbstractContextManager[None]:
    """Of a disk that is full it is told what was noted there: nobody named these files."""
    folder = os.path.dirname(path)
    return full_disk_of(folder, f"noting in {mask(folder)} how runs of the pipeline go")


JSON_TYPES: Mapping[Any, Any] = {str: str, float: int | float, Mapping: dict, tuple: list}
"""What the values of a record are in a file, by what they are here."""


def _note(kind: type[Note], values: Mapping[str, Any] | None, **usual: Any) -> Note | None:
    """The record that was noted; None if something is missing but what is `usual`, or of another type."""
    if values is None:
        return None
    found: dict[str, Any] = {}
    for name, hint in get_type_hints(kind).items():
        value = values.get(name, usual.get(name))
        if not isinstance(value, JSON_TYPES[get_origin(hint) or hint]):
            return None
        if isinstance(value, list) and not all(isinstance(item, str) for item in value):
            return None
        found[name] = tuple(value) if isinstance(value, list) else value
    return kind(**found)


def _end_of(values: Mapping[str, Any], pipeline: str) -> RunEnded:
    if values["status"] not in get_args(Status):
        raise ValueError(values["status"])
    reasons = values.get("reasons", [])
    if not isinstance(reasons, list):
        raise ValueError(reasons)
    return RunEnded(
        pipeline,
        str(values["run"]),
        _moment(values["ended"]),
        float(values["seconds"]),
        values["status"],
        str(values["message"]),
        values["code"],
        tuple(map(str, reasons)),
        known=Known(
            None if values["succeeded"] is None else _moment(values["succeeded"]), tuple(map(_outcome, values["steps"]))
        ),
    )


def _moment(text: str) -> datetime:
    found = datetime.fromisoformat(text).astimezone(UTC)
    if not 1970 < found.year < 9999:  # such times cannot be told in every zone
        raise ValueError(text)
    return found


def _outcome(values: Mapping[str, Any]) -> StepOutcome:
    step = StepIdentity(int(values["number"]), str(values["name"]), str(values["step"]))
    seconds, waiting, result = values["seconds"], values["waiting"], values["result"]
    if values["status"] not in get_args(Done) or not isinstance(result, dict | None):
        raise ValueError(values["status"])
    return StepOutcome(
        step,
        values["status"],
        result,
        None if seconds is None else float(seconds),
        waiting=None if waiting is None else int(float(waiting)),
    )
