"""Planes that were trained on uncertain rows: what is kept of a fit, what it says of further rows, and how it is saved.

On disk it is a Zarr group with its settings as JSON and its planes as arrays, checksummed, without pickle.

`N` rows, `D` features, `K` classes, `P` planes: one for two classes, else one for each class against the rest.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.arrays.model_arrays import damage_named, digest_arrays, read_array
from protodask.data.format.schema import Column, Label, feature_names
from protodask.data.places.records import Fields, RecordKind, Relative, hash_json
from protodask.engine.records import Floats, taken
from protodask.errors import FormatError, InputError, count
from protodask.prototypes.table_model import FIT_AGAIN, find_model, read_table, table_fields, write_model
from protodask.prototypes.tiles import Precision
from protodask.robust.brackets import TILE
from protodask.robust.certified import knowledge
from protodask.robust.config import RobustConfig
from protodask.robust.formulations import DEFAULT_CERTIFYING, WITHOUT_SPREAD, Formulation, certifying, named
from protodask.robust.uncertain_rows import UncertainRows
from protodask.robust.weak_duality import relative_gap

ROBUST_MODEL = RecordKind(
    "robust model",
    "protodask-robust-model",
    1,
    "Make one with `fit_robust()`.",
    FIT_AGAIN,
    (
        Relative(
            "protodask-model",
            "a prototype set classifier and no robust model",
            "Use `protodask predict` or `protodask evaluate`, in Python `load_model`; `fit_robust()` makes "
            "robust models.",
        ),
    ),
)

PLANE_ARRAYS = ("weights", "intercept", "objective", "lower_bound")
"""The arrays of a model, all float64: (P, D) the first, (P,) the others."""

MOST_WEIGHTS = 10**8
"""A bound on what a damaged or hostile file can make a reader allocate."""


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
    def row_precision(self) -> Precision:
        """In which tables are read."""
        return self.precision

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
                f"The rows have {count(rows.n_features, 'feature')}; the model was trained on {self.n_features}.",
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
        record = {
            **table_fields(self),
            "features": list(self.features),
            "config": self.config.as_dict(),
            "passes": list(self.passes),
            "digest": _digest(self),
        }
        write_model(path, overwrite, ROBUST_MODEL, record, _arrays(self))


def codes_of(decision: Floats) -> NDArray[np.intp]:
    """The class (N,) that values (N, P) speak for: the first of several as large."""
    if decision.shape[1] == 1:
        return (decision[:, 0] >= 0).astype(np.intp)
    codes: NDArray[np.intp] = decision.argmax(axis=1)
    return codes


def load_robust_model(path: str | os.PathLike[str]) -> RobustModel:
    """Read a model; whatever is wrong with it is a `FormatError`. `REGISTRY@ALIAS` is a version in a registry."""
    return find_model(path, ROBUST_MODEL, _parse, _digest)


def robust_fingerprint(model: RobustModel) -> str:
    """Hash of what the model computes and of what is known of its planes, with the settings they were trained with."""
    return hash_json(
        [_digest(model), list(model.classes), list(model.feature_names), model.precision, model.config.as_dict()]
    )


def _arrays(model: RobustModel) -> list[tuple[str, Floats, str]]:
    return [(name, getattr(model, name), "float64") for name in PLANE_ARRAYS]


def _digest(model: RobustModel) -> str:
    return digest_arrays(_arrays(model))


def _parse(fields: Fields) -> RobustModel:
    table = read_table(fields)
    features = fields.texts("features")
    n_planes = 1 if len(table.classes) == 2 else len(table.classes)
    if not 1 <= len(features) <= len(table.feature_names):
        fields.damaged("the features are not those of the columns")
    if n_planes * len(features) > MOST_WEIGHTS:
        fields.damaged("it has more weights than any model")
    with damage_named("The planes of the robust model", fields.where, FIT_AGAIN):
        arrays: dict[str, Any] = {
            name: read_array(
                fields.where, name, "float64", (n_planes, len(features)) if name == "weights" else (n_planes,)
            )
            for name in PLANE_ARRAYS
        }
    if not all(np.isfinite(values).all() for values in arrays.values()):
        raise FormatError(
            "damaged",
            f"The planes of the robust model {fields.where} are damaged: their numbers are not finite.",
            FIT_AGAIN,
        )
    return RobustModel(
        **arrays,
        **vars(table),
        features=features,
        config=_parse_config(fields),
        passes=tuple(fields.integers("passes", n_planes)),
    )


def _parse_config(fields: Fields) -> RobustConfig:
    record: Any = fields.record.get("config")
    wanted = RobustConfig().as_dict().keys()
    if not isinstance(record, dict) or record.keys() != wanted:
        fields.damaged("the settings are not those of a robust fit")
    if not isinstance(record["formulation"], str):
        fields.damaged("the formulation is not text")
    try:
        return RobustConfig(**record)
    except (InputError, ArithmeticError) as error:
        fields.damaged(f"the settings make no sense ({error})")
