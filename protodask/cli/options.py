"""Options that several commands share, and the reading of their values."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from protodask.cli.errors import WrongUseError

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


def parse_orders(values: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Columns with their categories, lowest first, from "COL=a,b,c"."""
    orders: dict[str, tuple[str, ...]] = {}
    for value in values:
        name, separator, order = value.partition("=")
        if not name or not separator or not order:
            raise WrongUseError(
                "bad-setting", f"--ordinal {value} is no order.", "Write it like size=small,medium,large."
            )
        if name in orders:
            raise WrongUseError("named-twice", f"The column {name!r} has two orders.", "Give one.")
        orders[name] = tuple(category.strip() for category in order.split(","))
    return orders


COMPUTING = "Where to compute"

BY_NAME = inspect.Parameter.KEYWORD_ONLY

Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is at the output path.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
MemoryLimit = Annotated[
    int | None,
    typer.Option(
        "--memory-limit",
        parser=parse_bytes,
        metavar="BYTES",
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
        help="Compute on the Dask cluster with this scheduler, such as tls://10.0.0.1:8786.",
        rich_help_panel=COMPUTING,
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
    option: typer.models.OptionInfo = typer.Option(name, metavar="FILE", help=text, rich_help_panel=COMPUTING)
    return option


TlsCa = Annotated[str | None, _tls_file("--tls-ca", "CA of a scheduler at a tls:// address; else Dask's own settings.")]
TlsCert = Annotated[str | None, _tls_file("--tls-cert", "Certificate to show to it.")]
TlsKey = Annotated[str | None, _tls_file("--tls-key", "Key of that certificate, without a password.")]
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure",
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


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take a frozen dataclass of options as one parameter.

    Each parameter whose type is a dataclass is replaced by an option for each of its fields, nested ones too. The
    framework reads the options from the signature, so the command gets one that lists them all.
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        group = groups.get(parameter.name)
        if group is None:
            parameters.append(parameter.replace(kind=BY_NAME, annotation=hints[parameter.name]))
        else:
            parameters += _parameters(group)

    @wraps(command)
    def with_options(**given: Any) -> None:
        command(**{name: _take(group, given) for name, group in groups.items()}, **given)

    signature = inspect.Signature(parameters)
    with_options.__signature__ = signature  # type: ignore[attr-defined]
    with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_options


def _parameters(group: Any) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        hint = hints[field.name]
        if is_dataclass(hint):
            yield from _parameters(hint)
        else:
            yield inspect.Parameter(field.name, BY_NAME, default=field.default, annotation=hint)


def _take(group: Any, given: dict[str, Any]) -> Any:
    """The group made of its options, which are taken out of `given`."""
    hints: Mapping[str, Any] = get_type_hints(group, include_extras=True)
    values = {
        field.name: _take(hints[field.name], given) if is_dataclass(hints[field.name]) else given.pop(field.name)
        for field in fields(group)
    }
    return group(**values)
