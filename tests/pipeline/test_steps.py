"""Commands, steps and settings say the same."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer

from protodask.cli import app
from protodask.pipeline.settings import SETTINGS
from protodask.pipeline.steps import CONFIG_NAMES, STEPS, FitStep
from protodask.prototypes import FitConfig

NOT_OF_STEPS = {
    *("memory_limit", "threads", "scheduler", "workers", "tls_ca", "tls_cert", "tls_key", "insecure"),
    *("detach", "as_json", "debug", "help"),
    "append",  # which a pipeline would repeat
}

COMMANDS = {
    "budget": ("budget", "build"),
    **{f"robust-{name}": ("robust", name) for name in ("fit", "predict", "evaluate")},
}
"""Of steps that are called otherwise than their command."""

README = Path(__file__).parents[2] / "pipelines" / "README.md"


@pytest.mark.parametrize("name", STEPS)
def test_steps__have_the_options_of_their_commands(name: str) -> None:
    command: Any = typer.main.get_command(app)
    for part in COMMANDS.get(name, (name,)):
        command = command.commands[part]
    options = {option.name for option in command.params}
    assert {field.name for field in fields(STEPS[name])} == options - NOT_OF_STEPS


@pytest.mark.parametrize("name", STEPS)
def test_steps__are_documented_with_all_settings(name: str) -> None:
    (line,) = (line for line in README.read_text().splitlines() if line.startswith(f"| `{name}`"))
    named = {part for part in line.split("`") if part and part[0].isalpha()} - {name}
    assert named == {field.name.replace("_", "-") for field in fields(STEPS[name])}


def test_settings__are_those_of_a_fit() -> None:
    assert {CONFIG_NAMES.get(name, name) for name in SETTINGS} == {
        "recipe",
        *(field.name for field in fields(FitConfig)),
    }
    assert set(SETTINGS) <= {field.name for field in fields(FitStep)}
