"""Budgets for people to read: what was found, what an index answers, and how far a build has come."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from protodask.cli.console import MOST_LINES, say, say_pairs, say_some, say_table, show_json
from protodask.cli.wording import count, recorded_pairs, run_pairs, shorten, value_text

if TYPE_CHECKING:
    from protodask.pipeline.budget_queries import Answer, TableAnswered
    from protodask.pipeline.budget_results import BudgetBuilt

MOST_REASONS = 5
"""Why sets failed; --json has all."""


def show_budget(result: BudgetBuilt) -> None:
    """What was explored, and what the index answers."""
    from protodask.pipeline.budget_results import failures_by_reason

    described = result.describe()
    _show_answers(described["answers"])
    say()
    for name, other in result.compared.items():
        say(f"{name}: {count(other.expanded, 'set')} expanded, {count(other.n_entries, 'entry', 'entries')}")
    if result.compared:
        say()
    say(summarize_budget(result))
    say(f"It has {_guarantee(described)}.")
    reasons = failures_by_reason(result.budget.index.failures)
    for reason, times in list(reasons.items())[:MOST_REASONS]:
        say(f"Failed, {count(times, 'set')}: {reason}")
    if result.plot is not None:
        say(f"The plot is {shorten(result.plot)}.")
    for note in result.notes:
        say(f"Note: {note}")


def summarize_budget(result: BudgetBuilt) -> str:
    """What the building of a budget left behind, in one line."""
    index = result.budget.index
    models = sum(model is not None for model in result.budget.models)
    of = 2**index.curves.n_features
    failed = f", {len(index.failures):,} of them in vain" if index.failures else ""
    return (
        f"The budget {shorten(result.path)} has {count(models, 'model')}: {index.expanded:,} of {of:,} sets of "
        f"features were expanded{failed}, {count(len(index.sets), 'candidate')} and "
        f"{count(index.n_entries, 'entry', 'entries')} of the index are left."
    )


def _guarantee(described: Mapping[str, Any]) -> str:
    guarantee = described["guarantee"]
    if guarantee is None or math.isinf(guarantee) or not described["guaranteed"]:
        return "no guarantee"
    if guarantee == 0:
        return "an answer as accurate as the best set for every size and budget"
    return f"answers at most {guarantee:.4g} less accurate than the best set within the budget"


def _show_answers(answers: Sequence[Mapping[str, Any]]) -> None:
    several = len(answers) > 1
    most = MOST_LINES // max(len(answers), 1)
    say_table(
        [*(["size"] if several else []), "budget", "accuracy", "features"],
        [
            [
                *([f"{one['size']:.6g}"] if several else []),
                f"{choice['cost']:.6g}",
                f"{choice['accuracy']:.4f}",
                _names(choice["features"]),
            ]
            for one in answers
            for choice in _spread(one["choices"], most)
        ],
    )
    left_out = sum(max(0, len(one["choices"]) - most) for one in answers)
    if left_out:
        say(f"and {left_out:,} more between them")


def _spread(choices: Sequence[Any], most: int) -> list[Any]:
    """At most so many of the choices, evenly spread, the first and the last among them."""
    last = len(choices) - 1
    if last < most:
        return list(choices)
    return [choices[round(place * last / (most - 1))] for place in range(most)]


def _names(features: Sequence[str]) -> str:
    return ", ".join(features) or "(none)"


def show_answer(answer: Answer, as_json: bool) -> None:
    """Which features to compute for an item, and which model is for them."""
    if as_json:
        show_json(answer.describe())
        return
    say_pairs(
        [
            ("features", _names(answer.features)),
            ("columns", _names(answer.columns)),
            ("accuracy", f"{answer.accuracy:.4f}"),
            ("cost", f"{answer.cost:.6g}"),
            ("model", _shares(answer) if answer.model is None else shorten(answer.model)),
        ]
    )


def _shares(answer: Answer) -> str:
    label, share = max(answer.shares, key=lambda one: one[1])
    return f"none: without features, {label} is the most frequent class, of {share:.1%} of the rows"


def show_answers(result: TableAnswered, as_json: bool) -> None:
    """How many queries were answered."""
    if as_json:
        show_json(result.describe())
        return
    say(f"The answers {shorten(result.path)} have {count(result.rows, 'row')}.")
    if result.unaffordable:
        say(f"{count(result.unaffordable, 'row')} have a budget that no set of features is within.")


def show_budget_folder(found: Mapping[str, Any]) -> None:
    """What a budget on disk is."""
    low, high = found["sizes"]
    say_pairs(
        [
            ("budget", shorten(found["path"])),
            ("target", found["target"]),
            ("sizes", f"{low:g} to {'any' if high is None or math.isinf(high) else f'{high:g}'}"),
            ("expanded", f"{found['expanded']:,} of {found['sets']:,} sets, {len(found['failures']):,} in vain"),
            ("candidates", f"{found['candidates']:,}"),
            ("entries", f"{found['entries']:,}"),
            ("models", f"{found['models']:,}"),
            ("alpha", value_text(found["alpha"])),
            ("gives", _guarantee(found)),
        ]
    )
    say()
    say_some(
        ["feature", "columns", "cost"],
        [
            [feature["name"], ", ".join(feature["columns"]), _polynomial(feature["cost"])]
            for feature in found["features"]
        ],
    )
    say()
    _show_answers(found["answers"])


def _polynomial(coefficients: Sequence[float]) -> str:
    terms = [
        f"{coefficient:g}" + ("" if power == 0 else " n" if power == 1 else f" n^{power}")
        for power, coefficient in enumerate(coefficients)
        if coefficient
    ]
    return " + ".join(terms) or "0"


def show_budget_run(found: Mapping[str, Any]) -> None:
    """How far the building of a budget has come, from its run directory."""
    say_pairs(
        [
            *run_pairs(found),
            ("sets expanded", f"{found['expanded']:,}, {found['failed']:,} in vain"),
            ("models fitted", f"{found['models']:,}"),
            *recorded_pairs(found["last_recorded"]),
        ]
    )
    say()
    say_table(["feature", "columns"], [[one["name"], ", ".join(one["columns"])] for one in found["features"]])
