"""Pipeline files: steps in order, with variables; checked as a whole before anything is done."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from protodask.errors import InputError
from protodask.pipeline.steps import STEPS, Step
from protodask.pipeline.values import parse_record, shown
from protodask.pipeline.yaml_file import read_mapping, read_scalar

Variable = str | int | float | bool

KEYS = ("description", "variables", "steps")

REFERENCE = re.compile(r"\$\{([^{}]*)\}")
LONGEST_TEXT = 2**16
"""Characters of a text with its variables put in: variables that hold each other ten times grow without end."""

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Pipeline:
    """The steps of a pipeline file, with the values of its variables put in."""

    path: str
    description: str
    variables: Mapping[str, Variable]
    steps: tuple[Step, ...]


def read_pipeline(path: str, settings: Mapping[str, Variable] | None = None) -> Pipeline:
    """Read a pipeline file; `settings` take the place of the values it gives its variables."""
    content = read_mapping(path)
    if unknown := [key for key in content if key not in KEYS]:
        raise InputError(
            f"The pipeline {path} has the unknown key {shown(unknown[0])}.", f"The keys are {', '.join(KEYS)}."
        )
    description = content.get("description", "")
    if not isinstance(description, str):
        raise InputError(f"The pipeline {path}: description is {shown(description)}.", "Give text.")
    variables = _variables(content.get("variables"), settings or {}, path)
    steps = content.get("steps")
    if not isinstance(steps, list) or not steps:
        raise InputError(f"The pipeline {path} has no steps.", "Add a list `steps:` of what is to be done.")
    try:
        parsed = tuple(
            _step(step, variables, f"The pipeline {path}, step {number}") for number, step in enumerate(steps, 1)
        )
    except RecursionError as error:
        raise InputError(f"The pipeline {path} contains itself.", "Remove the alias that leads back.") from error
    return Pipeline(path, description.strip(), variables, parsed)


def _variables(content: Any, settings: Mapping[str, Variable], path: str) -> dict[str, Variable]:
    given = {} if content is None else content
    where = f"The pipeline {path}: variables"
    if not isinstance(given, Mapping):
        raise InputError(f"{where} are {shown(given)}.", "Give names and values.")
    if unknown := [name for name in settings if name not in given]:
        raise InputError(
            f"The pipeline {path} has no variable {unknown[0]!r}.",
            f"Its variables are {', '.join(map(str, given))}." if given else "It has no variables to set.",
        )
    found: dict[str, Variable] = {}
    for name, default in given.items():
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise InputError(f"{where} have the name {shown(name)}.", "Use letters, digits and underscores.")
        value = settings.get(name, default)
        if not isinstance(value, str | int | float | bool):
            raise InputError(f"{where}: {name} is {shown(value)}.", "Give text, a number, or true or false.")
        found[name] = _fill(value, found, f"{where}: {name}")
    return found


def _step(content: Any, variables: Mapping[str, Variable], where: str) -> Step:
    remedy = f"Begin it with the name of one step: {', '.join(STEPS)}."
    if not isinstance(content, Mapping) or len(content) != 1:
        raise InputError(f"{where} is not one step with its settings.", remedy)
    ((name, values),) = content.items()
    if name not in STEPS:
        raise InputError(f"{where} is the unknown {shown(name)}.", remedy)
    return parse_record(STEPS[name], _fill(values, variables, f"{where} ({name})"), f"{where} ({name})")


def _fill(value: Any, variables: Mapping[str, Variable], where: str) -> Any:
    """The value with its `${name}` replaced; a text that is nothing but `${name}` takes the variable's type."""
    match value:
        case str():
            whole = REFERENCE.fullmatch(value)
            if whole:
                return _lookup(whole[1], variables, where)
            parts = [str(_lookup(found[1], variables, where)) for found in REFERENCE.finditer(value)]
            if len(value) + sum(map(len, parts)) > LONGEST_TEXT:
                raise InputError(
                    f"{where} becomes a text of more than {LONGEST_TEXT} characters.",
                    "Use shorter variables, or fewer of them in one text.",
                )
            following = iter(parts)
            return REFERENCE.sub(lambda _: next(following), value)
        case Mapping():
            return {key: _fill(item, variables, where) for key, item in value.items()}
        case list():
            return [_fill(item, variables, where) for item in value]
        case _:
            return value


def _lookup(name: str, variables: Mapping[str, Variable], where: str) -> Variable:
    if name not in variables:
        known = (
            f"The variables known there are {', '.join(variables)}." if variables else "Define it under `variables:`."
        )
        raise InputError(f"{where} uses the unknown variable {shown(name)}.", known)
    return variables[name]


def parse_settings(settings: Sequence[str]) -> dict[str, Variable]:
    """Values of variables from texts "name=value", each value read as it would be in the file."""
    found: dict[str, Variable] = {}
    for setting in settings:
        name, separator, text = setting.partition("=")
        if not separator or not name:
            raise InputError(f"{setting!r} sets no variable.", "Write it like rows=1000.")
        if name in found:
            raise InputError(f"The variable {name!r} is set twice.", "Set it once.")
        found[name] = read_scalar(text)
    return found
