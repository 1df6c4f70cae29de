from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning
from sklearn.svm import SVC
from support.errors import refused
from support.uncertain_tables import dataset_of, drawn_columns

from protodask.errors import Code
from protodask.pipeline.inspecting.describe import describe_place
from protodask.prototypes.convergence import ConvergenceWarning
from protodask.robust.classifier import RobustClassifier
from protodask.robust.formulations import FORMULATIONS
from protodask.robust.model import load_robust_model
from protodask.robust.uncertain_columns import columns_of, uncertain_columns
from protodask.robust.uncertain_rows import UncertainRows


def drawn(n_rows: int = 120, n_classes: int = 2, exact: bool = True) -> tuple[UncertainRows, np.ndarray[Any, Any]]:
    random = np.random.default_rng(3)
    y = random.integers(0, n_classes, n_rows)
    center = random.normal(size=(n_rows, 3)) + 4 * np.eye(3)[y]
    half = 0.5 * random.random((n_rows, 3))
    off = 0.0 if exact else 0.1 * half
    return UncertainRows(center - half, center + half, center - off, center + off), y


@pytest.mark.parametrize("formulation", ["SVM", "S", "MC", "SBMV-I"])
def test_solvers__agree(formulation: str) -> None:
    rows, y = drawn()
    cone = RobustClassifier(formulation, solver="conic").fit(rows, y)
    bundle = RobustClassifier(formulation, solver="bundle").fit(rows, y)
    assert bundle.objective_ == pytest.approx(cone.objective_, rel=2e-4)
    assert bundle.gap_ <= 1e-4
    np.testing.assert_allclose(bundle.coef_, cone.coef_, atol=0.05)


def test_points__are_separated_as_by_a_support_vector_machine() -> None:
    rows, y = drawn()
    found = RobustClassifier("SVM", C=0.5, gap=1e-7, solver="bundle").fit(rows.mean_midpoint, y)
    machine = SVC(kernel="linear", C=0.5, tol=1e-7).fit(rows.mean_midpoint, y)
    np.testing.assert_allclose(found.coef_, machine.coef_, atol=1e-3)
    np.testing.assert_allclose(found.intercept_, -machine.intercept_, atol=1e-3)
    np.testing.assert_allclose(found.decision_function(rows), machine.decision_function(rows.mean_midpoint), atol=5e-3)


def test_score__of_lazy_tables_is_that_of_rows_in_memory() -> None:
    rows, y = drawn()
    table = pd.DataFrame(rows.mean_midpoint, columns=["a", "b", "c"])
    weight = np.linspace(0.5, 2.0, len(y))
    found = RobustClassifier("SVM").fit(table, y)
    lazy = dd.from_pandas(table.assign(label=y, weight=weight), npartitions=3)
    assert found.score(lazy[["a", "b", "c"]], lazy["label"], lazy["weight"]) == found.score(table, y, weight)


def test_labels__may_be_any_two() -> None:
    rows, y = drawn()
    plain = RobustClassifier("SBM").fit(rows, 2 * y - 1)
    named = RobustClassifier("SBM").fit(rows, np.array(["no", "yes"])[y])
    np.testing.assert_array_equal(named.coef_, plain.coef_)
    assert set(named.predict(rows)) == {"no", "yes"}
    assert named.score(rows, np.array(["no", "yes"])[y]) > 0.9


@pytest.mark.parametrize("formulation", ["SBM-I", "MC", "SVM", "S"])
def test_several_classes__are_each_against_the_rest(formulation: str) -> None:
    rows, y = drawn(n_classes=3)
    found = RobustClassifier(formulation).fit(rows, y)
    assert found.coef_.shape == (3, 3)
    assert found.objective_.shape == found.gap_.shape == (3,)
    one = RobustClassifier(formulation).fit(rows, y == 2)
    np.testing.assert_array_equal(found.coef_[2], one.coef_[0])
    bounds = found.certified_eps(rows)
    assert ((bounds >= 0) & (bounds <= 1)).all()
    error, wrong = found.certified_error(rows, y), 1 - found.score(rows, y)
    assert wrong <= error < 1


def test_certified_eps__holds_for_draws() -> None:
    rows, y = drawn(n_classes=3)
    found = RobustClassifier("SBM").fit(rows, y)
    random = np.random.default_rng(0)
    bounds, said = found.certified_eps(rows), found.predict(rows)
    other = np.zeros(len(rows))
    for _ in range(500):
        draw = random.uniform(rows.lower, rows.upper)
        other += found.predict(draw) != said
    # Three standard deviations of 500 draws.
    assert (other / 500 <= bounds + 3 * np.sqrt(bounds / 500) + 0.01).all()


def test_training_samples_within_the_margin__are_certified() -> None:
    rows, y = drawn()
    found = RobustClassifier("SBM", eps=0.05, C=10.0, gap=1e-8).fit(rows, y)
    eps = found.certified_eps(rows)
    assert (eps[found.predict(rows) == y] <= 0.05 * (1 + 1e-6)).mean() > 0.5


def test_weights__count_as_copies() -> None:
    rows, y = drawn(40)
    weights = np.arange(40) % 3
    copies = np.repeat(np.arange(40), weights)
    weighted = RobustClassifier("SBM", gap=1e-7).fit(rows, y, sample_weight=weights)
    repeated = RobustClassifier("SBM", gap=1e-7).fit(rows.take(copies), y[copies])
    assert weighted.objective_ == pytest.approx(repeated.objective_, rel=1e-6)


def test_run_directory__is_taken_up(tmp_path: Path) -> None:
    rows, y = drawn()
    first = RobustClassifier("SBM-I", run_dir=tmp_path / "run").fit(rows, y)
    again = RobustClassifier("SBM-I", run_dir=tmp_path / "run").fit(rows, y)
    np.testing.assert_array_equal(again.coef_, first.coef_)
    with refused("other-run", "C", tmp_path / "run"):
        RobustClassifier("SBM-I", C=2.0, run_dir=tmp_path / "run").fit(rows, y)
    assert describe_place(str(tmp_path / "run"))["finished"]


def test_too_few_passes__are_a_warning() -> None:
    rows, y = drawn()
    with pytest.warns(ConvergenceWarning, match="max_passes"):
        RobustClassifier("SBM", solver="bundle", gap=1e-9, max_passes=1).fit(rows, y)


def test_points__may_be_objects_and_labels_a_column() -> None:
    rows, y = drawn()
    points = rows.mean_midpoint
    found = RobustClassifier("SVM").fit(points, y)
    with pytest.warns(DataConversionWarning, match="1d array"):
        other = RobustClassifier("SVM").fit(points.astype(object), y[:, None])
    np.testing.assert_array_equal(other.coef_, found.coef_)
    np.testing.assert_array_equal(other.predict(points.astype(object)), found.predict(points))


@pytest.mark.parametrize(
    ("value", "code", "what"),
    [
        (np.nan, "bad-value", "sample 1, feature 2, the value"),
        (None, "bad-value", "sample 1, feature 2, the value"),
        ("2", "wrong-type", "The table is of type object"),
        (1j, "wrong-type", "The table is of type object"),
        pytest.param(10**400, "bad-value", "The table has numbers beyond floats", id="huge"),
    ],
)
def test_points__that_are_no_numbers_are_refused_as_points(value: Any, code: Code, what: str) -> None:
    rows, y = drawn()
    points = rows.mean_midpoint.astype(object)
    points[1, 2] = value
    with refused(code, what):
        RobustClassifier("SVM").fit(points, y)


def test_clone__keeps_settings() -> None:
    given = RobustClassifier("SM", eps=0.2, C=3.0)
    assert clone(given).get_params() == given.get_params()


@pytest.mark.parametrize(
    ("settings", "code", "facts"),
    [
        ({"formulation": "XX"}, "unknown-name", ("XX", *FORMULATIONS)),
        ({"eps": 1.5}, "bad-setting", ("eps", 1.5)),
        ({"C": 0.0}, "bad-setting", ("C", 0.0)),
        ({"gap": -1.0}, "bad-setting", ("gap", -1.0)),
        ({"solver": "magic"}, "unknown-name", ("magic", "auto", "bundle", "conic")),
        ({"max_passes": 0}, "bad-setting", ("max_passes", 0, 1)),
        ({"solver": "conic", "run_dir": "somewhere"}, "settings-conflict", ("run directory", "conic")),
        ({"solver": "bundle", "on_pass": 3}, "bad-setting", ("on_pass", 3)),
        ({"solver": "bundle", "run_dir": 3}, "wrong-type", (3, "path")),
    ],
)
def test_settings__that_make_no_sense_are_refused(
    settings: dict[str, Any], code: Code, facts: tuple[object, ...]
) -> None:
    rows, y = drawn()
    with refused(code, *facts):
        RobustClassifier(**settings).fit(rows, y)


def test_data__that_do_not_fit_are_refused() -> None:
    rows, y = drawn()
    with refused("one-class"):
        RobustClassifier().fit(rows, np.zeros(len(y)))
    with refused("wrong-shape", "(119,)", 120):
        RobustClassifier().fit(rows, y[:-1])
    with refused("wrong-shape", "(1,)", 120):
        RobustClassifier().fit(rows, y, sample_weight=[1.0])
    with refused("bad-value", "Weights", "negative"):
        RobustClassifier().fit(rows, y, sample_weight=-np.ones(len(y)))
    fitted = RobustClassifier("SVM").fit(rows, y)
    with refused("columns-differ", "2 features", "trained on 3"):
        fitted.predict(rows.lower[:, :2])


def test_certified_error__of_labels_that_do_not_fit_is_refused(tmp_path: Path) -> None:
    rows, y = drawn()
    fitted = RobustClassifier("SBM").fit(rows, y)
    with refused("wrong-shape", "(120, 1)", 120):
        fitted.certified_error(rows, y[:, None])
    with refused("no-rows"):
        fitted.certified_error(rows.take(slice(0, 0)), y[:0])
    columns, codes, _ = drawn_columns(50, 3)
    data = dataset_of(columns, codes, tmp_path / "data.zarr")
    of_data = RobustClassifier("SBM", gap=1e-2).fit(data)
    assert 0 < of_data.certified_error(data) < 1
    for given in ({"y": codes}, {"sample_weight": np.ones(50)}):
        with refused("settings-conflict", "labels", "weights"):
            of_data.certified_error(data, **given)


def test_model__of_a_table_in_memory_has_its_columns(tmp_path: Path) -> None:
    # So that, saved, it scores tables like the one it was trained on.
    columns, y, _ = drawn_columns(60, 3)
    table = pd.DataFrame(columns)
    fitted = RobustClassifier("SBM", gap=1e-2).fit(table, y)
    assert fitted.model_.feature_names == tuple(columns)
    fitted.model_.save(tmp_path / "m.zarr")
    model = load_robust_model(tmp_path / "m.zarr")
    rows = uncertain_columns(model.feature_names).rows(table.to_numpy())
    np.testing.assert_array_equal(model.certified_eps(rows), fitted.certified_eps(table))


def test_data__of_mixed_types_are_numbers() -> None:
    rows, y = drawn()
    table = pd.DataFrame(columns_of(rows, [f"x{feature}" for feature in range(rows.n_features)]))
    table["flag"] = np.arange(len(y)) % 2 == 0
    plain = RobustClassifier("SBM").fit(table.astype(np.float64), y)
    for given in (table, table.convert_dtypes()):
        np.testing.assert_array_equal(RobustClassifier("SBM").fit(given, y).coef_, plain.coef_)
        np.testing.assert_array_equal(plain.predict(given), plain.predict(table.astype(np.float64)))
    missing = table.convert_dtypes()
    missing.loc[3, "x0.low"] = pd.NA
    with refused("bad-value", "sample 3", "feature x0", "lower"):
        RobustClassifier("SBM").fit(missing, y)
    with refused("wrong-type", "flag"):
        RobustClassifier("SBM").fit(table.assign(flag="yes"), y)


@pytest.mark.parametrize("kind", [np.ma.asarray, da.from_array])
def test_data__that_are_masked_are_missing(kind: Any) -> None:
    points, y = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 2
    fitted, hidden = RobustClassifier("SVM").fit(points, y), np.zeros((20, 2), dtype=bool)
    hidden[3, 1] = True
    masked = kind(np.ma.masked_array(points, hidden))
    with refused("bad-value", "sample 3", "feature 1"):
        RobustClassifier("SVM").fit(np.ma.masked_array(points, hidden), y)
    with refused("bad-value", "sample 3"):
        np.asarray(fitted.predict(masked))


@pytest.mark.parametrize("rows", [np.empty((20, 0)), pd.DataFrame(index=range(20))], ids=["points", "table"])
def test_rows__without_a_feature_are_refused(rows: Any) -> None:
    with refused("wrong-shape", "(20, 0)", "a column for each feature"):
        RobustClassifier("SVM").fit(rows, np.arange(20) % 2)


def test_labels_and_weights__that_are_none_are_refused() -> None:
    rows, y = drawn()
    for labels in ([None if label else "a" for label in y], np.where(y == y[0], np.nan, 1.0), y + 0.5 * y):
        with refused("bad-value", "labels"):
            RobustClassifier("SVM").fit(rows, labels)
    with refused("setting-missing", "labels"):
        RobustClassifier("SVM").fit(rows)
    with refused("no-rows", "samples"):
        RobustClassifier("SVM").fit(rows[:0], y[:0])
    with refused("wrong-type", "weights"):
        RobustClassifier("SVM").fit(rows, y, sample_weight=["a"] * len(y))
    fitted = RobustClassifier("SVM").fit(rows, y)
    with refused("setting-missing", "labels"):
        fitted.certified_error(rows)
    with refused("wrong-shape", "(5,)", 120):
        fitted.certified_error(rows, y[:5])
    with refused("wrong-type", "ndarray", "UncertainRows"):
        fitted.model_.predict(rows.lower)  # type: ignore[arg-type]


KINDS: dict[str, Any] = {
    "arrow": pa.Table.from_pandas,
    "stream": lambda frame: pa.Table.from_pandas(frame).to_reader(7),
    "polars": lambda frame: pytest.importorskip("polars").from_pandas(frame),
    "xarray": lambda frame: pytest.importorskip("xarray").Dataset(frame),
    "matrix": lambda frame: pytest.importorskip("xarray").DataArray(frame),
}


@pytest.mark.parametrize("kind", KINDS)
def test_tables__of_any_library_are_those_of_pandas(kind: str) -> None:
    rng, make = np.random.default_rng(0), KINDS[kind]
    low = rng.normal(size=(40, 2))
    frame = pd.DataFrame({"a.low": low[:, 0], "a.high": low[:, 0] + 0.1, "b": low[:, 1]})
    labels = np.where(low[:, 0] > low[:, 1], "above", "below")
    expected = RobustClassifier().fit(frame, labels, [1.0, 2.0] * 20)
    found = RobustClassifier().fit(make(frame), pa.chunked_array([labels]), pa.array([1.0, 2.0] * 20))
    np.testing.assert_array_equal(found.coef_, expected.coef_)
    np.testing.assert_array_equal(found.predict(make(frame)), expected.predict(frame))
    assert found.certified_error(make(frame), pa.table({"y": labels})) == expected.certified_error(frame, labels)


def test_matrices_of_xarray__that_are_lazy_have_the_names_of_their_labels() -> None:
    xarray, low = pytest.importorskip("xarray"), np.random.default_rng(0).normal(size=(40, 2))
    frame = pd.DataFrame({"a.low": low[:, 0], "a.high": low[:, 0] + 0.1, "b": low[:, 1]})
    labels = np.where(low[:, 0] > low[:, 1], "above", "below")
    given = xarray.DataArray(frame, dims=("row", "column")).chunk(row=10)
    found, expected = (
        RobustClassifier(solver="bundle").fit(rows, labels) for rows in (given, dd.from_pandas(frame, npartitions=4))
    )
    assert found.feature_names_in_.tolist() == ["a", "b"]
    np.testing.assert_array_equal(found.coef_, expected.coef_)
    predicted = found.predict(given)
    assert predicted.chunks == ((10, 10, 10, 10),)
    np.testing.assert_array_equal(predicted.compute(), found.predict(frame))
    assert found.certified_error(given, labels) == found.certified_error(frame, labels)
    with refused("columns-differ", "b", "same order"):
        found.predict(given[:, ::-1])
