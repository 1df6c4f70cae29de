"""Decisions on predictions in a store, written into another, block by block."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from protodask.data.places.locations import locate
from protodask.data.places.storage import check_free, check_outside
from protodask.data.tables.kept_columns import KEPT
from protodask.data.tables.table_files import check_parquet, is_csv, is_parquet
from protodask.decisions.deciding import Method, check_method, decide
from protodask.decisions.decision import Decision
from protodask.decisions.decision_store import (
    DECISIONS,
    EXPECTED_LOSS,
    SELECTED,
    check_kept,
    plain_number,
    published_decisions,
)
from protodask.decisions.group_tables import (
    GROUP,
    PROBABILITY,
    GroupDecisions,
    count_tied_before,
    one_group,
    select_rows,
)
from protodask.decisions.groups import check_exact, decide_scattered, decide_together
from protodask.decisions.large import decide_source
from protodask.decisions.losses import Loss, as_loss
from protodask.decisions.predicted_rows import PredictedRows, open_rows
from protodask.decisions.probabilities import check_probabilities
from protodask.decisions.sets import RowDecisions, check_totals, decide_rows, decide_sets
from protodask.engine import Arrays, Block, Engine, EngineLike, Reduction, add_records, identity, open_engine
from protodask.engine.memory import INTERPRETER_BYTES, process_memory_limit
from protodask.errors import InputError
from protodask.places import mask

PerRow = Literal["classes", "labels"]
Kind = Literal["all", "groups", "classes", "labels"]

FEW_ROWS = 2000
"""Rows that are decided on exactly by `auto`."""

SCATTERED_BYTES = 120
"""Of memory for each row, where groups do not lie together and all rows are sorted: 5 times 8 bytes for probabilities,
groups, their codes and orders, twice while they are put together, and text is larger than numbers."""

SCATTERED_SHARE = 0.5
"""Of what this process may hold besides the interpreter."""


@dataclass(frozen=True)
class Compared:
    """What was decided on all rows, summed up: one decision, one for each group, or one for each row."""

    path: str
    source: str
    what: str
    """The class, the column, or all of them."""
    loss: str
    rows: int
    selected: int
    """Rows, or classes of rows."""
    decisions: int
    expected_loss: float
    """Mean over the decisions."""
    loss_at_half: float
    """The same for selecting all of probability at least 0.5."""
    kind: Kind
    decision: Decision | None
    """The only one, if there is one."""


def decide_stored(
    predictions: str | os.PathLike[str],
    out: str | os.PathLike[str],
    loss: str | Loss | Callable[..., Any] = "f1",
    *,
    method: Method = "auto",
    group: str | None = None,
    label: str | None = None,
    probability: Sequence[str] = (),
    per_row: PerRow | None = None,
    keep: Sequence[str] = (),
    engine: EngineLike = None,
    overwrite: bool = False,
) -> Compared:
    """Decide on the rows of `predictions`, and write to `out` which are selected.

    Predictions are those of `protodask predict`, of which `label` names the class that is to be told from the others
    (of two, the second by default), or Parquet files with a column of probabilities, which `probability` names. All
    rows are one item set; with `group`, those that are equal in that column. With `per_row` each row has a decision of
    its own: which `classes` to name, of which one is true, or which `labels`, true independently of each other.

    A place that ends in `.parquet` becomes a folder with a file for each block (columns `row`, `selected`,
    `probability` and, with groups, `group`), and `_groups.parquet` with a row for each group; any other becomes a Zarr
    group with the arrays `selected` (N,), 1 or 0, and `probability` (N,), and the Zarr group `groups`. Decisions for
    each row have flags for each class, and `expected_loss` (N,). Either appears whole or not at all. Rows of one
    probability at the threshold are selected by row number, the first ones.

    Parquet has beside them the columns to `keep` of Parquet files, such as an id; by default, those that the
    predictions kept.
    """
    form = as_loss(loss)
    where = locate(out)
    if is_csv(where):
        raise InputError(
            "unsupported",
            f"{mask(where)} ends in .csv, and decisions are written as Parquet or Zarr.",
            "Give a place that ends in .parquet: any table tool reads it.",
        )
    if is_parquet(where):
        check_parquet(where, "Decisions")
    check_per_row(per_row, group, label, method)
    kept = (keep,) if isinstance(keep, str) else tuple(keep)
    check_kept(kept, where)
    check_outside(where, predictions)
    check_free(where, overwrite, DECISIONS)
    columns = (probability,) if isinstance(probability, str) else probability
    rows = open_rows(predictions, label=label, columns=columns, group=group, every=per_row is not None, keep=kept)
    task = _Task(rows, str(predictions), where, form, method, overwrite)
    with open_engine(engine) as opened:
        try:
            return task.decide_each(per_row, opened) if per_row is not None else task.decide(group, opened)
        finally:
            opened.forget(rows)


def check_per_row(per_row: PerRow | None, group: str | None, label: str | None, method: Method) -> None:
    """Refuse what is no such setting, and what has no place beside a decision for each row."""
    if per_row not in (None, "classes", "labels"):
        raise InputError("bad-setting", f"per_row is {per_row!r}.", "Choose classes or labels, or leave it out.")
    check_method(method)
    if per_row is not None and (group is not None or label is not None or method != "auto"):
        raise InputError(
            "settings-conflict",
            "A decision for each row is asked for together with a group, a class or a method.",
            "Leave them out: each row is an item set of its own, of all classes, and is decided exactly.",
        )


@dataclass(frozen=True)
class _Task:
    rows: PredictedRows
    source: str
    where: str
    loss: Loss
    method: Method
    overwrite: bool

    def decide(self, group: str | None, engine: Engine) -> Compared:
        decision = None
        if group is None:
            decision = self._decide_all(engine)
            table = one_group(decision, np.zeros(1, dtype=np.int64), 0)
        else:
            table = self._decide_groups(group, engine)
        losses = table.mean_expected_loss, table.mean_loss_at_half
        kind: Kind = "all" if group is None else "groups"
        found = Compared(*self._about, int(table.k.sum()), len(table), *losses, kind, decision)
        groups, more = None if group is None else table, {"group": group}
        if table.selected is None:
            arguments = (engine.share(table), count_tied_before(self.rows, table, engine))
            self._write(engine, found, more, (), groups, _flag_rows, *arguments)
        else:
            self._write(engine, found, more, (), groups, _give_flags, engine.share(table.selected))
        return found

    def decide_each(self, per_row: PerRow, engine: Engine) -> Compared:
        names, rows = self.rows.names, self.rows.n_rows
        selected, expected, at_half = engine.reduce(
            self.rows, _ROW_SUMS, self.loss, per_row, label="decide on the rows"
        )
        found = Compared(*self._about, selected, rows, expected / rows, at_half / rows, per_row, None)
        self._write(engine, found, {"classes": list(names)}, names, None, _flag_classes, self.loss, per_row)
        return found

    @property
    def _about(self) -> tuple[str, str, str, str, int]:
        """The first fields of `Compared`."""
        return self.where, self.source, ", ".join(self.rows.names), self.loss.name, self.rows.n_rows

    def _decide_all(self, engine: Engine) -> Decision:
        n_rows = self.rows.n_rows
        check_exact(self.method, n_rows, "There are")
        if self.method == "normal" or (self.method == "auto" and n_rows > FEW_ROWS):
            return decide_source(self.rows, self.loss, engine)
        values = engine.collect(self.rows, _checked, label="read the probabilities")[PROBABILITY]
        return decide(values, self.loss, self.method)

    def _decide_groups(self, group: str, engine: Engine) -> GroupDecisions:
        found = decide_together(self.rows, self.loss, self.method, engine)
        if found is not None:
            return found
        needed = SCATTERED_BYTES * self.rows.n_rows
        usable = SCATTERED_SHARE * (engine.scheduler.processes().driver_bytes - INTERPRETER_BYTES)
        if needed > min(usable, SCATTERED_SHARE * process_memory_limit()):
            raise InputError(
                "over-memory",
                f"The rows of a group in {group!r} do not lie together, and sorting {self.rows.n_rows:,} rows in "
                f"memory takes about {needed / 2**20:,.0f} MiB.",
                "Sort the rows by the group first, or give more memory with `memory_bytes`.",
            )
        values = engine.collect(self.rows, _checked, label="read the groups")
        return decide_scattered(values[PROBABILITY], values[GROUP], self.loss, self.method, engine)

    def _write(
        self,
        engine: Engine,
        found: Compared,
        more: Mapping[str, Any],
        names: tuple[str, ...],
        groups: GroupDecisions | None,
        function: Callable[..., Arrays],
        *args: Any,
    ) -> None:
        """Write the flags that `function` gives, and a record of what was `found`, with `more` to say of it."""
        cut = None
        if found.decision is not None:
            own = found.decision.cut
            cut = {"threshold": plain_number(own.threshold), "tied": own.tied, "taken": own.taken}
        record = {
            "predictions": mask(self.source),
            "of": found.what,
            "kind": found.kind,
            "loss": found.loss,
            "method": self.method if found.decision is None else found.decision.method,
            "rows": found.rows,
            "selected": found.selected,
            "decisions": found.decisions,
            "expected_loss": found.expected_loss,
            "loss_at_half": found.loss_at_half,
            "cut": cut,
            **more,
        }
        with published_decisions(self.where, self.overwrite, self.rows.layout, names, record, groups) as sink:
            rows = self.rows.with_kept() if is_parquet(self.where) else self.rows
            engine.map(rows, function, *args, sink=sink, label="write the decisions")
            self.rows.reader.check_unchanged()


def _checked(block: Block) -> Arrays:
    check_probabilities(block[PROBABILITY], block.start)
    return block.arrays


def _flag_rows(block: Block, table: GroupDecisions, tied_before: dict[int, int]) -> Arrays:
    chosen = select_rows(table, block[PROBABILITY], block.start, tied_before.get(block.number, 0))
    return {**block.arrays, SELECTED: chosen.astype(np.int8)}


def _give_flags(block: Block, flags: Any) -> Arrays:
    return {**block.arrays, SELECTED: flags[block.start : block.stop].astype(np.int8)}


def _decide_block(block: Block, loss: Loss, per_row: PerRow) -> RowDecisions:
    values = block[PROBABILITY]
    check_probabilities(values, block.start)
    if per_row == "labels":
        return decide_rows(values, loss)
    check_totals(values, block.start)
    return decide_sets(values, loss)


Sums = tuple[int, float, float]
"""Of what is selected, of expected losses, and of those at 0.5."""


def _sum_block(block: Block, loss: Loss, per_row: PerRow) -> Sums:
    found = _decide_block(block, loss, per_row)
    return int(found.k.sum()), float(found.expected_loss.sum()), float(found.loss_at_half.sum())


_ROW_SUMS: Reduction[Sums, Sums] = Reduction(_sum_block, add_records, identity)


def _flag_classes(block: Block, loss: Loss, per_row: PerRow) -> Arrays:
    found = _decide_block(block, loss, per_row)
    kept = {KEPT: block[KEPT]} if KEPT in block else {}
    return {**kept, SELECTED: found.selected.astype(np.int8), EXPECTED_LOSS: found.expected_loss}
