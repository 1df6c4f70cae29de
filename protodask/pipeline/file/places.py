"""What the steps read and write: which of their settings are places, and what may lie there. Light to import."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from fnmatch import fnmatchcase
from functools import cache
from itertools import combinations
from typing import Any, get_args

from protodask.data.places.locations import absolute, check_written_out, is_url, locate, written_over
from protodask.data.places.references import split_reference
from protodask.data.places.storage import MARKER, check_outside
from protodask.data.tables.source_files import check_present, is_table_path
from protodask.errors import InputError
from protodask.pipeline.file.values import hints_of
from protodask.pipeline.steps.base import Place, Step, option_of
from protodask.pipeline.steps.training import Training, run_directory
from protodask.places import mask

READ_BY_ALL = ("data", "model", "sources", "predictions", "start")
"""Settings of places that must be there; a champion or a reference may not have come yet."""

OF_RUNS = ("run_dir", "terms")
"""Settings of places of caches and of records of runs."""


def settings_of_places(kind: type[Step], place: Place) -> tuple[str, ...]:
    """The settings of a step that name what it reads, or what it writes; of the latter the principal one first."""
    hints = hints_of(kind)
    return tuple(field.name for field in fields(kind) if names(hints[field.name], place))


@cache
def settings_that_do_not_count(kind: type[Step]) -> frozenset[str]:
    """The settings of a step that change how it is done, and not what comes of it."""
    said = {name: option_of(hint) for name, hint in hints_of(kind).items()}
    return frozenset(name for name, option in said.items() if option is not None and not option.counts)


def names(hint: Any, place: Place) -> bool:
    """Whether a setting of this type, as it is written, names places of a kind."""
    return hint is place or any(names(part, place) for part in get_args(hint))


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
        yield from _named(getattr(step, setting))


def _named(places: str | Mapping[str, str] | Sequence[str] | None) -> Iterable[str]:
    """The places that a setting names."""
    match places:
        case None:
            return ()
        case str():
            return (places,)
        case Mapping():
            return places.values()
        case _:
            return places


def check_step(step: Step) -> None:
    """Refuse settings that cannot work whatever the data: places that are empty, or that only shells understand, files
    that would have to be written to another store, and to write over what is read, but for what may be made anew.
    """
    from protodask.data.places.whole_files import local_file

    step.check()
    check_places(step)
    for setting in settings_of_places(type(step), Place.WRITTEN):
        place = getattr(step, setting)
        if place is not None and _is_file(step, setting):
            local_file(place)
    kept = [setting for setting in settings_of_places(type(step), Place.READ) if setting not in step.replaces]
    written = outputs(step)
    for one, other in combinations(written, 2):
        if is_same(one, other):
            raise InputError("places-overlap", f"Two outputs are to be written to {mask(one)}.", "Choose two places.")
        if holds(one, other) or holds(other, one):
            seen = f"Of the outputs {mask(one)} and {mask(other)} one lies inside of the other."
            raise InputError("places-overlap", seen, "Choose two places side by side.")
    check_apart(written, [place for setting in kept for place in _named(getattr(step, setting))])


def check_places(step: Step) -> None:
    """Refuse places that are empty, that only shells understand, or that are on other hosts."""
    for place in (*inputs(step), *_places(step, Place.WRITTEN), *_of_run(step)):
        check_written_out(place)


def check_apart(outputs: Iterable[str], inputs: Iterable[str]) -> None:
    """Refuse to write over what is read."""
    written = {normal(place) for place in outputs}
    for place in inputs:
        if normal(place) in written:
            raise written_over(place)


def _is_file(step: Step, setting: str) -> bool:
    """Whether what a step writes at the place in this setting is a single file."""
    return setting in ("table", "plot") or step.writes_files


def _of_run(step: Step) -> list[str]:
    """Where records and caches of its runs are to be."""
    return [place for setting in OF_RUNS for place in _named(getattr(step, setting, None))]


def check_step_outside(step: Step) -> None:
    """Refuse a step that writes into what it reads."""
    check_all_outside((*outputs(step), *_of_run(step)), inputs(step))


def check_all_outside(outputs: Iterable[str], inputs: Iterable[str]) -> None:
    """Refuse to write into a dataset, a model or the like that is read: it would vanish with that."""
    written = list(map(locate, outputs))
    for place in map(locate, inputs):
        if any(os.path.isfile(os.path.join(place, name)) for name in ("zarr.json", MARKER)):  # no folder of raw tables
            for out in written:
                check_outside(out, place)


def check_there(step: Step) -> None:
    """Refuse what is certain: nothing to read at a place of this machine, or something in the way of what is written.

    Training may go on from its record though its model is there, and what grows, or is divided again, may be there.
    """
    from protodask.data.places.locks import sweep
    from protodask.data.places.storage import check_free
    from protodask.data.places.whole_files import check_file_free

    for setting in READ_BY_ALL:
        for place in _named(getattr(step, setting, None)):
            if split_reference(place) is None and not glob.has_magic(place):
                check_present(place)
    check_step_outside(step)
    if step.may_be_there():
        return
    if isinstance(step, Training):
        record = locate(run_directory(step.out, step.run_dir))
        if os.path.exists(record):
            return
        sweep(record)  # what was killed while it removed the record of a training that was done
    for setting in settings_of_places(type(step), Place.WRITTEN):
        place = getattr(step, setting)
        if place is None or is_url(locate(place)):
            continue
        if _is_file(step, setting):
            check_file_free(place, False)
        else:
            check_free(locate(place), False)


def is_same(one: str, other: str) -> bool:
    """Whether two names are of one place."""
    return normal(one) == normal(other)


def holds(output: str, place: str) -> bool:
    """Whether writing `output` may change what is read at `place`: the same place, one inside it, a version in it."""
    return reaches(normal(output), normal(place))


def reaches(output: str, place: str) -> bool:
    """Whether `holds` is true of two places by what `normal` calls them, which takes long: links are followed."""
    return place == output or place.startswith((f"{output}/", f"{output}@"))


def takes_in(source: str, output: str) -> bool:
    """Whether tables that are read at `source`, a folder or a glob, have the table `output` among them.

    That a step reads the very `output` by its name is another matter, and usual.
    """
    if not is_table_path(output) or normal(source) == normal(output):
        return False
    pattern, parts = normal(source).split("/"), normal(output).split("/")
    folders = [number for number in range(1, len(parts)) if is_table_path(parts[number - 1])]
    lengths = [len(parts), *folders] if glob.has_magic(source) else range(1, len(parts))
    return any(_matches(pattern, parts[:length]) for length in lengths)


def _matches(pattern: Sequence[str], parts: Sequence[str]) -> bool:
    """Whether a glob means a path, both in their parts. All that `**` can stand for is followed at once."""
    reached = {0}
    for part in (*parts, None):
        for place, one in enumerate(pattern):
            if place in reached and one == "**":
                reached.add(place + 1)
        if part is not None:
            following = [place for place in reached if place < len(pattern)]
            reached = {place for place in following if pattern[place] == "**"}
            reached |= {place + 1 for place in following if fnmatchcase(part, pattern[place])}
    return len(pattern) in reached


def normal(place: str) -> str:
    """One text for all ways to write a place; links are followed, also that of a registry in front of a version."""
    reference = split_reference(place)
    if reference is not None:
        ending = "" if reference.name is None else f":{reference.name}"
        return f"{normal(reference.registry)}@{reference.version}{ending}"
    where = absolute(place)
    return where if is_url(where) else os.path.realpath(where).replace(os.sep, "/")
