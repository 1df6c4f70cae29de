"""A model as one formula for all of its batches, in float64: what a scorer computes and an ONNX graph says.

Letters: `F` features of the model, `D` forms in which any of its `B` batches looks at them, each once, `J` prototypes
of all batches, `K` classes.

The forms `z` of a row are `(x_i - f x_j - center) / scale`, where `f` is 0 but for differences, or the normal score or
level of `x_i`. Batches differ in their feature weights `v_b`; with the square multiplied out, one product serves them
all, where `e_b` is 1 for the batch of the prototype and 0 for the others:

    -1/2 sum_d (v_bd (z_d - s_jd))^2 = [z, (sum_d v_bd^2 z_d^2)_b, 1] . [v_b^2 s_j, -e_b / 2, -|v_b s_j|^2 / 2]
    q_k = p0_k + sum_j [y_j = k] w_j exp(...)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.engine.records import Floats, Integers
from protodask.prototypes.batches import Batch
from protodask.prototypes.fitted import FittedPrototypes
from protodask.prototypes.kernel import FARTHEST
from protodask.prototypes.tiles import Precision


@dataclass(frozen=True)
class Ramps:
    """`S` functions that are linear between knots and constant beyond them, as sums over their pieces:

    f(x) = first + sum_i rise_i min(max(x - start_i, 0) / width_i, 1)
    """

    first: Floats
    """(S,)"""
    start: Floats
    """(S, pieces), and so the others."""
    width: Floats
    """1 where a knot is repeated."""
    rise: Floats

    @classmethod
    def of(cls, values: Floats, results: Floats) -> Ramps:
        """Given ascending knots and what the functions are there (S, Q); the last may be repeated."""
        width = np.diff(values, axis=1)
        return cls(results[:, 0], values[:, :-1], np.where(width > 0, width, 1.0), np.diff(results, axis=1))

    def apply(self, values: Floats) -> Floats:
        """Each function of its own value (..., S)."""
        with np.errstate(over="ignore"):  # of a piece as narrow as numbers can be
            pieces = np.minimum(np.maximum(values[..., None] - self.start, 0.0) / self.width, 1.0)
        found: Floats = self.first + np.einsum("...sq,sq->...s", pieces, self.rise)
        return found


@dataclass(frozen=True)
class Forms:
    """In which forms a model looks at its features."""

    n_features: int
    """`F`"""
    feature: Integers
    """`i` of each form (D,)."""
    other: Integers
    """`j` of each difference, and `i` of the other forms (D,)."""
    factor: Floats
    center: Floats
    scale: Floats
    scored: Integers
    """Forms that are normal scores or levels (S,)."""
    scores: Ramps
    precision: Precision
    """Of the kernel: the scores are those of values in it."""

    def __len__(self) -> int:
        return len(self.feature)

    @cached_property
    def _in_order(self) -> bool:
        """Whether each feature is one form, in their order."""
        return len(self) == self.n_features and bool((np.diff(self.feature, prepend=-1) == 1).all())

    @cached_property
    def differ(self) -> bool:
        """Whether there are differences."""
        return bool(self.factor.any())

    def of(self, features: NDArray[Any]) -> Floats:
        """`z` of rows with all features (N, D)."""
        values = (features if self._in_order else features.take(self.feature, axis=1)).astype(np.float64)
        with np.errstate(over="ignore"):  # of what is too large for its type
            if self.differ:
                values -= self.factor * features.take(self.other, axis=1)
            z: Floats = values - self.center
            z /= self.scale
            rounded = values[:, self.scored].astype(self.precision)
        np.minimum(np.maximum(z, -FARTHEST, out=z), FARTHEST, out=z)  # of one row, `clip` takes three times as long
        if len(self.scored):
            z[:, self.scored] = self.scores.apply(rounded.astype(np.float64))
        return z


@dataclass(frozen=True)
class Formula:
    """The probabilities of a model's first so many batches as a formula of the raw features (F,)."""

    forms: Forms
    squares: Floats
    """`v^2` (D, B)"""
    operand: Floats
    """`[v^2 s, -e / 2, -|v s|^2 / 2]`, (D + B + 1, J)."""
    weight: Floats
    """`w_j` in the column of the class of `j` (J, K)."""
    marginals: Floats
    """`p0`, and what every row gets besides (K,)."""

    @classmethod
    def of(cls, model: FittedPrototypes, n_batches: int) -> Formula:
        """Of the first so many batches."""
        batches = [batch for batch in model.batches[:n_batches] if batch.n_features]
        marginals = model.marginals.copy()
        for batch in model.batches[:n_batches]:
            if not batch.n_features:  # whose kernels are 1
                np.add.at(marginals, batch.prototype_class, batch.prototype_weight)
        forms, places = _forms_of(batches, model.n_features, model.precision)
        n_prototypes = sum(batch.n_prototypes for batch in batches)
        squares = np.zeros((len(forms), len(batches)))
        operand = np.zeros((len(forms) + len(batches) + 1, n_prototypes))
        weight = np.zeros((n_prototypes, model.n_classes))
        first = 0
        for number, (batch, own) in enumerate(zip(batches, places, strict=True)):
            columns = np.arange(first, first + batch.n_prototypes)
            prototypes, square = batch.standardization.apply(batch.prototypes), np.square(batch.feature_weight)
            squares[own, number] = square
            operand[own[:, None], columns] = (prototypes * square).T
            operand[len(forms) + number, columns] = -0.5
            operand[-1, columns] = -0.5 * (np.square(prototypes) @ square)
            weight[columns, batch.prototype_class] = batch.prototype_weight
            first += batch.n_prototypes
        return cls(forms, squares, operand, weight, marginals)

    @property
    def row_entries(self) -> int:
        """Numbers that are worked out for a row."""
        return int(self.operand.shape[1] + self.forms.scores.start.size)

    def unscaled(self, features: NDArray[Any]) -> Floats:
        """`q` of rows with all features (N, K)."""
        z = self.forms.of(features)
        left = np.empty((len(z), len(self.operand)))
        left[:, : z.shape[1]] = z
        np.matmul(np.multiply(z, z, out=z), self.squares, out=left[:, z.shape[1] : -1])
        left[:, -1] = 1.0
        kernel = left @ self.operand
        np.minimum(kernel, 0.0, out=kernel)
        np.exp(kernel, out=kernel)
        found: Floats = kernel @ self.weight
        found += self.marginals
        return found


def _forms_of(batches: Sequence[Batch], n_features: int, precision: Precision) -> tuple[Forms, list[Integers]]:
    """The forms that batches look at, each once, as those of one fit share them; and which are those of each batch."""
    known: dict[tuple[Any, ...], int] = {}
    knots: dict[int, tuple[Floats, Floats]] = {}
    places = []
    for batch in batches:
        own = []
        units = zip(batch.forms, batch.center.tolist(), batch.scale.tolist(), strict=True)
        for number, ((second, share, first, kind), middle, unit) in enumerate(units):
            line = batch.knots if kind else None
            key = (first, first if second < 0 else second, share, middle, unit, line and line.keys[number])
            own.append(known.setdefault(key, len(known)))
            if line is not None:
                knots[own[-1]] = line.values[number], line.scores[number]
        places.append(np.array(own, dtype=np.int64))
    feature, other = (np.array([key[part] for key in known], dtype=np.int64) for part in (0, 1))
    factor, center, scale = (np.array([key[part] for key in known], dtype=np.float64) for part in (2, 3, 4))
    scored = np.array(sorted(knots), dtype=np.int64)
    most = max((len(values) for values, _ in knots.values()), default=1)
    pair = np.zeros((2, len(scored), most))
    for row, place in enumerate(scored.tolist()):
        for part, numbers in enumerate(knots[place]):
            pair[part, row] = np.pad(numbers, (0, most - len(numbers)), mode="edge")
    return Forms(n_features, feature, other, factor, center, scale, scored, Ramps.of(*pair), precision), places
