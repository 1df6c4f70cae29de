"""Where a dataset or the like lies: the attributes of its group, and publishing it whole or not at all.

Light to import: who asks what lies at a place need not wait for NumPy, Zarr and Dask.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from protodask.data.places.bounded import parse_json, read_json, read_object
from protodask.data.places.generations import (
    ROOT,
    generation_in,
    group_content,
    holds_something,
    named_generation,
    new_generation,
    remove_group,
    remove_replaced,
)
from protodask.data.places.local_files import (
    delete,
    flush,
    flush_handle,
    make_durable,
    place_aside,
    put_in_place,
    remove,
)
from protodask.data.places.locations import (
    check_writable,
    gone,
    inside,
    is_url,
    storage_errors,
    write_object,
    written_over,
)
from protodask.data.places.locks import sweep, writing_alone
from protodask.data.places.records import Kind
from protodask.data.places.references import LOOKS, check_no_version, read_while_changing
from protodask.errors import FormatError, InputError, OutputExistsError, ProtodaskError, StorageError
from protodask.places import mask, mask_text

T = TypeVar("T")


def read_attributes(path: str) -> object:
    """The attributes of the group at `path`, unchecked, or None where there is no readable group."""
    return find_group(path)[1]


def find_group(path: str) -> tuple[str, object]:
    """The group that holds what is at `path`, and its attributes, unchecked, or None where there is none to read.

    It is the group at `path` itself, or the generation below it that this names.
    """
    attributes: object = None
    for _ in range(LOOKS):
        attributes = own_attributes(path)
        generation = named_generation(attributes)
        if generation is None:
            if attributes is None and not is_url(path) and not os.path.exists(path):
                raise StorageError("not-found", f"There is nothing at {path}.", "Check the path.")
            break
        place = inside(path, generation)
        found = own_attributes(place)
        if found is not None:
            return place, found
        # Replaced between the two looks, or its generation was lost.
        if named_generation(own_attributes(path)) == generation:
            break
    return path, attributes


def own_attributes(path: str) -> object:
    """The attributes of the group at `path` itself, unchecked, or None where there is no group, or not in JSON.

    What may pass, such as a disk that does not answer, is never taken for that: it is a `StorageError`.
    """
    with storage_errors(path, "reading"):
        try:
            content = read_object(path, ROOT)
            record = None if content is None else parse_json(content)
        except ProtodaskError:  # a link or a pipe in place of the file, or a file too large
            raise
        except PermissionError as error:
            raise _forbidden(path, error) from error
        except ValueError:
            return None
    if not isinstance(record, dict) or (record.get("zarr_format"), record.get("node_type")) != (3, "group"):
        return None
    return record.get("attributes")


def _forbidden(path: str, error: PermissionError) -> StorageError:
    return StorageError(
        "unreadable", f"{mask(path)} cannot be read ({mask_text(str(error), path)}).", "Check that you may read it."
    )


def version_of(path: str) -> object:
    """Something that changes whenever the attributes at a place do, and None where there are none."""
    if is_url(path):
        content = read_object(path, ROOT)
        generation = generation_in(content)
        return content, None if generation is None else read_object(inside(path, generation), ROOT)
    try:
        # Opened, not only asked for: a network file system then looks at the server.
        handle = os.open(os.path.join(path, ROOT), os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # it may be a pipe
        try:
            found = os.fstat(handle)
        finally:
            os.close(handle)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise _forbidden(path, error) from error
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket: who reads it says that it is no file
            return error.errno
        raise StorageError(
            "unreadable", f"{path} cannot be read ({error}).", "Check the storage and repeat."
        ) from error
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def read_stable(path: str, read: Callable[[], T]) -> T:
    """What `read` makes of a place that others may replace meanwhile.

    It is asked again when it failed and the place has changed since: half of the old and half of the new may have
    looked like damage.
    """
    return read_while_changing(lambda: version_of(path), lambda _: read())


DATASET = Kind("dataset", "protodask-dataset")

MARKER = "_protodask.json"
"""Says what a folder without a Zarr group is; readers of Parquet ignore names that begin with an underscore."""


def read_marker(path: str) -> object:
    """What the marker file of a folder says, unchecked, or None where there is none."""
    if is_url(path):
        return None
    try:
        return read_json(path, MARKER)
    except FormatError:
        raise
    except (OSError, ValueError):
        return None


def is_one(path: str, kind: Kind) -> bool:
    """Whether what lies at `path` is of a kind."""
    attributes = read_marker(path) or read_attributes(path)
    return isinstance(attributes, dict) and attributes.get("format") == kind.format


def write_marker(path: str, record: Mapping[str, Any]) -> None:
    """Say what a folder is."""
    with open(os.path.join(path, MARKER), "w", encoding="utf-8") as file:
        json.dump(record, file, indent=2, allow_nan=False)


@contextmanager
def published(path: str, overwrite: bool, kind: Kind = DATASET) -> Iterator[str]:
    """Hand out a place to write a dataset or the like to, and put it at `path` once the body is done.

    On a disk it is written aside, made durable, and exchanged with what is at `path`; meanwhile no one else can
    publish or append there. At a URL it is written as a generation below `path`, which counts when the body is done.
    Either way a reader finds the old state or the new one. If the body fails, nothing is left behind; what a killed
    process left behind, the next publication to the place removes.
    """
    check_free(path, overwrite, kind)
    if is_url(path):
        with storage_errors(path, "writing"), new_generation(path, kind.format) as place:
            yield place
        return
    with writing_alone(path) as where:
        aside = place_aside(where)
        try:
            yield aside
            make_durable(aside)
            check_free(path, overwrite, kind)
            put_in_place(aside, where)
        except BaseException:
            remove(aside)
            raise


def check_free(path: str, overwrite: bool, kind: Kind = DATASET) -> None:
    """Refuse a place where nothing can be made, or that is taken, unless by one of its kind that may be overwritten.

    What killed processes left beside it is removed first.
    """
    check_no_version(path)
    with storage_errors(path, "looking at"):
        sweep(path)
        if not is_taken(path) or (overwrite and is_one(path, kind)):
            if not is_url(path):
                check_writable(path)
            return
        if is_url(path) and is_one(path, kind):
            with suppress(OSError):  # one may be allowed to look only
                remove_replaced(path)
    if not overwrite:
        raise OutputExistsError(
            "exists", f"{mask(path)} exists already.", "Choose another place, or overwrite it with overwrite=True."
        )
    raise OutputExistsError(
        "wrong-kind",
        f"{mask(path)} exists and is not a protodask {kind.name}, so it is not overwritten.",
        "Choose another place, or remove it yourself.",
    )


def check_outside(path: str, source: str | os.PathLike[str], may_replace: bool = True) -> None:
    """Refuse a place inside of what is read: it would become part of that, and vanish with it.

    Refuse that place itself, too, unless what is made of it `may_replace` it.
    """
    own, read = (place if is_url(place) else os.path.realpath(place) for place in (path, os.fspath(source)))
    if not may_replace and own.rstrip("/" + os.sep) == read.rstrip("/" + os.sep):
        raise written_over(read)
    if own.startswith(read.rstrip("/" + os.sep) + "/") and (is_url(read) or os.path.exists(read)):
        raise InputError(
            "places-overlap",
            f"{mask(path)} lies inside of {mask(read)}, which is read.",
            "Choose a place outside of it.",
        )


def is_taken(path: str) -> bool:
    """Whether anything lies at a place."""
    with storage_errors(path, "looking at"):
        return holds_something(path) if is_url(path) else os.path.lexists(path)


def remove_inside(place: str, name: str) -> None:
    """Remove a group from another one that lies at `place`."""
    if is_url(place):
        remove_group(place, name)
    else:
        delete(os.path.join(place, name))


def group_exists(path: str) -> bool:
    """Whether the group at `path` is still there: a writer asks before each block, in case the whole was given up."""
    return read_object(path, ROOT) is not None if is_url(path) else os.path.exists(os.path.join(path, ROOT))


def write_group(path: str, attributes: Mapping[str, Any]) -> None:
    """Put the attributes of a group at a place, durably: a group of its own if there is none."""
    write_group_content(path, group_content(attributes))


def write_group_content(path: str, content: bytes) -> None:
    """The same, given the object with the attributes."""
    if is_url(path):
        write_object(path, ROOT, content)
        return
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, ROOT), "wb") as file:
        file.write(content)
        file.flush()
        flush_handle(file.fileno())
    flush(path)
    flush(os.path.dirname(path))


@contextmanager
def writing_into(path: str) -> Iterator[None]:
    """Refuse to write into a group that was given up, or is meanwhile: late writers must not bring it back."""
    if not group_exists(path):
        raise gone(path)
    try:
        yield
    except ProtodaskError:
        raise
    except Exception as error:  # whatever Zarr says where a part of it is missing
        if group_exists(path):
            raise
        raise gone(path) from error
