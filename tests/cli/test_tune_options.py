"""The options of `protodask tune`."""

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer
from support.commands import check_failed

from protodask.cli import app
from protodask.errors import Code
from protodask.pipeline.steps.training import CONFIG_NAMES
from protodask.pipeline.steps.tune import TuneStep
from protodask.pipeline.work.settings import SEARCH_NAMES, SETTINGS
from protodask.prototypes import FitConfig
from protodask.selection import SearchConfig
from protodask.selection.config import FEW_ROWS

Call = Callable[..., Any]

OUTSIDE = {inside: name for name, inside in SEARCH_NAMES.items()}
SEARCH_SETTINGS = tuple(OUTSIDE.get(field.name, field.name) for field in fields(SearchConfig))


def test_tune__help_states_the_real_defaults() -> None:
    command: Any = typer.main.get_command(app)
    options = {option.name: option for option in command.commands["tune"].params}
    search, config, by_case = (
        SearchConfig(),
        FitConfig(),
        {"trials", "draws", "rule", "recipe", "candidates", "most_candidates", "average_draws", "precision"},
    )
    real = {name: getattr(search, SEARCH_NAMES.get(name, name)) for name in SEARCH_SETTINGS if name not in by_case}
    real |= {
        name: getattr(config, CONFIG_NAMES.get(name, name))
        for name in SETTINGS
        if name in options and name not in by_case
    }
    for name, value in real.items():
        shown = options[name].show_default
        match value:
            case bool():
                assert (shown.replace("-", "_") == name) == value
            case str():
                assert shown == value
            case tuple():
                assert tuple(map(float, shown.split())) == pytest.approx(value)
            case _:
                assert float(shown) == pytest.approx(value, rel=1e-3)
    by_draws = [search.rule_for(5), search.rule_for(1).replace(" ", "-")]
    assert options["rule"].show_default == ", of single draws ".join(by_draws)
    each = [SearchConfig(strategy="joint").trials, SearchConfig(strategy="two-stage").trials]
    assert [int(number) for number in re.findall("[0-9]+", options["trials"].show_default)] == each
    shown = options["draws"].show_default.replace(",", "")
    assert [int(number) for number in re.findall("[0-9]+", shown)] == [search.draws(1, 5), search.draws(1), FEW_ROWS]
    assert search.draws(10**9) == search.draws(10**9, 5) == 1


OF_FITS_ALONE = {"batches", "lambda_v"}
"""Settings of a fit that a search chooses."""


def test_tune__settings_are_those_of_the_search_and_of_a_fit() -> None:
    assert set(OUTSIDE) <= {field.name for field in fields(SearchConfig)}
    step = {field.name for field in fields(TuneStep)}
    assert set(SEARCH_SETTINGS) | set(SETTINGS) - OF_FITS_ALONE <= step


@pytest.mark.parametrize(
    ("options", "code", "facts"),
    [
        (("--lambda-v-range", "0.1", "1e-6"), "bad-setting", ["--lambda-v", "0.1 to 1e-06"]),
        (("--lambda-v-range", "0", "1e-6"), "bad-setting", ["--lambda-v", "0.0 to 1e-06"]),
        (("--lambda-v-range", "-1", "1"), "bad-setting", ["--lambda-v", "-1.0"]),
        (
            ("--strategy", "two-stage", "--lambda-w-range", "1e-3", "1e-9"),
            "bad-setting",
            ["--lambda-w", "0.001 to 1e-09"],
        ),
        (("--strategy", "two-stage", "--lambda-w", "1e-8"), "settings-conflict", ["--lambda-w", "lambda-w-range"]),
        (("--lambda-w-range", "1e-9", "1e-3"), "settings-conflict", ["--lambda-w", "joint", "two-stage"]),
        (("--folds", "1"), "bad-setting", ["--folds", "1", "2"]),
        (("--folds", "101"), "bad-setting", ["--folds", "101", "100"]),
        (("--trials", "0"), "bad-setting", ["--trials", "0"]),
        (("--trials", "100000"), "bad-setting", ["--trials", "100000", "10000"]),
        (("--max-batches", "0"), "bad-setting", ["--max-batches", "0"]),
        (("--patience", "0"), "bad-setting", ["patience", "0"]),
        (("--least-gain", "-1"), "bad-setting", ["--least-gain", "-1.0"]),
        (("--search-tolerance", "nan"), "bad-setting", ["tolerance", "nan", "0 to 1"]),
        (("--draws", "0"), "bad-setting", ["n_draws", "0"]),
        (("--candidates", "-1"), "bad-setting", ["--candidates", "-1"]),
        (("--threads", "2", "--workers", "2"), "settings-conflict", ["--threads", "--workers"]),
    ],
)
def test_tune__wrong_use(
    options: tuple[str, ...], code: Code, facts: list[str], call: Call, example: Any, tmp_path: Path
) -> None:
    done = call("tune", example.data, "--out", tmp_path / "model.zarr", *options)
    check_failed(done, 2, code, *facts)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--rule", "worst"), "one-standard-error"),
        (("--strategy", "both"), "two-stage"),
        (("--lambda-v-range", "1"), "--lambda-v-range"),
        (("--lambda-v", "1"), "--lambda-v-range"),
    ],
)
def test_tune__values_that_options_do_not_take(
    options: tuple[str, ...], named: str, call: Call, example: Any, tmp_path: Path
) -> None:
    done = call("tune", example.data, "--out", tmp_path / "model.zarr", *options)
    assert done.exit_code == 2
    assert named in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "more", "code", "fact"),
    [
        ("lambda-v: 1e-3\n", (), "settings-conflict", "lambda-v"),
        ("n_batches: 2\n", (), "settings-conflict", "batches"),
        ("lambda-w: 1e-3\n", ("--strategy", "two-stage"), "settings-conflict", "lambda-w"),
        ("folds: 3\n", (), "unknown-key", "'folds'"),
    ],
)
def test_tune__config_may_not_fix_what_is_searched_for(
    text: str, more: tuple[str, ...], code: Code, fact: str, call: Call, example: Any, tmp_path: Path
) -> None:
    config = tmp_path / "settings.yaml"
    config.write_text(text)
    done = call("tune", example.data, "--out", tmp_path / "m.zarr", "--config", config, *more)
    check_failed(done, 2, code, config, fact)
