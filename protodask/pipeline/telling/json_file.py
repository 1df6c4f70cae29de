"""Results as JSON: strict, and in files whole or not at all."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from protodask.data.places.whole_files import check_file_free, replace_file


def to_json(value: Any) -> str:
    """JSON as the standard has it: what is not finite becomes null."""
    return json.dumps(_finite(value), indent=2, allow_nan=False, ensure_ascii=True)


def to_json_line(value: Any) -> str:
    """The same without line breaks and spaces to read it by; values that JSON does not have are written as text."""
    return json.dumps(_finite(value), separators=(",", ":"), allow_nan=False, ensure_ascii=True, default=str)


def to_wide_json(value: Any, width: int = 120, indent: str = "") -> str:
    """The same with whatever fits into a line in one."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=True)
    if len(indent) + len(text) < width or not isinstance(value, Mapping | list):
        return text
    within = f"{indent}  "
    if isinstance(value, Mapping):
        parts = [f"{json.dumps(key)}: {to_wide_json(item, width, within)}" for key, item in value.items()]
    else:
        parts = [to_wide_json(item, width, within) for item in value]
    opening, closing = "{}" if isinstance(value, Mapping) else "[]"
    return f"{opening}\n{within}" + f",\n{within}".join(parts) + f"\n{indent}{closing}"


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {str(key): _finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
        case _:
            return value


def write_json(path: str, value: Any, overwrite: bool) -> None:
    """Write a JSON file, whole or not at all."""
    check_file_free(path, overwrite)
    replace_file(path, to_json(value) + "\n")
