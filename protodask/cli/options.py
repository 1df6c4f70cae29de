"""Options that several commands share, and the reading of their values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

import typer

from protodask.cli.errors import WrongUseError

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
            raise WrongUseError(f"--ordinal {value} is no order.", "Write it like size=small,medium,large.")
        if name in orders:
            raise WrongUseError(f"The column {name!r} has two orders.", "Give one.")
        orders[name] = tuple(category.strip() for category in order.split(","))
    return orders


COMPUTING = "Where to compute"

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
        help="Compute on the Dask cluster with this scheduler, such as tcp://10.0.0.1:8786.",
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
