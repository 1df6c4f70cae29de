"""Rows as the estimator is given them, in memory or not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from protodask.data.arrays.row_arrays import row_array
from protodask.data.arrays.values import TIMES, refuse_times
from protodask.data.arrays.zarr_arrays import ZarrArraysSource
from protodask.data.format.schema import FEATURES
from protodask.data.tables.encoding import encode_group, label_of
from protodask.data.tables.frames import column_values
from protodask.engine import Engine, Source, array_source
from protodask.engine.lazy import computed, is_lazy
from protodask.errors import InputError, count
from protodask.prototypes.config import FitConfig
from protodask.prototypes.fitting import StoredRows, fit_rows
from protodask.prototypes.forms import settled
from protodask.prototypes.history import BatchRecord, Callback
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.training_data import TrainingData


class RowsClassifierMixin(ClassifierMixin):  # type: ignore[misc]
    """A classifier of rows that need not be in memory."""

    def __sklearn_clone__(self) -> Self:
        # The engine is where to compute, not what: clones share it, and a connection cannot be copied.
        return type(self)(**self.get_params(deep=False))

    def _take_names(self, names: Sequence[object] | NDArray[Any] | None) -> None:
        """Have the names of the features as scikit-learn does: not at all where there are none."""
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The accuracy; of dask collections the predicted classes are computed."""
        check_given(y)
        given = (computed(column_values(values)) for values in (y, sample_weight))
        found, (labels, weight) = computed(self.predict(X)), map(column_values, given)
        check_given(labels)
        labels = settled_labels(labels)
        class_codes(np.asarray(labels))  # has better words for labels that are none
        return float(accuracy_score(labels, found, sample_weight=weight))


@dataclass(frozen=True)
class TrainingRows:
    """What an estimator trains on."""

    data: TrainingData
    labels: NDArray[Any]
    grouped: bool
    """Whether the rows say which of them belong together."""
    stored: StoredRows | None = None
    """Where they were written to, unless they are in memory."""

    def fit(
        self, config: FitConfig, engine: Engine, callbacks: Sequence[Callback], start: PrototypeSet | None
    ) -> tuple[PrototypeSet, list[BatchRecord]]:
        """What a fit to the rows, begun from a model if there is one, leaves behind."""
        data = self.data
        config = settled(config, data.source.layout.n_rows, data.columns, len(data.classes))
        return fit_rows(engine, data, config, self.grouped, self.stored, start, callbacks=callbacks)


def is_out_of_memory(value: object) -> bool:
    """Whether rows have to be computed, or read from a store."""
    return is_lazy(value) or type(value).__module__.partition(".")[0] == "zarr"


def check_dimensions(X: Any) -> None:
    """Refuse rows that are not in memory, and no matrix or table."""
    if getattr(X, "ndim", 0) != 2:
        raise InputError(
            "wrong-shape",
            f"A {type(X).__name__} of {count(getattr(X, 'ndim', 0), 'dimension')} is no matrix of rows and features.",
            "Give two dimensions: of a single feature x[:, None], or a frame of one column.",
        )


def stored_rows(X: Any) -> Source:
    """Zarr arrays as a source of features."""
    rows = row_array(X)
    if not rows.resident:
        return ZarrArraysSource.of(rows, checked=False, dtype=feature_dtype(rows))
    return array_source({FEATURES.name: check_array(X[...], dtype=[np.float64, np.float32], ensure_all_finite=False)})


@contextmanager
def numbers_asked_for() -> Iterator[None]:
    """Say of text in an array, which scikit-learn makes numbers of, what to give instead."""
    try:
        yield
    except ValueError as error:
        if not str(error).startswith("could not convert string to float"):
            raise
        raise InputError(
            "wrong-type",
            f"There is text in an array of rows ({error}).",
            "Give a data frame, whose columns of text are categories; the steps of a pipeline before this one make "
            "frames after their set_output(transform='pandas').",
        ) from error


def feature_dtype(X: Any) -> str:
    """float32 where that loses nothing, else float64; times are refused."""
    kinds = list(X.dtypes) if hasattr(X, "columns") else [getattr(X, "dtype", None)]
    for kind in kinds:
        refuse_times(kind)
    exact = all(
        isinstance(kind, np.dtype) and kind.kind in "biuf" and np.result_type(kind, np.float32) == np.float32
        for kind in kinds
    )
    return "float32" if exact else "float64"


def group_codes(groups: Any, n_rows: int) -> NDArray[np.int64]:
    """Which rows belong together, as codes (N,)."""
    shape = np.shape(groups)
    if len(shape) != 1 and shape[1:] != (1,):
        raise InputError("wrong-shape", f"The groups have the shape {shape}.", "Give one value for each row.")
    values = column_or_1d(groups)
    check_consistent_length(values, np.empty(n_rows))
    codes, problem = encode_group(values, "groups")
    if problem is not None:
        raise problem.error()
    return codes


def checked_labels(y: Any, n_rows: int) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The labels that there are, ascending, and which of them each sample has; of a column (N, 1), with a warning."""
    if getattr(y, "shape", ()) == (n_rows, 1):
        y = column_or_1d(column_values(y), warn=True)
    given = labels_given(y, n_rows)
    if not n_rows:
        raise InputError("no-rows", "There are no samples.", "Give samples of two classes or more.")
    labels, codes = class_codes(given)
    if len(labels) < 2:
        raise InputError("one-class", "All samples have the same label.", "Give samples of two classes or more.")
    return labels, codes


def class_codes(given: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The labels that there are, ascending, and which of them each row has."""
    try:
        with np.errstate(invalid="ignore"):  # it casts missing ones before it refuses them
            check_classification_targets(given)
        labels, codes = np.unique(given, return_inverse=True)
    except (TypeError, ValueError) as error:  # of types that do not go together, missing, or no classes
        _refuse_missing(np.array([label_of(label) is None for label in np.ravel(given).tolist()], dtype=bool))
        raise InputError(
            "bad-value",
            f"The labels are not those of classes ({str(error).rstrip('.')}).",
            "Name all classes by text, or all by whole numbers.",
        ) from None
    return labels, codes


def _refuse_missing(missing: NDArray[np.bool_]) -> None:
    """Refuse labels of which some are missing."""
    if missing.any():
        seen = f"Some labels are missing, the first one in row {missing.argmax():,} (counted from 0)."
        raise InputError("bad-value", seen, "Fill them in, or leave these rows out.")


def check_given(y: Any) -> None:
    """Refuse that there are no labels, and labels of pandas of which some are missing."""
    if y is None:
        seen = "There are no labels: this requires y to be passed, but the target y is None."
        raise InputError("setting-missing", seen, "Give the class of each row.")
    if hasattr(y, "isna") and not is_lazy(y):
        _refuse_missing(np.asarray(y.isna()))


def labels_given(y: Any, n_rows: int) -> NDArray[Any]:
    """A label for each sample (N,)."""
    check_given(y)
    given = np.asarray(settled_labels(column_values(y)))
    if given.shape != (n_rows,):
        raise InputError(
            "wrong-shape",
            f"There are labels of shape {given.shape} for {count(n_rows, 'sample')}.",
            "Give one label each.",
        )
    return given


def settled_labels(y: Any) -> Any:
    """Labels that are objects, or text of NumPy's own type, as whole numbers, truth values or text, if they are all of
    a kind; scikit-learn knows no others. Lists and arrays of numbers stay as they are.
    """
    given = np.asarray(y) if hasattr(y, "columns") else y
    if getattr(getattr(given, "dtype", None), "kind", "") not in ("O", "T"):
        return y
    values = np.asarray(given, dtype=object)
    kinds = set(map(type, values.flat))
    if kinds == {str}:
        return values
    _refuse_missing(np.array([label_of(label) is None for label in np.ravel(values).tolist()], dtype=bool))
    whole = all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds)
    found = np.asarray(values.tolist()) if whole or kinds <= {bool, np.bool_} else values
    return values if found.dtype.kind == "f" else found  # which would round some


def one_column(y: Any) -> Any:
    """Labels (N, 1) as a column (N,)."""
    if getattr(y, "ndim", 1) != 2 or y.shape[1] != 1:
        return y
    return y[y.columns[0]] if hasattr(y, "columns") else y[:, 0]


def codes_among(labels: NDArray[Any], known: NDArray[Any], codes: NDArray[Any]) -> NDArray[Any]:
    """Codes of `labels` as those of the same labels among `known`, which have to include them."""
    position = {label: index for index, label in enumerate(known.tolist())}
    unknown = [label for label in labels.tolist() if label not in position]
    if unknown:
        raise InputError(
            "columns-differ",
            f"The labels {unknown} did not occur when the model was first fitted.",
            "Give rows of the classes it was fitted to, or fit a new model.",
        )
    found: NDArray[Any] = np.array([position[label] for label in labels.tolist()])[codes]
    return found


def check_labels(dtype: Any) -> None:
    """Refuse labels that are times, bytes, records or complex numbers, which no model or file holds."""
    kind = getattr(dtype, "kind", "O")
    if names := getattr(dtype, "names", None):
        raise InputError(
            "wrong-type", f"The labels are records ({dtype}).", f"Give one of their fields: y[{names[0]!r}]."
        )
    if kind in TIMES or kind in "SVc":
        what = "times" if kind in TIMES else "complex numbers" if kind == "c" else "bytes"
        raise InputError("wrong-type", f"The labels are {what} ({dtype}).", "Turn them into text: y.astype(str).")


def plain_label(label: Any) -> Any:
    """A label as models and files hold it."""
    check_labels(getattr(label, "dtype", None))
    value = label.item() if hasattr(label, "item") else label
    return int(value) if isinstance(value, float) and value.is_integer() else value
