"""A registry of models: numbered versions that never change, and aliases that say which one counts."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from protodask.data.places.local_files import flush, make_durable
from protodask.data.places.locations import full_disk_of, inside, is_url, locate, storage_errors
from protodask.data.places.references import follow
from protodask.data.places.registry_state import (
    CHAMPION,
    FILE,
    FILES,
    MODEL_FOLDER,
    PREVIOUS,
    VERSION_FILE,
    VERSIONS,
    AttachedFile,
    Entry,
    Move,
    RegistryState,
    check_name,
    require_state,
    to_bytes,
)
from protodask.data.places.storage import check_outside, find_group
from protodask.data.tables.source_files import bytes_digest
from protodask.errors import FormatError, InputError, ProtodaskError, StorageError
from protodask.places import mask
from protodask.registry import changing
from protodask.registry.copying import copy_group, read_file, write_file
from protodask.registry.differences import Difference, difference
from protodask.registry.versions import (
    RECORD,
    Model,
    Version,
    fingerprint_of,
    kind_of,
    listed_version,
    load_any,
    read_version,
    record_of,
)

DAMAGE = ("damaged", "not-found", "wrong-kind")
"""Codes of errors that say that a version is not whole; others say that it could not be looked at."""


@dataclass(frozen=True)
class Published:
    """What came of publishing a model."""

    version: Version
    added: bool
    """Whether it is a new version; otherwise this model and these files were one already."""
    alias: str | None
    replaced: int | None
    """The version that the alias named before, if it named another one."""
    removed: tuple[int, ...]
    """Versions that were not to be kept any more."""


@dataclass(frozen=True)
class Registry:
    """A registry in a folder or at a URL.

    Every method looks at what is there at the time: others may publish meanwhile.
    """

    path: str

    @classmethod
    def open(cls, place: str | os.PathLike[str]) -> Registry:
        """A registry that is there."""
        where = locate(place)
        require_state(where)
        return cls(where)

    @classmethod
    def create(cls, place: str | os.PathLike[str]) -> Registry:
        """A registry that is there, or a new one, where there is nothing or an empty folder."""
        where = locate(place)
        changing.create(where)
        return cls(where)

    @property
    def aliases(self) -> dict[str, int]:
        """The aliases with the versions they name."""
        return dict(sorted(self._state().named.items()))

    @property
    def moves(self) -> tuple[Move, ...]:
        """How the aliases moved, oldest first; of many, the newest thousand."""
        return self._state().moves

    @property
    def numbers(self) -> tuple[int, ...]:
        """Of the versions, lowest first."""
        return tuple(self._state().entries)

    def versions(self) -> tuple[Version, ...]:
        """All versions, oldest first; one whose own file is gone or damaged says so."""
        state = self._state()
        found = []
        for entry in state.entries.values():
            try:
                found.append(read_version(self.path, state, entry))
            except Exception as error:
                if entry.number not in self._state().entries:  # removed between the two looks
                    continue
                if not isinstance(error, FormatError):
                    raise
                found.append(replace(listed_version(self.path, state, entry), unreadable=str(error)))
        return tuple(found)

    def version(self, reference: str | int) -> Version:
        """A version by its number or by an alias."""
        state = self._state()
        return read_version(self.path, state, state.entry(reference, self.path))

    def diff(self, first: str | int, second: str | int) -> Difference:
        """What distinguishes one version from another."""
        return difference(self.version(first), self.version(second))

    def publish(
        self,
        model: str | os.PathLike[str],
        *,
        alias: str | None = None,
        metrics: Mapping[str, Any] | None = None,
        files: Mapping[str, str] | None = None,
        note: str | None = None,
        retain: int | None = None,
    ) -> Published:
        """Add the model at a place as a new version, with further files by name, and let `alias` name it.

        A registry that is not there yet is made.
        The version is there, and the alias names it, from one moment to the next. If the alias names a version of this
        very model with these very files already, or if there is one that no alias names, none is added, unless it is
        damaged: repeated after an interruption it ends as if it had run once. With `retain`, so many of the newest
        versions are kept, and those that aliases name.
        """
        if alias is not None:
            check_name(alias, "an alias")
        if retain is not None:
            check_keep(retain)
        attached = {check_name(name, "a file"): follow(path, _read) for name, path in (files or {}).items()}
        source = os.fspath(model)
        check_outside(self.path, source)
        parts = _Parts(source, follow(source, load_any), attached, note, metrics)
        chosen: list[tuple[int, bool]] = []

        def changed(state: RegistryState) -> RegistryState:
            entry = self._known(state, alias, parts)
            added = entry is None
            if entry is None:
                entry = self._add(state.last + 1, parts)
                state = state.with_entry(entry)
            if alias is not None:
                current = state.entries.get(state.named.get(alias, 0))
                damaged = added and current is not None and current.is_of(parts.fingerprint, parts.digests)
                state = state.moved(alias, entry.number, _now(), note or "published", damaged=damaged)
            chosen.append((entry.number, added))
            return state if retain is None else state.pruned(retain, besides=entry.number)

        with full_disk_of(self.path, f"writing to the registry {mask(self.path)}"):
            changing.create(self.path)
            before, after = changing.change(self.path, changed)
        number, added = chosen[-1]
        replaced = None if alias is None else before.named.get(alias)
        return Published(
            read_version(self.path, after, after.entries[number]),
            added,
            alias,
            None if replaced == number else replaced,
            tuple(sorted(before.entries.keys() - after.entries.keys())),
        )

    def promote(self, alias: str, version: str | int, why: str = "promoted") -> int | None:
        """Let an alias name a version, given by number or another alias; returns what it named before.

        When the champion moves, `previous` comes to name what it was, in the same step.
        """
        check_name(alias, "an alias")

        def changed(state: RegistryState) -> RegistryState:
            entry = state.entry(version, self.path)
            self._check_model(state, entry)
            return state.moved(alias, entry.number, _now(), why)

        before, _ = changing.change(self.path, changed)
        return before.named.get(alias)

    def rollback(self, why: str = "rolled back") -> Version:
        """Let the champion be the version that it was before, and `previous` the one that it is; returns the former."""

        def changed(state: RegistryState) -> RegistryState:
            before, promote = state.named.get(PREVIOUS), "with `Registry.promote()`."
            if CHAMPION not in state.named:
                seen = f"The registry {mask(self.path)} has no {CHAMPION}."
                raise InputError("nothing-yet", seen, f"Let it be a version {promote}")
            if before is None or before == state.named[CHAMPION]:
                seen = f"In the registry {mask(self.path)} {CHAMPION} and {PREVIOUS} are both version {before}."
                if before is None:
                    seen = f"The registry {mask(self.path)} has no {PREVIOUS} champion to go back to."
                raise InputError("nothing-yet", seen, f"Let the champion be another version {promote}")
            self._check_model(state, state.entries[before])
            return state.moved(CHAMPION, before, _now(), why)

        _, after = changing.change(self.path, changed)
        return read_version(self.path, after, after.entries[after.named[CHAMPION]])

    def unalias(self, alias: str, why: str = "removed") -> int:
        """Remove an alias; returns the number of the version that it named, which stays."""
        check_name(alias, "an alias")
        before, _ = changing.change(self.path, lambda state: state.without_alias(alias, self.path, _now(), why))
        return before.named[alias]

    def remove(self, version: str | int) -> int:
        """Remove a version that no alias names; returns its number, which is not used again."""
        before, after = changing.change(self.path, lambda state: state.without_version(version, self.path))
        (number,) = before.entries.keys() - after.entries.keys()
        return number

    def prune(self, keep: int) -> tuple[int, ...]:
        """Remove all versions but the newest `keep` and those that aliases name; returns the removed ones."""
        check_keep(keep)
        before, after = changing.change(self.path, lambda state: state.pruned(keep))
        return tuple(sorted(before.entries.keys() - after.entries.keys()))

    def _state(self) -> RegistryState:
        return require_state(self.path)

    def _known(self, state: RegistryState, alias: str | None, parts: _Parts) -> Entry | None:
        """A version of this model with these files that need not be added again: it is not damaged."""
        named = set(state.named.values())
        current = state.named.get(alias) if alias is not None else None
        candidates = [
            entry
            for entry in state.entries.values()
            if (alias is None or entry.number == current or entry.number not in named)
            and entry.is_of(parts.fingerprint, parts.digests)
        ]
        candidates.sort(key=lambda entry: (entry.number == current, entry.number), reverse=True)
        return next((entry for entry in candidates if self._is_whole(state, entry)), None)

    def _check_model(self, state: RegistryState, entry: Entry) -> Version:
        """The version, unless its record or its model is damaged: nothing works with an alias that names such a one."""
        version = read_version(self.path, state, entry)
        if fingerprint_of(load_any(version.path)) != entry.fingerprint:
            raise FormatError("damaged", f"{mask(version.path)} is not the model that was published.", RECORD.remedy)
        return version

    def _is_whole(self, state: RegistryState, entry: Entry) -> bool:
        """Whether all of a version is as it was published."""
        try:
            version = self._check_model(state, entry)
            found = {name: bytes_digest(read_file(path)) for name, path in version.files.items()}
            return entry.is_of(entry.fingerprint, found)
        except ProtodaskError as error:
            if error.code in DAMAGE:
                return False
            raise

    def _add(self, number: int, parts: _Parts) -> Entry:
        """Write the folder of a version that does not count yet."""
        folder = f"{number}-{secrets.token_hex(4)}"  # which no other writer has
        place = inside(inside(self.path, VERSIONS), folder)
        try:
            copy = inside(place, MODEL_FOLDER)
            follow(parts.source, lambda where: copy_group(find_group(locate(where))[0], copy))
            if fingerprint_of(load_any(copy)) != parts.fingerprint:
                raise StorageError(
                    "changed-meanwhile",
                    f"The model {mask(parts.source)} was replaced while it was copied.",
                    "Repeat it.",
                )
            for name, (_, content) in parts.files.items():
                write_file(inside(place, FILES), parts.attached[name].file, content)
            record = record_of(parts.model, number, parts.note, parts.metrics)
            write_file(place, VERSION_FILE, to_bytes(record))
            if not is_url(place):
                with storage_errors(place, "writing"):
                    make_durable(place)
                    flush(os.path.dirname(place))
                    flush(self.path)
        except BaseException:
            with suppress(Exception):  # the first error is the one to tell; the next writer removes what stays
                changing.remove_folder(self.path, folder)
            raise
        return Entry(number, folder, kind_of(parts.model), parts.fingerprint, _now(), parts.attached)


@dataclass(frozen=True)
class _Parts:
    """What a version is made of."""

    source: str
    model: Model
    files: Mapping[str, tuple[str, bytes]]
    """The files to attach by name: path and content."""
    note: str | None
    metrics: Mapping[str, Any] | None

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint_of(self.model)

    @cached_property
    def attached(self) -> dict[str, AttachedFile]:
        return {
            name: AttachedFile(_file_name(name, path), len(content), bytes_digest(content))
            for name, (path, content) in self.files.items()
        }

    @property
    def digests(self) -> dict[str, str]:
        return {name: file.digest for name, file in self.attached.items()}


def _read(path: str) -> tuple[str, bytes]:
    return path, read_file(path)


def _file_name(name: str, path: str) -> str:
    """The name of an attached file in its folder: its own with the ending of what was attached."""
    ending = os.path.splitext(path)[1]
    return f"{name}{ending}" if FILE.fullmatch(f"{name}{ending}") else name


def check_keep(keep: int) -> None:
    """Refuse to keep no version."""
    if keep < 1:
        raise InputError("bad-setting", f"{keep} versions are to be kept.", "Keep one at least.")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
