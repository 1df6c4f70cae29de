"""Secrets in the URLs of stores: in no output, and in nothing that is written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zarr

from protodask import Dataset

Call = Callable[..., Any]

SECRET = "hush-hush-42"
STORE = f"memory://user:{SECRET}@bucket/"
QUICK = ("--recipe", "source", "--candidates", "20", "--max-iterations", "3")


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
