"""The step that leaves a model fewer prototypes."""

from __future__ import annotations

from protodask.data.storage import check_free, check_outside, locate
from protodask.engine import Engine
from protodask.pipeline.results import ModelPruned
from protodask.pipeline.scoring_data import rows_of_step
from protodask.pipeline.steps import PruneStep
from protodask.prototypes.persistence import MODEL, load_model, save_model
from protodask.prototypes.pruning import prune


def prune_model(step: PruneStep, engine: Engine) -> ModelPruned:
    """Write the model that is left."""
    model = load_model(step.model)
    where = locate(step.out)
    for read in (step.model, step.data):
        check_outside(where, read)
    check_free(where, step.overwrite, MODEL)
    source, codes = rows_of_step(model, step, engine)
    found = prune(model, step.prototypes, source, codes, engine)
    save_model(found.model, where, overwrite=step.overwrite)
    return ModelPruned(where, found)
