"""The robust classifier as scikit-learn users know it."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from protodask.engine import Block, Engine, EngineLike, array_source, open_engine
from protodask.errors import InputError
from protodask.prototypes.fitting import own_directory
from protodask.prototypes.runs import RunDirectory
from protodask.prototypes.training import ConvergenceWarning
from protodask.robust.brackets import rows_of_terms
from protodask.robust.bundle import Pass, solve_bundle
from protodask.robust.bundle_run import recorded_passes
from protodask.robust.certified import certify
from protodask.robust.conic import solve_conic
from protodask.robust.formulations import make_terms, named, unit_terms
from protodask.robust.passes import Samples
from protodask.robust.terms import Floats, Terms
from protodask.robust.uncertain_rows import UncertainRows
from protodask.robust.weak_duality import relative_gap

Solver = Literal["auto", "conic", "bundle"]

CONIC_NUMBERS = 20_000
"""Samples times features up to which the cone program is solved whole: below a second or two."""


@dataclass(frozen=True, eq=False)
class Plane:
    """What either solver says of one problem of two labels."""

    weights: Floats
    intercept: float
    objective: float
    dual_objective: float
    iterations: int
    converged: bool


class RobustClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The hyperplane of largest margin for samples known only roughly: a training point within the margin is on its
    side with a probability of at least `1 - eps`, whatever the distribution behind what is known.

        min 1/2 |w|^2 + sum_i C_i xi_i   with   Prob(y_i (w.X_i - b) <= 1 - xi_i) <= eps

    Parameters
    ----------
    formulation
        What is known and how it is used: "SVM", "M", "S", "MC", "SBMV", "SMV", "SBM", "SM", and the last four with
        "-I", which use the support as well.
    eps
        The probability of error that training points within the margin keep to.
    C
        Cost of a unit of slack of each sample, multiplied by the sample's weight.
    gap
        The objective is at most this far above the least there is, relative to it: certified by `gap_`.
    solver
        "conic" solves the whole cone program in memory, "bundle" block by block on the engine; "auto" takes the first
        for small data and the second for large, or where the first does not reach the gap.
    max_iterations
        Passes of the bundle over the samples, for each problem of two labels.
    engine
        None for threads of this process, an `Engine`, a `distributed.Client`, or a scheduler's address.
    run_dir
        A folder from which an interrupted fit of the bundle goes on.
    on_pass
        Called with every `Pass` of the bundle.

    Attributes
    ----------
    coef_, intercept_
        Of the planes `w.x - b = 0`: `w` (1, D) and `b` (1,) for two classes, whose second one is where `w.x > b`; with
        more classes a row and an entry for each against the rest.
    objective_, gap_
        The objective and how far above the least it may be, relative to it: numbers for two classes, else (K,).
    n_iter_
        Passes of the bundle, or iterations of the cone solver; of the longest problem.
    classes_, n_features_in_
        As in scikit-learn.
    """

    def __init__(
        self,
        formulation: str = "SBMV",
        eps: float = 0.1,
        C: float = 1.0,
        gap: float = 1e-4,
        solver: Solver = "auto",
        max_iterations: int = 300,
        engine: EngineLike = None,
        run_dir: str | os.PathLike[str] | None = None,
        on_pass: Callable[[Pass], None] | None = None,
    ) -> None:
        self.formulation = formulation
        self.eps = eps
        self.C = C
        self.gap = gap
        self.solver = solver
        self.max_iterations = max_iterations
        self.engine = engine
        self.run_dir = run_dir
        self.on_pass = on_pass

    def __sklearn_clone__(self) -> RobustClassifier:
        # The engine is where to compute, not what: clones share it, and a connection cannot be copied.
        return type(self)(**self.get_params(deep=False))

    def fit(self, rows: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> RobustClassifier:
        """Train on `UncertainRows`, or on exactly known points (N, D), and labels (N,) of two or more classes."""
        self._check_settings()
        known = as_uncertain(rows)
        labels, codes = _checked_labels(y, len(known))
        cost = self.C * _checked_weights(sample_weight, len(known))
        terms = make_terms(known, self.formulation, self.eps)
        # Two classes are one problem, the second class against the first.
        wanted = [1] if len(labels) == 2 else list(range(len(labels)))
        with open_engine(self.engine) as engine, self._directory(known, codes, cost) as directory:
            planes = [
                self._solve(terms, np.where(codes == code, 1.0, -1.0), cost, engine, directory, problem)
                for problem, code in enumerate(wanted, 1)
            ]
        self.coef_: Floats = np.stack([plane.weights for plane in planes])
        self.intercept_: Floats = np.array([plane.intercept for plane in planes])
        objectives = np.array([plane.objective for plane in planes])
        gaps = np.array([relative_gap(plane.objective, plane.dual_objective) for plane in planes])
        self.objective_: Any = float(objectives[0]) if len(planes) == 1 else objectives
        self.gap_: Any = float(gaps[0]) if len(planes) == 1 else gaps
        self.n_iter_ = max(plane.iterations for plane in planes)
        self.classes_: NDArray[Any] = labels
        self.n_features_in_ = known.n_features
        if not all(plane.converged for plane in planes):
            warnings.warn(
                f"The gap is {gaps.max():.1e} after {self.n_iter_} passes; {self.gap:.1e} was asked for. Raise "
                "max_iterations or gap, or bring the features to similar scales.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def decision_function(self, rows: Any) -> Floats:
        """`w.m - b` at the middles of the bounds of the means: (N,) for two classes, else (N, K)."""
        middle = self._checked_rows(rows).mean_midpoint
        values = middle @ self.coef_.T - self.intercept_
        return np.asarray(values[:, 0] if len(self.classes_) == 2 else values)

    def predict(self, rows: Any) -> NDArray[Any]:
        """The classes (N,) of the middles of the bounds of the means."""
        found = self.decision_function(rows)
        codes = (found >= 0).astype(np.intp) if found.ndim == 1 else found.argmax(axis=1)
        return np.asarray(self.classes_[codes])

    def certified_eps(self, rows: Any, formulation: str | None = None) -> Floats:
        """A bound of the probability (N,) that a sample is not of the class that `predict` says, 1 where none is known.

        By the brackets of `formulation`: by default the classifier's own, or "SBMV-I" for SVM and M, which know no
        spread. With more than two classes the bounds against each other class add up.
        """
        known = self._checked_rows(rows)
        name = named(self.formulation if formulation is None else formulation)
        if formulation is None and name in ("SVM", "M"):
            name = "SBMV-I"
        tail: Literal["bernstein", "chebyshev"] = "chebyshev" if name == "MC" else "bernstein"
        terms = unit_terms(known, name)
        if len(self.classes_) == 2:
            return certify(terms, self.coef_[0], float(self.intercept_[0]), tail).eps
        best = self.decision_function(known).argmax(axis=1)
        found = np.zeros(len(known))
        for code in np.unique(best):
            own = np.flatnonzero(best == code)
            some = rows_of_terms(terms, own)
            for other in range(len(self.classes_)):
                if other != code:
                    weights = self.coef_[code] - self.coef_[other]
                    found[own] += certify(some, weights, self.intercept_[code] - self.intercept_[other], tail).eps
        return np.minimum(found, 1.0)

    def certified_error(
        self, rows: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, formulation: str | None = None
    ) -> float:
        """The expected certified error: the mean of 1 where `predict` is wrong and of `certified_eps` elsewhere."""
        known = self._checked_rows(rows)
        right = self.predict(known) == np.asarray(y)
        weights = _checked_weights(sample_weight, len(known))
        errors = np.where(right, self.certified_eps(known, formulation), 1.0)
        return float(weights @ errors / weights.sum())

    def _check_settings(self) -> None:
        named(self.formulation)
        if self.solver not in get_args(Solver):
            raise InputError(f"There is no solver {self.solver!r}.", f"Choose one of {', '.join(get_args(Solver))}.")
        for name, value in (("C", self.C), ("gap", self.gap)):
            if not (np.isfinite(value) and value > 0):
                raise InputError(f"{name} is {value}.", "Give a number above 0.")
        if self.max_iterations < 1:
            raise InputError(f"max_iterations is {self.max_iterations}.", "Give at least 1.")
        if self.run_dir is not None and self.solver == "conic":
            raise InputError("A run directory was given with the conic solver.", "Choose the bundle, or leave it out.")

    @contextmanager
    def _directory(self, known: UncertainRows, codes: NDArray[np.intp], cost: Floats) -> Iterator[RunDirectory | None]:
        if self.run_dir is None:
            yield None
            return
        settings = {
            "kind": "robust",
            "formulation": named(self.formulation),
            "eps": float(self.eps),
            "C": float(self.C),
            "samples": len(known),
            "features": known.n_features,
            "data": _fingerprint(known, codes, cost),
        }
        with own_directory(self.run_dir, settings) as directory:
            yield directory

    def _solve(
        self, terms: Terms, y: Floats, cost: Floats, engine: Engine, directory: RunDirectory | None, problem: int
    ) -> Plane:
        small = terms.mean_low.size <= CONIC_NUMBERS and directory is None
        if self.solver == "conic" or (self.solver == "auto" and small):
            try:
                exact = solve_conic(terms, y, cost, gap=self.gap)
            except InputError:
                if self.solver == "conic":
                    raise
            else:
                return Plane(
                    exact.weights, exact.intercept, exact.objective, exact.dual_objective, exact.iterations, True
                )
        source = array_source(_arrays(terms, y, cost))
        found = solve_bundle(
            source,
            samples_of_arrays,
            engine,
            gap=self.gap,
            max_passes=self.max_iterations,
            recorded=None if directory is None else recorded_passes(directory, problem),
            on_pass=self.on_pass,
        )
        engine.forget(source)
        ended = found.status in ("converged", "one class", "no cost")
        return Plane(found.weights, found.intercept, found.objective, found.dual_objective, found.passes, ended)

    def _checked_rows(self, rows: Any) -> UncertainRows:
        check_is_fitted(self, "coef_")
        known = as_uncertain(rows)
        if known.n_features != self.n_features_in_:
            raise InputError(
                f"The rows have {known.n_features} features; the classifier was trained on {self.n_features_in_}.",
                "Give the features it was trained on.",
            )
        return known


def as_uncertain(rows: Any) -> UncertainRows:
    """`UncertainRows` as they are, anything else as points (N, D) that are known exactly."""
    return rows if isinstance(rows, UncertainRows) else UncertainRows.point(rows)


def samples_of_arrays(block: Block) -> Samples:
    """What a block asks of a plane whose arrays are the terms, labels and costs themselves."""
    terms = Terms(
        block["mean_low"],
        block["mean_high"],
        block["spread"],
        block.arrays.get("lower"),
        block.arrays.get("upper"),
    )
    return Samples(terms, block["y"], block["cost"])


def _arrays(terms: Terms, y: Floats, cost: Floats) -> dict[str, Floats]:
    arrays = {"mean_low": terms.mean_low, "mean_high": terms.mean_high, "spread": terms.spread, "y": y, "cost": cost}
    if terms.lower is not None and terms.upper is not None:
        arrays |= {"lower": terms.lower, "upper": terms.upper}
    return arrays


def _checked_labels(y: ArrayLike, n_rows: int) -> tuple[NDArray[Any], NDArray[np.intp]]:
    given = np.asarray(y)
    if given.shape != (n_rows,):
        raise InputError(f"There are labels of shape {given.shape} for {n_rows:,} samples.", "Give one label each.")
    check_classification_targets(given)
    labels, codes = np.unique(given, return_inverse=True)
    if len(labels) < 2:
        raise InputError("All samples have the same label.", "Give samples of two classes or more.")
    return labels, codes


def _checked_weights(sample_weight: ArrayLike | None, n_rows: int) -> Floats:
    if sample_weight is None:
        return np.ones(n_rows)
    weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.shape != (n_rows,):
        raise InputError(f"There are weights of shape {weights.shape} for {n_rows:,} samples.", "Give one weight each.")
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        raise InputError("Weights are negative, not finite, or all 0.", "Give weights of 0 or more.")
    return weights


def _fingerprint(known: UncertainRows, codes: NDArray[np.intp], cost: Floats) -> str:
    digest = hashlib.sha256()
    arrays = [known.lower, known.upper, known.mean_low, known.mean_high, codes.astype(np.int64), cost]
    for array in (*arrays, known.second_moment, known.origin):
        if array is None:
            digest.update(b"none")
            continue
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
