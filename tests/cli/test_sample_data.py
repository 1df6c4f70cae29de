"""`protodask sample-data`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.commands import check_failed

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
    ("arguments", "facts"),
    [
        (("checker", "--rows", "5", "--features", "3"), ["checker", 2, 3, "n_features"]),
        (("digits", "--rows", "5", "--classes", "3"), ["digits", 10, 3, "n_classes"]),
    ],
)
def test_sample_data__wrong_use(arguments: tuple[str, ...], facts: list[object], call: Call, tmp_path: Path) -> None:
    done = call("sample-data", *arguments, "--out", tmp_path / "data.zarr")
    check_failed(done, 2, "bad-setting", *facts)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "named"), [(("checker", "--rows", "0"), "--rows"), (("cheker", "--rows", "5"), "checker")]
)
def test_sample_data__values_that_it_does_not_take(
    arguments: tuple[str, ...], named: str, call: Call, tmp_path: Path
) -> None:
    done = call("sample-data", *arguments, "--out", tmp_path / "data.zarr")
    assert done.exit_code == 2
    assert named in done.stderr
    assert list(tmp_path.iterdir()) == []
