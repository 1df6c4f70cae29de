"""The classifier as scikit-learn users know it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import (
    _check_sample_weight,
    assert_all_finite,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from protodask.data.arrays.values import refuse_times, unmasked
from protodask.data.format.schema import FEATURES, GROUP, TARGET, WEIGHT, Column, feature_names
from protodask.data.format.summary import summarize
from protodask.data.places.own_folder import temporary_folder
from protodask.data.tables.encoding import MatrixTable, Table
from protodask.data.tables.frames import column_labels, column_values, in_pandas, out_of_xarray
from protodask.engine import Block, Engine, EngineLike, Source, array_source, open_engine
from protodask.engine.lazy import computed, is_lazy, map_rows
from protodask.engine.threads import dask_on_threads
from protodask.errors import InputError
from protodask.prototypes.config import SOURCE_RECIPE, FeatureForms, FeatureWeights, FitConfig, Recipe
from protodask.prototypes.estimator_columns import (
    check_frame,
    encoded,
    frame_in_memory,
    frame_table,
    learn_columns,
    matrix_table,
    orders_of_frame,
)
from protodask.prototypes.estimator_rows import (
    RowsClassifierMixin,
    TrainingRows,
    check_dimensions,
    check_given,
    check_labels,
    class_codes,
    codes_among,
    feature_dtype,
    group_codes,
    is_out_of_memory,
    numbers_asked_for,
    one_column,
    plain_label,
    settled_labels,
    stored_rows,
)
from protodask.prototypes.fitting import StoredRows, dataset_for_training
from protodask.prototypes.history import BatchRecord, Callback
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.scoring import predict_features
from protodask.prototypes.tiles import Precision
from protodask.prototypes.training_data import TrainingData, warn_of_large_weights

if TYPE_CHECKING:
    from protodask.explain import Explanation

Batches = int | Sequence[int] | None

dask_on_threads()  # now, beside scikit-learn's two seconds, and not while somebody waits for a first fit


class PrototypeSetClassifier(RowsClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Prototype set classifier: few features, few prototypes, probabilities that fall back to the marginals far away.

        p[k](x) = (p0[k] + sum_{j: y_j = k} w_j K_v(x - x_j)) / (1 + sum_j w_j K_v(x - x_j))

    Parameters
    ----------
    n_batches
        Rounds of batches of prototypes.
    feature_weights
        Whether a round is one batch whose prototypes share feature weights ("shared"), or a batch for each "class",
        trained together: then prototypes of one class may look far where those of another look close. With "both",
        draws take turns, the first by class, or where rules over several features decide and all forms enter, by
        regions of each class.
    feature_forms
        Whether features enter as they are ("plain"), as their normal scores ("scores"), which heavy tails and lumps do
        not harm, in "both" forms, so that the feature weights choose, or in "all": with their levels, which
        rise at thresholds where classes change and nowhere else, and with the differences of up to twenty pairs of
        columns that go together, such as lengths, where what one has beyond the other tells classes apart.
    hold_out
        Share of the rows of each class that a draw does not train on until it finishes: of its iterates that one is
        kept at which they lose least. 0 ends a round at its optimum.
    finish
        Whether the last round goes on from there for a while on all rows, also those held out: the longer, the less
        these lose. A round that began with small steps does not.
    n_draws
        Independent draws of candidates, each trained by itself and each without other rows where rows are held out; the
        model is their mean.
    n_candidates
        Rows tried as prototypes in each round of a draw.
    most_candidates
        Up to which these grow, after some iterations, where more of them tell classes apart better. None: 4,000, or
        fewer of more than 830 features, where `n_candidates` is not given; none more where it is, or rows are 12,288
        and more, or 500 and fewer.
    leave_one_out
        Whether rows that are candidates are trained on as well, though none looks at itself; else they are left out.
    progressive
        Whether a round begins with small steps, where rows are many and some are held out: see the module `steps`.
    recipe
        What these, the penalties and the precision are where they are None. "averaged": both feature weights, all
        forms, a fifth of the rows held out until a round finishes on all, candidates trained on as well, four draws of
        500 candidates, of more than 2,000 rows two, and one of more than 48,000 (of many classes of fewer), of 14 times
        `sqrt(N K / 2)` of `N` rows of `K` classes, of 12,288 rows and more 2,000 at least and 8,000 at most; `lambda_v`
        is 1e-4 and `lambda_w` 1e-10. "source": shared feature weights, features as they are, no rows held out,
        candidates left out, one draw of 1,000 of them, float32; `lambda_v` is 1e-3 and `lambda_w` 1e-8.
    max_fraction
        Largest share of a bin (class, right or wrong so far) that may become candidates.
    lambda_v, lambda_w
        Penalties on the weights of features and of prototypes.
    alpha_v, alpha_w
        Share of the l2 part in each penalty; the rest is l1.
    standardize
        Whether feature weights refer to features of mean 0 and standard deviation 1.
    precision
        Of the kernel, "float32", "float64", or "auto": float64 up to 500 rows, float32 beyond; sums over rows are
        float64 in any case.
    tolerance
        Relative decrease of the objective by an iteration, on average over ten, at which a batch is done.
    max_iterations
        Solver iterations for a round.
    random_state
        Seed of the draw of candidates; an integer gives the same model every time.
    engine
        None for threads of this process, an `Engine`, a `distributed.Client`, or a scheduler's address.
    callbacks
        Called with every `FitEvent`.
    warm_start
        Whether `fit` keeps the batches of the last fit and adds what is missing to `n_batches`. Where those were
        finished on all rows, a further round hardly finds anything to add: give `finish=False` until the last one.

    Attributes
    ----------
    model_
        The fitted `PrototypeSet`.
    history_
        A `BatchRecord` for each round of each draw of the last call of `fit`.
    classes_, n_features_in_, feature_names_in_
        As in scikit-learn.
    """

    def __init__(
        self,
        n_batches: int = 1,
        n_candidates: int | None = None,
        max_fraction: float = 0.5,
        lambda_v: float | None = None,
        lambda_w: float | None = None,
        alpha_v: float = 0.95,
        alpha_w: float = 0.95,
        standardize: bool = True,
        precision: Precision | Literal["auto"] | None = None,
        tolerance: float = FitConfig.tolerance,
        max_iterations: int = FitConfig.max_iterations,
        random_state: Any = 0,
        engine: EngineLike = None,
        callbacks: Sequence[Callback] = (),
        warm_start: bool = False,
        feature_weights: FeatureWeights | None = None,
        feature_forms: FeatureForms | None = None,
        hold_out: float | None = None,
        n_draws: int | None = None,
        progressive: bool | None = None,
        most_candidates: int | None = None,
        leave_one_out: bool | None = None,
        finish: bool | None = None,
        recipe: Recipe = "averaged",
    ) -> None:
        self.n_batches = n_batches
        self.n_candidates = n_candidates
        self.max_fraction = max_fraction
        self.lambda_v = lambda_v
        self.lambda_w = lambda_w
        self.alpha_v = alpha_v
        self.alpha_w = alpha_w
        self.standardize = standardize
        self.precision = precision
        self.tolerance = tolerance
        self.max_iterations = max_iterations
        self.random_state = random_state
        self.engine = engine
        self.callbacks = callbacks
        self.warm_start = warm_start
        self.feature_weights = feature_weights
        self.feature_forms = feature_forms
        self.hold_out = hold_out
        self.n_draws = n_draws
        self.progressive = progressive
        self.most_candidates = most_candidates
        self.leave_one_out = leave_one_out
        self.finish = finish
        self.recipe = recipe

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        if not isinstance(self.engine, Engine | str | None):
            state["engine"] = None  # a client's connection belongs to its process
        return state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> PrototypeSetClassifier:
        """Train on rows X (N, D) and labels y (N,): arrays and tables of any library, Zarr arrays, dask collections.

        Values may be missing (NaN, None): a number counts as the mean of its column then, a category as none, and a
        further feature is 1 there. Columns of text and categories of a data frame become a feature for each category,
        ordered categories one with their position.

        Dask collections are computed once, block by block, into a temporary dataset that training then reads. Streams
        of Arrow's, such as DuckDB relations, are read into memory: of one that does not fit, `ingest` makes a dataset,
        which `protodask.fit` trains on.
        """
        start = self.model_ if self.warm_start and hasattr(self, "model_") else None
        config = self.fit_config(0 if start is None else start.n_rounds)
        with open_engine(self.engine) as engine, self.training_rows(X, y, sample_weight, engine, start) as rows:
            warn_of_large_weights(rows.data.summary)
            self.train(rows, config, engine, start)
        return self

    def fit_config(self, rounds_before: int = 0) -> FitConfig:
        """The settings of a fit that adds to a model with so many rounds of batches."""
        seed = self.random_state
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(np.iinfo(np.int32).max)
        given = {name: value for name in SOURCE_RECIPE if (value := getattr(self, name)) is not None}
        config = FitConfig.of(
            self.recipe,
            **given,
            n_batches=self.n_batches,
            max_fraction=self.max_fraction,
            alpha_v=self.alpha_v,
            alpha_w=self.alpha_w,
            standardize=self.standardize,
            tolerance=self.tolerance,
            max_iterations=self.max_iterations,
            seed=int(seed),
        )
        if config.n_batches < rounds_before:
            raise InputError(
                "settings-conflict",
                f"n_batches is {config.n_batches}, and the fitted model has {rounds_before} already.",
                "With warm_start, give at least as many; or fit anew with warm_start=False.",
            )
        return config.with_batches(config.n_batches - rounds_before)

    @contextmanager
    def training_rows(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        engine: Engine,
        start: PrototypeSet | None = None,
        groups: Any = None,
    ) -> Iterator[TrainingRows]:
        """Rows to train on, from whatever they were given as; `groups` say which of them belong together."""
        labels, X = column_labels(X), out_of_xarray(X)
        y, sample_weight, groups = (column_values(values) for values in (y, sample_weight, groups))
        check_given(y)
        if not is_out_of_memory(X):
            y, sample_weight, groups = (column_values(computed(values)) for values in (y, sample_weight, groups))
            check_given(y)
            yield self._rows_in_memory(X, settled_labels(y), sample_weight, engine, start, groups)
            return
        check_dimensions(X)
        y = one_column(y)
        check_labels(getattr(y, "dtype", None))
        from protodask.data.tables.ingest import ingest_arrays

        with temporary_folder() as folder:
            is_frame = hasattr(X, "columns")
            names = X.columns if is_frame else labels
            given = None if names is None else np.asarray(names, dtype=object)
            columns = None if start is None else start.forgiving_columns
            if columns is not None and start is not None:
                self._check_columns(X, labels)
            if is_frame:
                check_frame(X)
            dataset = ingest_arrays(
                X,
                y,
                f"{folder}/data.zarr",
                weight=sample_weight,
                group=groups,
                dtype=feature_dtype(X),
                columns=columns,
                orders=orders_of_frame(X) if is_frame else None,
                engine=engine,
            )
            self.n_features_in_ = len(dataset.columns)
            self._take_names(given)
            if start is None:
                names = self._feature_names(given, len(dataset.columns))
                found = tuple(replace(column, name=name) for column, name in zip(dataset.columns, names, strict=True))
                data = replace(dataset_for_training(dataset), feature_names=feature_names(found), columns=found)
            else:
                data = replace(dataset_for_training(dataset), feature_names=start.feature_names, columns=start.columns)
            yield TrainingRows(data, np.asarray(dataset.classes), groups is not None, StoredRows(dataset, folder))

    def _rows_in_memory(
        self, X: Any, y: Any, sample_weight: Any, engine: Engine, start: PrototypeSet | None, groups: Any
    ) -> TrainingRows:
        X = unmasked(in_pandas(X))
        frame = frame_in_memory(X, start)
        if frame is None:
            options = {"dtype": feature_dtype(X), "ensure_min_samples": 2, "ensure_all_finite": False}
            with numbers_asked_for():
                X, y = validate_data(self, X, y, reset=start is None, **options)
            names = self._feature_names(getattr(self, "feature_names_in_", None), X.shape[1])
            table: Table = MatrixTable(names, X, {})
            orders: dict[str, Any] = {}
        else:
            validate_data(self, X, y, skip_check_array=True, reset=start is None)
            y = column_or_1d(y, warn=True)
            assert_all_finite(y, input_name="y")
            check_consistent_length(X, y)
            table, orders = frame_table(frame, None if start is None else start.columns), orders_of_frame(frame)
        labels, codes = class_codes(y)
        arrays: dict[str, NDArray[Any]] = {}
        if sample_weight is not None:
            arrays[WEIGHT.name] = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        weight = arrays.get(WEIGHT.name)
        columns = learn_columns(table, orders, weight) if start is None else start.forgiving_columns
        features = encoded(table, columns, feature_dtype(X if frame is None else frame))
        arrays = {FEATURES.name: features, **arrays}
        if start is not None:
            codes = codes_among(labels, self._checked_classes(), codes)
            labels = self._checked_classes()
        arrays[TARGET.name] = codes.astype(np.int32)
        array_names = tuple(arrays)
        if groups is not None:
            arrays[GROUP.name] = group_codes(groups, len(features))
        source = array_source(arrays)
        classes = tuple(plain_label(label) for label in labels)
        summary = summarize(engine, source, len(classes))
        columns = columns if start is None else start.columns
        names = feature_names(columns) if start is None else start.feature_names
        dtype: Precision = "float64" if features.dtype == np.float64 else "float32"
        data = TrainingData(source, array_names, summary, classes, names, columns, dtype)
        return TrainingRows(data, labels, groups is not None)

    def train(self, rows: TrainingRows, config: FitConfig, engine: Engine, start: PrototypeSet | None = None) -> None:
        """Fit to rows that `training_rows` gave: for estimators around this one."""
        self.take_fit(*rows.fit(config, engine, self.callbacks, start))
        engine.forget(rows.data.source)
        self.classes_: NDArray[Any] = rows.labels

    def take_fit(self, model: PrototypeSet, history: list[BatchRecord]) -> None:
        """Have what a fit left behind as this estimator's own."""
        self.model_, self.history_ = model, history
        self.n_iter_ = max((record.iterations for record in history), default=0)

    @staticmethod
    def _feature_names(given: Sequence[object] | NDArray[Any] | None, n_features: int) -> tuple[str, ...]:
        if given is not None:
            return tuple(str(name) for name in given)
        return tuple(f"x{position}" for position in range(n_features))

    def predict(self, X: Any, n_batches: Batches = None, *, calibrated: bool = False) -> Any:
        """The most probable class (N,); a list of them where `n_batches` is a list. Lazy for dask input.

        Of all else it is an array of NumPy, on which scikit-learn's tools rely: `model_.predict_table` gives tables.
        """
        classes = self._checked_classes()
        return self._map(X, n_batches, partial(_most_probable, classes), None, classes.dtype, calibrated)

    def predict_proba(self, X: Any, n_batches: Batches = None, *, calibrated: bool = False) -> Any:
        """Probabilities of the classes (N, K), columns as `classes_`; a list where `n_batches` is one, in one pass.

        `calibrated` probabilities are those of `calibrate`, of the number of batches it was called with.
        """
        return self._map(X, n_batches, itemgetter(0), len(self._checked_classes()), np.float64, calibrated)

    def calibrate(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        n_bins: int = 20,
        monotone: bool = False,
        n_batches: int | None = None,
    ) -> PrototypeSetClassifier:
        """Calibrate the probabilities on rows of known classes that the model was not trained on.

        `model_` then has a calibration of its first `n_batches` batches, until it gets further ones. Rows are given as
        to `fit`; see `protodask.evaluation.Calibrator` for what is fitted.
        """
        from protodask.evaluation.calibration import calibrate_model

        with self._known_rows(X, y, sample_weight) as (source, codes, engine):
            self.model_ = calibrate_model(
                self.model_, source, codes, engine, n_batches=n_batches, n_bins=n_bins, monotone=monotone
            )
        return self

    def prune(self, n_prototypes: int, X: Any, y: Any, sample_weight: Any = None) -> PrototypeSetClassifier:
        """Leave the model so many prototypes at most, by rows of known classes: those of `fit`, or new ones.

        Those stay that the rows would miss most, with weights trained anew; `pruning_` says what each stage left and
        what the rows, each by all others, lose then. Rows are given as to `fit`.
        """
        from protodask.prototypes.pruning import prune

        with self._known_rows(X, y, sample_weight) as (source, codes, engine):
            found = prune(self.model_, n_prototypes, source, codes, engine)
        self.model_, self.pruning_ = found.model, found.stages
        return self

    @contextmanager
    def _known_rows(self, X: Any, y: Any, sample_weight: Any) -> Iterator[tuple[Source, NDArray[np.int64], Engine]]:
        """Rows of known classes for the fitted model, and which of its classes their target codes are."""
        known = self._checked_classes()
        reader = copy(self)  # reading rows to train on takes note of their names and number, which stay those of `fit`
        with open_engine(self.engine) as engine, reader.training_rows(X, y, sample_weight, engine, self.model_) as rows:
            yield rows.data.source, codes_among(rows.labels, known, np.arange(len(rows.labels))), engine

    def familiarity(self, X: Any, n_batches: Batches = None) -> Any:
        """How much evidence the model has at each row (N,): 0 far from every prototype."""
        self._checked_classes()
        return self._map(X, n_batches, itemgetter(1), None, np.float64)

    def explain(self, X: Any, n_batches: int | None = None, most: int = 20) -> Explanation | list[Explanation]:
        """Why the probabilities of rows are what they are, see `protodask.explain.Explanation`.

        One row, as a vector (D,), a series or a table of one row, gives one explanation, more rows give a list. At most
        `most` prototypes are listed for each.
        """
        from protodask.explain import explain_rows

        self._checked_classes()
        X = in_pandas(X)
        if is_out_of_memory(X):
            raise InputError(
                "wrong-type",
                "The rows to explain are not in memory.",
                "Give a few of them as an array, such as X[:5].compute().",
            )
        if np.ndim(X) == 1:
            X = X.to_frame().T if hasattr(X, "to_frame") else np.reshape(np.asarray(X), (1, -1))
        found = explain_rows(self.model_, self._features(X), n_batches=n_batches, most=most)
        return found[0] if len(found) == 1 else found

    def _checked_classes(self) -> NDArray[Any]:
        check_is_fitted(self, "model_")
        return self.classes_

    def _map(
        self, X: Any, n_batches: Batches, select: Any, n_columns: int | None, dtype: Any, calibrated: bool = False
    ) -> Any:
        model, labels, X = self.model_, column_labels(X), out_of_xarray(X)
        counts = model.batch_counts(n_batches)
        if calibrated:
            counts = (model.calibrated_batches(n_batches),)
        if is_lazy(X):
            self._check_columns(X, labels)
            chosen = {"counts": counts, "select": select, "calibrated": calibrated}
            function = partial(_select_rows, model=model, columns=model.forgiving_columns, **chosen)
            step = 1 if n_columns is None else n_columns
            joined = map_rows(X, function, len(counts) * step, dtype)
            parts = [joined[:, first : first + step] for first in range(0, len(counts) * step, step)]
            results = [part[:, 0] if n_columns is None else part for part in parts]
        else:
            columns = None  # whose values are still to be encoded
            if is_out_of_memory(X):
                self._check_columns(X, labels)
                source, columns = stored_rows(X), model.forgiving_columns
            else:
                source = array_source({FEATURES.name: self._features(X)})
            options = counts, select, calibrated, columns
            with open_engine(self.engine) as engine:
                arrays = engine.collect(source, _select_block, model, *options, label="predict")
                engine.forget(source)
            results = [arrays[str(position)] for position in range(len(counts))]
        return results[0] if n_batches is None or isinstance(n_batches, int | np.integer) else results

    def _features(self, X: Any) -> NDArray[Any]:
        """Rows in memory as the features that the model has."""
        columns = self.model_.forgiving_columns
        X = unmasked(in_pandas(X))
        frame = frame_in_memory(X, self.model_)
        if frame is not None:
            validate_data(self, X, skip_check_array=True, reset=False)
            return encoded(frame_table(frame, columns), columns, feature_dtype(frame))
        dtype = feature_dtype(X) if all(column.kind == "numeric" for column in columns) else None
        with numbers_asked_for():
            X = validate_data(self, X, dtype=dtype, ensure_all_finite=False, reset=False)
        return encoded(matrix_table(X, columns), columns, feature_dtype(X))

    def _check_columns(self, X: Any, labels: Sequence[str] | None) -> None:
        """What scikit-learn checks of collections in memory; arrays may have `labels` of their columns."""
        check_dimensions(X)
        if hasattr(X, "columns"):
            check_frame(X)
        else:
            refuse_times(X.dtype)
        width = X.shape[1]
        if width != self.n_features_in_:
            raise InputError(
                "columns-differ",
                f"X has {width} features, but {type(self).__name__} is expecting {self.n_features_in_} features as "
                "input.",
                "Give the features the classifier was trained on, in the same order.",
            )
        known = getattr(self, "feature_names_in_", None)
        names = list(X.columns) if hasattr(X, "columns") else labels
        if known is not None and names is not None and names != list(known):
            raise InputError(
                "columns-differ",
                f"The columns of X are {names}, those of the training data were {list(known)}.",
                "Give the same columns in the same order.",
            )


def _most_probable(classes: NDArray[Any], predicted: tuple[NDArray[Any], NDArray[Any]]) -> NDArray[Any]:
    found: NDArray[Any] = classes[predicted[0].argmax(axis=1)]
    return found


def _select_block(
    block: Block,
    model: PrototypeSet,
    counts: tuple[int, ...],
    select: Any,
    calibrated: bool,
    columns: tuple[Column, ...] | None,
) -> dict[str, NDArray[Any]]:
    features = block[FEATURES.name]
    if columns is not None:
        features = encoded(matrix_table(features, columns), columns, features.dtype, block.start)
    found = predict_features(features, model, counts, calibrated)
    return {str(position): select(pair) for position, pair in enumerate(found)}


def _select_rows(
    rows: Any,
    model: PrototypeSet,
    columns: tuple[Column, ...],
    counts: tuple[int, ...],
    select: Any,
    calibrated: bool,
) -> NDArray[Any]:
    rows = unmasked(rows)
    table = frame_table(rows, columns) if hasattr(rows, "columns") else matrix_table(rows, columns)
    features = encoded(table, columns, feature_dtype(rows), among=" of a chunk")
    selected = map(select, predict_features(features, model, counts, calibrated))
    return np.concatenate([part[:, None] if part.ndim == 1 else part for part in selected], axis=1)
