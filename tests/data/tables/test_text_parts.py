"""Text in parts, compressed or not: all lines once, whatever is read when, and never much of it in memory."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.errors import refused

from protodask.data import Column, Dataset
from protodask.data.tables import text_parts as module
from protodask.data.tables.csv_files import csv_columns
from protodask.data.tables.ingest import ingest
from protodask.data.tables.small_files import encode_file
from protodask.data.tables.text_parts import separator_of, text_parts
from protodask.engine import Engine
from protodask.errors import InputError, StorageError

PACK: dict[str, Any] = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
FORMS: dict[str, Any] = {"": bytes, **PACK}


def put(folder: Path, content: bytes, ending: str = ".gz") -> str:
    path = folder / f"t.csv{ending}"
    path.write_bytes(FORMS[ending](content))
    return str(path)


FIELDS = st.text(st.sampled_from('ab"\n ,'), max_size=6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(rows=st.lists(FIELDS, max_size=30), part=st.integers(1, 60), ending=st.sampled_from(list(FORMS)), data=st.data())
def test_text_parts__has_every_row_once(
    rows: list[str], part: int, ending: str, data: st.DataObject, tmp_path: Path
) -> None:
    frame = pd.DataFrame({"x": np.arange(len(rows)), "text": pd.Series(rows, dtype=object)})
    content = frame.to_csv(index=False).encode()
    found = pickle.loads(pickle.dumps(text_parts(put(tmp_path, content, ending), part)))
    order = data.draw(st.permutations(range(len(found.cuts) - 1)))
    parts = {number: found.read(number) for number in order}
    assert found.header == b"x,text\n"
    assert b"".join([found.header, *(parts[number] for number in sorted(parts))]) == content
    assert [number for number in parts if parts[number].count(b'"') % 2] == []  # no line's end inside of quotes


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("content", [b"x,y\n", b"x,y", b"x,y\r1,2\r3,4\r", b'x,y\n5",1\n6,2\n7,3'])
def test_text_parts__of_unusual_text(
    content: bytes, ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LONGEST_LINE_BYTES", 30)
    monkeypatch.setattr(module, "PIECE_BYTES", 3)
    found = text_parts(put(tmp_path, content, ending), 100)
    assert len(found.cuts) > 1, "there is always a part, as of a table without rows"
    assert found.header + b"".join(map(found.read, range(len(found.cuts) - 1))) == content


@pytest.mark.parametrize(
    ("header", "name"), [('len 5",c', 'len 5"'), ('"len 5""",c', 'len 5"'), ('"len\n5",c', "len\n5"), ("len,c", "len")]
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_ingest__has_the_rows_of_a_table_whatever_its_header(
    header: str, name: str, end: str, ending: str, engine: Engine, tmp_path: Path
) -> None:
    """A quotation mark inside of a name that is not in quotes is a letter like others."""
    content = header + end + end.join(f"{number},{number % 2}" for number in range(200)) + end
    found = ingest(put(tmp_path, content.encode(), ending), tmp_path / "d", target="c", engine=engine)
    assert (found.n_rows, found.feature_names) == (200, (name,))


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize(("content", "rows"), [(b"x,c", 0), (b"x,c\r1,p\r2,q\r3,p\r", 3)])
def test_ingest__of_a_table_without_a_newline(
    content: bytes, rows: int, ending: str, engine: Engine, tmp_path: Path
) -> None:
    path = put(tmp_path, content, ending)
    if rows:
        assert ingest(path, tmp_path / "d", target="c", engine=engine).n_rows == rows
        return
    with refused("no-rows"):
        ingest(path, tmp_path / "d", target="c", engine=engine)


def test_text_parts__whose_quotes_do_not_pair_is_cut_even_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_LINE_BYTES", 50)
    found = text_parts(put(tmp_path, b"x,y\n" + b'5",1\n' + b"6,2\n" * 1000), 100)
    assert max(np.diff(found.cuts)) < 200


def test_text_parts__of_a_line_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_LINE_BYTES", 2**20)
    with refused("over-limit", "t.csv.gz", f"{2**20:,}"):
        text_parts(put(tmp_path, b"x,y\n" + bytes(2**24)), 100)


@pytest.mark.parametrize("ending", list(PACK))
@pytest.mark.parametrize("damage", [lambda content: content[:-20], lambda content: b"nothing", lambda content: b""])
def test_text_parts__of_a_damaged_file(ending: str, damage: Any, tmp_path: Path) -> None:
    path = put(tmp_path, np.random.default_rng(0).bytes(3000), ending)
    Path(path).write_bytes(damage(Path(path).read_bytes()))
    with refused("unreadable", path):
        ingest(path, tmp_path / "d", target="y")


def test_text_parts__of_a_damaged_file_that_isal_decompresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class IsalError(Exception):
        __module__ = "igzip_lib"

    class Reader(gzip.GzipFile):
        def read(self, *_: Any) -> bytes:
            raise IsalError("Error -3 Invalid lookback distance found")

    monkeypatch.setitem(fsspec.compression.compr, "gzip", lambda file, **_: Reader(fileobj=file))
    path = put(tmp_path, b"a,y\n5,1\n", ".gz")
    with refused("unreadable", path, "decompressed", "lookback"):
        ingest(path, tmp_path / "d", target="y")
    said: Any = {"target_name": "y", "keep": (), "dropped": (), "unseen": "error", "dtype": "float32"}
    with refused("unreadable", path, "decompressed", "lookback"):
        encode_file(Path(path).read_bytes(), path, (Column("a"),), **said)


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_text_parts__that_changes_while_it_is_read(ending: str, tmp_path: Path) -> None:
    found = text_parts(put(tmp_path, b"x,y\n" + b"1,2\n" * 1000, ending), 100)
    put(tmp_path, b"x,y\n" + b"1,2\n" * 10, ending)
    with refused("changed-meanwhile", kind=StorageError):
        found.read(20)


def test_text_parts__is_not_in_memory_as_a_whole(tmp_path: Path) -> None:
    content = b"x,y\n" + b"1.5,p\n" * (2**26 // 6)
    path = put(tmp_path, content)
    assert Path(path).stat().st_size < 2**18
    tracemalloc.start()
    found = text_parts(path, 2**22)
    read = sum(len(found.read(part)) for part in range(len(found.cuts) - 1))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert read == len(content) - 4
    assert peak < 2**25


def test_ingest__of_files_is_that_of_the_rows_in_their_text(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("protodask.data.tables.ingest_sources.CSV_PARTITION_BYTES", 500)
    generator = np.random.default_rng(0)
    frame = pd.DataFrame({"x": generator.random(200), "c": generator.choice(["a\n1", "b,2", 'c"3'], 200), "y": "p"})
    frame.loc[::3, "y"] = "q"
    whole = ingest(frame, tmp_path / "whole", target="y", categorical=["c"], engine=engine)
    for ending in FORMS:
        path = put(tmp_path, frame.to_csv(index=False).encode(), ending)
        found: Dataset = ingest(path, tmp_path / f"d{ending}", target="y", categorical=["c"], engine=engine)
        assert found.key == whole.key


def turning_quotes(text: str) -> list[int]:
    """Letter by letter, the quotes that open or close."""
    inside, closed, before, found = False, -2, "\n", []
    for place, letter in enumerate(text):
        if letter == '"' and (inside or before in ",\n\r" or closed == place - 1):
            found.append(place)
            closed = place if inside else -2
            inside = not inside
        before = letter
    return found


@settings(max_examples=150)
@given(text=st.text(st.sampled_from('",\n\ra'), max_size=30), data=st.data())
def test_quotes__open_at_the_start_of_a_field_alone(text: str, data: st.DataObject) -> None:
    quotes, found, position = module._Quotes(","), list[int](), 0
    while position < len(text):
        piece = text[position : position + data.draw(st.integers(1, 9))].encode()
        found += [position + int(place) for place in quotes.turns(piece)]
        position += len(piece)
    assert found == turning_quotes(text)


def test_ingest__of_a_table_with_a_quote_that_is_a_letter(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Quotes are in a field of many rows, and one stands for inches before: no cut is to be inside of quotes."""
    monkeypatch.setattr("protodask.data.tables.ingest_sources.CSV_PARTITION_BYTES", 200)
    rows = "".join(f'{row},"k\nx{row % 7}",{row % 2}\n' for row in range(100))
    for first, ending in (('1,5" pipe,0\n', ""), ('1,5" pipe,0\n', ".gz"), ('1,"5"" pipe",0\n', "")):
        path = put(tmp_path, ("a,c,y\n" + first + rows).encode(), ending)
        found = ingest(path, tmp_path / "d", target="y", categorical=["c"], overwrite=True, engine=engine)
        assert found.n_rows == 101
        assert found.columns[1].categories[0] == '5" pipe'


@pytest.mark.parametrize("name", ["row", "1", "0", ""], ids=["text", "from 1", "from 0", "second file"])
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_ingest__of_rows_longer_than_their_header_is_refused(
    name: str, ending: str, engine: Engine, tmp_path: Path
) -> None:
    def content(first: int) -> bytes:
        names = [name if name == "row" else str(int(name or 0) + row) for row in range(20)]
        return "".join(["a,y\n", *(f"{names[row]},{row},{row % 2}\n"[first:] for row in range(20))]).encode()

    if not name:
        (tmp_path / "a.csv").write_bytes(b"a,y\n" + b"5,1\n6,0\n" * 10)
    path = put(tmp_path, content(0), ending)
    with refused("unreadable", path, "more values"):
        ingest([str(tmp_path / "a.csv"), path] if not name else path, tmp_path / "d", target="y", engine=engine)
    said: Any = {"target_name": "y", "keep": (), "dropped": (), "unseen": "error", "dtype": "float32"}
    with refused("unreadable", path, "more values"):
        encode_file(Path(path).read_bytes(), path, (Column("a"),), **said)


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("name,y\nMünchen,a\n".encode("latin-1"), ("'utf-8' codec", "Save it as UTF-8.")),
        (
            b"x, cm;y\n1,5;a\n",
            ("'y' for the target. The file has semicolons between its columns", "put these in quotes"),
        ),
        (b"x, cm\ty\n1\ta\n", ("'y' for the target. The file has tabs between its columns", "put these in quotes")),
        (
            b"x;z;y\n1,5;1.234;a\n",
            ("commas in 'x' and points in 'z', as in '1.234'.", "thousands without a mark"),
        ),
        (b"x;y\n1,5;a\n2.5;b\n", ("'x' has the value '1,5', which is not a number, in row 0",)),
        (b"x;y\n1,5;a\n2;b\nn/k;a\n", ("'x' has the value 'n/k', which is not a number, in row 2",)),
        (b"x;y\n1,5;a\n" + b"2;b\n" * 1000 + b"n/k;a\n", ("'x' has the value 'n/k'", "in row 1001 (counted")),
        (
            b"x;y\n1,5;a\n" + b"2;b\n" * 1000 + b"1.250;a\n",
            ("'x' has the value '1.250 (beside decimal commas)', which is not a number, in row 1001 (counted",),
        ),
        (
            b"x;z;y\n1,5;1;a\n" + b"2;3;b\n" * 1000 + b"2;1.250;a\n",
            ("'z' has the value '1.250 (beside decimal commas)', which is not a number, in row 1001 (counted",),
        ),
        (b"x;y\n1,5;a\n" + b"2;b\n" * 1000 + b"1.250,75;a\n", ("'x' has the value '1.250,75', which is not",)),
        (b"self;y\n1,5;a\n" + b"2;b\n" * 1000 + b"n/k;a\n", ("'self' has the value 'n/k'", "in row 1001 (counted")),
        (b"PK\x03\x04\x14\x00\n", ("is a ZIP archive, as workbooks of Excel are", "as CSV or Parquet")),
        (b"PAR1\x15\x04\n", ("is a Parquet file, and no CSV file. Let its name end in .parquet.",)),
        (b"\x1f\x8b\x08\x00", ("compressed by gzip", ".csv.gz")),
        (b'[{"x":1,"y":"a"},{"x":2,"y":"b"}]', ("is JSON", "as CSV or Parquet")),
        (b"x,y\n1,a\n2,b,3,4\n", ("Expected 2 fields in line 3, saw 4).",)),
        (b"x,y\n1,a\nn/k,b\n", ("numbers: x; 'x' has the value 'n/k', which is not a number, in row 1 (counted",)),
    ],
)
def test_ingest__says_what_is_wrong_with_a_text(text: bytes, facts: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(text)
    with pytest.raises(InputError) as caught:
        ingest(tmp_path / "t.csv", tmp_path / "d", target="y")
    assert all(fact in str(caught.value) for fact in facts)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("separator", [";", "\t", "|"])
@pytest.mark.parametrize("point", [",", "."])
def test_ingest__reads_what_stands_between_columns_in_place_of_commas(
    separator: str, point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"a, cm": random.normal(size=300), "n": range(300), "t": ["x, y", "u;\t|v", "w"] * 100})
    frame = frame.assign(w=random.uniform(1, 2, 300), y=["1,5", "2"] * 150)
    frame.loc[3, "a, cm"] = None
    path = tmp_path / "t.txt"
    frame.to_csv(path, sep=separator, decimal=point, index=False, quoting=csv.QUOTE_NONNUMERIC)
    said: Any = {"target": "y", "weight": "w", "categorical": ["t"], "dtype": "float64"}
    found = ingest(path, tmp_path / "found", **said)
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert found.key == ingest(tmp_path / "t.csv", tmp_path / "expected", **said).key
    encoded = encode_file(
        path.read_bytes(), str(path), found.columns, target_name="y", keep=("n", "a, cm", "y"), dropped=("w",),
        unseen="error", dtype="float64",
    )  # fmt: skip
    np.testing.assert_array_equal(encoded["features"], found.read(0)["features"])
    monkeypatch.setattr("protodask.data.tables.ingest_sources.CSV_PARTITION_BYTES", 500)
    parts = ingest(path, tmp_path / "parts", **said).read(0)
    # The mean, which stands for what is missing, is one of the parts' means, and may round otherwise.
    np.testing.assert_allclose(parts["features"], found.read(0)["features"], rtol=1e-14)
    np.testing.assert_array_equal(parts["target"], found.read(0)["target"])


@pytest.mark.parametrize(("mark", "word"), [(".", "Points"), (",", "Commas")])
def test_ingest__warns_of_marks_that_may_set_thousands_apart(mark: str, word: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("price;size;y\n1.250;0.125;a\n990;1.125;b\n".replace(".", mark))
    warned = rf"{word} in .* may be meant to set thousands apart: 'price' \(1\{mark}250\)\. Write"
    with pytest.warns(UserWarning, match=warned):
        ingest(tmp_path / "t.csv", tmp_path / "d", target="y")


def test_ingest__of_a_target_of_many_numbers_with_decimal_commas_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x;y\n" + "".join(f"{row};{row % 21},5\n" for row in range(100)))
    with refused("bad-value", "Column 'y' has the value 0,5, which is no class"):
        ingest(tmp_path / "t.csv", tmp_path / "d", target="y")


def test_ingest__takes_decimal_commas_of_one_column_for_those_of_all(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x;z;y\n1,5;1;a\n" + "2;3;b\n" * 1000 + "2;2,5;a\n")
    assert ingest(tmp_path / "t.csv", tmp_path / "d", target="y").read(0)["features"][1001].tolist() == [2, 2.5]


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        ("t.csv", b"a;b|c\td,y\n", ","),
        ("t.csv", b"x; cm\ty\n", "\t"),
        ("t.csv", b"p(a|b);y\n", ";"),
        ("t.csv", b'\xef\xbb\xbf"a, ""b"",\nc";y\n1,2\n', ";"),
        ("t.csv", b'5" pipe;y\n1,5;a\n2;b"\n', ";"),
        ("t.csv", b'"x;y\n1,5;2,5\n', ";"),
        ("t.csv", b"x\n1,5\n", ","),
        ("t.TSV.gz", b"a,b;c\n", "\t"),
    ],
)
def test_separator_of__is_what_the_first_row_has_outside_of_quotes(path: str, text: bytes, found: str) -> None:
    assert separator_of(path, text) == found


@pytest.mark.parametrize("text", [b"x\ty\n1.5\ta\n", b"x;y\n1.250;a\n", b"x;y\n1,250;a\n", b"x,y\n1.5,a\n"])
def test_csv_columns__opens_a_file_once_and_warns_of_nothing(text: bytes) -> None:
    opened: list[io.BytesIO] = []

    def opening() -> io.BytesIO:
        opened.append(io.BytesIO(text))
        return opened[-1]

    assert csv_columns("t.csv", frozenset("y"), frozenset(), opening).types == {"x": "float64", "y": "str"}
    assert len(opened) == 1


@pytest.mark.parametrize(("ending", "what"), [("zip", "ZIP archive"), ("zst", "compressed by Zstandard")])
def test_ingest__says_of_a_file_what_it_is_compressed_by(ending: str, what: str, tmp_path: Path) -> None:
    path = tmp_path / f"t.csv.{ending}"
    if ending == "zip":
        pd.DataFrame({"x": [1, 2], "y": ["a", "b"]}).to_csv(path, index=False)
    else:
        path.write_bytes(b"\x28\xb5\x2f\xfd\x00\x00")
    with refused("unreadable", what, "no CSV file"):
        ingest(path, tmp_path / "d", target="y")


@pytest.mark.parametrize("first", [b"\n", b"\r\n", b"  \n"])
def test_ingest__of_a_table_that_begins_with_a_blank_line(first: bytes, engine: Engine, tmp_path: Path) -> None:
    path = put(tmp_path, first + b"a,y\n" + b"5,1\n6,0\n" * 10, "")
    with refused("unreadable", path, "no header line"):
        ingest(path, tmp_path / "d", target="y", engine=engine)


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_ingest__of_rows_that_end_with_a_separator(ending: str, engine: Engine, tmp_path: Path) -> None:
    path = put(tmp_path, b"a,y\n" + b"".join(b"%d,%d,\n" % (row, row % 2) for row in range(20)), ending)
    found = ingest(path, tmp_path / "d", target="y", engine=engine)
    assert found.read(0)["features"][:, 0].tolist() == list(range(20))


def test_ingest__of_a_table_with_a_mark_of_byte_order(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("protodask.data.tables.ingest_sources.CSV_PARTITION_BYTES", 50)
    rows = "".join(f'{row},"{row % 2}"\n' for row in range(200))
    path = put(tmp_path, f'\ufeff"a\nz","y"\n{rows}'.encode(), "")
    assert ingest(path, tmp_path / "d", target="y", engine=engine).feature_names == ("a\nz",)


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("grown", [b"1,2\n" * 200000, b"1,2\n" * 900])
def test_text_parts__that_grow_or_shrink_are_not_read_on(grown: bytes, ending: str, tmp_path: Path) -> None:
    found = text_parts(put(tmp_path, b"x,y\n" + b"1,2\n" * 1000, ending), 100)
    put(tmp_path, b"x,y\n" + grown, ending)
    with refused("changed-meanwhile", kind=StorageError):
        found.read(0)


def test_text_parts__of_a_small_file_does_not_read_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path, b"x,y\n" + b"1,2\n" * 100, "")
    monkeypatch.setattr(module, "_cut", None)
    assert text_parts(path, 400).cuts == (4, 404)
    with pytest.raises(TypeError):
        text_parts(path, 399)
