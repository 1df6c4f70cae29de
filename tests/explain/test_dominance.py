"""The dominant set, against all changes of classes, in exact arithmetic."""

import itertools
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protodask.explain.dominance import decided


def exact_winner(marginals: Sequence[Fraction], impacts: Sequence[Fraction], classes: Sequence[int]) -> int:
    sums = list(marginals)
    for impact, label in zip(impacts, classes, strict=True):
        sums[label] += impact
    return sums.index(max(sums))


def brute_force(marginals: Sequence[float], impacts: Sequence[float], classes: Sequence[int]) -> tuple[int, int]:
    """The winner and the shortest prefix that keeps it, by trying every class for every contribution outside."""
    shares, amounts = [Fraction(value) for value in marginals], [Fraction(value) for value in impacts]
    winner = exact_winner(shares, amounts, classes)
    for size in range(len(impacts) + 1):
        changes = itertools.product(range(len(marginals)), repeat=len(impacts) - size)
        if all(exact_winner(shares, amounts, [*classes[:size], *other]) == winner for other in changes):
            return winner, size
    raise AssertionError("the whole of it fixes the winner")


def check(marginals: Sequence[float], impacts: Sequence[float], classes: Sequence[int]) -> None:
    arrays = np.array(marginals, float), np.array(impacts, float), np.array(classes, np.int64)
    assert decided(*arrays) == brute_force(marginals, impacts, classes)


# Few values, so that ties are common; some are no binary fractions, so that float64 sums miss them by a rounding.
TIED = st.sampled_from([0.1, 0.2, 0.25, 0.3, 0.5, 0.75, 1.0])
SPREAD = st.floats(1e-300, 1e3)
TINY = st.sampled_from([1e-17, 1.0, 1.0 + 2.0**-52, 2.0**-53, 0.5])


@settings(max_examples=200)
@given(st.data(), st.sampled_from([TIED, SPREAD, TINY]), st.integers(2, 4))
def test_dominant_size__is_the_least_that_withstands_every_change(
    data: st.DataObject, values: st.SearchStrategy[float], n_classes: int
) -> None:
    most = {2: 8, 3: 6, 4: 5}[n_classes]
    marginals = data.draw(st.lists(values, min_size=n_classes, max_size=n_classes))
    impacts = sorted(data.draw(st.lists(values, max_size=most)), reverse=True)
    classes = data.draw(
        st.lists(st.integers(0, n_classes - 1), min_size=len(impacts), max_size=len(impacts)), label="classes"
    )
    check(marginals, impacts, classes)


@pytest.mark.parametrize(
    ("marginals", "impacts", "classes", "winner", "size"),
    [
        ([0.75, 0.25], [], [], 0, 0),
        ([0.75, 0.25], [0.25, 0.125], [1, 1], 0, 0),  # the marginals alone: 0.75 > 0.25 + 0.375
        ([0.75, 0.25], [0.25, 0.25], [1, 1], 0, 0),  # a tie, and the first class wins ties
        ([0.25, 0.75], [0.25, 0.25], [0, 1], 1, 2),  # the same tie is lost by the second
        ([0.5, 0.5], [4.0, 2.0, 1.0], [1, 1, 0], 1, 1),
        ([0.5, 0.5], [4.0, 2.0, 2.0], [1, 1, 0], 1, 2),  # equal after one: 4.5 against 0.5 + 4
        ([0.5, 0.5], [4.0, 2.0, 2.0], [0, 1, 0], 0, 1),
    ],
)
def test_dominant_size__by_hand(
    marginals: list[float], impacts: list[float], classes: list[int], winner: int, size: int
) -> None:
    arrays = np.array(marginals), np.array(impacts), np.array(classes, dtype=np.int64)
    assert decided(*arrays) == (winner, size)


def test_dominant_size__does_not_fall_for_the_rounding_of_sums() -> None:
    # In float64 0.1 + 0.2 > 0.3, and so it is exactly; but 1e-17 added to 1 is lost, and decides all the same.
    check([0.5, 0.5], [1.0, 1.0, 1e-17], [0, 1, 1])
    check([0.5, 0.5], [1.0, 1e-17], [1, 0])
    check([1.0, 1.0], [0.3, 0.2, 0.1], [1, 0, 0])
    # Equal sums, of which float64 finds the second larger: 1 + 2^-53 is 1 there.
    check([0.0, 0.0], [1 + 2**-52, 1.0, 2**-53, 2**-53], [1, 0, 0, 0])


def test_dominant_size__of_many_is_that_of_adding_one_by_one() -> None:
    rng = np.random.default_rng(0)
    for n_classes in (2, 7):
        impacts = np.sort(rng.exponential(size=400) ** 3)[::-1]
        classes = np.where(rng.random(400) < 0.5, 1, rng.integers(0, n_classes, 400))
        marginals = rng.dirichlet(np.ones(n_classes))
        (winner, found), size = decided(marginals, impacts, classes), 0
        while True:
            sums = marginals + np.bincount(classes[:size], weights=impacts[:size], minlength=n_classes)
            if np.delete(sums[winner] - sums, winner).min() > impacts[size:].sum():
                break
            size += 1
        assert 0 < size < 400
        assert found == size
