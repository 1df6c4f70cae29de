"""What the building of a budget leaves behind, as plain values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from protodask.budget import BudgetIndex, Choice
from protodask.budget.column_index import ColumnBudget
from protodask.budget.costs import CostCurves
from protodask.budget.expansions import Expansion
from protodask.budget.greedy_index import GreedyIndex
from protodask.budget.noise import CONFIDENCE
from protodask.pipeline.results.budget_words import guarantee_text, told_answers
from protodask.pipeline.telling.result import Piece, Result
from protodask.pipeline.telling.wording import count, shorten
from protodask.places import mask

MOST_REASONS = 5
"""Why sets failed; --json has all."""


@dataclass(frozen=True, eq=False)
class BudgetBuilt(Result):
    """An index of sets of features with their models lies at `path`."""

    path: str
    budget: ColumnBudget
    compared: Mapping[str, GreedyIndex]
    """Other methods by name, where they were asked for."""
    plot: str | None
    notes: tuple[str, ...] = ()

    def summary(self) -> str:
        index = self.budget.index
        models = sum(model is not None for model in self.budget.models)
        of = 2**index.curves.n_features
        failed = f", {len(index.failures):,} of them in vain" if index.failures else ""
        return (
            f"The budget {shorten(self.path)} has {count(models, 'model')}: {index.expanded:,} of {of:,} sets of "
            f"features were expanded{failed}, {count(len(index.sets), 'candidate')} and "
            f"{count(index.n_entries, 'entry', 'entries')} of the index are left."
        )

    def told(self) -> Iterator[Piece]:
        described = self.describe()
        yield from told_answers(described["answers"])
        yield ""
        for name, other in self.compared.items():
            yield f"{name}: {count(other.expanded, 'set')} expanded, {count(other.n_entries, 'entry', 'entries')}"
        if self.compared:
            yield ""
        yield self.summary()
        yield f"It has {guarantee_text(described)}."
        reasons = failures_by_reason(self.budget.index.failures)
        for reason, times in list(reasons.items())[:MOST_REASONS]:
            yield f"Failed, {count(times, 'set')}: {reason}"
        if self.plot is not None:
            yield f"The plot is {shorten(self.plot)}."
        yield from self.told_notes()

    def describe(self) -> dict[str, Any]:
        index = self.budget.index
        return {
            "kind": "budget",
            "path": mask(self.path),
            **describe_index(index, self.budget.features.columns),
            "models": sum(model is not None for model in self.budget.models),
            "methods": [
                {"name": name, "expanded": other.expanded, "entries": other.n_entries}
                for name, other in self.compared.items()
            ],
            "plot": None if self.plot is None else mask(self.plot),
            "notes": list(self.notes),
        }


def describe_index(index: BudgetIndex, columns: Sequence[Sequence[str]]) -> dict[str, Any]:
    """An index by the names of its features, and what it answers at a few sizes."""
    curves = index.curves
    return {
        "features": [
            {"name": name, "columns": list(own), "cost": cost}
            for name, own, cost in zip(index.feature_names, columns, curves.coefficients.tolist(), strict=True)
        ],
        "sizes": [curves.low, curves.high],
        "alpha": index.alpha,
        "monotone_error": index.monotone_error,
        "guarantee": index.guarantee,
        "observed_error": index.observed_error,
        "guaranteed": index.guaranteed,
        "margin": index.margin,
        "confidence": CONFIDENCE,
        "sets": 2**curves.n_features,
        "expanded": index.expanded,
        "failures": [{"features": list(index.named(one.features)), "failure": one.failure} for one in index.failures],
        "candidates": len(index.sets),
        "entries": index.n_entries,
        "answers": [
            {"size": size, "choices": [describe_choice(index, choice) for choice in index.skyline(size)]}
            for size in shown_sizes(curves)
        ],
    }


def describe_choice(index: BudgetIndex, choice: Choice) -> dict[str, Any]:
    """A choice by the names of its features."""
    return {"cost": choice.cost, "accuracy": choice.accuracy, "features": list(index.named(choice.features))}


def shown_sizes(curves: CostCurves) -> list[float]:
    """A few sizes to show answers at: one where no cost depends on it, else the ends of the range and one between."""
    low, high = curves.low, curves.high
    if not curves.coefficients[:, 1:].any() or low == high:
        return [low]
    if np.isinf(high):
        first = max(low, 1.0)
        return [first, 10 * first, 100 * first]
    # In ratio where the range is wide, as costs that are powers of the size are.
    middle = (low * high) ** 0.5 if low > 0 else (low + high) / 2
    return [low, middle, high]


def failures_by_reason(failures: Sequence[Expansion]) -> dict[str, int]:
    """How many sets failed for each reason, the commonest first."""
    return dict(Counter(one.failure or "" for one in failures).most_common())
