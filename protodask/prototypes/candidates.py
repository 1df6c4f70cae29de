"""The draw of candidates, as a distributed reduction.

Rows fall into `2K` bins by class and by whether the model so far gets them right. Every row has a pseudo-random
priority that depends only on the seed, the batch and its global number; the sample of a bin are its rows of smallest
priority. So the draw is the same however the rows are cut into blocks and whoever reads them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from protodask.data.arrays.keyed import keyed_draws, stream_key
from protodask.data.format.schema import TARGET, Label, row_weights
from protodask.engine import Block, Reduction, identity
from protodask.engine.records import Floats, Integers
from protodask.errors import InputError, count, some

SCORES = "scores"
"""Name of the unscaled probabilities of the earlier rounds, (N, K), in a training block."""

STANDARDIZED = "standardized"
"""Name of the rows' features in all forms, in standard units (N, forms), in blocks that are in memory."""

HELD_OUT = "held_out"
"""Name of the weights by which held-out rows are judged, 0 for those trained on, (N,) in a training block."""


def priority(seed: int, batch: int, rows: Integers) -> NDArray[np.uint64]:
    """Priority of rows in the draw for `batch` (from 1): distinct for distinct rows, small ones are drawn."""
    return keyed_draws(stream_key(seed, batch), rows)


@dataclass(frozen=True)
class Sample:
    """For every bin its size, and its rows of smallest priority, sorted by bin and priority."""

    counts: Integers
    bins: Integers
    priority: NDArray[np.uint64]
    rows: Integers


def sample_block(block: Block, marginals: Floats, seed: int, batch: int, most: int) -> Sample:
    """Sizes of the bins in a block, and up to `most` rows of each. Rows of weight 0 are in no bin."""
    target = block[TARGET.name]
    scores = block.arrays.get(SCORES)
    rows = block.rows
    weights = row_weights(block)
    correct = is_correct(
        np.broadcast_to(marginals, (len(target), len(marginals))) if scores is None else scores, target
    )
    bins = 2 * target.astype(np.int64) + correct
    if weights is not None and not weights.all():
        kept = weights > 0
        bins, rows = bins[kept], rows[kept]
    return sample_of(rows, bins, 2 * len(marginals), seed, batch, most)


def sample_of(rows: Integers, bins: Integers, n_bins: int, seed: int, batch: int, most: int) -> Sample:
    """Sizes of the bins that some rows are in, and up to `most` rows of each."""
    counts = np.bincount(bins, minlength=n_bins)
    priorities = priority(seed, batch, rows)
    kept = _likely(counts, bins, priorities, most)
    return _keep_smallest(counts, bins[kept], priorities[kept], rows[kept], most)


def _likely(counts: Integers, bins: Integers, priorities: NDArray[np.uint64], most: int) -> NDArray[np.bool_]:
    """Rows that hold the `most` smallest of each bin: sorting all of a block takes ten times longer."""
    share = np.minimum(SAFETY * most / np.maximum(counts, 1), 1.0)
    kept: NDArray[np.bool_] = priorities < (share * 2.0**64)[bins]
    enough = np.bincount(bins[kept], minlength=len(counts)) >= np.minimum(counts, most)
    return kept if enough.all() else np.ones(len(bins), dtype=np.bool_)


SAFETY = 2.0
"""Priorities are uniform: of a bin's rows below twice the wanted share, hardly ever less than half are there."""


def is_correct(scores: NDArray[np.floating], target: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Whether the own class has strictly more probability than every other (N,)."""
    index = np.arange(len(target))
    own = scores[index, target]
    others = scores.copy()
    others[index, target] = -np.inf
    correct: NDArray[np.bool_] = own > others.max(axis=1, initial=-np.inf)
    return correct


def _keep_smallest(
    counts: Integers, bins: Integers, priorities: NDArray[np.uint64], rows: Integers, most: int
) -> Sample:
    order = np.lexsort((priorities, bins))
    bins, priorities, rows = bins[order], priorities[order], rows[order]
    first = np.searchsorted(bins, bins)  # position where the bin of each entry begins
    kept = np.arange(len(bins)) - first < most
    return Sample(counts, bins[kept], priorities[kept], rows[kept])


def merge_samples(most: int, left: Sample, right: Sample) -> Sample:
    """The `most` smallest of each bin of both."""
    return _keep_smallest(
        left.counts + right.counts,
        np.concatenate([left.bins, right.bins]),
        np.concatenate([left.priority, right.priority]),
        np.concatenate([left.rows, right.rows]),
        most,
    )


def sampling(most: int) -> Reduction[Sample, Sample]:
    """The reduction that keeps up to `most` rows of each bin."""
    return Reduction(sample_block, partial(merge_samples, most), identity)


def allocate(sizes: Integers, wanted: int, max_fraction: float) -> Integers:
    """Rows to draw from each bin: as even as possible, at most `max_fraction` of any, rounded half up.

    From the smallest bin up, `r = R / (bins left)` goes to all that are left once it is no more than `max_fraction` of
    the bin at hand; until then that bin gives its largest share and `R` shrinks by it.
    """
    order = np.argsort(sizes, kind="stable")
    shares = np.zeros(len(sizes))
    remaining = float(wanted)
    for position, index in enumerate(order):
        even = remaining / (len(sizes) - position)
        if even <= max_fraction * sizes[index]:
            shares[order[position:]] = even
            break
        shares[index] = max_fraction * sizes[index]
        remaining -= shares[index]
    return np.floor(shares + 0.5).astype(np.int64)


def draw(sample: Sample, wanted: int, max_fraction: float, grown: int = 0) -> Integers:
    """Row numbers of the candidates, ascending; with as many of those left, as evenly, as make them `grown` ones."""
    numbers = allocate(sample.counts, wanted, max_fraction)
    further = grown - int(numbers.sum())
    if grown > wanted and further > 0:
        numbers += allocate(sample.counts - numbers, further, 1.0)
    first = np.searchsorted(sample.bins, sample.bins)
    chosen = np.arange(len(sample.bins)) - first < numbers[sample.bins]
    return np.sort(sample.rows[chosen])


def smallest_class(max_fraction: float) -> int:
    """Smallest `N_k` with `ceil(N_k/2) >= 1/(2 eta)` and `ceil(N_k/2) > 1/(2 (1 - eta))`, as the draw rounds.

    Then every class has a candidate and a row left to score, however its rows fall into the two bins.
    """
    # Close below the answer in exact arithmetic, and from there on as the draw rounds.
    half = max(1, int(max(0.5 / max_fraction, 0.5 / (1 - max_fraction))) - 1)
    while not 1 <= math.floor(max_fraction * half + 0.5) < half:
        half += 1
    return 2 * half - 1


def check_classes(class_rows: Integers, classes: Sequence[Label], max_fraction: float) -> None:
    """Refuse a target with fewer than two classes, or with classes too rare for `max_fraction`."""
    present = [label for label, rows in zip(classes, class_rows, strict=True) if rows > 0]
    if len(present) < 2:
        raise InputError(
            "one-class" if present else "no-rows",
            f"The target has one class only ({present[0]!r})." if present else "No row has a positive weight.",
            "A classifier needs rows of at least two classes.",
        )
    least = smallest_class(max_fraction)
    rare = [(label, rows) for label, rows in zip(classes, class_rows.tolist(), strict=True) if rows < least]
    if rare:
        named = [f"{label!r} ({count(rows, 'row')})" for label, rows in rare]
        raise InputError(
            "too-few",
            f"Too few rows for `max_fraction` {max_fraction}: class {some(named)}.",
            f"Every class needs at least {count(least, 'row')} of positive weight: "
            f"{more_rows(min(rows for _, rows in rare))}.",
        )


def more_rows(fewest: int) -> str:
    """What to do about classes with too few rows, of which the rarest has so many."""
    if fewest < smallest_class(0.5):
        return "add rows, or merge or drop the class"
    return "add rows, merge or drop the class, or move `max_fraction` closer to 0.5"
