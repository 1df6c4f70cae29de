"""Decisions on many groups of rows as a table, and what they say of single rows, block by block.

`G` groups, each of neighbouring rows; a decision on all rows is that of one group.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.decisions.decision import Decision, Flags
from protodask.engine import Block, Engine, Reduction, Source, identity
from protodask.engine.records import Floats, Integers, joined

PROBABILITY = "probability"
"""Array of a block with the probability of each row."""

GROUP = "group"
"""Array of a block with what says which group a row belongs to."""


@dataclass(frozen=True)
class GroupDecisions:
    """The selections of least expected loss of G groups, in the order of their first rows."""

    group: NDArray[Any]
    """What their rows have in the column of groups (G,)."""
    first_row: Integers
    n: Integers
    """Rows (G,)."""
    k: Integers
    """Rows selected (G,)."""
    threshold: Floats
    """The smallest probability selected; infinity where none is (G,)."""
    tied: Integers
    """Rows whose probability is the threshold (G,)."""
    taken: Integers
    """Of those, how many are selected: the first ones (G,)."""
    expected_loss: Floats
    loss_at_half: Floats
    """Expected loss of selecting all of probability at least 0.5 (G,)."""
    loss: str = ""
    selected: Flags | None = None
    """One flag a row; None where the rows are in a store."""

    def __len__(self) -> int:
        return len(self.n)

    @property
    def mean_expected_loss(self) -> float:
        """Every group counts once."""
        return float(self.expected_loss.mean())

    @property
    def mean_loss_at_half(self) -> float:
        """Every group counts once."""
        return float(self.loss_at_half.mean())


COLUMNS = ("group", "first_row", "n", "k", "threshold", "tied", "taken", "expected_loss", "loss_at_half")

_WHOLE, _REAL = np.zeros(0, dtype=np.int64), np.zeros(0)
NO_GROUPS = GroupDecisions(_WHOLE, _WHOLE, _WHOLE, _WHOLE, _REAL, _WHOLE, _WHOLE, _REAL, _REAL)


def one_group(decision: Decision, group: NDArray[Any], first_row: int) -> GroupDecisions:
    """The decision on the rows of the group (1,) from `first_row` on."""
    cut = decision.cut
    return GroupDecisions(
        group,
        np.array([first_row]),
        np.array([decision.n]),
        np.array([decision.k]),
        np.array([cut.threshold]),
        np.array([cut.tied]),
        np.array([cut.taken]),
        np.array([decision.expected_loss]),
        np.array([decision.loss_at_half]),
        decision.loss,
    )


def join_groups(tables: Sequence[GroupDecisions]) -> GroupDecisions:
    """The groups of all tables, one after the other."""
    filled = [table for table in tables if len(table)]
    return joined(*filled) if filled else NO_GROUPS


def select_rows(table: GroupDecisions, probability: NDArray[Any], start: int, tied_before: int = 0) -> Flags:
    """Which of the rows from `start` on are selected.

    `tied_before` counts the earlier rows of the first row's group whose probability is its threshold.
    """
    first, lengths = _groups_of(table, start, len(probability))
    groups = slice(first, first + len(lengths))
    tied = probability == np.repeat(table.threshold[groups], lengths)
    selected: Flags = probability > np.repeat(table.threshold[groups], lengths)
    if (table.taken[groups] < table.tied[groups]).any():
        rank = np.cumsum(tied)
        before = np.concatenate([[0], rank[np.cumsum(lengths)[:-1] - 1]])
        before[0] -= tied_before
        tied &= rank - np.repeat(before, lengths) <= np.repeat(table.taken[groups], lengths)
    selected |= tied
    return selected


def _groups_of(table: GroupDecisions, start: int, rows: int) -> tuple[int, Integers]:
    """The group of the row `start`, and how many of the `rows` rows from there on each has, from that group on."""
    first = int(np.searchsorted(table.first_row, start, side="right")) - 1
    last = int(np.searchsorted(table.first_row, start + rows, side="left"))
    edges = np.concatenate([[start], table.first_row[first + 1 : last], [start + rows]])
    return first, np.diff(edges)


def count_tied_before(source: Source, table: GroupDecisions, engine: Engine) -> dict[int, int]:
    """For the blocks that need it, the rows at the threshold that the first row's group has in earlier blocks."""
    splits = (table.taken > 0) & (table.taken < table.tied)
    block_rows = source.layout.block_rows
    crosses = table.first_row // block_rows < (table.first_row + table.n - 1) // block_rows
    if not (splits & crosses).any():
        return {}
    counts = engine.reduce(source, _TIED, engine.share(table), label="count tied rows")
    found: dict[int, int] = {}
    group, before = -1, 0
    for number, first, last, count in counts:
        found[number] = before if first == group else 0
        before = (found[number] if last == first else 0) + count
        group = last
    return found


Counts = list[tuple[int, int, int, int]]


def _count_tied(block: Block, table: GroupDecisions) -> Counts:
    """Number of the block, its first and its last group, and the rows of the last one at its threshold."""
    probability = block[PROBABILITY]
    first, lengths = _groups_of(table, block.start, len(probability))
    last = first + len(lengths) - 1
    count = int(np.count_nonzero(probability[len(probability) - int(lengths[-1]) :] == table.threshold[last]))
    return [(block.number, first, last, count)]


_TIED: Reduction[Counts, Counts] = Reduction(_count_tied, operator.add, identity)
