"""The estimator together with engines, and with input that cannot be used."""

import copy
import pickle
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from support.errors import refused

from protodask import PrototypeSetClassifier, thread_engine
from protodask.engine import Engine

rng = np.random.default_rng(11)
ROWS = rng.uniform(size=(150, 2))
LABELS = (ROWS[:, 0] > ROWS[:, 1]).astype(int)


@pytest.fixture(scope="module")
def fitted() -> PrototypeSetClassifier:
    return PrototypeSetClassifier(recipe="source", n_candidates=20, tolerance=1e-3).fit(ROWS, LABELS)


class Connection:
    """Like a client, it can be neither copied nor pickled."""

    def __reduce__(self) -> str:
        raise TypeError("cannot pickle a connection")


def test_clone__shares_the_engine() -> None:
    connection = Connection()
    other = clone(PrototypeSetClassifier(n_candidates=7, engine=connection))  # type: ignore[arg-type]
    assert other.engine is connection
    assert other.n_candidates == 7


def test_pickle__leaves_a_connection_behind(fitted: PrototypeSetClassifier) -> None:
    expected = fitted.predict_proba(ROWS)
    connected = copy.copy(fitted)
    connected.set_params(engine=Connection())
    restored = pickle.loads(pickle.dumps(connected))
    assert restored.engine is None
    np.testing.assert_array_equal(restored.predict_proba(ROWS), expected)


def test_search__in_other_processes_takes_a_thread_engine_along() -> None:
    with thread_engine(1) as engine:
        assert isinstance(pickle.loads(pickle.dumps(engine)), Engine)
        search = GridSearchCV(
            PrototypeSetClassifier(recipe="source", n_candidates=20, tolerance=1e-3, engine=engine),
            {"lambda_v": [1e-3, 1e-1]},
            cv=2,
            n_jobs=1,
        )
        search.fit(ROWS, LABELS)
    assert search.best_params_["lambda_v"] in (1e-3, 1e-1)


def test_predict__refuses_infinite_values_in_lazy_and_stored_input(fitted: PrototypeSetClassifier) -> None:
    rows = ROWS.copy()
    rows[70, 1] = np.inf
    with refused("bad-value", "'x1'", "row 20 of a chunk"):
        fitted.predict_proba(da.from_array(rows, chunks=(50, 2))).compute()
    with refused("bad-value", "'x1'", "row 70"):
        fitted.predict_proba(zarr.array(rows))


@pytest.mark.parametrize("far", [1e20, 1e38, 1e39, 1e200, -1e300])
def test_predict__falls_back_to_the_marginals_however_far_a_row_is(fitted: PrototypeSetClassifier, far: float) -> None:
    probability = fitted.predict_proba(np.array([[far, 0.5], [far, -far]]))
    np.testing.assert_allclose(probability, np.tile(fitted.model_.marginals, (2, 1)))
    np.testing.assert_allclose(fitted.familiarity(np.array([[far, 0.5]])), 0, atol=1e-12)


def test_predict__of_normal_scores_takes_what_float32_does_not_hold_for_the_last_value() -> None:
    x = np.exp(2 * np.random.default_rng(0).normal(size=(300, 2)))
    settings: dict[str, Any] = {"feature_forms": "scores", "precision": "float32", "n_candidates": 20}
    found = PrototypeSetClassifier(n_draws=2, tolerance=1e-3, **settings).fit(x, x[:, 0] > 1)
    for far in (1e39, -1e300):
        rows = np.array([[far, 0.0], [np.copysign(1e9, far), 0.0]])
        one, other = found.predict_proba(rows)
        np.testing.assert_array_equal(one, other)


def test_fit__of_rows_with_an_outlier_stays_finite() -> None:
    rows = ROWS.copy()
    rows[3, 0] = 1e30
    fitted = PrototypeSetClassifier(recipe="source", n_candidates=20, tolerance=1e-3).fit(rows, LABELS)
    assert np.isfinite(fitted.predict_proba(rows)).all()


def test_warm_start__refuses_fewer_batches_than_there_are() -> None:
    settings: dict[str, Any] = {"recipe": "source", "n_candidates": 20, "tolerance": 1e-3, "warm_start": True}
    fitted = PrototypeSetClassifier(n_batches=2, **settings).fit(ROWS, LABELS)
    with refused("settings-conflict", "n_batches is 1", 2, "warm_start"):
        fitted.set_params(n_batches=1).fit(ROWS, LABELS)
