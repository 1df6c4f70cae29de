"""From the solver's weights to the prototypes of a batch: drop what has no weight, merge what is equivalent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from protodask.engine.records import Floats, Integers

MERGE_TOLERANCE = 1e-6
"""Largest difference in any scaled feature `v_d x_d` at which two prototypes are the same."""


@dataclass(frozen=True)
class Kept:
    """Candidates that became prototypes: their positions, ascending, and their summed weights."""

    position: Integers
    weight: Floats


def merge_equivalent(scaled: Floats, classes: Integers, weight: Floats, rows: Integers) -> Kept:
    """Merge candidates of positive weight that agree in class and in `scaled` = `v x` (J, D) up to the tolerance.

    Groups are the connected components of that relation. A group keeps the member with the smallest row number, which
    is the one that comes first in the training data, and the sum of the weights.
    """
    positive = np.flatnonzero(weight > 0)
    label = np.empty(len(positive), dtype=np.int64)
    groups = 0
    for value in np.unique(classes[positive]):
        members = np.flatnonzero(classes[positive] == value)
        count, label[members] = _components(scaled[positive[members]])
        label[members] += groups
        groups += count
    order = np.lexsort((rows[positive], label))
    _, first = np.unique(label[order], return_index=True)
    position = positive[order[first]]
    total = np.asarray(np.bincount(label, weights=weight[positive], minlength=groups), dtype=np.float64)
    ascending = np.argsort(position)
    return Kept(position[ascending], total[ascending])


def _components(points: Floats) -> tuple[int, Integers]:
    """The number of groups, and that of each point (J,)."""
    n_points, width = points.shape
    # Points that are equivalent have sums as close as that, and most are far from all others by their sum alone.
    total = points.sum(axis=1)
    reach = width * (MERGE_TOLERANCE + 4 * np.finfo(np.float64).eps * np.abs(points).max(initial=0.0))
    order = np.argsort(total, kind="stable")
    run = np.concatenate([[0], np.cumsum(np.diff(total[order]) > reach)])
    label = np.empty(n_points, dtype=np.int64)
    label[order] = run
    near = np.flatnonzero(np.bincount(run)[label] > 1)
    if len(near) == 0:
        return n_points, label
    count, label_near = _components_of_near(points[near])
    label[near] = n_points + label_near
    alone = n_points - len(near)
    return alone + count, np.unique(label, return_inverse=True)[1].reshape(-1)


def _components_of_near(points: Floats) -> tuple[int, Integers]:
    # Half a second to import, which commands that train nothing do not wait for.
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components
    from scipy.spatial import KDTree

    n_points, width = points.shape
    if width == 0:
        return 1, np.zeros(n_points, dtype=np.int64)
    # Exact copies first: a thousand of them would make half a million pairs.
    points, copy_of = np.unique(points, axis=0, return_inverse=True)
    n_points = len(points)
    pairs = KDTree(points).query_pairs(MERGE_TOLERANCE, p=np.inf, output_type="ndarray")
    graph = coo_array((np.ones(len(pairs), dtype=np.int8), (pairs[:, 0], pairs[:, 1])), shape=(n_points, n_points))
    count, label = connected_components(graph, directed=False)
    return int(count), label.astype(np.int64)[copy_of.reshape(-1)]
