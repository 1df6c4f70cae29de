"""The step `predict`: a model's predictions for a dataset or raw tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from protodask.errors import InputError, count
from protodask.pipeline.steps.base import Argument, Option, Overwrite, Panel, Read, Step, StepNews, Written
from protodask.pipeline.steps.rows import Batches, Calibrated, GivenRows, Model
from protodask.pipeline.telling.events import Listener, nobody
from protodask.pipeline.telling.result import Result, shorten

if TYPE_CHECKING:
    from protodask.engine import Engine, Source
    from protodask.pipeline.each_file.scoring import FilesScored
    from protodask.prototypes.model import PrototypeSet


@dataclass(frozen=True)
class PredictionsWritten(Result):
    """Predictions for `rows` rows lie at `path`."""

    kind = "predictions"

    path: str
    rows: int
    batches: int
    calibrated: bool = False
    marked: int = 0
    """Rows among them that could not be scored."""

    def summary(self) -> str:
        kind = "calibrated predictions" if self.calibrated else "predictions"
        marked = f", of which {self.marked:,} could not be scored and are marked" if self.marked else ""
        return f"The {kind} {shorten(self.path)} have {count(self.rows, 'row')}{marked}."


Predictions = Annotated[
    Written, Option("Where to write: Parquet if it ends in .parquet, CSV if in .csv, otherwise Zarr.", "PRED")
]


@dataclass(frozen=True)
class PredictStep(GivenRows, Step):
    """Write a model's probabilities, familiarity and predicted class for each row, in the order of the rows."""

    command = "predict"
    panel = Panel.USE
    about = "{data} with {model} into {out}"

    model: Model
    data: Annotated[
        tuple[Read, ...], Argument("A dataset, or raw tables or arrays: files, globs or folders.", "DATA...")
    ]
    out: Predictions
    batches: Batches = None
    calibrated: Calibrated = False
    bad_rows: Annotated[
        Literal["error", "mark"],
        Option(
            "Rows of raw tables with a value that cannot be used, such as text where a number is expected: an error, "
            "or marked, by no predicted class, while the others are scored."
        ),
    ] = "error"
    keep: Annotated[
        tuple[str, ...], Option("Column of raw tables to write beside the predictions, as an id. Repeatable.", "COL")
    ] = ()
    each_file: Annotated[
        bool, Option("Score each file that is new once, into a part of its own of the folder that is written.")
    ] = False
    settle: Annotated[
        float,
        Option(
            "With --each-file: leave files for next time that changed within so many seconds.", "SECONDS", counts=False
        ),
    ] = 0.0
    overwrite: Overwrite = False

    def check(self) -> None:
        if self.keep:
            from protodask.prototypes.prediction_columns import check_kept

            check_kept(self.keep, self.out)
        if self.each_file or self.settle:
            from protodask.pipeline.each_file.scoring import check_each_file

            check_each_file(self)

    def perform(self, engine: Engine, listen: Listener = nobody) -> PredictionsWritten | FilesScored:
        from protodask.data.places.locations import locate
        from protodask.data.tables.table_files import check_rows_free
        from protodask.pipeline.each_file.scoring import score_each_file
        from protodask.prototypes.model import load_model
        from protodask.prototypes.prediction import PREDICTIONS, predict
        from protodask.prototypes.rows_to_score import marked_rows, with_advice

        if self.each_file:
            return score_each_file(self, engine, load_model)
        model = load_model(self.model)
        count = model.scored_batches(self.batches, self.calibrated)
        where = locate(self.out)
        check_rows_free(where, self.overwrite, PREDICTIONS)
        try:
            source = self.rows(model, engine, *self.data)
        except InputError as error:
            raise with_advice(error) from error
        rows = predict(
            model,
            source,
            where,
            n_batches=self.batches,
            calibrated=self.calibrated,
            engine=engine,
            overwrite=self.overwrite,
        )
        return PredictionsWritten(where, rows, count, self.calibrated, marked_rows(source))

    def rows(self, model: PrototypeSet, engine: Engine, *places: str) -> Source:
        """The rows at some places, read for a model as is said."""
        from protodask.prototypes.rows_to_score import rows_to_predict

        return rows_to_predict(
            model, *places, engine=engine, unseen=self.unseen, bad_rows=self.bad_rows, drop=self.drop, keep=self.keep
        )

    def grows(self) -> bool:
        return self.each_file

    def takes_new(self) -> bool:
        return self.each_file

    def news(self) -> StepNews:
        from protodask.pipeline.each_file.ledger import news_of_predict

        return news_of_predict(self)
