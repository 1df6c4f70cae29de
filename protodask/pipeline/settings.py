"""The settings of a fit: from a file, from what was said besides, and from the defaults."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from protodask.data.storage import is_url, locate
from protodask.errors import InputError
from protodask.pipeline.steps import FitStep
from protodask.pipeline.values import key_of, parse_record
from protodask.pipeline.yaml_file import read_mapping
from protodask.places import mask
from protodask.prototypes.config import FitConfig

CONFIG_NAMES = {"batches": "n_batches", "candidates": "n_candidates"}
"""Settings with a shorter name outside than in `FitConfig`."""


@dataclass(frozen=True)
class FitSettings:
    """The settings of a fit as files and the command line name them; None is what was not said."""

    batches: int | None = None
    candidates: int | None = None
    max_fraction: float | None = None
    lambda_v: float | None = None
    lambda_w: float | None = None
    alpha_v: float | None = None
    alpha_w: float | None = None
    standardize: bool | None = None
    precision: Literal["float32", "float64"] | None = None
    tolerance: float | None = None
    max_iterations: int | None = None
    seed: int | None = None


SETTINGS = tuple(field.name for field in fields(FitSettings))


def read_settings(path: str) -> FitSettings:
    """The settings in a YAML file. The names of `FitConfig` are understood, too."""
    short = {long: name for name, long in CONFIG_NAMES.items()}
    content = read_mapping(path)
    named = [(short.get(key.replace("-", "_"), key), value) for key, value in content.items()]
    if len({key for key, _ in named}) < len(named):
        raise InputError(f"The file {path} has a setting twice.", f"Give each of {_allowed()} once at most.")
    return parse_record(FitSettings, dict(named), f"The file {path}")


def _allowed() -> str:
    return ", ".join(map(key_of, SETTINGS))


def fit_config(step: FitStep) -> FitConfig:
    """The checked settings of a fit: the step's own before those of its file before the defaults."""
    return chosen_config(step, step.config)


def chosen_config(said: object, path: str | None) -> FitConfig:
    """The checked settings: the fields of `said` before those of the file at `path` before the defaults.

    `said` is anything with the fields of `FitSettings`, such as a step or the options of a command.
    """
    filed = FitSettings() if path is None else read_settings(path)
    chosen = {}
    for name in SETTINGS:
        own = getattr(said, name)
        value = getattr(filed, name) if own is None else own
        if value is not None:
            chosen[CONFIG_NAMES.get(name, name)] = value
    return FitConfig(**chosen)


def run_directory(out: str, run_dir: str | None) -> str:
    """Where the record goes from which a fit goes on. Refused: none is named, and there is no place beside `out`."""
    if run_dir is not None:
        return run_dir
    if is_url(locate(out)):
        raise InputError(
            f"The model goes to the URL {mask(out)}, and the record from which a fit goes on needs a local folder.",
            "Name one with --run-dir, or `run-dir` in a pipeline file.",
        )
    return f"{out.rstrip('/')}.run"
