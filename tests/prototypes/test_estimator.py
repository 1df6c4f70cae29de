"""The estimator: scikit-learn's own checks, every kind of input, and laziness."""

import pickle
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array
import dask.dataframe
import numpy as np
import pandas as pd
import pytest
import sklearn
import zarr
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from support.errors import refused

from protodask import PrototypeSetClassifier
from protodask.engine import Engine
from protodask.prototypes import FeatureScaleWarning, PrototypeSet

SameBits = Callable[[PrototypeSet, PrototypeSet], None]
Rows = tuple[NDArray[Any], NDArray[Any]]

# Rounds end after some iterations, which are as good as many.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Round . stopped early:protodask.prototypes.convergence.ConvergenceWarning"
)

N_CHECKS = {"1.9": 61}
"""How many checks there are, by version of scikit-learn."""

EXPECTED_FAILURES = {
    # Compares rows of weight 0 with rows left out, and rows of weight 2 with rows repeated. Either gives other rows
    # other numbers, and candidates are drawn by number; that the objective and the moments are equivalent is tested
    # on their own. And repeating lets this check's rare class pass the count of rows that weighting does not change.
    "check_sample_weight_equivalence_on_dense_data": "candidates are drawn by row number",
}

EXPECTED_SKIPS = {
    # Asks for the environment variable SCIPY_ARRAY_API to be set before SciPy is imported. The kernel is NumPy's: no
    # other array library is supported, so there is nothing to check.
    "check_array_api_input",
}


@pytest.mark.slow
@pytest.mark.parametrize(("n_draws", "tolerance"), [(1, 1e-2), (None, 0.1)])
def test_estimator__passes_the_checks_of_scikit_learn(n_draws: int | None, tolerance: float) -> None:
    results = check_estimator(
        PrototypeSetClassifier(n_draws=n_draws, n_candidates=20, tolerance=tolerance, max_iterations=20),
        expected_failed_checks=EXPECTED_FAILURES,
        on_fail=None,
        on_skip=None,
    )
    status = {result["check_name"]: (result["status"], repr(result["exception"])) for result in results}
    unexpected = {
        name: found
        for name, found in status.items()
        if found[0] != "passed" and name not in EXPECTED_FAILURES and name not in EXPECTED_SKIPS
    }
    assert unexpected == {}
    counts = Counter(result["status"] for result in results)
    assert counts["xfail"] == len(EXPECTED_FAILURES)
    version = ".".join(sklearn.__version__.split(".")[:2])
    if version in N_CHECKS:  # others need not have all that may be skipped
        assert (len(results), counts["skipped"]) == (N_CHECKS[version], len(EXPECTED_SKIPS))
    assert counts["passed"] >= 50


def classifier(**others: Any) -> PrototypeSetClassifier:
    return PrototypeSetClassifier(
        **{"recipe": "source", "n_candidates": 30, "lambda_w": 1e-3, "max_iterations": 10, **others}
    )


@pytest.fixture(scope="module")
def rows(make_rows: Callable[..., dict[str, NDArray[Any]]]) -> Rows:
    arrays = make_rows(230, 1, dtype="float32")
    return arrays["features"], arrays["target"].astype(np.int64)


@pytest.fixture(scope="module")
def fitted(rows: Rows) -> PrototypeSetClassifier:
    found = classifier(n_batches=2).fit(*rows)
    assert all(batch.n_prototypes > 3 for batch in found.model_.batches)
    return found


def frame_of(x: NDArray[Any]) -> pd.DataFrame:
    return pd.DataFrame(x, columns=["length", "width", "height"])


def unknown_chunks(array: Any) -> Any:
    """The same dask array, its chunk lengths forgotten."""
    frame = dask.dataframe.from_dask_array(array)
    return frame.to_dask_array()


UNEVEN = (7, 100, 1, 80, 42)


def as_input(kind: str, x: NDArray[Any], folder: Path) -> Any:
    lengths = UNEVEN if len(x) == sum(UNEVEN) else len(x)
    match kind:
        case "list":
            return x.tolist()
        case "pandas":
            return frame_of(x) if x.ndim == 2 else pd.Series(x)
        case "dask uneven":
            return dask.array.from_array(x, chunks=(lengths, 2)[: x.ndim])
        case "dask unknown":
            return unknown_chunks(dask.array.from_array(x, chunks=(lengths, -1)[: x.ndim]))
        case "dataframe":
            frame = frame_of(x) if x.ndim == 2 else pd.Series(x)
            return dask.dataframe.from_pandas(frame, npartitions=3)
        case "zarr":
            shape = (50, 3)[: x.ndim]
            array = zarr.create_array(folder / f"{x.ndim}.zarr", shape=x.shape, chunks=shape, dtype=x.dtype)
            array[...] = x
            return array
        case "zarr in memory":
            array = zarr.create_array({}, shape=x.shape, chunks=(50, 3)[: x.ndim], dtype=x.dtype)
            array[...] = x
            return array
        case _:
            return x


KINDS = ["list", "pandas", "dask uneven", "dask unknown", "dataframe", "zarr", "zarr in memory"]


@pytest.mark.parametrize("kind", KINDS)
def test_fit__of_any_kind_of_input_gives_the_same_model(
    rows: Rows, fitted: PrototypeSetClassifier, assert_same_bits: SameBits, kind: str, tmp_path: Path
) -> None:
    x, y = as_input(kind, rows[0], tmp_path), as_input(kind, rows[1], tmp_path)
    found = classifier(n_batches=2).fit(x, y)
    assert_same_bits(found.model_, fitted.model_)
    assert found.classes_.tolist() == [0, 1]
    assert found.n_features_in_ == 3
    if kind in ("pandas", "dataframe"):
        assert found.feature_names_in_.tolist() == ["length", "width", "height"]
        assert found.model_.feature_names == ("length", "width", "height")
    else:
        assert not hasattr(found, "feature_names_in_")
        assert found.model_.feature_names == ("x0", "x1", "x2")


@pytest.mark.parametrize("kind", ["numpy", "pandas", "dask uneven", "zarr"])
def test_fit__takes_weights_with_any_kind_of_input(
    rows: Rows, assert_same_bits: SameBits, kind: str, tmp_path: Path
) -> None:
    weight = np.random.default_rng(0).integers(0, 3, len(rows[0])).astype(np.float64)
    expected = classifier().fit(*rows, sample_weight=weight)
    (tmp_path / "w").mkdir()
    x, y, w = (
        as_input(kind, values, tmp_path / folder) for values, folder in zip((*rows, weight), ("", "", "w"), strict=True)
    )
    assert_same_bits(classifier().fit(x, y, sample_weight=w).model_, expected.model_)
    assert expected.model_.marginals.tolist() != classifier().fit(*rows).model_.marginals.tolist()


METHODS = ["predict", "predict_proba", "familiarity"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
def test_predictions__of_any_kind_of_input_agree(
    rows: Rows, fitted: PrototypeSetClassifier, kind: str, method: str, tmp_path: Path
) -> None:
    model = classifier(n_batches=2).fit(frame_of(rows[0]), rows[1]) if kind in ("pandas", "dataframe") else fitted
    expected = getattr(fitted, method)(rows[0])
    found = getattr(model, method)(as_input(kind, rows[0], tmp_path))
    if kind in ("dask uneven", "dask unknown", "dataframe"):
        assert isinstance(found, dask.array.Array)
        assert found.dtype == expected.dtype
        found = found.compute(scheduler="synchronous")
    else:
        assert isinstance(found, np.ndarray)
    assert found.shape == expected.shape
    if method == "predict":
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


def test_predictions__of_a_lazy_input_compute_nothing_until_asked(fitted: PrototypeSetClassifier) -> None:
    computed: list[int] = []

    def load(block: NDArray[Any], block_info: Any = None) -> NDArray[Any]:
        computed.append(len(block))
        return block

    lazy = dask.array.zeros((100, 3), chunks=(30, 3)).map_blocks(load, dtype=np.float64, meta=np.empty((0, 0)))
    computed.clear()
    several = fitted.predict_proba(lazy, n_batches=[0, 1, 2])
    labels, evidence = fitted.predict(lazy), fitted.familiarity(lazy)
    assert computed == []
    assert [part.chunks for part in several] == [((30, 30, 30, 10), (2,))] * 3
    assert labels.chunks == evidence.chunks == ((30, 30, 30, 10),)
    labels[:10].compute(scheduler="synchronous")
    assert computed == [30], "only the chunk that is asked for"
    computed.clear()
    dask.compute(*several, scheduler="synchronous")
    assert sorted(computed) == [10, 30, 30, 30], "one pass for all numbers of batches"


def test_predictions__for_several_numbers_of_batches(rows: Rows, fitted: PrototypeSetClassifier) -> None:
    for method in METHODS:
        several = getattr(fitted, method)(rows[0], n_batches=[2, 0, 1])
        assert isinstance(several, list)
        for count, found in zip([2, 0, 1], several, strict=True):
            np.testing.assert_array_equal(found, getattr(fitted, method)(rows[0], n_batches=count))
        np.testing.assert_array_equal(several[0], getattr(fitted, method)(rows[0]))
    np.testing.assert_array_equal(fitted.predict_proba(rows[0][:1], n_batches=0)[0], fitted.model_.marginals)
    np.testing.assert_allclose(fitted.familiarity(rows[0], n_batches=0), 0, atol=1e-12)
    with refused("bad-setting", "n_batches is 3", "2 batches"):
        fitted.predict(rows[0], n_batches=[1, 3])


def test_predictions__far_away_are_the_marginals_without_familiarity(fitted: PrototypeSetClassifier) -> None:
    far = np.full((2, 3), 1e5)
    np.testing.assert_allclose(fitted.predict_proba(far), [fitted.model_.marginals] * 2, rtol=1e-12)
    np.testing.assert_allclose(fitted.familiarity(far), 0, atol=1e-12)


@pytest.mark.parametrize(
    "labels", [["no", "yes"], [False, True], [-1, 7], [2.0, 3.0], np.array(["a", "b"], dtype=object)], ids=str
)
@pytest.mark.parametrize("kind", ["numpy", "dask uneven"])
def test_labels__of_every_type_come_back(
    rows: Rows, fitted: PrototypeSetClassifier, labels: Any, kind: str, tmp_path: Path
) -> None:
    names = np.asarray(labels)
    y = names[rows[1]]
    found = classifier(n_batches=2).fit(as_input(kind, rows[0], tmp_path), as_input(kind, y, tmp_path))
    assert found.classes_.tolist() == names.tolist()
    predicted = found.predict(rows[0])
    np.testing.assert_array_equal(predicted, names[fitted.predict(rows[0])])
    assert predicted.dtype.kind == found.classes_.dtype.kind
    assert found.score(rows[0], y) == fitted.score(*rows)
    assert all(type(label) in (str, int, bool) for label in found.model_.classes)


@pytest.mark.parametrize("kind", ["numpy", "pandas", "dask uneven", "dataframe", "zarr"])
def test_fit__keeps_float64_where_it_is_given(rows: Rows, kind: str, tmp_path: Path) -> None:
    # In float32 the numbers around 2^30 are 64 apart, and those of a feature here all within 3.
    moved = rows[0].astype(np.float64) + 2.0**30
    found = classifier().fit(as_input(kind, moved, tmp_path), as_input(kind, rows[1], tmp_path))
    plain = classifier().fit(*rows)
    fresh: Any = frame_of(moved) if kind in ("pandas", "dataframe") else moved
    assert found.history_[0].candidates.tolist() == plain.history_[0].candidates.tolist()
    np.testing.assert_allclose(found.predict_proba(fresh), plain.predict_proba(rows[0]), atol=0.05)


def test_fit__twice_is_the_same_and_another_seed_is_not(rows: Rows, assert_same_bits: SameBits) -> None:
    one, two, other = (classifier(random_state=seed).fit(*rows) for seed in (0, 0, 1))
    assert_same_bits(one.model_, two.model_)
    assert one.history_[0].candidates.tolist() != other.history_[0].candidates.tolist()
    generator = classifier(random_state=np.random.RandomState(3))
    first = generator.fit(*rows).history_[0].candidates.tolist()
    assert generator.fit(*rows).history_[0].candidates.tolist() != first
    again = classifier(random_state=np.random.RandomState(3)).fit(*rows)
    assert again.history_[0].candidates.tolist() == first


@pytest.mark.slow
def test_fit__of_many_more_features_than_rows_learns() -> None:
    features = np.random.default_rng(3).normal(size=(500, 2000)).astype(np.float32)
    target = features[:, :5].sum(axis=1) > 0
    model = PrototypeSetClassifier(n_draws=2, feature_forms="plain", random_state=0)
    model.fit(features[:300], target[:300])
    assert log_loss(target[300:], model.predict_proba(features[300:])) < 0.5  # 0.69 is nothing


def test_fit__with_warm_start_adds_what_is_missing(
    rows: Rows, fitted: PrototypeSetClassifier, assert_same_bits: SameBits
) -> None:
    found = classifier(n_batches=1, warm_start=True).fit(*rows)
    found.set_params(n_batches=2).fit(*rows)
    assert_same_bits(found.model_, fitted.model_)
    assert [record.batch for record in found.history_] == [2]
    before = found.model_
    found.fit(*rows)
    assert_same_bits(found.model_, before)
    assert found.history_ == []
    with refused("columns-differ", [2]):
        found.set_params(n_batches=3).fit(rows[0], rows[1] + 1)


def test_fit__with_feature_weights_by_class(rows: Rows, assert_same_bits: SameBits, tmp_path: Path) -> None:
    classes = len(np.unique(rows[1]))
    found = classifier(n_batches=2, feature_weights="class").fit(*rows)
    assert found.model_.rounds == (classes, classes)
    for number, batch in enumerate(found.model_.batches):
        assert set(batch.prototype_class.tolist()) <= {number % classes}
    assert [record.batch for record in found.history_] == [1, 2]
    grown = classifier(n_batches=1, feature_weights="class", warm_start=True).fit(*rows)
    assert grown.predict_proba(rows[0]).tobytes() == found.predict_proba(rows[0], n_batches=1).tobytes()
    assert_same_bits(grown.set_params(n_batches=2).fit(*rows).model_, found.model_)
    with refused("bad-setting", "2 batches", "together"):
        found.predict(rows[0], n_batches=3)
    with refused("unknown-name", "feature_weights", "'row'", "'class'"):
        classifier(feature_weights="row").fit(*rows)


def test_fit__with_warm_start_of_dask_input(
    rows: Rows, fitted: PrototypeSetClassifier, assert_same_bits: SameBits, tmp_path: Path
) -> None:
    lazy = as_input("dask uneven", rows[0], tmp_path), as_input("dask uneven", rows[1], tmp_path)
    found = classifier(n_batches=1, warm_start=True).fit(*lazy)
    assert_same_bits(found.set_params(n_batches=2).fit(*lazy).model_, fitted.model_)


def test_fit__without_warm_start_begins_anew(rows: Rows, assert_same_bits: SameBits) -> None:
    found = classifier().fit(*rows)
    first = found.model_
    assert_same_bits(found.fit(*rows).model_, first)


def test_estimator__is_cloned_pickled_and_described(
    rows: Rows, fitted: PrototypeSetClassifier, assert_same_bits: SameBits
) -> None:
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert not hasattr(copy, "model_")
    assert copy.set_params(lambda_v=0.5).get_params()["lambda_v"] == 0.5
    back = pickle.loads(pickle.dumps(fitted))
    assert_same_bits(back.model_, fitted.model_)
    np.testing.assert_array_equal(back.predict_proba(rows[0]), fitted.predict_proba(rows[0]))
    assert "n_candidates=30" in repr(fitted)


def test_estimator__runs_on_the_engine_given(rows: Rows, engine: Engine) -> None:
    labels: list[str] = []
    watched = engine.with_progress(lambda event: labels.append(event.label))
    found = classifier(engine=watched).fit(*rows)
    assert {"summary", "draw", "take", "evaluate"} <= set(labels)
    labels.clear()
    found.predict(rows[0])
    assert set(labels) == {"predict"}
    # The engine is the user's: it is open still.
    assert found.score(*rows) > 0.7


def test_estimator__works_in_pipelines_and_cross_validation(rows: Rows) -> None:
    pipeline = make_pipeline(StandardScaler(), classifier())
    assert cross_val_score(pipeline, *rows, cv=3).mean() > 0.6
    pipeline.fit(*rows, prototypesetclassifier__sample_weight=np.ones(len(rows[0])))
    assert pipeline.predict_proba(rows[0]).shape == (len(rows[0]), 2)


def test_estimator__without_fit_says_so(rows: Rows) -> None:
    for method in METHODS:
        with pytest.raises(NotFittedError, match="not fitted yet"):
            getattr(classifier(), method)(rows[0])
        with pytest.raises(NotFittedError, match="not fitted yet"):
            getattr(classifier(), method)(dask.array.zeros((4, 3)))


@pytest.mark.parametrize("kind", ["numpy", "dask uneven", "zarr"])
def test_predict__of_another_number_of_features(
    rows: Rows, fitted: PrototypeSetClassifier, kind: str, tmp_path: Path
) -> None:
    # In memory it is scikit-learn that says so; its checks want these words of everybody.
    with pytest.raises(ValueError, match="X has 2 features, but PrototypeSetClassifier is expecting 3 features"):
        fitted.predict(as_input(kind, rows[0][:, :2], tmp_path))


@pytest.mark.parametrize("kind", ["numpy", "dask uneven", "dask unknown", "zarr", "dataframe"])
def test_fit__refuses_infinite_values(rows: Rows, kind: str, tmp_path: Path) -> None:
    x = rows[0].copy()
    x[150, 1] = np.inf
    with refused("bad-value", "'width'" if kind == "dataframe" else "'x1'", "row 150"):
        classifier().fit(as_input(kind, x, tmp_path), as_input(kind, rows[1], tmp_path))


def test_fit__refuses_what_cannot_be_trained_on(rows: Rows) -> None:
    x, y = rows
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        classifier().fit(x, y[:-1])
    with refused("one-class", 0):
        classifier().fit(x, np.zeros(len(x), dtype=int))
    with pytest.raises(ValueError, match="(?i)continuous"):
        classifier().fit(x, np.linspace(0, 1, len(x)))
    with refused("too-few", "class 2 (2 rows)", "at least 3 rows"):
        classifier().fit(x, np.where(np.arange(len(x)) < 2, 2, y))
    with pytest.raises(ValueError, match="(?i)negative"):
        classifier().fit(x, y, sample_weight=np.where(np.arange(len(x)) == 3, -1.0, 1.0))
    with refused("bad-setting", "lambda_v is -1.0"):
        classifier(lambda_v=-1.0).fit(x, y)
    with refused("wrong-type", "engine is 3"):
        classifier(engine=3).fit(x, y)


def test_fit__keeps_constant_features(rows: Rows) -> None:
    x = np.column_stack([rows[0], np.full(len(rows[0]), 5.0)])
    found = classifier().fit(x, rows[1])
    assert np.isfinite(found.predict_proba(x)).all()
    plain = classifier(standardize=False).fit(x, rows[1])
    assert (plain.model_.batches[0].scale == 1).all()


def test_fit__of_dataframes_with_names_of_their_own_kind(rows: Rows) -> None:
    frame = pd.DataFrame({"target": rows[0][:, 0], "weight": rows[0][:, 1], "c": rows[0][:, 2]})
    expected = classifier().fit(frame, rows[1]).predict_proba(frame)
    lazy = dask.dataframe.from_pandas(frame, npartitions=2)
    labels = dask.dataframe.from_pandas(pd.Series(rows[1]), npartitions=2)
    found = classifier().fit(lazy, labels)
    assert found.feature_names_in_.tolist() == ["target", "weight", "c"]
    np.testing.assert_allclose(found.predict_proba(frame), expected, rtol=1e-6)


def test_predict__of_a_dataframe_with_other_columns(rows: Rows) -> None:
    found = classifier().fit(frame_of(rows[0]), rows[1])
    other = frame_of(rows[0])[["width", "length", "height"]]
    with pytest.raises(ValueError, match="(?s)feature names should match|same order"):
        found.predict(other)
    with refused("columns-differ", "['width', 'length', 'height']", "['length', 'width', 'height']"):
        found.predict(dask.dataframe.from_pandas(other, npartitions=2))


@pytest.mark.parametrize(
    ("factor", "precision", "fact"),
    [(1e-42, "float32", "close to each other"), (1e40, "float32", "too large"), (1e-310, "float64", "close")],
)
def test_fit__refuses_values_that_the_kernel_cannot_tell(factor: float, precision: Any, fact: str) -> None:
    x = np.random.default_rng(0).normal(size=(80, 2))
    target = (x[:, 0] > 0).astype(int)
    classifier = PrototypeSetClassifier(n_candidates=20, n_draws=1, tolerance=0.1, precision=precision)
    with refused("overflow", "'x1'", fact, precision):
        classifier.fit(x * [1.0, factor], target)
    assert classifier.fit(x * [1.0, 1e-30], target).score(x * [1.0, 1e-30], target) > 0.7


@pytest.mark.parametrize("callbacks", [3, print, [print, None]])
def test_fit__refuses_what_cannot_be_called(callbacks: Any) -> None:
    with refused("bad-setting", "callbacks", "list of functions"):
        PrototypeSetClassifier(callbacks=callbacks).fit(np.eye(4), [0, 1, 0, 1])


@pytest.mark.parametrize("unit", [1e-6, 1e4, 1e12])
def test_fit__warns_where_raw_units_keep_it_from_learning(unit: float) -> None:
    features = np.random.default_rng(0).normal(size=(60, 2))
    target = features[:, 0] > 0
    classifier = PrototypeSetClassifier(recipe="source", n_candidates=20, standardize=False)
    with pytest.warns(
        FeatureScaleWarning, match=re.escape(f"{features.std(axis=0).max() * unit:.3g}") + ".*standardize"
    ):
        assert np.ptp(classifier.fit(features * unit, target).predict_proba(features * unit)[:, 0]) < 1e-6
    assert classifier.fit(features, target).score(features, target) > 0.9
