"""Rows that are held out of a training: which they are, what is kept for them, and what they are not."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.errors import refused

from protodask import PrototypeSetClassifier, PrototypeSetSearchCV, SearchConfig, tune
from protodask.data.tables.ingest import ingest_arrays
from protodask.engine import Block, Engine, Source
from protodask.prototypes import FitConfig, PrototypeSet, fit
from protodask.prototypes import draws as draws_module
from protodask.prototypes.candidates import HELD_OUT, smallest_class
from protodask.prototypes.draws import held_out_parts
from protodask.prototypes.fitted import probabilities
from protodask.prototypes.fitting import dataset_for_training
from protodask.prototypes.folds import FOLD, folded_source, make_folds
from protodask.prototypes.history import FitEvent, IterationDone
from protodask.prototypes.scores import MemoryScores
from protodask.prototypes.training import Training
from protodask.prototypes.training_data import TrainingData
from protodask.selection.holdout import JUDGED, fold_parts

Arrays = dict[str, NDArray[Any]]
MakeRows = Callable[..., Arrays]
MakeData = Callable[..., TrainingData]

CONFIG = FitConfig.of("source", n_candidates=40, lambda_w=1e-6, hold_out=0.25, precision="float64", seed=3)


def all_of(source: Source, name: str) -> NDArray[Any]:
    return np.concatenate([source.read(number)[name] for number in range(source.layout.n_blocks)])


def mean_loss(model: PrototypeSet, arrays: Arrays, weight: NDArray[np.float64]) -> float:
    (scores,) = model.scores(arrays["features"], [model.n_batches])
    own = probabilities(scores)[np.arange(len(weight)), arrays["target"]]
    return float(weight @ -np.log(own) / weight.sum())


@pytest.mark.parametrize("weights", ["", "weight inclusion"])
def test_held_out_parts__takes_its_share_of_every_class(
    engine: Engine, make_rows: MakeRows, training_data: MakeData, weights: str
) -> None:
    arrays = make_rows(300, 2, n_classes=3, weights=weights)
    data = training_data(arrays, n_classes=3)
    (found,) = held_out_parts(engine, data, CONFIG, grouped=False)
    held, kept = all_of(found.source, HELD_OUT), all_of(found.source, "weight")
    full = arrays["weight"] / arrays["inclusion"] if weights else np.ones(300)
    np.testing.assert_allclose(held + kept, full, rtol=1e-14)
    assert not (held * kept).any()
    for label in range(3):
        rows = (arrays["target"] == label) & (full > 0)
        assert abs(np.count_nonzero(held[rows]) - rows.sum() / 4) < 1
    assert found.held_out_weight == pytest.approx(held.sum(), rel=1e-12)
    assert found.summary.weight == pytest.approx(kept.sum(), rel=1e-12)
    assert held_out_parts(engine, data, replace(CONFIG, hold_out=0.0, n_draws=2), grouped=False) == [data, data]


@pytest.mark.slow
@pytest.mark.parametrize("feature_weights", ["shared", "class"])
def test_training__keeps_the_iterate_at_which_held_out_rows_lose_least(
    engine: Engine, make_rows: MakeRows, training_data: MakeData, feature_weights: Any
) -> None:
    arrays, events = make_rows(240, 5, weights="weight"), list[FitEvent]()
    config = replace(CONFIG, feature_weights=feature_weights, n_batches=2, seed=5)
    (data,) = held_out_parts(engine, training_data(arrays, 128), config, grouped=False)
    held = all_of(data.source, HELD_OUT)
    model, history = Training(data, config, engine, MemoryScores(), callbacks=[events.append]).run()
    for record in history:
        assert record.status == "held out"
        told = [event for event in events if isinstance(event, IterationDone) and event.batch == record.batch]
        assert len(told) == record.iterations
        assert record.held_out == min(event.held_out for event in told if event.held_out is not None)
    loss = mean_loss(model, arrays, held)
    assert history[-1].held_out == pytest.approx(loss, rel=1e-9)
    # No row that is held out becomes a prototype.
    rows = np.concatenate([batch.row for batch in model.batches])
    assert not held[rows].any()
    # To train on to the optimum serves the rows that are trained on, and not these.
    nearly = replace(config, tolerance=1e-4)
    optimum, _ = Training(replace(data, held_out_weight=0.0), nearly, engine, MemoryScores()).run()
    kept = all_of(data.source, "weight")
    assert mean_loss(optimum, arrays, held) > loss
    assert mean_loss(optimum, arrays, kept) < mean_loss(model, arrays, kept)


def test_training__of_noise_keeps_no_prototypes(engine: Engine, training_data: MakeData) -> None:
    rng = np.random.default_rng(0)
    arrays: Arrays = {"features": rng.normal(size=(400, 3)), "target": rng.integers(0, 2, 400).astype(np.int32)}
    (data,) = held_out_parts(engine, training_data(arrays), CONFIG, grouped=False)
    model, (record,) = Training(data, CONFIG, engine, MemoryScores()).run()
    assert (model.n_prototypes, record.prototypes, record.status) == (0, 0, "held out")
    assert record.held_out == pytest.approx(mean_loss(model, arrays, all_of(data.source, HELD_OUT)), rel=1e-12)


def test_fit__holds_out_whole_groups(tmp_path: Path, engine: Engine, make_rows: MakeRows) -> None:
    arrays = make_rows(200, 3)
    group = np.arange(200) // 4
    data = ingest_arrays(arrays["features"], arrays["target"], tmp_path / "d.zarr", group=group, engine=engine)
    seen: list[Block] = []

    def noted(*arguments: Any) -> list[TrainingData]:
        found: list[TrainingData] = held_out_parts(*arguments)
        (source,) = (part.source for part in found)
        seen.extend(source.read(number) for number in range(source.layout.n_blocks))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draws_module, "held_out_parts", noted)
        fit(data, CONFIG, engine=engine)
    held = np.concatenate([block[HELD_OUT] for block in seen]) > 0
    assert 30 < held.sum() < 70
    assert all(len(set(held[group == one].tolist())) == 1 for one in range(50))


def test_classifier__holds_out_rows(make_rows: MakeRows) -> None:
    arrays = make_rows(300, 6)
    X, y = arrays["features"], arrays["target"]
    found = PrototypeSetClassifier(n_candidates=40, lambda_w=1e-6, hold_out=0.2, n_draws=2).fit(X, y)
    assert found.history_[0].status == "held out"
    again = PrototypeSetClassifier(n_candidates=40, lambda_w=1e-6, hold_out=0.2, n_draws=2).fit(X, y)
    assert again.predict_proba(X).tobytes() == found.predict_proba(X).tobytes()


@pytest.mark.parametrize("wrong", [-0.1, 0.6, 1, 0.005, float("nan"), "some"])
def test_fit_config__refuses_a_share_that_is_none(wrong: Any) -> None:
    with refused("bad-setting", "hold_out", "0.01 to 0.5"):
        FitConfig.of("source", hold_out=wrong)


def test_search__stops_no_fit_by_the_rows_that_it_is_judged_by(
    tmp_path: Path, engine: Engine, make_rows: MakeRows
) -> None:
    arrays = make_rows(150, 3)
    data = ingest_arrays(arrays["features"], arrays["target"], tmp_path / "d.zarr", engine=engine)
    source = dataset_for_training(data)
    folds = make_folds(engine, source.source, 2, 3, CONFIG.seed)
    folded = folded_source(source.source, folds)
    parts = fold_parts(engine, folded, source, 3, CONFIG, False, "in step", 3)
    for part in parts:
        held, judged, kept = (all_of(part.data.source, name) for name in (HELD_OUT, JUDGED, "weight"))
        np.testing.assert_array_equal(held + judged + kept, np.ones(150))
        np.testing.assert_array_equal(judged > 0, all_of(folded, FOLD) == part.fold)
        for label in (0, 1):  # a quarter of what each class has besides
            rows = (arrays["target"] == label) & (judged == 0)
            assert abs(held[rows].sum() - rows.sum() / 4) < 1
        assert part.data.held_out_weight == held.sum()


@pytest.mark.slow
def test_search__of_fits_that_hold_rows_out_is_the_same_for_rows_in_memory(
    tmp_path: Path, engine: Engine, make_rows: MakeRows
) -> None:
    arrays = make_rows(100, 3)
    X, y = arrays["features"], arrays["target"]
    data = ingest_arrays(X, y, tmp_path / "d.zarr", engine=engine)
    search = SearchConfig(n_trials=2, n_folds=2, max_batches=1, n_draws=1)
    config = FitConfig(n_candidates=20, n_draws=2, lambda_w=1e-4, tolerance=1e-4)
    stored = tune(data, config, search, engine=engine)
    classifier = PrototypeSetClassifier(n_candidates=20, n_draws=2, lambda_w=1e-4, tolerance=1e-4, engine=engine)
    found = PrototypeSetSearchCV(classifier, search).fit(X, y)
    assert found.search_.trials == stored.search.trials
    assert len(stored.history) == 2  # the draws of the final fit
    model = found.best_estimator_.model_
    whole = [model.n_batches]
    assert model.scores(X, whole)[0].tobytes() == stored.model.scores(X, whole)[0].tobytes()


def test_held_out_parts__leaves_classes_that_are_too_rare_as_they_are(
    engine: Engine, make_rows: MakeRows, training_data: MakeData
) -> None:
    arrays = make_rows(60, 3)
    arrays["target"][:] = 0
    arrays["target"][:3] = 1
    for part in held_out_parts(engine, training_data(arrays), replace(CONFIG, n_draws=4), grouped=False):
        held = all_of(part.source, HELD_OUT)
        assert not held[:3].any()
        assert abs(held.sum() - 57 / 4) < 1
    arrays["target"][6:] = 1
    (part,) = held_out_parts(engine, training_data({name: rows[:6] for name, rows in arrays.items()}), CONFIG, False)
    assert part.held_out_weight == 0


def test_held_out_parts__hold_out_rows_of_a_class_that_keeps_just_enough(
    engine: Engine, make_rows: MakeRows, training_data: MakeData
) -> None:
    arrays = make_rows(60, 3)
    arrays["target"][:] = np.arange(60) < 4
    assert smallest_class(CONFIG.max_fraction) == 3
    for part in held_out_parts(engine, training_data(arrays), replace(CONFIG, n_draws=4), grouped=False):
        held = all_of(part.source, HELD_OUT)
        assert held[:4].sum() == 1
        assert held[4:].sum() == 14
