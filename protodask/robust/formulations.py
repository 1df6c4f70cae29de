"""The formulations by name: what each knows of the samples, and the brackets that follow.

All but SVM and M keep the probability of error at or below `eps` for every distribution that agrees with what they know
(MC by Chebyshev's inequality, S for sure, the others by Bernstein's).

Of the same samples, the one on the left never asks for more, at any `w` and so in the least objective at equal costs:

    M <= all                     the middle of the means is in every set
    X-I <= X,  X-I <= S          it is in both
    SBMV <= SBM,  SMV <= SM      `nu` grows with the second moment; the same between their "-I"
    MC <= SMV                    only for eps >= 0.285, where sqrt((1 - eps) / eps) <= kappa: `s nu >=` the deviation

and what follows from these. The third line holds for spreads without their tolerance; with it SBMV may ask for as much
more. No other two are ordered. Without the support, more may be asked for than S does, for a feature alone nearly
always. Exact means may ask for more than bounds around them, with and without "-I": where the bounds widen, `nu` may
fall, as the slack between the mean and their ends counts for both signs of `t`. And Chebyshev's bound may be the
smaller one, by far where an end of the support is many standard deviations away.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from protodask.engine.records import Floats
from protodask.errors import InputError
from protodask.robust.spread import nu
from protodask.robust.terms import Terms
from protodask.robust.uncertain_rows import UncertainRows

Formulation = Literal["SVM", "M", "S", "MC", "SBMV", "SBMV-I", "SMV", "SMV-I", "SBM", "SBM-I", "SM", "SM-I"]

SPREAD_TOLERANCE = 1e-3
"""How far the spread may lie above what it has to be, relative to it: less costs time, more costs margin."""

TILE = 1 << 16
"""Numbers in a tile: what is computed from them stays within a few MB."""

FORMULATIONS: tuple[Formulation, ...] = get_args(Formulation)


WITHOUT_SPREAD: tuple[Formulation, ...] = ("SVM", "M")
"""What these know of a sample is a point."""

DEFAULT_CERTIFYING: Formulation = "SBMV-I"
"""Bounds probabilities where the formulation of the training does not: it uses all that may be known."""


def named(formulation: str) -> Formulation:
    """The formulation of that name, with or without the "MM-" of the literature."""
    bare = str(formulation).removeprefix("MM-")
    for name in FORMULATIONS:
        if bare == name:
            return name
    raise InputError(
        "unknown-name", f"There is no formulation {formulation!r}.", f"Choose one of {', '.join(FORMULATIONS)}."
    )


def certifying(formulation: str) -> Formulation:
    """The formulation of that name, if it bounds probabilities: SVM and M, which know no spread, are refused."""
    name = named(formulation)
    if name in WITHOUT_SPREAD:
        raise InputError(
            "unsupported",
            f"{name} knows nothing of the spread of features, so that it certifies nothing.",
            f"Choose another formulation, such as {DEFAULT_CERTIFYING}.",
        )
    return name


def make_terms(rows: UncertainRows, formulation: str, eps: float, tolerance: float = SPREAD_TOLERANCE) -> Terms:
    """The brackets of the samples under a formulation at a probability of error `eps`, in (0, 1).

    SVM and M take the middle of the bounds of the mean. S takes the support; MC the bounds of the means and the largest
    variances that agree with what is known; SBM and SBMV the bounds of the means, SBMV the second moments as well; SM
    and SMV the same with exact means, which must be given. A bound that is not given is what the support implies. The
    spread is at most `1 + tolerance` times what it has to be, see `spread.nu`; a bracket is safe at any tolerance.

    Computing the spread takes far longer than a pass over the terms does: keep them.
    """
    multiple = spread_multiple(formulation, eps)
    terms = unit_terms(rows, formulation, tolerance)
    return replace(terms, spread=terms.spread * multiple)


def unit_terms(rows: UncertainRows, formulation: str, tolerance: float = SPREAD_TOLERANCE) -> Terms:
    """The terms with a spread of one unit: `s nu`, or the standard deviation for MC."""
    name = named(formulation)
    used = known_to(rows, name)
    match name:
        case "SVM" | "M":
            middle = used.mean_midpoint
            return Terms(middle, middle, np.zeros_like(middle))
        case "S":
            return Terms(used.lower, used.upper, np.zeros_like(used.lower))
        case "MC":
            return Terms(used.mean_low, used.mean_high, _in_tiles(used, largest_deviation))
    spread = _in_tiles(used, lambda tile: tile.half_width * nu(*tile.normalised(), tolerance))
    support = (used.lower, used.upper) if name.endswith("-I") else ()
    return Terms(used.mean_low, used.mean_high, spread, *support)


def known_to(rows: UncertainRows, name: Formulation) -> UncertainRows:
    """What a formulation knows of rows, beside the ends of the support, which some leave aside."""
    bare = name.removesuffix("-I")
    known = _with_exact_means(rows, name) if bare in ("SM", "SMV") else rows
    return known.without_second_moment() if bare in ("SM", "SBM") else known


def spread_multiple(formulation: str, eps: float) -> float:
    """How many units of spread a probability `eps` takes.

    `kappa = sqrt(2 log(1 / eps))` by Bernstein's bound, `sqrt((1 - eps) / eps)` by Chebyshev's (MC).
    """
    check_eps(eps)
    return math.sqrt((1 - eps) / eps) if named(formulation) == "MC" else math.sqrt(-2 * math.log(eps))


def check_eps(eps: float) -> None:
    """Refuse what is no probability of error; the reciprocals of still smaller numbers are not finite."""
    if not sys.float_info.min <= eps < 1:
        raise InputError("bad-setting", f"eps is {eps}.", "Give a probability of error above 0 and below 1.")


def largest_deviation(rows: UncertainRows) -> Floats:
    """The largest standard deviation (N, D) that agrees with what is known.

    The variance at a mean `m` is at most the smaller one of `(u - m) (m - l)` and `S2 - (m - o)^2`. So the largest is
    where either has its own maximum, where they meet, or at an end.
    """
    low, high = rows.mean_low, rows.mean_high
    tried = [np.clip(rows.center, low, high)]
    second = rows.largest_second_moment
    if second is not None:
        origin = np.zeros_like(low) if rows.origin is None else rows.origin
        below, above = rows.lower - origin, rows.upper - origin
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            meeting = origin + (second + below * above) / (below + above)
        meeting = np.where(np.isfinite(meeting), meeting, low)
        tried += [low, high, np.clip(origin, low, high), np.clip(meeting, low, high)]
    largest = np.zeros_like(low)
    for mean in tried:
        largest = np.maximum(largest, rows.largest_variance(mean))
    return np.sqrt(largest)


def _in_tiles(rows: UncertainRows, spread: Callable[[UncertainRows], Floats]) -> Floats:
    """A spread (N, D) computed a tile of samples at a time: it takes several arrays of intermediate results."""
    found = np.empty(rows.lower.shape)
    step = max(1, TILE // max(1, rows.n_features))
    for start in range(0, len(rows), step):
        tile = slice(start, start + step)
        found[tile] = spread(rows.take(tile))
    return found


def _with_exact_means(rows: UncertainRows, name: Formulation) -> UncertainRows:
    inexact = rows.mean_low < rows.mean_high
    if inexact.any():
        row, feature = (int(place) for place in np.argwhere(inexact)[0])
        raise InputError(
            "unsupported",
            f"{name} asks for exact means, but in {rows.name(row, feature)} the mean is only known to lie between "
            f"{rows.mean_low[row, feature]:g} and {rows.mean_high[row, feature]:g}.",
            f"Choose {name.replace('SM', 'SBM')}, which takes bounds; or say the means by columns such as x.mean, in "
            "Python by `rows.exact_means()`, which takes the middles.",
        )
    return rows
