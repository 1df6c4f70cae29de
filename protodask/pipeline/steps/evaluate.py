"""The step `evaluate`: how good a model's predictions are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from protodask.pipeline.steps.base import Option, Overwrite, Panel, Step, Written
from protodask.pipeline.steps.rows import Batches, Calibrated, KnownRows, Model, Rows, check_batches
from protodask.pipeline.telling.events import Listener, nobody
from protodask.places import mask

if TYPE_CHECKING:
    from protodask.engine import Engine
    from protodask.pipeline.results.common import ModelEvaluated


@dataclass(frozen=True)
class EvaluateStep(KnownRows, Step):
    """Measure log-loss, accuracy, Brier score, ROC AUC and the confusion matrix on rows of known classes."""

    command = "evaluate"
    panel = Panel.USE
    writes_files = True
    moved: ClassVar = {"policy": "policy"}

    model: Model
    data: Rows
    batches: Batches = None
    calibrated: Calibrated = False
    roc_auc: Annotated[
        bool,
        Option("The ROC AUC; where not all scores fit into memory, with a bound.", flag="--roc-auc/--no-roc-auc"),
    ] = True
    out: Annotated[Written | None, Option("Write the scores to a JSON file, too.", "FILE")] = None
    overwrite: Overwrite = False

    def check(self) -> None:
        check_batches(self.batches)

    def perform(self, engine: Engine, listen: Listener = nobody) -> ModelEvaluated:
        from protodask.data.places.storage import check_file_free
        from protodask.pipeline.results.common import ModelEvaluated
        from protodask.pipeline.telling.json_file import written
        from protodask.pipeline.work.model_scores import evaluate_model
        from protodask.prototypes.persistence import load_model

        self.check()
        model = load_model(self.model)
        model.scored_batches(self.batches, self.calibrated)
        if self.out is not None:
            check_file_free(self.out, self.overwrite)
        source, codes = self.known_rows(self.data, model, engine)
        scores = evaluate_model(
            model, source, codes, engine, n_batches=self.batches, roc_auc=self.roc_auc, calibrated=self.calibrated
        )
        return written(ModelEvaluated(self.model, self.data, scores, path=self.out), self.out, self.overwrite)

    def subject(self) -> str:
        return f"{mask(self.model)} on {mask(self.data)}"
