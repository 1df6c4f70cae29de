"""What an estimator makes of columns of text, of categories, and with missing values."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import dask.array
import dask.dataframe
import numpy as np
import pandas as pd
import pytest
import zarr
from sklearn.model_selection import cross_val_score
from support.errors import refused

from protodask import PrototypeSetClassifier
from protodask.data.tables.ingest import ingest
from protodask.explain import Explanation
from protodask.prototypes.config import FitConfig
from protodask.prototypes.fitting import fit
from protodask.prototypes.model import load_model
from protodask.prototypes.persistence import save_model

ROWS = 240
# Rounds end after some iterations, which see all columns as well as many.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Round . stopped early:protodask.prototypes.convergence.ConvergenceWarning"
)

SETTINGS: dict[str, Any] = {"n_candidates": 40, "lambda_w": 1e-3, "max_iterations": 10, "precision": "float64"}


def classifier(**others: Any) -> PrototypeSetClassifier:
    settings = {**SETTINGS, "recipe": "source", **others}
    return PrototypeSetClassifier(**settings)


def make_frame(seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    random = np.random.default_rng(seed)
    y = random.integers(0, 2, ROWS)
    frame = pd.DataFrame(
        {
            "age": random.standard_normal(ROWS) + y,
            "income": random.standard_normal(ROWS),
            "city": random.choice(["Rome", "Oslo", "Bern"], ROWS).astype(object),
            "size": pd.Categorical(random.choice(["s", "m", "l"], ROWS), ["s", "m", "l"], ordered=True),
            "flag": random.random(ROWS) < 0.5,
        }
    )
    frame.loc[random.random(ROWS) < 0.1 + 0.4 * y, "income"] = np.nan
    frame.loc[[3, 9], "city"] = None
    frame.loc[[5], "size"] = None
    return frame, y


def test_fit__of_a_mixed_frame_is_the_fit_of_its_ingest(tmp_path: Path) -> None:
    frame, y = make_frame()
    ending = {"max_iterations": 13, "tolerance": 1.0}  # which ends it after 11, the fewest that a tolerance looks at
    found = classifier(**ending).fit(frame, y)
    assert found.n_features_in_ == 5
    assert found.model_.feature_names == (
        "age", "income", "income is missing", "city=Bern", "city=Oslo", "city=Rome", "city is missing", "size",
        "size is missing", "flag",
    )  # fmt: skip
    table = frame.assign(target=y)
    data = ingest(table, tmp_path / "d", ordinal={"size": ["s", "m", "l"]}, text_is_categorical=True, dtype="float64")
    config = FitConfig.of("source", **{**SETTINGS, **ending})
    expected = fit(data, config).model
    for ours, theirs in zip(found.model_.columns, expected.columns, strict=True):
        assert replace(ours, filled=None, marked=False) == replace(theirs, filled=None, marked=False)
        assert ours.marked == theirs.marked
        assert ours.filled is theirs.filled or ours.filled == pytest.approx(theirs.filled or 0.0, rel=1e-12)
    for one, other in zip(found.model_.batches, expected.batches, strict=True):
        np.testing.assert_allclose(one.prototype_weight, other.prototype_weight, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(one.feature_weight, other.feature_weight, rtol=1e-6)


def test_missing_numbers__are_told_apart_by_their_own_weight() -> None:
    # Nothing but whether the income is known tells the classes apart.
    random = np.random.default_rng(1)
    y = random.integers(0, 2, 400)
    x = random.standard_normal((400, 2))
    x[(random.random(400) < 0.9) == (y == 1), 1] = np.nan
    found = PrototypeSetClassifier(n_draws=1).fit(x[:300], y[:300])
    assert found.model_.feature_names == ("x0", "x1", "x1 is missing")
    assert found.score(x[300:], y[300:]) > 0.8


@pytest.mark.parametrize("kind", ["dask", "zarr", "frame", "list"])
def test_predict__of_missing_numbers_is_the_same_wherever_they_are(kind: str, tmp_path: Path) -> None:
    frame, y = make_frame()
    x = frame[["age", "income"]].to_numpy().copy()
    x[7, 0] = np.nan  # only to predict: no row to train on lacks it
    found = classifier().fit(np.delete(x, 7, axis=0), np.delete(y, 7))
    given: Any = x
    match kind:
        case "dask":
            given = dask.array.from_array(x, chunks=(100, 1))
        case "zarr":
            given = zarr.create_array(tmp_path / "x", data=x, chunks=(50, 2))
        case "list":
            given = x.tolist()
        case "frame":
            given = pd.DataFrame(x)
    # Lists become float32, as they always did.
    tolerance = 1e-6 if kind == "list" else 0.0
    np.testing.assert_allclose(np.asarray(found.predict_proba(given)), found.predict_proba(x), rtol=tolerance)
    filled = x.copy()
    filled[7, 0] = np.delete(x[:, 0], 7).mean()
    np.testing.assert_allclose(found.predict_proba(x[7:8]), found.predict_proba(filled[7:8]), rtol=1e-6)


def test_fit__of_lazy_rows_fills_in_as_in_memory() -> None:
    frame, y = make_frame()
    x = frame[["age", "income"]].to_numpy().copy()
    here = classifier().fit(x, y).model_
    lazy = classifier().fit(dask.array.from_array(x, chunks=(100, 2)), dask.array.from_array(y, chunks=100))
    assert lazy.n_features_in_ == 2
    assert lazy.model_.feature_names == here.feature_names
    assert lazy.model_.columns[1].filled == pytest.approx(here.columns[1].filled, rel=1e-12)
    np.testing.assert_allclose(lazy.predict_proba(x), classifier().fit(x, y).predict_proba(x), rtol=1e-6)


@pytest.mark.parametrize("lazy", [False, True])
def test_rows_without_weight__do_not_decide_what_is_missing(lazy: bool) -> None:
    frame, y = make_frame()
    frame, weight = frame[["age", "income", "size"]], np.ones(ROWS)
    weight[:100] = 0.0
    frame.loc[:99, ["age", "income"]] = 1000.0
    frame.loc[0, "age"] = np.nan  # in a row of weight 0 alone
    given = dask.dataframe.from_pandas(frame, npartitions=2) if lazy else frame
    columns = classifier().fit(given, y, weight).model_.columns
    positions = frame["size"].cat.codes[100:]
    wanted = [frame["age"][100:].mean(), frame["income"][100:].mean(), positions[positions >= 0].mean()]
    assert [column.filled for column in columns] == pytest.approx(wanted, rel=1e-12)
    if not lazy:
        columns = classifier().fit(frame[["age", "income"]].to_numpy(), y, weight).model_.columns
        assert [column.filled for column in columns] == pytest.approx(wanted[:2], rel=1e-12)


def test_predict__of_a_category_nobody_has_seen_looks_at_the_others() -> None:
    frame, y = make_frame()
    found = classifier().fit(frame, y)
    other, gone = frame.copy(), frame.copy()
    other["city"] = "Lima"
    other["size"] = other["size"].astype(object)
    gone["city"] = None
    assert np.isfinite(found.predict_proba(other)).all()
    assert np.isfinite(found.predict_proba(gone)).all()
    other["size"] = "huge"
    with refused("bad-value", "size", "huge", "row 0"):
        found.predict(other)


def test_estimator__with_text_works_as_others_do(tmp_path: Path) -> None:
    frame, y = make_frame()
    assert np.isfinite(cross_val_score(classifier(), frame, y, cv=3, error_score="raise")).all()
    found = classifier().fit(frame, y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(found)).predict(frame), found.predict(frame))
    explained, same = found.explain(frame[:1]), found.explain(frame.iloc[0])
    assert isinstance(explained, Explanation)
    assert isinstance(same, Explanation)
    names = {one.name for part in explained.contributions for one in part.features}
    assert names <= set(found.model_.feature_names)
    np.testing.assert_allclose(same.probability, explained.probability)
    save_model(found.model_, tmp_path / "m")
    assert load_model(tmp_path / "m").columns == found.model_.columns
    found.warm_start, found.n_batches = True, 2
    assert found.fit(frame, y).model_.n_batches == 2
    with pytest.raises(ValueError, match="feature names"):
        found.predict(frame[["income", "age", "city", "size", "flag"]])


def test_fit__asks_about_what_looks_like_an_identifier() -> None:
    frame, y = make_frame()
    frame["name"] = [f"n{number}" for number in range(ROWS)]
    with refused("over-limit", "'name'", "240", "identifier"):
        classifier().fit(frame, y)
    frame["name"] = frame["name"].astype("category")
    assert classifier().fit(frame, y).n_features_in_ == 6
    frame["name"] = pd.Timestamp("2026-01-01")
    with refused("wrong-type", "'name'", "times"):
        classifier().fit(frame, y)


def test_fit__asks_for_a_frame_where_there_is_text_in_an_array() -> None:
    frame, y = make_frame()
    facts = ("text in an array of rows (could not convert string to float", "data frame", "set_output")
    with refused("wrong-type", *facts):
        classifier().fit(frame.to_numpy(), y)
    with refused("wrong-type", *facts):
        classifier().fit(frame[["age"]].to_numpy(), y).predict([["old"]])


def test_fit__warns_of_text_that_is_numbers_or_times() -> None:
    frame = pd.DataFrame({"share": ["1,5 %", "-"] * 15 + ["2,5 %"] * 30})
    with pytest.warns(UserWarning, match="The categories of 'share' are numbers such as '1,5 %' but for '-'. Leave"):
        PrototypeSetClassifier(n_candidates=10, n_draws=1).fit(frame, [0, 1] * 30)


def test_forgiving_columns__count_what_is_missing_as_the_middle() -> None:
    random = np.random.default_rng(2)
    y = random.integers(0, 2, 400)
    x = np.exp(random.standard_normal((400, 2)) + y[:, None])
    for forms, middle in (("plain", x.mean(axis=0)), ("scores", np.median(x, axis=0))):
        found = classifier(feature_forms=forms).fit(x, y).model_
        columns = found.forgiving_columns
        active = found.active_features
        assert len(active)
        for feature in active.tolist():
            assert columns[feature].filled == pytest.approx(middle[feature], rel=0.15)
        assert [column.marked for column in columns] == [False, False]


def test_forgiving_columns__are_told_apart_behind_categories() -> None:
    random = np.random.default_rng(3)
    y = random.integers(0, 2, 300)
    frame = pd.DataFrame(
        {
            "town": random.choice(["Oslo", "Rome", "Bonn"], 300),
            "low": random.normal(y, 1),
            "high": random.normal(90 + y, 1),
        }
    )
    found = classifier(feature_forms="plain").fit(frame, y).model_
    filled = {column.name: column.filled for column in found.forgiving_columns}
    assert filled["town"] == 0.0
    assert filled["low"] == pytest.approx(frame["low"].mean(), abs=0.3)
    assert filled["high"] == pytest.approx(frame["high"].mean(), abs=0.3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dask", "zarr"])
def test_rows_for_a_fitted_model__are_encoded_as_its_own(kind: str, tmp_path: Path) -> None:
    # Their own means, and which of their columns have missing values, are of no interest.
    frame, y = make_frame()
    x = frame[["age", "income"]].to_numpy().copy()
    other = x + 50
    other[::3, 0] = np.nan
    labels: Any = dask.array.from_array(y, chunks=100)
    lazy: Any = dask.array.from_array(other, chunks=(100, 2))
    if kind == "zarr":
        lazy, labels = zarr.create_array(tmp_path / "x", data=other, chunks=(100, 2)), y
    clean = np.nan_to_num(x)
    for trained in (x, clean):
        here = classifier(n_batches=1, warm_start=True).fit(trained, y)
        there, more, columns = copy.deepcopy(here), copy.deepcopy(here), here.model_.columns
        expected = here.calibrate(other, y).predict_proba(x, calibrated=True)
        found = there.calibrate(lazy, labels).predict_proba(x, calibrated=True)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        here.prune(5, other, y)
        there.prune(5, lazy, labels)
        np.testing.assert_allclose(there.predict_proba(x), here.predict_proba(x), rtol=1e-4)
        more.n_batches = 2
        assert more.fit(lazy, labels).model_.columns == columns


def test_truth_values_and_decimals__are_numbers_in_any_type() -> None:
    frame, y = make_frame()
    flag = frame["flag"].astype(object)
    flag[4] = None
    mixed = pd.DataFrame({"age": frame["age"], "flag": flag, "paid": [Decimal(number % 7) for number in range(ROWS)]})
    found = classifier().fit(mixed, y)
    assert [column.kind for column in found.model_.columns] == ["numeric"] * 3
    plain = pd.DataFrame({"age": frame["age"], "flag": frame["flag"], "paid": np.arange(ROWS) % 7.0})
    expected = found.predict_proba(mixed)
    np.testing.assert_array_equal(np.delete(found.predict_proba(plain), 4, axis=0), np.delete(expected, 4, axis=0))
    gone = mixed.assign(flag=flag.astype("boolean"))
    np.testing.assert_array_equal(found.predict_proba(gone), expected)
    ages: list[Any] = [pd.NA, *mixed["age"][1:]]
    words = mixed.assign(age=pd.Series(ages, dtype=object))
    assert classifier().fit(words, y).model_.columns[0].marked


def test_categories__keep_their_order_and_type() -> None:
    frame, y = make_frame()
    frame["size"] = pd.Categorical(np.arange(ROWS) % 3 + 1.0, ordered=True)
    frame["city"] = pd.Categorical(np.arange(ROWS) % 2 == 0)
    found = classifier().fit(frame, y)
    columns = {column.name: column for column in found.model_.columns}
    assert columns["size"].categories == (1, 2, 3)
    assert columns["city"].categories == (False, True)
    # A batch in which they are no categories any more.
    plain = frame.assign(size=np.arange(ROWS) % 3 + 1, city=np.arange(ROWS) % 2 == 0)
    np.testing.assert_array_equal(found.predict_proba(plain), found.predict_proba(frame))
    frame["size"] = pd.Categorical(["1", 1] * (ROWS // 2), ["1", 1], ordered=True)
    with refused("bad-setting", "'size'", "not told apart"):
        classifier().fit(frame, y)


@pytest.mark.parametrize("kind", ["object", "boolean", "bool[pyarrow]"])
def test_categories__that_are_truth_values_are_so_in_any_type(kind: str) -> None:
    frame, y = make_frame()
    flag = pd.Series(np.where(np.arange(ROWS) < 9, None, y == 1), dtype=object)
    frame = frame.assign(flag=pd.Categorical(flag))
    found = classifier().fit(frame, y)
    expected = found.predict_proba(frame)
    other = frame.assign(flag=flag).astype({"flag": kind})
    np.testing.assert_array_equal(found.predict_proba(other), expected)
    explained = found.explain(frame.iloc[20])
    assert isinstance(explained, Explanation)
    np.testing.assert_allclose(explained.probability, expected[20])


def test_whole_numbers__that_are_categories_are_not_rounded() -> None:
    frame, y = make_frame()
    frame["city"] = pd.Categorical(2**53 + y)
    found = classifier().fit(frame, y)
    alone = frame.assign(city=frame["city"].astype(object))
    np.testing.assert_array_equal(found.predict_proba(alone), found.predict_proba(frame))


def test_an_unseen_category__is_none_of_those_that_were() -> None:
    frame, y = make_frame()
    frame = frame[["age", "city"]].fillna({"city": "Rome"})
    found = classifier().fit(frame, y)
    assert not any(column.marked for column in found.model_.columns)
    other = frame.assign(city="Lima")
    features = np.column_stack([frame["age"], np.zeros((ROWS, 3))])
    (scores,) = found.model_.scores(features, [found.model_.n_batches])
    np.testing.assert_allclose(found.predict_proba(other), scores / scores.sum(axis=1, keepdims=True), rtol=1e-9)


def test_fit__refuses_features_of_one_name() -> None:
    frame, y = make_frame()
    with refused("named-twice", "income is missing"):
        classifier().fit(frame[["age", "income"]].assign(**{"income is missing": 1.5}), y)
    with pytest.raises(ValueError, match="requires y"):
        classifier().fit(frame, None)
    for action in (lambda: classifier().fit(frame[:0], y[:0]), lambda: classifier().fit(frame, y).predict(frame[:0])):
        with pytest.raises(ValueError, match=r"0 sample|minimum of"):
            action()
