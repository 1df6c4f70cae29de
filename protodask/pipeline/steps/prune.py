"""The step `prune`: a model of fewer prototypes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

from protodask.errors import count
from protodask.pipeline.steps.base import Option, Overwrite, Panel, Step, Written
from protodask.pipeline.steps.rows import KnownRows, Model, Rows
from protodask.pipeline.telling.events import Listener, nobody
from protodask.pipeline.telling.result import Result, shorten
from protodask.places import mask

if TYPE_CHECKING:
    from protodask.engine import Engine
    from protodask.prototypes.pruning import Pruned


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
class PruneStep(KnownRows, Step):
    """Leave a model so many prototypes at most, by rows of known classes: those of its training, or new ones."""

    command = "prune"
    panel = Panel.TRAINING
    about = "{model} on {data} into {out}"

    model: Model
    data: Rows
    out: Annotated[Written, Option("Where to write the model that is left.", "MODEL")]
    prototypes: Annotated[int, Option("How many it may have.", least=1)]
    overwrite: Overwrite = False

    def perform(self, engine: Engine, listen: Listener = nobody) -> ModelPruned:
        from protodask.data.places.locations import locate
        from protodask.data.places.storage import check_free, check_outside
        from protodask.prototypes.model import load_model
        from protodask.prototypes.persistence import MODEL, save_model
        from protodask.prototypes.pruning import prune

        model = load_model(self.model)
        where = locate(self.out)
        for read in (self.model, self.data):
            check_outside(where, read)
        check_free(where, self.overwrite, MODEL)
        source, codes = self.known_rows(self.data, model, engine)
        found = prune(model, self.prototypes, source, codes, engine)
        save_model(found.model, where, overwrite=self.overwrite)
        return ModelPruned(where, found)
