"""The step `split`: rows to train on, and rows held out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from protodask.errors import count
from protodask.pipeline.steps.base import Argument, Option, Overwrite, Panel, Read, Step, Written
from protodask.pipeline.telling.events import Listener, nobody
from protodask.pipeline.telling.result import Result, shorten

if TYPE_CHECKING:
    from protodask.engine import Engine


@dataclass(frozen=True)
class DatasetSplit(Result):
    """The two parts of a dataset lie at their paths."""

    kind = "split"

    path: str
    """Of the rows to train on."""
    held_out: str
    rows: int
    held_out_rows: int
    by: Literal["group", "row"]

    def summary(self) -> str:
        return (
            f"{shorten(self.path)} has {count(self.rows, 'row')} to train on, "
            f"{shorten(self.held_out)} the {self.held_out_rows:,} held out."
        )


@dataclass(frozen=True)
class SplitStep(Step):
    """Divide a dataset into rows to train on and rows held out; a row stays in its part when the dataset grows."""

    command = "split"
    panel = Panel.DATA

    data: Annotated[Read, Argument("A dataset.", "DATA")]
    out: Annotated[Written, Option("Where to write the rows to train on.", "DATA")]
    held_out: Annotated[Written, Option("Where to write the rows held out.", "DATA")]
    share: Annotated[float, Option("Share of the rows, or of the groups, to hold out.", "X")] = 0.2
    seed: Annotated[int, Option("Other seeds hold out other rows.", least=0)] = 0
    overwrite: Overwrite = False

    def check(self) -> None:
        from protodask.evaluation.splitting import check_split

        check_split(self.share, self.seed, self.out, self.held_out)

    def may_be_there(self) -> bool:
        return True  # a dataset that has grown is divided again, and its parts grow

    def perform(self, engine: Engine, listen: Listener = nobody) -> DatasetSplit:
        from protodask.data import Dataset
        from protodask.evaluation.splitting import split

        training, held_out = split(
            Dataset.open(self.data),
            self.out,
            self.held_out,
            share=self.share,
            seed=self.seed,
            engine=engine,
            overwrite=self.overwrite,
        )
        rows, by_group = (training.n_rows, held_out.n_rows), training.has_group
        return DatasetSplit(training.path, held_out.path, *rows, by="group" if by_group else "row")
