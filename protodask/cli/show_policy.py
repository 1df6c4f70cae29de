"""The value of a policy for people to read."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from protodask.cli.console import say, say_pairs
from protodask.cli.wording import number, shorten
from protodask.places import mask

if TYPE_CHECKING:
    from protodask.pipeline.results import PolicyEvaluated


def show_policy(result: PolicyEvaluated) -> None:
    """The value, its interval, and what they rest on."""
    found = result.estimate
    say(summarize_policy(result))
    say()
    say_pairs(
        [
            ("value", f"{found.interval.value:.6g}"),
            ("low", f"{found.interval.low:.6g}"),
            ("high", f"{found.interval.high:.6g}"),
            ("estimator", result.question.estimator),
            ("rows", f"{found.rows:,}"),
            ("rows with its action", f"{found.matched:,}"),
            ("records of the whole log", number(found.records)),
        ]
    )
    if result.path is not None:
        say()
        say(f"The value is in {shorten(result.path)}.")


def summarize_policy(result: PolicyEvaluated) -> str:
    """The value in one line."""
    interval = result.estimate.interval
    who = "The policy" if result.model is None else f"The model {shorten(result.model)}"
    earned = f"{who} would earn {interval.value:.4g} a record on the log {mask(result.data)}"
    if result.estimate.matched == 0:
        return f"No row of {mask(result.data)} has an action that the policy takes: the log says nothing of its value."
    if interval.low == interval.high or not math.isfinite(interval.low):
        return f"{earned}. Too few rows count, or all alike, to say how far that is off."
    sure = f"{100 * result.question.confidence:g} per cent"
    return f"{earned}; with {sure} confidence, between {interval.low:.4g} and {interval.high:.4g}."
