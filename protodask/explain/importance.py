"""Permutation importance: how much worse the log-loss gets when a column says nothing any more.

Inside each block a column's values are exchanged between rows, by a permutation that depends on the seed, the repeat,
the column and the block alone, and the model is scored again. With `l` the log-loss of a row and `s` its weight, block
`b` and repeat `r` give a column

    delta_br = sum_n s_n (l_n(permuted) - l_n) / W_b,    W_b = sum_n s_n,

the importance is the mean `delta = sum_b W_b delta_b / sum_b W_b` with `delta_b = mean_r delta_br`, and its standard
error over `B` blocks is

    sqrt(B / (B - 1) sum_b W_b^2 (delta_b - delta)^2) / sum_b W_b,

which holds the noise of rows and of permutations; of a single block it is that of the `R` repeats, `std_r / sqrt(R)`.
Features that were encoded from one column are permuted together. Where the rows are sorted, a permutation inside a
block moves a value less far than one of all rows, and the importance is that of what the column says within a block.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.format.schema import FEATURES, INCLUSION, TARGET, WEIGHT, row_weights
from protodask.engine import Block, EngineLike, Reduction, Source, identity, open_engine
from protodask.engine.records import Floats, Integers
from protodask.errors import InputError
from protodask.evaluation.given_rows import check_rows, check_weight
from protodask.evaluation.outcomes import Outcomes, predicted_outcomes
from protodask.prototypes.fitted import probabilities
from protodask.prototypes.kernel import ScoreKernel
from protodask.prototypes.model import PrototypeSet

MOST_BLOCKS = 16
"""Blocks that rows are taken from: enough to see how the blocks differ, few enough to read from a large dataset."""

MOST_ROWS = 10_000
"""The standard error of the log-loss of so many rows is about 0.01."""

LEAST_ROWS = 500
"""Fewer say nothing, so they are used even where that takes more than `MOST_KERNEL_VALUES`."""

MOST_KERNEL_VALUES = 4 * 10**9
"""Similarities of a row and a prototype computed in all: some ten to thirty seconds on two cores."""

SMALLEST = float(np.finfo(np.float64).tiny)
"""Probabilities count as at least this, so that differences of losses are finite."""


@dataclass(frozen=True)
class Importance:
    """Increase of the log-loss, in nats, for each of the columns G that the model's features were encoded from."""

    names: tuple[str, ...]
    features: tuple[tuple[int, ...], ...]
    """Positions of each column's features."""
    mean: Floats
    """(G,): exactly 0 for a column the model does not look at."""
    standard_error: Floats
    """(G,); NaN if there was a single block and a single repeat."""
    log_loss: float
    """Of the rows as they are."""
    rows: int
    """Rows that were used."""
    blocks: int
    repeats: int

    @property
    def order(self) -> Integers:
        """Positions of the columns, the most important first."""
        return np.argsort(-self.mean, kind="stable")


def permutation_importance(
    model: PrototypeSet,
    source: Source,
    codes: NDArray[np.int64],
    engine: EngineLike = None,
    repeats: int = 5,
    seed: int = 0,
    most_rows: int = MOST_ROWS,
    *,
    n_batches: int | None = None,
) -> Importance:
    """Increase of the log-loss of each column on a source of features and targets; one pass, or a part of one.

    `codes` are the model's classes of the source's target codes. At most about `most_rows` rows are used, fewer
    where columns x repeats x prototypes x rows would exceed `MOST_KERNEL_VALUES` (but at least `LEAST_ROWS`). They come
    in equal parts from up to `MOST_BLOCKS` blocks, spread evenly over the source, and are spread evenly inside each.
    """
    for name, value, least in (("repeats", repeats, 1), ("most_rows", most_rows, 1), ("seed", seed, 0)):
        if value not in range(least, 2**63):
            raise InputError("bad-setting", f"{name} is {value!r}.", f"Give a whole number of at least {least}.")
    check_rows(source)
    (count,) = model.batch_counts(n_batches)
    names, groups = _columns(model)
    active = {index for batch in model.batches[:count] for index in batch.looked_at.tolist()}
    used = [position for position, group in enumerate(groups) if active.intersection(group)]
    numbers = spread(source.layout.n_blocks, MOST_BLOCKS)
    rows_per_block = -(-_rows_wanted(model, groups, used, count, int(repeats), int(most_rows)) // len(numbers))
    task = _Task(
        batches=count,
        groups=tuple((int(position), groups[position]) for position in used),
        repeats=int(repeats),
        seed=int(seed),
        rows=rows_per_block,
    )
    with open_engine(engine) as opened:
        cells = opened.reduce(
            source, CELLS, opened.share(model), codes, task, label="importance", blocks=[int(n) for n in numbers]
        )
    return _finish(cells, names, groups, used, int(repeats))


def spread(length: int, most: int) -> Integers:
    """At most `most` of the positions below `length`, evenly spread, each in the middle of its share."""
    if length <= most:
        return np.arange(length)
    return (2 * np.arange(most) + 1) * length // (2 * most)


@dataclass(frozen=True)
class _Task:
    """What a block is to do: columns by number with their features."""

    batches: int
    groups: tuple[tuple[int, tuple[int, ...]], ...]
    repeats: int
    seed: int
    rows: int


@dataclass(frozen=True)
class _Cell:
    """The sums of a block that has rows of positive weight."""

    rows: int
    weight: float
    loss: float
    """`sum s l`."""
    change: Floats
    """`sum s (l(permuted) - l)` by column and repeat."""


_Cells = tuple[_Cell, ...]
"""In the order of the blocks, at most `MOST_BLOCKS` of them."""


def _block_cells(block: Block, model: PrototypeSet, codes: NDArray[np.int64], task: _Task) -> _Cells:
    weight = row_weights(block)
    counted = np.arange(block.n_rows) if weight is None else np.flatnonzero(weight)
    rows = counted[spread(len(counted), task.rows)]
    if len(rows) == 0:
        return ()
    features = np.array(block[FEATURES.name][rows])  # a copy: its columns are exchanged and put back
    kernels = tuple(batch.kernel(model.n_classes, model.precision) for batch in model.batches[: task.batches])
    seen = tuple(batch.looked_at for batch in model.batches[: task.batches])
    parts = tuple(_part(kernel, features) for kernel in kernels)
    taken = {name: block[name][rows] for name in (WEIGHT.name, INCLUSION.name, TARGET.name) if name in block}
    chosen = Block(block.number, block.start, taken)
    outcomes = predicted_outcomes(chosen, _probability(model, parts, len(rows)), codes)
    loss = _losses(outcomes.probability, outcomes)
    change = np.zeros((len(task.groups), task.repeats))
    for place, (column, group) in enumerate(task.groups):
        index = np.array(group)
        original = features[:, index]
        for repeat in range(task.repeats):
            order = np.random.default_rng((task.seed, repeat, column, block.number)).permutation(len(rows))
            features[:, index] = original[order]
            changed = tuple(
                _part(kernel, features) if np.isin(index, looked_at).any() else part
                for kernel, looked_at, part in zip(kernels, seen, parts, strict=True)
            )
            difference = _losses(_probability(model, changed, len(rows)), outcomes) - loss
            change[place, repeat] = float(outcomes.weight @ difference)
        features[:, index] = original
    return (_Cell(len(rows), float(outcomes.weight.sum()), float(outcomes.weight @ loss), change),)


CELLS: Reduction[_Cells, _Cells] = Reduction(_block_cells, add, identity)


def _part(kernel: ScoreKernel, features: NDArray[Any]) -> Floats:
    """What a batch adds to the unscaled probabilities (N, K)."""
    scores = np.zeros((len(features), kernel.n_classes))
    kernel.add(features, scores)
    return scores


def _probability(model: PrototypeSet, parts: tuple[Floats, ...], n_rows: int) -> Floats:
    scores = np.tile(model.marginals, (n_rows, 1))
    for part in parts:
        scores += part
    return probabilities(scores)


def _losses(probability: NDArray[np.floating[Any]], outcomes: Outcomes) -> Floats:
    own = probability[np.arange(len(outcomes.target)), outcomes.target]
    losses: Floats = -np.log(np.maximum(own, SMALLEST))
    return losses


def _columns(model: PrototypeSet) -> tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]:
    """Names of the columns and the positions of their features, or the features themselves if they are not known."""
    widths = [len(column.feature_names) for column in model.columns]
    if sum(widths) != model.n_features:
        return model.feature_names, tuple((position,) for position in range(model.n_features))
    edges = np.concatenate([[0], np.cumsum(widths)]).tolist()
    groups = tuple(tuple(range(first, first + width)) for first, width in zip(edges[:-1], widths, strict=True))
    return tuple(column.name for column in model.columns), groups


def _rows_wanted(
    model: PrototypeSet, groups: tuple[tuple[int, ...], ...], used: list[int], n_batches: int, repeats: int, most: int
) -> int:
    # A batch is computed again only for the columns that it looks at.
    per_row = 0
    for batch in model.batches[:n_batches]:
        looked_at = set(batch.looked_at.tolist())
        per_row += batch.n_prototypes * repeats * sum(not looked_at.isdisjoint(groups[position]) for position in used)
    return min(most, max(LEAST_ROWS, MOST_KERNEL_VALUES // max(per_row, 1)))


def _finish(
    cells: _Cells, names: tuple[str, ...], groups: tuple[tuple[int, ...], ...], used: list[int], repeats: int
) -> Importance:
    total = math.fsum(cell.weight for cell in cells)
    check_weight(total)
    mean, error = np.zeros(len(names)), np.zeros(len(names))
    if used:
        weight = np.array([cell.weight for cell in cells])
        delta = np.stack([cell.change for cell in cells]) / weight[:, None, None]  # (blocks, columns, repeats)
        share = weight / total
        mean[used] = np.einsum("b,bgr->g", share, delta) / repeats
        error[used] = _standard_error(delta, share, mean[used])
    return Importance(
        names=names,
        features=groups,
        mean=mean,
        standard_error=error,
        log_loss=math.fsum(cell.loss for cell in cells) / total,
        rows=sum(cell.rows for cell in cells),
        blocks=len(cells),
        repeats=repeats,
    )


def _standard_error(delta: Floats, share: Floats, mean: Floats) -> Floats:
    n_blocks, n_columns, repeats = delta.shape
    if n_blocks > 1:
        spread_out = np.square(share[:, None] * (delta.mean(axis=2) - mean)).sum(axis=0)
        error: Floats = np.sqrt(n_blocks / (n_blocks - 1) * spread_out)
        return error
    if repeats > 1:
        return np.asarray(delta[0].std(axis=1, ddof=1) / math.sqrt(repeats), dtype=np.float64)
    return np.full(n_columns, np.nan)
