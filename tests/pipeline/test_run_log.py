"""Runs as logs of JSON lines."""

import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.errors import refused

from protodask.errors import InputError, StorageError
from protodask.pipeline.steps.predict import PredictionsWritten
from protodask.pipeline.telling.events import (
    GateRefused,
    RunEnded,
    RunEvent,
    RunStarted,
    Said,
    Status,
    StepDone,
    StepFailed,
    StepFresh,
    StepIdentity,
    StepStarted,
)
from protodask.pipeline.telling.log import compact, lines_to_file, run_log

NOON = datetime(2026, 3, 1, 12, 0, 0, 125000, tzinfo=UTC)
STEP = StepIdentity(2, "scoring", "predict")


def _strict(line: str) -> dict[str, Any]:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    record = json.loads(line, parse_constant=refuse)
    assert isinstance(record, dict)
    return record


def _logged(*events: RunEvent) -> list[dict[str, Any]]:
    lines: list[str] = []
    listen = run_log(lines.append, clock=lambda: NOON)
    for event in events:
        listen(event)
    return [_strict(line) for line in lines]


def _started(pipeline: str = "score.yaml") -> RunStarted:
    return RunStarted(pipeline, "run-1", NOON, 3)


def _ended(status: Status, message: str = "", code: str | None = None) -> RunEnded:
    return RunEnded("score.yaml", "run-1", NOON + timedelta(seconds=2), 2.0004, status, message, code)


def test_log__each_event_is_a_line_that_names_its_run() -> None:
    records = _logged(
        _started(),
        StepFresh(StepIdentity(1, "data", "ingest")),
        StepStarted(STEP, "predict, a into b", "a file is new"),
        StepDone(STEP, 1.23456, PredictionsWritten("out.parquet", 70, 2)),
        GateRefused(StepIdentity(3, "gate-3", "gate"), ("drift.largest is 0.4, above 0.25",), stops=False),
        StepFailed(STEP, 0.5, InputError("column-missing", "There is no column y.", "Name another.")),
        _ended("failed", "There is no column y.", "column-missing"),
    )
    assert {(record["pipeline"], record["run"]) for record in records} == {("score.yaml", "run-1")}
    assert [record["event"] for record in records] == [
        "run-started",
        "step-fresh",
        "step-started",
        "step-done",
        "gate-refused",
        "step-failed",
        "run-ended",
    ]
    assert [record["level"] for record in records] == ["info", "info", "info", "info", "warning", "error", "error"]
    assert records[3] == {
        "time": "2026-03-01T12:00:00.125Z",
        "level": "info",
        "event": "step-done",
        "pipeline": "score.yaml",
        "run": "run-1",
        "step": 2,
        "name": "scoring",
        "kind": "predict",
        "seconds": 1.235,
        "result": {
            "kind": "predictions",
            "path": "out.parquet",
            "rows": 70,
            "batches": 2,
            "calibrated": False,
            "marked": 0,
        },
    }
    assert records[4]["reasons"] == ["drift.largest is 0.4, above 0.25"]
    assert (records[5]["code"], records[5]["message"]) == ("column-missing", "There is no column y. Name another.")
    assert records[6] | {"time": ""} == {
        "time": "",
        "level": "error",
        "event": "run-ended",
        "pipeline": "score.yaml",
        "run": "run-1",
        "status": "failed",
        "seconds": 2.0,
        "message": "There is no column y.",
        "code": "column-missing",
    }


@pytest.mark.parametrize(
    ("status", "level"),
    [
        ("done", "info"),
        ("fresh", "info"),
        ("stopped", "info"),
        ("left", "info"),
        ("refused", "warning"),
        ("failed", "error"),
        ("interrupted", "error"),
    ],
)
def test_log__the_level_of_an_end(status: Status, level: str) -> None:
    (record,) = _logged(_ended(status))
    assert (record["status"], record["level"]) == (status, level)
    assert "code" not in record


def test_log__times_of_other_zones_are_in_utc() -> None:
    there = NOON.astimezone(timezone(timedelta(hours=-7)))
    (record,) = _logged(RunStarted("p.yaml", "r", there, 1))
    assert record["time"] == "2026-03-01T12:00:00.125Z"


def test_log__secrets_of_urls_are_masked_wherever_they_stand() -> None:
    lines: list[str] = []
    listen = run_log(lines.append)
    place = "s3://user:quiet-word@bucket/p.yaml"
    for event in (
        RunStarted(place, "r", NOON, 1),
        StepStarted(STEP, f"predict, {place} into b", f"{place}?token=hidden-too is new"),
        GateRefused(STEP, (f"{place} is worse",), stops=True),
        RunEnded(place, "r", NOON, 1.0, "failed", f"{place} is gone."),
    ):
        listen(event)
    run_log(lines.append, place)(Said(f"see {place}", "warning"))
    assert len(lines) == 5
    assert not any("quiet-word" in line or "hidden-too" in line for line in lines)
    assert all("bucket/p.yaml" in line for line in lines)


@given(st.text(max_size=40), st.text(max_size=40), st.floats())
def test_log__any_names_and_numbers_are_one_line_of_strict_json(name: str, message: str, seconds: float) -> None:
    @dataclass(frozen=True)
    class Odd(PredictionsWritten):
        def describe(self) -> dict[str, Any]:
            return {"path": name, "rows": seconds, "strange": {1}, "list": [name]}

    step = StepIdentity(1, name, "predict")
    lines: list[str] = []
    listen = run_log(lines.append)
    for event in (
        StepStarted(step, message, ""),
        StepDone(step, seconds if math.isfinite(seconds) else 0.0, Odd(name, 1, 1)),
    ):
        listen(event)
    for line in lines:
        assert line.isprintable()
        assert line.isascii()
    if "://" not in name and "@" not in name:
        assert [_strict(line)["name"] for line in lines] == [name, name]
    assert _strict(lines[1])["result"]["rows"] == (seconds if math.isfinite(seconds) else None)


def test_log__what_a_failed_step_did_nevertheless() -> None:
    failed = InputError("bad-value", "There is no column y.", "Name another.")
    (record,) = _logged(StepFailed(STEP, 0.5, failed, PredictionsWritten("out.parquet", 70, 2)))
    assert (record["level"], record["error"], record["result"]["rows"]) == ("error", "InputError", 70)


def test_log__long_texts_are_cut() -> None:
    (record,) = _logged(_ended("failed", "x" * 100_000))
    assert len(record["message"]) < 2100
    (record,) = _logged(GateRefused(STEP, ("long " * 1000,) * 50, stops=True))
    assert len(json.dumps(record)) < 60_000


def test_compact__keeps_single_values() -> None:
    described = {"rows": 5, "loss": 0.5, "ok": True, "path": "a", "tables": [1], "more": {"x": 1}, "none": None}
    assert compact(described) == {"rows": 5, "loss": 0.5, "ok": True, "path": "a"}


def test_file__lines_are_appended_and_a_file_that_was_moved_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text("before\n")
    write = lines_to_file(str(path))
    write("first")
    path.rename(tmp_path / "run.log.1")
    write("second")
    assert (tmp_path / "run.log.1").read_text() == "before\nfirst\n"
    assert path.read_text() == "second\n"


def test_file__one_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    with refused("unwritable", tmp_path / "none" / "run.log", kind=StorageError):
        lines_to_file(str(tmp_path / "none" / "run.log"))
    with refused("unwritable", tmp_path, kind=StorageError):
        lines_to_file(str(tmp_path))
    os.mkfifo(tmp_path / "pipe")
    with refused("unwritable", tmp_path / "pipe", kind=StorageError):
        lines_to_file(str(tmp_path / "pipe"))


def test_file__one_that_is_lost_later_is_told_once_and_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    write = lines_to_file(str(folder / "run.log"))
    (folder / "run.log").unlink()
    folder.rmdir()
    write("first")
    write("second")
    assert capsys.readouterr().err.count("Warning: The log") == 1


WRITER = """
import sys
from protodask.pipeline.telling.log import lines_to_file
write = lines_to_file(sys.argv[1])
for length in map(int, sys.argv[3:]):
    write(sys.argv[2] * length)
"""


def test_file__lines_of_two_processes_do_not_mix(tmp_path: Path) -> None:
    path = str(tmp_path / "run.log")
    lengths = [1 + (7919 * number) % 20_000 for number in range(200)]
    commands = [[sys.executable, "-c", WRITER, path, letter, *map(str, lengths)] for letter in "ab"]
    writers = [subprocess.Popen(command) for command in commands]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    lines = Path(path).read_text().splitlines()
    for letter in "ab":
        assert [len(line) for line in lines if line.startswith(letter)] == lengths
    assert all(len(set(line)) == 1 for line in lines)
