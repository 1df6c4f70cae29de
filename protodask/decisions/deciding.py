"""The selection of least expected loss among items that are positive independently of each other.

If a loss does not rise with the true positives (see `losses`), the best selection of `k` items is that of the `k`
largest probabilities, and the best `k` is found by looking at all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from protodask.decisions.counts import Floats
from protodask.decisions.decision import HALF, NOTHING, Cut, Decision
from protodask.decisions.exact import expected_loss, general_losses, iterate_losses, quick_losses
from protodask.decisions.losses import Loss, as_loss
from protodask.decisions.probabilities import read_probabilities
from protodask.errors import InputError

Method: TypeAlias = Literal["auto", "exact"]

TIE = 1e-13
"""Relative to the largest: expected losses that are closer differ by rounding, and the fewest items are selected."""


def decide(
    probability: ArrayLike,
    loss: str | Loss | Callable[..., Any] = "f1",
    method: Method = "auto",
    *,
    first_minimum: bool = False,
) -> Decision:
    """Which items to select, given the probability of each of being positive (n,).

    Among items of the same probability the first are selected; among numbers of items of the same expected loss the
    smallest is taken. `first_minimum` stops at the first `k` whose expected loss is not above that of `k + 1`: quick
    where few items are worth selecting, but nobody has proved that no smaller minimum follows.
    """
    values = read_probabilities(probability)
    found = as_loss(loss, len(values))
    if method not in ("auto", "exact"):
        raise InputError(f"The method is {method!r}.", "Choose auto or exact.")
    order = np.argsort(-values, kind="stable")
    ordered = values[order]
    half = int(np.count_nonzero(values >= HALF))
    quick = quick_losses(ordered, found)
    how = "general" if quick is None else "quadratic"
    if first_minimum:
        k, least = first_minimum_of(iterate_losses(ordered, found) if quick is None else quick.tolist())
        at_half = expected_loss(ordered, half, found)
    else:
        losses = general_losses(ordered, found) if quick is None else quick
        k = fewest_of_least(losses)
        least, at_half = float(losses[k]), float(losses[half])
    selected = np.zeros(len(values), dtype=np.bool_)
    selected[order[:k]] = True
    return Decision(len(values), k, cut_at(ordered, k), least, at_half, found.name, how, selected)


def fewest_of_least(losses: Floats) -> int:
    """The smallest `k` whose expected loss is the least but for rounding."""
    return int(np.argmax(losses <= losses.min() + TIE * np.abs(losses).max()))


def first_minimum_of(losses: Iterable[float]) -> tuple[int, float]:
    """The first `k` with `L_k <= L_{k+1}`, or else the last, and `L_k`; nothing beyond `k + 1` is looked at."""
    k, least = -1, math.inf
    for following in losses:
        if least <= following:
            break
        k, least = k + 1, following
    return k, least


def cut_at(ordered: Floats, k: int) -> Cut:
    """The threshold below the first `k` of sorted probabilities, and how many items are tied there."""
    if k == 0:
        return NOTHING
    threshold = float(ordered[k - 1])
    above = int(np.count_nonzero(ordered > threshold))
    return Cut(threshold, int(np.count_nonzero(ordered == threshold)), k - above)
