"""Results as JSON."""

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.errors import refused

from protodask.errors import OutputExistsError, StorageError
from protodask.pipeline.telling.result import to_json, write_json

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(PLAIN)
def test_to_json__finite_values_come_back(value: Any) -> None:
    assert json.loads(to_json(value)) == value


def test_to_json__what_is_not_finite_is_null() -> None:
    assert json.loads(to_json({"a": [math.nan, (math.inf,)], "b": -math.inf})) == {"a": [None, [None]], "b": None}


def test_write_json__refuses_and_overwrites(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "scores.json"
    write_json(str(path), {"a": 1}, overwrite=False)
    with refused("exists", path, "overwrite=True", kind=OutputExistsError):
        write_json(str(path), {"a": 2}, overwrite=False)
    assert json.loads(path.read_text()) == {"a": 1}
    write_json(str(path), {"a": 2}, overwrite=True)
    assert json.loads(path.read_text()) == {"a": 2}
    with refused("wrong-kind", tmp_path, kind=OutputExistsError):
        write_json(str(tmp_path), {}, overwrite=True)


def test_write_json__failure_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "scores.json"
    write_json(str(path), {"a": 1}, overwrite=False)

    def fail(handle: int) -> None:
        raise OSError("no space")

    monkeypatch.setattr(os, "fsync", fail)
    with refused("unwritable", path, "no space", kind=StorageError):
        write_json(str(path), {"a": 2}, overwrite=True)
    assert json.loads(path.read_text()) == {"a": 1}
    assert [found.name for found in tmp_path.iterdir()] == ["scores.json"]
