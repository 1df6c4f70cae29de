"""Subsampling a dataset: a row that is kept with probability `l`, stored beside it, stands for `1 / l` rows.

`N` rows, `K` classes. `l` is the inclusion probability of a row, `n_k` the number of rows of class `k`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from protodask.data.arrays.keyed import stream_key
from protodask.data.arrays.rows import BlockNumbers
from protodask.data.format.dataset import Dataset, no_dataset
from protodask.data.format.schema import INCLUSION, row_weights
from protodask.data.places.locations import locate
from protodask.data.places.storage import check_free, check_outside
from protodask.engine import Block, Engine, EngineLike, Reduction, add_records, identity, open_engine
from protodask.engine.records import Floats, Integers, merged_by
from protodask.errors import InputError, count, some
from protodask.evaluation.chosen_rows import choose_rows, slabs, uniform_draws, write_chosen
from protodask.evaluation.interval import is_real
from protodask.evaluation.strata import Strata, of_classes, of_values

Rates = Mapping[Any, float] | Sequence[float] | NDArray[np.floating]
"""Inclusion probabilities: by label, where classes that are not named are kept whole, or one for each class."""

_STREAM = 0x73756273
"""What tells the draws here from others of the same seed."""


def balanced_rates(counts: ArrayLike, budget: float) -> Floats:
    """Inclusion probabilities (K,) of classes of `counts` rows (K,) that spend `budget` rows as evenly as can be.

        l_k = min(1, t / n_k),  with the level t for which  sum_k min(n_k, t) = budget

    Classes with fewer rows than their share are kept whole, and the others share what is left. Of all rates with this
    expected total these leave the smallest classes as large as possible; of two classes they make `rho (1 - rho) n`
    largest, and so the interval around an AUC shortest. A budget of all rows or more keeps everything. A class without
    rows has the rate 1.
    """
    found = np.asarray(counts)
    if found.ndim != 1 or len(found) == 0 or found.dtype.kind not in "iuf":
        raise InputError(
            "wrong-shape" if found.dtype.kind in "iuf" else "wrong-type",
            f"The counts have the shape {found.shape} and the type {found.dtype}.",
            "Give the number of rows per class.",
        )
    rows = found.astype(np.float64)
    if not (np.isfinite(rows).all() and (rows >= 0).all() and (rows == np.floor(rows)).all() and rows.any()):
        raise InputError(
            "bad-value", "The counts are not all whole numbers of rows.", "Give counts from 0, not all of them 0."
        )
    _check_budget(budget)
    rates = np.ones(len(rows))
    left = float(budget)
    order = np.argsort(rows, kind="stable")
    for position, index in enumerate(order):
        share = left / (len(rows) - position)
        if rows[index] > share:  # and so are all that follow
            rates[order[position:]] = share / rows[order[position:]]
            break
        left -= rows[index]
    return rates


def _check_budget(budget: object) -> None:
    if not (is_real(budget) and 0 < budget <= sys.float_info.max):
        raise InputError("bad-setting", f"The budget is {budget!r}.", "Give a number of rows above 0.")


def check_rates(rates: Rates | None, budget: float | None) -> None:
    """Refuse what cannot work whatever the dataset: both or neither, or rates that are no probabilities."""
    if rates is None and budget is None:
        raise InputError("setting-missing", "It is not said how many rows to keep.", "Give rates, or a budget of rows.")
    if rates is not None and budget is not None:
        raise InputError(
            "settings-conflict",
            "Both rates and a budget are given.",
            "Give one: a budget is what rates are worked out from.",
        )
    if budget is not None:
        _check_budget(budget)
    if rates is not None:
        given: Any = rates
        if not isinstance(given, Mapping | Sequence | np.ndarray):
            raise InputError(
                "bad-setting", f"The rates are {rates!r}.", "Give a probability for each class, or some by label."
            )
        named = rates.items() if isinstance(rates, Mapping) else enumerate(rates)
        for label, rate in named:
            if not (is_real(rate) and 0 < rate <= 1):
                raise InputError(
                    "bad-setting",
                    f"The rate of {label!r} is {rate!r}.",
                    "Give a probability above 0 and up to 1: rows that are left out for sure stand for nothing.",
                )


def checked_seed(seed: object) -> int:
    """The seed of a draw, refused if it is none."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**64:
        raise InputError("bad-setting", f"The seed is {seed!r}.", "Give a whole number from 0 to 2**64 - 1.")
    return int(seed)


def stratum_rates(
    dataset: Dataset, strata: Strata, rates: Rates | None, budget: float | None, engine: EngineLike = None
) -> Floats:
    """The inclusion probability of each part of a dataset, from rates by label or class, or from a budget of rows.

    Rows are counted in a pass over the data only for a budget, of values or where some rows have the weight 0.
    """
    check_rates(rates, budget)
    if budget is not None:
        if strata.column is not None and strata.column.kind == "numeric":
            raise InputError(
                "settings-conflict",
                f"A budget is to be shared out among the values of {strata.name!r}, which are numbers.",
                "Give rates of some of them.",
            )
        return balanced_rates(_rows_by_stratum(dataset, strata, engine), budget)
    if isinstance(rates, Mapping):
        return _rates_by_label(rates, strata)
    found = np.array(rates, dtype=np.float64)
    if strata.column is not None or found.shape != (len(strata.labels),):
        raise InputError(
            "wrong-shape",
            f"{count(found.size, 'rate is', 'rates are')} given, and the dataset has {len(dataset.classes)} classes.",
            "Give one for each class, in their order, or rates by label.",
        )
    return found


def _rates_by_label(rates: Mapping[Any, float], strata: Strata) -> Floats:
    named = strata.labels
    found = np.ones(len(strata.shown))
    given: set[int] = set()
    for label, code, rate in zip(rates, strata.places(list(rates)), rates.values(), strict=True):
        if code < 0:
            known = f"There are {some(list(map(repr, named)))}."
            raise InputError("unknown-name", f"The dataset has no {strata.what} {label!r}.", known)
        if code in given:
            raise InputError("named-twice", f"The {strata.what} {named[code]!r} has two rates.", "Give one.")
        given.add(code)
        found[code] = rate
    return found


def _rows_by_stratum(dataset: Dataset, strata: Strata, engine: EngineLike) -> Integers:
    if strata.column is None and dataset.summary.rows == dataset.n_rows:
        return dataset.summary.class_rows
    with open_engine(engine) as opened:
        return _count(dataset, RateDraw(strata, (1.0,) * len(strata.shown), 0), opened).rows


def subsample(
    dataset: Dataset,
    out: str | os.PathLike[str],
    *,
    rates: Rates | None = None,
    budget: float | None = None,
    by: str | None = None,
    seed: int = 0,
    engine: EngineLike = None,
    overwrite: bool = False,
) -> Dataset:
    """Write the rows of a dataset that a draw keeps, in their order, with their inclusion probabilities.

    `rates` are those of the classes, by label or one for each class (classes that are not named are kept whole); with a
    `budget` of rows they are `balanced_rates`. `by` names a column in place of the target: `rates` are those of some of
    its values, and rows of other values are kept whole. A row that was kept with probability `l` before has `l` times
    its rate now, so that what is computed from the weights `1 / l` is about the rows there were in the beginning. How
    many rows are kept is random; their expectation is the budget.

    The draw depends on the seed, the number of the row and its inclusion probability so far: it is the same wherever
    and in however many processes it is made, and a row that is kept at a rate is kept at every higher one. Two passes
    over the dataset, one to count and one to write, and one more to count what a budget is shared out among; a process
    holds two blocks for each thread.
    """
    settings: dict[str, Any] = {"seed": seed, "engine": engine, "overwrite": overwrite}
    return drawn(dataset, out, rates=rates, budget=budget, by=by, **settings)[0]


def drawn(
    dataset: Dataset,
    out: str | os.PathLike[str],
    *,
    rates: Rates | None,
    budget: float | None,
    by: str | None,
    seed: int,
    engine: EngineLike,
    overwrite: bool,
) -> tuple[Dataset, RateDraw, KeptCounts]:
    """What `subsample` writes, how it was drawn, and how many rows that keeps."""
    if not isinstance(dataset, Dataset):
        raise no_dataset(dataset)
    where = locate(out)
    check_rates(rates, budget)
    seed = checked_seed(seed)
    check_outside(where, dataset.path)
    check_free(where, overwrite)
    named = rates if isinstance(rates, Mapping) else ()
    strata = of_classes(dataset) if by is None else of_values(dataset, by, named)
    with open_engine(engine) as opened:
        chosen = stratum_rates(dataset, strata, rates, budget, opened)
        draw = RateDraw(strata, tuple(chosen.tolist()), seed)
        counted = _count(dataset, draw, opened)
        _require_strata(counted, chosen, strata)
        row_bytes = dataset.metadata.row_bytes + (0 if dataset.has_inclusion else INCLUSION_BYTES)
        kept = choose_rows(dataset, draw, counted.by_block, row_bytes)
        name = dataset.metadata.inclusion_name or _free_name(dataset)
        return write_chosen(kept, where, _note(dataset, draw), opened, overwrite, name), draw, counted


INCLUSION_BYTES = 8


def _free_name(dataset: Dataset) -> str:
    """What tables call the inclusion probabilities: another name than those of their other columns."""
    known = dataset.metadata
    taken = {column.name for column in known.columns} | set(known.dropped)
    taken |= {name for name in (known.target_name, known.weight_name, known.group_name) if name is not None}
    name = INCLUSION.name
    while name in taken:
        name += "_"
    return name


def _note(dataset: Dataset, draw: RateDraw) -> str:
    named = [f"{label!r} {rate!r}" for label, rate in zip(draw.strata.shown, draw.rates, strict=True)]
    return (
        f"Subsample of {dataset.n_rows} rows of the dataset {dataset.key}, seed {draw.seed}; rates by "
        f"{draw.strata.what}: {some(named)}."
    )


@dataclass(frozen=True)
class RateDraw:
    """Keeps rows at the rates of their parts."""

    strata: Strata
    rates: tuple[float, ...]
    seed: int

    def __call__(self, block: Block) -> NDArray[np.bool_]:
        return is_kept(block, self.strata.codes(block), np.array(self.rates), self.seed)

    def inclusion(self, block: Block) -> Floats:
        """That of before, times the rate."""
        share = np.array(self.rates)[self.strata.codes(block)]
        before = block.arrays.get(INCLUSION.name)
        return share if before is None else share * before


def is_kept(block: Block, codes: Integers, rates: Floats, seed: int) -> NDArray[np.bool_]:
    """Whether each row of a block is kept (n,): where its draw, uniform from 0 to 1, is below the rate of its part.

    Draws are keyed by the inclusion probability so far as well as by the number of the row. Otherwise the first rows of
    a subsample, up to the first that was left out, would have the numbers they had before, and drawing from it with the
    same seed would keep all of them again.
    """
    kept = np.empty(block.n_rows, dtype=np.bool_)
    before = block.arrays.get(INCLUSION.name, np.ones(1))
    for part in slabs(block.n_rows):
        key = stream_key(
            seed, _STREAM, np.ascontiguousarray(before[part] if len(before) > 1 else before).view(np.uint64)
        )
        numbers = np.arange(block.start + part.start, block.start + part.stop)
        kept[part] = uniform_draws(key, numbers) < rates[codes[part]]
    return kept


@dataclass(frozen=True)
class KeptCounts:
    """How many rows some blocks, one after the other, have and keep."""

    by_block: Integers = field(metadata=merged_by(lambda left, right: np.concatenate([left, right])))
    """Rows that are kept of each block."""
    rows: Integers
    """Rows of each part."""
    kept: Integers
    """Rows that are kept of each part."""
    weight: Floats
    """Rows that these stand for."""


def _count_block(number: Block, dataset: Dataset, draw: RateDraw) -> KeptCounts:
    block = dataset.read(number.number)
    codes, rates, n_parts = draw.strata.codes(block), np.array(draw.rates), len(draw.rates)
    kept = is_kept(block, codes, rates, draw.seed)
    counted = np.bincount(codes[kept], minlength=n_parts)
    weights = row_weights(block)
    stands_for = counted if weights is None else np.bincount(codes[kept], weights[kept], n_parts)
    return KeptCounts(np.array([kept.sum()]), np.bincount(codes, minlength=n_parts), counted, stands_for / rates)


COUNT: Reduction[KeptCounts, KeptCounts] = Reduction(_count_block, add_records, identity)
"""Counts for a draw, by the numbers of the blocks: what is read once need not push out what is cached for training."""


def _count(dataset: Dataset, draw: RateDraw, engine: Engine) -> KeptCounts:
    return engine.reduce(BlockNumbers(dataset.layout), COUNT, engine.share(dataset), draw, label="drawing rows")


def _require_strata(counted: KeptCounts, rates: Floats, strata: Strata) -> None:
    absent = np.flatnonzero((counted.rows == 0) & (rates < 1))
    if len(absent) and strata.column is not None:
        raise InputError(
            "unknown-name",
            f"No row has the {strata.what} {strata.shown[absent[0]]!r}.",
            "Name values that there are; what was stored in float32 is rounded.",
        )
    lost = np.flatnonzero((counted.rows > 0) & (counted.kept == 0))
    if len(lost):
        code = int(lost[0])
        raise InputError(
            "too-few",
            f"None of {count(int(counted.rows[code]), 'row')} of {strata.what} {strata.shown[code]!r} is kept at the "
            f"rate {rates[code]:.6g}.",
            f"Give the {strata.kind} a higher rate, or a larger budget: a subsample without it says nothing about it.",
        )
