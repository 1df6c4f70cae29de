"""The step `subsample`: keep a part of a dataset's rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from protodask.errors import InputError, count
from protodask.pipeline.steps.base import Argument, Option, Overwrite, Panel, Read, Step, Written
from protodask.pipeline.telling.events import Listener, nobody
from protodask.pipeline.telling.result import Piece, Result, Table, number, shorten

if TYPE_CHECKING:
    from protodask.data import Dataset, Label
    from protodask.engine import Engine


@dataclass(frozen=True)
class DrawnPart:
    """The rows of a class, or of a value of a column."""

    label: Label | float
    source_rows: int
    rate: float
    """Probability of keeping a row."""
    rows: int
    """Those that were kept."""
    weight: float
    """Rows that those that were kept stand for: `sum 1 / l`, times their weights if they have any."""


@dataclass(frozen=True)
class DatasetSubsampled(Result):
    """A part of a dataset's rows lies at its path."""

    dataset: Dataset
    by: str | None
    """The column whose values the parts are of; None where they are classes."""
    parts: tuple[DrawnPart, ...]

    @property
    def effective(self) -> float:
        """The effective number of rows, `sum 1 / l`."""
        return float(self.dataset.summary.weight)

    def describe(self) -> dict[str, Any]:
        by_class = self.by is None
        return {
            **self.dataset.describe(),
            "kind": "subsample",
            "effective_rows": self.effective,
            **({} if by_class else {"by": self.by}),
            "classes" if by_class else "values": list(map(asdict, self.parts)),
        }

    def summary(self) -> str:
        stand = "stands" if self.dataset.n_rows == 1 else "stand"
        rows = f"{count(self.dataset.n_rows, 'row')}, which {stand} for {number(self.effective)}"
        return f"The subsample {shorten(self.dataset.path)} has {rows}."

    def told(self) -> Iterator[Piece]:
        yield self.summary()
        yield ""
        rows = [
            [str(part.label), f"{part.source_rows:,}", f"{part.rate:.4g}", f"{part.rows:,}", number(part.weight)]
            for part in self.parts
        ]
        yield Table([self.by or "class", "rows", "rate", "kept", "stand for"], rows)


def parse_rates(values: Sequence[str]) -> dict[str, float]:
    """Inclusion probabilities by label, from "LABEL=L"; a label may have equals signs itself, and may be empty."""
    rates: dict[str, float] = {}
    for value in values:
        label, separator, text = value.rpartition("=")
        try:
            rate = float(text)
        except ValueError:
            separator = ""
        if not separator:
            raise InputError(
                "bad-setting", f"--rate {value} is no rate of a class or a value.", "Write it like no=0.01."
            )
        if label in rates:
            raise InputError("named-twice", f"{label!r} has two rates.", "Give one.")
        rates[label] = rate
    return rates


@dataclass(frozen=True)
class SubsampleStep(Step):
    """Keep a part of a dataset's rows, drawn by class or value, with the probability that each was kept."""

    command = "subsample"
    panel = Panel.DATA
    replaces = ("data",)

    data: Annotated[Read, Argument("A dataset.", "DATA")]
    out: Annotated[Written, Option("Where to write the dataset of the rows kept.", "DATA")]
    rate: Annotated[
        Mapping[str, float],
        Option(
            "Probability of keeping a row of this class, or value of --by; those that are not named are kept whole. "
            "Repeatable.",
            "LABEL=L",
            read=parse_rates,
        ),
    ] = field(default_factory=dict)
    budget: Annotated[
        int | None,
        Option(
            "Keep about so many rows in all, in place of --rate: of the classes as evenly as can be.", "ROWS", least=1
        ),
    ] = None
    by: Annotated[
        str | None,
        Option("Draw by this column in place of the class: by numbers that --rate names, or by categories.", "COL"),
    ] = None
    seed: Annotated[int, Option("Other seeds keep other rows.", least=0)] = 0
    overwrite: Overwrite = False

    def check(self) -> None:
        from protodask.evaluation.subsampling import check_rates, checked_seed

        check_rates(self.rate or None, self.budget)
        checked_seed(self.seed)

    def perform(self, engine: Engine, listen: Listener = nobody) -> DatasetSubsampled:
        from protodask.data import Dataset
        from protodask.evaluation.subsampling import drawn

        dataset, draw, found = drawn(
            Dataset.open(self.data),
            self.out,
            rates=self.rate or None,
            budget=self.budget,
            by=self.by,
            seed=self.seed,
            engine=engine,
            overwrite=self.overwrite,
        )
        by_class = draw.strata.column is None
        figures = (found.rows.tolist(), draw.rates, found.kept.tolist(), found.weight.tolist())
        parts = [DrawnPart(*part) for part in zip(draw.strata.shown, *figures, strict=True)]
        shown = tuple(part for part in parts if part.source_rows or by_class)
        return DatasetSubsampled(dataset, None if by_class else draw.strata.name, shown)
