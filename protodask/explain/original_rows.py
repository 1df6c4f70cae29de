"""Prototypes as they were in the training data: every value of the source table, features decoded to its columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.format.dataset import Dataset
from protodask.data.format.schema import FEATURES, TARGET, Column, Label
from protodask.engine import Engine, EngineLike, open_engine
from protodask.errors import InputError, count
from protodask.explain.explanation import Contribution
from protodask.places import mask
from protodask.prototypes.fitting import ADDED
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.table_model import fits_of

Value = float | Label | None
"""What a column of a row holds; None is missing, or a nominal value of none of the known categories."""


@dataclass(frozen=True)
class Prototype:
    """Which prototype of a model: batch from 1, position in it from 0; its row in the training data, and its class."""

    batch: int
    position: int
    row: int
    label: Label


def all_prototypes(model: PrototypeSet) -> tuple[Prototype, ...]:
    """Every prototype, batch by batch."""
    return tuple(
        Prototype(number, position, row, model.classes[code])
        for number, batch in enumerate(model.batches, start=1)
        for position, (row, code) in enumerate(zip(batch.row.tolist(), batch.prototype_class.tolist(), strict=True))
    )


@dataclass(frozen=True)
class OriginalRow(Prototype):
    """A row of the training data that became a prototype."""

    values: Mapping[str, Value]
    """By column of the source table if `complete`; else by feature, of those that the prototype's batch looks at."""
    complete: bool
    """Whether the values come from the training data; else they are what the model itself keeps, in raw units."""


def original_rows(
    model: PrototypeSet,
    prototypes: Sequence[Prototype | Contribution],
    training: Dataset | None = None,
    engine: EngineLike = None,
) -> tuple[OriginalRow, ...]:
    """The rows behind some prototypes, or the contributions of an explanation, in their order.

    `training` must be the dataset that the model, or at least one of its batches, was trained on: prototypes of batches
    trained on others keep what the model holds of them. Without it, all do.
    """
    if training is None:
        return tuple(_held(model, item) for item in prototypes)
    check_training(model, training)
    inside = [key == training.key for key in training_keys(model)]
    wanted = sorted({item.row for item in prototypes if inside[item.batch - 1]})
    with open_engine(engine) as opened:
        found = _take(training, wanted, opened)
    return tuple(
        OriginalRow(item.batch, item.position, item.row, *found[item.row], complete=True)
        if inside[item.batch - 1]
        else _held(model, item)
        for item in prototypes
    )


def check_training(model: PrototypeSet, training: Dataset) -> None:
    """Refuse a dataset that no batch of the model was trained on."""
    trained = training_keys(model)
    if training.key in trained:
        return
    known = sorted({key for key in trained if key is not None})
    if not known:
        raise InputError(
            "unsupported",
            "The model does not say which dataset it was trained on.",
            "Leave the training data out: only models of `fit()` know theirs. What the model itself holds of "
            "its prototypes is shown without it.",
        )
    raise InputError(
        "other-run",
        f"The dataset {mask(training.path)} has the fingerprint {training.key}, and the model was trained on "
        f"{' and '.join(known)}.",
        "Give the dataset as it was when the model was trained (`protodask info` shows fingerprints), or leave the "
        "training data out.",
    )


def training_keys(model: PrototypeSet) -> tuple[str | None, ...]:
    """Fingerprint of the dataset each batch was trained on, None where the model does not say."""
    keys: list[str | None] = []
    for fit in fits_of(model.provenance):
        if isinstance(fit.get("dataset"), str) and isinstance(fit.get("batches"), list):
            added = fit.get(ADDED, len(fit["batches"]))
            keys += [fit["dataset"]] * (added if type(added) is int and 0 <= added <= model.n_batches else 0)
    # Batches that came before all fits on datasets are those of an estimator, which leave no record.
    unknown = model.n_batches - len(keys)
    return (*(None,) * unknown, *keys) if unknown >= 0 else (None,) * model.n_batches


def _take(training: Dataset, rows: Sequence[int], engine: Engine) -> dict[int, tuple[Label, dict[str, Value]]]:
    if not rows:
        return {}
    if rows[-1] >= training.n_rows:  # a fingerprint vouches for the dataset, nothing for the row numbers of a model
        raise InputError(
            "damaged",
            f"The model has a prototype from row {rows[-1]}, and the dataset {mask(training.path)} has "
            f"{count(training.n_rows, 'row')}.",
            "Leave the training data out, or fit the model again.",
        )
    taken = engine.take(training, np.array(rows, dtype=np.int64), (FEATURES.name, TARGET.name), label="take")
    values = [decode_row(training.columns, features) for features in taken[FEATURES.name]]
    labels = [training.classes[code] for code in taken[TARGET.name].tolist()]
    return dict(zip(rows, zip(labels, values, strict=True), strict=True))


def _held(model: PrototypeSet, item: Prototype | Contribution) -> OriginalRow:
    batch = model.batches[item.batch - 1]
    known = batch.raw_values(item.position)
    values: dict[str, Value] = {model.feature_names[index]: known[index] for index in sorted(known)}
    return OriginalRow(item.batch, item.position, item.row, item.label, values, complete=False)


def decode_row(columns: Sequence[Column], features: NDArray[Any]) -> dict[str, Value]:
    """The values of the source table that features (D,) were encoded from, by column: the inverse of the encoding.

    A number that was stored as float32 comes back as the shortest decimal that float32 tells from its neighbours: 5.1,
    not 5.099999904632568.
    """
    if sum(len(column.feature_names) for column in columns) != len(features):
        raise ValueError(f"{len(features)} features do not make the columns")
    values: dict[str, Value] = {}
    first = 0
    for column in columns:
        part = features[first : first + len(column.feature_names)]
        first += len(part)
        if column.marked:
            if part[-1]:
                values[column.name] = None
                continue
            part = part[:-1]
        match column.kind:
            case "numeric":
                # The text of a NumPy float is the shortest that its own type reads back as the same number.
                values[column.name] = float(str(part[0]))
            case "nominal":
                present = np.flatnonzero(part)
                values[column.name] = column.categories[int(present[0])] if len(present) == 1 else None
            case "ordinal":
                position = float(part[0])
                inside = position.is_integer() and 0 <= position < len(column.categories)
                values[column.name] = column.categories[int(position)] if inside else position
    return values
