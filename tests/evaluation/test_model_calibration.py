"""Calibration of models against that of their probabilities, which are scores like others."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.errors import refused
from support.models import make_model

from protodask.engine import array_source, thread_engine
from protodask.errors import Code
from protodask.evaluation import Calibrator
from protodask.evaluation.calibration import JUDGED_ROWS, calibrate_model, fit_calibration, left_out_loss
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.persistence import model_fingerprint
from protodask.prototypes.scoring import predict_features

Arrays = dict[str, NDArray[Any]]


def made_up(n_classes: int) -> PrototypeSet:
    return make_model(n_classes, prototypes=(8, 8), n_features=2, n_active=2, n_classes=n_classes)


def make_rows(model: PrototypeSet, n_rows: int = 3000) -> Arrays:
    rng = np.random.default_rng(1)
    features = rng.normal(size=(n_rows, 2))
    ((p, _),) = predict_features(features, model, [2])
    sharper = np.square(p) / np.square(p).sum(axis=1, keepdims=True)
    target = (rng.random(n_rows)[:, None] > np.cumsum(sharper, axis=1)).sum(axis=1)
    return {
        "features": features,
        "target": target.astype(np.int32),
        "weight": rng.integers(1, 3, n_rows).astype(np.float64),
        "inclusion": np.where(target == 0, 0.5, 1.0),
    }


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("n_batches", [None, 1])
@pytest.mark.parametrize("monotone", [False, True])
def test_fit_calibration__is_that_of_the_probabilities(n_classes: int, n_batches: int | None, monotone: bool) -> None:
    model = made_up(n_classes)
    arrays = make_rows(model)
    codes = np.arange(n_classes)
    found = fit_calibration(model, array_source(arrays, 1024), codes, n_batches=n_batches, n_bins=10, monotone=monotone)
    ((p, _),) = predict_features(arrays["features"], model, [n_batches or 2])
    weight = arrays["weight"] / arrays["inclusion"]
    expected = Calibrator(10, monotone).fit(p, arrays["target"], weight)
    assert (found.n_batches, found.n_bins, found.monotone) == (n_batches or 2, 10, monotone)
    assert (found.rows, found.weight) == (3000, weight.sum())
    assert len(found.splines) == (1 if n_classes == 2 else n_classes)
    for own, other in zip(found.splines, expected.splines_, strict=True):
        np.testing.assert_allclose(own.score, other.score, rtol=1e-12)
        np.testing.assert_allclose(own.outcome, other.outcome, rtol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_left_out_loss__is_that_of_rows_the_calibration_was_not_fitted_to(n_classes: int) -> None:
    model, codes = made_up(n_classes), np.arange(n_classes)
    arrays = make_rows(model)
    source = array_source(arrays, 1024)
    calibration = fit_calibration(model, source, codes, n_batches=1, n_bins=10)
    found = left_out_loss(calibration, model, source, codes)
    assert found is not None
    ((p, _),) = predict_features(arrays["features"], model, [1])
    target, weight = arrays["target"], arrays["weight"] / arrays["inclusion"]

    def loss(values: NDArray[np.float64], rows: NDArray[np.intp]) -> float:
        return float(-np.sum(weight[rows] * np.log(values[np.arange(len(rows)), target[rows]])))

    every = np.arange(3000)
    assert found.raw == pytest.approx(loss(p, every) / weight.sum())
    fifths = np.split(np.random.default_rng(1).permutation(3000), 5)  # others than its own: about the same comes out
    losses = []
    for own in fifths:
        others = np.setdiff1d(every, own)
        fitted = Calibrator(10).fit(p[others], target[others], weight[others])
        losses.append(loss(fitted.transform(p[own]), own))
    assert found.calibrated == pytest.approx(sum(losses) / weight.sum(), rel=0.01)
    assert found.calibrated < found.raw


def test_left_out_loss__is_not_asked_for_where_it_says_nothing() -> None:
    model, codes = made_up(2), np.arange(2)
    arrays = make_rows(model, 40)
    calibration = fit_calibration(model, array_source(arrays), codes)
    alone = arrays | {"target": np.eye(1, 40, dtype=np.int32)[0]}  # of one fifth alone, so that others have one class
    assert left_out_loss(calibration, model, array_source(alone), codes) is None
    many = {name: np.resize(values, (JUDGED_ROWS + 1, *values.shape[1:])) for name, values in arrays.items()}
    assert left_out_loss(calibration, model, array_source(many, 1024), codes) is None


def test_fit_calibration__codes_name_the_classes_of_the_model() -> None:
    model = made_up(3)
    arrays = make_rows(model)
    order = np.array([2, 0, 1])
    expected = fit_calibration(model, array_source(arrays), np.arange(3))
    turned = {**arrays, "target": np.argsort(order)[arrays["target"]].astype(np.int32)}
    found = fit_calibration(model, array_source(turned), order)
    for own, other in zip(found.splines, expected.splines, strict=True):
        assert own.outcome.tobytes() == other.outcome.tobytes()


def test_calibrate_model__replaces_what_there_was_and_starts_from_raw_probabilities() -> None:
    model = made_up(2)
    source = array_source(make_rows(model))
    once = calibrate_model(model, source, np.arange(2))
    twice = calibrate_model(once, source, np.arange(2))
    assert once.calibration is not None
    assert twice.calibration is not None
    assert once.calibration.splines[0].outcome.tobytes() == twice.calibration.splines[0].outcome.tobytes()
    assert model.calibration is None
    assert model_fingerprint(replace(once, calibration=None)) == model_fingerprint(model)


def test_calibrate_model__has_the_same_bits_for_any_number_of_threads() -> None:
    model = made_up(3)
    source = array_source(make_rows(model), 256)
    found: list[bytes] = []
    for threads in (1, 3):
        with thread_engine(threads) as engine:
            calibration = fit_calibration(model, source, np.arange(3), engine)
        found.append(b"".join(own.score.tobytes() + own.outcome.tobytes() for own in calibration.splines))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("change", "arguments", "code", "facts"),
    [
        ({}, {"n_batches": 3}, "bad-setting", ("n_batches", 3, "2 batches")),
        ({}, {"n_bins": 0}, "bad-setting", ("from 1 to 1000", 0)),
        ({"target": np.zeros(3000, dtype=np.int32)}, {}, "one-class", ("outcome",)),
        ({"weight": np.zeros(3000)}, {}, "no-rows", ("weights", 0)),
        (
            {"weight": np.where(np.arange(3000) == 2048, np.nan, 1.0)},
            {},
            "bad-value",
            ("row 2048", "weight"),
        ),
    ],
)
def test_calibrate_model__refuses_what_it_cannot_use(
    change: Arrays, arguments: dict[str, Any], code: Code, facts: tuple[object, ...]
) -> None:
    model = made_up(2)
    with refused(code, *facts):
        calibrate_model(model, array_source({**make_rows(model), **change}), np.arange(2), **arguments)


def test_calibrate_model__refuses_no_rows() -> None:
    model = made_up(2)
    arrays = {name: values[:0] for name, values in make_rows(model, 5).items()}
    with refused("no-rows"):
        calibrate_model(model, array_source(arrays), np.arange(2))


def test_predict_features__calibrated_are_those_of_the_calibration() -> None:
    model = made_up(3)
    arrays = make_rows(model)
    calibrated = calibrate_model(model, array_source(arrays), np.arange(3), n_batches=1)
    assert calibrated.calibration is not None
    ((raw, evidence),) = predict_features(arrays["features"], model, [1])
    ((found, same),) = predict_features(arrays["features"], calibrated, [1], calibrated=True)
    assert found.tobytes() == calibrated.calibration.apply(raw).tobytes()
    assert same.tobytes() == evidence.tobytes()
    ((plain, _),) = predict_features(arrays["features"], calibrated, [1])
    assert plain.tobytes() == raw.tobytes()
    with pytest.raises(ValueError, match="no calibration"):
        predict_features(arrays["features"], calibrated, [2], calibrated=True)
