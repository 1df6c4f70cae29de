"""Choosing hyperparameters as scikit-learn users know it: an estimator around an estimator."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.utils.validation import check_is_fitted

from protodask.engine import open_engine
from protodask.errors import InputError
from protodask.prototypes.config import FitConfig
from protodask.prototypes.estimator import Batches, PrototypeSetClassifier
from protodask.prototypes.estimator_rows import RowsClassifierMixin
from protodask.prototypes.fitting import FitRun
from protodask.prototypes.setting_checks import given_settings
from protodask.prototypes.training_data import warn_of_large_weights
from protodask.selection.config import SearchConfig
from protodask.selection.results import SearchResult, as_rows
from protodask.selection.search import Listener
from protodask.selection.tuning import best_draw, chosen_config, search_rows, with_search


class PrototypeSetSearchCV(MetaEstimatorMixin, RowsClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Prototype set classifier whose penalties and number of batches are chosen by cross-validation.

    All fits of the search advance together and share their passes over the data, the folds of a setting stop adding
    batches when their held-out log-loss stops falling, and the chosen setting is fitted to all rows. scikit-learn's own
    `GridSearchCV` works with `PrototypeSetClassifier` too; it fits every number of batches anew.

    Parameters
    ----------
    estimator
        A `PrototypeSetClassifier` with the settings that are not searched for; None for one with its defaults.
    search
        A `SearchConfig`; None for the joint search over `lambda_v` and the number of batches.
    listen
        Called with every `SearchEvent`.

    Attributes
    ----------
    best_estimator_
        The classifier, fitted to all rows with what was chosen.
    best_params_
        What was chosen: `lambda_v`, `lambda_w` and `n_batches`.
    best_score_
        Mean held-out log-loss of the chosen setting, negative as scikit-learn's scores are.
    search_
        The `SearchResult`: every setting with its held-out log-losses.
    cv_results_
        The same as columns, for a data frame.
    classes_, n_features_in_, feature_names_in_
        As in scikit-learn.
    """

    def __init__(
        self,
        estimator: PrototypeSetClassifier | None = None,
        search: SearchConfig | None = None,
        listen: Listener | None = None,
    ) -> None:
        self.estimator = estimator
        self.search = search
        self.listen = listen

    def __sklearn_clone__(self) -> PrototypeSetSearchCV:
        # Who listens is shared, as are the callbacks of the classifier: a copy would hear what nobody looks at.
        return type(self)(None if self.estimator is None else clone(self.estimator), self.search, self.listen)

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> PrototypeSetSearchCV:
        """Search and train on rows X (N, D) and labels y (N,); rows of one of the `groups` (N,) stay in one fold."""
        best = PrototypeSetClassifier() if self.estimator is None else clone(self.estimator)
        if not isinstance(best, PrototypeSetClassifier):
            raise InputError(
                "wrong-type",
                f"The estimator is a {type(best).__name__}.",
                "Give a PrototypeSetClassifier; to search over a pipeline take scikit-learn's GridSearchCV.",
            )
        search = given_settings(SearchConfig, self.search)
        config = best.fit_config()
        with open_engine(best.engine) as engine, best.training_rows(X, y, sample_weight, engine, groups=groups) as rows:
            warn_of_large_weights(rows.data.summary)
            found = search_rows(
                engine, rows.data, config, search, grouped=rows.grouped, stored=rows.stored, listen=self.listen
            )
            settings = chosen_config(config, found)

            def fit_with(settings: FitConfig, name: str) -> FitRun:
                best.train(rows, settings, engine)
                return FitRun(best.model_, best.history_)

            run, found = best_draw(engine, rows.data.source, fit_with, settings, found, search)
        chosen = found.trials[found.selected]
        self.best_params_ = {name: getattr(chosen, name) for name in ("lambda_v", "lambda_w", "n_batches")}
        best.set_params(**self.best_params_)
        if found.seed is not None:
            best.set_params(random_state=found.seed)
        best.take_fit(with_search(run.model, found), run.history)
        self.best_estimator_ = best
        self.search_: SearchResult = found
        self.best_score_ = -chosen.mean
        self.n_features_in_ = best.n_features_in_
        self._take_names(getattr(best, "feature_names_in_", None))
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    @property
    def classes_(self) -> NDArray[Any]:
        return self.best_estimator_.classes_

    @property
    def cv_results_(self) -> dict[str, NDArray[Any]]:
        rows = as_rows(self.search_)
        return {name: np.array([row[name] for row in rows]) for name in rows[0]}

    def _best(self) -> PrototypeSetClassifier:
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_

    def predict(self, X: Any, n_batches: Batches = None) -> Any:
        """The most probable class (N,), as the classifier gives it."""
        return self._best().predict(X, n_batches)

    def predict_proba(self, X: Any, n_batches: Batches = None) -> Any:
        """Probabilities of the classes (N, K), as the classifier gives them."""
        return self._best().predict_proba(X, n_batches)

    def familiarity(self, X: Any, n_batches: Batches = None) -> Any:
        """How much evidence the model has at each row (N,)."""
        return self._best().familiarity(X, n_batches)
