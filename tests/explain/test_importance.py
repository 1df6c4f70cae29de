"""Permutation importance against scikit-learn's, against loops, and on models whose features are known to matter."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import sklearn.inspection
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from support.errors import refused

from protodask import PrototypeSetClassifier
from protodask.data.format.schema import Column
from protodask.engine import Engine, array_source, thread_engine
from protodask.engine.sources import ArraySource
from protodask.explain import importance
from protodask.explain.importance import permutation_importance, spread
from protodask.prototypes.model import PrototypeSet

MakeModel = Callable[..., PrototypeSet]
Floats = NDArray[np.float64]

CODES = np.arange(3)


def make_source(model: PrototypeSet, n_rows: int = 400, block_rows: int = 128, weighted: bool = False) -> ArraySource:
    """Rows with targets drawn from the model's own probabilities."""
    rng = np.random.default_rng(1)
    features = rng.normal(size=(n_rows, model.n_features))
    scores = model.scores(features, [model.n_batches])[0]
    running = np.cumsum(scores / scores.sum(axis=1, keepdims=True), axis=1)
    target = (rng.random(n_rows)[:, None] > running[:, :-1]).sum(axis=1).astype(np.int32)
    arrays = {"features": features, "target": target}
    if weighted:
        arrays["weight"] = rng.integers(0, 3, n_rows) * 0.5
    return array_source(arrays, block_rows)


def losses(model: PrototypeSet, features: Floats, target: NDArray[np.integer]) -> Floats:
    scores = model.scores(features, [model.n_batches])[0]
    return np.asarray(-np.log(scores[np.arange(len(target)), target] / scores.sum(axis=1)))


@pytest.mark.parametrize("weighted", [False, True])
def test_importance__is_that_of_a_loop(make_model: MakeModel, engine: Engine, weighted: bool) -> None:
    model = make_model()
    source = make_source(model, weighted=weighted)
    found = permutation_importance(model, source, CODES, engine, repeats=3, seed=7)
    deltas, weights = np.zeros((4, 4, 3)), np.zeros(4)
    loss_sum = 0.0
    for number in range(source.layout.n_blocks):
        block = source.read(number)
        weight = block["weight"] if weighted else np.ones(block.n_rows)
        features, target, weight = block["features"][weight > 0], block["target"][weight > 0], weight[weight > 0]
        before = losses(model, features, target)
        weights[number] = weight.sum()
        loss_sum += float(weight @ before)
        for column in range(4):
            for repeat in range(3):
                order = np.random.default_rng((7, repeat, column, number)).permutation(len(features))
                permuted = features.copy()
                permuted[:, column] = features[order, column]
                change = losses(model, permuted, target) - before
                deltas[number, column, repeat] = weight @ change / weight.sum()
    mean = np.einsum("b,bcr->c", weights, deltas) / weights.sum() / 3
    by_block = deltas.mean(axis=2)
    error = np.sqrt(4 / 3 * ((weights[:, None] * (by_block - mean)) ** 2).sum(axis=0)) / weights.sum()
    np.testing.assert_allclose(found.mean, mean, rtol=1e-9)
    np.testing.assert_allclose(found.standard_error, error, rtol=1e-9)
    assert found.log_loss == pytest.approx(loss_sum / weights.sum())
    assert (found.names, found.blocks, found.repeats) == (("x0", "x1", "x2", "x3"), 4, 3)


@pytest.mark.parametrize("factor", [1e-200, 1e300])
def test_importance__does_not_depend_on_a_factor_of_all_weights(
    make_model: MakeModel, engine: Engine, factor: float
) -> None:
    model = make_model()
    source = make_source(model, weighted=True)
    scaled = array_source({**source.arrays, "weight": source.arrays["weight"] * factor}, 128)
    expected, found = (permutation_importance(model, rows, CODES, engine, repeats=2) for rows in (source, scaled))
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-9)
    np.testing.assert_allclose(found.standard_error, expected.standard_error, rtol=1e-9)


def test_importance__of_a_feature_the_model_ignores_is_exactly_zero(make_model: MakeModel, engine: Engine) -> None:
    model = make_model(prototypes=(6,))
    (ignored,) = set(range(4)) - set(model.batches[0].feature_index.tolist())
    found = permutation_importance(model, make_source(model), CODES, engine)
    assert (found.mean[ignored], found.standard_error[ignored]) == (0, 0)
    assert (np.delete(found.mean, ignored) != 0).all()
    nothing = permutation_importance(model, make_source(model), CODES, engine, n_batches=0)
    assert (nothing.mean == 0).all()


def test_importance__of_one_decisive_feature(engine: Engine) -> None:
    rng = np.random.default_rng(0)
    rows = rng.uniform(size=(600, 4))
    target = (rows[:, 2] > 0.5).astype(np.int32)
    model = PrototypeSetClassifier(n_candidates=50, lambda_v=1e-2, tolerance=1e-3).fit(rows, target).model_
    source = array_source({"features": rows, "target": target}, 256)
    found = permutation_importance(model, source, np.arange(2), engine)
    assert found.order[0] == 2
    assert found.mean[2] > 0.5
    assert np.delete(found.mean, 2).max() < 0.05


class Wrapped(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A model as scikit-learn's inspection wants it."""

    def __init__(self, model: PrototypeSet | None = None) -> None:
        self.model = model
        self.classes_ = np.arange(3)

    def fit(self, features: Floats, target: Floats) -> "Wrapped":
        return self

    def predict_proba(self, features: Floats) -> Floats:
        assert self.model is not None
        scores = self.model.scores(features, [self.model.n_batches])[0]
        return np.asarray(scores / scores.sum(axis=1, keepdims=True))


def test_importance__agrees_with_scikit_learns(make_model: MakeModel, engine: Engine) -> None:
    model = make_model(3)
    source = make_source(model, 1000, 1024)
    found = permutation_importance(model, source, CODES, engine, repeats=20)
    expected = sklearn.inspection.permutation_importance(
        Wrapped(model),
        source.arrays["features"],
        source.arrays["target"],
        scoring="neg_log_loss",
        n_repeats=20,
        random_state=0,
    )
    noise = np.hypot(found.standard_error, expected.importances_std / 20**0.5)
    assert (np.abs(found.mean - expected.importances_mean) < 4 * noise).all()
    assert (found.mean[found.mean > 0] > 5 * noise[found.mean > 0]).any(), "there is something to agree on"


def test_importance__is_the_same_on_any_threads(make_model: MakeModel) -> None:
    model = make_model()
    source = make_source(model, 900, 32)
    results = []
    for threads in (1, 2, 5):
        with thread_engine(threads, 2**28) as engine:
            results.append(permutation_importance(model, source, CODES, engine, repeats=2))
    for other in results[1:]:
        assert other.mean.tobytes() == results[0].mean.tobytes()
        assert other.standard_error.tobytes() == results[0].standard_error.tobytes()


def test_importance__features_of_one_column_are_permuted_together(make_model: MakeModel, engine: Engine) -> None:
    """Of two features that always say the same, exchanged alone, each leaves the other to contradict it."""
    model = make_model(5, prototypes=(6,))
    column = Column("colour", "nominal", ("red", "green", "blue"))
    grouped = replace(
        model, columns=(column, Column("x3")), feature_names=("colour=red", "colour=green", "colour=blue", "x3")
    )
    source = make_source(model)
    found = permutation_importance(grouped, source, CODES, engine, repeats=1)
    assert (found.names, found.features) == (("colour", "x3"), ((0, 1, 2), (3,)))
    features, target = source.arrays["features"], source.arrays["target"]
    change = 0.0
    for number in range(source.layout.n_blocks):
        start, stop = source.layout.bounds(number)
        order = np.random.default_rng((0, 0, 0, number)).permutation(stop - start)
        block, labels = features[start:stop], target[start:stop]
        permuted = block.copy()
        permuted[:, :3] = block[order, :3]
        change += float((losses(model, permuted, labels) - losses(model, block, labels)).sum())
    assert found.mean[0] == pytest.approx(change / len(target))


def test_importance__a_row_of_weight_zero_does_not_count(make_model: MakeModel, engine: Engine) -> None:
    model = make_model()
    source = make_source(model, 100, 64)
    target = source.arrays["target"]
    rows = np.concatenate([source.arrays["features"], 100 + source.arrays["features"]])
    weight = np.repeat([1.0, 0.0], 100)
    padded = array_source({"features": rows, "target": np.concatenate([target, target]), "weight": weight}, 256)
    plain = array_source({"features": rows[:100], "target": target}, 128)
    one, other = (permutation_importance(model, each, CODES, engine) for each in (padded, plain))
    np.testing.assert_array_equal(one.mean, other.mean)
    assert one.rows == 100


@given(st.integers(0, 200), st.integers(1, 20))
def test_spread__is_even_and_bounded(length: int, most: int) -> None:
    found = spread(length, most)
    assert len(found) == min(length, most)
    if length:
        gaps = np.diff(np.concatenate([[-1], found, [length]]))
        assert gaps.min() >= 1
        assert gaps.max() <= length / min(length, most) + 1


def test_importance__of_many_rows_uses_some_of_some_blocks(
    make_model: MakeModel, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model()
    source = make_source(model, 5000, 64)
    found = permutation_importance(model, source, CODES, engine, repeats=1, most_rows=320)
    assert (found.blocks, found.rows) == (16, 320)
    # 4 columns, of which each batch looks at 3: 3 x 6 + 3 x 7 similarities a row and repeat.
    monkeypatch.setattr(importance, "MOST_KERNEL_VALUES", 39 * 5 * 800)
    assert permutation_importance(model, source, CODES, engine, repeats=5).rows == 800
    monkeypatch.setattr(importance, "MOST_KERNEL_VALUES", 1)
    assert permutation_importance(model, source, CODES, engine, repeats=5).rows == 512, "at least 500, evenly"


def test_importance__of_one_block_says_the_noise_of_the_repeats(make_model: MakeModel, engine: Engine) -> None:
    model = make_model()
    source = make_source(model, 100, 128)
    several = permutation_importance(model, source, CODES, engine, repeats=4)
    assert (several.standard_error > 0).all()
    once = permutation_importance(model, source, CODES, engine, repeats=1)
    assert np.isnan(once.standard_error).all()


def test_importance__refuses_what_it_cannot_use(make_model: MakeModel, engine: Engine) -> None:
    model = make_model()
    source = make_source(model, 100)
    with refused("bad-setting", "repeats", 0, "at least 1"):
        permutation_importance(model, source, CODES, engine, repeats=0)
    with refused("bad-setting", "seed", -1, "at least 0"):
        permutation_importance(model, source, CODES, engine, seed=-1)
    empty = array_source({name: array[:0] for name, array in source.arrays.items()})
    with refused("no-rows"):
        permutation_importance(model, empty, CODES, engine)
    weightless = array_source({**source.arrays, "weight": np.zeros(100)})
    with refused("no-rows", "weights", 0):
        permutation_importance(model, weightless, CODES, engine)
