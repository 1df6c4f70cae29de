"""Examples of the documents on fitting: the tours, searches, plans, clusters."""

import socket
from pathlib import Path

import pytest
from readme._examples import example, run_commands, run_python, run_script
from sklearn.datasets import load_iris

from protodask import sample_data


def test_readme__estimator(tmp_path: Path) -> None:
    accuracy, *_, statuses = run_python(example("estimator"), tmp_path).splitlines()
    assert float(accuracy) > 0.9
    assert statuses == str(["held out"] * 8), "of four draws of two rounds"


@pytest.mark.slow
def test_readme__dask(tmp_path: Path) -> None:
    assert run_python(example("dask"), tmp_path).count("[") == 4


@pytest.mark.slow
def test_readme__dataset(tmp_path: Path) -> None:
    assert run_python(example("dataset"), tmp_path).startswith("held out")
    assert {path.name for path in tmp_path.iterdir()} == {"blobs.zarr", "runs", "model.zarr", "predictions.zarr"}


@pytest.mark.slow
def test_readme__search(tmp_path: Path) -> None:
    assert "chosen by: best" in run_python(example("search"), tmp_path)
    assert (tmp_path / "searched.zarr").is_dir()


@pytest.mark.slow
def test_readme__estimator_of_a_search(tmp_path: Path) -> None:
    best, accuracy, *_ = run_python(example("estimatorsearch"), tmp_path).splitlines()
    assert "lambda_v" in best
    assert float(accuracy) > 0.9


def test_readme__command_line_tour(tmp_path: Path) -> None:
    frame = load_iris(as_frame=True).frame
    frame["species"] = load_iris().target_names[frame.pop("target")]
    frame.to_csv(tmp_path / "iris.csv", index=False)
    assert "log-loss" in run_commands(example("cli"), tmp_path)
    assert {"iris.zarr", "iris-model.zarr", "predictions.parquet"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.slow
def test_readme__searches_on_the_command_line(tmp_path: Path) -> None:
    said = run_commands(example("tune"), tmp_path)
    assert "joint search, chosen by: best" in said
    assert "two-stage search, chosen by: best" in said
    assert {"tuned.zarr", "pair.zarr", "trials.csv"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.slow
def test_readme__plans(tmp_path: Path) -> None:
    sample_data("checker", 2000, tmp_path / "checker.zarr")
    said = run_commands(example("plan"), tmp_path)
    assert "It fits." in said
    assert '"fits": true' in said


@pytest.mark.slow
def test_readme__cluster_with_tls(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    end = "trap 'kill $(jobs -p); wait' EXIT\n"
    said = run_script(end + example("tls").code.replace("8786", str(port)), tmp_path)
    assert "No problem found." in said
    assert (tmp_path / "model.zarr").is_dir()
