"""Tables that blocks write: in any order, whole or not at all."""

from pathlib import Path
from typing import Any

import pyarrow
import pytest
from support.errors import refused

from protodask.data.places.storage import Kind
from protodask.data.tables.table_files import published_table
from protodask.errors import StorageError

KIND = Kind("numbers", "numbers")


def test_csv__is_put_together_in_the_order_of_the_blocks(tmp_path: Path) -> None:
    place = tmp_path / "new" / "t.csv"
    with published_table(str(place), False, KIND, {}, 3) as parts:
        for number in (2, 0, 1):
            parts.write(number, {"n": [number], "text": [None if number else "a\nb"]})
        assert not place.exists()
    assert place.read_text() == '"n","text"\n0,"a\nb"\n1,\n2,\n'
    assert [path.name for path in place.parent.iterdir()] == ["t.csv"]


def test_csv__follows_a_link(tmp_path: Path) -> None:
    (tmp_path / "there.csv").write_text("old")
    (tmp_path / "t.csv").symlink_to("there.csv")
    with published_table(str(tmp_path / "t.csv"), True, KIND, {}, 1) as parts:
        parts.write(0, {"n": [1]})
    assert (tmp_path / "t.csv").is_symlink()
    assert (tmp_path / "there.csv").read_text() == '"n"\n1\n'


@pytest.mark.parametrize("value", [["a"], {"a": 1}, b"a"])
def test_csv__refuses_values_without_a_form_there(value: Any, tmp_path: Path) -> None:
    with (
        refused("unsupported", "'tags'", ".parquet"),
        published_table(str(tmp_path / "t.csv"), False, KIND, {}, 1) as parts,
    ):
        parts.write(0, {"n": [1], "tags": pyarrow.array([value])})
    assert list(tmp_path.iterdir()) == []


def test_csv__whose_writer_comes_late_is_not_brought_back(tmp_path: Path) -> None:
    with published_table(str(tmp_path / "t.csv"), False, KIND, {}, 1) as parts:
        parts.write(0, {"n": [1]})
    with refused("unwritable", kind=StorageError):
        parts.write(0, {"n": [2]})
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_csv__refuses_a_url() -> None:
    with refused("not-local", "memory://"), published_table("memory://t.csv", False, KIND, {}, 1):
        raise AssertionError("nothing is written there")
