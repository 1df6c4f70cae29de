import numpy as np
import pytest

from protodask.errors import InputError
from protodask.robust.uncertain_columns import uncertain_columns

NAMES = ("a.high", "b", "a.low", "c.mean_low", "c.low", "c.high", "c.mean_high", "c.second", "a.mean", "c.origin")
VALUES = np.array(
    [[4.0, 7.0, 1.0, 0.5, 0.0, 2.0, 1.5, 0.3, 2.0, 1.0], [3.0, 8.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.0, 0.0]]
)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_uncertain_columns__rows_of_a_block(dtype: type) -> None:
    columns = uncertain_columns(NAMES)
    assert columns.features == ("a", "b", "c")
    rows = columns.rows(VALUES.astype(dtype), first_row=5)
    np.testing.assert_array_equal(rows.lower, [[1, 7, 0], [3, 8, 0]])
    np.testing.assert_array_equal(rows.upper, [[4, 7, 2], [3, 8, 0]])
    np.testing.assert_array_equal(rows.mean_low, [[2, 7, 0.5], [3, 8, 0]])
    np.testing.assert_array_equal(rows.mean_high, [[2, 7, 1.5], [3, 8, 0]])
    assert rows.second_moment is not None
    assert rows.origin is not None
    np.testing.assert_allclose(rows.second_moment, [[np.inf, np.inf, 0.3], [np.inf, np.inf, 0]], rtol=1e-6)
    np.testing.assert_array_equal(rows.origin, [[0, 0, 1], [0, 0, 0]])
    assert rows.name(1, 2) == "sample 6, feature c"


def test_uncertain_columns__all_known() -> None:
    rows = uncertain_columns(("a", "petal.length")).rows(np.array([[1, 2]]))
    np.testing.assert_array_equal(rows.lower, [[1, 2]])
    np.testing.assert_array_equal(rows.upper, [[1, 2]])
    assert rows.second_moment is None


def test_uncertain_columns__second_moment_of_integers() -> None:
    rows = uncertain_columns(("a.low", "a.high", "a.second", "b")).rows(np.array([[0, 2, 3, 7]]))
    np.testing.assert_array_equal(rows.second_moment, [[3, np.inf]])
    assert rows.origin is None


@pytest.mark.parametrize(
    ("names", "remedy"),
    [
        (("x.low",), "but not x.high. Add what is missing"),
        (("x.mean",), "but not x.low, x.high. Add what is missing"),
        (("x.low", "x.high", "x.mean_low"), "but not x.mean_high. Add what is missing"),
        (("x.low", "x.high", "x.origin"), "but not x.second. Add what is missing"),
        (("x.low", "x.high", "x.mean", "x.mean_low", "x.mean_high"), "Leave out the one or the other"),
        (("x.low", "x.high", "x"), "Leave out the column x, or call it x.mean"),
        (("x", "y", "x"), "two columns x. Rename"),
        (("x.low", "x.high", "x.low"), "two columns x.low. Rename"),
    ],
)
def test_uncertain_columns__incomplete(names: tuple[str, ...], remedy: str) -> None:
    with pytest.raises(InputError, match=remedy):
        uncertain_columns(names)


def test_uncertain_columns__another_table() -> None:
    with pytest.raises(InputError, match="Give the table whose columns these are"):
        uncertain_columns(("a", "b")).rows(np.ones((3, 3)))


def test_uncertain_columns__contradiction_names_the_row_of_the_dataset() -> None:
    columns = uncertain_columns(("x.low", "x.high"))
    with pytest.raises(InputError, match="In sample 1001, feature x, lower is above upper"):
        columns.rows(np.array([[0.0, 1.0], [2.0, 1.0]]), first_row=1000)
