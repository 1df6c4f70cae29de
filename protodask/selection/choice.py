"""Which trial of a search wins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

from protodask.errors import InputError
from protodask.selection.results import Trial

Rule = Literal["half a standard error", "one standard error", "best"]

ALLOWED: dict[Rule, float] = {"half a standard error": 0.5, "one standard error": 1.0, "best": 0.0}
"""How far from the best mean a simpler trial may be, in standard errors of the best."""


def simplicity(trial: Trial) -> tuple[float, int, float, float]:
    """Sorts simple models first: the largest `lambda_v`, then the fewest batches, then the largest `lambda_w`.

    `lambda_v` comes first because it decides how many features a model looks at, and that is what makes it readable;
    further batches cost prototypes, and `lambda_w` changes little but their weights. Equals go by their mean.
    """
    return -trial.lambda_v, trial.n_batches, -trial.lambda_w, trial.mean


def best_trial(trials: Sequence[Trial]) -> int:
    """Position of the trial with the smallest mean, the simplest of several; one without a finite loss never wins."""
    usable = [position for position, trial in enumerate(trials) if trial.usable]
    if not usable:
        raise InputError(
            "no-convergence" if trials else "too-few",
            f"None of {len(trials)} trials has a finite held-out loss." if trials else "There are no trials.",
            "Try larger penalties, and look for values in the data that are far from all others."
            if trials
            else "Give the search something to try.",
        )
    return min(usable, key=lambda position: (trials[position].mean, simplicity(trials[position]), position))


def choose(trials: Sequence[Trial], rule: Rule = "half a standard error") -> int:
    """Position of the trial that a rule chooses.

    "best" takes the smallest mean. "one standard error" takes the simplest trial with `mean <= m + s`, where `m` and
    `s` are the mean and the standard error of the best one: what differs by less than the noise of the folds is as
    good, and the simpler model is preferred. "half a standard error" allows `s / 2`: the folds of all trials are the
    same, so that trials differ by less than each of them does by noise.
    """
    if rule not in get_args(Rule):
        raise InputError("unknown-name", f"The rule is {rule!r}.", f"Choose one of {', '.join(map(repr, ALLOWED))}.")
    best = best_trial(trials)
    bound = within(trials[best], rule)
    close = [position for position, trial in enumerate(trials) if trial.usable and trial.mean <= bound]
    return min(close, key=lambda position: (simplicity(trials[position]), position))


def within(best: Trial, rule: Rule) -> float:
    """The largest mean that counts as as good as the best."""
    bound = best.mean + ALLOWED[rule] * best.standard_error
    return bound if math.isfinite(bound) else best.mean
