"""Uncertain rows from several measurements of each sample."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from protodask.data.arrays.values import unmasked
from protodask.data.tables.frames import any_missing, array_of_names
from protodask.engine.records import Floats
from protodask.errors import InputError, count, refusing, some
from protodask.evaluation.interval import check_confidence
from protodask.robust.uncertain_rows import LARGEST, UncertainRows

Support = Literal["widened", "range"]
"""The support of a sample's feature from `n` measurements: their range, or that and `range / (n - 1)` at either end.

If all values between two ends are equally likely, the expected range is `(n - 1) / (n + 1)` of what lies between them:
widened, it has the right expected ends.
"""


def from_replicates(
    values: ArrayLike,
    sample: ArrayLike,
    confidence: float = 0.95,
    support: Support = "widened",
    lower: ArrayLike | None = None,
    upper: ArrayLike | None = None,
) -> tuple[UncertainRows, NDArray[Any]]:
    """What the measurements `values` (R, D) of the samples `sample` (R,) tell, and the samples in ascending order.

    Of a feature's `n` measurements of one sample, with mean `x` and standard deviation `sd` (of `n - 1` degrees of
    freedom):

        support          from `lower` to `upper`, of each feature (D,) or of all; see `Support` for an end not given
        mean bounds      x -+ h,  h = t sd / sqrt(n), `t` Student's quantile at (1 + confidence) / 2; within the support
        second moment    about x: (n - 1) sd^2 / chi2 + h^2, with the quantile of chi2 at 1 - confidence: an upper
                         bound of the variance, at the most distant mean

    If the measurements are independent and normal, the bounds of the mean hold at this confidence and that of the
    variance does, each on its own, and the second moment's where both do. Two measurements say so little of a spread
    that the support often says more. What did not vary counts as known exactly, but for a support that is given.

    A support that is not given is a guess: the widened range of ten measurements of a normal number misses one new one
    in nine. So S, and "-I" where the support decides, may certify probabilities near 0 that are not so small.
    """
    table, ids = np.asarray(unmasked(values)), array_of_names(sample)
    _check(table, ids, confidence, support)
    if any_missing(sample):
        raise InputError("bad-value", "A measurement has no sample.", "Give the sample that it is of, or leave it out.")
    remedy = "Name all of them by text, or all by numbers."
    with refusing(TypeError, "wrong-type", "The samples cannot be sorted", remedy):
        names, codes, counts = np.unique(ids, return_inverse=True, return_counts=True)
    if counts.min() < 2:
        raise InputError(
            "too-few",
            f"There is only one measurement of sample {some(list(names[counts < 2]))}.",
            "Leave out samples that were measured once, or give their bounds by `UncertainRows`.",
        )
    order = np.argsort(codes, kind="stable")
    table = np.asarray(table[order], dtype=np.float64)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    n = counts[:, None].astype(np.float64)
    least, most = np.minimum.reduceat(table, starts), np.maximum.reduceat(table, starts)
    # About the least value, so that what did not vary has a mean of exactly that, and large numbers do not cancel.
    above = table - np.repeat(least, counts, axis=0)
    mean_above = np.add.reduceat(above, starts) / n
    squares = np.add.reduceat(np.square(above - np.repeat(mean_above, counts, axis=0)), starts)
    mean = np.clip(least + mean_above, least, most)
    half = stats.t.isf((1 - confidence) / 2, n - 1) * np.sqrt(squares / (n - 1) / n)
    second = squares / stats.chi2.isf(confidence, n - 1) + np.square(half)
    wider = (most - least) / (n - 1) if support == "widened" else 0.0
    low = least - wider if lower is None else _given_ends("lower", lower, least, names)
    high = most + wider if upper is None else _given_ends("upper", upper, most, names)
    rows = UncertainRows(low, high, np.maximum(mean - half, low), np.minimum(mean + half, high), second, origin=mean)
    return rows, names


def _given_ends(name: str, ends: ArrayLike, seen: Floats, samples: NDArray[Any]) -> Floats:
    """The ends of the support (N, D) that a caller knows, `seen` the outermost measurements there."""
    given = np.asarray(unmasked(ends))
    if given.dtype.kind not in "fiub" or given.ndim > 1 or given.shape not in {(), seen.shape[1:]}:
        raise InputError(
            "wrong-shape",
            f"{name} is of shape {given.shape} and type {given.dtype}, for {count(seen.shape[1], 'feature')}.",
            "Give one number, or one for each feature.",
        )
    known = np.broadcast_to(given.astype(np.float64), seen.shape)
    beyond = seen < known if name == "lower" else seen > known
    if beyond.any():
        row, feature = (int(place) for place in np.argwhere(beyond)[0])
        raise InputError(
            "bad-value",
            f"Of sample {samples[row]}, feature {feature} was measured as {seen[row, feature]:g}, beyond {name}, which "
            f"is {known[row, feature]:g}.",
            "Mend the end of the support, or leave out the measurement.",
        )
    return known


def _check(table: NDArray[Any], ids: NDArray[Any], confidence: float, support: str) -> None:
    if table.ndim != 2 or table.dtype.kind not in "fiub":
        raise InputError(
            "wrong-shape",
            f"The measurements are of shape {table.shape} and type {table.dtype}.",
            "Give a table of numbers: a row for each measurement, a column for each feature.",
        )
    if ids.shape != table.shape[:1] or not len(ids):
        raise InputError(
            "wrong-shape",
            f"The samples of {count(len(table), 'measurement')} are of shape {ids.shape}.",
            "Give the sample that each measurement is of.",
        )
    usable = np.abs(table) < LARGEST
    if not usable.all():
        row, feature = (int(place) for place in np.argwhere(~usable)[0])
        raise InputError(
            "bad-value",
            f"In measurement {row}, of sample {ids[row]}, feature {feature} is not a finite number below {LARGEST:g}.",
            "Replace it, or leave out the measurement.",
        )
    check_confidence(confidence)
    if support not in get_args(Support):
        raise InputError(
            "unknown-name", f"There is no support {support!r}.", f"Choose one of {', '.join(get_args(Support))}."
        )
