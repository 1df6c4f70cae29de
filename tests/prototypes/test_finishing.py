"""The end of a round on all rows: when it comes, what it minimises, and that rows held out tell the rest as before."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from reference import classifier as oracle

from protodask import PrototypeSetClassifier, SearchConfig, plan, tune
from protodask.budget.feature_columns import restricted
from protodask.data.tables.ingest import ingest_arrays
from protodask.engine import Engine
from protodask.prototypes import FitConfig, fit
from protodask.prototypes.candidates import HELD_OUT
from protodask.prototypes.draws import held_out_parts
from protodask.prototypes.history import BatchRecord, FitEvent, IterationDone
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.rounds import FINISHING, finishing_iterations
from protodask.prototypes.run_progress import read_progress
from protodask.prototypes.scores import MemoryScores
from protodask.prototypes.training import Training
from protodask.prototypes.training_data import TrainingData

Arrays = dict[str, NDArray[Any]]
MakeRows = Callable[..., Arrays]
MakeData = Callable[..., TrainingData]
SameBits = Callable[[PrototypeSet, PrototypeSet], None]

CONFIG = FitConfig.of(
    "source",
    n_candidates=40,
    lambda_v=1e-3,
    lambda_w=1e-5,
    hold_out=0.25,
    finish=True,
    leave_one_out=True,
    precision="float64",
    seed=3,
)


def train(
    engine: Engine, data: TrainingData, config: FitConfig, callbacks: Any = ()
) -> tuple[PrototypeSet, list[BatchRecord]]:
    return Training(data, config, engine, MemoryScores(), callbacks=callbacks).run()


@given(
    loss=st.floats(0, 1e6), by_marginals=st.floats(1e-9, 1e3), iterations=st.integers(0, 10_000), share=st.floats(0, 1)
)
def test_finishing_iterations__are_more_the_less_is_lost_and_never_more_than_there_were(
    loss: float, by_marginals: float, iterations: int, share: float
) -> None:
    found = finishing_iterations(loss, by_marginals, iterations)
    assert 0 <= found <= iterations
    assert finishing_iterations(share * loss, by_marginals, iterations) >= found
    if loss >= by_marginals:
        assert found == 0
    assert finishing_iterations(by_marginals / math.e, by_marginals, 10_000) == FINISHING


@pytest.mark.parametrize(("feature_weights", "weights"), [("shared", ""), ("class", "weight inclusion")])
def test_training__ends_where_the_formula_says_over_all_rows(
    engine: Engine, make_rows: MakeRows, training_data: MakeData, feature_weights: Any, weights: str
) -> None:
    arrays = make_rows(240, 5, n_classes=2, weights=weights)
    (data,) = held_out_parts(engine, training_data(arrays), CONFIG, grouped=False)
    events: list[FitEvent] = []
    config = replace(CONFIG, feature_weights=feature_weights)
    model, (record,) = train(engine, data, config, [events.append])
    without, (before,) = train(engine, data, replace(config, finish=False))
    held, kept, target = (
        np.concatenate([data.source.read(number)[name] for number in range(data.source.layout.n_blocks)])
        for name in (HELD_OUT, "weight", "target")
    )
    shares = np.array([kept[target == label].sum() for label in (0, 1)]) / kept.sum()
    by_marginals = float(held @ -np.log(shares[target]) / held.sum())
    assert before.held_out is not None
    assert record.on_all_rows == finishing_iterations(before.held_out, by_marginals, before.iterations) >= 3
    assert record.iterations == before.iterations + record.on_all_rows
    assert (record.held_out, record.status, record.candidates.tolist()) == (
        before.held_out,
        before.status,
        before.candidates.tolist(),
    )
    assert record.values[: before.iterations] == before.values
    told = [event for event in events if isinstance(event, IterationDone)]
    assert [event.iteration for event in told] == list(range(1, record.iterations + 1))
    assert [event.held_out is None for event in told] == [number >= before.iterations for number in range(len(told))]
    # The objective of all rows, by the formulas, at the end and where the rows held out lost least.
    sample = arrays["weight"] / arrays["inclusion"] if weights else np.ones(240)
    target = target.astype(np.int64)
    summary = data.summary
    x = (arrays["features"] - summary.mean) / summary.scale
    marginals = oracle.class_weights(target, sample, 2) / sample.sum()
    penalty = oracle.Penalty(config.lambda_v, config.lambda_w, config.alpha_v, config.alpha_w)

    def value(found: PrototypeSet) -> float:
        rows = np.concatenate([batch.row for batch in found.batches])
        number = np.repeat(np.arange(len(found.batches)), [batch.n_prototypes for batch in found.batches])
        v = np.zeros((len(found.batches), x.shape[1]))
        for place, batch in enumerate(found.batches):
            v[place, batch.feature_index] = batch.feature_weight
        w = np.concatenate([batch.prototype_weight for batch in found.batches])
        formula = oracle.dense_objective(x, target, sample, rows, number, np.tile(marginals, (240, 1)), penalty, True)
        return float(formula(v, w)[0])

    assert record.value == pytest.approx(value(model), rel=1e-9)
    assert record.value == record.values[-1] < value(without)


def test_training__of_several_rounds_ends_the_last_on_all_rows(
    engine: Engine, make_rows: MakeRows, training_data: MakeData
) -> None:
    (data,) = held_out_parts(engine, training_data(make_rows(240, 5), 128), CONFIG, grouped=False)
    config = replace(CONFIG, n_batches=2)
    model, (first, last) = train(engine, data, config)
    before, _ = train(engine, data, replace(config, finish=False))
    assert (first.on_all_rows, last.on_all_rows > 0) == (0, True)
    assert model.batches[0].prototype_weight.tobytes() == before.batches[0].prototype_weight.tobytes()
    assert model.batches[1].prototype_weight.tobytes() != before.batches[1].prototype_weight.tobytes()


def test_training__of_noise_is_not_finished(engine: Engine, training_data: MakeData) -> None:
    rng = np.random.default_rng(0)
    arrays: Arrays = {"features": rng.normal(size=(400, 3)), "target": rng.integers(0, 2, 400).astype(np.int32)}
    (data,) = held_out_parts(engine, training_data(arrays, 128), CONFIG, grouped=False)
    model, (record,) = train(engine, data, CONFIG)
    assert (model.n_prototypes, record.on_all_rows) == (0, 0)


def test_training__keeps_to_the_limit_of_iterations(
    engine: Engine, make_rows: MakeRows, training_data: MakeData
) -> None:
    (data,) = held_out_parts(engine, training_data(make_rows(240, 5), 128), CONFIG, grouped=False)
    _, (whole,) = train(engine, data, CONFIG)
    most = whole.iterations - 2
    assert whole.on_all_rows > 2
    _, (record,) = train(engine, data, replace(CONFIG, max_iterations=most))
    assert (record.iterations, record.on_all_rows) == (most, whole.on_all_rows - 2)


@pytest.mark.parametrize("columns", [{"x0", "x1"}, {"x0", "x1", "x2"}])
def test_restricted__are_the_rows_held_out_as_well(
    engine: Engine, make_rows: MakeRows, training_data: MakeData, columns: set[str]
) -> None:
    (data,) = held_out_parts(engine, training_data(make_rows(240, 5), 128), CONFIG, grouped=False)
    found = restricted(data, frozenset(columns))
    assert found.whole is not None
    for part in (found, found.whole):
        assert part.source.read(0)["features"].shape[1] == len(columns) == len(part.feature_names)
    _, (record,) = train(engine, found, CONFIG)
    assert record.on_all_rows > 0


def test_fit__says_how_it_finished_and_goes_on_from_there(
    tmp_path: Path, engine: Engine, make_rows: MakeRows, assert_same_bits: SameBits
) -> None:
    arrays = make_rows(240, 5)
    data = ingest_arrays(arrays["features"], arrays["target"], tmp_path / "d.zarr", engine=engine)
    run = fit(data, CONFIG, run_dir=tmp_path / "run", engine=engine)
    (record,) = run.history
    np.testing.assert_allclose(run.model.marginals, np.bincount(arrays["target"]) / 240, rtol=1e-14)
    assert run.model.provenance["fits"][0]["batches"][0]["on_all_rows"] == record.on_all_rows >= 3
    stages = read_progress(str(tmp_path / "run")).stages
    assert [stage.stage for stage in stages] == ["float64", "whole-float64"]
    assert sum(stage.evaluations for stage in stages) == record.evaluations
    log = tmp_path / "run" / "batch-1-whole-float64.log"
    size = log.stat().st_size
    (tmp_path / "run" / "history.json").unlink()
    for left in (size // 2, 0):
        log.write_bytes(log.read_bytes()[:left])
        assert_same_bits(fit(data, CONFIG, run_dir=tmp_path / "run", engine=engine).model, run.model)
        assert log.stat().st_size == size
    assert "on_all_rows" not in fit(data, replace(CONFIG, finish=False)).model.provenance["fits"][0]["batches"][0]


def test_plan__foresees_it(tmp_path: Path, engine: Engine, make_rows: MakeRows) -> None:
    arrays = make_rows(240, 5)
    data = ingest_arrays(arrays["features"], arrays["target"], tmp_path / "d.zarr", engine=engine)
    found, before = (plan(data, replace(CONFIG, finish=finish), calibrate=False) for finish in (True, False))
    assert found.evaluations > before.evaluations
    assert found.worker.total > before.worker.total


def test_tune__finishes_what_was_chosen_alone(tmp_path: Path, engine: Engine, make_rows: MakeRows) -> None:
    arrays = make_rows(150, 5)
    data = ingest_arrays(arrays["features"], arrays["target"], tmp_path / "d.zarr", engine=engine)
    search = SearchConfig(n_trials=2, n_folds=2, max_batches=1, n_draws=1)
    found, before = (tune(data, replace(CONFIG, finish=finish), search, engine=engine) for finish in (True, False))
    assert found.search.trials == before.search.trials
    assert (found.history[0].on_all_rows > 0, before.history[0].on_all_rows) == (True, 0)


@pytest.mark.slow
def test_classifier__learns_from_rows_held_out(make_rows: MakeRows) -> None:
    arrays = make_rows(300, 6)
    X, y = arrays["features"], arrays["target"]
    settings: dict[str, Any] = {"n_candidates": 40, "n_draws": 1}
    found = PrototypeSetClassifier(**settings).fit(X, y)
    assert found.history_[0].on_all_rows > 0
    assert PrototypeSetClassifier(**settings, finish=False).fit(X, y).history_[0].on_all_rows == 0
    assert PrototypeSetClassifier(**settings, hold_out=0).fit(X, y).history_[0].on_all_rows == 0
