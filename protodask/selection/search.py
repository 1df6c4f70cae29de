"""The search itself: a fit for every setting and fold, all of them advancing together.

The folds of a setting go on batch by batch, and stop where their mean held-out log-loss no longer falls: so a setting
costs as many batches as it is worth. Every number of batches on the way is scored on the unscaled probabilities that
training keeps in any case, which computes each batch for each held-out row once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protodask.engine import Engine
from protodask.engine.together import Company, Job, run_together
from protodask.prototypes.config import FitConfig
from protodask.prototypes.history import BatchRecord
from protodask.prototypes.runs import NO_LOG, RunLog
from protodask.prototypes.scores import ScoreKeeper
from protodask.prototypes.training import Step, Training, first_model
from protodask.selection.holdout import HELD_OUT_LOSS, FoldData
from protodask.selection.space import Setting

LOSS = "held-out"
"""Name under which a fit's log keeps the loss after a batch."""


@dataclass(frozen=True)
class FoldStep:
    """One fit of the search came by a batch."""

    setting: Setting
    fold: int
    n_batches: int
    loss: float
    """Held-out log-loss, in nats."""
    record: BatchRecord


@dataclass(frozen=True)
class SettingDone:
    """All folds of a setting came to an end."""

    setting: Setting
    losses: tuple[float, ...]
    """Mean held-out log-loss by number of batches, from 0."""
    done: int
    of: int
    """Settings of this stage that are done, and all of them."""


SearchEvent = FoldStep | SettingDone
Listener = Callable[[SearchEvent], None]


@dataclass(frozen=True)
class Limits:
    """How far a setting goes."""

    max_batches: int
    patience: int
    """Batches in a row that may fail to lower the mean held-out log-loss before a setting ends."""
    least_gain: float
    """What counts as lowering it, in standard errors of the mean."""


@dataclass(frozen=True)
class Place:
    """Where fits keep what they need between batches, and what they have computed."""

    scores: Callable[[str], ScoreKeeper]
    """A keeper for the fit of this name."""
    log: Callable[[str, Setting, int], RunLog]
    """The log of the fit of this name, setting and fold."""


class _Fit:
    """A fit of one setting that holds one fold out, as far as it has come."""

    def __init__(self, setting: Setting, part: FoldData, config: FitConfig, place: Place) -> None:
        self.setting = setting
        self.losses = [part.marginal_loss]
        self.record: BatchRecord | None = None
        self.fold = part.fold
        self._part = part
        self._config = setting.of(config)
        self._place = place
        self._log = NO_LOG
        self._steps: Generator[Step, None, None] | None = None

    def add_batch(self, engine: Engine) -> _Fit:
        """Train one more round and score the fold with it."""
        if self._steps is None:
            name = fit_name(self.setting, self.fold)
            self._log = self._place.log(name, self.setting, self.fold)
            training = Training(self._part.data, self._config, engine, self._place.scores(name), log=self._log)
            self._steps = training.steps(first_model(self._part.data, self._config))
        step = next(self._steps)
        self.record, model = step.record, step.model

        def compute() -> dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]:
            found = engine.reduce(
                step.source, HELD_OUT_LOSS, model.last_round, model.marginals, model.precision, label="hold out"
            )
            return {LOSS: np.array([found.mean])}

        self.losses.append(float(self._log.arrays(model.n_rounds, LOSS, compute)[LOSS][0]))
        return self

    def end(self) -> None:
        """Let go of what the next batch would have needed."""
        if self._steps is not None:
            self._steps.close()


def run_search(
    engine: Engine,
    parts: Sequence[FoldData],
    settings: Sequence[Setting],
    config: FitConfig,
    limits: Limits,
    place: Place,
    *,
    company: Company,
    most: int,
    listen: Listener | None = None,
) -> list[list[tuple[float, ...]]]:
    """Losses of every setting: for each number of batches it was tried with, from 0, those of the folds.

    `most` fits advance at a time. The numbers are those that each fit would have alone, whatever `company` and `most`.
    """
    wanted = config.with_batches(limits.max_batches)  # asked for one by one
    fits = [[_Fit(setting, part, wanted, place) for part in parts] for setting in settings]
    setting_of = {id(fit): number for number, folds in enumerate(fits) for fit in folds}
    open_folds = [len(parts)] * len(settings)
    ended = 0

    def done(fit: _Fit) -> Iterable[Job[_Fit]]:
        nonlocal ended
        number = setting_of[id(fit)]
        folds = fits[number]
        if listen is not None and fit.record is not None:
            listen(FoldStep(fit.setting, fit.fold, len(fit.losses) - 1, fit.losses[-1], fit.record))
        open_folds[number] -= 1
        if open_folds[number]:
            return []
        losses = np.array([one.losses for one in folds])
        if goes_on(losses, limits):
            open_folds[number] = len(parts)
            return [one.add_batch for one in folds]
        for one in folds:
            one.end()
        ended += 1
        if listen is not None:
            listen(SettingDone(fit.setting, tuple(losses.mean(axis=0).tolist()), ended, len(settings)))
        return []

    if limits.max_batches > 0:
        jobs = [fit.add_batch for folds in fits for fit in folds]
        try:
            run_together(engine, jobs, done, company=company, most=most)
        finally:
            for folds in fits:
                for fit in folds:
                    fit.end()
    return [list(zip(*(fit.losses for fit in folds), strict=True)) for folds in fits]


def fit_name(setting: Setting, fold: int) -> str:
    """Name of a fit's folder, from which its settings can be read to the last bit."""
    return f"{setting.lambda_v.hex()}-{setting.lambda_w.hex()}-fold-{fold}"


def goes_on(losses: NDArray[np.float64], limits: Limits) -> bool:
    """Whether another batch is worth a try, after the losses by fold and number of batches (F, B + 1)."""
    n_folds, n_counts = len(losses), len(losses[0])
    if n_counts > limits.max_batches:
        return False
    means = losses.mean(axis=0).tolist()
    noise = (losses.std(axis=0, ddof=1) / n_folds**0.5).tolist() if n_folds > 1 else [0.0] * n_counts
    best = 0
    for count in range(1, n_counts):
        if means[count] < means[best] - limits.least_gain * noise[count]:
            best = count
    return n_counts - 1 - best < limits.patience
