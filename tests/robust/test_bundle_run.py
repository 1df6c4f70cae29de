from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.robust_problems import drawn_problem, samples_of

from protodask.engine import Engine
from protodask.engine.groups import Pass
from protodask.engine.reduction import Node
from protodask.prototypes.runs import RunDirectory
from protodask.robust import passes
from protodask.robust.bundle import Pass as BundlePass
from protodask.robust.bundle import PlaneFit, solve_bundle
from protodask.robust.bundle_run import recorded_passes

SOURCE = drawn_problem(1, 300, 4, intersected=True).source(32)
GAP = 1e-5


class StoppedError(Exception):
    pass


def run(folder: Path, stop_after: int | None = None) -> tuple[PlaneFit, int]:
    """A run on record, and how many passes were computed rather than read."""
    computed = 0

    class CountingEngine(Engine):
        def run_pass(self, work: Pass, numbers: Sequence[int]) -> list[Node[Any]]:
            nonlocal computed
            computed += work.label == "evaluate"
            return super().run_pass(work, numbers)

    def stop(done: BundlePass) -> None:
        if done.number == stop_after:
            raise StoppedError

    directory = RunDirectory.open(folder, {"problem": 1})
    found = solve_bundle(
        SOURCE, samples_of, CountingEngine(), gap=GAP, recorded=recorded_passes(directory), on_pass=stop
    )
    return found, computed


@dataclass(frozen=True)
class Recorded:
    folder: Path
    found: PlaneFit


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A run from its beginning to its end; the tests work on copies of its folder."""
    folder = tmp_path_factory.mktemp("whole")
    found, computed = run(folder)
    assert computed == found.passes
    return Recorded(folder, found)


@pytest.mark.parametrize("stop_after", [1, 3])
def test_interrupted_run__goes_on_with_the_same_bits(whole: Recorded, tmp_path: Path, stop_after: int) -> None:
    assert whole.found.passes > stop_after
    with pytest.raises(StoppedError):
        run(tmp_path, stop_after)
    resumed, computed = run(tmp_path)
    assert computed == whole.found.passes - stop_after
    np.testing.assert_array_equal(resumed.weights, whole.found.weights)
    assert resumed.history == whole.found.history


def test_run_without_record__has_the_same_bits(whole: Recorded) -> None:
    plain = solve_bundle(SOURCE, samples_of, Engine(), gap=GAP)
    np.testing.assert_array_equal(plain.weights, whole.found.weights)
    assert plain.history == whole.found.history


def test_interrupted_run_of_many_features__goes_on_with_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "MOST_CURVED", 3)
    whole, computed = run(tmp_path / "whole")
    with pytest.raises(StoppedError):
        run(tmp_path / "again", 2)
    resumed, rest = run(tmp_path / "again")
    assert rest == computed - 2
    np.testing.assert_array_equal(resumed.weights, whole.weights)
    assert resumed.history == whole.history


def test_run_recorded_with_matrices__begins_anew_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path / "run")
    monkeypatch.setattr(passes, "MOST_CURVED", 3)
    again, computed = run(tmp_path / "run")
    fresh, expected = run(tmp_path / "fresh")
    assert computed == expected
    assert again.history == fresh.history


def test_torn_log__is_computed_again_from_there(whole: Recorded, tmp_path: Path) -> None:
    shutil.copytree(whole.folder, tmp_path, dirs_exist_ok=True)
    log = tmp_path / "batch-1-bundle.log"
    log.write_bytes(log.read_bytes()[:-10])
    again, computed = run(tmp_path)
    assert computed == 1
    assert again.history == whole.found.history


def test_finished_run__computes_nothing(whole: Recorded, tmp_path: Path) -> None:
    shutil.copytree(whole.folder, tmp_path, dirs_exist_ok=True)
    again, computed = run(tmp_path)
    assert computed == 0
    assert again.history == whole.found.history
