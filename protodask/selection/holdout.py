"""What held-out rows say of a model: their log-loss, and how many of them are classified right.

And what the fits of a cross-validation share: the data of each fold's training.

`N` rows, `D` features, `K` classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from protodask.data.arrays.keyed import dealt
from protodask.data.format.schema import FEATURES, GROUP, TARGET, row_weights
from protodask.engine import Block, Engine, Reduction, Source, add_records, identity
from protodask.engine.records import merged_by
from protodask.engine.together import Company, all_together
from protodask.prototypes.batches import Batch
from protodask.prototypes.candidates import SCORES
from protodask.prototypes.config import FitConfig
from protodask.prototypes.draws import held_out_parts, trained_on, without_fold
from protodask.prototypes.fitted import probabilities
from protodask.prototypes.kernel import ScoreKernel
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.rounds import marginal_loss
from protodask.prototypes.tiles import Precision
from protodask.prototypes.training_data import TrainingData

Floats = NDArray[np.float64]

JUDGED = "judged"
"""Name of the weights (N,) by which a fold's rows are judged, in a block of the rows that its fits are trained on. They
are other rows than those by which a training may stop."""


@dataclass(frozen=True)
class LossSums:
    """Sums over rows of weight `s`; merges as a monoid, divided once."""

    weight: float
    """`sum s`."""
    loss: float
    """`sum s -log p_y`, in nats."""

    @property
    def mean(self) -> float:
        return self.loss / self.weight


Kernels = tuple[ScoreKernel, ...]


def _prepare(batches: Sequence[Batch], marginals: Floats, precision: Precision, *others: object) -> tuple[object, ...]:
    return tuple(batch.kernel(len(marginals), precision) for batch in batches), marginals, *others


def _sums(scores: Floats, target: NDArray[np.integer], weight: Floats) -> LossSums:
    """The sums over rows of some unscaled probabilities."""
    own = scores[np.arange(len(target)), target] / scores.sum(axis=1)
    return LossSums(float(weight.sum()), -float(weight @ np.log(own)))


def _held_out_scores(
    block: Block, rows: NDArray[np.int64], kernels: Kernels, marginals: Floats
) -> tuple[Floats, NDArray[np.integer], Floats]:
    """Unscaled probabilities, class and weight of the rows of a block that are held out."""
    before = block.arrays.get(SCORES)
    scores = np.tile(marginals, (len(rows), 1)) if before is None else before[rows]
    for kernel in kernels:
        kernel.add(block[FEATURES.name][rows], scores)
    return scores, block[TARGET.name][rows], block[JUDGED][rows]


def _loss_of_block(block: Block, kernels: Kernels, marginals: Floats) -> LossSums:
    rows = np.flatnonzero(block[JUDGED])
    if len(rows) == 0:
        return LossSums(0.0, 0.0)
    return _sums(*_held_out_scores(block, rows, kernels, marginals))


HELD_OUT_LOSS: Reduction[LossSums, LossSums] = Reduction(_loss_of_block, add_records, identity, prepare=_prepare)
"""Log-loss of held-out rows after a round, from the scores before it. Arguments: its batches, marginals, precision."""


@dataclass(frozen=True, eq=False)
class RightSums:
    """Sums over rows of weight `s`; merges as a monoid, divided once. Rows, or groups, are dealt out to `G` parts."""

    weight: float
    """`sum s`."""
    right: float
    """`sum s` over the rows whose most probable class, the first if several are, is their own."""
    heaviest: float = field(metadata=merged_by(max))
    """`max s`."""
    parts: Floats
    """`sum s` over the right rows and over all rows of each part (2, G)."""


def _right_of_block(block: Block, kernels: Kernels, marginals: Floats, n_parts: int) -> RightSums:
    rows = np.flatnonzero(block[JUDGED])
    if len(rows) == 0:
        return RightSums(0.0, 0.0, 0.0, np.zeros((2, n_parts)))
    scores, target, weight = _held_out_scores(block, rows, kernels, marginals)
    right = probabilities(scores).argmax(axis=1) == target
    own = dealt(block.arrays.get(GROUP.name, block.rows)[rows], n_parts)
    by_part = [np.bincount(own, weights=values, minlength=n_parts) for values in (weight * right, weight)]
    return RightSums(float(weight.sum()), float(weight[right].sum()), float(weight.max()), np.stack(by_part))


HELD_OUT_RIGHT: Reduction[RightSums, RightSums] = Reduction(_right_of_block, add_records, identity, prepare=_prepare)
"""How many held-out rows are classified right after a round, from the scores before it, or by the marginals alone.

Arguments: the batches of the round or none, marginals, precision, and the number of parts.
"""


def _loss_of_rows(block: Block, model: PrototypeSet) -> LossSums:
    weights = row_weights(block)
    weight = np.ones(block.n_rows) if weights is None else weights
    (scores,) = model.scores(block[FEATURES.name], [model.n_batches])
    return _sums(scores, block[TARGET.name], weight)


ROWS_LOSS: Reduction[LossSums, LossSums] = Reduction(_loss_of_rows, add_records, identity)
"""Log-loss of all rows of a source with a model."""


@dataclass(frozen=True)
class FoldData:
    """What one fold's fits are trained on, and how the marginals alone do on the fold."""

    fold: int
    data: TrainingData
    marginal_loss: float


def fold_parts(
    engine: Engine,
    folded: Source,
    data: TrainingData,
    n_folds: int,
    config: FitConfig,
    grouped: bool,
    company: Company,
    most: int,
) -> list[FoldData]:
    """The data of each fold's training: what is standardised, and how, is a matter of the rows trained on.

    The settings may hold some of those out in turn, whole groups if the rows are `grouped`.
    """

    def part(fold: int, own: Engine) -> FoldData:
        kept = trained_on(own, data, without_fold(folded, fold, JUDGED))
        (trained,) = held_out_parts(own, kept, config, grouped)
        held_out = data.summary.class_weight - kept.summary.class_weight
        return FoldData(fold, trained, marginal_loss(trained.summary.class_weight, held_out))

    return all_together(engine, [partial(part, fold) for fold in range(n_folds)], company=company, most=most)
