"""`protodask monitor`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.commands import check_failed, json_of

Call = Callable[..., Any]


@pytest.fixture(scope="module")
def reference(call: Call, example: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("reference") / "profile.json"
    done = call("monitor", example.model, example.data, "--out", out)
    assert done.exit_code == 0, done.output
    assert "nothing to compare them with" in done.stdout
    return out


def _monitor(*arguments: Any) -> dict[str, Any]:
    found: dict[str, Any] = json_of("monitor", *arguments)
    assert "profile" not in found, "it may be long"
    content: dict[str, Any] = json.loads(Path(arguments[arguments.index("--out") + 1]).read_text())
    assert found == {name: value for name, value in content.items() if name != "profile"}
    return content


def test_monitor__without_a_reference_says_what_evaluate_says(example: Any, reference: Path) -> None:
    found = json.loads(reference.read_text())
    scores = json_of("evaluate", example.model, example.data)
    assert found["log_loss"]["value"] == pytest.approx(scores["log_loss"])
    assert found["accuracy"] == pytest.approx(scores["accuracy"])
    assert found["drift"] == {"largest": None, "features": None, "worst": []}
    shares = {entry["label"]: entry["share"] for entry in found["labels"]["classes"]}
    assert shares["high"] == pytest.approx(sum(scores["confusion"][0]) / 300)
    names = [entry["name"] for entry in found["profile"]["features"]]
    assert {"age", "colour=red", "size"} <= set(names)


def test_monitor__finds_what_changed_in_raw_tables(
    call: Call, example: Any, reference: Path, write_table: Callable[..., Path], tmp_path: Path
) -> None:
    same = write_table(tmp_path / "same.csv", 400, seed=3)
    out = tmp_path / "now.json"
    calm = call("monitor", example.model, same, "--reference", reference, "--out", out)
    assert calm.exit_code == 0, calm.output
    assert "Nothing changed in 400 rows" in calm.stdout
    assert "drift.largest" in calm.stdout
    assert "From 15% on" in calm.stdout, "4.06 sqrt((1/300 + 1/400) / 4)"
    lines = same.read_text().splitlines()
    same.write_text(
        "\n".join([lines[0], *(f"{float(line.split(',')[0]) + 4},{line.split(',', 1)[1]}" for line in lines[1:])])
    )
    found = _monitor(example.model, same, "--reference", reference, "--out", out, "--overwrite")
    assert found["drift"]["features"] == 1
    assert found["drift"]["worst"][0]["name"] == "age"
    assert found["drift"]["largest"] == found["drift"]["worst"][0]["index"] > 0.2
    assert found["labels"]["shift"] == 0
    assert found["log_loss"]["increase"] > 0
    gate = call("gate", "--results", out, "--limit", "drift.largest<=0.1")
    assert gate.exit_code == 3
    later = _monitor(example.model, same, "--reference", out, "--out", tmp_path / "later.json")
    assert later["drift"]["largest"] == 0, "what was written is itself a reference"
    shown = call("monitor", example.model, same, "--reference", reference, "--out", out, "--overwrite")
    assert "changed: 1 feature (largest index" in shown.stdout


def test_monitor__needs_no_classes(
    call: Call, example: Any, reference: Path, write_table: Callable[..., Path], tmp_path: Path
) -> None:
    table = write_table(tmp_path / "table.csv", 300, seed=4)
    table.write_text("\n".join(line.rpartition(",")[0] for line in table.read_text().splitlines()))
    out = tmp_path / "now.json"
    found = _monitor(example.model, table, "--reference", reference, "--out", out)
    assert found["drift"]["largest"] == 0
    assert found["labels"]["shift"] is found["log_loss"]["increase"] is found["calibration"]["shift"] is None
    gate = call("gate", "--results", out, "--limit", "drift.largest<=0.1", "--limit", "labels.shift<=0.1")
    assert gate.exit_code == 3
    assert "'labels.shift' has no value: it could not be measured" in gate.stdout
    named = call("monitor", example.model, table, "--out", tmp_path / "other.json", "--target", "result")
    check_failed(named, 1, "column-missing", table, "'result'")


def test_monitor__of_a_dataset_with_a_new_class_says_how_many(
    call: Call, example: Any, reference: Path, write_table: Callable[..., Path], tmp_path: Path
) -> None:
    table, data = write_table(tmp_path / "table.csv", 300, seed=4), tmp_path / "data.zarr"
    lines = table.read_text().splitlines()
    table.write_text("\n".join([*lines[:241], *(f"{line.rpartition(',')[0]},middle" for line in lines[241:])]))
    made = call(
        "ingest", table, "--out", data, "--target", "outcome", "--categorical", "colour",
        "--ordinal", "size=small,medium,large",
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    found = _monitor(example.model, data, "--reference", reference, "--out", tmp_path / "now.json")
    assert found["labels"]["unknown"] == pytest.approx(0.2)
    assert found["labels"]["shift"] == pytest.approx(0.2)
    assert found["log_loss"]["increase"] > 1


def test_monitor__weights_count_rows(example: Any, reference: Path, tmp_path: Path) -> None:
    lines = example.table.read_text().splitlines()
    weighted, repeated = tmp_path / "weighted.csv", tmp_path / "repeated.csv"
    weighted.write_text("\n".join([lines[0] + ",times", *(f"{line},{n % 3}" for n, line in enumerate(lines[1:]))]))
    repeated.write_text("\n".join([lines[0], *(line for n, line in enumerate(lines[1:]) for _ in range(n % 3))]))
    found = _monitor(
        example.model, weighted, "--weight", "times", "--reference", reference, "--out", tmp_path / "a.json"
    )
    wanted = _monitor(example.model, repeated, "--reference", reference, "--out", tmp_path / "b.json")
    assert found["rows"] < wanted["rows"]
    assert found["weight"] == wanted["weight"] == 300
    assert found["effective_rows"] == pytest.approx(180)
    for section, name in (("log_loss", "value"), ("familiarity", "below_5_percent"), ("calibration", "error")):
        assert found[section][name] == pytest.approx(wanted[section][name])
    assert found["profile"]["features"][0]["counts"] == wanted["profile"]["features"][0]["counts"]


def test_monitor__refuses_the_reference_of_another_model(
    call: Call, example: Any, reference: Path, tmp_path: Path
) -> None:
    other, out = tmp_path / "other.zarr", tmp_path / "now.json"
    assert call("fit", example.data, "--out", other, "--recipe", "source", "--candidates", 5).exit_code == 0
    done = call("monitor", other, example.data, "--reference", reference, "--out", out)
    check_failed(done, 1, "other-run", reference, "another model")
    batches = call("monitor", example.model, example.data, "--reference", reference, "--out", out, "--batches", 1)
    check_failed(batches, 1, "settings-conflict", reference, "2 batches", 1)
    scores = tmp_path / "scores.json"
    assert call("evaluate", example.model, example.data, "--out", scores).exit_code == 0
    wrong = call("monitor", example.model, example.data, "--reference", scores, "--out", out)
    check_failed(wrong, 1, "wrong-kind", scores, "`protodask monitor`")
    assert not out.exists()


def test_monitor__wrong_use(call: Call, example: Any, reference: Path, tmp_path: Path) -> None:
    done = call("monitor", example.model, example.data, "--out", tmp_path / "x.json", "--significance", 1)
    check_failed(done, 2, "bad-setting", "significance", 1.0, "between 0 and 1")
    elsewhere = call("monitor", example.model, example.data, "--out", "https://example.org/x.json")
    check_failed(elsewhere, 2, "not-local", "https://example.org/x.json")
    taken = call("monitor", example.model, example.data, "--out", reference)
    check_failed(taken, 1, "exists", reference, "--overwrite")
