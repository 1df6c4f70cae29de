"""The step `evaluate`: how good a model's predictions are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from protodask.errors import count
from protodask.pipeline.steps.base import Answering, Option, Overwrite, Panel, Written
from protodask.pipeline.steps.rows import Batches, Calibrated, KnownRows, Model, Rows
from protodask.pipeline.telling.result import MOST_LINES, Measured, Pairs, Piece, Table, number
from protodask.places import mask

if TYPE_CHECKING:
    from protodask.engine import Engine
    from protodask.evaluation.metrics import Scores
    from protodask.evaluation.model_scores import ModelScores


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
            f"The {who} is right on {found.accuracy:.1%} of the {count(found.rows, 'row')} of "
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


def _doubt(scores: Scores) -> str:
    """How exact an area under the curve is, where it is not exact, and what sampling leaves open of it."""
    interval = scores.roc_auc_interval
    drawn = "" if interval is None else f"95 per cent interval {interval[0]:.6f} to {interval[1]:.6f}"
    # With two digits, and never less than it is: rounding takes off less than the twentieth that is added.
    inexact = f"off by at most {1.05 * scores.roc_auc_error:.1e}" if scores.roc_auc_error else ""
    said = "; ".join(part for part in (inexact, drawn) if part)
    return f" ({said})" if said else ""


@dataclass(frozen=True)
class EvaluateStep(KnownRows, Answering):
    """Measure log-loss, accuracy, Brier score, ROC AUC and the confusion matrix on rows of known classes."""

    command = "evaluate"
    panel = Panel.USE
    about = "{model} on {data}"
    moved: ClassVar = {"policy": "policy"}

    model: Model
    data: Rows
    batches: Batches = None
    calibrated: Calibrated = False
    roc_auc: Annotated[
        bool, Option("The ROC AUC; where not all scores fit into memory, with a bound.", flag="--roc-auc/--no-roc-auc")
    ] = True
    out: Annotated[Written | None, Option("Write the scores to a JSON file, too.", "FILE")] = None
    overwrite: Overwrite = False

    def answer(self, engine: Engine) -> ModelEvaluated:
        from protodask.evaluation.model_scores import evaluate_model
        from protodask.prototypes.model import load_model

        model = load_model(self.model)
        model.scored_batches(self.batches, self.calibrated)
        source, codes = self.known_rows(self.data, model, engine)
        scores = evaluate_model(
            model, source, codes, engine, n_batches=self.batches, roc_auc=self.roc_auc, calibrated=self.calibrated
        )
        return ModelEvaluated(self.model, self.data, scores, path=self.out)
