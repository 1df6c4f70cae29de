"""What a step would take, without taking it, and without waiting for NumPy and Zarr."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from protodask.data.tables.ingest import ingest
from protodask.pipeline.steps.base import StepNews
from protodask.pipeline.steps.ingest import IngestStep


@pytest.fixture
def inbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "inbox"
    folder.mkdir()
    for number in range(2):
        rows = "".join(f"{100 * number + row},{'yes' if row % 2 else 'no'}\n" for row in range(40))
        (folder / f"{number}.csv").write_text("x,y\n" + rows)
        os.utime(folder / f"{number}.csv", (0, 0))
    return folder


def test_news__says_what_a_step_would_take(inbox: Path) -> None:
    step = IngestStep(sources=("inbox",), out="data.zarr", target="y", new=True)
    assert step.news().found == "2 new files"
    ingest("inbox", "data.zarr", target="y", new=True)
    assert step.news().found is None
    (inbox / "late.csv").write_text("x,y\n7000,yes\n")
    assert step.news().found == "1 new file"
    assert IngestStep(sources=("inbox",), out="new.zarr", unless_in="data.zarr").news().found == "1 new file"
    assert IngestStep(sources=("data.zarr",), out="b.zarr", new=True).news().found == "80 new rows of 1 dataset"
    assert IngestStep(sources=("data.zarr", "inbox"), out="data.zarr", new=True).news().found == "1 new file"
    os.utime(inbox / "0.csv")
    assert IngestStep(sources=("inbox",), out="data.zarr", new=True, settle=3600).news() == StepNews(None, waiting=1)


def test_news__is_light(inbox: Path) -> None:
    ingest("inbox", "data.zarr", target="y", new=True)
    code = """
import sys
from protodask.pipeline.steps.ingest import IngestStep
from protodask.pipeline.steps.base import StepNews
found = IngestStep(sources=("inbox", "data.zarr"), out="data.zarr", new=True).news()
print(found.found, [name for name in ("numpy", "zarr", "pandas", "dask", "sklearn") if name in sys.modules])
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    said = subprocess.check_output([sys.executable, "-c", code], text=True, timeout=120, env=environment)
    assert said.strip() == "None []"
