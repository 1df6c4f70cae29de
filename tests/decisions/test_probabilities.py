from typing import Any

import numpy as np
import pytest

from protodask.decisions.probabilities import read_probabilities, read_rows
from protodask.errors import InputError


@pytest.mark.parametrize("given", [[0, 1], [False, True], np.array([0, 1], dtype=np.float16), (0.0, 1.0)])
def test_read_probabilities__as_float64(given: Any) -> None:
    values = read_probabilities(given)
    assert values.dtype == np.float64
    np.testing.assert_array_equal(values, [0, 1])


@pytest.mark.parametrize(
    ("probability", "remedy"),
    [
        ([], "Give at least one probability"),
        ([0.5, 1.5], r"Probability \[1\] is 1.5. Give probabilities between 0 and 1"),
        ([0.5, -0.1], "Give probabilities between 0 and 1"),
        ([float("nan")], "none missing"),
        ([[0.5, 0.5]], r"such as probability\[:, 1\]"),
        ([[0.2, 0.3, 0.5]], "use decide_sets or decide_rows"),
        (0.5, "Give one for each item"),
        (["0.5"], "Give numbers between 0 and 1"),
    ],
)
def test_read_probabilities__refuses(probability: Any, remedy: str) -> None:
    with pytest.raises(InputError, match=remedy):
        read_probabilities(probability)


@pytest.mark.parametrize(
    ("probability", "remedy"),
    [
        ([0.5, 0.5], "for one decision on all items use decide"),
        (np.empty((2, 0)), "a column for each label"),
        ([[0.5, 0.5], [float("nan"), 0.9]], r"Probability \[1, 0\] is nan. Give probabilities between 0 and 1"),
        ([["a"]], "Give numbers between 0 and 1"),
    ],
)
def test_read_rows__refuses(probability: Any, remedy: str) -> None:
    with pytest.raises(InputError, match=remedy):
        read_rows(probability, "label")


def test_read_rows__takes_none() -> None:
    assert read_rows(np.empty((0, 3)), "class").shape == (0, 3)


def test_read__refuses_what_is_masked() -> None:
    with pytest.raises(InputError, match="Fill them in"):
        read_probabilities(np.ma.array([0.1, 0.7], mask=[False, True]))
    assert read_probabilities(np.ma.array([0.1, 0.7], mask=False)).tolist() == [0.1, 0.7]


def test_read__refuses_rows_of_several_lengths() -> None:
    with pytest.raises(InputError, match="rows of one length"):
        read_rows([[0.1], [0.1, 0.2]], "class")


def test_read__shows_all_digits_of_what_is_no_probability() -> None:
    with pytest.raises(InputError, match=r"Probability \[1\] is 1.000000000001\."):
        read_probabilities([0.5, 1 + 1e-12])
