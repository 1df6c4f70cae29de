"""What a fit is trained on: rows, what is known of them as a whole, and the forms in which their features enter."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.format.schema import Column, Label
from protodask.data.format.summary import Summary
from protodask.engine import Engine, Source
from protodask.errors import InputError
from protodask.prototypes.config import FitConfig
from protodask.prototypes.forms import Forms, learn_forms, least_scale
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.runs import NO_LOG, RunLog
from protodask.prototypes.tiles import Precision


class LargeWeightWarning(UserWarning):
    """A few rows stand for so many that they decide what is learnt."""


LARGE_WEIGHT = 100.0
"""Times the mean weight: beyond this, calibrating a model that was trained without weights is the better way."""


def warn_of_large_weights(summary: Summary) -> None:
    """Warn where a row weighs more than `LARGE_WEIGHT` times the mean of the rows of positive weight."""
    largest = summary.largest_weight
    if largest is None or summary.rows == 0:
        return
    mean = summary.weight / summary.rows
    if largest > LARGE_WEIGHT * mean:
        warnings.warn(
            f"The largest weight of a row is {largest:.6g}, {largest / mean:.4g} times the mean of {mean:.6g} over "
            f"{summary.rows:,} rows: a few rows decide what is learnt. Keep more of the rows that weigh so much, or "
            "train without weights (weighted=False) and calibrate the model with them.",
            LargeWeightWarning,
            stacklevel=2,
        )


class FeatureScaleWarning(UserWarning):
    """Nothing was learnt of features in raw units, which are far too large or too small for it."""


USUAL_DEVIATIONS = (0.1, 10.0)
"""Standard deviations at which units are not to blame where nothing is learnt."""

FELT = 1e-3
"""Weight of a feature times its range from which on the kernel, `1 - 5e-7` there at least, tells rows apart."""


def warn_of_scales(summary: Summary, model: PrototypeSet) -> None:
    """Warn where a model of features in raw units learnt nothing of them, and their units may be why."""
    ranges, deviations = summary.maximum - summary.minimum, summary.deviation[~summary.constant]
    least, most = deviations.min(initial=math.inf), deviations.max(initial=0.0)
    if any((batch.feature_weight * ranges[batch.feature_index] > FELT).any() for batch in model.batches):
        return
    if least < USUAL_DEVIATIONS[0] or most > USUAL_DEVIATIONS[1]:
        warnings.warn(
            "The model predicts the class shares: nothing was learnt of features in raw units, whose standard "
            f"deviations range from {least:.3g} to {most:.3g}. Leave `standardize` at its default, True, or rescale "
            "them to about 1.",
            FeatureScaleWarning,
            stacklevel=2,
        )


@dataclass(frozen=True)
class TrainingData:
    """A source of features and targets, and what is known of it as a whole."""

    source: Source
    array_names: tuple[str, ...]
    """Arrays of the source: `features` (N, D), `target` (N,), optionally `weight` and `inclusion` (N,)."""
    summary: Summary
    classes: tuple[Label, ...]
    feature_names: tuple[str, ...]
    columns: tuple[Column, ...]
    dtype: Precision = "float32"
    """Of the features."""
    target_name: str = "target"
    other_names: tuple[str, ...] = ()
    held_out_weight: float = 0.0
    """Of all rows that are held out, to tell when a round is done; 0 where none are."""
    whole: TrainingData | None = None
    """With the rows that are held out among those trained on; None where none are."""
    forms: Forms | None = None
    """In which its features enter; None where that is not known yet."""


def forms_of(engine: Engine, data: TrainingData, config: FitConfig, log: RunLog = NO_LOG) -> Forms:
    """The forms in which features of the data enter: those they have, or those that the settings ask for, which a log
    remembers: a run that goes on has those that it began with.
    """
    if data.forms is not None:
        return data.forms
    columns: Sequence[Column] = data.columns
    if sum(len(column.feature_names) for column in columns) != len(data.feature_names):
        columns = [Column(name) for name in data.feature_names]

    def learn() -> dict[str, NDArray[Any]]:
        wanted = config.feature_forms, config.seed, config.kernel_precision, config.feature_weights == "both"
        forms = learn_forms(engine, data.source, data.array_names, columns, *wanted)
        if config.standardize and config.feature_forms != "plain":
            forms = replace(forms, least=least_scale(forms, data.summary))
        return forms.arrays()

    return Forms.of_arrays(log.arrays(0, "forms", learn))


def check_size(data: TrainingData, config: FitConfig) -> None:
    """Refuse features or weights whose sums overflow, and features that the precision of the kernel cannot tell."""
    summary = data.summary
    broken = ~(np.isfinite(summary.mean) & np.isfinite(summary.squares))
    if not np.isfinite(summary.weight):
        raise InputError(
            "overflow", "The sample weights are so large that their sum overflows.", "Divide them by a common factor."
        )
    if 0 < summary.weight < np.finfo(np.float64).tiny:
        raise InputError(
            "overflow",
            "The sample weights are so small that one over their sum overflows.",
            "Multiply them by a factor.",
        )
    if broken.any():
        name = data.feature_names[int(np.argmax(broken))]
        raise InputError(
            "overflow",
            f"The values of feature {name!r} are so large that the sum of their squares overflows.",
            "Rescale it, or take its logarithm.",
        )
    precision = config.kernel_precision
    known = np.finfo(precision)
    largest = np.maximum(np.abs(summary.minimum), np.abs(summary.maximum))
    near = ~summary.constant & (summary.maximum - summary.minimum < known.tiny)
    lost = (largest > known.max) | (config.standardize & near)
    if lost.any():
        place = int(np.argmax(lost))
        what = "large" if largest[place] > known.max else "close to each other"
        raise InputError(
            "overflow",
            f"The values of feature {data.feature_names[place]!r} are too {what} for a kernel in {precision}.",
            "Rescale it, or let the precision be float64." if precision == "float32" else "Rescale it.",
        )
