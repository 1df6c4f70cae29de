"""What budgets and their builds are, and what they answer, for people to read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from protodask.cli.showing.console import say, say_pairs, say_some, say_table, show, show_json
from protodask.pipeline.results.budget_words import guarantee_text, names_of, told_answers
from protodask.pipeline.telling.wording import count, recorded_pairs, run_pairs, shorten, value_text

if TYPE_CHECKING:
    from protodask.budget.queries import Answer, TableAnswered


def show_answer(answer: Answer, as_json: bool) -> None:
    """Which features to compute for an item, and which model is for them."""
    if as_json:
        show_json(answer.describe())
        return
    say_pairs(
        [
            ("features", names_of(answer.features)),
            ("columns", names_of(answer.columns)),
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
            ("gives", guarantee_text(found)),
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
    show(told_answers(found["answers"]))


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
