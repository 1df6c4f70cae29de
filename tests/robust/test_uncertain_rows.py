import pickle
from typing import Any

import dask.dataframe
import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from support.errors import refused

from protodask.errors import Code
from protodask.robust.classifier import RobustClassifier
from protodask.robust.formulations import largest_deviation
from protodask.robust.uncertain_rows import UncertainRows


def test_uncertain_rows__support_alone() -> None:
    rows = UncertainRows([[0, 1], [2, 3]], [[4, 1], [2, 5]])
    np.testing.assert_array_equal(rows.mean_low, rows.lower)
    np.testing.assert_array_equal(rows.mean_high, rows.upper)
    np.testing.assert_array_equal(rows.center, [[2, 1], [2, 4]])
    np.testing.assert_array_equal(rows.half_width, [[2, 0], [0, 1]])
    low, high, sigma = rows.normalised()
    np.testing.assert_array_equal(low, [[-1, 0], [0, -1]])
    np.testing.assert_array_equal(high, [[1, 0], [0, 1]])
    np.testing.assert_array_equal(sigma, [[1, 0], [0, 1]])
    assert rows.second_moment is None
    assert (len(rows), rows.n_features) == (2, 2)


def test_uncertain_rows__points() -> None:
    rows = UncertainRows.point([[1.5, -2.0]])
    for values in (rows.lower, rows.upper, rows.mean_low, rows.mean_high, rows.mean_midpoint):
        np.testing.assert_array_equal(values, [[1.5, -2.0]])


def test_uncertain_rows__second_moment_narrows_means() -> None:
    rows = UncertainRows([[-3.0]], [[3.0]], None, [[2.5]], [[4.0]])
    assert rows.mean_low[0, 0] == pytest.approx(-2)
    assert rows.mean_high[0, 0] == pytest.approx(2)
    about = UncertainRows([[-3.0]], [[3.0]], None, None, [[1.0]], [[1.0]])
    assert (about.mean_low[0, 0], about.mean_high[0, 0]) == (pytest.approx(0), pytest.approx(2))


def test_uncertain_rows__second_moment_that_says_nothing() -> None:
    support = UncertainRows([[1.0, -1.0]], [[2.0, 1.0]])
    for second in ([[4.0, 1.0]], [[np.inf, np.inf]], [[1e300, 50.0]]):
        rows = UncertainRows(support.lower, support.upper, second_moment=second)
        for one, other in zip(rows.normalised(), support.normalised(), strict=True):
            np.testing.assert_array_equal(one, other)


@given(st.integers(0, 2**32))
def test_normalised__moments_of_a_drawn_distribution(seed: int) -> None:
    # Exact moments of a discrete distribution are moments of the standardised values, about whatever origin.
    rng = np.random.default_rng(seed)
    center, half = rng.normal(size=2) * [3, 1]
    half = abs(half) + 0.1
    values, probability = rng.uniform(-1, 1, size=5), rng.dirichlet(np.ones(5))
    points = center + half * values
    origin = rng.normal()
    mean, second = float(probability @ points), float(probability @ np.square(points - origin))
    rows = UncertainRows([[center - half]], [[center + half]], [[mean]], [[mean]], [[second]], origin)
    low, high, sigma = (float(part[0, 0]) for part in rows.normalised())
    assert low == high == pytest.approx(float(probability @ values), abs=1e-9)
    assert sigma**2 == pytest.approx(float(probability @ np.square(values)), abs=1e-9)


def test_normalised__largest_over_the_means() -> None:
    # (S2 - 2 c m + c^2) / s^2 is (6 - 4 m + 4) / 4: 1.5 at a mean of 1, which 1 bounds, and 0.25 at 2.25.
    rows = UncertainRows([[0.0, 0.0]], [[4.0, 4.0]], [[1.0, 1.75]], [[2.25, 2.25]], [[6.0, 6.0]])
    low, high, sigma = rows.normalised()
    np.testing.assert_array_equal(low, [[-0.5, -0.125]])
    np.testing.assert_array_equal(high, [[0.125, 0.125]])
    np.testing.assert_allclose(np.square(sigma), [[1.0, 0.75]])


def test_normalised__origin_keeps_the_digits_of_large_numbers() -> None:
    offset = 2.0**40
    rows = UncertainRows([[offset - 1]], [[offset + 1]], [[offset]], [[offset]], [[1e-6]], [[offset]])
    assert float(rows.normalised()[2][0, 0]) == pytest.approx(1e-3)


@pytest.mark.parametrize(("dtype", "offset"), [(np.float32, 300.0), (np.float32, -1e4), (np.float64, 1e6)])
@pytest.mark.parametrize("exact", [True, False])
def test_normalised__variances_that_rounding_took_are_allowed_for(dtype: type, offset: float, exact: bool) -> None:
    half = abs(offset) * 64 * float(np.finfo(dtype).eps)  # the support keeps its width, and the variance is lost
    means = (offset + np.random.default_rng(0).random((500, 1)) * half).astype(dtype).astype(np.float64)
    # Two values at the ends, as likely as each other.
    given = [means - half, means + half, means, means, np.square(means) + half**2]
    if not exact:
        given[2:4] = [means - half / 4, means + half / 4]
    rows = UncertainRows(*(values.astype(dtype) for values in given))
    assert (np.asarray(rows.second_moment) <= np.square(means)).any()
    assert (rows.normalised()[2] >= 1 - 1e-9).all()
    assert (largest_deviation(rows) >= half * (1 - 1 / 8)).all()


@given(st.integers(0, 2**32), st.sampled_from([np.float32, np.float64]))
def test_uncertain_rows__rounded_statistics_are_no_contradiction(seed: int, dtype: type) -> None:
    rng = np.random.default_rng(seed)
    point: NDArray[Any] = (rng.normal(size=(50, 4)) * 10.0 ** rng.integers(-3, 4, size=(1, 4))).astype(dtype)
    mean = (point * dtype(3) / dtype(3)).astype(dtype)
    second = np.square(point).astype(dtype) * dtype(1 - np.finfo(dtype).eps)
    rows = UncertainRows(point, point, mean, mean, second)
    np.testing.assert_array_equal(rows.mean_low, point)
    np.testing.assert_array_equal(rows.mean_high, point)
    assert (rows.normalised()[2] == 0).all()
    wide = UncertainRows(point - 1, point + 1, mean, mean, second)
    low, high, sigma = wide.normalised()
    assert (np.abs(low) <= sigma).all()
    assert (low <= high).all()


def test_take__same_as_of_those_rows() -> None:
    rows = UncertainRows(np.zeros((4, 2)), np.ones((4, 2)), None, None, np.full((4, 2), 0.5), np.zeros(2))
    part = rows.take(np.array([2, 0]))
    assert len(part) == len(rows.take(slice(1, 3))) == 2
    assert part.second_moment is not None
    assert part.origin is not None
    assert part.second_moment.shape == part.origin.shape == (2, 2)
    assert len(UncertainRows.point(np.ones((3, 2))).take(np.array([True, False, True]))) == 2


def test_uncertain_rows__travels() -> None:
    rows = UncertainRows([[0.0]], [[1.0]], first_row=7, feature_names=("a",))
    other = pickle.loads(pickle.dumps(rows))
    np.testing.assert_array_equal(other.upper, rows.upper)
    assert other.name(0, 0) == "sample 7, feature a"
    with pytest.raises(AttributeError):
        rows.lower = rows.upper  # type: ignore[misc]


def test_uncertain_rows__no_rows() -> None:
    rows = UncertainRows(np.empty((0, 3)), np.empty((0, 3)), second_moment=np.empty((0, 3)))
    assert [part.shape for part in rows.normalised()] == [(0, 3)] * 3


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"lower": 1.5}, "lower is above upper"),
        ({"upper": np.nan}, "upper is not a finite number"),
        ({"lower": -np.inf}, "lower is not a finite number"),
        ({"lower": 0.0, "upper": 1e-200}, "the support is narrower than 1e-150, but not a point"),
        ({"mean_low": 0.9}, "mean_low is above mean_high"),
        ({"mean_low": 1.5, "mean_high": 1.6}, "no mean within its bounds lies in the support"),
        ({"mean_low": -0.5, "mean_high": -0.4}, "no mean within its bounds lies in the support"),
        ({"second_moment": 0.03}, "second_moment is below the square of every mean"),
        ({"second_moment": -1.0}, "second_moment is not a number of 0 or more"),
        ({"second_moment": np.nan}, "second_moment is not a number of 0 or more"),
    ],
)
def test_uncertain_rows__contradictions_name_sample_and_feature(changed: dict[str, float], what: str) -> None:
    usual = {"lower": 0.0, "upper": 1.0, "mean_low": 0.2, "mean_high": 0.6, "second_moment": 0.3}
    arrays = {name: np.full((3, 2), value) for name, value in usual.items()}
    UncertainRows(**arrays)  # type: ignore[arg-type]
    for name, value in changed.items():
        arrays[name][2, 1] = value
    with refused("bad-value", "sample 12", "feature b", what):
        UncertainRows(**arrays, first_row=10, feature_names=("a", "b"))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["lower", "upper", "mean_low", "mean_high", "second_moment", "origin"])
def test_uncertain_rows__masked_values_are_missing(name: str) -> None:
    usual = {"lower": 0.0, "upper": 1.0, "mean_low": 0.2, "mean_high": 0.6, "second_moment": 0.3, "origin": 0.0}
    arrays: dict[str, Any] = {each: np.ma.masked_array(np.full((3, 2), value)) for each, value in usual.items()}
    UncertainRows(**arrays)
    arrays[name][2, 1] = np.ma.masked
    with refused("bad-value", "sample 2", "feature 1", name):
        UncertainRows(**arrays)


def test_uncertain_rows__bounds_of_the_mean_beyond_the_support_are_cut() -> None:
    rows = UncertainRows([[0.0]], [[1.0]], [[-0.5]], [[1.5]])
    assert (rows.mean_low[0, 0], rows.mean_high[0, 0]) == (0, 1)


@pytest.mark.parametrize(
    ("lower", "upper", "code", "facts"),
    [
        ([1.0], [2.0], "wrong-shape", ("lower", "(1,)")),
        (np.empty((3, 0)), np.empty((3, 0)), "wrong-shape", ("lower", "(3, 0)")),
        ([[1.0]], [[2.0, 3.0]], "wrong-shape", ("lower", "(1, 1)", "upper", "(1, 2)")),
        ([[1.0], [1.0, 2.0]], [[1.0], [1.0, 2.0]], "wrong-shape", ("lower", "length")),
        ([["a"]], [["b"]], "wrong-type", ("lower", "<U1")),
        ([[1j]], [[2j]], "wrong-type", ("lower", "complex128")),
    ],
)
def test_uncertain_rows__not_tables(lower: ArrayLike, upper: ArrayLike, code: Code, facts: tuple[object, ...]) -> None:
    with refused(code, *facts):
        UncertainRows(lower, upper)


def test_uncertain_rows__origins() -> None:
    with refused("setting-missing", "origin", "second moment"):
        UncertainRows([[0.0]], [[1.0]], origin=0.5)
    with refused("wrong-shape", "origin", "(2,)", "(1, 1)"):
        UncertainRows([[0.0]], [[1.0]], second_moment=[[1.0]], origin=[1.0, 2.0])
    with refused("wrong-shape", "2 feature names", "1 feature."):
        UncertainRows([[0.0]], [[1.0]], feature_names=("a", "b"))


def test_getitem__chooses_samples_as_scikit_learn_does() -> None:
    lower = np.random.default_rng(0).normal(size=(40, 2)) + 4 * (np.arange(40) % 2)[:, None]
    rows, y = UncertainRows(lower, lower + 1), np.arange(40) % 2
    assert rows.shape == (40, 2)
    numbers = np.array([3, 1])
    for chosen in (rows[numbers], rows[numbers, ...], rows[[3, 1]]):
        np.testing.assert_array_equal(chosen.upper, lower[[3, 1]] + 1)
    np.testing.assert_array_equal(rows[y == 1].lower, lower[1::2])
    np.testing.assert_array_equal(rows[2:4].lower, lower[2:4])
    scores = cross_val_score(RobustClassifier("S"), rows, y, cv=4)
    by_hand = [
        RobustClassifier("S").fit(rows.take(train), y[train]).score(rows.take(test), y[test])
        for train, test in StratifiedKFold(4).split(lower, y)
    ]
    np.testing.assert_array_equal(scores, by_hand)
    assert GridSearchCV(RobustClassifier("S"), {"C": [0.1, 1.0]}, cv=2).fit(rows, y).predict(rows).shape == (40,)


@pytest.mark.parametrize("key", [3, (1, 2), (slice(2), 0), [[0, 1]], "a", 1.5, [0.5]])
def test_getitem__of_anything_else_is_refused(key: Any) -> None:
    with refused("wrong-type", repr(key)):
        UncertainRows(np.zeros((4, 2)), np.ones((4, 2)))[key]


def test_uncertain_rows__of_tables_with_columns_in_other_orders_are_refused() -> None:
    values = np.arange(6.0).reshape(3, 2)
    lower, other = pandas.DataFrame(values, columns=["a", "b"]), ["b", "a"]
    upper = lower + 9
    lazy: Any = dask.dataframe.from_pandas(upper[other], npartitions=2)
    low = lower.set_axis(["a.low", "b.low"], axis=1)
    for tables in (
        (lower, upper[other]),
        (values, upper, upper, upper[other]),
        (lower, lazy),
        (low, upper, upper[other]),
    ):
        with refused("columns-differ", ["b", "a"], ["a", "b"]):
            UncertainRows(*tables)
    found = UncertainRows(lower, upper.set_axis(["a.high", "b.high"], axis=1))
    np.testing.assert_array_equal(found.upper, UncertainRows(values, values + 9).upper)
