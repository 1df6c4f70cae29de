"""Prototypes as they were in the training data."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.errors import refused

from protodask.data import Dataset, encode_features
from protodask.data.format.schema import Column
from protodask.data.tables.ingest import ingest
from protodask.engine import Engine
from protodask.explain.contributions import explain_rows
from protodask.explain.original_rows import check_training, decode_row, original_rows, training_keys
from protodask.prototypes import FitConfig, fit
from protodask.prototypes.model import PrototypeSet

MakeModel = Callable[..., PrototypeSet]

COLUMNS = (
    Column("age"),
    Column("colour", "nominal", ("blue", "green", "red")),
    Column("size", "ordinal", ("small", "medium", "large")),
    Column("year", "nominal", (1999, 2024)),
)


@given(
    age=st.floats(-1e6, 1e6, width=32),
    colour=st.sampled_from(COLUMNS[1].categories),
    size=st.sampled_from(COLUMNS[2].categories),
    year=st.sampled_from(COLUMNS[3].categories),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_decode_row__undoes_the_encoding(age: float, colour: str, size: str, year: int, dtype: str) -> None:
    values = {"age": age, "colour": colour, "size": size, "year": year}
    out = np.empty((1, 7), dtype=dtype)
    table = {name: np.array([value]) for name, value in values.items()}
    assert encode_features(table, COLUMNS, out) is None
    found = decode_row(COLUMNS, out[0])
    assert {**found, "age": 0} == {**values, "age": 0}
    assert np.dtype(dtype).type(found["age"]) == out[0, 0]
    assert [type(value) for value in found.values()] == [float, str, str, int]


def test_decode_row__gives_the_shortest_number_and_none_for_no_category() -> None:
    features = np.array([5.1, 0, 0, 0, 1, 1, 0], dtype=np.float32)
    assert decode_row(COLUMNS, features) == {"age": 5.1, "colour": None, "size": "medium", "year": 1999}
    assert decode_row(COLUMNS, np.array([0, 1, 1, 0, 1, 1, 0]))["colour"] is None
    assert decode_row(COLUMNS, features.astype(np.float64))["age"] == 5.099999904632568
    assert decode_row(COLUMNS, np.array([0, 0, 0, 0, 1.5, 1, 0]))["size"] == 1.5
    with pytest.raises(ValueError, match="7|6"):
        decode_row(COLUMNS, features[:6])


@pytest.fixture(scope="module")
def frame() -> pandas.DataFrame:
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame(
        {
            "age": np.round(rng.uniform(0, 10, 200), 2),
            "colour": rng.choice(["red", "green", "blue"], 200),
            "size": rng.choice(["small", "medium", "large"], 200),
        }
    )
    score = frame["age"] + 3 * (frame["colour"] == "red") + 2 * (frame["size"] == "large")
    frame["outcome"] = np.where(score > 6, "high", "low")
    return frame


Trained = tuple[Dataset, PrototypeSet]


@pytest.fixture(scope="module")
def trained(frame: pandas.DataFrame, engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    data = ingest(
        frame,
        tmp_path_factory.mktemp("data") / "d.zarr",
        target="outcome",
        categorical=["colour"],
        ordinal={"size": ("small", "medium", "large")},
        block_rows=64,
        engine=engine,
    )
    return data, fit(data, FitConfig.of("source", n_candidates=40, n_batches=2, tolerance=1e-3), engine=engine).model


@pytest.mark.slow
def test_original_rows__are_those_of_the_source_table(
    trained: Trained, frame: pandas.DataFrame, engine: Engine
) -> None:
    data, model = trained
    (explanation,) = explain_rows(model, data.read(0)["features"][:1], most=100)
    found = original_rows(model, explanation.contributions, data, engine)
    assert len(found) == len(explanation.contributions) > 5
    for row, item in zip(found, explanation.contributions, strict=True):
        source = frame.iloc[item.row]
        assert row.values == {name: source[name] for name in ("age", "colour", "size")}
        assert row.label == item.label == source["outcome"]
        assert (row.row, row.batch, row.position, row.complete) == (item.row, item.batch, item.position, True)


def test_original_rows__without_the_data_are_what_the_model_holds(trained: Trained) -> None:
    data, model = trained
    (explanation,) = explain_rows(model, data.read(0)["features"][:1], most=3)
    for row, item in zip(original_rows(model, explanation.contributions), explanation.contributions, strict=True):
        assert row.values == {match.name: match.prototype_value for match in item.features}
        assert not row.complete


def test_original_rows__of_a_shrunk_model_have_all_columns(trained: Trained, engine: Engine) -> None:
    data, model = trained
    assert all(batch.feature_index[0] == 0 for batch in model.batches)
    narrow = replace(
        model,
        batches=tuple(
            replace(
                batch,
                feature_index=batch.feature_index[:1],
                feature_weight=batch.feature_weight[:1],
                center=batch.center[:1],
                scale=batch.scale[:1],
                prototypes=batch.prototypes[:, :1],
            )
            for batch in model.batches
        ),
    )
    small = narrow.shrink()
    assert [column.name for column in small.columns] == ["age"]
    row = data.read(0)["features"][:1]
    (explanation,) = explain_rows(small, row[:, :1])
    assert explanation.contributions == explain_rows(narrow, row)[0].contributions
    for found in original_rows(small, explanation.contributions, data, engine):
        assert list(found.values) == ["age", "colour", "size"]


def test_original_rows__of_a_model_with_batches_of_several_datasets(
    trained: Trained, frame: pandas.DataFrame, engine: Engine, tmp_path: Path
) -> None:
    data, model = trained
    more = ingest(
        frame.iloc[::-1],
        tmp_path / "more.zarr",
        target="outcome",
        categorical=["colour"],
        ordinal={"size": ("small", "medium", "large")},
        engine=engine,
    )
    longer = fit(
        more, FitConfig.of("source", n_candidates=20, lambda_v=1e-6, tolerance=1e-3), engine=engine, start=model
    ).model
    assert training_keys(longer) == (data.key, data.key, more.key)
    (explanation,) = explain_rows(longer, data.read(0)["features"][:1], most=100)
    assert {item.batch for item in explanation.contributions} == {1, 2, 3}
    for training, own in ((data, {1, 2}), (more, {3})):
        found = original_rows(longer, explanation.contributions, training, engine)
        assert {row.batch for row in found if row.complete} == own
        assert {row.batch for row in found if not row.complete} == {1, 2, 3} - own


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"feature_weights": "class"}, {"n_draws": 2}])
def test_original_rows__of_a_model_whose_rounds_have_several_batches(
    trained: Trained, frame: pandas.DataFrame, engine: Engine, settings: dict[str, Any]
) -> None:
    data, start = trained
    config = FitConfig.of("source", n_candidates=40, **settings)
    longer = fit(data, config, engine=engine, start=start).model
    assert training_keys(longer) == (data.key,) * longer.n_batches
    model = fit(data, config, engine=engine).model
    (explanation,) = explain_rows(model, data.read(0)["features"][:1], most=100)
    assert {item.batch for item in explanation.contributions} == {1, 2}
    for row in original_rows(model, explanation.contributions, data, engine):
        source = frame.iloc[row.row]
        assert row.complete
        assert row.values == {name: source[name] for name in ("age", "colour", "size")}


def test_original_rows__refuse_other_data(
    trained: Trained, frame: pandas.DataFrame, engine: Engine, model: PrototypeSet, tmp_path: Path
) -> None:
    data, fitted = trained
    other = ingest(frame[["age", "outcome"]], tmp_path / "other.zarr", target="outcome", engine=engine)
    with refused("other-run", other.key, data.key):
        original_rows(fitted, (), other, engine)
    with refused("unsupported", "which dataset"):
        check_training(model, data)
    check_training(fitted, data)


def test_original_rows__refuse_row_numbers_the_data_does_not_have(trained: Trained, engine: Engine) -> None:
    data, model = trained
    beyond = replace(model, batches=tuple(replace(batch, row=batch.row + 500) for batch in model.batches))
    (explanation,) = explain_rows(beyond, data.read(0)["features"][:1])
    with refused("damaged", "200 rows"):
        original_rows(beyond, explanation.contributions, data, engine)


@pytest.mark.parametrize(
    ("provenance", "expected"),
    [
        ({}, (None, None)),
        ({"fits": "none"}, (None, None)),
        ({"fits": [3, {"dataset": 1, "batches": [{}]}]}, (None, None)),
        ({"fits": [{"dataset": "a", "batches": [{}]}]}, (None, "a")),
        ({"fits": [{"dataset": "a", "batches": [{}]}, {"dataset": "b", "batches": [{}]}]}, ("a", "b")),
        ({"fits": [{"dataset": "a", "batches": [{}, {}, {}]}]}, (None, None)),
        ({"fits": [{"dataset": "a", "batches": [{}, {}, {}], "added": 2}]}, ("a", "a")),
        ({"fits": [{"dataset": "a", "batches": [{}], "added": "2"}]}, (None, None)),
    ],
)
def test_training_keys__of_whatever_the_model_says(
    model: PrototypeSet, provenance: dict[str, Any], expected: tuple[str | None, ...]
) -> None:
    assert training_keys(replace(model, provenance=provenance)) == expected
