"""Scoring a source into a store, block by block."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from protodask.data.arrays.plain_arrays import ArraySpec
from protodask.data.format.dataset import Dataset, no_dataset
from protodask.data.format.schema import GROUP
from protodask.data.places.locations import locate
from protodask.data.places.records import RecordKind
from protodask.data.places.storage import check_outside
from protodask.data.tables.table_files import published_rows
from protodask.data.tables.tables import TableSource
from protodask.engine import EngineLike, Source, open_engine
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.persistence import model_fingerprint
from protodask.prototypes.prediction_columns import FAMILIARITY, PREDICTED, PROBABILITY, check_kept, prediction_columns
from protodask.prototypes.scoring import predict_block

CALIBRATED = "calibrated"
"""Field of the record of calibrated predictions; it is not there where they are raw, as it was not in the past."""

KEPT_COLUMNS = "kept"
"""Field of the record of predictions with further columns, their names; it is not there where there are none."""

PREDICTIONS = RecordKind(
    "predictions",
    "protodask-predictions",
    1,
    "Make them with `predict()`.",
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

    A place that ends in `.parquet` becomes a folder with a file for each block, one that ends in `.csv` a file (columns
    `row`, `predicted`, `familiarity`, and `probability_<class>` for each class, besides those that a source of tables
    was told to keep); any other becomes a Zarr group with the arrays `probability` (N, K), `familiarity` (N,) and
    `predicted` (N,), indices into the attribute `classes`. Where a dataset says which group a row belongs to, its
    predictions have `group` (N,), too. All of it appears or nothing. In an object store the arrays lie in the group
    that the attribute `generation` names. The record, in the attributes or the file `_protodask.json`, has an
    `identity` of its own for each writing: who reads while others overwrite compares it before and after.

    Rows that the source marks, since their features cannot be used, have NaN for probabilities and familiarity, and no
    predicted class: -1 in an array, null in a table.

    `calibrated` predictions are those of the model's calibration, the predicted class too; `calibrated` in the record
    says so. The familiarity is as it was: it says how much evidence there is, not what for.
    """
    if not hasattr(source, "layout"):
        raise no_dataset(source)
    count = model.scored_batches(n_batches, calibrated)
    where = locate(out)
    if isinstance(source, Dataset):
        check_outside(where, source.path)
    kept = source.encoder.kept if isinstance(source, TableSource) else ()
    check_kept(kept, where)
    record: dict[str, Any] = {
        "model": model_fingerprint(model),
        "n_batches": count,
        "classes": list(model.classes),
        "rows": source.layout.n_rows,
        **({CALIBRATED: True} if calibrated else {}),
        **({KEPT_COLUMNS: list(kept)} if kept else {}),
    }
    arrays = (
        ArraySpec(PROBABILITY, "float64", model.n_classes),
        ArraySpec(FAMILIARITY, "float64"),
        ArraySpec(PREDICTED, "int32"),
        *((ArraySpec(GROUP.name, "int64"),) if isinstance(source, Dataset) and source.has_group else ()),
    )
    columns = partial(prediction_columns, model.classes)
    with (
        published_rows(where, overwrite, PREDICTIONS, record, source.layout, arrays, columns) as sink,
        open_engine(engine) as opened,
    ):
        rows = opened.map(source, predict_block, opened.share(model), count, calibrated, sink=sink, label="predict")
        opened.forget(source)
    return rows
