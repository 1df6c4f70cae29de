"""What was decided, why, and what the usual threshold of 0.5 would have cost."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from protodask.errors import count

Flags = NDArray[np.bool_]

HALF = 0.5
"""What a decision is compared with: to select every item whose probability is at least this."""


@dataclass(frozen=True)
class Cut:
    """Select every item above the threshold, and of those exactly at it the first `taken`, in their own order."""

    threshold: float
    """The smallest probability selected; infinity where nothing is."""
    tied: int
    """Items whose probability is the threshold."""
    taken: int
    """Of the tied ones."""

    @property
    def share_of_tied(self) -> float:
        """Share of the tied items that is selected; 0 where none is tied."""
        return self.taken / self.tied if self.tied else 0.0

    @property
    def splits_ties(self) -> bool:
        """Whether some items of that probability are selected and others are not."""
        return 0 < self.taken < self.tied

    def select(self, probability: ArrayLike, tied_before: int = 0) -> Flags:
        """Which of some items are selected; `tied_before` counts the tied items in the blocks before this one."""
        values = np.asarray(probability)
        tied = values == self.threshold
        left = self.taken - tied_before
        chosen: Flags = values > self.threshold
        if left > 0:
            chosen |= tied & (np.cumsum(tied) <= left)
        return chosen


NOTHING = Cut(math.inf, 0, 0)


@dataclass(frozen=True)
class Decision:
    """The selection of least expected loss: the `k` items of largest probability, of tied ones the first."""

    n: int
    k: int
    """Items selected."""
    cut: Cut
    expected_loss: float
    loss_at_half: float
    """Expected loss of selecting every item whose probability is at least 0.5."""
    loss: str
    method: str
    """How the expected loss was computed: `general`, `quadratic` (both exact) or `normal`."""
    selected: Flags | None = field(default=None, repr=False, compare=False)
    """One flag an item; None where the items are in a store, and `cut.select` says it block by block."""

    @property
    def threshold(self) -> float:
        """The smallest probability selected; infinity where nothing is selected."""
        return self.cut.threshold

    def explain(self) -> str:
        """Two lines: what was chosen, and what it is expected to cost beside thresholding at 0.5."""
        return f"{self._chosen()}\n{self._compared()}"

    def __str__(self) -> str:
        return self.explain()

    def _chosen(self) -> str:
        if self.k == 0:
            return f"Selected none of {count(self.n, 'item')}."
        how = f"probability at least {self.threshold:.6g}"
        if self.cut.splits_ties:
            how = f"{self.cut.taken:,} of the {self.cut.tied:,} items at {self.threshold:.6g}, all above"
        return f"Selected {self.k:,} of {count(self.n, 'item')}: {how}."

    def _compared(self) -> str:
        how = "nearly normal counts" if self.method == "normal" else "exact"
        return (
            f"Expected {self.loss} loss {self.expected_loss:.6g} ({how}); selecting probabilities of at least "
            f"0.5 would cost {self.loss_at_half:.6g}, {self.loss_at_half - self.expected_loss:.3g} more."
        )
