"""How other rows differ from those a model was trained on: what `protodask monitor` finds, and how alarming it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np

from protodask.data.format.schema import Label
from protodask.engine.records import Floats
from protodask.evaluation.row_sample import spread
from protodask.evaluation.stream import StreamSums, Watch
from protodask.evaluation.stream_changes import FeatureChange, StreamChanges, compare_profiles
from protodask.evaluation.stream_profile import StreamProfile, make_profile

Alarm = Literal["none", "some", "strong"]
ALARMS: tuple[Alarm, ...] = get_args(Alarm)

STRONG_INDEX, SOME_INDEX = 0.25, 0.1
"""Population stability indices: by convention much, and worth a look. A mean that moves by half a standard deviation of
a normal distribution has the first."""

STRONG_OUTSIDE, SOME_OUTSIDE = 0.05, 0.005

NOTHING = (np.zeros(0), np.zeros(0))


@dataclass(frozen=True)
class Side:
    """One side of a comparison: rows, how they were looked at, and what they looked like to the model."""

    name: str
    watch: Watch
    sums: StreamSums


class FeatureDrift(NamedTuple):
    """How one feature changed."""

    change: FeatureChange
    used: bool
    """Whether the model looks at it, with the batches that are used."""
    alarm: Alarm


class ClassShare(NamedTuple):
    """Shares of one class."""

    label: Label
    before: float
    after: float

    @property
    def state(self) -> str:
        """Whether it is new or has vanished; else empty."""
        return "new" if self.after and not self.before else "vanished" if self.before and not self.after else ""


@dataclass(frozen=True)
class Drift:
    """What changed between two sets of rows."""

    before_name: str
    after_name: str
    before: StreamProfile | None = None
    """This, what is after and the changes are None where one of them has no rows."""
    after: StreamProfile | None = None
    changes: StreamChanges | None = None
    familiarity: tuple[Floats, Floats] = NOTHING
    """Before and after, of samples, each row in proportion to its weight."""

    @property
    def class_shares(self) -> list[ClassShare]:
        """The largest change first."""
        found = None if self.changes is None else self.changes.labels
        shares = [] if found is None else map(ClassShare, found.labels, found.before, found.after)
        return sorted(shares, key=lambda one: -abs(one.after - one.before))

    @property
    def alarming(self) -> int:
        """Features with a strong alarm."""
        return 0 if self.changes is None else sum(alarm(feature) == "strong" for feature in self.changes.features)


def measure_drift(before: Side, after: Side) -> Drift:
    """Compare the sums over rows; no pass over any rows."""
    old, new = (make_profile(side.sums, side.watch, "") for side in (before, after))
    first, second = (sample.values[spread(sample)] for sample in (before.sums.sample, after.sums.sample))
    return Drift(before.name, after.name, old, new, compare_profiles(old, new), (first, second))


def alarm(feature: FeatureChange) -> Alarm:
    """How alarming a feature is: by the size of a change beyond chance, or rows beyond what the model has seen."""
    index, outside = feature.index if feature.significant else 0.0, feature.outside if feature.beyond else 0.0
    if index >= STRONG_INDEX or outside >= STRONG_OUTSIDE:
        return "strong"
    return "some" if index >= SOME_INDEX or outside >= SOME_OUTSIDE else "none"
