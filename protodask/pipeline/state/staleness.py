"""Which steps of a pipeline have something to do, and why: from records of earlier runs and what lies at the places.

A step's *key* is the hash of its kind, its settings, the version of protodask, and the fingerprints of what it reads.
It is *fresh* if its record has that key and its outputs are what they were. What a step reads and itself or a later
step of the same pipeline writes (a registry's champion, a dataset that grows) does not count for the key: no run would
ever find it fresh. Nothing here takes long to import.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from protodask._version import __version__
from protodask.data.places.records import hash_text
from protodask.pipeline.file.definition import Pipeline
from protodask.pipeline.file.places import inputs, normal, outputs, reaches, settings_that_do_not_count
from protodask.pipeline.state.identities import identity, identity_of_files
from protodask.pipeline.state.records import Begun, State, StepRecord, record_name
from protodask.pipeline.steps.base import Step
from protodask.pipeline.telling.events import StepIdentity
from protodask.pipeline.telling.result import plain
from protodask.places import mask


@dataclass(frozen=True)
class Planned:
    """A step of a pipeline, before anything is looked at."""

    number: int
    name: str
    step: Step
    settings: Mapping[str, Any]
    """Those that count, as plain values."""
    record: str
    """Name of its record."""
    reads: tuple[str, ...]
    """Places that count for its key."""
    writes: tuple[str, ...]
    shared: frozenset[str]
    """Of what it writes, what other steps of the pipeline write, too."""
    beside: tuple[str, ...] = ()
    """Names of the records of those steps that add to it."""

    @property
    def identity(self) -> StepIdentity:
        """Which step it is, for those who hear of it."""
        return StepIdentity(self.number, self.name, self.step.command)

    @property
    def grows(self) -> bool:
        """Whether it adds to what it writes; that others do so, too, does not make it stale."""
        return self.step.grows()

    @property
    def overwrites(self) -> bool:
        """Whether it is told to replace what lies at its place."""
        return bool(getattr(self.step, "overwrite", False))

    def overwriting(self) -> Step:
        """The step told to replace what lies at its place, if that is what it does and not add to it."""
        may_be = not self.grows and hasattr(self.step, "overwrite")
        return replace(self.step, **{"overwrite": True}) if may_be else self.step


@dataclass(frozen=True)
class Look:
    """What was found about a step."""

    why: str | None
    """Why it is stale; None if it is fresh."""
    key: str
    inputs: Mapping[str, str | None]
    record: StepRecord | None
    """What was done last."""
    begun: Begun | None
    waiting: int | None = None
    """Of a step that takes what is new: files that changed a moment ago."""


def _settings_of(step: Step) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(asdict(step), sort_keys=True))
    return {name: value for name, value in found.items() if name not in settings_that_do_not_count(type(step))}


def planned(pipeline: Pipeline) -> tuple[Planned, ...]:
    """The steps with what they read and write."""
    written = [outputs(step) for step in pipeline.steps]
    names = [[normal(place) for place in own] for own in written]
    settings = [_settings_of(step) for step in pipeline.steps]
    records: list[str] = []
    seen: Counter[str] = Counter()
    for step, own, said in zip(pipeline.steps, written, settings, strict=True):
        name = partial(record_name, step.recorded_as or step.command, own, said)
        records.append(name(seen[name(0)]))
        seen[name(0)] += 1
    found = []
    for position, step in enumerate(pipeline.steps):
        own = written[position]
        later = [place for places in names[position:] for place in places]
        read = {place: normal(place) for place in inputs(step)}
        reads = tuple(place for place, name in read.items() if not any(reaches(one, name) for one in later))
        called = dict(zip(own, names[position], strict=True))
        sharing = {
            other: both
            for other, places in enumerate(names)
            if other != position
            and (both := [place for place in own if any(reaches(called[place], one) for one in places)])
        }
        found.append(
            Planned(
                position + 1,
                pipeline.name(position + 1),
                step,
                settings[position],
                records[position],
                reads,
                own,
                frozenset(place for places in sharing.values() for place in places),
                tuple(records[other] for other in sharing if pipeline.steps[other].grows()),
            )
        )
    return tuple(found)


def look(plan: Planned, state: State) -> Look:
    """Find out whether a step has something to do."""
    record, begun = state.record(plan.record), state.begun(plan.record)
    if plan.step.takes_new():  # which it has, its output says, and no record of ours
        news = plan.step.news()
        return Look(news.found, _key(plan, {}), {}, record, begun, news.waiting)
    found = {place: identity(place) for place in plan.reads}
    key = _key(plan, found)
    if begun is not None:
        why: str | None = "it had begun, and did not end"
    elif record is None:
        why = state.why_unknown(plan.record)
    elif record.key != key:
        why = _what_changed(plan, record, found)
    elif record.refused and plan.step.accepts_no():
        why = "its no is accepted now"
    else:
        why = _what_is_lost(plan, record)
    return Look(why, key, found, record, begun)


def _key(plan: Planned, found: Mapping[str, str | None]) -> str:
    return hash_text(json.dumps([plan.step.command, plan.settings, __version__, found], sort_keys=True))


def _what_changed(plan: Planned, record: StepRecord, found: Mapping[str, str | None]) -> str:
    for place, now in found.items():
        if record.inputs.get(mask(place)) != now:
            return f"{mask(place)} is gone" if now is None else f"{mask(place)} has changed"
    shown = plain(plan.settings)
    changed = sorted(name for name in {*shown, *record.settings} if shown.get(name) != record.settings.get(name))
    if changed:
        return f"its setting {changed[0].replace('_', '-')} has changed"
    if record.version == __version__:
        return "the secret or the query of a URL has changed"
    return f"protodask {record.version} did it, and this is {__version__}"


def _what_is_lost(plan: Planned, record: StepRecord) -> str | None:
    for place in plan.writes:
        now = identity(place)
        if now is None:
            return f"{mask(place)} is gone"
        if place not in plan.shared and not plan.grows and now != record.outputs.get(mask(place)):
            return f"{mask(place)} was changed by others"
        made = record.files.get(mask(place))
        if made is not None and place not in plan.shared and identity_of_files(place) != made:
            return f"files of {mask(place)} were changed by others"
    return None
