import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from reference.decisions import NAMED, f_beta, loss_table, subset_losses, top_subsets
from support.errors import refused

from protodask.decisions import Loss, as_loss, decide, expected_loss, expected_losses
from protodask.decisions.exact import general_losses, iterate_losses

Floats = NDArray[np.float64]

SHAPES = {
    "wide": (0.5, 0.5),
    "uniform": (1.0, 1.0),
    "skewed": (0.5, 20.0),
    "rare": (0.01, 10.0),  # mean 0.001
    "sure": (20.0, 0.5),
}


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("general", [False, True])
def test_expected_losses__equal_all_outcomes(name: str, general: bool) -> None:
    probability = np.array([0.3, 1.0, 0.3, 0.7, 0.0, 0.5, 0.05, 0.5])
    expected = subset_losses(probability, loss_table(NAMED[name], 8))[top_subsets(probability)]
    np.testing.assert_allclose(expected_losses(probability, name, general=general), expected, rtol=0, atol=1e-14)


@settings(max_examples=60, deadline=None)
@given(
    probability=st.lists(st.floats(0, 1) | st.sampled_from([0.0, 1.0, 0.5]), min_size=1, max_size=6),
    name=st.sampled_from(list(NAMED)),
    general=st.booleans(),
)
def test_expected_losses__equal_all_outcomes_whatever_is_given(
    probability: list[float], name: str, general: bool
) -> None:
    values = np.array(probability)
    expected = subset_losses(values, loss_table(NAMED[name], len(values)))[top_subsets(values)]
    np.testing.assert_allclose(expected_losses(values, name, general=general), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("beta", [1e-50, 1e-7, 1e-3, 1e3, 1e6, 1e7, 1e50])
@pytest.mark.parametrize("general", [False, True])
def test_expected_losses__equal_all_outcomes_however_unequal_the_weights(beta: float, general: bool) -> None:
    for probability in (np.array([0.2, 0.1, 0.5]), np.array([0.0, 0.3, 1.0, 1e-3, 0.5, 0.7])):
        expected = subset_losses(probability, loss_table(f_beta(beta), len(probability)))[top_subsets(probability)]
        found = expected_losses(probability, Loss.f_beta(beta), general=general)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)


def test_decide__of_few_positives_where_recall_counts_most() -> None:
    """Where there is nothing to find, which is likely, what is selected costs all."""
    decision = decide(np.full(200, 0.001), Loss.f_beta(1e6))
    assert decision.k == 0
    assert decision.expected_loss == pytest.approx(1 - 0.999**200)


LINEAR = {
    "f1": as_loss("f1"),
    "f2": as_loss("f2"),
    "f0.5": as_loss("f0.5"),
    "f1.5": as_loss("f1.5"),
    "root": Loss.f_beta(2**0.5),
    "jaccard": as_loss("jaccard"),
    "precision": Loss.linear_fractional((0, -1, 1, 0), (0, 0, 1, 0)),
    "omission": Loss.linear_fractional((0, -1, 0, 1), (1, 0, -1, 0)),  # FN / (FN + TN)
    "linear": Loss.linear_fractional((0, -6, 1, 5), (1, 0, 0, 0)),  # 5 FN + FP
    "offset": Loss.linear_fractional((1, -1, 0.3, 0), (2, 1, -1, 0.5)),
    "negative": Loss.linear_fractional((0, 4, -2, -2), (0, 2, -2, -2)),
    "errors": Loss.linear_fractional((0, -2, 1, 1), (3, -1, 0.25, -0.75)),
    "agreement": Loss.linear_fractional((0, -2, 1, 1), (1, 1, 0, 0), at_zero=0),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", LINEAR)
def test_expected_losses__quadratic_equals_general(name: str, shape: str) -> None:
    probability = np.random.default_rng(3).beta(*SHAPES[shape], size=100)
    probability[:20] = probability[20:40]
    probability[:5], probability[5:10] = 0, 1
    quick = expected_losses(probability, LINEAR[name])
    general = expected_losses(probability, LINEAR[name], general=True)
    np.testing.assert_allclose(quick, general, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in LINEAR if name != "root"])
def test_expected_losses__quadratic_where_items_are_certain(name: str) -> None:
    for probability in (np.zeros(4), np.ones(4), np.array([1.0, 1.0, 0.0, 0.0]), np.array([1.0]), np.array([0.0])):
        quick = expected_losses(probability, LINEAR[name])
        np.testing.assert_allclose(quick, expected_losses(probability, LINEAR[name], general=True), atol=1e-14)


@pytest.mark.parametrize("name", ["f1", "jaccard", "g_tp_pr", "am"])
def test_expected_loss__is_that_of_expected_losses(name: str) -> None:
    probability = np.random.default_rng(4).beta(0.3, 3, size=200)
    losses = expected_losses(probability, name)
    for k in (0, 1, 17, 100, 199, 200):
        assert expected_loss(probability, k, name) == pytest.approx(losses[k], abs=1e-13)


def test_expected_loss__two_thousand_items() -> None:
    """F1 for so many, by both methods, and by draws of the outcome within five standard errors."""
    generator = np.random.default_rng(5)
    probability = np.sort(generator.beta(0.2, 4, size=2000))[::-1]
    losses = expected_losses(probability, "f1")
    k = int(losses.argmin())
    assert expected_loss(probability, k, "f1") == pytest.approx(losses[k], abs=1e-12)
    outcome = generator.uniform(size=(4000, 2000)) < probability
    drawn = 1 - 2 * outcome[:, :k].sum(axis=1) / (k + outcome.sum(axis=1))
    assert abs(drawn.mean() - losses[k]) < 5 * drawn.std() / np.sqrt(len(drawn))


def test_expected_losses__any_function() -> None:
    """Five for a missed item and one for a false alarm add up, so expectations are known."""
    probability = np.random.default_rng(6).uniform(size=50)
    losses = expected_losses(probability, lambda u, v, p: 5 * (p - u) + (v - u))
    ordered = np.sort(probability)[::-1]
    false = np.concatenate([[0], np.cumsum(1 - ordered)])
    missed = ordered.sum() - np.concatenate([[0], np.cumsum(ordered)])
    np.testing.assert_allclose(losses, (5 * missed + false) / 50, atol=1e-13)


def test_iterate_losses__computes_one_at_a_time() -> None:
    seen = []

    def watched(u: Floats, v: Floats, p: Floats) -> Floats:
        seen.append(float(v))
        return v - u

    losses = iterate_losses(np.array([0.9, 0.5, 0.1]), Loss("watched", watched))
    assert [next(losses), next(losses)] == pytest.approx([0, 0.1 / 3])
    assert seen == pytest.approx([0, 1 / 3])


def test_general_losses__keep_no_square_table() -> None:
    """The values of the loss are asked for where the counts are likely: for about sqrt(n) of n counts each way."""
    largest = 0

    def watched(u: Floats, v: Floats, p: Floats) -> Floats:
        nonlocal largest
        largest = max(largest, p.size)
        return v - u

    general_losses(np.sort(np.random.default_rng(7).uniform(size=1000))[::-1], Loss("watched", watched))
    assert largest < 1000**2 / 8


@pytest.mark.parametrize("k", [-1, 4, 1.5])
def test_expected_loss__bad_number_of_items(k: int) -> None:
    with refused("bad-setting", "k"):
        expected_loss([0.1, 0.2, 0.3], k, "f1")
