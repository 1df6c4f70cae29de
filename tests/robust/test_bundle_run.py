from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.robust_problems import drawn_problem, samples_of

from protodask.engine import Engine
from protodask.engine.groups import Pass
from protodask.engine.reduction import Node
from protodask.prototypes.runs import RunDirectory
from protodask.robust.bundle import BundleSolution, solve_bundle
from protodask.robust.bundle import Pass as BundlePass
from protodask.robust.bundle_run import recorded_passes


class StoppedError(Exception):
    pass


def run(folder: Path, stop_after: int | None = None) -> tuple[BundleSolution, int]:
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
    source = drawn_problem(1, 800, 7, intersected=True).source(64)
    found = solve_bundle(
        source, samples_of, CountingEngine(), gap=1e-5, recorded=recorded_passes(directory), on_pass=stop
    )
    return found, computed


@pytest.mark.parametrize("stop_after", [1, 3])
def test_interrupted_run__goes_on_with_the_same_bits(tmp_path: Path, stop_after: int) -> None:
    whole, all_passes = run(tmp_path / "whole")
    assert all_passes == whole.passes > stop_after
    with pytest.raises(StoppedError):
        run(tmp_path / "part", stop_after)
    resumed, computed = run(tmp_path / "part")
    assert computed == all_passes - stop_after
    np.testing.assert_array_equal(resumed.weights, whole.weights)
    assert resumed.history == whole.history


def test_run_without_record__has_the_same_bits(tmp_path: Path) -> None:
    recorded, _ = run(tmp_path)
    source = drawn_problem(1, 800, 7, intersected=True).source(64)
    plain = solve_bundle(source, samples_of, Engine(), gap=1e-5)
    np.testing.assert_array_equal(plain.weights, recorded.weights)
    assert plain.history == recorded.history


def test_torn_log__is_computed_again_from_there(tmp_path: Path) -> None:
    whole, _ = run(tmp_path)
    log = tmp_path / "batch-1-bundle.log"
    log.write_bytes(log.read_bytes()[:-10])
    again, computed = run(tmp_path)
    assert computed == 1
    assert again.history == whole.history


def test_finished_run__computes_nothing(tmp_path: Path) -> None:
    run(tmp_path)
    assert run(tmp_path)[1] == 0
