"""Models that ask for no more than they look at."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from protodask.errors import InputError
from protodask.prototypes.model import Batch, Integers, PrototypeSet
from protodask.prototypes.persistence import model_fingerprint

SHRUNK = "shrunk"
"""Where the provenance of a model keeps what it was shrunk from."""


def shrink(model: PrototypeSet) -> PrototypeSet:
    """The same model without the columns it does not look at: on the others, it says the same to the last bit.

    What is left out or kept are whole columns of raw tables. A nominal column of which some categories only are active
    stays with all of them: else a table with the others would be refused for unknown categories, and no dataset could
    be ingested that has the model's features. Raw tables may still have the columns that were left out; datasets and
    matrices must be without them.
    """
    active = model.active_features
    if len(active) == 0:
        raise InputError(
            "too-few",
            "The model looks at no feature, so that nothing would be left of it.",
            "Use its marginals: they are what it says of every row.",
        )
    widths = [len(column.feature_names) for column in model.columns]
    column_of = np.repeat(np.arange(len(widths)), widths)
    needed = np.zeros(len(widths), dtype=np.bool_)
    needed[column_of[active]] = True
    if needed.all():
        return model
    kept = np.flatnonzero(needed[column_of])
    columns = list(zip(model.columns, needed.tolist(), strict=True))
    return replace(
        model,
        feature_names=tuple(model.feature_names[index] for index in kept.tolist()),
        columns=tuple(column for column, stays in columns if stays),
        other_names=(*model.other_names, *(column.name for column, stays in columns if not stays)),
        batches=tuple(_renumbered(batch, kept) for batch in model.batches),
        provenance={
            **model.provenance,
            SHRUNK: {"model": model_fingerprint(model), "features": model.n_features, "kept": len(kept)},
        },
    )


def _renumbered(batch: Batch, kept: Integers) -> Batch:
    differences = batch.differences
    if differences is not None:
        others = np.where(differences.others < 0, -1, np.searchsorted(kept, differences.others))
        differences = replace(differences, others=others.astype(np.int64))
    index = np.searchsorted(kept, batch.feature_index).astype(np.int64)
    return replace(batch, feature_index=index, differences=differences)
