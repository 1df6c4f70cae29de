"""What is made of the steps' settings, so that it cannot differ from them: their reference for people, and the JSON
Schema of pipeline files for editors.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from inspect import getdoc
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from protodask.pipeline.file.definition import NAME, STEP_NAME, Overlap
from protodask.pipeline.file.places import names
from protodask.pipeline.file.values import TRUTH, WRITTEN, as_written, hints_of, is_required, key_of, ordered_fields
from protodask.pipeline.steps import STEPS
from protodask.pipeline.steps.base import Option, Place, Step, option_of, plain_hint
from protodask.pipeline.telling.notify import Notify
from protodask.pipeline.telling.result import to_wide_json

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
    return f"{text} true: {yes}, false: {no}." if separator and bool in (hint, *get_args(hint)) else text


def default_in_files(said: Option | None, field: Field[Any], hint: Any) -> str:
    """The default as it is written in a file, or in words where it depends on the data; empty if there is none."""
    if field.default not in (None, (), MISSING):
        return as_written(field.default)
    if said is None or said.shown is None:
        return ""
    if bool in get_args(hint):
        return as_written((said.flag or "").startswith(f"--{said.shown}/"))
    if any(get_origin(part) is tuple for part in get_args(hint)):
        return f"[{', '.join(said.shown.split())}]"
    return said.shown


def _step(step: type[Step]) -> Iterator[str]:
    yield f"## {step.command}\n"
    yield f"{in_keys(getdoc(step) or '')}\n"
    yield f"Command: `protodask {' '.join(step.command_words())}`.\n"
    yield "| setting | value | default | meaning |"
    yield "| --- | --- | --- | --- |"
    hints = hints_of(step)
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
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Literal:
        return ", ".join(f"`{choice}`" for choice in parts)
    if origin is tuple:
        return f"list of {_type(parts[0])}" if parts[-1] is Ellipsis else f"list of {len(parts)} numbers"
    if origin is Mapping:
        return f"mapping of names to {_type(parts[1])}"
    if type(None) in parts:
        return next(_type(part) for part in parts if part is not type(None))
    if is_dataclass(hint):
        return " and ".join(f"`{key_of(field.name)}`" for field in fields(hint))
    return TYPES[hint]


DIALECT = "https://json-schema.org/draft/2020-12/schema"

FILLED = {"$ref": "#/$defs/filled"}
"""A value that a variable, or the output of a step, is put into."""

PLAIN: Mapping[Any, tuple[str, dict[str, Any]]] = {
    str: ("text", {"type": ["string", "integer", "number"]}),
    int: ("integer", {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": f"^({WRITTEN[int]})$"}, FILLED]}),
    float: (
        "number",
        {"anyOf": [{"type": "number"}, {"type": "string", "pattern": f"^({WRITTEN[float]}|-?[.]inf|[.]nan)$"}, FILLED]},
    ),
    bool: ("truth", {"anyOf": [{"enum": [True, False, *TRUTH]}, FILLED]}),
}
"""Values of one type, and what they are called here."""

OPTIONAL = "-or-nothing"
"""Ending of the name of what may be null, which is as good as a missing key."""


def pipeline_schema() -> dict[str, Any]:
    """The schema of a pipeline file."""
    return {
        "$schema": DIALECT,
        "title": "protodask pipeline",
        "description": "Steps that `protodask run` carries out in order.",
        "type": "object",
        "additionalProperties": False,
        "required": ["steps"],
        "properties": {
            "description": {"type": "string", "description": "What the pipeline is for."},
            "variables": {
                "type": "object",
                "description": "Names and values that ${name} stands for. --set name=value replaces a value, and "
                "so does the environment variable PROTODASK_VAR_name.",
                "propertyNames": {"pattern": f"^{NAME.pattern}$"},
                "additionalProperties": {"type": ["string", "number", "boolean"]},
            },
            "state": {"type": "string", "description": "Folder where runs remember what they did."},
            "overlap": {
                "enum": list(get_args(Overlap)),
                "description": "What a run does while another one is under way: fail, wait, or end without a failure.",
            },
            "notify": {
                "anyOf": [_record(Notify), {"type": "null"}],
                "description": "Where to send word of runs that fail, and of gates that say no.",
            },
            "steps": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "additionalProperties": False,
                    "if": {"required": ["name"]},  # besides its name it is one step
                    "then": {"minProperties": 2, "maxProperties": 2},
                    "else": {"minProperties": 1, "maxProperties": 1},
                    "properties": {
                        "name": {"type": "string", "pattern": f"^{STEP_NAME.pattern}$"},
                        **{kind: _named(f"step-{kind}") for kind in STEPS},
                    },
                },
            },
        },
        "$defs": {
            **_with_common_settings({f"step-{kind}": _record(record) for kind, record in STEPS.items()}),
            "filled": {"type": "string", "pattern": r"\$\{[^{}]+\}"},
            **dict(PLAIN.values()),
            "texts": _one_or_more(str),
            **{
                f"{name}{OPTIONAL}": _or_nothing(_named(name))
                for name in (*(name for name, _ in PLAIN.values()), "texts")
            },
        },
    }


def schema_text() -> str:
    """The schema as a file."""
    return to_wide_json(pipeline_schema()) + "\n"


def _with_common_settings(records: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """The records, and beside them what they have in common: settings that are the same in several."""
    texts = Counter(
        (key, json.dumps(value)) for record in records.values() for key, value in record["properties"].items()
    )
    common: dict[str, Any] = {}
    for record in records.values():
        for key, value in record["properties"].items():
            if texts[key, json.dumps(value)] > 1:
                name = f"several-{key}"
                if common.setdefault(name, value) == value:
                    record["properties"][key] = _named(name)
    return {**records, **common}


def _record(record: type[Any]) -> dict[str, Any]:
    hints = hints_of(record)
    fields = ordered_fields(record)
    required = [key_of(field.name) for field in fields if is_required(field)]
    return {
        "type": "object",
        "description": in_keys(" ".join((getdoc(record) or "").split())),
        "additionalProperties": False,
        **({"required": required} if required else {}),
        "properties": {key_of(field.name): _property(field, hints[field.name]) for field in fields},
    }


def _property(field: Field[Any], hint: Any) -> dict[str, Any]:
    said = option_of(hint)
    plain = plain_hint(hint)
    described = {} if said is None else {"description": told_in_files(said, plain)}
    if said is not None and said.shown is not None:
        described["description"] += f" By default: {default_in_files(said, field, plain)}."
    schema = _schema_of(plain)
    if not is_required(field):
        reference = schema.get("$ref")
        schema = _or_nothing(schema) if reference is None else {"$ref": f"{reference}{OPTIONAL}"}
    least = {} if said is None or said.least is None else {"minimum": said.least}
    usual = [*field.default] if isinstance(field.default, tuple) else field.default
    default = {} if usual in (MISSING, None, []) else {"default": usual}
    return {**described, **default, **least, **schema}


def _named(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


def _or_nothing(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _one_or_more(hint: Any) -> dict[str, Any]:
    item = _schema_of(hint)
    return {"anyOf": [{"type": "array", "items": item}, item]}


def _schema_of(hint: Any) -> dict[str, Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        (inner,) = (argument for argument in arguments if argument is not type(None))
        return _schema_of(inner)
    if origin is Literal:
        return {"anyOf": [{"enum": list(arguments)}, FILLED]}
    if origin is tuple:
        if arguments[-1] is not Ellipsis:
            ends = len(arguments)
            return {"type": "array", "items": _schema_of(arguments[0]), "minItems": ends, "maxItems": ends}
        return _named("texts") if arguments[0] is str else _one_or_more(arguments[0])
    if origin is Mapping:
        return {"type": "object", "additionalProperties": _schema_of(arguments[1])}
    if is_dataclass(hint):
        return _record(hint)  # type: ignore[arg-type]
    return _named(PLAIN[hint][0])
