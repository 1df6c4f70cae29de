"""The step `monitor`: rows as a model sees them, and what changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from protodask.errors import InputError
from protodask.pipeline.steps.base import Argument, Option, Overwrite, Panel, Read, Step, Written
from protodask.pipeline.steps.rows import Batches, KnownRows, Model, check_batches
from protodask.pipeline.telling.events import Listener, nobody
from protodask.places import mask

if TYPE_CHECKING:
    from protodask.engine import Engine
    from protodask.pipeline.results.monitor import RowsMonitored


@dataclass(frozen=True)
class MonitorStep(KnownRows, Step):
    """Describe rows as a model sees them: features, familiarity, classes, calibration, loss.

    With a reference, say what changed since then, by figures that allow for noise: see `protodask gate`.
    """

    command = "monitor"
    panel = Panel.WATCH
    writes_files = True

    model: Model
    data: Annotated[Read, Argument("Rows, of known classes or not: a dataset, or raw tables or arrays.", "DATA")]
    out: Annotated[Written, Option("JSON file to write; itself a reference for later.", "FILE")]
    reference: Annotated[
        Read | None,
        Option("What `monitor` wrote for this model and earlier rows, best rows that it was not trained on.", "FILE"),
    ] = None
    batches: Batches = None
    significance: Annotated[
        float,
        Option("A change counts where chance makes it with less than this probability, for each kind of figure.", "P"),
    ] = 5e-5
    overwrite: Overwrite = False

    def check(self) -> None:
        from protodask.evaluation.interval import is_share

        check_batches(self.batches)
        if not is_share(self.significance):
            raise InputError(
                "bad-setting",
                f"significance is {self.significance}.",
                "Give the chance of a false alarm, between 0 and 1, such as 5e-5.",
            )

    def perform(self, engine: Engine, listen: Listener = nobody) -> RowsMonitored:
        from protodask.pipeline.work.monitoring import monitor_rows

        return monitor_rows(self, engine)

    def subject(self) -> str:
        return f"{mask(self.model)} on {mask(self.data)} into {mask(self.out)}"
