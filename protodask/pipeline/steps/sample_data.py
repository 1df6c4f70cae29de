"""The step `sample-data`: datasets to try things on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from protodask.pipeline.steps.base import Argument, Option, Overwrite, Panel, Step, Written
from protodask.pipeline.steps.ingest import DatasetWritten
from protodask.pipeline.telling.events import Listener, nobody

if TYPE_CHECKING:
    from protodask.engine import Engine


@dataclass(frozen=True)
class SampleDataStep(Step):
    """Make a dataset of sample data, of any number of rows."""

    command = "sample-data"
    panel = Panel.DATA
    about = "{rows} rows of {kind} into {out}"

    kind: Annotated[
        Literal["checker", "xor", "digits", "blobs"],
        Argument(
            "checker: 8 x 8 fields of the unit square. xor: sign of the product of all features. digits: distorted "
            "images of digits. blobs: a normal distribution for each class.",
            "checker|xor|digits|blobs",
        ),
    ]
    rows: Annotated[int, Option("Rows to make.", least=1)]
    out: Annotated[Written, Option("Where to write the dataset.", "DATA")]
    seed: Annotated[int, Option("Other seeds make other rows.", least=0)] = 0
    features: Annotated[int | None, Option("Features of xor or blobs.", least=1)] = None
    classes: Annotated[int | None, Option("Classes of blobs.", least=2)] = None
    overwrite: Overwrite = False

    def check(self) -> None:
        from protodask.data.tables.synthetic import synthetic_source

        synthetic_source(self.kind, self.rows, seed=self.seed, n_features=self.features, n_classes=self.classes)

    def perform(self, engine: Engine, listen: Listener = nobody) -> DatasetWritten:
        from protodask.data import sample_data

        dataset = sample_data(
            self.kind,
            self.rows,
            self.out,
            seed=self.seed,
            n_features=self.features,
            n_classes=self.classes,
            engine=engine,
            overwrite=self.overwrite,
        )
        return DatasetWritten(dataset)
