"""Tables as files."""

import csv
import os
import sys
from pathlib import Path
from typing import Any

import openpyxl
import pandas
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openpyxl.utils.escape import unescape
from support.disk import small_files_only
from support.errors import refused

from protodask.errors import Code, OutputExistsError, StorageError
from protodask.explain import exports as module
from protodask.explain.exports import export
from protodask.explain.tables import Cell, Table

AWKWARD = [
    *("a, b", "two\nlines", 'say "no"', "<b>bold</b> & co", "=1+1", "+1", "-1", "@SUM(A1)", "=", "#N/A", "'quoted"),
    *("  spaces  ", "\ttab", "ünï ☃ 🎲", "", "TRUE", "007", "; semi", "=cmd|' /C calc'!A0"),
]


def read_csv(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def sheet_rows(path: Path, name: str | None = None) -> list[tuple[Any, ...]]:
    book = openpyxl.load_workbook(path)
    sheet = book[name] if name else book.worksheets[0]
    return [tuple(cell.value for cell in row) for row in sheet.iter_rows()]


def test_export__awkward_text_is_read_back_from_csv(tmp_path: Path) -> None:
    export(Table("t", {"=name, of it": AWKWARD, "n": list(range(len(AWKWARD)))}), tmp_path / "t.csv")
    header, *lines = read_csv(tmp_path / "t.csv")
    assert header == ["=name, of it", "n"]
    assert [line[0] for line in lines] == AWKWARD
    assert [int(line[1]) for line in lines] == list(range(len(AWKWARD)))


def test_export__awkward_text_is_read_back_from_parquet(tmp_path: Path) -> None:
    export(Table("t", {"=name": AWKWARD}), tmp_path / "t.parquet")
    assert pyarrow.parquet.read_table(tmp_path / "t.parquet").to_pydict() == {"=name": AWKWARD}


def test_export__awkward_text_is_text_in_excel(tmp_path: Path) -> None:
    export(Table("t", {"=name": AWKWARD}), tmp_path / "t.xlsx")
    sheet = openpyxl.load_workbook(tmp_path / "t.xlsx").worksheets[0]
    cells = [row[0] for row in sheet.iter_rows()]
    assert [cell.value or "" for cell in cells] == ["=name", *AWKWARD]
    for cell in cells:
        assert cell.data_type == "s" or cell.value is None
        assert cell.quotePrefix == bool(cell.value and cell.value[0] in "=+-@#\t")


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.tuples(st.text(max_size=20), st.floats(allow_nan=False), st.integers(-(2**62), 2**62), st.booleans()),
        max_size=6,
    )
)
def test_export__whatever_it_is_comes_back(rows: list[tuple[str, float, int, bool]], tmp_path: Path) -> None:
    columns = {name: [row[position] for row in rows] for position, name in enumerate(("s", "f", "i", "b"))}
    table = Table("t", columns)
    export(table, tmp_path / "t.csv", overwrite=True)
    lines = [(line[0], float(line[1]), int(line[2]), line[3] == "True") for line in read_csv(tmp_path / "t.csv")[1:]]
    assert lines == rows
    export(table, tmp_path / "t.parquet", overwrite=True)
    assert pyarrow.parquet.read_table(tmp_path / "t.parquet").to_pydict() == columns


def test_export__numbers_keep_sixteen_digits_in_excel_and_all_elsewhere(tmp_path: Path) -> None:
    numbers = [0.1, 1 / 3, 1e-300, 5e-324, -1.7e308, 123456789.123456789]
    for suffix in module.SUFFIXES:
        export(Table("t", {"x": numbers}), tmp_path / f"t{suffix}")
    assert [row[0] for row in sheet_rows(tmp_path / "t.xlsx")[1:]] == pytest.approx(numbers, rel=1e-15, abs=0)
    assert [float(row[0]) for row in read_csv(tmp_path / "t.csv")[1:]] == numbers
    assert pyarrow.parquet.read_table(tmp_path / "t.parquet").to_pydict() == {"x": numbers}


def test_export__what_excel_cannot_hold_is_text_there(tmp_path: Path) -> None:
    values: list[Cell] = [float("inf"), 10**15 - 1, 2**62 + 1, "bell\x07", "return\r", "_x0041_", None, True]
    export(Table("t", {"x": values}), tmp_path / "t.xlsx")
    found = [row[0] for row in sheet_rows(tmp_path / "t.xlsx")[1:]]
    assert found == [
        *("inf", 10**15 - 1, str(2**62 + 1), "bell_x0007_", "return_x000D_", "_x005F_x0041_"),
        *(None, True),
    ]


def test_export__halves_of_characters_do_not_stop_it(tmp_path: Path) -> None:
    for suffix in ("csv", "parquet", "xlsx"):
        export(Table("t", {"x\ud800": ["a\udfffb"]}), tmp_path / f"t.{suffix}")
    assert read_csv(tmp_path / "t.csv") == [["x?"], ["a?b"]]


def test_export__mixed_values_are_text_in_parquet(tmp_path: Path) -> None:
    export(Table("t", {"x": [1, "a", None], "y": [1, 2.5, None], "z": [None, None, None]}), tmp_path / "t.parquet")
    found = pyarrow.parquet.read_table(tmp_path / "t.parquet").to_pydict()
    assert found == {"x": ["1", "a", None], "y": [1.0, 2.5, None], "z": [None, None, None]}


def test_export__many_lines_and_none(tmp_path: Path) -> None:
    size = 2 * module.CHUNK_LINES + 5
    export(Table("t", {"x": list(range(size))}), tmp_path / "t.csv")
    assert pandas.read_csv(tmp_path / "t.csv")["x"].tolist() == list(range(size))
    for suffix in module.SUFFIXES:
        export(Table("t", {"x": []}), tmp_path / f"none{suffix}")
    assert read_csv(tmp_path / "none.csv") == [["x"]]
    assert sheet_rows(tmp_path / "none.xlsx") == [("x",)]


def test_export__several_tables_are_sheets(tmp_path: Path) -> None:
    export([Table("one", {"x": [1]}), Table("two", {"y": ["a"]})], tmp_path / "t.XLSX")
    assert sheet_rows(tmp_path / "t.XLSX", "one") == [("x",), (1,)]
    assert sheet_rows(tmp_path / "t.XLSX", "two") == [("y",), ("a",)]
    for suffix in (".csv", ".parquet"):
        with refused("unsupported", suffix, 2, ".xlsx"):
            export([Table("one", {"x": [1]}), Table("two", {"y": ["a"]})], tmp_path / f"t{suffix}")


@pytest.mark.parametrize("suffix", module.SUFFIXES)
def test_export__replaces_only_when_told_to(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / "deep" / f"t{suffix}"
    export(Table("t", {"x": [1]}), path)
    before = path.read_bytes()
    with refused("exists", "overwrite=True", kind=OutputExistsError):
        export(Table("t", {"x": [2]}), path)
    assert path.read_bytes() == before
    export(Table("t", {"x": [2]}), path, overwrite=True)
    assert path.read_bytes() != before
    assert os.listdir(path.parent) == [path.name]
    (tmp_path / f"folder{suffix}").mkdir()
    with refused("wrong-kind", tmp_path / f"folder{suffix}", kind=OutputExistsError):
        export(Table("t", {"x": [2]}), tmp_path / f"folder{suffix}", overwrite=True)


@pytest.mark.parametrize("suffix", module.SUFFIXES)
def test_export__that_fails_leaves_what_was_there(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / f"t{suffix}"
    export(Table("t", {"x": [1]}), path)
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr("protodask.data.places.whole_files.flush_handle", fail)
    with refused("disk-full", path, kind=StorageError):
        export(Table("t", {"x": [2]}), path, overwrite=True)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize(
    ("name", "code", "facts"),
    [
        ("t.xls", "bad-setting", ("t.xls", ".csv", ".parquet", ".xlsx")),
        ("t", "bad-setting", ("t", ".csv", ".parquet", ".xlsx")),
    ],
)
def test_export__refuses_other_places(name: str, code: Code, facts: tuple[object, ...]) -> None:
    with refused(code, *facts):
        export(Table("t", {"x": [1]}), name)
    with refused("not-local", "s3://bucket/t.csv"):
        export(Table("t", {"x": [1]}), "s3://bucket/t.csv")


def test_export__writes_excel_files_that_are_well_formed_whatever_the_letters(tmp_path: Path) -> None:
    letters = [chr(code) for code in (*range(32), *range(127, 160), 0x2028, 0xD800, 0xFFFE, 0xFFFF, 0x1FFFF)]
    export(Table("t", {"x\ufffe": letters}), tmp_path / "t.xlsx")
    header, *found = [unescape(str(row[0] or "")) for row in sheet_rows(tmp_path / "t.xlsx")]
    assert header == "x\ufffe"
    assert [one for one, other in zip(found, letters, strict=True) if one != other] == ["?"]


def test_export__keeps_columns_whose_names_differ_in_what_cannot_be_encoded(tmp_path: Path) -> None:
    names = ["x\ud800", "x?", "x\udfff"]
    export(Table("t", {name: [number] for number, name in enumerate(names, start=1)}), tmp_path / "t.parquet")
    assert pyarrow.parquet.read_table(tmp_path / "t.parquet").to_pydict() == {"x?": [1], "x??": [2], "x???": [3]}


def test_export__whole_numbers_of_any_size_go_into_parquet(tmp_path: Path) -> None:
    export(Table("t", {"a": [2**63, 1, None], "b": [2**63 - 1, -(2**62), None]}), tmp_path / "t.parquet")
    found = pyarrow.parquet.read_table(tmp_path / "t.parquet").to_pydict()
    assert found == {"a": [str(2**63), "1", None], "b": [2**63 - 1, -(2**62), None]}


def test_export__refuses_what_an_excel_sheet_cannot_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with refused("over-limit", 32768, ".csv", ".parquet"):
        export(Table("t", {"x": ["a" * 32768]}), tmp_path / "t.xlsx")
    with refused("over-limit", "16,385 columns", "1,048,575 by 16,384"):
        export(Table("t", {f"x{position}": [1] for position in range(16385)}), tmp_path / "t.xlsx")
    monkeypatch.setattr(module, "EXCEL_ROWS", 3)
    export(Table("t", {"x": [1, 2]}), tmp_path / "t.xlsx")
    with refused("over-limit", "3 rows", "2 by 16,384"):
        export(Table("t", {"x": [1, 2, 3]}), tmp_path / "more.xlsx")
    assert not (tmp_path / "more.xlsx").exists()


@pytest.mark.parametrize(
    ("suffix", "package", "extra"), [("xlsx", "openpyxl", "report"), ("parquet", "pyarrow", "tabular")]
)
def test_export__names_the_extra_that_is_missing(
    suffix: str, package: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, f"{package}.parquet", None)
    with refused("package-missing", package, f"protodask[{extra}]"):
        export(Table("t", {"x": [1]}), tmp_path / f"t.{suffix}")


def test_export__of_nothing(tmp_path: Path) -> None:
    with refused("no-rows"):
        export([], tmp_path / "t.csv")


def test_export__says_where_the_temporary_files_of_excel_find_no_place(tmp_path: Path) -> None:
    table = Table("t", {"x": [float(number) for number in range(500)]})
    with small_files_only(1000), refused("unwritable", "TMPDIR", kind=StorageError):
        export(table, str(tmp_path / "t.xlsx"))
    assert not any(tmp_path.iterdir())
