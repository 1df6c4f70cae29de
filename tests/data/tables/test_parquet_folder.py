from pathlib import Path

import numpy as np
import pyarrow.parquet
from support.errors import refused

from protodask.data.places.storage import MARKER, read_marker
from protodask.data.tables.parquet_folder import check_parquet, create_folder, is_parquet, write_part
from protodask.errors import StorageError


def test_is_parquet__by_the_end_of_the_name() -> None:
    assert is_parquet("a/b.parquet")
    assert not is_parquet("a/parquet.zarr")


def test_check_parquet__refuses_object_stores() -> None:
    check_parquet("here.parquet", "Predictions")
    with refused("not-local", "Decisions"):
        check_parquet("s3://bucket/there.parquet", "Decisions")


def test_write_part__one_file_a_block_beside_the_record(tmp_path: Path) -> None:
    place = str(tmp_path / "out.parquet")
    create_folder(place, {"rows": 3})
    write_part(place, 1, "mine", {"row": np.array([2])})
    write_part(place, 0, "mine", {"row": np.array([0, 1])})
    assert read_marker(place) == {"rows": 3}
    names = sorted(path.name for path in Path(place).iterdir() if path.name != MARKER)
    assert names == ["part-000000-mine.parquet", "part-000001-mine.parquet"]
    assert pyarrow.parquet.read_table(place)["row"].to_pylist() == [0, 1, 2]


def test_write_part__refuses_a_folder_that_was_taken_away(tmp_path: Path) -> None:
    with refused("changed-meanwhile", tmp_path, kind=StorageError):
        write_part(str(tmp_path), 0, "mine", {"row": np.array([0])})
