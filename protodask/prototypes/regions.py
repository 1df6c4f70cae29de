"""Regions of rows in which what makes cases alike is of its own: the leaves of a decision tree, where rules decide.

Where classes follow from rules over several features, those that matter in one place do not matter in another: of a
case that is refused for its price nobody looks at the doors. One set of feature weights for a class has to look at all
of them everywhere. So the candidates of a class are a batch for each region, each with feature weights of its own, in
rounds whose feature weights are by class.

Whether that is so, a sample of rows says. Of trees of `L` leaves, grown on four fifths of it, the others lose

    c(L) = sum_n s_n log p_L[y_n](x_n) / sum_n s_n log p0[y_n],

of what the shares of the classes `p0` do. A leaf has the shares of the rows in it, of weights `s` with a sum of
`(sum s)^2 / sum s^2`, and of one row more with those of all. Rows left out of a class that no other is of say nothing.
Rules over several features need many leaves and know nearly all with them:

    c(64) <= 0.45    and    c(64) <= 0.65 c(8).

Where one threshold says all, or where much is chance, the second or the first does not hold: of the 52 tables of
tests/benchmarks/tables.py one has regions by this, which loses 0.85 to 1.06 of what it did. Made tables of rules lose
0.2 to 0.8 of it, beside 1 to 2 times the processor time. Most tables are seen to be none of rules by 2,000 rows of the
sample at most: those of which `c(8)` is more than 0.45 / 0.65 there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from protodask.engine.records import Floats, Integers

MOST_LEAVES = 32
"""Of the tree whose leaves are regions."""

MANY_LEAVES, FEW_LEAVES = 64, 8
MOST_SHARE, LESS_SHARE = 0.45, 0.65
LEFT_OUT = 5
"""One row in so many is left out to judge trees by."""

FEWEST_ROWS, FIRST_ROWS, JUDGED_ROWS = 1000, 2000, 5000
"""Rows of the sample by which trees are judged: at least, at first, and at most. With regions, 300 to 700 rows of made
rules lose 0.7 to 1.8 times what they do without; 1,209 of a public table of cars, in six splits, 0.5 to 0.9 times."""

FEWEST_IN_LEAF, LEAF_SHARE = 5, 1 / 500
"""Rows of the sample, and share of them, that a leaf has at least."""

MOST_BINS = 32
"""Of the values of a feature, between which a tree splits."""

MOST_CELLS = 2**20
"""Of rows and features, and of features, bins and classes: there are no regions of wider tables."""

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
        node, values = np.zeros(len(features), dtype=np.int64), _known(features)
        while len(inner := np.flatnonzero(self.node_feature[node] >= 0)):
            at = node[inner]
            below = values[inner, self.node_feature[at]] <= self.node_threshold[at]
            node[inner] = np.where(below, self.node_left[at], self.node_right[at])
        return node


def judged_rows(n_rows: int, n_features: int) -> int:
    """By how many of a sample trees are judged; 0 where there are no regions, of few rows and of wide ones."""
    most = min(n_rows, JUDGED_ROWS, MOST_CELLS // n_features)
    return most if most >= FEWEST_ROWS else 0


def learn_regions(features: NDArray[np.floating[Any]], target: Integers, weight: Floats) -> Regions | None:
    """The regions of a sample of rows (n, D) of weights (n,); None where rules over several features do not decide."""
    labels, codes = np.unique(target, return_inverse=True)
    n_features = features.shape[1]
    most = judged_rows(len(features), n_features)
    if not most or n_features * MOST_BINS * len(labels) > MOST_CELLS:
        return None
    order = np.random.default_rng(0).permutation(len(features))[:most]

    def lost(leaves: int, rows: int) -> float:
        """`c` of so many leaves, by some of the rows."""
        out, kept = np.split(order[:rows], [rows // LEFT_OUT])
        return _lost(features, codes, weight, kept, out, leaves)

    if not lost(FEW_LEAVES, min(most, FIRST_ROWS)) <= MOST_SHARE / LESS_SHARE:
        return None
    many = lost(MANY_LEAVES, most)
    if not (many <= MOST_SHARE and many <= LESS_SHARE * lost(FEW_LEAVES, most)):
        return None
    return grow(features[order], codes[order], weight[order], MOST_LEAVES)


def _lost(
    features: NDArray[np.floating[Any]], codes: Integers, weight: Floats, kept: Integers, out: Integers, leaves: int
) -> float:
    """What rows left `out` lose by a tree of others, as a share of what they lose by the shares of the classes."""
    mass = np.bincount(codes[kept], weights=weight[kept], minlength=int(codes.max()) + 1)
    out = out[mass[codes[out]] > 0]
    shares = mass / mass.sum()
    by_shares = float(weight[out] @ np.log(shares[codes[out]]))
    if by_shares == 0:  # of one class alone, beside which the others weigh nothing
        return np.inf
    tree = grow(features[kept], codes[kept], weight[kept], leaves)
    counts = np.zeros((len(tree.node_feature), len(shares)))
    np.add.at(counts, (tree.of(features[kept]), codes[kept]), effective(weight[kept]))
    leaf, label = tree.of(features[out]), codes[out]
    known = (counts[leaf, label] + shares[label]) / (counts.sum(axis=1)[leaf] + 1)
    return float(weight[out] @ np.log(known)) / by_shares


def effective(weight: Floats) -> Floats:
    """Weights of rows (n,) whose sum is as many rows as they are worth, `(sum w)^2 / sum w^2`."""
    weight = weight / weight.max()
    found: Floats = weight * (weight.sum() / (weight @ weight))
    return found


class _Split(NamedTuple):
    """The best split of a node: the bits it saves, the feature, and the last bin that goes left."""

    saved: float
    feature: int
    last: int


def grow(features: NDArray[np.floating[Any]], codes: Integers, weight: Floats, leaves: int) -> Regions:
    """A tree of so many leaves at most, of rows (n, D) whose classes are `codes`: the split that saves most bits first.

    Splits lie between two of at most `MOST_BINS` bins of the values of a feature, of about as many rows each.
    """
    values = _known(features)
    edges = [_edges(values[:, place]) for place in range(values.shape[1])]
    bins = np.column_stack([np.searchsorted(own, values[:, place]) for place, own in enumerate(edges)]).astype(np.int32)
    least = max(FEWEST_IN_LEAF, int(LEAF_SHARE * len(values)))
    nodes, best = [np.arange(len(values))], [_best(bins, codes, weight, least)]
    feature, left, right = np.full((3, 2 * leaves - 1), -1)
    threshold = np.zeros(2 * leaves - 1)
    for _ in range(leaves - 1):
        node = max(range(len(best)), key=lambda number: best[number].saved)
        if not best[node].saved > 0:
            break
        split, rows = best[node], nodes[node]
        feature[node], threshold[node] = split.feature, edges[split.feature][split.last]
        left[node], right[node] = len(nodes), len(nodes) + 1
        goes_left = bins[rows, split.feature] <= split.last
        best[node] = NO_SPLIT
        for part in (rows[goes_left], rows[~goes_left]):
            nodes.append(part)
            best.append(_best(bins[part], codes[part], weight[part], least))
    grown = slice(len(nodes))
    return Regions(feature[grown], threshold[grown], left[grown], right[grown])


NO_SPLIT = _Split(0.0, 0, 0)


def _edges(values: Floats) -> Floats:
    """Up to which values bins reach, but the last one."""
    distinct = np.unique(values)
    if len(distinct) > MOST_BINS:
        quantiles = np.quantile(values, np.arange(1, MOST_BINS) / MOST_BINS, method="lower")
        return np.unique(quantiles)
    return distinct[:-1]


def _best(bins: NDArray[np.integer[Any]], codes: Integers, weight: Floats, least: int) -> _Split:
    """The split of some rows, `bins` of each feature (n, D), with `least` rows on either side."""
    if len(bins) < 2 * least or (codes == codes[0]).all():
        return NO_SPLIT
    n_features, n_bins, n_classes = bins.shape[1], int(bins.max()) + 1, int(codes.max()) + 1
    places = bins + n_bins * np.arange(n_features, dtype=np.int32)
    cells = (places * n_classes + codes[:, None]).ravel()
    size = n_features * n_bins * n_classes
    summed = np.bincount(cells, weights=np.repeat(weight, n_features), minlength=size)
    mass = np.asarray(summed, dtype=np.float64).reshape(n_features, n_bins, n_classes)
    rows = np.bincount(places.ravel(), minlength=n_features * n_bins).reshape(n_features, n_bins)
    below, rows_below = np.cumsum(mass, axis=1)[:, :-1], np.cumsum(rows, axis=1)[:, :-1]
    whole = mass[0].sum(axis=0)
    enough = np.minimum(rows_below, len(bins) - rows_below) >= least
    saved = saved_bits(whole, below, np.maximum(whole - below, 0.0), enough)
    if saved.size == 0:
        return NO_SPLIT
    place, last = np.unravel_index(int(saved.argmax()), saved.shape)
    return _Split(float(saved[place, last]), int(place), int(last))


def saved_bits(whole: Floats, below: Floats, above: Floats, allowed: NDArray[np.bool_]) -> Floats:
    """What splits of a mass (K,) into others (..., K) save of stating classes; -inf where they are not `allowed`."""
    return np.where(allowed, _bits(whole) - _bits(below) - _bits(above), -np.inf)


def _bits(mass: Floats) -> Floats:
    """What it takes to state the classes of so much mass of each (..., K), by their shares."""
    total = mass.sum(axis=-1)
    terms = mass * np.log2(mass, out=np.zeros_like(mass), where=mass > 0)
    found: Floats = total * np.log2(total, out=np.zeros_like(total), where=total > 0) - terms.sum(axis=-1)
    return found


def _known(features: NDArray[np.floating[Any]]) -> Floats:
    """Values that trees compare: a missing one counts as 0."""
    return np.where(np.isnan(features), 0.0, features).astype(np.float64)


def most_groups(n_classes: int, n_candidates: int, n_features: int) -> int:
    """Batches of a round by class and region, at most: for each candidate one weight of a feature as it is, no more."""
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
