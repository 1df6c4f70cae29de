"""What budgets and their builds are, and what they answer, for people to read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from protodask.pipeline.steps.budget import guarantee_text, names_of, told_answers
from protodask.pipeline.telling.result import Pairs, Piece, Table
from protodask.pipeline.telling.wording import count, recorded_pairs, run_pairs, shorten, value_text

if TYPE_CHECKING:
    from protodask.budget.queries import Answer, TableAnswered


def told_choice(answer: Answer) -> Iterator[Piece]:
    """Which features to compute for an item, and which model is for them."""
    yield Pairs(
        [
            ("features", names_of(answer.features)),
            ("columns", names_of(answer.columns)),
            ("accuracy", f"{answer.accuracy:.4f}"),
            ("cost", f"{answer.cost:.6g}"),
            ("gives", guarantee_text(answer.describe())),
            ("model", _shares(answer) if answer.model is None else shorten(answer.model)),
        ]
    )


def _shares(answer: Answer) -> str:
    label, share = max(answer.shares, key=lambda one: one[1])
    return f"none: without features, {label} is the most frequent class, of {share:.1%} of the rows"


def told_choices(result: TableAnswered) -> Iterator[Piece]:
    """How many queries were answered."""
    yield f"The answers {shorten(result.path)} have {count(result.rows, 'row')}."
    if result.unaffordable:
        yield f"{count(result.unaffordable, 'row')} have a budget that no set of features is within."


def told_budget_folder(found: Mapping[str, Any]) -> Iterator[Piece]:
    """What a budget on disk is."""
    low, high = found["sizes"]
    yield Pairs(
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
    yield ""
    yield Table(
        ["feature", "columns", "cost"],
        [
            [feature["name"], ", ".join(feature["columns"]), _polynomial(feature["cost"])]
            for feature in found["features"]
        ],
    )
    yield ""
    yield from told_answers(found["answers"])


def _polynomial(coefficients: Sequence[float]) -> str:
    terms = [
        f"{coefficient:g}" + ("" if power == 0 else " n" if power == 1 else f" n^{power}")
        for power, coefficient in enumerate(coefficients)
        if coefficient
    ]
    return " + ".join(terms) or "0"


def told_budget_run(found: Mapping[str, Any]) -> Iterator[Piece]:
    """How far the building of a budget has come, from its run directory."""
    yield Pairs(
        [
            *run_pairs(found),
            ("sets expanded", f"{found['expanded']:,}, {found['failed']:,} in vain"),
            ("models fitted", f"{found['models']:,}"),
            *recorded_pairs(found["last_recorded"]),
        ]
    )
    yield ""
    rows = [[one["name"], ", ".join(one["columns"])] for one in found["features"]]
    yield Table(["feature", "columns"], rows, whole=True)
