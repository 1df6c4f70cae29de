"""Connections to a scheduler: what is refused before, in and after the handshake."""

import contextlib
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from distributed import LocalCluster
from distributed.security import Security
from support.errors import check_error, refused
from support.passes import SUM
from support.secure_cluster import tls_files

from protodask.engine import TlsFiles, array_source, cluster_engine, connect, open_engine
from protodask.engine.connect import connect_client
from protodask.errors import ClusterError, Code, StorageError
from protodask.security.certificates import make_certificates

WAIT_SECONDS = 20


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The certificates of the cluster."""
    folder = tmp_path_factory.mktemp("ours") / "certificates"
    make_certificates().write(folder)
    return folder


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of another authority."""
    folder = tmp_path_factory.mktemp("foreign") / "certificates"
    make_certificates().write(folder)
    return folder


@pytest.fixture(scope="module")
def scheduler(ours: Path, no_process_left_behind: None) -> Iterator[str]:
    """Address of a TLS scheduler with one worker, both in this process, with the certificates of their roles."""
    roles = {role: tls_files(ours, role) for role in ("scheduler", "worker", "client")}
    named = {f"tls_{role}_cert": str(files.certificate) for role, files in roles.items()}
    named |= {f"tls_{role}_key": str(files.key) for role, files in roles.items()}
    with LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        protocol="tls://",
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        memory_limit="1GiB",
        security=Security(tls_ca_file=str(ours / "ca.pem"), require_encryption=True, **named),
    ) as cluster:
        yield str(cluster.scheduler_address)


@pytest.fixture(scope="module")
def worker(scheduler: str, ours: Path) -> str:
    """Address of the worker."""
    with connect_client(scheduler, tls_files(ours)) as client:
        client.wait_for_workers(1, timeout=WAIT_SECONDS)
        (address,) = client.scheduler_info()["workers"]
        return str(address)


# --- files


@pytest.mark.parametrize("address", ["tls://127.0.0.1:1", "tls://127.0.0.1"])
def test_cluster_engine__of_a_tls_address_where_no_scheduler_answers(
    address: str, ours: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "CONNECT_SECONDS", 1)
    with refused("no-answer", address, kind=ClusterError):
        cluster_engine(address, tls_files(ours))


def test_cluster_engine__without_certificates() -> None:
    with refused("not-secure", "--tls-ca", "--tls-cert", "--tls-key"):
        cluster_engine("tls://127.0.0.1:1")


@pytest.mark.parametrize("field", ["ca", "certificate", "key"])
@pytest.mark.parametrize("wrong", ["missing", "folder"])
def test_cluster_engine__of_files_that_cannot_be_read(field: str, wrong: str, ours: Path, tmp_path: Path) -> None:
    named = vars(tls_files(ours)) | {field: tmp_path if wrong == "folder" else tmp_path / "missing.pem"}
    with refused("unreadable", named[field], kind=StorageError):
        cluster_engine("tls://127.0.0.1:1", TlsFiles(**named))


@pytest.mark.parametrize(
    ("names", "code", "wrong"),
    [
        (("client-key.pem", "client.pem", "client-key.pem"), "wrong-kind", [0]),
        (("rubbish", "client.pem", "client-key.pem"), "wrong-kind", [0]),
        (("ca.pem", "client-key.pem", "client.pem"), "wrong-kind", [1, 2]),
        (("ca.pem", "rubbish", "client-key.pem"), "wrong-kind", [1, 2]),
        (("ca.pem", "client.pem", "rubbish"), "wrong-kind", [1, 2]),
        (("ca.pem", "client.pem", "worker-key.pem"), "settings-conflict", [1, 2]),
    ],
)
def test_cluster_engine__of_files_that_do_not_fit(
    names: tuple[str, str, str], code: Code, wrong: list[int], ours: Path
) -> None:
    (ours / "rubbish").write_bytes(bytes(range(256)))
    with refused(code, *(ours / names[number] for number in wrong)):
        cluster_engine("tls://127.0.0.1:1", TlsFiles(*(ours / name for name in names)))


@pytest.mark.parametrize("layout", ["PKCS8", "TraditionalOpenSSL"])
def test_cluster_engine__says_that_passwords_are_not_supported(layout: str, ours: Path, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key((ours / "client-key.pem").read_bytes(), None)
    locked = tmp_path / "locked.pem"
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            getattr(serialization.PrivateFormat, layout),
            serialization.BestAvailableEncryption(b"password"),
        )
    )
    with refused("unsupported", locked):
        cluster_engine("tls://127.0.0.1:1", TlsFiles(ours / "ca.pem", ours / "client.pem", locked))


# --- handshakes


def _sum_on(engine: Any) -> float:
    return float(engine.reduce(array_source({"x": np.arange(100.0)}, 16), SUM, "x"))


@pytest.mark.slow
def test_cluster_engine__computes_over_tls(scheduler: str, ours: Path) -> None:
    assert scheduler.startswith("tls://")
    with cluster_engine(scheduler, tls_files(ours)) as engine:
        assert _sum_on(engine) == 4950.0


@pytest.mark.slow
def test_open_engine__takes_certificates_from_the_configuration_of_dask(scheduler: str, ours: Path) -> None:
    files = tls_files(ours)
    settings = {"ca-file": files.ca, "client.cert": files.certificate, "client.key": files.key}
    named = {f"distributed.comm.tls.{name}": str(file) for name, file in settings.items()}
    with dask.config.set(named), open_engine(scheduler) as engine:
        assert _sum_on(engine) == 4950.0


def test_connect_client__demands_encryption_of_workers_too(scheduler: str, ours: Path) -> None:
    with connect_client(scheduler, tls_files(ours)) as client:
        assert client.security.require_encryption


@pytest.fixture
def no_second_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if Dask is let loose on a peer that refused: it would try until its time is up."""

    async def never(*_: object) -> None:
        raise AssertionError("Dask was asked to connect")

    monkeypatch.setattr(connect, "_knock", never)


@pytest.mark.usefixtures("no_second_try")
def test_cluster_engine__with_a_certificate_of_another_authority(scheduler: str, ours: Path, foreign: Path) -> None:
    mixed = TlsFiles(ours / "ca.pem", foreign / "client.pem", foreign / "client-key.pem")
    with refused("refused", scheduler, "the certificate of this client", kind=ClusterError):
        cluster_engine(scheduler, mixed)


@pytest.mark.usefixtures("no_second_try")
def test_cluster_engine__trusts_its_own_authority_alone(scheduler: str, foreign: Path) -> None:
    with refused("refused", scheduler, "refused here", kind=ClusterError):
        cluster_engine(scheduler, tls_files(foreign))


def test_peer_certificate__waits_for_a_scheduler_that_is_about_to_start(
    scheduler: str, ours: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_socket = socket.create_connection
    refused: list[Any] = []

    def refuse_twice(*arguments: Any, **named: Any) -> socket.socket:
        if len(refused) < 2:
            refused.append(arguments)
            raise ConnectionRefusedError
        return open_socket(*arguments, **named)

    monkeypatch.setattr(socket, "create_connection", refuse_twice)
    security = connect.client_security(scheduler, tls_files(ours))
    assert security is not None
    assert connect.peer_certificate(scheduler, security)["subject"] == ((("commonName", "protodask scheduler"),),)


def test_open_engine__in_the_clear_at_a_scheduler_with_tls(scheduler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "CONNECT_SECONDS", 2)
    plain = scheduler.replace("tls://", "tcp://")
    with refused("no-answer", plain, kind=ClusterError), open_engine(plain):
        pass


def _greeting(address: str, context: ssl.SSLContext) -> bytes:
    """What a peer says first, as seen by a plain TLS client that asks nothing of it."""
    host, _, port = address.removeprefix("tls://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=WAIT_SECONDS) as plain, context.wrap_socket(plain) as tls:
        return tls.recv(1)


def _stranger(folder: Path | None, version: ssl.TLSVersion) -> ssl.SSLContext:
    """A client that accepts any peer, with the client certificate of a folder or with none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = context.maximum_version = version
    if folder is not None:
        context.load_cert_chain(folder / "client.pem", folder / "client-key.pem")
    return context


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_scheduler_and_worker__refuse_strangers(
    version: ssl.TLSVersion, scheduler: str, worker: str, ours: Path, foreign: Path
) -> None:
    for address in (scheduler, worker):
        assert address.startswith("tls://")
        with pytest.raises(ssl.SSLError, match="(?i)certificate.required|handshake.failure"):
            _greeting(address, _stranger(None, version))
        with pytest.raises(ssl.SSLError, match="(?i)unknown.ca"):
            _greeting(address, _stranger(foreign, version))
        assert len(_greeting(address, _stranger(ours, version))) == 1, "the right certificate is let in"


@contextlib.contextmanager
def _server(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server on loopback that treats each connection as `serve` does, and is no scheduler."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(WAIT_SECONDS)

        def run() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection, contextlib.suppress(OSError):
                        connection.settimeout(WAIT_SECONDS)
                        serve(connection)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield f"tls://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(WAIT_SECONDS)


def _until_closed(connection: socket.socket) -> None:
    while connection.recv(4096):
        pass


@pytest.mark.usefixtures("no_second_try")
def test_cluster_engine__is_not_taken_in_by_a_holder_of_a_client_certificate(ours: Path) -> None:
    files = tls_files(ours)
    security = Security(
        tls_ca_file=str(files.ca), tls_scheduler_cert=str(files.certificate), tls_scheduler_key=str(files.key)
    )
    context = security.get_listen_args("scheduler")["ssl_context"]

    def serve(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as tls:
            tls.send(b"x")

    with _server(serve) as address, refused("refused", address, "a certificate for schedulers", kind=ClusterError):
        cluster_engine(address, files)


@pytest.mark.usefixtures("no_second_try")
@pytest.mark.parametrize(
    ("serve", "codes"),
    [
        (lambda connection: connection.sendall(b"220 mail.example.org ready\r\n" * 10), ["not-secure"]),
        (lambda connection: None, ["refused", "not-secure"]),  # as the end is seen: in time, or too late
        (_until_closed, ["no-answer"]),
    ],
    ids=["another protocol", "closes", "is silent"],
)
def test_cluster_engine__of_something_else(
    serve: Callable[[socket.socket], None], codes: list[Code], ours: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "CONNECT_SECONDS", 1)
    with _server(serve) as address, pytest.raises(ClusterError) as caught:
        cluster_engine(address, tls_files(ours))
    assert caught.value.code in codes
    check_error(caught.value, caught.value.code, address)


def test_import__of_the_engine_does_not_import_distributed() -> None:
    program = "import sys, protodask.engine; print('distributed' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout == "False\n"
