"""Looking a cluster over before it is trusted with work: versions, storage, certificates, distance."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from protodask.engine.connect import ENCRYPTED, TlsFiles, connect_client, version_reader
from protodask.errors import ClusterError, refusing, some
from protodask.security.expiry import CertificateReport, certificate_reports
from protodask.security.probe import ClientProbe, probe_from_worker, said

if TYPE_CHECKING:
    from protodask.engine.connect import Client

ANSWER_SECONDS = 30
"""A worker that is asked for its versions answers in milliseconds, one that reads a slow store in seconds."""

ROUNDS = 5
"""Round trips whose median is reported."""

TIMING_SECONDS = 5.0
"""Workers are timed one after the other, and those that are not reached in this time are not timed."""

PACKAGES = (
    "python", "protodask", "dask", "distributed", "cloudpickle", "msgpack", "tornado", "toolz", "numpy", "scipy",
    "zarr", "scikit-learn", "threadpoolctl",
)  # fmt: skip
"""What must be the same everywhere: tasks are pickled by name, and results are to be the same to the last bit."""

OPTIONAL_PACKAGES = ("lz4", "pandas", "pyarrow", "fsspec", "obstore")
"""What must be the same where it is installed."""


@dataclass(frozen=True)
class Problem:
    """Something to be put right before work is given to the cluster."""

    about: Literal["workers", "versions", "storage", "certificates"]
    seen: str
    remedy: str


@dataclass(frozen=True)
class WorkerReport:
    """A worker; `memory_bytes` is None without a limit, `seconds` is the round trip by way of the scheduler."""

    address: str
    name: str
    threads: int
    memory_bytes: int | None
    seconds: float | None


@dataclass(frozen=True)
class VersionDifference:
    """A package of which there are several versions: who has which. A version of None is a package that is absent."""

    package: str
    found: tuple[tuple[str | None, tuple[str, ...]], ...]


@dataclass(frozen=True)
class StorageReport:
    """How a worker got on with a place. `writes` is None where writing was not tried."""

    place: str
    worker: str
    reads: bool
    writes: bool | None
    error: str | None


@dataclass(frozen=True)
class Report:
    """What was found; without problems the cluster is fit for work."""

    address: str
    encrypted: bool
    seconds: float
    """Median round trip to the scheduler."""

    workers: tuple[WorkerReport, ...]
    versions: Mapping[str, str | None]
    """Those of the client."""

    differences: tuple[VersionDifference, ...]
    certificates: tuple[CertificateReport, ...]
    storage: tuple[StorageReport, ...]
    problems: tuple[Problem, ...]

    @property
    def threads(self) -> int:
        return sum(worker.threads for worker in self.workers)

    @property
    def memory_bytes(self) -> int | None:
        """Memory limits of all workers together, or None where one has no limit."""
        limits = [worker.memory_bytes for worker in self.workers]
        return None if None in limits else sum(limit or 0 for limit in limits)


def check_cluster(
    address: str, tls: TlsFiles | None = None, insecure: bool = False, storage: Sequence[str] = ()
) -> Report:
    """Ask a cluster what it is like. Every worker is asked to read the places in `storage`; folders, to write as well.

    A scheduler that cannot be reached is a `ClusterError`; all else that is wrong is among the problems of the report.
    """
    with connect_client(address, tls, insecure) as client:
        encrypted = client.scheduler.address.partition("://")[0] in ENCRYPTED
        certificates = certificate_reports(address, tls) if encrypted else ()

        async def look_over() -> Report:
            return await _look_over(client, address, encrypted, certificates, storage)

        seen, remedy = f"The scheduler at {address} stopped answering", "Check that it still runs, and repeat."
        with refusing((OSError, TimeoutError), "connection-lost", seen, remedy, ClusterError):
            report: Report = client.sync(look_over)
    return report


async def _look_over(
    client: Client,
    address: str,
    encrypted: bool,
    certificates: tuple[CertificateReport, ...],
    places: Sequence[str],
) -> Report:
    names = tuple(name for name in (*PACKAGES, *OPTIONAL_PACKAGES) if name != "python")
    scheduler: Any = client.scheduler
    theirs = await asyncio.wait_for(scheduler.versions(packages=list(names)), ANSWER_SECONDS)
    seconds = await _median_seconds(lambda: scheduler.versions(packages=[]))
    identity = await asyncio.wait_for(scheduler.identity(n_workers=-1), ANSWER_SECONDS)
    workers: Mapping[str, Any] = identity["workers"]
    get_versions = version_reader()
    answers = await _everywhere(client, workers, get_versions, list(names))
    silent = {worker: _said(answer) for worker, answer in answers.items() if isinstance(answer, BaseException)}
    talking = [worker for worker in workers if worker not in silent]
    here = get_versions(names)["packages"]
    versions = {name: here[name] for name in (*PACKAGES, *OPTIONAL_PACKAGES)}
    everyone = {
        "client": versions,
        "scheduler": theirs["packages"],
        **{worker: answers[worker]["packages"] for worker in talking},
    }
    timed = await _time_workers(client, talking)
    probes = tuple([await asyncio.to_thread(ClientProbe.begin, place) for place in places])
    try:
        storage = [report for probe in probes for report in await _try_storage(client, talking, probe)]
    finally:
        for probe in probes:
            await asyncio.to_thread(probe.end)
    differences = _differences(everyone)
    return Report(
        address=address,
        encrypted=encrypted,
        seconds=seconds,
        workers=tuple(_worker_report(worker, workers[worker], timed.get(worker)) for worker in workers),
        versions=versions,
        differences=differences,
        certificates=certificates,
        storage=tuple(storage),
        problems=(
            *_worker_problems(workers, silent),
            *_version_problems(differences),
            *_storage_problems(storage, probes),
            *_certificate_problems(certificates),
        ),
    )


async def _everywhere(client: Client, workers: Any, function: Callable[..., Any], *args: Any) -> dict[str, Any]:
    """What `function` returned or raised on each worker; one that does not answer holds up no other."""

    async def one(worker: str) -> Any:
        try:
            answer: Any = client.run(function, *args, workers=[worker], on_error="return")
            return (await asyncio.wait_for(answer, ANSWER_SECONDS))[worker]
        except (OSError, TimeoutError, KeyError) as error:
            return error

    return dict(zip(workers, await asyncio.gather(*map(one, workers)), strict=True))


async def _median_seconds(ask: Callable[[], Any]) -> float:
    """Median time of an answer; the first one, which may open a connection, does not count."""
    times = []
    for _ in range(ROUNDS + 1):
        began = time.perf_counter()
        await asyncio.wait_for(ask(), ANSWER_SECONDS)
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])


async def _time_workers(client: Client, workers: Sequence[str]) -> dict[str, float]:
    deadline = time.monotonic() + TIMING_SECONDS
    timed: dict[str, float] = {}
    for worker in workers:
        if time.monotonic() > deadline:
            break
        try:
            ask = partial(client.run, os.getpid, workers=[worker], on_error="return")
            timed[worker] = await asyncio.wait_for(_median_seconds(ask), TIMING_SECONDS)
        except (OSError, TimeoutError):
            continue
    return timed


async def _try_storage(client: Client, workers: Sequence[str], probe: ClientProbe) -> list[StorageReport]:
    if probe.error is not None:
        return []
    answers = await _everywhere(client, workers, probe_from_worker, probe.task)
    return [_storage_report(probe.shown, worker, answer) for worker, answer in answers.items()]


def _storage_report(place: str, worker: str, answer: Any) -> StorageReport:
    if isinstance(answer, BaseException):
        return StorageReport(place, worker, reads=False, writes=None, error=_said(answer))
    reads, writes, error = answer
    return StorageReport(place, worker, reads, writes, error)


def _said(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {ANSWER_SECONDS} seconds"
    return said(error)


def _worker_report(address: str, worker: Mapping[str, Any], seconds: float | None) -> WorkerReport:
    limit = int(worker.get("memory_limit") or 0)
    return WorkerReport(address, str(worker.get("name", address)), int(worker["nthreads"]), limit or None, seconds)


def _differences(everyone: Mapping[str, Mapping[str, str | None]]) -> tuple[VersionDifference, ...]:
    differences = []
    for package in (*PACKAGES, *OPTIONAL_PACKAGES):
        found: dict[str | None, list[str]] = {}
        for who, versions in everyone.items():
            version = versions.get(package)
            if version is not None or package in PACKAGES:
                found.setdefault(version, []).append(who)
        if len(found) > 1:
            differences.append(VersionDifference(package, tuple((key, tuple(who)) for key, who in found.items())))
    return tuple(differences)


def _worker_problems(workers: Collection[str], silent: Mapping[str, str]) -> list[Problem]:
    problems = [
        Problem("workers", f"The worker {worker} did not say what it is ({said}).", "Look into its log, or restart it.")
        for worker, said in silent.items()
    ]
    if not workers:
        problems.append(Problem("workers", "The scheduler has no workers.", "Start some with its address."))
    return problems


MOST_NAMED = 3
"""Workers that a message names; the report has all."""


def _version_problems(differences: Sequence[VersionDifference]) -> list[Problem]:
    return [
        Problem(
            "versions",
            f"Versions of {one.package} differ: "
            + "; ".join(f"{version or 'not installed'} on {some(who, MOST_NAMED)}" for version, who in one.found)
            + ".",
            "Install the same version everywhere, best from one image or lock file.",
        )
        for one in differences
    ]


def _storage_problems(reports: Sequence[StorageReport], probes: Sequence[ClientProbe]) -> list[Problem]:
    problems = [
        Problem(
            "storage",
            f"{probe.shown} cannot be used from here ({probe.error}).",
            "Check it; a file or a Zarr store is only read, a folder also written to.",
        )
        for probe in probes
        if probe.error is not None
    ]
    for report in reports:
        if not report.reads:
            problems.append(
                Problem(
                    "storage",
                    f"The worker {report.worker} cannot read {report.place} ({report.error}).",
                    "Use storage that all machines reach under one path or URL, and mount it there.",
                )
            )
        elif report.writes is False:
            problems.append(
                Problem(
                    "storage",
                    f"The worker {report.worker} cannot write to {report.place} ({report.error}).",
                    "Give its user the right to write there; reading works.",
                )
            )
    return problems


def _certificate_problems(certificates: Sequence[CertificateReport]) -> list[Problem]:
    return [
        Problem(
            "certificates",
            f"The certificate {one.name!r} ({one.of}) holds for another {one.days_left:.1f} days only.",
            "Make new ones with `protodask cluster certs`, and restart scheduler and workers with them.",
        )
        for one in certificates
        if one.expires_soon
    ]
