"""The answer of a gate for people to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protodask.cli.console import say, say_table
from protodask.cli.wording import shorten, value_text

if TYPE_CHECKING:
    from protodask.pipeline.gate_results import GateAnswered


def show_gate(result: GateAnswered) -> None:
    """The answer, its reasons, and the figures beside their limits."""
    say(_answer(result))
    for reason in result.reasons:
        say(f"- {reason}")
    if result.figures:
        say()
        rows = [
            (
                figure.name,
                _value(figure.value),
                _value(figure.limit.least),
                _value(figure.limit.most),
                "no" if figure.reason else "yes",
            )
            for figure in result.figures
        ]
        say_table(["figure", "value", "least", "most", "within"], rows)
    if result.path is not None:
        say()
        say(f"The answer is in {shorten(result.path)}.")


def summarize_gate(result: GateAnswered) -> str:
    """The answer in one line, with its reasons."""
    return " ".join((_answer(result), *result.reasons))


def _answer(result: GateAnswered) -> str:
    if result.passed:
        return "The gate says yes."
    return "The gate says no, which is accepted." if result.accepted else "The gate says no."


def _value(value: float | None) -> str:
    return "-" if value is None else value_text(value)
