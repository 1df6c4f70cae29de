"""`protodask sample-data`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from protodask.data import Dataset

Call = Callable[..., Any]


@pytest.mark.parametrize(
    ("kind", "options", "features", "classes"),
    [
        ("checker", (), 2, 2),
        ("xor", ("--features", "3"), 3, 2),
        ("digits", (), 64, 10),
        ("blobs", ("--features", "4", "--classes", "5"), 4, 5),
    ],
)
def test_sample_data__writes_a_dataset(
    kind: str, options: tuple[str, ...], features: int, classes: int, call: Call, tmp_path: Path
) -> None:
    done = call("sample-data", kind, "--rows", 100, "--out", tmp_path / "data.zarr", "--json", *options)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["rows"], found["features"], len(found["classes"])) == (100, features, classes)


def test_sample_data__seeds_make_other_rows(call: Call, tmp_path: Path) -> None:
    for seed in (1, 2):
        assert call("sample-data", "xor", "--rows", 50, "--seed", seed, "--out", tmp_path / str(seed)).exit_code == 0
    first, second = (Dataset.open(tmp_path / name).read(0)["features"] for name in ("1", "2"))
    assert not np.isin(first, second).any()


def test_sample_data__says_what_there_is_now(call: Call, tmp_path: Path) -> None:
    done = call("sample-data", "checker", "--rows", 1234, "--out", tmp_path / "data.zarr")
    assert "1,234 rows, 2 features and 2 classes" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("checker", "--rows", "0"), "--rows"),
        (("cheker", "--rows", "5"), "checker"),
        (("checker", "--rows", "5", "--features", "3"), "Leave n_features out."),
        (("digits", "--rows", "5", "--classes", "3"), "Leave n_classes out."),
    ],
)
def test_sample_data__wrong_use(arguments: tuple[str, ...], message: str, call: Call, tmp_path: Path) -> None:
    done = call("sample-data", *arguments, "--out", tmp_path / "data.zarr")
    assert done.exit_code == 2
    assert message in done.stderr
    assert list(tmp_path.iterdir()) == []
