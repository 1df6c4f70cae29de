"""Regions of rows in which what makes cases alike is of its own: the leaves of a decision tree, where rules decide.

Where classes follow from rules over several features, those that matter in one place do not matter in another: of a
case that is refused for its price nobody looks at the doors. One set of feature weights for a class has to look at all
of them everywhere. So the candidates of a class are a batch for each region, each with feature weights of its own, in
rounds whose feature weights are by class.

Whether that is so, a sample of rows says. Of trees of `L` leaves, grown on four fifths of it, the others lose

    c(L) = sum_n s_n log p_L[y_n](x_n) / sum_n s_n log p0[y_n],

of what the shares of the classes do. Rules over several features need many leaves and know nearly all with them:

    c(64) <= 0.45    and    c(64) <= 0.65 c(8).

Where one threshold says all, or where much is chance, the second or the first does not hold: of 140 tables, most of
them surveys, none but those that rules make, and some of many classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.engine.records import Floats, Integers

MOST_LEAVES = 32
"""Of the tree whose leaves are regions."""

MANY_LEAVES, FEW_LEAVES = 64, 8
MOST_SHARE, LESS_SHARE = 0.45, 0.65
LEFT_OUT = 5
"""One row in so many is left out to judge trees by."""

FEWEST_ROWS, JUDGED_ROWS = 2000, 5000
"""Rows of the sample by which trees are judged: fewer say little, and batches would have few candidates."""

FEWEST_IN_LEAF, LEAF_SHARE = 5, 1 / 500
"""Rows of the sample, and share of them, that a leaf has at least."""

FEWEST_CANDIDATES = 16
"""Of a class in a region, with feature weights of their own; those of smaller ones are together in one batch."""


@dataclass(frozen=True)
class Regions:
    """A decision tree, node by node (n,): rows with `x[feature] <= threshold` go left, others right."""

    node_feature: Integers
    """-1 of a leaf."""
    node_threshold: Floats
    node_left: Integers
    node_right: Integers

    def of(self, features: NDArray[np.floating[Any]]) -> Integers:
        """The leaf that each row (n, D) is in (n,)."""
        node = np.zeros(len(features), dtype=np.int64)
        values = _values(features)
        while len(inner := np.flatnonzero(self.node_feature[node] >= 0)):
            at = node[inner]
            below = values[inner, self.node_feature[at]] <= self.node_threshold[at]
            node[inner] = np.where(below, self.node_left[at], self.node_right[at])
        return node


def learn_regions(features: NDArray[np.floating[Any]], target: Integers, weight: Floats) -> Regions | None:
    """The regions of a sample of rows (n, D) of weights (n,); None where rules over several features do not decide."""
    values, (_, codes) = _values(features), np.unique(target, return_inverse=True)
    if len(values) < FEWEST_ROWS or not np.isfinite(values).all():
        return None
    order = np.random.default_rng(0).permutation(len(values))

    def lost(leaves: int, rows: int) -> float:
        """`c` of so many leaves, by some of the rows."""
        out, kept = np.split(order[:rows], [min(rows, len(order)) // LEFT_OUT])
        return _lost(values, codes, weight, kept, out, leaves)

    # Most tables are none of rules, and it takes few rows to say so.
    if not lost(FEW_LEAVES, FEWEST_ROWS) <= MOST_SHARE / LESS_SHARE:
        return None
    many = lost(MANY_LEAVES, JUDGED_ROWS)
    if not (many <= MOST_SHARE and many <= LESS_SHARE * lost(FEW_LEAVES, JUDGED_ROWS)):
        return None
    tree = _grown(values, codes, weight, MOST_LEAVES)
    return Regions(
        tree.feature.astype(np.int64).clip(-1),
        tree.threshold.astype(np.float64),
        tree.children_left.astype(np.int64),
        tree.children_right.astype(np.int64),
    )


def _values(features: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """Features as trees look at them: in float32, without missing ones."""
    with np.errstate(over="ignore"):
        values: NDArray[np.float32] = np.where(np.isnan(features), 0, features).astype(np.float32)
    return values


def _lost(
    values: NDArray[np.float32], codes: Integers, weight: Floats, kept: Integers, out: Integers, leaves: int
) -> float:
    """What rows left `out` lose by a tree of others, as a share of what they lose by the shares of the classes."""
    mass = np.bincount(codes[kept], weights=weight[kept], minlength=int(codes.max()) + 1)
    if not (mass > 0).all():  # a class of which there is next to nothing
        return np.inf
    shares = mass / mass.sum()
    tree = _grown(values[kept], codes[kept], weight[kept], leaves)
    counts = np.zeros((tree.node_count, len(shares)))
    np.add.at(counts, (tree.apply(values[kept]), codes[kept]), 1.0)
    found = counts[tree.apply(values[out])]
    known = (found + shares) / (found.sum(axis=1, keepdims=True) + 1)
    by_shares = float(weight[out] @ np.log(shares[codes[out]]))
    return float(weight[out] @ np.log(known[np.arange(len(known)), codes[out]])) / by_shares


def _grown(values: NDArray[np.float32], codes: Integers, weight: Floats, leaves: int) -> Any:
    from sklearn.tree import DecisionTreeClassifier

    least = max(FEWEST_IN_LEAF, int(LEAF_SHARE * len(values)))
    tree = DecisionTreeClassifier(criterion="entropy", max_leaf_nodes=leaves, min_samples_leaf=least, random_state=0)
    return tree.fit(values, codes, weight).tree_


def most_groups(n_classes: int, n_candidates: int, n_features: int) -> int:
    """Batches of a round by class and region, at most: in all no more feature weights than there are candidates."""
    by_region = min(MOST_LEAVES * n_classes, n_candidates // max(n_features, FEWEST_CANDIDATES))
    return max(n_classes, by_region)


def class_groups(classes: Integers, leaves: Integers, n_features: int) -> Integers:
    """Which batch each candidate is in (J,), from 0, ascending by class: of its class and leaf, or of all small leaves.

    Where these have too few candidates together, they are in the batch of the largest leaf of the class.
    """
    _, pair, counts = np.unique(np.column_stack([classes, leaves]), axis=0, return_inverse=True, return_counts=True)
    pair = pair.ravel()
    size = counts[pair]
    most, least = most_groups(len(np.unique(classes)), len(classes), n_features), FEWEST_CANDIDATES
    while True:
        own = np.where(size >= least, pair, -1)
        for label in np.unique(classes):
            of_class = classes == label
            rest = of_class & (own < 0)
            if np.count_nonzero(rest) < least:
                own[rest] = pair[of_class][np.argmax(size[of_class])]
        group = np.unique(np.column_stack([classes, own]), axis=0, return_inverse=True)[1].ravel()
        if group.max() < most:
            return group.astype(np.int64)
        least *= 2
