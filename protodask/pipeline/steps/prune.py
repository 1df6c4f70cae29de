"""The step `prune`: a model of fewer prototypes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from protodask.pipeline.steps.base import Option, Overwrite, Panel, Step, Written
from protodask.pipeline.steps.rows import KnownRows, Model, Rows
from protodask.pipeline.telling.events import Listener, nobody
from protodask.places import mask

if TYPE_CHECKING:
    from protodask.engine import Engine
    from protodask.pipeline.results.common import ModelPruned


@dataclass(frozen=True)
class PruneStep(KnownRows, Step):
    """Leave a model so many prototypes at most, by rows of known classes: those of its training, or new ones."""

    command = "prune"
    panel = Panel.TRAINING

    model: Model
    data: Rows
    out: Annotated[Written, Option("Where to write the model that is left.", "MODEL")]
    prototypes: Annotated[int, Option("How many it may have.", least=1)]
    overwrite: Overwrite = False

    def check(self) -> None:
        from protodask.prototypes.setting_checks import check_count

        check_count("prototypes", self.prototypes, 1)

    def perform(self, engine: Engine, listen: Listener = nobody) -> ModelPruned:
        from protodask.data.places.storage import check_free, check_outside, locate
        from protodask.pipeline.results.common import ModelPruned
        from protodask.prototypes.persistence import MODEL, load_model, save_model
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

    def subject(self) -> str:
        return f"{mask(self.model)} on {mask(self.data)} into {mask(self.out)}"
