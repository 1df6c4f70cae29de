"""The steps that make a dataset: `ingest` of tables and arrays, and `sample-data` to try things on."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from protodask.errors import InputError, count
from protodask.pipeline.steps.base import Argument, Option, Overwrite, Panel, Read, Step, StepNews, Written
from protodask.pipeline.telling.events import Listener, nobody
from protodask.pipeline.telling.result import Result, shorten
from protodask.places import mask

if TYPE_CHECKING:
    from protodask.data import Dataset
    from protodask.data.format.segments import Segment
    from protodask.engine import Engine


@dataclass(frozen=True)
class DatasetWritten(Result):
    """A dataset lies at its path."""

    dataset: Dataset
    taken: tuple[Segment, ...] | None = None
    """The sources that were new, where only such were asked for; none where it was left as it was."""
    left: tuple[str, ...] = ()
    """Files that changed a moment ago, or were being changed: for the next time."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was noticed about the data."""
        return self.dataset.notes

    def describe(self) -> dict[str, Any]:
        found = self.dataset.describe()
        if self.taken is not None:
            found["new_sources"] = len(self.taken)
            found["new_rows"] = sum(segment.rows for segment in self.taken)
            found["left"] = [mask(path) for path in self.left]
        return found

    def summary(self) -> str:
        dataset = self.dataset
        line = (
            f"The dataset {shorten(dataset.path)} has {count(dataset.n_rows, 'row')}, "
            f"{count(dataset.n_features, 'feature')} and {len(dataset.classes)} classes."
        )
        if self.taken is None:
            return line
        waiting = f" Left for the next time, as they changed just now: {count(len(self.left), 'file')}."
        left = waiting if self.left else ""
        if not self.taken:
            return f"Nothing is new. {line}{left}"
        rows = sum(segment.rows for segment in self.taken)
        return f"{line} New: {count(rows, 'row')} from {count(len(self.taken), 'source')}.{left}"


Columns = tuple[str, ...]


def parse_orders(values: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Columns with their categories, lowest first, from "COL=a,b,c"; in double quotes where one has a comma, or the
    column an equals sign.
    """
    orders: dict[str, tuple[str, ...]] = {}
    for value in values:
        name, separator, order = value.partition("=")
        if quoted := re.fullmatch(r'"((?:[^"]|"")+)"=(.*)', value, re.DOTALL):
            name, order = quoted[1].replace('""', '"'), quoted[2]
        if not name or not separator or not order:
            raise InputError("bad-setting", f"--ordinal {value} is no order.", "Write it like size=small,medium,large.")
        if name in orders:
            raise InputError("named-twice", f"The column {name!r} has two orders.", "Give one.")
        given = next(csv.reader([order], skipinitialspace=True)) if '"' in order else order.split(",")
        orders[name] = tuple(category.strip() for category in given)
    return orders


@dataclass(frozen=True)
class IngestStep(Step):
    """Make a dataset from tables or arrays, or add to one the rows that it does not have."""

    command = "ingest"
    panel = Panel.DATA
    about = "{sources} into {out}"
    appends: ClassVar[bool] = False
    """Whether all rows are added, also those that the dataset has."""

    sources: Annotated[
        tuple[Read, ...],
        Argument(
            "CSV or Parquet files, globs or folders of them; .npy, .npz or Zarr arrays; with --new, datasets, too.",
            "SOURCE...",
        ),
    ]
    out: Annotated[Written, Option("Where to write the dataset.", "DATA")]
    target: Annotated[str | None, Option("Column of the classes; by default, 'target'.", "COL")] = None
    categorical: Annotated[Columns, Option("Column of categories: a feature for each. Repeatable.", "COL")] = ()
    ordinal: Annotated[
        Mapping[str, tuple[str, ...]],
        Option("Column of ordered categories, lowest first. Repeatable.", "COL=a,b,c", read=parse_orders),
    ] = field(default_factory=dict)
    weight: Annotated[str | None, Option("Column of row weights.", "COL")] = None
    inclusion: Annotated[str | None, Option("Column of the probabilities with which rows were kept.", "COL")] = None
    group: Annotated[str | None, Option("Column that says which rows belong together, such as a patient.", "COL")] = (
        None
    )
    drop: Annotated[Columns, Option("Column to leave out. Repeatable.", "COL")] = ()
    text_is_categorical: Annotated[bool, Option("Take columns of text as categories, unless said otherwise.")] = False
    missing: Annotated[
        Literal["fill", "error"],
        Option(
            "Missing values of features count as the mean, or as no category, and are marked by a further feature; or "
            "they are an error."
        ),
    ] = "fill"
    unseen: Annotated[
        Literal["error", "zero"],
        Option(
            "Categories, in rows that are added to a dataset, that it does not have: an error, or no category. A new "
            "dataset has all that there are."
        ),
    ] = "error"
    dtype: Annotated[Literal["float32", "float64"], Option("Type the features are stored in.")] = "float32"
    new: Annotated[
        bool,
        Option(
            "Add only the files, or parts of datasets, that the dataset at the output path does not have; make it if "
            "there is none."
        ),
    ] = False
    unless_in: Annotated[Read | None, Option("Take only what this other dataset does not have.", "OTHER")] = None
    settle: Annotated[
        float,
        Option(
            "Leave files that changed within so many seconds for the next time.", "SECONDS", least=0.0, counts=False
        ),
    ] = 0.0
    overwrite: Overwrite = False

    def check(self) -> None:
        from protodask.data.news.new_sources import check_new

        check_new(self.new, self.unless_in, self.settle, self.appends, self.overwrite, self.out)

    def perform(self, engine: Engine, listen: Listener = nobody) -> DatasetWritten:
        from protodask.data.news.ingest_news import ingest_news
        from protodask.data.tables.ingest import ingest_wanted
        from protodask.data.tables.ingest_schema import Roles, Wanted, orders_of

        sources = list(self.sources)
        wanted = Wanted(
            Roles(self.target, self.weight, self.inclusion, self.group),
            self.categorical,
            orders_of(self.ordinal),
            self.drop,
            self.dtype,
            self.missing,
            self.text_is_categorical,
            self.unseen,
        )
        if not self.takes_new():
            return DatasetWritten(ingest_wanted(sources, self.out, wanted, self.appends, self.overwrite, engine))
        found = ingest_news(
            sources,
            self.out,
            wanted,
            new=self.new,
            unless_in=self.unless_in,
            settle=self.settle,
            overwrite=self.overwrite and not self.new,  # it is for `unless_in` alone
            engine=engine,
        )
        return DatasetWritten(found.dataset, found.taken, found.left)

    def grows(self) -> bool:
        return self.new

    def takes_new(self) -> bool:
        return self.new or self.unless_in is not None

    def news(self) -> StepNews:
        from protodask.data.news.new_sources import check_new, news_for

        check_new(self.new, self.unless_in, self.settle, False, self.overwrite, self.out)
        found = news_for(self.out, self.sources, self.new, self.unless_in, self.settle)
        return StepNews(found.describe() if found.items else None, len(found.waiting) + len(found.changing))


@dataclass(frozen=True)
class AppendStep(IngestStep):
    """Add rows to a dataset, also those that it has: no step of a pipeline, where it would be done again and again."""

    appends: ClassVar[bool] = True

    def may_be_there(self) -> bool:
        return True


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
