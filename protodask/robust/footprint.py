"""What training planes holds in memory, as arithmetic on shapes: how many are trained side by side, if any.

A pass brings the answers of all planes at work, several at a time in a process; the driver has a program for each.
Neither data nor measurements are looked at. `D` features, `N` samples.
"""

from __future__ import annotations

import numpy as np

from protodask.engine import Engine, Layout
from protodask.engine.costs import Memory, Part, holding_parts, partials_alive
from protodask.engine.memory import INTERPRETER_BYTES
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
MIB = 2**20


def planes_at_once(form: TermsForm, n_planes: int, layout: Layout, engine: Engine) -> int:
    """How many planes are trained side by side: all, or as many as memory allows. Where not even one fits, an error."""
    processes, n_features = engine.scheduler.processes(), form.n_features
    block_rows = min(layout.block_rows, layout.n_rows)
    widest = max(np.dtype(spec.dtype).itemsize * (spec.width or 1) for spec in form.specs)
    tile = TILE_ARRAYS * min(tile_rows(n_features), block_rows) * n_features * DOUBLE
    rows = MOST_CUTS + LINES * near_samples(n_features)
    program = Part("the driver's program", ENTRY_BYTES * rows * 2 * n_features + DOUBLE * rows * rows)
    answer = DOUBLE * answer_length(near_samples(n_features), n_features)
    answers = Part("answers of a pass", answer * partials_alive(processes, layout.n_blocks))
    there = (
        *holding_parts(processes, form.row_bytes * block_rows, widest * block_rows, form.row_bytes * layout.n_rows),
        Part("rows at work", tile * processes.threads),
    )
    if processes.kind == "threads":
        return _room(there, (program, answers), processes.usable_bytes, n_planes)
    in_driver = _room(
        (Part("Python and its libraries", INTERPRETER_BYTES),), (program, answers), processes.driver_bytes, n_planes
    )
    return min(in_driver, _room(there, (answers,), processes.usable_bytes, n_planes))


def _room(fixed: tuple[Part, ...], each: tuple[Part, ...], limit: int, n_planes: int) -> int:
    """How many times what `each` plane holds fits beside what is `fixed`."""
    needed = Memory((*fixed, *each))
    if needed.total > limit:
        largest = sorted(needed.parts, key=lambda part: -part.bytes)[:3]
        shares = ", ".join(f"{part.bytes // MIB:,} MiB for {part.name}" for part in largest)
        raise InputError(
            "over-memory",
            f"Training a plane needs up to {-(-needed.total // MIB):,} MiB in a process, and {limit // MIB:,} MiB are "
            f"left to it ({shares}).",
            "Raise the memory limit (--memory-limit), take fewer threads (--threads), or drop features.",
        )
    return min(n_planes, 1 + (limit - needed.total) // Memory(each).total)
