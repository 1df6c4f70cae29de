"""`protodask predict`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
import zarr

from protodask.data import Dataset
from protodask.prototypes import load_model
from protodask.prototypes.model import probabilities

Call = Callable[..., Any]


def _expected(example: Any, n_batches: int) -> Any:
    features = Dataset.open(example.data).read(0)["features"]
    (scores,) = load_model(example.model).scores(features, [n_batches])
    return probabilities(scores)


@pytest.mark.parametrize("n_batches", [0, 1, 2])
def test_predict__dataset_into_zarr(n_batches: int, call: Call, example: Any, tmp_path: Path) -> None:
    out = tmp_path / "predictions.zarr"
    done = call("predict", example.model, example.data, "--out", out, "--batches", n_batches, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["rows"], found["batches"]) == (300, n_batches)
    stored: Any = zarr.open_group(out, mode="r")["probability"]
    np.testing.assert_allclose(stored[...], _expected(example, n_batches), rtol=1e-6)


def test_predict__raw_table_into_parquet(call: Call, example: Any, tmp_path: Path) -> None:
    out = tmp_path / "predictions.parquet"
    done = call("predict", example.model, example.table, "--out", out)
    assert done.exit_code == 0, done.output
    assert "300 rows" in done.stdout
    table = pyarrow.parquet.read_table(out).to_pandas().sort_values("row")
    probability = table[["probability_high", "probability_low"]].to_numpy()
    np.testing.assert_allclose(probability, _expected(example, 2), rtol=1e-6)
    assert table["predicted"].tolist() == np.array(["high", "low"])[probability.argmax(axis=1)].tolist()


def test_predict__table_needs_no_target(call: Call, example: Any, tmp_path: Path) -> None:
    table = tmp_path / "new.csv"
    table.write_text("age,colour,size\n1,red,small\n9,blue,large\n")
    done = call("predict", example.model, table, "--out", tmp_path / "predictions.zarr", "--json")
    assert json.loads(done.stdout)["rows"] == 2


def test_predict__unseen_category_is_an_error_unless_told_otherwise(call: Call, example: Any, tmp_path: Path) -> None:
    table = tmp_path / "new.csv"
    table.write_text("age,colour,size\n1,red,small\n9,violet,large\n")
    arguments = ("predict", example.model, table, "--out", tmp_path / "predictions.zarr")
    refused = call(*arguments)
    assert refused.exit_code == 1
    assert "'violet'" in refused.stderr
    assert "row 1" in refused.stderr
    assert not (tmp_path / "predictions.zarr").exists()
    assert call(*arguments, "--unseen", "zero").exit_code == 0


def test_predict__other_columns_need_drop(call: Call, example: Any, tmp_path: Path) -> None:
    table = tmp_path / "new.csv"
    table.write_text("age,colour,size,name\n1,red,small,x\n")
    arguments = ("predict", example.model, table, "--out", tmp_path / "predictions.zarr")
    refused = call(*arguments)
    assert refused.exit_code == 1
    assert "'name' besides" in refused.stderr
    assert "--drop" in refused.stderr
    assert call(*arguments, "--drop", "name").exit_code == 0


def test_predict__existing_output_needs_overwrite(call: Call, example: Any, tmp_path: Path) -> None:
    arguments = ("predict", example.model, example.data, "--out", tmp_path / "predictions.zarr")
    assert call(*arguments).exit_code == 0
    again = call(*arguments)
    assert again.exit_code == 1
    assert "--overwrite" in again.stderr
    assert call(*arguments, "--overwrite").exit_code == 0


def test_predict__dataset_of_other_features(call: Call, example: Any, tmp_path: Path) -> None:
    call("sample-data", "checker", "--rows", 20, "--out", tmp_path / "other.zarr")
    done = call("predict", example.model, tmp_path / "other.zarr", "--out", tmp_path / "predictions.zarr")
    assert done.exit_code == 1
    assert "it lacks age, colour=blue, colour=green, colour=red, size and it has x0, x1 besides" in done.stderr
    assert "Give a dataset ingested like the training data" in done.stderr


def test_predict__too_many_batches(call: Call, example: Any, tmp_path: Path) -> None:
    done = call("predict", example.model, example.data, "--out", tmp_path / "predictions.zarr", "--batches", 3)
    assert done.exit_code == 1
    assert "The model has 2 batches" in done.stderr


@pytest.mark.parametrize("which", ["model", "data"])
def test_predict__nothing_there(which: str, call: Call, example: Any, tmp_path: Path) -> None:
    places = {"model": example.model, "data": example.data, which: tmp_path / "nothing"}
    done = call("predict", places["model"], places["data"], "--out", tmp_path / "predictions.zarr")
    assert done.exit_code == 1
    assert "There is nothing at" in done.stderr
    assert "Check the path." in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_predict__model_and_data_swapped(call: Call, example: Any, tmp_path: Path) -> None:
    done = call("predict", example.data, example.model, "--out", tmp_path / "predictions.zarr")
    assert done.exit_code == 1
    assert "is not a protodask model" in done.stderr
