"""`protodask plan`: what a fit will cost, before it is done."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from protodask.cli.console import Answer, Part, apart
from protodask.cli.errors import ANSWER_IS_NO, wrong_use
from protodask.cli.grouping import grouped
from protodask.cli.options import Computing, computing_engine
from protodask.errors import count
from protodask.pipeline.file.values import as_options
from protodask.pipeline.steps.base import Option
from protodask.pipeline.steps.fit import Data, Start
from protodask.pipeline.steps.training import Config, FitSettings
from protodask.pipeline.telling.result import Pairs, Table, describe_seconds, shorten, size

if TYPE_CHECKING:
    from protodask.engine.costs import Memory
    from protodask.engine.scheduling import Processes
    from protodask.prototypes.footprint import Shape
    from protodask.prototypes.planning import Plan

app = typer.Typer(add_completion=False)


@dataclass(frozen=True, kw_only=True)
class PlannedFit(FitSettings):
    """What counts for the costs of a fit besides its data."""

    config: Config = None
    start: Start = None


@app.command("plan")
@grouped
def plan(
    data: Data,
    *,
    training: PlannedFit,
    calibrate: Annotated[
        bool, Option("Measure for a second or two, to say how long it takes.", flag="--calibrate/--no-calibrate")
    ] = True,
    computing: Computing,
) -> Answer:
    """Say what a fit with the same options will cost in memory, reading and time, and whether it fits.

    Exit code 3 says that it does not.
    """
    from protodask.data import Dataset
    from protodask.pipeline.work.settings import fit_config
    from protodask.prototypes.model import load_model
    from protodask.prototypes.planning import plan as plan_fit

    with wrong_use():
        settings = fit_config(training)
    model = None if training.start is None else load_model(training.start)
    dataset = Dataset.open(data)
    with computing_engine(computing) as (engine, _):
        found = plan_fit(dataset, settings, engine, calibrate=calibrate, start=model)
    remedies = [replace(remedy, text=as_options(remedy.text)) for remedy in found.remedies]
    found = replace(found, remedies=tuple(remedies))
    return Answer(found.describe, apart(_told(found, data)), 0 if found.fits else ANSWER_IS_NO)


def _told(found: Plan, data: str) -> Iterator[Part]:
    shape, processes = found.shape, found.processes
    here = processes.kind == "threads"
    where = "this process" if here else count(processes.count, "worker process", "worker processes")
    blocks = count(shape.layout.n_blocks, "block")
    yield Pairs(
        [
            ("dataset", f"{shorten(data)}: {shape.n_rows:,} rows, {count(shape.row_features, 'feature')}, {blocks}"),
            ("training", _training(shape)),
            ("computing", f"{where} with {_threads(processes)}, memory limit {size(processes.memory_bytes)}"),
        ]
    )
    yield _memory("memory of this process, MiB" if here else "memory of a worker process, MiB", found.worker)
    if not here:
        yield _memory("memory of this process, MiB", found.driver)
    yield Pairs(
        [
            ("tasks", f"{found.tasks} for each evaluation"),
            ("reads", f"{size(found.first_evaluation_bytes)} in the first pass, {size(found.evaluation_bytes)} in each "
                      f"evaluation after it, {size(found.batch_bytes)} for each round"),
            *_seconds(found),
        ]
    )  # fmt: skip
    if found.fits:
        yield "It fits."
    else:
        yield ["It does not fit. One of these would do:", *(f"- {remedy.text}" for remedy in found.remedies)]


def _training(shape: Shape) -> str:
    """Its rounds, and the batches of the model where a round is several."""
    batches, candidates = count(shape.n_batches, "batch", "batches"), count(shape.n_candidates, "candidate")
    if shape.grows:
        candidates += f" (up to {shape.grown_candidates} where more tell classes apart)"
    if shape.most_batches > shape.n_batches:
        batches += f" (up to {shape.most_batches} where rules decide)"
    if shape.n_batches == shape.n_rounds:
        return f"{batches} of {candidates}, {shape.precision}"
    return f"{batches}, trained in {count(shape.n_rounds, 'round')} of {candidates}, {shape.precision}"


def _threads(processes: Processes) -> str:
    """Those of a process, and whether this machine has processors that they leave alone."""
    from protodask.engine.threads import MOST_THREADS, available_threads

    threads, available = count(processes.threads, "thread"), available_threads()
    if processes.kind == "workers" or not MOST_THREADS <= processes.threads < available:
        return threads
    return f"{threads} of {available} processors (--workers {available} uses all)"


def _seconds(found: Plan) -> list[tuple[str, str]]:
    if found.seconds is None:
        return []
    seconds = found.seconds
    source = "the system's memory, not from the storage itself" if seconds.read_warm else "the storage"
    return [
        ("time", f"{seconds.evaluation:.3g} s for each evaluation; {describe_seconds(seconds.batch)} for each round, "
                 f"if it takes {found.evaluations} evaluations"),
        ("measured", f"{seconds.pair_nanoseconds:.3g} ns for each row and candidate, "
                     f"{size(int(seconds.read_bytes_per_second))}/s read from {source}, on each thread; it took "
                     f"{describe_seconds(seconds.calibration)}"),
    ]  # fmt: skip


def _memory(title: str, memory: Memory) -> Table:
    rows = [[part.name, f"{part.bytes / 2**20:,.1f}"] for part in memory.parts if part.bytes]
    return Table([title, ""], [*rows, ["in all, at most", f"{memory.total / 2**20:,.1f}"]], whole=True)
