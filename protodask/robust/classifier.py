"""The robust classifier as scikit-learn users know it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from protodask.data.arrays.values import unmasked
from protodask.data.format.dataset import Dataset
from protodask.data.format.schema import Column
from protodask.data.places.own_folder import temporary_folder
from protodask.data.tables.frames import column_labels, in_frame, in_pandas
from protodask.engine import Block, Engine, EngineLike, Source, open_engine
from protodask.engine.lazy import as_array, is_lazy, map_rows
from protodask.engine.records import Floats
from protodask.errors import InputError, some
from protodask.prototypes.estimator_rows import (
    RowsClassifierMixin,
    checked_labels,
    codes_among,
    feature_dtype,
    is_out_of_memory,
    labels_given,
    plain_label,
    stored_rows,
)
from protodask.robust.bundle import PlaneFit
from protodask.robust.classifier_rows import (
    as_uncertain,
    check_alone,
    checked_weights,
    column_names,
    fingerprint_of,
    names_of,
    source_of,
)
from protodask.robust.config import RobustConfig
from protodask.robust.conic import solve_conic
from protodask.robust.formulations import make_terms
from protodask.robust.kept_terms import UncertainSource
from protodask.robust.measures import certified_sums, checked_sums, evaluate_robust
from protodask.robust.model import RobustModel
from protodask.robust.passes import tiles
from protodask.robust.training import (
    OnPass,
    RowsOfColumns,
    fit_robust,
    make_model,
    planes_trained,
    positive_codes,
    warn_if_short,
)
from protodask.robust.uncertain_columns import UncertainColumns, category_names, uncertain_columns
from protodask.robust.uncertain_rows import UncertainRows

Solver = Literal["auto", "conic", "bundle"]

CONIC_NUMBERS = 20_000
"""Samples times features up to which the cone program is solved whole: below a second or two."""

WIDE, CONIC_NUMBERS_OF_WIDE = 150, 200_000
"""Features from which on passes take longer than the whole program, and up to how many numbers it is solved then: 400
samples of 300 features take 8 seconds, and 38 in passes; 5,000 of 30 take 3.9, and 0.5."""


class RobustClassifier(RowsClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The hyperplane of largest margin for samples known only roughly: a training point without slack is on its side
    with a probability of at least `1 - eps`, whatever the distribution behind what is known.

        min 1/2 |w|^2 + sum_i C_i xi_i   with   Prob(y_i (w.X_i - b) <= 1 - xi_i) <= eps

    Parameters
    ----------
    formulation
        What is known and how it is used: "SVM", "M", "S", "MC", "SBMV", "SMV", "SBM", "SM", and the last four with
        "-I", which use the support as well. "SVM" and "M" know no spread, and promise nothing.
    eps
        The probability of error of training points without slack, at most.
    C
        Cost of a unit of slack of each sample, multiplied by the sample's weight.
    gap
        No other objective is smaller by more than this share of the one found: certified by `gap_`.
    solver
        "conic" solves the whole cone program in memory, "bundle" block by block on the engine; "auto" takes the first
        where it is soon done, up to 20,000 numbers, or 200,000 of 150 features or more, and the second else, or where
        the first does not reach the gap.
    max_passes
        Passes of the bundle over the samples, for each problem of two labels.
    engine
        None for threads of this process, an `Engine`, a `distributed.Client`, or a scheduler's address.
    run_dir
        A folder from which an interrupted fit of the bundle goes on.
    on_pass
        Called with a `PlanePass` after every pass of the bundle; planes of more than two classes share passes, and it
        hears of them in turn, one at a time, from threads of theirs.

    Attributes
    ----------
    model_
        The `RobustModel`: what is saved, and what scores datasets.
    coef_, intercept_
        Of the planes `w.x - b = 0`: `w` (1, D) and `b` (1,) for two classes, whose second one is where `w.x > b`; with
        more classes a row and an entry for each against the rest.
    objective_, gap_
        The objective and how far above the least it may be, relative to it: numbers for two classes, else (K,).
    n_iter_
        Passes of the bundle, or iterations of the cone solver; of the longest problem.
    classes_, n_features_in_
        As in scikit-learn.
    """

    def __init__(
        self,
        formulation: str = RobustConfig.formulation,
        eps: float = RobustConfig.eps,
        C: float = RobustConfig.C,
        gap: float = RobustConfig.gap,
        solver: Solver = "auto",
        max_passes: int = RobustConfig.max_passes,
        engine: EngineLike = None,
        run_dir: str | os.PathLike[str] | None = None,
        on_pass: OnPass | None = None,
    ) -> None:
        self.formulation = formulation
        self.eps = eps
        self.C = C
        self.gap = gap
        self.solver = solver
        self.max_passes = max_passes
        self.engine = engine
        self.run_dir = run_dir
        self.on_pass = on_pass

    def fit(self, rows: Any, y: Any = None, sample_weight: Any = None) -> RobustClassifier:
        """Train on rows and labels (N,) of two or more classes.

        Rows are `UncertainRows`; or a table, of any library or dask, whose column names say what they hold (`x.low`,
        `x.high`, see `uncertain_columns`); or points (N, D) that are known exactly, NumPy, dask or Zarr arrays. What is
        not in memory is computed once, block by block, into a temporary dataset. A `Dataset` has labels and weights.
        """
        config, rows = self.config(), in_frame(rows)
        with open_engine(self.engine) as engine:
            if isinstance(rows, Dataset):
                check_alone(y, sample_weight)
                self._fit_dataset(rows, config, engine, named=True)
            elif is_out_of_memory(rows):
                from protodask.data.tables.ingest import ingest_arrays

                with temporary_folder() as folder:
                    place = f"{folder}/data.zarr"
                    dtype = feature_dtype(rows)
                    data = ingest_arrays(rows, y, place, weight=sample_weight, dtype=dtype, engine=engine)
                    self._fit_dataset(data, config, engine, named=hasattr(rows, "columns"))
            else:
                known = as_uncertain(rows)
                labels, codes = checked_labels(y, len(known))
                weights = checked_weights(sample_weight, len(known))
                config.check_total(float(weights.sum()))
                data_in_memory = source_of(known, tuple(plain_label(label) for label in labels), codes, weights)
                found = self._fit_rows(known, data_in_memory, codes, weights, config, engine)
                model = make_model(found, config, data_in_memory)
                names = column_names(rows)
                if names is not None:  # so that a saved model knows such tables
                    model = replace(model, columns=tuple(Column(name) for name in names))
                self._take(model, labels, known.feature_names)
                warn_if_short(self.model_)
        return self

    def config(self) -> RobustConfig:
        """The settings of a fit."""
        if self.solver not in get_args(Solver):
            raise InputError(
                "unknown-name", f"There is no solver {self.solver!r}.", f"Choose one of {', '.join(get_args(Solver))}."
            )
        if self.run_dir is not None and self.solver == "conic":
            raise InputError(
                "settings-conflict",
                "A run directory was given with the conic solver.",
                "Choose the bundle, or leave it out.",
            )
        return RobustConfig(self.formulation, self.eps, self.C, self.gap, self.max_passes)

    def decision_function(self, rows: Any) -> Any:
        """`w.m - b` at the middles of the bounds of the means: (N,) for two classes, else (N, K).

        Lazy for dask arrays and tables, as are the predictions and certificates.
        """
        found = self._map(rows, RobustModel.decision, len(self._model().weights), np.float64)
        return found[:, 0] if found.shape[1] == 1 else found

    def predict(self, rows: Any) -> Any:
        """The classes (N,) of the middles of the bounds of the means."""
        self._model()
        return self._map(rows, partial(_predicted, labels=self.classes_), None, self.classes_.dtype)

    def certified_eps(self, rows: Any, formulation: str | None = None) -> Any:
        """A bound of the probability (N,) that the sample's true values are classified otherwise than by `predict`.

        1 where none is known. It bounds what not knowing the sample does, not how well planes tell the classes apart.

        The least of the bounds that follow from what `formulation` knows of a sample, Chernoff's and Chebyshev's among
        them: by default the classifier's own, or "SBMV-I" for SVM and M, which know no spread. With more than two
        classes the bounds against each other class add up.
        """
        return self._map(rows, partial(RobustModel.certified_eps, formulation=formulation), None, np.float64)

    def certified_error(
        self,
        rows: Any,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        formulation: str | None = None,
    ) -> float:
        """The expected certified error: the mean of 1 where `predict` is wrong and of `certified_eps` elsewhere.

        A `Dataset` has its labels and weights.
        """
        model = self._model()
        if isinstance(rows, Dataset):
            check_alone(y, sample_weight)
            data = RowsOfColumns(self._columns(rows.feature_names, category_names(rows.columns)))
            codes = codes_among(np.asarray(rows.classes), np.asarray(model.classes), np.arange(len(rows.classes)))
            return evaluate_robust(
                model, rows, data, codes, self.engine, formulation=formulation
            ).expected_certified_error
        rows = in_frame(rows)  # once: a stream gives its rows a single time
        predicted = np.asarray(self.predict(rows))
        right = predicted == labels_given(y, len(predicted))
        weights = checked_weights(sample_weight, len(right))
        certified = np.asarray(self.certified_eps(rows, formulation))
        return checked_sums(certified_sums(right, certified, self.eps, weights)).expected_certified_error

    def _take(self, model: RobustModel, labels: NDArray[Any], names: Sequence[str] | None) -> None:
        self.model_ = model
        self.coef_: Floats = model.weights
        self.intercept_: Floats = model.intercept
        self.objective_: Any = float(model.objective[0]) if model.n_classes == 2 else model.objective
        self.gap_: Any = float(model.gap[0]) if model.n_classes == 2 else model.gap
        self.n_iter_ = max(model.passes)
        self.classes_: NDArray[Any] = labels
        self.n_features_in_ = model.n_features
        self._take_names(names)

    def _model(self) -> RobustModel:
        check_is_fitted(self, "model_")
        return self.model_

    def _fit_dataset(self, data: Dataset, config: RobustConfig, engine: Engine, named: bool) -> None:
        if self.solver == "conic":
            raise InputError(
                "settings-conflict", "The conic solver takes rows in memory.", "Choose the bundle, or give arrays."
            )
        model = fit_robust(data, config, self.run_dir, engine, self.on_pass).model
        self._take(model, np.asarray(data.classes), model.features if named else None)

    def _fit_rows(
        self,
        known: UncertainRows,
        data: UncertainSource,
        codes: NDArray[np.intp],
        weights: Floats,
        config: RobustConfig,
        engine: Engine,
    ) -> list[PlaneFit]:
        most = CONIC_NUMBERS_OF_WIDE if known.n_features >= WIDE else CONIC_NUMBERS
        small = known.lower.size <= most and self.run_dir is None
        if self.solver == "conic" or (self.solver == "auto" and small):
            try:
                terms = make_terms(known, config.formulation, config.eps)
                signs = (np.where(codes == code, 1.0, -1.0) for code in positive_codes(len(data.classes)))
                return [solve_conic(terms, sign, config.C * weights, gap=config.gap) for sign in signs]
            except InputError:
                if self.solver == "conic":
                    raise
        told = {"rows": fingerprint_of(known, codes, weights)} if self.run_dir is not None else {}
        with planes_trained(data, config, engine, told, self.run_dir, self.on_pass) as found:
            return found

    def _map(self, rows: Any, function: RowsFunction, width: int | None, dtype: Any) -> Any:
        """A function of the model and rows, (N,) or (N, width), of rows given as to `fit`."""
        model, labels, rows = self._model(), column_labels(rows), in_pandas(rows)
        if isinstance(rows, Dataset):
            columns = self._columns(rows.feature_names, category_names(rows.columns))
            return self._collect(rows, RowsOfColumns(columns), function)
        if is_lazy(rows):
            columns = self._columns(labels or names_of(rows, model))
            values = map_rows(as_array(rows), partial(_of_values, columns, function, model), width or 1, dtype)
            return values[:, 0] if width is None else values
        if is_out_of_memory(rows):
            return self._collect(stored_rows(rows), RowsOfColumns(self._columns(names_of(rows, model))), function)
        known = as_uncertain(rows)
        if known.feature_names is not None:
            self._check_features(known.feature_names)
        return function(model, known)

    def _collect(self, source: Source, rows_of: RowsOfColumns, function: RowsFunction) -> Any:
        with open_engine(self.engine) as engine:
            found = engine.collect(source, _of_block, self._model(), rows_of, function, label="predict")
            engine.forget(source)
        return found[VALUES]

    def _columns(self, names: Sequence[str], exactly: Collection[str] = ()) -> UncertainColumns:
        columns = uncertain_columns(names, exactly)
        self._check_features(columns.features)
        return columns

    def _check_features(self, features: tuple[str, ...]) -> None:
        known = getattr(self, "feature_names_in_", None)
        if known is not None and features != tuple(known):
            raise InputError(
                "columns-differ",
                f"The rows have the features {some(features)}; the classifier was trained on {some(tuple(known))}.",
                "Give the features it was trained on, in the same order.",
            )


RowsFunction = Callable[[RobustModel, UncertainRows], NDArray[Any]]

VALUES = "values"


def _predicted(model: RobustModel, rows: UncertainRows, labels: NDArray[Any]) -> NDArray[Any]:
    return labels[model.predict(rows)]


def _of_block(
    block: Block, model: RobustModel, rows_of: RowsOfColumns, function: RowsFunction
) -> dict[str, NDArray[Any]]:
    parts = [function(model, rows_of(tile)) for tile in tiles(block)]
    return {VALUES: np.concatenate(parts)}


def _of_values(
    columns: UncertainColumns, function: RowsFunction, model: RobustModel, values: NDArray[Any]
) -> NDArray[Any]:
    numbers = np.asarray(unmasked(values), dtype=np.result_type(values.dtype, np.float32))
    found = function(model, columns.rows(numbers))
    return found[:, None] if found.ndim == 1 else found
