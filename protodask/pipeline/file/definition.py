"""Pipeline files: steps in order, with names and variables; checked as a whole before anything is done."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

from protodask.data.places.locations import check_written_out
from protodask.errors import Code, InputError, ProtodaskError
from protodask.pipeline.file.places import check_places, inputs, normal, outputs, reaches, settings_of_places, takes_in
from protodask.pipeline.file.values import as_written, convert, key_of, parse_record, shown, suggestion
from protodask.pipeline.file.yaml_file import Document, read_document
from protodask.pipeline.steps import STEPS
from protodask.pipeline.steps.base import Place, Step
from protodask.pipeline.telling.notify import Notify, check_notify
from protodask.places import mask

Variable = str | int | float | bool

Overlap = Literal["refuse", "wait", "leave"]
"""What a run does while another one of the same pipeline is under way: fail, wait for its end, or end with success."""

KEYS = ("description", "variables", "state", "overlap", "notify", "steps")

REFERENCE = re.compile(r"\$\{([^{}]*)\}")
LONGEST_TEXT = 2**16
"""Characters of a text with its variables put in: variables that hold each other ten times grow without end."""

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
STEP_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")

STATE_FOLDER = ".protodask"
"""In the working folder: what runs of pipelines remember, a folder for each file by its name."""

ENVIRONMENT = "PROTODASK_VAR_"
"""Beginning of the environment variables that set variables of pipeline files, followed by the variable's name."""


@dataclass(frozen=True)
class Pipeline:
    """The steps of a pipeline file, with the values of its variables put in."""

    path: str
    steps: tuple[Step, ...]
    names: tuple[str, ...] = ()
    """Of the steps, where they have their own; empty ones elsewhere."""
    lines: tuple[int, ...] = ()
    """Where the steps stand in the file, from 1."""
    state: str = ""
    """Folder of what runs remember; empty for the usual one."""
    overlap: Overlap = "refuse"
    notify: Notify | None = None
    notes: tuple[str, ...] = ()
    """What whoever wrote the file should change some time."""

    @property
    def state_folder(self) -> str:
        """Where runs remember what they did."""
        return self.state or usual_state_folder(self.path)

    def name(self, number: int) -> str:
        """The name of the step of this number, from 1: its own, or that of its kind and its number."""
        own = self.names[number - 1] if self.names else ""
        return own or f"{self.steps[number - 1].command}-{number}"

    def where(self, number: int) -> str:
        """How an error about the step of this number begins."""
        line = f", line {self.lines[number - 1]}" if self.lines else ""
        return f"The pipeline {self.path}{line}, step {number} ({self.steps[number - 1].command})"


def read_pipeline(
    path: str, settings: Mapping[str, Variable] | None = None, environment: Mapping[str, str] = os.environ
) -> Pipeline:
    """Read a pipeline file. Variables have the values of `settings`, else those of the environment, else the file's.

    In the environment, `PROTODASK_VAR_rows` sets the variable `rows`.
    """
    document = read_document(path)
    content = document.content
    if unknown := [key for key in content if key not in KEYS]:
        raise InputError(
            "unknown-key",
            f"{_at(document, unknown[0])}, has the unknown key {shown(unknown[0])}.",
            f"{suggestion(unknown[0], KEYS)}The keys are {', '.join(KEYS)}.",
        )
    if not isinstance(description := content.get("description", ""), str):
        raise InputError("bad-setting", f"The pipeline {path}: description is {shown(description)}.", "Give text.")
    variables = _variables(document, settings or {}, environment, nullcontext())
    steps = content.get("steps")
    if not isinstance(steps, list) or not steps:
        raise InputError(
            "setting-missing", f"The pipeline {path} has no steps.", "Add a list `steps:` of what is to be done."
        )
    try:
        parsed, names, notes = zip(*_steps(document, steps, variables), strict=True)
    except RecursionError as error:
        raise InputError(
            "bad-setting", f"The pipeline {path} contains itself.", "Remove the alias that leads back."
        ) from error
    pipeline = Pipeline(
        path,
        parsed,
        names,
        tuple(document.line("steps", position) for position in range(len(steps))),
        _state(document, variables),
        convert(content.get("overlap", "refuse"), Overlap, f"{_at(document, 'overlap')}: overlap"),
        _notify(document, variables),
        tuple(chain.from_iterable(notes)),
    )
    for number, step in enumerate(pipeline.steps, start=1):
        with _about(pipeline.where(number)):
            check_places(step)
    _check_circles(pipeline)
    _check_written_once(pipeline)
    return pipeline


def _check_circles(pipeline: Pipeline) -> None:
    """Refuse a table that is written where that step or one before it reads tables: the next run would read it, too."""
    read = list(map(inputs, pipeline.steps))
    for number, step in enumerate(pipeline.steps, start=1):
        for out in outputs(step):
            for before, sources in enumerate(read[:number], start=1):
                for source in sources:
                    if takes_in(source, out):
                        raise InputError(
                            "places-overlap",
                            f"{pipeline.where(number)}: it writes {mask(out)}, which the next run would find among the "
                            f"tables of {mask(source)} that {pipeline.name(before)} reads.",
                            "Write it to another folder.",
                        )


def _check_written_once(pipeline: Pipeline) -> None:
    """Refuse a step that destroys what one before it wrote, or part of it, or writes into what it will read."""
    written: list[tuple[str, str, int]] = []
    for number, step in enumerate(pipeline.steps, start=1):
        kept = {normal(place) for place in inputs(step)}
        own = [(normal(out), out, number) for out in outputs(step)]
        for out, said, _ in own:
            for place, other, before in written:
                if out == place:
                    lost = not step.grows() and out not in kept
                elif reaches(place, out):
                    lost = not pipeline.steps[before - 1].grows() or place in kept
                else:
                    lost = reaches(out, place) and not step.grows()
                if lost:
                    raise InputError(
                        "places-overlap",
                        f"{pipeline.where(number)}: it writes {mask(said)}, and {pipeline.name(before)} writes "
                        f"{mask(other)}: what is there would be lost.",
                        "Give each a place of its own.",
                    )
        written += own


def read_beforehand(path: str, settings: Sequence[str]) -> tuple[str, Notify | None]:
    """What counts of a pipeline file whatever is wrong with the rest: the folder of what was before, and who is told.

    It is read by itself, as far as it can be; `settings` are texts "name=value".
    """
    given = dict(text.split("=", 1) for text in settings if "=" in text)
    folder, notify = usual_state_folder(path), None
    with suppress(ProtodaskError):
        document = read_document(path)
        variables = _variables(document, given, os.environ, suppress(InputError))
        with suppress(InputError):
            folder = _state(document, variables) or folder
        notify = _notify(document, variables)
    return folder, notify


def usual_state_folder(path: str) -> str:
    """Where runs of a pipeline file remember what they did, where it does not say so itself."""
    stem = os.path.splitext(os.path.basename(path))[0]
    return os.path.join(STATE_FOLDER, stem or "pipeline")


def _at(document: Document, *keys: str | int) -> str:
    """How an error begins that is about what stands at a place of the file."""
    return f"The pipeline {document.path}, line {document.line(*keys)}"


def _state(document: Document, variables: Mapping[str, Variable]) -> str:
    where = f"{_at(document, 'state')}: state"
    state = _fill(document.content.get("state", ""), variables, where)
    if not isinstance(state, str) or "://" in state:
        code: Code = "not-local" if isinstance(state, str) else "bad-setting"
        raise InputError(code, f"{where} is {shown(state)}.", "Name a local folder.")
    if state:
        with _about(where):
            check_written_out(state)
    return state


@contextmanager
def _about(where: str) -> Iterator[None]:
    """Say of what is refused inside what it is about."""
    try:
        yield
    except InputError as error:
        raise InputError(error.code, f"{where}: {error.seen}", error.remedy) from error


def _notify(document: Document, variables: Mapping[str, Variable]) -> Notify | None:
    content = document.content.get("notify")
    if content is None:
        return None

    def at(key: str | None) -> str:
        return f"{_at(document, 'notify', *(() if key is None else (key,)))}: notify"

    values = _fill(content, variables, at(None))
    if isinstance(values, Mapping):
        given = [key for key in ("url", "command") if key in values]
        for key in given:
            if not isinstance(values[key], str | None):
                # Before the usual message about a value of the wrong type: it would show the address, a secret.
                raise InputError(
                    "bad-setting", f"{at(key)}: {key} is no text.", f"Give one {key}, in quotation marks if need be."
                )
        values = {key: value for key, value in values.items() if key not in given or value}
        if given and not any(key in values for key in given):
            return None  # a variable that is left empty: nobody is told
    notify = parse_record(Notify, values, at)
    with _about(at(None)):
        check_notify(notify)
    return notify


def _variables(
    document: Document,
    settings: Mapping[str, Variable],
    environment: Mapping[str, str],
    unless_wrong: AbstractContextManager[object, bool | None],
) -> dict[str, Variable]:
    """The variables with their values; `unless_wrong` is around each of them, and may suppress its errors."""
    content = document.content.get("variables")
    given: Mapping[Any, Any] = content if isinstance(content, Mapping) else {}
    with unless_wrong:
        if content is not None and not isinstance(content, Mapping):
            said = f"The pipeline {document.path}: variables are {shown(content)}."
            raise InputError("bad-setting", said, "Give names and values.")
        if unknown := [name for name in settings if name not in given]:
            raise InputError(
                "unknown-name",
                f"The pipeline {document.path} has no variable {unknown[0]!r}.",
                f"{suggestion(unknown[0], map(str, given))}Its variables are {', '.join(map(str, given))}."
                if given
                else "It has no variables to set.",
            )
    found: dict[str, Variable] = {}
    for name, default in given.items():
        with unless_wrong:
            said = f"{_at(document, 'variables', name)}: variables"
            if not isinstance(name, str) or not NAME.fullmatch(name):
                remedy = "Use letters, digits and underscores."
                raise InputError("bad-setting", f"{said} have the name {shown(name)}.", remedy)
            value: Any = settings.get(name, environment.get(f"{ENVIRONMENT}{name}", default))
            if not isinstance(value, str | int | float | bool):
                remedy = "Give text, a number, or true or false."
                raise InputError("bad-setting", f"{said}: {name} is {shown(value)}.", remedy)
            found[name] = _fill(value, found, f"{said}: {name}")
    return found


_Named = tuple[Step, str, Sequence[str]]
"""A step, its own name, and notes on how it is written."""


def _steps(document: Document, entries: Sequence[Any], variables: Mapping[str, Variable]) -> Iterator[_Named]:
    known = dict(variables)
    taken = set(variables)
    for number, entry in enumerate(entries, start=1):
        step, name, notes = _step(document, entry, known, number)
        if name in taken:
            raise InputError(
                "named-twice",
                f"{_at(document, 'steps', number - 1)}, step {number} has the name {name!r}, which is taken.",
                "Choose one that no variable and no other step has.",
            )
        if name:
            taken.add(name)
            known |= _outputs(step, name)
        yield step, name, notes


def _outputs(step: Step, name: str) -> dict[str, Variable]:
    """What steps below can refer to: `${name}` is what the step writes first, `${name.out}` one by its setting."""
    places = {
        f"{name}.{key_of(field)}": getattr(step, field)
        for field in settings_of_places(type(step), Place.WRITTEN)
        if getattr(step, field) is not None
    }
    return {**({name: next(iter(places.values()))} if places else {}), **places}


def _step(document: Document, entry: Any, known: Mapping[str, Variable], number: int) -> _Named:
    where = f"{_at(document, 'steps', number - 1)}, step {number}"
    remedy = f"Begin it with the name of one step: {', '.join(STEPS)}."
    entry = dict(entry) if isinstance(entry, Mapping) else {}
    name = entry.pop("name", "")
    if len(entry) != 1:
        raise InputError("bad-setting", f"{where} is not one step with its settings.", remedy)
    if not isinstance(name, str) or (name and not STEP_NAME.fullmatch(name)):
        raise InputError(
            "bad-setting", f"{where} has the name {shown(name)}.", "Use letters, digits, underscores and hyphens."
        )
    ((kind, values),) = entry.items()
    if kind not in STEPS:
        raise InputError(
            "unknown-name", f"{where} is the unknown {shown(kind)}.", f"{suggestion(str(kind), STEPS)}{remedy}"
        )

    def at(key: str | None) -> str:
        keys = () if key is None else (kind, key)
        return f"{_at(document, 'steps', number - 1, *keys)}, step {number} ({kind})"

    parsed, notes = kind, list[str]()
    if isinstance(values, Mapping):
        if kind == "ingest" and "append" in values:
            raise InputError(
                "unknown-key",
                f"{at('append')} has the key 'append', with which rows would be added again whenever the step is done.",
                "Write `new: true` in its place: it adds the files that the dataset does not have.",
            )
        values = {key: _fill(value, known, f"{at(str(key))}: {key}") for key, value in values.items()}
        for key, other in STEPS[kind].moved.items():
            value = values.pop(key, None)
            if value is not None and convert(value, bool, f"{at(key)}: {key}"):
                parsed = other
                notes = [f"{at(key)}: with `{key}` it is the step `{other}` now: write that."]
            elif value is not None:
                notes = [f"{at(key)}: `{key}` is a step of its own now: leave it out."]
    return parse_record(STEPS[parsed], values, at), name, notes


def _fill(value: Any, variables: Mapping[str, Variable], where: str) -> Any:
    """The value with its `${name}` replaced; a text that is nothing but `${name}` becomes the variable's value."""
    match value:
        case str():
            whole = REFERENCE.fullmatch(value)
            if whole:
                return _lookup(whole[1], variables, where)
            parts = [as_written(_lookup(found[1], variables, where)) for found in REFERENCE.finditer(value)]
            if len(value) + sum(map(len, parts)) > LONGEST_TEXT:
                raise InputError(
                    "over-limit",
                    f"{where} becomes a text of more than {LONGEST_TEXT} characters.",
                    "Use shorter variables, or fewer of them in one text.",
                )
            following = iter(parts)
            return REFERENCE.sub(lambda _: next(following), value)
        case Mapping():
            return {key: _fill(item, variables, where) for key, item in value.items()}
        case list():
            return [_fill(item, variables, where) for item in value]
        case _:
            return value


def _lookup(name: str, variables: Mapping[str, Variable], where: str) -> Variable:
    if name not in variables:
        known = (
            f"{suggestion(name, variables)}The names known there are {', '.join(variables)}."
            if variables
            else "Define it under `variables:`."
        )
        raise InputError("unknown-name", f"{where} uses the unknown variable {shown(name)}.", known)
    return variables[name]


def parse_settings(settings: Sequence[str]) -> dict[str, str]:
    """Values of variables from texts "name=value"; what type they are of, the settings say that they are given to."""
    found: dict[str, str] = {}
    for setting in settings:
        name, separator, text = setting.partition("=")
        if not separator or not name:
            # An address given by itself may be a secret, as those of notifications are.
            shown_setting = "An address" if "://" in setting else repr(setting)
            raise InputError("bad-setting", f"{shown_setting} sets no variable.", "Write it like rows=1000.")
        if name in found:
            raise InputError("named-twice", f"The variable {name!r} is set twice.", "Set it once.")
        found[name] = text
    return found
