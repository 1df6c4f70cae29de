"""Scoring uncertain rows into a store, block by block."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from protodask.data.arrays.plain_arrays import ArraySpec
from protodask.data.format.dataset import Dataset
from protodask.data.format.schema import Label
from protodask.data.places.locations import locate
from protodask.data.places.records import RecordKind
from protodask.data.places.storage import check_outside
from protodask.data.tables.table_files import label_column, published_rows
from protodask.engine import Arrays, Block, EngineLike, Source, open_engine
from protodask.robust.kept_terms import RowsOfBlock
from protodask.robust.model import RobustModel, codes_of, robust_fingerprint
from protodask.robust.passes import tiles

ROBUST_PREDICTIONS = RecordKind(
    "robust predictions",
    "protodask-robust-predictions",
    1,
    "Make them with `protodask robust predict`.",
    "Predict again, or restore the predictions from a copy.",
)

PREDICTED, DECISION, CERTIFIED = "predicted", "decision", "certified_eps"


def predict_block(block: Block, model: RobustModel, rows_of: RowsOfBlock, formulation: str) -> Arrays:
    """Index of the predicted class, `w.m - b` of each plane and the certified eps of the rows of a block."""
    found: dict[str, Any] = {
        PREDICTED: np.empty(block.n_rows, dtype=np.int32),
        DECISION: np.empty((block.n_rows, len(model.weights))),
        CERTIFIED: np.empty(block.n_rows),
    }
    for tile in tiles(block):
        own = slice(tile.start - block.start, tile.stop - block.start)
        rows = rows_of(tile)
        found[DECISION][own] = decision = model.decision(rows)
        found[PREDICTED][own] = codes_of(decision)
        found[CERTIFIED][own] = model.certified_eps(rows, formulation)
    return found


def predict_robust(
    model: RobustModel,
    source: Source,
    rows_of: RowsOfBlock,
    out: str | os.PathLike[str],
    engine: EngineLike = None,
    *,
    formulation: str | None = None,
    overwrite: bool = False,
) -> int:
    """Write predicted class, decision and certified eps of every row to `out`; returns the number of rows.

    A place that ends in `.parquet` becomes a folder with a file for each block, one that ends in `.csv` a file (columns
    `row`, `predicted`, `certified_eps` and `decision`, or `decision_<class>` for each of more than two classes); any
    other a Zarr group with the arrays `predicted` (N,), indices into the attribute `classes`, `decision` (N, P) and
    `certified_eps` (N,). All of it appears or nothing.
    """
    name = model.certifying(formulation)
    where = locate(out)
    if isinstance(source, Dataset):
        check_outside(where, source.path)
    record = {
        "model": robust_fingerprint(model),
        "formulation": name,
        "classes": list(model.classes),
        "rows": source.layout.n_rows,
    }
    arrays = (
        ArraySpec(PREDICTED, "int32"),
        ArraySpec(DECISION, "float64", len(model.weights)),
        ArraySpec(CERTIFIED, "float64"),
    )
    columns = partial(_columns, model.classes)
    with (
        published_rows(where, overwrite, ROBUST_PREDICTIONS, record, source.layout, arrays, columns) as sink,
        open_engine(engine) as opened,
    ):
        rows = opened.map(source, predict_block, opened.share(model), rows_of, name, sink=sink, label="predict")
        opened.forget(source)
    return rows


def _columns(classes: Sequence[Label], start: int, arrays: Arrays) -> dict[str, Any]:
    decision = arrays[DECISION]
    named_by = [DECISION] if decision.shape[1] == 1 else [f"{DECISION}_{label}" for label in classes]
    return {
        "row": np.arange(start, start + len(decision), dtype=np.int64),
        PREDICTED: label_column(classes, arrays[PREDICTED]),
        CERTIFIED: arrays[CERTIFIED],
        **dict(zip(named_by, decision.T, strict=True)),
    }
