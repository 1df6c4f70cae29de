"""Differences of features that go together: which are chosen, and models that look at them."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.errors import refused
from support.models import looking_at_differences, looking_at_scores
from threadpoolctl import threadpool_limits

from protodask import PrototypeSetClassifier
from protodask.data.format.schema import Column
from protodask.engine import Engine, array_source, thread_engine
from protodask.errors import FormatError
from protodask.explain import Explained, all_prototypes, explain_rows, explanation_table, original_rows
from protodask.explain.importance import permutation_importance
from protodask.explain.surface import surface, typical_point
from protodask.prototypes import FitConfig, PrototypeSet, load_model
from protodask.prototypes import rounds as rounds_module
from protodask.prototypes.batches import Batch
from protodask.prototypes.config import FeatureWeights
from protodask.prototypes.forms import (
    ALL_BUT_ONE,
    GO_TOGETHER,
    MOST_DIFFERENCES,
    Pair,
    alike,
    arranged,
    expected_forms,
    learn_forms,
)
from protodask.prototypes.kernel import Differences, Knots, Line
from protodask.prototypes.objective import starting_point
from protodask.prototypes.persistence import model_fingerprint
from protodask.prototypes.pruning import prune
from protodask.prototypes.scores import MemoryScores
from protodask.prototypes.tiles import Precision
from protodask.prototypes.training import Training
from protodask.prototypes.training_data import TrainingData

Arrays = dict[str, NDArray[Any]]
Floats = NDArray[np.float64]
MakeData = Callable[..., TrainingData]
MakeModel = Callable[..., PrototypeSet]
SameBits = Callable[[PrototypeSet, PrototypeSet], None]

PAIRS = [(0, 1, 0.5), (0, 3, -2.0), (2, 3, 1.25)]


@pytest.fixture
def model(make_model: MakeModel) -> PrototypeSet:
    """Two batches of which the second looks at three differences, and the first at a normal score."""
    return looking_at_differences(looking_at_scores(make_model(0, n_features=5)), PAIRS)


def with_columns(model: PrototypeSet, pairs: list[tuple[int, int, float]]) -> PrototypeSet:
    """The same model of rows that have the differences as further columns."""
    names = tuple(f"{first}-{second}" for first, second, _ in pairs)
    last = model.batches[-1]
    assert last.differences is not None
    index = last.feature_index.copy()
    index[last.differences.places] = model.n_features + np.arange(len(pairs))
    return replace(
        model,
        feature_names=(*model.feature_names, *names),
        columns=(*model.columns, *map(Column, names)),
        batches=(*model.batches[:-1], replace(last, feature_index=index, differences=None, compared=None)),
    )


def extended(rows: Floats, pairs: list[tuple[int, int, float]]) -> Floats:
    return np.column_stack([rows, *(rows[:, i] - f * rows[:, j] for i, j, f in pairs)])


def stones(n_rows: int, seed: int = 0) -> Arrays:
    """Lengths that go together; what tells the classes apart is which of two is larger than it should be."""
    rng = np.random.default_rng(seed)
    size = np.exp(rng.normal(size=n_rows))
    off = rng.normal(size=(n_rows, 2))
    x = np.column_stack([size, 1.5 * size + 0.1 * off[:, 0], rng.normal(size=n_rows), -size + 0.2 * off[:, 1]])
    target = (off[:, 0] + 0.3 * rng.normal(size=n_rows) > 0).astype(np.int32)
    return {"features": np.round(x * 1024) / 1024, "target": target}


@given(seed=st.integers(0, 2**20), weighted=st.booleans())
def test_alike__are_the_pairs_of_largest_correlation(seed: int, weighted: bool) -> None:
    rng = np.random.default_rng(seed)
    n_rows, width = int(rng.integers(20, 60)), int(rng.integers(2, 9))
    base = rng.normal(size=n_rows)
    x = rng.choice([-3.0, 1.0, 20.0], width) * (
        base[:, None] + rng.uniform(0, 1, width) * rng.normal(size=(n_rows, width))
    )
    x[:, 0] = rng.integers(0, 2, n_rows)
    weight = rng.integers(1, 4, n_rows).astype(float) if weighted else np.ones(n_rows)
    found = alike(x, weight, np.arange(width))
    copies = np.repeat(x, weight.astype(int), axis=0)  # a weight of two is a row twice
    expected: dict[tuple[int, int], float] = {}
    for i, j in combinations(range(1, width), 2):
        correlation = float(np.corrcoef(copies[:, i], copies[:, j])[0, 1])
        if GO_TOGETHER < abs(correlation) < ALL_BUT_ONE:
            expected[i, j] = correlation
    largest = sorted(expected, key=lambda pair: -abs(expected[pair]))[:MOST_DIFFERENCES]
    assert [(pair.first, pair.second) for pair in found] == sorted(largest)
    for i, j, factor, narrow in found:
        difference = copies[:, i] - factor * copies[:, j]
        assert difference.std() == pytest.approx(narrow * copies[:, i].std(), rel=1e-6)
        assert abs(factor) == pytest.approx(copies[:, i].std() / copies[:, j].std())
        assert np.sign(factor) == np.sign(expected[i, j])


def test_alike__leaves_out_what_says_nothing_more() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    same = np.column_stack([x, 3 * x + 1, np.full(200, 2.0), (x > 0) * 1.0, (x > 0) * 5.0])
    assert alike(same, np.ones(200), np.arange(5)) == []
    near = np.column_stack([x + 1e7, x + 0.001 * rng.normal(size=200) + 1e7]).astype(np.float32)
    assert alike(near, np.ones(200), np.arange(2)) == [], "what is left is rounding"
    assert alike(np.column_stack([x, x + 0.1 * rng.normal(size=200)]), np.ones(200), np.arange(1)) == []


def test_alike__of_no_rows_is_none() -> None:
    assert alike(np.zeros((0, 3)), np.zeros(0), np.arange(3)) == []


def test_alike__of_float64_sees_what_float32_cannot() -> None:
    rng = np.random.default_rng(2)
    began = 1.7e9 + rng.uniform(0, 1e7, 400)
    times = np.column_stack([began + rng.uniform(0, 5000, 400), began])
    ((first, second, factor, narrow),) = alike(times, np.ones(400), np.arange(2))
    assert (first, second) == (0, 1)
    assert (times[:, 0] - factor * times[:, 1]).std() == pytest.approx(narrow * times[:, 0].std(), rel=1e-3)
    assert alike(times.astype(np.float32), np.ones(400), np.arange(2)) == []


def test_alike__has_the_same_bits_on_any_number_of_blas_threads() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(20_000, 1)) + 0.3 * rng.normal(size=(20_000, 100))
    found = []
    for threads in (1, 2, 4):
        with threadpool_limits(threads, "blas"):
            found.append(alike(x, np.ones(20_000), np.arange(100)))
    assert found[0] == found[1] == found[2]


def test_learn_forms__leaves_filled_values_aside(engine: Engine) -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=(500, 1)) + 0.05 * rng.normal(size=(500, 2))
    gone = rng.random(500) < 0.2
    marked = np.column_stack([x[:, 0], np.where(gone, x[~gone, 1].mean(), x[:, 1]), gone])
    columns = [Column("a"), Column("b", filled=0.0, marked=True)]
    arrays = {"features": marked, "target": np.zeros(500, dtype=np.int32)}
    found = learn_forms(engine, array_source(arrays, 64), tuple(arrays), columns, "all", 0)
    (expected,) = alike(x[~gone], np.ones(int((~gone).sum())), np.arange(2))
    assert found.differences is not None
    assert found.narrow is not None
    assert (found.differences.factor[-1], found.narrow[-1]) == (expected.factor, expected.narrow)


def test_alike__of_many_are_the_largest_twenty() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(300, 1)) + np.linspace(0.05, 0.4, 12) * rng.normal(size=(300, 12))
    found = alike(x, np.ones(300), np.arange(12))
    assert len(found) == MOST_DIFFERENCES
    kept = {(pair.first, pair.second) for pair in found}
    correlation: Floats = np.atleast_2d(np.corrcoef(x.T))
    others = [correlation[pair] for pair in combinations(range(12), 2) if pair not in kept]
    assert min(correlation[pair] for pair in kept) >= max(others)


def test_arranged__puts_differences_last_in_the_units_of_the_first() -> None:
    line = Line(np.array([0.0, 1.0]), np.array([-1.0, 2.0]))
    found = arranged([line, None, line], "all", pairs=[Pair(0, 2, 0.5, 0.25)])
    assert found.columns.tolist() == [0, 0, 1, 2, 2, 0]
    standardization = found.standardization(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 8.0]))
    x = np.array([[0.5, 6.0, 1.0]])
    values = standardization.values(x, found.columns)
    # 0.5 - 0.5 * 1 = 0, of which the centre is 1 - 0.5 * 3 and the scale 2 * 0.25
    np.testing.assert_allclose(standardization.apply(values)[0], [-0.25, 0.5, 1, -0.25, 2, 1.0])
    assert found.looked_at(np.array([5])).tolist() == [0, 2]
    assert arranged([line, None, line], "both", pairs=[Pair(0, 2, 0.5, 0.25)]).differences is None


def test_expected_forms__are_at_least_those_that_are_learned(engine: Engine) -> None:
    arrays = stones(300)
    columns = [Column(name) for name in "abcd"]
    found = learn_forms(engine, array_source(arrays, 64), tuple(arrays), columns, "all", 0)
    assert found.differences is not None
    assert [
        (int(found.columns[place]), int(found.differences.others[place])) for place in found.differences.places
    ] == [(0, 1), (0, 3), (1, 3)]
    assert len(found.columns) <= len(expected_forms(columns, "all").columns)


def test_scores__are_those_of_the_differences_as_columns(model: PrototypeSet) -> None:
    rng = np.random.default_rng(3)
    kinds: list[tuple[Precision, float]] = [("float64", 1e-12), ("float32", 1e-5)]
    for precision, bound in kinds:
        rows = rng.normal(size=(40, 5)).astype(precision)
        one, other = replace(model, precision=precision), replace(with_columns(model, PAIRS), precision=precision)
        expected = other.scores(extended(rows.astype(np.float64), PAIRS), [1, 2])
        for found, wanted in zip(one.scores(rows, [1, 2]), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=bound)


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["shared", "class"])
def test_training__is_that_on_the_differences_as_columns(
    engine: Engine, training_data: MakeData, monkeypatch: pytest.MonkeyPatch, weights: FeatureWeights
) -> None:
    # That features are forms of fewer others is what the starting point alone knows of.
    monkeypatch.setattr(rounds_module, "starting_point", lambda one: starting_point(replace(one, columns=None)))
    config = FitConfig.of("source", n_candidates=16, lambda_w=1e-4, tolerance=1e-4, seed=3, precision="float64")
    config = replace(config, feature_forms="all", feature_weights=weights)
    data = training_data(stones(150))
    model, history = Training(data, config, engine, MemoryScores()).run()
    forms = learn_forms(engine, data.source, data.array_names, [Column(name) for name in "abcd"], "all", config.seed)
    standardization = forms.standardization(data.summary.mean, data.summary.scale)

    def transformed(arrays: Arrays) -> Arrays:
        values = standardization.values(arrays["features"], forms.columns)
        return {**arrays, "features": standardization.apply(values)}

    plain = replace(config, feature_forms="plain", standardize=False)
    direct, expected = Training(training_data(transformed(stones(150))), plain, engine, MemoryScores()).run()
    assert [record.iterations for record in history] == [record.iterations for record in expected]
    np.testing.assert_allclose([record.value for record in history], [record.value for record in expected], rtol=1e-7)
    fresh = stones(100, seed=9)
    (scores,) = model.scores(fresh["features"], [model.n_batches])
    (other,) = direct.scores(transformed(fresh)["features"], [direct.n_batches])
    np.testing.assert_allclose(scores, other, rtol=1e-4)
    raw = stones(150)["features"]
    assert any(batch.differences is not None for batch in model.batches)
    for batch in model.batches:
        np.testing.assert_array_equal(batch.prototypes, batch.values(raw[batch.row]))
        for feature in batch.looked_at.tolist():
            values = batch.values_of(feature)
            assert values is not None
            np.testing.assert_allclose(values, raw[batch.row, feature], rtol=1e-12)


@pytest.mark.slow
def test_model__sees_what_is_left_of_columns_that_go_together() -> None:
    arrays, fresh = stones(600), stones(2000, seed=1)
    losses = {}
    for forms in ("both", "all"):
        model = PrototypeSetClassifier(feature_forms=forms).fit(arrays["features"], arrays["target"])
        own = model.predict_proba(fresh["features"])[np.arange(2000), fresh["target"]]
        losses[forms] = -np.log(own).mean()
    assert losses["all"] < 0.9 * losses["both"]


def test_save__keeps_differences_to_the_last_bit(
    model: PrototypeSet, assert_same_bits: SameBits, tmp_path: Path
) -> None:
    model.save(tmp_path / "m.zarr")
    found = load_model(tmp_path / "m.zarr")
    assert_same_bits(found, model)
    assert model_fingerprint(found) == model_fingerprint(model)
    last = model.batches[-1]
    assert last.differences is not None
    other = replace(last, differences=replace(last.differences, factor=last.differences.factor * 1.5))
    assert model_fingerprint(replace(model, batches=(model.batches[0], other))) != model_fingerprint(model)


@pytest.mark.parametrize(
    ("others", "factor"),
    [
        ([1, 3, 5], [0.5, -2.0, 1.25]),
        ([0, 3, 3], [0.5, -2.0, 1.25]),
        ([3, 1, 3], [0.5, -2.0, 1.25]),
        ([1, 3, -1], [0.5, -2.0, 1.25]),
        ([1, 3, -1], [0.5, -2.0, 0.0]),
        ([1, 3, 3], [0.5, np.inf, 1.25]),
        ([1, 3, 3], [0.5, 0.0, 1.25]),
    ],
    ids=["beyond", "itself", "out of order", "a factor of none", "fewer", "infinite", "no factor"],
)
def test_load__refuses_differences_that_make_no_sense(
    model: PrototypeSet, tmp_path: Path, others: list[int], factor: list[float]
) -> None:
    last = model.batches[-1]
    alone = last.n_features - 3
    wrong = Differences(np.array([-1] * alone + others), np.array([0.0] * alone + factor))
    replace(model, batches=(model.batches[0], replace(last, differences=wrong))).save(tmp_path / "m.zarr")
    with refused("damaged", kind=FormatError):
        load_model(tmp_path / "m.zarr")


def test_names_in__say_of_what_differences_are(model: PrototypeSet) -> None:
    assert model.names_in(model.batches[-1])[-3:] == ("x0 - 0.5 x1", "x0 + 2 x3", "x2 - 1.25 x3")


def test_looked_at__has_both_features_of_a_difference(make_model: MakeModel) -> None:
    plain = make_model(0, n_features=6, n_active=1)
    model = looking_at_differences(plain, [(1, 4, 0.5)])
    assert set(model.active_features.tolist()) == {1, 4, *plain.active_features.tolist()}
    batch = model.batches[-1]
    assert batch.places_of(4).tolist() == np.flatnonzero(plain.batches[-1].feature_index == 4).tolist()


def test_shrink__keeps_both_features_of_a_difference(make_model: MakeModel) -> None:
    model = looking_at_differences(make_model(0, n_features=9, n_active=1), [(2, 7, 0.5), (3, 7, -1.5)])
    small = model.shrink()
    kept = [model.feature_names.index(name) for name in small.feature_names]
    assert {2, 3, 7} <= set(kept) < set(range(9))
    rows = np.random.default_rng(0).normal(size=(20, 9))
    (found,), (expected,) = small.scores(rows[:, kept], [2]), model.scores(rows, [2])
    assert found.tobytes() == expected.tobytes()


@pytest.mark.slow
def test_prune__goes_on_with_differences(engine: Engine) -> None:
    arrays = stones(400)
    fitted = PrototypeSetClassifier(n_candidates=60, n_draws=2, random_state=1).fit(
        arrays["features"], arrays["target"]
    )
    assert any(batch.differences is not None for batch in fitted.model_.batches)
    pruned = prune(fitted.model_, 20, array_source(arrays, 128), np.arange(2), engine)
    assert pruned.model.n_prototypes <= 20
    for batch in pruned.model.batches:
        np.testing.assert_array_equal(batch.prototypes, batch.values(arrays["features"][batch.row]))
    fresh = stones(1000, seed=1)
    loss = [
        -np.log(q[np.arange(1000), fresh["target"]] / q.sum(axis=1)).mean()
        for one in (fitted.model_, pruned.model)
        for q in one.scores(fresh["features"], [one.n_batches])
    ]
    assert loss[1] < loss[0] + 0.05


def test_explanations__compare_differences_as_such(model: PrototypeSet) -> None:
    rows = np.random.default_rng(5).normal(size=(6, 5))
    found = explain_rows(model, rows)
    expected = explain_rows(with_columns(model, PAIRS), extended(rows, PAIRS))
    for row, one, other in zip(rows, found, expected, strict=True):
        np.testing.assert_allclose(one.probability, other.probability)
        for mine, its in zip(one.contributions, other.contributions, strict=True):
            assert [match[1:] for match in mine.features] == [match[1:] for match in its.features]
            if mine.batch == 2:
                assert mine.features[-3].name == "x0 - 0.5 x1"
                assert mine.features[-3].value == row[0] - 0.5 * row[1]


def test_explanation_table__has_differences_and_scores(model: PrototypeSet) -> None:
    rows = np.random.default_rng(5).normal(size=(4, 5))
    pairs = zip(rows, explain_rows(model, rows), strict=True)
    explained = [Explained(number, row, one) for number, (row, one) in enumerate(pairs)]
    columns: Any = explanation_table(model, explained).columns
    similar = [name for name in columns if name.startswith("similarity_")]
    assert {"similarity_x0 - 0.5 x1", f"similarity_{model.names_in(model.batches[0])[1]}"} <= set(similar)
    for place, part in enumerate(columns["part"]):
        known = [columns[name][place] for name in similar if columns[name][place] is not None]
        if part == "prototype":
            assert np.prod(known) == pytest.approx(columns["similarity"][place])
        if part == "row":
            number = columns["row"][place]
            assert columns["x0 - 0.5 x1"][place] == rows[number, 0] - 0.5 * rows[number, 1]
        if part == "prototype" and columns["batch"][place] == 2:
            assert all(columns[name][place] is not None for name in ("x0", "x1", "x2", "x3", "x0 - 0.5 x1"))


def test_explanations__of_rows_far_away_say_nothing_of_overflow(model: PrototypeSet) -> None:
    far = np.array([[-1e308, 1e308, 0, 1e308, 0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (found,) = explain_rows(model, far)
    assert found.familiarity < 1e9


def test_forgiving_columns__of_a_score_are_its_median_though_that_is_0() -> None:
    line = Line(np.array([-1.0, 0.0, 1.0]), np.array([-1.0, 0.0, 1.0]))
    batch = Batch(
        feature_index=np.array([0]),
        feature_weight=np.ones(1),
        center=np.zeros(1),
        scale=np.ones(1),
        prototypes=np.array([[5.0], [7.0]]),
        prototype_class=np.array([0, 1]),
        prototype_weight=np.ones(2),
        row=np.arange(2),
        knots=Knots.of([line], 3),
    )
    model = PrototypeSet(np.array([0.5, 0.5]), ("a", "b"), ("x",), (Column("x"),), batches=(batch,))
    assert model.forgiving_columns[0].filled == 0.0


def test_importance__permutes_both_features_of_a_difference(make_model: MakeModel, engine: Engine) -> None:
    model = looking_at_differences(make_model(0, n_batches=1, n_features=5, n_active=1), [(1, 4, 0.5)])
    rng = np.random.default_rng(0)
    arrays: Arrays = {"features": rng.normal(size=(200, 5)), "target": rng.integers(0, 3, 200).astype(np.int32)}
    found = permutation_importance(model, array_source(arrays, 64), np.arange(3), engine=engine)
    looked_at = np.isin(np.arange(5), model.active_features)
    assert ((found.mean != 0) == looked_at).all()
    assert {1, 4} <= set(model.active_features.tolist())


def test_typical_point__knows_features_that_are_in_differences_alone(make_model: MakeModel) -> None:
    model = looking_at_differences(make_model(0, n_batches=1, n_features=6, n_active=1), [(1, 4, 0.5)])
    batch = model.batches[0]
    point = typical_point(model)
    assert batch.compared is not None
    assert point[4] in batch.compared
    assert point[1] in batch.prototypes[:, -1] + 0.5 * batch.compared[:, 0]
    drawn = surface(model, 1, 4, n_points=5)
    assert drawn.probability.shape == (5, 5, 3)
    assert len(drawn.prototypes)
    held = original_rows(model, all_prototypes(model))[0]
    assert {"x1", "x4"} <= set(held.values)


def test_surface__leaves_out_differences_with_a_feature_of_the_plane(make_model: Callable[..., PrototypeSet]) -> None:
    model = looking_at_differences(make_model(0, n_batches=1, n_features=5, n_active=1), [(1, 4, 0.5)])
    (batch,) = model.batches
    still = surface(model, 4, int(batch.feature_index[0]), n_points=3)
    np.testing.assert_allclose(still.prototype_impact, np.sort(batch.prototype_weight)[::-1][: len(still.prototypes)])
    assert len(still.prototypes) == batch.n_prototypes


@pytest.mark.slow
def test_fit__with_differences_has_the_same_bits_on_any_number_of_threads(assert_same_bits: SameBits) -> None:
    arrays = stones(500)
    found = []
    for threads in (1, 3):
        with thread_engine(threads, 2**28) as engine:
            one = PrototypeSetClassifier(n_candidates=40, engine=engine, max_iterations=40)
            found.append(one.fit(arrays["features"].astype(np.float32), arrays["target"]).model_)
    assert_same_bits(*found)
    assert any(batch.differences is not None for batch in found[0].batches)
