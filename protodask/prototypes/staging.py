"""The rows that small steps are taken on: a sample of all, or all of them where memory allows it.

Every row has a pseudo-random priority, as in the draw of candidates; those of smallest priority are taken once, in that
order, so that any of them that follow each other are a sample, too. In it the weights of the rows of a class, without
those that the objective leaves out, add up to its share,

    r_n = s_n W_k / W / sum_{m in stage, y_m = k} s_m,  k = y_n

so that the objective is that of all rows up to the noise of the sample.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from protodask.data.format.schema import FEATURES, TARGET, WEIGHT, row_weights
from protodask.engine import Arrays, ArraySource, Block, Engine, Source, array_source
from protodask.prototypes.candidates import HELD_OUT, SCORES, STANDARDIZED, priority
from protodask.prototypes.kernel import RowSide, Standardization
from protodask.prototypes.objective import RoundProblem
from protodask.prototypes.round_sums import meetings

SPARE = 1.2
"""Times the wanted rows that the bound on their priorities is made for, so that as good as never fewer are below it."""

STAGE_BLOCK_ROWS = 512
"""Rows of a block of a stage at most. Of fewer, two threads wait for each other more than they compute, where there is
another draw for one of them."""

STEP_BLOCKS, MANY_ROWS = 2, 100_000
"""Blocks of a step where it is taken on so many rows; of fewer it is one: on diamonds, star, storms, taxa and weather
600 steps of one block lose 0.998 to 1.003 of what 500 of two do, in 0.63 to 0.71 of the time. With twice as many rows
and half as many steps flights lose 0.01 more."""

MOST_JUDGED = 16_384
"""Rows held out by which steps are judged: the error of a mean loss of 0.5 is about 0.004, of differences far less."""

COPIED_ROWS = 8192
"""That are put into standard units at a time."""


@dataclass(frozen=True)
class Stage:
    """A part of the rows, and what a round minimises on it."""

    trained: ArraySource
    """Those that have a weight, by priority."""
    judged: ArraySource
    """Of those that are held out the first ones."""
    problem: RoundProblem
    """On the rows that have a weight."""
    rows: int
    """Of both, before any were left out."""
    together: int
    """Blocks of a step."""

    @property
    def judging(self) -> RoundProblem:
        """The same on rows that are held out, of which none is a candidate."""
        nobody = np.full(self.problem.n_candidates, -1, dtype=np.int64)
        return replace(self.problem, candidates=replace(self.problem.candidates, rows=nobody))


def take_stage(
    engine: Engine,
    source: Source,
    problem: RoundProblem,
    seed: int,
    size: int,
    side: RowSide,
    scored: bool = False,
    n_draws: int = 1,
) -> Stage | None:
    """At most so many rows of a source of which rows are held out, and which has scores if it is `scored`, for one of
    so many draws that are fitted side by side.

    `side` makes the features standard units, in which the stage has them, and nothing else. None where a class has no
    row among them that counts, or none is held out.
    """
    names = [FEATURES.name, TARGET.name, WEIGHT.name, HELD_OUT, *([SCORES] if scored else [])]
    rows = first_rows(engine, source, seed, size)
    arrays = engine.take(source, rows, names, label="take")
    weight = np.array(arrays[WEIGHT.name], dtype=np.float64)
    # Rows that are candidates either have no weight, or the candidates know which rows of the stage they are.
    order = np.argsort(rows)
    places, drawn = meetings(problem.candidates.rows, rows[order])
    places = order[places]
    if not problem.leave_one_out:
        weight[places] = 0
    trained, judged = np.flatnonzero(weight > 0), np.flatnonzero(arrays[HELD_OUT] > 0)[:MOST_JUDGED]
    by_class = np.bincount(arrays[TARGET.name], weights=weight, minlength=len(problem.marginals))
    if not (by_class > 0).all() or len(judged) == 0:
        return None
    at = np.full(problem.n_candidates, -1, dtype=np.int64)
    if problem.leave_one_out:
        numbers = np.full(len(rows), -1, dtype=np.int64)
        numbers[trained] = np.arange(len(trained))
        at[drawn] = numbers[places]
    others = {WEIGHT.name: weight, **{name: arrays[name] for name in names if name not in (FEATURES.name, WEIGHT.name)}}

    def part(index: NDArray[np.int64], held_out: bool) -> Arrays:
        features = np.empty((len(index), len(side.active)), side.dtype)
        for first in range(0, len(index), COPIED_ROWS):
            some = slice(first, first + COPIED_ROWS)
            side.standardize(arrays[FEATURES.name][index[some]], features[some])
        chosen = {name: values[index] for name, values in others.items()}
        chosen[WEIGHT.name if held_out else HELD_OUT][:] = 0
        # Under both names: kernels of the same precision take them as they are, others standardise them by nothing.
        return {FEATURES.name: features, STANDARDIZED: features, **chosen}

    on_stage = replace(
        problem,
        candidates=replace(problem.candidates, rows=at),
        standardization=Standardization(np.zeros(problem.n_features), np.ones(problem.n_features)),
        columns=None,
        class_factor=problem.marginals / by_class,
        held_out_weight=float(arrays[HELD_OUT][judged].sum()),
    )
    block_rows, together = step_blocks(len(rows), n_draws)
    return Stage(
        array_source(part(trained, held_out=False), block_rows),
        array_source(part(judged, held_out=True), block_rows),
        on_stage,
        len(rows),
        together,
    )


def step_blocks(rows: int, n_draws: int) -> tuple[int, int]:
    """Rows of a block of a stage of so many rows, and blocks of a step: the only draw has two halves of one, for two
    threads. Diamonds take 0.74 of the time so.
    """
    if rows >= MANY_ROWS:
        return STAGE_BLOCK_ROWS, STEP_BLOCKS
    return (STAGE_BLOCK_ROWS, 1) if n_draws > 1 else (STAGE_BLOCK_ROWS // 2, 2)


def first_rows(engine: Engine, source: Source, seed: int, most: int) -> NDArray[np.int64]:
    """Rows of smallest priority that count for anything, by priority, at most so many."""
    bound = min(1.0, SPARE * most / source.layout.n_rows)
    while True:
        found = engine.collect(source, _below, seed, bound, label="sample")
        rows: NDArray[np.int64] = found["rows"][np.argsort(found["priority"])[:most]]
        if len(rows) == most or bound == 1.0:
            return rows
        bound = min(1.0, 2 * bound)  # many rows count for nothing


def _below(block: Block, seed: int, bound: float) -> Arrays:
    """Rows of a block whose priority is below a share of all there may be, of those that count for anything."""
    weight = row_weights(block)
    priorities = priority(seed, 0, block.rows)
    kept = (priorities < bound * 2.0**64) & ((block[HELD_OUT] > 0) | (True if weight is None else weight > 0))
    return {"rows": block.rows[kept], "priority": priorities[kept]}
