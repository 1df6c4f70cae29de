import pickle
import threading
import warnings
from dataclasses import replace
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from support.errors import refused

from protodask import PrototypeSetClassifier
from protodask.engine import thread_engine
from protodask.selection.config import SearchConfig
from protodask.selection.estimator import PrototypeSetSearchCV
from protodask.selection.search import SearchEvent

Arrays = dict[str, NDArray[Any]]
# Rounds end after some iterations, which are as good as many to tell bits apart.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Round . stopped early:protodask.prototypes.convergence.ConvergenceWarning"
)

CLASSIFIER = PrototypeSetClassifier(
    recipe="source", n_candidates=30, lambda_w=1e-3, max_iterations=8, random_state=1, engine=thread_engine(1)
)
SEARCH = SearchConfig(n_trials=3, lambda_v=(1e-3, 1e-1), n_folds=3, max_batches=2, n_draws=2, tolerance=1e-2)


@pytest.fixture(scope="module")
def fitted(rows: Arrays) -> PrototypeSetSearchCV:
    return PrototypeSetSearchCV(CLASSIFIER, SEARCH).fit(rows["features"], rows["target"], rows["weight"])


def test_search_cv__fits_what_it_chose(rows: Arrays, fitted: PrototypeSetSearchCV) -> None:
    alone = clone(fitted.best_estimator_).fit(rows["features"], rows["target"], rows["weight"])
    X = rows["features"]
    assert np.array_equal(fitted.predict_proba(X), alone.predict_proba(X))
    assert np.array_equal(fitted.predict(X), alone.predict(X))
    assert np.array_equal(fitted.familiarity(X), alone.familiarity(X))
    assert fitted.best_score_ == -fitted.search_.trials[fitted.search_.selected].mean
    assert CLASSIFIER.lambda_v is None  # the one given is left as it is
    assert set(pd.DataFrame(fitted.cv_results_)) >= {"lambda_v", "batches", "mean", "fold_3", "selected"}


def test_search_cv__ends_the_fit_of_what_it_chose_by_the_tolerance_of_the_classifier(
    rows: Arrays, fitted: PrototypeSetSearchCV, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By that of the search it would end after 11 iterations, the fewest that a tolerance looks at."""
    monkeypatch.setattr("protodask.selection.estimator.search_rows", lambda *_, **__: fitted.search_)
    exact = clone(CLASSIFIER).set_params(max_iterations=13, tolerance=0.0)
    search = replace(SEARCH, tolerance=1.0, n_draws=1)
    found = PrototypeSetSearchCV(exact, search).fit(rows["features"], rows["target"], rows["weight"])
    assert {record.iterations for record in found.best_estimator_.history_} == {13}


@pytest.mark.slow
def test_search_cv__finds_the_same_for_lazy_rows(rows: Arrays, fitted: PrototypeSetSearchCV) -> None:
    lazy = PrototypeSetSearchCV(CLASSIFIER, SEARCH).fit(
        da.from_array(rows["features"], chunks=(64, 3)),
        da.from_array(rows["target"], chunks=64),
        da.from_array(rows["weight"], chunks=64),
    )
    found = [trial.mean for trial in lazy.search_.trials]
    assert found == pytest.approx([trial.mean for trial in fitted.search_.trials], rel=1e-9)


def test_search_cv__scores_lazy_tables(rows: Arrays) -> None:
    table, y = pd.DataFrame(rows["features"]).add_prefix("x"), rows["target"]
    found = PrototypeSetSearchCV(CLASSIFIER, SEARCH).fit(table, y)
    lazy = dd.from_pandas(table.assign(label=y), npartitions=2)
    assert found.score(lazy[list(table)], lazy["label"]) == found.score(table, y)


def test_search_cv__keeps_groups_together(rows: Arrays) -> None:
    """Every row twice: by rows, the copy of a held-out row is trained on; by groups it is not."""
    X, y = np.repeat(rows["features"][:120], 2, axis=0), np.repeat(rows["target"][:120], 2)
    names = np.repeat([f"case {number}" for number in range(120)], 2)
    penalty = (1e-6, 1e-6)
    search = SearchConfig(
        n_trials=1, lambda_v=penalty, n_folds=3, max_batches=1, rule="best", tolerance=1e-3, n_draws=1
    )
    by_row = PrototypeSetSearchCV(CLASSIFIER, search).fit(X, y)
    by_group = PrototypeSetSearchCV(CLASSIFIER, search).fit(X, y, groups=names)
    assert by_row.search_.trials[1].mean < by_group.search_.trials[1].mean - 0.02


def test_search_cv__refuses_groups_of_another_length(rows: Arrays) -> None:
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        PrototypeSetSearchCV(CLASSIFIER, SEARCH).fit(rows["features"], rows["target"], groups=[1, 2])


@pytest.mark.parametrize(
    "missing",
    [
        pd.Series([None if number == 3 else str(number // 2) for number in range(120)], dtype="string"),
        pd.Series([None if number == 3 else number // 2 for number in range(120)], dtype="Int64"),
        pd.Series([pd.NaT if number == 3 else "day" for number in range(120)], dtype=object),
    ],
    ids=["string", "Int64", "NaT"],
)
@pytest.mark.parametrize("lazy", [False, True])
def test_search_cv__refuses_groups_that_are_missing(rows: Arrays, missing: Any, lazy: bool) -> None:
    X: Any = rows["features"][:120]
    X = da.from_array(X, chunks=(64, 3)) if lazy else X
    with refused("bad-value", "row 3", "Fill in"):
        PrototypeSetSearchCV(CLASSIFIER, SEARCH).fit(X, rows["target"][:120], groups=missing)


def test_search_cv__refuses_groups_of_several_columns(rows: Arrays) -> None:
    pairs = [(1, number) for number in range(300)]
    with refused("wrong-shape", "groups", (300, 2)):
        PrototypeSetSearchCV(CLASSIFIER, SEARCH).fit(rows["features"], rows["target"], groups=pairs)


class Ear:
    """Listens, and cannot be copied."""

    def __init__(self) -> None:
        self.heard = 0
        self._lock = threading.Lock()

    def hear(self, event: SearchEvent) -> None:
        with self._lock:
            self.heard += 1


def test_search_cv__is_heard_in_clones(rows: Arrays) -> None:
    ear = Ear()
    settings = SearchConfig(n_trials=1, n_folds=2, max_batches=1, n_draws=1)
    search = clone(PrototypeSetSearchCV(CLASSIFIER, settings, ear.hear))
    search.fit(rows["features"], rows["target"])
    assert ear.heard == 3
    assert search.estimator is not CLASSIFIER
    assert search.get_params()["estimator__lambda_w"] == 1e-3


def test_search_cv__refuses_what_is_no_prototype_classifier(rows: Arrays) -> None:
    with refused("wrong-type", "StandardScaler", "GridSearchCV"):
        PrototypeSetSearchCV(StandardScaler()).fit(rows["features"], rows["target"])


@pytest.mark.parametrize("given", [{"n_trials": 1}, {}, 5, "joint"])
def test_search_cv__refuses_what_are_no_settings_of_a_search(given: Any, rows: Arrays) -> None:
    with refused("wrong-type", f"A {type(given).__name__} is given", "SearchConfig(**settings)"):
        PrototypeSetSearchCV(search=given).fit(rows["features"], rows["target"])


def test_search_cv__is_cloned_and_pickled(rows: Arrays, fitted: PrototypeSetSearchCV) -> None:
    assert clone(fitted).search == SEARCH
    loaded = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(loaded.predict_proba(rows["features"]), fitted.predict_proba(rows["features"]))


def test_search_cv__works_in_a_pipeline(rows: Arrays) -> None:
    pipeline = make_pipeline(StandardScaler(), PrototypeSetSearchCV(CLASSIFIER, SEARCH))
    pipeline.fit(rows["features"], rows["target"])
    assert pipeline.score(rows["features"], rows["target"]) > 0.7


@pytest.mark.slow
def test_search_cv__passes_the_checks_of_scikit_learn() -> None:
    from sklearn.utils.estimator_checks import check_estimator

    search = SearchConfig(n_trials=1, n_folds=2, max_batches=1, lambda_v=(1e-3, 1e-3), n_draws=1, tolerance=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of checks that were left out
        results = check_estimator(
            PrototypeSetSearchCV(
                PrototypeSetClassifier(
                    n_candidates=30, n_draws=1, tolerance=1e-2, engine=thread_engine(1), random_state=0
                ),
                search,
            ),
            on_fail=None,
            on_skip=None,
        )
    failed = {result["check_name"]: str(result["exception"]) for result in results if result["status"] == "failed"}
    # Some checks bring fewer rows of a class than training needs once a fold is held out, which is refused by name.
    others = {name: text for name, text in failed.items() if "needs 3" not in text and "the 2 folds" not in text}
    assert others == {}
    assert sum(result["status"] == "passed" for result in results) > 40


@pytest.mark.slow
@pytest.mark.parametrize("piped", [False, True])
def test_classifier__works_in_grid_search_of_scikit_learn(rows: Arrays, piped: bool) -> None:
    classifier: Any = make_pipeline(StandardScaler(), CLASSIFIER) if piped else CLASSIFIER
    prefix = "prototypesetclassifier__" if piped else ""
    grid = {f"{prefix}lambda_v": [1e-3, 1e-1], f"{prefix}n_batches": [1, 2]}
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    search = GridSearchCV(classifier, grid, scoring="neg_log_loss", cv=folds)
    search.fit(rows["features"], rows["target"])
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_params_.keys() == grid.keys()
    assert search.predict_proba(rows["features"]).shape == (300, 3)
