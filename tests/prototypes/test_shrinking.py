"""Models that ask for no more than they look at."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.errors import refused

from protodask.data import Dataset
from protodask.data.format.schema import Column
from protodask.data.tables.ingest import ingest
from protodask.engine import Engine
from protodask.prototypes import FitConfig, fit, load_model
from protodask.prototypes.batches import Batch
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.persistence import model_fingerprint
from protodask.prototypes.rows_to_score import rows_to_predict
from protodask.prototypes.scoring import predict_features
from protodask.prototypes.splines import SplineCalibration

MakeModel = Callable[..., PrototypeSet]


def wide(active: list[list[int]], columns: list[Column], precision: str = "float32") -> PrototypeSet:
    """A model of these columns, whose batches look at these features."""
    rng = np.random.default_rng(0)
    names = tuple(name for column in columns for name in column.feature_names)

    def batch(index: list[int]) -> Batch:
        width, length = len(index), 9 if index else 0
        return Batch(
            feature_index=np.array(index, dtype=np.int64),
            feature_weight=rng.uniform(0.1, 2, width),
            center=rng.normal(size=width),
            scale=rng.uniform(0.5, 2, width),
            prototypes=rng.normal(size=(length, width)),
            prototype_class=np.sort(rng.integers(0, 2, length)),
            prototype_weight=rng.uniform(0.1, 2, length),
            row=np.arange(length),
        )

    return PrototypeSet(
        marginals=np.array([0.25, 0.75]),
        classes=("no", "yes"),
        feature_names=names,
        columns=tuple(columns),
        other_names=("id",),
        batches=tuple(map(batch, active)),
        precision="float64" if precision == "float64" else "float32",
        provenance={"fits": []},
    )


NUMBERS = [Column(f"x{position}") for position in range(6)]
MIXED = [
    Column("a"),
    Column("colour", "nominal", ("red", "green", "blue")),
    Column("b"),
    Column("c", "nominal", (1, 2)),
]


@settings(max_examples=40)
@given(
    st.lists(st.lists(st.integers(0, 5), max_size=6, unique=True).map(sorted), min_size=1, max_size=3),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from(["C", "F"]),
)
def test_shrink__says_the_same_to_the_last_bit(active: list[list[int]], precision: str, order: str) -> None:
    model = wide(active, NUMBERS, precision)
    kept = sorted(set().union(*active))
    if not kept:
        with refused("too-few", "no feature", "marginals"):
            model.shrink()
        return
    small = model.shrink()
    assert small.feature_names == tuple(f"x{index}" for index in kept)
    assert tuple(column.name for column in small.columns) == small.feature_names
    assert small.active_features.tolist() == list(range(len(kept)))
    x = np.asarray(np.random.default_rng(1).normal(size=(300, 6)), dtype=precision, order="F" if order == "F" else "C")
    counts = range(model.n_batches + 1)
    for one, other in zip(small.scores(x[:, kept], counts), model.scores(x, counts), strict=True):
        assert one.tobytes() == other.tobytes()


def test_shrink__keeps_nominal_columns_whole() -> None:
    small = wide([[2], [2, 4]], MIXED).shrink()
    assert small.feature_names == ("colour=red", "colour=green", "colour=blue", "b")
    assert small.columns == (MIXED[1], MIXED[2])
    assert [batch.feature_index.tolist() for batch in small.batches] == [[1], [1, 3]]
    assert sum(len(column.feature_names) for column in small.columns) == small.n_features
    assert small.other_names == ("id", "a", "c")


def test_shrink__records_where_it_comes_from_and_does_it_once() -> None:
    model = wide([[0, 5]], NUMBERS)
    small = model.shrink()
    assert small.provenance == {
        "fits": [],
        "shrunk": {"model": model_fingerprint(model), "features": 6, "kept": 2},
    }
    assert small.shrink() is small
    assert wide([[0, 1, 2, 3], [4, 5]], NUMBERS).shrink().n_features == 6
    assert model.n_features == 6


def test_shrink__of_no_batches_or_empty_ones_is_refused() -> None:
    nothing: list[list[list[int]]] = [[], [[], []]]
    for active in nothing:
        with refused("too-few", "no feature", "marginals"):
            wide(active, NUMBERS).shrink()


def test_shrink__survives_saving(
    tmp_path: Path, assert_same_bits: Callable[[PrototypeSet, PrototypeSet], None]
) -> None:
    small = wide([[2], [2, 4]], MIXED).shrink()
    small.save(tmp_path / "m.zarr")
    loaded = load_model(tmp_path / "m.zarr")
    assert_same_bits(loaded, small)
    assert (loaded.columns, loaded.feature_names) == (small.columns, small.feature_names)
    assert (loaded.other_names, loaded.provenance) == (small.other_names, small.provenance)


@pytest.fixture(scope="module")
def table() -> pandas.DataFrame:
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame(
        {
            "noise": rng.normal(size=300),
            "age": rng.uniform(0, 10, 300),
            "colour": rng.choice(["red", "green", "blue"], 300),
            "town": rng.choice(["A", "B"], 300),
        }
    )
    frame["outcome"] = np.where(frame["age"] + 4 * (frame["colour"] == "red") > 6, "high", "low")
    return frame


def test_shrink__predicts_raw_tables_with_and_without_what_was_dropped(
    table: pandas.DataFrame, engine: Engine, tmp_path: Path
) -> None:
    data = ingest(
        table, tmp_path / "d.zarr", target="outcome", categorical=["colour", "town"], engine=engine, overwrite=True
    )
    model = fit(data, FitConfig.of("source", n_candidates=60, lambda_v=1e-2, tolerance=1e-4), engine=engine).model
    assert {model.feature_names[index].split("=")[0] for index in model.active_features} == {"age", "colour"}
    model.shrink().save(tmp_path / "small.zarr")
    small = load_model(tmp_path / "small.zarr")
    assert [column.name for column in small.columns] == ["age", "colour"]

    expected = predict_features(data.read(0)["features"], model, [1])[0][0]
    table.to_csv(tmp_path / "full.csv", index=False)
    table[["colour", "age"]].to_csv(tmp_path / "few.csv", index=False)
    few = ingest(
        table[["age", "colour", "outcome"]], tmp_path / "few.zarr", target="outcome", categorical=["colour"],
        engine=engine,
    )  # fmt: skip
    for place in ("full.csv", "few.csv", few.path):
        source = rows_to_predict(small, str(tmp_path / place), engine=engine)
        found = predict_features(source.read(0)["features"], small, [1])[0][0]
        assert found.tobytes() == expected.tobytes()
    with refused("columns-differ", data.path, "noise, town=A, town=B"):
        rows_to_predict(small, Dataset.open(data.path).path, engine=engine)


def test_shrink__can_be_trained_further(table: pandas.DataFrame, engine: Engine, tmp_path: Path) -> None:
    columns = ["age", "colour", "outcome"]
    data = ingest(
        table[[*columns, "noise"]], tmp_path / "d.zarr", target="outcome", categorical=["colour"], engine=engine
    )
    few = ingest(table[columns], tmp_path / "few.zarr", target="outcome", categorical=["colour"], engine=engine)
    config = FitConfig.of("source", n_candidates=60, lambda_v=1e-2, tolerance=1e-4)
    small = fit(data, config, engine=engine).model.shrink()
    longer = fit(few, replace(config, lambda_v=1e-3), engine=engine, start=small).model
    assert longer.n_batches == 2
    assert replace(longer, batches=longer.batches[:1]).feature_names == small.feature_names


def test_shrink__keeps_the_calibration(make_calibration: Callable[..., SplineCalibration]) -> None:
    """Its probabilities are the same to the last bit, so what was said of them holds."""
    model = replace(wide([[0, 3]], NUMBERS), calibration=make_calibration(0, n_batches=1, n_classes=2))
    small = model.shrink()
    assert small.n_features == 2
    assert small.calibration is model.calibration
    x = np.random.default_rng(1).normal(size=(20, 6))
    expected = predict_features(x, model, [1], calibrated=True)[0][0]
    assert predict_features(x[:, [0, 3]], small, [1], calibrated=True)[0][0].tobytes() == expected.tobytes()
