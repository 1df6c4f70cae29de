"""From the fields of records to the options of commands, from what is given for these to a record, and to an answer.

The options of the commands of steps are the fields of the steps' records.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from itertools import chain
from typing import Annotated, Any, get_args, get_origin

import typer

from protodask.cli.console import Answer, give
from protodask.cli.detach import Detach, detach_fit
from protodask.cli.errors import ANSWER_IS_NO, reported, wrong_use
from protodask.cli.options import Computing, Debug, Json, perform_step, without_contradicted
from protodask.pipeline.file.values import as_options, hints_of, key_of, ordered_fields
from protodask.pipeline.steps.base import Argument, Option, Step, option_of, plain_hint
from protodask.pipeline.steps.ingest import AppendStep, IngestStep
from protodask.pipeline.telling.result import FilesFailedError, Piece, Result

BY_NAME = inspect.Parameter.KEYWORD_ONLY

Command = Callable[..., Answer | None]

OF_ALL = {"as_json": Json, "debug": Debug}
"""Options that every command has; those that need to know them have parameters of these names."""


def grouped(command: Command, **steps: type[Step]) -> Command:
    """Let a command take a frozen dataclass of options as one parameter, and print the answer that it returns.

    Each parameter whose type is a dataclass is replaced by an option for each of its fields, nested ones too. What
    there is to say of an option is said in the framework's words or by `Option`. The framework reads the options from
    the signature, so the command gets one that lists them all, and `--json` and `--debug`. What goes wrong is reported.
    From there on Ctrl-C is an exception. `steps` are types of parameters that have none.
    """
    hints = {**hints_of(command), **steps}
    hints.pop("return", None)
    groups = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        group = groups.get(parameter.name)
        if group is None:
            parameters.append(_parameter(parameter.name, hints[parameter.name], parameter.default))
        else:
            parameters += _parameters(group)
    added = {name: hint for name, hint in OF_ALL.items() if name not in hints}
    parameters += [_parameter(name, hint, False) for name, hint in added.items()]

    @wraps(command)
    def with_options(context: typer.Context, **given: Any) -> None:
        as_json = given["as_json"]
        with reported(given["debug"]):
            if context.obj is not None:
                context.obj()
            with wrong_use():
                sources = {name: context.get_parameter_source(name) for name in given}
                of_environment = {name for name, source in sources.items() if source and source.name == "ENVIRONMENT"}
                given = without_contradicted(given, of_environment)
                taken = {name: _take(group, given) for name, group in groups.items()}
                rest = {name: _read(hints[name], value) for name, value in given.items() if name not in added}
            answer = command(**taken, **rest)
            if answer is not None:
                give(answer, as_json)

    signature = inspect.Signature([inspect.Parameter("context", BY_NAME, annotation=typer.Context), *parameters])
    with_options.__signature__ = signature  # type: ignore[attr-defined]
    with_options.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    return with_options


def _parameters(group: Any) -> Iterator[inspect.Parameter]:
    hints = hints_of(group)
    arguments = [name for name, hint in hints.items() if isinstance(option_of(hint), Argument)]
    may_be_left_out = any(map(_is_first, hints.values()))
    for field in sorted(ordered_fields(group), key=lambda field: not _is_first(hints[field.name])):
        hint = hints[field.name]
        if is_dataclass(hint):
            yield from _parameters(hint)
            continue
        default = field.default
        if field.default_factory is not MISSING:
            default = None
        if field.name in arguments and may_be_left_out:
            default = MISSING if _is_first(hint) else None
        yield _parameter(field.name, hint, inspect.Parameter.empty if default is MISSING else default)


def _is_first(hint: Any) -> bool:
    said = option_of(hint)
    return isinstance(said, Argument) and said.first


def _parameter(name: str, hint: Any, default: Any) -> inspect.Parameter:
    said = option_of(hint)
    if said is not None:
        plain = plain_hint(hint)
        of_bool = plain is bool or bool in get_args(plain)
        if get_origin(plain) is Mapping and said.read is None:
            raise TypeError(f"{name} is a mapping, and its option says not how it is to be read.")
        hint = Annotated[_taken_as(plain, default), _framework_words(name, said, of_bool)]
        default = None if default == () else default
    return inspect.Parameter(name, BY_NAME, default=default, annotation=hint)


def _taken_as(hint: Any, default: Any) -> Any:
    """What the framework is to make of the words of an option: a list where it can be repeated."""
    item: Any = str if get_origin(hint) is Mapping else None
    if get_origin(hint) is tuple and get_args(hint)[-1] is ...:
        item = get_args(hint)[0]
    if item is not None:
        return list[item] if default is inspect.Parameter.empty else list[item] | None
    return hint | None if default is None and type(None) not in get_args(hint) else hint


def _framework_words(name: str, said: Option, of_bool: bool) -> Any:
    if isinstance(said, Argument):
        return typer.Argument(metavar=said.metavar, help=said.help, show_default=False)
    return typer.Option(
        said.flag or f"--{key_of(name)}",
        metavar="" if of_bool else said.metavar,  # a flag takes no value
        help=said.help,
        show_default=said.shown or True,
        min=said.least,
        envvar=f"PROTODASK_{name.upper()}" if said.of_environment else None,
        rich_help_panel=said.panel,
    )


def _take(group: Any, given: dict[str, Any]) -> Any:
    """The group made of its options, which are taken out of `given`."""
    hints = hints_of(group)
    values = {
        field.name: _take(hints[field.name], given)
        if is_dataclass(hints[field.name])
        else _read(hints[field.name], given.pop(field.name))
        for field in fields(group)
    }
    for name in filter(lambda name: _is_first(hints[name]), tuple(values)):
        (last,) = (other for other in values if other != name and isinstance(option_of(hints[other]), Argument))
        if values[last] is None:  # one place alone is that of the last
            values |= {last: values[name], name: None}
    return group(**values)


def _read(hint: Any, value: Any) -> Any:
    """What the words of an option mean that can be repeated; other values are read already."""
    said = option_of(hint)
    if said is None:
        return value
    if said.read is not None:
        return said.read(value or ())
    hint = plain_hint(hint)
    return tuple(value or ()) if get_origin(hint) is tuple and get_args(hint)[-1] is ... else value


def step_command(kind: type[Step]) -> Command:
    """The command that does a step of this kind."""
    if kind is IngestStep:
        return grouped(ingest)
    template = _detaching if kind.detaches else _computing if kind.computes else _here
    command = grouped(template, step=kind)
    command.__doc__ = about_step(kind)
    return command


def about_step(kind: type[Step]) -> str | None:
    """What the help of the step's command says first."""
    return inspect.getdoc(ingest if kind is IngestStep else kind)


def _detaching(step: Any, computing: Computing, detach: Detach = None) -> Answer:
    return _computing(step, computing) if detach is None else detach_fit(detach, step, computing)


def _here(step: Any) -> Answer:
    return _computing(step, Computing())


def ingest(
    step: IngestStep,
    *,
    append: Annotated[bool, Option("Add the rows to the dataset at the output path.")] = False,
    computing: Computing,
) -> Answer:
    """Make a dataset from tables or arrays, or add their rows to one."""
    return _computing(AppendStep(**vars(step)) if append else step, computing)


def _computing(step: Any, computing: Computing) -> Answer:
    try:
        result = perform_step(step, computing)
    except FilesFailedError as error:
        if error.result is None:
            raise
        return _answer(error.result, error=error)
    advice = None if computing.quiet else step.advice()
    return _answer(result, () if advice is None else (advice,), code=ANSWER_IS_NO if result.refused else 0)


def _answer(result: Result, advice: tuple[str, ...] = (), **how: Any) -> Answer:
    """What a step left behind, with the settings that are named as options."""

    def describe() -> dict[str, Any]:
        found = result.describe()
        return found | {"notes": [*map(as_options, found["notes"])]} if "notes" in found else found

    told: Iterator[Piece] = chain(result.told(), advice)
    return Answer(describe, (as_options(one) if isinstance(one, str) else one for one in told), **how)
