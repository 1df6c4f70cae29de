"""The model that users hold: it answers of rows, and is shrunk, saved and loaded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from protodask.engine.records import Floats, Integers
from protodask.errors import InputError, count
from protodask.prototypes.batches import Batch
from protodask.prototypes.fitted import FittedPrototypes

if TYPE_CHECKING:
    from protodask.data.tables.encoding import Unseen
    from protodask.scoring.scorer import Scorer

SHRUNK = "shrunk"
"""Where the provenance of a model keeps what it was shrunk from."""


@dataclass(frozen=True)
class PrototypeSet(FittedPrototypes):
    """A fitted prototype set classifier."""

    def __repr__(self) -> str:
        features, batches = count(self.n_features, "feature"), count(self.n_batches, "batch", "batches")
        said = f"{count(self.n_classes, 'class', 'classes')}, {features}, {batches}"
        return f"<PrototypeSet of {self.target_name!r}: {said}, {count(self.n_prototypes, 'prototype')}>"

    def predict_proba(
        self, rows: Any, *, n_batches: int | None = None, calibrated: bool = False, unseen: Unseen = "error"
    ) -> Floats:
        """Probabilities of rows in memory (N, K), see `protodask.scoring.Scorer`: NumPy alone is needed."""
        return self._scorer.predict_proba(rows, n_batches=n_batches, calibrated=calibrated, unseen=unseen)

    def predict(
        self, rows: Any, *, n_batches: int | None = None, calibrated: bool = False, unseen: Unseen = "error"
    ) -> NDArray[Any]:
        """The most probable class of rows in memory (N,)."""
        return self._scorer.predict(rows, n_batches=n_batches, calibrated=calibrated, unseen=unseen)

    def familiarity(self, rows: Any, *, n_batches: int | None = None, unseen: Unseen = "error") -> Floats:
        """`sum_k q_k - 1` of rows in memory (N,)."""
        return self._scorer.familiarity(rows, n_batches=n_batches, unseen=unseen)

    def predict_table(
        self,
        rows: Any,
        *,
        keep: Sequence[str] = (),
        n_batches: int | None = None,
        calibrated: bool = False,
        unseen: Unseen = "error",
    ) -> Any:
        """All of these as a table of the kind of the rows: pandas, Polars, Arrow and its streams, or xarray."""
        return self._scorer.predict_table(rows, keep=keep, n_batches=n_batches, calibrated=calibrated, unseen=unseen)

    def to_onnx(
        self,
        path: str | os.PathLike[str],
        *,
        n_batches: int | None = None,
        calibrated: bool = False,
        overwrite: bool = False,
    ) -> None:
        """Write what `predict_proba(rows, unseen="zero")` computes to a file, as a graph for ONNX runtimes."""
        from protodask.scoring.onnx_export import write_onnx

        write_onnx(self, path, n_batches=n_batches, calibrated=calibrated, overwrite=overwrite)

    @cached_property
    def _scorer(self) -> Scorer:
        from protodask.scoring.scorer import Scorer

        return Scorer(self)

    def __getstate__(self) -> dict[str, Any]:
        # What the scorer has worked out is not sent to workers.
        return {name: value for name, value in vars(self).items() if name != "_scorer"}

    def shrink(self) -> PrototypeSet:
        """The same model without the columns it does not look at: on the others, it says the same to the last bit.

        What is left out or kept are whole columns of raw tables. A nominal column of which some categories only are
        active stays with all of them: else a table with the others would be refused for unknown categories, and no
        dataset could be ingested that has the model's features. Raw tables may still have the columns that were left
        out; datasets and matrices must be without them.
        """
        from protodask.prototypes.persistence import model_fingerprint

        active = self.active_features
        if len(active) == 0:
            raise InputError(
                "too-few",
                "The model looks at no feature, so that nothing would be left of it.",
                "Use its marginals: they are what it says of every row.",
            )
        widths = [len(column.feature_names) for column in self.columns]
        column_of = np.repeat(np.arange(len(widths)), widths)
        needed = np.zeros(len(widths), dtype=np.bool_)
        needed[column_of[active]] = True
        if needed.all():
            return self
        kept = np.flatnonzero(needed[column_of])
        columns = list(zip(self.columns, needed.tolist(), strict=True))
        return replace(
            self,
            feature_names=tuple(self.feature_names[index] for index in kept.tolist()),
            columns=tuple(column for column, stays in columns if stays),
            other_names=(*self.other_names, *(column.name for column, stays in columns if not stays)),
            batches=tuple(_renumbered(batch, kept) for batch in self.batches),
            provenance={
                **self.provenance,
                SHRUNK: {"model": model_fingerprint(self), "features": self.n_features, "kept": len(kept)},
            },
        )

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write the model to a Zarr store, whole or not at all."""
        from protodask.prototypes.persistence import save_model

        save_model(self, path, overwrite=overwrite)


def load_model(path: str | os.PathLike[str]) -> PrototypeSet:
    """Read a model; whatever is wrong with it is a `FormatError`. `REGISTRY@ALIAS` is a version in a registry."""
    from protodask.prototypes.persistence import read_model

    return PrototypeSet(**vars(read_model(path)))


def _renumbered(batch: Batch, kept: Integers) -> Batch:
    differences = batch.differences
    if differences is not None:
        others = np.where(differences.others < 0, -1, np.searchsorted(kept, differences.others))
        differences = replace(differences, others=others.astype(np.int64))
    index = np.searchsorted(kept, batch.feature_index).astype(np.int64)
    return replace(batch, feature_index=index, differences=differences)
