import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.errors import refused

from protodask.errors import Code, FormatError, StorageError
from protodask.pipeline.steps.gate import Limit, parse_limits
from protodask.pipeline.work.limits import check_limits, figure_names, judge_figures, read_results

RESULTS = {
    "log_loss": 0.25,
    "drift": {"largest": 0.125, "a.b": {"c": 1}, "a": {"b.c": 2, "b": {"c": 3}}},
    "classes": [{"label": "yes", "recall": 0.5}, {"label": "a.b", "recall": 0.75}],
    "confusion": [[5, 1], [2, 4]],
    "roc_auc": None,
    "passed": True,
    "kind": "scores",
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("log_loss", 0.25),
        ("drift.largest", 0.125),
        ("drift.a.b.c", 1),  # the longest name first
        ("classes.yes.recall", 0.5),
        ("classes.a.b.recall", 0.75),
        ("confusion.1.0", 2),
    ],
)
def test_judge_figures__finds_figures_by_path(name: str, value: float) -> None:
    (figure,) = judge_figures(RESULTS, {name: Limit(value, value)})
    assert (figure.value, figure.reason) == (value, None)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("drift.larges", r"no figure 'drift\.larges': there are drift\.largest"),
        ("nothing", "there are log_loss, "),
        ("log_loss.mean", r"no figure 'log_loss\.mean'"),
        ("kind.0", r"no figure 'kind\.0'"),
        ("roc_auc", "could not be measured"),
        ("passed", "is no number: it is True"),
        ("kind", "is no number: it is 'scores'"),
        ("drift", r"more than one value, but there are .*drift\.largest"),
        ("classes.0.recall", r"there are .*classes\.yes\.recall"),
    ],
)
def test_judge_figures__of_what_is_no_number_says_no(name: str, said: str) -> None:
    (figure,) = judge_figures(RESULTS, {name: Limit(most=1e300)})
    assert figure.value is None
    assert figure.reason is not None
    assert re.search(said, figure.reason), figure.reason


@pytest.mark.parametrize("value", [10**400, -(10**400)])
def test_judge_figures__of_a_whole_number_that_is_too_large_says_no(value: int) -> None:
    (figure,) = judge_figures({"a": value}, {"a": Limit(least=-1.0, most=1e300)})
    assert figure.value is None
    assert figure.reason is not None
    assert "beyond the range" in figure.reason


LARGEST = sys.float_info.max


@given(
    st.floats(-5, 5) | st.sampled_from([-LARGEST, LARGEST]),
    st.floats(-5, 5) | st.none(),
    st.floats(-5, 5) | st.none() | st.just(LARGEST),
)
def test_judge_figures__is_within_both_ends(value: float, least: float | None, most: float | None) -> None:
    (figure,) = judge_figures({"x": value}, {"x": Limit(least, most)})
    within = (least is None or value >= least) and (most is None or value <= most)
    assert (figure.reason is None) == within
    if figure.reason is not None:
        assert f"{value:.6g}" in figure.reason


def test_judge_figures__tells_what_differs_by_next_to_nothing_from_its_limit() -> None:
    (figure,) = judge_figures({"x": 0.84999999}, {"x": Limit(least=0.85)})
    assert figure.reason == "The figure 'x' is 0.85, below its least value 0.85 by 1e-08."


def test_judge_figures__goes_by_names_only_where_all_elements_have_one() -> None:
    content = {"parts": [{"name": "a", "rows": 1}, {"rows": 2}], "named": [{"name": "a", "rows": 3}]}
    found = judge_figures(content, dict.fromkeys(["parts.1.rows", "parts.a.rows", "named.a.rows"], Limit(most=9)))
    assert [figure.value for figure in found] == [2, None, 3]


def test_figure_names__are_all_found_again() -> None:
    results: dict[str, Any] = {name: item for name, item in RESULTS.items() if name != "drift"}
    names = list(figure_names(results))
    assert {"classes.yes.recall", "confusion.0.1", "roc_auc"} <= set(names)
    figures = judge_figures(results, {name: Limit(most=1e9) for name in names})
    assert [figure.name for figure in figures if figure.reason] == ["roc_auc"]


def test_parse_limits__takes_both_ends_of_a_figure_together() -> None:
    found = parse_limits(["a.b>=0.5", "a.b <= 1e1", "c<=d<=-2"])
    assert found == {"a.b": Limit(0.5, 10.0), "c<=d": Limit(None, -2.0)}


@pytest.mark.parametrize("text", ["a", "a=1", "a<1", "<=1", " >=1", "a<=", "a<=x", "a<=nan", "a>=inf"])
def test_parse_limits__refuses_what_is_no_limit(text: str) -> None:
    with refused("bad-setting", repr(text), "drift.largest<=0.25"):
        parse_limits([text])


def test_parse_limits__refuses_two_of_one_kind() -> None:
    with refused("named-twice", "'a'"):
        parse_limits(["a<=1", "a<=2"])


@pytest.mark.parametrize(
    ("limit", "code", "facts"),
    [
        (Limit(), "setting-missing", ["least:", "most:"]),
        (Limit(float("nan")), "bad-setting", []),
        (Limit(2, 1), "settings-conflict", [2, 1]),
    ],
)
def test_check_limits__refuses_what_nothing_keeps_to(limit: Limit, code: Code, facts: list[object]) -> None:
    with refused(code, "'a'", *facts):
        check_limits({"a": limit})


def test_read_results__names_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    path = tmp_path / "scores.json"
    with refused("not-found", path, kind=StorageError):
        read_results(str(path))
    path.write_text('{"a": 1,}')
    with refused("unreadable", path, kind=FormatError):
        read_results(str(path))
    path.write_text(json.dumps(RESULTS))
    assert read_results(str(path)) == RESULTS
