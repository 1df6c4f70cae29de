"""Certificates for one cluster: an authority of its own, and what it signs for schedulers, workers and clients.

Dask lets anybody in who holds a certificate of the authority. Scheduler and workers both accept and open connections,
so their certificates are for servers and clients; that of the clients is for clients alone, and whoever has it cannot
pass for a scheduler. Keys are on the curve P-256.
"""

from __future__ import annotations

import ipaddress
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

from protodask.errors import InputError
from protodask.security.expiry import needs_cryptography

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

Role = Literal["scheduler", "worker", "client"]
ROLES: tuple[Role, ...] = ("scheduler", "worker", "client")

CA_FILE = "ca.pem"
CA_KEY_FILE = "ca-key.pem"

DAYS = 365
MOST_DAYS = 3650

ALWAYS_NAMED = ("localhost", "127.0.0.1", "::1")
"""This machine: a cluster is tried out there first."""

CLOCK_SKEW = timedelta(minutes=5)
"""How far the clocks of the machines may be apart when the certificates are new."""

_NAME = re.compile(
    r"(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.IGNORECASE
)
_LONGEST_NAME = 253


def certificate_file(role: Role) -> str:
    """Name of the file with the certificate of a role."""
    return f"{role}.pem"


def key_file(role: Role) -> str:
    """Name of the file with the key of a role."""
    return f"{role}-key.pem"


@dataclass(frozen=True)
class Certificates:
    """PEM texts by the names of their files, and until when they hold."""

    files: Mapping[str, bytes]
    hosts: tuple[str, ...]
    expires: datetime

    def __repr__(self) -> str:
        return f"Certificates(hosts={self.hosts}, expires={self.expires:%Y-%m-%d})"  # the texts are secret

    def write(self, folder: str | os.PathLike[str]) -> None:
        """Write the files into a new folder that only its owner may enter; the keys only the owner may read."""
        os.mkdir(folder, 0o700)
        for name, content in self.files.items():
            mode = 0o600 if name.endswith("-key.pem") else 0o644
            handle = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            with open(handle, "wb") as file:
                file.write(content)


def check_certificate_settings(hosts: Sequence[str], days: int) -> None:
    """Refuse names and times that no certificate can have."""
    if not 1 <= days <= MOST_DAYS:
        raise InputError(
            "bad-setting", f"The certificates are to hold for {days} days.", f"Give from 1 to {MOST_DAYS} days."
        )
    for host in hosts:
        if not _is_address(host) and (len(host) > _LONGEST_NAME or not _NAME.fullmatch(host)):
            raise InputError(
                "bad-setting",
                f"{host!r} is no name or address of a machine.",
                "Give it like node-1.example.org or 10.0.0.1, no port.",
            )


def make_certificates(hosts: Sequence[str] = (), days: int = DAYS) -> Certificates:
    """A new authority and a certificate of it for each role. `hosts` are the machines of scheduler and workers."""
    check_certificate_settings(hosts, days)
    with needs_cryptography("Making"):
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import Encoding

    now = datetime.now(UTC).replace(microsecond=0)
    expires = now + timedelta(days=days)
    # Two authorities of one name would make a foreign certificate look damaged instead of foreign.
    issuer = _name(f"protodask cluster {secrets.token_hex(4)}")
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca = _sign(
        _begin(issuer, issuer, ca_key, now, expires)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False),
        ca_key,
    )
    files = {CA_FILE: ca.public_bytes(Encoding.PEM), CA_KEY_FILE: _pem(ca_key)}
    named = tuple(dict.fromkeys((*ALWAYS_NAMED, *hosts)))
    for role in ROLES:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(f"protodask {role}")
        certificate = _sign(_for_role(_begin(subject, issuer, key, now, expires), role, named, key, ca_key), ca_key)
        files[certificate_file(role)] = certificate.public_bytes(Encoding.PEM)
        files[key_file(role)] = _pem(key)
    return Certificates(files, named, expires)


def _name(common: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _begin(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, now: datetime, expires: datetime
) -> x509.CertificateBuilder:
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(expires)
    )


def _for_role(
    builder: x509.CertificateBuilder,
    role: Role,
    hosts: Sequence[str],
    key: EllipticCurvePrivateKey,
    ca_key: EllipticCurvePrivateKey,
) -> x509.CertificateBuilder:
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if role != "client":
        purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
        builder = builder.add_extension(x509.SubjectAlternativeName([_alternative(host) for host in hosts]), False)
    return (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
    )


def _alternative(host: str) -> x509.GeneralName:
    from cryptography import x509

    return x509.IPAddress(ipaddress.ip_address(host)) if _is_address(host) else x509.DNSName(host)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _sign(builder: x509.CertificateBuilder, ca_key: EllipticCurvePrivateKey) -> x509.Certificate:
    from cryptography.hazmat.primitives import hashes

    return builder.sign(ca_key, hashes.SHA256())


def _pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
