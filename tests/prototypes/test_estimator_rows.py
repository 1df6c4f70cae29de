from functools import partial
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import zarr
from numpy.typing import NDArray
from support.errors import refused

from protodask import PrototypeSetClassifier
from protodask.data.arrays.values import SparseRowsError
from protodask.prototypes.estimator_rows import (
    codes_among,
    feature_dtype,
    group_codes,
    is_out_of_memory,
    plain_label,
    stored_rows,
)

rng = np.random.default_rng(5)
ROWS = rng.uniform(size=(120, 2))
LABELS = (ROWS[:, 0] > ROWS[:, 1]).astype(int)


def classifier() -> PrototypeSetClassifier:
    return PrototypeSetClassifier(recipe="source", n_candidates=20, tolerance=1e-3)


@pytest.fixture(scope="module")
def fitted() -> PrototypeSetClassifier:
    return classifier().fit(ROWS, LABELS)


def test_is_out_of_memory__of_dask_and_zarr() -> None:
    rows = np.zeros((4, 2), dtype=np.float32)
    stored = zarr.array(rows)
    assert is_out_of_memory(da.from_array(rows))
    assert is_out_of_memory(stored)
    assert not is_out_of_memory(rows)
    assert np.array_equal(stored_rows(stored).read(0)["features"], rows)


@pytest.mark.parametrize(("dtype", "wanted"), [("float32", "float32"), ("int16", "float32"), ("int64", "float64")])
def test_feature_dtype__is_the_smaller_one_where_that_loses_nothing(dtype: str, wanted: str) -> None:
    assert feature_dtype(np.zeros((1, 2), dtype=dtype)) == wanted


def test_codes_among__are_those_of_the_known_labels() -> None:
    known, labels = np.array(["a", "b", "c"]), np.array(["b", "c"])
    assert codes_among(labels, known, np.array([1, 0, 1])).tolist() == [2, 1, 2]
    with refused("columns-differ", ["d"]):
        codes_among(np.array(["b", "d"]), known, np.array([0, 1]))


def test_group_codes__are_equal_where_groups_are() -> None:
    first, second, third = group_codes(["x", "y", "x"], 3)
    assert first == third != second
    with refused("wrong-shape", (3, 2)):
        group_codes(np.zeros((3, 2)), 3)


@pytest.mark.parametrize(("label", "wanted"), [(np.float64(2.0), 2), (np.float64(2.5), 2.5), (np.str_("a"), "a")])
def test_plain_label__is_of_python(label: Any, wanted: Any) -> None:
    found = plain_label(label)
    assert found == wanted
    assert type(found) is type(wanted)


@pytest.mark.parametrize("dtype", ["M8[ns]", "M8[D]", "m8[s]"])
@pytest.mark.parametrize("kind", [np.asarray, da.from_array])
def test_times__are_no_numbers(kind: Any, dtype: str, fitted: PrototypeSetClassifier) -> None:
    rows = kind((1000 * ROWS).astype(int).astype(dtype))
    with refused("wrong-type", "hold times"):
        classifier().fit(rows, LABELS)
    with refused("wrong-type", "hold times"):
        fitted.predict_proba(rows)


def test_a_series__is_no_matrix(fitted: PrototypeSetClassifier) -> None:
    with pytest.raises(ValueError, match="Expected 2D array|Expected a 2-dimensional container"):
        classifier().fit(pd.Series(ROWS[:, 0]), LABELS)
    with pytest.raises(ValueError, match="Expected 2D array|Expected a 2-dimensional container"):
        fitted.predict(pd.Series(ROWS[:, 0]))
    for column in (dask.dataframe.from_pandas(pd.Series(ROWS[:, 0]), npartitions=2), da.from_array(ROWS[:, 0])):
        with refused("wrong-shape", "1 dimension is no matrix"):
            classifier().fit(column, LABELS)
        with refused("wrong-shape", "1 dimension is no matrix"):
            fitted.predict(column)


@pytest.mark.parametrize("lazy", [False, True])
def test_sparse_rows__are_refused(lazy: bool, fitted: PrototypeSetClassifier) -> None:
    rows: Any = scipy.sparse.csr_matrix(ROWS)
    if lazy:
        rows = da.from_array(ROWS, chunks=(50, 2)).map_blocks(scipy.sparse.csr_matrix)
    for call in (partial(classifier().fit, y=LABELS), fitted.predict):
        with refused("wrong-type", "rows are sparse (a csr_matrix)", "toarray()", kind=SparseRowsError):
            np.asarray(call(rows))


@pytest.mark.parametrize("kind", [np.ma.asarray, lambda rows: da.from_array(rows, chunks=(50, 2))])
def test_masked_values__are_missing(kind: Any) -> None:
    hidden = rng.uniform(size=ROWS.shape) < 0.2
    rows, missing = kind(np.ma.masked_array(ROWS, hidden)), np.where(hidden, np.nan, ROWS)
    found, expected = classifier().fit(rows, LABELS), classifier().fit(missing, LABELS)
    assert found.model_.feature_names == expected.model_.feature_names
    np.testing.assert_allclose(found.predict_proba(missing), expected.predict_proba(missing), rtol=1e-6)
    np.testing.assert_array_equal(np.asarray(found.predict_proba(rows)), found.predict_proba(missing))


def test_masked_labels_and_weights__are_refused() -> None:
    hidden = np.arange(len(ROWS)) == 7
    with refused("bad-value", "masked"):
        classifier().fit(ROWS, np.ma.masked_array(LABELS, hidden))
    with refused("bad-value", "masked"):
        classifier().fit(ROWS, LABELS, np.ma.masked_array(np.ones(len(ROWS)), hidden))
    lazy = da.from_array(np.ma.masked_array(LABELS, hidden))
    with refused("bad-value", "missing", 7):
        classifier().fit(da.from_array(ROWS), lazy)


@pytest.mark.parametrize("kind", [np.asarray, pd.Series, da.from_array])
def test_labels_that_are_dates__are_refused(kind: Any) -> None:
    dates = (np.datetime64("2024-01-01", "ns") + LABELS * np.timedelta64(1, "D")).astype("M8[ns]")
    with refused("wrong-type", "times", "text"):
        classifier().fit(da.from_array(ROWS) if kind is da.from_array else ROWS, kind(dates))


def test_records__are_refused_with_a_way_to_give_them() -> None:
    records = pd.DataFrame(ROWS, columns=["a", "b"]).to_records(index=False)
    for rows in (records, np.array(records)):
        with refused("wrong-type", "records of named fields", "pandas.DataFrame(rows)"):
            classifier().fit(rows, LABELS)


@pytest.mark.filterwarnings("ignore:X has feature names, but:UserWarning")
@pytest.mark.parametrize("names", [["a", "b"], [0, 1]])
def test_frames__go_by_position_where_the_rows_of_fit_had_no_names(names: Any, fitted: PrototypeSetClassifier) -> None:
    frame = pd.DataFrame(ROWS, columns=names)
    for given in (frame, dask.dataframe.from_pandas(frame, npartitions=2)):
        found = fitted.predict_proba(given)
        np.testing.assert_array_equal(np.asarray(found), fitted.predict_proba(ROWS))


@pytest.mark.filterwarnings("ignore:X has feature names, but:UserWarning")
def test_frames_with_text__go_by_position_where_the_names_of_fit_were_no_text() -> None:
    frame = pd.DataFrame({0: ROWS[:, 0], 1: np.where(LABELS == 1, "x", "y")})
    found, other = classifier().fit(frame, LABELS), frame.set_axis(["a", "b"], axis=1)
    for given in (other, dask.dataframe.from_pandas(other, npartitions=2)):
        np.testing.assert_array_equal(np.asarray(found.predict_proba(given)), found.predict_proba(frame))
    assert found.calibrate(other, LABELS).score(other, LABELS) == found.score(frame, LABELS)


@pytest.mark.parametrize("kind", [np.asarray, pd.DataFrame, lambda rows: da.from_array(rows, chunks=(50, 2))])
def test_complex_numbers__are_refused(kind: Any) -> None:
    with refused("wrong-type", "imaginary", "columns"):
        classifier().fit(kind(ROWS + 1j), LABELS)


def test_objects__may_have_what_is_missing_to_pandas(fitted: PrototypeSetClassifier) -> None:
    hidden = rng.uniform(size=ROWS.shape) < 0.2
    rows = pd.DataFrame(np.where(hidden, np.nan, ROWS)).astype("Float64").to_numpy(dtype=object)
    assert all(value is pd.NA for value in rows[hidden])
    missing = np.where(hidden, np.nan, ROWS)
    np.testing.assert_array_equal(fitted.predict_proba(rows), fitted.predict_proba(missing))
    found, expected = classifier().fit(rows, LABELS), classifier().fit(missing, LABELS)
    np.testing.assert_array_equal(found.predict_proba(rows), expected.predict_proba(missing))
    assert all(value is pd.NA for value in rows[hidden])


@pytest.mark.filterwarnings("ignore:X has feature names, but:UserWarning")
def test_frames__of_sparse_columns_are_read(fitted: PrototypeSetClassifier) -> None:
    rows = np.where(ROWS > 0.5, ROWS, 0.0)
    frame = pd.DataFrame(rows, columns=["a", "b"]).astype(pd.SparseDtype("float64", 0.0))
    np.testing.assert_array_equal(fitted.predict_proba(frame), fitted.predict_proba(rows))
    found, expected = classifier().fit(frame, LABELS), classifier().fit(rows, LABELS)
    np.testing.assert_array_equal(found.predict_proba(frame), expected.predict_proba(rows))


@pytest.mark.parametrize("names", [[], ["a", "a"]])
def test_frames__without_columns_or_with_two_of_one_name_are_refused(names: list[str]) -> None:
    with refused("named-twice" if names else "wrong-shape", "columns"):
        classifier().fit(pd.DataFrame(ROWS[:, : len(names)], columns=names), LABELS)


@pytest.mark.parametrize(
    "kind",
    [
        partial(pd.Series, dtype="string"),
        partial(pd.array, dtype="string[pyarrow]"),
        pd.Categorical,
        partial(np.array, dtype=object),
        partial(pd.DataFrame, columns=["label"]),
    ],
)
def test_labels__that_are_missing_are_told_with_their_row(kind: Any) -> None:
    labels: list[Any] = ["ja" if label else "nein" for label in LABELS]
    labels[7] = None
    with refused("bad-value", "labels are missing", "row 7"):
        classifier().fit(ROWS, kind(labels))


def test_labels__that_are_no_classes_or_not_there_are_refused() -> None:
    for labels in (np.where(LABELS, "ja", np.array(1, dtype=object)), pd.cut(ROWS[:, 0], 2), LABELS + 0.5):
        with refused("bad-value", "labels", "by whole numbers"):
            classifier().fit(ROWS, labels)
    for rows in (ROWS, da.from_array(ROWS)):
        with refused("setting-missing", "no labels"):
            classifier().fit(rows, None)


@pytest.mark.parametrize("kind", [np.array, pd.Series, partial(da.from_array, chunks=50)])
def test_score__of_labels_that_are_missing_or_no_classes_says_so(kind: Any, fitted: PrototypeSetClassifier) -> None:
    labels: Any = LABELS.astype(object)
    labels[7] = None
    with refused("bad-value", "labels are missing", "row 7"):
        fitted.score(ROWS, kind(labels))
    with refused("bad-value", "labels"):
        fitted.score(ROWS, kind(LABELS + 0.5))
    with refused("setting-missing", "no labels"):
        fitted.score(ROWS, None)
    with refused("bad-value", "labels"):
        fitted.score(ROWS, 5)
    assert fitted.score(ROWS, kind(LABELS)) == np.mean(fitted.predict(ROWS) == LABELS)
    assert fitted.score(ROWS, kind(LABELS + 5)) == 0


@pytest.mark.parametrize("kind", ["Int64", "int64[pyarrow]"])
@pytest.mark.parametrize("lazy", [False, True])
def test_labels__of_types_of_pandas_are_not_rounded(kind: str, lazy: bool) -> None:
    labels = pd.Series(2**53 + LABELS, dtype=kind)
    given = dask.dataframe.from_pandas(labels.to_frame("y"), npartitions=2)["y"] if lazy else labels
    rows = dask.dataframe.from_pandas(pd.DataFrame(ROWS, columns=["a", "b"]), npartitions=2) if lazy else ROWS
    found = classifier().fit(rows, given)
    assert found.classes_.tolist() == list(found.model_.classes) == [2**53, 2**53 + 1]
    predicted = np.asarray(found.predict(rows))
    assert found.score(rows, given) == np.mean(predicted == labels.to_numpy(dtype=np.int64)) < 1


@pytest.mark.parametrize("kind", ["boolean", "bool[pyarrow]", "category"])
def test_labels__that_are_truth_values_are_so_in_any_type(kind: str) -> None:
    found = classifier().fit(ROWS, pd.Series(LABELS == 1, dtype=kind))
    assert found.classes_.dtype == bool
    assert found.model_.classes == (False, True)


@pytest.mark.parametrize("kind", ["Int64", "int64[pyarrow]"])
def test_labels__of_dask_beside_rows_in_memory_are_not_rounded(kind: str) -> None:
    labels = pd.Series(2**53 + LABELS, dtype=kind)
    lazy = dask.dataframe.from_pandas(labels.to_frame("y"), npartitions=2)["y"]
    found = classifier().fit(ROWS, lazy)
    assert found.classes_.tolist() == [2**53, 2**53 + 1]
    assert np.array_equal(found.predict(ROWS), classifier().fit(ROWS, labels).predict(ROWS))


@pytest.mark.filterwarnings("ignore:A column-vector y was passed")
@pytest.mark.parametrize("kind", [np.asarray, pd.Series, pd.DataFrame])
@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize(
    ("labels", "kinds"),
    [
        (LABELS + 2**60, "iu"),
        (LABELS.astype(np.uint64) + 2**63, "u"),
        (LABELS == 1, "b"),
        (np.array(["no", "yes"])[LABELS], "OU"),
    ],
)
def test_labels__that_are_objects_are_what_they_all_are(
    kind: Any, lazy: bool, labels: NDArray[Any], kinds: str
) -> None:
    given = kind(np.array(labels.tolist(), dtype=object))
    rows = da.from_array(ROWS, chunks=(50, 2)) if lazy else ROWS
    found = classifier().fit(rows, given)
    assert found.classes_.tolist() == np.unique(labels).tolist()
    assert found.classes_.dtype.kind in kinds
    assert found.score(rows, given) == np.mean(np.asarray(found.predict(rows)) == labels) > 0.5


def test_labels__of_numpys_own_text_are_text() -> None:
    labels = np.array(["no", "yes"])[LABELS]
    found = classifier().fit(ROWS, labels.astype(np.dtypes.StringDType()))
    assert found.classes_.tolist() == ["no", "yes"]
    assert found.score(ROWS, labels.astype(np.dtypes.StringDType())) == found.score(ROWS, labels)


@pytest.mark.parametrize(
    ("labels", "what"), [(LABELS.astype("S1"), "bytes"), (LABELS.astype(complex), "complex numbers")]
)
def test_labels__that_no_model_holds_are_refused_of_dask_rows_too(labels: NDArray[Any], what: str) -> None:
    with refused("wrong-type", what, "text"):
        classifier().fit(da.from_array(ROWS), labels)


def test_labels__of_one_column_go_with_dask_rows() -> None:
    rows = da.from_array(ROWS, chunks=(50, 2))
    expected = classifier().fit(rows, LABELS).predict_proba(ROWS)
    frame = pd.DataFrame({"label": LABELS})
    for given in (LABELS[:, None], da.from_array(LABELS[:, None], chunks=(70, 1)), frame):
        assert np.array_equal(classifier().fit(rows, given).predict_proba(ROWS), expected)
    lazy = dask.dataframe.from_pandas(frame, npartitions=3)
    assert np.array_equal(classifier().fit(rows, lazy).predict_proba(ROWS), expected)


@pytest.mark.parametrize("dtype", ["<i8", "<i4", ">f8"])
def test_predict__of_stored_arrays_takes_numbers_as_those_in_memory(tmp_path: Path, dtype: str) -> None:
    rows = (2**26 + 100 * ROWS).astype(dtype)  # neighbours that float32 does not tell apart
    fitted = classifier().fit(rows, LABELS)
    stored = zarr.create_array(tmp_path / "rows.zarr", data=rows, chunks=(50, 2))
    np.testing.assert_array_equal(fitted.predict_proba(stored), fitted.predict_proba(rows))


def test_fit__refuses_labels_that_are_records() -> None:
    records = np.zeros(len(ROWS), dtype=[("kind", "i8"), ("time", "f8")])
    for labels in (records, zarr.array(records, zarr_format=2)):
        with refused("wrong-type", "records", "y['kind']"):
            classifier().fit(zarr.array(ROWS), labels)
