"""Runs of pipelines: what happens, what came of it, and what would be done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from protodask.pipeline.telling.events import (
    GateRefused,
    RunEnded,
    RunEvent,
    Said,
    StepFailed,
    StepFresh,
    StepIdentity,
    StepStarted,
)
from protodask.pipeline.telling.result import Piece, Table
from protodask.pipeline.telling.wording import count, describe_seconds, size

if TYPE_CHECKING:
    from protodask.pipeline.state.dry_run import Cost, StepPlan


def describe_event(event: RunEvent, steps: int) -> Iterator[str]:
    """Lines on what happens in a run of so many steps."""
    match event:
        case StepFresh():
            yield f"{_step(event.step, steps)} is up to date{_left(event.waiting or 0)}"
        case StepStarted():
            yield f"step {event.step.number} of {steps}: {event.what} ({event.why})"
        case StepFailed() if event.result is not None:
            yield f"{_step(event.step, steps)} failed for some files; the steps after it go on"
        case GateRefused():
            again = "still says no" if event.repeated else "says no"
            yield f"{_step(event.step, steps)} {again}: {' '.join(event.reasons)}"
        case Said(level="error"):
            return  # people are told of errors by themselves
        case Said():
            yield f"{'Warning: ' if event.level == 'warning' else ''}{event.text}"


def _left(waiting: int) -> str:
    """What is said of files that wait."""
    return f"; {count(waiting, 'file')} changed a moment ago: left for the next run" if waiting else ""


def _step(step: StepIdentity, steps: int) -> str:
    return f"step {step.number} of {steps}: {step.kind if step.name.startswith(step.kind) else step.name}"


def told_run(outcome: RunEnded) -> Iterator[Piece]:
    """What the steps left behind: places first, then what it amounts to."""
    made = [entry.made for entry in outcome.steps if entry.made is not None]
    yield from (place for result in made if (place := result.place()) is not None)
    for result in made:
        if (judgement := result.judgement()) is not None:
            yield ""
            yield judgement
    match outcome.status:
        case "fresh":
            files, steps = sum(entry.waiting or 0 for entry in outcome.steps), [entry.status for entry in outcome.steps]
            idle = steps.count("waits")
            rest = f" {count(idle, 'step')} will have work when something new has come." if idle else ""
            yield f"There is nothing to do: everything is up to date{_left(files)}.{rest}"
        case "left":
            yield "Another run is under way; this one leaves it to that."
        case "stopped":
            yield f"The run ends here: {' '.join(outcome.reasons)}"
        case "refused":
            yield f"A gate said no: {' '.join(outcome.reasons)}"


def told_dry_run(plans: Sequence[StepPlan]) -> Iterator[Piece]:
    """What a run would do."""
    rows = [[str(plan.step.number), plan.step.name, plan.verdict, _cost(plan.cost), plan.why] for plan in plans]
    yield Table(["", "step", "verdict", "cost", "why"], rows, whole=True)


def _cost(cost: Cost) -> str:
    parts = []
    if cost.seconds is not None:
        about = "about " if cost.source == "estimate" else ""
        parts.append(f"{about}{describe_seconds(cost.seconds)}{' last time' if cost.source == 'last time' else ''}")
    if cost.memory_bytes is not None:
        parts.append(f"{size(cost.memory_bytes)} of memory")
    if cost.read_bytes:
        parts.append(f"reads {size(cost.read_bytes)}")
    return ", ".join(parts) or "-"
