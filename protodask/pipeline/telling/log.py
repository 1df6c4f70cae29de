"""A run of a pipeline as a log for machines: one JSON object a line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from protodask.data.places.whole_files import local_file
from protodask.errors import StorageError
from protodask.pipeline.telling import events
from protodask.pipeline.telling.result import to_json_line
from protodask.places import mask, mask_text

WriteLine = Callable[[str], None]

LONGEST_TEXT = 2000
"""Characters of a text in a record: a longer line is cut by some collectors of logs, and then is no JSON."""

MOST_REASONS = 20

SHORT_TEXT = 300
"""Characters of a text of a result that is repeated in the log."""


def run_log(
    write: WriteLine, pipeline: str = "", clock: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> events.RunListener:
    """A listener that writes a line for each event; pipeline and run are in all of them, once there is one."""
    run = {"pipeline": mask(pipeline), "run": ""}

    def listen(event: events.RunEvent) -> None:
        match event:
            case events.RunStarted() | events.RunEnded():
                run.update(pipeline=mask(event.pipeline), run=event.run)
                time = event.time
            case _:
                time = clock()
        name, level, values = _describe(event)
        if (step := getattr(event, "step", None)) is not None:
            values = {"step": step.number, "name": step.name, "kind": step.kind, **values}
        # The standard's own form, with which times of different machines sort as text.
        moment = time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        write(to_json_line({"time": moment, "level": level, "event": name, **shortened(run | values)}))

    return listen


def _describe(event: events.RunEvent) -> tuple[str, events.Level, dict[str, Any]]:
    match event:
        case events.RunStarted():
            return "run-started", "info", {"steps": event.steps}
        case events.StepFresh():
            return "step-fresh", "info", {"waiting": event.waiting} if event.waiting else {}
        case events.StepStarted():
            return "step-started", "info", {"message": event.what, "why": event.why}
        case events.StepDone():
            return "step-done", "info", {**_seconds(event.seconds), "result": compact(event.result.describe())}
        case events.StepFailed():
            said = {"message": str(event.error), "error": type(event.error).__name__, "code": event.error.code}
            result = {} if event.result is None else {"result": compact(event.result.describe())}
            return "step-failed", "error", {**_seconds(event.seconds), **said, **result}
        case events.GateRefused():
            answer = {
                "message": " ".join(event.reasons),
                "reasons": list(event.reasons[:MOST_REASONS]),
                "stops": event.stops,
                "repeated": event.repeated,
            }
            return "gate-refused", "info" if event.stops else "warning", answer
        case events.RunEnded():
            end = {"status": event.status, **_seconds(event.seconds), "message": event.message, **_code(event.code)}
            return "run-ended", LEVELS.get(event.status, "info"), end
        case events.Said():
            return "message", event.level, {"message": event.text, **_code(event.code)}


LEVELS: Mapping[events.Status, events.Level] = {"failed": "error", "interrupted": "error", "refused": "warning"}
"""Of ends of a run; others are as they should be."""


def _code(code: str | None) -> dict[str, str]:
    return {} if code is None else {"code": code}


def _seconds(seconds: float) -> dict[str, float]:
    return {"seconds": round(seconds, 3)}


def compact(description: Mapping[str, Any]) -> dict[str, Any]:
    """The single values of a result's description, such as its path and its rows, without lists and tables."""
    return {
        name: value
        for name, value in description.items()
        if isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= SHORT_TEXT)
    }


def shortened(value: Any) -> Any:
    """The value with the secrets of URLs masked and long texts cut short."""
    match value:
        case str():
            # Looking for URLs takes time that grows with the square of the longest word, and one that is cut may show
            # what the whole would not: hence first cut far behind the end.
            text = mask_text(value[: 2 * LONGEST_TEXT])
            return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}..."
        case Mapping():
            return {name: shortened(item) for name, item in value.items()}
        case list():
            return [shortened(item) for item in value]
        case _:
            return value


def lines_to_file(path: str) -> WriteLine:
    """Append lines to a file, each with one call of the system, so that those of two processes do not mix.

    The file is opened anew for each line: it may be moved away meanwhile, as programs do that rotate logs. That it can
    be written to is found out now; where it cannot be later, there is one warning, and the run goes on.
    """
    place = local_file(path)
    _append(place, b"")
    complained = False

    def write(line: str) -> None:
        nonlocal complained
        try:
            _append(place, line.encode() + b"\n")
        except StorageError as error:
            if not complained:
                complained = True
                print(f"Warning: {error}", file=sys.stderr)

    return write


def _append(path: str, content: bytes) -> None:
    try:
        # Without waiting where it is a pipe that nobody reads.
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0), 0o666)
        try:
            if content:
                os.write(handle, content)
        finally:
            os.close(handle)
    except OSError as error:
        raise StorageError(
            "unwritable",
            f"The log {path} cannot be written ({error.strerror}).",
            "Check the path, its permissions and the disk.",
        ) from error
