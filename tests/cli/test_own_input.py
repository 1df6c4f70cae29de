"""Commands never write over what they read, and read a dataset as one."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.commands import check_failed

Call = Callable[..., Any]


@pytest.mark.parametrize(
    "line",
    [
        ("evaluate", "{model}", "{table}", "--out", "{table}"),
        ("monitor", "{model}", "{table}", "--out", "{table}"),
        ("explain", "{model}", "{table}", "--row", 3, "--out", "{table}"),
        ("explain", "{model}", "{data}", "--row", 3, "--reference", "{table}", "--out", "{table}"),
        ("ingest", "{table}", "--target", "outcome", "--out", "{table}"),
        ("tune", "{data}", "--out", "{out}", "--table", "{data}"),
        ("split", "{data}", "--out", "{data}", "--held-out", "{out}"),
        ("split", "{data}", "--out", "{out}", "--held-out", "{data}/"),
        ("fit", "{data}", "--out", "{data}"),
        ("predict", "{model}", "{table}", "--out", "{table}"),
    ],
)
def test_overwrite__never_takes_what_is_read(line: tuple[Any, ...], call: Call, example: Any, tmp_path: Path) -> None:
    table, data = tmp_path / "t.csv", tmp_path / "d.zarr"
    shutil.copy(example.table, table)
    shutil.copytree(example.data, data)
    names = {"model": example.model, "table": table, "data": data, "out": tmp_path / "out"}
    refused = call(*(str(word).format(**names) for word in line), "--overwrite")
    check_failed(refused, 2, "places-overlap", table if str(table) in refused.output else data)
    assert table.read_text() == example.table.read_text()
    assert sorted(path.name for path in data.iterdir()) == sorted(path.name for path in example.data.iterdir())
    assert not (tmp_path / "out").exists()


def test_overwrite__of_a_model_by_its_calibration_is_usual(call: Call, example: Any, tmp_path: Path) -> None:
    model = tmp_path / "m.zarr"
    shutil.copytree(example.model, model)
    done = call("calibrate", model, example.data, "--out", model, "--overwrite")
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("option", ["--metrics", "--log-file"])
@pytest.mark.parametrize("path", ["history/t.csv", "history/more.csv", "data.zarr/log", "answer.json"])
def test_run__never_tells_into_what_its_steps_read_or_write(
    option: str, path: str, call: Call, example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "history").mkdir()
    shutil.copy(example.table, tmp_path / "history" / "t.csv")
    (tmp_path / "p.yaml").write_text(
        "steps:\n"
        "  - ingest: {sources: history, out: data.zarr, target: outcome, categorical: colour,\n"
        "      ordinal: {size: [small, medium, large]}}\n"
        f"  - evaluate: {{model: {example.model}, data: data.zarr, out: answer.json}}\n"
    )
    check_failed(call("run", "p.yaml", option, path), 2, "places-overlap", path, option)
    assert (tmp_path / "history" / "t.csv").read_text() == example.table.read_text()
    assert [one.name for one in tmp_path.iterdir() if one.suffix in (".zarr", ".json")] == []


@pytest.mark.parametrize("path", ["history/run.log", "run.log"])
def test_run__tells_beside_what_its_steps_read(
    path: str, call: Call, example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "history").mkdir()
    shutil.copy(example.table, tmp_path / "history" / "t.csv")
    for sources in ("history", "."):
        (tmp_path / "p.yaml").write_text(f"steps: [ingest: {{sources: {sources}, out: data.zarr, drop: size}}]\n")
        done = call("run", "p.yaml", "--log-file", path)
        assert "places-overlap" not in done.output
        assert (tmp_path / path).stat().st_size > 0


def test_ingest__does_not_take_a_dataset_or_a_model_for_arrays(call: Call, example: Any, tmp_path: Path) -> None:
    for place, what in ((example.data, "dataset"), (example.model, "model")):
        refused = call("ingest", place, "--out", tmp_path / "out.zarr", "--target", "outcome")
        check_failed(refused, 1, "wrong-kind", place, what)
        assert not (tmp_path / "out.zarr").exists()
    check_failed(call("evaluate", example.model, example.model), 1, "wrong-kind", example.model, "model")


@pytest.mark.slow
def test_evaluate__reads_tables_as_precisely_as_the_training_rows(call: Call, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    seconds = 1_700_000_000 + np.arange(600) % 30  # of which float32 keeps one
    table.write_text("\n".join(["t,y", *(f"{t},{'u' if t % 30 < 15 else 'v'}" for t in seconds)]))
    data, model = tmp_path / "d.zarr", tmp_path / "m.zarr"
    assert call("ingest", table, "--target", "y", "--dtype", "float64", "--out", data).exit_code == 0
    assert (
        call("fit", data, "--out", model, "--recipe", "source", "--candidates", 60, "--precision", "float32").exit_code
        == 0
    )
    of_data, of_table = (call("evaluate", model, one, "--json").stdout for one in (data, table))
    assert of_table.replace(str(table), str(data)) == of_data


@pytest.mark.slow
def test_evaluate__warns_of_a_dataset_with_other_means_where_values_are_missing(call: Call, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for name, shift in (("one", 0), ("two", 2)):
        values = random.normal(shift, 1, 400)
        rows = (f"{'' if value < shift - 1 else round(value, 3)},{'u' if value > 0 else 'v'}" for value in values)
        (tmp_path / f"{name}.csv").write_text("\n".join(["a,y", *rows]))
        made = call("ingest", tmp_path / f"{name}.csv", "--target", "y", "--out", tmp_path / f"{name}.zarr")
        assert made.exit_code == 0, made.output
    model = tmp_path / "m.zarr"
    assert call("fit", tmp_path / "one.zarr", "--out", model, "--recipe", "source", "--candidates", 40).exit_code == 0
    assert "means of its own rows" not in call("evaluate", model, tmp_path / "one.zarr").output
    other = call("evaluate", model, tmp_path / "two.zarr")
    assert other.exit_code == 0
    assert "two.zarr has the means of its own rows" in other.stderr
    assert "'a' (" in other.stderr
    exact = tmp_path / "exact.zarr"
    again = call("ingest", tmp_path / "one.csv", "--target", "y", "--out", exact, "--dtype", "float64")
    assert again.exit_code == 0
    assert "means of its own rows" not in call("evaluate", model, exact).output
