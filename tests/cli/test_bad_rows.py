"""Rows that cannot be scored: an error, or marked while the others are scored."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import zarr
from support.commands import check_failed, json_of

from protodask import FitConfig, fit, ingest
from protodask.engine import thread_engine

Call = Callable[..., Any]

ROWS = 300
BAD = {3: ("age", "old"), 17: ("city", "Lima"), 18: ("age", "inf"), 40: ("age", ""), 299: ("city", "")}
"""Rows whose value of a column is text where a number is expected, new, infinite or missing."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad-rows")
    table = make_table(0)
    table["target"] = np.where(table["age"] > 0, "yes", "no")
    with thread_engine(1, 2**28) as engine:
        data = ingest(table, folder / "data.zarr", target="target", categorical=["city"], engine=engine)
        config = FitConfig(n_candidates=60, n_draws=1)
        fit(data, config, engine=engine).model.save(folder / "model.zarr")
    return folder / "model.zarr"


def make_table(seed: int) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    age = random.standard_normal(ROWS)
    return pd.DataFrame({"id": np.arange(ROWS), "age": age, "city": random.choice(["Rome", "Oslo"], ROWS)})


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """A folder with a table some of whose rows are bad, and beside it `good.csv`, where they are not."""
    table = make_table(1)
    table.to_csv(tmp_path / "good.csv", index=False)
    table = table.astype(object)
    for row, (column, value) in BAD.items():
        table.loc[row, column] = value
    (tmp_path / "tables").mkdir()
    table.to_csv(tmp_path / "tables" / "monday.csv", index=False)
    return tmp_path / "tables"


def check(found: pd.DataFrame, good: pd.DataFrame) -> None:
    """Bad rows are marked, and all others are as they would be without."""
    bad = np.isin(np.arange(ROWS), list(BAD))
    assert found["id"].tolist() == list(range(ROWS))
    assert found["predicted"].isna().tolist() == bad.tolist()
    assert found.loc[~bad, "predicted"].tolist() == good.loc[~bad, "predicted"].tolist()
    for name in ("familiarity", "probability_no", "probability_yes"):
        assert found[name].isna().tolist() == bad.tolist()
        np.testing.assert_allclose(found.loc[~bad, name], good.loc[~bad, name], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_predict__marks_bad_rows_and_scores_the_others(
    ending: str, call: Call, model: Path, tables: Path, tmp_path: Path
) -> None:
    read = pd.read_csv if ending == "csv" else pd.read_parquet
    good, out = tmp_path / f"others.{ending}", tmp_path / f"scored.{ending}"
    check_failed(call("predict", model, tables, "--out", out), 1, "bad-value", "--bad-rows mark")
    assert call("predict", model, tables.parent / "good.csv", "--keep", "id", "--out", good).exit_code == 0
    done = call("predict", model, tables, "--keep", "id", "--out", out, "--bad-rows", "mark")
    assert done.exit_code == 0, done.output
    assert "300 rows, of which 5 could not be scored and are marked" in " ".join(done.output.split())
    check(read(out), read(good))


def test_predict__marks_bad_rows_in_arrays(call: Call, model: Path, tables: Path, tmp_path: Path) -> None:
    done = call("predict", model, tables, "--out", tmp_path / "scored.zarr", "--bad-rows", "mark", "--json")
    assert json.loads(done.stdout)["marked"] == 5
    found: Any = zarr.open_group(tmp_path / "scored.zarr", mode="r")
    assert np.flatnonzero(found["predicted"][:] == -1).tolist() == sorted(BAD)
    assert np.flatnonzero(np.isnan(found["probability"][:]).all(axis=1)).tolist() == sorted(BAD)


def test_predict__of_unseen_categories_as_zero_marks_what_is_no_number(
    call: Call, model: Path, tables: Path, tmp_path: Path
) -> None:
    mark = ("--unseen", "zero", "--bad-rows", "mark")
    done = call("predict", model, tables, "--out", tmp_path / "scored.parquet", *mark, "--json")
    assert json.loads(done.stdout)["marked"] == 2
    found = pd.read_parquet(tmp_path / "scored.parquet")["predicted"]
    assert np.flatnonzero(found.isna()).tolist() == [3, 18]


def test_predict__of_each_file_marks_bad_rows(call: Call, model: Path, tables: Path, tmp_path: Path) -> None:
    each = ("predict", model, tables, "--each-file", "--keep", "id", "--out", tmp_path / "scored.parquet")
    check_failed(call(*each), 1, "files-failed", "'old'", "--bad-rows mark")
    done = call(*each, "--bad-rows", "mark")
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert "1 file with 300 rows, 5 of them marked, scored" in said
    assert "5 rows could not be scored and are marked, in monday.csv." in said
    described = json_of("info", tmp_path / "scored.parquet")
    assert (described["rows"], described["marked"]) == (300, 5)
    assert "300, 5 marked" in call("info", tmp_path / "scored.parquet").output
    good = tmp_path / "one.parquet"
    assert call("predict", model, tables.parent / "good.csv", "--keep", "id", "--out", good).exit_code == 0
    check(pd.read_parquet(tmp_path / "scored.parquet"), pd.read_parquet(good))


def test_ingest__of_values_that_are_too_large_says_so_alone(call: Call, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,y\n1e300,a\n-1e300,b\n1,a\n2,b\n")
    done = call("ingest", tmp_path / "t.csv", "--target", "y", "--out", tmp_path / "d.zarr")
    check_failed(done, 1, "bad-value", "'x'", "row 0", "float64")
