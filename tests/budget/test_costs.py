import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike
from support.errors import refused

from protodask.budget.costs import CostCurves


def test_costs_of_sets__are_sums() -> None:
    curves = CostCurves.of([[1.0, 2.0, 0.0], [0.0, 0.5, 0.25], [4.0, 0.0, 0.0]], (0, 10))
    assert curves.of_set(frozenset({0, 2})).tolist() == [5, 2, 0]
    assert curves.of_set(frozenset()).tolist() == [0, 0, 0]
    assert curves.of_sets([]).shape == (0, 3)
    assert curves.of_sets([frozenset({1}), frozenset({0, 1, 2})]).tolist() == [[0, 0.5, 0.25], [5, 2.5, 0.25]]
    assert curves.at(frozenset({0, 1}), 2.0) == 7.0
    assert curves.n_features == 3


@pytest.mark.parametrize("n_coefficients", [1, 2])
def test_costs_of_sets__are_added_in_ascending_order(n_coefficients: int) -> None:
    costs = np.random.default_rng(0).random((40, n_coefficients))
    curves = CostCurves.of(costs)
    total = np.zeros(n_coefficients)
    for feature in range(40):
        total = total + costs[feature]
        assert curves.of_set(frozenset(range(feature + 1))).tolist() == total.tolist()


@pytest.mark.parametrize(
    ("costs", "sizes", "stretch"),
    [
        ([[1, 0], [1, -1]], (0, math.inf), "feature 1 is negative for items of sizes from 1 up"),
        ([[3, -4, 1]], (0, math.inf), "feature 0 is negative for items of sizes from 1 to 3"),
        ([[3, -4, 1]], (2, 2.5), "sizes from 2 to 2.5"),
        ([[-1]], (0, 5), "sizes from 0 to 5"),
        ([[-1, 1]], (0.5, 0.5), "sizes from 0.5 to 0.5"),
        ([[0, 1, 0, -1e-15]], (0, 1e9), "sizes from 3.16228e+07 to 1e+09"),
    ],
)
def test_of__refuses_costs_that_are_negative_somewhere(
    costs: ArrayLike, sizes: tuple[float, float], stretch: str
) -> None:
    with refused("bad-value") as found:
        CostCurves.of(costs, sizes)
    assert stretch in str(found.value)


@pytest.mark.parametrize(
    ("costs", "sizes"),
    [
        ([[1, -1]], (0, 1)),
        ([[1, -2, 1]], (0, math.inf)),
        ([[0.1 * 0.1, -0.2, 1.0]], (0, math.inf)),
        ([[0.0, 0.0]], (0, math.inf)),
        ([[3, -4, 1]], (3, math.inf)),
        ([[3, -4, 1]], (0, 1)),
        ([[0, 1, 0, -1e-15]], (0, 1e7)),
        ([[np.float32(1)]], (2, 2)),
    ],
)
def test_of__takes_costs_that_only_touch_zero(costs: ArrayLike, sizes: tuple[float, float]) -> None:
    assert CostCurves.of(costs, sizes).coefficients.tolist() == np.array(costs, dtype=float).tolist()


@pytest.mark.parametrize("low", [0.1, 0.7, 3.3, 1e-7, 12345.678])
@pytest.mark.parametrize("factor", [1.0, 3.7e-9, 1e5])
def test_of__takes_squares_whatever_their_rounding(low: float, factor: float) -> None:
    square = np.array([low * low, -2 * low, 1.0])
    CostCurves.of([factor * square, factor * np.array([0.3, 0.1, 1.0])])


@pytest.mark.parametrize(
    ("costs", "sizes", "expected"),
    [
        ([1, 2], (0, 1), ("wrong-shape", "(2,)")),
        ([], (0, 1), ("wrong-shape", "(0,)")),
        ([[1, 2], [3]], (0, 1), ("wrong-type",)),
        ([["a"]], (0, 1), ("wrong-type",)),
        ([[math.nan]], (0, 1), ("bad-value",)),
        ([[1.0, math.nan], [0.0, 1.0]], (0, 1), ("bad-value",)),
        ([[1e250]], (0, 1), ("overflow", "1e+250")),
        ([[1]], (-1, 1), ("bad-setting", -1, 1)),
        ([[1]], (2, 1), ("bad-setting", 2, 1)),
        ([[1]], (math.inf, math.inf), ("bad-setting", "inf")),
        ([[1]], (0, math.nan), ("bad-setting", 0, "nan")),
        ([[1]], (1,), ("bad-setting", "(1,)")),
        ([[1]], (1, 2, 3), ("bad-setting", "(1, 2, 3)")),
        ([[1]], None, ("bad-setting",)),
        ([[1]], ("one", 2), ("bad-setting", "'one'", 2)),
        ([[1] * 2000], (0, 1), ("over-limit", 2000, 100)),
    ],
)
def test_of__refuses_what_makes_no_sense(costs: ArrayLike, sizes: Any, expected: tuple[Any, ...]) -> None:
    with refused(*expected):
        CostCurves.of(costs, sizes)


def test_check_names__must_be_different_and_as_many() -> None:
    curves = CostCurves.of([[1], [2]])
    assert curves.check_names(None) == ("0", "1")
    assert curves.check_names(["a", "b"]) == ("a", "b")
    for names in (["a"], ["a", "b", "c"]):
        with refused("wrong-shape", len(names), 2):
            curves.check_names(names)
    with refused("named-twice", 1, 2):
        curves.check_names(["a", "a"])
