"""A folder of certificates, whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from protodask.data.places.locations import is_url, locate
from protodask.data.places.records import Kind
from protodask.data.places.storage import check_free, published, write_marker
from protodask.errors import InputError
from protodask.security.certificates import (
    CA_FILE,
    CA_KEY_FILE,
    DAYS,
    ROLES,
    Certificates,
    certificate_file,
    check_certificate_settings,
    key_file,
    make_certificates,
)

CERTIFICATES = Kind("folder of certificates", "protodask-certificates")


@dataclass(frozen=True)
class CertificatesWritten:
    """Certificates lie in the folder `path`."""

    path: str
    hosts: tuple[str, ...]
    expires: datetime

    def file(self, name: str) -> str:
        """Path of one of the files."""
        return os.path.join(self.path, name)

    def describe(self) -> dict[str, Any]:
        """Plain values, for files."""
        return {
            "kind": "certificates",
            "path": self.path,
            "hosts": list(self.hosts),
            "expires": self.expires.isoformat(),
            "ca": {"certificate": self.file(CA_FILE), "key": self.file(CA_KEY_FILE)},
            **{
                role: {"certificate": self.file(certificate_file(role)), "key": self.file(key_file(role))}
                for role in ROLES
            },
        }


def check_certificates(out: str, hosts: Sequence[str], days: int) -> None:
    """Refuse settings that cannot work."""
    check_certificate_settings(hosts, days)
    if is_url(locate(out)):
        raise InputError(
            "not-local", "The folder for the certificates is a URL.", "Name a local folder: keys are not for sharing."
        )


def write_certificates(
    out: str | os.PathLike[str], hosts: Sequence[str] = (), days: int = DAYS, overwrite: bool = False
) -> CertificatesWritten:
    """Make a certificate authority with certificates for scheduler, workers and clients, and write them to a folder.

    `hosts` are the names or addresses of the machines of scheduler and workers; `days` is how long all of them hold.
    """
    where = locate(out)
    check_certificates(where, hosts, days)
    check_free(where, overwrite, CERTIFICATES)
    made: Certificates = make_certificates(hosts, days)
    with published(where, overwrite, CERTIFICATES) as place:
        made.write(place)
        write_marker(place, {"format": CERTIFICATES.format, "version": 1})
    return CertificatesWritten(where, made.hosts, made.expires)
