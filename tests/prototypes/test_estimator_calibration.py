"""Calibration by the estimator: the same for every kind of rows, of the number of batches it was made for, and gone
where it is not true any more."""

import pickle
from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from support.errors import refused

from protodask import PrototypeSetClassifier
from protodask.evaluation import Calibrator
from protodask.prototypes.splines import SplineCalibration

Rows = tuple[NDArray[Any], NDArray[Any]]


def classifier(**others: Any) -> PrototypeSetClassifier:
    return PrototypeSetClassifier(
        **{"recipe": "source", "n_candidates": 30, "lambda_w": 1e-3, "tolerance": 1e-4, **others}
    )


@pytest.fixture(scope="module")
def draw(make_rows: Callable[..., dict[str, NDArray[Any]]]) -> Callable[..., Rows]:
    def make(seed: int, n_rows: int = 300, n_classes: int = 2) -> Rows:
        arrays = make_rows(n_rows, seed, n_classes=n_classes, dtype="float32")
        return arrays["features"], np.array(["no", "yes", "maybe"])[arrays["target"]]

    return make


@pytest.fixture
def fitted(draw: Callable[..., Rows]) -> PrototypeSetClassifier:
    return classifier(n_batches=2).fit(*draw(1))


def calibration_of(found: PrototypeSetClassifier) -> SplineCalibration:
    assert found.model_.calibration is not None
    return found.model_.calibration


@pytest.mark.parametrize("n_classes", [2, 3])
def test_calibrate__is_that_of_the_probabilities(draw: Callable[..., Rows], n_classes: int) -> None:
    found = classifier().fit(*draw(1, n_classes=n_classes))
    x, y = draw(2, n_classes=n_classes)
    weight = np.random.default_rng(0).random(300)
    raw = found.predict_proba(x)
    assert found.calibrate(x, y, weight, n_bins=6, monotone=True) is found
    expected = Calibrator(6, monotone=True).fit(raw, np.searchsorted(found.classes_, y), weight)
    np.testing.assert_allclose(found.predict_proba(x, calibrated=True), expected.transform(raw), rtol=1e-12)
    np.testing.assert_array_equal(
        found.predict(x, calibrated=True), found.classes_[expected.transform(raw).argmax(axis=1)]
    )
    np.testing.assert_array_equal(found.predict_proba(x), raw)


@pytest.mark.parametrize("kind", ["dask", "frame"])
def test_calibrate__of_other_kinds_of_rows(
    fitted: PrototypeSetClassifier, draw: Callable[..., Rows], kind: str
) -> None:
    x, y = draw(2)
    expected = calibration_of(fitted.calibrate(x, y)).splines[0]
    given = (da.from_array(x, chunks=(70, 2)), da.from_array(y, chunks=99)) if kind == "dask" else (pd.DataFrame(x), y)
    found = calibration_of(fitted.calibrate(*given)).splines[0]
    np.testing.assert_allclose(found.score, expected.score, rtol=1e-12)
    np.testing.assert_allclose(found.outcome, expected.outcome, rtol=1e-12)
    lazy = fitted.predict_proba(da.from_array(x, chunks=(70, 2)), calibrated=True)
    np.testing.assert_allclose(lazy.compute(), fitted.predict_proba(x, calibrated=True), rtol=1e-6)  # float32


def test_calibrate__leaves_the_rest_of_the_estimator_alone(draw: Callable[..., Rows]) -> None:
    x, y = draw(1)
    found = classifier().fit(pd.DataFrame(x, columns=["a", "b", "c"]), y)
    before = {name: value for name, value in vars(found).items() if name != "model_"}
    other, labels = draw(2)
    found.calibrate(pd.DataFrame(other, columns=["a", "b", "c"]), labels)
    assert {name: value for name, value in vars(found).items() if name != "model_"} == before
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(
        again.predict_proba(pd.DataFrame(other, columns=["a", "b", "c"]), calibrated=True),
        found.predict_proba(pd.DataFrame(other, columns=["a", "b", "c"]), calibrated=True),
    )


def test_calibrated__is_of_one_number_of_batches(fitted: PrototypeSetClassifier, draw: Callable[..., Rows]) -> None:
    x, y = draw(2)
    fitted.calibrate(x, y, n_batches=1)
    expected = calibration_of(fitted).apply(fitted.predict_proba(x, 1))
    np.testing.assert_array_equal(fitted.predict_proba(x, calibrated=True), expected)
    np.testing.assert_array_equal(fitted.predict_proba(x, 1, calibrated=True), expected)
    (listed,) = fitted.predict_proba(x, [1], calibrated=True)
    np.testing.assert_array_equal(listed, expected)
    for others in (2, [1, 2], 0):
        with refused("bad-setting", "calibration of 1", others if isinstance(others, int) else 2):
            fitted.predict(x, others, calibrated=True)


def test_calibrated__is_gone_with_a_further_batch_or_another_fit(draw: Callable[..., Rows]) -> None:
    x, y = draw(1)
    found = classifier(n_batches=1, warm_start=True).fit(x, y).calibrate(*draw(2))
    found.fit(x, y)  # nothing is added, so the model is what it was
    assert found.model_.calibration is not None
    found.set_params(n_batches=2).fit(x, y)
    with refused("not-fitted", "`calibrate_model()`"):
        found.predict_proba(x, calibrated=True)
    found.calibrate(*draw(2)).set_params(warm_start=False).fit(x, y)
    assert found.model_.calibration is None


def test_calibrate__refuses_rows_that_are_not_the_models(
    fitted: PrototypeSetClassifier, draw: Callable[..., Rows]
) -> None:
    x, y = draw(2)
    with pytest.raises(ValueError, match="expecting 3 features"):
        fitted.calibrate(x[:, :2], y)
    with refused("columns-differ", "2 features", "3 features"):
        fitted.calibrate(da.from_array(x[:, :2]), y)
    for given in (x, da.from_array(x)):
        with refused("columns-differ", ["never"]):
            fitted.calibrate(given, np.where(y == "no", "never", y))
        with refused("one-class", "two"):
            fitted.calibrate(given, np.full(300, "yes"))
    with pytest.raises(NotFittedError):
        classifier().calibrate(x, y)
    assert fitted.model_.calibration is None
