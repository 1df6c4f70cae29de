"""Scoring a source into a store, block by block."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.array_store import ArraySpec, ArrayStore, store_key
from protodask.data.dataset import Dataset
from protodask.data.records import RecordKind, seal
from protodask.data.schema import GROUP, Label
from protodask.data.storage import (
    MARKER,
    Kind,
    is_url,
    locate,
    published,
    read_marker,
    storage_errors,
    write_marker,
)
from protodask.engine import Arrays, EngineLike, Sink, Source, open_engine
from protodask.errors import InputError, StorageError
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
    count = model.calibrated_batches(n_batches) if calibrated else model.batch_counts(n_batches)[0]
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
    as_parquet = where.endswith(".parquet")
    if as_parquet:
        _check_parquet(where)
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
    """Writes each block as a file of its own.

    The identity is part of the names: who lists the folder of one writing finds none of the files of another.
    """

    folder: str
    classes: tuple[Label, ...]
    identity: str
    columns: tuple[str, ...] = field(default=("row", PREDICTED, FAMILIARITY))

    def write(self, number: int, start: int, arrays: Arrays) -> None:
        import pyarrow
        import pyarrow.parquet

        probability = arrays[PROBABILITY]
        columns: dict[str, Any] = {
            "row": np.arange(start, start + len(probability), dtype=np.int64),
            PREDICTED: pyarrow.array(_labels(self.classes)).take(pyarrow.array(arrays[PREDICTED])),
            FAMILIARITY: arrays[FAMILIARITY],
            **({GROUP.name: arrays[GROUP.name]} if GROUP.name in arrays else {}),
        }
        for position, label in enumerate(self.classes):
            columns[f"{PROBABILITY}_{label}"] = probability[:, position]
        with storage_errors(self.folder, "writing"):
            if read_marker(self.folder) is None:
                raise StorageError(
                    f"{self.folder} is gone while it was being written.",
                    "Look for the error before this one, and repeat.",
                )
            path = os.path.join(self.folder, f"part-{number:06d}-{self.identity}.parquet")
            pyarrow.parquet.write_table(pyarrow.table(columns), path, write_page_checksum=True)


def _labels(classes: tuple[Label, ...]) -> list[Label] | NDArray[Any]:
    """Labels of one type: text as soon as they are mixed."""
    kinds = {type(label) for label in classes}
    return list(classes) if len(kinds) == 1 else [str(label) for label in classes]


def _check_parquet(where: str) -> None:
    if is_url(where):
        raise InputError(
            "Predictions as Parquet are written to local folders only.",
            "Write a Zarr store there, or use a local path.",
        )
    try:
        import pyarrow.parquet  # noqa: F401 - asked for before any work is done
    except ImportError as error:
        raise InputError(
            "Writing Parquet needs pyarrow, which is not installed.",
            "Install protodask[tabular], or write a Zarr store by another suffix.",
        ) from error


def _parquet_sink(place: str, model: PrototypeSet, record: Mapping[str, Any]) -> Sink:
    with storage_errors(place, "writing"):
        os.makedirs(place)
        write_marker(place, record)
    return ParquetSink(place, model.classes, record["identity"])


__all__ = ["CALIBRATED", "MARKER", "PREDICTIONS", "predict"]
