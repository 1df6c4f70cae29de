"""Connecting to a scheduler: who may be spoken to in the clear, and which certificates are shown.

Dask trusts its certificate authority, not host names: whoever holds a certificate of it may join the cluster. Hence an
authority for each cluster, and none that signs anything else.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from protodask.errors import ClusterError, InputError, StorageError, refusing

if TYPE_CHECKING:
    from distributed import Client as Client  # noqa: PLC0414 - for the rooms outside that hold one
    from distributed.security import Security

CONNECT_SECONDS = 10
"""A scheduler that answers at all answers in milliseconds; this leaves room for a busy one."""

REFUSED_SECONDS = 0.1
"""Time between two attempts at a port where nobody listens yet."""

ENCRYPTED = frozenset({"tls", "wss"})
"""Schemes of Dask addresses that are encrypted."""

HOW_TO_NAME_FILES = (
    "Name a CA, a certificate and its key: --tls-ca, --tls-cert and --tls-key on the command line, TlsFiles in Python, "
    "or distributed.comm.tls in Dask's own configuration."
)

_HOST_AND_PORT = re.compile(r"(?:[^:]*|\[.*\]):([^:]*)")

MOST_PEM_BYTES = 2**20
"""A file of certificates has a few kilobytes; of anything longer only this much is looked at."""


@dataclass(frozen=True)
class TlsFiles:
    """The PEM files with which a client shows who it is: the CA of the cluster, a certificate of it, and its key.

    Keys with a password are not supported.
    """

    ca: str | os.PathLike[str]
    certificate: str | os.PathLike[str]
    key: str | os.PathLike[str]


def check_address(address: str, tls: TlsFiles | None = None, insecure: bool = False) -> None:
    """Refuse an address that would be spoken to in the clear beyond this machine; nothing is connected.

    Of host names only `localhost` counts as this machine: what another one stands for is up to the network.
    """
    scheme, host = _split(address)
    if tls is not None and insecure:
        raise InputError(
            "settings-conflict",
            "Certificates are given, and so is the leave to do without.",
            "Choose one: certificates, or insecure.",
        )
    if scheme in ENCRYPTED:
        if insecure:
            raise InputError(
                "settings-conflict",
                f"{address} is encrypted, and insecure asks for the opposite.",
                "Leave insecure out for this address.",
            )
        return
    if tls is not None:
        raise InputError(
            "settings-conflict",
            f"Certificates are given, and the scheduler address {address} is not encrypted.",
            "Write the address with tls://, and start the scheduler with certificates.",
        )
    if scheme != "inproc" and not insecure and not _is_loopback(host):
        raise InputError(
            "not-secure",
            f"The scheduler address {address} is neither encrypted nor on this machine.",
            "Use tls:// with certificates (`protodask cluster certs` makes them); on a network where everyone is "
            "trusted say insecure=True.",
        )


def _split(address: str) -> tuple[str, str]:
    """Scheme and host of an address, as Dask reads it."""
    from distributed.comm.addressing import parse_address, parse_host_port
    from distributed.comm.registry import get_backend

    said = f"{address!r} is no address of a scheduler"
    with refusing((TypeError, ValueError), "bad-setting", said, "Write it like tls://10.0.0.1:8786."):
        scheme, location = parse_address(address)
        get_backend(scheme)
        found = None if scheme == "inproc" else _HOST_AND_PORT.fullmatch(location)
        if found and not (found[1].isdecimal() and 0 < int(found[1]) < 2**16):
            raise ValueError("its port is no whole number from 1 to 65535")
        host = location if scheme == "inproc" else parse_host_port(location, 0)[0]
        if not host.strip():
            raise ValueError("it names no host")
        return scheme, host


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def connect_client(address: str, tls: TlsFiles | None = None, insecure: bool = False) -> Client:
    """A client of the scheduler at `address`.

    Without `tls`, an encrypted address uses the certificates of Dask's own configuration. An address that is not
    encrypted must be on this machine, unless `insecure` says that any will do.
    """
    from distributed import Client

    check_address(address, tls, insecure)
    security = client_security(address, tls)
    if security is not None and _split(address)[0] == "tls":
        peer_certificate(address, security)
    try:
        # A client that cannot connect holds up the end of the process; a bare connection does not.
        with ThreadPoolExecutor(1) as other_thread:  # this one may have an event loop, as in a notebook
            other_thread.submit(lambda: asyncio.run(_knock(address, security))).result()
        return Client(address, security=security, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError, TypeError, RuntimeError) as error:
        raise _no_answer(address, error) from error


def version_reader() -> Callable[[Sequence[str]], dict[str, Any]]:
    """The function of Dask that says what is installed where it runs: workers of any version have it."""
    from distributed.versions import get_versions

    return get_versions


def _no_answer(address: str, error: Exception) -> ClusterError:
    return ClusterError(
        "no-answer",
        f"No Dask scheduler answered at {address} within {CONNECT_SECONDS} seconds ({error}).",
        "Check that it runs and that the address is right, or leave out the scheduler to compute here.",
    )


async def _knock(address: str, security: Security | None) -> None:
    from distributed.comm import connect
    from distributed.security import Security

    arguments = (security or Security()).get_connection_args("client")
    await (await connect(address, timeout=CONNECT_SECONDS, **arguments)).close()


def client_security(address: str, tls: TlsFiles | None = None) -> Security | None:
    """What Dask needs to know to speak with an encrypted address, checked as far as it can be here; None for others.

    It refuses to fall back to connections in the clear, to workers as well.
    """
    if _split(address)[0] not in ENCRYPTED:
        return None
    from distributed.security import Security

    files = {"tls_ca_file": tls.ca, "tls_client_cert": tls.certificate, "tls_client_key": tls.key} if tls else {}
    security = Security(require_encryption=True, **{name: os.fspath(file) for name, file in files.items()})
    _check_files(address, security)
    return security


def _check_files(address: str, security: Security) -> None:
    files = security.get_tls_config_for_role("client")
    ca, certificate, key = files["ca_file"], files["cert"], files["key"]
    if not ca or not certificate:
        raise InputError(
            "not-secure", f"No certificates are named for the scheduler address {address}.", HOW_TO_NAME_FILES
        )
    _check_file("CA", ca)
    _check_file("certificate", certificate)
    if key is not None:
        _check_file("key", key)
    try:
        ssl.create_default_context(**{"cadata" if "\n" in ca else "cafile": ca})
    except (ssl.SSLError, ValueError) as error:
        raise InputError(
            "wrong-kind",
            f"The CA {_shown(ca)} holds no certificate that can be read ({_reason(error)}).",
            "Give the PEM file of the CA, which begins with -----BEGIN CERTIFICATE-----.",
        ) from error
    try:
        security.get_connection_args("client")
    except ssl.SSLError as error:
        pair = f"The certificate {_shown(certificate)} and the key {_shown(key or certificate)}"
        if error.reason == "KEY_VALUES_MISMATCH":
            raise InputError(
                "settings-conflict", f"{pair} do not belong together.", "Give the key that was made for it."
            ) from error
        raise InputError(
            "wrong-kind",
            f"{pair} cannot be used ({_reason(error)}).",
            "Give PEM files: first the certificate, then its own key.",
        ) from error


def _check_file(what: str, file: str) -> None:
    """Refuse what cannot be read, and keys with a password: OpenSSL would stop and ask for it."""
    if "\n" in file:  # Dask's configuration may hold the text itself
        content = file.encode()
    else:
        try:
            with open(file, "rb") as opened:
                content = opened.read(MOST_PEM_BYTES)
        except OSError as error:
            raise StorageError(
                "unreadable",
                f"The TLS {what} {file} cannot be read ({error.strerror}).",
                "Check the path, and that you may read the file.",
            ) from error
    if b"ENCRYPTED" in content:
        raise InputError(
            "unsupported",
            f"The TLS {what} {_shown(file)} is protected by a password, which is not supported.",
            "Write the key without one, readable for you alone: `openssl pkey -in KEY -out NEW`, and `chmod 600 NEW`.",
        )


def _shown(file: str) -> str:
    return "given as text" if "\n" in file else file


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", None) or error).replace("_", " ").lower()


def peer_certificate(address: str, security: Security) -> dict[str, Any]:
    """The certificate of the scheduler at a tls:// address, as `ssl` decodes it, after both sides accepted each other.

    Dask itself repeats a refused handshake until its time is up, and does not say which side refused.
    """
    from distributed.comm.addressing import parse_address, parse_host_port

    try:
        host, port = parse_host_port(parse_address(address)[1])
        plain = _reach(host, port)
    except (OSError, ValueError) as error:
        raise _no_answer(address, error) from error
    context: ssl.SSLContext = security.get_connection_args("client")["ssl_context"]
    with plain:
        try:
            # The name is for proxies that choose by it; Dask's contexts do not compare it with the certificate.
            with context.wrap_socket(plain, server_hostname=host) as encrypted:
                # With TLS 1.3 the other side looks at our certificate only now. If it accepts, it speaks first.
                if not encrypted.recv(1):
                    raise ConnectionResetError("it closed the connection")
                return dict(encrypted.getpeercert() or {})
        except TimeoutError as error:
            raise _no_answer(address, error) from error
        except ssl.SSLCertVerificationError as error:
            raise ClusterError(
                "refused",
                f"The certificate of the scheduler at {address} is refused here ({error.verify_message}).",
                "Check that the CA is that of the cluster, and that the scheduler shows a certificate for schedulers "
                "that has not expired.",
            ) from error
        except ssl.SSLError as error:
            if "ALERT" in (error.reason or ""):
                raise ClusterError(
                    "refused",
                    f"The scheduler at {address} refused the certificate of this client ({_reason(error)}).",
                    "Use a certificate for clients that the scheduler's CA has signed and that has not expired.",
                ) from error
            raise ClusterError(
                "not-secure",
                f"What answered at {address} does not speak TLS as Dask does ({_reason(error)}).",
                "Check the address: a scheduler that was started without certificates has one with tcp://.",
            ) from error
        except OSError as error:
            raise ClusterError(
                "refused",
                f"The scheduler at {address} ended the handshake ({error}).",
                "Check that it speaks TLS, and that the certificate given here is of its CA.",
            ) from error


def _reach(host: str, port: int) -> socket.socket:
    """A connection; a scheduler that is about to start is waited for, as Dask does."""
    deadline = time.monotonic() + CONNECT_SECONDS
    while True:
        try:
            return socket.create_connection((host, port), timeout=CONNECT_SECONDS)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(REFUSED_SECONDS)
