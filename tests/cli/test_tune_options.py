"""The options of `protodask tune`."""

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer

from protodask.cli import app
from protodask.pipeline.settings import CONFIG_NAMES, RULES, SEARCH_NAMES, SEARCH_SETTINGS, SETTINGS
from protodask.pipeline.steps import TuneStep
from protodask.prototypes import FitConfig
from protodask.selection import SearchConfig
from protodask.selection.config import FEW_ROWS

Call = Callable[..., Any]


def test_tune__help_states_the_real_defaults() -> None:
    command: Any = typer.main.get_command(app)
    options = {option.name: option for option in command.commands["tune"].params}
    search, config, by_case = SearchConfig(), FitConfig(), {"trials", "draws"}
    real = {name: getattr(search, SEARCH_NAMES.get(name, name)) for name in SEARCH_SETTINGS if name not in by_case}
    real |= {name: getattr(config, CONFIG_NAMES.get(name, name)) for name in SETTINGS if name in options}
    for name, value in real.items():
        shown = options[name].show_default
        match value:
            case bool():
                assert (shown == name) == value
            case str():
                assert RULES.get(shown, shown) == value
            case tuple():
                assert tuple(map(float, shown.split())) == pytest.approx(value)
            case _:
                assert float(shown) == pytest.approx(value, rel=1e-3)
    each = [SearchConfig(strategy="joint").trials, SearchConfig(strategy="two-stage").trials]
    assert [int(number) for number in re.findall("[0-9]+", options["trials"].show_default)] == each
    shown = options["draws"].show_default.replace(",", "")
    assert [int(number) for number in re.findall("[0-9]+", shown)] == [search.draws(1), FEW_ROWS, search.draws(10**9)]


def test_tune__settings_are_those_of_the_search_and_of_a_fit() -> None:
    assert {SEARCH_NAMES.get(name, name) for name in SEARCH_SETTINGS} == {field.name for field in fields(SearchConfig)}
    step = {field.name for field in fields(TuneStep)}
    assert set(SEARCH_SETTINGS) | set(SETTINGS) - {"batches", "lambda_v"} <= step


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--lambda-v-range", "0.1", "1e-6"), "Give the smallest and the largest value to try, both above zero"),
        (("--lambda-v-range", "0", "1e-6"), "Give the smallest and the largest value to try, both above zero"),
        (("--lambda-v-range", "-1", "1"), "Penalties must be finite and not negative."),
        (("--strategy", "two-stage", "--lambda-w-range", "1e-3", "1e-9"), "Give the smallest and the largest value"),
        (("--strategy", "two-stage", "--lambda-w", "1e-8"), "Give lambda-w-range instead."),
        (("--lambda-w-range", "1e-9", "1e-3"), "choose the strategy two-stage"),
        (("--folds", "1"), "Give a whole number of at least 2."),
        (("--folds", "101"), "Give at most 100."),
        (("--trials", "0"), "Give a whole number of at least 1."),
        (("--trials", "100000"), "Give at most 10000."),
        (("--max-batches", "0"), "Give a whole number of at least 1."),
        (("--patience", "0"), "Give a whole number of at least 1."),
        (("--least-gain", "-1"), "Give a number that is not negative."),
        (("--search-tolerance", "nan"), "Give a relative change of the objective from 0 to 1."),
        (("--draws", "0"), "Give a whole number of at least 1."),
        (("--rule", "worst"), "one-standard-error"),
        (("--strategy", "both"), "two-stage"),
        (("--lambda-v-range", "1"), "--lambda-v-range"),
        (("--lambda-v", "1"), "--lambda-v-range"),
        (("--candidates", "0"), "Give"),
        (("--threads", "2", "--workers", "2"), "Leave it out"),
    ],
)
def test_tune__wrong_use(options: tuple[str, ...], message: str, call: Call, example: Any, tmp_path: Path) -> None:
    done = call("tune", example.data, "--out", tmp_path / "model.zarr", *options)
    assert done.exit_code == 2
    assert message in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "more", "message"),
    [
        ("lambda-v: 1e-3\n", (), "sets lambda-v, which the search chooses"),
        ("n_batches: 2\n", (), "sets batches, which the search chooses"),
        ("lambda-w: 1e-3\n", ("--strategy", "two-stage"), "sets lambda-w, which the search chooses"),
        ("folds: 3\n", (), "The keys are batches, lambda-v"),
    ],
)
def test_tune__config_may_not_fix_what_is_searched_for(
    text: str, more: tuple[str, ...], message: str, call: Call, example: Any, tmp_path: Path
) -> None:
    config = tmp_path / "settings.yaml"
    config.write_text(text)
    done = call("tune", example.data, "--out", tmp_path / "m.zarr", "--config", config, *more)
    assert done.exit_code == 2
    assert message in done.stderr
