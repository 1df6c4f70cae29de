"""What a prediction takes besides its features: predictions are rehearsed on items whose features are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from protodask.budget.extraction import Extractor
from protodask.budget.greedy_index import GreedyIndex
from protodask.budget.polynomials import Floats, evaluate
from protodask.budget.prediction import Predictor

REHEARSALS = 500
"""Predictions from which the overhead is told."""

MOST_SECONDS = 20.0
"""For these, unless there are so many models that each needs its turn."""


def measure_overhead(
    predictor: Predictor, matrix: Floats, spans: tuple[slice, ...], sizes: Floats, quantile: float
) -> float:
    """The quantile of the seconds that predictions take besides features; each model has its turn.

    Items are the rows of `matrix`, of these sizes, and the columns `spans` of each feature are known.
    """

    def known(span: slice) -> Extractor:
        return lambda row: matrix[row, span]

    def size_of(row: int) -> float:
        return float(sizes[row])

    # Each model in turn, whatever is looked up, and without running out of time.
    functions = tuple(known(span) for span in spans)
    stage = replace(predictor, functions=functions, size=size_of, timed=False, any_time=False)
    stage.warm_up()
    index = predictor.index
    look_up = index.walk if isinstance(index, GreedyIndex) and predictor.any_time else index.best
    numbers = {features: number for number, features in enumerate(index.sets)}
    sets = [*predictor.models, frozenset[int]()]
    taken: list[float] = []
    began = predictor.clock()
    for turn in range(REHEARSALS):
        if turn >= 2 * len(sets) and predictor.clock() - began > MOST_SECONDS:
            break
        row, features = turn % len(sizes), sets[turn % len(sets)]
        size = float(sizes[row])
        budget = float(evaluate(predictor.curves.of_set(features), size))
        start = predictor.clock()
        look_up(size, budget)
        stage.predict(row, budget, numbers.get(features, -1))
        taken.append(predictor.clock() - start)
    return float(np.quantile(taken, quantile, method="higher"))
