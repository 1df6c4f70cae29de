"""Candidates that do no work are not looked at in every evaluation.

The solver keeps a candidate of weight 0 there as long as its gradient is positive, and it adds nothing to the value or
to any other gradient: of most candidates in the second half of a long fit, a pass computes what nobody uses. They sleep
from evaluation `AWAKE` on (before, many that fall to 0 come back), and are looked at again every `LOOK_AGAIN`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from protodask.prototypes.objective import Objective
from protodask.prototypes.solver import Evaluation, Function

Floats = NDArray[np.float64]

AWAKE, LOOK_AGAIN = 20, 10
"""Evaluations in which nobody sleeps, and from then on from one that looks at all candidates to the next. From the
first evaluation on, digits lose 8 per cent by it (tests/benchmarks/tables.py), and a tenth of the time is saved."""


class WorkingSet:
    """An objective as the solver sees it: the gradient of a candidate that sleeps is what it was when it fell asleep.

    Which sleep follows from the evaluations so far alone: a run that is repeated from its log goes the same way.
    """

    def __init__(
        self, objective: Objective, recorded: Callable[[Function], Function], awake: int | None = None
    ) -> None:
        """Where the first evaluation is without prototypes and `awake` is given, nobody is looked at in it."""
        n_candidates = objective.problem.n_candidates
        self._gradient = np.zeros(n_candidates)
        self._asleep = np.zeros(n_candidates, dtype=np.bool_)
        self._awake, self._evaluations = AWAKE if awake is None else awake, 0
        self._begins_with_nothing = awake is not None
        self._evaluate = recorded(lambda theta: objective(theta, self._asleep))

    def __call__(self, theta: Floats) -> Evaluation:
        by_candidate = slice(len(theta) - len(self._asleep), None)
        looks = self._evaluations < self._awake or self._evaluations % LOOK_AGAIN == 0
        useless = (theta[by_candidate] == 0) & (self._gradient > 0)
        self._asleep = np.zeros_like(useless) if looks else useless
        if self._begins_with_nothing and self._evaluations == 0:
            self._asleep = theta[by_candidate] == 0
        self._evaluations += 1
        found = self._evaluate(theta)
        self._gradient = np.where(self._asleep, self._gradient, found.gradient[by_candidate])
        gradient = found.gradient.copy()
        gradient[by_candidate] = self._gradient
        return found._replace(gradient=gradient)
