"""`protodask split`, and `protodask ingest --new`, as one would use them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from protodask.cli import app


def run(*arguments: str, code: int = 0) -> str:
    outcome = CliRunner().invoke(app, list(arguments))
    assert outcome.exit_code == code, outcome.output
    return outcome.stdout if code == 0 else outcome.stderr


@pytest.fixture
def inbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "inbox"
    folder.mkdir()
    for number in range(2):
        rows = "".join(f"{100 * number + row},{'yes' if row % 2 else 'no'}\n" for row in range(40))
        (folder / f"{number}.csv").write_text("x,y\n" + rows)
    return folder


def test_commands__take_what_is_new_and_divide_it(inbox: Path) -> None:
    new = ("ingest", "inbox", "--target", "y", "--out", "new.zarr", "--unless-in", "data.zarr")
    assert "New: 80 rows from 2 sources." in run(*new)
    assert "New: 80 rows from 2 sources." in run("ingest", "new.zarr", "--new", "--out", "data.zarr")
    assert run("ingest", "new.zarr", "--new", "--out", "data.zarr").startswith("Nothing is new. The dataset data.zarr")
    (inbox / "late.csv").write_text("x,y\n7000,yes\n")
    found = json.loads(run(*new, "--overwrite", "--json"))
    assert (found["new_sources"], found["new_rows"], found["left"], found["sources"]) == (1, 1, [], 1)
    run("ingest", "new.zarr", "--new", "--out", "data.zarr")
    assert "sources      3" in run("info", "data.zarr")
    divided: dict[str, Any] = json.loads(run("split", "data.zarr", "--out", "t.zarr", "--held-out", "h.zarr", "--json"))
    assert divided["rows"] + divided["held_out_rows"] == 81
    assert (divided["kind"], divided["by"]) == ("split", "row")
    assert "t.zarr has" in run("split", "data.zarr", "--out", "t.zarr", "--held-out", "h.zarr")
    assert "between 0 and 1" in run("split", "data.zarr", "--out", "a", "--held-out", "b", "--share", "2", code=2)
