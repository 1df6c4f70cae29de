import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from reference.decisions import NAMED, feasible, loss_table, subset_losses, top_subsets
from support.errors import refused

from protodask.decisions import LOSS_NAMES, Loss, as_loss
from protodask.errors import InputError


def by_shares(loss: Loss, n: int) -> Any:
    tp, k, p = np.array(feasible(n)).T
    return loss(tp / n, k / n, p / n)


def test_loss_names__are_the_seven() -> None:
    assert LOSS_NAMES == ("am", "f1", "jaccard", "g_tp_pr", "g_mean", "h_mean", "auc")


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("n", [1, 2, 3, 7, 12])
def test_named__equal_their_definitions_by_counts(name: str, n: int) -> None:
    expected = [NAMED[name](tp, k - tp, p - tp, n - k - p + tp) for tp, k, p in feasible(n)]
    np.testing.assert_allclose(by_shares(as_loss(name), n), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", NAMED)
def test_named__do_not_rise_with_true_positives(name: str) -> None:
    table = loss_table(NAMED[name], 12)
    assert np.nanmax(np.diff(table, axis=0)) <= 1e-15
    assert as_loss(Loss("looked at", as_loss(name).form)).name == "looked at"


# Rows: nothing to find and nothing selected; half selected for nothing; all selected for nothing; half of them missed
# by selecting nothing; all missed; all positive and half selected; all positive and all selected.
VANISHING = {
    "am": (0, 0.25, 0.5, 0.5, 0.5, 0.25, 0),
    "f1": (0, 1, 1, 1, 1, 1 / 3, 0),
    "f2": (0, 1, 1, 1, 1, 1 - 2.5 / 4.5, 0),
    "jaccard": (0, 1, 1, 1, 1, 0.5, 0),
    "g_tp_pr": (0, 1, 1, 1, 1, 1 - 0.5**0.5, 0),
    "g_mean": (0, 1 - 0.5**0.5, 1, 1, 1, 1 - 0.5**0.5, 0),
    "h_mean": (0, 1 / 3, 1, 1, 1, 1 / 3, 0),
    "auc": (0, 0, 0, 0, 0, 0, 0),
}


@pytest.mark.parametrize("name", VANISHING)
def test_named__where_denominators_vanish(name: str) -> None:
    u = np.array([0, 0, 0, 0, 0, 0.5, 1])
    v = np.array([0, 0.5, 1, 0, 0, 0.5, 1])
    p = np.array([0, 0, 0, 0.5, 1, 1, 1])
    np.testing.assert_allclose(as_loss(name)(u, v, p), VANISHING[name], atol=1e-15)


def test_loss__broadcasts_and_gives_float64() -> None:
    for name in LOSS_NAMES:
        value = as_loss(name)(np.zeros((3, 1), dtype=np.float32), 0.5, np.linspace(0, 0.4, 4))
        assert value.shape == (3, 4)
        assert value.dtype == np.float64
    assert Loss("constant", lambda u, v, p: 1)(np.zeros((3, 1)), 0, np.zeros(4)).shape == (3, 4)


def test_loss__pickles_and_compares_by_value() -> None:
    for loss in (*map(as_loss, LOSS_NAMES), Loss.f_beta(3), Loss.linear_fractional((0, -1, 0, 1), (2, -1, 0, 0))):
        assert pickle.loads(pickle.dumps(loss)) == loss
    assert Loss.f_beta(2) == as_loss("f2")
    assert Loss.f_beta(2) != Loss.f_beta(0.5)


def test_linear_fractional__f1_and_jaccard_as_coefficients() -> None:
    f1 = Loss.linear_fractional((0, -2, 1, 1), (0, 0, 1, 1), name="mine")
    assert f1.form == as_loss("f1").form
    jaccard = Loss.linear_fractional((0, 4, -2, -2), (0, 2, -2, -2))  # both sums may be negative
    np.testing.assert_allclose(by_shares(jaccard, 9), by_shares(as_loss("jaccard"), 9), atol=1e-15)


def test_linear_fractional__value_where_both_vanish() -> None:
    missed = Loss.linear_fractional((0, -1, 0, 1), (1, 0, -1, 0))  # FN / (FN + TN)
    assert missed(0.3, 1, 0.3) == 0
    utility = Loss.linear_fractional((0, -2, 0, 0), (0, 0, 1, 1), at_zero=-1)  # F1 with its sign changed
    assert utility(0, 0, 0) == -1
    np.testing.assert_allclose(by_shares(utility, 8) + 1, by_shares(as_loss("f1"), 8), atol=1e-15)


def test_linear_fractional__smaller_first_coefficient_is_not_enough() -> None:
    """With c1 < d1 this loss still rises with u, and the best selection of one item is not the most probable one."""
    c, d = (0.1, 1.0, 0.0, 0.0), (1.0, 2.0, 0.0, 0.0)
    with refused("bad-setting", "rises", "0.8"):
        Loss.linear_fractional(c, d)
    table = loss_table(lambda tp, fp, fn, tn: (0.1 + tp / 4) / (1 + tp / 2), 4)
    probability = np.array([0.9, 0.5, 0.4, 0.1])
    losses = subset_losses(probability, table + np.where(np.arange(5) == 1, 0, 10)[None, :, None])
    assert np.argmin(losses) == 0b1000
    assert losses[top_subsets(probability)].min() > losses.min() + 0.1


def by_corners(values: tuple[int, ...]) -> tuple[int, ...]:
    """Coefficients by what they add up to where all items are TP, FP, FN or TN."""
    tp, fp, fn, tn = values
    return tn, tp - fp - fn + tn, fp - tn, fn - tn


@settings(max_examples=150)
@given(
    c=st.tuples(*[st.integers(-3, 3)] * 4).map(by_corners),
    d=st.one_of(*[st.tuples(*[st.integers(least, 3)] * 4).map(by_corners) for least in (-1, 0, 1)]),
)
def test_linear_fractional__refused_exactly_if_it_rises_or_is_infinite(c: tuple[int, ...], d: tuple[int, ...]) -> None:
    n = 100  # so near the corners the slope differs from that at the corner by less than the least it can be, 1
    near = [(k, p) for k in (1, n - 1) for p in (1, n - 1)]
    ends = [(0, 0), (n, n)]
    rises = infinite = False
    for k, p in near + ends:
        quotients = []
        for tp in range(max(0, k + p - n), min(k, p) + 1):
            over, under = (x[0] * n + x[1] * tp + x[2] * k + x[3] * p for x in (c, d))
            infinite |= under == 0 and over != 0
            quotients.append(over / under if under else 0)
        rises |= any(later > earlier + 1e-12 for earlier, later in pairwise(quotients))
    corners = (sum(d), d[0] + d[2], d[0] + d[3], d[0])
    changes_sign = min(corners) < 0 < max(corners) or not any(corners)
    over_corners = (sum(c), c[0] + c[2], c[0] + c[3], c[0])
    infinite |= any(under == 0 and over != 0 for under, over in zip(corners, over_corners, strict=True))
    try:
        Loss.linear_fractional(c, d)
        accepted = True
    except InputError:
        accepted = False
    event("accepted" if accepted else "rises" if rises else "changes its sign" if changes_sign else "infinite")
    assert accepted == (not (rises or infinite or changes_sign))


@pytest.mark.parametrize(
    ("c", "d", "at_zero", "expected"),
    [
        ((0, 1, 0), (1, 0, 0, 0), 0, ("bad-setting", "(0, 1, 0)")),
        ((0, float("nan"), 0, 0), (1, 0, 0, 0), 0, ("bad-setting", "nan")),
        ((0, -1, 0, 0), (0, 0, 1, -1), 0, ("bad-setting", "denominator", "d0 + d1 + d2 + d3")),
        ((0, -1, 0, 0), (0, 0, 0, 0), 0, ("bad-setting", "denominator", "d0 + d1 + d2 + d3")),
        ((1, -2, 1, 1), (0, 0, 1, 1), 0, ("bad-setting", "denominator", "infinite", "at_zero")),
        ((0, 1, 0, 0), (1, 0, 0, 0), 0, ("bad-setting", "rises", "c1 (d0 + d2 v + d3 p)")),
        ((0, -2, 1, 1), (0, -2, 1, 1), 2, ("bad-setting", 2, "smaller", "at_zero")),
        ((1, 2, -1, -1), (1, 2, -1, -1), 0, ("bad-setting", 0, "larger", "at_zero")),
    ],
)
def test_linear_fractional__bad_coefficients(c: Any, d: Any, at_zero: float, expected: tuple[Any, ...]) -> None:
    with refused(*expected):
        Loss.linear_fractional(c, d, at_zero=at_zero)


@pytest.mark.parametrize("beta", [0, -1, float("nan"), float("inf")])
def test_f_beta__needs_a_positive_number(beta: float) -> None:
    with refused("bad-setting", "beta"):
        Loss.f_beta(beta)


def costs(u: Any, v: Any, p: Any) -> Any:
    return 5 * (p - u) + (v - u)


def test_as_loss__takes_functions() -> None:
    loss = as_loss(costs)
    assert loss.name == "costs"
    assert as_loss(lambda u, v, p: v - u).name == "custom"
    slow = np.vectorize(lambda u, v, p: 1 if u < p else 0.5, otypes=[float])
    np.testing.assert_array_equal(as_loss(slow)([0.1, 0.2], 0.5, 0.2), [1, 0.5])
    assert loss(0.1, 0.2, 0.3) == pytest.approx(1.1)
    assert pickle.loads(pickle.dumps(loss))(0.1, 0.2, 0.3) == pytest.approx(1.1)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        ("f", ("unknown-name", "'f'")),
        ("accuracy", ("unknown-name", "'accuracy'")),
        (3, ("bad-setting", "loss", 3)),
        (lambda u, v, p: u, ("bad-setting", "rises")),
        (lambda u, v, p: 1 - u / p, ("bad-setting", "nan", 0, 30)),
        (lambda u, v, p: 1 if u < p else 0, ("user-code", "numpy.vectorize")),
        (lambda u, v: u, ("user-code", "numpy.vectorize")),
        (lambda u, v, p: np.zeros(3), ("user-code", "(3,)", "numpy.vectorize")),
    ],
)
def test_as_loss__refuses(loss: Any, expected: tuple[Any, ...]) -> None:
    with refused(*expected):
        as_loss(loss)


def test_as_loss__looks_at_the_counts_of_as_many_items() -> None:
    """A loss that rises only where 7 of 9 items are true positives."""
    rising = Loss("rising", lambda u, v, p: -u + 2 * (np.abs(u - 7 / 9) < 1e-9))
    assert as_loss(rising).name == "rising"
    with refused("bad-setting", "-0.666667", 6, 9, 7):
        as_loss(rising, n=9)


@pytest.mark.parametrize("beta", ["2", None, [2], 1e160, 1e200, 10**400, np.float32("inf")], ids=repr)
def test_f_beta__refuses_what_has_no_square(beta: Any) -> None:
    with refused("bad-setting", "beta", "1e+50"):
        Loss.f_beta(beta)


@pytest.mark.parametrize("wrong", ["abcd", None, [0, -1, "x", 0], [[0], 1, 2, 3], [0, -1, 10**400, 0]], ids=repr)
def test_linear_fractional__refuses_what_is_no_number(wrong: Any) -> None:
    with refused("bad-setting", "c"):
        Loss.linear_fractional(wrong, (1, 0, 0, 0))
    with refused("bad-setting", "d"):
        Loss.linear_fractional((0, -1, 0, 0), wrong)


@pytest.mark.parametrize("at_zero", [np.nan, np.inf, "x", None], ids=repr)
def test_linear_fractional__refuses_no_number_at_zero(at_zero: Any) -> None:
    with refused("bad-setting", "at_zero"):
        Loss.linear_fractional((0, -2, 1, 1), (0, -1, 1, 1), at_zero=at_zero)


@pytest.mark.parametrize(("c", "d"), [((1e308, -1e308, 0, 0), (1, 0, 0, 0)), ((0, -1, 0, 0), (1e-320, 0, 0, 0))])
def test_linear_fractional__refuses_coefficients_of_infinite_losses(c: Any, d: Any) -> None:
    with refused("bad-setting", 0):
        Loss.linear_fractional(c, d)


@pytest.mark.parametrize("form", [lambda u, v, p: 1 - u + 0j, lambda u, v, p: (1 - u).astype(str)])
def test_as_loss__refuses_functions_of_other_values_than_numbers(form: Any) -> None:
    with refused("user-code"):
        as_loss(form)
