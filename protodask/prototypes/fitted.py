"""What is kept of a fit: class marginals and batches of weighted prototypes, and what these say of features.

q_c[k](x) = p0[k] + sum_{b <= c} sum_{j in b, y_j = k} w_j K_{v_b}(x - x_j),   K_v(z) = exp(-1/2 sum_d (v_d z_d)^2)
p_c[k](x) = q_c[k](x) / sum_l q_c[l](x),   familiarity(x) = sum_k q_B[k](x) - 1
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from protodask.data.format.schema import Column, Label, feature_names
from protodask.engine.records import Floats, Integers
from protodask.errors import InputError, count
from protodask.prototypes.batches import FORM_NAMES, Batch
from protodask.prototypes.kernel import ScoredColumns, ScoreKernel
from protodask.prototypes.splines import SplineCalibration
from protodask.prototypes.tiles import Precision

SCORED_ROWS = 2048
"""Rows that are scored at a time by a model that looks at normal scores or levels."""


@dataclass(frozen=True)
class FittedPrototypes:
    """Class marginals and batches, the table they are of, and what follows from these."""

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
    read_as: Precision | None = None
    """Type of the numbers that it was trained on; None in models of earlier versions."""

    @property
    def row_precision(self) -> Precision:
        """In which tables are read: as the rows it was trained on, or as its kernel is if that is more precise."""
        return "float64" if "float64" in (self.precision, self.read_as) else "float32"

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
        found, first, middles = [], 0, self._middles().tolist()
        for column in columns:
            middle = 0.0 if column.kind == "nominal" else middles[first]
            found.append(column if column.filled is not None else replace(column, filled=middle))
            first += len(column.feature_names)
        return tuple(found)

    def _middles(self) -> Floats:
        """The mean of each feature, or its median, as far as the batches tell, that of prototypes where it is only in
        differences; 0 if none looks at it.
        """
        found = np.full(self.n_features, np.nan)
        for batch in reversed(self.batches):
            plain = ~batch.scored
            if batch.differences is not None:
                plain[batch.differences.places] = False
            found[batch.feature_index[plain][::-1]] = batch.center[plain][::-1]
        for batch in self.batches:
            if batch.knots is None:
                continue
            for place in batch.knots.places:
                if np.isnan(found[feature := batch.feature_index[place]]):
                    found[feature] = np.interp(0.0, batch.knots.scores[place], batch.knots.values[place])
        for batch in self.batches:
            looked_at = batch.looked_at if batch.n_prototypes else np.zeros(0, dtype=np.int64)
            for feature in looked_at[np.isnan(found[looked_at])].tolist():
                if (values := batch.values_of(feature)) is not None:
                    found[feature] = np.median(values)
        return np.where(np.isnan(found), 0.0, found)

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

    def with_round(self, batches: Sequence[Batch]) -> Self:
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
        for one in counts:
            whole = isinstance(one, int | np.integer) and not isinstance(one, bool)
            if not whole or not 0 <= one <= self.n_rounds:
                together = "" if self.rounds is None else ", those that were trained together counted as one"
                raise InputError(
                    "bad-setting",
                    f"n_batches is {one!r}.",
                    f"The model has {count(self.n_rounds, 'batch', 'batches')}{together}: "
                    "give a number from 0 to that.",
                )
        return tuple(self.round_ends[one] for one in counts)

    def calibrated_batches(self, n_batches: int | Sequence[int] | None = None) -> int:
        """How many batches the calibration is of, refused where there is none or other rounds are asked for."""
        if self.calibration is None:
            raise InputError(
                "not-fitted",
                "The model has no calibration.",
                "Add one with `calibrate_model()`, or ask for raw probabilities.",
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
        found = {number: np.empty((len(features), self.n_classes)) for number in n_batches}
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
            for number, kernel in enumerate(itertools.chain([None], kernels)):
                if kernel is not None:
                    kernel.add(rows, running, scored)
                if number in found:
                    found[number][first : first + step] = running
        return [found[number] for number in n_batches]


def probabilities(scores: Floats) -> Floats:
    """`p = q / sum q` (N, K)."""
    shares: Floats = scores / scores.sum(axis=1, keepdims=True)
    return shares


def familiarity(scores: Floats) -> Floats:
    """`sum_k q_k - 1` (N,): how much evidence the model has."""
    evidence: Floats = scores.sum(axis=1) - 1
    return evidence
