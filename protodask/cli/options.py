"""Options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from protodask.cli.errors import WrongUseError
from protodask.pipeline.steps.base import Option

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

where = partial(Option, panel=COMPUTING)

Json = Annotated[bool, typer.Option("--json", metavar="", help="Print the result as JSON.")]
Debug = Annotated[bool, typer.Option("--debug", metavar="", help="Show the traceback of an error.")]


@dataclass(frozen=True)
class Connection:
    """The options on how to connect to a scheduler."""

    tls_ca: Annotated[
        str | None,
        where("CA of a scheduler at a tls:// address; else Dask's own settings.", "FILE", of_environment=True),
    ] = None
    tls_cert: Annotated[str | None, where("Certificate to show to it.", "FILE", of_environment=True)] = None
    tls_key: Annotated[
        str | None, where("Key of that certificate, without a password.", "FILE", of_environment=True)
    ] = None
    insecure: Annotated[
        bool,
        where(
            "Allow a scheduler of another machine without encryption: all on the network can read and compute there.",
            of_environment=True,
        ),
    ] = False

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


def without_contradicted(given: dict[str, Any], from_environment: Set[str]) -> dict[str, Any]:
    """What is given, but for what the environment says and options contradict, or have no use for."""
    found = dict(given)

    def drop(*names: str) -> None:
        for name in from_environment & {*names}:
            found[name] = False if name == "insecure" else None

    if any(found.get(name) is not None for name in ("workers", "threads", "memory_limit")):
        drop("scheduler")
    scheduler = found.get("scheduler", "tls://")  # a command without that option has an argument for it
    if scheduler is None:
        drop("insecure")
    if scheduler is None or not scheduler.startswith("tls://"):
        drop("tls_ca", "tls_cert", "tls_key")
    return found
