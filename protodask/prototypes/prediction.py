"""Scoring a source into a store, block by block."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from protodask.data.array_store import ArraySpec, ArrayStore, store_key
from protodask.data.dataset import Dataset
from protodask.data.parquet_folder import check_parquet, create_folder, is_parquet, label_column, write_part
from protodask.data.records import RecordKind, seal
from protodask.data.schema import GROUP, Label
from protodask.data.storage import MARKER, Kind, locate, published
from protodask.engine import Arrays, EngineLike, Sink, Source, open_engine
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.persistence import model_fingerprint
from protodask.prototypes.scoring import FAMILIARITY, PREDICTED, PROBABILITY, predict_block

PREDICTIONS = Kind("predictions", "protodask-predictions")
PREDICTIONS_VERSION = 1

CALIBRATED = "calibrated"
"""Field of the record of calibrated predictions; it is not there where they are raw, as it was not in the past."""

RECORD = RecordKind(
    "predictions",
    PREDICTIONS.format,
    PREDICTIONS_VERSION,
    "Make them with `protodask predict`.",
    "Predict again, or restore the predictions from a copy.",
)


def predict(
    model: PrototypeSet,
    source: Source,
    out: str | os.PathLike[str],
    *,
    n_batches: int | None = None,
    calibrated: bool = False,
    engine: EngineLike = None,
    overwrite: bool = False,
) -> int:
    """Write probabilities, familiarity and predicted class of every row to `out`; returns the number of rows.

    A place that ends in `.parquet` becomes a folder with a file for each block (columns `row`, `predicted`,
    `familiarity`, and `probability_<class>` for each class); any other becomes a Zarr group with the arrays
    `probability` (N, K), `familiarity` (N,) and `predicted` (N,), indices into the attribute `classes`. Where a
    dataset says which group a row belongs to, its predictions have `group` (N,), too. Either appears whole or not at
    all. In an object store the arrays lie in the group that the attribute `generation` names. The
    record, in the attributes or the file `_protodask.json`, has an `identity` of its own for each writing: who reads
    while others overwrite compares it before and after.

    `calibrated` predictions are those of the model's calibration, the predicted class too; `calibrated` in the record
    says so. The familiarity is as it was: it says how much evidence there is, not what for.
    """
    count = model.scored_batches(n_batches, calibrated)
    where = locate(out)
    record: dict[str, Any] = {
        "format": PREDICTIONS.format,
        "version": PREDICTIONS_VERSION,
        "model": model_fingerprint(model),
        "n_batches": count,
        "classes": list(model.classes),
        "rows": source.layout.n_rows,
        "identity": store_key(),
        **({CALIBRATED: True} if calibrated else {}),
    }
    record = seal(record, RECORD.name)
    as_parquet = is_parquet(where)
    if as_parquet:
        check_parquet(where, "Predictions")
    with open_engine(engine) as opened, published(where, overwrite, PREDICTIONS) as place:
        sink = _parquet_sink(place, model, record) if as_parquet else _zarr_sink(place, model, source, record)
        rows = opened.map(source, predict_block, opened.share(model), count, calibrated, sink=sink, label="predict")
        opened.forget(source)
    return rows


def _zarr_sink(place: str, model: PrototypeSet, source: Source, record: Mapping[str, Any]) -> Sink:
    arrays = (
        ArraySpec(PROBABILITY, "float64", model.n_classes),
        ArraySpec(FAMILIARITY, "float64"),
        ArraySpec(PREDICTED, "int32"),
        *((ArraySpec(GROUP.name, "int64"),) if isinstance(source, Dataset) and source.has_group else ()),
    )
    store = ArrayStore(place, source.layout, arrays, store_key())
    store.create(record)
    return store


@dataclass(frozen=True)
class ParquetSink:
    """Writes each block as a file of its own."""

    folder: str
    classes: tuple[Label, ...]
    identity: str
    columns: tuple[str, ...] = field(default=("row", PREDICTED, FAMILIARITY))

    def write(self, number: int, start: int, arrays: Arrays) -> None:
        probability = arrays[PROBABILITY]
        columns: dict[str, Any] = {
            "row": np.arange(start, start + len(probability), dtype=np.int64),
            PREDICTED: label_column(self.classes, arrays[PREDICTED]),
            FAMILIARITY: arrays[FAMILIARITY],
            **({GROUP.name: arrays[GROUP.name]} if GROUP.name in arrays else {}),
        }
        for position, label in enumerate(self.classes):
            columns[f"{PROBABILITY}_{label}"] = probability[:, position]
        write_part(self.folder, number, self.identity, columns)


def _parquet_sink(place: str, model: PrototypeSet, record: Mapping[str, Any]) -> Sink:
    create_folder(place, record)
    return ParquetSink(place, model.classes, record["identity"])


__all__ = ["CALIBRATED", "MARKER", "PREDICTIONS", "predict"]
