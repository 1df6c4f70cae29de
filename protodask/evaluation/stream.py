"""Rows as a model sees them, in sums of bounded size: features by bins, familiarity, classes, outcomes.

`N` rows with weights `s`, `D` features, `K` classes of the model. One pass over the rows; a second one, before it,
where the bins of features are not known yet: they are laid through a sample that is keyed by row number. Features of up
to 20 different values have a bin for each, and one for all other values; the others have 10 bins between their deciles.
Values are looked at as float32, so that the type that a table or a dataset has makes no difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from protodask.data.format.schema import FEATURES, TARGET, Label, label_numbers, numbers_of
from protodask.data.format.summary import Summary, summarize_rows
from protodask.engine import Block, Engine, Reduction, Source, add_records, identity
from protodask.engine.records import Floats, Integers
from protodask.evaluation.calibration import CalibrationSums, calibration_sums
from protodask.evaluation.given_rows import check_rows, check_weight, squared, usable_weights
from protodask.evaluation.outcomes import Outcomes
from protodask.evaluation.paired import row_losses
from protodask.evaluation.row_moments import BinSums, Moments, bin_sums, moments, no_moments
from protodask.evaluation.row_sample import RowSample, draw_sample, sample_rows, sample_size, spread
from protodask.prototypes.fitted import familiarity
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.scoring import predict_features

QUANTILE_BINS = 10
MOST_VALUES = 20
MOST_BINS = MOST_VALUES + 1

ROWS_PER_VALUE = 5
"""Of a sample of fewer rows for each of its different values nobody knows whether there are others."""

CALIBRATION_BINS = 10

FAMILIARITY_LEVELS = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Shares of the rows that the first bins of familiarity end at."""

LARGEST = np.finfo(np.float32).max

SLAB_ROWS = 4096
"""Rows whose figures are made at a time: those of many classes take as much memory as the probabilities."""

SLAB_COLUMNS = 64
"""Features that are laid out by column at a time."""

SAMPLED = 10_000
"""Rows whose familiarity is kept, for its quantiles: they are known up to 0.01 in share."""

LOSS, CORRECT, RESIDUAL = 0, 1, 2
"""Figures of a labelled row: its loss, whether it is predicted right, and then `[k = y] - p_k` of each class."""


@dataclass(frozen=True)
class Bins:
    """Bins of the real line: below, between and from the `points` on; or, `by_value`, each point and all the rest."""

    points: Floats
    by_value: bool

    @property
    def count(self) -> int:
        return len(self.points) + 1

    def place(self, values: NDArray[np.floating]) -> Integers:
        """The bin of each value; a point belongs to the bin above it, or is one. All other values are the last bin."""
        rounded, points = _rounded(values), _rounded(self.points)
        found = np.zeros(len(rounded), dtype=np.uint8)
        for point in points:  # of few points, each a pass over the values, faster by far than a search for each value
            found += rounded >= point
        if not self.by_value:
            return found.astype(np.int64)
        nearest = np.maximum(found, 1) - 1
        return np.where(points[nearest] == rounded, nearest, len(points)).astype(np.int64)


@dataclass(frozen=True)
class Watch:
    """What rows are to be described by. Pickled with each task."""

    model: PrototypeSet
    n_batches: int
    features: tuple[Bins, ...]
    familiarity: Bins
    codes: Integers | None = None
    """Number of each target code: those of the model's classes first, then those that it does not know."""
    unknown: tuple[Label, ...] = ()
    """The latter."""
    within: Summary | None = None
    """Of other rows, beyond the range of whose values those of a feature are counted."""

    @property
    def n_labels(self) -> int:
        return self.model.n_classes + len(self.unknown)

    def labelled(self, classes: Sequence[Label] | None) -> Watch:
        """The same for rows of these classes in the order of their codes, None where they have none."""
        if classes is None:
            return replace(self, codes=None, unknown=())
        known = label_numbers(self.model.classes, classes)
        unknown = [label for _, label in known][self.model.n_classes :]
        return replace(self, codes=numbers_of(classes, known), unknown=tuple(unknown))


@dataclass(frozen=True)
class SeenRows:
    """Rows of positive weight, and what a model says of them."""

    rows: Integers
    """Their numbers (N,)."""
    features: NDArray[np.floating]
    weight: Floats | None
    target: Integers | None
    """As the watch numbers classes."""
    probability: Floats
    evidence: Floats

    @property
    def counted(self) -> Floats:
        return np.ones(len(self.rows)) if self.weight is None else self.weight

    @property
    def outcomes(self) -> Outcomes:
        """Of rows of known classes."""
        target = np.zeros(0, dtype=np.intp) if self.target is None else self.target.astype(np.intp, copy=False)
        return Outcomes(self.probability[: len(target)], target, self.counted[: len(target)])


@dataclass(frozen=True)
class StreamSums:
    """Sums over rows of positive weight; merges as a monoid."""

    summary: Summary
    """Of the features, all rows as of one class."""
    weight_squares: float
    counts: BinSums
    """Of each feature (D, 21)."""
    familiarity: BinSums
    predicted: BinSums
    """By predicted class (K,)."""
    probability: Floats
    """`sum s p_k` (K,)."""
    labels: BinSums
    """By class, those that the model does not know at the end."""
    figures: Moments
    """Of labelled rows: see `LOSS`."""
    calibration: CalibrationSums
    sample: RowSample
    """Of familiarity."""
    outside: Floats
    """`sum s` of rows beyond the range that the watch names (D,)."""


def see_rows(block: Block, watch: Watch) -> SeenRows:
    """The rows of a block that count, as the model sees them."""
    weight, features, rows = usable_weights(block), block[FEATURES.name], block.rows
    target = None if watch.codes is None else watch.codes[block[TARGET.name]]
    if weight is not None and not (weight > 0).all():
        kept = weight > 0
        features, rows, weight = features[kept], rows[kept], weight[kept]
        target = None if target is None else target[kept]
    ((probability, evidence),) = predict_features(features, watch.model, [watch.n_batches])
    return SeenRows(rows, features, weight, target, probability, evidence)


def sum_stream(block: Block, watch: Watch) -> StreamSums:
    """The sums over a block."""
    return sum_seen(see_rows(block, watch), watch)


def sum_seen(seen: SeenRows, watch: Watch) -> StreamSums:
    """The sums over some rows."""
    features, target, counted, probability = seen.features, seen.target, seen.counted, seen.probability
    n_rows, n_classes = len(seen.rows), watch.model.n_classes
    counts = BinSums(*np.zeros((2, len(watch.features), MOST_BINS)))
    for first in range(0, len(watch.features), SLAB_COLUMNS):
        columns = np.ascontiguousarray(features[:, first : first + SLAB_COLUMNS].T)
        for column, values in enumerate(columns, start=first):
            found = bin_sums(watch.features[column].place(values), seen.weight, MOST_BINS)
            counts.weight[column], counts.squares[column] = found.weight, found.squares
    labels, figures = BinSums(*np.zeros((2, watch.n_labels))), no_moments(RESIDUAL + n_classes)
    if target is not None:
        labels = bin_sums(target, seen.weight, watch.n_labels)
        for first in range(0, n_rows, SLAB_ROWS):
            own = slice(first, first + SLAB_ROWS)
            figures += moments(_figures(probability[own], target[own], watch.n_labels), counted[own])
    summary = summarize_rows(features, np.zeros(n_rows, dtype=np.int32), seen.weight, 1)
    return StreamSums(
        summary,
        float(squared(counted).sum()),
        counts,
        bin_sums(watch.familiarity.place(seen.evidence), seen.weight, watch.familiarity.count),
        bin_sums(probability.argmax(axis=1), seen.weight, n_classes),
        counted @ probability.astype(np.float64),
        labels,
        figures,
        calibration_sums(seen.outcomes, CALIBRATION_BINS),
        sample_rows(seen.rows, counted, seen.evidence, SAMPLED),
        _outside(features, counted, summary, watch.within),
    )


def _outside(features: NDArray[np.floating], weight: Floats, summary: Summary, within: Summary | None) -> Floats:
    outside = np.zeros(features.shape[1])
    if within is None:
        return outside
    # Hardly any feature leaves its range in a block, and the block's own range tells which.
    for column in np.flatnonzero((summary.minimum < within.minimum) | (summary.maximum > within.maximum)):
        values = features[:, column].astype(np.float64)
        outside[column] = weight[(values < within.minimum[column]) | (values > within.maximum[column])].sum()
    return outside


def _figures(probability: Floats, target: Integers, n_labels: int) -> Floats:
    n_classes = probability.shape[1]
    own = np.arange(n_classes)
    loss = row_losses(probability, own, target, n_labels, "log-loss")
    correct = probability.argmax(axis=1) == target
    return np.column_stack([loss, correct, (target[:, None] == own) - probability])


STREAM: Reduction[StreamSums, StreamSums] = Reduction(sum_stream, add_records, identity)


def _rounded(values: NDArray[np.floating]) -> NDArray[np.float32]:
    if values.dtype == np.float32:
        return values
    with np.errstate(over="ignore"):  # what is too large for float32 is a very large value all the same
        return np.clip(values.astype(np.float32), -LARGEST, LARGEST)


def lay_bins(values: NDArray[np.floating]) -> Bins:
    """Bins for a feature, from the values of a sample (n,)."""
    rounded = _rounded(values)
    different = np.unique(rounded).astype(np.float64)
    if len(different) <= MOST_VALUES and len(different) * ROWS_PER_VALUE <= len(rounded):
        return Bins(different, by_value=True)
    return Bins(
        quantile_points(rounded.astype(np.float64), np.arange(1, QUANTILE_BINS) / QUANTILE_BINS), by_value=False
    )


def quantile_points(values: Floats, levels: Floats) -> Floats:
    """Different values that stand at these levels of a sample (n,), ascending."""
    return np.unique(_rounded(np.quantile(values, levels, method="higher"))).astype(np.float64)


def learn_bins(engine: Engine, source: Source, model: PrototypeSet, n_batches: int) -> tuple[tuple[Bins, ...], Bins]:
    """Bins of features and of familiarity, in one pass over a source of features."""
    sample = draw_sample(engine, check_rows(source), sample_size(model.n_features))
    features = sample.values[spread(sample)]
    if len(features) == 0:
        check_weight(0.0)
    evidence = familiarity(model.scores(features, [n_batches])[0])
    return (
        tuple(lay_bins(features[:, column]) for column in range(model.n_features)),
        Bins(quantile_points(evidence, np.array(FAMILIARITY_LEVELS)), by_value=False),
    )


def watch_stream(engine: Engine, source: Source, watch: Watch) -> StreamSums:
    """One pass of the model over a source of features, and of targets if the watch has codes for them."""
    found = engine.reduce(check_rows(source), STREAM, engine.share(watch), label="monitor")
    check_weight(found.summary.weight, found.weight_squares)
    return found


def weighted_quantiles(values: Floats, weight: Floats, levels: Sequence[float]) -> list[float]:
    """The smallest value at or below which lies at least this share of the weight, for each level."""
    order = np.argsort(values, kind="stable")
    total = np.cumsum(weight[order])
    places = np.searchsorted(total, np.array(levels) * total[-1])
    return [float(value) for value in values[order][np.minimum(places, len(values) - 1)]]
