"""Problems drawn for the tests of the bundle, and blocks of them as sources."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from reference import brackets as reference

from protodask.engine import ArraySource, Block, array_source
from protodask.robust.formulations import Formulation, make_terms
from protodask.robust.passes import Samples
from protodask.robust.terms import Terms
from protodask.robust.uncertain_rows import UncertainRows
from support.robust_terms import sample_of

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Problem:
    terms: Terms
    y: Floats
    cost: Floats

    def source(self, block_rows: int | None = None) -> ArraySource:
        terms = self.terms
        arrays = {
            "low": terms.mean_low,
            "high": terms.mean_high,
            "spread": terms.spread,
            "y": self.y,
            "cost": self.cost,
        }
        if terms.lower is not None and terms.upper is not None:
            arrays |= {"lower": terms.lower, "upper": terms.upper}
        return array_source(arrays, block_rows)


def samples_of(block: Block) -> Samples:
    terms = Terms(block["low"], block["high"], block["spread"], block.arrays.get("lower"), block.arrays.get("upper"))
    return Samples(terms, block["y"], block["cost"])


def drawn_problem(
    seed: int,
    n_rows: int,
    n_features: int,
    *,
    intersected: bool = False,
    points: bool = False,
    cost: float = 1.0,
    distance: float = 1.0,
) -> Problem:
    """Two clouds `distance` apart in each feature; some spreads 0, some means at the edge of the support."""
    random = np.random.default_rng(seed)
    y = np.where(random.random(n_rows) < 0.4, 1.0, -1.0)
    y[:2] = 1.0, -1.0
    shape = (n_rows, n_features)
    center = random.normal(size=shape) + distance * y[:, None] / 2
    half = np.where(random.random(shape) < 0.7, random.random(shape), 0.0)
    costs = cost * (0.5 + random.random(n_rows))
    if points:
        return Problem(Terms(center, center, np.zeros(shape)), y, costs)
    ends = np.sort(random.random((2, *shape)), axis=0)
    ends[:, random.random(shape) < 0.2] = 1.0
    lower, upper = center - half, center + half
    low, high = lower + 2 * half * ends[0], lower + 2 * half * ends[1]
    spread = half * random.random(shape)
    return Problem(Terms(low, high, spread, *((lower, upper) if intersected else ())), y, costs)


def naive_objective(problem: Problem, weights: Floats, intercept: float) -> float:
    """`F` of a problem by its formula, one number at a time."""
    plane, labels = weights.tolist(), [int(y) for y in problem.y]
    brackets = [reference.bracket(sample_of(problem.terms, row), y, plane) for row, y in enumerate(labels)]
    return reference.objective(brackets, labels, problem.cost.tolist(), plane, float(intercept))


def drawn_by_formulation(seed: int, formulation: Formulation) -> Problem:
    """Samples that are known in part, the same ones for every formulation, as it sees them.

    Sizes, scales, the distance of the labels, eps and the cost are drawn over decades; some features are points, some
    means at an end of the support, some second moments as small as they can be, some samples there twice or at no cost.
    """
    random = np.random.default_rng(seed)
    n_features = int(random.integers(1, 51))
    # A program of more numbers takes either solver seconds.
    n_rows = min(int(np.exp(random.uniform(np.log(3), np.log(300)))), 4000 // n_features)
    shape = (n_rows, n_features)
    y = np.where(random.random(n_rows) < random.choice([0.1, 0.3, 0.5]), 1.0, -1.0)
    y[:2] = 1.0, -1.0
    scale = np.exp(random.normal(size=n_features) * random.choice([0.0, 1.0]))
    direction = random.normal(size=n_features) * (random.random(n_features) < random.choice([0.2, 1.0]))
    center = random.normal(size=shape) + y[:, None] * direction * random.choice([0.0, 0.3, 1.0, 4.0])
    center = scale * center + random.choice([0.0, 0.0, 10.0]) * random.normal(size=n_features)
    half = random.exponential(size=shape) * scale * random.choice([0.05, 0.3, 1.0])
    half[random.random(shape) < 0.2] = 0.0
    half[:, random.random(n_features) < 0.1] = 0.0
    ends = np.sort(random.uniform(-1, 1, size=(2, *shape)), axis=0)
    ends[1] = np.where(random.random(shape) < 0.3, ends[0], ends[1])
    ends[0] = np.where(random.random(shape) < 0.1, -1.0, ends[0])
    ends[1] = np.where(random.random(shape) < 0.1, 1.0, ends[1])
    ends[:, random.random(shape) < 0.1] = random.choice([-1.0, 1.0])
    if formulation in ("SMV", "SMV-I", "SM", "SM-I"):
        ends[1] = ends[0]
    # Of (X - c) / s: at least the least square of a mean, at most 1.
    least = np.square(np.clip(0.0, ends[0], ends[1]))
    square = least + (1 - least) * random.random(shape) ** 2 * (random.random(shape) < 0.8)
    again = random.random(n_rows) < random.choice([0.0, 0.0, 0.3])
    copied = np.where(again, random.integers(n_rows, size=n_rows), np.arange(n_rows))
    lower, upper = center - half, center + half
    low, high = np.clip(center + half * ends[0], lower, upper), np.clip(center + half * ends[1], lower, upper)
    second = np.square(half) * square * (1 + 1e-12)
    rows = UncertainRows(lower, upper, low, np.maximum(low, high), second, origin=center).take(copied)
    eps, cost = 10.0 ** random.uniform(-4, -0.3), 10.0 ** random.uniform(-3, 2)
    costs = cost * (0.5 + random.random(n_rows)) * (random.random(n_rows) > random.choice([0.0, 0.0, 0.2]))
    costs[:2] = cost
    return Problem(make_terms(rows, formulation, eps), y, costs)
