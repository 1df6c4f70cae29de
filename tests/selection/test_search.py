from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from protodask.data.format.schema import Column
from protodask.data.format.summary import summarize
from protodask.engine import Engine, Source, array_source, thread_engine
from protodask.engine.together import Company
from protodask.evaluation import log_loss
from protodask.prototypes.config import FeatureWeights, FitConfig
from protodask.prototypes.draws import without_fold
from protodask.prototypes.fitted import probabilities
from protodask.prototypes.folds import check_training_parts, folded_source, make_folds
from protodask.prototypes.rounds import marginal_loss
from protodask.prototypes.runs import NO_LOG, RunLog
from protodask.prototypes.scores import MemoryScores
from protodask.prototypes.training import Training
from protodask.prototypes.training_data import TrainingData
from protodask.selection.holdout import JUDGED, FoldData, fold_parts
from protodask.selection.search import (
    FoldStep,
    Limits,
    Place,
    SearchEvent,
    SettingDone,
    fit_name,
    goes_on,
    run_search,
)
from protodask.selection.space import Setting

Arrays = dict[str, NDArray[Any]]
Losses = list[list[tuple[float, ...]]]

# Rounds end after some iterations, which are as good as many to tell bits apart.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Round . stopped early:protodask.prototypes.convergence.ConvergenceWarning"
)

CONFIG = FitConfig.of("source", n_candidates=16, max_iterations=6, lambda_w=1e-3, precision="float64", seed=5)
SETTINGS = [Setting(1e-3, 1e-3), Setting(3e-2, 1e-3), Setting(1e3, 1e-3)]
PLACE = Place(lambda name: MemoryScores(), lambda name, setting, fold: NO_LOG)
N_FOLDS = 3
EVERY = Limits(max_batches=2, patience=9, least_gain=0.0)


def training_data(engine: Engine, source: Source, names: Sequence[str]) -> TrainingData:
    columns = tuple(Column(f"x{position}") for position in range(3))
    return TrainingData(
        source, tuple(names), summarize(engine, source, 3), (0, 1, 2), tuple(column.name for column in columns), columns
    )


def held_out(rows: Arrays, block_rows: int, engine: Engine) -> tuple[list[FoldData], NDArray[np.int8], Arrays]:
    """The folds' data for a search; the fold of every row, and its full weight."""
    source = array_source(rows, block_rows)
    folds = make_folds(engine, source, 3, N_FOLDS, seed=2)
    check_training_parts(folds, (0, 1, 2), 0.5)
    folded = folded_source(source, folds)
    every = summarize(engine, source, 3).class_weight
    parts = []
    for fold in range(N_FOLDS):
        data = training_data(engine, without_fold(folded, fold, JUDGED), ("features", "target", "weight"))
        own = data.summary.class_weight
        parts.append(FoldData(fold, data, marginal_loss(own, every - own)))
    fold_of = np.concatenate([folds.folds(source.read(number)) for number in range(source.layout.n_blocks)])
    return parts, fold_of, {**rows, "weight": rows["weight"] / rows["inclusion"]}


def search_with(
    engine: Engine, parts: Sequence[FoldData], limits: Limits, company: Company, most: int, **others: Any
) -> Losses:
    return run_search(engine, parts, SETTINGS, CONFIG, limits, PLACE, company=company, most=most, **others)


def test_fold_parts__judge_the_shares_of_a_training_part_by_its_fold(rows: Arrays, engine: Engine) -> None:
    _, fold_of, whole = held_out(rows, 64, engine)
    source = array_source(rows, 64)
    folded = folded_source(source, make_folds(engine, source, 3, N_FOLDS, seed=2))
    data = training_data(engine, source, ("features", "target", "weight", "inclusion"))
    found = fold_parts(engine, folded, data, N_FOLDS, CONFIG, False, "side by side", 1)
    assert [part.fold for part in found] == list(range(N_FOLDS))
    target, weight = whole["target"], whole["weight"]
    for part in found:
        inside = fold_of == part.fold
        class_weight = np.bincount(target[~inside], weights=weight[~inside], minlength=3)
        np.testing.assert_allclose(part.data.summary.class_weight, class_weight)
        shares = np.tile(class_weight / class_weight.sum(), (int(inside.sum()), 1))
        assert part.marginal_loss == pytest.approx(log_loss(shares, target[inside], weight[inside]))


@pytest.fixture(scope="module")
def parts(rows: Arrays) -> list[FoldData]:
    with thread_engine(1) as engine:
        return held_out(rows, 64, engine)[0]


@pytest.fixture(scope="module")
def expected(parts: list[FoldData]) -> Losses:
    with thread_engine(1) as engine:
        return search_with(engine, parts, EVERY, "side by side", 1)


@pytest.mark.parametrize("feature_weights", ["shared", pytest.param("class", marks=pytest.mark.slow)])
def test_run_search__scores_each_fit_as_if_it_were_made_by_itself(
    rows: Arrays, feature_weights: FeatureWeights
) -> None:
    """Against plain fits to the rows that are not held out, as a dataset of its own with weights of zero."""
    by_weights = replace(CONFIG, feature_weights=feature_weights)
    with thread_engine(1) as engine:
        parts, fold_of, weighted = held_out(rows, 64, engine)
        expected = run_search(engine, parts, SETTINGS[:2], by_weights, EVERY, PLACE, company="side by side", most=1)
        for number, setting in enumerate(SETTINGS[:2]):
            for fold in range(N_FOLDS):
                kept = {name: weighted[name] for name in ("features", "target")}
                kept["weight"] = np.where(fold_of == fold, 0.0, weighted["weight"])
                source = array_source(kept, 64)
                config = replace(by_weights, lambda_v=setting.lambda_v, lambda_w=setting.lambda_w, n_batches=2)
                model, _ = Training(training_data(engine, source, tuple(kept)), config, engine, MemoryScores()).run()
                out = fold_of == fold
                for count, scores in enumerate(model.scores(rows["features"][out], model.round_ends)):
                    loss = log_loss(probabilities(scores), rows["target"][out], weight=weighted["weight"][out])
                    assert expected[number][count][fold] == pytest.approx(loss, rel=1e-12)


@pytest.mark.parametrize(
    ("company", "most"),
    [pytest.param("in step", 4, marks=pytest.mark.slow), ("in step", 20), ("side by side", 1), ("side by side", 4)],
)
def test_run_search__gives_the_same_bits_in_any_company(
    parts: list[FoldData], engine: Engine, expected: Losses, company: Company, most: int
) -> None:
    assert search_with(engine, parts, EVERY, company, most) == expected


def test_run_search__ends_a_setting_that_gains_nothing(parts: list[FoldData], engine: Engine, expected: Losses) -> None:
    found = search_with(engine, parts, Limits(2, 1, 0.1), "side by side", 2)
    # No feature survives the last penalty: its first batch changes nothing, and there is no second.
    assert len(found[2]) == 2
    assert found[2][1] == pytest.approx(found[2][0], rel=1e-9)
    assert [losses[: len(own)] for losses, own in zip(expected, found, strict=True)] == found
    assert len(found[0]) == 3


@pytest.mark.slow
def test_run_search__tells_of_every_batch_and_every_setting(parts: list[FoldData], engine: Engine) -> None:
    events: list[SearchEvent] = []
    found = search_with(engine, parts, EVERY, "in step", 20, listen=events.append)
    steps = [event for event in events if isinstance(event, FoldStep)]
    assert {(event.setting, event.fold, event.n_batches) for event in steps} == {
        (setting, fold, count) for setting in SETTINGS for fold in range(N_FOLDS) for count in (1, 2)
    }
    for event in steps:
        assert event.loss == found[SETTINGS.index(event.setting)][event.n_batches][event.fold]
    ended = [event for event in events if isinstance(event, SettingDone)]
    assert [event.done for event in ended] == [1, 2, 3]
    assert all(event.of == 3 for event in ended)


@pytest.mark.parametrize(
    ("means", "patience", "goes"),
    [
        ([1.0], 1, True),
        ([1.0, 0.9], 1, True),
        ([1.0, 1.0], 1, False),
        ([1.0, 1.1], 1, False),
        ([1.0, 1.1], 2, True),
        ([1.0, 1.1, 1.1], 2, False),
        ([1.0, 1.1, 0.9], 2, True),
        ([1.0, 0.9995], 1, False),  # the noise of these folds is 0.01, and a tenth of it is 0.001
        ([1.0, 0.5, 0.4, 0.3], 1, False),  # as many as there may be
    ],
)
def test_goes_on__while_the_mean_falls_by_more_than_noise(means: list[float], patience: int, goes: bool) -> None:
    spread = np.array([-0.01, 0.01])[:, None]  # its standard error is 0.01
    assert goes_on(np.array(means) + spread, Limits(3, patience, 0.1)) is goes


def test_fit_name__tells_settings_apart_to_the_last_bit() -> None:
    value = 0.1
    names = {
        fit_name(Setting(v, w), fold)
        for v in (value, float(np.nextafter(value, 1)))
        for w in (value, float(np.nextafter(value, 1)))
        for fold in (0, 1)
    }
    assert len(names) == 8


def test_run_search__lets_go_of_scores_when_a_listener_fails(parts: list[FoldData], engine: Engine) -> None:

    def refuse(event: SearchEvent) -> None:
        raise KeyboardInterrupt

    kept: list[CountedScores] = []

    def keeper(name: str) -> MemoryScores:
        kept.append(CountedScores())
        return kept[-1]

    with pytest.raises(KeyboardInterrupt):
        run_search(
            engine, parts, SETTINGS, CONFIG, EVERY, replace(PLACE, scores=keeper), company="in step", most=4,
            listen=lambda event: refuse(event) if event_is_second(event) else None,
        )  # fmt: skip
    assert all(one.cleared for one in kept if one.used)


class CountedScores(MemoryScores):
    used = False
    cleared = False

    def keep(self, *args: Any, **named: Any) -> Source:
        object.__setattr__(self, "used", True)
        return super().keep(*args, **named)

    def clear(self) -> None:
        object.__setattr__(self, "cleared", True)


def event_is_second(event: SearchEvent) -> bool:
    return isinstance(event, FoldStep) and event.n_batches == 2


def test_run_search__opens_no_log_before_its_fit_begins(parts: list[FoldData], engine: Engine) -> None:
    opened: list[str] = []

    def log(name: str, setting: Setting, fold: int) -> RunLog:
        opened.append(name)
        return NO_LOG

    def stop(event: SearchEvent) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_search(
            engine, parts, SETTINGS, CONFIG, EVERY, replace(PLACE, log=log), company="in step", most=2, listen=stop
        )
    assert opened == [fit_name(SETTINGS[0], fold) for fold in (0, 1)]
