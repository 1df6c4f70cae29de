"""The accuracy of sets of columns, against fits made one by one and against plain arithmetic."""

import tracemalloc
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.errors import refused

from protodask.budget import column_models as column_models_module
from protodask.budget.column_models import ColumnFits, CrossValidation, column_expander, own_failure, set_name
from protodask.budget.expansions import Expand, Expansion, FeatureSet
from protodask.budget.feature_columns import FeatureColumns, feature_columns, restricted
from protodask.budget.noise import PARTS
from protodask.data import Dataset, write_dataset
from protodask.data.arrays.keyed import dealt
from protodask.data.format.schema import Column
from protodask.data.format.summary import summarize
from protodask.engine import Block, Engine, array_source, thread_engine
from protodask.engine.choose import local_engine
from protodask.engine.groups import Pass
from protodask.engine.reduction import Node
from protodask.errors import FormatError, InputError, StorageError
from protodask.prototypes.config import FeatureForms, FitConfig
from protodask.prototypes.fitted import probabilities
from protodask.prototypes.fitting import training_data
from protodask.prototypes.folds import make_folds
from protodask.prototypes.scores import MemoryScores
from protodask.prototypes.training import Training
from protodask.selection.holdout import HELD_OUT_RIGHT, FoldData

Arrays = dict[str, NDArray[Any]]

COLUMNS = (Column("x0"), Column("kind", "nominal", ("a", "b")), Column("x1"), Column("noise"))
CONFIG = FitConfig.of("source", n_candidates=24, tolerance=0.3, lambda_w=1e-3, precision="float64", seed=5)
COSTS = {"position": (["x0", "x1"], [3.0, 1.0]), "kind": (["kind"], [1.0]), "noise": (["noise"], [2.0])}
FEATURES = feature_columns(COLUMNS, COSTS)
SETS = [frozenset(one) for one in ((), (1,), (0,), (0, 1), (1, 2))]
N_FOLDS = 2


def make_arrays(n_rows: int, weights: str = "") -> Arrays:
    """A noisy board; a nominal column turns it over, and the last feature says nothing."""
    rng = np.random.default_rng(n_rows)
    kind = rng.integers(0, 2, n_rows)
    position = np.round(rng.uniform(size=(n_rows, 2)) * 2 * 1024) / 1024
    noise = rng.standard_normal(n_rows)
    board = np.floor(position).sum(axis=1) + kind
    target = np.where(rng.random(n_rows) < 0.05, rng.integers(0, 3, n_rows), board) % 3
    features = np.column_stack([position[:, 0], kind == 0, kind == 1, position[:, 1], noise])
    arrays: Arrays = {"features": features.astype(np.float32), "target": target.astype(np.int32)}
    if "weight" in weights:
        arrays["weight"] = rng.integers(0, 4, n_rows) / 2
    if "inclusion" in weights:
        arrays["inclusion"] = rng.integers(1, 5, n_rows) / 4
    if "group" in weights:
        arrays["group"] = np.arange(n_rows) // 4
    return arrays


def write(arrays: Arrays, path: Path, columns: Sequence[Column] = COLUMNS, block_rows: int = 64) -> Dataset:
    with thread_engine(1, 2**26) as engine:
        return write_dataset(
            array_source(arrays, block_rows),
            path,
            classes=(0, 1, 2),
            columns=tuple(columns),
            engine=engine,
            block_rows=block_rows,
        )


@pytest.fixture(scope="module")
def rows() -> Arrays:
    return make_arrays(240, "weight inclusion")


@pytest.fixture(scope="module")
def data(rows: Arrays, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write(rows, tmp_path_factory.mktemp("data") / "data.zarr")


@contextmanager
def opened(
    data: Dataset,
    engine: Engine,
    folder: Path | str = "",
    config: FitConfig = CONFIG,
    features: FeatureColumns = FEATURES,
    n_folds: int = N_FOLDS,
) -> Iterator[Expand]:
    rows = training_data(data, config, engine)
    with column_expander(ColumnFits(data, features, config, engine, rows, str(folder)), n_folds) as expand:
        yield expand


def accuracies(expand: Expand, sets: Sequence[FeatureSet] = SETS) -> dict[FeatureSet, float | None]:
    found: list[Expansion] = []
    expand(sets, found.append)
    assert sorted(map(sorted, sets)) == sorted(sorted(one.features) for one in found)
    return {one.features: one.accuracy for one in found}


@pytest.fixture(scope="module")
def expected(data: Dataset) -> dict[FeatureSet, float | None]:
    with thread_engine(1) as engine, opened(data, engine) as expand:
        return accuracies(expand)


def fold_of_rows(engine: Engine, arrays: Arrays) -> NDArray[np.int8]:
    source = array_source(arrays, 64)
    folds = make_folds(engine, source, 3, N_FOLDS, CONFIG.seed, grouped="group" in arrays)
    return np.concatenate([folds.folds(source.read(number)) for number in range(source.layout.n_blocks)])


@pytest.mark.slow
def test_accuracy__is_that_of_fits_to_a_dataset_of_these_columns_alone(
    rows: Arrays, data: Dataset, expected: dict[FeatureSet, float | None], tmp_path: Path
) -> None:
    kept = {frozenset({0}): [0, 3], frozenset({0, 1}): [0, 1, 2, 3]}
    with thread_engine(1) as engine:
        fold_of = fold_of_rows(engine, rows)
        weight = rows["weight"] / rows["inclusion"]
        for number, (features, positions) in enumerate(kept.items()):
            right = 0.0
            for fold in range(N_FOLDS):
                alone = {"features": np.ascontiguousarray(rows["features"][:, positions]), "target": rows["target"]}
                alone["weight"] = np.where(fold_of == fold, 0.0, weight)
                names = FEATURES.columns_of(features)
                own = write(alone, tmp_path / f"{number}-{fold}", [one for one in COLUMNS if one.name in names])
                model, _ = Training(training_data(own, CONFIG, engine), CONFIG, engine, MemoryScores()).run()
                out = fold_of == fold
                scores = model.scores(alone["features"][out], [1])[0]
                right += weight[out][probabilities(scores).argmax(axis=1) == rows["target"][out]].sum()
            # The statistics of a column may differ in their last bit with the columns beside it; no row does here.
            assert expected[features] == pytest.approx(right / weight.sum(), rel=1e-14)


def test_accuracy__of_no_feature_is_that_of_the_class_shares(
    rows: Arrays, expected: dict[FeatureSet, float | None]
) -> None:
    with thread_engine(1) as engine:
        fold_of = fold_of_rows(engine, rows)
    weight = rows["weight"] / rows["inclusion"]
    right = 0.0
    for fold in range(N_FOLDS):
        shares = np.bincount(rows["target"], weights=np.where(fold_of == fold, 0.0, weight), minlength=3)
        right += weight[(fold_of == fold) & (rows["target"] == shares.argmax())].sum()
    assert expected[frozenset()] == pytest.approx(right / weight.sum(), rel=1e-14)


def test_accuracy__tells_features_that_help_from_noise(expected: dict[FeatureSet, float | None]) -> None:
    found = {tuple(sorted(features)): accuracy or 0.0 for features, accuracy in expected.items()}
    assert found[0, 1] > max(found[0,], found[1,], found[()]) + 0.1


@pytest.mark.slow
@pytest.mark.parametrize(("company", "most"), [("in step", 4), ("side by side", 2)])
def test_expand__gives_the_same_bits_in_any_company(
    data: Dataset, expected: dict[FeatureSet, float | None], company: Any, most: int
) -> None:
    with thread_engine(2, 2**28) as engine, opened(data, engine) as expand:
        validation = cross_validation(expand)
        validation = replace(validation, crew=replace(validation.crew, company=company, most=most))
        assert accuracies(validation.expand) == expected


def cross_validation(expand: Expand) -> CrossValidation:
    owner: Any = expand
    found = owner.__self__
    assert isinstance(found, CrossValidation)
    return found


class CountingEngine(Engine):
    """Counts the passes over data that it is asked for."""

    passes = 0

    def run_pass(self, work: Pass, numbers: Sequence[int]) -> list[Node[Any]]:
        self.passes += 1
        return super().run_pass(work, numbers)


@pytest.mark.slow
def test_expand__in_step_serves_all_fits_that_wait_with_one_pass(
    data: Dataset, expected: dict[FeatureSet, float | None]
) -> None:
    def passes(most: int) -> int:
        with thread_engine(1) as plain, opened(data, plain) as expand:
            engine = CountingEngine(plain.scheduler)
            validation = cross_validation(expand)
            crew = replace(validation.crew, company="in step", most=most)
            assert (
                accuracies(replace(validation, fits=replace(validation.fits, engine=engine), crew=crew).expand)
                == expected
            )
            return engine.passes

    alone, together = passes(1), passes(20)
    assert together < alone / 5


@pytest.mark.slow  # starts processes
def test_expand__gives_the_same_bits_on_workers(data: Dataset, expected: dict[FeatureSet, float | None]) -> None:
    with local_engine(2, 2**29) as engine, opened(data, engine) as expand:
        assert cross_validation(expand).crew.company == "in step"
        assert accuracies(expand) == expected


@pytest.mark.parametrize("forms", ["scores", "all"])
def test_expand__in_step_learns_the_forms_of_each_fit(data: Dataset, forms: FeatureForms) -> None:
    config = replace(CONFIG, feature_forms=forms)
    with thread_engine(2) as engine, opened(data, engine, config=config) as expand:
        validation = cross_validation(expand)
        alone, together = (
            accuracies(replace(validation, crew=replace(validation.crew, company="in step", most=most)).expand)
            for most in (1, 20)
        )
    assert together == alone


TWO_BATCHES = replace(CONFIG, n_batches=2, n_candidates=12)


@pytest.fixture(scope="module")
def expected_of_two(data: Dataset) -> dict[FeatureSet, float | None]:
    with thread_engine(1) as engine, opened(data, engine, config=TWO_BATCHES) as expand:
        return accuracies(expand, [frozenset({1}), frozenset({0, 1})])


@pytest.mark.slow
@pytest.mark.parametrize("stored", [False, True])
def test_expand__of_models_of_two_batches_is_the_same_wherever_scores_are_kept(
    data: Dataset, expected_of_two: dict[FeatureSet, float | None], tmp_path: Path, stored: bool
) -> None:
    with thread_engine(2) as engine, opened(data, engine, config=TWO_BATCHES) as expand:
        validation = cross_validation(expand)
        crew = replace(validation.crew, company="in step", most=3, folder=str(tmp_path) if stored else None)
        assert accuracies(replace(validation, crew=crew).expand, list(expected_of_two)) == expected_of_two
    assert [path.name for path in tmp_path.glob("*/scores-*")] == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["", "group", "weight inclusion"])
def test_expand__without_weights_counts_rows(kind: str, tmp_path: Path) -> None:
    arrays = make_arrays(240, kind)
    config = replace(CONFIG, weighted=False)
    bare = {name: array for name, array in arrays.items() if name in ("features", "target", "group")}
    with thread_engine(1) as engine:
        with opened(write(arrays, tmp_path / "a"), engine, config=config) as expand:
            found = accuracies(expand, SETS[:2])
        with opened(write(bare, tmp_path / "b"), engine) as expand:
            assert accuracies(expand, SETS[:2]) == found
    for accuracy in found.values():
        assert accuracy is not None
        assert accuracy * 240 == pytest.approx(round(accuracy * 240), abs=1e-9)


@pytest.mark.parametrize("grouped", [False, True])
def test_expand__knows_the_noise_of_rows_or_of_whole_groups(grouped: bool, tmp_path: Path) -> None:
    arrays = make_arrays(240, "group" if grouped else "")
    found: list[Expansion] = []
    with thread_engine(1) as engine, opened(write(arrays, tmp_path / "data"), engine) as expand:
        expand(SETS[:3], found.append)
    places = set(dealt(arrays["group"] if grouped else np.arange(240), PARTS).tolist())
    for one in found:
        assert one.noise is not None
        assert one.noise.rows == pytest.approx(60 if grouped else 240, rel=0.25 if grouped else 1e-12)
        assert set(np.flatnonzero(one.noise.parts).tolist()) <= places


def test_restricted__keeps_what_is_known_of_the_columns_to_the_last_bit(rows: Arrays, data: Dataset) -> None:
    with thread_engine(1) as engine:
        whole = training_data(data, CONFIG, engine)
    part = restricted(whole, frozenset({"kind", "noise"}))
    assert part.feature_names == ("kind=a", "kind=b", "noise")
    assert [column.name for column in part.columns] == ["kind", "noise"]
    assert part.other_names == ("weight", "inclusion", "x0", "x1")
    for name in ("mean", "squares", "minimum", "maximum"):
        assert getattr(part.summary, name).tolist() == getattr(whole.summary, name)[[1, 2, 4]].tolist()
    with thread_engine(1) as engine:
        again = summarize(engine, part.source, 3)
    np.testing.assert_allclose(again.mean, part.summary.mean, rtol=1e-12)
    block = part.source.read(1)
    assert block["features"].flags.c_contiguous
    np.testing.assert_array_equal(block["features"], rows["features"][64:128][:, [1, 2, 4]])
    assert restricted(whole, frozenset(column.name for column in COLUMNS)) is whole
    others = restricted(whole, frozenset({"noise"}))
    assert len({whole.source.key, part.source.key, others.source.key}) == 3


def test_expand__reports_a_set_whose_fit_fails_and_goes_on(
    data: Dataset, expected: dict[FeatureSet, float | None]
) -> None:
    """As if the squares of a column overflowed, which the training refuses."""
    found: list[Expansion] = []
    with thread_engine(1) as engine, opened(data, engine) as expand:
        validation = cross_validation(expand)
        replace(validation, parts=tuple(map(with_overflow, validation.parts))).expand(SETS, found.append)
    assert {one.features for one in found if one.accuracy is None} == {one for one in SETS if 2 in one}
    for one in found:
        if one.failure is None:
            assert one.accuracy == expected[one.features]
        else:
            assert "'noise'" in one.failure
            assert "Rescale it" in one.failure


def with_overflow(part: FoldData) -> FoldData:
    squares = part.data.summary.squares.copy()
    squares[4] = np.inf
    return replace(part, data=replace(part.data, summary=replace(part.data.summary, squares=squares)))


@pytest.mark.slow
@pytest.mark.parametrize("company", ["in step", "side by side"])
def test_expand__finds_whose_fit_it_is_that_fails_in_a_pass(
    data: Dataset, expected: dict[FeatureSet, float | None], company: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = HELD_OUT_RIGHT

    def fails(block: Block, *args: Any) -> Any:
        if block["features"].shape[1] == 4:
            raise FloatingPointError("underflow")
        return plain.map(block, *args)

    monkeypatch.setattr(column_models_module, "HELD_OUT_RIGHT", replace(plain, map=fails))
    found: list[Expansion] = []
    few = [frozenset[int](), frozenset({1}), frozenset({0, 1})]
    with thread_engine(2, 2**28) as engine, opened(data, engine) as expand:
        validation = cross_validation(expand)
        validation = replace(validation, crew=replace(validation.crew, company=company, most=20))
        validation.expand(few, found.append)
    failures = {one.features: one.failure for one in found if one.failure is not None}
    assert failures == {frozenset({0, 1}): "FloatingPointError: underflow"}
    for one in found:
        assert one.failure is not None or one.accuracy == expected[one.features]
    assert len(found) == len(few)


@pytest.mark.parametrize(
    "error", [StorageError("bad-value", "The disk is gone.", "Mount it."), MemoryError(), KeyError("x")]
)
def test_expand__does_not_hide_errors_that_are_not_of_a_fit(
    data: Dataset, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = HELD_OUT_RIGHT

    def fails(block: Block, *args: Any) -> Any:
        raise error

    monkeypatch.setattr(column_models_module, "HELD_OUT_RIGHT", replace(plain, map=fails))
    with thread_engine(1) as engine, opened(data, engine) as expand, pytest.raises(type(error)):
        expand(SETS, lambda expansion: None)


def test_expand__passes_on_what_the_listener_raises(data: Dataset) -> None:
    heard: list[Expansion] = []

    def listen(expansion: Expansion) -> None:
        heard.append(expansion)
        raise ValueError("full")

    with thread_engine(1) as engine, opened(data, engine) as expand, pytest.raises(ValueError, match="full"):
        expand(SETS, listen)
    assert len(heard) == 1


def test_own_failure__is_what_the_data_or_their_numbers_cause() -> None:
    assert own_failure(InputError("bad-value", "a.", "b.")) == "a. b."
    assert own_failure(FloatingPointError("c")) == "FloatingPointError: c"
    assert own_failure(np.linalg.LinAlgError("c")) == "LinAlgError: c"
    for error in FormatError("bad-value", "a.", "b."), StorageError("bad-value", "a.", "b."), MemoryError():
        with pytest.raises(type(error)):
            own_failure(error)


def test_expander__refuses_what_does_not_fit_before_a_row_is_read(data: Dataset) -> None:
    config = replace(CONFIG, n_candidates=10**6)
    big = replace(data, metadata=replace(data.metadata, n_rows=2**26, block_rows=2**22))
    with (
        thread_engine(1, 300 * 2**20) as engine,
        refused("over-memory", "300 MiB", "memory_bytes="),
        opened(big, engine, config=config),
    ):
        pass


def test_expander__refuses_models_without_batches(data: Dataset) -> None:
    with (
        thread_engine(1) as engine,
        refused("bad-setting"),
        opened(data, engine, config=replace(CONFIG, n_batches=0)),
    ):
        pass


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_expand__of_data_larger_than_its_memory_holds_a_small_part_of_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    wide = tuple(Column(f"x{position}") for position in range(100))
    features = rng.standard_normal((300_000, 100), dtype=np.float32)
    target = (features[:, 0] > 0).astype(np.int32) + (features[:, 10] > 1)
    data = write({"features": features, "target": target}, tmp_path / "data", wide, 4096)
    size = features.nbytes
    del features
    costs = {str(part): ([f"x{25 * part + one}" for one in range(25)], [1.0]) for part in range(4)}
    config = replace(CONFIG, n_candidates=20, max_iterations=2, tolerance=0.1, precision="float32")
    sets = [frozenset({part}) for part in range(4)]
    with thread_engine(1, 2**27) as engine:
        assert engine.scheduler.processes().cache_bytes < size / 4
        tracemalloc.start()
        try:
            with (
                warnings.catch_warnings(),
                opened(data, engine, tmp_path, config, feature_columns(wide, costs), n_folds=2) as expand,
            ):
                warnings.simplefilter("ignore")  # of fits that end early
                assert cross_validation(expand).crew.company == "in step"
                found = accuracies(expand, sets)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < size / 2
    assert None not in found.values()


def test_set_name__tells_sets_apart() -> None:
    many = [frozenset(range(first, 60)) for first in range(3)]
    names = [set_name(one) for one in [*SETS, *many]]
    assert len(set(names)) == len(names)
    assert max(map(len, names)) <= 40
