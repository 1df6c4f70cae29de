"""How unusual a row's familiarity is among rows the model was not trained on.

Where held-out rows and a new row are exchangeable, the rank of the new one's familiarity among theirs is uniform, and

    p(f) = (1 + #{reference <= f}) / (1 + n)

is a p-value for "the model knows such rows": `P(p <= a) <= a` for every `a`, whatever the model and the distribution.
A small one says that the model has hardly ever seen such a thing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import add

import numpy as np

from protodask.data.format.schema import FEATURES, row_weights
from protodask.engine import Block, Engine, Reduction, Source, identity
from protodask.engine.records import Floats, Integers
from protodask.errors import InputError
from protodask.evaluation.row_sample import RowSample, sample_rows
from protodask.prototypes.candidates import priority
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.scoring import predict_features

MOST_ROWS = 10_000
"""Rows of a reference: p-values are known to within 0.01 then, and the sample takes 240 kB."""

DRAW = 0
"""Number of this draw beside those of the batches' candidates, which count from 1."""

RELATIVE_ROUNDING = 1e-5
ABSOLUTE_ROUNDING = 1e-9
"""Familiarities that differ by less count as equal: kernels of either precision and differences of sums round by so
much. Erring to that side makes p-values larger, so that they stay valid where many rows have the same familiarity."""


@dataclass(frozen=True)
class FamiliarityReference:
    """Familiarity of a sample of held-out rows."""

    familiarity: Floats
    """Ascending (n,)."""
    rows: Integers
    """Their row numbers (n,)."""
    n_rows: int
    """Rows of positive weight that the sample was drawn from."""
    n_batches: int
    """Batches of the model that were used: compare only what was computed with as many."""

    def p_value(self, familiarity: float) -> float:
        """`(1 + #{reference <= familiarity}) / (1 + n)`, with what differs by rounding alone counted as equal."""
        return (1 + self._at_most(familiarity)) / (1 + len(self.familiarity))

    def quantile(self, familiarity: float) -> float:
        """`#{reference <= familiarity} / n`: the share of held-out rows that are no more familiar."""
        return self._at_most(familiarity) / len(self.familiarity)

    def _at_most(self, familiarity: float) -> int:
        limit = familiarity + RELATIVE_ROUNDING * abs(familiarity) + ABSOLUTE_ROUNDING
        return int(np.searchsorted(self.familiarity, limit, side="right"))


def sample_familiarity(block: Block, model: PrototypeSet, n_batches: int, seed: int, most: int) -> RowSample:
    """The sample of a block, with familiarity: up to `most` of its rows of positive weight; only those are scored."""
    weights = row_weights(block)
    inside = np.arange(block.n_rows) if weights is None else np.flatnonzero(weights > 0)
    rows = block.rows[inside]
    sample = sample_rows(rows, np.ones(len(rows)), inside, most, priority(seed, DRAW, rows))
    ((_, familiarity),) = predict_features(block[FEATURES.name][sample.values], model, [n_batches])
    return replace(sample, values=familiarity)


SAMPLE: Reduction[RowSample, RowSample] = Reduction(sample_familiarity, add, identity)


def familiarity_reference(sample: RowSample, n_batches: int) -> FamiliarityReference:
    """The reference made of a sample of familiarities, each as often as it is there."""
    order = np.lexsort((sample.rows, sample.values))
    return FamiliarityReference(sample.values[order], sample.rows[order], sample.n_rows, n_batches)


def reference(
    model: PrototypeSet,
    source: Source,
    engine: Engine,
    *,
    n_batches: int | None = None,
    most: int = MOST_ROWS,
    seed: int = 0,
) -> FamiliarityReference:
    """Familiarity of at most `most` rows of a source of held-out rows, drawn uniformly among those of positive weight.

    The draw depends on the seed and the row numbers alone, not on how the rows are cut into blocks. Rows that the model
    was trained on are no reference: they are more familiar than new ones.
    """
    (count,) = model.batch_counts(None if n_batches is None else [n_batches])
    if most < 1:
        raise InputError("bad-setting", f"A reference of {most} rows is asked for.", "Give a number of rows from 1.")
    if source.layout.n_rows == 0:
        raise InputError("no-rows", "The held-out data has no rows.", "Give held-out rows.")
    sample = engine.reduce(source, SAMPLE, engine.share(model), count, seed, most, label="familiarity")
    engine.forget(source)
    if sample.n_rows == 0:
        raise InputError(
            "no-rows",
            "The held-out data has no row of positive weight to compare a familiarity with.",
            "Give held-out rows, at least some of them with a positive weight.",
        )
    return familiarity_reference(sample, count)
