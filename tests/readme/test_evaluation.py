"""Examples of the documents on subsamples, calibration, areas under curves, and policies."""

import re
from pathlib import Path

import pytest
from readme._examples import example, run_commands, run_python


@pytest.mark.slow
def test_readme__subsamples(tmp_path: Path) -> None:
    said = run_commands(example("subsample"), tmp_path)
    assert said.count("which stand for") == 2
    assert "log-loss" in said


@pytest.mark.slow
def test_readme__models_are_pruned(tmp_path: Path) -> None:
    said = run_commands(example("prune"), tmp_path)
    assert re.search(r"few\.zarr has ([1-9]|1[0-9]|20) prototypes? of", said)


@pytest.mark.slow
def test_readme__models_are_calibrated(tmp_path: Path) -> None:
    said = run_commands(example("calibrate"), tmp_path)
    assert re.search(r"has a calibration of \d+ batches, fitted to 5,526 rows", said)
    assert "The calibrated model is right on" in said
    (loss,) = re.findall(r"^log-loss +([0-9.]+)$", said, re.MULTILINE)
    assert float(loss) < 0.65, "half of the rows are of either class; without the calibration it is 1.07"


@pytest.mark.slow
def test_readme__a_subsample_is_undone(tmp_path: Path) -> None:
    said = run_python(example("calibrator"), tmp_path)
    share, raw, calibrated = (float(number) for number in said.replace("[", "").split()[:3])
    assert raw > 0.2
    assert abs(calibrated - share) < 0.1 * share


def test_readme__areas_under_curves(tmp_path: Path) -> None:
    exact, kept, bound = run_python(example("auc"), tmp_path).splitlines()
    assert "error_bound=0.0" in exact
    assert "error_bound=0.0" in kept
    assert 0 < float(bound) < 1e-4


def test_readme__policies(tmp_path: Path) -> None:
    whole, robust, _, counted = run_python(example("policy"), tmp_path).splitlines()
    assert counted.split(",")[0] == whole.split(",")[0], "the value is the same to the last bit"
    assert float(robust.partition("value=")[2].partition(",")[0]) == pytest.approx(0.03, rel=0.05)
    said = run_commands(example("policycli"), tmp_path)
    for earned in re.findall(r"The policy would earn ([0-9.]+) a record", said):
        assert float(earned) == pytest.approx(0.03, rel=0.05)
    assert said.count("The policy would earn") == 2
    assert '"estimator": "snips"' in said
