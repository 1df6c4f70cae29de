"""Secrets in the URLs of stores: in no output, and in nothing that is written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
import zarr
from fsspec.implementations.memory import MemoryFileSystem

from protodask import Dataset
from protodask.pipeline.state.records import Begun, State
from protodask.places import mask

Call = Callable[..., Any]

SECRET = "hush-hush-42"
STORE = f"kept://user:{SECRET}@bucket/"
QUICK = ("--recipe", "source", "--candidates", "20", "--max-iterations", "3")


class Kept(MemoryFileSystem):  # type: ignore[misc]
    """Stands for a store that stays when a command has ended: here all commands are of one process."""

    protocol = "kept"

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return super()._strip_protocol(path.replace("kept://", "memory://") if isinstance(path, str) else path)


fsspec.register_implementation("kept", Kept, clobber=True)


def _steps(folder: Path) -> list[tuple[object, ...]]:
    names = ("data.zarr", "model.zarr", "pred.zarr", "planes.zarr", "nothing")
    data, model, predictions, planes, nothing = (STORE + name for name in names)
    return [
        ("sample-data", "checker", "--rows", 2000, "--out", data),
        ("sample-data", "checker", "--rows", 2000, "--out", data),
        ("sample-data", "checker", "--rows", 2000, "--out", data, "--overwrite", "--json"),
        ("info", data),
        ("info", data, "--json"),
        ("fit", data, "--out", model, *QUICK, "--run-dir", folder / "run"),
        ("fit", data, "--out", STORE + "other.zarr", *QUICK, "--run-dir", STORE + "run"),
        ("info", model, "--json"),
        ("predict", model, data, "--out", predictions),
        ("predict", model, data, "--out", predictions, "--overwrite", "--json"),
        ("evaluate", model, data, "--out", folder / "scores.json"),
        ("evaluate", model, data, "--json"),
        ("info", predictions),
        (
            "robust",
            "fit",
            data,
            "--out",
            planes,
            "--terms",
            STORE + "terms.zarr",
            "--run-dir",
            folder / "planes",
            "--json",
        ),
        ("robust", "fit", nothing, "--out", planes, "--run-dir", folder / "other", "--debug"),
        ("robust", "evaluate", planes, data, "--out", folder / "measures.json"),
        ("robust", "predict", planes, data, "--out", STORE + "robust.zarr"),
        ("info", planes),
        ("info", STORE + "robust.zarr"),
        ("info", nothing, "--debug"),
        ("fit", nothing, "--out", folder / "a.zarr", "--debug"),
        ("fit", data, "--start", nothing, "--out", folder / "a.zarr"),
        ("ingest", nothing + ".csv", "--out", folder / "a.zarr", "--target", "y", "--debug"),
        ("ingest", nothing + ".zarr", "--out", folder / "a.zarr", "--target", "y", "--debug"),
    ]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_commands__never_show_or_record_a_secret(call: Call, tmp_path: Path) -> None:
    codes = []
    for command in _steps(tmp_path):
        done = call(*command)
        assert SECRET not in done.output, command
        codes.append(done.exit_code)
    assert codes.count(0) >= 15, "most of them did their work"
    assert 1 in codes
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.name for path in written} >= {"run.json", "scores.json"}
    for path in written:
        assert SECRET.encode() not in path.read_bytes(), path
    for name in ("data.zarr", "model.zarr", "planes.zarr", "robust.zarr", "terms.zarr"):
        assert SECRET not in str(dict(zarr.open_group(STORE + name, mode="r").attrs))
    assert SECRET not in repr(Dataset.open(STORE + "data.zarr"))


PIPELINE = f"""
state: state
variables: {{store: "{STORE}piped-"}}
steps:
  - sample-data: {{kind: checker, rows: 500, out: "${{store}}data"}}
  - fit: {{data: "${{store}}data", out: "${{store}}model", recipe: source, candidates: 20, max-iterations: 3,
          run-dir: run}}
  - predict: {{model: "${{store}}model", data: "${{store}}data", out: "${{store}}predictions"}}
  - evaluate: {{model: "${{store}}model", data: "${{store}}data", out: scores.json}}
  - monitor: {{model: "${{store}}model", data: "${{store}}data", out: profile.json}}
  - publish: {{model: "${{store}}model", registry: registry, metrics: scores.json}}
  - fit: {{data: "${{store}}data", start: "${{store}}nothing", out: "${{store}}more", run-dir: more}}
"""


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_run__never_shows_or_records_a_secret(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.yaml").write_text(PIPELINE)
    for fresh in (0, 6):
        done = call("run", "p.yaml", "--log-file", "p.log", "--metrics", "p.prom")
        assert done.exit_code == 1
        assert "step 7 (fit)" in done.output
        assert done.output.count("is up to date") == fresh
        written = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "p.yaml"]
        assert len([path for path in written if path.name.endswith(".begun.json")]) == 1
        for path in written:
            assert SECRET.encode() not in path.read_bytes(), path
        assert SECRET not in done.output
    data = next(path for path in (tmp_path / "state" / "steps").glob("predict-*.json"))
    hidden = data.read_text()
    data.write_text(hidden.replace("***", f"user:{SECRET}"))  # as it was written by earlier versions
    assert State("state", "p.yaml").record(data.stem) is not None
    assert data.read_text() == hidden


def test_state__notes_no_queries(tmp_path: Path) -> None:
    state = State(str(tmp_path), "p.yaml")
    for place in (f"https://host/a.csv?token={SECRET}", f"simplecache::https://me:{SECRET}@host/a.csv"):
        state.begin("step", Begun("key", {place: "it"}, {place: None}))
        assert SECRET not in (tmp_path / "steps" / "step.begun.json").read_text()
        assert state.begun("step") == Begun("key", {mask(place): "it"}, {mask(place): None})
