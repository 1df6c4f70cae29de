"""The step `fit`: train a model on a dataset."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from protodask.errors import count
from protodask.pipeline.steps.base import Argument, Option, Overwrite, Panel, Read, Written
from protodask.pipeline.steps.training import RUN, Config, FitSettings, RunDir, Training, record_of_run, run_directory
from protodask.pipeline.telling.events import Listener, nobody
from protodask.pipeline.telling.result import Result, describe_seconds, shorten
from protodask.places import mask

if TYPE_CHECKING:
    from protodask.engine import Engine
    from protodask.prototypes.history import BatchRecord
    from protodask.prototypes.model import PrototypeSet


@dataclass(frozen=True)
class ModelFitted(Result):
    """A model lies at `path`."""

    path: str
    model: PrototypeSet
    history: tuple[BatchRecord, ...]
    """A record for each round of each draw."""
    seconds: float
    """That passed, of a search as well; those of the records are of draws that may have been trained together."""
    resumed: bool = False
    """Whether an earlier run was gone on with: all seconds are those of this one."""

    def describe(self) -> dict[str, Any]:
        from protodask.prototypes.fitting import batch_summary

        return {
            "kind": "fit",
            "path": mask(self.path),
            "batches": self.model.n_batches,
            "prototypes": self.model.n_prototypes,
            "active_features": len(self.model.active_features),
            "features": self.model.n_features,
            "seconds": self.seconds,
            "resumed": self.resumed,
            "history": [batch_summary(record) for record in self.history],
        }

    @property
    def notes(self) -> tuple[str, ...]:
        """Which draws were trained in vain."""
        from protodask.prototypes.table_model import fits_of

        rounds = sum(not record.kept for record in self.history)
        left = rounds // fits_of(self.model.provenance)[-1]["config"]["n_batches"] if rounds else 0
        said = f"{count(left, 'draw was', 'draws were')} left out: the best one loses clearly less on rows held out."
        return (said,) if left else ()

    def summary(self) -> str:
        model = self.model
        return (
            f"The model {shorten(self.path)} has {count(model.n_batches, 'batch', 'batches')} with "
            f"{count(model.n_prototypes, 'prototype')} and uses {len(model.active_features)} of "
            f"{count(model.n_features, 'feature')}; training took {describe_seconds(self.seconds)}"
            f"{' since it was taken up again' if self.resumed else ''}."
        )


GUESSED = ("lambda_v", "lambda_w", "batches")
"""Settings that `tune` chooses, and the same for all data where nobody says them."""

Data = Annotated[Read, Argument("A dataset.", "DATA")]
Start = Annotated[Read | None, Option("Add the batches to this model.", "MODEL", panel=RUN)]


@dataclass(frozen=True)
class FitStep(FitSettings, Training):
    """Train a model on a dataset, or add batches to a model."""

    command = "fit"
    panel = Panel.TRAINING
    detaches = True

    data: Data
    out: Annotated[Written, Option("Where to write the model.", "MODEL")]
    config: Config = None
    run_dir: RunDir = None
    start: Start = None
    overwrite: Overwrite = False

    def check(self) -> None:
        from protodask.pipeline.work.settings import fit_config

        fit_config(self)
        run_directory(self.out, self.run_dir)

    def perform(self, engine: Engine, listen: Listener = nobody) -> ModelFitted:
        from protodask.data import Dataset
        from protodask.data.places.locations import locate
        from protodask.pipeline.work.published import has_begun, published_model
        from protodask.pipeline.work.settings import fit_config
        from protodask.prototypes.fitting import fitted
        from protodask.prototypes.model import load_model
        from protodask.prototypes.persistence import model_fingerprint, save_model

        began = time.perf_counter()
        config = fit_config(self)
        where = locate(self.out)
        with record_of_run(self) as run_dir:
            published, resumed = published_model(where, run_dir, self.overwrite), has_begun(run_dir)
            start = None if self.start is None else load_model(self.start)
            data, keep = Dataset.open(self.data), self.run_dir is not None
            with fitted(data, config, run_dir, engine, (listen,), start, keep=keep) as run:
                if model_fingerprint(run.model) != published:
                    save_model(run.model, where, overwrite=self.overwrite)
        return ModelFitted(where, run.model, tuple(run.history), time.perf_counter() - began, resumed)

    def advice(self) -> str | None:
        if any(getattr(self, name) is not None for name in ("config", "start", *GUESSED)):
            return None
        return "Its penalties and the number of batches are guesses: `tune()` chooses them by these data."
