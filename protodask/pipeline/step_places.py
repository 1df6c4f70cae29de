"""What the steps read and write: which of their settings are places."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import cache, partial
from typing import Any, get_args, get_type_hints

from protodask.data.locations import is_url, locate
from protodask.data.references import split_reference
from protodask.pipeline.steps import Place, Step

_hints: Callable[[Any], dict[str, Any]] = cache(partial(get_type_hints, include_extras=True))


def settings_of_places(kind: type[Step], place: Place) -> tuple[str, ...]:
    """The settings of a step that name what it reads, or what it writes; of the latter the principal one first."""
    hints = _hints(kind)
    return tuple(field.name for field in fields(kind) if _has(hints[field.name], place))


def _has(hint: Any, place: Place) -> bool:
    return hint is place or any(_has(part, place) for part in get_args(hint))


def outputs(step: Step) -> tuple[str, ...]:
    """The places that a step writes, the principal one first: `./model/` is `model`, so that its record is found."""
    return tuple(
        place.rstrip("/") if is_url(place) else os.path.normpath(place) for place in _places(step, Place.WRITTEN)
    )


def inputs(step: Step) -> tuple[str, ...]:
    """The places that a step reads."""
    return tuple(_places(step, Place.READ))


def _places(step: Step, place: Place) -> Iterator[str]:
    for setting in settings_of_places(type(step), place):
        match getattr(step, setting):
            case None:
                pass
            case str() as named:
                yield named
            case Mapping() as places:
                yield from places.values()
            case places:
                yield from places


def holds(output: str, place: str) -> bool:
    """Whether writing `output` may change what is read at `place`: the same place, one inside it, a version in it."""
    own, other = _normal(output), _normal(place)
    return other == own or other.startswith((f"{own}/", f"{own}@"))


def _normal(place: str) -> str:
    """One text for all ways to write a place; links are followed, also that of a registry in front of a version."""
    reference = split_reference(place)
    if reference is not None:
        ending = "" if reference.name is None else f":{reference.name}"
        return f"{_normal(reference.registry)}@{reference.version}{ending}"
    where = locate(place)
    return where if is_url(where) else os.path.realpath(where).replace(os.sep, "/")
