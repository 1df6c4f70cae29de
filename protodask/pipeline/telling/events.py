"""What happens in a run of a pipeline, as it is told to whoever listens: logs, notifications, metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:  # results take long to import, and a run without work has none
    from protodask.errors import ProtodaskError
    from protodask.pipeline.telling.result import Result

Status = Literal["done", "fresh", "failed", "refused", "stopped", "left", "interrupted"]
"""How a run ended: with work done; with nothing to do; with an error; by a gate that said no, where that is a failure
("refused") or where it is the end of this run ("stopped"); without a start, as another run was under way; by a signal.
"""


@dataclass(frozen=True)
class StepIdentity:
    """Which step it is: its number in the file, from 1, its own name (that of its kind and number if it has none), and
    its kind, such as "fit".
    """

    number: int
    name: str
    kind: str


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
    result: Mapping[str, Any] | None = None
    """What it left behind when it was done, as its result describes it; None where that is not known."""
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
class RunEnded:
    """A run has ended."""

    pipeline: str
    run: str
    time: datetime
    seconds: float
    status: Status
    message: str = ""
    """What went wrong, or why nothing was done."""
    code: str | None = None
    """The kind of what went wrong: the code of an error."""


RunEvent = RunStarted | StepFresh | StepStarted | StepDone | StepFailed | GateRefused | RunEnded
RunListener = Callable[[RunEvent], None]
