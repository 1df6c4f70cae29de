"""What happens in a run of a pipeline, as it is told to whoever listens: logs, notifications, metrics, the terminal.

Light to import: what happens within a step has events of its own, and how they begin is here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:  # results take long to import, and a run without work has none
    from protodask.errors import ProtodaskError
    from protodask.pipeline.telling.result import Result

Status = Literal["done", "fresh", "failed", "refused", "stopped", "left", "interrupted"]
"""How a run ended: with work done; with nothing to do; with an error; by a gate that said no, where that is a failure
("refused") or where it is the end of this run ("stopped"); without a start, as another run was under way; by a signal.
"""

SUCCESSES: tuple[Status, ...] = ("done", "fresh", "stopped")

Done = Literal["done", "fresh", "failed", "interrupted", "waits", "left out", "not looked at"]
"""What became of a step: it was done, it was fresh, it failed, for some of its files or all, it was ended from outside,
it waits for something that has not come yet, a gate's no came before it, or only others were asked for.
"""

Level = Literal["info", "warning", "error"]


@dataclass(frozen=True)
class StepIdentity:
    """Which step it is: its number in the file, from 1, its own name (that of its kind and number if it has none), and
    its kind, such as "fit".
    """

    number: int
    name: str
    kind: str

    def describe(self) -> dict[str, Any]:
        """Plain values, for files."""
        return {"number": self.number, "name": self.name, "step": self.kind}


@dataclass(frozen=True)
class RunStarted:
    """A run has begun."""

    pipeline: str
    """Path of the file."""
    run: str
    """Name of this run, different for each."""
    time: datetime
    steps: int


@dataclass(frozen=True)
class StepFresh:
    """A step has nothing to do: what it would make is there."""

    step: StepIdentity
    waiting: int | None = None
    """Of a step that takes what is new: files that changed a moment ago, and are left for the next run."""


@dataclass(frozen=True)
class StepStarted:
    """A step has begun."""

    step: StepIdentity
    what: str
    """What it does, in a few words."""
    why: str
    """What made it stale, in a few words."""


@dataclass(frozen=True)
class StepDone:
    """A step has come to its end."""

    step: StepIdentity
    seconds: float
    result: Result


@dataclass(frozen=True)
class StepFailed:
    """A step ended with an error."""

    step: StepIdentity
    seconds: float
    error: ProtodaskError
    result: Result | None = None
    """What it left behind nevertheless, such as the files that it scored besides those that it could not."""


@dataclass(frozen=True)
class GateRefused:
    """A gate said no. `repeated`: it did so in an earlier run, and nothing has changed since."""

    step: StepIdentity
    reasons: tuple[str, ...]
    stops: bool
    """Whether the run ends here without having failed."""
    repeated: bool = False


@dataclass(frozen=True)
class StepOutcome:
    """What became of a step."""

    step: StepIdentity
    status: Done
    result: Mapping[str, Any] | None = None
    """What it left behind, now or when it was done last, as plain values."""
    seconds: float | None = None
    """How long it took, now or, of one that is fresh, when it was done last."""
    made: Result | None = None
    """What it left behind now."""
    waiting: int | None = None
    """Of a step that takes what is new: files that changed a moment ago, and are left for the next run."""

    @property
    def looked_at(self) -> bool:
        """Whether this run has something to say of it."""
        return self.status in ("done", "fresh", "failed", "interrupted") or self.waiting is not None

    def describe(self) -> dict[str, Any]:
        """Plain values, for files."""
        return {
            **self.step.describe(),
            "status": self.status,
            "seconds": self.seconds,
            "result": self.result,
            "waiting": self.waiting or 0,
        }


@dataclass(frozen=True)
class Known:
    """What is known of a pipeline after a run: of what that did not look at, from those before."""

    succeeded: datetime | None = None
    """When the latest run ended that did not fail."""
    steps: tuple[StepOutcome, ...] = ()
    """What became of each step when a run looked at it last, with the result and the seconds of when it last left
    something behind.
    """

    def after(self, end: RunEnded, steps: Sequence[StepIdentity]) -> Known:
        """What is known after a run of a pipeline with these steps that ended so."""
        before = {(outcome.step.name, outcome.step.kind): outcome for outcome in self.steps}
        now = {outcome.step.name: outcome for outcome in end.steps if outcome.looked_at}
        known: list[StepOutcome] = []
        for step in steps:
            found = now.get(step.name)
            earlier = before.get((step.name, step.kind))
            if found is None:
                known += [] if earlier is None else [replace(earlier, step=step)]
                continue
            earlier = earlier or StepOutcome(found.step, found.status)
            leaves = found.result is not None and found.seconds is not None
            seconds = found.seconds if leaves else earlier.seconds
            result = earlier.result if found.result is None else found.result
            known.append(replace(found, result=result, seconds=seconds, made=None))
        return Known(end.time if end.status in SUCCESSES else self.succeeded, tuple(known))


@dataclass(frozen=True)
class RunEnded:
    """A run has ended, and how."""

    pipeline: str
    run: str
    time: datetime
    seconds: float
    status: Status
    message: str = ""
    """What went wrong, or why nothing was done."""
    code: str | None = None
    """The kind of what went wrong: the code of an error."""
    reasons: tuple[str, ...] = ()
    """Why a gate said no."""
    steps: tuple[StepOutcome, ...] = ()
    known: Known = Known()

    def describe(self) -> dict[str, Any]:
        """Plain values, for files."""
        return {
            "kind": "run",
            "status": self.status,
            "run": self.run,
            "seconds": self.seconds,
            "reasons": list(self.reasons),
            "message": self.message,
            "code": self.code,
            "steps": [outcome.describe() for outcome in self.steps],
        }


@dataclass(frozen=True)
class Said:
    """What belongs to no other event: how far things are, a warning, or an error of such a code."""

    text: str
    level: Level = "info"
    code: str | None = None


RunEvent = RunStarted | StepFresh | StepStarted | StepDone | StepFailed | GateRefused | RunEnded | Said
RunListener = Callable[[RunEvent], None]


@dataclass(frozen=True)
class SearchStarted:
    """What a search is about to do."""

    strategy: str
    n_settings: int
    """Of the first stage."""
    n_folds: int
    group: str | None
    """Column whose rows of one value stay in one fold."""


@dataclass(frozen=True)
class BudgetStarted:
    """What the building of a budget is about to do."""

    n_features: int
    n_folds: int
    most_fits: int | None
    group: str | None
    """Column whose rows of one value stay in one fold."""
    greedy: bool = False
    """Whether the sets are those that greedy sequences come by, and not all that may be needed."""


@dataclass(frozen=True)
class ComparisonStarted:
    """Another method than that of a budget is about to be carried out, on the same sets as far as they are known."""

    name: str


@dataclass(frozen=True)
class RobustStarted:
    """The planes of a robust fit are about to be trained."""


Listener = Callable[[object], None]
"""Hears what happens within a step: one of these events, or one of a training, a search, a budget or a robust fit."""


def nobody(event: object) -> None:
    """Hears nothing."""
