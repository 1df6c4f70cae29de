"""How far a search is, in words."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from protodask.pipeline.telling.wording import describe_seconds

if TYPE_CHECKING:
    from protodask.pipeline.work.tuning import SearchStarted
    from protodask.selection.search import FoldStep, SearchEvent, SettingDone
    from protodask.selection.space import Setting

MOST_LOSSES = 12
"""Of one setting in a log line."""


def describe_start(event: SearchStarted) -> str:
    """What a search is about to do, in one line."""
    together = "" if event.group is None else f"; rows of the same {event.group!r} stay together"
    return (
        f"{event.strategy} search: {event.n_settings} settings with {event.n_folds} folds each, "
        f"{event.n_settings * event.n_folds} fits{together}"
    )


def describe_setting(setting: Setting) -> str:
    """The penalties of a setting."""
    return f"lambda_v {setting.lambda_v:.3g}  lambda_w {setting.lambda_w:.3g}"


def describe_step(event: FoldStep) -> str:
    """A batch of one fit, in one line."""
    return f"{describe_setting(event.setting)}  fold {event.fold + 1}  batch {event.n_batches}  loss {event.loss:.5g}"


def describe_done(event: SettingDone, stage: int) -> str:
    """How a setting did, in one line."""
    losses = event.losses if len(event.losses) <= MOST_LOSSES else event.losses[:MOST_LOSSES]
    more = "" if len(losses) == len(event.losses) else " ..."
    return (
        f"{_stage(stage)}setting {event.done} of {event.of}  {describe_setting(event.setting)}  "
        f"batches 0 to {len(event.losses) - 1}  held-out log-loss {' '.join(f'{loss:.4f}' for loss in losses)}{more}"
    )


def _stage(stage: int) -> str:
    return "" if stage == 1 else f"stage {stage}  "


class SearchTally:
    """Adds up what is heard of a search."""

    def __init__(self, started: SearchStarted, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._started = started
        self._done, self._of = 0, started.n_settings
        self._batches = 0
        self._losses: dict[tuple[Setting, int], list[float]] = {}
        """Of the folds, of settings that are at work."""
        self._best = math.inf
        self._best_of: tuple[Setting, int] | None = None
        self.stage = 1

    def hear(self, event: SearchEvent) -> None:
        """Take an event into account."""
        from protodask.selection.search import FoldStep

        if self._done == self._of:  # all settings of the first stage are done: this is the one of the second
            self.stage, self._done, self._of = 2, 0, 1
        if isinstance(event, FoldStep):
            self._batches += 1
            self._step(event)
        else:
            self._done, self._of = event.done, event.of
            for place in [place for place in self._losses if place[0] == event.setting]:
                del self._losses[place]

    def _step(self, event: FoldStep) -> None:
        place = (event.setting, event.n_batches)
        losses = self._losses.setdefault(place, [])
        losses.append(event.loss)
        if len(losses) == self._started.n_folds:
            mean = math.fsum(losses) / len(losses)
            if mean < self._best:
                self._best, self._best_of = mean, place

    def describe(self) -> str:
        """Where the search is, in one line; what matters least stands last, where a narrow terminal cuts it off."""
        parts = [
            describe_seconds(self._clock() - self._began),
            f"{_stage(self.stage)}settings {self._done} of {self._of}",
            f"batches {self._batches}",
        ]
        if self._best_of is not None:
            setting, n_batches = self._best_of
            pair = "" if self._started.strategy == "joint" else f", lambda_w {setting.lambda_w:.2g}"
            many = "1 batch" if n_batches == 1 else f"{n_batches} batches"
            parts.append(f"best {self._best:.4f} ({many}, lambda_v {setting.lambda_v:.2g}{pair})")
        return "  ".join(parts)
