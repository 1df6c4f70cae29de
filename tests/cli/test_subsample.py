"""`protodask subsample`, and the step of that name."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.commands import check_failed
from support.errors import refused

from protodask.data import Dataset
from protodask.data.tables.ingest import ingest
from protodask.errors import Code
from protodask.evaluation import balanced_rates
from protodask.pipeline.steps.subsample import parse_rates

Call = Callable[..., Any]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A thousand rows, a tenth of them "yes"."""
    place = tmp_path_factory.mktemp("log") / "log.zarr"
    features = np.random.default_rng(0).normal(size=(1000, 2))
    ingest((features, np.where(np.arange(1000) % 10, "no", "yes")), place)
    return place


def test_subsample__says_what_was_kept_and_what_it_stands_for(call: Call, log: Path, tmp_path: Path) -> None:
    done = call("subsample", log, "--out", tmp_path / "part", "--rate", "no=0.25", "--seed", 3)
    assert done.exit_code == 0, done.output
    found = Dataset.open(tmp_path / "part")
    kept = int(found.summary.class_rows[0])
    lines = [line.split() for line in done.stdout.splitlines()]
    assert f"has {found.n_rows} rows, which stand for {100 + 4 * kept:,}." in done.stdout
    assert ["no", "900", "0.25", f"{kept}", f"{4 * kept}"] in lines
    assert ["yes", "100", "1", "100", "100"] in lines
    assert "seed 3; rates by class: 'no' 0.25, 'yes' 1.0." in call("info", tmp_path / "part").stdout


def test_subsample__prints_json(call: Call, log: Path, tmp_path: Path) -> None:
    done = call("subsample", log, "--out", tmp_path / "part", "--budget", 150, "--json")
    found = json.loads(done.stdout)
    dataset = Dataset.open(tmp_path / "part")
    assert found["kind"] == "subsample"
    assert (found["rows"], found["effective_rows"]) == (dataset.n_rows, dataset.summary.weight)
    assert [entry["rate"] for entry in found["classes"]] == balanced_rates([900, 100], 150).tolist()
    assert [entry["source_rows"] for entry in found["classes"]] == [900, 100]
    assert [entry["rows"] for entry in found["classes"]] == dataset.summary.class_rows.tolist()


def test_subsample__is_the_same_again_and_as_a_step(call: Call, log: Path, tmp_path: Path) -> None:
    assert call("subsample", log, "--out", tmp_path / "one", "--rate", "no=0.25", "--seed", 3).exit_code == 0
    assert call("subsample", log, "--out", tmp_path / "two", "--rate", "no=0.25", "--seed", 4).exit_code == 0
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        f"steps:\n- subsample:\n    data: {log}\n    out: {tmp_path / 'three'}\n"
        '    rate: {"no": 0.25}\n    seed: 3\n'
        f"- subsample: {{data: {tmp_path / 'three'}, out: {tmp_path / 'four'}, budget: 100}}\n"
    )
    done = call("run", file)
    assert done.exit_code == 0, done.output
    assert "three" in done.stdout
    assert "which stand for" in done.stdout
    one, two, three = (Dataset.open(tmp_path / name).key for name in ("one", "two", "three"))
    assert one == three != two
    assert "There is nothing to do" in call("run", file).stdout


def test_subsample__by_a_column_says_what_was_kept_of_its_values(call: Call, tmp_path: Path) -> None:
    """A feature may be called like what parts are called otherwise."""
    table = tmp_path / "log.csv"
    rows = [f"{row % 4},{int(row % 10 == 0)},{row % 2}\n" for row in range(400)]
    table.write_text("class,reward,did\n" + "".join(rows))
    assert call("ingest", table, "--target", "did", "--out", tmp_path / "log").exit_code == 0
    for by, rate in (("reward", "0=0.25"), ("class", "0=0.25")):
        words = ("subsample", tmp_path / "log", "--out", tmp_path / by, "--by", by, "--rate", rate)
        done = call(*words)
        assert done.exit_code == 0, done.output
        assert by in done.stdout.splitlines()[2]
        assert any(line.startswith("(other)") for line in done.stdout.splitlines())
        found = json.loads(call(*words, "--json", "--overwrite").stdout)
        assert found["by"] == by
        assert [part["label"] for part in found["values"]] == [0.0, "(other)"]
        assert sum(part["source_rows"] for part in found["values"]) == 400
        assert sum(part["rows"] for part in found["values"]) == found["rows"]


@pytest.mark.parametrize(
    ("arguments", "code", "facts"),
    [
        ((), "setting-missing", ["rates", "budget"]),
        (("--rate", "no=0.5", "--budget", "100"), "settings-conflict", ["rates", "budget"]),
        (("--rate", "no=0"), "bad-setting", ["'no'", "0.0"]),
        (("--rate", "no=2"), "bad-setting", ["'no'", "2.0"]),
        (("--rate", "no=nan"), "bad-setting", ["'no'", "nan"]),
        (("--rate", "no"), "bad-setting", ["--rate no", "no=0.01"]),
        (("--rate", "no=half"), "bad-setting", ["--rate no=half", "no=0.01"]),
        (("--rate", "no=0.5", "--rate", "no=0.25"), "named-twice", ["'no'"]),
    ],
)
def test_subsample__wrong_use(
    arguments: tuple[str, ...], code: Code, facts: list[str], call: Call, log: Path, tmp_path: Path
) -> None:
    done = call("subsample", log, "--out", tmp_path / "part", *arguments)
    check_failed(done, 2, code, *facts)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "named"), [(("--budget", "0"), "--budget"), (("--rate", "no=0.5", "--seed", "-1"), "--seed")]
)
def test_subsample__values_that_options_do_not_take(
    arguments: tuple[str, ...], named: str, call: Call, log: Path, tmp_path: Path
) -> None:
    done = call("subsample", log, "--out", tmp_path / "part", *arguments)
    assert done.exit_code == 2, done.output
    assert named in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_subsample__of_classes_that_are_not_there_and_onto_what_is(call: Call, log: Path, tmp_path: Path) -> None:
    done = call("subsample", log, "--out", tmp_path / "part", "--rate", "never=0.5")
    check_failed(done, 1, "unknown-name", "'never'", "'no', 'yes'")
    assert call("subsample", log, "--out", tmp_path / "part", "--rate", "no=0.5").exit_code == 0
    done = call("subsample", log, "--out", tmp_path / "part", "--rate", "no=0.5")
    check_failed(done, 1, "exists", tmp_path / "part", "--overwrite")
    assert call("subsample", log, "--out", tmp_path / "part", "--rate", "no=0.1", "--overwrite").exit_code == 0


def test_parse_rates__leaves_labels_as_they_are() -> None:
    assert parse_rates(["a=b=0.5", " c =1e-3", "=0.25"]) == {"a=b": 0.5, " c ": 0.001, "": 0.25}
    with refused("bad-setting", "--rate 0.5"):
        parse_rates(["0.5"])
