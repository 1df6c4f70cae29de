"""What training planes holds in memory, as arithmetic on shapes: how many are trained side by side, if any.

A pass brings the answers of all planes at work, several at a time in a process; the driver has a program for each.
Neither data nor measurements are looked at. `D` features, `N` samples.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace

from protodask.data.arrays.plain_arrays import MAX_CHUNK_BYTES
from protodask.engine import Engine, Layout
from protodask.engine.costs import Memory, Part, holding_parts, partials_alive
from protodask.engine.memory import INTERPRETER_BYTES, LARGEST_MEMORY, MIB, mebibytes
from protodask.engine.scheduling import Processes
from protodask.errors import InputError
from protodask.robust.bundle import near_samples
from protodask.robust.bundle_run import answer_length
from protodask.robust.kept_terms import TermsForm
from protodask.robust.minorants import MOST_CUTS
from protodask.robust.passes import tile_rows

TILE_ARRAYS = 18
"""Arrays of a tile's rows and features that are alive at a time while it is evaluated: 14.6 for M, 17.9 for SBMV-I."""

LINES = 4
"""Lines in the driver's program for each sample that a pass gives one by one: of the last passes and the center."""

ENTRY_BYTES = 64
"""Of the program, for each number of its rows: dense, sparse, in the solver and in what it factorises."""

DOUBLE = 8

Room = tuple[Memory, Memory, int]
"""What a process holds while one plane is trained, what of that each further plane adds, and what it may hold."""


def planes_at_once(form: TermsForm, n_planes: int, layout: Layout, engine: Engine) -> int:
    """How many planes are trained side by side: all, or as many as memory allows. Where not even one fits, an error."""
    processes = engine.scheduler.processes()
    most = n_planes
    for number, (needed, each, limit) in enumerate(_rooms(form, layout, processes)):
        if needed.total > limit:
            if number:
                more = f"Give this process, which drives the workers, {mebibytes(needed.total)} of memory"
            else:
                enough = _enough(form, layout, processes)
                more = f"Raise the memory limit (memory_bytes={enough * MIB}), take fewer threads (`threads`)"
            largest = sorted(needed.parts, key=lambda part: -part.bytes)[:3]
            shares = ", ".join(f"{part.bytes // MIB:,} MiB for {part.name}" for part in largest)
            raise InputError(
                "over-memory",
                f"Training a plane takes up to {mebibytes(needed.total)} in a process, and {limit // MIB:,} MiB "
                f"are left to it ({shares}).",
                f"{more}, or drop features.",
            )
        most = min(most, 1 + (limit - needed.total) // each.total)
    return most


def _enough(form: TermsForm, layout: Layout, processes: Processes) -> int:
    """The limit, in MiB, with which processes that run tasks can train a plane: with it grow the blocks they keep."""

    def fits(size: int) -> bool:
        needed, _, limit = next(_rooms(form, layout, replace(processes, memory_bytes=size * MIB)))
        return needed.total <= limit

    return bisect_left(range(LARGEST_MEMORY // MIB), True, lo=processes.memory_bytes // MIB, key=fits)


def _rooms(form: TermsForm, layout: Layout, processes: Processes) -> Iterator[Room]:
    """Of the processes that run tasks, and of the driver where that is another one."""
    n_features = form.n_features
    block_rows = min(layout.block_rows, layout.n_rows)
    block_bytes = form.row_bytes * block_rows
    tile = TILE_ARRAYS * min(tile_rows(n_features), block_rows) * n_features * DOUBLE
    rows = MOST_CUTS + LINES * near_samples(n_features)
    program = Part("the driver's program", ENTRY_BYTES * rows * 2 * n_features + DOUBLE * rows * rows)
    answer = DOUBLE * answer_length(near_samples(n_features), n_features)
    answers = Part("answers of a pass", answer * partials_alive(processes, layout.n_blocks))
    there = (
        *holding_parts(processes, block_bytes, min(MAX_CHUNK_BYTES, block_bytes), form.row_bytes * layout.n_rows),
        Part("rows at work", tile * processes.threads),
    )
    if processes.kind == "threads":
        yield _room(there, (program, answers), processes.usable_bytes)
        return
    yield _room(there, (answers,), processes.usable_bytes)
    yield _room((Part("Python and its libraries", INTERPRETER_BYTES),), (program, answers), processes.driver_bytes)


def _room(fixed: tuple[Part, ...], each: tuple[Part, ...], limit: int) -> Room:
    return Memory((*fixed, *each)), Memory(each), limit
