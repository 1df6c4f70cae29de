"""`protodask predict`."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.csv
import pyarrow.parquet
import pytest
import zarr
from support.commands import check_failed, json_of

from protodask.data import Dataset
from protodask.errors import Code
from protodask.prototypes import load_model
from protodask.prototypes.fitted import probabilities

Call = Callable[..., Any]


def _expected(example: Any, n_batches: int) -> Any:
    features = Dataset.open(example.data).read(0)["features"]
    (scores,) = load_model(example.model).scores(features, [n_batches])
    return probabilities(scores)


@pytest.mark.skipif(sys.platform != "linux", reason="names that are no UTF-8")
def test_predict__to_names_that_are_no_utf_8_is_refused_where_arrow_writes(
    call: Call, example: Any, tmp_path: Path
) -> None:
    name = os.fsdecode(b"named-\xff")
    for ending in (".csv", ".parquet"):
        done = call("predict", example.model, example.data, "--out", tmp_path / f"{name}{ending}")
        check_failed(done, 1, "unwritable", ending, "a name in UTF-8")
        assert os.listdir(tmp_path) == []
    assert call("predict", example.model, example.data, "--out", tmp_path / f"{name}.zarr").exit_code == 0
    assert call("predict", example.model, example.data, "--out", tmp_path / "p.parquet").exit_code == 0
    os.rename(tmp_path / "p.parquet", tmp_path / f"{name}.parquet")
    done = call("decide", tmp_path / f"{name}.parquet", "--out", tmp_path / "d.parquet")
    check_failed(done, 1, "unreadable", "a name in UTF-8")


@pytest.mark.parametrize("n_batches", [0, 1, 2])
def test_predict__dataset_into_zarr(n_batches: int, example: Any, tmp_path: Path) -> None:
    out = tmp_path / "predictions.zarr"
    found = json_of("predict", example.model, example.data, "--out", out, "--batches", n_batches)
    assert (found["rows"], found["batches"]) == (300, n_batches)
    stored: Any = zarr.open_group(out, mode="r")["probability"]
    np.testing.assert_allclose(stored[...], _expected(example, n_batches), rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "told"), [("p.xlsx", True), ("p.txt", True), ("p.zarr", False), ("p", False), ("p-2024.01", False)]
)
def test_predict__says_that_a_file_of_another_kind_becomes_a_store(
    name: str, told: bool, call: Call, example: Any, tmp_path: Path
) -> None:
    done = call("predict", example.model, example.data, "--out", tmp_path / name)
    assert done.exit_code == 0, done.output
    assert (f"{name} becomes a folder of a Zarr store" in " ".join(done.stderr.split())) == told


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
    check_failed(refused, 1, "bad-value", "'colour'", "'violet'", "row 1")
    assert not (tmp_path / "predictions.zarr").exists()
    assert call(*arguments, "--unseen", "zero").exit_code == 0


RENAMED: dict[bool, tuple[Code, str]] = {
    False: ("columns-differ", "lacks 'size' and has 'Size' besides"),
    True: ("files-failed", "lacks 'size' and has 'Size' besides"),
}


@pytest.mark.parametrize("each_file", [False, True])
def test_predict__says_that_further_columns_are_left_out(
    each_file: bool, call: Call, example: Any, tmp_path: Path
) -> None:
    (tmp_path / "new").mkdir()
    table = tmp_path / "new" / "t.csv"
    table.write_text("age,colour,size,name\n1,red,small,x\n")
    arguments = ("predict", example.model, table.parent, *(("--each-file",) if each_file else ()))
    done = call(*arguments, "--out", tmp_path / "p.parquet")
    assert done.exit_code == 0, done.output
    assert "Columns that were not there at the ingest are left out: 'name'." in done.stderr
    told = call(*arguments, "--out", tmp_path / "q.parquet", "--drop", "name")
    assert told.exit_code == 0, told.output
    assert "'name'" not in told.stderr
    one, other = (pyarrow.parquet.read_table(tmp_path / name).to_pandas() for name in ("p.parquet", "q.parquet"))
    pd.testing.assert_frame_equal(one, other)
    table.write_text("age,colour,Size\n1,red,small\n")
    check_failed(call(*arguments, "--out", tmp_path / "r.parquet"), 1, *RENAMED[each_file])


def test_predict__keeps_columns(call: Call, example: Any, tmp_path: Path) -> None:
    table, out = tmp_path / "new.csv", tmp_path / "predictions.parquet"
    lines = example.table.read_text().splitlines()
    rows = [f"{line},{number:04d}" for number, line in enumerate(lines[1:])]
    table.write_text("\n".join([f"{lines[0]},id", *rows, ""]))
    arguments = ("predict", example.model, table, "--out", out, "--keep", "id", "--keep", "outcome", "--keep", "age")
    done = call(*arguments)
    assert done.exit_code == 0, done.output
    found = pyarrow.parquet.read_table(out).to_pandas().sort_values("row")
    probability = ["probability_high", "probability_low"]
    assert list(found.columns) == ["row", "id", "outcome", "age", "predicted", "familiarity", *probability]
    assert found["id"].tolist() == [f"{number:04d}" for number in range(300)]
    assert found["outcome"].tolist() == [line.split(",")[3] for line in rows]
    assert found["age"].tolist() == [float(line.split(",")[0]) for line in rows]
    np.testing.assert_allclose(found[probability].to_numpy(), _expected(example, 2), rtol=1e-6)
    assert json_of("info", out)["kept"] == ["id", "outcome", "age"]
    lines = tmp_path / "predictions.csv"
    done = call(*arguments[:4], lines, *arguments[5:])
    assert done.exit_code == 0, done.output
    assert str(lines) in done.stdout
    options = pyarrow.csv.ConvertOptions(column_types={"id": pyarrow.string()})
    read = pyarrow.csv.read_csv(lines, convert_options=options).to_pandas()
    pd.testing.assert_frame_equal(read, found.reset_index(drop=True), check_dtype=False)
    check_failed(call("decide", out, "--loss", "f1", "--out", tmp_path / "d.csv"), 1, "unsupported", ".csv", ".parquet")
    decided = call("decide", out, "--loss", "f1", "--positive", "high", "--out", tmp_path / "decisions.zarr")
    assert decided.exit_code == 0, decided.output


@pytest.mark.parametrize(
    ("data", "out", "keep", "exit_code", "code", "facts"),
    [
        ("table", "p.zarr", "age", 2, "unsupported", [".parquet"]),
        ("data", "p.parquet", "age", 1, "column-missing", ["'age'"]),
        ("table", "p.parquet", "row", 2, "named-twice", ["'row'"]),
        ("table", "p.parquet", "predicted", 2, "named-twice", ["'predicted'"]),
        ("table", "p.parquet", "probability_high", 2, "named-twice", ["'probability_high'"]),
        ("table", "p.parquet", "name", 1, "column-missing", ["lacks 'name', a column to keep", "age, colour, size"]),
    ],
)
def test_predict__columns_that_cannot_be_kept(
    data: str,
    out: str,
    keep: str,
    exit_code: int,
    code: Code,
    facts: list[str],
    call: Call,
    example: Any,
    tmp_path: Path,
) -> None:
    done = call("predict", example.model, getattr(example, data), "--out", tmp_path / out, "--keep", keep)
    check_failed(done, exit_code, code, *facts)
    assert list(tmp_path.iterdir()) == []


def test_predict__each_file(call: Call, example: Any, write_table: Callable[..., Path], tmp_path: Path) -> None:
    inbox, out = tmp_path / "inbox", tmp_path / "scores.parquet"
    inbox.mkdir()
    arguments = ("predict", example.model, inbox, "--out", out, "--each-file")
    nothing = call(*arguments)
    assert (nothing.exit_code, "No new file to score" in nothing.stdout) == (0, True), nothing.output
    write_table(inbox / "a.csv", rows=20, seed=1)
    (inbox / "b.csv").write_bytes((inbox / "a.csv").read_bytes())
    (inbox / "c.csv").write_text("age\n1\n")
    some = call(*arguments)
    check_failed(some, 1, "files-failed", "1 file", "c.csv", "lacks 'colour', 'size'")
    assert "1 file with 20 rows scored into" in some.stdout
    assert "1 repeated, 1 failed" in some.stdout
    assert "b.csv repeated the content of other files" in some.stdout
    (inbox / "c.csv").unlink()
    write_table(inbox / "a.csv", rows=30, seed=2)
    more = json_of(*arguments)
    assert [more[name] for name in ("kind", "files", "rows", "repeated", "changed")] == ["scored files", 1, 30, 0, 1]
    assert "now the rows of both are there" in more["notes"][0]
    described = call("info", out).stdout
    assert "files         2, 1 repeated" in described
    assert "rows          50" in described
    assert more["model"] in described
    assert len(pyarrow.parquet.read_table(out)) == 50


@pytest.mark.parametrize(
    ("options", "code", "facts"),
    [
        (("--out", "p.zarr", "--each-file"), "bad-setting", ["p.zarr", ".parquet"]),
        (("--out", "p.parquet", "--settle", "5"), "settings-conflict", ["settle", "--each-file"]),
        (("--out", "p.parquet", "--each-file", "--overwrite"), "settings-conflict", ["each-file and overwrite"]),
    ],
)
def test_predict__each_file_wrong_use(
    options: tuple[str, ...],
    code: Code,
    facts: list[str],
    call: Call,
    example: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = call("predict", example.model, example.table, *options)
    check_failed(done, 2, code, *facts)


@pytest.mark.parametrize("ending", ["zarr", "parquet", "csv"])
def test_predict__existing_output_needs_overwrite(ending: str, call: Call, example: Any, tmp_path: Path) -> None:
    out = tmp_path / f"predictions.{ending}"
    arguments = ("predict", example.model, example.data, "--out", out)
    assert call(*arguments).exit_code == 0
    again = call(*arguments)
    check_failed(again, 1, "exists", out, "--overwrite")
    assert call(*arguments, "--overwrite").exit_code == 0


def test_predict__dataset_of_other_features(call: Call, example: Any, tmp_path: Path) -> None:
    call("sample-data", "checker", "--rows", 20, "--out", tmp_path / "other.zarr")
    done = call("predict", example.model, tmp_path / "other.zarr", "--out", tmp_path / "predictions.zarr")
    lacking, besides = "age, colour=blue, colour=green, colour=red, size", "x0, x1"
    check_failed(done, 1, "columns-differ", tmp_path / "other.zarr", f"lacks {lacking}", f"has {besides}")


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_model__refuses_a_dataset_with_a_column_in_another_order(
    command: str, call: Call, example: Any, tmp_path: Path
) -> None:
    other = tmp_path / "other.zarr"
    made = call(
        "ingest", example.table, "--out", other, "--target", "outcome", "--categorical", "colour",
        "--ordinal", "size=large,medium,small",
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    done = call(command, example.model, other, "--out", tmp_path / "found.zarr")
    check_failed(done, 1, "columns-differ", other, "'size' in another order")
    assert not (tmp_path / "found.zarr").exists()


def test_predict__too_many_batches(call: Call, example: Any, tmp_path: Path) -> None:
    done = call("predict", example.model, example.data, "--out", tmp_path / "predictions.zarr", "--batches", 3)
    check_failed(done, 1, "bad-setting", "--batches", 3, "2 batches")


@pytest.mark.parametrize("which", ["model", "data"])
def test_predict__nothing_there(which: str, call: Call, example: Any, tmp_path: Path) -> None:
    places = {"model": example.model, "data": example.data, which: tmp_path / "nothing"}
    done = call("predict", places["model"], places["data"], "--out", tmp_path / "predictions.zarr")
    check_failed(done, 1, "not-found", tmp_path / "nothing")
    assert list(tmp_path.iterdir()) == []


def test_predict__model_and_data_swapped(call: Call, example: Any, tmp_path: Path) -> None:
    done = call("predict", example.data, example.model, "--out", tmp_path / "predictions.zarr")
    check_failed(done, 1, "wrong-kind", example.data, "model")


def test_predict__several_tables_in_the_order_given(call: Call, example: Any, tmp_path: Path) -> None:
    rows = pd.read_csv(example.table).head(30)
    parts = [rows.iloc[:9], rows.iloc[9:20][rows.columns[::-1]], rows.iloc[20:].assign(extra="x")]
    paths = [tmp_path / "c.csv", tmp_path / "b.parquet", tmp_path / "a.csv"]
    for part, path in zip(parts, paths, strict=True):
        part.to_parquet(path) if path.suffix == ".parquet" else part.to_csv(path, index=False)
    done = call("predict", example.model, *paths, "--out", tmp_path / "all.csv")
    assert done.exit_code == 0, done.output
    assert "Columns that were not there at the ingest are left out: 'extra'." in done.stderr
    found = pd.read_csv(tmp_path / "all.csv")
    np.testing.assert_allclose(found[["probability_high", "probability_low"]], _expected(example, 2)[:30], rtol=1e-6)

    parts[1].drop(columns="age").to_parquet(paths[1])
    for options in ([], ["--each-file"]):
        lacking = call("predict", example.model, *paths, "--out", tmp_path / "parts.parquet", *options)
        assert lacking.exit_code == 1
        assert "b.parquet" in lacking.stderr
        assert "lacks 'age'" in lacking.stderr
    assert len(list((tmp_path / "parts.parquet").glob("[ac]-*.parquet"))) == 2


def test_predict__a_dataset_stands_alone(call: Call, example: Any, tmp_path: Path) -> None:
    done = call("predict", example.model, example.data, example.table, "--out", tmp_path / "p.csv")
    check_failed(done, 1, "wrong-kind", "is a dataset", "Give one dataset, or raw tables alone")
