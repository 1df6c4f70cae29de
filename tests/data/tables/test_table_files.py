"""Tables that blocks write: in any order, whole or not at all."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from support.errors import refused

from protodask.data.places.records import RecordKind
from protodask.data.places.storage import MARKER, read_marker
from protodask.data.tables.table_files import (
    FolderSink,
    check_parquet,
    create_folder,
    is_parquet,
    label_column,
    published_rows,
)
from protodask.engine import Layout
from protodask.errors import StorageError

KIND = RecordKind("numbers", "numbers", 1, "Make some.", "Make them again.")


def given(start: int, arrays: Any) -> Any:
    """The columns of a table, which the arrays of its blocks are here."""
    return arrays


def published_table(where: str, overwrite: bool, n_blocks: int) -> AbstractContextManager[Any]:
    return published_rows(where, overwrite, KIND, {}, Layout(n_blocks, 1), (), given)


@pytest.mark.parametrize(
    ("labels", "kind"),
    [((-5, 7), "int64"), ((2**63, 2**64 - 1), "uint64"), ((-1, 2**63), "string"), ((1, "b"), "string")],
)
def test_label_column__has_a_type_that_all_labels_are_of(labels: Any, kind: str) -> None:
    found = label_column(labels, np.array([1, -1, 0]))
    assert str(found.type) == kind
    low, high = labels if kind != "string" else map(str, labels)
    assert found.to_pylist() == [high, None, low]


def test_csv__is_put_together_in_the_order_of_the_blocks(tmp_path: Path) -> None:
    place = tmp_path / "new" / "t.csv"
    with published_table(str(place), False, 3) as parts:
        for number in (2, 0, 1):
            parts.write(number, number, {"n": [number], "text": [None if number else "a\nb"]})
        assert not place.exists()
    assert place.read_text() == '"n","text"\n0,"a\nb"\n1,\n2,\n'
    assert [path.name for path in place.parent.iterdir()] == ["t.csv"]


def test_csv__follows_a_link(tmp_path: Path) -> None:
    (tmp_path / "there.csv").write_text("old")
    (tmp_path / "t.csv").symlink_to("there.csv")
    with published_table(str(tmp_path / "t.csv"), True, 1) as parts:
        parts.write(0, 0, {"n": [1]})
    assert (tmp_path / "t.csv").is_symlink()
    assert (tmp_path / "there.csv").read_text() == '"n"\n1\n'


@pytest.mark.parametrize("value", [["a"], {"a": 1}, b"a"])
def test_csv__refuses_values_without_a_form_there(value: Any, tmp_path: Path) -> None:
    with (
        refused("unsupported", "'tags'", ".parquet"),
        published_table(str(tmp_path / "t.csv"), False, 1) as parts,
    ):
        parts.write(0, 0, {"n": [1], "tags": pyarrow.array([value])})
    assert list(tmp_path.iterdir()) == []


def test_csv__whose_writer_comes_late_is_not_brought_back(tmp_path: Path) -> None:
    with published_table(str(tmp_path / "t.csv"), False, 1) as parts:
        parts.write(0, 0, {"n": [1]})
    with refused("unwritable", kind=StorageError):
        parts.write(0, 0, {"n": [2]})
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_csv__refuses_a_url() -> None:
    with refused("not-local", "memory://"), published_table("memory://t.csv", False, 1):
        raise AssertionError("nothing is written there")


def test_is_parquet__by_the_end_of_the_name() -> None:
    assert is_parquet("a/b.parquet")
    assert not is_parquet("a/parquet.zarr")


def test_check_parquet__refuses_object_stores() -> None:
    check_parquet("here.parquet", "Predictions")
    with refused("not-local", "Decisions"):
        check_parquet("s3://bucket/there.parquet", "Decisions")


def test_folder_sink__one_file_a_block_beside_the_record(tmp_path: Path) -> None:
    place = str(tmp_path / "out.parquet")
    create_folder(place, {"rows": 3})
    sink = FolderSink(place, "mine", given)
    sink.write(1, 2, {"row": np.array([2])})
    sink.write(0, 0, {"row": np.array([0, 1])})
    assert read_marker(place) == {"rows": 3}
    names = sorted(path.name for path in Path(place).iterdir() if path.name != MARKER)
    assert names == ["part-000000-mine.parquet", "part-000001-mine.parquet"]
    assert pyarrow.parquet.read_table(place)["row"].to_pylist() == [0, 1, 2]


def test_folder_sink__refuses_a_folder_that_was_taken_away(tmp_path: Path) -> None:
    with refused("changed-meanwhile", tmp_path, kind=StorageError):
        FolderSink(str(tmp_path), "mine", given).write(0, 0, {"row": np.array([0])})
