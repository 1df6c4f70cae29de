"""The reference of the steps as a document: made of their settings, so that it cannot differ from them."""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from protodask.pipeline.file.places import names
from protodask.pipeline.file.values import is_required, key_of, ordered_fields
from protodask.pipeline.steps import STEPS
from protodask.pipeline.steps.base import Option, Place, Step, option_of, plain_hint

TITLE = """# The steps and their settings

Made by `protodask run --reference`. A setting is a key in a pipeline file and an option of the command: `lambda-v` is
`--lambda-v`. What has no default may be left out, unless it is required. Places are paths or URLs.
"""

TYPES = {str: "text", int: "whole number", float: "number", bool: "true or false"}


def reference() -> str:
    """The document, in Markdown."""
    contents = ", ".join(f"[{name}](#{name})" for name in STEPS)
    return "\n".join([TITLE, f"{contents}\n", *(line for step in STEPS.values() for line in _step(step))])


def in_keys(text: str) -> str:
    """What is said of options, of keys; what is quoted stays as it is."""
    parts = text.removesuffix(" Repeatable.").split("`")
    parts[::2] = [re.sub(r"--([a-z][a-z-]*)", r"`\1`", part) for part in parts[::2]]
    return "`".join(parts)


def told_in_files(said: Option, hint: Any) -> str:
    """What there is to say of a setting to those who write a file."""
    text = in_keys(said.help) if said.in_files is None else said.in_files
    yes, separator, no = (said.flag or "").replace("--", "").partition("/")
    return f"{text} true: {yes}, false: {no}." if separator and bool in (hint, *typing.get_args(hint)) else text


def default_in_files(said: Option | None, field: dataclasses.Field[Any], hint: Any) -> str:
    """The default as it is written in a file, or in words where it depends on the data; empty if there is none."""
    default = field.default
    if isinstance(default, bool):
        return str(default).lower()
    if default not in (None, (), dataclasses.MISSING):
        return str(default)
    shown = "" if said is None or said.shown is None else said.shown
    if shown and bool in typing.get_args(hint) and said is not None:
        return str((said.flag or "").startswith(f"--{shown}/")).lower()
    if shown and any(typing.get_origin(part) is tuple for part in typing.get_args(hint)):
        return f"[{', '.join(shown.split())}]"
    return shown


def _step(step: type[Step]) -> Iterator[str]:
    yield f"## {step.command}\n"
    yield f"{in_keys(inspect.getdoc(step) or '')}\n"
    yield f"Command: `protodask {' '.join(step.command_words())}`.\n"
    yield "| setting | value | default | meaning |"
    yield "| --- | --- | --- | --- |"
    hints = typing.get_type_hints(step, include_extras=True)
    for field in ordered_fields(step):
        hint = hints[field.name]
        said, plain = option_of(hint), plain_hint(hint)
        default = "required" if is_required(field) else default_in_files(said, field, plain)
        meaning = "" if said is None else told_in_files(said, plain).replace("|", "&#124;")
        yield f"| `{key_of(field.name)}` | {_value(hint)} | {default} | {meaning} |"
    yield ""


def _value(hint: Any) -> str:
    place = next((place for place in Place if names(hint, place)), None)
    kind = _type(plain_hint(hint))
    return kind if place is None else f"{kind.replace('text', 'place')}, {place.value}"


def _type(hint: Any) -> str:
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return ", ".join(f"`{choice}`" for choice in parts)
    if origin is tuple:
        return f"list of {_type(parts[0])}" if parts[-1] is Ellipsis else f"list of {len(parts)} numbers"
    if origin is Mapping:
        return f"mapping of names to {_type(parts[1])}"
    if type(None) in parts:
        return next(_type(part) for part in parts if part is not type(None))
    if dataclasses.is_dataclass(hint):
        return " and ".join(f"`{key_of(field.name)}`" for field in dataclasses.fields(hint))
    return TYPES[hint]
