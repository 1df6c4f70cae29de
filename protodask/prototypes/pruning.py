"""Models of at most so many prototypes, and what that costs.

Stage by stage those prototypes go without which, each by itself, the rows would lose least, and the others are trained
on, all batches of all rounds together, from where they are:

    cost_j = sum_n s_n (log(1 - a_nj / Q_n) - [y_n = y_j] log(1 - a_nj / q_ny)),    a_nj = w_j K_vb(x_n, s_j)

with the letters of `likelihood`. A stage keeps `KEPT_SHARE` of the prototypes, so that they are judged anew often. The
rows may be those of the training: one that is a prototype counts as others do, but does not look at itself.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from protodask.data.arrays.keyed import keyed_draws, stream_key
from protodask.data.format.schema import FEATURES, INCLUSION, TARGET, WEIGHT, row_weights
from protodask.engine import Block, Engine, Reduction, Source, add_records, identity
from protodask.engine.records import Floats, Integers
from protodask.engine.sources import ViewedSource
from protodask.errors import InputError
from protodask.prototypes.batch_kernel import Candidates
from protodask.prototypes.batches import Batch
from protodask.prototypes.candidates import HELD_OUT
from protodask.prototypes.config import FitConfig
from protodask.prototypes.kernel import Differences, Knots, Line, Standardization, kernel_side, row_side
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.objective import Objective, Penalty, RoundProblem
from protodask.prototypes.persistence import model_fingerprint
from protodask.prototypes.round_sums import meetings
from protodask.prototypes.setting_checks import check_count
from protodask.prototypes.solver import solve
from protodask.prototypes.tiles import tile_rows

PRUNED = "pruned"
"""Where the provenance of a model keeps what it was pruned from."""

KEPT_SHARE = 0.7
"""Of the prototypes that a stage begins with."""

BETWEEN, LAST = 15, 200
"""Iterations of the solver at most, after a stage and after the last one."""

HELD_OUT_SHARE = 0.2
"""Of the rows: of the iterates of a stage that one is kept at which they lose least."""


@dataclass(frozen=True)
class Stage:
    """What was left after a stage of pruning."""

    prototypes: int
    log_loss: float
    """Mean of all rows, by the others."""


@dataclass(frozen=True)
class Pruned:
    """A model with fewer prototypes, and how it came about."""

    model: PrototypeSet
    stages: tuple[Stage, ...]
    """From the model as it was to that with the fewest prototypes."""

    @property
    def cost(self) -> float:
        """By how much the mean log-loss rose."""
        return self.stages[-1].log_loss - self.stages[0].log_loss


def prune(
    model: PrototypeSet,
    n_prototypes: int,
    source: Source,
    codes: NDArray[np.int64],
    engine: Engine,
    on_stage: Callable[[Stage], None] | None = None,
) -> Pruned:
    """The model with at most so many prototypes, chosen by rows of known classes, new ones or those of the training.

    `source` has features, targets and, if rows are weighted, `weight` or `inclusion`; `codes` are the model's classes
    of its target codes. A calibration is of the model as it was, and is left behind.
    """
    check_count("n_prototypes", n_prototypes, 1)
    data = ViewedSource(source, _Rows(codes), "pruning")
    weights = engine.reduce(data, WEIGHTS, label="weigh")
    if not weights.any():
        raise InputError("no-rows", "There are no rows to prune with.", "Give rows of the classes of the model.")
    fitting = _Fitting(engine, data, *weights.tolist())
    joint, stages = _join(model, _known_rows(model, engine, data)), list[Stage]()
    while True:
        costs = fitting.costs(joint)
        stages.append(Stage(joint.n_prototypes, costs.loss / float(weights.sum())))
        if on_stage is not None:
            on_stage(stages[-1])
        if joint.n_prototypes <= n_prototypes:
            engine.forget(source)
            return Pruned(joint.model(), tuple(stages))
        wanted = max(n_prototypes, int(KEPT_SHARE * joint.n_prototypes))
        best = np.argsort(-costs.by_candidate, kind="stable")[:wanted]
        joint = fitting.refitted(joint.part(np.sort(best)), LAST if wanted == n_prototypes else BETWEEN)


@dataclass(frozen=True)
class _Rows:
    """Rows with the model's classes, and with one weight for training and one for judging, either of which is 0."""

    codes: Integers

    def __call__(self, block: Block) -> Block:
        weights = row_weights(block)
        weight = np.ones(block.n_rows) if weights is None else weights
        out = keyed_draws(stream_key(0, 0), block.rows) < np.uint64(HELD_OUT_SHARE * 2.0**64)
        arrays = {name: array for name, array in block.arrays.items() if name != INCLUSION.name}
        arrays |= {WEIGHT.name: np.where(out, 0.0, weight), HELD_OUT: np.where(out, weight, 0.0)}
        return Block(block.number, block.start, {**arrays, TARGET.name: self.codes[block[TARGET.name]]})


def _weigh(block: Block) -> Floats:
    return np.array([block[WEIGHT.name].sum(), block[HELD_OUT].sum()])


WEIGHTS: Reduction[Floats, Floats] = Reduction(_weigh, operator.add, identity)
"""What the rows weigh together that are trained on, and those that are held out."""


def _known_rows(model: PrototypeSet, engine: Engine, data: Source) -> Integers:
    """Which row of the data each prototype is, by number and by what its batch looks at; -1 if none (J,)."""
    rows = np.concatenate([np.zeros(0, dtype=np.int64), *(batch.row for batch in model.batches)])
    numbers = np.unique(rows[rows < data.layout.n_rows])
    if len(numbers) == 0:
        return np.full(len(rows), -1, dtype=np.int64)
    found = engine.take(data, numbers, (FEATURES.name, TARGET.name), label="take")
    same: list[NDArray[np.bool_]] = []
    for batch in model.batches:
        at = np.minimum(np.searchsorted(numbers, batch.row), len(numbers) - 1)
        alike = (batch.values(found[FEATURES.name][at]) == batch.prototypes).all(axis=1)
        same.append(alike & (numbers[at] == batch.row) & (found[TARGET.name][at] == batch.prototype_class))
    return np.where(np.concatenate(same), rows, -1)


@dataclass(frozen=True)
class _Joint:
    """All batches of a model as one round: every form of a feature that any of them looks at, once."""

    base: PrototypeSet
    standardization: Standardization
    columns: Integers
    """Features that the forms are of."""
    forms: tuple[Integers, ...]
    """Those that the features of each batch of the model are."""
    units: tuple[Floats, ...]
    """What the feature weights of each batch are multiplied by to refer to its forms."""
    features: Floats
    """Standardised prototypes (J, forms); 0 where their batch does not look."""
    classes: Integers
    rows: Integers
    """Which row each is, -1 if none (J,)."""
    batch: Integers
    """Which batch of the model each is of, ascending (J,)."""
    place: Integers
    """Which of its prototypes (J,)."""
    feature_weights: Floats
    """(batches of the model, forms)"""
    weight: Floats
    """(J,)"""

    @property
    def n_prototypes(self) -> int:
        return len(self.weight)

    @property
    def present(self) -> Integers:
        """Batches that have prototypes."""
        return np.unique(self.batch)

    def problem(self, trained: float, held_out: float) -> RoundProblem:
        """The prototypes as candidates of a round, given what the rows weigh together."""
        return RoundProblem(
            candidates=Candidates(self.features, self.classes, self.rows),
            sizes=tuple(np.bincount(self.batch)[self.present].tolist()),
            class_factor=np.full(self.base.n_classes, 1 / trained if trained else 0.0),
            marginals=self.base.marginals,
            standardization=self.standardization,
            precision=self.base.precision,
            held_out_weight=held_out,
            columns=self.columns,
            leave_one_out=True,
        )

    @property
    def theta(self) -> Floats:
        """Weights of the features of the batches that have prototypes, and of these."""
        return np.concatenate([self.feature_weights[self.present].ravel(), self.weight])

    def part(self, chosen: Integers) -> _Joint:
        """Some of the prototypes."""
        names = ("features", "classes", "rows", "batch", "place", "weight")
        return replace(self, **{name: getattr(self, name)[chosen] for name in names})

    def model(self) -> PrototypeSet:
        """What it amounts to; batches of which nothing is left are empty, so that the others keep their numbers."""
        base = self.base
        was = {"model": model_fingerprint(base), "prototypes": base.n_prototypes}
        return replace(
            base,
            batches=tuple(self._batch(number) for number in range(base.n_batches)),
            provenance={**base.provenance, PRUNED: was},
            calibration=None,
        )

    def _batch(self, number: int) -> Batch:
        batch, own = self.base.batches[number], self.batch == number
        kept = self.place[own]
        weight = self.feature_weights[number, self.forms[number]] / self.units[number]
        looked_at = np.flatnonzero(weight > 0) if len(kept) else np.zeros(0, dtype=np.int64)
        standardization = batch.standardization.select(looked_at)
        compared = batch.compared
        if compared is not None and batch.differences is not None:
            stay = np.isin(batch.differences.places, looked_at)
            compared = compared[kept][:, stay] if stay.any() else None
        return replace(
            batch,
            feature_index=batch.feature_index[looked_at],
            feature_weight=weight[looked_at],
            center=standardization.center,
            scale=standardization.scale,
            knots=standardization.knots,
            differences=standardization.differences,
            compared=compared,
            prototypes=batch.prototypes[kept][:, looked_at],
            prototype_class=batch.prototype_class[kept],
            prototype_weight=self.weight[own],
            row=batch.row[kept],
        )


def _join(model: PrototypeSet, rows: Integers) -> _Joint:
    """The batches as one round, of which the prototypes are these rows.

    Weights refer to the scale that the first batch has that looks at a feature.
    """
    known: dict[tuple[int, bytes, int, float], int] = {}
    center, scale, columns, lines = list[float](), list[float](), list[int](), list[Line | None]()
    others, factors = list[int](), list[float]()
    forms: list[Integers] = []
    for batch in model.batches:
        own: list[int] = []
        for place, column in enumerate(batch.feature_index.tolist()):
            knots = batch.knots if batch.scored[place] else None
            other, factor = (-1, 0.0) if batch.differences is None else batch.differences.of(place)
            key = column, b"" if knots is None else knots.keys[place], other, factor
            if key not in known:
                known[key] = len(columns)
                columns.append(column)
                center.append(float(batch.center[place]))
                scale.append(float(batch.scale[place]))
                lines.append(None if knots is None else knots.line(place))
                others.append(other)
                factors.append(factor)
            own.append(known[key])
        forms.append(np.array(own, dtype=np.int64))
    most = max((len(line.values) for line in lines if line is not None), default=0)
    differences = Differences(np.array(others, dtype=np.int64), np.array(factors)).select(np.arange(len(others)))
    standardization = Standardization(np.array(center), np.array(scale), Knots.of(lines, most), differences)
    units, weights = [], np.zeros((model.n_batches, len(columns)))
    features = np.zeros((model.n_prototypes, len(columns)))
    first = 0
    for number, (batch, places) in enumerate(zip(model.batches, forms, strict=True)):
        units.append(np.where(batch.scored, 1.0, standardization.scale[places] / batch.scale))
        weights[number, places] = batch.feature_weight * units[-1]
        last = first + batch.n_prototypes
        features[first:last, places] = standardization.select(places).apply(batch.prototypes)
        first = last
    sizes = [batch.n_prototypes for batch in model.batches]
    empty = np.zeros(0, dtype=np.int64)
    return _Joint(
        base=model,
        standardization=standardization,
        columns=np.array(columns, dtype=np.int64),
        forms=tuple(forms),
        units=tuple(units),
        features=features,
        classes=np.concatenate([empty, *(batch.prototype_class for batch in model.batches)]),
        rows=rows,
        batch=np.repeat(np.arange(model.n_batches), sizes),
        place=np.concatenate([empty, *(np.arange(size) for size in sizes)]),
        feature_weights=weights,
        weight=np.concatenate([np.zeros(0), *(batch.prototype_weight for batch in model.batches)]),
    )


@dataclass(frozen=True)
class Costs:
    """What rows lose, and what they would lose more without each of the prototypes (J,)."""

    loss: float
    by_candidate: Floats


def cost_block(block: Block, problem: RoundProblem, theta: Floats) -> Costs:
    """The sums over a block's rows, whether trained on or held out."""
    target, weight = block[TARGET.name], block[WEIGHT.name] + block[HELD_OUT]
    candidates = problem.candidates
    own_rows, owners = candidates.within(block.start, block.stop)
    feature_weights, candidate_weight = problem.split(theta)
    columns = np.arange(problem.n_features) if problem.columns is None else problem.columns
    sides = [
        kernel_side(own.features[:, v > 0], v, problem.precision)
        for own, v in zip(problem.batches, feature_weights, strict=True)
    ]
    of_rows = [row_side(side.active, problem.standardization, columns, side.dtype) for side in sides]
    costs, loss = np.zeros(problem.n_candidates), 0.0
    counted = np.flatnonzero(weight)
    length = tile_rows(len(counted), 4 * problem.n_candidates)
    for first in range(0, len(counted), length):
        rows = counted[first : first + length]
        impact = np.empty((len(rows), problem.n_candidates))
        for own, side, of_row in zip(problem.places, sides, of_rows, strict=True):
            tile = side.tile(len(rows))
            impact[:, own] = side.kernel(of_row.standardize(block[FEATURES.name][rows], tile.standardized), tile)
        impact *= candidate_weight
        places, met = meetings(own_rows, rows)
        impact[places, owners[met]] = 0
        of_class = candidates.classes[:, None] == np.arange(len(problem.marginals))
        unscaled = problem.marginals + impact @ of_class.astype(np.float64)
        total, own_class = unscaled.sum(axis=1), unscaled[np.arange(len(rows)), target[rows]]
        loss -= float(weight[rows] @ np.log(own_class / total))
        costs += weight[rows] @ np.log1p(-impact / total[:, None])
        impact[candidates.classes != target[rows][:, None]] = 0
        # A class is never left with less than its part of the marginals, but for rounding.
        share = np.minimum(impact / own_class[:, None], 1 - (problem.marginals[target[rows]] / own_class)[:, None])
        costs -= weight[rows] @ np.log1p(-share)
    return Costs(loss, costs)


COSTS: Reduction[Costs, Costs] = Reduction(cost_block, add_records, identity)


@dataclass(frozen=True)
class _Fitting:
    """What prototypes are judged by and trained on."""

    engine: Engine
    data: Source
    trained: float
    held_out: float

    def costs(self, joint: _Joint) -> Costs:
        problem = joint.problem(self.trained, self.held_out)
        return self.engine.reduce(self.data, COSTS, self.engine.share(problem), joint.theta, label="judge")

    def refitted(self, joint: _Joint, iterations: int) -> _Joint:
        """The same prototypes with weights, and features of their batches, by which the rows lose less."""
        config, problem = FitConfig(), joint.problem(self.trained, self.held_out)
        objective = Objective(
            self.engine,
            self.data,
            problem,
            self.engine.share(problem),
            Penalty(config.lambda_v / problem.n_batches, config.alpha_v),
            Penalty(config.lambda_w, config.alpha_w),
        )
        found = solve(objective, joint.theta, problem.solver_scale, config.tolerance, iterations)
        feature_weights, weight = problem.split(found.theta)
        every = joint.feature_weights.copy()
        every[joint.present] = feature_weights
        return replace(joint, feature_weights=every, weight=weight).part(np.flatnonzero(weight > 0))
