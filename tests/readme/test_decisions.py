"""Examples of the documents on decisions, feature budgets, and features known only roughly."""

import re
from pathlib import Path

import pytest
from readme._examples import example, run_commands, run_python


def test_readme__decisions(tmp_path: Path) -> None:
    said = run_python(example("decisions"), tmp_path)
    assert said.count("selecting probabilities of at least 0.5 would cost") == 3


@pytest.mark.slow
def test_readme__decisions_on_stored_predictions(tmp_path: Path) -> None:
    said = run_commands(example("decide"), tmp_path)
    assert said.count("selecting probabilities of at least 0.5 would cost") == 2
    assert (tmp_path / "selected.parquet").is_dir()


@pytest.mark.slow
def test_readme__budgets(tmp_path: Path) -> None:
    said = run_python(example("budget"), tmp_path)
    assert "Choice(features=frozenset({1, 2}), accuracy=0.88, cost=5.0)" in said
    assert "Choice(features=frozenset({0}), accuracy=0.7, cost=5.0)" in said
    assert "[7 4 1]" in said
    assert (tmp_path / "digits.budget").is_dir()


@pytest.mark.slow
def test_readme__budgets_on_the_command_line(tmp_path: Path) -> None:
    said = run_commands(example("budgetcli"), tmp_path)
    assert "as accurate as the best set for every size and budget" in said
    assert "model     blobs.budget/models/" in said
    assert (tmp_path / "budget.png").read_bytes().startswith(b"\x89PNG")


def test_readme__planes_for_features_known_roughly(tmp_path: Path) -> None:
    said = run_python(example("robust"), tmp_path)
    plain, robust = (float(line.split()[2]) for line in said.splitlines()[:2])
    assert robust < plain, "the expected certified error"
    said = run_commands(example("robustcli"), tmp_path)
    assert "The robust model is right on" in said
    (error,) = re.findall(r"^expected certified error +([0-9.]+)$", said, re.MULTILINE)
    assert float(error) == pytest.approx(robust, abs=2e-3), "of the same rows, by a plane of another solver"
    assert (tmp_path / "classes.parquet").is_dir()
