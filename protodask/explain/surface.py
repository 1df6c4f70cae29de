"""The model over the plane of two features, with the other features held still."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from protodask.data.format.schema import Label
from protodask.engine import one_blas_thread
from protodask.engine.records import Floats, Integers
from protodask.errors import InputError, count
from protodask.evaluation.stream import weighted_quantiles
from protodask.prototypes.fitted import familiarity, probabilities
from protodask.prototypes.kernel import Line
from protodask.prototypes.model import PrototypeSet

Limits = tuple[float, float]

MOST_POINTS = 1000
"""Along one axis: a million rows to predict, and more than a screen can show."""

LEAST_NEARNESS = 0.01
"""A prototype with less of the plane's strongest impact than this leaves no trace there."""

MARGIN = 0.15
"""Of the prototypes' range, that the plane shows beyond it on either side."""


@dataclass(frozen=True)
class Surface:
    """Probabilities on a grid of `n` by `n` points: row `i`, column `j` is at `(first_values[j], second_values[i])`."""

    names: tuple[str, str]
    """The first feature, along the columns, and the second."""
    index: tuple[int, int]
    classes: tuple[Label, ...]
    at: Floats
    """The other features of every point, in raw units (all features of the model)."""
    n_batches: int
    first_values: Floats
    second_values: Floats
    probability: Floats
    """(n, n, K)."""
    predicted: Integers
    """Position of the most probable class, the first of several (n, n)."""
    familiarity: Floats
    """(n, n)."""
    prototypes: Floats
    """Places in the plane of the prototypes near by (J, 2), strongest first: those whose batch looks at both
    features, and whose impact is at least `LEAST_NEARNESS` of the strongest."""
    prototype_class: Integers
    prototype_impact: Floats
    """Weight times similarity in the other features: the impact at the prototype's own place in the plane (J,)."""


def surface(
    model: PrototypeSet,
    first: int | str,
    second: int | str,
    at: ArrayLike | None = None,
    n_points: int = 100,
    n_batches: int | None = None,
    limits: tuple[Limits, Limits] | None = None,
) -> Surface:
    """The model's probabilities where two features (by position or name) vary and the others stay `at` a point.

    `at` are all features of the model (D,), in raw units; without it, each is at the median of the prototypes, weighted
    by their weights: see `typical_point`. The plane reaches from the least to the greatest value of the prototypes and
    `MARGIN` beyond, unless `limits` say otherwise.
    """
    columns = (_position(model, first), _position(model, second))
    if columns[0] == columns[1]:
        raise InputError(
            "settings-conflict",
            f"Both features are {model.feature_names[columns[0]]!r}.",
            "Choose two different features.",
        )
    if n_points not in range(2, MOST_POINTS + 1):
        raise InputError("bad-setting", f"n_points is {n_points!r}.", f"Give a whole number from 2 to {MOST_POINTS}.")
    (count,) = model.batch_counts(n_batches)
    point = typical_point(model, n_batches) if at is None else _checked_point(model, at)
    values = [
        np.linspace(*(_range(model, column, count) if limits is None else _checked_limits(limits[axis])), int(n_points))
        for axis, column in enumerate(columns)
    ]
    rows, lines = np.tile(point, (len(values[0]), 1)), []
    rows[:, columns[0]] = values[0]
    with one_blas_thread():
        for height in values[1].tolist():
            rows[:, columns[1]] = height
            lines.append(model.scores(rows, [count])[0])
    scores = np.stack(lines)
    flat = scores.reshape(-1, model.n_classes)
    shape = scores.shape[:2]
    probability = probabilities(flat).reshape(scores.shape)
    places, classes, impact = _prototypes_near(model, point, columns, count)
    return Surface(
        names=(model.feature_names[columns[0]], model.feature_names[columns[1]]),
        index=columns,
        classes=model.classes,
        at=point,
        n_batches=count,
        first_values=values[0],
        second_values=values[1],
        probability=probability,
        predicted=probability.argmax(axis=2),
        familiarity=familiarity(flat).reshape(shape),
        prototypes=places,
        prototype_class=classes,
        prototype_impact=impact,
    )


def typical_point(model: PrototypeSet, n_batches: int | None = None) -> Floats:
    """A point where the model has evidence: the weighted median of the prototypes, feature by feature (D,).

    The median is a value that some prototype has, and most of the weight lies around it. A mean need be neither: that
    of a category encoded as 0 and 1 is no category, that of a skewed feature may lie where there are no rows. Features
    that no batch looks at are 0: the model does not see them.
    """
    (count,) = model.batch_counts(n_batches)
    point = np.zeros(model.n_features)
    for column in model.active_features.tolist():
        values, weight = prototype_values(model, column, count)
        if len(values):
            (point[column],) = weighted_quantiles(values, weight, [0.5])
    return point


def prototype_values(model: PrototypeSet, column: int, n_batches: int) -> tuple[Floats, Floats]:
    """Values of one feature and weights of the prototypes whose batch looks at it."""
    values, weights = [np.zeros(0)], [np.zeros(0)]
    for batch in model.batches[:n_batches]:
        found = batch.values_of(column)
        if found is not None:
            values.append(found)
            weights.append(batch.prototype_weight)
    return np.concatenate(values), np.concatenate(weights)


def _range(model: PrototypeSet, column: int, n_batches: int) -> Limits:
    values, _ = prototype_values(model, column, n_batches)
    if len(values) == 0:
        raise InputError(
            "setting-missing",
            f"The first {n_batches} batches do not look at the feature {model.feature_names[column]!r}.",
            "Choose features among the active ones of the model, or say with limits what to show.",
        )
    low, high = float(values.min()), float(values.max())
    if high > low:
        return low - MARGIN * (high - low), high + MARGIN * (high - low)
    reach = max(_kernel_widths(model, column, n_batches, low))
    return low - 2 * reach, high + 2 * reach


def _kernel_widths(model: PrototypeSet, column: int, n_batches: int, value: float) -> list[float]:
    """`scale_d / v_d` in each batch that looks at a feature: the distance at which similarity is exp(-1/2), of a normal
    score as steep as it is at a value, of a level as steep as it is from its first knot to its last, of a difference
    while the other feature stays.
    """
    widths: list[float] = []
    for batch in model.batches[:n_batches]:
        for place in batch.places_of(column).tolist():
            scale = batch.scale[place]
            if batch.knots is not None and place in batch.knots.places:
                scale = _slope(batch.knots.line(place), value)
            widths.append(float(scale / batch.feature_weight[place]))
        if batch.differences is None:
            continue
        for place in batch.differences.places:
            other, factor = batch.differences.of(place)
            if column in (batch.feature_index[place], other):
                steep = abs(factor) if column == other else 1.0
                widths.append(float(batch.scale[place] / batch.feature_weight[place] / steep))
    return widths


def _slope(line: Line, value: float) -> float:
    """Difference of values for a difference of scores of 1, between the knots around a value, or of a level, which is
    flat between thresholds, over all of them.
    """
    values, scores, is_level = line
    after = last = int(np.searchsorted(values, values[-1]))
    before = 0
    if not is_level:
        after = min(max(int(np.searchsorted(values, value)), 1), last)
        before = after - 1
    return float((values[after] - values[before]) / (scores[after] - scores[before]))


def _prototypes_near(
    model: PrototypeSet, point: Floats, columns: tuple[int, int], n_batches: int
) -> tuple[Floats, Integers, Floats]:
    places, classes, impacts = [np.zeros((0, 2))], [np.zeros(0, dtype=np.int64)], [np.zeros(0)]
    for batch in model.batches[:n_batches]:
        first, second = (batch.values_of(column) for column in columns)
        if first is None or second is None:
            continue
        others = ~np.isin(batch.feature_index, columns)
        if batch.differences is not None:
            others &= ~np.isin(batch.differences.others, columns)
        difference = batch.measured(batch.values(point)) - batch.measured(batch.prototypes)
        distance = difference[:, others] * (batch.feature_weight / batch.scale)[others]
        similarity = np.exp(-0.5 * np.einsum("jd,jd->j", distance, distance))
        places.append(np.column_stack([first, second]))
        classes.append(batch.prototype_class)
        impacts.append(batch.prototype_weight * similarity)
    place, label, impact = np.concatenate(places), np.concatenate(classes), np.concatenate(impacts)
    order = np.argsort(-impact, kind="stable")
    near = order[(impact[order] > 0) & (impact[order] >= LEAST_NEARNESS * impact.max(initial=0.0))]
    return place[near], label[near], impact[near]


def _position(model: PrototypeSet, feature: int | str) -> int:
    if isinstance(feature, str):
        if feature in model.feature_names:
            return model.feature_names.index(feature)
    elif feature in range(model.n_features):
        return int(feature)
    raise InputError(
        "unknown-name",
        f"The model has no feature {feature!r}.",
        f"Give the name of one of its {model.n_features} features, or its position, counted from 0.",
    )


def _checked_point(model: PrototypeSet, at: ArrayLike) -> Floats:
    point = np.array(at, dtype=np.float64)
    if point.shape != (model.n_features,) or not np.isfinite(point).all():
        raise InputError(
            "wrong-shape" if point.shape != (model.n_features,) else "bad-value",
            f"The point has shape {point.shape}"
            + ("." if np.isfinite(point).all() else " and values that are not finite."),
            f"Give one finite number for each of the model's {count(model.n_features, 'feature')}.",
        )
    return point


def _checked_limits(limits: Limits) -> Limits:
    low, high = limits
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise InputError(
            "bad-setting", f"The limits are {limits!r}.", "Give two finite numbers, the smaller one first."
        )
    return float(low), float(high)
