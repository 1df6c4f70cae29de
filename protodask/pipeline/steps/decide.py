"""The step `decide`: which rows to select, for the loss they are judged by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from protodask.errors import InputError, count
from protodask.pipeline.steps.base import Argument, Option, Overwrite, Panel, Read, Step, Written
from protodask.pipeline.telling.events import Listener, nobody
from protodask.pipeline.telling.result import Piece, Result, shorten
from protodask.places import mask

if TYPE_CHECKING:
    from protodask.decisions.losses import Loss
    from protodask.decisions.stored import Compared
    from protodask.engine import Engine


@dataclass(frozen=True)
class DecisionsWritten(Result):
    """Decisions on rows lie at the path."""

    found: Compared

    def describe(self) -> dict[str, Any]:
        from protodask.decisions.decision_store import plain_number

        found = self.found
        described = {
            "kind": "decisions",
            "path": mask(found.path),
            "predictions": mask(found.source),
            "of": found.what,
            "decided": found.kind,
            "loss": found.loss,
            "rows": found.rows,
            "decisions": found.decisions,
            "selected": found.selected,
            "expected_loss": found.expected_loss,
            "loss_at_half": found.loss_at_half,
        }
        if found.decision is not None:
            cut = found.decision.cut
            described |= {
                "method": found.decision.method,
                "threshold": plain_number(cut.threshold),
                "tied": cut.tied,
                "taken": cut.taken,
            }
        return described

    def summary(self) -> str:
        found = self.found
        return (
            f"The decisions {shorten(found.path)} select {found.selected:,} of {count(found.rows, 'row')}; expected "
            f"{found.loss} loss {found.expected_loss:.6g}, with the threshold 0.5 {found.loss_at_half:.6g}."
        )

    def told(self) -> Iterator[Piece]:
        found = self.found
        if found.decision is not None:
            yield found.decision.explain()
        else:
            each = {"groups": "group", "classes": "row", "labels": "row"}[found.kind]
            one = {"groups": "row", "classes": "class", "labels": "label"}[found.kind]
            many = "rows" if found.kind == "groups" else found.kind
            yield (
                f"Selected {count(found.selected, one, many)} of {count(found.rows, 'row')} in "
                f"{count(found.decisions, 'decision')}, one for each {each}."
            )
            yield (
                f"Expected {found.loss} loss {found.expected_loss:.6g} a {each}; selecting probabilities of at least "
                f"0.5 would cost {found.loss_at_half:.6g}, {found.loss_at_half - found.expected_loss:.3g} more."
            )
        yield f"The decisions are in {shorten(found.path)}."


_of_loss = partial(Option, panel="The loss")
_of_rows = partial(Option, panel="The rows")

F_BETA = "f_beta"


@dataclass(frozen=True)
class DecideStep(Step):
    """Select the rows that make the expected loss the least: F1, Jaccard, AM and others, or your own."""

    command = "decide"
    panel = Panel.USE
    about = "on {predictions} into {out}"

    predictions: Annotated[
        Read, Argument("Predictions of `protodask predict`, or Parquet files with a column of probabilities.", "PRED")
    ]
    out: Annotated[Written, Option("Where to write: Parquet if it ends in .parquet, otherwise Zarr.", "DECISIONS")]
    loss: Annotated[
        str | None,
        _of_loss(
            "am, f1, jaccard, g_tp_pr, g_mean, h_mean, auc, or f and a number such as f2; by default, f1.", "NAME"
        ),
    ] = None
    beta: Annotated[float | None, _of_loss("F-beta: recall counts beta squared times as much.")] = None
    coefficients: Annotated[
        str | None,
        _of_loss(
            "(c0 + c1 u + c2 v + c3 p) / (d0 + d1 u + d2 v + d3 p), where u, v and p are the shares of true positives, "
            "selected and positive rows.",
            "C0,C1,C2,C3/D0,D1,D2,D3",
        ),
    ] = None
    positive: Annotated[
        str | None, _of_rows("Class that is told from the others; of two, the second by default.", "LABEL")
    ] = None
    probability: Annotated[
        tuple[str, ...],
        _of_rows("Column of probabilities in Parquet files that are not predictions; several with --per-row.", "COL"),
    ] = ()
    group: Annotated[
        str | None, _of_rows("Column that says which item set a row belongs to: one decision for each.", "COL")
    ] = None
    per_row: Annotated[
        Literal["classes", "labels"] | None,
        _of_rows(
            "One decision for each row: which classes to name, of which one is true, or which labels, true "
            "independently of each other."
        ),
    ] = None
    method: Annotated[
        Literal["auto", "exact", "normal"], Option("Exact sums, nearly normal counts for many rows, or what suits.")
    ] = "auto"
    keep: Annotated[
        tuple[str, ...],
        _of_rows(
            "Column of Parquet files to write beside the decisions, as an id; by default, those that predictions kept. "
            "Repeatable.",
            "COL",
        ),
    ] = ()
    overwrite: Overwrite = False

    def check(self) -> None:
        self.chosen_loss()
        if self.per_row is not None:
            from protodask.decisions.stored import check_per_row

            check_per_row(self.per_row, self.group, self.positive, self.method)
        if self.keep:
            from protodask.decisions.decision_store import check_kept

            check_kept(self.keep, self.out)

    def perform(self, engine: Engine, listen: Listener = nobody) -> DecisionsWritten:
        from protodask.decisions.stored import decide_stored

        found = decide_stored(
            self.predictions,
            self.out,
            self.chosen_loss(),
            method=self.method,
            group=self.group,
            label=self.positive,
            probability=self.probability,
            per_row=self.per_row,
            keep=self.keep,
            engine=engine,
            overwrite=self.overwrite,
        )
        return DecisionsWritten(found)

    def chosen_loss(self) -> Loss:
        """The loss that the settings mean."""
        from protodask.decisions.losses import Loss, as_loss

        if self.beta is not None and self.coefficients is not None:
            raise InputError(
                "settings-conflict",
                "Both beta and coefficients are given.",
                "Give one: either makes a loss of its own.",
            )
        if self.beta is not None:
            if self.loss not in (None, F_BETA):
                raise InputError(
                    "settings-conflict",
                    f"`beta` is given with the loss {self.loss!r}.",
                    f"Leave the loss out, or write {F_BETA}: beta is for it.",
                )
            return Loss.f_beta(self.beta)
        if self.coefficients is not None:
            if self.loss is not None:
                raise InputError(
                    "settings-conflict",
                    f"Coefficients are given with the loss {self.loss!r}.",
                    "Leave one out: they are a loss of their own.",
                )
            return Loss.linear_fractional(*_coefficients(self.coefficients))
        if self.loss == F_BETA:
            raise InputError("setting-missing", f"The loss is {F_BETA}, and beta is not given.", "Add beta, such as 2.")
        return as_loss("f1" if self.loss is None else self.loss)


def _coefficients(text: str) -> tuple[list[float], list[float]]:
    """Of numerator and denominator, from "c0,c1,c2,c3/d0,d1,d2,d3"."""
    try:
        above, below = ([float(number) for number in part.split(",")] for part in text.split("/"))
    except ValueError as error:
        raise InputError(
            "bad-setting",
            f"The coefficients are {text!r}.",
            "Write them like 0,-2,1,1/0,-1,1,1: of 1, u, v and p above and below.",
        ) from error
    return above, below
