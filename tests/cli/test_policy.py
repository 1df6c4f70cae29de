"""`protodask policy`, and `evaluate --policy`, which it once was."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.commands import check_failed, json_of

from protodask.data import Dataset
from protodask.errors import Code
from protodask.evaluation import policy_value
from protodask.prototypes import load_model

Call = Callable[..., Any]

ROLES = ("--reward", "click", "--propensity", "p")


@dataclass(frozen=True)
class Logged:
    """A model, and a log of actions, some of which it does not know, with columns that are nothing to it."""

    model: Path
    frame: pd.DataFrame
    folder: Path

    def file(self, name: str, frame: pd.DataFrame | None = None) -> Path:
        path = self.folder / name
        log = self.frame if frame is None else frame
        if path.suffix == ".parquet":
            log.to_parquet(path)
        else:
            log.to_csv(path, index=False)
        return path

    def policy(self, batches: int = 1) -> Any:
        """What the model does, straight from its scores."""
        model = load_model(self.model)
        names = [column.name for column in model.columns]
        (scores,) = model.scores(self.frame[names].to_numpy(np.float32), [batches])
        return np.array(model.classes, dtype=object)[scores.argmax(axis=1)]

    def expected(self, frame: pd.DataFrame, match: Any, **settings: Any) -> dict[str, float]:
        interval = policy_value(match, frame.click.to_numpy(), frame.p.to_numpy(), **settings)
        return {"value": interval.value, "low": interval.low, "high": interval.high}


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory, call: Call) -> Logged:
    folder = tmp_path_factory.mktemp("logged")
    random = np.random.default_rng(0)
    age, size = random.uniform(0, 10, 600), random.normal(size=600)
    best = np.where(age > 5, "b", "a")
    pd.DataFrame({"age": age, "size": size, "did": best}).to_csv(folder / "training.csv", index=False)
    taken = random.choice(["a", "b", "c"], 600, p=[0.5, 0.3, 0.2])
    reward = (random.random(600) < np.where(taken == best, 0.4, 0.1)) * random.uniform(1, 2, 600)
    frame = pd.DataFrame(
        {
            "user": [f"u{number}" for number in range(600)],
            "click": reward,
            "p": pd.Series(taken).map({"a": 0.5, "b": 0.3, "c": 0.2}),
            "size": size,
            "did": taken,
            "age": age,
            "same": (taken == best).astype(int),
            "kept": np.where(reward > 0, 1.0, 0.25),
        }
    )
    assert call("ingest", folder / "training.csv", "--target", "did", "--out", folder / "training.zarr").exit_code == 0
    fitted = call(
        "fit", folder / "training.zarr", "--out", folder / "model.zarr", "--recipe", "source", "--candidates", 30
    )
    assert fitted.exit_code == 0, fitted.output
    return Logged(folder / "model.zarr", frame, folder)


def _agrees(found: dict[str, Any], wanted: dict[str, float]) -> None:
    assert {name: found[name] for name in wanted} == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("name", ["log.parquet", "log.csv"])
@pytest.mark.parametrize("estimator", ["ips", "snips"])
def test_policy__of_a_model_on_a_table(name: str, estimator: str, logged: Logged) -> None:
    found = json_of("policy", logged.model, logged.file(name), *ROLES, "--estimator", estimator)
    match = logged.policy() == logged.frame.did.to_numpy()
    _agrees(found, logged.expected(logged.frame, match, estimator=estimator))
    assert found["rows"] == found["records"] == 600
    assert found["matched"] == match.sum() > 100
    assert (found["kind"], found["estimator"], found["confidence"]) == ("policy value", estimator, 0.95)


def test_policy__of_fewer_batches(logged: Logged) -> None:
    found = json_of("policy", logged.model, logged.file("log.parquet"), *ROLES, "--batches", 0)
    _agrees(found, logged.expected(logged.frame, logged.policy(0) == logged.frame.did.to_numpy()))


def test_policy__of_a_calibrated_model(call: Call, logged: Logged, tmp_path: Path) -> None:
    # Those that came to be "a" are more than the model was trained on, so that calibrated it says "a" more often.
    came = logged.frame.assign(did=np.where((logged.frame.age > 5) & (logged.frame.index % 4 == 0), "b", "a"))
    table, model, out = (
        logged.file("came.csv", came[["age", "size", "did"]]),
        tmp_path / "m.zarr",
        tmp_path / "p.parquet",
    )
    for arguments in (
        ("calibrate", logged.model, table, "--out", model),
        ("predict", model, table, "--out", out, "--calibrated"),
    ):
        done = call(*arguments)
        assert done.exit_code == 0, done.output
    predicted = pd.read_parquet(out).predicted.to_numpy()
    assert (predicted != logged.policy()).any()
    found = json_of("policy", model, logged.file("log.parquet"), *ROLES, "--calibrated")
    _agrees(found, logged.expected(logged.frame, predicted == logged.frame.did.to_numpy()))
    plain = call("policy", logged.model, logged.file("log.parquet"), *ROLES, "--calibrated")
    check_failed(plain, 1, "not-fitted", "`protodask calibrate`")


def test_policy__action_in_another_column(call: Call, logged: Logged) -> None:
    renamed = logged.file("renamed.parquet", logged.frame.rename(columns={"did": "action"}))
    done = call("policy", logged.model, renamed, *ROLES)
    check_failed(done, 1, "column-missing", renamed, "--action")
    found = json_of("policy", logged.model, renamed, *ROLES, "--action", "action")
    _agrees(found, logged.expected(logged.frame, logged.policy() == logged.frame.did.to_numpy()))


def test_policy__of_a_log_that_says_what_it_does(logged: Logged) -> None:
    found = json_of("policy", logged.file("log.parquet"), *ROLES, "--match", "same")
    _agrees(found, logged.expected(logged.frame, logged.frame.same.to_numpy()))
    assert found["model"] is None


@pytest.mark.parametrize("kind", ["table", "dataset", "model"])
def test_policy__doubly_robust(kind: str, call: Call, logged: Logged, tmp_path: Path) -> None:
    expected = np.round(np.random.default_rng(2).random(600), 3)
    frame = logged.frame.assign(hoped=expected)
    place = logged.file("hoped.parquet", frame)
    if kind == "dataset":
        made = call("ingest", place, "--target", "did", "--drop", "user", "--dtype", "float64", "--out", tmp_path / "d")
        assert made.exit_code == 0, made.output
        place = tmp_path / "d"
    who = [logged.model, place] if kind == "model" else [place, "--match", "same"]
    found = json_of("policy", *who, *ROLES, "--estimator", "dr", "--expected", "hoped")
    match = logged.policy() == frame.did.to_numpy() if kind == "model" else frame.same.to_numpy()
    _agrees(found, logged.expected(frame, match, estimator="dr", expected=expected))
    check_failed(call("policy", *who, *ROLES, "--estimator", "dr"), 2, "settings-conflict", "expected")
    check_failed(call("policy", *who, *ROLES, "--expected", "hoped"), 2, "settings-conflict", "expected")
    wrong = call("policy", *who, *ROLES, "--estimator", "dr", "--expected", "hope")
    check_failed(wrong, 1, "column-missing", "'hope'", "--expected")


def test_policy__on_a_subsampled_log(logged: Logged) -> None:
    random = np.random.default_rng(1)
    kept = random.random(600) < logged.frame.kept
    left = logged.frame[kept]
    match = logged.policy()[kept] == left.did.to_numpy()
    table = logged.file("left.parquet", left)
    found = json_of("policy", logged.model, table, *ROLES, "--inclusion", "kept", "--confidence", 0.8)
    _agrees(found, logged.expected(left, match, inclusion=left.kept.to_numpy(), confidence=0.8))
    assert found["records"] == pytest.approx((1 / left.kept).sum())
    dropped = 600 - len(left)
    counted = json_of("policy", logged.model, table, *ROLES, "--inclusion", "kept", "--dropped-zeros", dropped)
    whole = json_of("policy", logged.model, logged.file("log.parquet"), *ROLES)
    assert counted["value"] == whole["value"]
    assert (counted["low"], counted["high"]) == pytest.approx((whole["low"], whole["high"]), rel=1e-12)
    assert (counted["rows"], counted["records"]) == (len(left), 600)


def test_policy__on_a_dataset(call: Call, logged: Logged) -> None:
    table = logged.file("log.parquet")
    data = logged.folder / "log.zarr"
    done = call(
        "ingest", table, "--target", "did", "--out", data, "--inclusion", "kept", "--drop", "user", "--dtype", "float64"
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert Dataset.open(data).feature_names == ("click", "p", "size", "age", "same")
    found = json_of("policy", logged.model, data, *ROLES)
    wanted = json_of("policy", logged.model, table, *ROLES, "--inclusion", "kept")
    del found["data"], wanted["data"]
    assert found == wanted
    alone = json_of("policy", data, *ROLES, "--match", "same")
    said = json_of("policy", table, *ROLES, "--match", "same", "--inclusion", "kept")
    assert alone == said | {"data": alone["data"]}
    for wrong in (("--inclusion", "kept"), ("--action", "user")):
        refused = call("policy", logged.model, data, *ROLES, *wrong)
        check_failed(refused, 1, "settings-conflict", data, "--action and --inclusion")
    refused = call("policy", logged.model, data, "--reward", "kept")
    check_failed(refused, 1, "column-missing", data, "'kept'", "--reward")


def test_policy__on_a_dataset_that_does_not_suit(call: Call, logged: Logged) -> None:
    def made(name: str, frame: pd.DataFrame, *more: str) -> Path:
        data = logged.folder / f"{name}.zarr"
        table = logged.file(f"{name}.parquet", frame.drop(columns=["user", "kept"]))
        done = call("ingest", table, "--target", "did", "--out", data, *more)
        assert done.exit_code == 0, done.output
        return data

    others = logged.frame.assign(did=np.where(logged.frame.did == "a", "d", "e"))
    refusals: tuple[tuple[Path, Code, str], ...] = (
        (made("weighted", logged.frame, "--weight", "same"), "unsupported", "--weight"),
        (made("narrow", logged.frame.drop(columns="age")), "columns-differ", "lacks age"),
        (made("others", others), "columns-differ", "'a', 'b'"),
    )
    for data, code, fact in refusals:
        done = call("policy", logged.model, data, *ROLES)
        check_failed(done, 1, code, fact)


def test_policy__in_words(call: Call, logged: Logged) -> None:
    table = logged.file("log.parquet")
    found = json_of("policy", logged.model, table, *ROLES)
    done = call("policy", logged.model, table, *ROLES)
    assert f"would earn {found['value']:.4g} a record" in done.stdout
    assert f"with 95 per cent confidence, between {found['low']:.4g} and {found['high']:.4g}." in done.stdout
    strange = logged.file("strange.parquet", logged.frame.assign(did="z"))
    assert "the log says nothing of its value" in call("policy", logged.model, strange, *ROLES).stdout
    one = logged.file("one.parquet", logged.frame.assign(click=1.0, same=1).iloc[:1])
    assert "Too few rows count" in call("policy", one, *ROLES, "--match", "same").stdout
    assert json_of("policy", one, *ROLES, "--match", "same")["high"] is None


def test_policy__writes_the_value(call: Call, logged: Logged, tmp_path: Path) -> None:
    table, out = logged.file("log.parquet"), tmp_path / "value.json"
    printed = json_of("policy", logged.model, table, *ROLES, "--out", out)
    assert json.loads(out.read_text()) == printed
    again = call("policy", logged.model, table, *ROLES, "--out", out)
    check_failed(again, 1, "exists", out, "--overwrite")
    assert call("policy", logged.model, table, *ROLES, "--out", out, "--overwrite").exit_code == 0


@pytest.mark.parametrize(
    ("change", "code", "facts"),
    [
        (lambda frame: frame.drop(columns="click"), "column-missing", ["'click'", "reward"]),
        (lambda frame: frame.drop(columns="p"), "column-missing", ["'p'", "propensity"]),
        (lambda frame: frame.drop(columns="age"), "columns-differ", ["lacks 'age'"]),
        (lambda frame: frame.assign(p=0.0), "bad-value", ["propensity of row 0", "0.0"]),
        (lambda frame: frame.assign(p=[np.nan, *frame.p[1:]]), "bad-value", ["'p'", "row 0"]),
        (
            lambda frame: frame.assign(click="yes"),
            "bad-value",
            ["'click'", "'yes'", "row 0"],
        ),
        (lambda frame: frame.assign(did=[None, *frame.did[1:]]), "bad-value", ["'did'", "row 0"]),
        (lambda frame: frame.assign(kept=2.0), "bad-value", ["inclusion", "2.0", "row 0"]),
        (lambda frame: frame.iloc[:0], "no-rows", []),
    ],
)
def test_policy__tables_that_cannot_be_used(
    change: Any, code: Code, facts: list[str], call: Call, logged: Logged
) -> None:
    table = logged.file("broken.parquet", change(logged.frame))
    done = call("policy", logged.model, table, *ROLES, "--inclusion", "kept")
    check_failed(done, 1, code, *facts)


@pytest.mark.parametrize(
    ("arguments", "exit_code", "code", "facts"),
    [
        (("--match", "same"), 2, "settings-conflict", ["match and model"]),
        (("--estimator", "snips", "--dropped-zeros", 1), 2, "settings-conflict", ["ips"]),
        (("--dropped-zeros", -1), 2, "bad-setting", ["dropped", "-1"]),
        (("--confidence", 1), 2, "bad-setting", ["confidence", "1.0"]),
        (("--reward", "p", "--propensity", "p"), 1, "named-twice", ["reward, propensity, action"]),
        (("--reward", "age", "--propensity", "p"), 1, "settings-conflict", ["reward 'age'"]),
    ],
)
def test_policy__options_that_do_not_go_together(
    arguments: tuple[object, ...], exit_code: int, code: Code, facts: list[str], call: Call, logged: Logged
) -> None:
    done = call("policy", logged.model, logged.file("log.parquet"), *arguments)
    check_failed(done, exit_code, code, *facts)


def test_policy__of_no_such_estimator(call: Call, logged: Logged) -> None:
    done = call("policy", logged.model, logged.file("log.parquet"), "--estimator", "dm")
    assert done.exit_code == 2
    assert all(name in done.stderr for name in ("'dm'", "--estimator"))


def test_policy__no_model(call: Call, logged: Logged) -> None:
    check_failed(call("policy", logged.file("log.parquet")), 2, "setting-missing", "policy", "model", "match")


@pytest.mark.parametrize("option", ["--reward", "--match", "--dropped-zeros", "--estimator"])
def test_evaluate__knows_nothing_of_logs(option: str, call: Call, logged: Logged) -> None:
    done = call("evaluate", logged.model, logged.file("log.parquet"), option, "1")
    assert done.exit_code == 2
    assert option in done.stderr


@pytest.mark.parametrize("words", [("--policy", "log", "--match", "same"), ("log", "--match", "same", "--policy")])
def test_evaluate__of_a_policy_goes_on_working_with_a_note(words: tuple[str, ...], call: Call, logged: Logged) -> None:
    log = logged.file("log.parquet")
    arguments = [log if word == "log" else word for word in words]
    done = call("evaluate", *arguments, *ROLES, "--json")
    assert done.exit_code == 0, done.output
    assert "`protodask policy`" in done.stderr
    assert json.loads(done.stdout) == json_of("policy", log, *ROLES, "--match", "same")


def test_policy__takes_what_is_missing_where_it_is_told_to(call: Call, logged: Logged) -> None:
    gaps, filled = logged.frame.copy(), logged.frame.copy()
    gaps.loc[3:50, "age"] = np.nan
    filled.loc[3:50, "age"] = Dataset.open(logged.folder / "training.zarr").summary.mean[0]
    done = call("policy", logged.model, logged.file("gaps.csv", gaps), *ROLES)
    check_failed(done, 1, "bad-value", "'age'", "row 3", "--unseen zero")
    found = [
        json_of("policy", logged.model, logged.file(name, frame), *ROLES, "--unseen", "zero")["value"]
        for name, frame in (("gaps.csv", gaps), ("filled.csv", filled))
    ]
    assert found[0] == found[1]
