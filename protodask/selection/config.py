"""The settings of a search."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np

from protodask.prototypes.folds import MAX_FOLDS
from protodask.prototypes.setting_checks import check_choice, check_count, check_range, unwrap_numbers
from protodask.selection.results import Rule, Strategy
from protodask.selection.space import Setting, Space

Method = Literal["grid", "random"]

MAX_SETTINGS = 10_000
"""More than anybody waits for: each is fitted once for every fold."""

JOINT_TRIALS = 7
"""Values of `lambda_v`: two a decade over the default range."""

STAGE_TRIALS = 25
"""Pairs of penalties in the first of two stages: five by five as a grid."""

FEW_ROWS, FEW_ROWS_DRAWS = 10_000, 5
"""Draws of the final fit for few rows. On iris and wine the test log-loss of single fits with the same settings has a
standard deviation of 0.08 and 0.02, and goes with the training log-loss."""

SEARCH_TOLERANCE = 5e10 * float(np.finfo(np.float64).eps)
"""Of the fits of a search, 1e-5: they need to be compared and not to be perfect."""


@dataclass(frozen=True)
class SearchConfig:
    """How hyperparameters are chosen. `F` folds.

    Strategy "joint": values of `lambda_v`, each with every number of batches that is worth a try; `lambda_w` stays as
    it is. "two-stage": pairs of `lambda_v` and `lambda_w` with one batch each, then the number of batches for the
    chosen pair.
    """

    strategy: Strategy = "joint"
    method: Method = "grid"
    """Penalties on an even grid of their logarithms, or drawn from their range."""
    n_trials: int | None = None
    """Penalties to try; by default 7 in the joint strategy and 25 in two stages, where a grid may take a few more. What
    comes out twice is tried once."""
    lambda_v: tuple[float, float] = (1e-4, 1e-1)
    """Smallest and largest penalty on feature weights. Smaller ones hardly give up a feature, take longest, and were
    hardly ever chosen on iris, wine, cancer and digits (tests/benchmarks/tuning.py)."""
    lambda_w: tuple[float, float] = (1e-9, 1e-4)
    """Smallest and largest penalty on prototype weights, in two stages."""
    max_batches: int = 10
    """Batches a setting may come to."""
    patience: int = 1
    """Batches in a row that may fail to lower the held-out log-loss before a setting gets no more."""
    least_gain: float = 0.1
    """What counts as lowering it, in standard errors of its mean: less is noise, and no rule would choose it."""
    n_folds: int = 5
    rule: Rule | None = None
    """What is chosen: the simplest setting within half a standard error of the best, within one, or the best.

    By default the best where a fit is the mean of several draws, as it is unless its recipe is "source"; else within
    half a one. Means want no more penalty than the search finds: of one split of wine they lose 0.051 within half a
    standard error and 0.031 by the best, of jobs 0.511 and 0.500, attrition 0.344 and 0.336, iris 0.035 and 0.034.
    Single fits, the mean of five splits with the three rules: iris 0.474, 0.474, 0.447; wine 0.089, 0.115, 0.096;
    cancer 0.123, 0.132, 0.142; digits 0.123, 0.130, 0.127.
    """
    tolerance: float = SEARCH_TOLERANCE
    """At which the fits of the search stop; the final model is fitted with that of its own settings."""
    n_draws: int | None = None
    """Draws of candidates to try with what was chosen: the final fit has those whose model has the smallest log-loss on
    all rows. By default 1 where a fit is the mean of several, as it is unless its recipe is "source"; else 5 for up to
    10,000 rows, where much of a model's quality is the luck of its draw."""

    def __post_init__(self) -> None:
        unwrap_numbers(self)
        check_choice("strategy", self.strategy, get_args(Strategy))
        check_choice("method", self.method, get_args(Method))
        if self.rule is not None:
            check_choice("rule", self.rule, get_args(Rule))
        if self.n_trials is not None:
            check_count("n_trials", self.n_trials, 1, MAX_SETTINGS)
        if self.n_draws is not None:
            check_count("n_draws", self.n_draws, 1)
        check_count("max_batches", self.max_batches, 1)
        check_count("patience", self.patience, 1)
        check_count("n_folds", self.n_folds, 2, MAX_FOLDS)
        for name in ("lambda_v", "lambda_w"):
            limits = getattr(self, name)
            if isinstance(limits, Iterable):
                object.__setattr__(self, name, tuple(limits))
        space = Space(self.lambda_v, self.lambda_w)  # refuses what is no range
        object.__setattr__(self, "lambda_v", space.lambda_v)
        object.__setattr__(self, "lambda_w", space.lambda_w)
        check_range("least_gain", self.least_gain, 0.0, math.inf, "Give a number that is not negative.")
        check_range("tolerance", self.tolerance, 0.0, 1.0, "Give a relative change of the objective from 0 to 1.")

    @property
    def trials(self) -> int:
        """Penalties to try in the first stage."""
        if self.n_trials is not None:
            return self.n_trials
        return JOINT_TRIALS if self.strategy == "joint" else STAGE_TRIALS

    def rule_for(self, averaged: int) -> Rule:
        """By which one is chosen whose fit is the mean of so many draws."""
        if self.rule is not None:
            return self.rule
        return "best" if averaged > 1 else "half a standard error"

    def draws(self, n_rows: int, averaged: int = 1) -> int:
        """Final fits to so many rows, each the mean of so many draws."""
        if self.n_draws is not None:
            return self.n_draws
        return FEW_ROWS_DRAWS if n_rows <= FEW_ROWS and averaged == 1 else 1

    def settings(self, lambda_w: float, seed: int) -> tuple[Setting, ...]:
        """The penalties to try first; the joint strategy keeps to one `lambda_w`."""
        space = Space(self.lambda_v, (lambda_w, lambda_w) if self.strategy == "joint" else self.lambda_w)
        if self.method == "random":
            settings = space.draw(self.trials, seed)
        elif space.fixes("lambda_w"):
            settings = space.grid(self.trials, 1)
        elif space.fixes("lambda_v"):
            settings = space.grid(1, self.trials)
        else:
            side = math.isqrt(self.trials)
            settings = space.grid(-(-self.trials // side), side)
        # Two fits of one setting would write to one folder.
        return tuple(dict.fromkeys(settings))

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for files."""
        return asdict(self)
