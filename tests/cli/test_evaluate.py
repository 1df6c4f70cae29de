"""`protodask evaluate`."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, confusion_matrix, log_loss, roc_auc_score
from support.commands import check_failed, json_of

from protodask.data import Dataset
from protodask.prototypes import load_model
from protodask.prototypes.fitted import probabilities

Call = Callable[..., Any]


@pytest.mark.parametrize("n_batches", [1, 2])
def test_evaluate__agrees_with_scikit_learn(n_batches: int, example: Any) -> None:
    found = json_of("evaluate", example.model, example.data, "--batches", n_batches)
    block = Dataset.open(example.data).read(0)
    (scores,) = load_model(example.model).scores(block["features"], [n_batches])
    probability, target = probabilities(scores), block["target"]
    assert found["log_loss"] == pytest.approx(log_loss(target, probability))
    assert found["accuracy"] == pytest.approx(accuracy_score(target, probability.argmax(axis=1)))
    assert found["roc_auc"] == pytest.approx(roc_auc_score(target, probability[:, 1]))
    assert found["confusion"] == confusion_matrix(target, probability.argmax(axis=1)).tolist()
    assert found["rows"] == 300
    assert found["classes"] == ["high", "low"]


def test_evaluate__no_batches_is_the_marginals(example: Any) -> None:
    found = json_of("evaluate", example.model, example.data, "--batches", 0)
    assert found["log_loss"] == pytest.approx(found["marginal_log_loss"])
    assert found["marginal_log_loss"] > json_of("evaluate", example.model, example.data)["log_loss"]


def test_evaluate__raw_table_is_as_good_as_its_dataset(example: Any) -> None:
    from_table = json_of("evaluate", example.model, example.table)
    from_dataset = json_of("evaluate", example.model, example.data)
    del from_table["data"], from_dataset["data"]
    assert from_table == from_dataset


def test_evaluate__weights_count_rows(example: Any, tmp_path: Path) -> None:
    lines = example.table.read_text().splitlines()
    weighted, repeated = tmp_path / "weighted.csv", tmp_path / "repeated.csv"
    weighted.write_text("\n".join([lines[0] + ",times", *(f"{line},{n % 3}" for n, line in enumerate(lines[1:]))]))
    repeated.write_text("\n".join([lines[0], *(line for n, line in enumerate(lines[1:]) for _ in range(n % 3))]))
    found = json_of("evaluate", example.model, weighted, "--weight", "times")
    wanted = json_of("evaluate", example.model, repeated)
    for name in ("log_loss", "accuracy", "roc_auc", "weight", "brier_score", "marginal_log_loss"):
        assert found[name] == pytest.approx(wanted[name])


def test_evaluate__says_so_where_rows_have_the_weights_of_the_training_and_count_once(
    call: Call, tmp_path: Path
) -> None:
    lines = [f"{row % 7},{row % 3 + 1},{1 - row % 2 / 2},{'ab'[row % 2]}" for row in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["x,times,kept,y", *lines]) + "\n")
    table, data, model = tmp_path / "t.csv", tmp_path / "d.zarr", tmp_path / "m.zarr"
    roles = ("--weight", "times", "--inclusion", "kept")
    for words in (("ingest", table, "--target", "y", *roles, "--out", data), ("fit", data, "--out", model)):
        assert call(*words).exit_code == 0
    said = "count by their weight, 'times', and those of .* once each: name the column with --weight, or leave"
    done = call("evaluate", model, table, *roles[2:])
    assert re.search(said, " ".join(done.stderr.split()))
    for said_of_both in (roles, ("--drop", "times", "--drop", "kept")):
        assert "Warning" not in call("evaluate", model, table, *said_of_both).stderr
    assert "Warning" not in call("predict", model, table, "--out", tmp_path / "p.csv").stderr
    assert "Warning" not in call("evaluate", model, data).stderr


def test_evaluate__of_one_row_that_weighs_much(call: Call, example: Any, tmp_path: Path) -> None:
    header, row = example.table.read_text().splitlines()[:2]
    (tmp_path / "t.csv").write_text(f"{header},w\n{row},2e300\n")
    done = call("evaluate", example.model, tmp_path / "t.csv", "--weight", "w")
    assert done.exit_code == 0, done.output
    assert "of the 1 row of" in done.stdout
    assert "2e+300" in done.stdout.split()
    done = call("predict", example.model, tmp_path / "t.csv", "--drop", "w", "--out", tmp_path / "p.zarr")
    assert "have 1 row." in done.stdout, done.output


def test_evaluate__other_target_column(call: Call, example: Any, tmp_path: Path) -> None:
    table = tmp_path / "renamed.csv"
    table.write_text(example.table.read_text().replace("outcome", "answer", 1))
    done = call("evaluate", example.model, table, "--drop", "answer")
    check_failed(done, 1, "column-missing", table, "'outcome'", "--target")
    assert json_of("evaluate", example.model, table, "--target", "answer")["rows"] == 300


def test_evaluate__held_out_dataset_may_lack_classes(call: Call, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    rows = [
        f"{random.normal(center):.4f},{label}" for label, center in (("a", 0), ("b", 3), ("c", 6)) for _ in range(40)
    ]
    training, held_out, foreign = (tmp_path / name for name in ("training.csv", "held-out.csv", "foreign.csv"))
    training.write_text("\n".join(["x,target", *rows]))
    held_out.write_text("\n".join(["x,target", *(row for row in rows if not row.endswith("a"))]))
    foreign.write_text("x,target\n1,b\n2,z\n")
    for table in (training, held_out, foreign):
        assert call("ingest", table, "--out", table.with_suffix(".zarr")).exit_code == 0
    model = tmp_path / "model.zarr"
    assert (
        call("fit", training.with_suffix(".zarr"), "--out", model, "--recipe", "source", "--candidates", 20).exit_code
        == 0
    )
    found = json_of("evaluate", model, held_out.with_suffix(".zarr"))
    assert found["confusion"] == json_of("evaluate", model, held_out)["confusion"]
    assert found["confusion"][0] == [0, 0, 0]
    refused = call("evaluate", model, foreign.with_suffix(".zarr"))
    check_failed(refused, 1, "columns-differ", foreign.with_suffix(".zarr"), "'z'")


def test_evaluate__without_roc_auc(example: Any) -> None:
    assert "roc_auc" not in json_of("evaluate", example.model, example.data, "--no-roc-auc")


def test_evaluate__writes_the_scores(call: Call, example: Any, tmp_path: Path) -> None:
    out = tmp_path / "folder" / "scores.json"
    printed = json_of("evaluate", example.model, example.data, "--out", out)
    assert json.loads(out.read_text()) == printed
    assert [path.name for path in out.parent.iterdir()] == ["scores.json"]
    again = call("evaluate", example.model, example.data, "--out", out)
    check_failed(again, 1, "exists", out, "--overwrite")
    assert call("evaluate", example.model, example.data, "--out", out, "--overwrite").exit_code == 0


def test_evaluate__says_it_in_words(call: Call, example: Any) -> None:
    done = call("evaluate", example.model, example.data)
    found = json_of("evaluate", example.model, example.data)
    assert f"right on {found['accuracy']:.1%} of the 300 rows" in done.stdout
    assert f"{found['marginal_log_loss']:.4f}" in done.stdout
    assert f"log-loss           {found['log_loss']:.6f}" in done.stdout


def test_evaluate__roles_are_for_raw_tables(call: Call, example: Any) -> None:
    done = call("evaluate", example.model, example.data, "--target", "outcome")
    check_failed(done, 1, "settings-conflict", example.data, "--target, --weight and --inclusion")


def test_evaluate__missing_weight_column(call: Call, example: Any) -> None:
    done = call("evaluate", example.model, example.table, "--weight", "times")
    check_failed(done, 1, "column-missing", example.table, "'times'", "--weight")


def test_evaluate__says_how_well_the_roc_auc_is_known(
    call: Call, example: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = json_of("evaluate", example.model, example.data)
    assert exact["roc_auc_error"] == 0
    low, high = exact["roc_auc_interval"]
    assert low < exact["roc_auc"] < high
    in_words = call("evaluate", example.model, example.data).stdout
    assert f"{exact['roc_auc']:.6f} (95 per cent interval {low:.6f} to {high:.6f})" in in_words

    monkeypatch.setattr("protodask.evaluation.roc.curve_bytes", lambda n_rows, n_classes: 2**62)
    monkeypatch.setattr("protodask.evaluation.roc.MOST_BINS", 8)
    binned = json_of("evaluate", example.model, example.data)
    assert 0 < abs(binned["roc_auc"] - exact["roc_auc"]) <= binned["roc_auc_error"] < 0.2
    in_words = call("evaluate", example.model, example.data).stdout
    said = re.search(r"off by at most (\S+);", in_words)
    assert said is not None
    assert binned["roc_auc_error"] <= float(said[1]) < 1.1 * binned["roc_auc_error"]
