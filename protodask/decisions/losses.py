"""Losses of a selection, as functions of three shares.

Of `n` items some are selected (`s_i = 1`) and some are positive (`y_i = 1`). A loss sees counts divided by `n`,

    u = TP / n        v = sum s / n        p = sum y / n,

from which `FP = v - u`, `FN = p - u` and `TN = 1 - v - p + u`. With the rates `TPR = u / p`, `TNR = TN / (1 - p)` and
`Prec = u / v` the named losses are

    am          1 - (TPR + TNR) / 2
    f1, f_beta  1 - (1 + b^2) u / (b^2 p + v)              the harmonic mean of Prec and TPR, with weights 1 and b^2
    jaccard     (p + v - 2 u) / (p + v - u)                (FP + FN) / (TP + FP + FN)
    g_tp_pr     1 - sqrt(TPR Prec)
    g_mean      1 - sqrt(TPR TNR)
    h_mean      1 - 2 / (1 / TPR + 1 / TNR)
    auc         (1 - TPR) (1 - TNR)                        share of (positive, negative) pairs in wrong order

**Where a denominator vanishes**, nothing could be got wrong, and a rate of nothing counts as 1: TPR where there are no
positives, TNR where there are no negatives, Prec where nothing is selected; a mean of rates is 0 where one of them is
0. So to select nothing where there is nothing to find is no loss (F-beta, Jaccard, G-TP/PR, AM, G-mean and H-mean),
to select something there costs all (F-beta, Jaccard, G-TP/PR) or what the negatives' rate says (AM: v / 2, G-mean:
1 - sqrt(1 - v)), and where there is no pair of a positive and a negative no pair is in wrong order (AUC: 0). At all
these points `u` follows from `v` and `p`, so no convention could disturb the order that the next paragraph needs.

**What a loss must fulfil**: for the same `v` and `p` it does not rise with `u`. Then some `k` exists such that the `k`
items of largest probability are an optimal selection.

The AUC loss is 0 where all or nothing is selected, whatever comes true: left to itself, nothing is its best selection.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from protodask.engine.records import Floats
from protodask.errors import InputError

Form: TypeAlias = Callable[[Any, Any, Any], Any]

SNAP = 1e-14
"""A share below this is rounding: one item in 1e13 is more."""

ROUNDING = 1e-12
"""Relative; by how much a loss may rise with `u` and still count as one that does not."""

MOST_BETA = 1e50
"""Whose square is far from what float64 holds."""

LEAST, MOST = 1e-100, 1e100
"""Of coefficients that are not 0, in absolute value: products of two of them, and quotients, are finite numbers."""

CHECKED_GRID = 30
MOST_CHECKED = 60
"""Items for which a user's function is looked at: all 5,000 (40,000) triples of counts of 30 (60) items."""


@dataclass(frozen=True)
class Loss:
    """A loss `loss(u, v, p)` of arrays that broadcast; pickles if its function does."""

    name: str
    form: Form
    monotone: bool = False
    """Known not to rise with `u`; `as_loss` looks at all others."""
    smooth: bool = False
    """Known to be smooth away from where a denominator vanishes: expectations take a few places only."""

    def __call__(self, u: ArrayLike, v: ArrayLike, p: ArrayLike) -> Floats:
        arrays = [np.asarray(share, dtype=np.float64) for share in (u, v, p)]
        with np.errstate(all="ignore"):
            found = np.asarray(self.form(*arrays))
        if found.dtype.kind not in "fiubO":
            raise TypeError(f"it gives values of type {found.dtype}")
        value = found.astype(np.float64)
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
        return value if value.shape == shape else np.broadcast_to(value, shape)

    @staticmethod
    def f_beta(beta: float) -> Loss:
        """F-beta: TPR counts `beta^2` times as much as precision."""
        remedy = f"Give a positive number up to {MOST_BETA:g}: above 1 recall counts more, below 1 precision."
        if not 0 < _finite(beta, "beta", remedy) <= MOST_BETA:
            raise InputError("bad-setting", f"beta is {beta!r}.", remedy)
        square = float(beta) ** 2
        form = LinearFractional((0.0, -(1 + square), 1.0, square), (0.0, 0.0, 1.0, square))
        return Loss(f"f{beta:g}", form, True, True)

    @staticmethod
    def linear_fractional(
        c: Sequence[float], d: Sequence[float], *, at_zero: float = 0.0, name: str = "linear_fractional"
    ) -> Loss:
        """`(c0 + c1 u + c2 v + c3 p) / (d0 + d1 u + d2 v + d3 p)`, and `at_zero` where both sums are 0.

        It is refused unless the denominator keeps its sign and the quotient does not rise with `u`, which is so where

            c1 (d0 + d2 v + d3 p) <= d1 (c0 + c2 v + c3 p)

        for all `v` and `p` from 0 to 1; `c1 < d1` alone is neither necessary nor enough.
        """
        form = LinearFractional(_four(c, "c"), _four(d, "d"), _finite(at_zero, "at_zero"))
        if not all(value == 0 or LEAST <= abs(value) <= MOST for value in (*form.c, *form.d, form.at_zero)):
            raise InputError(
                "bad-setting",
                f"The coefficients of the loss are {_listed((*form.c, *form.d))}, and at_zero is {form.at_zero:g}.",
                f"Give numbers from {LEAST:g} to {MOST:g}, or 0: a common factor of c and d makes no difference.",
            )
        return Loss(name, form, True, True)


def _four(coefficients: Sequence[float], name: str) -> tuple[float, float, float, float]:
    try:
        constant, u, v, p = (_finite(value, name) for value in coefficients)
    except (TypeError, ValueError, InputError) as error:
        raise InputError(
            "bad-setting", f"{name} is {coefficients!r}.", "Give four numbers: the constant and those of u, v and p."
        ) from error
    return constant, u, v, p


def _finite(value: object, name: str, remedy: str = "Give a finite number.") -> float:
    if isinstance(value, int | float | np.integer | np.floating):
        with suppress(OverflowError):
            if math.isfinite(value):
                return float(value)
    raise InputError("bad-setting", f"{name} is {value!r}.", remedy)


@dataclass(frozen=True)
class LinearFractional:
    """A quotient of two linear functions of (1, u, v, p); F-beta and Jaccard are of this form, too."""

    c: tuple[float, float, float, float]
    d: tuple[float, float, float, float]
    at_zero: float = 0.0
    """Where numerator and denominator are both 0."""

    def __post_init__(self) -> None:
        self._check_sign()
        self._check_order()

    @property
    def numerator(self) -> tuple[float, float, float, float]:
        """Its values at TP = 1, FP = 1, FN = 1 and TN = 1, of which it is the mean with the four shares as weights."""
        return _at_corners(self.c)

    @property
    def denominator(self) -> tuple[float, float, float, float]:
        """Likewise; of one sign."""
        return _at_corners(self.d)

    @property
    def zeros(self) -> tuple[bool, bool, bool, bool]:
        """Which of TP, FP, FN and TN the denominator does not see: it is 0 where there are no others."""
        tp, fp, fn, tn = (value == 0 for value in self.denominator)
        return tp, fp, fn, tn

    @property
    def seen(self) -> tuple[float, float, float, float]:
        """Coefficients of the share of items that the denominator sees: it vanishes where there are none of them.

        Items that count little there are seen all the same: a denominator may be small and mean something.
        """
        tp, fp, fn, tn = (float(not zero) for zero in self.zeros)
        return tn, tp - fp - fn + tn, fp - tn, fn - tn

    def __call__(self, u: Floats, v: Floats, p: Floats) -> Floats:
        over, under, seen = (x[0] + x[1] * u + x[2] * v + x[3] * p for x in (self.c, self.d, self.seen))
        return np.where(seen <= SNAP, self.at_zero, over / under)

    def _check_sign(self) -> None:
        if not (any(self.denominator) and (min(self.denominator) >= 0 or max(self.denominator) <= 0)):
            raise InputError(
                "bad-setting",
                f"The denominator of the loss is {_listed(self.denominator)} where all items are true positives, "
                "false positives, false negatives or true negatives: it does not keep its sign.",
                "Give coefficients d for which these four numbers, d0 + d1 + d2 + d3, d0 + d2, d0 + d3 and d0, are all "
                "positive, or some of them 0.",
            )
        if any(zero and value for zero, value in zip(self.zeros, self.numerator, strict=True)):
            raise InputError(
                "bad-setting",
                "The denominator of the loss vanishes where the numerator does not: the loss would be infinite.",
                "Give coefficients for which both vanish there; the loss is then at_zero.",
            )

    def _check_order(self) -> None:
        c, d = self.c, self.d
        scale = max(map(abs, c)) * max(map(abs, d))
        for v in (0, 1):
            for p in (0, 1):
                slope = c[1] * (d[0] + d[2] * v + d[3] * p) - d[1] * (c[0] + c[2] * v + c[3] * p)
                if slope > ROUNDING * scale:
                    raise InputError(
                        "bad-setting",
                        f"The loss rises with u near v = {v}, p = {p}: c1 (d0 + d2 v + d3 p) - d1 (c0 + c2 v + c3 p) "
                        f"is {slope:g} there.",
                        "Give coefficients for which that is not positive wherever v and p are 0 or 1: more true "
                        "positives among as many selected may not cost more.",
                    )
        tp, fp, fn, tn = range(4)
        over, under = self.numerator, self.denominator
        # Along these faces `u` is the largest, or the least, for its v and p; the quotient is the same for all others.
        best = self.zeros[tp] and self.zeros[tn] and self.at_zero > (over[fp] + over[fn]) / (under[fp] + under[fn])
        worst = self.zeros[fp] and self.zeros[fn] and self.at_zero < (over[tp] + over[tn]) / (under[tp] + under[tn])
        if best or worst:
            raise InputError(
                "bad-setting",
                f"With at_zero = {self.at_zero:g} the loss rises with u where numerator and denominator vanish.",
                f"Give a {'smaller' if best else 'larger'} at_zero.",
            )


def _at_corners(x: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
    constant, u, v, p = x
    return _sum_of(constant, u, v, p), _sum_of(constant, v), _sum_of(constant, p), constant


def _sum_of(*terms: float) -> float:
    """0 where it is what rounding leaves of these terms: beside other ones a small sum may well be meant."""
    total = math.fsum(terms)
    return 0.0 if abs(total) <= ROUNDING * max(map(abs, terms)) else total


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _rate(part: Floats, whole: Floats) -> Floats:
    return np.where(whole > 0, part / whole, 1.0)


def _rates(u: Floats, v: Floats, p: Floats) -> tuple[Floats, Floats]:
    negatives = 1 - v - p + u
    # What rounding leaves of no true negatives would be 1e-8 under a root.
    return _rate(u, p), _rate(np.where(negatives > SNAP, negatives, 0.0), 1 - p)


def _am(u: Floats, v: Floats, p: Floats) -> Floats:
    tpr, tnr = _rates(u, v, p)
    return 1 - (tpr + tnr) / 2


def _g_tp_pr(u: Floats, v: Floats, p: Floats) -> Floats:
    return 1 - np.sqrt(_rate(u, p) * _rate(u, v))


def _g_mean(u: Floats, v: Floats, p: Floats) -> Floats:
    tpr, tnr = _rates(u, v, p)
    return 1 - np.sqrt(tpr * tnr)


def _h_mean(u: Floats, v: Floats, p: Floats) -> Floats:
    tpr, tnr = _rates(u, v, p)
    total = tpr + tnr
    return 1 - np.where(total > 0, 2 * tpr * tnr / total, 0.0)


def _auc(u: Floats, v: Floats, p: Floats) -> Floats:
    pairs = p * (1 - p)
    return np.where(pairs > 0, (v - u) * (p - u) / pairs, 0.0)


_NAMED = {
    "am": Loss("am", _am, True, True),
    "f1": Loss.f_beta(1),
    "jaccard": Loss("jaccard", LinearFractional((0.0, -2.0, 1.0, 1.0), (0.0, -1.0, 1.0, 1.0)), True, True),
    "g_tp_pr": Loss("g_tp_pr", _g_tp_pr, True, True),
    "g_mean": Loss("g_mean", _g_mean, True, True),
    "h_mean": Loss("h_mean", _h_mean, True, True),
    "auc": Loss("auc", _auc, True, True),
}
LOSS_NAMES = tuple(_NAMED)
"""The named losses; beside them any "f" and a number, such as "f2" and "f0.5"."""

_F_BETA = re.compile(r"f(\d+\.?\d*|\.\d+)")


def as_loss(loss: str | Loss | Callable[..., Any], n: int = CHECKED_GRID) -> Loss:
    """The loss of that name, or of a function of arrays `u`, `v` and `p`, which is looked at before it is believed.

    A function is evaluated for all counts of `n` items, at most of 60: it must be finite there and must not rise with
    `u`. What it does between and beyond those is not seen. It gets shares with the rounding of float64: `1 - v - p + u`
    may be 1e-17 or -1e-17 where there are no true negatives, which matters under a root.
    """
    if isinstance(loss, str):
        if loss in _NAMED:
            return _NAMED[loss]
        if (found := _F_BETA.fullmatch(loss)) is not None:
            return Loss.f_beta(float(found[1]))
        raise InputError(
            "unknown-name",
            f"There is no loss named {loss!r}.",
            f"Choose one of {', '.join(LOSS_NAMES)}, or f and a number such as f2.",
        )
    if not isinstance(loss, Loss):
        if not callable(loss):
            raise InputError(
                "bad-setting", f"The loss is {loss!r}.", "Give a name, a Loss, or a function of arrays u, v and p."
            )
        name = getattr(loss, "__name__", type(loss).__name__)
        loss = Loss("custom" if name == "<lambda>" else name, loss)
    if not loss.monotone:
        _check_function(loss, min(max(n, 1), MOST_CHECKED))
    return loss


def _check_function(loss: Loss, n: int) -> None:
    """Refuse a function that cannot take arrays, is not finite, or rises with u somewhere among n items."""
    tp, selected, positive = np.meshgrid(*[np.arange(n + 1)] * 3, indexing="ij")
    feasible = (tp <= np.minimum(selected, positive)) & (tp >= selected + positive - n)
    # Infeasible places repeat a feasible neighbour, so that a function never sees a negative count.
    nearest = np.clip(tp, np.maximum(selected + positive - n, 0), np.minimum(selected, positive))
    try:
        value = loss(nearest / n, selected / n, positive / n)
    except (TypeError, ValueError) as error:
        raise InputError(
            "user-code",
            f"The loss {loss.name} cannot take arrays: {error}.",
            "Let it give numbers, write it with numpy functions such as numpy.where and numpy.minimum, or wrap it in "
            "numpy.vectorize(..., otypes=[float]).",
        ) from error
    for wrong in np.argwhere(feasible & ~np.isfinite(value))[:1]:
        raise InputError(
            "bad-setting",
            f"The loss {loss.name} is {value[tuple(wrong)]} at u, v, p = {_shares(wrong, n)}.",
            "Make it finite everywhere; numpy.where can say what it is where nothing is selected or positive.",
        )
    scale = float(np.abs(value).max())
    for wrong in np.argwhere(np.diff(value, axis=0) > ROUNDING * scale)[:1]:
        above = wrong + np.array([1, 0, 0])
        raise InputError(
            "bad-setting",
            f"The loss {loss.name} rises with u: from {value[tuple(wrong)]:g} at u, v, p = {_shares(wrong, n)} to "
            f"{value[tuple(above)]:g} at {_shares(above, n)}.",
            "Give a loss that does not rise with the true positives, v and p being the same; if more is better, change "
            "its sign.",
        )


def _shares(counts: NDArray[np.int64], n: int) -> str:
    return "(" + ", ".join(f"{count}/{n}" for count in counts) + ")"
