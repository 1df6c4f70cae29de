"""`protodask robust`: from a table of bounds to planes, predictions, measures and descriptions."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
import typer
import zarr
from numpy.typing import NDArray
from support.commands import check_failed, fingerprint_of, json_of

from protodask.cli import app
from protodask.cli.progress import LogReporter, RobustTally
from protodask.data import Dataset
from protodask.data.places.records import CHECKSUM, seal
from protodask.errors import Code
from protodask.pipeline.steps.robust import KNOWS, Formulation, RobustFitStep
from protodask.pipeline.telling.events import RobustStarted
from protodask.robust import (
    RobustClassifier,
    RobustConfig,
    RobustModel,
    UncertainRows,
    columns_of,
    fit_robust,
    load_robust_model,
)
from protodask.robust.bundle import Pass
from protodask.robust.formulations import FORMULATIONS
from protodask.robust.measures import certified_sums
from protodask.robust.training import PlanePass

Call = Callable[..., Any]
FAST = ("--gap", 1e-2, "--threads", 1)


@dataclass(frozen=True)
class Measured:
    """Tables of bounds as CSV and Parquet, the dataset made from them, a model of that, and what they say."""

    csv: Path
    parquet: Path
    data: Path
    model: Path
    rows: UncertainRows
    sick: NDArray[np.bool_]
    fitted: Any
    """What fitting the model printed."""


@pytest.fixture(scope="module")
def measured(call: Call, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    folder = tmp_path_factory.mktemp("measured")
    random = np.random.default_rng(0)
    sick = random.random(150) < 0.4
    middle = random.normal(size=(150, 3)) + np.where(sick, 1.5, -1.5)[:, None] * [1.0, 0.7, 0.0]
    half = random.uniform(0.1, 0.6, (150, 3)) * [1, 1, 0]
    rows = UncertainRows(
        middle - half, middle + half, middle - half / 4, middle + half / 4, np.square(half) / 3, origin=middle
    )
    table = pd.DataFrame(columns_of(rows, ["iron", "zinc", "age"]))
    table["sick"] = np.where(sick, "yes", "no")
    table["weight"] = np.arange(150) % 3 + 1.0
    found = [folder / name for name in ("table.csv", "table.parquet", "data.zarr", "model.zarr")]
    table.to_csv(found[0], index=False)
    table.to_parquet(found[1])
    done = call("ingest", found[0], "--target", "sick", "--drop", "weight", "--dtype", "float64", "--out", found[2])
    assert done.exit_code == 0, done.output
    fitted = call("robust", "fit", found[2], "--out", found[3], "--formulation", "SBMV-I", "--eps", 0.2, *FAST)
    assert fitted.exit_code == 0, fitted.output
    return Measured(found[0], found[1], found[2], found[3], rows, sick, fitted)


def right(model: RobustModel, measured: Measured) -> NDArray[np.bool_]:
    predicted = model.predict(measured.rows) == 1
    return np.asarray(predicted == measured.sick)


def test_fit__is_that_of_the_dataset_and_says_how_it_went(measured: Measured) -> None:
    model = load_robust_model(measured.model)
    config = RobustConfig("SBMV-I", eps=0.2, gap=1e-2)
    again = fit_robust(Dataset.open(measured.data), config).model
    assert model.weights.tobytes() == again.weights.tobytes()
    assert (model.features, model.classes, model.target_name) == (("iron", "zinc", "age"), ("no", "yes"), "sick")
    assert model.other_names == ("weight",)
    line = measured.fitted.stdout
    assert "has 1 plane in 3 features, by SBMV-I with eps 0.2; after" in line
    per_cent = f"{100 * float(model.gap[0]):.2g} per cent"
    assert f"{model.passes[0]} passes, no other has an objective smaller by more than {per_cent}." in line
    assert "pass 1  objective" in measured.fitted.stderr
    assert sorted(os.listdir(measured.model.parent)) == ["data.zarr", "model.zarr", "table.csv", "table.parquet"]


def test_fit__as_json_has_settings_planes_and_notes(call: Call, measured: Measured, tmp_path: Path) -> None:
    out = tmp_path / "m.zarr"
    done = call("robust", "fit", measured.data, "--out", out, "--cost", 0.5, "--max-passes", 9, *FAST, "--json")
    found = json.loads(done.stdout)
    model = load_robust_model(out)
    assert model.config == RobustConfig("SBMV", 0.1, 0.5, 1e-2, 9)
    assert (found["kind"], found["formulation"], found["eps"], found["cost"]) == ("robust fit", "SBMV", 0.1, 0.5)
    (plane,) = found["planes"]
    assert (plane["class"], plane["against"], plane["objective"]) == ("yes", "no", model.objective[0])
    assert plane["history"][-1] == model.objective[0]
    assert found["notes"] == []
    assert not found["converged"] or found["gap"] <= 1e-2


def test_fit__says_where_planes_are_of_no_use(call: Call, measured: Measured, tmp_path: Path) -> None:
    out = tmp_path / "m.zarr"
    kept = ["iron.low", "iron.high", "zinc.low", "zinc.high"]
    table = pd.read_csv(measured.csv)[[*kept, "sick"]]
    table[kept] += [-50, 50, -50, 50]
    table.to_csv(tmp_path / "wide.csv", index=False)
    call("ingest", tmp_path / "wide.csv", "--target", "sick", "--out", tmp_path / "wide.zarr")
    done = call("robust", "fit", tmp_path / "wide.zarr", "--out", out, "--formulation", "S", *FAST)
    assert done.exit_code == 0, done.output
    assert "The plane has no weights" in done.stdout
    assert "Try a larger --eps or --cost" in done.stdout


def test_fit__that_was_asked_for_little_blames_nothing_else(call: Call, measured: Measured, tmp_path: Path) -> None:
    done = call("robust", "fit", measured.data, "--out", tmp_path / "m.zarr", "--gap", 1)
    assert done.exit_code == 0, done.output
    assert "good enough for a gap of 1. Give a smaller --gap." in done.stdout
    assert "any margin would cost more" not in done.stdout


def test_fit__that_stops_early_says_so_and_blames_nothing_else(call: Call, measured: Measured, tmp_path: Path) -> None:
    out = tmp_path / "m.zarr"
    done = call("robust", "fit", measured.data, "--out", out, "--max-passes", 1, *FAST)
    assert done.exit_code == 0, done.output
    assert "Raise --max-passes or --gap" in done.stderr
    assert "Note" not in done.stdout
    assert "; 0.01 was asked for" in call("info", out).stdout


def test_fit__says_where_a_class_weighs_nothing(call: Call, measured: Measured, tmp_path: Path) -> None:
    table = pd.read_csv(measured.csv)
    table["weight"] = np.where(table["sick"] == "yes", 0.0, 1.0)
    table.to_csv(tmp_path / "t.csv", index=False)
    call("ingest", tmp_path / "t.csv", "--target", "sick", "--weight", "weight", "--out", tmp_path / "t.zarr")
    done = call("robust", "fit", tmp_path / "t.zarr", "--out", tmp_path / "m.zarr", *FAST)
    assert done.exit_code == 0, done.output
    assert "all rows on one side of it weigh nothing. Train with --unweighted" in done.stdout
    assert "--eps" not in done.stdout


def test_fit__of_categories_that_are_called_like_bounds(call: Call, measured: Measured, tmp_path: Path) -> None:
    table = pd.read_csv(measured.csv).drop(columns=["weight"])
    table["site"] = np.array(["x.low", "x.high", "y.mean"])[np.arange(len(table)) % 3]
    table.to_csv(tmp_path / "t.csv", index=False)
    call("ingest", tmp_path / "t.csv", "--target", "sick", "--categorical", "site", "--out", tmp_path / "t.zarr")
    done = call("robust", "fit", tmp_path / "t.zarr", "--out", tmp_path / "m.zarr", *FAST)
    assert done.exit_code == 0, done.output
    measures = [call("robust", "evaluate", tmp_path / "m.zarr", tmp_path / name) for name in ("t.csv", "t.zarr")]
    assert measures[0].exit_code == 0, measures[0].output
    assert measures[0].stdout.replace("t.csv", "t.zarr") == measures[1].stdout


def test_fit__says_where_no_column_has_bounds(call: Call, example: Any, tmp_path: Path) -> None:
    done = call("robust", "fit", example.data, "--out", tmp_path / "m.zarr", *FAST)
    assert done.exit_code == 0, done.output
    assert "those of x are called x.low and x.high" in done.stdout
    assert "nothing is told apart" not in done.stdout


def test_fit__of_three_classes_has_a_plane_each(call: Call, measured: Measured, tmp_path: Path) -> None:
    table = pd.read_csv(measured.csv).drop(columns=["weight"])
    table.loc[table["age"] > 0.5, "sick"] = "perhaps"
    table.to_csv(tmp_path / "three.csv", index=False)
    call("ingest", tmp_path / "three.csv", "--target", "sick", "--out", tmp_path / "three.zarr")
    out, place = tmp_path / "m.zarr", tmp_path / "p.parquet"
    done = call("robust", "fit", tmp_path / "three.zarr", "--out", out, "--formulation", "SBM", *FAST)
    assert "has 3 planes in 3 features" in done.stdout
    assert "plane 3 of 3  pass 1  objective" in done.stderr
    shown = call("info", out).stdout
    assert [f"{label} against the rest" in shown for label in ("no", "perhaps", "yes")] == [True] * 3
    done = call("robust", "predict", out, tmp_path / "three.csv", "--out", place)
    assert done.exit_code == 0, done.output
    names = set(pyarrow.parquet.read_table(place).column_names)
    assert names == {"row", "predicted", "certified_eps", "decision_no", "decision_perhaps", "decision_yes"}


@pytest.mark.parametrize("formulation", [None, "MC"])
def test_predict__is_the_same_for_datasets_and_tables(
    call: Call, measured: Measured, tmp_path: Path, formulation: str | None
) -> None:
    model = load_robust_model(measured.model)
    options = () if formulation is None else ("--formulation", formulation)
    places = {}
    for name in ("data", "csv", "parquet") if formulation is None else ("csv",):
        places[name] = tmp_path / f"{name}.zarr"
        done = call("robust", "predict", measured.model, getattr(measured, name), "--out", places[name], *options)
        assert done.exit_code == 0, done.output
        assert f"have 150 rows, certified by {formulation or 'SBMV-I'}." in done.stdout
    for place in places.values():
        stored = zarr.open_group(place, mode="r")
        np.testing.assert_array_equal(np.asarray(stored["predicted"]), model.predict(measured.rows))
        np.testing.assert_allclose(
            np.asarray(stored["certified_eps"]), model.certified_eps(measured.rows, formulation), atol=1e-12
        )
        found = json_of("info", place)
        assert (found["kind"], found["rows"], found["classes"]) == ("robust predictions", 150, ["no", "yes"])
        assert found["model"] == fingerprint_of(measured.model)
        assert call("info", place).stdout.startswith("robust predictions  ")


def test_predict__as_parquet_is_a_table(call: Call, measured: Measured, tmp_path: Path) -> None:
    place = tmp_path / "p.parquet"
    table = pd.read_csv(measured.csv).drop(columns=["sick"]).assign(extra=1)
    table.to_csv(tmp_path / "new.csv", index=False)
    arguments: tuple[object, ...] = ("robust", "predict", measured.model, tmp_path / "new.csv", "--out", place)
    done = call(*arguments)
    assert done.exit_code == 0, done.output
    assert "left out: 'extra'" in done.stderr
    arguments = (*arguments, "--overwrite")
    found = json_of(*arguments, "--drop", "extra")
    assert found == {
        "kind": "robust predictions",
        "path": str(place),
        "rows": 150,
        "formulation": "SBMV-I",
    }
    stored = pyarrow.parquet.read_table(place).to_pandas()
    labels = np.array(["no", "yes"])[load_robust_model(measured.model).predict(measured.rows)]
    assert stored["predicted"].tolist() == labels.tolist()
    assert call(*arguments[:-1], "--drop", "extra").exit_code == 1
    assert call(*arguments, "--drop", "extra").exit_code == 0


def test_evaluate__knows_the_tables_of_a_classifier_in_memory(call: Call, measured: Measured, tmp_path: Path) -> None:
    table = pd.read_csv(measured.csv).drop(columns=["weight"])
    classifier = RobustClassifier("SBM").fit(table.drop(columns=["sick"]), table["sick"])
    classifier.model_.save(tmp_path / "m.zarr")
    table.to_csv(tmp_path / "t.csv", index=False)
    done = call("robust", "evaluate", tmp_path / "m.zarr", tmp_path / "t.csv", "--target", "sick", "--json")
    expected = classifier.certified_error(table.drop(columns=["sick"]), table["sick"])
    assert json.loads(done.stdout)["expected_certified_error"] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
def test_evaluate__gives_the_measures_of_the_rows(
    call: Call, measured: Measured, tmp_path: Path, weighted: bool
) -> None:
    model = load_robust_model(measured.model)
    weight = np.ones(150) + (np.arange(150) % 3 if weighted else 0)
    sums = certified_sums(right(model, measured), model.certified_eps(measured.rows), 0.2, weight)
    out = tmp_path / "scores.json"
    options = ("--weight", "weight") if weighted else ()
    done = call("robust", "evaluate", measured.model, measured.csv, "--out", out, *options)
    assert done.exit_code == 0, done.output
    found = json.loads(out.read_text())
    for name in ("nominal_error", "expected_certified_error", "certified_fraction"):
        assert found[name] == pytest.approx(getattr(sums, name), abs=1e-9)
    assert (found["rows"], found["weight"], found["eps"]) == (150, weight.sum(), 0.2)
    assert 0 < found["nominal_error"] < found["expected_certified_error"] < 0.5
    assert f"nominal error             {sums.nominal_error:.6f}" in done.stdout
    assert f"certified fraction        {sums.certified_fraction:.6f} at eps 0.2" in done.stdout
    assert "The measures are in" in done.stdout
    if not weighted:
        of_data = json_of("robust", "evaluate", measured.model, measured.data)
        assert of_data["expected_certified_error"] == pytest.approx(sums.expected_certified_error, abs=1e-9)


def test_evaluate__at_another_eps_and_by_another_formulation(call: Call, measured: Measured) -> None:
    model = load_robust_model(measured.model)
    arguments = ("robust", "evaluate", measured.model, measured.data, "--json", "--eps", 0.01, "--formulation", "S")
    found = json.loads(call(*arguments).stdout)
    sums = certified_sums(right(model, measured), model.certified_eps(measured.rows, "S"), 0.01)
    assert (found["eps"], found["formulation"]) == (0.01, "S")
    assert found["certified_fraction"] == pytest.approx(sums.certified_fraction)


def test_evaluate__of_a_table_without_the_classes_names_the_option(
    call: Call, measured: Measured, tmp_path: Path
) -> None:
    pd.read_csv(measured.csv).rename(columns={"sick": "ill"}).to_csv(tmp_path / "t.csv", index=False)
    done = call("robust", "evaluate", measured.model, tmp_path / "t.csv", "--drop", "ill")
    check_failed(done, 1, "column-missing", tmp_path / "t.csv", "'sick'", "--target")
    assert "`protodask robust predict`" in done.stderr
    assert call("robust", "evaluate", measured.model, tmp_path / "t.csv", "--target", "ill").exit_code == 0


def test_predict__of_missing_bounds_proposes_nothing_that_was_done(
    call: Call, measured: Measured, tmp_path: Path
) -> None:
    table = pd.read_csv(measured.csv)
    table.loc[3, "iron.low"] = np.nan
    table.to_csv(tmp_path / "t.csv", index=False)
    done = call("robust", "predict", measured.model, tmp_path / "t.csv", "--out", tmp_path / "p", "--unseen", "zero")
    check_failed(done, 1, "bad-value", "iron.low", "row 3")
    assert "--unseen" not in done.stderr


@pytest.mark.parametrize(("weight", "code"), [(0.0, "no-rows"), (1.7e308, "overflow")])
def test_evaluate__of_weights_that_no_mean_can_be_of(
    call: Call, measured: Measured, tmp_path: Path, weight: float, code: Code
) -> None:
    pd.read_csv(measured.csv).assign(weight=weight).to_csv(tmp_path / "t.csv", index=False)
    done = call("robust", "evaluate", measured.model, tmp_path / "t.csv", "--weight", "weight")
    check_failed(done, 1, code, "weights")


def test_info__of_a_model_lists_its_features_by_weight(call: Call, measured: Measured) -> None:
    model = load_robust_model(measured.model)
    found = json_of("info", measured.model)
    assert (found["kind"], found["formulation"], found["eps"], found["cost"]) == ("robust model", "SBMV-I", 0.2, 1.0)
    (plane,) = found["planes"]
    order = np.argsort(-np.abs(model.weights[0]))
    assert [one["name"] for one in plane["weights"]] == [model.features[place] for place in order]
    assert [one["weight"] for one in plane["weights"]] == model.weights[0, order].tolist()
    assert found["provenance"]["rows"] == 150
    shown = call("info", measured.model).stdout
    assert shown.startswith("robust model  ")
    assert "SBMV-I: support, bounds of means and second moments" in shown
    assert f"yes against no where w.x > {model.intercept[0]:.6g}: " in shown
    assert "features      3, of which 1 known exactly" in shown
    assert shown.splitlines()[-3].split() == [model.features[order[0]], f"{model.weights[0, order[0]]:.4g}"]


def test_the_other_kind_of_model__is_named(call: Call, measured: Measured, example: Any, tmp_path: Path) -> None:
    for command in (("predict", measured.model, measured.csv, "--out", tmp_path / "p"), ("evaluate", measured.model)):
        done = call(*command, *((measured.csv,) if command[0] == "evaluate" else ()))
        check_failed(done, 1, "wrong-kind", measured.model, "robust model", "`protodask robust predict`")
    done = call("robust", "predict", example.model, measured.csv, "--out", tmp_path / "p")
    check_failed(done, 1, "wrong-kind", example.model, "prototype set classifier", "`protodask predict`")


def test_fit__that_was_interrupted_goes_on_and_says_how_far_it_is(
    call: Call, measured: Measured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "m.zarr"
    command = ("robust", "fit", measured.data, "--out", out, "--formulation", "SBMV-I", "--eps", 0.2, *FAST)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(RobustModel, "save", killed)
        assert call(*command).exit_code == 130
    run = tmp_path / "m.zarr.run"
    finished = call("info", run).stdout
    assert "finished" in finished
    assert "converged" in finished
    (run / "history.json").unlink()
    (log,) = run.glob("batch-1-*.log")
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])
    found = json_of("info", run)
    assert (found["kind"], found["finished"], found["config"]["formulation"]) == ("robust run", False, "SBMV-I")
    (plane,) = found["passes"]
    assert 0 < plane["passes"] < load_robust_model(measured.model).passes[0]
    shown = call("info", run).stdout
    assert "not finished: the same command continues it" in shown
    assert shown.splitlines()[-1].split() == ["1", str(plane["passes"])]
    other = call(*command, "--cost", 2)
    check_failed(other, 1, "other-run", run, "config.C was 1.0 and is 2.0")
    assert call(*command).exit_code == 0
    assert load_robust_model(out).weights.tobytes() == load_robust_model(measured.model).weights.tobytes()
    assert sorted(os.listdir(tmp_path)) == ["m.zarr"]


def test_info__of_the_run_of_a_classifier_says_that_it_ended(call: Call, measured: Measured, tmp_path: Path) -> None:
    RobustClassifier("SBM", gap=1e-2, solver="bundle", run_dir=tmp_path).fit(measured.rows, measured.sick)
    found = json_of("info", tmp_path)
    assert found["finished"]
    assert found["planes"][0]["status"] == "converged"
    assert "dataset" not in call("info", tmp_path).stdout


def test_fit__that_was_killed_after_writing_ends_when_repeated(call: Call, measured: Measured, tmp_path: Path) -> None:
    out, run = tmp_path / "m.zarr", tmp_path / "run"
    command = ("robust", "fit", measured.data, "--out", out, "--run-dir", run, *FAST)
    assert call(*command).exit_code == 0
    assert call(*command).exit_code == 0
    shutil.rmtree(run)
    taken = call(*command)
    check_failed(taken, 1, "exists", out)


def test_fit__to_a_smaller_gap_asks_for_the_place_before_it_begins(
    call: Call, measured: Measured, tmp_path: Path
) -> None:
    out, run = tmp_path / "m.zarr", tmp_path / "run"
    command = ("robust", "fit", measured.data, "--out", out, "--run-dir", run, "--threads", 1)
    assert call(*command, "--gap", 1e-1).exit_code == 0
    (log,) = run.glob("batch-1-*.log")
    size = log.stat().st_size
    refused = call(*command, "--gap", 1e-6)
    check_failed(refused, 1, "exists", out)
    assert log.stat().st_size == size
    assert call(*command, "--gap", 1e-6, "--overwrite").exit_code == 0
    assert log.stat().st_size > size
    assert load_robust_model(out).gap[0] <= 1e-6


def test_fit__keeps_its_terms_for_further_fits(call: Call, measured: Measured, tmp_path: Path) -> None:
    terms = tmp_path / "terms.zarr"
    arguments = ("robust", "fit", measured.data, "--terms", terms, *FAST)
    assert call(*arguments, "--out", tmp_path / "1").exit_code == 0
    before = (terms / "zarr.json").stat().st_mtime_ns
    assert call(*arguments, "--out", tmp_path / "2", "--eps", 0.3).exit_code == 0
    assert (terms / "zarr.json").stat().st_mtime_ns == before
    found = json_of("info", terms)
    data = Dataset.open(measured.data)
    assert (found["kind"], found["rows"], found["formulation"]) == ("terms of robust fits", data.n_rows, "SBMV")
    assert found["data"] == data.key
    assert found["features"] == len(measured.rows.mean_low[0])
    assert "formulation" in call("info", terms).stdout
    _forget_rows(terms)
    older = json_of("info", terms)
    assert older == {name: value for name, value in found.items() if name != "rows"}
    refused = call(*arguments, "--out", tmp_path / "3", "--formulation", "SBM")
    check_failed(refused, 1, "other-run", terms, "formulation")


def _forget_rows(terms: Path) -> None:
    """As terms were stored at first."""
    group = zarr.open_group(terms, mode="r+")
    record = {name: value for name, value in group.attrs.asdict().items() if name not in ("rows", CHECKSUM)}
    group.attrs.clear()
    group.attrs.update(seal(record, "terms"))


@pytest.mark.parametrize(
    ("options", "code", "facts"),
    [
        (("--eps", 1.5), "bad-setting", ["eps", "1.5"]),
        (("--cost", 0), "bad-setting", ["--cost", "0.0"]),
        (("--gap", -1), "bad-setting", ["gap", "-1.0"]),
        (("--max-passes", 0), "bad-setting", ["--max-passes", "0"]),
        (("--out", "s3://bucket/m.zarr"), "not-local", ["s3://bucket/m.zarr", "--run-dir"]),
        (("--run-dir", "{out}"), "places-overlap", ["run directory {out}"]),
        (("--terms", "{out}"), "places-overlap", ["terms", "{out}"]),
        (("--terms", "{out}/terms"), "places-overlap", ["terms {out}/terms"]),
        (("--terms", "{out}.run"), "places-overlap", ["run directory {out}.run"]),
    ],
)
def test_fit__of_settings_that_cannot_work_is_wrong_use(
    call: Call, measured: Measured, tmp_path: Path, options: tuple[object, ...], code: Code, facts: list[str]
) -> None:
    out = tmp_path / "m.zarr"
    done = call("robust", "fit", measured.data, "--out", out, *(str(option).format(out=out) for option in options))
    check_failed(done, 2, code, *(fact.format(out=out) for fact in facts))
    assert os.listdir(tmp_path) == []


def test_fit__of_no_such_formulation_names_those_there_are(call: Call, measured: Measured, tmp_path: Path) -> None:
    done = call("robust", "fit", measured.data, "--out", tmp_path / "m.zarr", "--formulation", "SBVM")
    assert done.exit_code == 2
    assert "SBMV-I" in done.stderr
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("command", [("evaluate",), ("predict", "--out", "p.zarr")])
def test_certificates__by_what_knows_no_spread_are_wrong_use(
    call: Call, measured: Measured, command: tuple[str, ...]
) -> None:
    done = call("robust", command[0], measured.model, measured.data, *command[1:], "--formulation", "M")
    check_failed(done, 2, "unsupported", "M", "SBMV-I")


def test_evaluate__at_an_eps_that_is_none_is_wrong_use(call: Call, measured: Measured) -> None:
    done = call("robust", "evaluate", measured.model, measured.data, "--eps", 0)
    check_failed(done, 2, "bad-setting", "eps", 0.0)


def test_fit__names_the_row_of_a_contradiction(call: Call, measured: Measured, tmp_path: Path) -> None:
    table = pd.read_csv(measured.csv).drop(columns=["weight"])
    table.loc[77, "zinc.low"] = 99.0
    table.to_csv(tmp_path / "t.csv", index=False)
    call("ingest", tmp_path / "t.csv", "--target", "sick", "--out", tmp_path / "t.zarr")
    done = call("robust", "fit", tmp_path / "t.zarr", "--out", tmp_path / "m.zarr", *FAST)
    check_failed(done, 1, "bad-value", "sample 77", "zinc", "lower", "upper")
    assert sorted(os.listdir(tmp_path)) == ["t.csv", "t.zarr"]


def test_fit__of_exact_means_that_are_bounds_says_what_to_choose(
    call: Call, measured: Measured, tmp_path: Path
) -> None:
    done = call("robust", "fit", measured.data, "--out", tmp_path / "m.zarr", "--formulation", "SMV", *FAST)
    check_failed(done, 1, "unsupported", "SMV", "SBMV")


def test_fit__without_the_library_names_the_extra(
    call: Call, measured: Measured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "clarabel", None)
    done = call("robust", "fit", measured.data, "--out", tmp_path / "m.zarr")
    check_failed(done, 1, "package-missing", "Clarabel", "protodask[robust]")
    assert os.listdir(tmp_path) == []


def test_run__has_the_steps(call: Call, measured: Measured, tmp_path: Path) -> None:
    model, out = str(tmp_path / "m.zarr"), str(tmp_path / "p.zarr")
    steps: list[dict[str, dict[str, object]]] = [
        {"robust-fit": {"data": str(measured.data), "out": model, "formulation": "SBM-I", "gap": 0.01}},
        {"robust-predict": {"model": model, "data": str(measured.csv), "out": out}},
        {"robust-evaluate": {"model": model, "data": str(measured.data), "eps": 0.3}},
    ]
    (tmp_path / "pipeline.yaml").write_text(json.dumps({"steps": steps}))
    done = call("run", tmp_path / "pipeline.yaml", "--threads", 1)
    assert done.exit_code == 0, done.output
    assert f"step 3 of 3: robust-evaluate, {model} on {measured.data}" in done.stderr
    assert "150 rows, certified by SBM-I." in done.stdout
    assert "The robust model is right on" in done.stdout.splitlines()[-1]
    steps[0]["robust-fit"]["eps"] = 7
    (tmp_path / "pipeline.yaml").write_text(json.dumps({"steps": steps}))
    wrong = call("run", tmp_path / "pipeline.yaml")
    check_failed(wrong, 2, "bad-setting", "step 1 (robust-fit)", "eps", 7.0)


def test_formulations__are_those_that_there_are() -> None:
    assert get_args(Formulation) == FORMULATIONS
    assert {name.removesuffix("-I") for name in FORMULATIONS} == set(KNOWS)


def test_fit__has_the_defaults_of_python() -> None:
    step, config = RobustFitStep("data", "out"), RobustConfig()
    assert step.chosen_config() == config
    command: Any = typer.main.get_command(app)
    options = {option.name: option for option in command.commands["robust"].commands["fit"].params}
    for name in ("formulation", "eps", "cost", "gap", "max_passes", "weighted"):
        assert options[name].default == getattr(step, name)


def test_progress__tells_of_passes_and_planes(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = LogReporter(clock=lambda: 0.0)
    reporter.hear(RobustStarted())
    for plane, number in ((1, 1), (1, 2), (2, 1)):
        reporter.hear(PlanePass(plane, 2, Pass(number, 3.0, 2.0, 1.5, 0.25)))
    lines = [line[21:] for line in capsys.readouterr().err.splitlines()]
    assert [line.rsplit("  ", 1)[0] for line in lines] == [
        "plane 1 of 2  pass 1  objective 2  gap 0.25",
        "plane 2 of 2  pass 1  objective 2  gap 0.25",
    ]
    tally = RobustTally(clock=iter([0.0, 7.0, 7.0]).__next__)
    tally.hear(PlanePass(1, 1, Pass(4, 3.0, 2.0, 1.5, 0.25)))
    assert tally.describe() == "pass 4  objective 2  gap 0.25  7.0 s"
