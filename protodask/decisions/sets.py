"""One decision for each row: which of its classes, or which of its labels, to name.

**Sets of classes** (`decide_sets`): exactly one of the `K` classes of a row is true, class `j` with probability
`eta_j`. The classes are sorted by probability, largest first, and the first `k` are named, for the `k` of least

    L_k = (sum_{j<=k} eta_j) phi(1/K, k/K, 1/K) + (sum_{j>k} eta_j) phi(0, k/K, 1/K).

**Labels** (`decide_rows`): the `L` labels of a row are true independently of each other, and each row is the case of
`decide` with its labels as the items.

Rows do not depend on each other: the decisions for a block are those of its rows within any other block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from protodask.decisions.counts import CountTable, neighbouring_tables
from protodask.decisions.deciding import fewest_of_least
from protodask.decisions.decision import HALF, Flags
from protodask.decisions.losses import Loss, as_loss
from protodask.decisions.probabilities import read_rows
from protodask.engine.records import Floats
from protodask.errors import InputError

SUM_TOLERANCE = 1e-3
"""How far the probabilities of a row may be from adding up to one: half precision rounds by 5e-4."""

TABLE_ENTRIES = 2**21
"""Of the tables of some rows, about 16 MiB: that many rows are computed at a time."""

NEGLIGIBLE = 1e-30
"""A probability of a count that is dropped: less than `L^2` times as much is missing from an expectation of a loss in
[0, 1], far below what float64 resolves, and products of tiny numbers are slow."""


@dataclass(frozen=True)
class RowDecisions:
    """The selections of least expected loss of N rows among their classes or labels, of ties the first."""

    selected: Flags
    """(N, K)."""
    k: NDArray[np.int64]
    """How many are selected (N,)."""
    threshold: Floats
    """The smallest probability selected; infinity where none is (N,)."""
    expected_loss: Floats
    loss_at_half: Floats
    """Expected loss of selecting all of probability at least 0.5 (N,)."""
    loss: str


def decide_sets(probability: ArrayLike, loss: str | Loss | Callable[..., Any] = "f1") -> RowDecisions:
    """Which classes to name for each row, given their probabilities (N, K), which add up to one in each row."""
    values = read_rows(probability, "class")
    check_totals(values)
    n_classes = values.shape[1]
    found = as_loss(loss, n_classes)
    order = np.argsort(-values, axis=1, kind="stable")
    ordered = np.take_along_axis(values, order, axis=1)
    named = np.concatenate([np.zeros((len(values), 1)), np.cumsum(ordered, axis=1)], axis=1)
    share = np.arange(n_classes + 1) / n_classes
    # With no class named the true one is not among them, and with all it is: the other case does not occur.
    hit = found(np.minimum(1 / n_classes, share), share, 1 / n_classes)
    miss = found(np.maximum(share - share[-2], 0.0), share, 1 / n_classes)
    losses = named * hit + (named[:, -1:] - named) * miss
    return _choose(values, order, losses, found)


def check_totals(values: Floats, first_row: int = 0) -> None:
    """Refuse rows that do not add up to one; `first_row` is the number of the first of them."""
    totals = values.sum(axis=1)
    for row in np.flatnonzero(np.abs(totals - 1) > SUM_TOLERANCE)[:1]:
        raise InputError(
            "bad-value",
            f"The probabilities of row {first_row + row} add up to {totals[row]:g}.",
            "Give the probabilities of classes that exclude each other; where several labels may be true use "
            "--per-row labels, in Python decide_rows.",
        )


def decide_rows(probability: ArrayLike, loss: str | Loss | Callable[..., Any] = "f1") -> RowDecisions:
    """Which labels to name for each row, given the probability of each of being true (N, L)."""
    values = read_rows(probability, "label")
    return choose_labels(values, as_loss(loss, values.shape[1]))


def choose_labels(values: Floats, loss: Loss) -> RowDecisions:
    """What `decide_rows` says of probabilities and a loss that are checked."""
    order = np.argsort(-values, axis=1, kind="stable")
    return _choose(values, order, _row_losses(np.take_along_axis(values, order, axis=1), loss), loss)


def _row_losses(ordered: Floats, loss: Loss) -> Floats:
    """Exact expected losses of naming the first 0, 1, .. L labels of each row (N, L + 1); largest probability first."""
    n_rows, n_labels = ordered.shape
    losses = np.empty((n_rows, n_labels + 1))
    variance = np.sum(ordered * (1 - ordered), axis=1).max(initial=0.0)
    width = min(n_labels + 1, int(20 * np.sqrt(variance)) + 30)
    together = max(1, TABLE_ENTRIES // ((n_labels + 1) * width))
    for start in range(0, n_rows, together):
        losses[start : start + together] = _losses_together(ordered[start : start + together], loss)
    return losses


def _losses_together(ordered: Floats, loss: Loss) -> Floats:
    n_rows, n_labels = ordered.shape
    losses = np.empty((n_rows, n_labels + 1))
    none = CountTable(0, np.ones((n_rows, 1)), NEGLIGIBLE)
    for k, (before, after) in enumerate(neighbouring_tables(ordered, none)):
        value = loss(
            before.counts[:, None] / n_labels, k / n_labels, (before.counts[:, None] + after.counts) / n_labels
        )
        losses[:, k] = np.einsum("ni,ni->n", before.probability @ value, after.probability)
    return losses


def _choose(values: Floats, order: NDArray[np.intp], losses: Floats, loss: Loss) -> RowDecisions:
    """For each row the fewest of least expected loss, as `decide` chooses."""
    n_rows, n_columns = values.shape
    rows = np.arange(n_rows)
    k = fewest_of_least(losses)
    selected = np.zeros(values.shape, dtype=np.bool_)
    np.put_along_axis(selected, order, np.arange(n_columns) < k[:, None], axis=1)
    return RowDecisions(
        selected=selected,
        k=k,
        threshold=np.where(selected, values, np.inf).min(axis=1),
        expected_loss=losses[rows, k],
        loss_at_half=losses[rows, np.count_nonzero(values >= HALF, axis=1)],
        loss=loss.name,
    )
