"""Looking clusters over."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from distributed import Client
from support.errors import refused

from protodask.engine import connect
from protodask.errors import ClusterError
from protodask.security import checkup
from protodask.security.checkup import Report, check_cluster
from protodask.security.probe import ProbeTask, probe_storage

StartCluster = Callable[[int], Any]


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with Client(address, set_as_default=False) as connected:
        yield connected


def _about(report: Report, subject: str) -> list[str]:
    return [f"{problem.seen} {problem.remedy}" for problem in report.problems if problem.about == subject]


@pytest.mark.slow
def test_check_cluster__of_one_that_is_fit(address: str, tmp_path: Path) -> None:
    (tmp_path / "file.csv").write_text("a,b\n1,2\n")
    report = check_cluster(address, storage=[str(tmp_path), str(tmp_path / "file.csv")])
    assert report.problems == ()
    assert (report.address, report.encrypted, report.certificates) == (address, False, ())
    assert len(report.workers) == 2
    assert (report.threads, report.memory_bytes) == (2, 2 * 2**30)
    assert report.seconds > 0
    assert all(worker.seconds is not None and worker.seconds > 0 for worker in report.workers)
    assert report.versions["protodask"]
    assert str(report.versions["python"]).startswith("3.")
    folder, file = str(tmp_path), str(tmp_path / "file.csv")
    assert sorted((one.place, one.reads, one.writes) for one in report.storage) == [
        (folder, True, True), (folder, True, True), (file, True, None), (file, True, None),
    ]  # fmt: skip
    assert {one.worker for one in report.storage} == {worker.address for worker in report.workers}
    assert os.listdir(tmp_path) == ["file.csv"], "no probe is left behind"
    json.dumps(asdict(report), allow_nan=False)


def test_check_cluster__only_reads_stores(address: str, tmp_path: Path) -> None:
    (tmp_path / "zarr.json").write_text("{}")
    report = check_cluster(address, storage=[str(tmp_path)])
    assert [(one.reads, one.writes) for one in report.storage] == [(True, None)] * 2


def test_check_cluster__of_a_place_that_is_not_there(address: str, tmp_path: Path) -> None:
    report = check_cluster(address, storage=[str(tmp_path / "nothing")])
    (problem,) = _about(report, "storage")
    assert "nothing cannot be used from here" in problem
    assert report.storage == ()


def test_check_cluster__of_storage_that_each_process_has_for_itself(address: str) -> None:
    report = check_cluster(address, storage=["memory://user:hush-hush@bucket/folder?token=abcdef"])
    assert [one.reads for one in report.storage] == [False, False]
    problems = _about(report, "storage")
    assert len(problems) == 2
    assert all("one path or URL" in problem for problem in problems)
    said = json.dumps(asdict(report))
    assert "hush-hush" not in said
    assert "abcdef" not in said
    assert "memory://***@bucket/folder?token=***" in said


def test_probe_storage__tells_places_of_one_name_apart(tmp_path: Path) -> None:
    (tmp_path / "probe").write_text("another")
    reads, writes, error = probe_storage(ProbeTask(str(tmp_path / "probe"), "0" * 32, str(tmp_path)))
    assert (reads, writes) == (False, None)
    assert error is not None
    assert "another place of the same name" in error


def test_check_cluster__of_a_folder_that_workers_cannot_write_to(address: str, client: Client, tmp_path: Path) -> None:
    def break_writing(broken: bool) -> None:
        from protodask.security import probe

        def refuse(file: str, content: bytes) -> None:
            raise PermissionError(f"read-only: {file}")

        if broken:
            probe._kept = probe._write  # type: ignore[attr-defined]
            probe._write = refuse
        else:
            probe._write = probe._kept  # type: ignore[attr-defined]

    worker = next(iter(client.scheduler_info()["workers"]))
    client.run(break_writing, True, workers=[worker])
    try:
        report = check_cluster(address, storage=[str(tmp_path)])
    finally:
        client.run(break_writing, False, workers=[worker])
    (problem,) = _about(report, "storage")
    assert worker in problem
    assert "Give its user the right to write there" in problem
    assert os.listdir(tmp_path) == []


def test_check_cluster__names_versions_that_differ(address: str, client: Client) -> None:
    def pretend(package: str, version: str | None) -> None:
        from distributed import versions

        versions._kept = versions._version_cached  # type: ignore[attr-defined]
        true = versions._version_cached
        versions._version_cached = lambda name: version if name == package else true(name)  # type: ignore[assignment]

    def restore() -> None:
        from distributed import versions

        versions._version_cached = versions._kept  # type: ignore[attr-defined]

    worker = next(iter(client.scheduler_info()["workers"]))
    for package, version in (("numpy", "0.1"), ("protodask", None)):
        client.run(pretend, package, version, workers=[worker])
        try:
            report = check_cluster(address)
        finally:
            client.run(restore, workers=[worker])
        (difference,) = report.differences
        assert difference.package == package
        found = dict(difference.found)
        assert found[version] == (worker,)
        assert {"client", "scheduler"} < set(found[report.versions[package]])
        (problem,) = _about(report, "versions")
        assert f"{version or 'not installed'} on {worker}" in problem
        assert "Install the same version everywhere" in problem
    assert check_cluster(address).problems == ()


@pytest.mark.skipif(os.name != "posix", reason="signals that stop a process")
def test_check_cluster__of_a_worker_that_does_not_answer(
    address: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkup, "ANSWER_SECONDS", 1)
    (silent, process), (other, _) = client.run(os.getpid).items()
    os.kill(process, signal.SIGSTOP)
    try:
        report = check_cluster(address)
    finally:
        os.kill(process, signal.SIGCONT)
    (problem,) = _about(report, "workers")
    assert silent in problem
    assert "restart it" in problem
    timed = {worker.address: worker.seconds for worker in report.workers}
    assert timed[silent] is None
    assert timed[other] is not None
    client.run(os.getpid)  # returns once the worker is back


def test_check_cluster__without_workers(start_cluster: StartCluster) -> None:
    report = check_cluster(start_cluster(0).scheduler_address)
    (problem,) = report.problems
    assert problem.seen == "The scheduler has no workers."
    assert (report.threads, report.workers) == (0, ())


def test_check_cluster__of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "CONNECT_SECONDS", 1)
    with refused("no-answer", "tcp://127.0.0.1:1", kind=ClusterError):
        check_cluster("tcp://127.0.0.1:1")
    with refused("not-secure", "tcp://10.0.0.1:1", "tls://"):
        check_cluster("tcp://10.0.0.1:1")
