"""Tables with missing values on the command line, from the file to its predictions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from support.commands import check_failed, json_of

Call = Callable[..., Any]

QUICK = ("--average-draws", 1, "--tolerance", 1e-2)


def make_table(seed: int) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    y = random.integers(0, 2, 120)
    table = pd.DataFrame(
        {
            "age": random.standard_normal(120) + 2 * y,
            "income": random.standard_normal(120),
            "city": random.choice(["Rome", "Oslo"], 120).astype(object),
            "target": np.where(y, "yes", "no"),
        }
    )
    table.loc[random.random(120) < 0.3, "income"] = np.nan
    return table


def test_a_table_with_missing_values__is_learnt_and_scored(call: Call, tmp_path: Path) -> None:
    train, new = make_table(0), make_table(1)
    train.to_csv(tmp_path / "train.csv", index=False)
    done = call("ingest", tmp_path / "train.csv", "--out", tmp_path / "data.zarr", "--text-is-categorical")
    assert done.exit_code == 0
    assert "missing in income" in done.output
    assert call("fit", tmp_path / "data.zarr", "--out", tmp_path / "model.zarr", *QUICK).exit_code == 0
    new.to_csv(tmp_path / "new.csv", index=False)
    score = (
        "predict",
        tmp_path / "model.zarr",
        tmp_path / "new.csv",
        "--overwrite",
        "--out",
        tmp_path / "scored.parquet",
    )
    assert call(*score).exit_code == 0
    assert (pd.read_parquet(tmp_path / "scored.parquet")["predicted"] == new["target"]).mean() > 0.78

    new.loc[7, "age"] = np.nan
    new.to_csv(tmp_path / "new.csv", index=False)
    check_failed(call(*score), 1, "bad-value", "'age'", "row 7")
    new.loc[7, "age"], new.loc[9, "city"] = 0.5, "Lima"
    new.to_csv(tmp_path / "new.csv", index=False)
    check_failed(call(*score), 1, "bad-value", "'city'", "Lima")
    new.loc[7, "age"] = np.nan
    new.to_csv(tmp_path / "new.csv", index=False)
    assert call(*score, "--unseen", "zero").exit_code == 0
    assert len(pd.read_parquet(tmp_path / "scored.parquet")) == len(new)


def test_info__says_what_missing_values_count_as(call: Call, tmp_path: Path) -> None:
    table = make_table(0)
    table.to_csv(tmp_path / "train.csv", index=False)
    assert call("ingest", tmp_path / "train.csv", "--out", tmp_path / "d", "--text-is-categorical").exit_code == 0
    found = json_of("info", tmp_path / "d")
    (income,) = (column for column in found["columns"] if column["name"] == "income")
    assert income["filled"] == pytest.approx(table["income"].mean(), rel=1e-6)
    assert income["marked"] is True
    done = call(
        "ingest", tmp_path / "train.csv", "--out", tmp_path / "e", "--text-is-categorical", "--missing", "error"
    )
    check_failed(done, 1, "bad-value", "'income'")


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_files_with_a_column_without_any_value(ending: str, call: Call, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(200, 2))
    y = (x[:, 0] > 0).astype(int)
    frame = pd.DataFrame({"a": x[:, 0], "gone": np.nan, "words": pd.Series([None] * 200, dtype="str"), "target": y})
    frame["words"] = frame["words"].astype(object)
    data, rows, model = tmp_path / "d.zarr", tmp_path / f"rows.{ending}", tmp_path / "m.zarr"
    getattr(frame, f"to_{ending}")(rows, index=False)
    done = call("ingest", rows, "--out", data, "--categorical", "words")
    assert done.exit_code == 0
    assert "missing in gone, words" in done.output
    assert "of which nothing can be learnt: gone, gone is missing, words is missing" in done.output
    check_failed(
        call("ingest", rows, "--out", data, "--drop", "words", "--missing", "error", "--overwrite"),
        1,
        "bad-value",
        "gone",
    )
    assert call("fit", data, "--out", model, *QUICK).exit_code == 0
    assert call("predict", model, rows, "--out", tmp_path / "p.csv").exit_code == 0
    later = tmp_path / f"later.{ending}"
    getattr(frame.assign(gone=3.0), f"to_{ending}")(later, index=False)
    assert call("predict", model, later, "--out", tmp_path / "q.csv").exit_code == 0
    assert (tmp_path / "p.csv").read_text() == (tmp_path / "q.csv").read_text()
    assert call("export", model, "--out", tmp_path / "m.onnx").exit_code == 0
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    given_rows = {"a": x[:, :1], "gone": np.full((200, 1), np.nan), "words": np.full((200, 1), "", dtype=object)}
    answers = session.run(None, {i.name: given_rows[i.name] for i in session.get_inputs()})
    assert (answers[0].ravel() == pd.read_csv(tmp_path / "p.csv")["predicted"].to_numpy()).all()
