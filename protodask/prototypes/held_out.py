"""Holding a fold out: its rows count for nothing in training, and for everything in the loss they are judged by."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from protodask.data.format.schema import FEATURES, INCLUSION, TARGET, WEIGHT, row_weights
from protodask.data.format.summary import summarize
from protodask.engine import Block, Engine, Source
from protodask.engine.sources import ViewedSource
from protodask.prototypes.candidates import HELD_OUT, smallest_class
from protodask.prototypes.config import FitConfig
from protodask.prototypes.folds import FOLD, folded_source, make_folds
from protodask.prototypes.training import TrainingData


@dataclass(frozen=True)
class HoldOut:
    """What a fold's training sees of a block: the rows of the fold with weight 0."""

    fold: int
    name: str = HELD_OUT
    """Of the array with the weights that these rows have elsewhere."""
    spared: tuple[int, ...] = ()
    """Classes of which no row is held out."""

    def __call__(self, block: Block) -> Block:
        out = block[FOLD] == self.fold
        if self.spared:
            out &= ~np.isin(block[TARGET.name], self.spared)
        weights = row_weights(block)
        if weights is None:
            held, kept = out.astype(np.float64), (~out).astype(np.float64)
        else:
            held, kept = np.where(out, weights, 0.0), np.where(out, 0.0, weights)
        arrays = {name: array for name, array in block.arrays.items() if name not in {FOLD, INCLUSION.name}}
        return Block(block.number, block.start, {**arrays, WEIGHT.name: kept, self.name: held})


def without_fold(folded: Source, fold: int, name: str = HELD_OUT, spared: tuple[int, ...] = ()) -> Source:
    """A folded source as the training sees it that holds a fold out, see `HoldOut`."""
    words = [f"without-{fold}", *([] if name == HELD_OUT else [name]), *map(str, spared)]
    return ViewedSource(folded, HoldOut(fold, name, spared), "-".join(words))


def held_out_parts(engine: Engine, data: TrainingData, config: FitConfig, grouped: bool) -> list[TrainingData]:
    """What each of `config.n_draws` draws is trained on: all rows, or all but one of `round(1 / hold_out)` folds.

    One draw after the other holds out another fold; of whole groups if the rows are `grouped`. A class of which too few
    rows would be left to train on has none held out. To hold rows out takes a pass to draw them, and one for the
    statistics of the others in each fold.
    """
    if not config.hold_out:
        return [data] * config.n_draws
    n_classes, n_folds = len(data.classes), round(1 / config.hold_out)
    folds = make_folds(engine, data.source, n_classes, n_folds, config.seed, grouped, data.classes, few=True)
    folded, least = folded_source(data.source, folds), smallest_class(config.max_fraction)
    left = folds.class_rows.sum(axis=0) - folds.class_rows
    parts = [
        _without(engine, data, folded, fold, tuple(np.flatnonzero(left[fold] < least).tolist()))
        for fold in range(min(n_folds, config.n_draws))
    ]
    return [parts[draw % n_folds] for draw in range(config.n_draws)]


def _without(engine: Engine, data: TrainingData, folded: Source, fold: int, spared: tuple[int, ...]) -> TrainingData:
    kept = trained_on(engine, data, without_fold(folded, fold, spared=spared))
    weight = data.summary.class_weight - kept.summary.class_weight
    return replace(kept, held_out_weight=float(weight.sum()))


def trained_on(engine: Engine, data: TrainingData, source: Source) -> TrainingData:
    """The data as they are without the rows that a source weighs with 0."""
    names = FEATURES.name, TARGET.name, WEIGHT.name
    return replace(data, source=source, array_names=names, summary=summarize(engine, source, len(data.classes)))
