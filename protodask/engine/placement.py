"""Which worker takes which blocks of a pass, so that caches stay warm while workers come and go.

The blocks of a source are cut into units that do not depend on the workers: aligned runs of a power of two. A unit
stays with the worker that had it last as long as that one is there and has not more than its share, which goes by
threads; what is left goes, in order, to those that have room. So a worker that joins takes a little of each other one,
and the units of one that left are dealt out; everything else stays where it was read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from protodask.engine.records import Integers

MOST_UNITS = 4096
"""Units of a source at most: enough for a thousand workers to have nearly equal shares, few enough to be dealt out in a
millisecond."""


@dataclass(frozen=True)
class Share:
    """Blocks that one worker takes of a pass, as runs `first .. stop`."""

    worker: str
    runs: tuple[range, ...]

    @property
    def n_blocks(self) -> int:
        return sum(map(len, self.runs))


def unit_blocks(n_blocks: int) -> int:
    """Blocks of a unit."""
    return 1 << max(0, (-(-n_blocks // MOST_UNITS) - 1).bit_length())


class Placement:
    """Remembers where the units of each source were read last."""

    def __init__(self) -> None:
        self._owners: dict[str, Integers] = {}
        self._number: dict[str, int] = {}
        """Of each worker there was, what stands for it in the owners of units."""

    def shares(
        self, key: str, n_blocks: int, numbers: Sequence[int] | Integers, threads: Mapping[str, int]
    ) -> list[Share]:
        """Deal the blocks `numbers`, ascending, out to the workers with so many threads each.

        Only passes over all blocks of a source say where its units are from then on; nobody remembers those of the
        source "".
        """
        blocks = np.asarray(numbers, dtype=np.int64)
        unit_of_block = blocks // unit_blocks(n_blocks)
        first = np.flatnonzero(np.diff(unit_of_block, prepend=-1))
        units, edges = unit_of_block[first], [*first.tolist(), len(blocks)]
        owners = self._owners.get(key)
        before = np.full(len(units), -1, dtype=np.int64) if owners is None else owners[units]
        whole = len(blocks) == n_blocks
        places = _deal(self._places(before, threads), np.array(list(threads.values())), whole)
        workers = list(threads)
        if key and whole:
            self._owners[key] = np.array([self._number_of(worker) for worker in workers])[places]
        return [
            Share(workers[place], tuple(run for part in parts for run in runs_of(blocks[part])))
            for place in np.unique(places).tolist()
            if (parts := [slice(edges[run.start], edges[run.stop]) for run in runs_of(np.flatnonzero(places == place))])
        ]

    def ran(self, key: str, n_blocks: int, share: Share, worker: str) -> None:
        """Say that another worker than it was dealt to took a share of a pass over all blocks."""
        owners = self._owners.get(key)
        if owners is not None and worker != share.worker:
            units = [np.arange(run.start, run.stop) // unit_blocks(n_blocks) for run in share.runs]
            owners[np.concatenate(units)] = self._number_of(worker)

    def forget(self, key: str) -> None:
        self._owners.pop(key, None)

    def _number_of(self, worker: str) -> int:
        return self._number.setdefault(worker, len(self._number))

    def _places(self, owners: Integers, threads: Mapping[str, int]) -> Integers:
        """Where in `threads` the owners are, -1 where they are not there any more."""
        place_of = np.full(len(self._number) + 1, -1, dtype=np.int64)  # the last one is that of no owner
        for place, worker in enumerate(threads):
            if worker in self._number:
                place_of[self._number[worker]] = place
        return place_of[owners]


def _deal(before: Integers, threads: Integers, whole: bool) -> Integers:
    """A place for each unit, given that before (-1 for none), and the threads at each place.

    Of some units only, a place may keep what its share is when it is rounded up.
    """
    shares = len(before) * threads / threads.sum()
    room = np.diff(np.rint(np.cumsum(shares)).astype(np.int64), prepend=0)
    places = before.copy()
    for place, most in enumerate((room if whole else np.ceil(shares).astype(np.int64)).tolist()):
        places[np.flatnonzero(before == place)[most:]] = -1
    kept = np.bincount(places[places >= 0], minlength=len(threads))
    left = np.flatnonzero(places == -1)
    places[left] = np.repeat(np.arange(len(threads)), np.maximum(room - kept, 0))[: len(left)]
    return places


def runs_of(numbers: Integers) -> tuple[range, ...]:
    """Ascending numbers as runs of successive ones."""
    breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
    firsts = np.concatenate([[0], breaks])
    lasts = np.concatenate([breaks, [len(numbers)]]) - 1
    return tuple(
        range(first, last + 1) for first, last in zip(numbers[firsts].tolist(), numbers[lasts].tolist(), strict=True)
    )
