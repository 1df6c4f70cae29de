"""What a registry of models holds, in one small file: its versions, which of them aliases name, and how those moved.

    models/registry.json                    the file, replaced in one step whenever anything changes
    models/versions/7-0123abcd/model.zarr   the model of version 7, as it was published
    models/versions/7-0123abcd/files/...    what is attached to it
    models/versions/7-0123abcd/version.json its metrics, where it comes from, and what was said about it

A version is there when the file lists it, and not before: what a killed process left in `versions` counts for nothing.
Light to import, as all of this room that only looks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, replace
from typing import Any

from protodask.data.places.bounded import parse_json, read_object
from protodask.data.places.locations import inside, storage_errors
from protodask.data.places.records import Fields, RecordKind, recognize, unseal
from protodask.errors import FormatError, InputError, refusing, some
from protodask.places import mask

REGISTRY_FILE = "registry.json"
VERSIONS = "versions"
VERSION_FILE = "version.json"
MODEL_FOLDER = "model.zarr"
FILES = "files"

CHAMPION = "champion"
PREVIOUS = "previous"
"""The alias that names what the champion was before."""

RESTORE = "Restore the file registry.json from a copy; the versions themselves lie beside it in the folder versions."

RECORD = RecordKind("registry", "protodask-registry", 1, "Make one with `Registry.publish()`.", RESTORE)

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
NUMBER = re.compile(r"[0-9]+", re.ASCII)
FOLDER = re.compile(r"([1-9][0-9]{0,17})-[0-9a-f]{8}", re.ASCII)
FILE = re.compile(r"[A-Za-z0-9_-]{1,64}(\.[A-Za-z0-9]{1,16})?", re.ASCII)

MOST_MOVES = 1000
"""Moves of aliases that are remembered, the newest ones: two and a half years of one a day."""


def is_name(text: str) -> bool:
    """Whether an alias or an attached file may be called so: letters, digits, - and _, and not a number alone."""
    return NAME.fullmatch(text) is not None and NUMBER.fullmatch(text) is None


def check_name(text: str, what: str) -> str:
    """The name, if an alias or an attached file may have it."""
    if not is_name(text):
        raise InputError(
            "bad-setting",
            f"{text!r} is no name for {what}.",
            "Use up to 64 letters, digits, hyphens and underscores, and more than digits alone.",
        )
    return text


@dataclass(frozen=True)
class AttachedFile:
    """A file that belongs to a version: its name in the folder, its size in bytes, and a digest of its content."""

    file: str
    size: int
    digest: str


@dataclass(frozen=True)
class Entry:
    """What the registry's file says of a version, in the words and the order of the file."""

    number: int
    folder: str
    kind: str
    """What the model is: "model" or "robust model"."""
    fingerprint: str
    """Of the model."""
    published: str
    files: Mapping[str, AttachedFile]

    def is_of(self, fingerprint: str, digests: Mapping[str, str]) -> bool:
        """Whether it has this model and files of these digests, and no others."""
        return self.fingerprint == fingerprint and {name: of.digest for name, of in self.files.items()} == digests


@dataclass(frozen=True)
class Move:
    """An alias came to name another version; None is no version."""

    time: str
    alias: str
    before: int | None
    after: int | None
    why: str


@dataclass(frozen=True)
class RegistryState:
    """A registry at some moment."""

    last: int = 0
    """The highest number that a version ever had."""
    entries: Mapping[int, Entry] = field(default_factory=dict)
    """The versions by number, lowest first."""
    named: Mapping[str, int] = field(default_factory=dict)
    """The aliases and the versions they name."""
    moves: tuple[Move, ...] = ()
    """Of the aliases, oldest first."""

    def entry(self, reference: str | int, where: str) -> Entry:
        """The version of this number or alias; `where` is the registry, for the error."""
        text = str(reference)
        if NUMBER.fullmatch(text):
            number = int(text) if len(text) <= 18 else -1
            if number in self.entries:
                return self.entries[number]
            said = f"The registry {mask(where)} has no version {text}."
            if number in range(1, self.last + 1):
                said = f"Version {text} of the registry {mask(where)} was removed."
            raise InputError("unknown-name", said, f"The versions there are {_those(self.entries)}.")
        if text not in self.named:
            raise InputError(
                "unknown-name",
                f"The registry {mask(where)} has no alias {text!r}.",
                f"The aliases there are {_those(self.named)}.",
            )
        return self.entries[self.named[text]]

    def with_entry(self, entry: Entry) -> RegistryState:
        """With one more version, whose number is higher than all before."""
        return replace(self, last=entry.number, entries={**self.entries, entry.number: entry})

    def moved(self, alias: str, number: int, time: str, why: str, *, damaged: bool = False) -> RegistryState:
        """With an alias on another version. When the champion moves, `previous` goes to where it was, unless that is
        `damaged`.
        """
        before = self.named.get(alias)
        if before == number:
            return self
        state = self._with_move(Move(time, alias, before, number, why))
        if alias == CHAMPION and before is not None and not damaged:
            left = Move(time, PREVIOUS, self.named.get(PREVIOUS), before, f"{CHAMPION} was moved")
            state = state if left.before == left.after else state._with_move(left)
        return state

    def _with_move(self, move: Move) -> RegistryState:
        aliases = {name: number for name, number in self.named.items() if name != move.alias}
        if move.after is not None:
            aliases[move.alias] = move.after
        return replace(self, named=aliases, moves=(*self.moves, move)[-MOST_MOVES:])

    def without_alias(self, alias: str, where: str, time: str, why: str) -> RegistryState:
        """Without an alias, which names no version any more."""
        return self._with_move(Move(time, alias, self.entry(alias, where).number, None, why))

    def without_version(self, version: str | int, where: str) -> RegistryState:
        """Without a version, which no alias may name."""
        number = self.entry(version, where).number
        if names := [alias for alias, named in self.named.items() if named == number]:
            raise InputError(
                "settings-conflict",
                f"Version {number} of the registry {mask(where)} is {' and '.join(names)}.",
                "Let the alias name another version first (`Registry.promote()`), or remove it (`Registry.unalias()`).",
            )
        return replace(self, entries={other: entry for other, entry in self.entries.items() if other != number})

    def pruned(self, keep: int, besides: int | None = None) -> RegistryState:
        """With the newest `keep` versions, those that aliases name, and the one of the number `besides`."""
        entries = self.entries
        kept = {*sorted(entries)[-keep:], *self.named.values(), besides}
        return replace(self, entries={number: entry for number, entry in entries.items() if number in kept})

    def describe(self) -> dict[str, Any]:
        """The sealed record."""
        versions = [
            {**vars(entry), "files": {name: astuple(of) for name, of in entry.files.items()}}
            for entry in self.entries.values()
        ]
        moves = [astuple(move) for move in self.moves]
        return RECORD.sealed({"last": self.last, "versions": versions, "aliases": dict(self.named), "moves": moves})


def _those(names: Any) -> str:
    return some(list(names)) if names else "none yet"


def read_state(place: str) -> RegistryState | None:
    """The state of the registry at a place, or None where there is no registry."""
    with storage_errors(place, "reading"):
        content = read_object(place, REGISTRY_FILE)
    return None if content is None else parse_state(content, place)


def require_state(place: str) -> RegistryState:
    """The state of the registry at a place."""
    state = read_state(place)
    if state is None:
        raise InputError(
            "not-found", f"There is no registry at {mask(place)}.", "Check the path, or make one: `Registry.publish()`."
        )
    return state


def parse_state(content: bytes, place: str) -> RegistryState:
    """A state from the content of the registry's file."""
    where = inside(mask(place), REGISTRY_FILE)
    with refusing(ValueError, "damaged", f"{where} is damaged", RESTORE, FormatError):
        value = parse_json(content)
    fields = unseal(recognize(value, RECORD, where))
    entries = [_parse_entry(replace(fields, record=record)) for record in fields.objects("versions")]
    numbers = [entry.number for entry in entries]
    last = fields.integer("last", 0)
    if numbers != sorted(set(numbers)) or (numbers and numbers[-1] > last):
        fields.damaged("the versions are not in order")
    aliases = fields.record.get("aliases")
    if not isinstance(aliases, dict) or not all(is_name(name) for name in aliases):
        fields.damaged("the aliases are not what they should be")
    if any(type(number) is not int or number not in set(numbers) for number in aliases.values()):
        fields.damaged("an alias names a version that is not there")
    moves = fields.record.get("moves")
    if not isinstance(moves, list):
        fields.damaged("the moves of the aliases are not a list")
    return RegistryState(
        last, dict(zip(numbers, entries, strict=True)), aliases, tuple(_parse_move(move, fields) for move in moves)
    )


def _parse_entry(fields: Fields) -> Entry:
    number, folder = fields.integer("number", 1), fields.text("folder")
    found = FOLDER.fullmatch(folder)
    if found is None or int(found[1]) != number:
        fields.damaged(f"the folder of version {number} is not one of its own")
    files = fields.record.get("files")
    if not isinstance(files, dict):
        fields.damaged("the files of a version are not an object")
    return Entry(
        number,
        folder,
        fields.text("kind"),
        fields.text("fingerprint"),
        fields.text("published"),
        {name: _parse_file(name, file, fields) for name, file in files.items()},
    )


def _parse_file(name: str, value: Any, fields: Fields) -> AttachedFile:
    match value:
        case [str(file), int(size), str(digest)] if is_name(name) and FILE.fullmatch(file) and size >= 0:
            found = AttachedFile(file, size, digest)
        case _:
            fields.damaged("a file of a version is not described")
    return found


def _parse_move(value: Any, fields: Fields) -> Move:
    match value:
        case [str(), str(), int() | None, int() | None, str()]:
            found = Move(*value)
        case _:
            fields.damaged("a move of an alias is not described")
    return found


def to_bytes(record: Mapping[str, Any]) -> bytes:
    """A record as it is written."""
    return (json.dumps(record, indent=1, allow_nan=False) + "\n").encode()
