"""Is one set of predictions better than another on the same rows, by more than noise? A paired bootstrap over blocks.

`N` rows with weights `s`, `a` and `b` the losses that the champion and the challenger have on a row. The rows are cut
into blocks `g`; each contributes

    W_g = sum s        A_g = sum s a        B_g = sum s b

and the gain of the challenger is `G = sum_g (A_g - B_g) / sum_g W_g`. A draw of the bootstrap takes as many blocks as
there are, `M`, with replacement, `c_g` times each, and computes `G* = sum c_g (A_g - B_g) / sum c_g W_g`. Rows of a
block may depend on each other in whatever way: only blocks are taken for independent. Since both models see the same
rows, what makes rows hard for both cancels.

**Blocks.** Where the rows say what group they belong to, a block is all rows of some groups (`group_bins`: as the
group's code falls into one of 2,000 bins). Otherwise it is a run of neighbouring rows, as rows that arrive together
are alike: of 64 rows, fewer where there would be less than 100 blocks then, and more where there would be more than
2,000 (`run_rows`).

**The bound** is the quantile of the draws at a level below `1 - confidence`, since a bootstrap of few blocks is too
narrow: `Phi(t sqrt(M / (M - 1)))`, `t` the quantile of Student's distribution with `M - 1` degrees of freedom at `1 -
confidence`. For normal means of `M` blocks that makes it cover as often as it says; for many it is `1 - confidence`.

**Losses.** "log-loss" is `-log max(p_y, 1e-6)`: a class that a model does not know has probability 0 and costs 13.8,
not infinitely much, so that a few rows of a new class do not decide everything. "error" is 1 where the most probable
class is not the true one. "brier" is `sum_k (p_k - [k = y])^2`, half of that for two classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtrit

from protodask.data.arrays.keyed import keyed_draws, stream_key
from protodask.engine.records import Floats, Integers
from protodask.errors import InputError
from protodask.evaluation.interval import check_confidence

PairedLoss = Literal["log-loss", "error", "brier"]

LEAST_PROBABILITY = 1e-6
"""Of the true class, for the log-loss; that of a class that a model does not know is 0."""

MOST_BLOCKS = 2000
FEWEST_BLOCKS = 100
RUN_ROWS = 64

LEAST_BLOCKS = 5
"""Of fewer there are so few different draws that no quantile is as rare as it should be: of 3, a bound of 95 per cent
holds in 85."""

FEWEST_DRAWS, MOST_DRAWS = 100, 100_000

BLOCK_STREAM, GROUP_STREAM = 0x70616972, 0x67726F75
"""What tells these draws from all others."""

CHOSEN_AT_ONCE = 100 * MOST_BLOCKS
"""Blocks that are chosen at a time, those of all resamples made at once: a few megabytes."""


@dataclass(frozen=True)
class PairedSums:
    """Sums over the rows of each block (M,); merges as a monoid by adding up."""

    rows: Integers
    """Rows of positive weight."""
    weight: Floats
    champion: Floats
    """`A_g`."""
    challenger: Floats
    """`B_g`."""


@dataclass(frozen=True)
class Comparison:
    """What the bootstrap found."""

    rows: int
    blocks: int
    grouped: bool
    """Whether the blocks are of whole groups."""
    champion: float
    """Mean loss of the champion."""
    challenger: float
    gain: float
    """`G`: by how much the mean loss of the challenger is smaller."""
    low: float
    """Lower end of the one-sided interval of the gain."""
    standard_error: float
    """Of the gain, that of the draws."""
    p_value: float
    """Share of draws that do not exceed the margin, `(1 + #{G* <= margin}) / (draws + 1)`."""

    def describe(self) -> dict[str, Any]:
        """Plain values, for files."""
        return {
            "rows": self.rows,
            "blocks": self.blocks,
            "blocks_of": "groups" if self.grouped else "neighbouring rows",
            "champion_loss": self.champion,
            "challenger_loss": self.challenger,
            "gain": self.gain,
            "gain_low": self.low,
            "gain_standard_error": self.standard_error,
            "p_value": self.p_value,
        }


def run_rows(n_rows: int) -> int:
    """Rows of a block of neighbours: 64, fewer for at least 100 blocks, more for at most 2,000."""
    return max(1, min(RUN_ROWS, n_rows // FEWEST_BLOCKS), -(-n_rows // MOST_BLOCKS))


def group_bins(group: Integers) -> Integers:
    """The block of each row, by the code of its group."""
    return (keyed_draws(stream_key(0, GROUP_STREAM), group) % np.uint64(MOST_BLOCKS)).astype(np.int64)


def row_losses(
    probability: NDArray[np.floating[Any]], codes: Integers, target: Integers, n_classes: int, loss: PairedLoss
) -> Floats:
    """The loss of each row (N,).

    The columns of `probability` (N, K) are those of `n_classes` classes that `codes` (K,) says. A target (N,) that is
    none of them is a class that the model does not know.
    """
    column = np.full(n_classes, -1, dtype=np.int64)
    column[codes] = np.arange(len(codes))
    own = column[target]
    known = own >= 0
    likely = np.where(known, probability[np.arange(len(target)), np.maximum(own, 0)], 0.0).astype(np.float64)
    if loss == "log-loss":
        return -np.log(np.maximum(likely, LEAST_PROBABILITY))
    if loss == "error":
        wrong: Floats = (probability.argmax(axis=1) != own).astype(np.float64)
        return wrong
    wide = probability.astype(np.float64, copy=False)
    squares: Floats = np.einsum("nk,nk->n", wide, wide) + 1 - 2 * likely
    return np.maximum(squares, 0.0) * (0.5 if n_classes == 2 else 1.0)


def paired_sums(block: Integers, weight: Floats, champion: Floats, challenger: Floats, n_blocks: int) -> PairedSums:
    """The sums over some rows, by the block of each."""

    def summed(values: Floats) -> Floats:
        return np.bincount(block, weights=values, minlength=n_blocks).astype(np.float64)

    rows = np.bincount(block, minlength=n_blocks).astype(np.int64)
    return PairedSums(rows, summed(weight), summed(weight * champion), summed(weight * challenger))


def check_bootstrap(margin: float, confidence: float, draws: int, newest: int | None = None) -> None:
    """Refuse settings that cannot work."""
    check_confidence(confidence)
    if not math.isfinite(margin):
        raise InputError("bad-setting", f"margin is {margin}.", "Give the least gain that counts, such as 0 or 0.001.")
    if not FEWEST_DRAWS <= draws <= MOST_DRAWS:
        raise InputError("bad-setting", f"draws is {draws}.", f"Give a number from {FEWEST_DRAWS} to {MOST_DRAWS:,}.")
    if newest is not None and newest < 1:
        raise InputError(
            "bad-setting", f"newest is {newest}.", "Give the number of rows at the end to look at, at least 1."
        )


def compare_paired(
    sums: PairedSums,
    *,
    margin: float = 0.0,
    confidence: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
    grouped: bool = False,
) -> Comparison:
    """Gain of the challenger with its bound, from the sums of all blocks; a pure function of its arguments."""
    check_bootstrap(margin, confidence, draws)
    present = sums.weight > 0
    weight = sums.weight[present]
    difference = sums.champion[present] - sums.challenger[present]
    n_blocks, total = len(weight), float(weight.sum())
    if n_blocks < LEAST_BLOCKS:
        what = "groups of rows" if grouped else "blocks of rows"
        raise InputError(
            "too-few",
            f"There are {n_blocks} {what} to compare on, and fewer than {LEAST_BLOCKS} tell nothing.",
            "Compare on more rows of positive weight, and of several groups where rows belong to groups.",
        )
    gains = np.sort(np.concatenate(list(_resampled(difference, weight, draws, seed))))
    student = float(stdtrit(n_blocks - 1, 1 - confidence))
    level = float(ndtr(student * math.sqrt(n_blocks / (n_blocks - 1))))
    # Nearest rank, rounded down: of 1,000 draws at 5 per cent, the 50th smallest.
    rank = math.floor(level * draws)
    return Comparison(
        rows=int(sums.rows.sum()),
        blocks=n_blocks,
        grouped=grouped,
        champion=float(sums.champion.sum()) / total,
        challenger=float(sums.challenger.sum()) / total,
        gain=float(difference.sum()) / total,
        low=float(gains[max(rank, 1) - 1]),
        standard_error=float(np.std(gains)),
        p_value=(1 + int(np.count_nonzero(gains <= margin))) / (draws + 1),
    )


def _resampled(difference: Floats, weight: Floats, draws: int, seed: int) -> Iterator[Floats]:
    n_blocks = len(weight)
    at_once = max(CHOSEN_AT_ONCE // n_blocks, 1)
    for first in range(0, draws, at_once):
        numbers = np.arange(first, min(first + at_once, draws))
        keys = stream_key(seed, BLOCK_STREAM, numbers)
        chosen = (keyed_draws(keys[:, None], np.arange(n_blocks)[None, :]) % np.uint64(n_blocks)).astype(np.int64)
        # Sums, not products of matrices: those depend on the threads that compute them.
        yield difference[chosen].sum(axis=1) / weight[chosen].sum(axis=1)
