"""How many of some independent items are positive: tables of the Poisson-binomial distribution.

The table of items `1..k` holds the coefficients of `prod_{i<=k} (1 - eta_i + eta_i z)`. One more item turns it into
`t[j] (1 - eta) + t[j - 1] eta`, a sum of nonnegative terms, so that errors stay relative; items are never taken out of
a table again, which would divide. (`scipy.stats.poisson_binom` gives the table of all items, in as many steps; what is
needed here are those of all beginnings and all ends.)

Entries at the ends below `NEGLIGIBLE` are dropped. Each item adds one entry, so the probability dropped from a table of
`n` items is at most `(n + 1) NEGLIGIBLE`, below 1e-20 up to 100,000 items: an expectation of a loss in [0, 1] is short
of the true one by no more, while tables have about `20 sqrt(n) / 2` entries and not `n`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate
from typing import Any

import numpy as np

from protodask.engine.records import Floats

NEGLIGIBLE = 1e-25
"""A probability that is dropped at the end of a table."""


@dataclass(frozen=True)
class CountTable:
    """`probability[j]` is that of `start + j` positives; of N sets of as many items each, `probability[:, j]`."""

    start: int
    probability: Floats
    negligible: float = NEGLIGIBLE
    """What is below it is dropped."""

    @property
    def counts(self) -> Floats:
        """The numbers of positives that the entries are for."""
        return np.arange(self.start, self.start + self.probability.shape[-1], dtype=np.float64)

    def add(self, eta: float | Floats) -> CountTable:
        """The table with one more item, of probability `eta`, or one more in each set (N, 1)."""
        *sets, width = self.probability.shape
        grown = np.empty((*sets, width + 1))
        grown[..., 0] = 0.0
        np.multiply(self.probability, eta, out=grown[..., 1:])
        grown[..., :-1] += self.probability * (1 - eta)
        if sets:
            grown[grown < self.negligible] = 0.0
            kept = np.flatnonzero(grown.any(axis=0))
            first, last = int(kept[0]), int(kept[-1]) + 1
        else:
            first, last = 0, width + 1
            while grown[first] < self.negligible:
                first += 1
            while grown[last - 1] < self.negligible:
                last -= 1
        return CountTable(self.start + first, np.ascontiguousarray(grown[..., first:last]), self.negligible)


NO_ITEMS = CountTable(0, np.ones(1))


def count_table(probability: Iterable[float]) -> CountTable:
    """The table of all these items."""
    return reduce(CountTable.add, probability, NO_ITEMS)


def prefix_tables(probability: Floats, none: CountTable = NO_ITEMS) -> list[CountTable]:
    """The tables of the first 0, 1, .. n items: some `20 n sqrt(n) / 3` numbers at most, 8 MiB for 3,000 items.

    Items (n,), or with the table of `none` of N sets, (N, n).
    """
    return [*accumulate(_items(probability), CountTable.add, initial=none)]


def neighbouring_tables(probability: Floats, none: CountTable = NO_ITEMS) -> Iterator[tuple[CountTable, CountTable]]:
    """The tables of the first 0, 1, .. n items, and of all others: those in one pass from the end."""
    others = reversed(prefix_tables(probability[..., ::-1], none))
    yield from zip(accumulate(_items(probability), CountTable.add, initial=none), others, strict=True)


def _items(probability: Floats) -> list[Any]:
    """Each item's probability, or (N, 1) of those of N sets."""
    return probability.tolist() if probability.ndim == 1 else [*np.moveaxis(probability, -1, 0)[:, :, None]]
