import numpy as np
import pytest
from numpy.typing import ArrayLike
from scipy import stats
from support.errors import refused

from protodask.errors import Code
from protodask.robust.formulations import FORMULATIONS, make_terms
from protodask.robust.replicates import from_replicates


def test_from_replicates__by_hand() -> None:
    values = [[10.0, 5.0], [1.0, 0.0], [14.0, 5.0], [3.0, 0.0], [12.0, 5.0]]
    rows, samples = from_replicates(values, ["b", "a", "b", "a", "b"], 0.8)
    assert samples.tolist() == ["a", "b"]
    # Of b three measurements, 10, 14 and 12: a range of 4, widened by 2; sd = 2.
    np.testing.assert_allclose(rows.lower, [[-1, 0], [8, 5]])
    np.testing.assert_allclose(rows.upper, [[5, 0], [16, 5]])
    half = stats.t.ppf(0.9, 2) * 2 / np.sqrt(3)
    assert rows.mean_low[1, 0] == pytest.approx(12 - half)
    assert rows.mean_high[1, 0] == pytest.approx(12 + half)
    assert rows.second_moment is not None
    assert rows.origin is not None
    assert rows.origin[1, 0] == pytest.approx(12)
    assert rows.second_moment[1, 0] == pytest.approx(2 * 4 / stats.chi2.ppf(0.2, 2) + half**2)
    # What did not vary is known.
    assert rows.mean_low[1, 1] == rows.mean_high[1, 1] == 5
    assert rows.second_moment[1, 1] == 0
    for name in FORMULATIONS:
        assert make_terms(rows.exact_means(), name, 0.1).spread[1, 1] == 0


def test_from_replicates__known_ends() -> None:
    values = [[0.2, 5.0], [0.4, 5.0], [0.1, 3.0], [0.1, 4.0]]
    rows, _ = from_replicates(values, [0, 0, 1, 1], 0.8, lower=0, upper=[1.0, 9.0])
    np.testing.assert_array_equal(rows.lower, np.zeros((2, 2)))
    np.testing.assert_array_equal(rows.upper, [[1, 9], [1, 9]])
    # What did not vary has a mean, but a support still.
    assert rows.mean_low[1, 0] == rows.mean_high[1, 0] == 0.1
    guessed, _ = from_replicates(values, [0, 0, 1, 1], 0.8, lower=0)
    np.testing.assert_array_equal(guessed.lower, np.zeros((2, 2)))
    np.testing.assert_allclose(guessed.upper, [[0.6, 5.0], [0.1, 5.0]])
    # The interval of Student's t, wide for two measurements, is cut to what is possible.
    wide, _ = from_replicates(values, [0, 0, 1, 1], 0.99, lower=0, upper=10)
    assert wide.mean_low[0, 0] == 0
    for name in ("S", "SBM-I", "SBMV"):
        make_terms(rows, name, 0.1)


@pytest.mark.parametrize(
    ("ends", "code", "facts"),
    [
        ({"lower": 0.15}, "bad-value", ("sample b", "feature 0", 0.1, "lower", 0.15)),
        ({"upper": [1.0, 4.5]}, "bad-value", ("sample a", "feature 1", 5, "upper", 4.5)),
        ({"upper": [1.0, 2.0, 3.0]}, "wrong-shape", ("upper", "(3,)", 2)),
        ({"lower": [[0.0, 0.0]]}, "wrong-shape", ("lower", "(1, 2)", 2)),
        ({"lower": "0"}, "wrong-shape", ("lower", "<U1", 2)),
        ({"upper": np.inf}, "bad-value", ("feature 0", "upper")),
        ({"lower": np.nan}, "bad-value", ("feature 0", "lower")),
    ],
)
def test_from_replicates__bad_ends(ends: dict[str, ArrayLike], code: Code, facts: tuple[object, ...]) -> None:
    values = [[0.2, 5.0], [0.4, 5.0], [0.1, 3.0], [0.3, 4.0]]
    with refused(code, *facts):
        from_replicates(values, ["a", "a", "b", "b"], **ends)  # type: ignore[arg-type]


def test_from_replicates__at_the_ends_of_confidence() -> None:
    values = np.array([[1.0, 5.0], [2.0, 5.0], [4.0, 5.0]])
    nothing, _ = from_replicates(values, [0, 0, 0], 1e-12)
    np.testing.assert_allclose(nothing.mean_low, nothing.mean_high)
    sure, _ = from_replicates(values, [0, 0, 0], float(np.nextafter(1.0, 0.0)))
    np.testing.assert_array_equal(sure.mean_low, sure.lower)
    np.testing.assert_array_equal(sure.mean_high, sure.upper)
    assert sure.second_moment is not None
    np.testing.assert_array_equal(np.isfinite(sure.second_moment), True)


def test_from_replicates__range() -> None:
    rows, _ = from_replicates([[10.0], [14.0], [12.0]], [1, 1, 1], support="range")
    assert (rows.lower[0, 0], rows.upper[0, 0]) == (10, 14)
    # The interval of Student's t is cut to the support.
    assert (rows.mean_low[0, 0], rows.mean_high[0, 0]) == (10, 14)


def test_from_replicates__order_and_offset_do_not_matter() -> None:
    rng = np.random.default_rng(3)
    values, sample = rng.normal(size=(60, 3)), rng.integers(8, size=60)
    rows, samples = from_replicates(values, sample)
    order = rng.permutation(60)
    other, others = from_replicates(values[order] + 2.0**30, sample[order])
    np.testing.assert_array_equal(samples, others)
    np.testing.assert_allclose(rows.lower + 2.0**30, other.lower, atol=1e-5)
    np.testing.assert_allclose(rows.mean_high + 2.0**30, other.mean_high, atol=1e-5)
    assert rows.second_moment is not None
    assert other.second_moment is not None
    np.testing.assert_allclose(rows.second_moment, other.second_moment, rtol=1e-4)


@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_from_replicates__bounds_hold_at_their_confidence(confidence: float) -> None:
    rng = np.random.default_rng(7)
    n, n_samples = 12, 4000
    # Wide supports, so that nothing is cut: a range of 12 normal numbers holds the interval almost always.
    rows, _ = from_replicates(rng.normal(5.0, 2.0, size=(n * n_samples, 1)), np.arange(n * n_samples) // n, confidence)
    held = np.mean((rows.mean_low <= 5) & (rows.mean_high >= 5))
    assert abs(held - confidence) < 5 * np.sqrt(0.25 / n_samples)
    assert rows.second_moment is not None
    assert rows.origin is not None
    about = 4 + np.square(5 - rows.origin)
    # Where the bounds of mean and variance hold.
    assert np.mean(about <= rows.second_moment) > 2 * confidence - 1


def test_from_replicates__widened_ends_are_right_on_average_for_uniform_values() -> None:
    rng = np.random.default_rng(8)
    rows, _ = from_replicates(rng.uniform(2.0, 3.0, size=(20_000, 1)), np.arange(20_000) // 4)
    assert abs(rows.lower.mean() - 2) < 0.02
    assert abs(rows.upper.mean() - 3) < 0.02


@pytest.mark.parametrize(
    ("values", "sample", "code", "facts"),
    [
        ([[1.0], [2.0], [3.0]], [0, 0, 1], "too-few", ("one measurement", "sample 1")),
        ([[1.0], [np.nan]], [5, 5], "bad-value", ("measurement 1", "sample 5", "feature 0")),
        ([[1.0], [1e200]], [5, 5], "bad-value", ("measurement 1", "sample 5", "feature 0")),
        (np.ma.masked_greater([[1.0], [2.0]], 1), [5, 5], "bad-value", ("measurement 1", "sample 5", "feature 0")),
        ([[1.0], [2.0]], np.array(["a", 1], dtype=object), "wrong-type", ("samples",)),
        ([[1.0], [2.0]], ["a", None], "bad-value", ("no sample",)),
        ([[1.0], [2.0], [3.0], [4.0]], [1, 1, np.nan, np.nan], "bad-value", ("no sample",)),
        ([[1.0], [2.0], [3.0], [4.0]], ["a", "a", np.nan, np.nan], "bad-value", ("no sample",)),
        ([1.0, 2.0], [0, 0], "wrong-shape", ("measurements", "(2,)")),
        ([["a"], ["b"]], [0, 0], "wrong-shape", ("measurements", "<U1")),
        ([[1.0], [2.0]], [0, 0, 0], "wrong-shape", ("2 measurements", "samples", "(3,)")),
        (np.empty((0, 2)), [], "wrong-shape", ("0 measurements", "samples", "(0,)")),
    ],
)
def test_from_replicates__bad_input(
    values: ArrayLike, sample: ArrayLike, code: Code, facts: tuple[object, ...]
) -> None:
    with refused(code, *facts):
        from_replicates(values, sample)


def test_from_replicates__samples_are_whole_numbers_that_float64_would_round() -> None:
    rows, samples = from_replicates(
        [[1.0], [2.0], [5.0], [6.0], [8.0], [9.0]], [2**63 + 1] * 2 + [2**63 + 2] * 2 + [3] * 2
    )
    assert samples.tolist() == [3, 2**63 + 1, 2**63 + 2]
    assert rows.mean_midpoint[:, 0].tolist() == [8.5, 1.5, 5.5]


def test_from_replicates__bad_settings() -> None:
    for confidence in (95, "high"):
        with refused("bad-setting", f"confidence is {confidence!r}", 0, 1):
            from_replicates([[1.0], [2.0]], [0, 0], confidence)  # type: ignore[arg-type]
    with refused("unknown-name", "wide", "widened", "range"):
        from_replicates([[1.0], [2.0]], [0, 0], support="wide")  # type: ignore[arg-type]
