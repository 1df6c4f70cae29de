"""A dataset whose weights do not count: every row stands for itself, those of weight zero too."""

from __future__ import annotations

from dataclasses import dataclass

from protodask.data.dataset import Dataset
from protodask.data.schema import INCLUSION, WEIGHT
from protodask.engine import Block, Layout


@dataclass(frozen=True)
class UnweightedSource:
    """The blocks of a dataset without its weights and inclusion probabilities, so that they are not cached either."""

    data: Dataset

    @property
    def layout(self) -> Layout:
        return self.data.layout

    @property
    def key(self) -> str:
        return f"{self.data.key}/unweighted"

    @property
    def resident(self) -> bool:
        return self.data.resident

    def read(self, number: int) -> Block:
        block = self.data.read(number)
        kept = {name: array for name, array in block.arrays.items() if name not in (WEIGHT.name, INCLUSION.name)}
        return Block(block.number, block.start, kept)
