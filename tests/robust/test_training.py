from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster
from numpy.typing import NDArray
from support.errors import refused
from support.uncertain_tables import Columns, dataset_of, drawn_columns

from protodask.data import Dataset
from protodask.engine import Engine, open_engine, thread_engine
from protodask.engine.groups import Pass
from protodask.engine.reduction import Node
from protodask.engine.threads import ThreadScheduler
from protodask.errors import FormatError
from protodask.prototypes.convergence import ConvergenceWarning
from protodask.robust import RobustClassifier, passes, training
from protodask.robust.bundle import PlaneFit, solve_bundle
from protodask.robust.config import RobustConfig
from protodask.robust.formulations import FORMULATIONS, spread_multiple
from protodask.robust.kept_terms import ClassAgainstRest, TermsForm, keep_terms
from protodask.robust.measures import certified_sums, evaluate_robust
from protodask.robust.model import RobustModel
from protodask.robust.prediction import CERTIFIED, DECISION, PREDICTED, predict_block, predict_robust
from protodask.robust.training import CoarseBoundsWarning, PlanePass, RowsOfColumns, fit_robust, uncertain_dataset
from protodask.robust.uncertain_columns import uncertain_columns
from protodask.robust.uncertain_rows import UncertainRows

CONFIG = RobustConfig("SBMV-I", gap=1e-3)

LITTLE = 2**16
"""Memory of an engine that keeps hardly anything: terms go to the disk."""


def same(left: RobustModel, right: RobustModel) -> bool:
    return all(
        np.array_equal(getattr(left, name), getattr(right, name))
        for name in ("weights", "intercept", "objective", "lower_bound")
    )


@dataclass(frozen=True, eq=False)
class Known:
    """The same samples as columns, as a dataset of them and as rows."""

    columns: Columns
    y: NDArray[np.intp]
    rows: UncertainRows
    data: Dataset


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Known:
    columns, y, rows = drawn_columns(200, 3)
    return Known(columns, y, rows, dataset_of(columns, y, tmp_path_factory.mktemp("known") / "data.zarr"))


@pytest.mark.parametrize("formulation", [name for name in FORMULATIONS if name not in ("SMV", "SMV-I", "SM", "SM-I")])
def test_fit_robust__of_a_dataset_is_the_fit_of_its_rows(formulation: str, known: Known) -> None:
    rows = known.rows
    found = fit_robust(known.data, RobustConfig(formulation, gap=1e-6)).model
    whole = RobustClassifier(formulation, gap=1e-6, solver="conic").fit(rows, known.y)
    assert found.objective[0] == pytest.approx(whole.objective_, rel=3e-6)
    # Middles of the bounds are rounded to the float32 of the dataset.
    assert found.lower_bound[0] <= whole.objective_ * (1 + 1e-7)
    np.testing.assert_array_equal(found.predict(rows), whole.predict(rows))
    assert found.features == ("x1", "x2", "x0")
    assert found.converged


def test_fit_robust__of_stored_terms_is_that_of_terms_in_memory(tmp_path: Path) -> None:
    columns, y, _ = drawn_columns(500, 3)
    data = dataset_of(columns, y, tmp_path / "data.zarr")
    first = fit_robust(data, CONFIG).model
    stored = tmp_path / "terms.zarr"
    with thread_engine(2) as engine:
        assert same(fit_robust(data, CONFIG, engine=engine, terms=stored).model, first)
    written = (stored / "spread" / "c" / "0" / "0").stat().st_mtime_ns
    # Another eps and C find them there.
    other = fit_robust(data, replace(CONFIG, eps=0.3, C=0.1), terms=stored).model
    assert (stored / "spread" / "c" / "0" / "0").stat().st_mtime_ns == written
    assert same(fit_robust(data, replace(CONFIG, eps=0.3, C=0.1)).model, other)


@pytest.mark.slow
def test_fit_robust__has_the_same_bits_on_one_and_two_workers(
    start_cluster: Callable[[int], LocalCluster], tmp_path: Path
) -> None:
    columns, y, _ = drawn_columns(500, 3)
    data = dataset_of(columns, y, tmp_path / "data.zarr")
    alone = fit_robust(data, CONFIG).model
    cluster = start_cluster(1)
    for n_workers in (1, 2):
        cluster.scale(n_workers)
        cluster.wait_for_workers(n_workers)
        with Client(cluster) as client, open_engine(client) as engine:
            assert same(fit_robust(data, CONFIG, engine=engine, terms=tmp_path / f"terms{n_workers}").model, alone)
            assert same(fit_robust(data, CONFIG, engine=engine).model, alone)


def test_fit_robust__that_was_interrupted_ends_with_the_same_bits(tmp_path: Path) -> None:
    columns, y, _ = drawn_columns(200, 3, n_classes=3)
    data = dataset_of(columns, y, tmp_path / "data.zarr")
    passes: list[PlanePass] = []
    whole = fit_robust(data, CONFIG, on_pass=passes.append)
    assert {done.plane for done in passes} == {1, 2, 3}
    assert [len(plane) for plane in whole.history] == list(whole.model.passes)

    class Stop(Exception):
        pass

    def stop_after(count: int) -> Callable[[PlanePass], None]:
        left = iter(range(count))

        def listen(_: PlanePass) -> None:
            if next(left, None) is None:
                raise Stop

        return listen

    for count in (0, 3, len(passes) - 2):
        with pytest.raises(Stop):
            fit_robust(data, CONFIG, run_dir=tmp_path / "run", on_pass=stop_after(count))
    assert same(fit_robust(data, CONFIG, run_dir=tmp_path / "run").model, whole.model)
    # What tells when to stop is no part of the problem: a run goes on to a smaller gap.
    finer = replace(CONFIG, gap=1e-5)
    assert same(fit_robust(data, finer, run_dir=tmp_path / "run").model, fit_robust(data, finer).model)
    with refused("other-run", "eps", 0.01, tmp_path / "run"):
        fit_robust(data, replace(CONFIG, eps=0.01), run_dir=tmp_path / "run")


class Counted(Engine):
    """Counts the passes with each label."""

    def __init__(self) -> None:
        super().__init__(ThreadScheduler(2))
        self.passes: Counter[str] = Counter()

    def __enter__(self) -> Counted:
        return self

    def run_pass(self, work: Pass, numbers: Sequence[int]) -> list[Node[Any]]:
        self.passes[work.label] += 1
        return super().run_pass(work, numbers)


@pytest.fixture(scope="module")
def of_four(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    columns, y, _ = drawn_columns(300, 3, n_classes=4)
    return dataset_of(columns, y, tmp_path_factory.mktemp("four") / "data.zarr")


@pytest.fixture(scope="module")
def each_of_four(of_four: Dataset) -> list[PlaneFit]:
    """The plane of each class by itself."""
    known = uncertain_dataset(of_four, CONFIG)
    form = TermsForm(CONFIG.formulation, len(known.features), known.dtype)
    multiple = spread_multiple("SBMV-I", CONFIG.eps)
    with Counted() as engine:
        terms = keep_terms(known, form, engine, "")
        planes = (ClassAgainstRest(form, multiple, code, CONFIG.C) for code in range(4))
        return [solve_bundle(terms, samples_of, engine, gap=CONFIG.gap) for samples_of in planes]


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [1, 2, 4])
def test_planes_of_more_classes__share_passes_and_have_the_bits_of_each_alone(
    at_once: int, of_four: Dataset, each_of_four: list[PlaneFit], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[int] = []
    with monkeypatch.context() as patched, Counted() as engine:
        patched.setattr(training, "planes_at_once", lambda *_: at_once)
        found = fit_robust(of_four, CONFIG, engine=engine, on_pass=lambda done: heard.append(done.plane)).model
    each = found.passes
    assert Counter(heard) == dict(enumerate(each, 1))
    assert len(set(each)) > 1
    if at_once == 4:
        assert engine.passes["evaluate"] == max(each)
        assert engine.passes["survey"] == 1
    else:
        assert sum(each) / at_once <= engine.passes["evaluate"] <= sum(each) / at_once + max(each) * (at_once > 1)
    for code, alone in enumerate(each_of_four):
        np.testing.assert_array_equal(found.weights[code], alone.weights)
        assert (found.intercept[code], each[code]) == (alone.intercept, alone.passes)


@pytest.mark.slow
def test_run_of_planes_one_after_the_other__goes_on_with_all_of_them(
    of_four: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Counted() as engine:
        whole = fit_robust(of_four, CONFIG, engine=engine).model
    done = whole.passes[0] + 2

    def stop(_: PlanePass) -> None:
        nonlocal done
        done -= 1
        if done == 0:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(training, "planes_at_once", lambda *_: 1)
        with pytest.raises(KeyboardInterrupt):
            fit_robust(of_four, CONFIG, run_dir=tmp_path / "run", on_pass=stop)
    with Counted() as engine:
        assert same(fit_robust(of_four, CONFIG, run_dir=tmp_path / "run", engine=engine).model, whole)
    # The first plane is on record, and two passes of the second.
    assert engine.passes["evaluate"] == max(whole.passes[1] - 2, *whole.passes[2:])


def test_fit_robust__keeps_terms_of_many_rows_in_the_run_directory(
    known: Known, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, terms = RobustConfig("SBM", gap=1e-2), tmp_path / "run" / "terms.zarr"

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with thread_engine(2, LITTLE) as engine:
        with monkeypatch.context() as patched:
            patched.setattr(training, "solve_bundle", killed)
            with pytest.raises(KeyboardInterrupt):
                fit_robust(known.data, config, run_dir=tmp_path / "run", engine=engine)
        # A fit that was interrupted before its first pass finds them there.
        written = (terms / "zarr.json").stat().st_mtime_ns
        found = fit_robust(known.data, config, run_dir=tmp_path / "run", engine=engine).model
    assert (terms / "zarr.json").stat().st_mtime_ns == written
    assert same(fit_robust(known.data, config).model, found)


def test_stored_terms__may_lie_at_a_url(known: Known) -> None:
    data = known.data
    config, place = RobustConfig("SBM"), "memory://robust/terms.zarr"
    first = fit_robust(data, config, terms=place).model
    assert same(first, fit_robust(data, config).model)
    assert same(first, fit_robust(data, config, terms=place).model)
    with refused("other-run", place, "formulation"):
        fit_robust(data, RobustConfig("SBMV"), terms=place)


def test_stored_terms__of_something_else_are_refused(known: Known, tmp_path: Path) -> None:
    data = known.data
    fit_robust(data, RobustConfig("SBM"), terms=tmp_path / "terms.zarr")
    with refused("other-run", tmp_path / "terms.zarr", "formulation"):
        fit_robust(data, RobustConfig("SBMV"), terms=tmp_path / "terms.zarr")
    other = dataset_of(known.columns, 1 - known.y, tmp_path / "other.zarr")
    with refused("other-run", tmp_path / "terms.zarr", "data"):
        fit_robust(other, RobustConfig("SBM"), terms=tmp_path / "terms.zarr")
    with refused("wrong-kind", tmp_path / "other.zarr", "terms", kind=FormatError):
        fit_robust(data, RobustConfig("SBM"), terms=tmp_path / "other.zarr")


def test_stored_terms__that_are_damaged_are_told(known: Known, tmp_path: Path) -> None:
    data = known.data
    fit_robust(data, RobustConfig("SBM"), terms=tmp_path / "terms.zarr")
    chunk = tmp_path / "terms.zarr" / "spread" / "c" / "1" / "0"
    content = bytearray(chunk.read_bytes())
    content[5] ^= 255
    chunk.write_bytes(content)
    with refused("damaged", tmp_path / "terms.zarr", "spread", kind=FormatError):
        fit_robust(data, RobustConfig("SBM"), terms=tmp_path / "terms.zarr")


def test_weights__count_unless_told_otherwise(known: Known, tmp_path: Path) -> None:
    y, rows = known.y, known.rows
    weight = (np.arange(200) % 3).astype(float)
    data = dataset_of(known.columns, y, tmp_path / "data.zarr", weight)
    config = RobustConfig("SBM", gap=1e-6)
    weighted = fit_robust(data, config).model
    expected = RobustClassifier("SBM", gap=1e-6).fit(rows, y, sample_weight=weight)
    assert weighted.objective[0] == pytest.approx(expected.objective_, rel=3e-6)
    plain = fit_robust(data, replace(config, weighted=False)).model
    assert plain.objective[0] == pytest.approx(RobustClassifier("SBM", gap=1e-6).fit(rows, y).objective_, rel=3e-6)
    assert weighted.objective[0] != pytest.approx(plain.objective[0], rel=1e-3)


def test_rows_that_contradict__are_named_by_row_and_feature(tmp_path: Path) -> None:
    columns, y, _ = drawn_columns(200, 3)
    columns["x2.low"][150] = columns["x2.high"][150] + 1
    data = dataset_of(columns, y, tmp_path / "data.zarr")
    with refused("bad-value", "sample 150", "feature x2", "lower", "upper"):
        fit_robust(data, CONFIG)


def test_too_few_passes__are_a_warning(known: Known) -> None:
    with pytest.warns(ConvergenceWarning, match="Raise `max_passes`"):
        fit_robust(known.data, RobustConfig("SBM", gap=1e-9, max_passes=1))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_predict_robust__writes_what_the_model_says(n_classes: int, tmp_path: Path) -> None:
    import pandas
    import pyarrow.csv
    import zarr

    columns, y, rows = drawn_columns(200, 3, n_classes)
    data = dataset_of(columns, y, tmp_path / "data.zarr")
    model = fit_robust(data, CONFIG).model
    rows_of = RowsOfColumns(uncertain_columns(data.feature_names))
    with thread_engine(2) as engine:
        for name in ("scores.zarr", "scores.parquet", "scores.csv"):
            assert predict_robust(model, data, rows_of, tmp_path / name, engine) == 200
    read = partial(zarr.load, tmp_path / "scores.zarr")
    np.testing.assert_array_equal(read(path="predicted"), model.predict(rows))
    np.testing.assert_array_equal(read(path="decision"), model.decision(rows))
    np.testing.assert_array_equal(read(path="certified_eps"), model.certified_eps(rows))
    table = pandas.read_parquet(tmp_path / "scores.parquet").sort_values("row")
    np.testing.assert_array_equal(table["predicted"], np.asarray(model.classes)[model.predict(rows)])
    lines = pyarrow.csv.read_csv(tmp_path / "scores.csv").to_pandas()
    pandas.testing.assert_frame_equal(lines, table.reset_index(drop=True))
    decisions = ["decision"] if n_classes == 2 else ["decision_0", "decision_1", "decision_2"]
    np.testing.assert_array_equal(table[decisions], model.decision(rows))
    sums = evaluate_robust(model, data, rows_of, np.arange(n_classes))
    expected = certified_sums(model.predict(rows) == y, model.certified_eps(rows), CONFIG.eps)
    assert sums.expected_certified_error == pytest.approx(expected.expected_certified_error)
    assert sums.certified == expected.certified


def test_predict_robust__into_the_dataset_that_is_read_is_refused(tmp_path: Path) -> None:
    columns, y, _ = drawn_columns(60, 2)
    data = dataset_of(columns, y, tmp_path / "data.zarr")
    model, rows_of = fit_robust(data, CONFIG).model, RowsOfColumns(uncertain_columns(data.feature_names))
    before = sorted((tmp_path / "data.zarr").rglob("*"))
    with refused("places-overlap", tmp_path / "data.zarr", "inside"):
        predict_robust(model, data, rows_of, tmp_path / "data.zarr" / "found")
    assert sorted((tmp_path / "data.zarr").rglob("*")) == before


def test_predict_block__in_tiles_is_that_of_all_rows(known: Known, monkeypatch: pytest.MonkeyPatch) -> None:
    model = fit_robust(known.data, RobustConfig("S", gap=1e-2)).model
    block, rows_of = known.data.read(1), RowsOfColumns(uncertain_columns(known.data.feature_names))
    assert block.n_rows > 60
    expected = predict_block(block, model, rows_of, "SBMV-I")
    monkeypatch.setattr(passes, "TILE_ROWS", 24)
    found = predict_block(block, model, rows_of, "SBMV-I")
    np.testing.assert_array_equal(found[PREDICTED], expected[PREDICTED])
    for name in (DECISION, CERTIFIED):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-9)


def test_engine__is_not_closed_if_it_was_given(known: Known) -> None:
    with thread_engine(2) as engine:
        for _ in range(2):
            fit_robust(known.data, RobustConfig("S", gap=1e-2), engine=engine)


def test_bounds__that_float32_rounds_away_are_a_warning(tmp_path: Path) -> None:
    columns, y, _ = drawn_columns(200, 3)
    columns["time.low"] = np.linspace(1e6, 1e6 + 1, 200)
    columns["plain"] = np.linspace(1e6, 2e6, 200)
    columns["time.high"] = columns["time.low"] + 1e-2
    with pytest.warns(UserWarning, match=r"float32, columns keep a part .*time\.low"):
        data = dataset_of(columns, y, tmp_path / "data.zarr")
    with pytest.warns(CoarseBoundsWarning, match="bounds of time lie hardly .* dtype='float64'"):
        fit_robust(data, CONFIG)


def test_settings__in_a_dict_are_refused(known: Known, tmp_path: Path) -> None:
    settings: Any = {"formulation": "S"}
    with refused("wrong-type", "A dict is given for a RobustConfig", "RobustConfig(**settings)"):
        fit_robust(dataset_of(known.columns, known.y, tmp_path / "data.zarr"), settings)


def test_weights__too_large_to_compute_with_are_refused(known: Known, tmp_path: Path) -> None:
    y, rows = known.y, known.rows
    data = dataset_of(known.columns, y, tmp_path / "data.zarr", np.full(200, 1e100))
    with refused("bad-setting", "C", "2e+102"):
        fit_robust(data, CONFIG)
    fit_robust(data, RobustConfig("S", weighted=False))
    for solver in ("conic", "bundle"):
        with refused("bad-setting", "C", "2e-38"):
            RobustClassifier("S", C=1e-40, solver=solver).fit(rows, y)


def test_fit_robust__of_a_path_asks_for_a_dataset() -> None:
    with refused("wrong-type", "str", "Dataset.open"):
        fit_robust("data.zarr")  # type: ignore[arg-type]
