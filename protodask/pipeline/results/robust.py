"""What the steps on robust models leave behind, and robust models themselves, as plain values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from protodask.data.places.records import describe_columns
from protodask.errors import some
from protodask.pipeline.steps.robust import what_is_known
from protodask.pipeline.telling.result import Measured, Pairs, Piece, Result
from protodask.pipeline.telling.wording import count, shorten
from protodask.places import mask
from protodask.robust.bundle import Pass
from protodask.robust.certified import BOUNDS
from protodask.robust.measures import CertifiedSums
from protodask.robust.model import RobustModel
from protodask.robust.persistence import robust_fingerprint


@dataclass(frozen=True)
class RobustFitted(Result):
    """A robust model lies at `path`."""

    path: str
    model: RobustModel
    history: tuple[tuple[Pass, ...], ...]
    """The passes of each plane."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Why the model may not be what was wanted."""
        return tuple(_notes(self.model))

    def summary(self) -> str:
        model = self.model
        passes = count(sum(model.passes), "pass", "passes")
        return (
            f"The robust model {shorten(self.path)} has {count(len(model.weights), 'plane')} in "
            f"{count(model.n_features, 'feature')}, by {model.config.formulation} with eps {model.config.eps:g}; after "
            f"{passes}, no other has an objective smaller by more than {100 * float(model.gap.max()):.2g} per cent."
        )

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "robust fit",
            "path": mask(self.path),
            **describe_training(self.model),
            "features": self.model.n_features,
            "planes": [
                {**plane, "history": [done.best for done in passes]}
                for plane, passes in zip(describe_planes(self.model), self.history, strict=True)
            ],
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class RobustPredicted(Result):
    """Robust predictions for `rows` rows lie at `path`."""

    kind = "robust predictions"

    path: str
    rows: int
    formulation: str
    """Whose brackets certify them."""

    def summary(self) -> str:
        return f"The robust predictions {shorten(self.path)} have {self.rows:,} rows, certified by {self.formulation}."


@dataclass(frozen=True)
class RobustEvaluated(Measured):
    """The measures of a robust model on some rows."""

    sums: CertifiedSums
    formulation: str
    eps: float
    """At which the certified fraction is."""

    def summary(self) -> str:
        sums = self.sums
        return (
            f"The robust model is right on {1 - sums.nominal_error:.1%} of the {sums.count:,} rows of "
            f"{mask(self.data)}, by the middles of what is known of them. {sums.certified_fraction:.1%} are right and "
            f"certified: whatever else is true of them, wrong with a probability of at most {self.eps:g}."
        )

    def told(self) -> Iterator[Piece]:
        sums = self.sums
        yield self.summary()
        yield ""
        yield Pairs(
            [
                ("nominal error", f"{sums.nominal_error:.6f}"),
                ("expected certified error", f"{sums.expected_certified_error:.6f}"),
                ("certified fraction", f"{sums.certified_fraction:.6f} at eps {self.eps:g}"),
                ("certified from", what_is_known(self.formulation)),
                ("certified by", ", ".join(self._by())),
            ]
        )
        yield from self.told_place("The measures are", self.path)

    def _by(self) -> Iterator[str]:
        total = sum(self.sums.by)
        for bound, weight in zip(BOUNDS, self.sums.by, strict=True):
            if weight:
                yield f"{bound} ({weight / total:.0%})"

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "robust scores",
            "model": mask(self.model),
            "data": mask(self.data),
            "rows": self.sums.count,
            "weight": self.sums.weight,
            "nominal_error": self.sums.nominal_error,
            "expected_certified_error": self.sums.expected_certified_error,
            "certified_fraction": self.sums.certified_fraction,
            "eps": self.eps,
            "formulation": self.formulation,
            "certified_by": dict(zip(BOUNDS[1:], self.sums.by[1:], strict=True)),
        }


def _notes(model: RobustModel) -> Iterator[str]:
    if known_exactly(model) == model.n_features and model.config.formulation not in ("SVM", "M"):
        yield "All features count as known exactly, as no column has bounds; those of x are called x.low and x.high."
    planes = zip(describe_planes(model), model.weights, strict=True)
    empty = [plane for plane, weights in planes if not weights.any()] if model.converged else []
    free = [str(plane["class"]) for plane in empty if plane["passes"] == 0]
    dear = [str(plane["class"]) for plane in empty if plane["passes"] > 0]
    if free:
        yield (
            f"{_planes(model, free)} no weights, so that nothing is told apart: all rows on one side of it weigh "
            "nothing. Train with --unweighted, or give weights to rows of every class."
        )
    if dear:
        yield (
            f"{_planes(model, dear)} no weights, so that nothing is told apart: at eps {model.config.eps:g} any margin "
            "would cost more. Try a larger --eps or --cost, or a formulation that uses more of what is known."
        )


def _planes(model: RobustModel, classes: Sequence[str]) -> str:
    if len(model.weights) == 1:
        return "The plane has"
    return f"The plane of {classes[0]} has" if len(classes) == 1 else f"The planes of {some(classes)} have"


def known_exactly(model: RobustModel) -> int:
    """How many features are a column of their own name, without bounds."""
    return len(set(model.features) & set(model.feature_names))


def describe_robust_model(model: RobustModel, path: str) -> dict[str, Any]:
    """What a robust model consists of; the weights of each plane in the order of their size."""
    return {
        "kind": "robust model",
        "path": mask(path),
        "fingerprint": robust_fingerprint(model),
        **describe_training(model),
        "precision": model.precision,
        "target": model.target_name,
        "classes": list(model.classes),
        "features": list(model.features),
        "known_exactly": known_exactly(model),
        "columns": describe_columns(model.columns),
        "planes": [
            {**plane, "weights": _largest_first(model.features, model.weights[number])}
            for number, plane in enumerate(describe_planes(model))
        ],
        "provenance": dict(model.provenance),
    }


def describe_training(model: RobustModel) -> dict[str, Any]:
    """The settings of a model, and how near it is to the best there is."""
    config = model.config
    return {
        "formulation": config.formulation,
        "eps": config.eps,
        "cost": config.C,
        "weighted": config.weighted,
        "gap": float(model.gap.max()),
        "gap_asked_for": config.gap,
        "converged": model.converged,
    }


def describe_planes(model: RobustModel) -> list[dict[str, Any]]:
    """What each plane tells apart, without its weights."""
    two = model.n_classes == 2
    return [
        {
            "class": label,
            "against": model.classes[0] if two else "the rest",
            "intercept": float(model.intercept[number]),
            "objective": float(model.objective[number]),
            "lower_bound": float(model.lower_bound[number]),
            "gap": float(model.gap[number]),
            "passes": model.passes[number],
        }
        for number, label in enumerate(model.classes[1:] if two else model.classes)
    ]


def _largest_first(features: Sequence[str], weights: np.ndarray[Any, Any]) -> list[dict[str, Any]]:
    order = np.argsort(-np.abs(weights), kind="stable").tolist()
    return [{"name": features[place], "weight": float(weights[place])} for place in order]
