"""The record of a search: what comes out of a file is what went in, or an error that says so."""

import copy
import csv
import io
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.errors import refused

from protodask.errors import FormatError
from protodask.prototypes.model import PrototypeSet
from protodask.selection.results import SearchResult, Strategy, Trial, as_lines, as_rows, as_text, read_search

LOSSES = st.floats(allow_nan=False, allow_infinity=False, width=32)


@st.composite
def results(draw: st.DrawFn) -> SearchResult:
    folds = draw(st.integers(1, 6))
    losses = st.lists(LOSSES, min_size=folds, max_size=folds).map(tuple)
    trials = st.builds(
        Trial, st.sampled_from([1, 2]), st.floats(0, 1e10), st.floats(0, 1e10), st.integers(0, 50), losses
    )
    found = draw(st.lists(trials, min_size=1, max_size=8))
    places = st.integers(0, len(found) - 1)
    strategy: Strategy = draw(st.sampled_from(["joint", "two-stage"]))
    return SearchResult(strategy, tuple(found), draw(places), draw(places), draw(st.text(max_size=20)))


RESULT = SearchResult(
    "joint",
    (Trial(1, 1e-3, 1e-8, 2, (0.5, 0.7)), Trial(1, 1e-2, 1e-7, 1, (0.6, 0.7)), Trial(1, 1.0, 1e-6, 1, (math.nan, 0.6))),
    best=0,
    selected=1,
    rule="one standard error",
)


def stored(result: SearchResult) -> dict[str, Any]:
    """What a model's provenance holds once it was in a file."""
    record: dict[str, Any] = json.loads(json.dumps({"search": result.describe()}, allow_nan=False))
    return record


@given(results())
def test_read_search__gives_back_what_was_described(result: SearchResult) -> None:
    assert read_search(stored(result)) == result
    assert read_search({"search": result.describe()}) == result


def test_read_search__takes_a_model() -> None:
    marginals = np.array([0.5, 0.5])
    plain = PrototypeSet(marginals, ("a", "b"), ("x0",), ())
    assert read_search(plain) is None
    found = read_search(PrototypeSet(marginals, ("a", "b"), ("x0",), (), provenance=stored(RESULT)))
    assert found is not None
    assert found.trials[:2] == RESULT.trials[:2]


@pytest.mark.parametrize("failure", [math.nan, math.inf, -math.inf])
def test_read_search__of_a_trial_that_failed_says_so(failure: float) -> None:
    trials = (*RESULT.trials[:2], Trial(1, 1.0, 1e-6, 1, (failure, 0.6)))
    found = read_search(stored(SearchResult("joint", trials, 0, 1, "best")))
    assert found is not None
    assert not found.trials[2].usable
    assert math.isnan(found.trials[2].fold_losses[0])
    assert found.trials[2].fold_losses[1] == 0.6


DAMAGES: list[tuple[tuple[str | int, ...], Any]] = [
    ((), []),
    ((), "search"),
    (("strategy",), "random"),
    (("strategy",), None),
    (("rule",), 3),
    (("best",), 3),
    (("best",), -1),
    (("best",), 2),
    (("selected",), True),
    (("selected",), 2),
    (("trials",), []),
    (("trials",), {}),
    (("trials", 0), 1),
    (("trials", 0, "stage"), 3),
    (("trials", 0, "lambda_v"), -1.0),
    (("trials", 0, "lambda_v"), math.nan),
    (("trials", 0, "lambda_w"), "1"),
    (("trials", 0, "n_batches"), 1.5),
    (("trials", 0, "n_batches"), -1),
    (("trials", 0, "fold_losses"), []),
    (("trials", 0, "fold_losses"), None),
    (("trials", 0, "fold_losses"), [0.1]),
    (("trials", 0, "fold_losses"), [0.1, "0.2"]),
    (("trials", 0, "fold_losses"), [0.1, math.inf]),
    (("trials", 0, "fold_losses"), [0.1, True]),
]


@pytest.mark.parametrize(("path", "value"), DAMAGES)
def test_read_search__refuses_a_damaged_record(path: tuple[str | int, ...], value: Any) -> None:
    record: Any = copy.deepcopy(stored(RESULT))
    inner = record
    for step in ("search", *path)[:-1]:
        inner = inner[step]
    inner[("search", *path)[-1]] = value
    with refused("damaged", "search", "Fit the model again", kind=FormatError):
        read_search(record)


@pytest.mark.parametrize("name", ["strategy", "trials", "best", "selected", "rule"])
def test_read_search__refuses_a_record_that_lacks_something(name: str) -> None:
    record = stored(RESULT)
    del record["search"][name]
    with refused("damaged", "search", kind=FormatError):
        read_search(record)


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=9).map(tuple))
def test_trial__mean_and_standard_error_are_those_of_numpy(losses: tuple[float, ...]) -> None:
    trial = Trial(1, 1e-3, 1e-8, 1, losses)
    assert trial.mean == pytest.approx(np.mean(losses), abs=1e-12)
    assert trial.standard_error == pytest.approx(np.std(losses, ddof=1) / math.sqrt(len(losses)), abs=1e-12)


def test_trial__of_one_fold_has_no_standard_error() -> None:
    trial = Trial(1, 1e-3, 1e-8, 1, (0.5,))
    assert (trial.mean, trial.standard_error) == (0.5, 0.0)


def test_as_rows__are_a_csv_file_that_tells_everything() -> None:
    rows = as_rows(RESULT)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    found = list(csv.DictReader(io.StringIO(text.getvalue())))
    assert [float(row["lambda_v"]) for row in found] == [1e-3, 1e-2, 1.0]
    assert [(float(row["fold_1"]), float(row["fold_2"])) for row in found[:2]] == [(0.5, 0.7), (0.6, 0.7)]
    assert [(row["best"], row["selected"]) for row in found] == [
        ("True", "False"),
        ("False", "True"),
        ("False", "False"),
    ]
    assert float(found[0]["mean"]) == pytest.approx(0.6)
    assert float(found[0]["standard_error"]) == pytest.approx(0.1)
    assert found[2]["mean"] == "nan"


def test_as_text__is_a_table_by_rising_loss_that_marks_the_choice() -> None:
    lines = as_text(RESULT).splitlines()
    assert lines[0].split() == ["stage", "lambda_v", "lambda_w", "batches", "log-loss", "std.", "error"]
    assert [line.split() for line in lines[1:4]] == [
        ["1", "0.001", "1e-08", "2", "0.60000", "0.10000", "best"],
        ["1", "0.01", "1e-07", "1", "0.65000", "0.05000", "chosen"],
        ["1", "1", "1e-06", "1", "failed"],
    ]
    assert lines[4:] == ["joint search, chosen by: one standard error"]
    assert all(
        line[: lines[0].index("log-loss") + len("log-loss")].endswith(end)
        for line, end in zip(lines[1:4], ("0.60000", "0.65000", "failed"), strict=True)
    )


def test_as_lines__shows_the_choice_among_however_few() -> None:
    trials = tuple(Trial(1, 10.0**-number, 1e-8, 1, (number / 10, number / 10)) for number in range(10))
    result = SearchResult("joint", trials, best=0, selected=7, rule="best")
    assert [line[-1] for line in as_lines(result, 2)] == ["best", "chosen"]
    assert [line[1] for line in as_lines(result, 3)] == ["1", "0.1", "1e-07"]
    assert len(as_lines(result)) == len(as_lines(result, 50)) == 10
    assert "and 7 more" in as_text(result, 3)
