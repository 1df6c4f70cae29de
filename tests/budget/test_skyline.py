import math

import numpy as np
import pytest
from reference.skylines import Drawn, draw, skyline_changes, sweep

from protodask.budget.candidates import Candidates, order_candidates
from protodask.budget.polynomials import evaluate, sizes_at
from protodask.budget.skyline import Listing, count_entries, find_presence, list_candidates


def list_of(drawn: Drawn) -> tuple[Candidates, Listing]:
    candidates = order_candidates(drawn.sets, drawn.accuracies, drawn.costs)
    presence = find_presence(candidates, drawn.low, drawn.high)
    listing = list_candidates(presence)
    assert count_entries(presence) == len(listing.entries) == listing.offsets[-1]
    return candidates, listing


def singles(costs: list[list[float]], low: float = 0.0, high: float = math.inf) -> Drawn:
    """Sets of one feature each, more accurate from one to the next."""
    accuracies = np.arange(len(costs)) / 10
    return Drawn([frozenset({i}) for i in range(len(costs))], accuracies, np.array(costs), low, high)


def lists(drawn: Drawn) -> dict[float, list[int]]:
    """From which size on which sets are listed, by their features."""
    candidates, listing = list_of(drawn)
    found = {}
    for number, start in enumerate(listing.starts.tolist()):
        entries = listing.entries[listing.offsets[number] : listing.offsets[number + 1]]
        found[start] = [min(candidates.sets[entry]) for entry in entries]
    return found


@pytest.mark.parametrize("seed", range(8))
def test_list_candidates__begins_a_list_where_the_skyline_changes_and_nowhere_else(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(10):
        count, degree = int(rng.integers(1, 9)), int(rng.integers(0, 4))
        # Terms of the same magnitude at 1, so that there are many crossings.
        drawn = singles(rng.random((count, degree + 1)).tolist(), 0.01, 100.0)
        order = rng.permutation(count)
        drawn = Drawn(drawn.sets, drawn.accuracies[order], drawn.costs, drawn.low, drawn.high)
        _, listing = list_of(drawn)
        assert len(listing.starts) - 1 == skyline_changes(drawn)
        assert np.allclose(listing.starts[1:], sorted(sweep(drawn)), rtol=1e-7)


def test_list_candidates__two_lines() -> None:
    # 1 + n is passed by the more accurate 3 + n / 2 at a size of 4.
    (first, both), (second, one) = lists(singles([[1.0, 1.0], [3.0, 0.5]])).items()
    assert (first, both, one) == (0.0, [0, 1], [1])
    assert second == pytest.approx(4, rel=1e-11)
    # The other way about, one that was not on the skyline gets there.
    (_, one), (start, both) = lists(singles([[3.0, 0.5], [1.0, 1.0]])).items()
    assert (one, both) == ([1], [0, 1])
    assert start == pytest.approx(4, rel=1e-11)


def test_list_candidates__a_curve_that_touches_another() -> None:
    # (n - 2)^2 + n above n: listed next to 2 only, where rounding cannot tell them apart.
    touching = lists(singles([[4.0, -3.0, 1.0], [0.0, 1.0, 0.0]]))
    assert list(touching.values()) == [[1], [0, 1], [1]]
    assert list(touching)[1:] == pytest.approx([2, 2], rel=1e-5)
    # Below it it is on the skyline all along.
    assert list(lists(singles([[0.0, 1.0, 0.0], [4.0, -3.0, 1.0]])).values()) == [[0, 1]]


def test_list_candidates__several_curves_through_one_point() -> None:
    # All cost 3 at a size of 1; the more accurate, the flatter or the steeper.
    falling = lists(singles([[0.0, 3.0], [1.0, 2.0], [2.0, 1.0], [3.0, 0.0]]))
    assert next(iter(falling.values())) == [0, 1, 2, 3]
    assert list(falling.values())[-1] == [3]
    rising = lists(singles([[3.0, 0.0], [2.0, 1.0], [1.0, 2.0], [0.0, 3.0]]))
    assert next(iter(rising.values())) == [3]
    assert list(rising.values())[-1] == [0, 1, 2, 3]
    for start in [*list(falling)[1:], *list(rising)[1:]]:
        assert start == pytest.approx(1, rel=1e-10)


def test_list_candidates__of_curves_that_are_the_same_the_most_accurate_is_needed() -> None:
    for entries in lists(singles([[1.0, 2.0]] * 5)).values():
        assert entries[-1] == 4


def test_list_candidates__of_equally_accurate_ones_the_cheapest() -> None:
    drawn = singles([[1.0, 1.0], [3.0, 0.5], [2.0, 2.0]])
    drawn = Drawn(drawn.sets, np.array([0.5, 0.5, 0.5]), drawn.costs, 0.0, 10.0)
    (_, before), (_, around), (_, after) = lists(drawn).items()
    assert (before, sorted(around), after) == ([0], [0, 1], [1])


@pytest.mark.parametrize("kind", ["plain", "tangent", "bundle", "floats"])
def test_find_presence__lists_no_candidate_that_a_more_accurate_one_beats_clearly(kind: str) -> None:
    rng = np.random.default_rng(5)
    for _ in range(25):
        drawn = draw(rng, kind)
        candidates = order_candidates(drawn.sets, drawn.accuracies, drawn.costs)
        presence = find_presence(candidates, drawn.low, drawn.high)
        middles = sizes_at(presence.start + ((presence.end - presence.start) >> 1))
        for number, size in zip(presence.candidate.tolist(), middles.tolist(), strict=True):
            cost = evaluate(candidates.costs, min(size, 1e100))
            better = candidates.accuracies > candidates.accuracies[number]
            scale = evaluate(np.abs(candidates.costs), min(size, 1e100)).max()
            assert (cost[better] >= cost[number] - 1e-11 * scale - 1e-280).all()


def test_find_presence__of_one_candidate_is_the_whole_range() -> None:
    for low, high, last in ((0.0, math.inf, math.inf), (2.0, 2.0, math.nextafter(2, 3)), (1.0, 9.0, 9.000000000000002)):
        presence = find_presence(order_candidates([frozenset()], np.array([0.5]), np.zeros((1, 3))), low, high)
        assert presence.candidate.tolist() == [0]
        assert sizes_at(presence.start).tolist() == [low]
        assert sizes_at(presence.end).tolist() == [last]


def test_find_presence__does_not_depend_on_how_many_sets_there_are() -> None:
    rng = np.random.default_rng(2)
    for count in range(1, 20):
        costs = rng.random((count, 3))
        drawn = Drawn([frozenset({i}) for i in range(count)], rng.permutation(count) / 8, costs, 0.0, 50.0)
        candidates, listing = list_of(drawn)
        for size in rng.random(20) * 50:
            at = np.searchsorted(listing.starts, size, side="right") - 1
            entries = listing.entries[listing.offsets[at] : listing.offsets[at + 1]].tolist()
            cost = evaluate(candidates.costs, size)
            assert entries == [i for i in range(count) if (cost[i + 1 :] > cost[i]).all()]
