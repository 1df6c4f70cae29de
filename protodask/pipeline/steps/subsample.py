"""The step `subsample`: keep a part of a dataset's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from protodask.errors import InputError
from protodask.pipeline.steps.base import Argument, Option, Overwrite, Panel, Read, Step, Written
from protodask.pipeline.telling.events import Listener, nobody
from protodask.places import mask

if TYPE_CHECKING:
    from protodask.engine import Engine
    from protodask.pipeline.results.common import DatasetSubsampled


def parse_rates(values: Sequence[str]) -> dict[str, float]:
    """Inclusion probabilities by label, from "LABEL=L"; a label may have equals signs itself."""
    rates: dict[str, float] = {}
    for value in values:
        label, separator, text = value.rpartition("=")
        try:
            rate = float(text)
        except ValueError:
            separator = ""
        if not separator or not label:
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
        from protodask.pipeline.results.common import DatasetSubsampled, DrawnPart

        dataset, draw = drawn(
            Dataset.open(self.data),
            self.out,
            rates=self.rate or None,
            budget=self.budget,
            by=self.by,
            seed=self.seed,
            engine=engine,
            overwrite=self.overwrite,
        )
        by_class, found = draw.strata.column is None, draw.counted
        figures = (values.tolist() for values in (found.rows, draw.rates, found.kept, found.weight))
        parts = [DrawnPart(*part) for part in zip(draw.strata.shown, *figures, strict=True)]
        shown = tuple(part for part in parts if part.source_rows or by_class)
        return DatasetSubsampled(dataset, None if by_class else draw.strata.name, shown)

    def subject(self) -> str:
        return f"{mask(self.data)} into {mask(self.out)}"
