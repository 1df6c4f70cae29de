"""A record of expansions, from which an interrupted build goes on.

The file has a line of JSON for each thing: what build it belongs to, then every expansion as it ended. Each line has a
checksum of its own and is on the disk before the next expansion is heard of.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, BinaryIO

from protodask.budget.expanding import Accuracy, OnEnd, expander, usable
from protodask.budget.expansions import Expand, Expansion, FeatureSet, describe_expansion, parse_expansion
from protodask.budget.index_file import local_place
from protodask.data.places.bounded import MAX_JSON_BYTES, open_inside, open_to_append, parse_json
from protodask.data.places.local_files import flush_handle, place_aside
from protodask.data.places.locations import storage_errors
from protodask.data.places.locks import sole_writer
from protodask.data.places.records import CHECKSUM, RecordKind, hash_json, recognize, seal, unseal
from protodask.data.places.whole_files import write_whole
from protodask.engine import EngineLike, open_engine
from protodask.errors import InputError, refusing, some

RECORD = RecordKind(
    "record of expansions",
    "protodask-expansions",
    1,
    "Name a new file, or the record of an earlier build.",
    "Remove the file, and build again.",
)


@contextmanager
def recorded(expand: Expand, path: str | os.PathLike[str] | None, key: Mapping[str, Any]) -> Iterator[Expand]:
    """`expand`, answered from the record at `path` as far as it goes, and recorded there from then on.

    `key` says what build it is, in values that JSON has: the record of another one is refused, as is one that another
    process is writing to. What failed is tried again in the next build, since its cause may be gone by then. A line
    that is torn or damaged counts for nothing, and its set is expanded again. Without a path nothing is recorded.
    """
    if path is None:
        yield expand
        return
    place = os.path.realpath(local_place(path, "records of expansions"))
    with refusing(
        (TypeError, ValueError),
        "wrong-type",
        "The key of a record of expansions has something in it that JSON has not",
        "Use texts, finite numbers, lists and dictionaries.",
    ):
        plain = json.loads(json.dumps(dict(key), allow_nan=False))
    header = {"format": RECORD.format, "version": RECORD.version, "key": plain}
    with storage_errors(place, "writing"):
        os.makedirs(os.path.dirname(place), exist_ok=True)
    with sole_writer(place):
        with storage_errors(place, "reading"):
            known = _take_up(place, header)
        yield partial(_expand_recorded, place, expand, known)


@contextmanager
def expanded_with(
    accuracy: Accuracy, names: Sequence[str], engine: EngineLike, path: str | os.PathLike[str] | None
) -> Iterator[Expand]:
    """Expands sets of named features with a function, on an engine if there is one, and from a record if there is."""
    key = {"n_features": len(names), "feature_names": names}
    with (
        nullcontext() if engine is None else open_engine(engine) as opened,
        recorded(expander(accuracy, opened), path, key) as expand,
    ):
        yield expand


def _expand_recorded(
    path: str, expand: Expand, known: dict[FeatureSet, Expansion], sets: Sequence[FeatureSet], on_end: OnEnd
) -> None:
    missing = [features for features in sets if features not in known]
    for features in sets:
        if features in known:
            on_end(known[features])

    def write(expansion: Expansion) -> None:
        expansion = usable(expansion)
        with storage_errors(path, "writing"), open_to_append(*os.path.split(path)) as file:
            file.write(_line(describe_expansion(expansion)))
            file.flush()
            flush_handle(file.fileno())
        if expansion.failure is None:
            known[expansion.features] = expansion
        on_end(expansion)

    if missing:
        expand(missing, write)


def _take_up(path: str, header: Mapping[str, Any]) -> dict[FeatureSet, Expansion]:
    """What is on record, of a file that ends with a whole line; it is made where there is none."""
    if not os.path.lexists(path):
        write_whole(path, place_aside(path), [_line(header)])
        return {}
    with open_inside(*os.path.split(path)) as file:
        _check_header(path, file.readline(MAX_JSON_BYTES), header)
        head, lines = file.tell(), list(_expansions(file))
        size = os.fstat(file.fileno()).st_size
    whole = lines[-1][1] if lines else head
    if whole < size:
        with open_to_append(*os.path.split(path)) as file:
            file.truncate(whole)
            flush_handle(file.fileno())
    return {one.features: one for one, _ in lines if one is not None and one.failure is None}


def _check_header(path: str, line: bytes, wanted: Mapping[str, Any]) -> None:
    try:
        found = parse_json(line)
    except ValueError:
        found = None
    fields = unseal(recognize(found, RECORD, path))
    before, now = fields.record.get("key"), wanted["key"]
    if not isinstance(before, dict):
        fields.damaged("it does not say what build it is of")
    differ = [name for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)]
    if differ:
        raise InputError(
            "other-run",
            f"The record {path} is of another build, which differs in {some(differ)}.",
            "Repeat that build with its own settings and data, or name another file for this one.",
        )


def _expansions(file: BinaryIO) -> Iterator[tuple[Expansion | None, int]]:
    """What each whole line says, None where it is damaged, and where it ends."""
    while (line := file.readline(MAX_JSON_BYTES)).endswith(b"\n"):
        yield _unpack(line), file.tell()


def read_record(path: str) -> dict[FeatureSet, Expansion]:
    """What the record at a path has of each set: how it was tried last, in vain or not."""
    with storage_errors(path, "reading"), open_inside(*os.path.split(path)) as file:
        file.readline(MAX_JSON_BYTES)
        return {expansion.features: expansion for expansion, _ in _expansions(file) if expansion is not None}


def _line(record: Mapping[str, Any]) -> bytes:
    return json.dumps(seal(record, RECORD.name), separators=(",", ":")).encode() + b"\n"


def _unpack(line: bytes) -> Expansion | None:
    """None where the line is damaged."""
    try:
        record = parse_json(line)
        if isinstance(record, dict) and record.pop(CHECKSUM, None) == hash_json(record):
            expansion = parse_expansion(record)
            return None if expansion is None else usable(expansion)
    except ValueError:
        pass
    return None
