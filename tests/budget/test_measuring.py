from __future__ import annotations

import gc

import numpy as np
import pytest
from support.errors import refused

from protodask.budget import MeasuredCosts, measure_costs
from protodask.budget.measuring import as_coefficients, costs_of, item_size, sizes_of


class Clock:
    """Time that passes only when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_measure_costs__with_a_clock_of_its_own() -> None:
    clock = Clock()
    calls: list[tuple[str, int]] = []

    def slow(item: str) -> int:
        assert not gc.isenabled()
        calls.append(("slow", len(item)))
        clock.now += 2 + len(item)
        return 1

    def quick(item: str) -> int:
        calls.append(("quick", len(item)))
        clock.now += 0.5
        return 1

    items = ["a", "bbb", "cc", "dddddd"]
    found = measure_costs({"slow": slow, "quick": quick}, items, repeats=2, clock=clock)

    assert gc.isenabled()
    assert calls[:2] == [("slow", 1), ("quick", 1)]  # warmed up
    assert len(calls) == 2 + 2 * 4 * 2
    assert found.feature_names == ("slow", "quick")
    assert found.sizes.tolist() == [1, 3, 2, 6]
    assert found.seconds.tolist() == [[[3, 3], [5, 5], [4, 4], [8, 8]], [[0.5, 0.5]] * 4]
    np.testing.assert_allclose(found.costs, np.array([[2, 1, 0], [0.5, 0, 0]]), atol=1e-6)
    assert found.coverage.tolist() == [1, 1]
    assert found.held_out_coverage.min() >= 0.5  # an end of the range, held out, may stick out by a rounding


def test_measure_costs__garbage_does_not_pile_up() -> None:
    class Ring:
        alive = 0

        def __init__(self) -> None:
            self.own = self
            Ring.alive += 1

        def __del__(self) -> None:
            Ring.alive -= 1

    alive: list[int] = []

    def extractor(_: int) -> int:
        Ring()
        alive.append(Ring.alive)
        return 1

    measure_costs({"ring": extractor}, range(1000), repeats=1)
    assert max(alive) < 300


def test_costs_of__headroom_and_coverage() -> None:
    generator = np.random.default_rng(0)
    sizes = np.repeat([10.0, 100.0, 1000.0], 100)
    seconds = (1e-4 + 1e-6 * sizes)[None, :, None] * generator.exponential(1, (2, 300, 3))

    tight, loose = (costs_of(["a", "b"], sizes, seconds, quantile=0.9, headroom=factor) for factor in (1.0, 1.5))

    np.testing.assert_allclose(loose.costs, 1.5 * tight.costs)
    assert tight.coverage == pytest.approx([0.9, 0.9], abs=0.01)
    assert tight.held_out_coverage == pytest.approx([0.9, 0.9], abs=0.03)
    assert (loose.coverage > tight.coverage).all()
    assert (loose.held_out_coverage > tight.held_out_coverage).all()
    assert costs_of(["a", "b"], sizes, seconds).coverage.tolist() == [1, 1]
    assert costs_of(["a", "b"], sizes, seconds).held_out_coverage.min() > 0.98


def test_costs_of__coverage_held_out_is_of_curves_that_did_not_see_the_timings() -> None:
    # One timing of ten sticks out: the curve that covers all of them in sample misses it when it is held out.
    seconds = np.ones((1, 10, 1))
    seconds[0, 3] = 9.0
    found = costs_of(["a"], np.ones(10), seconds, degree=0)
    assert found.coverage.tolist() == [1.0]
    assert found.held_out_coverage.tolist() == [0.9]
    assert np.isnan(costs_of(["a"], [1.0], [[[1.0]]]).held_out_coverage).all()


def test_item_size__of_many_kinds() -> None:
    assert item_size(np.zeros((3, 4))) == 12
    assert item_size("abc") == 3
    assert item_size([1, 2]) == 2
    assert item_size(3.5) == 1
    assert item_size(np.float64(2)) == 1


def test_sizes_of__says_which_item_has_none() -> None:
    assert sizes_of(["a", "bb"], len).tolist() == [1, 2]
    with refused("user-code", "Item 1", "ValueError", "`size`"):
        sizes_of(["1", "x"], float)
    with refused("user-code", "Item 1", "-1.0", "`size`"):
        sizes_of([1, -1], float)
    with refused("user-code", "Item 0", "nan", "`size`"):
        sizes_of([np.nan], float)


def test_as_coefficients__by_name_in_order_and_measured() -> None:
    found = as_coefficients({"b": [1, 2], "a": 3.0}, ["a", "b"])
    assert found.tolist() == [[3, 0], [1, 2]]
    assert as_coefficients([[1], [2]], ["a", "b"]).tolist() == [[1], [2]]
    measured = MeasuredCosts(
        ("b", "a"), np.array([[1.0], [2.0]]), np.ones(1), np.ones((2, 1, 1)), 1.0, 1.0, np.ones(2), np.ones(2)
    )
    assert as_coefficients(measured, ["a", "b"]).tolist() == [[2], [1]]
    with refused("setting-missing", "'b'"):
        as_coefficients({"a": [1]}, ["a", "b"])
    with refused("wrong-shape", "(1, 2)", 2):
        as_coefficients([[1, 2]], ["a", "b"])


def test_measure_costs__refuses_what_makes_no_sense() -> None:
    with refused("no-rows", 0, 1):
        measure_costs({}, ["a"])
    with refused("no-rows", 1, 0):
        measure_costs({"a": len}, [])
    with refused("bad-setting", 0):
        measure_costs({"a": len}, ["a"], repeats=0)
    with refused("bad-setting", "quantile", "0.0"):
        measure_costs({"a": len}, ["a"], quantile=0.0)
    with refused("bad-setting", "degree", -1, 10):
        measure_costs({"a": len}, ["a"], degree=-1)
    with refused("bad-setting", "headroom", "0.5"):
        measure_costs({"a": len}, ["a"], headroom=0.5)
