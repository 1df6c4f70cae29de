"""Rounds that begin on parts of the rows: which rows these are, what is minimised on them, and what stays the same."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.shapes import make_shape

from protodask import PrototypeSetClassifier
from protodask.data.format.schema import TARGET, WEIGHT
from protodask.data.tables.ingest import ingest_arrays
from protodask.engine import Engine, Layout, Source, array_source, thread_engine
from protodask.engine.together import Company
from protodask.prototypes import FitConfig, PrototypeSet, fit
from protodask.prototypes import config as config_module
from protodask.prototypes import forms as forms_module
from protodask.prototypes import staging as staging_module
from protodask.prototypes import steps as steps_module
from protodask.prototypes.batch_kernel import Candidates
from protodask.prototypes.candidates import HELD_OUT, priority
from protodask.prototypes.config import MOST_STAGED_BYTES, stage_row_bytes, staged_rows
from protodask.prototypes.draws import Fitting, held_out_parts
from protodask.prototypes.footprint import shape_of
from protodask.prototypes.history import BatchDone, FitEvent, IterationDone
from protodask.prototypes.kernel import Standardization, exponential, row_side
from protodask.prototypes.objective import LIKELIHOOD, Penalty, RoundProblem, make_problem, starting_point
from protodask.prototypes.planning import plan_shape, stepped_rows
from protodask.prototypes.rounds import Round
from protodask.prototypes.run_progress import read_progress
from protodask.prototypes.runs import RunDirectory
from protodask.prototypes.scores import MemoryScores
from protodask.prototypes.solver import Iteration
from protodask.prototypes.staging import Stage, first_rows, take_stage
from protodask.prototypes.steps import Steps, stepping_start, worth_keeping
from protodask.prototypes.tiles import Precision
from protodask.prototypes.training import Training
from protodask.prototypes.training_data import TrainingData

Arrays = dict[str, NDArray[Any]]
MakeRows = Callable[..., Arrays]
MakeData = Callable[..., TrainingData]
SameBits = Callable[[PrototypeSet, PrototypeSet], None]

# What follows the steps ends after some iterations, which are as good as many.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Round . stopped early:protodask.prototypes.convergence.ConvergenceWarning"
)

CONFIG = FitConfig(
    n_candidates=20, n_draws=1, precision="float64", lambda_w=1e-6, tolerance=1e-3, max_iterations=6, seed=3
)
ROWS = 700


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_module, "STEPPED_ROWS", 300)
    monkeypatch.setattr(steps_module, "FEWEST_STEPS", 16)
    monkeypatch.setattr(staging_module, "MANY_ROWS", 0)
    monkeypatch.setattr(staging_module, "STAGE_BLOCK_ROWS", 64)
    monkeypatch.setattr(staging_module, "MOST_JUDGED", 100)


def trained(
    engine: Engine, data: TrainingData, config: FitConfig = CONFIG, **others: Any
) -> tuple[PrototypeSet, list[Any]]:
    (part,) = held_out_parts(engine, data, config, grouped=False)
    return Training(part, config, engine, MemoryScores(), **others).run()


def test_staged_rows__are_all_that_memory_allows() -> None:
    assert staged_rows(299) == 0
    assert staged_rows(300) == 300
    assert staged_rows(10_000, 10) == 10_000
    assert staged_rows(10_000, stage_row_bytes(500_000, 2, "float64")) == 0, "a few wide rows are no sample"
    row_bytes = stage_row_bytes(40, 3, "float32")
    assert staged_rows(10**8, row_bytes) == MOST_STAGED_BYTES // row_bytes


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("forms", [1, 20, 60])
def test_plans__allow_for_stages_of_fewer_forms(forms: int, precision: Precision) -> None:
    planned = make_shape(
        (5 * 10**6, 5 * 10**6),
        60,
        2**18,
        row_features=forms,
        weight_columns=2,
        precision=precision,
        progressive=True,
        hold_out=0.2,
    )
    row_bytes = stage_row_bytes(forms, 0, precision)
    assert staged_rows(10**7, row_bytes) * row_bytes <= planned.staged_bytes
    assert planned.with_settings(progressive=False).staged_bytes == 0


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
def test_plans__allow_for_the_memory_that_stages_take(
    dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows as they are stored are in memory beside those in standard units."""
    random, rows = np.random.default_rng(0), 40_000
    features = random.normal(size=(rows, 20))
    data = ingest_arrays(features, features[:, 0] > 0, tmp_path / "data", dtype=dtype, block_rows=1024)
    config = FitConfig(n_candidates=100, n_draws=1, feature_forms="plain", precision="float32")
    peaks: list[tuple[int, int]] = []

    def measured(*given: Any) -> None:
        tracemalloc.start()
        try:
            found = take_stage(*given)
            assert found is not None
            peaks.append((tracemalloc.get_traced_memory()[1], found.rows))
        finally:
            tracemalloc.stop()
        raise KeyboardInterrupt  # nothing after it is looked at

    monkeypatch.setattr("protodask.prototypes.rounds.take_stage", measured)
    with thread_engine(1) as engine, pytest.raises(KeyboardInterrupt):
        fit(data, config, engine=engine)
    ((peak, staged),) = peaks
    assert staged == rows
    assert peak <= shape_of(data, config).taking_bytes + 2**20


def test_plans__count_steps_apart_from_evaluations_of_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging_module, "MANY_ROWS", 100_000)
    monkeypatch.setattr(staging_module, "STAGE_BLOCK_ROWS", 512)
    random = np.random.default_rng(0)
    features = random.normal(size=(4000, 3))
    data = ingest_arrays(features, features[:, 0] > 0, tmp_path / "data", block_rows=1024)
    with thread_engine(1) as engine:
        settings = replace(CONFIG, max_iterations=5000)
        shape, processes = shape_of(data, settings), engine.scheduler.processes()
        assert stepped_rows(shape) == 600 * 512, "steps are as many as they have to be"
        assert stepped_rows(replace(shape, layout=Layout(200_000, 1024))) == 5 * 200_000
        assert plan_shape(shape, processes).evaluations == 10
        without = shape.with_settings(progressive=False)
        assert stepped_rows(without) == 0
        assert plan_shape(without, processes).evaluations == 20 + 12
        assert plan_shape(without.with_settings(finish=False), processes).evaluations == 20


def test_records__say_whether_it_begins_with_steps() -> None:
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
        if row not in left_out and arrays[WEIGHT.name][row] > 0:
            value += arrays[WEIGHT.name][row] * problem.marginals[label] / total[label] * loss
        lost += arrays[HELD_OUT][row] * loss
        held_weight += arrays[HELD_OUT][row]
    return value, lost / held_weight


@pytest.mark.slow
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

    def noted(self: Round, problem: RoundProblem, scored: bool) -> tuple[None, Any, tuple[()]]:
        seen.append(problem)
        return None, np.ones(problem.n_candidates, dtype=np.bool_), ()

    monkeypatch.setattr(Round, "_take_steps", noted)
    Training(part, config, engine, MemoryScores()).run()
    (problem,) = seen
    random = np.random.default_rng(0)
    theta = starting_point(problem) * random.uniform(0.2, 2.0, problem.n_feature_weights + problem.n_candidates)
    side = row_side(np.arange(problem.n_features), problem.standardization, np.arange(problem.n_features), "float64")
    for size in (100, 400, ROWS):
        rows = first_rows(engine, part.source, 3, size)
        stage = take_stage(engine, part.source, problem, 3, size, side)
        assert stage is not None
        assert stage.rows == len(rows)
        found = engine.reduce(stage.trained, LIKELIHOOD, stage.problem, theta, None)
        judged = engine.reduce(stage.judged, LIKELIHOOD, stage.judging, theta, None)
        value, _ = naive_value(problem, part.source, *problem.split(theta), rows)
        assert found.value == pytest.approx(value, rel=1e-10)
        held = np.concatenate([part.source.read(number)[HELD_OUT] for number in range(part.source.layout.n_blocks)])
        first = rows[held[rows] > 0][:100]
        _, held_out = naive_value(problem, part.source, *problem.split(theta), first)
        assert judged.value == 0.0
        assert judged.held_out / stage.problem.held_out_weight == pytest.approx(held_out, rel=1e-10)
        assert stage.judged.layout.n_rows == len(first)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"n_batches": 2, "feature_weights": "shared", "feature_forms": "plain"}])
def test_training__says_how_many_steps_it_began_with(
    engine: Engine, make_rows: MakeRows, training_data: MakeData, settings: dict[str, Any]
) -> None:
    data, events = training_data(make_rows(ROWS, 2)), list[FitEvent]()
    _, history = trained(engine, data, replace(CONFIG, **settings), callbacks=[events.append])
    for record in history:
        (stage,) = record.stages
        assert stage.rows == ROWS
        assert 0 < stage.iterations == stage.evaluations <= 6 * ROWS // 128
        assert record.prototypes <= (stage.candidates or 0) <= len(record.candidates)
        told = [event for event in events if isinstance(event, IterationDone) and event.batch == record.batch]
        parts = [event.iteration for event in told if event.rows == ROWS]
        assert parts == sorted(set(parts))
        assert parts[-1] == stage.iterations
        assert sum(event.rows is None for event in told) == record.iterations == len(record.values)
    _, plain = trained(engine, data, replace(CONFIG, progressive=False, **settings))
    assert all(record.stages == () for record in plain)


def test_training__in_steps_has_the_same_bits_however_rows_are_read(
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
    stops: list[tuple[int | None, int]] = []

    def interrupt(event: FitEvent) -> None:
        if isinstance(event, IterationDone) and (event.rows, event.iteration) not in stops and len(stops) < 4:
            stops.append((event.rows, event.iteration))
            raise KeyboardInterrupt

    for _ in range(4):
        with pytest.raises(KeyboardInterrupt):
            fit(data, CONFIG, tmp_path / "run", engine, callbacks=[interrupt])
        progress = read_progress(str(tmp_path / "run"))
        assert (progress.stages[0].stage, progress.stages[0].evaluations) == ("steps", stops[-1][1])
        assert not RunDirectory.existing(str(tmp_path / "run")).untouched
    taken = read_arrays_of(tmp_path / "run")
    again = fit(data, CONFIG, tmp_path / "run", engine, callbacks=[interrupt])
    assert_same_bits(again.model, whole)
    assert {name: read_arrays_of(tmp_path / "run")[name] for name in taken} == taken, "they are taken once"
    progress = read_progress(str(tmp_path / "run"))
    assert [stage.stage for stage in progress.stages] == ["steps", "float64"]
    entry = again.model.provenance["fits"][0]
    assert entry["config"]["progressive"] is True
    assert entry["batches"][0]["stages"][0]["evaluations"] == progress.stages[0].evaluations
    # One that was damaged is made again.
    (tmp_path / "run" / min(taken, key=lambda name: int(name[14:-7]))).write_bytes(b"arrs")
    assert read_progress(str(tmp_path / "run")).stages[0].stage == "float64"
    assert_same_bits(fit(data, CONFIG, tmp_path / "run", engine).model, whole)


def test_training__records_the_steps_of_each_round(
    engine: Engine, make_rows: MakeRows, assert_same_bits: SameBits, tmp_path: Path
) -> None:
    arrays, config = make_rows(ROWS, 2), replace(CONFIG, n_batches=2)
    data = ingest_arrays(arrays["features"], arrays["target"], tmp_path / "d", dtype="float64", block_rows=64)
    fit(data, config, tmp_path / "run", engine)
    assert {name.split("-")[1] for name in read_arrays_of(tmp_path / "run")} == {"1", "2"}
    assert_same_bits(fit(data, config, tmp_path / "run", engine).model, fit(data, config, engine=engine).model)


@pytest.mark.slow
def test_training__in_steps_that_were_others_begins_anew(
    engine: Engine, make_rows: MakeRows, assert_same_bits: SameBits, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As those that an earlier version has taken."""
    arrays = make_rows(ROWS, 2)
    data = ingest_arrays(arrays["features"], arrays["target"], tmp_path / "d", dtype="float64", block_rows=64)
    with monkeypatch.context() as patches:
        patches.setattr(steps_module, "RATE", 0.2)
        with pytest.raises(KeyboardInterrupt):
            fit(data, CONFIG, tmp_path / "run", engine, callbacks=[interrupt])
    assert read_arrays_of(tmp_path / "run")
    assert_same_bits(fit(data, CONFIG, tmp_path / "run", engine).model, fit(data, CONFIG, engine=engine).model)


@pytest.mark.parametrize(
    "config",
    [CONFIG, pytest.param(replace(CONFIG, progressive=False), marks=pytest.mark.slow), replace(CONFIG, n_draws=2)],
)
def test_training__goes_on_with_the_forms_it_began_with(
    engine: Engine,
    make_rows: MakeRows,
    assert_same_bits: SameBits,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    config: FitConfig,
) -> None:
    """Another version, or one of another library, may learn others."""
    arrays = make_rows(ROWS, 2)
    arrays["features"] = np.round(arrays["features"], 1)
    data = ingest_arrays(arrays["features"], arrays["target"], tmp_path / "d", dtype="float64", block_rows=64)
    with monkeypatch.context() as patches:
        patches.setattr(forms_module, "LEVEL_SPREAD", 0.25)
        whole = fit(data, config, engine=engine).model
        with pytest.raises(KeyboardInterrupt):
            fit(data, config, tmp_path / "run", engine, callbacks=[interrupt])
    assert any(batch.knots is not None and batch.knots.levels is not None for batch in whole.batches)
    assert_same_bits(fit(data, config, tmp_path / "run", engine).model, whole)


def interrupt(event: FitEvent) -> None:
    if isinstance(event, IterationDone):
        raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.parametrize("company", ["side by side", "in step"])
def test_draws__take_their_steps_in_any_company(
    engine: Engine, make_rows: MakeRows, training_data: MakeData, assert_same_bits: SameBits, company: Company
) -> None:
    """Steps are passes of their own: their rows are not those that others look at."""
    data, config = training_data(make_rows(ROWS, 2)), replace(CONFIG, n_draws=3, hold_out=0.3)
    fitting = Fitting(config, engine, lambda draw: MemoryScores())
    expected, history = fitting.run(data, False, "side by side", 1)
    assert all(record.stages for record in history)
    with thread_engine(2, 2**30) as other:
        found, _ = Fitting(config, other, lambda draw: MemoryScores()).run(data, False, company, 3)
    assert_same_bits(found, expected)


def test_steps__let_no_candidate_go_whose_row_is_left_out(
    engine: Engine, make_rows: MakeRows, training_data: MakeData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the other rows weigh is made for that: by class they add up to the marginals."""
    monkeypatch.setattr(steps_module, "LET_GO", 0.5)
    data, config = training_data(make_rows(ROWS, 2)), replace(CONFIG, n_candidates=200, leave_one_out=False)
    _, history = trained(engine, data, config)
    assert history[0].stages[0].candidates == len(history[0].candidates)
    _, history = trained(engine, data, replace(config, leave_one_out=True))
    assert (history[0].stages[0].candidates or 0) < len(history[0].candidates)


def read_arrays_of(run: Path) -> dict[str, bytes]:
    """The parts of the way on record."""
    return {path.name: path.read_bytes() for path in run.glob("*-steps-*.arrays")}


def test_steps__are_not_taken_where_a_class_has_no_row_that_counts(
    engine: Engine, make_rows: MakeRows, training_data: MakeData, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = make_rows(ROWS, 2)
    first = np.argsort(priority(CONFIG.seed, 0, np.arange(ROWS)))
    arrays["target"][:] = 0
    arrays["target"][first[450:510]] = 1  # none among the first four hundred
    monkeypatch.setattr("protodask.prototypes.rounds.staged_rows", lambda *given: 400)
    _, history = trained(engine, training_data(arrays))
    assert history[0].stages == ()


def test_estimator__can_do_without(make_rows: MakeRows) -> None:
    arrays, done = make_rows(ROWS, 2), list[BatchDone]()

    def note(event: FitEvent) -> None:
        if isinstance(event, BatchDone):
            done.append(event)

    for progressive in (None, False):
        settings: dict[str, Any] = {"n_candidates": 20, "n_draws": 1, "callbacks": [note]}
        PrototypeSetClassifier(progressive=progressive, **settings).fit(arrays["features"], arrays["target"])
    assert [bool(event.record.stages) for event in done] == [True, False]


def test_steps__are_taken_on_the_rows_that_count(engine: Engine, make_rows: MakeRows, training_data: MakeData) -> None:
    arrays = make_rows(ROWS, 2, weights="weight")
    arrays["weight"] = np.where(np.arange(ROWS) % 10 == 0, 1.0, 0.0)
    _, history = trained(engine, training_data(arrays))
    assert [stage.rows for record in history for stage in record.stages] == [ROWS // 10]


def steps_of(
    problem: RoundProblem, engine: Engine, arrays: dict[str, NDArray[Any]], seed: int = 0, together: int = 2
) -> Steps:
    """A way over rows of which every fourth is held out."""
    held = np.arange(len(arrays[TARGET.name])) % 4 == 0
    parts = []
    for chosen in (~held, held):
        part = {name: values[chosen] for name, values in arrays.items()}
        part[WEIGHT.name] = np.where(held[chosen], 0.0, 1.0)
        part[HELD_OUT] = np.where(held[chosen], 1.0, 0.0)
        parts.append(array_source(part, 64))
    nobody = np.full(problem.n_candidates, -1, dtype=np.int64)
    problem = replace(
        problem,
        candidates=replace(problem.candidates, rows=nobody),
        class_factor=np.full(len(problem.marginals), 1 / np.count_nonzero(~held)),
        held_out_weight=float(np.count_nonzero(held)),
    )
    stage = Stage(parts[0], parts[1], problem, len(held), together)
    return Steps(engine, stage, Penalty(1e-3, 0.9), Penalty(1e-4, 0.9), seed)


def small_problem(rows: int = 400) -> tuple[RoundProblem, dict[str, NDArray[Any]]]:
    random = np.random.default_rng(5)
    features = random.normal(size=(rows, 3))
    target = (features[:, 0] * features[:, 1] > 0).astype(np.int32)
    order = np.argsort(target[:30], kind="stable")
    candidates = Candidates(features[:30][order], target[:30][order].astype(np.int64), np.arange(30)[order])
    sizes = tuple(np.bincount(candidates.classes).tolist())
    standardization = Standardization(np.zeros(3), np.ones(3))
    problem = make_problem(
        candidates, np.ones(30), np.array([200.0, 200.0]), standardization, "float64", sizes, leave_one_out=True
    )
    return problem, {"features": features, TARGET.name: target}


def test_steps__are_adams_in_logarithms(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the formula, of the value's differences over rows that no block order decides about."""
    problem, arrays = small_problem(170)  # 127 rows are trained on, two blocks: a step looks at all of them
    steps = steps_of(problem, engine, arrays)
    monkeypatch.setattr(steps_module, "FEWEST_STEPS", 8)
    monkeypatch.setattr(steps_module, "ROUNDS", 1)
    monkeypatch.setattr(steps_module, "WARM_UP", 2)  # so that weights change by more than what slopes are rounded to
    assert (steps.of_a_round, steps.most) == (1, 8)
    start = stepping_start(steps.stage.problem)

    def value(at: NDArray[np.float64]) -> float:
        theta = np.exp(at)
        feature_weight, weight = np.split(theta, [problem.n_feature_weights])
        found = engine.reduce(steps.stage.trained, LIKELIHOOD, steps.stage.problem, theta, None).value
        return found + steps.feature_penalty.value(feature_weight) + steps.candidate_penalty.value(weight)

    at, first, second = np.log(start), np.zeros_like(start), np.zeros_like(start)
    seen: list[NDArray[np.float64]] = []
    for step in range(1, 9):
        slope = np.array([(value(at + e) - value(at - e)) / 2e-5 for e in 1e-5 * np.eye(len(at))])
        first, second = 0.9 * first + 0.1 * slope, 0.99 * second + 0.01 * slope**2
        rate = 0.15 * min(1, step / 2) * (1 - (step - 1) / 8)
        at = at - rate * (first / (1 - 0.9**step)) / np.sqrt(second / (1 - 0.99**step))
        seen.append(np.exp(at))
    told: list[Iteration] = []
    steps.take(start, lambda name, make, of: make(), told.append)
    assert [state.iteration for state in told] == list(range(1, len(told) + 1))
    assert [state.value for state in told] == pytest.approx(
        [value(np.log(theta)) for theta in (start, *seen)][: len(told)], rel=1e-4
    )
    for state, expected in zip(told, seen, strict=False):
        np.testing.assert_allclose(state.theta, expected, rtol=1e-4)


def test_steps__come_back_to_where_rows_held_out_lose_least(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, arrays = small_problem()
    steps, told = steps_of(problem, engine, arrays), list[Iteration]()
    part = Steps._part

    def losing(self: Steps, state: Any, first: int, last: int) -> Any:
        lost = [0.6, 0.4, 0.5, 0.45, 0.41, 0.3, 0.2, 0.1][round(8 * last / self.most) - 1]
        return {**part(self, state, first, last), "held_out": np.array([lost])}

    monkeypatch.setattr(Steps, "_part", losing)
    found = steps.take(stepping_start(problem), lambda name, make, of: make(), told.append)
    best = min(told, key=lambda state: state.held_out)
    assert found.steps == told[-1].iteration < steps.most, "it ends when nothing is gained"
    assert [state.held_out for state in told] == [0.6, 0.4, 0.5, 0.45, 0.41]
    weights = problem.split(best.theta)
    np.testing.assert_array_equal(found.theta[: problem.n_feature_weights], weights[0].ravel())
    np.testing.assert_array_equal(found.theta[problem.n_feature_weights :], weights[1][found.kept])


@pytest.mark.parametrize(
    ("many", "n_draws", "block_rows", "together"),
    [(ROWS, 1, 64, 2), (ROWS, 3, 64, 2), (ROWS + 1, 1, 32, 2), (ROWS + 1, 2, 64, 1)],
)
def test_stages__of_an_only_draw_have_blocks_for_two_threads(
    many: int,
    n_draws: int,
    block_rows: int,
    together: int,
    engine: Engine,
    make_rows: MakeRows,
    training_data: MakeData,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(staging_module, "MANY_ROWS", many)
    stages: list[Stage | None] = []

    def noted(*given: Any) -> Stage | None:
        stages.append(take_stage(*given))
        return stages[-1]

    monkeypatch.setattr("protodask.prototypes.rounds.take_stage", noted)
    config = replace(CONFIG, n_draws=n_draws)
    first, *_ = held_out_parts(engine, training_data(make_rows(ROWS, 2)), config, grouped=False)
    Training(first, config, engine, MemoryScores()).run()
    (stage,) = stages
    assert stage is not None
    assert (stage.trained.layout.block_rows, stage.judged.layout.block_rows) == (block_rows, block_rows)
    assert stage.together == together


@pytest.mark.parametrize("together", [1, 2])
def test_steps__look_at_every_row_in_each_round(engine: Engine, monkeypatch: pytest.MonkeyPatch, together: int) -> None:
    problem, arrays = small_problem(2048)
    monkeypatch.setattr(steps_module, "FEWEST_STEPS", 1)
    steps, seen = steps_of(problem, engine, arrays, seed=2, together=together), list[list[int]]()
    reduce = Engine.reduce

    def noted(self: Engine, *given: Any, **named: Any) -> Any:
        if named["label"] == "step":
            seen.append(named["blocks"])
        return reduce(self, *given, **named)

    monkeypatch.setattr(Engine, "reduce", noted)
    steps.take(stepping_start(problem), lambda name, make, of: make(), lambda state: None)
    assert (steps.blocks, steps.of_a_round, len(seen[0])) == (24, 24 // together, together)
    rounds = [seen[first : first + steps.of_a_round] for first in range(0, len(seen), steps.of_a_round)]
    assert len(rounds[0]) == len(rounds[1]) == steps.of_a_round
    for blocks in rounds:
        if len(blocks) == steps.of_a_round:
            assert sorted(number for some in blocks for number in some) == list(range(24))
    assert rounds[0] != rounds[1], "in another order"


def test_worth_keeping__lets_those_of_least_weight_go() -> None:
    candidates = Candidates(np.zeros((6, 2)), np.array([0, 0, 0, 1, 1, 1]), np.arange(6))
    standardization = Standardization(np.zeros(2), np.ones(2))
    problem = make_problem(candidates, np.ones(6), np.array([10.0, 10.0]), standardization, "float64", (3, 3))
    theta = np.concatenate([np.ones(4), [1e-4, 1.0, 3e-4, 1e-9, 1e-9, 2e-9]])
    np.testing.assert_array_equal(worth_keeping(problem, theta), [False, True, False, True, True, True])


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_slopes_next_to_nothing__make_no_denormal_numbers(precision: Precision) -> None:
    """Products of slopes of the order of 1 / N and of kernel values at their floor took twenty times as long."""
    floor = 2.0 ** exponential(precision).floor if exponential(precision).function is np.exp2 else None
    smallest = np.finfo(precision).tiny
    least = np.exp(exponential(precision).floor) if floor is None else floor
    assert least * 2.0**-24 > smallest, "a slope a sixteen-millionth of the largest is still in range"


def test_gradients__of_weights_next_to_nothing_are_as_precise_as_others(engine: Engine) -> None:
    """Slopes are of the order of 1 where they meet kernel values: a power of 2 in the weights changes no bit."""
    problem, arrays = small_problem()
    problem, source = replace(problem, precision="float32"), array_source(arrays)
    theta = stepping_start(problem)
    expected = engine.reduce(source, LIKELIHOOD, problem, theta, None)
    factor = 2.0**-140  # less than the smallest number of float32
    small = replace(problem, class_factor=problem.class_factor * factor)
    found = engine.reduce(source, LIKELIHOOD, small, theta, None)
    np.testing.assert_array_equal(found.by_candidate, expected.by_candidate * factor)
    np.testing.assert_allclose(found.by_feature, expected.by_feature * factor, rtol=1e-12)
