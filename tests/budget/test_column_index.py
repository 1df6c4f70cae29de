"""The index of a dataset's columns, its models, its folder, and builds that are interrupted."""

import json
import math
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.errors import refused

from protodask.budget import (
    FailedExpansionWarning,
    MonotonicityWarning,
    build_column_budget,
    load_column_budget,
    save_column_budget,
)
from protodask.budget import column_index as column_index_module
from protodask.budget import column_models as column_models_module
from protodask.budget.column_folder import holds_budget
from protodask.budget.column_index import EXPANSIONS, BudgetEvent, ColumnBudget
from protodask.budget.column_models import SetFit
from protodask.budget.index import make_index
from protodask.budget.index_building import search_sets
from protodask.budget.lattice import Exploration, ExplorationProgress
from protodask.data import Dataset, write_dataset
from protodask.data.format.schema import Column
from protodask.engine import Engine, array_source, thread_engine
from protodask.errors import FormatError, InputError, OutputExistsError, StorageError
from protodask.prototypes.config import FitConfig
from protodask.prototypes.fitting import fit
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.persistence import model_fingerprint

COLUMNS = (Column("x"), Column("kind", "nominal", ("a", "b")), Column("noise"))
COSTS = {"place": (["x"], [1.0, 0.1]), "kind": (["kind"], [2.0]), "noise": (["noise"], [0.5])}
SIZES = (0.0, 50.0)
CONFIG = FitConfig.of("source", n_candidates=30, tolerance=0.1, lambda_w=1e-3, precision="float64", seed=5)
SETTINGS: dict[str, Any] = {"sizes": SIZES, "config": CONFIG, "folds": 2, "monotone_error": 0.05}


def write(path: Path, n_rows: int = 160, kept: tuple[str, ...] = ("x", "kind", "noise")) -> Dataset:
    rng = np.random.default_rng(0)
    kind, place = rng.integers(0, 2, n_rows), np.round(rng.uniform(size=n_rows) * 2048) / 1024
    arrays = {"x": [place], "kind": [kind == 0, kind == 1], "noise": [rng.standard_normal(n_rows)]}
    target = np.where(rng.random(n_rows) < 0.05, rng.integers(0, 3, n_rows), np.floor(place) + kind)
    features = np.column_stack([array for name in kept for array in arrays[name]]).astype(np.float32)
    with thread_engine(1, 2**26) as engine:
        return write_dataset(
            array_source({"features": features, "target": target.astype(np.int32)}, 64),
            path,
            classes=("no", "maybe", "yes"),
            columns=tuple(column for column in COLUMNS if column.name in kept),
            target_name="answer",
            engine=engine,
            block_rows=64,
        )


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write(tmp_path_factory.mktemp("data") / "data.zarr")


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with thread_engine(1) as opened:
        yield opened


@pytest.fixture(scope="module")
def searched(data: Dataset, engine: Engine) -> tuple[ColumnBudget, Exploration]:
    found: list[Exploration] = []

    def search(*arguments: Any, **options: Any) -> Exploration:
        found.append(search_sets(*arguments, **options))
        return found[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_index_module, "search_sets", search)
        return build_column_budget(data, COSTS, engine=engine, **SETTINGS), found[0]


@pytest.fixture(scope="module")
def built(searched: tuple[ColumnBudget, Exploration]) -> ColumnBudget:
    return searched[0]


def test_build_column_budget__answers_with_what_cross_validation_found(built: ColumnBudget) -> None:
    index = built.index
    assert index.expanded <= 8
    assert index.feature_names == ("place", "kind", "noise")
    known = {one.features: one.accuracy for one in index.expansions if one.accuracy is not None}
    for size in (0.0, 10.0, 50.0):
        for budget in (0.0, 0.7, 2.5, 3.5, 9.0):
            choice = index.best(size, budget)
            within = [accuracy for features, accuracy in known.items() if index.curves.at(features, size) <= budget]
            assert choice.accuracy == max(within)
            assert choice.cost <= budget
    assert index.best(0.0, 100.0).features >= {0, 1}
    assert known[frozenset({0, 1})] > 0.8


def test_build_column_budget__has_a_model_for_each_answer_that_asks_for_its_columns_only(
    built: ColumnBudget, data: Dataset
) -> None:
    reached = set()
    for size in np.linspace(*SIZES, 11):
        reached |= set(built.index.choose(size, np.linspace(0, 20, 101)).tolist())
    for number in reached:
        features, model = built.index.sets[number], built.models[number]
        assert (model is None) == (features == frozenset())
        if model is not None:
            wanted = built.features.columns_of(features)
            assert [column.name for column in model.columns] == [one.name for one in COLUMNS if one.name in wanted]
            assert set(model.other_names) == {one.name for one in COLUMNS} - wanted
            assert model.target_name == "answer"
            assert model.provenance["fits"][0]["dataset"] == data.key


def test_build_column_budget__models_are_those_of_fits_to_their_columns_alone(
    built: ColumnBudget, data: Dataset, engine: Engine, tmp_path: Path
) -> None:
    number = built.index.sets.index(frozenset({0, 1}))
    alone = write(tmp_path / "alone.zarr", kept=("x", "kind"))
    kept = [0, 1, 2]
    for name in ("mean", "squares"):
        assert getattr(alone.summary, name).tolist() == getattr(data.summary, name)[kept].tolist()
    expected = fit(alone, CONFIG, engine=engine).model
    model = built.models[number]
    assert model is not None
    assert model_fingerprint(model) == model_fingerprint(expected)


@pytest.mark.slow
def test_build_column_budget__is_the_same_on_more_threads_and_in_step(
    built: ColumnBudget, data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("protodask.budget.column_models.how_together", lambda *arguments: ("in step", 7))
    with thread_engine(2) as engine:
        found = build_column_budget(data, COSTS, engine=engine, **SETTINGS)
    assert same(found, built)


def same(one: ColumnBudget, other: ColumnBudget) -> bool:
    def key(budget: ColumnBudget) -> Any:
        models = [None if model is None else model_fingerprint(model) for model in budget.models]
        known = [(expansion.features, expansion.accuracy) for expansion in budget.index.expansions]
        return budget.index.sets, budget.index.accuracies.tolist(), models, known

    return bool(key(one) == key(other))


@pytest.mark.slow
@pytest.mark.parametrize("models", [False, True])
def test_build_column_budget__goes_on_where_it_was_interrupted(
    built: ColumnBudget, data: Dataset, engine: Engine, tmp_path: Path, models: bool
) -> None:
    run_dir = tmp_path / "run"

    def stop(event: BudgetEvent) -> None:
        if isinstance(event, ExplorationProgress) != models and progress(event) == 3:
            raise KeyboardInterrupt

    def progress(event: BudgetEvent) -> int:
        return event.expanded if isinstance(event, ExplorationProgress) else event.done + 2

    with pytest.raises(KeyboardInterrupt):
        build_column_budget(data, COSTS, engine=engine, run_dir=run_dir, listen=stop, **SETTINGS)
    before = (run_dir / EXPANSIONS).read_bytes()
    assert not (run_dir / "history.json").exists()
    fitted = {path: path.stat().st_mtime_ns for path in run_dir.glob("models/*/zarr.json")}
    assert len(fitted) == models
    found = build_column_budget(data, COSTS, engine=engine, run_dir=run_dir, **SETTINGS)
    assert same(found, built)
    after = (run_dir / EXPANSIONS).read_bytes()
    assert after.startswith(before)
    sets = [tuple(json.loads(line)["features"]) for line in after.splitlines()[1:]]
    assert len(set(sets)) == len(sets), "no set was expanded twice"
    assert {path: path.stat().st_mtime_ns for path in fitted} == fitted, "no model was fitted twice"


def test_build_column_budget__uses_a_run_again_with_other_costs_and_settings(
    data: Dataset, engine: Engine, tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
    first = build_column_budget(data, COSTS, engine=engine, run_dir=run_dir, alpha=0.5, **SETTINGS)
    dear = {name: (columns, [2 * value for value in cost]) for name, (columns, cost) in COSTS.items()}
    events: list[BudgetEvent] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_models_module, "Fitting", None)  # no model is fitted a second time
        second = build_column_budget(
            data, dear, engine=engine, run_dir=run_dir, alpha=0.5, listen=events.append, **{**SETTINGS, "sizes": (0, 9)}
        )
    assert second.index.best(5.0, 20.0).cost == 2 * first.index.best(5.0, 20.0).cost
    assert {one.features for one in second.index.expansions} == {one.features for one in first.index.expansions}
    with refused("other-run", run_dir, "budget.folds was 2 and is 3"):
        build_column_budget(data, COSTS, engine=engine, run_dir=run_dir, **{**SETTINGS, "folds": 3})


def test_build_column_budget__leaves_a_set_out_whose_fit_to_all_rows_fails(
    searched: tuple[ColumnBudget, Exploration], data: Dataset, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (built, explored), best = searched, frozenset({0, 1})
    plain = column_models_module.fit_sets

    def fails(*arguments: Any) -> list[SetFit]:
        return [
            SetFit(one.features, None, "It would not.") if one.features == best else one for one in plain(*arguments)
        ]

    monkeypatch.setattr(column_index_module, "search_sets", lambda *arguments, **options: explored)
    monkeypatch.setattr(column_index_module, "fit_sets", fails)
    with pytest.warns(FailedExpansionWarning, match="so: It would not."):
        found = build_column_budget(data, COSTS, engine=engine, **SETTINGS)
    assert best in built.index.sets
    assert best not in found.index.sets
    assert [(one.features, one.failure) for one in found.index.failures] == [(best, "It would not.")]
    assert found.index.guarantee == math.inf
    for features, model in zip(found.index.sets, found.models, strict=True):
        assert model is None or set(model.feature_names) != {"x", "kind=a", "kind=b"}
        assert features != best


def test_build_column_budget__warns_where_the_guarantee_does_not_hold(
    searched: tuple[ColumnBudget, Exploration], data: Dataset, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    less_sure = replace(searched[1], expansions=searched[1].expansions[:-1], observed_error=0.3)
    monkeypatch.setattr(column_index_module, "search_sets", lambda *arguments, **options: less_sure)
    with pytest.warns(MonotonicityWarning, match=r"monotone_error=0\.3 or more"):
        build_column_budget(data, COSTS, engine=engine, **SETTINGS)


def test_save_column_budget__and_load_budget_give_the_same(built: ColumnBudget, tmp_path: Path) -> None:
    place = tmp_path / "index"
    save_column_budget(built, place)
    assert sorted(os.listdir(place)) == ["_protodask.json", "index.json", "models"]
    found = load_column_budget(place)
    assert found.index.sets == built.index.sets
    assert found.index.accuracies.tolist() == built.index.accuracies.tolist()
    assert found.columns == (("x",), ("kind",), ("noise",))
    assert (found.classes, found.target_name) == (("no", "maybe", "yes"), "answer")
    assert found.shares == built.shares
    for number, model in enumerate(built.models):
        own = found.model(number)
        assert (own is None) == (model is None)
        if own is not None and model is not None:
            assert model_fingerprint(own) == model_fingerprint(model)
    assert holds_budget(str(place), built)
    assert not holds_budget(str(tmp_path), built)
    for index in (replace(built.index, alpha=0.5), replace(built.index, guarantee=0.5)):
        assert not holds_budget(str(place), replace(built, index=index))
    moved = make_index(built.features.curves, built.index.expansions[:2], feature_names=built.features.names)
    assert not holds_budget(str(place), replace(built, index=moved, models=(None,) * len(moved.sets)))


def test_save_column_budget__refuses_what_is_there(built: ColumnBudget, tmp_path: Path) -> None:
    place = tmp_path / "index"
    save_column_budget(built, place)
    with refused("exists", "overwrite=True", kind=OutputExistsError):
        save_column_budget(built, place)
    save_column_budget(built, place, overwrite=True)
    (tmp_path / "other").mkdir()
    with refused("wrong-kind", tmp_path / "other", kind=OutputExistsError):
        save_column_budget(built, tmp_path / "other", overwrite=True)
    with refused("not-local", "s3://bucket/index"):
        save_column_budget(built, "s3://bucket/index")
    assert load_column_budget(place).index.sets == built.index.sets


def test_save_column_budget__leaves_nothing_behind_when_it_fails(
    built: ColumnBudget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(model: PrototypeSet, place: str) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("protodask.budget.column_folder.save_model", full)
    with refused("unwritable", tmp_path / "index", "No space left on device", kind=StorageError):
        save_column_budget(built, tmp_path / "index")
    assert os.listdir(tmp_path) == []


def test_load_column_budget__refuses_what_is_damaged(built: ColumnBudget, tmp_path: Path) -> None:
    place = tmp_path / "index"
    with refused("not-found", kind=StorageError):
        load_column_budget(place)
    place.mkdir()
    with refused("wrong-kind", "`build_column_budget()`", kind=FormatError):
        load_column_budget(place)
    place.rmdir()
    save_column_budget(built, place)
    number = next(number for number, model in enumerate(built.models) if model is not None)
    shutil.rmtree(place / "models" / str(number))
    with refused("damaged", kind=FormatError):
        load_column_budget(place).model(number)
    record = json.loads((place / "_protodask.json").read_text())
    (place / "_protodask.json").write_text(json.dumps({**record, "target": "else"}))
    with refused("damaged", "checksum does not match", kind=FormatError):
        load_column_budget(place)
    (place / "_protodask.json").write_text(json.dumps({**record, "version": 2}))
    with refused("newer-format", 2, 1, kind=FormatError):
        load_column_budget(place)


def test_load_column_budget__notices_a_model_of_another_build(built: ColumnBudget, tmp_path: Path) -> None:
    place = tmp_path / "index"
    save_column_budget(built, place)
    first, second, *_ = (number for number, model in enumerate(built.models) if model is not None)
    shutil.rmtree(place / "models" / str(first))
    shutil.copytree(place / "models" / str(second), place / "models" / str(first))
    with refused("damaged", "not the one that was saved", kind=FormatError):
        load_column_budget(place).model(first)


def test_build_column_budget__without_a_set_that_can_be_fitted_says_why(
    data: Dataset, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*arguments: Any) -> Any:
        raise InputError("bad-value", "It is too dark.", "Switch on the light.")

    monkeypatch.setattr("protodask.budget.column_models.first_model", fails)
    with refused("user-code", 7, "It is too dark. Switch on the light."):
        build_column_budget(data, COSTS, engine=engine, **SETTINGS)


@pytest.mark.parametrize("folds", [1, 2.5, "many"])
def test_build__refuses_what_is_no_number_of_folds(data: Dataset, engine: Engine, folds: Any) -> None:
    with refused("bad-setting", f"{folds!r} folds", "from 2"):
        build_column_budget(data, COSTS, engine=engine, **{**SETTINGS, "folds": folds})
    again = build_column_budget(data, COSTS, engine=engine, **{**SETTINGS, "folds": np.int64(2), "most_fits": 1})
    assert again.index.expanded == 1


def test_build__of_a_path_asks_for_a_dataset() -> None:
    with refused("wrong-type", "str", "Dataset.open"):
        build_column_budget("data.zarr", COSTS)  # type: ignore[arg-type]
