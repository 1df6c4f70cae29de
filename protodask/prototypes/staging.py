"""Progressive rows: a round is trained on nested samples of the rows first, and on all of them in the end.

Where rows are many, most of the way to the optimum is as well found on a part of them. Every row has a pseudo-random
priority, as in the draw of candidates; the rows of smallest priority are taken once, in that order, so that the rows of
a stage are the first ones of those that follow. Each stage begins where the one before ended, and ends when the rows it
holds out are not helped any more: the rest is noise of its sample.

A candidate that has no weight at the end of a stage of many rows for each candidate is let go: many may be tried where
few are looked at in the end. On four million rows of 30 features two thousand that are tried take half as long again as
one thousand, and the log-loss is 0.225 in place of 0.242 (tests/benchmarks/hundred_million.py).

In a stage the weights of the rows of a class, without those that the objective leaves out, add up to its share,

    r_n = s_n W_k / W / sum_{m in stage, y_m = k} s_m,  k = y_n

so that the objective is that of all rows up to the noise of the sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from protodask.data.format.schema import FEATURES, TARGET, WEIGHT, row_weights
from protodask.engine import Arrays, ArraySource, Block, Engine, Source, array_source
from protodask.prototypes.candidates import HELD_OUT, SCORES, priority
from protodask.prototypes.kernel import RowSide, Standardization
from protodask.prototypes.likelihood import meetings
from protodask.prototypes.objective import RoundProblem

SPARE = 1.2
"""Times the wanted rows that the bound on their priorities is made for, so that as good as never fewer are below it."""


@dataclass(frozen=True)
class Stage:
    """A part of the rows, and what a round minimises on it."""

    source: ArraySource
    problem: RoundProblem


def stages(
    engine: Engine,
    source: Source,
    problem: RoundProblem,
    seed: int,
    sizes: Sequence[int],
    side: RowSide,
    scored: bool = False,
) -> Iterator[Stage]:
    """The stages of a round over a source of which rows are held out, and which has scores if it is `scored`.

    `side` makes the features standard units, in which the stages have them, and nothing else. Stages in which a class
    has no row that counts are left out.
    """
    if not sizes:
        return
    names = [FEATURES.name, TARGET.name, WEIGHT.name, HELD_OUT, *([SCORES] if scored else [])]
    rows = first_rows(engine, source, seed, sizes[-1])
    arrays = engine.take(source, rows, names, label="take")
    weight = np.array(arrays[WEIGHT.name], dtype=np.float64)
    standardized = np.empty((len(rows), len(side.active)), side.dtype)
    side.standardize(arrays[FEATURES.name], standardized)
    # Rows that are candidates either have no weight, or the candidates know which rows of the stages they are.
    order = np.argsort(rows)
    places, drawn = meetings(problem.candidates.rows, rows[order])
    places = order[places]
    at = np.full(problem.n_candidates, -1, dtype=np.int64)
    if problem.leave_one_out:
        at[drawn] = places
    else:
        weight[places] = 0
    arrays |= {WEIGHT.name: weight, FEATURES.name: standardized}
    for size in sorted({min(size, len(rows)) for size in sizes}):  # many may count for nothing
        part = {name: values[:size] for name, values in arrays.items()}
        by_class = np.bincount(part[TARGET.name], weights=part[WEIGHT.name], minlength=len(problem.marginals))
        held_out = float(part[HELD_OUT].sum())
        if not (by_class > 0).all() or held_out == 0:
            continue
        on_stage = replace(
            problem,
            candidates=replace(problem.candidates, rows=at),
            standardization=Standardization(np.zeros(problem.n_features), np.ones(problem.n_features)),
            columns=None,
            class_factor=problem.marginals / by_class,
            held_out_weight=held_out,
        )
        yield Stage(array_source(part), on_stage)


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
