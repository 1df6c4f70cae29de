"""Changing a registry: its one file is replaced in one step, by one writer at a time.

In a folder, a lock keeps a second writer waiting until the first has ended; the system drops it with a process that
dies. At a URL there are no locks. S3 replaces the file only if nobody else has done so since it was read (a conditional
write), and who is told that begins again with what is there now. So two that publish at once get numbers of their own,
and neither's move of an alias is lost. Stores of other kinds know no such write here, and S3 servers of other makers
may leave the condition aside: there the file is looked at just before and once more after it was written, which catches
all but a second writer that read before this one wrote and writes after its last look. Its publication then takes the
place of the first one, whose version is gone; so let one at a time write to a registry in such a store.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from protodask.data.places.bounded import read_object
from protodask.data.places.conditional import Tag, replace_object, tag_of
from protodask.data.places.local_files import place_aside
from protodask.data.places.locations import inside, is_url, list_names, storage_errors
from protodask.data.places.locks import sole_writer
from protodask.data.places.registry_state import (
    FOLDER,
    REGISTRY_FILE,
    VERSIONS,
    RegistryState,
    parse_state,
    read_state,
    require_state,
    to_bytes,
)
from protodask.data.places.storage import remove_inside
from protodask.data.places.whole_files import write_whole
from protodask.errors import InputError, ProtodaskError, StorageError
from protodask.places import mask

LOCK_SECONDS = 60.0
"""How long a writer waits for another one: publishing takes seconds."""

LOOK_SECONDS = 0.05

TRIES = 20
"""How often a change is begun again because others changed the registry meanwhile."""


def create(place: str) -> RegistryState:
    """Make a registry where there is nothing, or an empty folder; one that is there stays as it is."""
    found = read_state(place)
    if found is not None:
        return found
    _check_empty(place)
    with writing(place):
        tag = tag_of(place, REGISTRY_FILE)
        state = read_state(place)
        if state is None:
            _check_empty(place)
            state = RegistryState()
            if not _replaced(place, None, state, tag):
                state = require_state(place)
    return state


def _check_empty(place: str) -> None:
    with storage_errors(place, "looking at"):
        if not is_url(place) and os.path.lexists(place) and not os.path.isdir(place):
            raise InputError("wrong-kind", f"{place} is not a folder.", "Give a registry a folder of its own.")
        # Beside the file there may be its lock, and what a killed process left of it.
        strangers = [name for name in list_names(place) if not name.startswith(f".{REGISTRY_FILE}.")]
        if strangers and read_state(place) is None:
            raise InputError(
                "wrong-kind",
                f"{mask(place)} is no registry, and it holds other things, such as {strangers[0]!r}.",
                "Give a registry a folder of its own.",
            )


def change(place: str, changed: Callable[[RegistryState], RegistryState]) -> tuple[RegistryState, RegistryState]:
    """Change the state of a registry; the states before and after.

    `changed` may write the folder of a version that it adds. It is called again, with the state as it is then, when
    somebody else changed the registry meanwhile. What nobody lists is removed afterwards.
    """
    require_state(place)
    with writing(place):
        if not is_url(place):
            _remove_unlisted(place, require_state(place))
        for _ in range(TRIES):
            # The tag is read first: if the state is newer than it, the condition fails and all begins anew.
            tag = tag_of(place, REGISTRY_FILE)
            with storage_errors(place, "reading"):
                content = read_object(place, REGISTRY_FILE)
            before = require_state(place) if content is None else parse_state(content, place)
            try:
                after = changed(before)
            except ProtodaskError:
                # What was being written may have been removed by a writer that got its number.
                if is_url(place) and require_state(place) != before:
                    continue
                raise
            if after == before or _replaced(place, content, after, tag):
                with suppress(OSError, StorageError):  # what cannot be removed now, the next writer removes
                    _remove_unlisted(place, after)
                return before, after
    raise StorageError(
        "written-by-another",
        f"Others changed the registry {mask(place)} {TRIES} times in a row.",
        "Wait until they are done, and repeat.",
    )


@contextmanager
def writing(place: str) -> Iterator[None]:
    """Keep other writers waiting; at a URL nobody can be kept from writing."""
    if is_url(place):
        yield
        return
    with storage_errors(place, "writing"):
        os.makedirs(place, exist_ok=True)
    file = os.path.join(os.path.realpath(place), REGISTRY_FILE)
    deadline = time.monotonic() + LOCK_SECONDS
    with ExitStack() as held:
        while True:
            try:
                held.enter_context(sole_writer(file))
                break
            except StorageError as error:
                if not isinstance(error.__cause__, BlockingIOError) or time.monotonic() > deadline:
                    raise
                time.sleep(LOOK_SECONDS)
        yield


def remove_folder(place: str, name: str) -> None:
    """Remove the folder of a version."""
    remove_inside(inside(place, VERSIONS), name)


def _remove_unlisted(place: str, state: RegistryState) -> None:
    """Remove versions that do not count: never finished, or removed from the list.

    At a URL a living writer may be at work in the folder of a higher number than any that was given out. One of a
    number that was given out to somebody else is lost to its writer in any case, who will begin again.
    """
    listed = {entry.folder for entry in state.entries.values()}
    for name in list_names(place, VERSIONS):
        found = FOLDER.fullmatch(name)
        if found is not None and name not in listed and (not is_url(place) or int(found[1]) <= state.last):
            remove_folder(place, name)


def _replaced(place: str, before: bytes | None, state: RegistryState, tag: Tag) -> bool:
    """Replace the file with this content; False if somebody else did meanwhile."""
    content = to_bytes(state.describe())
    with storage_errors(place, "writing"):
        if is_url(place):
            return replace_object(place, REGISTRY_FILE, before, content, tag)
        file = os.path.join(os.path.realpath(place), REGISTRY_FILE)
        write_whole(file, place_aside(file), [content])
        return True
