"""Models as graphs for ONNX runtimes: the same answers as in Python."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from scoring.test_scorer import FRUIT, fruit, models
from support.commands import run_command
from support.errors import refused
from support.models import make_model

from protodask import PrototypeSet
from protodask.data.format.schema import Column, Label
from protodask.prototypes.splines import Spline, SplineCalibration

__all__ = ["fruit"]

Answers = tuple[NDArray[Any], NDArray[np.float64], NDArray[np.float64]]


def asked(path: Path, inputs: dict[str, NDArray[Any]]) -> Answers:
    """Labels, probabilities and familiarity."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    labels, probability, evidence = session.run(["label", "probabilities", "familiarity"], inputs)
    return labels, probability, evidence


def assert_same_answers(model: PrototypeSet, found: Answers, rows: Any, calibrated: bool = False) -> None:
    probability = model.predict_proba(rows, calibrated=calibrated, unseen="zero")
    np.testing.assert_allclose(found[1], probability, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found[2], model.familiarity(rows, unseen="zero"), rtol=1e-9, atol=1e-12)
    assert found[0].tolist() == [model.classes[place] for place in probability.argmax(axis=1)]


@pytest.mark.parametrize("kind", range(4))
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_graphs__answer_as_models_do(kind: int, precision: Any, tmp_path: Path) -> None:
    model = replace(models(kind)[kind], precision=precision)
    rows = np.random.default_rng(kind).normal(size=(50, 5), scale=2).astype(precision)
    rows[3], rows[4, 2], rows[5] = np.nan, np.nan, 1e30
    model.to_onnx(tmp_path / "model.onnx")
    assert_same_answers(model, asked(tmp_path / "model.onnx", {"rows": rows}), rows)
    assert [values.shape for values in asked(tmp_path / "model.onnx", {"rows": rows[:0]})] == [(0,), (0, 3), (0,)]


@pytest.mark.parametrize("classes", [("no", "yes", "perhaps"), (3, 7, -1), (False, True)])
def test_graphs__give_labels_as_they_are(classes: Sequence[Label], tmp_path: Path) -> None:
    model = make_model(0, classes=classes)
    rows = np.random.default_rng(0).normal(size=(20, 4))
    model.to_onnx(tmp_path / "model.onnx")
    assert_same_answers(model, asked(tmp_path / "model.onnx", {"rows": rows}), rows)
    stored = {entry.key: json.loads(entry.value) for entry in onnx.load(tmp_path / "model.onnx").metadata_props}
    assert stored == {"classes": list(classes), "columns": list(model.feature_names)}


@pytest.mark.parametrize("n_classes", [2, 3])
def test_graphs__of_calibrated_models(n_classes: int, tmp_path: Path) -> None:
    steps = Spline(np.array([0.2, 0.3, 0.7]), np.array([0.0, 0.6, 0.5]))
    single = Spline(np.array([0.5]), np.array([0.25]))
    zeros = Spline(np.array([0.1, 0.9]), np.array([0.0, 0.0]))
    splines = (steps,) if n_classes == 2 else (steps, zeros, zeros)
    for chosen in (splines, (single,) * len(splines)):
        model = replace(
            make_model(1, n_classes=n_classes), calibration=SplineCalibration(chosen, 2, 4, False, 40, 40.5)
        )
        rows = np.random.default_rng(1).normal(size=(200, 4))
        model.to_onnx(tmp_path / "model.onnx", calibrated=True, overwrite=True)
        assert_same_answers(model, asked(tmp_path / "model.onnx", {"rows": rows}), rows, calibrated=True)


def test_graphs__have_an_input_for_each_column_where_there_are_categories(fruit: Any, tmp_path: Path) -> None:
    model = fruit.model_
    model.to_onnx(tmp_path / "model.onnx")
    rows = FRUIT.astype({"ripe": str})
    inputs = {
        "weight": rows[["weight"]].to_numpy(dtype=model.precision),
        "colour": rows[["colour"]].fillna("").to_numpy(dtype=object).copy(),
        "ripe": rows[["ripe"]].to_numpy(dtype=object).copy(),
    }
    assert_same_answers(model, asked(tmp_path / "model.onnx", inputs), rows)
    inputs["colour"][:, 0] = "violet"
    assert_same_answers(model, asked(tmp_path / "model.onnx", inputs), rows.assign(colour="violet"))
    inputs["ripe"][:, 0] = ""
    gone = rows.assign(colour="violet", ripe=None)
    assert_same_answers(model, asked(tmp_path / "model.onnx", inputs), gone)


def test_graphs__of_categories_that_are_numbers_and_marks_of_missing_ones(tmp_path: Path) -> None:
    columns = (
        Column("a", filled=0.5, marked=True),
        Column("b", "nominal", (4, 7)),
        Column("c", "nominal", (True,)),
        Column("d", "ordinal", (10, 20, 30)),
        Column("e", "nominal", ("", "x"), filled=0.0, marked=True),
    )
    names = tuple(name for column in columns for name in column.feature_names)
    model = replace(make_model(4, feature_names=names), columns=columns)
    table = {
        "a": [0.1, None, 0.3],
        "b": [7, 5, 4],
        "c": [True, False, True],
        "d": [10, 30, 20],
        "e": ["x", "", "y"],
    }
    inputs = {
        "a": np.array([[0.1], [np.nan], [0.3]]),
        "b": np.array([[7], [5], [4]]),
        "c": np.array([[True], [False], [True]]),
        "d": np.array([[10], [30], [20]]),
        "e": np.array([["x"], [""], ["y"]], dtype=object),
    }
    model.to_onnx(tmp_path / "model.onnx")
    assert_same_answers(model, asked(tmp_path / "model.onnx", inputs), table)


def test_graphs__of_numbers_of_which_some_are_missing(tmp_path: Path) -> None:
    columns = (Column("a", filled=0.5, marked=True), Column("b"), Column("c", filled=-1.0))
    names = tuple(name for column in columns for name in column.feature_names)
    model = replace(make_model(5, feature_names=names), columns=columns)
    rows = np.random.default_rng(5).normal(size=(8, 3))
    rows[1, 0], rows[2, 1], rows[3] = np.nan, np.nan, np.nan
    model.to_onnx(tmp_path / "model.onnx")
    assert_same_answers(model, asked(tmp_path / "model.onnx", {"rows": rows}), rows)


def test_graphs__fall_back_where_nothing_is_left_of_calibrated_probabilities(tmp_path: Path) -> None:
    falling = Spline(np.array([0.05, 0.1, 0.25]), np.array([0.2, 0.9, 0.0]))
    calibration = SplineCalibration((falling,) * 3, 0, 4, False, 40, 40.5)
    model = replace(make_model(0), marginals=np.array([0.3, 0.3, 0.4]), batches=(), calibration=calibration)
    rows = np.zeros((2, 4))
    np.testing.assert_allclose(model.predict_proba(rows, calibrated=True), [[0.3, 0.3, 0.4]] * 2)
    model.to_onnx(tmp_path / "model.onnx", calibrated=True)
    assert_same_answers(model, asked(tmp_path / "model.onnx", {"rows": rows}), rows, calibrated=True)


@pytest.mark.parametrize("kind", range(4))
def test_graphs__take_what_is_infinite_for_far_away(kind: int, tmp_path: Path) -> None:
    model = replace(models(kind)[kind], precision="float32")
    model.to_onnx(tmp_path / "model.onnx")
    rows = np.zeros((2, 5), dtype=np.float32)
    rows[:, 2] = np.inf, -np.inf
    far = np.where(np.isfinite(rows), rows, np.sign(rows) * np.finfo(np.float32).max)
    assert_same_answers(model, asked(tmp_path / "model.onnx", {"rows": rows}), far)


def test_graphs__take_unseen_categories_with_an_order_for_missing_ones(tmp_path: Path) -> None:
    columns = (Column("a"), Column("b", "ordinal", ("low", "high"), filled=0.5, marked=True))
    names = tuple(name for column in columns for name in column.feature_names)
    model = replace(make_model(6, feature_names=names), columns=columns)
    model.to_onnx(tmp_path / "model.onnx")
    found = asked(
        tmp_path / "model.onnx",
        {"a": np.zeros((3, 1)), "b": np.array([["high"], [""], ["middle"]], dtype=object)},
    )
    assert_same_answers(model, found, {"a": [0.0] * 3, "b": ["high", None, None]})


@pytest.mark.parametrize("classes", [(-1, 2**63 + 1, 3), ("a", "b", "\ud800")])
def test_graphs__refuse_classes_that_they_cannot_have(classes: Sequence[Label], tmp_path: Path) -> None:
    with refused("unsupported", "64 bits"):
        make_model(0, classes=classes).to_onnx(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["label", "/1", ""])
def test_graphs__refuse_names_of_their_own(name: str, tmp_path: Path) -> None:
    columns = (Column(name), Column("x", "nominal", ("a", "b")))
    names = tuple(feature for column in columns for feature in column.feature_names)
    model = replace(make_model(0, feature_names=names), columns=columns)
    with refused("unsupported", repr(name)):
        model.to_onnx(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_export__writes_graphs(tmp_path: Path) -> None:
    model = make_model(0)
    model.save(tmp_path / "model.zarr")
    where = str(tmp_path / "model.onnx")
    done = run_command("export", str(tmp_path / "model.zarr"), "--out", where)
    assert done.exit_code == 0
    assert "model.onnx" in done.output
    rows = np.random.default_rng(0).normal(size=(20, 4))
    assert_same_answers(model, asked(Path(where), {"rows": rows}), rows)
    assert (
        run_command("export", str(tmp_path / "model.zarr"), "--out", where, "--overwrite", "--batches", "1").exit_code
        == 0
    )
    np.testing.assert_allclose(asked(Path(where), {"rows": rows})[1], model.predict_proba(rows, n_batches=1), rtol=1e-9)
    for options, facts in (
        (["--out", where], ["[exists]", "--overwrite"]),
        (["--out", where, "--overwrite", "--table", "weights"], ["[settings-conflict]", "--table"]),
        (["--out", where, "--overwrite", "--calibrated"], ["[not-fitted]", "no calibration"]),
        (["--out", str(tmp_path / "model.csv"), "--calibrated"], ["[settings-conflict]", "--calibrated"]),
        (["--out", str(tmp_path / "model.csv"), "--batches", "1"], ["[settings-conflict]", "--batches"]),
        (["--out", str(tmp_path / "model.txt")], ["[bad-setting]", ".onnx"]),
    ):
        failed = run_command("export", str(tmp_path / "model.zarr"), *options)
        assert failed.exit_code in (1, 2)
        assert all(fact in failed.output for fact in facts)
