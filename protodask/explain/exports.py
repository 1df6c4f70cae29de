"""Tables as files: CSV, Parquet and Excel, whole or not at all.

Text stays what it is in each of them. In Excel every text is a text cell, marked such that it stays one when it is
edited, so that what begins with = + - or @ is never a formula. In CSV nothing can be marked and nothing is changed:
what is read back is what was written, and a spreadsheet may take such text for a formula; give people Excel files.
"""

from __future__ import annotations

import csv
import io
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from protodask.data.places.locations import storage_errors
from protodask.data.places.whole_files import check_file_free, replace_file
from protodask.errors import InputError, count, needed
from protodask.explain.tables import Cell, Table
from protodask.places import mask

SUFFIXES = (".csv", ".parquet", ".xlsx")

EXCEL_ROWS = 2**20
EXCEL_COLUMNS = 2**14
EXCEL_CHARACTERS = 32767
EXCEL_DIGITS = 10**15
"""Whole numbers from here on lose digits in Excel, so they are written as text."""

MAY_MEAN_MORE = tuple("=+-@#\t\r")
"""First characters of text that a spreadsheet, or the library that writes it, may take for a formula or an error."""

NOT_IN_XML = re.compile(r"[\x00-\x08\x0b-\x1f\ufffe\uffff]|_(?=x[0-9A-Fa-f]{4}_)")
"""What XML cannot hold, and what would be read as such: in Excel files a bell is written _x0007_."""

CHUNK_LINES = 4096
"""Lines of a CSV file that are written at a time."""


def export(tables: Table | Sequence[Table], path: str | os.PathLike[str], overwrite: bool = False) -> None:
    """Write tables to a local file, in the format its suffix names: .csv, .parquet or .xlsx.

    An Excel file has a sheet for each table; the others hold one table.
    """
    given = [tables] if isinstance(tables, Table) else list(tables)
    where = os.fspath(path)
    check_export(where, overwrite, len(given))
    parts: Iterable[bytes]
    match suffix_of(where):
        case ".csv":
            parts = _csv(given[0])
        case ".parquet":
            parts = [_parquet(given[0])]
        case _:
            parts = [_excel(given)]
    replace_file(where, parts)


def check_export(path: str, overwrite: bool, n_tables: int = 1) -> None:
    """Refuse what `export` would refuse, before there is anything to write."""
    suffix = suffix_of(path)
    if suffix not in SUFFIXES:
        raise InputError(
            "bad-setting",
            f"{mask(path)} does not say in which format to write.",
            f"Give it one of the suffixes {', '.join(SUFFIXES)}; what a model computes can go into one with .onnx.",
        )
    if n_tables == 0:
        raise InputError("no-rows", "There is no table to write.", "Give at least one.")
    if suffix != ".xlsx" and n_tables > 1:
        raise InputError(
            "unsupported",
            f"A {suffix} file holds one table, and there are {n_tables}.",
            "Write them to one file each, or all to one .xlsx file.",
        )
    package, extra = ("pyarrow", "tabular") if suffix == ".parquet" else ("openpyxl", "report")
    seen = f"Writing {suffix} files needs {package}, which is not installed."
    with needed(seen, f"Install protodask[{extra}], or write a .csv file."):
        if suffix == ".parquet":
            import pyarrow.parquet  # noqa: F401
        elif suffix == ".xlsx":
            import openpyxl  # noqa: F401
    check_file_free(path, overwrite)


def suffix_of(path: str) -> str:
    """The suffix of a path, with its dot, in lower case."""
    return os.path.splitext(path)[1].lower()


def _csv(table: Table) -> Iterator[bytes]:
    text = io.StringIO(newline="")
    writer = csv.writer(text)  # lines end as RFC 4180 has it, so that single ones of either character are quoted
    writer.writerow(map(_clean, table.columns))
    for number, row in enumerate(table.rows(), start=1):
        writer.writerow(map(_clean, row))
        if number % CHUNK_LINES == 0:
            yield text.getvalue().encode()
            text.seek(0)
            text.truncate()
    yield text.getvalue().encode()


def _clean(value: Cell) -> Cell:
    # Halves of a character, which a damaged or hostile file may hold, cannot be encoded.
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _parquet(table: Table) -> bytes:
    import pyarrow
    import pyarrow.parquet

    columns: dict[str, Any] = {}
    for name, values in table.columns.items():
        free = str(_clean(name))
        while free in columns:  # names that differ in what cannot be encoded alone
            free += "?"
        columns[free] = pyarrow.array(_of_one_type(values))
    sink = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), sink)
    return sink.getvalue()


def _of_one_type(values: Sequence[Cell]) -> list[Any]:
    """Values that a column of one type holds: text as soon as they are mixed, but for whole and other numbers, and
    where whole numbers do not fit into 64 bits.
    """
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        return [None if value is None else float(value) for value in values]
    if len(kinds) > 1 or any(isinstance(value, int) and abs(value) >= 2**63 for value in values):
        return [None if value is None else _clean(str(value)) for value in values]
    return list(map(_clean, values))


def _excel(tables: Sequence[Table]) -> bytes:
    import openpyxl

    for table in tables:
        _check_excel(table)
    workbook = openpyxl.Workbook(write_only=True)
    sink = io.BytesIO()
    with storage_errors("temporary files, which go to the folder TMPDIR,", "writing"):
        for table in tables:
            sheet = workbook.create_sheet(table.name)
            sheet.freeze_panes = "A2"
            sheet.append([_excel_cell(sheet, name) for name in table.columns])
            for row in table.rows():
                sheet.append([_excel_cell(sheet, value) for value in row])
        workbook.save(sink)
    return sink.getvalue()


def _check_excel(table: Table) -> None:
    if table.n_rows >= EXCEL_ROWS or len(table.columns) > EXCEL_COLUMNS:
        raise InputError(
            "over-limit",
            f"The table of {table.name} has {count(table.n_rows, 'row')} and {count(len(table.columns), 'column')}, "
            f"and an Excel sheet holds {EXCEL_ROWS - 1:,} by {EXCEL_COLUMNS:,}.",
            "Write a .csv or .parquet file.",
        )
    texts = (value for row in (table.columns, *table.rows()) for value in row if isinstance(value, str))
    longest = max((len(_excel_text(text)) for text in texts), default=0)
    if longest > EXCEL_CHARACTERS:
        raise InputError(
            "over-limit",
            f"A text of {longest} characters is longer than a cell of an Excel sheet can be.",
            "Write a .csv or .parquet file.",
        )


def _excel_text(value: str) -> str:
    return NOT_IN_XML.sub(lambda found: f"_x{ord(found[0]):04X}_", str(_clean(value)))


def _excel_cell(sheet: Any, value: Cell) -> Any:
    from openpyxl.cell import WriteOnlyCell

    match value:
        case bool() | None:
            return value
        case int():
            return value if abs(value) < EXCEL_DIGITS else str(value)
        case float():
            return value if math.isfinite(value) else str(value)
    text = _excel_text(value)
    if not text.startswith(MAY_MEAN_MORE):
        return text
    cell = WriteOnlyCell(sheet, text)
    cell.data_type = "s"
    cell.quotePrefix = True  # the apostrophe that keeps it text when it is edited
    return cell
