import math
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.errors import refused

from protodask.budget.candidates import find_candidates, order_candidates
from protodask.budget.costs import CostCurves
from protodask.budget.expansions import Expansion, FeatureSet
from protodask.budget.index import make_index


def all_sets(n_features: int) -> list[FeatureSet]:
    return [frozenset(some) for size in range(n_features + 1) for some in combinations(range(n_features), size)]


def expand(accuracies: dict[FeatureSet, float]) -> list[Expansion]:
    return [Expansion(features, accuracy) for features, accuracy in accuracies.items()]


ranges = st.sampled_from([(0.0, math.inf), (1.0, math.inf), (0.0, 4.0), (2.0, 2.0), (1.0, 3.0)])


@given(
    st.integers(1, 4).flatmap(
        lambda m: st.tuples(
            st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=m, max_size=m),
            st.lists(st.integers(0, 6), min_size=2**m, max_size=2**m),
        )
    ),
    ranges,
)
@example(([(4, 2), (2, 3)], [0, 3, 3, 5]), (2.0, 2.0))
def test_find_candidates__drops_the_dominated_and_nothing_else(
    drawn: tuple[list[tuple[int, int]], list[int]], sizes: tuple[float, float]
) -> None:
    costs, accuracies = drawn
    curves = CostCurves.of(costs, sizes)
    accuracy = dict(zip(all_sets(len(costs)), map(float, accuracies), strict=True))
    found = find_candidates(curves, expand(accuracy))
    assert found.accuracies.tolist() == [accuracy[one] for one in found.sets]
    assert found.accuracies.tolist() == sorted(found.accuracies)
    assert (found.costs == curves.of_sets(found.sets)).all()
    # Lines compare at all sizes as they do at both ends, or at one and in their slopes.
    low, high = sizes

    def ends(one: FeatureSet) -> tuple[float, float]:
        constant, slope = curves.of_set(one).tolist()
        return constant + slope * low, slope if math.isinf(high) else constant + slope * high

    for one, own in accuracy.items():
        others = [other for other in accuracy if accuracy[other] >= own and other != one]
        weakly = [other for other in others if all(np.less_equal(ends(other), ends(one)))]
        strictly = [other for other in weakly if accuracy[other] > own or ends(other) != ends(one)]
        if one not in found.sets:
            assert weakly
            assert any(other in found.sets for other in weakly)
        else:
            # Of what only touches it at an end of the range rounding leaves doubt, and it stays.
            clearly = [
                other
                for other in strictly
                if all(np.less_equal(curves.of_set(other), curves.of_set(one))) or all(np.less(ends(other), ends(one)))
            ]
            assert not clearly
            # So does one of two lines that meet where all items have one size; they have to be the same line.
            line = curves.of_set(one).tolist()
            same = [other for other in weakly if curves.of_set(other).tolist() == line and accuracy[other] == own]
            assert all((len(one), sorted(one)) < (len(other), sorted(other)) for other in same)


def test_find_candidates__parts_that_are_as_accurate_take_the_place_of_the_whole() -> None:
    rng = np.random.default_rng(0)
    curves = CostCurves.of(rng.random((6, 3)), (0, 100))
    accuracy = {one: float(rng.integers(20)) for one in all_sets(6)}
    found = set(find_candidates(curves, expand(accuracy)).sets)
    for one in found:
        assert not any(part < one and accuracy[part] >= accuracy[one] for part in accuracy)


def test_find_candidates__curves_that_cross_are_kept_where_they_do_so_within_the_range() -> None:
    expansions = expand({frozenset({0}): 0.5, frozenset({1}): 0.6})
    costs = [[4, 1, 0], [3, 0, 1]]  # 4 + n is more than 3 + n^2 below a size of 1.618

    def left(low: float, high: float) -> set[int]:
        return {
            feature for one in find_candidates(CostCurves.of(costs, (low, high)), expansions).sets for feature in one
        }

    assert left(0, 1.6) == {1}
    assert left(0, 1.63) == {0, 1}
    assert left(0, math.inf) == {0, 1}
    assert left(2, 9) == {0, 1}


def test_find_candidates__many_blocks_as_one() -> None:
    # A front of a thousand sets that all stay, and as many behind it that all go.
    count = 1000
    costs = np.stack([np.arange(count) / count, 1 - np.arange(count) / count], axis=1)
    curves = CostCurves(np.concatenate([costs, costs + 0.5]), 0.0, math.inf)
    rng = np.random.default_rng(1)
    order = rng.permutation(2 * count)
    found = find_candidates(curves, [Expansion(frozenset({int(i)}), 0.5 if i < count else 0.4) for i in order])
    assert set(found.sets) == {frozenset({i}) for i in range(count)}


def test_find_candidates__coefficients_of_any_scale() -> None:
    costs = [[1e200, 1e-300, 0.0], [1e-320, 0.0, 1e200], [1e-250, 1e-250, 1e-250], [0.0, 5e-324, 0.0]]
    curves = CostCurves.of(costs)
    accuracy = {one: float(sum(1 << feature for feature in one)) for one in all_sets(4)}
    index = make_index(curves, expand(accuracy))
    sizes = np.array([0.0, 5e-324, 1e-300, 1e-100, 1.0, 1e100, 1e150, 1e300])
    for one, own in accuracy.items():
        for size in sizes.tolist():
            found = index.best(size, curves.at(one, size))
            assert found.accuracy >= own or curves.at(one, size) == math.inf
            assert found.cost <= curves.at(one, size)


def test_find_candidates__identical_ones() -> None:
    curves = CostCurves.of([[1.0], [1.0], [0.0]])
    same = {frozenset({0}): 0.5, frozenset({1}): 0.5, frozenset({0, 2}): 0.5, frozenset({1, 2}): 0.5}
    assert find_candidates(curves, expand(same)).sets == (frozenset({0}),)
    # Said twice of one set, the last word counts.
    twice = [Expansion(frozenset({0}), 0.5), Expansion(frozenset({1}), 0.4), Expansion(frozenset({0}), 0.3)]
    assert find_candidates(curves, twice).sets == (frozenset({1}),)


def test_order_candidates__puts_the_preferred_of_equals_last() -> None:
    sets = [frozenset({1}), frozenset({0, 1}), frozenset({0}), frozenset({0, 3}), frozenset({1, 2})]
    ordered = order_candidates(sets, np.array([0.5, 0.5, 0.5, 0.5, 0.4]), np.arange(5.0)[:, None])
    assert [sorted(one) for one in ordered.sets] == [[1, 2], [0, 3], [0, 1], [1], [0]]
    assert ordered.costs[:, 0].tolist() == [4, 3, 1, 0, 2]


@pytest.mark.parametrize(
    ("expansions", "expected"),
    [
        ([], ("too-few",)),
        ([Expansion(frozenset({0}), None, "no rows")], ("too-few",)),
        ([Expansion(frozenset({2}), 0.5)], ("columns-differ", "[2]", 2)),
        ([Expansion(frozenset({-1}), 0.5)], ("columns-differ", "[-1]", 2)),
        ([Expansion(frozenset({0}), math.nan)], ("bad-value",)),
    ],
)
def test_find_candidates__refuses_what_makes_no_sense(expansions: list[Expansion], expected: tuple[Any, ...]) -> None:
    with refused(*expected):
        find_candidates(CostCurves.of([[1.0], [2.0]]), expansions)
