"""What earlier versions wrote is read as then: each ZIP file here is a dataset or a model as one of them left it.

`answers.json` has what that version read. `one-killed` is a dataset in which an append was killed when appends still
wrote into the arrays that are there.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from protodask import Dataset, ingest, load_model
from protodask.data.format.schema import FORMAT_VERSION
from protodask.prototypes.persistence import MODEL_VERSION

HERE = Path(__file__).parent
ANSWERS: dict[str, dict[str, Any]] = json.loads((HERE / "answers.json").read_text())


def unpacked(name: str, folder: Path) -> Path:
    with zipfile.ZipFile(HERE / name.replace(".zarr", ".zip")) as packed:
        packed.extractall(folder)
    return folder / name


def content(dataset: Dataset) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for number in range(dataset.layout.n_blocks):
        block = dataset.read(number)
        for name in sorted(block.arrays):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(block[name]).tobytes())
    return digest.hexdigest()


def test_formats__have_files_of_each_version() -> None:
    for kind, newest in (("datasets", FORMAT_VERSION), ("models", MODEL_VERSION)):
        assert {answer["version"] for answer in ANSWERS[kind].values()} == set(range(1, newest + 1))


@pytest.mark.parametrize("name", ANSWERS["datasets"])
def test_dataset__of_an_earlier_version_has_the_rows_of_then(name: str, tmp_path: Path) -> None:
    dataset, answer = Dataset.open(unpacked(name, tmp_path)), ANSWERS["datasets"][name]
    assert (dataset.metadata.version, dataset.n_rows, dataset.key) == (
        answer["version"],
        answer["rows"],
        answer["fingerprint"],
    )
    assert content(dataset) == answer["content"]
    assert [segment.rows for segment in dataset.segments] == answer["sources"]


@pytest.mark.parametrize("name", ANSWERS["datasets"])
def test_dataset__of_an_earlier_version_takes_more_rows(name: str, tmp_path: Path) -> None:
    path = unpacked(name, tmp_path)
    before = Dataset.open(path)
    rows = {"length": [5.0, 4.0], "width": [1.0, 2.5], "colour": ["red", "blue"], "kind": ["yes", "no"]}
    table = pd.DataFrame(rows | ({"patient": ["a", "b"]} if before.has_group else {}))
    grown = ingest(table, path, append=True)
    again = ingest(table, path, append=True)
    assert (grown.n_rows, again.n_rows) == (before.n_rows + 2, before.n_rows + 4)
    assert content(before) == ANSWERS["datasets"][name]["content"]
    features = [
        np.concatenate([one.read(n)["features"] for n in range(one.layout.n_blocks)]) for one in (before, again)
    ]
    np.testing.assert_array_equal(features[1][: before.n_rows], features[0])
    np.testing.assert_array_equal(features[1][-4:-2], features[1][-2:])
    assert sum(segment.rows for segment in again.segments) in (0, again.n_rows)


@pytest.mark.parametrize("name", ANSWERS["models"])
def test_model__of_an_earlier_version_answers_as_then(name: str, tmp_path: Path) -> None:
    answer = ANSWERS["models"][name]
    model = load_model(unpacked(name, tmp_path))
    found = model.predict_proba(pd.DataFrame(answer["rows"]))
    np.testing.assert_allclose(found, answer["probability"], rtol=1e-9, atol=1e-12)
