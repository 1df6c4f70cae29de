"""What a search tried and what it chose: a table that is saved with the model."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

Strategy = Literal["joint", "two-stage"]

SEARCH = "search"
"""Where the provenance of a model keeps the search that led to it."""


@dataclass(frozen=True)
class Trial:
    """One setting, scored on every fold: held-out log-loss, in nats."""

    stage: int
    """1, or 2 for the second stage of the two-stage strategy."""
    lambda_v: float
    lambda_w: float
    n_batches: int
    fold_losses: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean of the folds."""
        return math.fsum(self.fold_losses) / len(self.fold_losses)

    @property
    def standard_error(self) -> float:
        """`sqrt(sum_f (l_f - mean)^2 / (F - 1) / F)` over `F` folds."""
        return float(np.std(self.fold_losses, ddof=1)) / math.sqrt(len(self.fold_losses))


@dataclass(frozen=True)
class SearchResult:
    """All trials of a search, the best one, and the one that was chosen."""

    strategy: Strategy
    trials: tuple[Trial, ...]
    best: int
    """Position of the trial with the smallest mean."""
    selected: int
    """Position of the trial that was chosen."""
    rule: str
    """How it was chosen, in words."""

    def describe(self) -> dict[str, Any]:
        """Plain values, for files."""
        return asdict(self)
