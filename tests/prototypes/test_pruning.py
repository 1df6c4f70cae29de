"""Fewer prototypes: those stay that the rows would miss most, and what is left is an ordinary model."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.errors import refused

from protodask import PrototypeSetClassifier
from protodask.engine import Engine, array_source, thread_engine
from protodask.engine.sources import ViewedSource
from protodask.prototypes import FitConfig, PrototypeSet, load_model
from protodask.prototypes.draws import Fitting
from protodask.prototypes.objective import Objective, Penalty
from protodask.prototypes.pruning import COSTS, PRUNED, Pruned, _Fitting, _join, _known_rows, _Rows, prune
from protodask.prototypes.scores import MemoryScores
from protodask.prototypes.splines import SplineCalibration
from protodask.prototypes.training_data import TrainingData

from reference import objective as oracle  # isort: skip

Arrays = dict[str, NDArray[Any]]
Floats = NDArray[np.float64]
MakeRows = Callable[..., Arrays]
MakeData = Callable[..., TrainingData]
MakeModel = Callable[..., PrototypeSet]
SameBits = Callable[[PrototypeSet, PrototypeSet], None]


@pytest.fixture(scope="module")
def arrays(make_rows: MakeRows) -> Arrays:
    return make_rows(300, 3)


@pytest.fixture(scope="module")
def fitted(engine: Engine, arrays: Arrays, training_data: MakeData) -> PrototypeSet:
    """Two rounds of two draws, whose batches have scales and normal scores of their own."""
    config = FitConfig(n_candidates=40, n_batches=2, n_draws=2, precision="float64", seed=2)
    fitting = Fitting(config, engine, lambda draw: MemoryScores())
    return fitting.run(training_data(arrays, 256), grouped=False, company="side by side", most=2)[0]


@pytest.fixture(scope="module")
def pruned(fitted: PrototypeSet, arrays: Arrays, engine: Engine) -> Pruned:
    return prune(fitted, 40, array_source(arrays, 128), np.arange(2), engine)


def impacts(model: PrototypeSet, arrays: Arrays) -> tuple[Floats, NDArray[np.int64]]:
    """`w_j K_j(x_n)` (N, J), 0 where the row is the prototype, and the classes of the prototypes."""
    columns: list[Floats] = []
    for batch in model.batches:
        rows = batch.standardization.apply(arrays["features"][:, batch.feature_index])
        own = batch.standardization.apply(batch.prototypes)
        for j in range(batch.n_prototypes):
            distance = (((rows - own[j]) * batch.feature_weight) ** 2).sum(axis=1)
            column = batch.prototype_weight[j] * np.exp(-distance / 2)
            column[np.arange(len(rows)) == batch.row[j]] = 0
            columns.append(column)
    return np.stack(columns, axis=1), np.concatenate([batch.prototype_class for batch in model.batches])


def log_loss(model: PrototypeSet, arrays: Arrays, without: int | None = None) -> float:
    """Mean of the rows, by all prototypes but one."""
    impact, classes = impacts(model, arrays)
    if without is not None:
        impact[:, without] = 0
    q = model.marginals + impact @ np.eye(model.n_classes)[classes]
    return float(-np.log(q[np.arange(len(q)), arrays["target"]] / q.sum(axis=1)).mean())


def test_costs__are_what_rows_lose_without_each_prototype(engine: Engine, fitted: PrototypeSet, arrays: Arrays) -> None:
    data = ViewedSource(array_source(arrays, 128), _Rows(np.arange(2)), "pruning")
    rows = _known_rows(fitted, engine, data)
    np.testing.assert_array_equal(rows, np.concatenate([batch.row for batch in fitted.batches]))
    found = _Fitting(engine, data, 240.0, 60.0).costs(_join(fitted, rows))
    whole = log_loss(fitted, arrays)
    assert found.loss / 300 == pytest.approx(whole, rel=1e-9)
    for j in range(0, fitted.n_prototypes, 11):
        assert found.by_candidate[j] / 300 == pytest.approx(log_loss(fitted, arrays, j) - whole, abs=1e-9)


def test_join__is_the_model_again(fitted: PrototypeSet, make_rows: MakeRows) -> None:
    rows = make_rows(40, 8)["features"]
    joint = _join(fitted, np.full(fitted.n_prototypes, -1))
    again = joint.model()
    assert again.round_ends == fitted.round_ends
    for found, expected in zip(again.batches, fitted.batches, strict=True):
        np.testing.assert_array_equal(found.prototypes, expected.prototypes)
    np.testing.assert_allclose(scores(again, rows), scores(fitted, rows), rtol=1e-9)
    # As one round it says the same.
    problem = joint.problem(1.0, 0.0)
    standardized = problem.standardization.apply(rows[:, joint.columns])
    total = np.tile(fitted.marginals, (40, 1))
    for own, v in zip(problem.places, problem.split(joint.theta)[0], strict=True):
        squares = (standardized[:, None] - problem.candidates.features[own]) ** 2
        total += (np.exp(-0.5 * squares @ v**2) * joint.weight[own]) @ np.eye(2)[problem.candidates.classes[own]]
    np.testing.assert_allclose(total, scores(fitted, rows), rtol=1e-9)


def scores(model: PrototypeSet, rows: NDArray[Any]) -> Floats:
    return model.scores(rows, [model.n_batches])[0]


def test_objective__of_rows_among_which_are_the_candidates_has_the_gradient_of_finite_differences(
    engine: Engine, fitted: PrototypeSet, arrays: Arrays
) -> None:
    data = ViewedSource(array_source(arrays, 128), _Rows(np.arange(2)), "pruning")
    joint = _join(fitted, _known_rows(fitted, engine, data))
    chosen = np.sort(np.random.default_rng(0).choice(joint.n_prototypes, 12, replace=False))
    joint = joint.part(chosen)
    problem = joint.problem(240.0, 60.0)
    function = Objective(engine, data, problem, problem, Penalty(1e-3, 0.5), Penalty(1e-3, 0.5))
    slope = oracle.finite_difference(lambda point: function(point)[0], joint.theta)
    np.testing.assert_allclose(function(joint.theta)[1], slope, rtol=1e-5, atol=2e-7)


@pytest.mark.slow
def test_prune__keeps_what_matters(engine: Engine, fitted: PrototypeSet, arrays: Arrays, make_rows: MakeRows) -> None:
    told: list[Any] = []
    found = prune(fitted, 12, array_source(arrays, 128), np.arange(2), engine, told.append)
    assert 1 <= found.model.n_prototypes <= 12 < fitted.n_prototypes
    assert [stage.prototypes for stage in found.stages] == sorted({stage.prototypes for stage in told}, reverse=True)
    assert found.stages[0].log_loss == pytest.approx(log_loss(fitted, arrays), rel=1e-9)
    assert found.stages[-1].log_loss == pytest.approx(log_loss(found.model, arrays), rel=1e-9)
    assert found.cost == found.stages[-1].log_loss - found.stages[0].log_loss
    assert found.model.provenance[PRUNED]["prototypes"] == fitted.n_prototypes
    fresh = make_rows(2000, 77)
    many, few = (losses(model, fresh) for model in (fitted, found.model))
    at_random = losses(without_refit(fitted, 12), fresh)
    assert few < many + 0.1
    assert few < at_random - 0.1


def losses(model: PrototypeSet, arrays: Arrays) -> float:
    q = scores(model, arrays["features"])
    return float(-np.log(q[np.arange(len(q)), arrays["target"]] / q.sum(axis=1)).mean())


def without_refit(model: PrototypeSet, n_prototypes: int) -> PrototypeSet:
    """Prototypes drawn at random, as they are."""
    joint = _join(model, np.full(model.n_prototypes, -1))
    chosen = np.random.default_rng(0).choice(model.n_prototypes, n_prototypes, replace=False)
    return joint.part(np.sort(chosen)).model()


@pytest.mark.parametrize("threads", [1, 3])
def test_prune__gives_the_same_bits(
    fitted: PrototypeSet, pruned: Pruned, arrays: Arrays, assert_same_bits: SameBits, threads: int
) -> None:
    with thread_engine(threads) as other:
        found = prune(fitted, 40, array_source(arrays, 128), np.arange(2), other)
    assert_same_bits(found.model, pruned.model)
    assert found.stages == pruned.stages


def test_prune__of_classes_in_another_order_is_the_same(
    fitted: PrototypeSet, pruned: Pruned, arrays: Arrays, engine: Engine, assert_same_bits: SameBits
) -> None:
    turned = {**arrays, "target": 1 - arrays["target"]}
    assert_same_bits(prune(fitted, 40, array_source(turned, 128), np.array([1, 0]), engine).model, pruned.model)


def test_prune__to_more_than_there_are_leaves_all(fitted: PrototypeSet, arrays: Arrays, engine: Engine) -> None:
    found = prune(fitted, 10_000, array_source(arrays, 128), np.arange(2), engine)
    assert found.model.n_prototypes == fitted.n_prototypes
    assert (len(found.stages), found.cost) == (1, 0.0)


def test_prune__leaves_as_many_as_it_may(fitted: PrototypeSet, arrays: Arrays, engine: Engine) -> None:
    most = fitted.n_prototypes - 3
    assert 0.9 * most < prune(fitted, most, array_source(arrays, 128), np.arange(2), engine).model.n_prototypes <= most


def test_prune__leaves_a_calibration_behind_that_was_of_another_model(
    fitted: PrototypeSet, arrays: Arrays, engine: Engine, make_calibration: Callable[..., SplineCalibration]
) -> None:
    calibrated = replace(fitted, calibration=make_calibration(n_batches=fitted.n_batches, n_classes=2))
    assert prune(calibrated, 30, array_source(arrays, 128), np.arange(2), engine).model.calibration is None


def test_known_rows__are_those_of_the_number_the_values_and_the_class(
    fitted: PrototypeSet, arrays: Arrays, engine: Engine
) -> None:
    rows, classes = (
        np.concatenate([getattr(batch, name) for batch in fitted.batches]) for name in ("row", "prototype_class")
    )
    first = np.flatnonzero((rows > 20) & (rows < 200))[0]
    # All rows have the values of one prototype, so that the number and the class have to tell.
    alike = {
        "features": np.tile(arrays["features"][rows[first]], (200, 1)),
        "target": np.arange(200, dtype=np.int32) % 2,
    }
    found = _known_rows(fitted, engine, array_source(alike, 64))
    equal = np.concatenate(
        [(batch.values(arrays["features"][rows[first]]) == batch.prototypes).all(axis=1) for batch in fitted.batches]
    )
    known = equal & (rows < 200) & (rows % 2 == classes)
    np.testing.assert_array_equal(found, np.where(known, rows, -1))
    few = {name: values[: rows[first]] for name, values in arrays.items()}
    few["features"] = np.tile(arrays["features"][rows[first]], (rows[first], 1))
    assert (_known_rows(fitted, engine, array_source(few, 64))[rows >= rows[first]] == -1).all()
    moved = {**arrays, "target": 1 - arrays["target"]}
    assert (_known_rows(fitted, engine, array_source(moved, 64)) == -1).all()


@settings(max_examples=15)
@given(seed=st.integers(0, 2**20), n_batches=st.integers(0, 3), wanted=st.integers(1, 8), rows=st.integers(1, 40))
def test_prune__of_any_model_and_rows(
    make_model: MakeModel, engine: Engine, seed: int, n_batches: int, wanted: int, rows: int
) -> None:
    model = make_model(seed, n_batches=n_batches)
    rng = np.random.default_rng(seed)
    arrays = {
        "features": rng.normal(size=(rows, model.n_features)) * rng.choice([1, 1e3]),
        "target": rng.integers(0, model.n_classes, rows),
        "weight": rng.integers(0, 3, rows) + (np.arange(rows) == 0),
    }
    found = prune(model, wanted, array_source(arrays, 16), np.arange(model.n_classes), engine).model
    assert found.n_prototypes <= min(wanted, model.n_prototypes) or model.n_prototypes <= wanted
    assert found.round_ends == model.round_ends
    assert np.isfinite(scores(found, arrays["features"])).all()


def test_prune__refuses_what_it_cannot_do(fitted: PrototypeSet, arrays: Arrays, engine: Engine) -> None:
    with refused("bad-setting", "n_prototypes", "0"):
        prune(fitted, 0, array_source(arrays), np.arange(2), engine)
    with refused("no-rows", "no rows to prune with"):
        prune(fitted, 5, array_source({**arrays, "weight": np.zeros(300)}), np.arange(2), engine)


def test_classifier__prunes_its_model(arrays: Arrays, tmp_path: Path) -> None:
    x, y = arrays["features"], np.array(["b", "a"])[arrays["target"]]
    classifier = PrototypeSetClassifier(n_draws=2, n_candidates=60).fit(x, y)
    before = classifier.model_
    assert classifier.prune(9, x, y) is classifier
    assert classifier.model_.n_prototypes <= 9 < before.n_prototypes
    assert classifier.pruning_[0].prototypes == before.n_prototypes
    assert classifier.score(x, y) > 0.7
    classifier.model_.save(tmp_path / "m.zarr")
    again = load_model(tmp_path / "m.zarr")
    assert scores(again, x).tobytes() == scores(classifier.model_, x).tobytes()


def test_costs__merge_over_blocks(fitted: PrototypeSet, arrays: Arrays, engine: Engine) -> None:
    found = [
        engine.reduce(data, COSTS, joint.problem(240.0, 60.0), joint.theta)
        for rows in (8, 512)
        for data in [ViewedSource(array_source(arrays, rows), _Rows(np.arange(2)), "pruning")]
        for joint in [_join(fitted, _known_rows(fitted, engine, data))]
    ]
    np.testing.assert_allclose(found[0].by_candidate, found[1].by_candidate, rtol=1e-9, atol=1e-9)
    assert found[0].loss == pytest.approx(found[1].loss, rel=1e-12)
