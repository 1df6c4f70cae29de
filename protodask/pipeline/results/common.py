"""What the steps leave behind."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from protodask.data import Dataset, Label
from protodask.data.format.segments import Segment
from protodask.decisions.decision_store import plain_number
from protodask.decisions.stored import Compared
from protodask.evaluation.metrics import Scores
from protodask.evaluation.policy import PolicyEstimate, PolicyQuestion
from protodask.pipeline.inspecting.describe import describe_calibration
from protodask.pipeline.telling.result import Measured, Pairs, Piece, Result, Table
from protodask.pipeline.telling.wording import (
    MOST_LINES,
    count,
    describe_seconds,
    number,
    shorten,
    size,
)
from protodask.pipeline.work.model_scores import ModelScores
from protodask.places import mask
from protodask.prototypes.fitting import batch_summary
from protodask.prototypes.history import BatchRecord
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.pruning import Pruned
from protodask.prototypes.splines import SplineCalibration
from protodask.selection.results import SearchResult, Trial, as_text

MOST_TRIALS = 10
"""Trials of a search that are told; --json has all."""


@dataclass(frozen=True)
class DatasetWritten(Result):
    """A dataset lies at its path."""

    dataset: Dataset
    taken: tuple[Segment, ...] | None = None
    """The sources that were new, where only such were asked for; none where it was left as it was."""
    left: tuple[str, ...] = ()
    """Files that changed a moment ago, or were being changed: for the next time."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was noticed about the data."""
        return self.dataset.notes

    def describe(self) -> dict[str, Any]:
        found = self.dataset.describe()
        if self.taken is not None:
            found["new_sources"] = len(self.taken)
            found["new_rows"] = sum(segment.rows for segment in self.taken)
            found["left"] = [mask(path) for path in self.left]
        return found

    def summary(self) -> str:
        dataset = self.dataset
        line = (
            f"The dataset {shorten(dataset.path)} has {dataset.n_rows:,} rows, "
            f"{count(dataset.n_features, 'feature')} and {len(dataset.classes)} classes."
        )
        if self.taken is None:
            return line
        waiting = f" Left for the next time, as they changed just now: {count(len(self.left), 'file')}."
        left = waiting if self.left else ""
        if not self.taken:
            return f"Nothing is new. {line}{left}"
        rows = sum(segment.rows for segment in self.taken)
        return f"{line} New: {count(rows, 'row')} from {count(len(self.taken), 'source')}.{left}"


@dataclass(frozen=True)
class DatasetSplit(Result):
    """The two parts of a dataset lie at their paths."""

    kind = "split"

    path: str
    """Of the rows to train on."""
    held_out: str
    rows: int
    held_out_rows: int
    by: Literal["group", "row"]

    def summary(self) -> str:
        return (
            f"{shorten(self.path)} has {self.rows:,} rows to train on, "
            f"{shorten(self.held_out)} the {self.held_out_rows:,} held out."
        )


@dataclass(frozen=True)
class DrawnPart:
    """The rows of a class, or of a value of a column."""

    label: Label | float
    source_rows: int
    rate: float
    """Probability of keeping a row."""
    rows: int
    """Those that were kept."""
    weight: float
    """Rows that those that were kept stand for: `sum 1 / l`, times their weights if they have any."""


@dataclass(frozen=True)
class DatasetSubsampled(Result):
    """A part of a dataset's rows lies at its path."""

    dataset: Dataset
    by: str | None
    """The column whose values the parts are of; None where they are classes."""
    parts: tuple[DrawnPart, ...]

    @property
    def effective(self) -> float:
        """The effective number of rows, `sum 1 / l`."""
        return float(self.dataset.summary.weight)

    def describe(self) -> dict[str, Any]:
        by_class = self.by is None
        return {
            **self.dataset.describe(),
            "kind": "subsample",
            "effective_rows": self.effective,
            **({} if by_class else {"by": self.by}),
            "classes" if by_class else "values": list(map(asdict, self.parts)),
        }

    def summary(self) -> str:
        rows = f"{self.dataset.n_rows:,} rows, which stand for {number(self.effective)}"
        return f"The subsample {shorten(self.dataset.path)} has {rows}."

    def told(self) -> Iterator[Piece]:
        yield self.summary()
        yield ""
        rows = [
            [str(part.label), f"{part.source_rows:,}", f"{part.rate:.4g}", f"{part.rows:,}", number(part.weight)]
            for part in self.parts
        ]
        yield Table([self.by or "class", "rows", "rate", "kept", "stand for"], rows)


@dataclass(frozen=True)
class ModelFitted(Result):
    """A model lies at `path`."""

    path: str
    model: PrototypeSet
    history: tuple[BatchRecord, ...]
    """A record for each batch that was added."""

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "fit",
            "path": mask(self.path),
            "batches": self.model.n_batches,
            "prototypes": self.model.n_prototypes,
            "active_features": len(self.model.active_features),
            "features": self.model.n_features,
            "history": [batch_summary(record) for record in self.history],
        }

    @property
    def notes(self) -> tuple[str, ...]:
        """Which draws were trained in vain."""
        left = sum(not record.kept for record in self.history)
        said = f"{count(left, 'draw was', 'draws were')} left out: the best one loses clearly less on rows held out."
        return (said,) if left else ()

    def summary(self) -> str:
        model = self.model
        seconds = math.fsum(record.seconds for record in self.history)
        return (
            f"The model {shorten(self.path)} has {count(model.n_batches, 'batch', 'batches')} with "
            f"{count(model.n_prototypes, 'prototype')} and uses {len(model.active_features)} of "
            f"{count(model.n_features, 'feature')}; training took {describe_seconds(seconds)}."
        )


@dataclass(frozen=True)
class ModelTuned(Result):
    """A model whose hyperparameters were searched for lies at `path`, and all trials at `table` if that is one."""

    path: str
    model: PrototypeSet
    history: tuple[BatchRecord, ...]
    """A record for each batch of the final model."""
    search: SearchResult
    rows: int
    """Of the data."""
    group: str | None
    """Column whose rows of one value stayed in one fold."""
    table: str | None
    notes: tuple[str, ...] = ()
    """Where a wider search may find better."""

    @property
    def seed(self) -> int:
        """Of the draw of candidates that the model has."""
        return int(self.model.provenance["fits"][-1]["config"]["seed"])

    @property
    def chosen(self) -> Trial:
        """The trial whose settings the model has."""
        return self.search.trials[self.search.selected]

    def describe(self) -> dict[str, Any]:
        chosen = self.chosen
        return {
            **self._fitted.describe(),
            "kind": "tune",
            "group": self.group,
            "table": None if self.table is None else mask(self.table),
            "chosen": {
                "lambda_v": chosen.lambda_v,
                "lambda_w": chosen.lambda_w,
                "batches": chosen.n_batches,
                "seed": self.seed,
            },
            "search": self.search.describe(),
            "notes": list(self.notes),
        }

    def summary(self) -> str:
        return f"{self._fitted.summary()} {self._choice()}"

    def told(self) -> Iterator[Piece]:
        yield as_text(self.search, MOST_TRIALS)
        yield ""
        yield self._fitted.summary()
        yield self._choice()
        if self.table is not None:
            yield f"All trials are in {shorten(self.table)}."
        yield from self.told_notes()

    @property
    def _fitted(self) -> ModelFitted:
        return ModelFitted(self.path, self.model, self.history)

    def _choice(self) -> str:
        """What the model is, in one line."""
        chosen = self.chosen
        together = "" if self.group is None else f" Rows of the same {self.group!r} stayed in one fold."
        drawn = len(self.search.draws)
        if drawn:
            together = (
                f" Of {drawn} draws of candidates it is the one that fits them best (seed {self.seed}).{together}"
            )
        return (
            f"It is fitted to all {self.rows:,} rows with what was chosen: lambda_v {chosen.lambda_v:.4g}, lambda_w "
            f"{chosen.lambda_w:.4g} and {count(chosen.n_batches, 'batch', 'batches')}.{together}"
        )


@dataclass(frozen=True)
class ModelCalibrated(Result):
    """A model with a calibration lies at `path`."""

    path: str
    classes: tuple[Label, ...]
    calibration: SplineCalibration
    notes: tuple[str, ...] = ()
    """Why its calibrated probabilities may not be what they seem."""

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "calibrate",
            "path": mask(self.path),
            "calibration": describe_calibration(self.calibration, self.classes),
            "notes": list(self.notes),
        }

    def summary(self) -> str:
        found = self.calibration
        return (
            f"The model {shorten(self.path)} has a calibration of {count(found.n_batches, 'batch', 'batches')}, fitted "
            f"to {count(found.rows, 'row')}; --calibrated asks for its probabilities."
        )


@dataclass(frozen=True)
class ModelPruned(Result):
    """A model with fewer prototypes lies at `path`."""

    path: str
    pruned: Pruned

    def describe(self) -> dict[str, Any]:
        model, stages = self.pruned.model, self.pruned.stages
        return {
            "kind": "prune",
            "path": mask(self.path),
            "prototypes": model.n_prototypes,
            "features": len(model.active_features),
            "log_loss": stages[-1].log_loss,
            "log_loss_before": stages[0].log_loss,
            "stages": list(map(asdict, stages)),
        }

    def summary(self) -> str:
        model, stages = self.pruned.model, self.pruned.stages
        return (
            f"The model {shorten(self.path)} has {count(model.n_prototypes, 'prototype')} of {stages[0].prototypes:,} "
            f"and uses {len(model.active_features)} of {count(model.n_features, 'feature')}. The log-loss of these "
            f"rows, each by all others, is {stages[-1].log_loss:.4g}; it was {stages[0].log_loss:.4g}."
        )


@dataclass(frozen=True)
class PredictionsWritten(Result):
    """Predictions for `rows` rows lie at `path`."""

    kind = "predictions"

    path: str
    rows: int
    batches: int
    calibrated: bool = False
    marked: int = 0
    """Rows among them that could not be scored."""

    def summary(self) -> str:
        kind = "calibrated predictions" if self.calibrated else "predictions"
        marked = f", of which {self.marked:,} could not be scored and are marked" if self.marked else ""
        return f"The {kind} {shorten(self.path)} have {self.rows:,} rows{marked}."


@dataclass(frozen=True)
class ModelEvaluated(Measured):
    """The metrics of a model on some rows."""

    scores: ModelScores

    def describe(self) -> dict[str, Any]:
        return {"kind": "scores", "model": mask(self.model), "data": mask(self.data), **self.scores.describe()}

    def summary(self) -> str:
        found = self.scores.scores
        who = "calibrated model" if self.scores.calibrated else "model"
        return (
            f"The {who} is right on {found.accuracy:.1%} of the {found.rows:,} rows of "
            f"{mask(self.data)}. Its log-loss there is {found.log_loss:.4f}; always predicting the class shares of the "
            f"training data has {self.scores.marginal_log_loss:.4f}, perfect predictions have 0."
        )

    def told(self) -> Iterator[Piece]:
        found, classes = self.scores.scores, self.scores.classes
        yield self.summary()
        yield ""
        pairs = [
            ("log-loss", f"{found.log_loss:.6f}"),
            ("accuracy", f"{found.accuracy:.6f}"),
            ("balanced accuracy", f"{found.balanced_accuracy:.6f}"),
            ("Brier score", f"{found.brier_score:.6f}"),
        ]
        if found.roc_auc is not None:
            pairs.append(("ROC AUC", f"{found.roc_auc:.6f}{_doubt(found)}"))
        if found.roc_auc_weighted is not None and len(classes) > 2:
            pairs.append(("ROC AUC, weighted by class", f"{found.roc_auc_weighted:.6f}"))
        yield Pairs(pairs)
        if len(classes) <= MOST_LINES:
            yield ""
            yield "Confusion (rows: true class, columns: predicted class)"
            names = [str(label) for label in classes]
            rows = [[name, *map(number, row)] for name, row in zip(names, found.confusion, strict=True)]
            yield Table(["", *names], rows)
        yield from self.told_place("The scores are", self.path)


@dataclass(frozen=True)
class DecisionsWritten(Result):
    """Decisions on rows lie at the path."""

    found: Compared

    def describe(self) -> dict[str, Any]:
        found = self.found
        described = {
            "kind": "decisions",
            "path": mask(found.path),
            "predictions": mask(found.source),
            "of": found.what,
            "decided": found.kind,
            "loss": found.loss,
            "rows": found.rows,
            "decisions": found.decisions,
            "selected": found.selected,
            "expected_loss": found.expected_loss,
            "loss_at_half": found.loss_at_half,
        }
        if found.decision is not None:
            cut = found.decision.cut
            described |= {
                "method": found.decision.method,
                "threshold": plain_number(cut.threshold),
                "tied": cut.tied,
                "taken": cut.taken,
            }
        return described

    def summary(self) -> str:
        found = self.found
        return (
            f"The decisions {shorten(found.path)} select {found.selected:,} of {count(found.rows, 'row')}; expected "
            f"{found.loss} loss {found.expected_loss:.6g}, with the threshold 0.5 {found.loss_at_half:.6g}."
        )

    def told(self) -> Iterator[Piece]:
        found = self.found
        if found.decision is not None:
            yield found.decision.explain()
        else:
            each = {"groups": "group", "classes": "row", "labels": "row"}[found.kind]
            what = "rows" if found.kind == "groups" else found.kind
            yield (
                f"Selected {found.selected:,} {what} of {count(found.rows, 'row')} in "
                f"{count(found.decisions, 'decision')}, one for each {each}."
            )
            yield (
                f"Expected {found.loss} loss {found.expected_loss:.6g} a {each}; selecting probabilities of at least "
                f"0.5 would cost {found.loss_at_half:.6g}, {found.loss_at_half - found.expected_loss:.3g} more."
            )
        yield f"The decisions are in {shorten(found.path)}."


@dataclass(frozen=True)
class PolicyEvaluated(Result):
    """The value of a policy on a log; it also lies at `path` if there is one."""

    model: str | None
    """None where the log says what the policy does."""
    data: str
    estimate: PolicyEstimate
    question: PolicyQuestion
    path: str | None

    def describe(self) -> dict[str, Any]:
        """Plain values, for files; an end of the interval is null where one row alone counts, or no reward."""
        return {
            "kind": "policy value",
            "model": None if self.model is None else mask(self.model),
            "data": mask(self.data),
            **asdict(self.question),
            **asdict(self.estimate.interval),
            "rows": self.estimate.rows,
            "matched": self.estimate.matched,
            "records": self.estimate.records,
        }

    def summary(self) -> str:
        interval = self.estimate.interval
        who = "The policy" if self.model is None else f"The model {shorten(self.model)}"
        earned = f"{who} would earn {interval.value:.4g} a record on the log {mask(self.data)}"
        if self.estimate.matched == 0:
            return (
                f"No row of {mask(self.data)} has an action that the policy takes: the log says nothing of its value."
            )
        if not math.isfinite(interval.low):
            return f"{earned}. Too few rows count, or none has a reward, to say how far that is off."
        sure = f"{100 * self.question.confidence:g} per cent"
        return f"{earned}; with {sure} confidence, between {interval.low:.4g} and {interval.high:.4g}."

    def told(self) -> Iterator[Piece]:
        found = self.estimate
        yield self.summary()
        yield ""
        yield Pairs(
            [
                ("value", f"{found.interval.value:.6g}"),
                ("low", f"{found.interval.low:.6g}"),
                ("high", f"{found.interval.high:.6g}"),
                ("estimator", self.question.estimator),
                ("rows", f"{found.rows:,}"),
                ("rows with its action", f"{found.matched:,}"),
                ("records of the whole log", number(found.records)),
            ]
        )
        yield from self.told_place("The value is", self.path)


@dataclass(frozen=True)
class ReportWritten(Result):
    """A report lies at `path`."""

    path: str
    size: int
    """Bytes of the file."""
    rows: int
    n_batches: int
    quality: dict[str, float]
    """Its figures of quality by name, nan where one was left out."""
    alarming: int | None
    """Features that drifted strongly; None if no drift was measured."""

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "report",
            "path": mask(self.path),
            "bytes": self.size,
            "rows": self.rows,
            "batches": self.n_batches,
            **{name.lower().replace("-", "_").replace(" ", "_"): value for name, value in self.quality.items()},
            "drifted_features": self.alarming,
        }

    def summary(self) -> str:
        drifted = "" if self.alarming is None else f" {count(self.alarming, 'feature')} drifted strongly."
        return (
            f"The report {shorten(self.path)} on {self.rows:,} rows has {size(self.size)}; open it in a browser."
            f"{drifted}"
        )


def _doubt(scores: Scores) -> str:
    """How exact an area under the curve is, where it is not exact, and what sampling leaves open of it."""
    interval = scores.roc_auc_interval
    drawn = "" if interval is None else f"95 per cent interval {interval[0]:.6f} to {interval[1]:.6f}"
    # With two digits, and never less than it is: rounding takes off less than the twentieth that is added.
    inexact = f"off by at most {1.05 * scores.roc_auc_error:.1e}" if scores.roc_auc_error else ""
    said = "; ".join(part for part in (inexact, drawn) if part)
    return f" ({said})" if said else ""
