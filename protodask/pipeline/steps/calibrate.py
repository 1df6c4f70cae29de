"""The step `calibrate`: a calibration of a model, kept with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from protodask.errors import count
from protodask.pipeline.steps.base import Option, Overwrite, Panel, Step, Written
from protodask.pipeline.steps.rows import KnownRows, Model, Rows
from protodask.pipeline.telling.events import Listener, nobody
from protodask.pipeline.telling.result import Piece, Result, shorten
from protodask.places import mask

if TYPE_CHECKING:
    from protodask.data import Label
    from protodask.engine import Engine
    from protodask.evaluation.calibration import LeftOutLoss
    from protodask.prototypes.splines import SplineCalibration


@dataclass(frozen=True)
class ModelCalibrated(Result):
    """A model with a calibration lies at `path`."""

    path: str
    classes: tuple[Label, ...]
    calibration: SplineCalibration
    left_out: LeftOutLoss | None = None
    """What such a calibration does to rows that it was not fitted to; None of many rows."""
    notes: tuple[str, ...] = ()
    """Why its calibrated probabilities may not be what they seem."""

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "calibrate",
            "path": mask(self.path),
            "calibration": self.calibration.describe(self.classes),
            "left_out": None if self.left_out is None else {"log_loss": asdict(self.left_out)},
            "notes": list(self.notes),
        }

    def summary(self) -> str:
        found = self.calibration
        return (
            f"The model {shorten(self.path)} has a calibration of {count(found.n_batches, 'batch', 'batches')}, fitted "
            f"to {count(found.rows, 'row')}; calibrated=True asks for its probabilities."
        )

    def told(self) -> Iterator[Piece]:
        yield self.summary()
        if (found := self.left_out) is not None:
            yield (
                f"Fitted to four fifths of these, it takes the log-loss of the others from {found.raw:.4g} to "
                f"{found.calibrated:.4g}."
            )
        yield from self.told_notes()


SEEN_BEFORE = (
    "The model was trained on these very rows, where it looks better than it is; calibrate it on rows it has not seen."
)


HARMS = (
    "Of rows that were left out it makes the log-loss larger: do without it, or fit it to more rows or with fewer bins."
)


@dataclass(frozen=True)
class CalibrateStep(KnownRows, Step):
    """Calibrate a model's probabilities on rows of known classes that it was not trained on."""

    command = "calibrate"
    panel = Panel.TRAINING
    about = "{model} on {data} into {out}"

    model: Model
    data: Rows
    out: Annotated[Written, Option("Where to write the model with its calibration.", "MODEL")]
    bins: Annotated[int, Option("Bins of equal weight; each gives the spline a point.", least=1)] = 20
    monotone: Annotated[bool, Option("Let no spline fall: higher raw probabilities keep their order.")] = False
    batches: Annotated[
        int | None,
        Option(
            "Calibrate so many batches of the model, those trained together counted as one; by default, all.", least=0
        ),
    ] = None
    overwrite: Overwrite = False

    def check(self) -> None:
        from protodask.evaluation.control_points import SplineSettings

        SplineSettings(self.bins, self.monotone)

    def perform(self, engine: Engine, listen: Listener = nobody) -> ModelCalibrated:
        from protodask.data import Dataset
        from protodask.data.places.locations import locate
        from protodask.data.places.storage import check_free, check_outside
        from protodask.evaluation.calibration import fit_calibration, left_out_loss
        from protodask.prototypes.model import load_model
        from protodask.prototypes.persistence import CALIBRATION, MODEL, save_model
        from protodask.prototypes.table_model import fits_of

        model = load_model(self.model)
        model.batch_counts(self.batches)
        where = locate(self.out)
        for read in (self.model, self.data):
            check_outside(where, read)
        check_free(where, self.overwrite, MODEL)
        source, codes = self.known_rows(self.data, model, engine)
        key = source.key if isinstance(source, Dataset) else None
        calibration = fit_calibration(
            model, source, codes, engine, n_batches=self.batches, n_bins=self.bins, monotone=self.monotone
        )
        left_out = left_out_loss(calibration, model, source, codes, engine)
        entry = {"dataset": key, "finished": datetime.now(UTC).isoformat(timespec="seconds")}
        calibrated = replace(model, calibration=calibration, provenance={**model.provenance, CALIBRATION: entry})
        save_model(calibrated, where, overwrite=self.overwrite)
        seen = key is not None and any(fit.get("dataset") == key for fit in fits_of(model.provenance))
        harms = left_out is not None and left_out.calibrated > left_out.raw
        notes = tuple(note for note, holds in ((SEEN_BEFORE, seen), (HARMS, harms)) if holds)
        return ModelCalibrated(where, model.classes, calibration, left_out, notes)
