"""YAML files that people write: read strictly, with errors that name the file and the line."""

from __future__ import annotations

import os
from collections.abc import Hashable
from typing import Any

import yaml

from protodask.errors import InputError, StorageError


class _StrictLoader(yaml.SafeLoader):
    """The safe loader, but a key that stands twice in one mapping is an error, not a quiet replacement."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):
                if key in seen:
                    raise yaml.constructor.ConstructorError(
                        problem=f"the key {key!r} stands here a second time", problem_mark=key_node.start_mark
                    )
                seen.add(key)
        return super().construct_mapping(node, deep=deep)


def read_mapping(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The mapping of names that a YAML file holds; empty for an empty file."""
    name = os.fspath(path)
    try:
        with open(name, encoding="utf-8") as file:
            # A safe loader: it makes plain values only, never objects of classes.
            content = yaml.load(file, Loader=_StrictLoader)
    except FileNotFoundError as error:
        raise StorageError(f"There is no file {name}.", "Check the path.") from error
    except OSError as error:
        raise StorageError(
            f"The file {name} cannot be read ({error}).", "Check the path and its permissions."
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"The file {name} is not text ({error}).", "Give a YAML file in UTF-8.") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise InputError(f"The file {name} is not valid YAML ({_reason(error)}).", "Correct it there.") from error
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise InputError(f"The file {name} does not hold names and values.", "Write lines of the form `name: value`.")
    return content


def _reason(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error) or type(error).__name__
    return problem if mark is None else f"{problem}, line {mark.line + 1}"


def read_scalar(text: str) -> str | int | float | bool:
    """A single value as YAML reads it; what is no number and no truth value is text."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    return value if isinstance(value, str | int | float | bool) else text
