import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.errors import refused

from protodask.data.format.schema import Column
from protodask.errors import Code
from protodask.robust.formulations import largest_deviation
from protodask.robust.uncertain_columns import category_names, columns_of, columns_of_table, uncertain_columns
from protodask.robust.uncertain_rows import UncertainRows

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
    ("names", "code", "facts"),
    [
        (("x.low",), "column-missing", ("feature x", "not x.high")),
        (("x.mean",), "column-missing", ("feature x", "not x.low, x.high")),
        (("x.low", "x.high", "x.mean_low"), "column-missing", ("feature x", "not x.mean_high")),
        (("x.low", "x.high", "x.origin"), "column-missing", ("feature x", "not x.second")),
        (
            ("x.low", "x.high", "x.mean", "x.mean_low", "x.mean_high"),
            "settings-conflict",
            ("feature x", "x.mean", "x.mean_low"),
        ),
        (("x.low", "x.high", "x"), "named-twice", ("column x", "x.mean")),
        (("x", "y", "x"), "named-twice", ("columns x",)),
        (("x.low", "x.high", "x.low"), "named-twice", ("columns x.low",)),
    ],
)
def test_uncertain_columns__incomplete(names: tuple[str, ...], code: Code, facts: tuple[object, ...]) -> None:
    with refused(code, *facts):
        uncertain_columns(names)


def test_uncertain_columns__another_table() -> None:
    with refused("wrong-shape", "(3, 3)", "2 columns"):
        uncertain_columns(("a", "b")).rows(np.ones((3, 3)))


def test_uncertain_columns__contradiction_names_the_row_of_the_dataset() -> None:
    columns = uncertain_columns(("x.low", "x.high"))
    with refused("bad-value", "sample 1001", "feature x", "lower", "upper"):
        columns.rows(np.array([[0.0, 1.0], [2.0, 1.0]]), first_row=1000)


@given(st.integers(0, 2**32), st.integers(1, 5), st.booleans(), st.booleans(), st.booleans())
def test_columns_of__say_the_same_of_the_rows(
    seed: int, n_rows: int, exact_means: bool, second_moment: bool, origin: bool
) -> None:
    random = np.random.default_rng(seed)
    lower = random.normal(size=(n_rows, 3))
    upper = lower + random.random((n_rows, 3)) * [1, 0, 1]
    mean_low, mean_high = lower + 0.25 * (upper - lower), lower + 0.75 * (upper - lower)
    mean_low[:, 2], mean_high[:, 2] = lower[:, 2], upper[:, 2]
    about = random.normal(size=(n_rows, 3)) if origin and second_moment else None
    zero = 0.0 if about is None else about
    second = np.square(np.maximum(np.abs(lower - zero), np.abs(upper - zero))) if second_moment else None
    rows = UncertainRows(lower, upper, mean_low, mean_high, second, about)
    rows = rows.exact_means() if exact_means else rows
    names = ["iron", "age", "größe.mm"]
    table = columns_of(rows, names)
    assert "age" in table
    again = uncertain_columns(list(table))
    assert again.features == tuple(names)
    found = again.rows(np.column_stack(list(table.values())))
    for name in ("lower", "upper", "mean_low", "mean_high"):
        np.testing.assert_array_equal(getattr(found, name), getattr(rows, name))
    for one, other in zip(found.normalised(), rows.normalised(), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(largest_deviation(found), largest_deviation(rows))


def test_columns_of__an_infinite_second_moment_is_finite_in_a_table() -> None:
    rows = UncertainRows([[-3.0], [1.0]], [[1.0], [2.0]], second_moment=[[np.inf], [1.5]], origin=[[0.0], [1.0]])
    np.testing.assert_array_equal(columns_of(rows, ["a"])["a.second"], [9.0, 1.0])


@pytest.mark.parametrize(
    ("names", "code", "fact"),
    [
        (("a",), "wrong-shape", "1 name is given for 2 features"),
        (("a", "a"), "bad-setting", "a, a"),
        (("a", "b.low"), "column-missing", "b.high"),
        (("a.b", "a.b"), "bad-setting", "a.b, a.b"),
    ],
)
def test_columns_of__refuses_names_that_would_be_read_otherwise(names: tuple[str, ...], code: Code, fact: str) -> None:
    with refused(code, fact):
        columns_of(UncertainRows.point(np.zeros((2, 2))), names)


def test_category_names__are_of_categories_and_of_marks() -> None:
    columns = (Column("a.low", filled=0.5, marked=True), Column("b"), Column("c", "nominal", (1, 2)))
    assert category_names(columns) == {"a.low is missing", "c=1", "c=2"}


def test_columns_of_table__categories_may_be_called_anything() -> None:
    columns = (Column("a.low"), Column("kind", "nominal", ("x.low", "x.high", "b.mean")), Column("a.high"))
    found = columns_of_table(columns)
    assert found.features == ("a", "kind=x.low", "kind=x.high", "kind=b.mean")
    rows = found.rows(np.array([[0.0, 1, 0, 0, 2], [0, 0, 0, 1, 3]]))
    np.testing.assert_array_equal(rows.half_width, [[1, 0, 0, 0], [1.5, 0, 0, 0]])
    with refused("column-missing", "feature a", "not a.high"):
        columns_of_table(columns[:2])
