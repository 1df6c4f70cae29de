"""Arrays in a run directory: what was written comes back to the last bit, and nothing else ever does."""

import struct
import tracemalloc
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from protodask.data.places.whole_files import write_whole
from protodask.prototypes.runs import pack_arrays, read_arrays

EXAMPLE: dict[str, NDArray[Any]] = {
    "features": np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32),
    "rows": np.arange(4) * 10**12,
    "none": np.zeros((0, 5)),
    "flags": np.array([True, False]),
}
SEAL = 77


def same(found: dict[str, NDArray[Any]] | None, expected: dict[str, NDArray[Any]]) -> bool:
    return found is not None and all(
        (values.dtype, values.shape, values.tobytes()) == (found[name].dtype, found[name].shape, found[name].tobytes())
        for name, values in expected.items()
    )


def write_file(path: Path, parts: Iterable[bytes]) -> None:
    write_whole(str(path), f"{path}.partial", parts)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_file(tmp_path / "a.arrays", pack_arrays(EXAMPLE, SEAL))
    return tmp_path / "a.arrays"


def test_read_arrays__gives_what_was_written(file: Path) -> None:
    assert same(read_arrays(str(file), SEAL), EXAMPLE)
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_read_arrays__of_no_file_or_another_seal(file: Path) -> None:
    assert read_arrays(str(file) + "x", SEAL) is None
    assert read_arrays(str(file), SEAL + 1) is None


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_read_arrays__of_a_changed_file(file: Path, data: st.DataObject) -> None:
    write_file(file, pack_arrays(EXAMPLE, SEAL))
    content = bytearray(file.read_bytes())
    match data.draw(st.sampled_from(["flip", "cut", "grow"])):
        case "flip":
            content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        case "cut":
            del content[data.draw(st.integers(0, len(content) - 1)) :]
        case _:
            content += data.draw(st.binary(min_size=1, max_size=50))
    file.write_bytes(content)
    assert read_arrays(str(file), SEAL) is None


@pytest.mark.parametrize(
    "listed",
    [
        b'[["x", "<f8", [1000000000000]]]',
        b'[["x", "|O", [1]]]',
        b'[["x", "<f8", [-1]]]',
        b'[["x", "nonsense", [1]]]',
        b'[["x", "<f8"]]',
        b"[1]",
        b"{",
        b"[" * 10_000,
        b"\xff\xfe",
    ],
)
def test_read_arrays__of_a_list_that_cannot_be_allocates_nothing(tmp_path: Path, listed: bytes) -> None:
    file = tmp_path / "a.arrays"
    checksum = zlib.crc32(b"12345678", zlib.crc32(listed, SEAL))
    file.write_bytes(struct.pack("<4sII", b"arrs", checksum, len(listed)) + listed + b"12345678")
    tracemalloc.start()
    try:
        assert read_arrays(str(file), SEAL) is None
        assert tracemalloc.get_traced_memory()[1] < 2**21
    finally:
        tracemalloc.stop()


def test_write_whole__that_fails_leaves_the_old_file(file: Path) -> None:
    def parts() -> Any:
        yield b"new"
        raise OSError

    with pytest.raises(OSError):  # noqa: PT011
        write_file(file, parts())
    assert same(read_arrays(str(file), SEAL), EXAMPLE)
    assert [path.name for path in file.parent.iterdir()] == [file.name]
