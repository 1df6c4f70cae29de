from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protodask.data.arrays.keyed import keyed_draws, stream_key
from protodask.engine import Block, Engine, array_source
from protodask.evaluation.row_sample import SAMPLE_STREAM
from protodask.explain.report.profile import (
    Profile,
    Range,
    merge_profiles,
    no_profile,
    no_range,
    profile,
    profile_block,
)
from protodask.prototypes.candidates import priority

WITHIN = Range(np.array([-1.0, -np.inf, 0.0]), np.array([1.0, np.inf, 0.5]))


def arrays(n_rows: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "features": rng.normal(size=(n_rows, 3)),
        "target": rng.integers(0, 2, n_rows).astype(np.int32),
        "weight": rng.choice([0.0, 0.5, 1.0, 3.0], n_rows),
    }


def assert_same(found: Profile, wanted: Profile) -> None:
    np.testing.assert_array_equal(found.sample.rows, wanted.sample.rows)
    np.testing.assert_array_equal(found.sample.features, wanted.sample.features)
    np.testing.assert_array_equal(found.sample.weight, wanted.sample.weight)
    np.testing.assert_allclose(found.outside, wanted.outside, atol=1e-12)
    np.testing.assert_allclose(found.summary.mean, wanted.summary.mean, atol=1e-12)
    np.testing.assert_array_equal(found.summary.class_rows, wanted.summary.class_rows)
    assert found.weight_squares == pytest.approx(wanted.weight_squares)


@settings(max_examples=50)
@given(st.integers(0, 60), st.lists(st.integers(0, 60), max_size=5), st.integers(1, 70))
def test_profile__is_that_of_all_rows_however_they_are_cut(n_rows: int, edges: list[int], most: int) -> None:
    rows = arrays(n_rows)
    bounds = [0, *sorted(min(edge, n_rows) for edge in edges), n_rows]
    parts = [
        profile_block(Block(0, first, {key: value[first:last] for key, value in rows.items()}), 2, WITHIN, most)
        for first, last in pairwise(bounds)
    ]
    kept = np.flatnonzero(rows["weight"] > 0)
    x, s = rows["features"][kept], rows["weight"][kept]
    found = reduce(lambda left, right: merge_profiles(most, left, right), parts, no_profile(3, 2))
    chosen = kept[np.argsort(keyed_draws(stream_key(0, SAMPLE_STREAM), kept))][:most]
    np.testing.assert_array_equal(found.sample.rows, chosen)
    np.testing.assert_array_equal(found.sample.features, rows["features"][chosen])
    np.testing.assert_allclose(found.outside[0], s[np.abs(x[:, 0]) > 1].sum())
    np.testing.assert_allclose(found.outside[2], s[(x[:, 2] < 0) | (x[:, 2] > 0.5)].sum())
    assert found.outside[1] == 0
    assert found.effective_rows == pytest.approx(s.sum() ** 2 / np.sum(s**2) if len(s) else 0)
    assert_same(merge_profiles(most, found, no_profile(3, 2)), found)


@pytest.mark.parametrize("block_rows", [16, 256, 4096])
def test_profile__does_not_depend_on_the_block_size(block_rows: int, engine: Engine) -> None:
    rows = arrays(3000)
    assert_same(
        profile(engine, array_source(rows, block_rows), 2, WITHIN), profile(engine, array_source(rows, 1024), 2, WITHIN)
    )


def test_profile__of_rows_without_a_target_counts_them_as_one_class(engine: Engine) -> None:
    found = profile(engine, array_source({"features": arrays(50)["features"]}, 16), 1, no_range(3))
    assert found.summary.class_rows.tolist() == [50]
    assert not found.outside.any()


@pytest.mark.parametrize("seed", [0, 0x5EED])
def test_profile__draws_other_rows_than_training_with_any_seed(seed: int) -> None:
    most = 20
    found = profile_block(Block(0, 0, {"features": np.zeros((400, 1))}), 1, no_range(1), most).sample.rows
    for batch in range(4):
        candidates = np.argsort(priority(seed, batch, np.arange(400)))[:most]
        assert len(np.intersect1d(found, candidates)) < most / 2
