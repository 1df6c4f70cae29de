"""What a model says of rows in memory, without a scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.tables.encoding import Unseen
from protodask.engine.records import Floats
from protodask.prototypes.fitted import FittedPrototypes, familiarity, probabilities
from protodask.scoring.formula import Formula
from protodask.scoring.rows import RowReader

TILE_ENTRIES = 2**18
"""Kernel values, and pieces of normal scores and levels, that are computed at a time: 2 MiB."""


class Scorer:
    """What a model says of rows in memory: of one in microseconds, of many a tile at a time.

    Rows are a matrix of the columns of the table it was trained on, or of its features; a data frame of any library or
    a mapping of columns by name; or records, one or several. They are rounded as the model reads features, and all
    after that is float64: what `protodask predict` says of a model in float32 agrees within that precision.
    """

    def __init__(self, model: FittedPrototypes) -> None:
        self._model = model
        self._reader = RowReader(model)
        self._formulas: dict[int, Formula] = {}

    def predict_proba(
        self, rows: Any, *, n_batches: int | None = None, calibrated: bool = False, unseen: Unseen = "error"
    ) -> Floats:
        """Probabilities (N, K), in the order of `model.classes`."""
        count = self._model.scored_batches(n_batches, calibrated)
        return self._probabilities(self._unscaled(rows, count, unseen), calibrated)

    def predict(
        self, rows: Any, *, n_batches: int | None = None, calibrated: bool = False, unseen: Unseen = "error"
    ) -> NDArray[Any]:
        """The most probable class of each row, the first if several are (N,)."""
        found = self.predict_proba(rows, n_batches=n_batches, calibrated=calibrated, unseen=unseen)
        labels: NDArray[Any] = self._labels[found.argmax(axis=1)]
        return labels

    def familiarity(self, rows: Any, *, n_batches: int | None = None, unseen: Unseen = "error") -> Floats:
        """`sum_k q_k - 1` (N,): how much evidence the model has."""
        return familiarity(self._unscaled(rows, self._model.scored_batches(n_batches), unseen))

    def predict_table(
        self,
        rows: Any,
        *,
        keep: Sequence[str] = (),
        n_batches: int | None = None,
        calibrated: bool = False,
        unseen: Unseen = "error",
    ) -> Any:
        """All of this as a table of the kind of the rows, with the columns that `protodask.predict` writes.

        Those to `keep` are among them, as they are. A frame of pandas stays one, with its index, one of Polars stays
        one, and so does a table of Arrow. Of rows of xarray it is a data set with their coordinates, lazy if they are
        of dask. Any other stream of Arrow's, such as a DuckDB relation, becomes a stream (`pyarrow.RecordBatchReader`)
        that is computed as it is read, so that neither is in memory as a whole.
        """
        from protodask.scoring.scored_tables import TableScorer

        count = self._model.scored_batches(n_batches, calibrated)

        def answers(table: Any, first_row: int) -> tuple[Floats, Floats]:
            unscaled = self._unscaled(table, count, unseen, first_row)
            return self._probabilities(unscaled, calibrated), familiarity(unscaled)

        kept = tuple(keep)
        wanted = partial(self._reader.columns_of, kept=kept)
        return TableScorer(answers, wanted, self._model.classes, self._labels, kept).score(rows)

    def _probabilities(self, unscaled: Floats, calibrated: bool) -> Floats:
        found = probabilities(unscaled)
        if calibrated and self._model.calibration is not None:
            return self._model.calibration.apply(found)
        return found

    @cached_property
    def _labels(self) -> NDArray[Any]:
        labels = np.array(self._model.classes)
        return labels if labels.tolist() == list(self._model.classes) else np.array(self._model.classes, dtype=object)

    def _unscaled(self, rows: Any, count: int, unseen: Unseen, first_row: int = 0) -> Floats:
        formula = self._formulas.get(count)
        if formula is None:
            formula = self._formulas[count] = Formula.of(self._model, count)
        features = self._reader.features(rows, unseen, first_row)
        length = max(1, TILE_ENTRIES // max(1, formula.row_entries))
        if len(features) <= length:
            return formula.unscaled(features)
        return np.concatenate([formula.unscaled(features[at : at + length]) for at in range(0, len(features), length)])
