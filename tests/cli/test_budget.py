"""`protodask budget`: from a table to an index, its answers, and its models at work."""

import csv
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
import zarr
from support.commands import check_failed, json_of

from protodask.budget import load_column_budget, save_column_budget
from protodask.budget.column_models import ModelsProgress
from protodask.budget.costs import CostCurves
from protodask.budget.expansions import Expansion
from protodask.budget.index import make_index
from protodask.budget.lattice import ExplorationProgress
from protodask.cli.progress import BudgetTally, LogReporter, describe_budget_start
from protodask.data.places.records import CHECKSUM, seal
from protodask.errors import Code
from protodask.pipeline.inspecting.budget import describe_index, shown_sizes
from protodask.pipeline.steps.budget import spread
from protodask.pipeline.telling.events import BudgetStarted, ComparisonStarted
from protodask.pipeline.work import budget as budget_module
from protodask.pipeline.work.budget import middle_size

Call = Callable[..., Any]

COSTS = """
sizes: [0, 100]
features:
  age: [1, 0.01]
  looks: {columns: [colour], cost: 2}
  size: [0.5, 0.1]
"""
FAST = ("--recipe", "source", "--folds", 2, "--candidates", 20, "--tolerance", 1e-2, "--threads", 1)


@pytest.fixture(scope="module")
def costs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("costs") / "costs.yaml"
    place.write_text(COSTS)
    return place


@pytest.fixture(scope="module")
def built(call: Call, example: Any, costs: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("built")
    done = call(
        "budget", "build", example.data, "--costs", costs, "--out", folder / "index",
        "--plot", folder / "plot.svg", "--compare", *FAST,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    return folder, done


def test_build__says_what_was_explored_and_what_it_answers(built: Any) -> None:
    folder, done = built
    assert sorted(os.listdir(folder)) == ["index", "plot.svg"]
    assert (folder / "plot.svg").read_text().count("greedy") == 3
    index = load_column_budget(folder / "index").index
    assert f"{index.expanded} of 8 sets of features were expanded" in done.stdout
    assert f"{len(index.sets)} candidates" in done.stdout
    assert "greedy, cost only: 4 sets expanded" in done.stdout
    assert "exploring the 8 sets of 3 features, with 2 folds each" in done.stderr
    for size in (0.0, 50.0, 100.0):
        for choice in index.skyline(size):
            names = ", ".join(index.feature_names[number] for number in sorted(choice.features)) or "(none)"
            words = [f"{size:g}", f"{choice.cost:.6g}", f"{choice.accuracy:.4f}", *names.split()]
            assert any(line.split() == words for line in done.stdout.splitlines()), words


@pytest.mark.slow
def test_build__as_json_has_failures_guarantee_and_answers(
    call: Call, example: Any, costs: Path, tmp_path: Path
) -> None:
    done = call(
        "budget", "build", example.data, "--costs", costs, "--out", tmp_path / "index", "--most-fits", 3,
        "--alpha", 0.1, *FAST, "--json",
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert (found["kind"], found["sets"], found["expanded"], found["alpha"]) == ("budget", 8, 3, 0.1)
    assert found["failures"] == []
    assert found["features"][1] == {"name": "looks", "columns": ["colour"], "cost": [2.0, 0.0]}
    assert [one["size"] for one in found["answers"]] == [0.0, 50.0, 100.0]
    assert found["models"] == len(os.listdir(tmp_path / "index" / "models"))
    described = json_of("info", tmp_path / "index")
    assert {name: described[name] for name in ("answers", "sizes", "guarantee")} == {
        name: found[name] for name in ("answers", "sizes", "guarantee")
    }
    assert "3 of 8 sets" in call("info", tmp_path / "index").stdout


@pytest.mark.slow
def test_build__greedily(call: Call, example: Any, costs: Path, tmp_path: Path) -> None:
    place = tmp_path / "index"
    done = call("budget", "build", example.data, "--costs", costs, "--out", place, "--search", "greedy", *FAST)
    assert done.exit_code == 0, done.output
    assert "searching greedily among the 8 sets of 3 features, at most 42 of them" in done.stderr
    assert "nothing is guaranteed" in done.stdout
    assert "--most-fits" not in done.stdout
    asked = call("budget", "query", place, "--size", 50, "--budget", 1000)
    assert asked.exit_code == 0, asked.output
    assert len(os.listdir(place / "models")) >= 1


def test_query__gives_the_features_and_a_model_that_needs_no_other_columns(
    call: Call, example: Any, built: Any, tmp_path: Path
) -> None:
    folder, _ = built
    found = json_of("budget", "query", folder / "index", "--size", 10, "--budget", 3.5)
    choice = load_column_budget(folder / "index").index.best(10.0, 3.5)
    assert found["accuracy"] == choice.accuracy
    assert found["cost"] == choice.cost <= 3.5
    assert found["columns"] == [{"age": "age", "looks": "colour", "size": "size"}[name] for name in found["features"]]
    shown = call("budget", "query", folder / "index", "--size", 10, "--budget", 3.5).stdout
    assert shown.splitlines()[0].split(maxsplit=1)[1] == ", ".join(found["features"])
    with open(example.table, newline="") as file:
        rows = list(csv.DictReader(file))
    with open(tmp_path / "few.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, found["columns"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    for name, table in (("few", tmp_path / "few.csv"), ("all", example.table)):
        done = call("predict", found["model"], table, "--out", tmp_path / f"{name}.zarr")
        assert done.exit_code == 0, done.output
    few, every = (zarr.open_group(tmp_path / f"{name}.zarr", mode="r") for name in ("few", "all"))
    np.testing.assert_array_equal(np.asarray(few["probability"]), np.asarray(every["probability"]))
    right = np.asarray(few["predicted"]) == [["high", "low"].index(row["outcome"]) for row in rows]
    assert right.mean() > found["accuracy"] - 0.1


def test_query__says_what_is_promised_in_truth(call: Call, built: Any, tmp_path: Path) -> None:
    folder, done = built
    index = load_column_budget(folder / "index").index
    assert index.margin is not None
    words = "with 95% confidence"
    asked = ("budget", "query", folder / "index", "--size", 10, "--budget", 3.5)
    found, described = (json_of(*one) for one in (asked, ("info", folder / "index")))
    assert 0 < found["margin"] <= described["margin"] == index.margin
    assert (found["guarantee"], found["guaranteed"], found["confidence"]) == (index.guarantee, index.guaranteed, 0.95)
    for said, margin in ((call(*asked).stdout, found["margin"]), (done.stdout, index.margin)):
        assert words in said
        assert f"{index.guarantee + margin:.4g}" in said
    assert words in call("info", folder / "index").stdout
    # An index of an earlier version does not know.
    content = json.loads((folder / "index" / "index.json").read_text())
    del content["margins"], content[CHECKSUM]
    shutil.copytree(folder / "index", tmp_path / "old")
    (tmp_path / "old" / "index.json").write_text(json.dumps(seal(content, "budget index")))
    old = call("budget", "query", tmp_path / "old", "--size", 10, "--budget", 3.5)
    assert old.exit_code == 0, old.output
    assert words not in old.stdout
    assert words not in call("info", tmp_path / "old").stdout
    assert json_of("info", tmp_path / "old")["margin"] is None


def test_query__without_an_affordable_feature_tells_of_the_class_shares(call: Call, built: Any) -> None:
    folder, _ = built
    done = call("budget", "query", folder / "index", "--size", 100, "--budget", 0.5)
    assert done.exit_code == 0, done.output
    assert "(none)" in done.stdout
    assert "is the most frequent class" in done.stdout
    found = json_of("budget", "query", folder / "index", "--size", 100, "--budget", 0.5)
    assert found["model"] is None
    assert sum(one["share"] for one in found["shares"]) == pytest.approx(1.0)


def test_query__a_budget_that_is_the_cost_of_a_set_is_enough_for_it(call: Call, built: Any, tmp_path: Path) -> None:
    folder, _ = built
    index = load_column_budget(folder / "index").index
    found = [(size, round(one.cost, 6), one) for size in range(101) for one in index.skyline(size)]
    queries = [query for query in found if query[1] < query[2].cost]  # as costs in tenths and hundredths are added up
    assert queries
    lines = [f"{size},{budget}" for size, budget, _ in queries]
    (tmp_path / "queries.csv").write_text("\n".join(["size,budget", *lines]))
    out = tmp_path / "answers.csv"
    done = call("budget", "query", folder / "index", "--queries", tmp_path / "queries.csv", "--out", out)
    assert done.exit_code == 0, done.output
    assert pd.read_csv(out)["accuracy"].tolist() == pytest.approx([one.accuracy for _, _, one in queries])
    size, budget, expected = queries[-1]
    single = call("budget", "query", folder / "index", "--size", size, "--budget", budget, "--json")
    assert json.loads(single.stdout)["accuracy"] == expected.accuracy


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_query__answers_tables_as_it_answers_single_items(call: Call, built: Any, tmp_path: Path, suffix: str) -> None:
    folder, _ = built
    random = np.random.default_rng(0)
    sizes, budgets = random.uniform(0, 100, 50), random.uniform(0, 20, 50)
    lines = [f"{size!r},{budget!r}" for size, budget in zip(sizes.tolist(), budgets.tolist(), strict=True)]
    (tmp_path / "queries.csv").write_text("\n".join(["size,budget", *lines]))
    written = pd.read_csv(tmp_path / "queries.csv")  # some versions round the last bit of a number in text
    out = tmp_path / f"answers.{suffix}"
    done = call("budget", "query", folder / "index", "--queries", tmp_path / "queries.csv", "--out", out)
    assert done.exit_code == 0, done.output
    assert "have 50 rows" in done.stdout
    if suffix == "csv":
        with open(out, newline="") as file:
            rows: list[Any] = list(csv.DictReader(file))
    else:
        rows = pyarrow.parquet.read_table(out).to_pylist()
    found = load_column_budget(folder / "index")
    for size, budget, row in zip(written["size"].tolist(), written["budget"].tolist(), rows, strict=True):
        choice = found.index.best(size, budget)
        assert (float(row["size"]), float(row["budget"])) == (size, budget)
        assert (float(row["accuracy"]), float(row["cost"])) == (choice.accuracy, choice.cost)
        assert row["features"] == ";".join(found.index.named(choice.features))
        assert row["model"] == (found.model_path(found.numbers[choice.features]) or "")
    again = call("budget", "query", folder / "index", "--queries", tmp_path / "queries.csv", "--out", out)
    check_failed(again, 1, "exists", out, "--overwrite")


@pytest.mark.parametrize(
    ("rows", "code", "facts"),
    [
        (["size,budget", "1,2", "300,1"], "bad-value", ("Row 1", "size 300", "from 0 to 100")),
        (["size,budget", "1,-2"], "bad-value", ("Row 0", "budget -2", "0 or more")),
        (["size,budget", "1,", "2,2"], "bad-value", ("'budget'", "row 0")),
        (["n,budget", "1,2"], "column-missing", ("'size' and 'budget'",)),
    ],
)
def test_query__of_a_table_that_cannot_be_answered_leaves_nothing(
    call: Call, built: Any, tmp_path: Path, rows: list[str], code: Code, facts: tuple[str, ...]
) -> None:
    folder, _ = built
    (tmp_path / "queries.csv").write_text("\n".join(rows))
    done = call(
        "budget", "query", folder / "index", "--queries", tmp_path / "queries.csv", "--out", tmp_path / "answers.csv"
    )
    check_failed(done, 1, code, *facts)
    assert os.listdir(tmp_path) == ["queries.csv"]


@pytest.mark.parametrize(
    ("options", "exit_code", "code", "facts"),
    [
        (["--size", 1], 2, "setting-missing", ["--size", "--budget", "--queries"]),
        (["--size", 1, "--budget", 2, "--queries", "q.csv", "--out", "a.csv"], 2, "settings-conflict", ["--queries"]),
        (["--queries", "q.csv"], 2, "setting-missing", ["--out"]),
        (["--size", 1, "--budget", 2, "--out", "a.csv"], 2, "settings-conflict", ["--out", "--json"]),
        (["--queries", "q.csv", "--out", "a.txt"], 1, "bad-setting", ["a.txt", ".csv", ".parquet"]),
        (["--queries", "q.csv", "--out", "a.csv"], 1, "not-found", ["q.csv"]),
        (["--size", 1000, "--budget", 1], 1, "bad-value", ["1000.0", "0 to 100"]),
        (["--size", 1, "--budget", -1], 1, "bad-setting", ["budget", "-1.0"]),
    ],
)
def test_query__refuses_what_makes_no_sense(
    call: Call, built: Any, options: list[object], exit_code: int, code: Code, facts: list[str]
) -> None:
    folder, _ = built
    done = call("budget", "query", folder / "index", *options)
    check_failed(done, exit_code, code, *facts)


@pytest.mark.parametrize(
    ("options", "exit_code", "code", "facts"),
    [
        (["--folds", 1], 2, "bad-setting", ["1 folds", "2 to 100"]),
        (["--alpha", -0.1], 2, "bad-setting", ["alpha", "-0.1"]),
        (["--monotone-error", "nan"], 2, "bad-setting", ["monotone-error", "nan"]),
        (["--most-fits", 0], 2, "bad-setting", ["most-fits", "0"]),
        (["--search", "greedy", "--alpha", 0.1], 2, "settings-conflict", ["alpha", "greedy"]),
        (["--batches", 0], 2, "bad-setting", ["batches"]),
        (["--plot", "plot.jpg"], 2, "bad-setting", ["plot.jpg", ".png", ".svg", ".pdf"]),
        (
            ["--memory-limit", "300MiB", "--candidates", 10**7, "--threads", 64],
            1,
            "over-memory",
            ["300 MiB", "--memory-limit"],
        ),
    ],
)
def test_build__refuses_settings_that_cannot_work(
    call: Call,
    example: Any,
    costs: Path,
    tmp_path: Path,
    options: list[object],
    exit_code: int,
    code: Code,
    facts: list[str],
) -> None:
    done = call("budget", "build", example.data, "--costs", costs, "--out", tmp_path / "index", *options)
    check_failed(done, exit_code, code, *facts)
    assert os.listdir(tmp_path) == []


def test_build__names_columns_without_a_cost(call: Call, example: Any, tmp_path: Path) -> None:
    (tmp_path / "costs.yaml").write_text("features: {age: 1}")
    done = call("budget", "build", example.data, "--costs", tmp_path / "costs.yaml", "--out", tmp_path / "index")
    check_failed(done, 1, "setting-missing", "colour, size", "cost", "`without`")


def test_build__does_not_write_over_what_is_there(
    call: Call, example: Any, built: Any, costs: Path, tmp_path: Path
) -> None:
    folder, _ = built
    for place in (folder / "index", example.model):
        done = call("budget", "build", example.data, "--costs", costs, "--out", place, *FAST)
        check_failed(done, 1, "exists", place, "--overwrite")
    done = call("budget", "build", example.data, "--costs", costs, "--out", example.model, "--overwrite", *FAST)
    check_failed(done, 1, "wrong-kind", example.model)
    (tmp_path / "plot.png").write_text("mine")
    done = call(
        "budget", "build", example.data, "--costs", costs, "--out", tmp_path / "index", "--plot", tmp_path / "plot.png",
        *FAST,
    )  # fmt: skip
    check_failed(done, 1, "exists", tmp_path / "plot.png")
    assert os.listdir(tmp_path) == ["plot.png"]


@pytest.mark.parametrize(("inside", "code"), [("index/plot.svg", 2), ("index.run/plot.svg", 1), ("data", 1)])
def test_build__does_not_draw_into_what_it_reads_or_writes(
    call: Call, example: Any, costs: Path, tmp_path: Path, inside: str, code: int
) -> None:
    plot = Path(example.data) / "plot.svg" if inside == "data" else tmp_path / inside
    done = call("budget", "build", example.data, "--costs", costs, "--out", tmp_path / "index", "--plot", plot, *FAST)
    check_failed(done, code, "places-overlap", plot, plot.parent)
    assert not any(tmp_path.iterdir())
    assert not plot.exists()


@pytest.mark.slow
def test_build__killed_after_its_last_step_is_done_when_it_is_repeated(
    call: Call, example: Any, costs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = (
        "budget", "build", example.data, "--costs", costs, "--out", tmp_path / "index", "--plot", tmp_path / "plot.png",
        *FAST,
    )  # fmt: skip
    plain = save_column_budget

    def killed(*arguments: Any) -> None:
        plain(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(budget_module, "save_column_budget", killed)
        assert call(*command).exit_code == 130
    assert sorted(os.listdir(tmp_path)) == ["index", "index.run", "plot.png"]
    described = json_of("info", tmp_path / "index.run")
    assert (described["kind"], described["finished"], described["failed"]) == ("budget run", True, 0)
    shown = call("info", tmp_path / "index.run").stdout
    assert f"sets expanded  {described['expanded']}, 0 in vain" in shown
    assert "looks    colour" in shown
    done = call(*command)
    assert done.exit_code == 0, done.output
    assert sorted(os.listdir(tmp_path)) == ["index", "plot.png"]


@pytest.mark.slow
def test_build__does_not_take_another_budget_for_its_own(call: Call, example: Any, costs: Path, tmp_path: Path) -> None:
    run = ("--run-dir", tmp_path / "run")
    build = ("budget", "build", example.data, "--out", tmp_path / "index", *FAST, *run)
    assert call(*build, "--costs", costs).exit_code == 0
    (tmp_path / "other.yaml").write_text(COSTS.replace("cost: 2", "cost: 3"))
    assert call(*build, "--costs", costs).exit_code == 0
    done = call(*build, "--costs", tmp_path / "other.yaml")
    check_failed(done, 1, "exists", tmp_path / "index", "--overwrite")
    assert load_column_budget(tmp_path / "index").index.curves.coefficients[1, 0] == 2.0


@pytest.mark.slow
def test_run__has_a_step_that_builds_a_budget(call: Call, example: Any, costs: Path, tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(
        json.dumps(
            {
                "steps": [
                    {
                        "budget": {
                            "data": str(example.data),
                            "costs": str(costs),
                            "out": str(tmp_path / "index"),
                            "most-fits": 2,
                            "folds": 2,
                            "candidates": 20,
                            "tolerance": 0.01,
                        }
                    }
                ]
            }
        )
    )
    done = call("run", tmp_path / "pipeline.yaml", "--threads", 1)
    assert done.exit_code == 0, done.output
    assert "2 of 8 sets of features were expanded" in done.stdout
    assert "step 1 of 1: budget, " in done.stderr


def test_progress__tells_of_sets_models_and_comparisons(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = LogReporter(clock=lambda: 0.0)
    started = BudgetStarted(3, 5, 4, "patient")
    reporter.hear(started)
    reporter.hear(ExplorationProgress(0, 0, 2, float("inf")))
    reporter.hear(ExplorationProgress(1, 0, 1, float("inf")))
    reporter.hear(ModelsProgress(1, 4))
    reporter.hear(ComparisonStarted("greedy"))
    lines = [line[21:] for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        "exploring the 8 sets of 3 features, at most 4 of them, with 5 folds each; rows of the same 'patient' stay "
        "together",
        "0.0 s  sets 0 of 8 expanded, 2 waiting",
        "0.0 s  models 1 of 4 fitted to all rows",
        "0.0 s  comparing with greedy",
    ]
    tally = BudgetTally(started, clock=iter([0.0, 7.0, 7.0]).__next__)
    tally.hear(ExplorationProgress(3, 1, 0, 0.25))
    assert tally.describe() == "7.0 s  sets 3 of 8 expanded, 1 failed, 0 waiting, guarantee 0.25"
    assert "together" not in describe_budget_start(BudgetStarted(1, 2, None, None))


@pytest.mark.parametrize(
    ("known", "error", "guaranteed"), [(3, 0.0, False), (3, 0.05, False), (3, 0.1, True), (4, 0.0, True)]
)
def test_guaranteed__where_accuracies_are_as_assumed_or_all_are_known(
    known: int, error: float, guaranteed: bool
) -> None:
    accuracies = {frozenset[int](): 0.5, frozenset({0}): 0.9, frozenset({0, 1}): 0.8, frozenset({1}): 0.7}
    expansions = [Expansion(features, accuracy) for features, accuracy in accuracies.items()][:known]
    curves = CostCurves.of([[1.0], [2.0]])
    index = make_index(curves, expansions, guarantee=0.0, monotone_error=error, observed_error=0.1)
    assert index.guaranteed == guaranteed
    assert describe_index(index, [["a"], ["b"]])["guaranteed"] == guaranteed


def test_shown_sizes__are_the_ends_and_what_lies_between() -> None:
    def sizes(costs: list[list[float]], low: float, high: float) -> list[float]:
        return shown_sizes(CostCurves.of(costs, (low, high)))

    assert sizes([[1.0, 1.0]], 1.0, 100.0) == [1.0, 10.0, 100.0]
    assert sizes([[1.0, 1.0]], 0.0, 10.0) == [0.0, 5.0, 10.0]
    assert sizes([[1.0, 1.0]], 0.0, np.inf) == [1.0, 10.0, 100.0]
    assert sizes([[1.0, 0.0]], 3.0, 9.0) == [3.0]
    assert sizes([[1.0, 1.0]], 3.0, 3.0) == [3.0]


@pytest.mark.parametrize(("sizes", "middle"), [((1.0, 100.0), 10.0), ((0.0, 10.0), 5.0), ((3.0, 3.0), 3.0)])
def test_middle_size__lies_between_the_ends(sizes: tuple[float, float], middle: float) -> None:
    assert middle_size(CostCurves.of([[1.0, 1.0]], sizes)) == middle


@pytest.mark.parametrize(("n", "most"), [(1, 6), (6, 6), (7, 6), (50, 6), (50, 20)])
def test_spread__keeps_the_first_and_the_last(n: int, most: int) -> None:
    found = spread(list(range(n)), most)
    assert len(found) == min(n, most)
    assert (found[0], found[-1]) == (0, n - 1)
    assert found == sorted(set(found))
