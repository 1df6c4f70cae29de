"""Map functions, merges, sources and sinks for the engine's tests, in a module that worker processes can import.

A worker process gets the import path of the process that started it. Test modules are not on it, this package is.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from distributed import get_client, worker_client
from numpy.typing import NDArray

from protodask.engine import Arrays, Block, Layout, Reduction, array_source, identity, open_engine
from protodask.errors import InputError

Floats = NDArray[np.float64]

NANNY_SECONDS = 1.0
"""A nanny whose worker dies while it starts, which is when it gets its first task, does not start another one."""


@dataclass(frozen=True)
class NoiseSource:
    """A source in no process's memory: each block is drawn anew from its number when it is read.

    With a `log` directory every read leaves a file there, so that reads can be counted across processes.
    """

    layout: Layout
    key: str
    name: str = "noise"
    log: Path | None = None

    @property
    def resident(self) -> bool:
        return False

    def read(self, number: int) -> Block:
        start, stop = self.layout.bounds(number)
        if self.log is not None:
            (self.log / f"{number}-{os.getpid()}-{os.urandom(8).hex()}").touch()
        rng = np.random.default_rng(number)
        # Sums of such values depend on their order in nearly every bit.
        values = rng.normal(size=stop - start) * 10.0 ** rng.integers(-8, 9, stop - start)
        return Block(number, start, {self.name: values})


@dataclass(frozen=True)
class FileSink:
    """Writes a file for each block."""

    directory: Path

    def write(self, number: int, start: int, arrays: Arrays) -> None:
        for name, values in arrays.items():
            np.save(self.directory / f"{number}-{start}-{name}.npy", values)


def sum_values(block: Block, name: str) -> float:
    return float(block[name].sum())


def sum_beside(block: Block, name: str, beside: object) -> float:
    return sum_values(block, name)


def sum_products(block: Block, left: str, right: str, factor: float) -> Floats:
    # Summed block by block: BLAS, and a different rounding for each length.
    return np.array([factor * float(block[left] @ block[right]), float(block[left].sum())])


def sum_looked_up(block: Block, table: Floats) -> float:
    """Sum over the rows of the table's entries for them."""
    return float(table[block.rows % len(table)].sum())


def add(left: Any, right: Any) -> Any:
    return left + right


def halve(total: float) -> float:
    return total / 2


def double_values(block: Block, name: str) -> dict[str, Floats]:
    return {"doubled": 2 * block[name], "rows": block.rows.astype(np.float64)}


def refuse_block(block: Block, number: int) -> float:
    if block.number == number:
        raise InputError("bad-value", f"Block {number} holds a missing value.", "Remove the row.")
    return 0.0


def refuse_block_slowly(block: Block, number: int, seconds: float) -> float:
    time.sleep(seconds)
    return refuse_block(block, number)


def kill_worker(block: Block, notes: Path) -> float:
    (notes / str(os.getpid())).touch()
    time.sleep(NANNY_SECONDS)
    os._exit(1)


def kill_worker_twice(block: Block, name: str, notes: Path) -> float:
    if len(list(notes.iterdir())) < 2:
        kill_worker(block, notes)
    return sum_values(block, name)


def sum_slowly(block: Block, name: str, seconds: float) -> float:
    time.sleep(seconds)
    return sum_values(block, name)


def fill_memory(block: Block, n_bytes: int) -> float:
    held = np.ones(n_bytes // 8)
    time.sleep(30)  # until whoever watches over the memory has seen it
    return float(held.sum())


def describe_process(block: Block) -> frozenset[int]:
    return frozenset([os.getpid()])


def square_table(table: Floats) -> tuple[Floats]:
    return (table**2,)


SUM: Reduction[float, float] = Reduction(sum_values, add, identity)
SUM_BESIDE: Reduction[float, float] = Reduction(sum_beside, add, identity)
HALF_SUM: Reduction[float, float] = Reduction(sum_values, add, halve)
PRODUCTS: Reduction[Floats, Floats] = Reduction(sum_products, add, identity)
LOOKUP: Reduction[float, float] = Reduction(sum_looked_up, add, identity)
SQUARED_LOOKUP: Reduction[float, float] = Reduction(sum_looked_up, add, identity, square_table)
REFUSE: Reduction[float, float] = Reduction(refuse_block, add, identity)
REFUSE_SLOWLY: Reduction[float, float] = Reduction(refuse_block_slowly, add, identity)
FILL: Reduction[float, float] = Reduction(fill_memory, add, identity)
KILL: Reduction[float, float] = Reduction(kill_worker, add, identity)
SLOW_SUM: Reduction[float, float] = Reduction(sum_slowly, add, identity)
KILL_TWICE: Reduction[float, float] = Reduction(kill_worker_twice, add, identity)
PROCESSES: Reduction[frozenset[int], frozenset[int]] = Reduction(describe_process, frozenset.union, identity)


def reduce_in_task(address: str | None) -> float:
    """A pass of a task on the cluster that runs it: by its scheduler's address, else with the client of the worker."""
    with open_engine(get_client() if address is None else address) as engine:
        return engine.reduce(array_source({"x": np.arange(100.0)}, 16), SUM, "x")


def reduce_beside_tasks(address: str) -> float:
    """The same of a task that gave up its thread before."""
    with worker_client():
        return reduce_in_task(address)
