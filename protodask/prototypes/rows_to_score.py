"""The rows a model is to score: a dataset, or raw tables encoded as the model's training data were."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data import Dataset, Label, table_source
from protodask.data.format import segments
from protodask.data.format.schema import Column, LabelKey, label_numbers, numbers_of
from protodask.data.tables.encoding import BadRows, Unseen
from protodask.data.tables.source_files import check_present
from protodask.data.tables.tables import TableSource
from protodask.engine import Engine, Source
from protodask.errors import InputError, ProtodaskError, StorageError, some
from protodask.places import mask
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.table_model import TableModel, fits_of

Codes = NDArray[np.int64]


def is_dataset(path: str) -> bool:
    """Whether a dataset lies at a path; what cannot be read is none, and refused by who reads tables there."""
    with suppress(StorageError):
        return segments.is_dataset(path)
    return False


def rows_to_predict(
    model: TableModel,
    *paths: str,
    engine: Engine,
    unseen: Unseen = "error",
    bad_rows: BadRows = "error",
    drop: Sequence[str] = (),
    keep: Sequence[str] = (),
) -> Source:
    """The features in a dataset or in raw tables, one after the other; a target may be there or not.

    Columns of raw tables to `keep` are handed on with the rows, of which bad ones may be marked.
    """
    if path := next(filter(is_dataset, paths), None):
        if len(paths) > 1:
            raise InputError(
                "wrong-kind",
                f"{path} is a dataset, and {len(paths) - 1} more are to be predicted.",
                "Give one dataset, or raw tables alone.",
            )
        if keep:
            raise InputError(
                "column-missing",
                f"{path} is a dataset, which has features, and none of the columns {some(list(map(repr, keep)))}.",
                "Keep columns of raw tables, or keep none: the predictions are in the order of the dataset's rows.",
            )
        return _matching_dataset(model, path)
    return _table(
        model,
        paths,
        engine,
        unseen=unseen,
        bad_rows=bad_rows,
        drop=drop,
        target=model.target_name,
        classes=(),
        keep=keep,
    )


def with_advice(error: ProtodaskError) -> ProtodaskError:
    """An error, of a value that cannot be used with the advice to mark such rows."""
    advice = " Or have such rows marked (bad_rows='mark')." if error.code == "bad-value" else ""
    return type(error)(error.code, error.seen, f"{error.remedy}{advice}")


def marked_rows(source: Source) -> int:
    """How many rows of `rows_to_predict` are marked, as they cannot be scored."""
    return source.marked if isinstance(source, TableSource) else 0


def rows_to_evaluate(
    model: TableModel,
    path: str,
    *,
    engine: Engine,
    unseen: Unseen = "error",
    drop: Sequence[str] = (),
    target: str | None = None,
    weight: str | None = None,
    inclusion: str | None = None,
) -> tuple[Source, Codes]:
    """Features, targets and weights in a dataset or in raw tables, and the model's class of each target code."""
    source, classes = rows_of_any_class(
        model,
        path,
        classes=model.classes,
        engine=engine,
        unseen=unseen,
        drop=drop,
        target=target,
        weight=weight,
        inclusion=inclusion,
        known=True,
    )
    seen = f"The dataset {path} has classes the model does not know"
    remedy = "Evaluate on rows of the classes the model was trained on."
    return source, codes_of(classes or (), label_numbers(model.classes), seen, remedy)


def rows_of_any_class(
    model: TableModel,
    path: str,
    *,
    classes: Sequence[Label],
    engine: Engine,
    unseen: Unseen = "error",
    drop: Sequence[str] = (),
    target: str | None = None,
    weight: str | None = None,
    inclusion: str | None = None,
    known: bool = False,
) -> tuple[Source, tuple[Label, ...] | None]:
    """Features, weights and targets, and the class of each target code, whether the model knows it or not.

    Those of a dataset are its own, raw tables may have `classes`; None where a table has no targets, unless they
    have to be `known`.
    """
    if is_dataset(path):
        if target or weight or inclusion:
            raise InputError(
                "settings-conflict",
                f"{path} is a dataset, which knows its target and weights.",
                "Leave out `target`, `weight` and `inclusion`: they are for raw tables.",
            )
        dataset = _matching_dataset(model, path)
        return dataset, dataset.classes
    name = target or model.target_name
    source = _table(
        model, [path], engine, unseen=unseen, drop=drop, target=name, classes=classes, roles=(weight, inclusion)
    )
    encoder = source.encoder
    if (known or target is not None) and encoder.target_name is None:
        instead = "`predict()`" if isinstance(model, PrototypeSet) else "`protodask robust predict`"
        raise InputError(
            "column-missing",
            f"The table {path} has no column {name!r} with the true classes.",
            f"Name that column with `target`, or use {instead}, which needs none.",
        )
    roles = ("weight", weight, encoder.weight_name), ("inclusion", inclusion, encoder.inclusion_name)
    for what, column, found in roles:
        if column is not None and found is None:
            raise InputError(
                "column-missing",
                f"The table {path} has no column {column!r} for the {what}.",
                f"Check the name given with `{what}`.",
            )
    if encoder.target_name is not None:
        _warn_of_weights(model, path, source, {"weight": weight, "inclusion": inclusion}, drop)
    return source, None if encoder.target_name is None else tuple(classes)


def _warn_of_weights(
    model: TableModel, path: str, source: TableSource, given: Mapping[str, str | None], drop: Sequence[str]
) -> None:
    """Say so where a table has the column by which rows of the training counted, and nothing was said of it."""
    last: Mapping[str, Any] = next(reversed(fits_of(model.provenance)), {})
    for role, said in given.items():
        name = last.get(role)
        if said is None and isinstance(name, str) and name in source.table.left_out and name not in drop:
            warnings.warn(
                f"Rows of the training data count by their {role}, {name!r}, and those of {mask(path)} once each: name "
                f"the column with `{role}`, or leave it out with `drop`.",
                stacklevel=2,
            )


def _matching_dataset(model: TableModel, path: str) -> Dataset:
    dataset = Dataset.open(path)
    if dataset.feature_names != model.feature_names:
        raise InputError(
            "columns-differ",
            f"The dataset {path} has other features than the model: "
            f"{difference(model.feature_names, dataset.feature_names)}.",
            "Give a dataset ingested like the training data, or the raw tables themselves.",
        )
    check_columns(model, dataset, path)
    return dataset


class FilledOtherwiseWarning(UserWarning):
    """Missing values stand for something else in a dataset than they did in training."""


def check_columns(model: TableModel, dataset: Dataset, path: str) -> None:
    """Refuse a dataset with a column in another order than the model was trained on, and warn of one that has another
    mean where values are missing.
    """
    if reordered := in_another_order(model.columns, dataset.columns):
        raise InputError(
            "columns-differ",
            f"The dataset {path} has {reordered[0]!r} in another order than the model was trained on.",
            "Give a dataset ingested with the same order, or the raw tables themselves.",
        )
    trained = {column.name: column.filled for column in model.columns if column.marked and column.kind != "nominal"}
    otherwise = [
        f"{column.name!r} ({column.filled:.6g}, not {trained[column.name]:.6g})"
        for column in dataset.columns
        if column.filled is not None and not _alike(column.filled, trained.get(column.name, column.filled))
    ]
    if otherwise:
        warnings.warn(
            f"Where values are missing, the dataset {path} has the means of its own rows, not those that the model was "
            f"trained with: {some(otherwise)}. Give the raw tables themselves, or ingest them with the columns of the "
            "training data (`unless_in`, or split one dataset).",
            FilledOtherwiseWarning,
            stacklevel=2,
        )


def _alike(filled: float, trained: float | None) -> bool:
    """Whether two means are the same, but for the order in which they were added up."""
    return trained is None or math.isclose(filled, trained, rel_tol=1e-6, abs_tol=1e-12)


def in_another_order(expected: Sequence[Column], found: Sequence[Column]) -> list[str]:
    """Names of the columns whose categories are in another order than is expected."""
    orders = {column.name: column.categories for column in expected if column.kind == "ordinal"}
    ordinal = [column for column in found if column.kind == "ordinal"]
    return [column.name for column in ordinal if orders.get(column.name, column.categories) != column.categories]


def difference(expected: Sequence[str], found: Sequence[str]) -> str:
    """How features differ from those that are expected, in words."""
    lacking = [name for name in expected if name not in set(found)]
    besides = [name for name in found if name not in set(expected)]
    said = [f"it lacks {some(lacking)}"] if lacking else []
    said += [f"it has {some(besides)} besides"] if besides else []
    return " and ".join(said) or "they are in another order"


def codes_of(classes: Sequence[Label], known: Mapping[LabelKey, int], seen: str, remedy: str) -> Codes:
    """The numbers of some classes; `seen` begins the error about those that have none."""
    codes = numbers_of(classes, known)
    if unknown := [repr(label) for label, code in zip(classes, codes, strict=True) if code < 0]:
        raise InputError("columns-differ", f"{seen}: {some(unknown)}.", remedy)
    return codes


def _table(
    model: TableModel,
    paths: Sequence[str],
    engine: Engine,
    *,
    unseen: Unseen,
    drop: Sequence[str],
    target: str,
    classes: Sequence[Label],
    keep: Sequence[str] = (),
    bad_rows: BadRows = "error",
    roles: tuple[str | None, str | None] = (None, None),
) -> TableSource:
    for path in paths:
        check_present(path)
    weight, inclusion = roles
    return table_source(
        list(paths),
        read_columns(model, unseen),
        classes=classes,
        target_name=target,
        weight_name=weight,
        inclusion_name=inclusion,
        keep=keep,
        dropped=dropped_columns(model, drop, (target, weight, inclusion)),
        unseen=unseen,
        bad_rows=bad_rows,
        dtype=model.row_precision,
        engine=engine,
    )


def read_columns(model: TableModel, unseen: Unseen) -> tuple[Column, ...]:
    """The columns as they are read: with "zero", a prototype set takes what is missing for the mean."""
    return model.forgiving_columns if unseen == "zero" and isinstance(model, PrototypeSet) else tuple(model.columns)


def dropped_columns(model: TableModel, drop: Sequence[str], others: Sequence[str | None]) -> list[str]:
    """Columns that tables may have and nobody reads, where `others` than features are read."""
    wanted = {*(column.name for column in model.columns), *others}
    return [*drop, *(name for name in model.other_names if name not in wanted)]
