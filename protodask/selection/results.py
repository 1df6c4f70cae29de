"""What a search tried and which trial of it wins: a table that is saved with the model.

`F` folds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from protodask.data.places.records import Fields
from protodask.errors import InputError, count
from protodask.prototypes.model import PrototypeSet

Strategy = Literal["joint", "two-stage"]

SEARCH = "search"
"""Where the provenance of a model keeps the search that led to it."""


@dataclass(frozen=True)
class Trial:
    """One setting, scored on every fold: held-out log-loss, in nats."""

    stage: int
    """1, or 2 for the second stage of the two-stage strategy."""
    lambda_v: float
    lambda_w: float
    n_batches: int
    fold_losses: tuple[float, ...]

    @property
    def usable(self) -> bool:
        """Whether there is a finite loss for every fold."""
        return len(self.fold_losses) > 0 and all(math.isfinite(loss) for loss in self.fold_losses)

    @property
    def mean(self) -> float:
        """Mean of the folds, NaN if it is not usable."""
        if not self.usable:
            return math.nan
        return math.fsum(loss / len(self.fold_losses) for loss in self.fold_losses)

    @property
    def standard_error(self) -> float:
        """`sqrt(sum_f (l_f - mean)^2 / (F - 1) / F)`; 0 for a single fold, which tells nothing; NaN like `mean`."""
        if not self.usable:
            return math.nan
        folds, mean = len(self.fold_losses), self.mean
        return math.hypot(*(loss - mean for loss in self.fold_losses)) / math.sqrt(max(folds - 1, 1) * folds)


@dataclass(frozen=True)
class Draw:
    """A fit to all rows with candidates of its own."""

    seed: int
    """Of the draw of candidates."""
    log_loss: float
    """Of all rows it was fitted to, in nats."""


def best_of(draws: Sequence[Draw]) -> Draw:
    """The draw to keep: the first of those with the smallest log-loss."""
    return min(draws, key=lambda draw: draw.log_loss)


@dataclass(frozen=True)
class SearchResult:
    """All trials of a search, the best one, and the one that was chosen."""

    strategy: Strategy
    trials: tuple[Trial, ...]
    best: int
    """Position of the trial with the smallest mean."""
    selected: int
    """Position of the trial that was chosen."""
    rule: str
    """How it was chosen, in words."""
    draws: tuple[Draw, ...] = ()
    """Draws that were compared, of which the one with the smallest log-loss was kept; none if nothing was compared."""

    @property
    def seed(self) -> int | None:
        """Of the draw that was kept; None if nothing was compared."""
        return best_of(self.draws).seed if self.draws else None

    def describe(self) -> dict[str, Any]:
        """Plain values, for files; a loss that is not finite is None, because JSON has no such number."""
        record = asdict(self)
        for trial in record["trials"]:
            trial["fold_losses"] = [loss if math.isfinite(loss) else None for loss in trial["fold_losses"]]
        return {**record, "trials": list(record["trials"]), "draws": list(record["draws"])}


def read_search(model: PrototypeSet | Mapping[str, Any]) -> SearchResult | None:
    """The search that a model, or its provenance, keeps; None if it was not found by one.

    Whatever stands there is checked: what is no record of a search is a `FormatError`.
    """
    provenance = model.provenance if isinstance(model, PrototypeSet) else model
    record = provenance.get(SEARCH)
    if record is None:
        return None
    fields = _fields(record)
    strategy = next((name for name in get_args(Strategy) if name == fields.text("strategy")), None)
    if strategy is None:
        fields.damaged("the strategy is none that is known")
    trials = tuple(_read_trial(_fields(entry)) for entry in fields.objects("trials"))
    if len({len(trial.fold_losses) for trial in trials}) != 1:
        fields.damaged("there are no trials, or they differ in the number of folds")
    best, selected = (fields.integer(name, 0, len(trials) - 1) for name in ("best", "selected"))
    if not (trials[best].usable and trials[selected].usable):
        fields.damaged("the trial that was chosen, or the best one, has no loss")
    draws = tuple(
        Draw(entry.integer("seed", 0), float(entry.floats("log_loss", None)[0]))
        for entry in map(_fields, fields.objects("draws") if "draws" in fields.record else [])
    )
    return SearchResult(strategy, trials, best, selected, fields.text("rule"), draws)


def _fields(record: object) -> Fields:
    remedy = "Fit the model again, or restore it from a copy."
    fields = Fields(record if isinstance(record, Mapping) else {}, "kept with the model", "search", remedy)
    if not isinstance(record, Mapping):
        fields.damaged("they are no object")
    return fields


def _read_trial(fields: Fields) -> Trial:
    penalties = [float(fields.floats(name, None)[0]) for name in ("lambda_v", "lambda_w")]
    if min(penalties) < 0:
        fields.damaged("a penalty is negative")
    losses = fields.record.get("fold_losses")
    if not isinstance(losses, list) or len(losses) == 0:
        fields.damaged("fold_losses is not a list of numbers")
    known = replace(fields, record={"fold_losses": [0.0 if loss is None else loss for loss in losses]})
    numbers = known.floats("fold_losses", len(losses)).tolist()
    return Trial(
        stage=fields.integer("stage", 1, 2),
        lambda_v=penalties[0],
        lambda_w=penalties[1],
        n_batches=fields.integer("n_batches", 0),
        fold_losses=tuple(math.nan if loss is None else number for loss, number in zip(losses, numbers, strict=True)),
    )


def as_rows(result: SearchResult) -> list[dict[str, int | float | bool]]:
    """A row for each trial, in the order they were tried: all rows have the same columns, as a CSV file needs it."""
    return [
        {
            "stage": trial.stage,
            "lambda_v": trial.lambda_v,
            "lambda_w": trial.lambda_w,
            "batches": trial.n_batches,
            "mean": trial.mean,
            "standard_error": trial.standard_error,
            **{f"fold_{number}": loss for number, loss in enumerate(trial.fold_losses, start=1)},
            "best": position == result.best,
            "selected": position == result.selected,
        }
        for position, trial in enumerate(result.trials)
    ]


HEADER = ("stage", "lambda_v", "lambda_w", "batches", "log-loss", "std. error", "")


def as_lines(result: SearchResult, most: int | None = None) -> list[tuple[str, ...]]:
    """The trials as texts below `HEADER`, those of smallest mean first and at most so many.

    The chosen one and the best one are among them in any case.
    """
    order = sorted(
        range(len(result.trials)),
        key=lambda position: (not result.trials[position].usable, result.trials[position].mean, position),
    )
    if most is not None and most < len(order):
        marked = {result.best, result.selected}
        free = max(most - len(marked), 0)
        others = set([position for position in order if position not in marked][:free])
        order = [position for position in order if position in marked | others]
    return [_line(result, position) for position in order]


def _line(result: SearchResult, position: int) -> tuple[str, ...]:
    trial = result.trials[position]
    marks = [word for word, marked in (("chosen", result.selected), ("best", result.best)) if marked == position]
    return (
        str(trial.stage),
        f"{trial.lambda_v:.3g}",
        f"{trial.lambda_w:.3g}",
        str(trial.n_batches),
        f"{trial.mean:.5f}" if trial.usable else "failed",
        f"{trial.standard_error:.5f}" if trial.usable else "",
        ", ".join(marks),
    )


def as_text(result: SearchResult, most: int | None = None) -> str:
    """`as_lines` as a table for a terminal: numbers to the right, and one line that says how it was chosen."""
    lines = [HEADER, *as_lines(result, most)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(HEADER))]
    table = ["  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    left_out = len(result.trials) - (len(lines) - 1)
    more = [f"and {left_out:,} more"] if left_out else []
    return "\n".join([*table, *more, f"{result.strategy} search, chosen by: {result.rule}"])


Rule = Literal["half a standard error", "one standard error", "best"]

ALLOWED: dict[Rule, float] = {"half a standard error": 0.5, "one standard error": 1.0, "best": 0.0}
"""How far from the best mean a simpler trial may be, in standard errors of the best."""


def simplicity(trial: Trial) -> tuple[float, int, float, float]:
    """Sorts simple models first: the largest `lambda_v`, then the fewest batches, then the largest `lambda_w`.

    `lambda_v` comes first because it decides how many features a model looks at, and that is what makes it readable;
    further batches cost prototypes, and `lambda_w` changes little but their weights. Equals go by their mean.
    """
    return -trial.lambda_v, trial.n_batches, -trial.lambda_w, trial.mean


def best_trial(trials: Sequence[Trial]) -> int:
    """Position of the trial with the smallest mean, the simplest of several; one without a finite loss never wins."""
    usable = [position for position, trial in enumerate(trials) if trial.usable]
    if not usable:
        raise InputError(
            "no-convergence" if trials else "too-few",
            f"None of {count(len(trials), 'trial')} has a finite held-out loss." if trials else "There are no trials.",
            "Try larger penalties, and look for values in the data that are far from all others."
            if trials
            else "Give the search something to try.",
        )
    return min(usable, key=lambda position: (trials[position].mean, simplicity(trials[position]), position))


def choose(trials: Sequence[Trial], rule: Rule = "half a standard error") -> int:
    """Position of the trial that a rule chooses.

    "best" takes the smallest mean. "one standard error" takes the simplest trial with `mean <= m + s`, where `m` and
    `s` are the mean and the standard error of the best one: what differs by less than the noise of the folds is as
    good, and the simpler model is preferred. "half a standard error" allows `s / 2`: the folds of all trials are the
    same, so that trials differ by less than each of them does by noise.
    """
    if rule not in get_args(Rule):
        raise InputError("unknown-name", f"The rule is {rule!r}.", f"Choose one of {', '.join(map(repr, ALLOWED))}.")
    best = best_trial(trials)
    bound = within(trials[best], rule)
    close = [position for position, trial in enumerate(trials) if trial.usable and trial.mean <= bound]
    return min(close, key=lambda position: (simplicity(trials[position]), position))


def within(best: Trial, rule: Rule) -> float:
    """The largest mean that counts as as good as the best."""
    bound = best.mean + ALLOWED[rule] * best.standard_error
    return bound if math.isfinite(bound) else best.mean
