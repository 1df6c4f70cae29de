"""`protodask decide`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import zarr
from support.commands import check_failed, json_of

from protodask.decisions import decide, decide_groups
from protodask.errors import Code

Call = Callable[..., Any]


@pytest.fixture(scope="module")
def predictions(call: Call, example: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("predictions")
    for suffix in ("zarr", "parquet"):
        done = call("predict", example.model, example.data, "--out", folder / f"p.{suffix}")
        assert done.exit_code == 0, done.output
    return folder


def _eta(predictions: Path) -> Any:
    group: Any = zarr.open_group(predictions / "p.zarr", mode="r")
    return group["probability"][:, 1]


@pytest.mark.parametrize("suffix", ["zarr", "parquet"])
def test_decide__writes_what_the_function_decides(predictions: Path, tmp_path: Path, suffix: str) -> None:
    found = json_of("decide", predictions / f"p.{suffix}", "--loss", "f1", "--out", tmp_path / "d.zarr")
    expected = decide(_eta(predictions), "f1")
    assert (found["rows"], found["selected"], found["of"]) == (300, expected.k, "low")
    assert found["threshold"] == expected.threshold
    assert found["expected_loss"] == pytest.approx(expected.expected_loss)
    assert found["loss_at_half"] == pytest.approx(expected.loss_at_half)
    group: Any = zarr.open_group(tmp_path / "d.zarr", mode="r")
    np.testing.assert_array_equal(group["selected"][...] == 1, expected.selected)


def test_decide__says_what_was_chosen_and_what_half_would_cost(call: Call, predictions: Path, tmp_path: Path) -> None:
    done = call("decide", predictions / "p.zarr", "--out", tmp_path / "d.parquet", "--positive", "high")
    assert done.exit_code == 0, done.output
    expected = decide(1 - _eta(predictions), "f1")
    assert f"Selected {expected.k} of 300 items" in done.stdout
    assert f"would cost {expected.loss_at_half:.6g}" in done.stdout
    shown = call("info", tmp_path / "d.parquet", "--json")
    assert json.loads(shown.stdout)["selected"] == expected.k


@pytest.mark.parametrize(
    ("options", "loss"),
    [
        (["--loss", "f2"], "f2"),
        (["--beta", "2"], "f2"),
        (["--loss", "f_beta", "--beta", "0.5"], "f0.5"),
        (["--coefficients", "0,-2,1,1/0,-1,1,1"], "jaccard"),
        (["--coefficients=0,-2,1,1/0,-1,1,1", "--method", "exact"], "jaccard"),
    ],
)
def test_decide__losses_with_numbers(
    call: Call, predictions: Path, tmp_path: Path, options: list[str], loss: str
) -> None:
    done = call("decide", predictions / "p.zarr", "--out", tmp_path / "d.zarr", "--json", *options)
    assert done.exit_code == 0, done.output
    expected = decide(_eta(predictions), loss)
    assert json.loads(done.stdout)["selected"] == expected.k
    assert json.loads(done.stdout)["expected_loss"] == pytest.approx(expected.expected_loss)


@pytest.mark.parametrize(
    ("options", "code", "facts"),
    [
        (["--loss", "accuracy"], "unknown-name", ["'accuracy'", "am, f1"]),
        (["--loss", "f1", "--beta", "2"], "settings-conflict", ["beta", "'f1'"]),
        (["--loss", "f_beta"], "setting-missing", ["f_beta", "beta"]),
        (["--beta", "0"], "bad-setting", ["beta", "0.0"]),
        (["--beta", "2", "--coefficients", "0,-2,1,1/0,-1,1,1"], "settings-conflict", ["beta and coefficients"]),
        (["--loss", "am", "--coefficients", "0,-2,1,1/0,-1,1,1"], "settings-conflict", ["Coefficients", "'am'"]),
        (["--coefficients", "0,-2,1"], "bad-setting", ["'0,-2,1'"]),
        (["--coefficients", "0,-2,1/1,2,3"], "bad-setting", ["[0.0, -2.0, 1.0]", "four"]),
    ],
)
def test_decide__refuses_a_wrong_loss_before_anything_else(
    call: Call, tmp_path: Path, options: list[str], code: Code, facts: list[str]
) -> None:
    done = call("decide", tmp_path / "nothing", "--out", tmp_path / "d.zarr", *options)
    check_failed(done, 2, code, *facts)


@pytest.mark.parametrize("order", ["together", "scattered"])
def test_decide__a_group_of_rows_each(call: Call, tmp_path: Path, order: str) -> None:
    random = np.random.default_rng(0)
    eta, query = random.uniform(size=500), np.repeat(np.arange(50), 10)
    if order == "scattered":
        query = random.permutation(query)
    pyarrow.parquet.write_table(pyarrow.table({"p": eta, "query": query}), tmp_path / "t.parquet")
    arguments = ("decide", tmp_path / "t.parquet", "--probability", "p", "--group", "query", "--out", tmp_path / "d")
    done = call(*arguments)
    assert done.exit_code == 0, done.output
    expected = decide_groups(eta, query, "f1")
    assert f"Selected {expected.k.sum()} rows of 500 rows in 50 decisions, one for each group." in done.stdout
    assert f"{expected.mean_expected_loss:.6g} a group" in done.stdout
    assert call(*arguments).exit_code == 1
    assert call(*arguments, "--overwrite").exit_code == 0


def test_decide__groups_come_from_the_dataset(call: Call, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    lines = ["query,x,y"] + [f"q{row // 8},{random.normal():.5f},{random.integers(2)}" for row in range(240)]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    for arguments in (
        ("ingest", tmp_path / "t.csv", "--target", "y", "--group", "query", "--out", tmp_path / "data.zarr"),
        ("fit", tmp_path / "data.zarr", "--out", tmp_path / "m.zarr", "--recipe", "source", "--candidates", 20),
        ("predict", tmp_path / "m.zarr", tmp_path / "data.zarr", "--out", tmp_path / "p.zarr"),
        ("predict", tmp_path / "m.zarr", tmp_path / "data.zarr", "--out", tmp_path / "p.parquet"),
        ("decide", tmp_path / "p.zarr", "--group", "group", "--out", tmp_path / "z.zarr"),
        ("decide", tmp_path / "p.parquet", "--group", "group", "--out", tmp_path / "p.zarr-d"),
    ):
        done = call(*arguments)
        assert done.exit_code == 0, done.output
    tables: list[Any] = [zarr.open_group(tmp_path / name / "groups", mode="r") for name in ("z.zarr", "p.zarr-d")]
    assert tables[0]["n"][...].tolist() == [8] * 30
    for name in ("group", "k", "threshold"):
        np.testing.assert_array_equal(tables[0][name][...], tables[1][name][...])


def test_decide__each_row(call: Call, predictions: Path, tmp_path: Path) -> None:
    done = call("decide", predictions / "p.parquet", "--per-row", "classes", "--out", tmp_path / "d.parquet")
    assert done.exit_code == 0, done.output
    assert "classes of 300 rows in 300 decisions, one for each row." in done.stdout
    names = pyarrow.parquet.read_table(tmp_path / "d.parquet").column_names
    assert names == ["row", "selected_high", "selected_low", "expected_loss"]


def test_decide__each_row_of_labels(call: Call, tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"p": [0.5, 0.7, 0.2]}), tmp_path / "p.parquet")
    words = ("decide", tmp_path / "p.parquet", "--probability", "p", "--out", tmp_path / "d", "--per-row")
    check_failed(call(*words, "classes"), 1, "bad-value", "row 0", "--per-row labels")
    assert "Selected 1 label of 3 rows in 3 decisions" in call(*words, "labels").stdout


@pytest.mark.slow  # starts worker processes
def test_decide__in_worker_processes_is_the_same(call: Call, predictions: Path, tmp_path: Path) -> None:
    for name, options in (("here", ["--threads", 1]), ("there", ["--workers", 2])):
        for step in (["--method", "normal"], ["--per-row", "labels"]):
            done = call("decide", predictions / "p.zarr", *step, *options, "--out", tmp_path / (name + step[1]))
            assert done.exit_code == 0, done.output
    for kind in ("normal", "labels"):
        here, there = ((tmp_path / (name + kind)) for name in ("here", "there"))
        found: Any = zarr.open_group(here, mode="r")["selected"]
        other: Any = zarr.open_group(there, mode="r")["selected"]
        np.testing.assert_array_equal(found[...], other[...])


def test_decide__is_a_step_of_pipelines(call: Call, predictions: Path, tmp_path: Path) -> None:
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text(
        f"steps:\n  - decide:\n      predictions: {predictions / 'p.zarr'}\n      loss: am\n      positive: high\n"
        f"      out: {tmp_path / 'd.zarr'}\n"
    )
    done = call("run", pipeline)
    assert done.exit_code == 0, done.output
    assert f"select {decide(1 - _eta(predictions), 'am').k} of 300 rows" in done.stdout
    pipeline.write_text("steps:\n  - decide: {predictions: p, loss: f-one, out: d}\n")
    refused = call("run", pipeline)
    check_failed(refused, 2, "unknown-name", "step 1 (decide)", "'f-one'", "am")
