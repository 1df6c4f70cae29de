"""Models and files by their version in a registry: `REGISTRY@champion`, `REGISTRY@7`, `REGISTRY@champion:profile`.

Such a reference may stand wherever a model, or a file that belongs to one, is read. The registry is a folder or a URL;
one in the root of a bucket is written with a slash, `s3://bucket/@champion`. A file or folder that really has an at
sign in its name is taken for itself. Light to import.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from protodask.data.places.locations import inside, is_url, locate
from protodask.data.places.registry_state import (
    FILES,
    MODEL_FOLDER,
    VERSIONS,
    Entry,
    RegistryState,
    is_name,
    read_state,
)
from protodask.errors import FormatError, InputError, ProtodaskError
from protodask.places import mask, without_user

LOOKS = 20
"""How often a place is read again that changed while it was read: more changes in a row than anyone makes."""

FORM = re.compile(
    r"(?P<registry>.+)@(?P<version>[A-Za-z0-9_-]{1,64})(:(?P<name>[A-Za-z0-9_-]{1,64}))?", re.ASCII | re.DOTALL
)

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True)
class Reference:
    """A version in a registry, by its number or by an alias, or a file that is attached to it."""

    registry: str
    version: str
    name: str | None = None
    """Of the file; None is the model."""


def split_reference(place: str) -> Reference | None:
    """The parts of a place that is written as a reference; None for all other places, and those that are there."""
    place = locate(place) if place.startswith("file://") else place
    found = FORM.fullmatch(place)
    if found is None or not (found["version"].isdigit() or is_name(found["version"])):
        return None
    registry = found["registry"]
    if is_url(place):
        # In front of the first slash, an at sign belongs to a user name.
        if "/" not in without_user(place).rpartition("@")[0]:
            return None
        registry = registry.rstrip("/")
    elif os.path.lexists(place):
        return None
    return Reference(registry, found["version"], found["name"])


def is_reference(place: str) -> bool:
    """Whether a place is written as a reference, be the registry there or not."""
    return split_reference(place) is not None


def resolve(place: str) -> str:
    """The path of the model or file that a reference means now; any other place, and one without a registry, as it is.

    An alias, a version or a file that the registry does not have is an `InputError`.
    """
    found = _look_up(place)
    if found is None:
        return place
    reference, state = found
    return place_of(reference.registry, state.entry(reference.version, reference.registry), reference.name)


def has_alias(place: str) -> bool:
    """Whether what a reference means is there; True for places that are no references.

    False also where there is no registry yet.
    """
    return not is_reference(place) or reference_fingerprint(place) is not None


def reference_fingerprint(place: str) -> str | None:
    """What identifies the content that a reference means now; None if that is not there yet, or is no reference."""
    found = _look_up(place)
    if found is None:
        return None
    reference, state = found
    try:
        entry = state.entry(reference.version, reference.registry)
    except InputError:
        return None
    if reference.name is None:
        return entry.fingerprint
    return entry.files[reference.name].digest if reference.name in entry.files else None


def follow(place: str, read: Callable[[str], T]) -> T:
    """What `read` makes of the place that a reference means.

    It is looked up again when that failed and the reference means another one by now: a version that aliases have left
    may be removed while it is read.
    """

    def read_or_explain(where: str) -> T:
        try:
            return read(where)
        except ProtodaskError as error:
            if where == place and (reference := split_reference(place)) is not None:
                raise InputError(
                    "not-found",
                    f"There is nothing at {mask(place)}, and no registry at {mask(reference.registry)}.",
                    "Check the path, or make the registry: `Registry.publish()` adds a model to it.",
                ) from error
            if where != place and not is_url(where) and not os.path.lexists(where):
                raise FormatError(
                    "not-found",
                    f"{mask(place)} means {mask(where)}, and that is not there.",
                    "Restore it from a copy, or let the alias name another version: `Registry.promote()`.",
                ) from error
            raise

    return read_while_changing(lambda: resolve(place), read_or_explain)


def read_while_changing(state: Callable[[], S], read: Callable[[S], T]) -> T:
    """What `read` makes of a state; it is read again where that failed and there is another state by now."""
    before = state()
    for _ in range(LOOKS):
        try:
            return read(before)
        except ProtodaskError:
            now = state()
            if now == before:
                raise
            before = now
    return read(before)


def check_no_version(place: str) -> None:
    """Refuse to write to what is read as a version of a registry."""
    if _look_up(place) is not None:
        raise InputError(
            "not-local",
            f"{mask(place)} means a version in a registry, and versions never change.",
            "Write to another place, and add that to the registry with `Registry.publish()`.",
        )


def place_of(registry: str, entry: Entry, name: str | None = None) -> str:
    """Where the model of a version is, or a file that is attached to it."""
    folder = inside(inside(registry, VERSIONS), entry.folder)
    if name is None:
        return inside(folder, MODEL_FOLDER)
    if name not in entry.files:
        raise InputError(
            "unknown-name",
            f"Version {entry.number} of the registry {mask(registry)} has no file {name!r}.",
            f"Its files are {', '.join(entry.files)}." if entry.files else "None were attached when it was published.",
        )
    return inside(inside(folder, FILES), entry.files[name].file)


def _look_up(place: str) -> tuple[Reference, RegistryState] | None:
    """What a place refers to, and the registry as it is; None where it is no reference, or there is no registry."""
    reference = split_reference(place)
    state = None if reference is None else read_state(reference.registry)
    return None if reference is None or state is None else (reference, state)
