"""Examples of the documents on what comes after a fit: explanations, pictures, reports, streams, versions."""

import re
from pathlib import Path

import pytest
from readme._examples import example, run_commands, run_python
from sklearn.datasets import load_iris

from protodask import FitConfig, fit, ingest


def test_readme__explanations_on_the_command_line(tmp_path: Path) -> None:
    frame = load_iris(as_frame=True).frame
    frame["species"] = load_iris().target_names[frame.pop("target")]
    frame.to_csv(tmp_path / "iris.csv", index=False)
    dataset = ingest(frame, tmp_path / "iris.zarr", target="species")
    fit(dataset, FitConfig.of("source", n_batches=2)).model.save(tmp_path / "iris-model.zarr")
    said = run_commands(example("why"), tmp_path)
    assert "In the training data" in said
    assert "p-value" in said
    assert {"why.csv", "iris-model.csv"} <= {path.name for path in tmp_path.iterdir()}


def test_readme__answers_in_services(tmp_path: Path) -> None:
    said = run_python(example("scoring"), tmp_path)
    assert "('apple', 'berry')" in said
    assert "['berry' 'apple']" in said
    assert (tmp_path / "fruit.onnx").is_file()


def test_readme__streams_in_and_out(tmp_path: Path) -> None:
    said = run_python(example("streams"), tmp_path)
    shares = [float(line.split()[1]) for line in said.splitlines() if re.match(r"\d", line)]
    assert len(shares) == 3
    assert all(0.4 < share < 0.6 for share in shares)


def test_readme__explanations(tmp_path: Path) -> None:
    assert "of 30 features" in run_python(example("explain"), tmp_path)
    assert (tmp_path / "weights.csv").is_file()


@pytest.mark.slow
def test_readme__pictures(tmp_path: Path) -> None:
    run_python(example("plots"), tmp_path)
    drawn = ("surface", "map", "importance", "calibration", "training")
    assert all((tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG") for name in drawn)


@pytest.mark.slow
def test_readme__reports(tmp_path: Path) -> None:
    run_commands(example("report"), tmp_path)
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.slow
def test_readme__streams_are_watched(tmp_path: Path) -> None:
    said = run_commands(example("watch"), tmp_path)
    assert "Nothing changed in 1,000 rows" in said
    assert said.count("The gate says yes.") == 2
    assert "above the margin of 0.01" in said


@pytest.mark.slow
def test_readme__versions_of_models_on_the_command_line(tmp_path: Path) -> None:
    said = run_commands(example("registry"), tmp_path)
    assert "Version 2 of the registry models is new. It is champion, in place of version 1." in said
    assert "Versions 1 and 2 are different models." in said
    assert "champion is now version 1; it was version 2." in said
    losses = re.findall(r"^log-loss +([0-9.]+)$", said, re.MULTILINE)
    assert losses[2] == losses[0] != losses[1], "the champion is the first model again"


@pytest.mark.slow
def test_readme__versions_of_models(tmp_path: Path) -> None:
    said = run_python(example("registrypython"), tmp_path)
    assert "2 1 {'champion': 2, 'previous': 1}" in said
    assert "('n_candidates', 50, 200)" in said
