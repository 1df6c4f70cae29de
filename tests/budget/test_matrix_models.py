"""Models on columns of a matrix: fitted here, in several threads, and on the worker of a cluster."""

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from distributed import LocalCluster
from sklearn.naive_bayes import GaussianNB
from support.errors import refused

from protodask.budget.expansions import FeatureSet
from protodask.budget.matrix_models import MatrixModels, fit_all
from protodask.engine import Engine, open_engine, thread_engine

SETS = [frozenset(features) for features in ((0, 1), (), (2,), (1,), (0, 1, 2))]


@pytest.fixture(scope="module", params=["threads", "cluster"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    if request.param == "threads":
        with thread_engine(2) as opened:
            yield opened
        return
    start_cluster: Callable[[int], LocalCluster] = request.getfixturevalue("start_cluster")
    with open_engine(start_cluster(1).scheduler_address) as opened:
        yield opened


def box_of(estimator: Any) -> MatrixModels:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, 200)
    matrix = rng.standard_normal((200, 4)) + codes[:, None]
    return MatrixModels(estimator, matrix, codes, (slice(0, 1), slice(1, 3), slice(3, 4)), ())


def test_fit_all__gives_each_set_but_the_empty_one_its_model(engine: Engine) -> None:
    box = box_of(GaussianNB())
    found = fit_all(box, SETS, engine)
    assert list(found) == [features for features in SETS if features]
    for features, model in found.items():
        np.testing.assert_array_equal(model.theta_, GaussianNB().fit(box.columns(features), box.codes).theta_)


def test_fit_all__fits_on_the_workers_of_a_cluster(engine: Engine) -> None:
    class Placed(GaussianNB):  # type: ignore[misc]
        def fit(self, rows: Any, codes: Any) -> Any:
            self.process_ = os.getpid()
            return super().fit(rows, codes)

    places = {model.process_ for model in fit_all(box_of(Placed()), SETS, engine).values()}
    assert (os.getpid() in places) == (engine.scheduler.processes().kind == "threads")


def test_fit_all__says_which_set_could_not_be_fitted(engine: Engine) -> None:
    class Narrow(GaussianNB):  # type: ignore[misc]
        def fit(self, rows: Any, codes: Any) -> Any:
            if rows.shape[1] == 4:
                raise ValueError("too many columns")
            return super().fit(rows, codes)

    sets: list[FeatureSet] = SETS
    with refused("user-code", "[0, 1, 2]", "too many columns"):
        fit_all(box_of(Narrow()), sets, engine)


@pytest.mark.parametrize("engine", ["cluster"], indirect=True)
def test_fit_all__of_models_that_no_worker_can_send_ends(engine: Engine) -> None:
    class Locked(GaussianNB):  # type: ignore[misc]
        def fit(self, rows: Any, codes: Any) -> Any:
            self.lock_ = threading.Lock()
            return super().fit(rows, codes)

    with refused("user-code", "cannot be sent", "pickle"):
        fit_all(box_of(Locked()), SETS, engine)


def test_fit_all__of_the_empty_set_alone_fits_nothing(engine: Engine) -> None:
    assert fit_all(box_of(GaussianNB()), [frozenset()], engine) == {}
