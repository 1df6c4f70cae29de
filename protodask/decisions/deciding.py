"""The selection of least expected loss among items that are positive independently of each other.

If a loss does not rise with the true positives (see `losses`), the best selection of `k` items is that of the `k`
largest probabilities, and the best `k` is found by looking at all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np
import zarr
from numpy.typing import ArrayLike, NDArray

from protodask.data.arrays.rows import read_rows
from protodask.data.arrays.zarr_arrays import column_source
from protodask.decisions.decision import HALF, NOTHING, Cut, Decision, Flags
from protodask.decisions.exact import exact_terms, expected_loss, general_losses, iterate_losses, quick_losses
from protodask.decisions.group_tables import PROBABILITY
from protodask.decisions.large import decide_normal
from protodask.decisions.losses import Loss, as_loss
from protodask.decisions.probabilities import check_shape, read_probabilities
from protodask.engine import EngineLike, Source
from protodask.engine.lazy import as_array, is_lazy
from protodask.engine.records import Floats
from protodask.errors import InputError

Method: TypeAlias = Literal["auto", "exact", "normal"]

METHODS: tuple[Method, ...] = ("auto", "exact", "normal")

MOST_TERMS = 2e8
"""For which `auto` computes exactly, 1 to 2 seconds (see `exact_terms`): up to 11,000 items for F1, 15,000 for Jaccard,
2,200 for others where probabilities are spread from 0 to 1, and more where they are small."""

IN_MEMORY = 2**20
"""Items up to which probabilities from elsewhere are read into memory, 8 MiB."""

TIE = 1e-13
"""Relative to the largest: expected losses that are closer differ by rounding, and the fewest items are selected."""


def decide(
    probability: ArrayLike | Source,
    loss: str | Loss | Callable[..., Any] = "f1",
    method: Method = "auto",
    *,
    first_minimum: bool = False,
    engine: EngineLike = None,
) -> Decision:
    """Which items to select, given the probability of each of being positive (n,).

    Among items of the same probability the first are selected; among numbers of items of the same expected loss the
    smallest is taken. `first_minimum` stops at the first `k` from 1 whose expected loss is not above that of `k + 1`,
    and compares it with that of selecting nothing. That is quick where few items are worth selecting, but not always
    the least: for the F1 loss and probabilities 0.68, 0.295, 0.295 and 0.25 it selects one item, and three are better.

    `exact` sums over all numbers of positives; `normal` is for many items and a loss that is smooth, see
    `decide_normal`; `auto` is exact where that takes about two seconds at most.

    Arrays of dask or Zarr may be larger than memory, which has to hold the flags, a byte an item; those of more than a
    million items are read by blocks, on `engine`. Of a source of blocks with an array "probability" the decision has
    no flags.
    """
    check_method(method, first_minimum)
    if is_outside_memory(probability):
        rows = item_source(probability)
        if rows.layout.n_rows > IN_MEMORY and method != "exact" and not first_minimum:
            decision = decide_normal(rows, loss, engine=engine)
            return replace(decision, selected=select_items(rows, decision.cut))
        probability = read_rows(rows, 0, rows.layout.n_rows)[PROBABILITY]
    if isinstance(probability, Source):
        if method == "exact" or first_minimum:
            raise InputError(
                "unsupported",
                "An exact decision is asked for, and the probabilities are in a source of blocks.",
                "Read them into an array, or choose the method normal.",
            )
        return decide_normal(probability, loss, engine=engine)
    values = read_probabilities(probability)
    found = as_loss(loss, len(values))
    if method == "normal" or (method == "auto" and not first_minimum and exact_terms(values, found) > MOST_TERMS):
        return decide_normal(values, found, engine=engine)
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
        k = int(fewest_of_least(losses))
        least, at_half = float(losses[k]), float(losses[half])
    selected = np.zeros(len(values), dtype=np.bool_)
    selected[order[:k]] = True
    return Decision(len(values), k, cut_at(ordered, k), least, at_half, found.name, how, selected)


def is_outside_memory(probability: object) -> bool:
    """Whether probabilities have to be computed, or read from a store, to be looked at."""
    return is_lazy(probability) or isinstance(probability, (zarr.Array, np.memmap))


def item_source(probability: Any) -> Source:
    """Those of a dask array or series, a Zarr array or a memory map, as a source of blocks."""
    array = as_array(probability)
    check_shape(array.shape, array.dtype)
    return column_source({PROBABILITY: array})


def select_items(source: Source, cut: Cut) -> Flags:
    """Which items of a source are above the cut (n,), read block by block."""
    selected = np.zeros(source.layout.n_rows, dtype=np.bool_)
    tied_before = 0
    for number in range(source.layout.n_blocks):
        block = source.read(number)
        values = block[PROBABILITY]
        selected[block.start : block.stop] = cut.select(values, tied_before)
        tied_before += int(np.count_nonzero(values == cut.threshold))
    return selected


def check_method(method: Method, first_minimum: bool = False) -> None:
    """Refuse a method that there is not."""
    if method not in METHODS:
        raise InputError("bad-setting", f"The method is {method!r}.", f"Choose one of {', '.join(METHODS)}.")
    if first_minimum and method == "normal":
        raise InputError(
            "settings-conflict",
            "The first minimum is asked for, and the method is normal.",
            "Choose the method exact, or leave out first_minimum.",
        )


def fewest_of_least(losses: Floats) -> NDArray[np.int64]:
    """The smallest `k` whose expected loss is the least but for rounding: of each row (.., n + 1)."""
    bound = losses.min(axis=-1) + TIE * np.abs(losses).max(axis=-1)
    return np.asarray(np.argmax(losses <= bound[..., None], axis=-1), dtype=np.int64)


def first_minimum_of(losses: Iterable[float]) -> tuple[int, float]:
    """The first `k` from 1 with `L_k <= L_{k+1}`, or else the last, unless `L_0` is as small; and its expected loss.

    Nothing beyond `k + 1` is looked at.
    """
    left = iter(losses)
    none_selected, least, k = next(left), math.inf, 0
    for following in left:
        if least <= following:
            break
        k, least = k + 1, following
    return (0, none_selected) if none_selected <= least else (k, least)


def cut_at(ordered: Floats, k: int) -> Cut:
    """The threshold below the first `k` of sorted probabilities, and how many items are tied there."""
    if k == 0:
        return NOTHING
    threshold = float(ordered[k - 1])
    above = int(np.count_nonzero(ordered > threshold))
    return Cut(threshold, int(np.count_nonzero(ordered == threshold)), k - above)
