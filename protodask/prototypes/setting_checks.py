"""Checks of settings, as the records that hold them make when they are built."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

import numpy as np

from protodask.errors import InputError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


Settings = TypeVar("Settings")


def given_settings(kind: type[Settings], given: Settings | None) -> Settings:
    """The settings of a kind that were given, or its defaults for None; anything else is refused."""
    if given is None:
        return kind()
    if not isinstance(given, kind):
        name = kind.__name__
        raise InputError(
            "wrong-type",
            f"A {type(given).__name__} is given for a {name}.",
            f"Give {name}(...), of a dict of its settings {name}(**settings); None is its defaults.",
        )
    return given


def unwrap_numbers(settings: DataclassInstance) -> None:
    """Replace NumPy's numbers in a frozen record by Python's, so that settings can go into files."""
    for entry in fields(settings):
        value = getattr(settings, entry.name)
        if isinstance(value, np.generic):
            object.__setattr__(settings, entry.name, value.item())


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value is a number, which True and False are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_count(name: str, value: Any, least: int, most: int | None = None) -> None:
    """Refuse what is no whole number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError("bad-setting", f"{name} is {value!r}.", f"Give a whole number of at least {least}.")
    if most is not None and value > most:
        raise InputError("bad-setting", f"{name} is {value!r}.", f"Give at most {most}.")


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Refuse what is none of some names."""
    if value not in choices:
        *others, last = map(repr, choices)
        raise InputError("unknown-name", f"{name} is {value!r}.", f"Choose {', '.join(others)} or {last}.")


def check_flag(name: str, value: Any) -> None:
    """Refuse what is neither True nor False."""
    if not isinstance(value, bool):
        raise InputError("bad-setting", f"{name} is {value!r}.", "Give True or False.")


def check_range(name: str, value: Any, low: float, high: float, remedy: str) -> None:
    """Refuse what is no number from `low` to `high`."""
    if not is_number(value) or not low <= value <= high:
        raise InputError("bad-setting", f"{name} is {value!r}.", remedy)


def checked_listeners(name: str, given: Any) -> tuple[Any, ...]:
    """Functions that are told how things go; anything else is refused."""
    found = tuple(given) if isinstance(given, Iterable) else (None,)
    if not all(map(callable, found)):
        raise InputError("bad-setting", f"{name} is {given!r}.", "Give a list of functions, each of one argument.")
    return found
