"""A decision for each group of rows, all groups in one pass where the rows of each lie together.

A block is cut where the group changes. The groups that begin and end inside it are decided at once; the first and the
last one may go on in the neighbouring blocks, so their probabilities are kept until they are complete. That is a
monoid, whatever the blocks. A group of more than `LONG` rows keeps only its place: it is decided by passes of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from protodask.data.arrays.rows import RangedRows, RowRange
from protodask.data.tables.frames import array_of_names, refuse_ungrouped
from protodask.decisions.deciding import Method, check_method
from protodask.decisions.group_tables import GROUP, PROBABILITY, GroupDecisions, join_groups, one_group, select_rows
from protodask.decisions.large import decide_ordered, decide_source
from protodask.decisions.losses import Loss, as_loss
from protodask.decisions.probabilities import check_any, check_probabilities, read_probabilities
from protodask.decisions.sets import choose_labels
from protodask.engine import Block, Engine, EngineLike, Layout, Reduction, Source, array_source, identity, open_engine
from protodask.engine.memory import INTERPRETER_BYTES
from protodask.engine.records import Floats, Integers, taken
from protodask.errors import InputError, refusing

EXACT_ROWS = 512
"""Groups of up to so many rows are decided exactly by `auto`, in up to 20 ms each; the other way takes 7 there."""

MOST_EXACT_ROWS = 10_000
"""Beyond which `exact` would take minutes for each group."""

GROUP_BYTES = 300
"""A decision, twice while two tables become one, and sorted in the end: 250 were measured for a million groups."""

GROUPS_SHARE = 0.5
"""Of what a process may hold besides the interpreter, for decisions."""

LEAST_GROUPS = 100_000
"""Are always taken on: 30 MB."""

LONG = 2**17
"""Rows of a group that are kept until its last one is seen: 1 MiB."""


def decide_groups(
    probability: ArrayLike,
    group: ArrayLike,
    loss: str | Loss | Callable[..., Any] = "f1",
    method: Method = "auto",
    *,
    engine: EngineLike = None,
) -> GroupDecisions:
    """A decision for each group of the items of equal `group` (n,), in whatever order they are.

    `auto` decides groups of up to 512 items exactly and larger ones as `decide_normal` does. Among items of one
    probability the first are selected.
    """
    check_method(method)
    values = read_probabilities(probability)
    labels = array_of_names(group)
    if labels.shape != values.shape:
        raise InputError(
            "wrong-shape",
            f"The groups have the shape {labels.shape}, and the probabilities {values.shape}.",
            "Give one group for each probability.",
        )
    refuse_ungrouped(group, "An item")
    with open_engine(engine) as opened:
        return decide_scattered(values, labels, loss, method, opened)


def decide_scattered(
    values: Floats, labels: NDArray[Any], loss: str | Loss | Callable[..., Any], method: Method, engine: Engine
) -> GroupDecisions:
    """The decisions for rows in memory, in any order, with a flag for each row."""
    seen, remedy = "The groups cannot be told apart by sorting them", "Give all as numbers, or all as text."
    with refusing(TypeError, "wrong-type", seen, remedy):
        codes = np.unique(labels, return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    ordered = values[order]
    found = decide_together(array_source({PROBABILITY: ordered, GROUP: codes[order]}), loss, method, engine)
    assert found is not None
    selected = np.empty(len(order), dtype=np.bool_)
    selected[order] = select_rows(found, ordered, 0)
    first_row = order[found.first_row].astype(np.int64)
    told = replace(found, group=labels[first_row], first_row=first_row)
    return replace(taken(told, np.argsort(first_row)), selected=selected)


def decide_together(
    source: Source, loss: str | Loss | Callable[..., Any], method: Method, engine: Engine
) -> GroupDecisions | None:
    """The decisions for a source whose groups lie together; None where a group comes back after another one."""
    check_any(source.layout.n_rows)
    form = as_loss(loss)
    runs = engine.reduce(source, _RUNS, Choice(form, method, _most_groups(engine)), label="decide the groups")
    if runs is None:
        return None
    closed, long_runs = _close(runs.ends, runs.choice)
    passes = []
    for run in (*runs.long_runs, *long_runs):
        check_exact(runs.choice.method, run.rows)
        rows, layout = RowRange(source, run.start, run.rows), Layout(run.rows, source.layout.block_rows)
        own = RangedRows((rows,), (PROBABILITY, GROUP), layout)
        passes.append(one_group(decide_source(own, form, engine), run.group, run.start))
        engine.forget(own)
    every = join_groups([runs.decided, closed, *passes])
    if len(np.unique(every.group)) < len(every):
        return None
    return replace(taken(every, np.argsort(every.first_row)), loss=form.name)


@dataclass(frozen=True)
class Choice:
    """How groups are decided."""

    loss: Loss
    method: Method
    most_groups: int
    """That fit into memory."""


def _most_groups(engine: Engine) -> int:
    found = engine.scheduler.processes()
    usable = min(found.memory_bytes, found.driver_bytes) - INTERPRETER_BYTES
    return max(LEAST_GROUPS, int(GROUPS_SHARE * usable) // GROUP_BYTES)


@dataclass(frozen=True)
class Run:
    """Neighbouring rows of one group."""

    group: NDArray[Any]
    """(1,)."""
    start: int
    rows: int
    values: Floats | None
    """Probabilities (rows,); None of a run too long to keep."""


@dataclass(frozen=True)
class Runs:
    """What is known of some neighbouring rows: the complete groups, and the runs at both ends."""

    choice: Choice
    ends: tuple[Run, ...]
    """The first and the last one, or the only one."""
    decided: GroupDecisions
    long_runs: tuple[Run, ...]


def _map_runs(block: Block, choice: Choice) -> Runs | None:
    values, labels = np.asarray(block[PROBABILITY], dtype=np.float64), block[GROUP]
    check_probabilities(values, block.start)
    starts = np.concatenate([[0], np.flatnonzero(labels[1:] != labels[:-1]) + 1])
    if len(np.unique(labels)) < len(starts):
        return None  # nothing that is decided here would count
    rows = np.diff(starts, append=len(labels))

    def run(place: int) -> Run:
        first, last = int(starts[place]), int(starts[place] + rows[place])
        kept = values[first:last].copy() if last - first <= LONG else None
        return Run(labels[first : first + 1].copy(), block.start + first, last - first, kept)

    inside = np.zeros(len(starts), dtype=np.bool_)
    inside[1:-1] = True
    short = np.flatnonzero(inside & (rows <= LONG))
    long_runs = tuple(run(place) for place in np.flatnonzero(inside & (rows > LONG)).tolist())
    decided = decide_runs(values, labels, starts[short], rows[short], block.start, choice)
    return Runs(choice, tuple(run(place) for place in sorted({0, len(starts) - 1})), decided, long_runs)


def _merge_runs(left: Runs | None, right: Runs | None) -> Runs | None:
    if left is None or right is None:
        return None
    (*before, last), (following, *after) = left.ends, right.ends
    joined = last.group[0] == following.group[0]
    first, *inside = [*before, *([_join_runs(last, following)] if joined else [last, following]), *after]
    final = inside[-1:]
    closed, long_runs = _close(inside[:-1], left.choice)
    decided = join_groups([left.decided, right.decided, closed])
    if len(decided) > left.choice.most_groups:
        raise InputError(
            "over-memory",
            f"There are more than {left.choice.most_groups:,} groups, too many to keep a decision for each.",
            "Decide on parts of the rows, one after the other, or give more memory with `memory_bytes`.",
        )
    return Runs(left.choice, (first, *final), decided, (*left.long_runs, *right.long_runs, *long_runs))


def _join_runs(left: Run, right: Run) -> Run:
    rows, values = left.rows + right.rows, None
    if left.values is not None and right.values is not None and rows <= LONG:
        values = np.concatenate([left.values, right.values])
    return Run(left.group, left.start, rows, values)


def _close(runs: Iterable[Run], choice: Choice) -> tuple[GroupDecisions, tuple[Run, ...]]:
    """The decisions on complete groups, and those that are too long to have been kept."""
    tables: list[GroupDecisions] = []
    long_runs: list[Run] = []
    for run in runs:
        if run.values is None:
            long_runs.append(run)
        else:
            tables.append(decide_runs(run.values, run.group, _ZERO, _ZERO + run.rows, run.start, choice))
    return join_groups(tables), tuple(long_runs)


_ZERO = np.zeros(1, dtype=np.int64)
_RUNS: Reduction[Runs | None, Runs | None] = Reduction(_map_runs, _merge_runs, identity)


def decide_runs(
    values: Floats, labels: NDArray[Any], starts: Integers, rows: Integers, first_row: int, choice: Choice
) -> GroupDecisions:
    """Decide the runs of so many `rows` from `starts` on; those of one length together."""
    tables = []
    for length in np.unique(rows).tolist():
        own = starts[rows == length]
        check_exact(choice.method, length)
        if choice.method == "exact" or (choice.method == "auto" and length <= EXACT_ROWS):
            together = values[own[:, None] + np.arange(length)]
            tables.append(_decide_equal(together, labels[own], own + first_row, choice.loss))
        else:
            for start in own.tolist():
                decision = decide_ordered(values[start : start + length], choice.loss)
                tables.append(one_group(decision, labels[start : start + 1], start + first_row))
    return join_groups(tables)


def _decide_equal(values: Floats, labels: NDArray[Any], first_row: Integers, loss: Loss) -> GroupDecisions:
    """Decide groups of one length exactly: probabilities (G, n)."""
    found = choose_labels(values, loss)
    threshold = found.threshold[:, None]
    return GroupDecisions(
        group=labels,
        first_row=first_row,
        n=np.full(len(values), values.shape[1]),
        k=found.k,
        threshold=found.threshold,
        tied=np.count_nonzero(values == threshold, axis=1),
        taken=found.k - np.count_nonzero(values > threshold, axis=1),
        expected_loss=found.expected_loss,
        loss_at_half=found.loss_at_half,
        loss=found.loss,
    )


def check_exact(method: Method, rows: int, where: str = "A group has") -> None:
    """Refuse to decide on very many rows exactly."""
    if method == "exact" and rows > MOST_EXACT_ROWS:
        raise InputError(
            "over-limit",
            f"{where} {rows:,} rows, and the exact method takes up to {MOST_EXACT_ROWS:,}.",
            "Use the method auto, which decides on many rows by nearly normal counts.",
        )
