"""The objective of a batch on given candidates, at its start, as training would set it up.

`J` candidates, `D` features, `K` classes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from protodask.data.format.schema import FEATURES, TARGET
from protodask.engine import Arrays, Engine, Source
from protodask.prototypes.batch_kernel import Candidates
from protodask.prototypes.config import FitConfig
from protodask.prototypes.kernel import Standardization
from protodask.prototypes.objective import Objective, Penalty, RoundProblem, make_problem
from protodask.prototypes.tiles import Precision

Floats = NDArray[np.float64]


def problem_of(arrays: Arrays, class_rows: NDArray[np.int64], n_candidates: int) -> RoundProblem:
    """A problem whose candidates are the first rows of each class in `arrays`, as even in number as they come out.

    `class_rows` (K,) counts the rows of the whole source. Features count as standardised.
    """
    features, target = arrays[FEATURES.name], arrays[TARGET.name]
    n_classes = len(class_rows)
    rows = np.concatenate(
        [np.flatnonzero(target == label)[: n_candidates // n_classes] for label in range(n_classes)]
    ).astype(np.int64)
    standardization = Standardization(np.zeros(features.shape[1]), np.ones(features.shape[1]))
    candidates = Candidates(features[rows].astype(np.float64), target[rows].astype(np.int64), rows)
    return make_problem(candidates, np.ones(len(rows)), class_rows.astype(np.float64), standardization, "float32")


def objective_of(engine: Engine, source: Source, problem: RoundProblem, precision: Precision = "float32") -> Objective:
    """The objective with the default penalties."""
    config = FitConfig.of("source")
    chosen = replace(problem, precision=precision)
    return Objective(
        engine,
        source,
        chosen,
        engine.share(chosen),
        Penalty(config.lambda_v, config.alpha_v),
        Penalty(config.lambda_w, config.alpha_w),
    )
