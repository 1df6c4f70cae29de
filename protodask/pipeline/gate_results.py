"""What a gate answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from protodask.evaluation.paired import Comparison
from protodask.pipeline.limits import GateFigure
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
        return {
            "model": mask(self.model),
            "champion": mask(self.champion),
            "data": mask(self.data),
            "metric": self.metric,
            "margin": self.margin,
            "confidence": self.confidence,
            **({} if self.comparison is None else self.comparison.describe()),
        }


@dataclass(frozen=True)
class GateAnswered:
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

    def describe(self) -> dict[str, Any]:
        """Plain values, for files."""
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
