"""Maps of a batch: its prototypes in the plane in which they, as the model sees them, differ most.

Doubly weighted principal components: feature `d` counts `v_d / scale_d` to its unit, so that distances are those of the
batch's kernel, and prototype `j` counts `w_j`. With `u_j = v (s_j - center) / scale`,

    m = sum_j w_j u_j / W,    C = sum_j w_j (u_j - m)(u_j - m)^T / W,    W = sum_j w_j,

and the axes of the map are the two eigenvectors of `C` with the largest eigenvalues.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from protodask.data.format.schema import Label
from protodask.engine.records import Floats, Integers
from protodask.errors import InputError, count
from protodask.prototypes.batches import Batch
from protodask.prototypes.model import PrototypeSet

TIE = 1e-9
"""Relative difference below which two loadings count as equally large when the sign of an axis is chosen."""


@dataclass(frozen=True)
class BatchMap:
    """A batch in the plane: J prototypes, D features of the batch."""

    batch: int
    """From 1."""
    classes: tuple[Label, ...]
    """Of the model."""
    feature_names: tuple[str, ...]
    """Of the batch (D,)."""
    feature_index: Integers
    n_features: int
    """Of the model."""
    shown: Batch
    """The batch itself."""
    center: Floats
    """Weighted mean of the prototypes as the batch measures them (D,), raw but for normal scores and levels: the origin
    of the map."""
    scaling: Floats
    """`v_d / scale_d` (D,)."""
    axes: Floats
    """Loadings of the scaled features on each axis (2, D): of length 1, or 0 where the prototypes do not differ that
    way. Of each axis the largest loading, the first of equals, is positive."""
    explained: Floats
    """Share of the weighted variance along each axis (2,); 0 where there is none."""
    positions: Floats
    """Of the prototypes (J, 2)."""
    prototype_class: Integers
    prototype_weight: Floats
    row: Integers

    def project(self, features: ArrayLike) -> Floats:
        """Places of rows with all features of the model, in raw units (N, n_features), on the map (N, 2)."""
        rows = np.asarray(features)
        if rows.ndim != 2 or rows.shape[1] != self.n_features or rows.dtype.kind not in "fiub":
            raise InputError(
                "wrong-shape" if rows.dtype.kind in "fiub" else "wrong-type",
                f"The features have shape {rows.shape} and type {rows.dtype}.",
                f"Give rows of the model's {count(self.n_features, 'feature')}, as numbers.",
            )
        measured = self.shown.measured(self.shown.values(rows).astype(np.float64))
        return ((measured - self.center) * self.scaling) @ self.axes.T


def batch_map(model: PrototypeSet, batch: int = 1) -> BatchMap:
    """The map of a batch, counted from 1. That of an empty batch has no prototypes, and every row at its origin."""
    if batch not in range(1, model.n_batches + 1):
        raise InputError(
            "bad-setting",
            f"The batch is {batch!r}.",
            f"The model has {count(model.n_batches, 'batch', 'batches')}, counted from 1.",
        )
    chosen = model.batches[batch - 1]
    scaling = chosen.feature_weight / chosen.scale
    measured = chosen.measured(chosen.prototypes)
    center = _weighted_mean(chosen, measured)
    axes, explained = _principal_axes((measured - center) * scaling, chosen.prototype_weight)
    return BatchMap(
        batch=int(batch),
        classes=model.classes,
        feature_names=model.names_in(chosen),
        feature_index=chosen.feature_index,
        n_features=model.n_features,
        shown=chosen,
        center=center,
        scaling=scaling,
        axes=axes,
        explained=explained,
        positions=((measured - center) * scaling) @ axes.T,
        prototype_class=chosen.prototype_class,
        prototype_weight=chosen.prototype_weight,
        row=chosen.row,
    )


def _weighted_mean(batch: Batch, measured: Floats) -> Floats:
    if batch.n_prototypes == 0:
        return batch.center
    # From the centre of the training data: values far from 0 keep their digits.
    share = batch.prototype_weight / batch.prototype_weight.sum()
    mean: Floats = batch.center + share @ (measured - batch.center)
    return mean


def _principal_axes(centered: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Two axes (2, D) and their shares of the variance (2,), from the singular values of `sqrt(w / W) (u - m)`."""
    axes, explained = np.zeros((2, centered.shape[1])), np.zeros(2)
    if centered.size == 0:
        return axes, explained
    root = np.sqrt(weight / weight.sum())
    _, singular, directions = np.linalg.svd(centered * root[:, None], full_matrices=False)
    # What is left of a dimension the prototypes do not have is rounding.
    real = singular[:2] > singular[0] * max(centered.shape) * np.finfo(np.float64).eps
    total = float(np.square(singular).sum())
    for position in np.flatnonzero(real):
        axes[position] = _with_sign(directions[position])
        explained[position] = singular[position] ** 2 / total
    return axes, explained


def _with_sign(axis: Floats) -> Floats:
    size = np.abs(axis)
    leading = int(np.argmax(size >= size.max() * (1 - TIE)))
    return axis if axis[leading] > 0 else -axis
