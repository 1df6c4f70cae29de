"""Results as JSON: strict, and in files whole or not at all."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from protodask.data.whole_files import check_file_free, replace_file


def to_json(value: Any) -> str:
    """JSON as the standard has it: what is not finite becomes null."""
    return json.dumps(_finite(value), indent=2, allow_nan=False, ensure_ascii=True)


def to_json_line(value: Any) -> str:
    """The same without line breaks and spaces to read it by; values that JSON does not have are written as text."""
    return json.dumps(_finite(value), separators=(",", ":"), allow_nan=False, ensure_ascii=True, default=str)


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
