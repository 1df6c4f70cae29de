"""Explaining rows of a dataset or of raw tables, and exporting what a model consists of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from protodask.data import Dataset, Label
from protodask.data.format.schema import FEATURES, TARGET
from protodask.data.tables.encoding import BadRows, Unseen
from protodask.data.tables.tables import TableSource
from protodask.engine import Engine, Source
from protodask.errors import InputError, count
from protodask.explain.contributions import explain_rows
from protodask.explain.exports import check_export, export, suffix_of
from protodask.explain.familiarity import FamiliarityReference, reference
from protodask.explain.original_rows import all_prototypes, check_training, decode_row, original_rows
from protodask.explain.tables import (
    Explained,
    Table,
    explanation_table,
    feature_weight_table,
    probability_table,
    prototype_table,
)
from protodask.places import mask
from protodask.prototypes.model import PrototypeSet, load_model
from protodask.prototypes.rows_to_score import rows_to_predict
from protodask.prototypes.setting_checks import check_count

What = Literal["prototypes", "weights"]


@dataclass(frozen=True)
class ExplainRequest:
    """Which rows of `data` to explain, and how; the fields are the options of the command."""

    model: str
    data: str
    rows: tuple[int, ...]
    training: str | None = None
    reference: str | None = None
    most: int = 10
    batches: int | None = None
    unseen: Unseen = "error"
    drop: tuple[str, ...] = ()
    out: str | None = None
    overwrite: bool = False


@dataclass(frozen=True)
class RowsExplained:
    """Explanations of some rows; they also lie at `path` if there is one."""

    model: PrototypeSet
    model_path: str
    data: str
    n_batches: int
    explained: tuple[Explained, ...]
    reference: FamiliarityReference | None
    path: str | None

    def values(self, entry: Explained) -> Mapping[str, Any]:
        """All values of a row, by column of the table it was or could have been read from."""
        return decode_row(self.model.columns, entry.features)

    def describe(self) -> dict[str, Any]:
        """Plain values, for files."""
        held_out = self.reference
        return {
            "kind": "explanations",
            "model": mask(self.model_path),
            "data": mask(self.data),
            "batches": self.n_batches,
            "classes": list(self.model.classes),
            "reference": None if held_out is None else {"rows": held_out.n_rows, "sampled": len(held_out.familiarity)},
            "rows": [self._describe(entry) for entry in self.explained],
        }

    def _describe(self, entry: Explained) -> dict[str, Any]:
        found, held_out = entry.explanation, self.reference
        return {
            "row": entry.row,
            "values": dict(self.values(entry)),
            "predicted": found.predicted,
            "actual": entry.actual,
            "probability": found.probability.tolist(),
            "familiarity": found.familiarity,
            "familiarity_quantile": None if held_out is None else held_out.quantile(found.familiarity),
            "familiarity_p_value": None if held_out is None else held_out.p_value(found.familiarity),
            "marginal_share": found.marginal_share,
            "marginal": found.marginal.tolist(),
            "dominant_size": found.dominant_size,
            "contributions": [
                {
                    **item.describe(),
                    "features": [match._asdict() for match in item.features],
                    "original": dict(original.values) if original is not None and original.complete else None,
                }
                for item, original in zip_longest(found.contributions, entry.originals)
            ],
            "others": found.others.tolist(),
        }


def check_request(request: ExplainRequest) -> None:
    """Refuse what cannot work whatever the model and the data."""
    if not request.rows:
        raise InputError("setting-missing", "No row is named.", "Name one or several with --row, counted from 0.")
    if min(request.rows) < 0:
        raise InputError("bad-setting", f"Row {min(request.rows)} is asked for.", "Rows are counted from 0.")
    check_count("most", request.most, 0)
    if request.batches is not None:
        check_count("batches", request.batches, 0)
    if request.out is not None:
        check_export(request.out, request.overwrite)


def explain_data(request: ExplainRequest, engine: Engine) -> RowsExplained:
    """Explain rows of a dataset or of raw tables, and write the explanations where that is asked for.

    An Excel file has a sheet of the rows and one of the parts of their probabilities; others have the latter.
    """
    check_request(request)
    model = load_model(request.model)
    (count,) = model.batch_counts(request.batches)
    training = None if request.training is None else Dataset.open(request.training)
    if training is not None:
        check_training(model, training)

    def source_at(path: str, bad_rows: BadRows = "error") -> Source:
        return rows_to_predict(model, path, engine=engine, unseen=request.unseen, bad_rows=bad_rows, drop=request.drop)

    rows = tuple(dict.fromkeys(request.rows))
    features, actual = _take(source_at(request.data, "mark"), request.data, rows, engine)
    held_out = None
    if request.reference is not None:
        held_out = reference(model, source_at(request.reference), engine, n_batches=request.batches)
    explanations = explain_rows(model, features, n_batches=request.batches, most=request.most)
    explained = tuple(
        Explained(
            row=row,
            features=values,
            explanation=found,
            actual=label,
            originals=() if training is None else original_rows(model, found.contributions, training, engine),
        )
        for row, values, found, label in zip(rows, features, explanations, actual, strict=True)
    )
    if request.out is not None:
        parts = explanation_table(model, explained)
        tables = [probability_table(explained, held_out), parts] if suffix_of(request.out) == ".xlsx" else parts
        export(tables, request.out, request.overwrite)
    return RowsExplained(model, request.model, request.data, count, explained, held_out, request.out)


def _take(
    source: Source, path: str, rows: Sequence[int], engine: Engine
) -> tuple[NDArray[Any], Sequence[Label | None]]:
    """Features of some rows (n, D), and their classes where the data has them."""
    n_rows = source.layout.n_rows
    beyond = [row for row in rows if row >= n_rows]
    if beyond:
        raise InputError(
            "bad-setting",
            f"{mask(path)} has {count(n_rows, 'row')}, and row {beyond[0]} is asked for.",
            f"Rows are counted from 0: give numbers up to {n_rows - 1}." if n_rows else "Give data with rows.",
        )
    if isinstance(source, TableSource):
        for row in rows:
            source.check(row)
    names = (FEATURES.name, TARGET.name) if isinstance(source, Dataset) else (FEATURES.name,)
    taken = engine.take(source, np.array(rows, dtype=np.int64), names, label="take")
    labels: Sequence[Label | None] = [None] * len(rows)
    if isinstance(source, Dataset):
        labels = [source.classes[code] for code in taken[TARGET.name].tolist()]
    return taken[FEATURES.name], labels


@dataclass(frozen=True)
class TablesWritten:
    """Tables of a model lie at `path`."""

    path: str
    tables: tuple[Table, ...]

    def describe(self) -> dict[str, Any]:
        """Plain values, for files."""
        return {
            "kind": "tables",
            "path": self.path,
            "tables": [
                {"name": table.name, "rows": table.n_rows, "columns": list(table.columns)} for table in self.tables
            ],
        }


def export_model(
    model_path: str, out: str, *, what: What | None, training: str | None, overwrite: bool, engine: Engine
) -> TablesWritten:
    """Write the prototypes of a model, its feature weights, or, to an Excel file, both.

    With its training data the prototypes are complete rows of that; else they have the features their batches look at.
    """
    both = what is None and suffix_of(out) == ".xlsx"
    chosen: tuple[What, ...] = ("prototypes", "weights") if both else (what or "prototypes",)
    if training is not None and "prototypes" not in chosen:
        raise InputError(
            "settings-conflict",
            "Training data is given, and no prototypes are to be written.",
            "Leave it out: weights do not need it.",
        )
    check_export(out, overwrite, len(chosen))
    model = load_model(model_path)
    tables: list[Table] = []
    if "prototypes" in chosen:
        dataset = None if training is None else Dataset.open(training)
        tables.append(prototype_table(model, original_rows(model, all_prototypes(model), dataset, engine)))
    if "weights" in chosen:
        tables.append(feature_weight_table(model))
    export(tables, out, overwrite)
    return TablesWritten(out, tuple(tables))
