"""What an index of features answers: for one item, or for a table of sizes and budgets."""

from __future__ import annotations

import csv
import io
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.budget.column_folder import BudgetFolder, load_column_budget
from protodask.budget.lookup import SLACK, as_item, check_items
from protodask.budget.noise import CONFIDENCE
from protodask.budget.polynomials import evaluate
from protodask.data import Label
from protodask.data.places.whole_files import check_file_free, replace_file
from protodask.data.tables.encoding import encode_number
from protodask.data.tables.ingest_sources import open_table
from protodask.data.tables.source_files import check_present
from protodask.data.tables.table_files import check_parquet
from protodask.data.tables.tables import Partitions
from protodask.engine.records import Floats
from protodask.errors import InputError
from protodask.places import mask

SIZE, BUDGET = "size", "budget"
ROWS, UNAFFORDABLE = "rows", "unaffordable"

SEPARATOR = ";"
"""Between the names of features in a table."""


@dataclass(frozen=True)
class Answer:
    """Which features to compute for an item, and the model for them."""

    size: float
    budget: float
    features: tuple[str, ...]
    columns: tuple[str, ...]
    """Of tables: what the model asks for."""
    accuracy: float
    cost: float
    guarantee: float
    guaranteed: bool
    margin: float | None
    """Of this choice, see `BudgetIndex.margins`."""
    model: str | None
    """None where no feature is worth computing within the budget: then the shares of the classes are the answer."""
    shares: tuple[tuple[Label, float], ...]

    def describe(self) -> dict[str, Any]:
        """Plain values, for files."""
        return {
            "kind": "budget answer",
            "size": self.size,
            "budget": self.budget,
            "features": list(self.features),
            "columns": list(self.columns),
            "accuracy": self.accuracy,
            "cost": self.cost,
            "guarantee": self.guarantee,
            "guaranteed": self.guaranteed,
            "margin": self.margin,
            "confidence": CONFIDENCE,
            "model": None if self.model is None else mask(self.model),
            "shares": [{"label": label, "share": share} for label, share in self.shares],
        }


def answer_query(path: str, size: float, budget: float) -> Answer:
    """The most accurate choice for one item."""
    found = load_column_budget(path)
    choice = found.index.best(*as_item(found.index.curves, size, budget, SLACK))
    columns = [column for number in sorted(choice.features) for column in found.columns[number]]
    place, margins = found.numbers[choice.features], found.index.margins
    return Answer(
        size,
        budget,
        found.index.named(choice.features),
        tuple(columns),
        choice.accuracy,
        choice.cost,
        found.index.guarantee,
        found.index.guaranteed,
        None if margins is None else float(margins[place]),
        found.model_path(place),
        tuple(zip(found.classes, found.shares, strict=True)),
    )


@dataclass(frozen=True)
class TableAnswered:
    """Answers to a table of queries lie at `path`."""

    path: str
    rows: int
    unaffordable: int
    """Rows whose budget no set is within."""

    def describe(self) -> dict[str, Any]:
        """Plain values, for files."""
        return {
            "kind": "budget answers",
            "path": mask(self.path),
            ROWS: self.rows,
            UNAFFORDABLE: self.unaffordable,
        }


def answer_table(path: str, queries: str, out: str, overwrite: bool) -> TableAnswered:
    """Answer all rows of a CSV or Parquet file, a part of it at a time; the answers appear whole or not at all."""
    as_parquet = _is_parquet(out)
    if as_parquet:
        check_parquet(out, "Answers")
    found = load_column_budget(path)
    check_file_free(out, overwrite)
    check_present(queries)
    table = open_table(queries, (), (), None)
    if lacking := [name for name in (SIZE, BUDGET) if name not in table.names]:
        raise InputError(
            "column-missing",
            f"The table {queries} has no column {lacking[0]!r}.",
            f"Name its columns {SIZE!r} and {BUDGET!r}.",
        )
    tally: Counter[str] = Counter()
    parts = _answers(found, table, tally)
    replace_file(out, _parquet_bytes(parts) if as_parquet else _csv_bytes(parts))
    return TableAnswered(out, tally[ROWS], tally[UNAFFORDABLE])


def _is_parquet(out: str) -> bool:
    suffix = os.path.splitext(out)[1].lower()
    if suffix not in (".csv", ".parquet"):
        raise InputError(
            "bad-setting", f"The answers would go to {out}.", "Give a file whose name ends in .csv or .parquet."
        )
    return suffix == ".parquet"


Columns = Mapping[str, NDArray[Any]]
COLUMNS = (SIZE, BUDGET, "features", "accuracy", "cost", "model")


def _answers(found: BudgetFolder, table: Partitions, tally: Counter[str]) -> Iterator[Columns]:
    """Part by part the columns of the answers, which are counted."""
    index = found.index
    names = np.array([SEPARATOR.join(index.named(features)) for features in index.sets] + [""], dtype=object)
    models = np.array([found.model_path(number) or "" for number in range(len(index.sets))] + [""], dtype=object)
    accuracies = np.append(index.accuracies, np.nan)
    costs = np.vstack([index.costs, np.full(index.costs.shape[1], np.nan)])
    first = 0
    for partition in range(table.n_partitions):
        rows = table.read(partition)
        sizes, budgets = (_numbers(rows[name], name, first) for name in (SIZE, BUDGET))
        check_items(index.curves, sizes, budgets, first)
        numbers = index.choose(sizes, budgets * SLACK)  # -1, for none, is the last entry of what is looked up below
        first += len(numbers)
        tally.update({ROWS: len(numbers), UNAFFORDABLE: int((numbers < 0).sum())})
        yield {
            SIZE: sizes,
            BUDGET: budgets,
            "features": names[numbers],
            "accuracy": accuracies[numbers],
            "cost": evaluate(costs[numbers], sizes),
            "model": models[numbers],
        }


def _numbers(values: Any, name: str, first: int) -> Floats:
    numbers, problem = encode_number(values, name)
    if problem is not None:
        raise problem.shifted(first).error()
    return numbers


def _csv_bytes(parts: Iterator[Columns]) -> Iterator[bytes]:
    tables = (zip(*(_texts(part[name]) for name in COLUMNS), strict=True) for part in parts)
    for rows in chain([[COLUMNS]], tables):
        with io.StringIO(newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
            yield file.getvalue().encode()


def _texts(values: NDArray[Any]) -> list[Any]:
    """Numbers to the last bit; what is missing is left empty."""
    if values.dtype.kind != "f":
        return list(values)
    return ["" if value != value else value for value in values.tolist()]


class _Collected(io.BytesIO):
    """Holds what was written to it until it is taken, and counts that on."""

    taken = 0

    def tell(self) -> int:
        return self.taken + super().tell()

    def take(self) -> bytes:
        part = self.getvalue()
        self.taken += len(part)
        self.seek(0)
        self.truncate()
        return part


def _parquet_bytes(parts: Iterator[Columns]) -> Iterator[bytes]:
    import pyarrow
    import pyarrow.parquet

    number, text = pyarrow.float64(), pyarrow.string()
    schema = pyarrow.schema([(name, text if name in ("features", "model") else number) for name in COLUMNS])
    collected = _Collected()
    with pyarrow.parquet.ParquetWriter(collected, schema, write_page_checksum=True) as writer:
        for part in parts:
            arrays = [pyarrow.array(part[name], schema.field(name).type, from_pandas=True) for name in COLUMNS]
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))
            yield collected.take()
    yield collected.take()
