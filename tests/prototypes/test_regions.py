"""Regions of rules: when there are any, which rows are in them, and which candidates train together."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import log_loss
from sklearn.tree import DecisionTreeClassifier

from protodask import PrototypeSetClassifier, thread_engine
from protodask.data.format.schema import Column
from protodask.data.tables.ingest import ingest_arrays
from protodask.engine import array_source, open_engine
from protodask.prototypes.config import FeatureForms, FitConfig
from protodask.prototypes.fitting import fit
from protodask.prototypes.forms import Forms, learn_forms
from protodask.prototypes.persistence import model_fingerprint
from protodask.prototypes.regions import (
    FEWEST_CANDIDATES,
    Regions,
    class_groups,
    grow,
    learn_regions,
    most_groups,
)

Rows = tuple[NDArray[np.float64], NDArray[np.int64]]

pytestmark = pytest.mark.filterwarnings(
    "ignore:Round . stopped early:protodask.prototypes.convergence.ConvergenceWarning"
)


def graded(rows: int, seed: int = 0) -> Rows:
    """Eight columns of three ranks, a column of zeros and ones for each rank, and four classes by rules over them."""
    rank = np.random.default_rng(seed).integers(0, 3, (rows, 8))
    large = (rank[:, 1] + rank[:, 2] >= 2) * 1 + (rank[:, 3:6].sum(axis=1) >= 3) + (rank[:, 6] + rank[:, 7] >= 3)
    return np.eye(3)[rank].reshape(rows, 24), np.where(rank[:, 0] == 2, 0, 1 + np.minimum(large, 2))


def of_chance(rows: int) -> Rows:
    random = np.random.default_rng(1)
    return random.standard_normal((rows, 6)), random.integers(0, 2, rows)


def of_one_threshold(rows: int) -> Rows:
    x = np.random.default_rng(2).standard_normal((rows, 6))
    return x, (x[:, 3] > 0.2).astype(int)


def of_boundary(rows: int) -> Rows:
    random = np.random.default_rng(3)
    x = random.standard_normal((rows, 6))
    return x, (x[:, 0] + x[:, 1] + random.standard_normal(rows) > 0).astype(int)


@pytest.mark.parametrize("seed", range(4))
def test_learn_regions__of_rules_over_several_features(seed: int) -> None:
    features, target = graded(4000, seed)
    regions = learn_regions(features, target, np.ones(4000))
    assert regions is not None
    assert len(np.unique(regions.of(features))) > 8


@pytest.mark.parametrize("make", [of_chance, of_one_threshold, of_boundary])
def test_learn_regions__are_none_where_rules_do_not_decide(make: Any) -> None:
    features, target = make(4000)
    assert learn_regions(features, target, np.ones(4000)) is None


def test_learn_regions__are_none_of_few_rows_and_of_wide_ones() -> None:
    features, target = graded(4000)
    few = np.random.default_rng(0).integers(0, 4, (1000, 3)).astype(float)
    rule = np.minimum(few[:, 0], few[:, 1]).astype(int) + (few[:, 2] >= 2) * (few[:, 0] > 0)
    assert learn_regions(few, rule, np.ones(1000)) is not None
    assert learn_regions(few[:999], rule[:999], np.ones(999)) is None
    assert learn_regions(np.repeat(features, 30, axis=1), target, np.ones(4000)) is None, "too wide"
    for place in range(0, 4000, 100):  # a row that weighs next to nothing, left out or not
        light = (np.arange(4000) == place).astype(int)
        assert learn_regions(features, light, np.where(light, 1e-30, 1.0)) is None


@pytest.mark.parametrize("seed", range(12))
def test_learn_regions__do_not_hang_on_whether_a_rare_class_is_left_out(seed: int) -> None:
    features, target = graded(4000)
    rows = np.random.default_rng(seed).choice(4000, 3, replace=False)
    target[rows] = 9
    assert learn_regions(features, target, np.ones(4000)) is not None


def test_learn_regions__do_not_hang_on_rows_of_weight_0() -> None:
    features, target = graded(4000)
    target[7] = 9
    assert learn_regions(features, target, np.where(target == 9, 0.0, 1.0)) is not None


@pytest.mark.parametrize("weight", [3.0, 30.0])
def test_learn_regions__count_rows_by_their_weights(weight: float) -> None:
    """Leaves of few rows of a class that weighs much were taken to be mostly of the others."""
    features, target = graded(5000)
    assert learn_regions(features, target, np.where(target == 1, weight, 1.0)) is not None
    by_chance = np.random.default_rng(0).integers(0, 4, 5000)
    assert learn_regions(features, by_chance, np.where(by_chance == 1, weight, 1.0)) is None


def test_learn_regions__do_not_depend_on_the_scale_of_weights() -> None:
    features, target = graded(4000)
    one, other = (learn_regions(features, target, np.full(4000, weight)) for weight in (1.0, 2.0**-10))
    assert one is not None
    assert other is not None
    assert np.array_equal(one.of(features), other.of(features))


@given(st.integers(0, 1000), st.integers(2, 40))
def test_regions__are_the_leaves_of_the_tree(seed: int, leaves: int) -> None:
    random = np.random.default_rng(seed)
    features = np.round(random.standard_normal((200, 4)), 1)
    tree = DecisionTreeClassifier(max_leaf_nodes=leaves, random_state=0).fit(features, random.integers(0, 3, 200)).tree_
    regions = Regions(tree.feature.clip(-1), tree.threshold, tree.children_left, tree.children_right)
    asked = np.round(random.standard_normal((50, 4)), 1)
    assert np.array_equal(regions.of(asked.astype(np.float32)), tree.apply(asked.astype(np.float32)))
    missing = np.where(random.random(asked.shape) < 0.2, np.nan, asked)
    assert np.array_equal(regions.of(missing), regions.of(np.nan_to_num(missing)))


@given(st.integers(0, 1000), st.integers(1, 6), st.integers(1, 40), st.integers(1, 60), st.integers(1, 600))
def test_class_groups__are_of_one_class_each_and_none_is_small(
    seed: int, n_classes: int, n_leaves: int, n_features: int, n_candidates: int
) -> None:
    random = np.random.default_rng(seed)
    classes = np.sort(random.integers(0, n_classes, n_candidates))
    leaves = random.integers(0, n_leaves, n_candidates) ** 2 // n_leaves
    group = class_groups(classes, leaves, n_features)
    kinds = len(np.unique(classes))
    assert np.array_equal(np.unique(group), np.arange(group.max() + 1))
    assert kinds <= group.max() + 1 <= most_groups(kinds, n_candidates, n_features)
    for number in range(group.max() + 1):
        own = group == number
        (label,) = np.unique(classes[own])
        assert np.count_nonzero(own) >= FEWEST_CANDIDATES or np.array_equal(own, classes == label)
    order = np.argsort(group, kind="stable")
    assert np.array_equal(classes[order], classes), "ascending by class"
    for pair in set(zip(classes.tolist(), leaves.tolist(), strict=True)):
        assert len(np.unique(group[(classes == pair[0]) & (leaves == pair[1])])) == 1, "who is alike is together"


def stated(codes: NDArray[np.int64], weight: NDArray[np.float64]) -> float:
    """Bits that state the classes of some rows, by their shares."""
    mass = np.array([weight[codes == code].sum() for code in np.unique(codes)])
    return float(-(mass * np.log2(mass / mass.sum())).sum())


@given(st.integers(0, 1000), st.integers(2, 12), st.integers(2, 4), st.booleans())
def test_grow__makes_the_split_first_that_saves_most_bits(
    seed: int, leaves: int, n_classes: int, weighted: bool
) -> None:
    random = np.random.default_rng(seed)
    features = random.integers(0, 9, (120, 3)) + 0.25 * np.arange(3)
    above = features @ random.standard_normal(3) + random.standard_normal(120) > 0
    codes = above * random.integers(1, n_classes, 120)
    weight = random.uniform(0.5, 2, 120) if weighted else np.ones(120)

    def saved(rows: NDArray[np.int64], feature: int, threshold: float) -> float:
        left = features[rows, feature] <= threshold
        if min(left.sum(), (~left).sum()) < 5:
            return 0.0
        parts = (rows[left], rows[~left])
        return stated(codes[rows], weight[rows]) - sum(stated(codes[part], weight[part]) for part in parts)

    def best(rows: NDArray[np.int64]) -> float:
        return max(saved(rows, feature, value) for feature in range(3) for value in np.unique(features[:, feature]))

    tree = grow(features, codes, weight, leaves)
    left_over = {0: np.arange(120)}
    for step in range(np.count_nonzero(tree.node_feature >= 0)):
        (node,) = np.flatnonzero(tree.node_left == 2 * step + 1)
        most = max(map(best, left_over.values()))
        rows = left_over.pop(int(node))
        feature, threshold = int(tree.node_feature[node]), float(tree.node_threshold[node])
        assert saved(rows, feature, threshold) == pytest.approx(most, abs=1e-9)
        below = features[rows, feature] <= threshold
        left_over |= {2 * step + 1: rows[below], 2 * step + 2: rows[~below]}
    assert len(left_over) == leaves or max(map(best, left_over.values())) < 1e-9
    for leaf, rows in left_over.items():
        assert (tree.of(features[rows]) == leaf).all()


def test_grow__of_many_values_splits_between_bins_of_them() -> None:
    x = np.random.default_rng(0).standard_normal((3000, 2)) * [1e300, 1.0]
    codes = (x[:, 0] > 4e299).astype(np.int64)
    tree = grow(np.where(x == x[5], np.nan, x), codes, np.ones(3000), 4)
    right = tree.of(x) == tree.of(np.array([[3e300, 0.0]]))
    assert np.mean(right == (codes == 1)) > 0.96


def test_grow__of_rows_that_are_all_alike_is_one_leaf() -> None:
    tree = grow(np.ones((100, 3)), np.arange(100) % 2, np.ones(100), 8)
    assert tree.of(np.zeros((4, 3))).tolist() == [0] * 4


def test_forms__remember_regions() -> None:
    features, target = graded(4000)
    regions = learn_regions(features, target, np.ones(4000))
    again = Forms.of_arrays(Forms(np.arange(24), regions=regions).arrays()).regions
    assert regions is not None
    assert again is not None
    assert np.array_equal(again.of(features), regions.of(features))
    assert Forms.of_arrays(Forms(np.arange(24)).arrays()).regions is None


SETTINGS: dict[str, Any] = {"n_candidates": 900, "n_draws": 2, "max_iterations": 40}


def test_fit__has_batches_by_class_and_region_where_rules_decide() -> None:
    features, target = graded(4000)
    other, truth = graded(4000, 9)
    found = PrototypeSetClassifier(**SETTINGS).fit(features, target)
    by_class = PrototypeSetClassifier(**SETTINGS, feature_weights="class").fit(features, target)
    assert by_class.model_.n_batches == 2 * 4
    assert found.model_.n_batches > 10
    assert found.model_.n_rounds == 1
    assert all(len(set(batch.prototype_class.tolist())) == 1 for batch in found.model_.batches[:8])
    first, second = found.history_
    assert (first.batches, first.by_region) == (found.model_.n_batches - second.kept, True)
    assert (second.batches, second.by_region) == (1, False)
    assert [(record.batches, record.by_region) for record in by_class.history_] == [(4, False)] * 2
    assert log_loss(truth, found.predict_proba(other)) < 0.6 * log_loss(truth, by_class.predict_proba(other))
    explained: Any = found.explain(other[0])
    np.testing.assert_allclose(explained.probability, found.predict_proba(other[:1])[0], rtol=1e-5)


def test_fit__of_too_few_candidates_for_regions_is_by_class() -> None:
    features, target = graded(2000)
    assert learn_regions(features, target, np.ones(2000)) is not None
    first, second = PrototypeSetClassifier(n_candidates=80, n_draws=2, max_iterations=2).fit(features, target).history_
    assert (first.batches, first.by_region) == (4, False)
    assert (second.batches, second.by_region) == (1, False)


def test_fit__by_region_has_the_same_bits_however_it_is_computed_and_goes_on(tmp_path: Path) -> None:
    features, target = graded(4000)
    config = FitConfig(n_candidates=900, n_draws=2, max_iterations=12)
    prints = set()
    for block_rows, threads in ((512, 1), (512, 2), (4096, 2)):
        data = ingest_arrays(features, target, tmp_path / f"{block_rows}-{threads}.zarr", block_rows=block_rows)
        with thread_engine(threads) as engine:
            run = tmp_path / f"run-{block_rows}-{threads}"
            first = fit(data, config, engine=engine, run_dir=run).model
            (run / "state.json").unlink(missing_ok=True)
            again = fit(data, config, engine=engine, run_dir=run).model
        assert model_fingerprint(first) == model_fingerprint(again)
        if block_rows == 512:
            prints.add(model_fingerprint(first))
        assert first.n_batches > 10
    assert len(prints) == 1


def test_learn_forms__asks_for_regions_only_where_draws_take_turns() -> None:
    features, target = graded(4000)
    source = array_source({"features": features, "target": target.astype(np.int32)}, 1024)
    columns = [Column(f"x{place}") for place in range(24)]
    with open_engine(None) as engine:
        asked: tuple[tuple[FeatureForms, bool, bool], ...] = (
            ("all", True, True),
            ("all", False, False),
            ("both", True, False),
        )
        for wanted, by_region, there in asked:
            found = learn_forms(engine, source, ("features", "target"), columns, wanted, 0, "float64", by_region)
            assert (found.regions is not None) == there
