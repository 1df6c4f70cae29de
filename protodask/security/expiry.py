"""Until when the certificates of a cluster hold, as far as a client can see them."""

from __future__ import annotations

import ssl
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from protodask.engine.connect import TlsFiles, client_security, peer_certificate
from protodask.errors import needed

SOON_DAYS = 30.0
"""Time to get new certificates onto all machines."""

SOON_SHARE = 1 / 3
"""Certificates made for a short time are soon to expire when so much of it is left."""

DAY = 86_400.0


@dataclass(frozen=True)
class CertificateReport:
    """A certificate, and how long it holds."""

    of: Literal["scheduler", "client", "CA"]
    name: str
    expires: str
    """When, as in ISO 8601, in UTC."""

    days_left: float
    days_in_all: float

    @property
    def expires_soon(self) -> bool:
        return self.days_left < min(SOON_DAYS, SOON_SHARE * self.days_in_all)


def certificate_reports(address: str, tls: TlsFiles | None = None) -> tuple[CertificateReport, ...]:
    """The scheduler's certificate as it is shown to clients, and the client's own files."""
    security = client_security(address, tls)
    if security is None:
        return ()
    reports = []
    if address.startswith("tls://"):
        peer = peer_certificate(address, security)
        begins, ends = (ssl.cert_time_to_seconds(peer[key]) for key in ("notBefore", "notAfter"))
        reports.append(_report("scheduler", _common_name(peer.get("subject", ())), begins, ends))
    files = security.get_tls_config_for_role("client")
    # A file may hold a chain, of which the first is the certificate itself.
    reports += _from_pem("client", files["cert"])[:1]
    reports += _from_pem("CA", files["ca_file"])
    return tuple(reports)


def needs_cryptography(what: str) -> AbstractContextManager[None]:
    """Say what is done to certificates that needs the library, where importing it fails."""
    return needed(
        f"{what} certificates needs the library cryptography, which is not installed.",
        "Install it with `pip install 'protodask[cluster]'`.",
    )


def _common_name(subject: Any) -> str:
    return next((str(value) for part in subject for name, value in part if name == "commonName"), "")


def _from_pem(of: Literal["client", "CA"], file: str) -> list[CertificateReport]:
    with needs_cryptography("Reading"):
        from cryptography import x509
    content = file.encode() if "\n" in file else Path(file).read_bytes()
    return [
        _report(
            of,
            certificate.subject.rfc4514_string().removeprefix("CN="),
            certificate.not_valid_before_utc.timestamp(),
            certificate.not_valid_after_utc.timestamp(),
        )
        for certificate in x509.load_pem_x509_certificates(content)
    ]


def _report(of: Literal["scheduler", "client", "CA"], name: str, begins: float, ends: float) -> CertificateReport:
    expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ends))
    return CertificateReport(of, name, expires, (ends - time.time()) / DAY, (ends - begins) / DAY)
