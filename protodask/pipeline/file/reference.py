"""The reference of the steps as a document: made of their settings, so that it cannot differ from them."""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from protodask.pipeline.file.values import is_required, key_of, ordered_fields
from protodask.pipeline.steps import STEPS, Place, Step
from protodask.pipeline.steps.base import option_of, plain_hint

TITLE = """# The steps and their settings

Made by `protodask run --reference`. A setting is a key in a pipeline file and an option of the command: `lambda-v` is
`--lambda-v`. What is given without a default may be left out.
"""

TYPES = {str: "text", int: "whole number", float: "number", bool: "true or false"}


def reference() -> str:
    """The document, in Markdown."""
    return "\n".join([TITLE, *(line for step in STEPS.values() for line in _step(step))])


def in_keys(text: str) -> str:
    """What is said of options, of keys."""
    return re.sub(r"--([a-z][a-z-]*)", r"`\1`", text.removesuffix(" Repeatable."))


def _step(step: type[Step]) -> Iterator[str]:
    command = " ".join(step.words or (step.command,))
    yield f"## {step.command}\n"
    yield f"{in_keys(inspect.getdoc(step) or '')}\n"
    yield f"Command: `protodask {command}`.\n"
    yield "| setting | value | default | |"
    yield "| --- | --- | --- | --- |"
    hints = typing.get_type_hints(step, include_extras=True)
    for field in ordered_fields(step):
        said = option_of(hints[field.name])
        shown = (said and said.shown) or _default(field)
        help = "" if said is None else in_keys(said.help)
        yield f"| `{key_of(field.name)}` | {_value(hints[field.name])} | {shown} | {help.replace('|', '&#124;')} |"
    yield ""


def _default(field: dataclasses.Field[Any]) -> str:
    if is_required(field):
        return "required"
    default = field.default
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return "" if default in (None, (), dataclasses.MISSING) else f"`{default}`"


def _value(hint: Any) -> str:
    place = next((place for place in Place if _names(hint, place)), None)
    kind = _type(plain_hint(hint))
    return kind if place is None else f"{kind.replace('text', 'place')}, {place.value}"


def _names(hint: Any, place: Place) -> bool:
    return hint is place or any(_names(part, place) for part in typing.get_args(hint))


def _type(hint: Any) -> str:
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return ", ".join(f"`{choice}`" for choice in parts)
    if origin is tuple:
        return f"{_type(parts[0])}s" if parts[-1] is Ellipsis else f"{len(parts)} {_type(parts[0])}s"
    if origin is Mapping:
        return f"mapping of names to {_type(parts[1])}"
    if type(None) in parts:
        return next(_type(part) for part in parts if part is not type(None))
    if dataclasses.is_dataclass(hint):
        return " and ".join(f"`{key_of(field.name)}`" for field in dataclasses.fields(hint))
    return TYPES[hint]
