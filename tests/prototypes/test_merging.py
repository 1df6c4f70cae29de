"""Merging of equivalent prototypes against the oracle's connected components."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from reference.classifier import merge_prototypes

from protodask.prototypes.merging import MERGE_TOLERANCE, merge_equivalent

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def assert_is_the_oracles(scaled: Floats, classes: Integers, weight: Floats, rows: Integers) -> None:
    kept = merge_equivalent(scaled, classes, weight, rows)
    expected = merge_prototypes(np.ones(scaled.shape[1]), weight, scaled, classes, rows)
    assert kept.position.tolist() == sorted(kept.position.tolist())
    found = sorted(zip(rows[kept.position].tolist(), kept.weight.tolist(), strict=True))
    wanted = sorted(zip(expected.row.tolist(), expected.prototype_weight.tolist(), strict=True))
    assert [row for row, _ in found] == [row for row, _ in wanted]
    np.testing.assert_allclose([weight for _, weight in found], [weight for _, weight in wanted], rtol=1e-14)


@settings(max_examples=150)
@given(st.data())
def test_merge_equivalent__is_the_oracles(data: st.DataObject) -> None:
    length, width = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 3))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**20)))
    # Steps of 0.7 tolerances: neighbours are equivalent, the ends of a chain are not.
    step = data.draw(st.sampled_from([0.0, 0.7, 0.3, 1.5])) * MERGE_TOLERANCE
    places = rng.integers(0, 4, (length, width)) * step + rng.integers(0, 2, (length, 1))
    scaled = places.astype(np.float64)
    classes = np.sort(rng.integers(0, 3, length))
    weight = rng.uniform(0.1, 2, length) * (rng.random(length) < 0.8)
    assert_is_the_oracles(scaled, classes, weight, rng.permutation(1000)[:length])


def test_merge_equivalent__joins_a_chain_whose_ends_are_far_apart() -> None:
    scaled = np.linspace(0, 49 * 0.9 * MERGE_TOLERANCE, 50)[:, None]
    kept = merge_equivalent(scaled, np.zeros(50, dtype=np.int64), np.ones(50), np.arange(50)[::-1].copy())
    assert kept.position.tolist() == [49], "the member of row 0"
    assert kept.weight.tolist() == [50.0]


def test_merge_equivalent__keeps_points_just_beyond_the_tolerance_apart() -> None:
    for factor, expected in ((0.99, 1), (1.01, 2)):
        scaled = np.array([[0.0, 0.0], [0.0, factor * MERGE_TOLERANCE]])
        assert len(merge_equivalent(scaled, np.zeros(2, dtype=np.int64), np.ones(2), np.arange(2)).weight) == expected


def test_merge_equivalent__keeps_classes_apart() -> None:
    kept = merge_equivalent(np.zeros((4, 2)), np.array([0, 0, 1, 1]), np.array([1.0, 2, 4, 8]), np.array([5, 3, 9, 2]))
    assert kept.position.tolist() == [1, 3]
    assert kept.weight.tolist() == [3.0, 12.0]


def test_merge_equivalent__of_many_copies_needs_no_pairs() -> None:
    # 20,000 copies would make 200 million pairs.
    scaled = np.repeat([[0.0, 1.0], [5.0, 1.0]], 10_000, axis=0)
    kept = merge_equivalent(scaled, np.zeros(20_000, dtype=np.int64), np.full(20_000, 0.5), np.arange(20_000))
    assert kept.position.tolist() == [0, 10_000]
    assert kept.weight.tolist() == [5000.0, 5000.0]


def test_merge_equivalent__without_features_leaves_one_for_each_class() -> None:
    kept = merge_equivalent(np.zeros((5, 0)), np.array([0, 0, 1, 1, 1]), np.ones(5), np.arange(5))
    assert kept.position.tolist() == [0, 2]
    assert kept.weight.tolist() == [2.0, 3.0]


@pytest.mark.parametrize("length", [0, 3])
def test_merge_equivalent__without_weight_leaves_nothing(length: int) -> None:
    kept = merge_equivalent(
        np.zeros((length, 2)), np.zeros(length, dtype=np.int64), np.zeros(length), np.arange(length)
    )
    assert len(kept.position) == len(kept.weight) == 0
