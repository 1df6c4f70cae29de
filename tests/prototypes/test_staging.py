"""Rounds that begin on parts of the rows: which rows these are, what is minimised on them, and what stays the same."""

from __future__ import annotations

import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from protodask import PrototypeSetClassifier
from protodask.data.format.schema import TARGET, WEIGHT
from protodask.data.tables.ingest import ingest_arrays
from protodask.engine import Engine, Layout, Source, array_source, thread_engine
from protodask.prototypes import FitConfig, PrototypeSet, fit
from protodask.prototypes import config as config_module
from protodask.prototypes.candidates import HELD_OUT, priority
from protodask.prototypes.config import MOST_STAGED_BYTES, stage_row_bytes, stage_sizes
from protodask.prototypes.convergence import ConvergenceWarning
from protodask.prototypes.footprint import Shape, shape_of
from protodask.prototypes.held_out import held_out_parts
from protodask.prototypes.history import BatchDone, FitEvent, IterationDone
from protodask.prototypes.kernel import Standardization, row_side
from protodask.prototypes.likelihood import Candidates
from protodask.prototypes.objective import Objective, Penalty, RoundProblem, make_problem, starting_point
from protodask.prototypes.run_progress import read_progress
from protodask.prototypes.scores import MemoryScores
from protodask.prototypes.staging import first_rows, stages
from protodask.prototypes.tiles import Precision
from protodask.prototypes.training import Training, TrainingData, of_use

Arrays = dict[str, NDArray[Any]]
MakeRows = Callable[..., Arrays]
MakeData = Callable[..., TrainingData]
SameBits = Callable[[PrototypeSet, PrototypeSet], None]

CONFIG = FitConfig(n_candidates=20, n_draws=1, precision="float64", lambda_w=1e-6, tolerance=1e-3, seed=3)
ROWS = 1500


@pytest.fixture(autouse=True)
def _small_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_module, "FIRST_STAGE", 100)


def trained(
    engine: Engine, data: TrainingData, config: FitConfig = CONFIG, **others: Any
) -> tuple[PrototypeSet, list[Any]]:
    (part,) = held_out_parts(engine, data, config, grouped=False)
    return Training(part, config, engine, MemoryScores(), **others).run()


def test_stage_sizes__grow_as_long_as_it_pays() -> None:
    assert stage_sizes(199, 10) == []
    assert stage_sizes(200, 10) == [100]
    assert stage_sizes(10_000, 10) == [100, 300, 900, 2700]
    assert stage_sizes(10_000, 100) == [400, 1200, 3600]
    wide = stage_row_bytes(500_000, 2, "float64")
    assert stage_sizes(10_000, 10, wide) == []
    row_bytes = stage_row_bytes(40, 3, "float32")
    assert all(size * row_bytes <= MOST_STAGED_BYTES for size in stage_sizes(10**8, 10, row_bytes))


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("forms", [1, 20, 60])
def test_plans__allow_for_the_longest_stages_of_fewer_forms(forms: int, precision: Precision) -> None:
    planned = Shape(
        class_rows=(5 * 10**6, 5 * 10**6),
        n_features=60,
        n_candidates=1000,
        n_batches=1,
        layout=Layout(10**7, 2**18),
        feature_bytes=4,
        weight_columns=2,
        max_fraction=0.5,
        precision=precision,
        scored=False,
        progressive=True,
        stored_features=forms,
    )
    row_bytes = stage_row_bytes(forms, 0, precision)
    assert max(stage_sizes(10**7, 1000, row_bytes)) * row_bytes <= planned.staged_bytes
    assert replace(planned, progressive=False).staged_bytes == 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_plans__allow_for_the_memory_that_stages_take(
    dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows as they are stored are in memory beside those in standard units."""
    random, rows = np.random.default_rng(0), 40_000
    features = random.normal(size=(rows, 20))
    data = ingest_arrays(features, features[:, 0] > 0, tmp_path / "data", dtype=dtype, block_rows=1024)
    config = FitConfig(n_candidates=100, n_draws=1, feature_forms="plain", precision="float32", max_iterations=1)
    peaks: list[tuple[int, int]] = []

    def measured(*given: Any) -> Iterator[Any]:
        tracemalloc.start()
        try:
            found = list(stages(*given))
            peaks.append((tracemalloc.get_traced_memory()[1], found[-1].source.layout.n_rows))
        finally:
            tracemalloc.stop()
        return iter(found)

    monkeypatch.setattr("protodask.prototypes.training.stages", measured)
    with thread_engine(1) as engine, warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fit(data, config, engine=engine)
    ((peak, staged),) = peaks
    assert staged > rows / 4
    assert peak <= shape_of(data, config).taking_bytes + 2**20


def test_records__say_whether_it_begins_on_parts() -> None:
    assert CONFIG.as_dict()["progressive"] is True
    assert "progressive" not in replace(CONFIG, progressive=False).as_dict()
    assert "progressive" not in FitConfig.of("source").as_dict()


@pytest.mark.parametrize("block_rows", [32, 256, 2048])
def test_first_rows__are_those_of_smallest_priority(
    engine: Engine, make_rows: MakeRows, training_data: MakeData, block_rows: int
) -> None:
    arrays = make_rows(ROWS, 2, weights="weight")
    held = np.zeros(ROWS)
    held[::7] = 1.0
    arrays |= {HELD_OUT: held, WEIGHT.name: np.where(held, 0.0, arrays["weight"])}
    counted = np.flatnonzero((held > 0) | (arrays[WEIGHT.name] > 0))
    wanted = counted[np.argsort(priority(5, 0, counted))]
    found = first_rows(engine, array_source(arrays, block_rows), 5, 300)
    np.testing.assert_array_equal(found, wanted[:300])
    np.testing.assert_array_equal(first_rows(engine, array_source(arrays, block_rows), 5, 100), found[:100])


def naive_value(
    problem: RoundProblem, source: Source, feature_weights: NDArray[Any], weights: NDArray[Any], rows: NDArray[np.int64]
) -> tuple[float, float]:
    """The likelihood of some rows by loops over the formula, and the mean loss of those that are held out."""
    arrays = {
        name: np.concatenate([source.read(number)[name] for number in range(source.layout.n_blocks)])
        for name in ("features", TARGET.name, WEIGHT.name, HELD_OUT)
    }
    left_out = set() if problem.leave_one_out else set(problem.candidates.rows.tolist())
    standardized = problem.standardization.apply(arrays["features"][:, np.arange(problem.n_features)])
    total = np.zeros(len(problem.marginals))
    for row in rows.tolist():
        if row not in left_out:
            total[arrays[TARGET.name][row]] += arrays[WEIGHT.name][row]
    value = lost = held_weight = 0.0
    for row in rows.tolist():
        q = problem.marginals.copy()
        for batch, places in enumerate(problem.places):
            for j in range(places.start, places.stop):
                if problem.candidates.rows[j] == row:
                    continue
                difference = feature_weights[batch] * (standardized[row] - problem.candidates.features[j])
                q[problem.candidates.classes[j]] += weights[j] * np.exp(-(difference @ difference) / 2)
        label = arrays[TARGET.name][row]
        loss = -np.log(q[label] / q.sum())
        if row not in left_out:
            value += arrays[WEIGHT.name][row] * problem.marginals[label] / total[label] * loss
        lost += arrays[HELD_OUT][row] * loss
        held_weight += arrays[HELD_OUT][row]
    return value, lost / held_weight


@pytest.mark.parametrize("leave_one_out", [True, False])
def test_stages__minimise_the_formula_of_their_rows(
    engine: Engine,
    make_rows: MakeRows,
    training_data: MakeData,
    monkeypatch: pytest.MonkeyPatch,
    leave_one_out: bool,
) -> None:
    data = training_data(make_rows(ROWS, 2, n_classes=3, weights="weight"), n_classes=3)
    config = replace(CONFIG, feature_forms="plain", leave_one_out=leave_one_out)
    (part,) = held_out_parts(engine, data, config, grouped=False)
    seen: list[RoundProblem] = []

    def noted(self: Training, source: Source, problem: RoundProblem, *others: Any) -> tuple[None, Any, tuple[()]]:
        seen.append(problem)
        return None, np.ones(problem.n_candidates, dtype=np.bool_), ()

    monkeypatch.setattr(Training, "_train_in_stages", noted)
    Training(part, config, engine, MemoryScores()).run()
    (problem,) = seen
    random = np.random.default_rng(0)
    theta = starting_point(problem) * random.uniform(0.2, 2.0, problem.n_feature_weights + problem.n_candidates)
    side = row_side(np.arange(problem.n_features), problem.standardization, np.arange(problem.n_features), "float64")
    for stage in stages(engine, part.source, problem, 3, [100, 300], side):
        rows = first_rows(engine, part.source, 3, stage.source.layout.n_rows)
        nothing = Penalty(0.0, 0.5)
        found = Objective(engine, stage.source, stage.problem, engine.share(stage.problem), nothing, nothing)(theta)
        value, held_out = naive_value(problem, part.source, *problem.split(theta), rows)
        assert found.value == pytest.approx(value, rel=1e-10)
        assert found.held_out == pytest.approx(held_out, rel=1e-10)


@pytest.mark.parametrize("settings", [{}, {"n_batches": 2, "feature_weights": "shared", "feature_forms": "plain"}])
def test_training__says_on_which_parts_it_began(
    engine: Engine, make_rows: MakeRows, training_data: MakeData, settings: dict[str, Any]
) -> None:
    data, events = training_data(make_rows(ROWS, 2)), list[FitEvent]()
    _, history = trained(engine, data, replace(CONFIG, **settings), callbacks=[events.append])
    for record in history:
        assert [stage.rows for stage in record.stages] == [100, 300]
        left = [stage.candidates for stage in record.stages]
        assert left[0] == len(record.candidates), "a hundred rows do not tell of twenty candidates"
        assert record.prototypes <= (left[1] or 0) < len(record.candidates)
        told = [event for event in events if isinstance(event, IterationDone) and event.batch == record.batch]
        for stage in record.stages:
            assert sum(event.rows == stage.rows for event in told) == stage.iterations
        assert sum(event.rows is None for event in told) == record.iterations == len(record.values)
    _, plain = trained(engine, data, replace(CONFIG, progressive=False, **settings))
    assert all(record.stages == () for record in plain)


def test_training__in_stages_has_the_same_bits_however_rows_are_read(
    engine: Engine, make_rows: MakeRows, training_data: MakeData, assert_same_bits: SameBits, tmp_path: Path
) -> None:
    arrays = make_rows(ROWS, 2)
    expected, _ = trained(engine, training_data(arrays))
    for threads in (1, 3):
        with thread_engine(threads, 2**30) as other:
            assert_same_bits(trained(other, training_data(arrays))[0], expected)
    # Those of a dataset are the same again, wherever it is stopped.
    data = ingest_arrays(arrays["features"], arrays["target"], tmp_path / "d", dtype="float64", block_rows=64)
    whole = fit(data, CONFIG, engine=engine).model
    stops: list[int | None] = []

    def interrupt(event: FitEvent) -> None:
        if isinstance(event, IterationDone) and event.iteration == 3 and event.rows not in stops:
            stops.append(event.rows)
            raise KeyboardInterrupt

    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            fit(data, CONFIG, tmp_path / "run", engine, callbacks=[interrupt])
    assert stops == [100, 300, None]
    again = fit(data, CONFIG, tmp_path / "run", engine, callbacks=[interrupt])
    assert_same_bits(again.model, whole)
    assert [stage.stage for stage in read_progress(str(tmp_path / "run")).stages] == ["rows-100", "rows-300", "float64"]
    entry = again.model.provenance["fits"][0]
    assert entry["config"]["progressive"] is True
    assert [stage["rows"] for stage in entry["batches"][0]["stages"]] == [100, 300]


def test_stages__without_a_class_are_left_out(engine: Engine, make_rows: MakeRows, training_data: MakeData) -> None:
    arrays = make_rows(ROWS, 2)
    first = np.argsort(priority(CONFIG.seed, 0, np.arange(ROWS)))
    arrays["target"][:] = 0
    arrays["target"][first[150:210]] = 1  # none among the first hundred
    _, history = trained(engine, training_data(arrays))
    assert [stage.rows for stage in history[0].stages] == [300]


def test_estimator__can_do_without(make_rows: MakeRows) -> None:
    arrays, done = make_rows(ROWS, 2), list[BatchDone]()

    def note(event: FitEvent) -> None:
        if isinstance(event, BatchDone):
            done.append(event)

    for progressive in (None, False):
        settings: dict[str, Any] = {"n_candidates": 20, "n_draws": 1, "callbacks": [note]}
        PrototypeSetClassifier(progressive=progressive, **settings).fit(arrays["features"], arrays["target"])
    assert [bool(event.record.stages) for event in done] == [True, False]


def test_of_use__a_batch_keeps_all_candidates_where_none_has_a_weight() -> None:
    candidates = Candidates(np.zeros((5, 2)), np.array([0, 0, 1, 1, 1]), np.arange(5))
    standardization = Standardization(np.zeros(2), np.ones(2))
    problem = make_problem(candidates, np.ones(5), np.array([10.0, 10.0]), standardization, "float64", (2, 3))
    theta = np.concatenate([np.ones(4), [0.0, 2.0, 0.0, 0.0, 0.0]])
    useful = of_use(problem, theta)
    np.testing.assert_array_equal(useful, [False, True, True, True, True])
    part = problem.part(useful)
    assert part.sizes == (1, 3)
    np.testing.assert_array_equal(part.candidates.rows, [1, 2, 3, 4])


def test_stages__are_no_longer_than_the_rows_that_count(
    engine: Engine, make_rows: MakeRows, training_data: MakeData
) -> None:
    """Of which there may be fewer than any stage asks for: none is trained on twice."""
    arrays = make_rows(ROWS, 2, weights="weight")
    arrays["weight"] = np.where(np.arange(ROWS) % 10 == 0, 1.0, 0.0)
    _, history = trained(engine, training_data(arrays))
    for record in history:
        lengths = [stage.rows for stage in record.stages]
        assert lengths == sorted(set(lengths))
        assert lengths[-1] <= ROWS / 10
