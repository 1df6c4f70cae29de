"""Draws of candidates, averaged: the mean of what each would be by itself."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.errors import refused

from protodask import PrototypeSetClassifier, plan
from protodask.data.tables.ingest import ingest_arrays
from protodask.engine import Engine, thread_engine
from protodask.engine.together import Company
from protodask.explain.original_rows import training_keys
from protodask.prototypes import FitConfig, PrototypeSet, fit
from protodask.prototypes.candidates import HELD_OUT
from protodask.prototypes.draws import Fitting, averaged, held_out_parts, how_together, worth_averaging
from protodask.prototypes.fitting import batch_summary
from protodask.prototypes.history import BatchDone, BatchStarted, FitEvent
from protodask.prototypes.run_progress import read_progress
from protodask.prototypes.scores import MemoryScores
from protodask.prototypes.training import Training
from protodask.prototypes.training_data import TrainingData

Arrays = dict[str, NDArray[Any]]
MakeRows = Callable[..., Arrays]
MakeData = Callable[..., TrainingData]
MakeModel = Callable[..., PrototypeSet]
SameBits = Callable[[PrototypeSet, PrototypeSet], None]

# Rounds end after some iterations, which are as good as many to tell bits apart.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Round . stopped early:protodask.prototypes.convergence.ConvergenceWarning"
)

CONFIG = FitConfig.of("source", n_candidates=30, n_batches=2, lambda_w=1e-4, max_iterations=8, n_draws=3, seed=3)


def run(
    engine: Engine, data: TrainingData, config: FitConfig, company: Company = "side by side", **others: Any
) -> tuple[PrototypeSet, list[Any]]:
    fitting = Fitting(config, engine, lambda draw: MemoryScores(), **others)
    return fitting.run(data, grouped=False, company=company, most=2)


@pytest.mark.parametrize(
    "settings",
    [
        {"hold_out": 0.5},
        pytest.param({"hold_out": 0.25, "feature_weights": "class"}, marks=pytest.mark.slow),
        pytest.param({"feature_weights": "both"}, marks=pytest.mark.slow),
    ],
)
def test_fitting__is_the_mean_of_its_draws(
    engine: Engine, make_rows: MakeRows, training_data: MakeData, settings: dict[str, Any]
) -> None:
    config = replace(CONFIG, **settings)
    data = training_data(make_rows(240, 7))
    found, history = run(engine, data, config)
    parts = held_out_parts(engine, data, config, grouped=False)
    x = make_rows(50, 9)["features"]
    total, records = np.zeros((50, 2)), []
    for draw, part in enumerate(parts):
        alone, own = Training(part, config, engine, MemoryScores(), draw=draw).run()
        (scores,) = alone.scores(x, [alone.n_batches])
        total += scores - alone.marginals
        records += own
    np.testing.assert_array_equal(found.marginals, data.summary.class_weight / data.summary.class_weight.sum())
    (scores,) = found.scores(x, [found.n_batches])
    np.testing.assert_allclose(scores, found.marginals + total / 3, rtol=1e-6)
    assert found.n_rounds == 2
    wanted = {"shared": {True}, "class": {False}, "both": {True, False}}[config.feature_weights]
    for number in range(2):
        assert {found.label_of(batch) is None for batch in found.round_batches(number)} == wanted
    assert [record.batch for record in history] == [1, 2, 3, 4, 5, 6]
    assert [record.values for record in history] == [record.values for record in records]
    drawn = {tuple(record.candidates.tolist()) for record in history}
    assert len(drawn) == 6, "each round of each draw has candidates of its own"


def test_held_out_parts__hold_out_one_fold_after_the_other(
    engine: Engine, make_rows: MakeRows, training_data: MakeData
) -> None:
    data = training_data(make_rows(200, 4))
    parts = held_out_parts(engine, data, replace(CONFIG, hold_out=0.25, n_draws=6), grouped=False)
    held = [
        np.concatenate([part.source.read(number)[HELD_OUT] for number in range(part.source.layout.n_blocks)])
        for part in parts
    ]
    np.testing.assert_array_equal(sum(held[:4]), np.ones(200))
    for draw in (4, 5):
        np.testing.assert_array_equal(held[draw], held[draw - 4])


@pytest.mark.slow
def test_fitting__has_the_same_bits_in_any_company(
    engine: Engine, make_rows: MakeRows, training_data: MakeData, assert_same_bits: SameBits
) -> None:
    data, config = training_data(make_rows(240, 4)), replace(CONFIG, hold_out=0.25)
    expected, _ = run(engine, data, config)
    ways: list[tuple[Company, int]] = [("side by side", 1), ("side by side", 3), ("in step", 2)]
    for company, threads in ways:
        with thread_engine(threads, 2**30) as other:
            assert_same_bits(run(other, data, config, company)[0], expected)


def test_fitting__tells_of_every_draw_one_event_at_a_time(
    engine: Engine, make_rows: MakeRows, training_data: MakeData
) -> None:
    events: list[FitEvent] = []
    _, history = run(engine, training_data(make_rows(240, 4)), CONFIG, callbacks=[events.append])
    begun = sorted((event.batch, event.n_batches) for event in events if isinstance(event, BatchStarted))
    assert begun == [(number, 6) for number in range(1, 7)]
    ended = {event.record.batch: event.record for event in events if isinstance(event, BatchDone)}
    assert [ended[record.batch] for record in history] == history


def test_fitting__whose_listener_fails_ends(engine: Engine, make_rows: MakeRows, training_data: MakeData) -> None:
    def fails(event: FitEvent) -> None:
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        run(engine, training_data(make_rows(100, 4)), CONFIG, callbacks=[fails])


@pytest.mark.slow
def test_fit__leaves_out_draws_that_lose_clearly_more() -> None:
    """A wide class and a narrow one: weights of features that all classes share tell little, those of each much."""
    random = np.random.default_rng(0)

    def draw(n_rows: int) -> tuple[NDArray[Any], NDArray[Any]]:
        target = random.integers(0, 2, n_rows)
        x = random.standard_normal((n_rows, 20))
        return np.where(target[:, None] == 0, 2 * x, x + 0.5), target

    fitted = PrototypeSetClassifier().fit(*draw(2200))
    of_classes, shared = fitted.history_
    assert (of_classes.kept, shared.kept) == (True, False)
    assert (shared.held_out or 0) > 2 * (of_classes.held_out or 1)
    assert {fitted.model_.label_of(batch) for batch in fitted.model_.batches} == {0, 1}
    assert "kept" not in batch_summary(of_classes)
    assert batch_summary(shared)["kept"] is False
    x, target = draw(5000)
    loss = -np.log(fitted.predict_proba(x)[np.arange(len(x)), target]).mean()
    assert loss < 0.1, "0.16 with both draws"


@pytest.mark.parametrize(
    ("ways", "losses", "rows", "kept"),
    [
        ("cs", [0.07, 0.23], 1000, "c"),
        ("cs", [0.23, 0.07], 1000, "s"),
        ("cscs", [0.07, 0.23, 0.08, 0.21], 1000, "c"),
        ("ccc", [0.07, 0.23, 0.08], 1000, "c"),  # of one way all are as good, but for chance
        ("cscsc", [0.3, 0.35, 0.5, 0.34, 0.3], 200, "cs"),
        ("cs", [0.07, 0.23], 20, "cs"),  # so few rows may happen to be hard
        ("cs", [0.40, 0.49], 10**6, "cs"),  # surely worse, and not by much
        ("cs", [0.70, 0.95], 600, "c"),
        ("cs", [0.0, 0.5], 1000, "c"),
        ("cs", [0.0, 0.0], 0, "cs"),
        ("cs", [None, None], 0, "cs"),
    ],
)
def test_worth_averaging__keeps_ways_that_do_not_lose_clearly_more(
    ways: str, losses: list[float | None], rows: int, kept: str
) -> None:
    assert worth_averaging(list(ways), losses, [rows] * len(losses)) == [way in kept for way in ways]


def test_averaged__begins_from_the_start(make_model: MakeModel) -> None:
    models = [make_model(0, n_batches=3), make_model(0, n_batches=3)]
    start = replace(models[0], batches=models[0].batches[:1])
    found = averaged(start, models)
    assert found.rounds == (1, 1, 2), "the second batch of these models is empty, and one such is enough"
    assert found.batches[0] is models[0].batches[0]
    assert found.batches[1].n_prototypes == 0
    np.testing.assert_array_equal(found.batches[2].prototype_weight, models[0].batches[2].prototype_weight / 2)
    x = np.random.default_rng(0).normal(size=(9, 4))
    np.testing.assert_allclose(found.scores(x, [4])[0], models[0].scores(x, [3])[0], rtol=1e-12)


def test_fit__of_draws_goes_on_where_it_was_interrupted(
    tmp_path: Path, engine: Engine, make_rows: MakeRows, assert_same_bits: SameBits
) -> None:
    arrays = make_rows(240, 4)
    data = ingest_arrays(arrays["features"], arrays["target"], tmp_path / "d.zarr", engine=engine)
    config = replace(CONFIG, hold_out=0.25)
    expected = fit(data, config, engine=engine)
    assert expected.model.n_rounds == 2

    class Interrupted(Exception):
        pass

    for stop in (3, 20, 45):
        seen: list[FitEvent] = []

        def callback(event: FitEvent, stop: int = stop, seen: list[FitEvent] = seen) -> None:
            seen.append(event)
            if len(seen) == stop:
                raise Interrupted

        with pytest.raises(Interrupted):
            fit(data, config, run_dir=tmp_path / "run", engine=engine, callbacks=[callback])
    found = fit(data, config, run_dir=tmp_path / "run", engine=engine)
    assert_same_bits(found.model, expected.model)
    progress = read_progress(str(tmp_path / "run"))
    assert (progress.finished, progress.n_batches, progress.position) == (True, 6, 6)
    grown = fit(data, replace(config, n_batches=1), engine=engine, start=expected.model)
    assert grown.model.n_rounds == 3
    for model in (found.model, grown.model):
        assert training_keys(model) == (data.key,) * model.n_batches, "every batch is of the data that it was fitted to"
    assert plan(data, config, calibrate=False).shape.n_batches == 6


def test_classifier__averages_draws(make_rows: MakeRows) -> None:
    arrays = make_rows(240, 4)
    X, y = arrays["features"], arrays["target"]
    settings: dict[str, Any] = {"recipe": "source", "n_candidates": 30, "max_iterations": 8, "n_draws": 2}
    found = PrototypeSetClassifier(**settings).fit(X, y)
    assert found.model_.rounds == (2,)
    again = PrototypeSetClassifier(**settings, warm_start=True).fit(X, y)
    assert again.predict_proba(X).tobytes() == found.predict_proba(X).tobytes()
    assert again.set_params(n_batches=2).fit(X, y).model_.rounds == (2, 2)


@pytest.mark.parametrize("wrong", [-1, 101, 1.5])
def test_fit_config__refuses_numbers_of_draws_that_make_no_sense(wrong: Any) -> None:
    with refused("bad-setting", "n_draws", wrong):
        FitConfig.of("source", n_draws=wrong)


@pytest.mark.parametrize("n_draws", [1, 3])
def test_fitting__of_no_rounds_is_the_shares_of_all_rows(
    engine: Engine, make_rows: MakeRows, training_data: MakeData, n_draws: int
) -> None:
    data = training_data(make_rows(90, 4))
    found, history = run(engine, data, replace(CONFIG, n_batches=0, hold_out=0.3, n_draws=n_draws))
    assert (found.n_rounds, history) == (0, [])
    np.testing.assert_array_equal(found.marginals, data.summary.class_weight / data.summary.class_weight.sum())


def test_how_together__uses_a_second_thread_where_there_is_work_for_it() -> None:
    shared, by_class = FitConfig(n_candidates=500, feature_weights="shared"), FitConfig(n_candidates=500)
    with thread_engine(2) as engine:
        for rows, features, classes, config, most in [
            (1000, 8, 2, shared, 20),
            (999, 8, 2, shared, 1),  # half a million pairs, of eight features
            (1000, 1, 2, shared, 20),  # or of fewer, which are as much work
            (200, 200, 2, shared, 20),
            (1000, 8, 2, by_class, 1),
            (1000, 16, 2, by_class, 20),
        ]:
            assert how_together(engine, None, rows, features, classes, config) == ("side by side", most)
