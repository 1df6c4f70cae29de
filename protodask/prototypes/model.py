"""The model: class marginals, and batches of weighted prototypes.

A batch is a set of prototypes that look at features with the same weights; batches that were trained together are a
round.

q_c[k](x) = p0[k] + sum_{b <= c} sum_{j in b, y_j = k} w_j K_{v_b}(x - x_j),   K_v(z) = exp(-1/2 sum_d (v_d z_d)^2)
p_c[k](x) = q_c[k](x) / sum_l q_c[l](x),   familiarity(x) = sum_k q_B[k](x) - 1
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.format.schema import Column, Label, feature_names
from protodask.errors import InputError
from protodask.prototypes.kernel import Differences, Knots, ScoredColumns, ScoreKernel, Standardization
from protodask.prototypes.splines import SplineCalibration
from protodask.prototypes.tiles import Precision

if TYPE_CHECKING:
    from protodask.data.tables.encoding import Unseen
    from protodask.scoring.scorer import Scorer

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


SCORED_ROWS = 2048
"""Rows that are scored at a time by a model that looks at normal scores or levels."""

NORMAL_SCORE, LEVEL = " (normal score)", " (level)"
FORM_NAMES = ("", NORMAL_SCORE, LEVEL)
"""What follows the name of a feature by the form in which a batch looks at it."""


@dataclass(frozen=True)
class Batch:
    """The prototypes of a batch (J) and the features they look at (D).

    `feature_weight` refers to `(x - center) / scale`, with `x` the normal score or level of a feature that has `knots`,
    whose centre is 0 and scale 1. A batch may look at a feature in several forms, which are features of it then; last
    are the `differences` of two. `prototypes` are in raw units, `row` are their row numbers in the training data. A
    batch may be empty.
    """

    feature_index: Integers
    feature_weight: Floats
    center: Floats
    scale: Floats
    prototypes: Floats
    prototype_class: Integers
    prototype_weight: Floats
    row: Integers
    knots: Knots | None = None
    differences: Differences | None = None
    compared: Floats | None = None
    """Raw values of the other feature of each difference in the prototypes (J, differences), to show them."""

    @property
    def n_features(self) -> int:
        return len(self.feature_index)

    @property
    def n_prototypes(self) -> int:
        return len(self.row)

    @property
    def standardization(self) -> Standardization:
        """What turns raw values of its features into those that the weights refer to."""
        return Standardization(self.center, self.scale, self.knots, self.differences)

    @property
    def looked_at(self) -> Integers:
        """Features of the model that it looks at, in whatever form, ascending."""
        others = [] if self.differences is None else self.differences.others[self.differences.places].tolist()
        return np.unique(np.concatenate([self.feature_index, np.array(others, dtype=np.int64)]))

    def values(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Of rows with all features of the model (..., all), those of its own (..., D), as the prototypes have them."""
        return self.standardization.values(rows, self.feature_index)

    @property
    def forms(self) -> list[tuple[int, float, int, int]]:
        """What tells its features apart: the other feature and the factor of differences, the feature, and the place of
        its form in `FORM_NAMES`.
        """
        alone = [(-1, 0.0)] * self.n_features
        pairs = alone if self.differences is None else [self.differences.of(place) for place in range(self.n_features)]
        kinds = self.scored.astype(np.int64)
        if self.knots is not None and self.knots.levels is not None:
            kinds += self.knots.levels
        own = zip(pairs, self.feature_index.tolist(), kinds.tolist(), strict=True)
        return [(*pair, feature, kind) for pair, feature, kind in own]

    def places_of(self, feature: int) -> Integers:
        """Where a feature of the model is among its own, alone, in whatever form."""
        alone = self.feature_index == feature
        if self.differences is not None:
            alone[self.differences.places] = False
        return np.flatnonzero(alone)

    def values_of(self, feature: int) -> Floats | None:
        """Values of a feature of the model in the prototypes (J,); None where the batch does not look at it."""
        for place in self.places_of(feature).tolist():
            return self.prototypes[:, place]
        if self.differences is None or self.compared is None:
            return None
        for other, place in enumerate(self.differences.places):
            if self.differences.others[place] == feature:
                return self.compared[:, other]
            if self.feature_index[place] == feature:
                first: Floats = self.prototypes[:, place] + self.differences.factor[place] * self.compared[:, other]
                return first
        return None

    def raw_values(self, position: int) -> dict[int, float]:
        """Values of a prototype, by feature of the model: of all that the batch looks at, alone or in differences."""
        differences = self.differences
        values, features = self.prototypes[position].tolist(), self.feature_index.tolist()
        pairs = set() if differences is None else set(differences.places)
        found = {features[place]: value for place, value in enumerate(values) if place not in pairs}
        if differences is not None and self.compared is not None:
            for place, second in zip(differences.places, self.compared[position].tolist(), strict=True):
                other, factor = differences.of(place)
                found.setdefault(other, second)
                found.setdefault(features[place], values[place] + factor * second)
        return found

    def measured(self, values: Floats) -> Floats:
        """What `values` gives (..., D) as it is, but for normal scores and levels: `v / scale` is their weight."""
        if self.knots is None:
            return values
        found = values.copy()
        for place in self.knots.places:
            found[..., place] = self.knots.score(place, values[..., place])
        return found

    @property
    def scored(self) -> NDArray[np.bool_]:
        """Which of its features are normal scores or levels (D,)."""
        found = np.zeros(self.n_features, dtype=np.bool_)
        found[self.standardization.scored] = True
        return found

    def kernel(self, n_classes: int, precision: Precision) -> ScoreKernel:
        """What computes this batch's part of the unscaled probabilities."""
        standardization = self.standardization
        return ScoreKernel(
            prototypes=standardization.apply(self.prototypes),
            prototype_class=self.prototype_class,
            prototype_weight=self.prototype_weight,
            feature_weight=self.feature_weight,
            feature_index=self.feature_index,
            standardization=standardization,
            n_classes=n_classes,
            precision=precision,
        )


@dataclass(frozen=True)
class PrototypeSet:
    """A fitted prototype set classifier."""

    marginals: Floats
    classes: tuple[Label, ...]
    feature_names: tuple[str, ...]
    columns: tuple[Column, ...]
    """Columns of the table the features were encoded from: what raw data must look like to be scored."""
    target_name: str = "target"
    other_names: tuple[str, ...] = ()
    """Columns besides features and target that tables may have: weights, and those dropped at ingest."""
    batches: tuple[Batch, ...] = ()
    precision: Precision = "float32"
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Where the model comes from, as plain JSON values; it plays no part in what the model computes."""
    calibration: SplineCalibration | None = None
    """What calibrates its probabilities where that is asked for."""
    rounds: tuple[int, ...] | None = None
    """Batches of each round; None where every batch is one."""

    def __repr__(self) -> str:
        counts = f"{self.n_features} features, {self.n_batches} batches, {self.n_prototypes} prototypes"
        return f"<PrototypeSet of {self.target_name!r}: {self.n_classes} classes, {counts}>"

    @property
    def n_classes(self) -> int:
        return len(self.classes)

    @property
    def n_features(self) -> int:
        return len(self.feature_names)

    @property
    def n_batches(self) -> int:
        return len(self.batches)

    @property
    def round_ends(self) -> tuple[int, ...]:
        """Numbers of batches that whole rounds have, from 0 on."""
        sizes = (1,) * len(self.batches) if self.rounds is None else self.rounds
        return tuple(itertools.accumulate(sizes, initial=0))

    @property
    def n_rounds(self) -> int:
        return len(self.round_ends) - 1

    def round_batches(self, number: int) -> tuple[Batch, ...]:
        """The batches of a round, counted from 0."""
        ends = self.round_ends
        return self.batches[ends[number] : ends[number + 1]]

    @property
    def last_round(self) -> tuple[Batch, ...]:
        """The batches that were trained last."""
        return self.round_batches(self.n_rounds - 1) if self.batches else ()

    @property
    def active_features(self) -> Integers:
        """Features that any batch looks at, ascending."""
        if not self.batches:
            return np.zeros(0, dtype=np.int64)
        return np.unique(np.concatenate([batch.looked_at for batch in self.batches]))

    @property
    def n_prototypes(self) -> int:
        return sum(batch.n_prototypes for batch in self.batches)

    @property
    def forgiving_columns(self) -> tuple[Column, ...]:
        """The columns of rows in which values may be missing that no row to train on lacked.

        A number counts as the mean then, or as the median if its normal scores alone are looked at, as the value of
        mean level if its levels alone are, as the median of prototypes if it is only in differences; a category as
        none.
        """
        columns = self.columns
        if len(feature_names(columns)) != self.n_features:
            columns = tuple(Column(name) for name in self.feature_names)
        found, first = [], 0
        for column in columns:
            middle = 0.0 if column.kind == "nominal" else self._middle(first)
            found.append(column if column.filled is not None else replace(column, filled=middle))
            first += len(column.feature_names)
        return tuple(found)

    def _middle(self, feature: int) -> float:
        """The mean of a feature, or its median, as far as the batches tell, that of prototypes where it is only in
        differences; 0 if none looks at it.
        """
        middle: float | None = None
        for batch in self.batches:
            for place in batch.places_of(feature).tolist():
                if batch.knots is None or place not in batch.knots.places:
                    return float(batch.center[place])
                if middle is None:
                    middle = float(np.interp(0.0, batch.knots.scores[place], batch.knots.values[place]))
        for batch in self.batches if middle is None else ():
            if batch.n_prototypes and (values := batch.values_of(feature)) is not None:
                return float(np.median(values))
        return middle or 0.0

    def names_in(self, batch: Batch) -> tuple[str, ...]:
        """Names of the features of a batch, with the form that each is in, and differences as "x - 0.98 y"."""
        found = [f"{self.feature_names[feature]}{FORM_NAMES[kind]}" for *_, feature, kind in batch.forms]
        if batch.differences is not None:
            for place in batch.differences.places:
                factor, other = batch.differences.factor[place], self.feature_names[batch.differences.others[place]]
                found[place] += f" {'-' if factor >= 0 else '+'} {abs(factor):.3g} {other}"
        return tuple(found)

    def value_names_in(self, batch: Batch) -> tuple[str, ...]:
        """Names of what `batch.values` are: features in whatever form it looks at them, and differences."""
        names = [self.feature_names[index] for index in batch.feature_index.tolist()]
        if batch.differences is not None:
            labels = self.names_in(batch)
            for place in batch.differences.places:
                names[place] = labels[place]
        return tuple(names)

    def label_of(self, batch: Batch) -> Label | None:
        """The class that all prototypes of a batch are of; None where they are of several, or there are none."""
        present = np.unique(batch.prototype_class)
        return self.classes[int(present[0])] if len(present) == 1 else None

    def with_round(self, batches: Sequence[Batch]) -> PrototypeSet:
        """The model and one more round; a calibration is of the model as it was, and is left behind."""
        sizes = (1,) * len(self.batches) if self.rounds is None else self.rounds
        rounds = None if self.rounds is None and len(batches) == 1 else (*sizes, len(batches))
        return replace(self, batches=(*self.batches, *batches), rounds=rounds, calibration=None)

    def batch_counts(self, n_batches: int | Sequence[int] | None) -> tuple[int, ...]:
        """How many batches the first rounds have, for each number of rounds asked for; None means all.

        Batches that were trained together count as one, as in the settings of a fit.
        """
        if n_batches is None:
            return (self.n_batches,)
        counts: tuple[Any, ...] = tuple(n_batches) if isinstance(n_batches, Iterable) else (n_batches,)
        for count in counts:
            whole = isinstance(count, int | np.integer) and not isinstance(count, bool)
            if not whole or not 0 <= count <= self.n_rounds:
                together = "" if self.rounds is None else ", those that were trained together counted as one"
                raise InputError(
                    "bad-setting",
                    f"n_batches is {count!r}.",
                    f"The model has {self.n_rounds} batches{together}: give a number from 0 to that.",
                )
        return tuple(self.round_ends[count] for count in counts)

    def calibrated_batches(self, n_batches: int | Sequence[int] | None = None) -> int:
        """How many batches the calibration is of, refused where there is none or other rounds are asked for."""
        if self.calibration is None:
            raise InputError(
                "not-fitted",
                "The model has no calibration.",
                "Add one with `protodask calibrate`, or ask for raw probabilities.",
            )
        own = self.calibration.n_batches
        if n_batches is not None and self.batch_counts(n_batches) != (own,):
            rounds = self.round_ends.index(own)
            raise InputError(
                "bad-setting",
                f"The model has a calibration of {rounds} of its batches, and {n_batches} are asked for.",
                f"Ask for {rounds} or leave the number out, or calibrate the model with the number you want.",
            )
        return own

    def scored_batches(self, n_batches: int | None = None, calibrated: bool = False) -> int:
        """How many batches give the probabilities that are asked for, raw or calibrated, see `batch_counts`."""
        if calibrated:
            return self.calibrated_batches(n_batches)
        counts = self.batch_counts(n_batches)
        if len(counts) != 1:
            raise InputError("bad-setting", f"n_batches is {n_batches!r}.", "Give one number, or leave it out.")
        return counts[0]

    def scores(self, features: NDArray[Any], n_batches: Sequence[int]) -> list[Floats]:
        """Unscaled probabilities `q_c` (N, K) of some rows for every `c` in `n_batches`, each batch computed once."""
        found = {count: np.empty((len(features), self.n_classes)) for count in n_batches}
        batches = self.batches[: max(found, default=0)]
        kernels: Iterable[ScoreKernel] = (batch.kernel(self.n_classes, self.precision) for batch in batches)
        step = max(len(features), 1)
        if any(batch.knots is not None for batch in batches):
            # Batches often share them, so they are found once for all, a slab of rows at a time.
            kernels, step = list(kernels), SCORED_ROWS
        for first in range(0, len(features), step):
            rows = features[first : first + step]
            running = np.tile(self.marginals, (len(rows), 1))
            scored = ScoredColumns(rows, self.precision)
            for count, kernel in enumerate(itertools.chain([None], kernels)):
                if kernel is not None:
                    kernel.add(rows, running, scored)
                if count in found:
                    found[count][first : first + step] = running
        return [found[count] for count in n_batches]

    def predict_proba(
        self, rows: Any, *, n_batches: int | None = None, calibrated: bool = False, unseen: Unseen = "error"
    ) -> Floats:
        """Probabilities of rows in memory (N, K), see `protodask.scoring.Scorer`: NumPy alone is needed."""
        return self._scorer.predict_proba(rows, n_batches=n_batches, calibrated=calibrated, unseen=unseen)

    def predict(
        self, rows: Any, *, n_batches: int | None = None, calibrated: bool = False, unseen: Unseen = "error"
    ) -> NDArray[Any]:
        """The most probable class of rows in memory (N,)."""
        return self._scorer.predict(rows, n_batches=n_batches, calibrated=calibrated, unseen=unseen)

    def familiarity(self, rows: Any, *, n_batches: int | None = None, unseen: Unseen = "error") -> Floats:
        """`sum_k q_k - 1` of rows in memory (N,)."""
        return self._scorer.familiarity(rows, n_batches=n_batches, unseen=unseen)

    def predict_table(
        self,
        rows: Any,
        *,
        keep: Sequence[str] = (),
        n_batches: int | None = None,
        calibrated: bool = False,
        unseen: Unseen = "error",
    ) -> Any:
        """All of these as a table of the kind of the rows: pandas, Polars, Arrow and its streams, or xarray."""
        return self._scorer.predict_table(rows, keep=keep, n_batches=n_batches, calibrated=calibrated, unseen=unseen)

    def to_onnx(
        self,
        path: str | os.PathLike[str],
        *,
        n_batches: int | None = None,
        calibrated: bool = False,
        overwrite: bool = False,
    ) -> None:
        """Write what `predict_proba(rows, unseen="zero")` computes to a file, as a graph for ONNX runtimes."""
        from protodask.scoring.onnx_export import write_onnx

        write_onnx(self, path, n_batches=n_batches, calibrated=calibrated, overwrite=overwrite)

    @cached_property
    def _scorer(self) -> Scorer:
        from protodask.scoring.scorer import Scorer

        return Scorer(self)

    def __getstate__(self) -> dict[str, Any]:
        # What the scorer has worked out is not sent to workers.
        return {name: value for name, value in vars(self).items() if name != "_scorer"}

    def shrink(self) -> PrototypeSet:
        """The same model without the columns it does not look at, see `protodask.prototypes.shrinking`."""
        from protodask.prototypes.shrinking import shrink

        return shrink(self)

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write the model to a Zarr store, whole or not at all."""
        from protodask.prototypes.persistence import save_model

        save_model(self, path, overwrite=overwrite)


def probabilities(scores: Floats) -> Floats:
    """`p = q / sum q` (N, K)."""
    shares: Floats = scores / scores.sum(axis=1, keepdims=True)
    return shares


def familiarity(scores: Floats) -> Floats:
    """`sum_k q_k - 1` (N,): how much evidence the model has."""
    evidence: Floats = scores.sum(axis=1) - 1
    return evidence
