"""What a gate answered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from protodask.evaluation.paired import Comparison
from protodask.pipeline.telling.result import Piece, Result, Table, plain
from protodask.pipeline.telling.wording import value_text
from protodask.pipeline.work.limits import GateFigure
from protodask.places import mask


@dataclass(frozen=True)
class Challenge:
    """A model beside the champion it would replace."""

    model: str
    champion: str
    data: str
    metric: str
    margin: float
    confidence: float
    comparison: Comparison | None
    """None where there is no champion yet."""

    def describe(self) -> dict[str, Any]:
        """Plain values, for files."""
        described: dict[str, Any] = plain(replace(self, comparison=None))
        del described["comparison"]
        return described | ({} if self.comparison is None else self.comparison.describe())


@dataclass(frozen=True)
class GateAnswered(Result):
    """A gate said yes or no."""

    passed: bool
    reasons: tuple[str, ...]
    """Full sentences: of a no what speaks against it, of a yes what speaks for it."""
    accepted: bool
    """Whether this is a no that the step was told to accept."""
    figures: tuple[GateFigure, ...]
    challenge: Challenge | None
    results: str | None
    """The file of results that the figures are of."""
    path: str | None
    """Where the answer lies, too."""
    stops: bool = False
    """Whether a no ends the run without a failure."""

    @property
    def refused(self) -> tuple[str, ...]:
        return () if self.passed or self.accepted else self.reasons

    def summary(self) -> str:
        return " ".join((self._answer(), *self.reasons))

    def told(self) -> Iterator[Piece]:
        yield self._answer()
        yield from (f"- {reason}" for reason in self.reasons)
        if self.figures:
            yield ""
            rows = [
                (
                    figure.name,
                    _value(figure.value),
                    _value(figure.limit.least),
                    _value(figure.limit.most),
                    "no" if figure.reason else "yes",
                )
                for figure in self.figures
            ]
            yield Table(["figure", "value", "least", "most", "within"], rows, whole=True)
        yield from self.told_place("The answer is", self.path)

    def _answer(self) -> str:
        if self.passed:
            return "The gate says yes."
        return "The gate says no, which is accepted." if self.accepted else "The gate says no."

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "gate",
            "passed": self.passed,
            "accepted": self.accepted,
            "reasons": list(self.reasons),
            "results": None if self.results is None else mask(self.results),
            "figures": [
                {
                    "name": figure.name,
                    "value": figure.value,
                    "least": figure.limit.least,
                    "most": figure.limit.most,
                    "passed": figure.reason is None,
                }
                for figure in self.figures
            ],
            "comparison": None if self.challenge is None else self.challenge.describe(),
        }


def _value(value: float | None) -> str:
    return "-" if value is None else value_text(value)
