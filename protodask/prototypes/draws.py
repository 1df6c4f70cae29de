"""Independent draws of candidates, each trained by itself, averaged into one model.

`B` draws of `S_b(x)` each: `q = p0 + 1/B sum_b S_b(x)`, an ordinary model whose prototypes weigh a `B`-th. Where rows
are held out, each draw holds out another fold, whose rows count for nothing in training, but for its end, and for
everything in the loss it is judged by, so that all rows are trained on. Where draws take turns in how they weigh
features, and one way loses clearly more on the rows held out, its draws are not averaged: where a class is wide and
another narrow, weights that classes share lose 0.23 where those of each lose 0.07.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from protodask.data.format.schema import FEATURES, INCLUSION, TARGET, WEIGHT, row_weights
from protodask.data.format.summary import summarize
from protodask.engine import Block, Engine, Source
from protodask.engine.sources import ViewedSource
from protodask.engine.together import Company, all_together, choose_company
from protodask.prototypes.candidates import HELD_OUT, smallest_class
from protodask.prototypes.config import FitConfig
from protodask.prototypes.folds import FOLD, folded_source, make_folds
from protodask.prototypes.footprint import Shape, most_together
from protodask.prototypes.history import BatchRecord, Callback, FitEvent
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.runs import NO_LOG, RunLog
from protodask.prototypes.scores import ScoreKeeper
from protodask.prototypes.training import Training, first_model
from protodask.prototypes.training_data import TrainingData, forms_of

MOST_TOGETHER = 20
"""Fits that advance together, unless memory allows fewer: with more, reading is next to nothing of a pass as it is."""

SMALL_WORK, FEW_FEATURES = 4_000_000, 8
"""Rows times candidates of a batch times features as stored, which count as eight at least, below which a second thread
would wait for the interpreter more than it helps. With half a million a fit on two threads takes 1.2 to 1.8 times as
long as on one, with 4 to 20 million (digits, attrition, cells) 0.65 to 0.9 times."""


def how_together(
    engine: Engine, shape: Shape | None, n_rows: int, n_features: int, n_classes: int, config: FitConfig
) -> tuple[Company, int]:
    """The company that fits of a shape keep, and how many of them advance at a time; None where all is in memory."""
    if shape is None:
        company, most = choose_company(engine, 0), MOST_TOGETHER
    else:
        company = choose_company(engine, shape.data_bytes)
        most = min(MOST_TOGETHER, most_together(shape, engine.scheduler.processes()))
    work = n_rows * min(config.n_candidates, n_rows // 2) * max(n_features, FEW_FEATURES)
    if config.feature_weights != "shared":
        work //= n_classes
    if company == "side by side" and work < SMALL_WORK:
        most = 1
    return company, most


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
    weight = float((data.summary.class_weight - kept.summary.class_weight).sum())
    return replace(kept, held_out_weight=weight, whole=replace(data, source=folded) if weight else None)


def trained_on(engine: Engine, data: TrainingData, source: Source) -> TrainingData:
    """The data as they are without the rows that a source weighs with 0."""
    names = FEATURES.name, TARGET.name, WEIGHT.name
    return replace(data, source=source, array_names=names, summary=summarize(engine, source, len(data.classes)))


@dataclass(frozen=True)
class Fitting:
    """A fit of one draw or several: everything but the data."""

    config: FitConfig
    engine: Engine
    scores: Callable[[int], ScoreKeeper]
    """What keeps the scores of a draw, counted from 0, between its rounds."""
    log: RunLog = NO_LOG
    callbacks: Sequence[Callback] = ()

    def run(
        self, data: TrainingData, grouped: bool, company: Company, most: int, start: PrototypeSet | None = None
    ) -> tuple[PrototypeSet, list[BatchRecord]]:
        """Add `config.n_batches` rounds to `start`, or to the marginals alone, and say how every draw went.

        At most so many draws advance at a time, in such a company; one alone does in this thread. Rows that are held
        out are whole groups if they are `grouped`.
        """
        first = first_model(data, self.config, start)
        if not self.config.n_batches:
            return first, []
        if self.config.n_draws > 1:
            # The same for all draws: of a value's place among all rows, and of thresholds that all rows agree on, those
            # that a draw holds out as well.
            data = replace(data, forms=forms_of(self.engine, data, self.config, self.log))
        parts = held_out_parts(self.engine, data, self.config, grouped)
        if len(parts) == 1:
            model, history = self._training(parts[0], 0, self.engine, self.callbacks).run(start)
            return replace(model, marginals=first.marginals), history

        def train(draw: int, engine: Engine, callbacks: Sequence[Callback]) -> tuple[PrototypeSet, list[BatchRecord]]:
            return self._training(parts[draw], draw, engine, callbacks).run(start)

        if most == 1:
            found = [train(draw, self.engine, self.callbacks) for draw in range(len(parts))]
        else:
            told = [_one_at_a_time(callback, threading.Lock()) for callback in self.callbacks]
            jobs = [partial(train, draw, callbacks=told) for draw in range(len(parts))]
            found = all_together(self.engine, jobs, company=company, most=min(most, len(jobs)), spread=True)
        models, histories = zip(*found, strict=True)
        kept = worth_averaging(
            [self.config.feature_weights_of(draw) for draw in range(len(parts))],
            [history[-1].held_out for history in histories],
            [data.summary.rows - part.summary.rows for part in parts],
        )
        model = averaged(first, [one for one, worth in zip(models, kept, strict=True) if worth])
        return model, [
            record if worth else replace(record, kept=False)
            for history, worth in zip(histories, kept, strict=True)
            for record in history
        ]

    def _training(self, data: TrainingData, draw: int, engine: Engine, callbacks: Sequence[Callback]) -> Training:
        return Training(data, self.config, engine, self.scores(draw), self.log, callbacks, draw)


LOSS_OF_A_ROW = 4.0
"""Log-loss of a row that a good model has wrong: such rows make up most of its loss."""

LARGEST_VARIANCE = 0.5
"""Of the log-losses of rows, about, however many of them are wrong."""

CLEARLY = 2.0
"""Standard errors by which one way has to lose more, and"""

AT_LEAST = 1.25
"""how many times as much."""


def worth_averaging(ways: Sequence[str], losses: Sequence[float | None], rows: Sequence[int]) -> list[bool]:
    """Which draws belong into the mean: all, or those of the way to weigh features that loses clearly less.

    Draws lose `L_b` in the mean of `m_b` rows held out, others for each, and `L` is the mean of those of a way. The
    variance of a row's loss is about `min(4 L_b, 0.5)`: most of a small loss is of rows that lose about 4 each. What
    stands out is a way with `L > 1.25 L'` and `L - L' > 2 s`, where `s^2` is the sum of the variances of both means.

    tests/benchmarks/synthetic.py says where that is so, and what it is worth; on the tables of tables.py it never is.
    """
    found: dict[str, list[tuple[float, int]]] = {}
    for way, loss, number in zip(ways, losses, rows, strict=True):
        if loss is None:
            return [True] * len(ways)
        found.setdefault(way, []).append((loss, number))
    of_ways = {way: loss_of_way(each) for way, each in found.items()}
    least, error = min(of_ways.values())

    def is_worth(way: str) -> bool:
        loss, own = of_ways[way]
        return loss <= AT_LEAST * least or loss - least <= CLEARLY * math.sqrt(own + error)

    return [is_worth(way) for way in ways]


def loss_of_way(draws: Sequence[tuple[float, int]]) -> tuple[float, float]:
    """The mean of what draws lose on so many rows each, and about its variance."""
    variances = [min(LOSS_OF_A_ROW * loss, LARGEST_VARIANCE) / max(rows, 1) for loss, rows in draws]
    return math.fsum(loss for loss, _ in draws) / len(draws), math.fsum(variances) / len(draws) ** 2


def averaged(start: PrototypeSet, models: Sequence[PrototypeSet]) -> PrototypeSet:
    """The model that adds to `start` the mean of what several models, begun from it, add to it.

    A round has the batches of that round of all models. Those without prototypes are left out, unless all are.
    """
    share = 1 / len(models)
    found = start
    for number in range(start.n_rounds, models[0].n_rounds):
        each = [batch for model in models for batch in model.round_batches(number)]
        added = [replace(batch, prototype_weight=batch.prototype_weight * share) for batch in each]
        found = found.with_round([batch for batch in added if batch.n_prototypes] or added[:1])
    return found


def _one_at_a_time(callback: Callback, lock: threading.Lock) -> Callback:
    """Draws tell of themselves from threads of their own."""

    def told(event: FitEvent) -> None:
        with lock:
            callback(event)

    return told
