"""YAML files that people write: read strictly, with errors that name the file and the line.

Somebody else may have written them, so their size is bounded, also once aliases are followed: a few lines of aliases of
aliases can stand for more values than there is memory.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

import yaml

from protodask.data.places.bounded import open_named, read_bounded
from protodask.data.places.locations import is_url
from protodask.errors import InputError, ProtodaskError, StorageError
from protodask.places import mask

MAX_YAML_BYTES = 2**18
"""A pipeline of a thousand steps is smaller; parsing this much takes seconds."""

MAX_YAML_SIZE = 2**20
"""Characters and values of a file once all aliases are followed."""

LONGEST_NUMBER = 100
"""Digits: reading numbers takes time that grows with the square, and Python refuses those of thousands of digits."""

NO_TEXT = re.compile("[\x00\ud800-\udfff]")
"""What escapes such as "\\0" and "\\ud800" can put into a text, and no system takes in the name of a file."""


class _AsWritten(yaml.SafeLoader):
    """The safe loader, but what stands without quotation marks is a number or a truth value only if it is written as
    these are shown: all else stays text as it stands there, for the setting that it is given to.

    YAML 1.1 takes 01 for 1, 2024_10 for 202410, 12:30 for 750, and on for true.
    """

    yaml_implicit_resolvers = {}  # noqa: RUF012

    def construct_number(self, node: yaml.ScalarNode) -> int | float | str:
        """The number, or the text where the number is shown otherwise."""
        text = str(node.value)
        found: int | float = float(text) if "." in text else int(text)
        return found if str(found) == text else text


_NUMBER_TAG = "tag:yaml.org,2002:protodask-number"
_AsWritten.add_constructor(_NUMBER_TAG, _AsWritten.construct_number)
for _tag, _pattern, _first in (
    (_NUMBER_TAG, r"-?[0-9]+(\.[0-9]+(e[-+][0-9]+)?)?", "-0123456789"),
    ("tag:yaml.org,2002:bool", "true|false", "tf"),
    ("tag:yaml.org,2002:null", "~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:merge", "<<", "<"),
):
    _AsWritten.add_implicit_resolver(_tag, re.compile(rf"(?:{_pattern})\Z"), list(_first))


@dataclass(frozen=True)
class Document:
    """What a YAML file holds, and where it stands there."""

    path: str
    content: dict[str, Any]
    node: yaml.Node | None
    """None for an empty file."""

    def line(self, *keys: str | int) -> int:
        """The line, from 1, of the value that keys and positions in lists lead to, or of the last that is there."""
        node = self.node
        if node is None:
            return 1
        found: int = node.start_mark.line
        for key in keys:
            match node:
                case yaml.MappingNode():
                    pairs = [pair for pair in node.value if pair[0].value == key]
                    if not pairs:
                        break
                    found, node = pairs[-1][0].start_mark.line, pairs[-1][1]  # before it are those that are merged
                case yaml.SequenceNode() if isinstance(key, int) and key < len(node.value):
                    node = node.value[key]
                    found = node.start_mark.line
                case _:
                    break
        return found + 1


Loader = type[yaml.SafeLoader]


def read_mapping(path: str | os.PathLike[str], loader: Loader = _AsWritten) -> dict[str, Any]:
    """The mapping of names that a YAML file holds; empty for an empty file.

    Files that are written for other programs are read like those do, with `yaml.SafeLoader`.
    """
    return read_document(path, loader).content


def read_document(path: str | os.PathLike[str], loader: Loader = _AsWritten) -> Document:
    """The mapping of names that a YAML file holds, with its lines."""
    name = os.fspath(path)
    if is_url(name):
        raise InputError(
            "not-local", f"{mask(name)} is no file on this machine.", "Copy it to a local folder, and name it there."
        )
    try:
        with open_named(name) as file:
            content, node = _load(read_bounded(file, MAX_YAML_BYTES, name).decode(), loader)
    except ProtodaskError:
        raise
    except FileNotFoundError as error:
        raise StorageError("not-found", f"There is no file {name}.", "Check the path.") from error
    except OSError as error:
        raise StorageError(
            "unreadable", f"The file {name} cannot be read ({error}).", "Check the path and its permissions."
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(
            "unreadable", f"The file {name} is not text ({error}).", "Give a YAML file in UTF-8."
        ) from error
    except _FAULTS as error:
        raise InputError(
            "unreadable", f"The file {name} is not valid YAML ({_reason(error)}).", "Correct it there."
        ) from error
    if content is None:
        return Document(name, {}, None)
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise InputError(
            "wrong-kind", f"The file {name} does not hold names and values.", "Write lines of the form `name: value`."
        )
    return Document(name, content, node)


# What PyYAML raises where a value does not fit its tag, as `!!bool maybe` or the 31st of June, is of many kinds.
_FAULTS = (yaml.YAMLError, RecursionError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError)


def _load(text: str, kind: Loader) -> tuple[Any, yaml.Node | None]:
    # A safe loader: it makes plain values only, never objects of classes.
    loader = kind(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None, None
        _check(node, {}, set())
        return loader.construct_document(node), node
    finally:
        loader.dispose()


def _check(node: yaml.Node, sizes: dict[int, int], above: set[int]) -> int:
    """Characters and values of a node and all below it, each alias counted as what it stands for.

    A key that stands twice in one mapping is refused: the first would be replaced quietly.
    """
    number = id(node)
    if number in above:
        raise _fault(node, "it contains itself")
    if number in sizes:
        return sizes[number]
    match node:
        case yaml.MappingNode():
            parts = [part for pair in node.value for part in pair]
            seen: set[tuple[str, str]] = set()
            for key in (pair[0] for pair in node.value if isinstance(pair[0], yaml.ScalarNode)):
                if (key.tag, key.value) in seen:
                    raise _fault(key, f"the key {key.value!r} stands here a second time")
                seen.add((key.tag, key.value))
        case yaml.SequenceNode():
            parts = node.value
        case _:
            parts = []
            if NO_TEXT.search(node.value):
                raise _fault(node, "a text has a character that no path and no name can have")
            if node.tag.endswith(("int", "float", "number")) and len(node.value) > LONGEST_NUMBER:
                raise _fault(node, "a number is too long")
    above.add(number)
    size = 1 + (0 if parts else len(node.value)) + sum(_check(part, sizes, above) for part in parts)
    above.remove(number)
    if size > MAX_YAML_SIZE:
        raise _fault(node, f"with its aliases it stands for more than {MAX_YAML_SIZE} characters and values")
    sizes[number] = size
    return size


def _fault(node: yaml.Node, problem: str) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(problem=problem, problem_mark=node.start_mark)


def _reason(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error) or type(error).__name__
    return problem if mark is None else f"{problem}, line {mark.line + 1}"
