"""What the steps leave behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from protodask.data import Dataset, Label
from protodask.data.segments import Segment
from protodask.decisions.decision_store import plain_number
from protodask.decisions.stored import Compared
from protodask.evaluation.policy import PolicyEstimate, PolicyQuestion
from protodask.pipeline.budget_results import BudgetBuilt
from protodask.pipeline.describe import describe_calibration
from protodask.pipeline.each_file import FilesScored
from protodask.pipeline.gate_results import GateAnswered
from protodask.pipeline.model_scores import ModelScores
from protodask.pipeline.monitor_results import RowsMonitored
from protodask.pipeline.registry_results import ModelPublished
from protodask.pipeline.robust_results import RobustResult
from protodask.places import mask
from protodask.prototypes.fitting import batch_summary
from protodask.prototypes.history import BatchRecord
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.pruning import Pruned
from protodask.prototypes.splines import SplineCalibration
from protodask.selection.results import SearchResult, Trial


@dataclass(frozen=True)
class DatasetWritten:
    """A dataset lies at its path."""

    dataset: Dataset
    taken: tuple[Segment, ...] | None = None
    """The sources that were new, where only such were asked for; none where it was left as it was."""
    left: tuple[str, ...] = ()
    """Files that were being changed: for the next time."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was noticed about the data."""
        return self.dataset.notes

    def describe(self) -> dict[str, Any]:
        """Plain values, for files."""
        found = self.dataset.describe()
        if self.taken is not None:
            found["new_sources"] = len(self.taken)
            found["new_rows"] = sum(segment.rows for segment in self.taken)
            found["left"] = [mask(path) for path in self.left]
        return found


@dataclass(frozen=True)
class DatasetSplit:
    """The two parts of a dataset lie at their paths."""

    training: Dataset
    held_out: Dataset

    def describe(self) -> dict[str, Any]:
        """Plain values, for files."""
        return {
            "kind": "split",
            "path": mask(self.training.path),
            "held_out": mask(self.held_out.path),
            "rows": self.training.n_rows,
            "held_out_rows": self.held_out.n_rows,
            "by": "group" if self.training.has_group else "row",
        }


@dataclass(frozen=True)
class DatasetSubsampled:
    """A part of a dataset's rows lies at its path."""

    dataset: Dataset
    rows: tuple[int, ...]
    """Of each class before (K,), without those of weight 0."""
    rates: tuple[float, ...]
    """Probability of keeping a row of each class (K,)."""

    @property
    def kept(self) -> tuple[int, ...]:
        """Rows of each class now (K,), without those of weight 0."""
        return tuple(self.dataset.summary.class_rows.tolist())

    @property
    def weight(self) -> tuple[float, ...]:
        """Rows that those of each class stand for, `sum 1 / l` times their weights if they have any (K,)."""
        return tuple(self.dataset.summary.class_weight.tolist())

    @property
    def effective(self) -> float:
        """The effective number of rows, `sum 1 / l`."""
        return float(self.dataset.summary.weight)

    def describe(self) -> dict[str, Any]:
        """Plain values, for files."""
        by_class = zip(self.dataset.classes, self.rows, self.rates, self.kept, self.weight, strict=True)
        return {
            **self.dataset.describe(),
            "kind": "subsample",
            "effective_rows": self.effective,
            "classes": [
                {"label": label, "source_rows": rows, "rate": rate, "rows": kept, "weight": weight}
                for label, rows, rate, kept, weight in by_class
            ],
        }


@dataclass(frozen=True)
class ModelFitted:
    """A model lies at `path`."""

    path: str
    model: PrototypeSet
    history: tuple[BatchRecord, ...]
    """A record for each batch that was added."""

    def describe(self) -> dict[str, Any]:
        """Plain values, for files."""
        return {
            "kind": "fit",
            "path": mask(self.path),
            "batches": self.model.n_batches,
            "prototypes": self.model.n_prototypes,
            "active_features": len(self.model.active_features),
            "features": self.model.n_features,
            "history": [batch_summary(record) for record in self.history],
        }


@dataclass(frozen=True)
class ModelTuned:
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
        """Plain values, for files."""
        chosen = self.chosen
        return {
            **ModelFitted(self.path, self.model, self.history).describe(),
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


@dataclass(frozen=True)
class ModelCalibrated:
    """A model with a calibration lies at `path`."""

    path: str
    classes: tuple[Label, ...]
    calibration: SplineCalibration
    notes: tuple[str, ...] = ()
    """Why its calibrated probabilities may not be what they seem."""

    def describe(self) -> dict[str, Any]:
        """Plain values, for files."""
        return {
            "kind": "calibrate",
            "path": mask(self.path),
            "calibration": describe_calibration(self.calibration, self.classes),
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class ModelPruned:
    """A model with fewer prototypes lies at `path`."""

    path: str
    pruned: Pruned

    def describe(self) -> dict[str, Any]:
        """Plain values, for files."""
        model, stages = self.pruned.model, self.pruned.stages
        return {
            "kind": "prune",
            "path": mask(self.path),
            "prototypes": model.n_prototypes,
            "features": len(model.active_features),
            "log_loss": stages[-1].log_loss,
            "log_loss_before": stages[0].log_loss,
            "stages": [{"prototypes": stage.prototypes, "log_loss": stage.log_loss} for stage in stages],
        }


@dataclass(frozen=True)
class PredictionsWritten:
    """Predictions for `rows` rows lie at `path`."""

    path: str
    rows: int
    n_batches: int
    calibrated: bool = False
    marked: int = 0
    """Rows among them that could not be scored."""

    def describe(self) -> dict[str, Any]:
        """Plain values, for files."""
        return {
            "kind": "predictions",
            "path": mask(self.path),
            "rows": self.rows,
            "batches": self.n_batches,
            "calibrated": self.calibrated,
            "marked": self.marked,
        }


@dataclass(frozen=True)
class ModelEvaluated:
    """The metrics of a model on some rows; they also lie at `path` if there is one."""

    model: str
    data: str
    scores: ModelScores
    path: str | None

    def describe(self) -> dict[str, Any]:
        """Plain values, for files."""
        return {"kind": "scores", "model": mask(self.model), "data": mask(self.data), **self.scores.describe()}


@dataclass(frozen=True)
class DecisionsWritten:
    """Decisions on rows lie at the path."""

    found: Compared

    def describe(self) -> dict[str, Any]:
        """Plain values, for files."""
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


@dataclass(frozen=True)
class PolicyEvaluated:
    """The value of a policy on a log; it also lies at `path` if there is one."""

    model: str | None
    """None where the log says what the policy does."""
    data: str
    estimate: PolicyEstimate
    question: PolicyQuestion
    path: str | None

    def describe(self) -> dict[str, Any]:
        """Plain values, for files; an end of the interval is null where one row alone counts."""
        return {
            "kind": "policy value",
            "model": None if self.model is None else mask(self.model),
            "data": mask(self.data),
            "estimator": self.question.estimator,
            "dropped_zeros": self.question.dropped_zeros,
            "confidence": self.question.confidence,
            "value": self.estimate.interval.value,
            "low": self.estimate.interval.low,
            "high": self.estimate.interval.high,
            "rows": self.estimate.rows,
            "matched": self.estimate.matched,
            "records": self.estimate.records,
        }


@dataclass(frozen=True)
class ReportWritten:
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
        """Plain values, for files."""
        return {
            "kind": "report",
            "path": mask(self.path),
            "bytes": self.size,
            "rows": self.rows,
            "batches": self.n_batches,
            **{name.lower().replace("-", "_").replace(" ", "_"): value for name, value in self.quality.items()},
            "drifted_features": self.alarming,
        }


Result = (
    DatasetWritten
    | DatasetSplit
    | DatasetSubsampled
    | ModelFitted
    | ModelTuned
    | ModelCalibrated
    | ModelPruned
    | PredictionsWritten
    | FilesScored
    | ModelEvaluated
    | GateAnswered
    | RowsMonitored
    | DecisionsWritten
    | PolicyEvaluated
    | BudgetBuilt
    | RobustResult
    | ReportWritten
    | ModelPublished
)
