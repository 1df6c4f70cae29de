from typing import Any

import numpy as np
import pytest
from support.errors import refused

from protodask.decisions.probabilities import read_probabilities, read_rows


@pytest.mark.parametrize("given", [[0, 1], [False, True], np.array([0, 1], dtype=np.float16), (0.0, 1.0)])
def test_read_probabilities__as_float64(given: Any) -> None:
    values = read_probabilities(given)
    assert values.dtype == np.float64
    np.testing.assert_array_equal(values, [0, 1])


@pytest.mark.parametrize(
    ("probability", "expected"),
    [
        ([], ("no-rows",)),
        ([0.5, 1.5], ("bad-value", "[1]", "1.5")),
        ([0.5, -0.1], ("bad-value", "[1]", "-0.1")),
        ([float("nan")], ("bad-value", "[0]", "nan")),
        ([[0.5, 0.5]], ("wrong-shape", "(1, 2)")),
        ([[0.2, 0.3, 0.5]], ("wrong-shape", "(1, 3)", "decide_sets", "decide_rows")),
        (0.5, ("wrong-shape", "()")),
        (["0.5"], ("wrong-type", "type")),
    ],
)
def test_read_probabilities__refuses(probability: Any, expected: tuple[Any, ...]) -> None:
    with refused(*expected):
        read_probabilities(probability)


@pytest.mark.parametrize(
    ("probability", "expected"),
    [
        ([0.5, 0.5], ("wrong-shape", "(2,)")),
        (np.empty((2, 0)), ("wrong-shape", "(2, 0)")),
        ([[0.5, 0.5], [float("nan"), 0.9]], ("bad-value", "[1, 0]", "nan", 1)),
        ([["a"]], ("wrong-type", "type")),
    ],
)
def test_read_rows__refuses(probability: Any, expected: tuple[Any, ...]) -> None:
    with refused(*expected):
        read_rows(probability, "label")


def test_read_rows__takes_none() -> None:
    assert read_rows(np.empty((0, 3)), "class").shape == (0, 3)


def test_read__refuses_what_is_masked() -> None:
    with refused("bad-value"):
        read_probabilities(np.ma.array([0.1, 0.7], mask=[False, True]))
    assert read_probabilities(np.ma.array([0.1, 0.7], mask=False)).tolist() == [0.1, 0.7]


def test_read__refuses_rows_of_several_lengths() -> None:
    with refused("wrong-shape"):
        read_rows([[0.1], [0.1, 0.2]], "class")


def test_read__shows_all_digits_of_what_is_no_probability() -> None:
    with refused("bad-value", "[1]", 1.000000000001):
        read_probabilities([0.5, 1 + 1e-12])
