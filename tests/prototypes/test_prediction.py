"""Predictions in a store: what predict_proba says, whole or not at all."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest
import zarr
from numpy.typing import NDArray
from support.errors import refused

from protodask.data import sample_data, table_source
from protodask.data.format.schema import Column
from protodask.engine import ArraySource, Block, Engine, Layout, array_source
from protodask.errors import InputError, OutputExistsError, StorageError
from protodask.prototypes import PrototypeSet, predict
from protodask.prototypes.persistence import model_fingerprint
from protodask.prototypes.scoring import predict_features
from protodask.prototypes.splines import SplineCalibration

MakeModel = Callable[..., PrototypeSet]

SUFFIXES = ["zarr", "parquet"]


@pytest.fixture
def rows() -> NDArray[np.float64]:
    return np.random.default_rng(0).normal(size=(100, 4))


def source_of(rows: NDArray[np.float64]) -> ArraySource:
    return array_source({"features": rows}, 16)


def expected_of(model: PrototypeSet, rows: NDArray[np.float64], count: int) -> dict[str, NDArray[Any]]:
    parts = [predict_features(rows[first : first + 16], model, [count])[0] for first in range(0, len(rows), 16)]
    probability = np.concatenate([probability for probability, _ in parts])
    familiarity = np.concatenate([evidence for _, evidence in parts])
    return {"probability": probability, "familiarity": familiarity, "predicted": probability.argmax(axis=1)}


@pytest.mark.parametrize("n_batches", [None, 0, 1])
def test_predict__into_zarr_is_what_the_model_says(
    engine: Engine, make_model: MakeModel, rows: NDArray[np.float64], tmp_path: Path, n_batches: int | None
) -> None:
    model = make_model(0, precision="float32")
    assert predict(model, source_of(rows), tmp_path / "p.zarr", n_batches=n_batches, engine=engine) == 100
    group: Any = zarr.open_group(tmp_path / "p.zarr", mode="r")
    expected = expected_of(model, rows, 2 if n_batches is None else n_batches)
    for name, values in expected.items():
        np.testing.assert_array_equal(group[name][...], values)
    assert group["predicted"].dtype == np.int32
    attributes = dict(group.attrs)
    assert attributes["classes"] == list(model.classes)
    assert attributes["model"] == model_fingerprint(model)
    assert (attributes["rows"], attributes["n_batches"]) == (100, 2 if n_batches is None else n_batches)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_predict__calibrated_is_what_the_calibration_makes_of_it(
    engine: Engine,
    make_model: MakeModel,
    make_calibration: Callable[..., SplineCalibration],
    rows: NDArray[np.float64],
    tmp_path: Path,
    suffix: str,
) -> None:
    calibration = make_calibration(3, n_batches=1)
    model = replace(make_model(0), calibration=calibration)
    place = tmp_path / f"p.{suffix}"
    predict(model, source_of(rows), place, calibrated=True, engine=engine)
    expected = expected_of(model, rows, 1)
    probability = calibration.apply(expected["probability"])
    predicted = probability.argmax(axis=1)
    assert (predicted != expected["predicted"]).any()
    if suffix == "zarr":
        group: Any = zarr.open_group(place, mode="r")
        np.testing.assert_array_equal(group["probability"][...], probability)
        np.testing.assert_array_equal(group["predicted"][...], predicted)
        np.testing.assert_array_equal(group["familiarity"][...], expected["familiarity"])
        record = dict(group.attrs)
    else:
        table = pyarrow.parquet.read_table(place).sort_by("row").to_pydict()
        assert table["predicted"] == [model.classes[code] for code in predicted]
        assert table["probability_class 1"] == probability[:, 1].tolist()
        record = json.loads((place / "_protodask.json").read_text())
    assert (record["calibrated"], record["n_batches"], record["model"]) == (True, 1, model_fingerprint(model))


def test_predict__calibrated_refuses_what_was_not_calibrated(
    engine: Engine,
    make_model: MakeModel,
    make_calibration: Callable[..., SplineCalibration],
    rows: NDArray[np.float64],
    tmp_path: Path,
) -> None:
    place = tmp_path / "p.zarr"
    with refused("not-fitted", "`calibrate_model()`"):
        predict(make_model(0), source_of(rows), place, calibrated=True, engine=engine)
    model = replace(make_model(0), calibration=make_calibration(0, n_batches=2))
    with refused("bad-setting", "calibration of 2", "1 are asked for"):
        predict(model, source_of(rows), place, n_batches=1, calibrated=True, engine=engine)
    assert list(tmp_path.iterdir()) == []
    predict(model, source_of(rows), place, n_batches=1, engine=engine)
    group: Any = zarr.open_group(place, mode="r")
    assert "calibrated" not in group.attrs
    np.testing.assert_array_equal(group["probability"][...], expected_of(model, rows, 1)["probability"])


@pytest.mark.parametrize("classes", [("red", "green", "blue"), (3, 1, 2), (True, False, "x")])
def test_predict__into_parquet_is_what_the_model_says(
    engine: Engine, make_model: MakeModel, rows: NDArray[np.float64], tmp_path: Path, classes: tuple[Any, ...]
) -> None:
    model = replace(make_model(0), classes=classes)
    assert predict(model, source_of(rows), tmp_path / "p.parquet", engine=engine) == 100
    table = pyarrow.parquet.read_table(tmp_path / "p.parquet").sort_by("row").to_pydict()
    expected = expected_of(model, rows, 2)
    assert table["row"] == list(range(100))
    labels = list(classes) if len({type(label) for label in classes}) == 1 else [str(label) for label in classes]
    assert table["predicted"] == [labels[code] for code in expected["predicted"]]
    assert table["familiarity"] == expected["familiarity"].tolist()
    for position, label in enumerate(classes):
        assert table[f"probability_{label}"] == expected["probability"][:, position].tolist()
    files = sorted(path.name for path in (tmp_path / "p.parquet").glob("*.parquet"))
    record = json.loads((tmp_path / "p.parquet" / "_protodask.json").read_text())
    assert files == [f"part-{number:06d}-{record['identity']}.parquet" for number in range(7)]
    assert record["rows"] == 100


@pytest.mark.parametrize("classes", [("red", 'gr,e"en', "=blue\n"), (3, 1, 2)])
def test_predict__into_csv_is_what_the_model_says(
    engine: Engine, make_model: MakeModel, rows: NDArray[np.float64], tmp_path: Path, classes: tuple[Any, ...]
) -> None:
    model = replace(make_model(0), classes=classes)
    assert predict(model, source_of(rows), tmp_path / "p.csv", engine=engine) == 100
    options = pyarrow.csv.ParseOptions(newlines_in_values=True)
    table = pyarrow.csv.read_csv(tmp_path / "p.csv", parse_options=options).to_pydict()
    expected = expected_of(model, rows, 2)
    assert list(table) == ["row", "predicted", "familiarity", *(f"probability_{label}" for label in classes)]
    assert table["row"] == list(range(100))
    assert table["predicted"] == [classes[code] for code in expected["predicted"]]
    assert table["familiarity"] == expected["familiarity"].tolist()
    for position, label in enumerate(classes):
        assert table[f"probability_{label}"] == expected["probability"][:, position].tolist()
    assert [path.name for path in tmp_path.iterdir()] == ["p.csv"]


@dataclass(frozen=True)
class TornSource:
    """Rows of which the last block cannot be read."""

    layout: Layout
    key: str = "torn"

    @property
    def resident(self) -> bool:
        return False

    def read(self, number: int) -> Block:
        if number == self.layout.n_blocks - 1:
            raise InputError("bad-value", "The last block holds a missing value.", "Remove the row.")
        start, stop = self.layout.bounds(number)
        return Block(number, start, {"features": np.zeros((stop - start, 4))})


@pytest.mark.parametrize("suffix", [*SUFFIXES, "csv"])
@pytest.mark.parametrize("existing", [False, True])
def test_predict__that_fails_in_a_block_leaves_what_was_there(
    engine: Engine, make_model: MakeModel, rows: NDArray[np.float64], tmp_path: Path, suffix: str, existing: bool
) -> None:
    place = tmp_path / f"p.{suffix}"
    if existing:
        predict(make_model(0), source_of(rows), place, engine=engine)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with refused("bad-value", "The last block holds a missing value."):
        predict(make_model(1), TornSource(Layout(100, 16)), place, engine=engine, overwrite=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert len(list(tmp_path.iterdir())) == int(existing)


@pytest.mark.parametrize("suffix", [*SUFFIXES, "csv"])
def test_predict__onto_predictions_needs_overwrite(
    engine: Engine, make_model: MakeModel, rows: NDArray[np.float64], tmp_path: Path, suffix: str
) -> None:
    place = tmp_path / f"p.{suffix}"
    predict(make_model(0), source_of(rows), place, engine=engine)
    with refused("exists", place, "overwrite", kind=OutputExistsError):
        predict(make_model(0), source_of(rows), place, engine=engine)
    assert predict(make_model(0), source_of(rows[:20]), place, engine=engine, overwrite=True) == 20
    assert len(list(place.glob("part-*"))) == (2 if suffix == "parquet" else 0)


@pytest.mark.parametrize("suffix", [*SUFFIXES, "csv"])
def test_predict__does_not_overwrite_what_is_no_prediction(
    engine: Engine, make_model: MakeModel, rows: NDArray[np.float64], tmp_path: Path, suffix: str
) -> None:
    place = tmp_path / f"p.{suffix}"
    make_model(0).save(place)
    said = "is a folder" if suffix == "csv" else "remove it yourself"
    with refused("wrong-kind", place, said, kind=OutputExistsError):
        predict(make_model(0), source_of(rows), place, engine=engine, overwrite=True)
    assert (place / "zarr.json").exists()


def test_predict__with_a_number_of_batches_the_model_has_not(
    engine: Engine, make_model: MakeModel, rows: NDArray[np.float64], tmp_path: Path
) -> None:
    with refused("bad-setting", "n_batches is 3", "2 batches"):
        predict(make_model(0), source_of(rows), tmp_path / "p.zarr", n_batches=3, engine=engine)
    assert list(tmp_path.iterdir()) == []


def test_predict__into_a_folder_that_cannot_be_made(
    engine: Engine, make_model: MakeModel, rows: NDArray[np.float64], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with refused("unwritable", tmp_path / "file" / "p.zarr", kind=StorageError):
        predict(make_model(0), source_of(rows), tmp_path / "file" / "p.zarr", engine=engine)


def test_predict__of_a_table_with_an_unseen_category(engine: Engine, make_model: MakeModel, tmp_path: Path) -> None:
    import pandas as pd

    columns = (Column("x0"), Column("colour", "nominal", ("blue", "green", "red")))
    model = replace(make_model(0), columns=columns, feature_names=("x0", "colour=blue", "colour=green", "colour=red"))
    table = pd.DataFrame({"x0": [0.5, 1.5, 2.5], "colour": ["red", "violet", "blue"]})
    with refused("bad-value", "violet", "colour"):
        predict(model, table_source(table, columns, engine=engine), tmp_path / "p.zarr", engine=engine)
    assert list(tmp_path.iterdir()) == []
    source = table_source(table, columns, unseen="zero", engine=engine, dtype="float64")
    predict(model, source, tmp_path / "p.zarr", engine=engine)
    encoded = np.array([[0.5, 0, 0, 1], [1.5, 0, 0, 0], [2.5, 1, 0, 0]])
    group: Any = zarr.open_group(tmp_path / "p.zarr", mode="r")
    np.testing.assert_allclose(group["probability"][...], predict_features(encoded, model, [2])[0][0], rtol=1e-12)


def test_predict__says_how_to_open_the_dataset_at_a_path(make_model: MakeModel, tmp_path: Path) -> None:
    with refused("wrong-type", "str", "Dataset.open"):
        predict(make_model(0), str(tmp_path / "data.zarr"), tmp_path / "p.zarr")  # type: ignore[arg-type]


def test_predict__into_the_dataset_that_is_read_is_refused(make_model: MakeModel, tmp_path: Path) -> None:
    data = sample_data("checker", 40, tmp_path / "data")
    before = sorted((tmp_path / "data").rglob("*"))
    with refused("places-overlap", tmp_path / "data", "inside"):
        predict(make_model(n_features=2), data, tmp_path / "data" / "found")
    assert sorted((tmp_path / "data").rglob("*")) == before
