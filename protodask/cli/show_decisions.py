"""Decisions for people to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protodask.cli.console import say
from protodask.cli.wording import count, shorten

if TYPE_CHECKING:
    from protodask.pipeline.results import DecisionsWritten


def show_decisions(result: DecisionsWritten) -> None:
    """What was decided, and what the threshold 0.5 would have cost."""
    found = result.found
    if found.decision is not None:
        say(found.decision.explain())
    else:
        each = {"groups": "group", "classes": "row", "labels": "row"}[found.kind]
        what = "rows" if found.kind == "groups" else found.kind
        say(
            f"Selected {found.selected:,} {what} of {count(found.rows, 'row')} in "
            f"{count(found.decisions, 'decision')}, one for each {each}."
        )
        say(
            f"Expected {found.loss} loss {found.expected_loss:.6g} a {each}; selecting probabilities of at least 0.5 "
            f"would cost {found.loss_at_half:.6g}, {found.loss_at_half - found.expected_loss:.3g} more."
        )
    say(f"The decisions are in {shorten(found.path)}.")


def summarize_decisions(result: DecisionsWritten) -> str:
    """The same in one line."""
    found = result.found
    return (
        f"The decisions {shorten(found.path)} select {found.selected:,} of {count(found.rows, 'row')}; expected "
        f"{found.loss} loss {found.expected_loss:.6g}, with the threshold 0.5 {found.loss_at_half:.6g}."
    )
