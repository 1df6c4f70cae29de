"""The estimator on dask data frames whose columns are not all numbers: as on the pandas frames they are made of."""

from __future__ import annotations

import copy
import itertools
import weakref
from pathlib import Path
from typing import Any

import dask
import dask.array
import dask.dataframe
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.errors import refused

from protodask import PrototypeSetClassifier, ingest
from protodask.engine import thread_engine
from protodask.errors import Code

ROWS = 160
SETTINGS: dict[str, Any] = {
    "recipe": "source",
    "n_candidates": 30,
    "lambda_w": 1e-3,
    "tolerance": 0.1,
    "precision": "float64",
}

SIZES = ["s", "m", "l"]


def make_frame(missing: bool, seed: int = 0) -> tuple[pd.DataFrame, pd.Series]:
    """Columns of every type; numbers are dyadic fractions, so that sums of them do not depend on their order."""
    random = np.random.default_rng(seed)
    y = random.integers(0, 2, ROWS)
    frame = pd.DataFrame(
        {
            "Länge in cm": random.integers(-40, 40, ROWS) / 8 + y,
            "city": pd.array(random.choice(["Rome", "Oslo", "a , b"], ROWS), "str"),
            "colour": pd.Categorical(random.choice(["red", "blue"], ROWS), ["red", "green", "blue"]),
            "target": pd.Categorical(random.choice(SIZES, ROWS), SIZES, ordered=True),
            "flag": random.random(ROWS) < 0.5,
            "kids": pd.array(random.integers(0, 4, ROWS), "Int64"),
            "member": pd.array(random.random(ROWS) < 0.3, "boolean"),
            "7": random.integers(0, 100, ROWS),
        }
    )
    frame["city"] = frame["city"].astype("str")
    if missing:
        for position, name in enumerate(["Länge in cm", "city", "colour", "target", "kids", "member"]):
            frame.loc[[position, 40 + position, *range(80, 120)], name] = None
    return frame, pd.Series(np.where(y, "ja", "nein"), index=frame.index, name="label")


def _same(part: pd.DataFrame) -> pd.DataFrame:
    return part


def cut(frame: pd.DataFrame, cuts: list[int]) -> Any:
    """A dask frame with these partitions, empty ones among them, which says nothing of their lengths or divisions."""
    edges = [0, *sorted(cuts), len(frame)]
    parts = [frame.iloc[first:last] for first, last in itertools.pairwise(edges)]
    return dask.dataframe.from_map(_same, parts, meta=frame.iloc[:0])


def same_models(one: PrototypeSetClassifier, other: PrototypeSetClassifier, exact: bool) -> None:
    assert one.classes_.tolist() == other.classes_.tolist()
    assert one.model_.feature_names == other.model_.feature_names
    assert one.n_features_in_ == other.n_features_in_
    assert one.feature_names_in_.tolist() == other.feature_names_in_.tolist()
    if exact:
        assert one.model_.columns == other.model_.columns
    for ours, theirs in zip(one.model_.batches, other.model_.batches, strict=True):
        np.testing.assert_array_equal(ours.row, theirs.row)
        compare = np.testing.assert_array_equal if exact else np.testing.assert_allclose
        compare(ours.prototype_weight, theirs.prototype_weight)
        compare(ours.feature_weight, theirs.feature_weight)
        compare(ours.prototypes, theirs.prototypes)


@settings(max_examples=5, deadline=None)
@given(
    st.lists(st.integers(0, ROWS), max_size=3),
    st.booleans(),
    st.sets(st.sampled_from(["Länge in cm", "city", "colour", "target", "flag", "kids", "member", "7"]), min_size=1),
)
def test_fit__is_that_of_the_pandas_frame_however_it_is_cut(cuts: list[int], missing: bool, chosen: set[str]) -> None:
    frame, y = make_frame(missing)
    names = [name for name in frame.columns if name in chosen]
    lazy = cut(frame.assign(label=y), cuts)
    found = PrototypeSetClassifier(**SETTINGS).fit(lazy[names], lazy["label"])
    expected = PrototypeSetClassifier(**SETTINGS).fit(frame[names], y)
    same_models(found, expected, exact=True)
    np.testing.assert_array_equal(found.predict(lazy[names]).compute(), expected.predict(frame[names]))
    for method in ("predict_proba", "familiarity"):
        lazily = getattr(found, method)(lazy[names])
        assert isinstance(lazily, dask.array.Array)
        assert np.isnan(lazily.shape[0])
        # The last bits of a product of matrices may be others where there are other rows.
        np.testing.assert_allclose(lazily.compute(), getattr(expected, method)(frame[names]), rtol=1e-9)


@pytest.fixture(scope="module")
def fitted() -> tuple[PrototypeSetClassifier, pd.DataFrame, pd.Series]:
    frame, y = make_frame(missing=True)
    return PrototypeSetClassifier(**SETTINGS).fit(frame, y), frame, y


@pytest.fixture(scope="module")
def narrow(fitted: Any) -> tuple[PrototypeSetClassifier, pd.DataFrame, pd.Series]:
    """Of a column of numbers and one of text, where another thing than columns is looked at."""
    _, frame, y = fitted
    frame = frame[["Länge in cm", "city"]]
    return PrototypeSetClassifier(**SETTINGS).fit(frame, y), frame, y


def lazily(values: Any, cuts: list[int]) -> Any:
    """One column as a dask series in partitions of its own."""
    return cut(pd.DataFrame({"one": values}), cuts)["one"]


@pytest.mark.parametrize(
    "labels",
    [
        lambda y: y.to_numpy(),
        list,
        lambda y: y.set_axis(y.index[::-1]),
        lambda y: dask.array.from_array(y.to_numpy(dtype=object), chunks=33),
        lambda y: lazily(y, [7, 100]),
        lambda y: lazily(y.astype("category"), [50]),
    ],
    ids=["array", "list", "series", "dask", "partitions", "categories"],
)
def test_fit__takes_labels_row_by_row_whatever_they_are(labels: Any, narrow: Any) -> None:
    expected, frame, y = narrow
    found = PrototypeSetClassifier(**SETTINGS).fit(cut(frame, [50, 50]), labels(y))
    same_models(found, expected, exact=True)
    assert found.score(cut(frame, [50]), labels(y)) == expected.score(frame, y)


@pytest.mark.parametrize("lazy", [False, True])
def test_fit__takes_weights_beside_text(lazy: bool, narrow: Any) -> None:
    _, frame, y = narrow
    weight = np.arange(ROWS) / 8
    found = PrototypeSetClassifier(**SETTINGS).fit(cut(frame, [50]), y, lazily(weight, [9]) if lazy else weight)
    same_models(found, PrototypeSetClassifier(**SETTINGS).fit(frame, y, weight), exact=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The inplace keyword in DataFrame")
@pytest.mark.parametrize("names", [["Länge in cm", "7"], ["Länge in cm", "city"]], ids=["numbers", "text"])
def test_fit__reads_files_that_dask_joins(names: list[str], tmp_path: Path) -> None:
    frame, y = make_frame(missing=False)
    # Of a column or two among so many, Dask reads several files as one partition.
    wide = frame.assign(label=y, **{f"other{number}": float(number) for number in range(20)})
    dask.dataframe.from_pandas(wide, npartitions=8).to_parquet(tmp_path / "rows")
    lazy = dask.dataframe.read_parquet(tmp_path / "rows")
    found = PrototypeSetClassifier(**SETTINGS).fit(lazy[names], lazy["label"])
    expected = PrototypeSetClassifier(**SETTINGS).fit(frame[names], y)
    same_models(found, expected, exact=True)
    assert found.score(lazy[names], lazy["label"]) == expected.score(frame[names], y)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "way"),
    [(["Länge in cm", "7"], "p2p"), (["Länge in cm", "city"], "disk")],
    ids=["numbers-cluster", "text-threads"],
)
def test_fit__gives_each_row_its_label_whatever_order_dask_shuffles_them_to(names: list[str], way: str) -> None:
    frame, _ = make_frame(missing=False)
    frame = frame.assign(label=np.where(frame["Länge in cm"] > 0, "ja", "nein"), key=np.arange(ROWS) % 7)
    lazy = dask.dataframe.from_pandas(frame, npartitions=4).shuffle("key")
    with dask.config.set({"dataframe.shuffle.method": way}):
        found = PrototypeSetClassifier(**SETTINGS | {"tolerance": 1e-2}).fit(lazy[names], lazy["label"])
        assert found.score(lazy[names], lazy["label"]) == found.score(frame[names], frame["label"]) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("way", ["set_index", "merge"])
def test_fit__gives_each_row_its_label_where_dask_joins_files_of_few_columns(way: str, tmp_path: Path) -> None:
    frame, _ = make_frame(missing=False)
    frame = frame.assign(label=np.where(frame["Länge in cm"] > 0, "ja", "nein"), key=np.arange(len(frame)) % 7)
    wide = frame.assign(**{f"text {number}": "long text " * 9 + frame["city"] for number in range(8)})
    for number, rows in enumerate(np.array_split(np.arange(len(wide)), 6)):
        wide.iloc[rows].to_parquet(tmp_path / f"{number}.parquet")
    read = dask.dataframe.read_parquet(tmp_path)
    beside = dask.dataframe.from_pandas(pd.DataFrame({"key": np.arange(7), "z": np.arange(7.0)}), npartitions=2)
    lazy = read.set_index("key") if way == "set_index" else read.merge(beside, on="key")
    found = PrototypeSetClassifier(**SETTINGS | {"tolerance": 1e-2}).fit(lazy[["Länge in cm", "7"]], lazy["label"])
    assert found.score(frame[["Länge in cm", "7"]], frame["label"]) > 0.9


def test_fit__of_a_frame_that_is_shuffled_by_disk_is_refused() -> None:
    frame, y = make_frame(missing=False)
    with dask.config.set({"dataframe.shuffle.method": "disk"}):
        lazy = dask.dataframe.from_pandas(frame.assign(label=y), npartitions=6).shuffle("label")
    with refused("unsupported", "'disk'", "another order of rows", "shuffle_method"):
        PrototypeSetClassifier(**SETTINGS).fit(lazy[["Länge in cm", "7"]], lazy["label"])


def test_fit__of_some_partitions_is_that_of_their_rows(narrow: Any) -> None:
    _, frame, y = narrow
    some = dask.dataframe.from_pandas(frame, npartitions=8).loc[30:130]
    found = PrototypeSetClassifier(**SETTINGS).fit(some, y[30:131])
    same_models(found, PrototypeSetClassifier(**SETTINGS).fit(frame[30:131], y[30:131]), exact=True)


@pytest.mark.slow
def test_fit__never_has_more_than_a_few_partitions_in_memory() -> None:
    frame, y = make_frame(missing=False)
    frame = frame[["Länge in cm", "city"]].assign(label=y)
    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    most = 0

    def load(number: int) -> pd.DataFrame:
        nonlocal most
        part = frame.iloc[10 * number : 10 * number + 10].copy()
        alive.add(part._mgr)  # pandas frames are told apart by their values, not their identity
        most = max(most, len(alive))
        return part

    table = dask.dataframe.from_map(load, range(ROWS // 10), meta=frame.iloc[:0])
    with dask.config.set(scheduler="synchronous"), thread_engine(threads=2) as engine:
        PrototypeSetClassifier(**SETTINGS, engine=engine).fit(table.drop(columns="label"), table["label"])
    assert 0 < most <= 6 < ROWS // 10


def test_rows_for_a_fitted_model__may_have_categories_nobody_has_seen(fitted: Any) -> None:
    expected, frame, y = fitted
    other = frame.assign(city=frame["city"].where(frame.index > 5, "Paris"))
    found = expected.predict_proba(cut(other, [3, 3, 90]))
    np.testing.assert_allclose(found.compute(), expected.predict_proba(other), rtol=1e-9)
    one, two = (copy.copy(expected).calibrate(rows, y) for rows in (other, cut(other, [50])))
    np.testing.assert_allclose(
        one.predict_proba(frame, calibrated=True), two.predict_proba(frame, calibrated=True), rtol=1e-9
    )
    assert copy.copy(expected).prune(4, cut(other, [50]), y).model_.n_prototypes == 4


def test_unknown_categories__are_found_unless_they_have_an_order() -> None:
    frame, y = make_frame(missing=True)
    lazy = cut(frame, [50])
    found = PrototypeSetClassifier(**SETTINGS).fit(lazy.assign(colour=lazy["colour"].cat.as_unknown()), y)
    same_models(found, PrototypeSetClassifier(**SETTINGS).fit(frame, y), exact=True)
    unknown = lazy.assign(target=lazy["target"].cat.as_unknown())
    with refused("setting-missing", "'target'", "X.categorize(['target'])"):
        PrototypeSetClassifier(**SETTINGS).fit(unknown, y)


@pytest.mark.parametrize(
    ("columns", "code", "facts"),
    [
        ({"t": pd.date_range("2020", periods=ROWS)}, "wrong-type", ["'t' holds times", "leave it out"]),
        ({"id": [f"u{row}" for row in range(ROWS)]}, "over-limit", ["'id'", "like an identifier"]),
    ],
)
def test_fit__refuses_the_columns_that_it_refuses_in_memory(
    columns: dict[str, Any], code: Code, facts: list[str]
) -> None:
    frame, y = make_frame(missing=False)
    frame = frame.assign(**columns)
    for rows in (frame, cut(frame, [50])):
        with refused(code, *facts):
            PrototypeSetClassifier(**SETTINGS).fit(rows, y)


def test_fit__refuses_what_cannot_be_told_lazily() -> None:
    frame, y = make_frame(missing=False)
    lazy = cut(frame, [50])
    with refused("named-twice", "Several columns of X have one name"):
        PrototypeSetClassifier(**SETTINGS).fit(cut(pd.concat([frame, frame[["flag"]]], axis=1), [50]), y)
    with refused("wrong-shape", "'target of the rows' has the shape (159,)", "160 rows"):
        PrototypeSetClassifier(**SETTINGS).fit(lazy, y[1:])
    two = pd.concat([y, y], axis=1, keys=["y", "z"])
    with refused("wrong-shape", "'target of the rows' has the shape (160, 2)", "160 rows"):
        PrototypeSetClassifier(**SETTINGS).fit(lazy, cut(two, [50]))
    with refused("bad-value", "'target of the rows' has a missing value in row 130"):
        PrototypeSetClassifier(**SETTINGS).fit(lazy, lazily(y.where(y.index != 130), [50]))
    with dask.config.set({"dataframe.convert-string": False}):
        objects = cut(frame.assign(number=pd.Series([1.5, 2.5] * (ROWS // 2), dtype=object)), [50])
        with refused("wrong-type", "'number' holds objects that are not all text", ".astype(float)"):
            PrototypeSetClassifier(**SETTINGS).fit(objects, y)


def test_fit__of_lazy_objects_takes_text_and_no_numbers() -> None:
    letters = np.array([["a", None], ["b", "c"]] * 40, dtype=object)
    y = np.array([0, 1] * 40)
    lazy = dask.array.from_array(letters, chunks=(30, 1))
    assert PrototypeSetClassifier(**SETTINGS).fit(lazy, y).model_.feature_names[:2] == ("x0=a", "x0=b")
    numbers = dask.array.from_array(np.column_stack([letters[:, 0], y.astype(object)]), chunks=(30, 1))
    with refused("wrong-type", "'x1' holds objects that are not all text", ".astype(float)"):
        PrototypeSetClassifier(**SETTINGS).fit(numbers, y)


def test_predict__of_lazy_rows_of_other_columns(fitted: Any) -> None:
    expected, frame, _ = fitted
    with refused("columns-differ", "same order"):
        expected.predict(cut(frame[frame.columns[::-1]], [50]))
    with refused("wrong-type", "'city' holds times"):
        expected.predict(cut(frame.assign(city=pd.Timestamp("2020-01-01")), [50]))
    one = expected.predict_proba(cut(frame.iloc[:1], []))
    np.testing.assert_allclose(one.compute(), expected.predict_proba(frame)[:1], rtol=1e-12)
    assert expected.predict(cut(frame.iloc[:0], [])).compute().shape == (0,)


@pytest.mark.parametrize("kind", ["array", "frame", "nullable"])
def test_whole_numbers__are_told_apart_however_large(kind: str) -> None:
    y = np.arange(ROWS) % 2
    x = 2**25 + y[:, None]
    rows = x if kind == "array" else pd.DataFrame(x, columns=["x"]).astype("Int64" if kind == "nullable" else "int64")
    assert PrototypeSetClassifier(**SETTINGS).fit(rows, y).score(rows, y) == 1


@pytest.mark.parametrize("text", [False, True])
def test_fit_and_predict__take_columns_by_name_whatever_their_order_in_each_partition(text: bool) -> None:
    random = np.random.default_rng(3)
    frame = pd.DataFrame(random.normal(size=(ROWS, 3)), columns=["a", "b", "c"])
    y = np.asarray(frame["a"] * frame["b"] > 0)
    if text:
        frame["c"] = np.where(random.random(ROWS) < 0.5, "x", "y")
    parts = [frame[:70], frame[70:][["c", "a", "b"]]]
    mixed = dask.dataframe.from_map(_same, parts, meta=frame.iloc[:0])
    expected = PrototypeSetClassifier(**SETTINGS).fit(cut(frame, [70]), y)
    same_models(PrototypeSetClassifier(**SETTINGS).fit(mixed, y), expected, exact=True)
    in_order = np.asarray(expected.predict_proba(cut(frame, [70])))
    np.testing.assert_array_equal(np.asarray(expected.predict_proba(mixed)), in_order)
    np.testing.assert_allclose(in_order, expected.predict_proba(frame), rtol=1e-12)  # products of other sizes
    lacking = dask.dataframe.from_map(_same, [frame[:70], frame[70:][["a", "b"]]], meta=frame.iloc[:0])
    for action in (
        lambda: PrototypeSetClassifier(**SETTINGS).fit(lacking, y),
        lambda: ingest((lacking, y), "memory://x"),
    ):
        with refused("columns-differ", "partition", "c"):
            action()
