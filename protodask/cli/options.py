"""Options that several commands share, and the reading of their values."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

import typer

from protodask.cli.errors import WrongUseError, reported, wrong_use
from protodask.pipeline.steps import Argument, Option, Step
from protodask.pipeline.steps.base import option_of, plain_hint
from protodask.pipeline.values import key_of, ordered_fields

if TYPE_CHECKING:
    from protodask.engine import TlsFiles

BYTES = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)")

UNITS = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", start=1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", start=1)},
}


def parse_bytes(text: str) -> int:
    """Bytes from "1GiB", "800MB", "1.5 GiB" or a plain number."""
    found = BYTES.fullmatch(str(text).strip())
    factor = UNITS.get(found[2].lower()) if found else None
    if found is None or factor is None or float(found[1]) * factor < 1:
        raise typer.BadParameter(f"{text!r} is no amount of memory. Write it like 1GiB, 800MB or 1000000000.")
    return int(float(found[1]) * factor)


COMPUTING = "Where to compute"

BY_NAME = inspect.Parameter.KEYWORD_ONLY

Command = Callable[..., None]

Json = Annotated[bool, typer.Option("--json", metavar="", help="Print the result as JSON.")]
Debug = Annotated[bool, typer.Option("--debug", metavar="", help="Show the traceback of an error.")]
MemoryLimit = Annotated[
    int | None,
    typer.Option(
        "--memory-limit",
        parser=parse_bytes,
        metavar="BYTES",
        envvar="PROTODASK_MEMORY_LIMIT",
        help="Memory of each process that computes, such as 1GiB or 800MB; by default, what there is.",
        rich_help_panel=COMPUTING,
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads", min=1, help="Threads of this process; by default, one a processor.", rich_help_panel=COMPUTING
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="ADDRESS",
        envvar="PROTODASK_SCHEDULER",
        help="Compute on the Dask cluster with this scheduler, such as tls://10.0.0.1:8786.",
        rich_help_panel=COMPUTING,
    ),
]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet", metavar="", help="Say nothing but the result, warnings and errors.", rich_help_panel=COMPUTING
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        help="Compute in so many worker processes of this machine, started for this run.",
        rich_help_panel=COMPUTING,
    ),
]


def _tls_file(name: str, text: str) -> typer.models.OptionInfo:
    variable = f"PROTODASK_{name.removeprefix('--').replace('-', '_').upper()}"
    option: typer.models.OptionInfo = typer.Option(
        name, metavar="FILE", envvar=variable, help=text, rich_help_panel=COMPUTING
    )
    return option


TlsCa = Annotated[str | None, _tls_file("--tls-ca", "CA of a scheduler at a tls:// address; else Dask's own settings.")]
TlsCert = Annotated[str | None, _tls_file("--tls-cert", "Certificate to show to it.")]
TlsKey = Annotated[str | None, _tls_file("--tls-key", "Key of that certificate, without a password.")]
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure",
        metavar="",
        envvar="PROTODASK_INSECURE",
        help="Allow a scheduler of another machine without encryption: all on the network can read and compute there.",
        rich_help_panel=COMPUTING,
    ),
]


@dataclass(frozen=True)
class Connection:
    """The options on how to connect to a scheduler."""

    tls_ca: TlsCa = None
    tls_cert: TlsCert = None
    tls_key: TlsKey = None
    insecure: Insecure = False

    @property
    def tls(self) -> TlsFiles | None:
        """The files, if they are named; some without the others are wrong use."""
        files = {"--tls-ca": self.tls_ca, "--tls-cert": self.tls_cert, "--tls-key": self.tls_key}
        missing = [name for name, file in files.items() if file is None]
        if len(missing) == len(files):
            return None
        if self.tls_ca is None or self.tls_cert is None or self.tls_key is None:
            raise WrongUseError(
                "setting-missing",
                f"TLS files are given without {' and '.join(missing)}.",
                "Give --tls-ca, --tls-cert and --tls-key.",
            )
        from protodask.engine import TlsFiles

        return TlsFiles(self.tls_ca, self.tls_cert, self.tls_key)


NOTHING_SAID = Connection()


def grouped(command: Command, **steps: type[Step]) -> Command:
    """Let a command take a frozen dataclass of options as one parameter.

    Each parameter whose type is a dataclass is replaced by an option for each of its fields, nested ones too. What
    there is to say of an option is said in the framework's words or by `Option`. The framework reads the options from
    the signature, so the command gets one that lists them all. `steps` are types of parameters that have none.
    """
    hints = {**get_type_hints(command, include_extras=True), **steps}
    groups = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        group = groups.get(parameter.name)
        if group is None:
            parameters.append(_parameter(parameter.name, hints[parameter.name], parameter.default))
        else:
            parameters += _parameters(group)

    @wraps(command)
    def with_options(**given: Any) -> None:
        with reported(bool(given.get("debug"))), wrong_use():
            taken = {name: _take(group, given) for name, group in groups.items()}
            rest = {name: _read(hints[name], value) for name, value in given.items()}
        command(**taken, **rest)

    signature = inspect.Signature(parameters)
    with_options.__signature__ = signature  # type: ignore[attr-defined]
    with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_options


def _parameters(group: Any) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    arguments = {name: said for name, hint in hints.items() if isinstance(said := option_of(hint), Argument)}
    may_be_left_out = any(said.first for said in arguments.values())
    for field in sorted(
        ordered_fields(group), key=lambda field: field.name in arguments and -arguments[field.name].first
    ):
        hint = hints[field.name]
        if is_dataclass(hint):
            yield from _parameters(hint)
            continue
        default = field.default
        if field.default_factory is not MISSING:
            default = None
        if field.name in arguments and may_be_left_out:
            default = MISSING if arguments[field.name].first else None
        yield _parameter(field.name, hint, inspect.Parameter.empty if default is MISSING else default)


def _parameter(name: str, hint: Any, default: Any) -> inspect.Parameter:
    said = option_of(hint)
    if said is not None:
        plain = plain_hint(hint)
        of_bool = plain is bool or bool in get_args(plain)
        hint = Annotated[_taken_as(plain, default), _framework_words(name, said, of_bool)]
        default = None if default == () else default
    return inspect.Parameter(name, BY_NAME, default=default, annotation=hint)


def _taken_as(hint: Any, default: Any) -> Any:
    """What the framework is to make of the words of an option: a list where it can be repeated."""
    many = get_origin(hint) is Mapping or (get_origin(hint) is tuple and get_args(hint)[-1] is ...)
    if many:
        return list[str] if default is inspect.Parameter.empty else list[str] | None
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
        rich_help_panel=said.panel,
    )


def _take(group: Any, given: dict[str, Any]) -> Any:
    """The group made of its options, which are taken out of `given`."""
    hints = get_type_hints(group, include_extras=True)
    values = {
        field.name: _take(hints[field.name], given)
        if is_dataclass(hints[field.name])
        else _read(hints[field.name], given.pop(field.name))
        for field in fields(group)
    }
    for name, hint in hints.items():
        said = option_of(hint)
        if isinstance(said, Argument) and said.first:  # one place alone is that of the last
            (last,) = (other for other in values if other != name and isinstance(option_of(hints[other]), Argument))
            if values[last] is None:
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
