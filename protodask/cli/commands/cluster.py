"""`protodask cluster`: certificates for a cluster, and whether a cluster is fit for work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from protodask.cli.console import Answer, Part, apart
from protodask.cli.errors import ANSWER_IS_NO, wrong_use
from protodask.cli.grouping import grouped
from protodask.cli.options import Connection, check_connection
from protodask.errors import count
from protodask.pipeline.steps.base import Option, Overwrite
from protodask.pipeline.telling.result import Pairs, Piece, Table, shorten, size

if TYPE_CHECKING:
    from protodask.security.checkup import Report
    from protodask.security.folder import CertificatesWritten

app = typer.Typer(
    name="cluster",
    help="Make certificates for a Dask cluster, or check one.",
    no_args_is_help=True,
    add_completion=False,
)


@app.command("certs")
@grouped
def certs(
    out: Annotated[str, Option("Folder for the certificates and keys.", "DIR")],
    host: Annotated[
        tuple[str, ...], Option("Name or address of a machine of scheduler or workers. Repeatable.", "NAME")
    ] = (),
    days: Annotated[int, Option("How long they hold.", "N")] = 365,
    overwrite: Overwrite = False,
) -> Answer:
    """Make a certificate authority with certificates for scheduler, workers and clients."""
    from protodask.security.folder import check_certificates, write_certificates

    with wrong_use():
        check_certificates(out, host, days)
    written = write_certificates(out, host, days, overwrite)
    return Answer(written.describe, _told_certificates(written))


def _told_certificates(written: CertificatesWritten) -> Iterator[Piece]:
    import shlex

    def options(role: str, *names: str) -> str:
        files = (written.file("ca.pem"), written.file(f"{role}.pem"), written.file(f"{role}-key.pem"))
        return " ".join(f"{name} {shlex.quote(shorten(file))}" for name, file in zip(names, files, strict=True))

    dask = ("--tls-ca-file", "--tls-cert", "--tls-key")
    local = "--dashboard-address 127.0.0.1:0"
    until = f"{written.expires:%d %B %Y, %H:%M} UTC"
    yield f"The certificates in {shorten(written.path)} hold until {until}."
    yield "They name " + ", ".join(written.hosts) + "."
    yield ""
    yield "Start the scheduler and the workers, each with its own files. TLS does not cover the dashboard, hence the"
    yield "last option; HOST is an address of the machine that the others reach, SCHEDULER that of the scheduler:"
    yield ""
    yield f"  dask scheduler --host tls://HOST {options('scheduler', *dask)} {local}"
    yield f"  dask worker tls://SCHEDULER:8786 --host tls://HOST {options('worker', *dask)} {local}"
    yield ""
    yield "Compute on them:"
    yield ""
    here = options("client", "--tls-ca", "--tls-cert", "--tls-key")
    yield f"  protodask fit DATA --out MODEL --scheduler tls://SCHEDULER:8786 {here}"
    yield ""
    yield "Copy to each machine what its command names and nothing else. Whoever has a key may run code on the cluster;"
    yield f"whoever has {shorten(written.file('ca-key.pem'))} can make more: keep it off the cluster."


@app.command("check")
@grouped
def check(
    address: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="Address of the scheduler, such as tls://10.0.0.1:8786.")
    ],
    *,
    connection: Connection,
    storage: Annotated[
        tuple[str, ...],
        Option(
            "A dataset, file or folder that the workers must reach; a folder is also written to. Repeatable.", "PATH"
        ),
    ] = (),
) -> Answer:
    """Report versions that differ, storage out of reach, certificates about to expire, and distances.

    Exit codes: 0 fine, 1 the scheduler cannot be reached, 3 something was found.
    """
    from protodask.security.checkup import check_cluster

    check_connection(address, connection)
    report = check_cluster(address, connection.tls, connection.insecure, storage)
    described = {"kind": "cluster", **asdict(report)}
    return Answer(lambda: described, apart(_told_report(report)), ANSWER_IS_NO if report.problems else 0)


def _told_report(report: Report) -> Iterator[Part]:
    memory = "no limit of memory" if report.memory_bytes is None else size(report.memory_bytes)
    yield Pairs(
        [
            ("scheduler", f"{report.address}, {'encrypted' if report.encrypted else 'not encrypted'}"),
            ("round trip", _milliseconds(report.seconds)),
            ("workers", f"{len(report.workers):,} with {count(report.threads, 'thread')}, {memory}"),
            *[(name, str(report.versions[name])) for name in ("protodask", "dask", "distributed", "python")],
        ]
    )
    if report.workers:
        rows = [
            [
                worker.address,
                str(worker.threads),
                "no limit" if worker.memory_bytes is None else size(worker.memory_bytes),
                "not timed" if worker.seconds is None else _milliseconds(worker.seconds),
            ]
            for worker in report.workers
        ]
        yield Table(["worker", "threads", "memory", "round trip"], rows)
    if report.certificates:
        rows = [[one.name, one.of, one.expires, f"{one.days_left:.0f}"] for one in report.certificates]
        yield Table(["certificate", "of", "expires", "days left"], rows, whole=True)
    for place in dict.fromkeys(one.place for one in report.storage):
        answers = [one for one in report.storage if one.place == place]
        written = [one.writes for one in answers if one.writes is not None]
        of_workers = f"of {count(len(answers), 'worker')}"
        yield [
            f"{shorten(place)}: read by {sum(one.reads for one in answers)} {of_workers}",
            *([f"{shorten(place)}: written to by {sum(written)} {of_workers}"] if written else []),
        ]
    yield [
        *(line for problem in report.problems for line in (f"Problem: {problem.seen}", f"  {problem.remedy}")),
        f"{count(len(report.problems), 'problem')} found." if report.problems else "No problem found.",
    ]


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms"
