"""What models say of rows in memory, by NumPy alone."""

import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.errors import refused
from support.models import looking_at_differences, looking_at_scores, make_model

from protodask import PrototypeSet, PrototypeSetClassifier
from protodask.data.format.schema import Column
from protodask.prototypes.batches import Batch
from protodask.prototypes.fitted import familiarity, probabilities
from protodask.prototypes.kernel import FARTHEST
from protodask.prototypes.splines import Spline, SplineCalibration

Floats = NDArray[np.float64]

FRUIT = pd.DataFrame(
    {
        "weight": [120.0, 130.0, np.nan, 5.0, 6.0, 4.5, 125.0, 5.5] * 4,
        "colour": ["green", "red", "green", "red", None, "blue", "green", "blue"] * 4,
        "ripe": pd.Categorical(["no", "yes", "yes", "no", "yes", "yes", "no", "yes"] * 4, ["no", "yes"], ordered=True),
    }
)
KIND = np.array(["apple", "apple", "apple", "berry", "berry", "berry", "apple", "berry"] * 4)


def models(seed: int) -> list[PrototypeSet]:
    """Models of every kind: some batches have no prototypes, normal scores, levels, differences."""
    plain = make_model(seed, prototypes=(6, 0, 7), n_features=5)
    scored = looking_at_scores(make_model(seed, n_features=5))
    return [plain, scored, looking_at_differences(scored, [(0, 1, 0.5), (2, 3, -1.25)]), replace(plain, batches=())]


def as_written(model: PrototypeSet, row: Floats) -> Floats:
    """`q` of a row, prototype by prototype and feature by feature."""
    scores = model.marginals.copy()
    for batch in model.batches:
        for j in range(batch.n_prototypes):
            exponent = 0.0
            for d, (other, factor, feature, scored) in enumerate(batch.forms):
                values = [row[feature] - (factor * row[other] if other >= 0 else 0.0), batch.prototypes[j, d]]
                if scored and batch.knots is not None:
                    values = [float(np.interp(value, batch.knots.values[d], batch.knots.scores[d])) for value in values]
                    unit = 1.0
                else:
                    unit = batch.scale[d]
                exponent += (batch.feature_weight[d] * (values[0] - values[1]) / unit) ** 2
            scores[batch.prototype_class[j]] += batch.prototype_weight[j] * np.exp(-exponent / 2)
    return scores


@given(seed=st.integers(0, 10**6), kind=st.integers(0, 3), scale=st.sampled_from([0.1, 1.0, 10.0]))
def test_predict_proba__is_the_formula(seed: int, kind: int, scale: float) -> None:
    model = models(seed)[kind]
    rows = np.random.default_rng(seed).normal(size=(4, 5), scale=scale)
    expected = np.stack([as_written(model, row) for row in rows])
    np.testing.assert_allclose(model.predict_proba(rows), probabilities(expected), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.familiarity(rows), familiarity(expected), rtol=1e-9, atol=1e-12)
    labels = [model.classes[place] for place in expected.argmax(axis=1)]
    assert model.predict(rows).tolist() == labels


@pytest.mark.parametrize("kind", range(4))
def test_predict_proba__of_the_first_rounds(kind: int) -> None:
    model, rows = models(3)[kind], np.random.default_rng(3).normal(size=(6, 5))
    for count in range(model.n_rounds + 1):
        (expected,) = model.scores(rows, [count])
        np.testing.assert_allclose(model.predict_proba(rows, n_batches=count), probabilities(expected), rtol=1e-9)
    for wrong in (model.n_rounds + 1, [0, 0], []):
        with refused("bad-setting", "n_batches"):
            model.predict_proba(rows, n_batches=wrong)  # type: ignore[arg-type]


def test_predict_proba__of_a_batch_that_looks_at_nothing() -> None:
    model = make_model(0)
    nothing = np.zeros(0)
    blind = Batch(
        nothing.astype(np.int64), nothing, nothing, nothing, np.zeros((2, 0)), np.array([0, 2]), np.array([1.0, 3.0]),
        np.array([4, 9]),
    )  # fmt: skip
    rows = np.random.default_rng(0).normal(size=(3, 4))
    (expected,) = model.scores(rows, [2])
    found = replace(model, batches=(*model.batches, blind)).predict_proba(rows)
    np.testing.assert_allclose(found, probabilities(expected + np.array([1.0, 0.0, 3.0])), rtol=1e-9)


@pytest.mark.parametrize("width", [1e-310, 5e-324, 1e-300, 1e300])
def test_predict_proba__through_a_piece_of_any_width(width: float) -> None:
    model = looking_at_scores(make_model(1))
    batch = model.batches[0]
    assert batch.knots is not None
    values = batch.knots.values.copy()
    values[2] = np.array([0.0, width, 2 * width, 3 * width, 3 * width])[: values.shape[1]]
    narrow = replace(batch, knots=replace(batch.knots, values=values))
    changed = replace(model, batches=(narrow, *model.batches[1:]))
    rows = np.random.default_rng(0).normal(size=(5, model.n_features))
    (expected,) = changed.scores(rows, [len(model.batches)])
    np.testing.assert_allclose(changed.predict_proba(rows), probabilities(expected), rtol=1e-9)


def test_predict_proba__at_thresholds_is_that_of_the_classifier() -> None:
    """Also where rows are told apart that single precision does not tell apart."""
    rng = np.random.default_rng(0)
    x = 1.7e9 + rng.uniform(0, 20 * 3600, size=(1500, 1))
    y = (x[:, 0] > 1.7e9 + 8 * 3600).astype(int)
    classifier = PrototypeSetClassifier(n_draws=1, n_candidates=50, random_state=0).fit(x, y)
    assert any(batch.knots is not None and batch.knots.levels is not None for batch in classifier.model_.batches)
    found = classifier.model_.predict_proba(x)
    np.testing.assert_allclose(classifier.predict_proba(x), found, atol=1e-4)


def test_predict_proba__far_away_and_of_many_rows() -> None:
    model = make_model(1, prototypes=(900,), n_active=4)
    rows = np.random.default_rng(1).normal(size=(1000, 4))
    rows[7], rows[8] = [1e300, -1e300, FARTHEST, 0.0], 1.7e308
    assert model.batches[0].scale.min() < 0.9, "some of them overflow in standard units"
    (expected,) = model.scores(rows, [1])
    found = model.predict_proba(rows)
    np.testing.assert_allclose(found, probabilities(expected), rtol=1e-9)
    np.testing.assert_allclose(found[7:9], [model.marginals] * 2)
    alone = np.concatenate([model.predict_proba(row) for row in rows])
    np.testing.assert_allclose(alone, found, rtol=1e-12)
    assert model.predict_proba(rows[:0]).shape == (0, 3)


def test_predict_proba__is_calibrated_where_that_is_asked_for() -> None:
    spline = Spline(np.array([0.1, 0.4, 0.9]), np.array([0.0, 0.7, 0.8]))
    model = make_model(2, n_classes=2)
    rows = np.random.default_rng(2).normal(size=(9, 4))
    with refused("not-fitted", "no calibration"):
        model.predict_proba(rows, calibrated=True)
    calibrated = replace(model, calibration=SplineCalibration((spline,), 2, 4, True, 40, 40.5))
    found = calibrated.predict_proba(rows, calibrated=True)
    np.testing.assert_allclose(found[:, 1], spline.apply(model.predict_proba(rows)[:, 1]), rtol=1e-12)
    np.testing.assert_array_equal(calibrated.predict_proba(rows), model.predict_proba(rows))


@pytest.fixture(scope="module")
def fruit() -> PrototypeSetClassifier:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return PrototypeSetClassifier(random_state=0).fit(FRUIT, KIND)


def masked(values: "pd.Series[float]") -> np.ma.MaskedArray[Any, Any]:
    """With 7 where the value is missing, which nobody should see."""
    return np.ma.masked_array(values.fillna(7.0).to_numpy(), mask=values.isna().to_numpy())


FORMS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pandas": lambda frame: frame,
    "pandas, of its own types": lambda frame: frame.convert_dtypes(),
    "columns in another order": lambda frame: frame[frame.columns[::-1]],
    "arrow": lambda frame: pa.Table.from_pandas(frame.astype({"ripe": str})),
    "arrow, of categories": lambda frame: pa.Table.from_pandas(frame.astype({"colour": "category"})),
    "an Arrow stream": lambda frame: pa.table(FORMS["arrow"](frame)).to_reader(),
    "rows of a frame": lambda frame: [row for _, row in frame.iterrows()],
    "named tuples": lambda frame: list(frame[frame.columns[::-1]].itertuples(index=False)),
    "an array of records": lambda frame: frame.to_records(index=False),
    "columns (N, 1)": lambda frame: {name: frame[[name]].to_numpy(dtype=object) for name in frame},
    "masked columns": lambda frame: {name: frame[name] for name in frame} | {"weight": masked(frame["weight"])},
    "columns": lambda frame: frame.astype(object).where(frame.notna(), None).to_dict("list"),
    "records": lambda frame: frame.astype(object).where(frame.notna(), None).to_dict("records"),
    "a matrix": lambda frame: frame.to_numpy(dtype=object),
    "lists": lambda frame: frame.to_numpy(dtype=object).tolist(),
}


@pytest.mark.parametrize("form", FORMS)
def test_predict_proba__of_rows_in_any_form(fruit: PrototypeSetClassifier, form: str) -> None:
    expected = fruit.predict_proba(FRUIT)
    found = fruit.model_.predict_proba(FORMS[form](FRUIT))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert fruit.model_.predict(FORMS[form](FRUIT)).tolist() == fruit.predict(FRUIT).tolist()


def test_predict_proba__of_one_record(fruit: PrototypeSetClassifier) -> None:
    found = fruit.model_.predict_proba({"weight": 121.0, "colour": "green", "ripe": "no"})
    assert found.shape == (1, 2)
    np.testing.assert_allclose(found, fruit.predict_proba(FRUIT.iloc[:1].assign(weight=121.0)), rtol=1e-5)
    found = fruit.model_.predict_proba(FRUIT.iloc[3])
    np.testing.assert_allclose(found, fruit.predict_proba(FRUIT.iloc[3:4]), rtol=1e-5)
    lacking = fruit.model_.predict_proba({"weight": None, "colour": None, "ripe": "yes"})
    np.testing.assert_allclose(lacking, fruit.predict_proba(FRUIT.iloc[2:3].assign(colour=None)), rtol=1e-5)


def test_predict_proba__of_features(fruit: PrototypeSetClassifier) -> None:
    names = fruit.model_.feature_names
    assert names == (
        "weight",
        "weight is missing",
        "colour=blue",
        "colour=green",
        "colour=red",
        "colour is missing",
        "ripe",
    )
    row = [125.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0]
    expected = fruit.model_.predict_proba({"weight": 125.0, "colour": "green", "ripe": "yes"})
    np.testing.assert_array_equal(fruit.model_.predict_proba(row), expected)
    with refused("bad-value", "colour=red", 0):
        fruit.model_.predict_proba([125.0, 0.0, 0.0, 1.0, np.nan, 0.0, 1.0])


def test_predict_proba__of_unseen_categories(fruit: PrototypeSetClassifier) -> None:
    row = {"weight": 125.0, "colour": "violet", "ripe": "yes"}
    with refused("bad-value", "colour", "violet", 0):
        fruit.model_.predict_proba(row)
    features = [125.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]
    np.testing.assert_array_equal(fruit.model_.predict_proba(row, unseen="zero"), fruit.model_.predict_proba(features))


def test_predict_proba__of_numbers_that_are_missing() -> None:
    model = make_model(0)
    rows = np.zeros((3, 4))
    rows[1, 2] = np.nan
    with refused("bad-value", "x2", 1):
        model.predict_proba(rows)
    means = [column.filled for column in model.forgiving_columns]
    filled = rows.copy()
    filled[1, 2] = means[2]
    np.testing.assert_array_equal(model.predict_proba(rows, unseen="zero"), model.predict_proba(filled))


def test_predict_proba__reads_numbers_as_the_model_does() -> None:
    model = replace(make_model(0), precision="float32")
    rows = np.full((1, 4), 1 / 3)
    np.testing.assert_array_equal(model.predict_proba(rows), model.predict_proba(rows.astype(np.float32)))
    with refused("bad-value", "x1", "too large"):
        model.predict_proba([0.0, 1e39, 0.0, 0.0])


def test_predict_proba__does_not_look_behind_masks() -> None:
    model = make_model(0)
    rows = np.ma.masked_array(np.arange(8.0).reshape(2, 4) / 4, mask=[[False, True, False, False], [False] * 4])
    with refused("bad-value", "x1", 0):
        model.predict_proba(rows)
    missing = np.where(np.ma.getmaskarray(rows), np.nan, np.asarray(rows))
    expected = model.predict_proba(missing, unseen="zero")
    np.testing.assert_array_equal(model.predict_proba(rows, unseen="zero"), expected)


def test_predict_proba__tells_large_whole_categories_apart() -> None:
    categories = (2**53, 2**53 + 1)
    columns = (Column("x0"), Column("x1", "nominal", categories))
    model = replace(
        make_model(1, n_features=3), columns=columns, feature_names=("x0", *(f"x1={c}" for c in categories))
    )
    for place, category in enumerate(categories):
        expected = model.predict_proba([0.5, place == 0, place == 1])
        for rows in (
            [[0.5, category]],
            {"x0": 0.5, "x1": category},
            {"x0": 0.5, "x1": np.int64(category)},
            {"x0": [0.5], "x1": [category]},
            {"x0": [0.5], "x1": pd.array([category], "Int64")},
            np.array([(0.5, category)], dtype=[("x0", float), ("x1", np.int64)]),
            np.array([(0.5, category)], dtype=[("x0", float), ("x1", np.int64)])[0],
        ):
            np.testing.assert_array_equal(model.predict_proba(rows), expected)
        beside: dict[str, list[Any]] = {"x0": [0.5, 0.5], "x1": [category, None]}
        coded = {**beside, "x1": pa.array(beside["x1"]).dictionary_encode()}
        for frame in (
            pa.table(beside),
            pa.table(coded),
            pd.DataFrame({**beside, "x1": pd.array(beside["x1"], "Int64")}),
            pd.DataFrame({**beside, "x1": pd.Categorical.from_codes([place, -1], pd.Index(categories))}),
            pd.DataFrame(
                {**beside, "x1": pd.Categorical.from_codes([place, -1], pd.Index(categories).astype("uint64"))}
            ),
        ):
            np.testing.assert_allclose(model.predict_proba(frame, unseen="zero")[:1], expected, rtol=1e-12)
    with refused("bad-value", "x0"):
        model.predict_proba([[10**400, 2**53]])


def test_predict__gives_labels_that_no_array_of_numbers_holds() -> None:
    model = make_model(0, classes=(-1, 2**63 + 1, 3))
    assert set(model.predict(np.random.default_rng(0).normal(size=(50, 4))).tolist()) <= {-1, 2**63 + 1, 3}


@pytest.mark.parametrize("category", [3, True])
def test_predict_proba__takes_numbers_for_categories_where_a_column_has_them(category: int) -> None:
    model = make_model(0, n_features=2, n_active=2)
    columns = (Column("x0"), Column("x1", "nominal", (category,)))
    model = replace(model, columns=columns, feature_names=("x0", f"x1={category}"))
    expected = model.predict_proba({"x0": 0.5, "x1": category})
    np.testing.assert_array_equal(model.predict_proba([[0.5, category]]), expected)
    with refused("bad-value", "x1"):
        model.predict_proba([[0.5, 7]])


class Lazy:
    """A frame of which nothing is known but the names of its columns."""

    columns = ("weight", "colour", "ripe")

    def __getitem__(self, name: str) -> Any:
        raise TypeError(f"not subscriptable by {name}")


def test_predict_proba__refuses_other_rows(fruit: PrototypeSetClassifier) -> None:
    with refused("wrong-shape", (2, 5), 3, 7):
        fruit.model_.predict_proba(np.zeros((2, 5)))
    with refused("wrong-shape", (2, 3, 1)):
        fruit.model_.predict_proba(np.zeros((2, 3, 1)))
    with refused("columns-differ", "colour"):
        fruit.model_.predict_proba(FRUIT.drop(columns="colour"))
    with refused("wrong-shape", "different lengths"):
        fruit.model_.predict_proba({"weight": [1.0, 2.0], "colour": ["red"], "ripe": ["no", "yes"]})
    with refused("wrong-shape", "different lengths"):
        fruit.model_.predict_proba([[1.0, "red", "no"], [2.0]])
    with refused("wrong-shape", "no matrix"):
        make_model(0).predict_proba([[1.0, 2.0], [3.0]])
    with refused("wrong-shape", "colour"):
        fruit.model_.predict_proba({"weight": [1.0], "colour": [["red", "green"]], "ripe": ["no"]})
    with refused("unknown-name", "unseen", "zeros"):
        fruit.model_.predict_proba(FRUIT, unseen="zeros")  # type: ignore[arg-type]
    with refused("wrong-type", "times"):
        fruit.model_.predict_proba({"weight": np.array(["2020-01-01"], "M8[ns]"), "colour": ["red"], "ripe": ["no"]})
    with refused("wrong-type", "times"):
        fruit.model_.predict_proba(np.zeros((1, 3), "m8[ns]"))
    with refused("wrong-type", "Lazy", "collect"):
        fruit.model_.predict_proba(Lazy())
    with pytest.warns(UserWarning, match="'taste'"):
        fruit.model_.predict_proba(FRUIT.assign(taste=1.0))


def test_scorer__does_not_travel_with_the_model() -> None:
    model = make_model(0)
    before = pickle.dumps(model)
    model.predict_proba(np.zeros(4))
    assert len(pickle.dumps(model)) == len(before)
    again = pickle.loads(before)
    np.testing.assert_array_equal(again.predict_proba(np.zeros(4)), model.predict_proba(np.zeros(4)))


PROGRAM = """
import sys
from protodask import load_model
print(load_model(sys.argv[1]).predict_proba([0.5, -1.0, 2.0, 0.0]).tolist())
print(sorted({name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)))
"""


def test_models__are_read_and_answer_with_numpy_alone(tmp_path: Path) -> None:
    model = make_model(0)
    model.save(tmp_path / "model.zarr")
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "model.zarr")]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()
    assert said[0] == str(model.predict_proba([0.5, -1.0, 2.0, 0.0]).tolist())
    loaded = {name.strip("'") for name in said[1].strip("[]").split(", ")}
    assert {name for name in loaded if not name.startswith("_")} == {"google_crc32c", "numpy", "protodask"}


def test_predict_proba__says_what_rows_it_cannot_read(fruit: PrototypeSetClassifier) -> None:
    with refused("wrong-type", "rows are sparse (a csr_matrix)", "toarray()") as caught:
        fruit.model_.predict_proba(scipy.sparse.csr_matrix(np.eye(3)))
    assert "no matrix" not in str(caught.value)
    for digits in (400, 5000):
        with refused("bad-value", "weight", "bits"):
            fruit.model_.predict_proba({"weight": [10**digits], "colour": ["red"], "ripe": ["no"]})
