"""The objective on an engine against the oracle's loops."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from reference import objective as oracle

from protodask.data.format.schema import row_weights
from protodask.engine import Block, Engine, array_source, zip_sources
from protodask.prototypes import batch_kernel as batch_kernel_module
from protodask.prototypes import kernel as kernel_module
from protodask.prototypes import objective as objective_module
from protodask.prototypes.batch_kernel import Candidates
from protodask.prototypes.candidates import SCORES
from protodask.prototypes.kernel import Standardization
from protodask.prototypes.objective import (
    Objective,
    Penalty,
    RoundProblem,
    batch_sizes,
    make_problem,
    prepare_kernel,
)
from protodask.prototypes.solver import Evaluation
from protodask.prototypes.tiles import Precision

Floats = NDArray[np.float64]
Arrays = dict[str, NDArray[Any]]
MakeRows = Callable[..., Arrays]


def make_objective(
    engine: Engine,
    arrays: Arrays,
    rows: NDArray[np.int64],
    penalties: tuple[Penalty, Penalty],
    *,
    block_rows: int = 16,
    precision: Precision = "float64",
    scores: Floats | None = None,
    sizes: tuple[int, ...] | None = None,
    leave_one_out: bool = False,
) -> Objective:
    n_classes = int(arrays["target"].max()) + 1
    found = row_weights(Block(0, 0, arrays))
    weights = np.ones(len(arrays["target"])) if found is None else found
    if sizes is None:
        rows = rows[np.argsort(arrays["target"][rows], kind="stable")]
    problem = make_problem(
        Candidates(arrays["features"][rows].astype(np.float64), arrays["target"][rows].astype(np.int64), rows),
        weights[rows],
        np.bincount(arrays["target"], weights=weights, minlength=n_classes).astype(np.float64),
        Standardization(np.zeros(3), np.ones(3)),
        precision,
        sizes,
        leave_one_out=leave_one_out,
    )
    source: Any = array_source(arrays, block_rows)
    if scores is not None:
        source = zip_sources(source, array_source({SCORES: scores}, block_rows))
    return Objective(engine, source, problem, engine.share(problem), *penalties)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**20),
    weights=st.sampled_from(["", "weight", "inclusion", "weight inclusion"]),
    block_rows=st.sampled_from([1, 8, 64]),
    scored=st.booleans(),
    sizes=st.sampled_from([(9,), (4, 5), (2, 3, 4), (9, 0)]),
    leave_one_out=st.booleans(),
    idle=st.sampled_from([0.0, 0.5]),
    together=st.booleans(),
    apart=st.sampled_from([0.0, 0.4, 1.0]),
)
def test_objective__is_the_oracles(
    engine: Engine,
    make_rows: MakeRows,
    seed: int,
    weights: str,
    block_rows: int,
    scored: bool,
    sizes: tuple[int, ...],
    leave_one_out: bool,
    idle: float,
    together: bool,
    apart: float,
) -> None:
    rng = np.random.default_rng(seed)
    arrays = make_rows(50, seed, n_classes=3, weights=weights)
    arrays["target"][:3] = [0, 1, 2]
    # A class whose only weight is that of its candidates has no loss: the first rows stay out of the draw.
    if "weight" in arrays:
        arrays["weight"][:3] = 1.5
    rows = np.sort(rng.choice(np.arange(3, 50), 9, replace=False))
    batch = np.repeat(np.arange(len(sizes)), sizes)
    rows = rng.permutation(rows)
    rows = rows[np.lexsort((arrays["target"][rows], batch))]
    scores = rng.uniform(0.1, 2, (50, 3)) if scored else None
    penalties = Penalty(0.03, 0.7), Penalty(0.2, 0.25)
    function = make_objective(
        engine,
        arrays,
        rows,
        penalties,
        block_rows=block_rows,
        scores=scores,
        sizes=sizes,
        leave_one_out=leave_one_out,
    )
    v, w = rng.uniform(0, 3, (len(sizes), 3)), rng.uniform(0, 2, 9)
    w[rng.random(9) < idle] = 0
    found = row_weights(Block(0, 0, arrays))
    s = np.ones(50) if found is None else found
    target = arrays["target"].astype(np.int64)
    share = np.bincount(target, weights=s) / s.sum()
    previous = np.tile(share, (50, 1)) if scores is None else scores
    penalty = oracle.Penalty(0.03, 0.2, 0.7, 0.25)
    data = (arrays["features"], target, s, rows, batch, previous, penalty, leave_one_out)
    with (
        mock.patch.object(objective_module, "_meet_together", return_value=together),
        mock.patch.object(objective_module, "_far_out", return_value=rng.random(9) < apart),
        mock.patch.object(objective_module, "ROW_WORK", -1e9),
        mock.patch.object(objective_module, "MOST_APART", 1e9),
        mock.patch.object(batch_kernel_module, "MOST_APART", 1e9),
    ):
        value, slope, _ = function(np.concatenate([v.ravel(), w]))
    assert value == pytest.approx(oracle.objective(v, w, *data), rel=1e-12)
    by_v, by_w = oracle.gradient(v, w, *data)
    np.testing.assert_allclose(slope, np.concatenate([by_v.ravel(), by_w]), rtol=1e-9, atol=1e-13)


def test_objective__gradient_is_that_of_finite_differences(engine: Engine, make_rows: MakeRows) -> None:
    arrays = make_rows(60, 3, weights="weight")
    rows = np.arange(5, 60, 6)
    function = make_objective(engine, arrays, rows, (Penalty(0.1, 0.9), Penalty(0.05, 0.1)))
    theta = np.random.default_rng(1).uniform(0.2, 2, 3 + len(rows))
    slope = oracle.finite_difference(lambda point: function(point)[0], theta)
    np.testing.assert_allclose(function(theta)[1], slope, rtol=1e-6, atol=1e-9)


def test_objective__a_weight_of_two_is_a_row_repeated(engine: Engine, make_rows: MakeRows) -> None:
    arrays = make_rows(70, 5)
    times = np.random.default_rng(2).integers(1, 3, 70)
    rows = np.flatnonzero(times == 1)[::5]
    penalties = Penalty(0.01, 0.5), Penalty(0.0, 0.5)
    weighted = make_objective(engine, {**arrays, "weight": times.astype(np.float64)}, rows, penalties)
    copies = np.repeat(np.arange(70), times)
    repeated_arrays = {name: values[copies] for name, values in arrays.items()}
    repeated = make_objective(engine, repeated_arrays, np.searchsorted(copies, rows), penalties)
    theta = np.random.default_rng(3).uniform(0.1, 2, 3 + len(rows))
    value, slope, _ = weighted(theta)
    other_value, other_slope, _ = repeated(theta)
    assert value == pytest.approx(other_value, rel=1e-13)
    np.testing.assert_allclose(slope, other_slope, rtol=1e-10, atol=1e-14)


def test_objective__of_weights_scaled_alike_does_not_change(engine: Engine, make_rows: MakeRows) -> None:
    arrays = make_rows(70, 5, weights="weight")
    rows, penalties = np.arange(0, 70, 9), (Penalty(0.01, 0.5), Penalty(0.0, 0.5))
    theta = np.random.default_rng(3).uniform(0.1, 2, 3 + len(rows))
    value, slope, _ = make_objective(engine, arrays, rows, penalties)(theta)
    scaled = make_objective(engine, {**arrays, "weight": 1000 * arrays["weight"]}, rows, penalties)(theta)
    assert scaled[0] == pytest.approx(value, rel=1e-13)
    np.testing.assert_allclose(scaled[1], slope, rtol=1e-11, atol=1e-15)


def test_objective__an_inclusion_probability_is_a_divisor_of_the_weight(engine: Engine, make_rows: MakeRows) -> None:
    arrays = make_rows(70, 5, weights="weight inclusion")
    rows, penalties = np.arange(0, 70, 9), (Penalty(0.01, 0.5), Penalty(0.0, 0.5))
    theta = np.random.default_rng(3).uniform(0.1, 2, 3 + len(rows))
    value, slope, _ = make_objective(engine, arrays, rows, penalties)(theta)
    joined = {name: arrays[name] for name in ("features", "target")}
    joined["weight"] = arrays["weight"] / arrays["inclusion"]
    other_value, other_slope, _ = make_objective(engine, joined, rows, penalties)(theta)
    assert value == other_value
    np.testing.assert_array_equal(slope, other_slope)


def test_objective__of_candidates_asleep_gives_the_gradient_of_the_penalty(engine: Engine, make_rows: MakeRows) -> None:
    arrays = make_rows(60, 3)
    rows, penalty = np.arange(5, 60, 6), Penalty(0.05, 0.1)
    function = make_objective(engine, arrays, rows, (Penalty(0.1, 0.9), penalty))
    theta = np.random.default_rng(1).uniform(0.2, 2, 3 + len(rows))
    asleep = np.arange(len(rows)) % 3 == 1
    theta[3:][asleep] = 0
    every, found = function(theta), function(theta, asleep)
    awake = np.append(np.ones(3, dtype=np.bool_), ~asleep)
    assert found.value == pytest.approx(every.value, rel=1e-13)
    np.testing.assert_allclose(found.gradient[awake], every.gradient[awake], rtol=1e-10)
    np.testing.assert_array_equal(found.gradient[~awake], penalty.gradient(np.zeros(asleep.sum())))


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_objective__candidates_do_not_count_as_rows(engine: Engine, make_rows: MakeRows, precision: Precision) -> None:
    # Every kernel but that of a row with itself is 0, and rows with themselves are left out.
    arrays = make_rows(40, 8)
    arrays["features"] = np.tile(np.arange(40.0)[:, None], (1, 3))
    rows = np.arange(0, 40, 4)
    function = make_objective(engine, arrays, rows, (Penalty(0.0, 0.0), Penalty(0.0, 0.0)), precision=precision)
    value, gradient_found, _ = function(np.concatenate([np.full(3, 100.0), np.ones(len(rows))]))
    share = np.bincount(arrays["target"]) / 40
    assert value == pytest.approx(-float(share @ np.log(share)), rel=1e-12)
    assert abs(gradient_found).max() < 1e-25


@given(st.floats(0, 10), st.floats(0, 1), st.lists(st.floats(0, 100), max_size=5))
def test_penalty__by_its_formula(strength: float, share: float, values: list[float]) -> None:
    penalty, x = Penalty(strength, share), np.array(values, dtype=np.float64)
    expected = sum(strength * (share / 2 * value**2 + (1 - share) * value) for value in values)
    assert penalty.value(x) == pytest.approx(expected, rel=1e-12, abs=1e-300)
    # In this order of additions: `share * value + 1 - share` would lose a small value beside the one.
    expected_slope = [strength * (share * value + (1 - share)) for value in values]
    np.testing.assert_allclose(penalty.gradient(x), expected_slope, rtol=1e-12, atol=1e-300)


def test_split__gives_the_weights_of_features_by_batch_and_of_candidates(engine: Engine, make_rows: MakeRows) -> None:
    function = make_objective(engine, make_rows(40), np.arange(0, 40, 4), (Penalty(0, 0), Penalty(0, 0)))
    v, w = function.problem.split(np.arange(13.0))
    assert (v.tolist(), w.tolist()) == ([[0, 1, 2]], list(np.arange(3.0, 13.0)))
    joint = make_objective(engine, make_rows(40), np.arange(0, 40, 4), (Penalty(0, 0), Penalty(0, 0)), sizes=(4, 6))
    v, w = joint.problem.split(np.arange(16.0))
    assert (v.tolist(), w.tolist()) == ([[0, 1, 2], [3, 4, 5]], list(np.arange(6.0, 16.0)))
    assert joint.problem.places == [slice(0, 4), slice(4, 10)]


def test_batch_sizes__are_those_of_the_classes_that_have_candidates() -> None:
    classes = np.array([0, 0, 2, 3, 3, 3])
    assert batch_sizes(classes, "shared") == (6,)
    assert batch_sizes(classes, "class") == (2, 1, 3)


@pytest.mark.parametrize(
    ("looked_at", "steep", "precision", "together"),
    [
        ([range(12), range(12)], False, "float32", True),
        ([range(6), range(6, 12)], False, "float32", False),
        ([range(12), range(12)], True, "float32", False),
        ([range(12), range(12)], True, "float64", True),
    ],
)
def test_batches__meet_rows_together_where_that_costs_less(
    looked_at: list[range], steep: bool, precision: Precision, together: bool
) -> None:
    random = np.random.default_rng(0)
    classes, features = np.repeat([0, 1], 600), random.normal(size=(1200, 12))
    problem = make_problem(
        Candidates(features, classes, np.arange(1200)),
        np.ones(1200),
        np.array([5000.0, 5000.0]),
        Standardization(np.zeros(12), np.ones(12)),
        precision,
        batch_sizes(classes, "class"),
        leave_one_out=True,
    )
    v = np.array([[0.1 * (feature in some) for feature in range(12)] for some in looked_at])
    v[1] *= 100 if steep else 1
    _, kernel = prepare_kernel(problem, np.concatenate([v.ravel(), np.ones(1200)]))
    assert len(kernel.batches) == (1 if together else 2)
    with mock.patch.object(objective_module, "_meet_together", return_value=not together):
        prepare_kernel(problem, np.concatenate([v.ravel(), np.ones(1200)]))
    assert [len(some._last) for some in (*problem.batches, problem.together)] == ([1, 1, 0] if together else [0, 0, 1])
    if steep and not together:
        assert [batch.side.dtype for batch in kernel.batches] == ["float32", "float64"]


def far_out_problem(n_candidates: int, far: list[int], sizes: tuple[int, ...] | None = None) -> RoundProblem:
    """Candidates of which some are 100 standard deviations from the others."""
    random = np.random.default_rng(0)
    features = random.normal(size=(n_candidates, 6))
    features[far, 0] += 100
    return make_problem(
        Candidates(features, np.arange(n_candidates) * 2 // n_candidates, np.arange(n_candidates)),
        np.ones(n_candidates),
        np.array([9000.0, 9000.0]),
        Standardization(np.zeros(6), np.ones(6)),
        "float32",
        sizes,
        leave_one_out=True,
    )


@pytest.mark.parametrize("sizes", [(800,), (400, 400)])
def test_prepare_kernel__takes_float64_for_those_far_out_alone(sizes: tuple[int, ...]) -> None:
    problem = far_out_problem(800, [3, 5, 500], sizes)
    theta = np.concatenate([np.full(problem.n_feature_weights, 0.8), np.ones(800)])
    theta[problem.n_feature_weights + 3] = 0
    asleep = np.zeros(800, dtype=np.bool_)

    def in_float64(asleep: NDArray[np.bool_] | None) -> list[int]:
        _, kernel = prepare_kernel(problem, theta, asleep)
        members = {"float32": list[int](), "float64": list[int]()}
        for batch in kernel.batches:
            members[batch.side.dtype] += (batch.places.start + np.flatnonzero(batch.arranged.column_of >= 0)).tolist()
        awake = np.arange(800) if asleep is None else np.flatnonzero(~asleep)
        assert sorted(members["float32"] + members["float64"]) == awake.tolist()
        return members["float64"]

    assert in_float64(None) == in_float64(asleep) == [3, 5, 500]
    asleep[3] = True
    assert in_float64(asleep) == [5, 500]
    theta[: problem.n_feature_weights] = 0.1
    assert in_float64(None) == []


def test_prepare_kernel__takes_float64_for_a_steep_batch_alone() -> None:
    for size, n_batches, far in ((330, 3, 1), (200, 5, 2), (600, 5, 2)):
        problem = far_out_problem(size * n_batches, [], (size,) * n_batches)
        v = np.full((n_batches, 6), 0.5)
        v[:far] *= 100
        _, kernel = prepare_kernel(problem, np.concatenate([v.ravel(), np.ones(size * n_batches)]))
        assert [batch.side.dtype for batch in kernel.batches] == ["float64"] * far + ["float32"] * (n_batches - far)


@pytest.mark.parametrize("asleep", [False, True])
def test_prepare_kernel__of_a_steep_batch_of_which_nobody_is_awake(asleep: bool) -> None:
    sizes = (300, 300) if asleep else (600, 0)
    problem = far_out_problem(600, [], sizes)
    v = np.full((2, 6), 0.3)
    v[1, 0] = 2e6
    awake = np.arange(600) < 300 if asleep else np.ones(600, dtype=np.bool_)
    with mock.patch.object(objective_module, "_meet_together", return_value=True):
        _, kernel = prepare_kernel(problem, np.concatenate([v.ravel(), awake.astype(np.float64)]), ~awake)
    assert [batch.side.dtype for batch in kernel.batches] == ["float32"]


def test_prepare_kernel__takes_float64_for_all_where_few_are_left() -> None:
    for n_candidates, far in ((20, [3]), (800, list(range(0, 800, 2)))):
        problem = far_out_problem(n_candidates, far)
        theta = np.concatenate([np.full(6, 0.8), np.ones(n_candidates)])
        assert [batch.side.dtype for batch in prepare_kernel(problem, theta)[1].batches] == ["float64"]


@pytest.mark.parametrize("sizes", [(800,), (400, 400)])
def test_objective__with_candidates_far_out_is_as_exact_as_float32_without(
    engine: Engine, sizes: tuple[int, ...]
) -> None:
    problem = far_out_problem(800, list(range(0, 800, 20)), sizes)
    near = problem.candidates.features + np.random.default_rng(1).normal(size=(800, 6)) / 10
    source = array_source({"features": near, "target": problem.candidates.classes.astype(np.int32)}, 128)
    theta = np.concatenate([np.random.default_rng(2).uniform(0.5, 1, problem.n_feature_weights), np.full(800, 0.1)])

    def evaluate(problem: RoundProblem) -> Evaluation:
        none = Penalty(0.0, 0.5)
        return Objective(engine, source, problem, engine.share(problem), none, none)(theta)

    assert [batch.side.dtype for batch in prepare_kernel(problem, theta)[1].batches] == ["float32", "float64"]
    expected, found = evaluate(replace(problem, precision="float64")), evaluate(problem)
    assert found.value == pytest.approx(expected.value, rel=1e-6)
    for part in np.split(np.arange(len(theta)), [problem.n_feature_weights]):
        size = np.linalg.norm(expected.gradient[part])
        assert np.linalg.norm((found.gradient - expected.gradient)[part]) < 1e-5 * size
    with mock.patch.object(kernel_module, "FLOAT32_REACH", np.inf):
        worse = evaluate(problem).gradient - expected.gradient
    assert np.linalg.norm(worse) > 20 * np.linalg.norm(found.gradient - expected.gradient)
