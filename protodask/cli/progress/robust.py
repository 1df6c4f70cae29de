"""How far a robust fit is, in words."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from protodask.pipeline.telling.wording import describe_seconds

if TYPE_CHECKING:
    from protodask.robust.training import PlanePass


class RobustTally:
    """Where a fit of planes is, from what is heard of it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self.plane = 0
        self._text = ""

    def hear(self, event: PlanePass) -> None:
        """Take a pass into account."""
        self.plane = event.plane
        plane = f"plane {event.plane} of {event.n_planes}  " if event.n_planes > 1 else ""
        done = event.done
        self._text = f"{plane}pass {done.number}  objective {done.best:.6g}  gap {done.gap:.2g}"

    def describe(self) -> str:
        """Where the fit is, in one line."""
        return f"{self._text}  {describe_seconds(self._clock() - self._began)}"


def begins(event: PlanePass) -> bool:
    """Whether a fit begins here, of several in a pipeline."""
    return (event.plane, event.done.number) == (1, 1)
