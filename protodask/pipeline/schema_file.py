"""The JSON Schema of pipeline files, for editors: made of the steps' settings, so that it cannot differ from them."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args

from protodask.pipeline.definition import NAME, STEP_NAME, Overlap
from protodask.pipeline.notify import Notify
from protodask.pipeline.steps import STEPS
from protodask.pipeline.values import TRUTH, WRITTEN, is_required, key_of, ordered_fields

DIALECT = "https://json-schema.org/draft/2020-12/schema"

FILLED = {"type": "string", "pattern": r"\$\{[^{}]+\}"}
"""A value that a variable, or the output of a step, is put into."""

PLAIN: Mapping[Any, dict[str, Any]] = {
    str: {"type": ["string", "integer", "number"]},
    int: {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": f"^({WRITTEN[int]})$"}]},
    float: {"anyOf": [{"type": "number"}, {"type": "string", "pattern": f"^({WRITTEN[float]}|-?[.]inf|[.]nan)$"}]},
    bool: {"enum": [True, False, *TRUTH]},
}


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
            "steps": {"type": "array", "minItems": 1, "items": {"oneOf": [_step(kind) for kind in STEPS]}},
        },
        "$defs": {kind: _record(record) for kind, record in STEPS.items()},
    }


def _step(kind: str) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [kind],
        "properties": {
            "name": {"type": "string", "pattern": f"^{STEP_NAME.pattern}$"},
            kind: {"$ref": f"#/$defs/{kind}"},
        },
    }


def _record(record: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(record)
    fields = ordered_fields(record)
    required = [key_of(field.name) for field in fields if is_required(field)]
    return {
        "type": "object",
        "description": " ".join((inspect.getdoc(record) or "").split()),
        "additionalProperties": False,
        **({"required": required} if required else {}),
        "properties": {key_of(field.name): _property(field, hints[field.name]) for field in fields},
    }


def _property(field: dataclasses.Field[Any], hint: Any) -> dict[str, Any]:
    schema = _value(hint)
    if not is_required(field):
        schema = {"anyOf": [schema, {"type": "null"}]}  # as good as a missing key
    if field.default not in (dataclasses.MISSING, None) and not isinstance(field.default, tuple):
        schema = {**schema, "default": field.default}
    return schema


def _value(hint: Any) -> dict[str, Any]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        (inner,) = (argument for argument in arguments if argument is not type(None))
        return _value(inner)
    if origin is Literal:
        return {"anyOf": [{"enum": list(arguments)}, FILLED]}
    if origin is tuple:
        item = _value(arguments[0])
        if arguments[-1] is not Ellipsis:
            return {"type": "array", "items": item, "minItems": len(arguments), "maxItems": len(arguments)}
        return {"anyOf": [{"type": "array", "items": item}, item]}
    if origin is Mapping:
        return {"type": "object", "additionalProperties": _value(arguments[1])}
    if dataclasses.is_dataclass(hint):
        return _record(hint)  # type: ignore[arg-type]
    return {"anyOf": [PLAIN[hint], FILLED]}
