"""The bundle's passes on record, so that a run that was interrupted goes on where it was.

A run directory remembers what a function of one vector gave: a value and a vector as long. A question and its answer
are packed as such; the solver is a function of the answers alone, so replaying them leads to where they ended.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from protodask.engine.records import Floats
from protodask.prototypes.runs import RunDirectory
from protodask.prototypes.solver import Evaluation
from protodask.robust.bundle import LADDER, Evaluate
from protodask.robust.passes import Answer, Cuts, Near, Question, curvature_shape

STAGE = "bundle"
"""Names the log in the run directory."""


def recorded_passes(directory: RunDirectory, problem: int = 1) -> Callable[[Evaluate, int], Evaluate]:
    """What `solve_bundle` puts between its questions and their answers: the log of one problem of a run.

    `problem` numbers the problems of a run from 1, one for each class where there are several.
    """

    def recorded(evaluate: Evaluate, n_features: int) -> Evaluate:
        asked: list[Question] = []

        def function(theta: Floats) -> Evaluation:
            answer = evaluate(asked[-1])
            return Evaluation(answer.risk, _pack_answer(answer, asked[-1].n_near, n_features))

        log = directory.recorded(problem, STAGE, function)

        def evaluate_on_record(question: Question) -> Answer:
            asked[:] = [question]
            found = log(_pack_question(question, n_features))
            return _unpack_answer(found.value, found.gradient, question.n_near, n_features)

        return evaluate_on_record

    return recorded


N_CUTS = 2 * (1 + len(LADDER))
"""Cuts of an answer."""


def _shapes(n_near: int, n_features: int) -> list[tuple[int, ...]]:
    """Of the parts of an answer: how many near samples it has; cuts and their norms, and the rest; the curvature across
    and within; and the near samples.
    """
    line = 2 * n_features + 2
    curvature = [curvature_shape(n_features, size) for size in (n_features + 1, n_features)]
    near = (n_near, 3 + line + 2 * n_features)
    return [(1,), (N_CUTS, line), (N_CUTS, n_features), (1, line), *curvature, near]


def answer_length(n_near: int, n_features: int) -> int:
    """Numbers of an answer."""
    return sum(map(math.prod, _shapes(n_near, n_features)))


def _pack_question(question: Question, n_features: int) -> Floats:
    asked = np.concatenate([question.weights, [question.intercept, question.n_near, question.soft], question.bands])
    packed = np.zeros(answer_length(question.n_near, n_features))
    packed[: len(asked)] = asked
    return packed


def _pack_answer(answer: Answer, n_near: int, n_features: int) -> Floats:
    near, cuts = answer.near, answer.cuts
    each = np.column_stack([near.hinge, near.row, near.cost, _line_rows(near.cuts), near.spread, near.spent])
    count = np.array([float(len(near.row))])
    parts = [count, _line_rows(cuts), cuts.round, _line_rows(answer.rest), answer.across, answer.within, each]
    found = np.concatenate([part.ravel() for part in parts])
    packed = np.zeros(answer_length(n_near, n_features))
    packed[: len(found)] = found
    return packed


def _unpack_answer(risk: float, packed: Floats, n_near: int, n_features: int) -> Answer:
    shapes = _shapes(int(packed[0]), n_features)
    parts = np.split(packed, np.cumsum([math.prod(shape) for shape in shapes]))
    _, cuts, norms, rest, across, within, rows = (
        part.reshape(shape).copy() for part, shape in zip(parts, shapes, strict=False)
    )
    hinge, row, cost = rows[:, :3].T.copy()
    spread, spent = rows[:, -2 * n_features : -n_features].copy(), rows[:, -n_features:].copy()
    near = Near(hinge, row, cost, _lines_of(rows[:, 3 : -2 * n_features]), spread, spent, n_near)
    return Answer(risk, replace(_lines_of(cuts), round=norms), _lines_of(rest), across, within, near)


def _line_rows(cuts: Cuts) -> Floats:
    """Cuts but for their norms."""
    return np.column_stack([cuts.value, cuts.center, cuts.width, cuts.slope])


def _lines_of(rows: Floats) -> Cuts:
    n_features = (rows.shape[1] - 2) // 2
    # Copies: sums over arrays of another memory layout may round otherwise than those of a run without a log.
    return Cuts.boxes(
        rows[:, 0].copy(), rows[:, 1 : 1 + n_features].copy(), rows[:, 1 + n_features : -1].copy(), rows[:, -1].copy()
    )
