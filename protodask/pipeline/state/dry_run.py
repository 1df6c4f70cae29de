"""What a run of a pipeline would do, and what it would cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from protodask.data.places.locations import locate
from protodask.errors import ProtodaskError
from protodask.pipeline.file.definition import Pipeline
from protodask.pipeline.file.places import holds, inputs
from protodask.pipeline.state.records import State
from protodask.pipeline.state.runner import WHOLE, Part
from protodask.pipeline.state.staleness import Planned, look, planned
from protodask.pipeline.steps.fit import FitStep
from protodask.pipeline.telling.events import StepIdentity

if TYPE_CHECKING:
    from protodask.prototypes.planning import Plan

Verdict = Literal["to do", "depends", "fresh", "refused", "left out"]
"""A step has something to do; it may have, after what is done before it; it has nothing to do; it is a gate that has
said no; it is not looked at, as a gate's no is before it or only others are asked for.
"""


@dataclass(frozen=True)
class Cost:
    """What a step costs. What is not known is None."""

    seconds: float | None = None
    source: Literal["last time", "estimate"] | None = None
    memory_bytes: int | None = None
    """Of this process, or of the largest worker process."""
    read_bytes: int | None = None


@dataclass(frozen=True)
class StepPlan:
    """What would become of a step."""

    step: StepIdentity
    verdict: Verdict
    why: str
    cost: Cost

    def describe(self) -> dict[str, Any]:
        """Plain values, for files."""
        return {
            **self.step.describe(),
            "verdict": self.verdict,
            "why": self.why,
            "seconds": self.cost.seconds,
            "seconds_from": self.cost.source,
            "memory_bytes": self.cost.memory_bytes,
            "read_bytes": self.cost.read_bytes,
        }


Estimate = Callable[[FitStep], "Plan"]


def dry_run(pipeline: Pipeline, part: Part = WHOLE, estimate: Estimate | None = None) -> tuple[StepPlan, ...]:
    """What a run would do with each step, nothing being done; `estimate` plans a fit whose data are there."""
    state = State(locate(pipeline.state_folder), pipeline.path)
    found: list[StepPlan] = []
    changing: list[Planned] = []
    ended = False
    for plan in planned(pipeline):
        step = plan.identity
        if ended or not part.has(plan.number):
            found.append(StepPlan(step, "left out", "a gate said no" if ended else "it was not asked for", Cost()))
            continue
        verdict, why = _verdict(plan, changing, state, part)
        cost = Cost()
        if verdict in ("to do", "depends"):
            changing.append(plan)
            cost = _cost(plan, verdict, state, estimate)
        ended = verdict == "refused"
        found.append(StepPlan(step, verdict, why, cost))
    return tuple(found)


def _verdict(plan: Planned, changing: list[Planned], state: State, part: Part) -> tuple[Verdict, str]:
    places = (*inputs(plan.step), *(plan.writes if plan.grows else ()))
    before = [other.name for other in changing if any(holds(out, place) for out in other.writes for place in places)]
    if part.forced:
        return "to do", "it was asked for"
    try:
        found = look(plan, state)
    except ProtodaskError as error:
        return ("depends", f"after {before[0]}") if before else ("to do", error.seen)
    if found.why is not None:
        return "to do", found.why
    if before:
        return "depends", f"after {before[0]}"
    if found.record is not None and found.record.refused:
        return "refused", " ".join(found.record.refused)
    return "fresh", ""


def _cost(plan: Planned, verdict: Verdict, state: State, estimate: Estimate | None) -> Cost:
    record = state.record(plan.record)
    last = Cost() if record is None else Cost(record.seconds, "last time")
    if estimate is None or verdict != "to do" or not isinstance(plan.step, FitStep):
        return last
    try:
        fit = estimate(plan.step)
    except ProtodaskError:  # its data are not there yet, or are not what they should be: the run will say so
        return last
    cost = replace(last, memory_bytes=fit.worker.total, read_bytes=fit.batch_bytes * fit.shape.n_rounds)
    if fit.seconds is None:
        return cost
    return replace(cost, seconds=fit.seconds.batch * fit.shape.n_rounds, source="estimate")
