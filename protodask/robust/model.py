"""Planes that were trained on uncertain rows: what is kept of a fit, and what it says of further rows.

`N` rows, `D` features, `K` classes, `P` planes: one for two classes, else one for each class against the rest.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.format.schema import Column, Label, feature_names
from protodask.engine.records import taken
from protodask.errors import InputError
from protodask.prototypes.tiles import Precision
from protodask.robust.brackets import TILE
from protodask.robust.certified import knowledge
from protodask.robust.config import RobustConfig
from protodask.robust.formulations import DEFAULT_CERTIFYING, WITHOUT_SPREAD, Formulation, certifying, named
from protodask.robust.terms import Floats
from protodask.robust.uncertain_rows import UncertainRows
from protodask.robust.weak_duality import relative_gap


@dataclass(frozen=True, eq=False)
class RobustModel:
    """Planes `w.x = b`: of two classes the second is where `w.x > b`, of more the one of largest `w.x - b`."""

    weights: Floats
    """(P, D)."""
    intercept: Floats
    """(P,)."""
    classes: tuple[Label, ...]
    features: tuple[str, ...]
    """Names of the uncertain features, `x` where the columns are `x.low`, `x.high` and so on."""
    columns: tuple[Column, ...]
    """Of the table it was trained on, and how they become numbers."""
    config: RobustConfig
    objective: Floats
    """`1/2 |w|^2 + sum C_i xi_i` of each plane, (P,)."""
    lower_bound: Floats
    """No plane has an objective below it, (P,)."""
    passes: tuple[int, ...]
    """Over the samples, or iterations of the cone solver, for each plane."""
    target_name: str = "target"
    other_names: tuple[str, ...] = ()
    """Further columns of that table, which are no features."""
    precision: Precision = "float64"
    """Of the numbers it was trained on."""
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def n_features(self) -> int:
        return len(self.features)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the numbers of a row: `x.low`, `x.high` and so on."""
        return feature_names(self.columns)

    @property
    def n_classes(self) -> int:
        return len(self.classes)

    @property
    def gap(self) -> Floats:
        """How far each objective may be above the least there is, relative to it, (P,)."""
        pairs = zip(self.objective, self.lower_bound, strict=True)
        return np.array([relative_gap(float(value), float(bound)) for value, bound in pairs])

    @property
    def converged(self) -> bool:
        """Whether every gap is as small as asked for."""
        return bool((self.gap <= self.config.gap).all())

    def certifying(self, formulation: str | None = None) -> Formulation:
        """The formulation that certifies: the one asked for, else its own, or "SBMV-I" after SVM and M.

        SVM and M know no spread, and cannot be asked for.
        """
        if formulation is not None:
            return certifying(formulation)
        own = named(self.config.formulation)
        return DEFAULT_CERTIFYING if own in WITHOUT_SPREAD else own

    def decision(self, rows: UncertainRows) -> Floats:
        """`w.m - b` at the middles of the bounds of the means, (N, P)."""
        if not isinstance(rows, UncertainRows):
            raise InputError(
                "wrong-type",
                f"The rows are {type(rows).__name__}.",
                "Give UncertainRows; a RobustClassifier takes tables and arrays, too.",
            )
        if rows.n_features != self.n_features:
            raise InputError(
                "columns-differ",
                f"The rows have {rows.n_features} features; the model was trained on {self.n_features}.",
                "Give the features it was trained on.",
            )
        return rows.mean_midpoint @ self.weights.T - self.intercept

    def predict(self, rows: UncertainRows) -> NDArray[np.intp]:
        """The class (N,) of each row, as an index into `classes`."""
        return codes_of(self.decision(rows))

    def certified_eps(self, rows: UncertainRows, formulation: str | None = None) -> Floats:
        """A bound of the probability (N,) that the row's true values are classified otherwise, 1 where none is known.

        Otherwise than by `predict`, which goes by the middles: it bounds what not knowing the row does, not how well
        planes tell the classes apart. Planes without weights are certified at 0.

        The least of the bounds that follow from what `formulation`, or that of `certifying`, knows of a row: Chernoff's
        and Chebyshev's, or for MC and S the one they stand for. With more than two classes the bounds against each
        other class add up.
        """
        return self.certified(rows, formulation)[0]

    def certified(self, rows: UncertainRows, formulation: str | None = None) -> tuple[Floats, NDArray[np.int8]]:
        """`certified_eps`, and by which of `certified.BOUNDS` (N,): of several planes, the one that leaves most."""
        name, step = self.certifying(formulation), max(1, TILE // max(1, self.n_features))
        parts = [
            self._certify(rows.take(slice(first, first + step)), name) for first in range(0, max(len(rows), 1), step)
        ]
        eps, by = zip(*parts, strict=True)
        return np.concatenate(eps), np.concatenate(by)

    def _certify(self, rows: UncertainRows, formulation: Formulation) -> tuple[Floats, NDArray[np.int8]]:
        predicted = self.predict(rows)
        known = knowledge(rows, formulation)
        # For the side that was predicted: on the plane itself, rounding may see a middle on the other one.
        if self.n_classes == 2:
            side = np.where(predicted == 1, 1.0, -1.0)
            return known.least(side, self.weights[0], float(self.intercept[0]))
        total, largest, by = np.zeros(len(rows)), np.full(len(rows), -1.0), np.zeros(len(rows), dtype=np.int8)
        for code in np.unique(predicted):
            own = np.flatnonzero(predicted == code)
            some, side = taken(known, own), np.ones(len(own))
            for other in range(self.n_classes):
                if other != code:
                    weights = self.weights[code] - self.weights[other]
                    eps, bound = some.least(side, weights, float(self.intercept[code] - self.intercept[other]))
                    total[own] += eps
                    by[own] = np.where(eps > largest[own], bound, by[own])
                    largest[own] = np.maximum(largest[own], eps)
        return np.minimum(total, 1.0), np.where(total < 1, by, 0).astype(np.int8)

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write the model to a Zarr store, whole or not at all."""
        from protodask.robust.persistence import save_robust_model

        save_robust_model(self, path, overwrite=overwrite)


def codes_of(decision: Floats) -> NDArray[np.intp]:
    """The class (N,) that values (N, P) speak for: the first of several as large."""
    if decision.shape[1] == 1:
        return (decision[:, 0] >= 0).astype(np.intp)
    codes: NDArray[np.intp] = decision.argmax(axis=1)
    return codes
