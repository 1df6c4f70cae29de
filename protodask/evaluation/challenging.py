"""Two models on the same rows, in one pass over them; see `paired` for what is made of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from protodask.data.format.schema import FEATURES, GROUP, TARGET
from protodask.engine import Block, EngineLike, Reduction, Source, add_records, identity, open_engine
from protodask.errors import InputError, some
from protodask.evaluation.given_rows import check_rows, check_weight, usable_weights
from protodask.evaluation.paired import (
    MOST_BLOCKS,
    Comparison,
    PairedLoss,
    PairedSums,
    check_bootstrap,
    compare_paired,
    group_bins,
    paired_sums,
    row_losses,
    run_rows,
)
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.rows_to_score import Codes, difference, in_another_order
from protodask.prototypes.scoring import predict_features


@dataclass(frozen=True)
class Rival:
    """A model, and the code that each of its classes has among all that either model or the rows have (K,)."""

    model: PrototypeSet
    codes: Codes


@dataclass(frozen=True)
class Blocks:
    """How rows are put together into blocks of the bootstrap."""

    first: int
    """Row that the first begins with; those before are left out."""
    rows: int
    """Rows of each, unless they are made of groups."""
    grouped: bool
    count: int


def _sum_pairs(
    block: Block, champion: Rival, challenger: Rival, codes: Codes, n_classes: int, loss: PairedLoss, blocks: Blocks
) -> PairedSums:
    weight = usable_weights(block)
    kept = block.rows >= blocks.first
    if weight is not None:
        kept &= weight > 0
    features, target = block[FEATURES.name][kept], codes[block[TARGET.name][kept]]
    losses = []
    for rival in (champion, challenger):
        ((probability, _),) = predict_features(features, rival.model, [rival.model.n_batches])
        losses.append(row_losses(probability, rival.codes, target, n_classes, loss))
    number = group_bins(block[GROUP.name]) if blocks.grouped else (block.rows - blocks.first) // blocks.rows
    weights = np.ones(len(target)) if weight is None else weight[kept]
    return paired_sums(number[kept], weights, losses[0], losses[1], blocks.count)


PAIRS: Reduction[PairedSums, PairedSums] = Reduction(_sum_pairs, add_records, identity)


def compare_models(
    champion: Rival,
    challenger: Rival,
    source: Source,
    codes: Codes,
    engine: EngineLike = None,
    *,
    grouped: bool = False,
    loss: PairedLoss = "log-loss",
    newest: int | None = None,
    margin: float = 0.0,
    confidence: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> Comparison:
    """Compare two models on a source of features and targets, or on its `newest` rows, in one pass.

    `codes` are those of the source's classes, in the same numbering as the rivals'; with `grouped` the source says
    which group a row belongs to. Memory is bounded whatever the number of rows. The result is the same to the last bit
    for any number of threads or workers.
    """
    n_rows = check_rows(source).layout.n_rows
    check_bootstrap(margin, confidence, draws, newest)
    first = 0 if newest is None else max(0, n_rows - newest)
    rows = run_rows(n_rows - first)
    blocks = Blocks(first, rows, grouped, MOST_BLOCKS if grouped else -(-(n_rows - first) // rows))
    with open_engine(engine) as opened:
        sums = opened.reduce(
            source,
            PAIRS,
            opened.share(champion),
            opened.share(challenger),
            codes,
            1 + max(int(numbers.max()) for numbers in (champion.codes, challenger.codes, codes)),
            loss,
            blocks,
            label="compare",
            blocks=range(first // source.layout.block_rows, source.layout.n_blocks),
        )
        opened.forget(source)
    check_weight(float(sums.weight.sum()))
    return compare_paired(sums, margin=margin, confidence=confidence, draws=draws, seed=seed, grouped=grouped)


def check_comparable(challenger: PrototypeSet, champion: PrototypeSet) -> None:
    """Refuse models of other features, of another order of their categories, or of classes of another type."""
    if challenger.feature_names != champion.feature_names:
        raise InputError(
            "columns-differ",
            "The model has other features than the champion: "
            f"{difference(champion.feature_names, challenger.feature_names)}.",
            "Compare models of the same features, or publish it without a comparison.",
        )
    if reordered := in_another_order(champion.columns, challenger.columns):
        raise InputError(
            "columns-differ",
            f"The model has {reordered[0]!r} in another order than the champion.",
            "Compare models of the same encoding, or publish it without a comparison.",
        )
    if set(map(type, challenger.classes)).isdisjoint(map(type, champion.classes)):
        # None of the one would be a class of the other, and whoever the rows are written for would win.
        own, others = (some(list(map(repr, model.classes))) for model in (challenger, champion))
        raise InputError(
            "columns-differ",
            f"The classes of the model are {own}, those of the champion {others}: they are of different types.",
            "Compare models trained on classes of one type, or publish it without a comparison.",
        )
