"""The settings of a fit or a search: from a file, from what was said besides, and from the defaults."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from protodask.errors import InputError
from protodask.pipeline.file.values import key_of, ordered_fields, parse_record
from protodask.pipeline.file.yaml_file import read_mapping
from protodask.pipeline.steps.fit import FitStep
from protodask.pipeline.steps.training import CONFIG_NAMES, FitSettings, run_directory
from protodask.pipeline.steps.tune import TuneStep
from protodask.prototypes.config import FitConfig

if TYPE_CHECKING:
    from protodask.engine import Engine
    from protodask.prototypes.planning import Plan
    from protodask.selection.config import SearchConfig

SETTINGS = tuple(field.name for field in ordered_fields(FitSettings))


def read_settings(path: str) -> FitSettings:
    """The settings in a YAML file. The names of `FitConfig` are understood, too."""
    short = {long: name for name, long in CONFIG_NAMES.items()}
    content = read_mapping(path)
    named = [(short.get(key.replace("-", "_"), key), value) for key, value in content.items()]
    if len({key for key, _ in named}) < len(named):
        allowed = ", ".join(map(key_of, SETTINGS))
        raise InputError(
            "named-twice", f"The file {path} has a setting twice.", f"Give each of {allowed} once at most."
        )
    return parse_record(FitSettings, dict(named), f"The file {path}")


def fit_config(said: Any) -> FitConfig:
    """The checked settings of a fit: those that are said before those of the file `config` before the defaults.

    `said` is anything with these fields, such as a step or the options of a command.
    """
    return _merged(said, _filed(said.config), SETTINGS)


def _filed(path: str | None) -> FitSettings:
    return FitSettings() if path is None else read_settings(path)


def _merged(said: Any, filed: FitSettings, names: Iterable[str]) -> FitConfig:
    chosen = {name: getattr(filed, name) if getattr(said, name) is None else getattr(said, name) for name in names}
    given = {CONFIG_NAMES.get(name, name): value for name, value in chosen.items() if value is not None}
    return FitConfig.of(given.pop("recipe", "averaged"), **given)


SEARCH_NAMES = {
    "trials": "n_trials",
    "lambda_v_range": "lambda_v",
    "lambda_w_range": "lambda_w",
    "folds": "n_folds",
    "search_tolerance": "tolerance",
    "draws": "n_draws",
}
"""Settings of a search with another name outside than in `SearchConfig`."""


def search_config(step: TuneStep) -> SearchConfig:
    """The checked settings of a search."""
    from protodask.selection.config import SearchConfig

    outside = {inside: name for name, inside in SEARCH_NAMES.items()}
    said = {field.name: getattr(step, outside.get(field.name, field.name)) for field in fields(SearchConfig)}
    if step.rule is not None:
        said["rule"] = step.rule.replace("-", " ")  # outside rules have no spaces
    return SearchConfig(**{name: value for name, value in said.items() if value is not None})


def tuned_config(step: TuneStep, search: SearchConfig) -> FitConfig:
    """The checked settings of the fits of a search; refused are those that the search chooses."""
    joint = search.strategy == "joint"
    if joint and step.lambda_w_range is not None:
        raise InputError(
            "settings-conflict",
            "A range of `lambda_w` is given for the joint strategy, which keeps to one value.",
            "Give `lambda_w` instead, or choose the strategy two-stage.",
        )
    searched = ("lambda_v", "batches") if joint else ("lambda_v", "lambda_w", "batches")
    if not joint and step.lambda_w is not None:
        raise InputError(
            "settings-conflict",
            "A value of `lambda_w` is given, and two stages search for one.",
            "Give `lambda_w_range` instead.",
        )
    filed = _filed(step.config)
    if fixed := [name for name in searched if getattr(filed, name) is not None]:
        raise InputError(
            "settings-conflict",
            f"The file {step.config} sets {key_of(fixed[0])}, which the search chooses.",
            "Leave it out there; the ranges to try are options of the search.",
        )
    return _merged(step, filed, [name for name in SETTINGS if name not in searched])


def check_tuning(step: TuneStep) -> None:
    """Refuse settings that cannot work whatever the data."""
    search = search_config(step)
    config = tuned_config(step, search)
    search.settings(config.lambda_w, config.seed)
    run_directory(step.out, step.run_dir)


def plan_step(step: FitStep, engine: Engine) -> Plan:
    """What a step's fit will cost, by the shape of its data and a measurement of this machine."""
    from protodask.data.format.dataset import Dataset
    from protodask.prototypes.model import load_model
    from protodask.prototypes.planning import plan

    start = None if step.start is None else load_model(step.start)
    return plan(Dataset.open(step.data), fit_config(step), engine, start=start)
