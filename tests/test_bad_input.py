"""Bad input, as a user would give it: a clear error with a remedy, the right exit code, and nothing half-written."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import zarr
from support.commands import check_failed, run_command
from support.disk import small_files_only
from support.errors import refused
from typer.testing import Result

from protodask import Dataset, PrototypeSetClassifier, ingest, load_model
from protodask.data.format import writer
from protodask.data.places import storage
from protodask.engine import thread_engine
from protodask.errors import Code, ProtodaskError

FAILED, WRONG_USE, STOPPED = 1, 2, 130

ROWS = 60
QUICK = ("--recipe", "source", "--candidates", 10, "--max-iterations", 5)


def _frame(rows: int = ROWS) -> pd.DataFrame:
    random = np.random.default_rng(0)
    age = random.uniform(0, 10, rows)
    colour = np.where(np.arange(rows) % 3 == 0, "red", "green")
    return pd.DataFrame({"age": age, "size": random.normal(size=rows), "colour": colour, "outcome": _outcome(age)})


def _outcome(age: Any) -> Any:
    return np.where(age > 5, "high", "low")


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@dataclass(frozen=True)
class Example:
    """A table, the dataset made from it, a model of that, and its predictions."""

    table: Path
    data: Path
    model: Path
    predictions: Path


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Example:
    folder = tmp_path_factory.mktemp("example")
    found = Example(folder / "table.csv", folder / "data.zarr", folder / "model.zarr", folder / "predictions.zarr")
    _frame().to_csv(found.table, index=False)
    assert _ingest(found.table, found.data, "--categorical", "colour").exit_code == 0
    fitted = run_command("fit", found.data, "--out", found.model, *QUICK)
    assert fitted.exit_code == 0, fitted.output
    assert run_command("predict", found.model, found.data, "--out", found.predictions).exit_code == 0
    return found


def _ingest(table: Path, out: Path, *options: object) -> Result:
    return run_command("ingest", table, "--target", "outcome", "--out", out, *options)


def _write(folder: Path, frame: pd.DataFrame, name: str = "table.csv") -> Path:
    path = folder / name
    frame.to_csv(path, index=False)
    return path


# Missing and infinite values


def _numbers(bad: float) -> tuple[Any, Any]:
    features = np.random.default_rng(0).normal(size=(ROWS, 3))
    features[41, 2] = features[17, 1] = bad
    return features, np.arange(ROWS) % 2


def _as_csv(features: Any, target: Any, folder: Path) -> Any:
    return str(_write(folder, _as_frame(features, target, folder)))


def _as_parquet(features: Any, target: Any, folder: Path) -> Any:
    _as_frame(features, target, folder).to_parquet(folder / "table.parquet")
    return str(folder / "table.parquet")


def _as_frame(features: Any, target: Any, _: Path) -> pd.DataFrame:
    return pd.DataFrame(features, columns=["x0", "x1", "x2"]).assign(target=target)


def _as_npy(features: Any, target: Any, folder: Path) -> Any:
    np.save(folder / "X.npy", features)
    np.save(folder / "y.npy", target)
    return str(folder / "X.npy"), str(folder / "y.npy")


def _as_npz(features: Any, target: Any, folder: Path) -> Any:
    np.savez(folder / "arrays.npz", features=features, target=target)
    return str(folder / "arrays.npz")


def _as_dask(features: Any, target: Any, _: Path) -> Any:
    return da.from_array(features, chunks=(16, 2)), da.from_array(target, chunks=25)


def _as_zarr(features: Any, target: Any, folder: Path) -> Any:
    group = zarr.open_group(folder / "arrays.zarr", mode="w", zarr_format=3)
    group.create_array("features", data=features, chunks=(16, 3))
    group.create_array("target", data=target, chunks=(16,))
    return str(folder / "arrays.zarr")


FORMATS = (_as_csv, _as_parquet, _as_frame, _as_npy, _as_npz, _as_dask, _as_zarr)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf], ids=str)
@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.__name__[4:])
def test_ingest__names_column_and_first_row_of_a_value_that_is_no_number(
    form: Callable[[Any, Any, Path], Any], bad: float, tmp_path: Path
) -> None:
    sources = form(*_numbers(bad), tmp_path)
    before = _names(tmp_path)
    with refused("bad-value", "'x1'", "row 17"):
        ingest(sources, tmp_path / "data.zarr", missing="error")
    assert _names(tmp_path) == before


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.__name__[4:])
def test_ingest__names_column_and_first_row_of_a_value_beyond_float32(
    form: Callable[[Any, Any, Path], Any], tmp_path: Path
) -> None:
    sources = form(*_numbers(1e39), tmp_path)
    with refused("bad-value", "'x1'", "1e+39", "float32", "row 17", "float64"):
        ingest(sources, tmp_path / "data.zarr")
    assert not (tmp_path / "data.zarr").exists()
    assert ingest(sources, tmp_path / "data.zarr", dtype="float64").summary.maximum[1] == 1e39


@pytest.mark.parametrize("action", ["fit", "predict"])
@pytest.mark.parametrize("kind", ["numpy", "pandas", "zarr"])
def test_estimator__names_column_and_first_row_of_a_value_that_is_no_number(
    kind: str, action: str, tmp_path: Path
) -> None:
    features, target = _numbers(np.inf)
    good = np.nan_to_num(features, posinf=0.0)
    given: Any = features
    if kind == "pandas":
        given, good = (pd.DataFrame(values, columns=["x0", "x1", "x2"]) for values in (features, good))
    elif kind == "zarr":
        _as_zarr(features, target, tmp_path)
        given = zarr.open_array(tmp_path / "arrays.zarr" / "features", mode="r")
    classifier = PrototypeSetClassifier(n_candidates=10, max_iterations=100, tolerance=1e-2)
    if action == "predict":
        classifier.fit(good, target)
    with pytest.raises(ValueError, match="(?s)(?=.*x1)(?=.*row 17)"):
        getattr(classifier, action)(given, *([target] if action == "fit" else []))


def test_predict__names_column_and_first_row_of_a_missing_value(example: Example, tmp_path: Path) -> None:
    frame = _frame()
    frame.loc[[23, 50], "size"] = np.nan
    done = run_command("predict", example.model, _write(tmp_path, frame), "--out", tmp_path / "predictions.zarr")
    check_failed(done, FAILED, "bad-value", "'size'", "row 23")
    assert _names(tmp_path) == {"table.csv"}


# Tables


def _with(**columns: Any) -> pd.DataFrame:
    return _frame().drop(columns="colour").assign(**columns)


def _at(row: int, value: Any, other: Any) -> Any:
    return [value if number == row else other for number in range(ROWS)]


@pytest.mark.parametrize(
    ("frame", "options", "code", "facts"),
    [
        (_with(outcome="low"), (), "one-class", ("'outcome'", "'low'")),
        (_with(outcome=_at(9, None, "low")), (), "bad-value", ("'outcome'", "row 9")),
        (_with(when="2026-01-31"), (), "wrong-type", ("not numbers: when;", "--categorical", "--ordinal", "--drop")),
        (
            _with(a="x", b="y"),
            ("--categorical", "a"),
            "wrong-type",
            ("not numbers: b;", "--categorical", "--ordinal", "--drop"),
        ),
        (_with(w=_at(3, -1, 1)), ("--weight", "w"), "bad-value", ("'w'", "negative", "row 3")),
        (_with(w=_at(3, None, 1)), ("--weight", "w"), "bad-value", ("'w'", "missing", "row 3")),
        (_with(w=0), ("--weight", "w"), "no-rows", ("weight",)),
        (_with(w=_at(4, 0, 1)), ("--inclusion", "w"), "bad-value", ("'w'", "0.0", "row 4", "above 0", "at most 1")),
        (_with(w=_at(4, 1.5, 1)), ("--inclusion", "w"), "bad-value", ("'w'", "1.5", "row 4", "above 0", "at most 1")),
        (_with(w="many"), ("--weight", "w"), "bad-value", ("'w'", "'many'", "row 0")),
        (_with(o=_at(5, "z", "a")), ("--ordinal", "o=a,b"), "bad-value", ("'o'", "'z'", "row 5", "a, b")),
        (_frame()[:1], ("--categorical", "colour"), "one-class", ("'outcome'", "'high'")),
        (_frame()[["outcome"]], (), "column-missing", ("feature columns",)),
        (_with(), ("--weight", "w"), "column-missing", ("'w'", "weight", "age, size, outcome")),
        (_with(), ("--categorical", "w"), "column-missing", ("'w'", "age, size, outcome")),
        (_with(), ("--weight", "outcome"), "settings-conflict", ("target", "weight")),
    ],
)  # fmt: skip
def test_ingest__of_a_table_that_cannot_be_used(
    frame: pd.DataFrame, options: tuple[str, ...], code: Code, facts: tuple[str, ...], tmp_path: Path
) -> None:
    check_failed(_ingest(_write(tmp_path, frame), tmp_path / "data.zarr", *options), FAILED, code, *facts)
    assert _names(tmp_path) == {"table.csv"}


@pytest.mark.parametrize(
    ("content", "code", "facts"),
    [
        (b"", "unreadable", ("table.csv", "first line")),
        (b"age,outcome\n", "no-rows", ()),
        (b"age,size,outcome\n1,2,a\n3,4,b,5\n", "unreadable", ("table.csv", "line 3")),
        (b"age, years;outcome\n1;a\n2;b\n", "column-missing", ("'outcome'", "semicolons")),
        (b"age,age,outcome\n1,2,a\n3,4,b\n", "named-twice", ("table.csv", "'age'")),
        (b"age,outcome,outcome\n1,a,a\n3,b,b\n", "named-twice", ("table.csv", "'outcome'")),
        (b"age,outcome\n1,\xe9\n2,b\n", "unreadable", ("table.csv", "0xe9")),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "unreadable", ("table.csv", "0x89")),
        (b"age,outcome\n1,0.25\n2,0.75\n3,1\n", "bad-value", ("'outcome'", 0.25, "classes")),
    ],
    ids=["empty", "header", "ragged", "semicolons", "twice", "target-twice", "latin", "binary", "measured-target"],
)
def test_ingest__of_a_file_that_is_no_proper_table(
    content: bytes, code: Code, facts: tuple[object, ...], tmp_path: Path
) -> None:
    table = tmp_path / "table.csv"
    table.write_bytes(content)
    check_failed(_ingest(table, tmp_path / "data.zarr"), FAILED, code, *facts)
    assert _names(tmp_path) == {"table.csv"}


def test_ingest__keeps_constant_columns_with_a_note(tmp_path: Path) -> None:
    frame = _with(constant=7.25)
    done = _ingest(_write(tmp_path, frame), tmp_path / "data.zarr")
    assert done.exit_code == 0
    assert "Constant features, of which nothing can be learnt: constant." in done.output
    fitted = run_command("fit", tmp_path / "data.zarr", "--out", tmp_path / "model.zarr", *QUICK)
    assert fitted.exit_code == 0, fitted.output
    assert load_model(tmp_path / "model.zarr").feature_names == ("age", "size", "constant")
    summary = Dataset.open(tmp_path / "data.zarr").summary
    position = Dataset.open(tmp_path / "data.zarr").feature_names.index("constant")
    assert (summary.mean[position], summary.scale[position]) == (7.25, 1.0)


def test_whole_way__with_names_of_every_kind(tmp_path: Path) -> None:
    frame = _frame()[["age", "size"]]
    frame.columns = pd.Index([" größe / 大きさ ", "x" * 3000])
    frame["outcome class"] = np.where(frame.iloc[:, 0] > 5, "ja/nein é", "familiarity")
    table = _write(tmp_path, frame)
    data, model, out = (tmp_path / name for name in ("data.zarr", "model.zarr", "predictions.parquet"))
    assert run_command("ingest", table, "--target", "outcome class", "--out", data).exit_code == 0
    assert run_command("fit", data, "--out", model, *QUICK).exit_code == 0
    assert run_command("predict", model, table, "--out", out).exit_code == 0
    assert load_model(model).feature_names == tuple(frame.columns[:2])
    found = pd.read_parquet(out)
    assert set(found.columns) == {
        "row", "predicted", "familiarity", "probability_ja/nein é", "probability_familiarity",
    }  # fmt: skip


# Scoring rows that are unlike the training data


def test_predict__unseen_category_is_an_error_by_default_and_all_zero_on_request(
    example: Example, tmp_path: Path
) -> None:
    frame = _frame()
    frame.loc[12, "colour"] = "mauve"
    table = _write(tmp_path, frame)
    done = run_command("predict", example.model, table, "--out", tmp_path / "error.zarr")
    check_failed(done, FAILED, "bad-value", "'colour'", "'mauve'", "row 12", "unseen")
    assert _names(tmp_path) == {"table.csv"}
    assert (
        run_command("predict", example.model, table, "--out", tmp_path / "zero.zarr", "--unseen", "zero").exit_code == 0
    )
    model = load_model(example.model)
    row = {"age": frame["age"][12], "size": frame["size"][12], "colour=green": 0.0, "colour=red": 0.0}
    (batch,) = model.batches
    point = np.array([row[name] for name in model.feature_names])[batch.feature_index]
    distances = batch.feature_weight * (point - batch.prototypes) / batch.scale
    kernel = batch.prototype_weight * np.exp(-0.5 * (distances**2).sum(axis=1))
    expected = model.marginals + np.bincount(batch.prototype_class, kernel, minlength=2)
    found = np.asarray(zarr.open_array(tmp_path / "zero.zarr" / "probability", mode="r")[12])
    np.testing.assert_allclose(found, expected / expected.sum(), rtol=1e-4)


@pytest.mark.parametrize(
    ("change", "code", "facts"),
    [
        (lambda frame: frame.drop(columns="size"), "columns-differ", ("lacks 'size'",)),
        (lambda frame: frame.rename(columns={"age": "Age"}), "columns-differ", ("lacks 'age'", "has 'Age' besides")),
        (lambda frame: frame.assign(age="old"), "bad-value", ("'age'", "'old'", "row 0")),
        (lambda frame: frame[:0], "no-rows", ()),
    ],
    ids=["lacking", "renamed", "text", "empty"],
)
@pytest.mark.parametrize("command", ["predict", "evaluate", "ingest"])
def test_later_tables__of_other_columns(
    command: str, change: Any, code: Code, facts: tuple[str, ...], example: Example, tmp_path: Path
) -> None:
    table = _write(tmp_path, change(_frame()))
    shutil.copytree(example.data, tmp_path / "data.zarr")
    before = _contents(tmp_path)
    match command:
        case "predict":
            done = run_command("predict", example.model, table, "--out", tmp_path / "predictions.zarr")
        case "evaluate":
            done = run_command("evaluate", example.model, table, "--out", tmp_path / "scores.json")
        case _:
            done = run_command("ingest", table, "--out", tmp_path / "data.zarr", "--append")
    check_failed(done, FAILED, code, *facts)
    assert _contents(tmp_path) == before


@pytest.mark.parametrize(
    ("weight", "code", "facts"),
    [
        (-1.0, "bad-value", ("'w'", "negative", "row 0")),
        (0.0, "no-rows", ("weights",)),
        (np.nan, "bad-value", ("'w'", "missing", "row 0")),
    ],
)
def test_evaluate__with_weights_that_cannot_be(
    weight: float, code: Code, facts: tuple[str, ...], example: Example, tmp_path: Path
) -> None:
    table = _write(tmp_path, _frame().assign(w=weight))
    done = run_command("evaluate", example.model, table, "--weight", "w", "--out", tmp_path / "scores.json")
    check_failed(done, FAILED, code, *facts)
    assert _names(tmp_path) == {"table.csv"}


# Settings


@pytest.mark.parametrize(
    ("option", "value", "remedy"),
    [
        *((name, value, "finite and not negative")
          for name in ("lambda-v", "lambda-w") for value in ("-1", "-1e-300", "nan", "inf")),
        ("alpha-v", "1.5", "from 0 to 1"),
        ("alpha-w", "-0.1", "from 0 to 1"),
        ("max-fraction", "0", "strictly between 0 and 1"),
        ("max-fraction", "1", "strictly between 0 and 1"),
        ("candidates", "-1", "at least 0"),
        ("batches", "-1", "at least 0"),
        ("tolerance", "-1", "from 0 to 1"),
        ("max-iterations", "0", "at least 1"),
        ("seed", "-1", "at least 0"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("place", ["option", "config", "pipeline"])
def test_fit__refuses_settings_before_anything_is_done(
    place: str, option: str, value: str, remedy: str, example: Example, tmp_path: Path
) -> None:
    file = tmp_path / "settings.yaml"
    text = value.replace("nan", ".nan").replace("inf", ".inf")
    out = tmp_path / "model.zarr"
    match place:
        case "option":
            file.touch()
            done = run_command("fit", example.data, "--out", out, f"--{option}", value)
        case "config":
            file.write_text(f"{option}: {text}\n")
            done = run_command("fit", example.data, "--out", out, "--config", file)
        case _:
            made = tmp_path / "made.zarr"
            steps = [
                f"- sample-data: {{kind: xor, rows: 50, out: '{made}'}}",
                f"- fit: {{data: '{made}', out: '{out}', {option}: {text}}}",
            ]
            file.write_text("\n".join(["steps:", *steps]))
            done = run_command("run", file)
    check_failed(done, WRONG_USE, "bad-setting", option if place == "pipeline" else f"--{option}", remedy)
    assert _names(tmp_path) == {"settings.yaml"}


@pytest.mark.parametrize(
    ("text", "code", "facts"),
    [
        ("steps: !!python/object/apply:os.mkdir ['MARK']", "unreadable", ("YAML", "python/object", "line 1")),
        ("steps:\n- fit: {data: x, out: y, nope: 1}", "unknown-key", ("'nope'", "data, out")),
        ("stepz: []", "unknown-key", ("'stepz'", "steps", "variables")),
        ("variables: {a: '${b}', b: '${a}'}\nsteps:\n- fit: {data: x, out: y}", "unknown-name", ("'b'",)),
        ("steps:\n- fit: {data: '${absent}', out: y}", "unknown-name", ("'absent'", "`variables:`")),
        ("steps: &loop\n- fit: {data: *loop, out: y}", "unreadable", ("loop.yaml", "line 1")),
        ("steps:\n- fit: {data: x}", "setting-missing", ("'out'", "line 2")),
        ("steps:\n- {}", "bad-setting", ("step 1", "line 2", "sample-data, ingest")),
        ("", "setting-missing", ("`steps:`",)),
        (
            "steps:\n- sample-data: {kind: xor, rows: -1, out: MARK}",
            "bad-setting",
            ("step 1", "rows", -1, 1),
        ),
        (
            "steps:\n- sample-data: {kind: xor, rows: 9, out: MARK}\n"
            "- subsample: {data: MARK, out: y, budget: 5, seed: -1}",
            "bad-setting",
            ("step 2", "seed", -1, 0),
        ),
        (
            "steps:\n- sample-data: {kind: xor, rows: 9, out: MARK}\n"
            "- decide: {predictions: MARK, out: y, per-row: classes, group: g}",
            "settings-conflict",
            ("step 2", "each row", "group"),
        ),
        ("steps:\n- subsample: {data: x, out: y, rate: {'0': 0.5, 0: 0.7}}", "named-twice", ("step 1", "rate", "once")),
    ],
    ids=[
        "tag",
        "key",
        "top",
        "cycle",
        "variable",
        "loop",
        "lacking",
        "nothing",
        "empty",
        "rows",
        "seed",
        "per-row",
        "twice",
    ],
)
def test_run__of_a_pipeline_that_makes_no_sense(
    text: str, code: Code, facts: tuple[object, ...], tmp_path: Path
) -> None:
    file = tmp_path / "loop.yaml"
    file.write_text(text.replace("MARK", str(tmp_path / "mark")))
    check_failed(run_command("run", file), WRONG_USE, code, *facts)
    assert _names(tmp_path) == {"loop.yaml"}


@pytest.mark.parametrize("max_fraction", ["0.001", "0.999"])
def test_fit__of_a_class_too_rare_names_it_and_leaves_nothing(
    max_fraction: str, example: Example, tmp_path: Path
) -> None:
    done = run_command("fit", example.data, "--out", tmp_path / "model.zarr", "--max-fraction", max_fraction)
    least = {"0.001": 999, "0.999": 1001}[max_fraction]
    check_failed(done, FAILED, "too-few", "--max-fraction", "'high'", "'low'", f"{least:,} rows")
    assert _names(tmp_path) == set()


def test_fit__can_be_repeated_with_other_settings_after_it_was_refused(tmp_path: Path) -> None:
    data, model = tmp_path / "data.zarr", tmp_path / "model.zarr"
    frame = _with(outcome=["rare" if row < 3 else "common" for row in range(ROWS)])
    assert _ingest(_write(tmp_path, frame), data).exit_code == 0
    done = run_command("fit", data, "--out", model, "--max-fraction", 0.1, *QUICK)
    check_failed(done, FAILED, "too-few", "'rare' (3 rows)", "9 rows")
    assert _names(tmp_path) == {"table.csv", "data.zarr"}
    assert run_command("fit", data, "--out", model, *QUICK).exit_code == 0


def test_fit__counts_rows_of_positive_weight_for_rare_classes(tmp_path: Path) -> None:
    high = np.flatnonzero(_frame()["outcome"] == "high")
    weight = np.where(np.isin(np.arange(ROWS), high[2:]), 0, 1)
    assert _ingest(_write(tmp_path, _with(w=weight)), tmp_path / "data.zarr", "--weight", "w").exit_code == 0
    done = run_command("fit", tmp_path / "data.zarr", "--out", tmp_path / "model.zarr", *QUICK)
    check_failed(done, FAILED, "too-few", "'high' (2 rows)", "3 rows of positive weight")


def test_fit__of_an_extreme_max_fraction_answers_at_once(example: Example, tmp_path: Path) -> None:
    # Counting up to the answer would take years: the tests' own limit of time would end it.
    for extreme in ("1e-300", str(1 - 2**-53)):
        done = run_command("fit", example.data, "--out", tmp_path / "model.zarr", "--max-fraction", extreme)
        assert done.exit_code in (FAILED, WRONG_USE)
        assert "--max-fraction" in done.stderr
        assert "unexpected" not in done.stderr


@pytest.mark.parametrize("penalty", ["1e6", "1e100", "1e300"])
@pytest.mark.parametrize("names", [("lambda-v",), ("lambda-v", "lambda-w")], ids=" and ".join)
def test_fit__whose_weights_all_vanish_gives_the_marginals(
    names: tuple[str, ...], penalty: str, example: Example, tmp_path: Path
) -> None:
    model, out = tmp_path / "model.zarr", tmp_path / "predictions.zarr"
    options = [text for name in names for text in (f"--{name}", penalty)]
    done = run_command("fit", example.data, "--out", model, "--recipe", "source", "--candidates", 10, *options)
    assert "Something unexpected" not in done.output
    if done.exit_code != 0:
        # A penalty beyond all sense is refused, in plain words, and with nothing left.
        check_failed(done, WRONG_USE, "bad-setting", f"--{names[0]}", "1e+12")
        assert float(penalty) > 1e12
        assert _names(tmp_path) == set()
        return
    assert run_command("predict", model, example.table, "--out", out).exit_code == 0
    found: Any = zarr.open_group(out, mode="r")
    marginals = load_model(model).marginals
    if "lambda-w" in names:
        np.testing.assert_allclose(found["probability"][...], np.tile(marginals, (ROWS, 1)), rtol=1e-12)
    assert np.isfinite(found["probability"][...]).all()


@pytest.mark.parametrize("candidates", [1, 10**6, 10**30])
def test_fit__takes_as_many_candidates_as_there_can_be(candidates: int, example: Example, tmp_path: Path) -> None:
    done = run_command(
        "fit", example.data, "--out", tmp_path / "model.zarr", "--max-iterations", 2, "--candidates", candidates
    )
    assert done.exit_code == 0, done.output
    assert run_command("evaluate", tmp_path / "model.zarr", example.data).exit_code == 0


def test_fit__without_batches_is_the_marginals(example: Example, tmp_path: Path) -> None:
    assert run_command("fit", example.data, "--out", tmp_path / "model.zarr", "--batches", 0).exit_code == 0
    scored = run_command("evaluate", tmp_path / "model.zarr", example.data, "--json")
    scores = json.loads(scored.stdout)
    assert scores["log_loss"] == pytest.approx(scores["marginal_log_loss"], rel=1e-12)


@pytest.mark.parametrize("command", ["fit", "predict", "evaluate", "ingest"])
def test_scheduler__that_cannot_be_reached(
    command: str, example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("protodask.engine.connect.CONNECT_SECONDS", 0.2)
    out = ("--out", tmp_path / "out.zarr")
    arguments: dict[str, tuple[object, ...]] = {
        "fit": (example.data, *out),
        "predict": (example.model, example.data, *out),
        "evaluate": (example.model, example.data),
        "ingest": (example.table, "--target", "outcome", "--categorical", "colour", *out),
    }
    done = run_command(command, *arguments[command], "--scheduler", "localhost:1")
    check_failed(done, FAILED, "no-answer", "localhost:1")
    assert _names(tmp_path) == set()


# Outputs that exist


@pytest.mark.parametrize("command", ["ingest", "sample-data", "fit", "predict", "predict-parquet", "evaluate"])
def test_output__that_exists_needs_overwrite_and_to_be_of_its_kind(
    command: str, example: Example, tmp_path: Path
) -> None:
    parquet = command == "predict-parquet"
    out = tmp_path / ("out.parquet" if parquet else "scores.json" if command == "evaluate" else "out.zarr")
    arguments: dict[str, tuple[object, ...]] = {
        "ingest": (example.table, "--target", "outcome", "--categorical", "colour"),
        "sample-data": ("xor", "--rows", 50),
        "fit": (example.data, *QUICK),
        "predict": (example.model, example.data),
        "evaluate": (example.model, example.data),
    }
    name = command.removesuffix("-parquet")
    line = (name, *arguments[name], "--out", out)
    assert run_command(*line).exit_code == 0
    before = _contents(tmp_path) if out.is_dir() else {"scores.json": out.read_bytes()}
    check_failed(run_command(*line), FAILED, "exists", out.name, "--overwrite")
    assert _contents(tmp_path) == before
    assert run_command(*line, "--overwrite").exit_code == 0
    assert _names(tmp_path) == {out.name}
    if command != "evaluate":
        shutil.rmtree(out)
        out.mkdir()
        (out / "thesis.txt").write_text("years of work")
        check_failed(run_command(*line, "--overwrite"), FAILED, "wrong-kind", out.name, "not overwritten")
        assert _contents(tmp_path) == {f"{out.name}/thesis.txt": b"years of work"}


# Damage


def _change_attributes(path: Path, **values: Any) -> None:
    file = path / "zarr.json"
    record = json.loads(file.read_text())
    record["attributes"].update(values)
    file.write_text(json.dumps(record))


def _chunk(array: Path) -> Path:
    return next(path for path in sorted(array.rglob("*")) if path.is_file() and path.name != "zarr.json")


def _flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


DATA_DAMAGE: dict[str, tuple[Callable[[Path], object], Code]] = {
    "newer": (lambda path: _change_attributes(path, version=99, format_version=99), "newer-format"),
    "attributes": (lambda path: _change_attributes(path, classes=["low", "high"]), "damaged"),
    "flipped": (lambda path: _flip(_chunk(path / "features")), "damaged"),
    "short": (lambda path: os.truncate(_chunk(path / "features"), 10), "damaged"),
    "chunk-gone": (lambda path: _chunk(path / "target").unlink(), "damaged"),
    "array-gone": (lambda path: shutil.rmtree(path / "target"), "damaged"),
}


@pytest.mark.parametrize("damage", DATA_DAMAGE)
def test_fit__of_a_damaged_dataset_leaves_nothing(damage: str, example: Example, tmp_path: Path) -> None:
    shutil.copytree(example.data, tmp_path / "data.zarr")
    break_it, code = DATA_DAMAGE[damage]
    break_it(tmp_path / "data.zarr")
    check_failed(
        run_command("fit", tmp_path / "data.zarr", "--out", tmp_path / "model.zarr", *QUICK), FAILED, code, "data.zarr"
    )
    assert _names(tmp_path) == {"data.zarr"}


MODEL_DAMAGE: dict[str, tuple[Callable[[Path], object], Code]] = {
    "newer": (lambda path: _change_attributes(path, version=99), "newer-format"),
    "attributes": (lambda path: _change_attributes(path, marginals=[0.5, 0.5]), "damaged"),
    "flipped": (lambda path: _flip(_chunk(path / "batch-1" / "prototypes")), "damaged"),
    "short": (lambda path: os.truncate(_chunk(path / "batch-1" / "prototypes"), 3), "damaged"),
    "array-gone": (lambda path: shutil.rmtree(path / "batch-1" / "prototypes"), "damaged"),
    "emptied": (lambda path: os.truncate(path / "zarr.json", 0), "wrong-kind"),
}


@pytest.mark.parametrize("suffix", ["zarr", "parquet"])
@pytest.mark.parametrize("damage", MODEL_DAMAGE)
def test_predict__by_a_damaged_model_leaves_nothing(damage: str, suffix: str, example: Example, tmp_path: Path) -> None:
    shutil.copytree(example.model, tmp_path / "model.zarr")
    break_it, code = MODEL_DAMAGE[damage]
    break_it(tmp_path / "model.zarr")
    done = run_command("predict", tmp_path / "model.zarr", example.data, "--out", tmp_path / f"out.{suffix}")
    check_failed(done, FAILED, code, "model.zarr")
    assert _names(tmp_path) == {"model.zarr"}


# A disk that is full, an interruption, and two at a time


WRITERS = (
    "ingest", "sample-data", "subsample", "fit", "calibrate", "prune", "predict-zarr", "predict-parquet", "decide-zarr",
    "decide-parquet",
)  # fmt: skip


def _write_command(command: str, example: Example, folder: Path) -> tuple[object, ...]:
    match command:
        case "ingest":
            return (
                "ingest", example.table, "--target", "outcome", "--categorical", "colour", "--out", folder / "out.zarr",
            )  # fmt: skip
        case "sample-data":
            return "sample-data", "checker", "--rows", 5000, "--out", folder / "out.zarr"
        case "fit":
            return "fit", example.data, "--out", folder / "out.zarr", "--run-dir", folder / "run", *QUICK
        case "subsample":
            return "subsample", example.data, "--rate", "high=0.8", "--out", folder / "out.zarr"
        case "prune":
            return "prune", example.model, example.data, "--prototypes", "3", "--out", folder / "out.zarr"
        case "calibrate":
            return "calibrate", example.model, example.data, "--out", folder / "out.zarr"
        case "decide-zarr":
            return "decide", example.predictions, "--out", folder / "out.zarr"
        case "decide-parquet":
            return "decide", example.predictions, "--out", folder / "out.parquet"
        case "predict-zarr":
            return "predict", example.model, example.data, "--out", folder / "out.zarr"
        case _:
            return "predict", example.model, example.data, "--out", folder / "out.parquet"


@contextmanager
def _full_disk() -> Iterator[None]:
    """What the system buffered finds no place when it is made durable; a run directory may have been kept before."""
    flush = os.fsync

    def full(handle: int) -> None:
        if ".partial-" in os.readlink(f"/proc/self/fd/{handle}"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        flush(handle)

    with mock.patch.object(os, "fsync", full):
        yield


@pytest.mark.parametrize("command", WRITERS)
def test_write__that_fails_leaves_nothing_and_can_be_repeated(command: str, example: Example, tmp_path: Path) -> None:
    line = _write_command(command, example, tmp_path)
    if Path("/proc/self/fd").exists():  # only Linux says which file a handle is of
        with _full_disk():
            check_failed(run_command(*line), FAILED, "disk-full", tmp_path)
        assert _names(tmp_path) <= {"run"}
    # In the middle.
    with small_files_only(200):
        check_failed(run_command(*line), FAILED, "unwritable", tmp_path)
    assert _names(tmp_path) <= {"run"}
    with mock.patch.object(storage, "make_durable", side_effect=KeyboardInterrupt):
        done = run_command(*line)
    assert done.exit_code == STOPPED
    assert "nothing is left half-written" in done.stderr
    assert _names(tmp_path) <= {"run"}
    repeated = run_command(*line)
    assert repeated.exit_code == 0, repeated.output


def test_failed_append__leaves_the_dataset_as_it_was(example: Example, tmp_path: Path) -> None:
    data = tmp_path / "data.zarr"
    shutil.copytree(example.data, data)
    before = _contents(data)
    with small_files_only(200):
        done = run_command("ingest", example.table, "--out", data, "--append")
        check_failed(done, FAILED, "unwritable", data)
    assert Dataset.open(data).n_rows == ROWS
    assert {name: _contents(data)[name] for name in before if "zarr.json" not in name} == {
        name: content for name, content in before.items() if "zarr.json" not in name
    }
    assert run_command("ingest", example.table, "--out", data, "--append").exit_code == 0
    assert Dataset.open(data).n_rows == 2 * ROWS


def test_append__of_two_at_a_time_loses_nothing(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data.zarr"
    shutil.copytree(example.data, data)
    both = threading.Barrier(2)
    write_blocks = writer._write_blocks

    def wait(*arguments: Any, **options: Any) -> Any:
        # Both have read the dataset and neither has committed; where one waits for the other, nobody else comes.
        with suppress(threading.BrokenBarrierError):
            both.wait(timeout=1)
        return write_blocks(*arguments, **options)

    monkeypatch.setattr(writer, "_write_blocks", wait)
    done: list[bool] = []

    def append() -> None:
        try:
            ingest(_frame(), data, append=True)
        except ProtodaskError:
            done.append(False)
        else:
            done.append(True)

    threads = [threading.Thread(target=append) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 2
    assert any(done)
    found = Dataset.open(data)
    assert found.n_rows == ROWS * (1 + sum(done))
    column = found.feature_names.index("age")
    ages = np.concatenate([found.read(number)["features"][:, column] for number in range(found.layout.n_blocks)])
    np.testing.assert_array_equal(ages, np.tile(_frame()["age"].to_numpy(np.float32), 1 + sum(done)))


@pytest.mark.parametrize(
    "command", ["subsample", "calibrate", "decide-zarr", "decide-parquet", "prune", "predict-zarr", "predict"]
)
def test_output__inside_of_what_is_read_is_refused(command: str, example: Example) -> None:
    *line, out = _write_command(command, example, Path())
    for read in line[1:3]:
        if isinstance(read, Path) and read.is_dir():
            before = _contents(read)
            check_failed(run_command(*line, read / str(out)), FAILED, "places-overlap", read, read / str(out))
            assert _contents(read) == before


@pytest.mark.parametrize(
    ("line", "exit_code", "code", "facts"),
    [
        (("--beta", "1e200"), WRONG_USE, "bad-setting", ("beta", "1e+200", "1e+50")),
        (
            ("--coefficients", "1e308,-1e308,0,0/1,0,0,0"),
            WRONG_USE,
            "bad-setting",
            ("coefficients", "1e+308", "1e+100"),
        ),
        (("--group", "colour"), FAILED, "column-missing", ("'colour'", "--group")),
        (("--positive", "middling"), FAILED, "unknown-name", ("'middling'", "high, low")),
        (("--probability", "p"), FAILED, "settings-conflict", ("Parquet", "--probability")),
    ],
)
def test_decide__refuses_what_it_cannot_do(
    line: tuple[str, ...], exit_code: int, code: Code, facts: tuple[str, ...], example: Example, tmp_path: Path
) -> None:
    done = run_command("decide", example.predictions, "--out", tmp_path / "out", *line)
    check_failed(done, exit_code, code, *facts)
    assert _names(tmp_path) == set()


@pytest.mark.parametrize("wrong", ["table", "data", "model"])
def test_decide__of_what_is_not_predictions(wrong: str, example: Example, tmp_path: Path) -> None:
    check_failed(
        run_command("decide", getattr(example, wrong), "--out", tmp_path / "out"),
        FAILED,
        "wrong-kind",
        getattr(example, wrong),
        "Parquet",
    )


def test_subsample__of_a_budget_beyond_all_numbers(example: Example, tmp_path: Path) -> None:
    line = ("subsample", example.data, "--budget", 10**400, "--out", tmp_path / "out")
    check_failed(run_command(*line), WRONG_USE, "bad-setting", "above 0")


# The estimator


def _rows() -> tuple[Any, Any]:
    features = np.random.default_rng(0).normal(size=(ROWS, 2))
    return features, np.arange(ROWS) % 3


QUICK_CLASSIFIER = PrototypeSetClassifier(n_candidates=10, max_iterations=100, tolerance=1e-2)


def test_estimator__names_a_class_that_has_no_weight() -> None:
    features, target = _rows()
    with refused("too-few", "2 (0 rows)", "3 rows of positive weight"):
        QUICK_CLASSIFIER.fit(features, target, sample_weight=np.where(target == 2, 0.0, 1.0))


@pytest.mark.parametrize(("weight", "words"), [(-1.0, "Negative"), (0.0, "non-zero|No row has"), (np.nan, "NaN")])
def test_estimator__refuses_weights_that_cannot_be(weight: float, words: str) -> None:
    features, target = _rows()
    with pytest.raises(ValueError, match=words):
        QUICK_CLASSIFIER.fit(features, target, sample_weight=np.full(ROWS, weight))


@pytest.mark.parametrize("name", ["lambda_v", "lambda_w"])
def test_estimator__refuses_negative_penalties(name: str) -> None:
    with refused("bad-setting", name, -1.0, "finite and not negative"):
        PrototypeSetClassifier().set_params(**{name: -1.0}).fit(*_rows())


@pytest.mark.parametrize(("size", "weights"), [(1e200, 1.0), (1.0, 1e308), (1.0, 1e-320)])
def test_estimator__whose_sums_overflow_says_so_in_our_words(size: float, weights: float) -> None:
    features, target = _rows()
    features[5, 1] *= size
    weight = np.full(ROWS, weights)
    with refused("overflow"):
        QUICK_CLASSIFIER.fit(features, target, sample_weight=weight)


def test_estimator__on_an_engine_that_was_closed_says_so() -> None:
    with thread_engine(1) as engine:
        classifier = PrototypeSetClassifier(n_candidates=10, max_iterations=5, engine=engine)
    with refused("engine-closed"):
        classifier.fit(*_rows())
