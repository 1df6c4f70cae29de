"""What a model says of rows in memory, without a scheduler."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.tables.encoding import Unseen
from protodask.prototypes.model import PrototypeSet, familiarity, probabilities
from protodask.scoring.formula import Floats, Formula
from protodask.scoring.rows import RowReader

TILE_ENTRIES = 2**18
"""Kernel values, and pieces of normal scores and levels, that are computed at a time: 2 MiB."""


class Scorer:
    """What a model says of rows in memory: of one in microseconds, of many a tile at a time.

    Rows are a matrix of the columns of the table it was trained on, or of its features; a data frame of any library or
    a mapping of columns by name; or records, one or several. They are rounded as the model reads features, and all
    after that is float64: what `protodask predict` says of a model in float32 agrees within that precision.
    """

    def __init__(self, model: PrototypeSet) -> None:
        self._model = model
        self._reader = RowReader(model)
        self._formulas: dict[int, Formula] = {}

    def predict_proba(
        self, rows: Any, *, n_batches: int | None = None, calibrated: bool = False, unseen: Unseen = "error"
    ) -> Floats:
        """Probabilities (N, K), in the order of `model.classes`."""
        count = self._model.scored_batches(n_batches, calibrated)
        found = probabilities(self._unscaled(rows, count, unseen))
        if calibrated and self._model.calibration is not None:
            return self._model.calibration.apply(found)
        return found

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

    @cached_property
    def _labels(self) -> NDArray[Any]:
        labels = np.array(self._model.classes)
        return labels if labels.tolist() == list(self._model.classes) else np.array(self._model.classes, dtype=object)

    def _unscaled(self, rows: Any, count: int, unseen: Unseen) -> Floats:
        formula = self._formulas.get(count)
        if formula is None:
            formula = self._formulas[count] = Formula.of(self._model, count)
        features = self._reader.features(rows, unseen)
        length = max(1, TILE_ENTRIES // max(1, formula.row_entries))
        if len(features) <= length:
            return formula.unscaled(features)
        return np.concatenate([formula.unscaled(features[at : at + length]) for at in range(0, len(features), length)])
