"""Settings as those write them who write a command or a file, and how messages name them.

The plain values of a YAML file become the fields of a record by the fields' types.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
import shlex
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import Annotated, Any, Literal, TypeVar, Union

from protodask.errors import Code, InputError
from protodask.pipeline.steps import STEPS
from protodask.pipeline.steps.base import option_of
from protodask.pipeline.steps.training import CONFIG_NAMES

Record = TypeVar("Record")

Where = Callable[[str | None], str]
"""How an error begins that is about a record, or about one of its keys: "The pipeline p.yaml, line 7, step 2 (fit)"."""


def key_of(field_name: str) -> str:
    """How a field is written in a file and on the command line."""
    return field_name.replace("_", "-")


def parse_record(kind: type[Record], values: Any, where: str | Where) -> Record:
    """A record from a mapping of keys to values; `where` begins the error messages.

    Keys may be written with hyphens or underscores. Unknown, repeated and missing keys and values of another type are
    errors; a null is as good as a missing key.
    """
    said = _said(where)
    if not isinstance(values, Mapping):
        raise InputError("bad-setting", f"{said(None)} has no keys and values.", f"Give some of {_keys(kind)}.")
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    hints = hints_of(kind)
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = str(key).replace("-", "_")
        if name not in fields:
            raise InputError(
                "unknown-key",
                f"{said(str(key))} has the unknown key {shown(key)}.",
                f"{suggestion(key_of(name), map(key_of, fields))}The keys are {_keys(kind)}.",
            )
        if name in found:
            raise InputError("named-twice", f"{said(str(key))} has the key {key_of(name)!r} twice.", "Leave one out.")
        found[name] = None if value is None else convert(value, hints[name], f"{said(str(key))}: {key_of(name)}")
        option = option_of(hints[name])
        if value is not None and option is not None and option.least is not None and found[name] < option.least:
            raise _wrong(value, f"{said(str(key))}: {key_of(name)}", f"Give {option.least:g} or more.")
    given = {name: value for name, value in found.items() if value is not None}
    if absent := [name for name, field in fields.items() if is_required(field) and name not in given]:
        raise InputError(
            "setting-missing",
            f"{said(None)} lacks the key {key_of(absent[0])!r}.",
            f"Add `{key_of(absent[0])}:` with a value to it.",
        )
    return kind(**given)


def _said(where: str | Where) -> Where:
    return (lambda _: where) if isinstance(where, str) else where


hints_of: Callable[[Any], dict[str, Any]] = cache(partial(typing.get_type_hints, include_extras=True))
"""The types of a record's fields, with what is said of them."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """What was probably meant by a name, as a sentence before others; empty where nothing is like it."""
    close = difflib.get_close_matches(name, list(known), 1)
    return f"Did you mean {close[0]}? " if close else ""


def _keys(kind: type[Any]) -> str:
    return ", ".join(key_of(field.name) for field in ordered_fields(kind))


def ordered_fields(kind: type[Any]) -> list[dataclasses.Field[Any]]:
    """The fields: those that must be given before others, and of these a record's own before inherited ones."""
    classes = [vars(one).get("__annotations__", {}) for one in kind.__mro__]

    def rank(field: dataclasses.Field[Any]) -> tuple[bool, int, int]:
        place = next(place for place, own in enumerate(classes) if field.name in own)
        return not is_required(field), place, list(classes[place]).index(field.name)

    return sorted(dataclasses.fields(kind), key=rank)


def is_required(field: dataclasses.Field[Any]) -> bool:
    """Whether a field has no default."""
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def convert(value: Any, hint: Any, where: str) -> Any:
    """A plain value as the type of a field, or an error that says what the type is."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return convert(value, arguments[0], where)
    if origin in (Union, types.UnionType):
        (inner,) = (argument for argument in arguments if argument is not type(None))
        return convert(value, inner, where)
    if origin is Literal:
        if value not in arguments:
            *first, last = map(str, arguments)
            raise _wrong(value, where, f"Choose {', '.join(first)} or {last}.", "unknown-name")
        return value
    if origin is tuple:
        if arguments[-1] is not Ellipsis and not (isinstance(value, list) and len(value) == len(arguments)):
            raise _wrong(value, where, f"Give a list of {len(arguments)} values.")
        items = value if isinstance(value, list) else [value]
        return tuple(convert(item, arguments[0], where) for item in items)
    if origin is Mapping:
        if not isinstance(value, Mapping):
            raise _wrong(value, where, "Give names, each with its values.")
        key_hint, value_hint = arguments
        found = {}
        for key, item in value.items():
            name = convert(key, key_hint, where)
            said = key if isinstance(key, str) and len(key) <= LONGEST_SHOWN else shown(key)
            found[name] = convert(item, value_hint, f"{where}: {said}")
        if len(found) < len(value):
            remedy = "Give each name once: written as text or as a number it is the same."
            raise _wrong(value, where, remedy, "named-twice")
        return found
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return parse_record(hint, value, where)
    return _convert_plain(value, hint, where)


def _convert_plain(value: Any, hint: Any, where: str) -> Any:
    match value:
        case bool() if hint is bool:
            return value
        case bool():
            pass
        case str() | int() | float() if hint is str:
            return as_written(value)
        case int() | float() if hint is float or isinstance(value, hint):
            return hint(value)
        case str() if hint is bool and value in TRUTH:
            return TRUTH[value]
        case str() if hint in (int, float) and re.fullmatch(WRITTEN[hint], value):
            return hint(value)
        case str() if hint is float and value in NO_NUMBERS:
            return NO_NUMBERS[value]
    raise _wrong(value, where, EXPECTED[hint])


NO_NUMBERS = {".inf": math.inf, "-.inf": -math.inf, ".nan": math.nan}


def as_written(value: str | int | float | bool) -> str:
    """A value of a file as it stands there: the reader makes nothing else a number or a truth value."""
    return str(value).lower() if isinstance(value, bool) else str(value)


TRUTH = {
    text: value
    for value, words in ((True, ("true", "yes", "on")), (False, ("false", "no", "off")))
    for word in words
    for text in (word, word.title(), word.upper())
}
"""What is a truth value where one is asked for."""

_DIGITS = "[0-9]+(_[0-9]+)*"
WRITTEN = {
    int: f"[-+]?{_DIGITS}",
    float: rf"[-+]?({_DIGITS}(\.([0-9]+)?)?|\.[0-9]+)([eE][-+]?[0-9]+)?",
}
"""What text is a number where one is asked for."""

EXPECTED = {
    str: "Give text, in quotation marks if need be.",
    int: "Give a whole number.",
    float: "Give a number.",
    bool: "Give true or false.",
}


def _wrong(value: Any, where: str, remedy: str, code: Code = "bad-setting") -> InputError:
    return InputError(code, f"{where} is {shown(value)}.", remedy)


def shown(value: Any) -> str:
    """A value as it stands in a message: its beginning, if it is long."""
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


LONGEST_SHOWN = 200
"""Characters."""


@cache
def _known() -> dict[str, str]:
    """Fields by how they are called inside, and by their own names. The draws of a fit and of a search are called
    alike.
    """
    return {field.name: field.name for kind in STEPS.values() for field in dataclasses.fields(kind)} | {
        "n_folds": "folds",
        "n_trials": "trials",
        "n_bins": "bins",
        "n_prototypes": "prototypes",
        "rates": "rate",
        "label": "positive",
        "C": "cost",
        **{long: name for name, long in CONFIG_NAMES.items() if long != "n_draws"},
    }


@cache
def _flags() -> dict[str, tuple[str, ...]]:
    """Options of fields that are not called like these, and those for false beside them."""
    options = {
        name: option_of(hint) for kind in STEPS.values() for name, hint in hints_of(kind).items() if name in _known()
    }
    return {name: tuple(option.flag.split("/")) for name, option in options.items() if option and option.flag}


OF_RUNS = {
    "threads": "threads",
    "memory_bytes": "memory-limit",
    "n_workers": "workers",
    "memory_limit": "memory-limit",
    "insecure": "insecure",
}
"""Options on where to compute, by arguments of engines and of Dask's clients: files have no keys for them."""

COMMANDS = {
    "sample_data": "sample-data",
    "ingest": "ingest",
    "plan": "plan",
    "fit": "fit",
    "tune": "tune",
    "calibrate_model": "calibrate",
    "predict": "predict",
    "decide_stored": "decide",
    "build_column_budget": "budget build",
    "fit_robust": "robust fit",
    "Registry.publish": "publish",
    "Registry.promote": "registry promote",
    "Registry.unalias": "registry unalias",
}
"""Commands by what Python has in their place, of all that messages name."""

_NAME = "[a-z]+(?:_[a-z]+)*"
_VALUE = r"'[^']*'|\['[^'\]]*'\]|True|False|[0-9][0-9.e+-]*"
_GIVEN = f"{_NAME}=(?:{_VALUE})"
_SETTING = re.compile(
    rf"`(?P<quoted>C|{_NAME})`|^(?P<first>C|{_NAME})(?= is (?:[-'\"0-9(\[{{]|None|True|False|nan|inf))"
    rf"|`(?P<called>(?:[A-Z][a-z]+\.)?{_NAME})\(\)`"
    rf"|(?<!in Python )(?<!like )(?<![\w'\"`./=-])(?P<given>{_GIVEN}(?:, {_GIVEN})*)(?![.+-]*[\w=(/])(?! in Python)"
)
"""Where a message means a setting: in backticks, with a value, or as what it says the value of; and where it means a
function, in backticks with parentheses. Other words may be names in data and files, which may be called like settings.
"""

_OPTION = re.compile(r"`--(?P<quoted>[a-z]+(?:-[a-z]+)*)`|`[^`]*`|(?<![\w/-])--(?P<bare>[a-z]+(?:-[a-z]+)*)(?![\w/=-])")


def as_options(text: str) -> str:
    """A message with settings as on the command line: `--unseen zero` for "unseen='zero'", `--max-fraction`,
    `--unweighted` for "weighted=False", and `protodask fit` for "`fit()`".
    """
    return _SETTING.sub(partial(_in_words, in_files=False), text)


def as_keys(text: str) -> str:
    """A message with settings as in a pipeline file: `unseen: zero` for "unseen='zero'", `max-fraction`, `new` for
    "--new"; options of a run are named as such, and commands as on the command line.
    """

    def said(found: re.Match[str]) -> str:
        key = found["quoted"] or found["bare"]
        return f"`{key}`" if key in map(key_of, _known().values()) else found[0]

    return _SETTING.sub(partial(_in_words, in_files=True), _OPTION.sub(said, text))


def _in_words(found: re.Match[str], in_files: bool) -> str:
    """What stands for a setting, several with their values, or a function."""
    if found["called"]:
        command = COMMANDS.get(found["called"])
        return found[0] if command is None else f"`protodask {command}`"
    if found["given"]:
        given = re.findall(f"({_NAME})=({_VALUE})", found["given"])
        told = [_with_value(name, value, in_files) for name, value in given]
        between = " " if not in_files and None not in told else ", "
        return between.join(one or "=".join(same) for one, same in zip(told, given, strict=True))
    name = _called(found["quoted"] or found["first"], in_files)
    if name is None:
        return found[0]
    return f"`{name}`" if found["quoted"] and not name.startswith("-") and in_files else name


def _called(name: str, in_files: bool) -> str | None:
    """A setting as an option or a key; None of what is no setting."""
    if name in OF_RUNS:
        return f"--{OF_RUNS[name]}"
    field = _known().get(name)
    if field is None or in_files:
        return field and key_of(field)
    return _flags().get(field, (f"--{key_of(field)}",))[0]


def _with_value(name: str, value: str, in_files: bool) -> str | None:
    """A setting with its value as an option or a key; None of what is none, or has none for that value."""
    name = "average_draws" if name == "n_draws" else name  # of a fit, where messages say how many
    called = _called(name, in_files)
    if called is None:
        return None
    if called.startswith("-") and value in ("True", "False"):
        return dict(zip(("True", "False"), _flags().get(_known().get(name, ""), (called,)), strict=False)).get(value)
    if called == "--memory-limit":
        value = re.sub(r"^[0-9]+", lambda amount: _mebibytes(int(amount[0])), value)
    plain = value.lower() if value in ("True", "False") else value.replace("'", "")
    return f"{called} {shlex.quote(plain.strip('[]'))}" if called.startswith("-") else f"{called}: {plain}"


def _mebibytes(amount: int) -> str:
    whole, rest = divmod(amount, 2**20)
    return str(amount) if rest else f"{whole}MiB"
