"""How long certificates hold."""

from pathlib import Path
from typing import Any

import dask
import pytest
from support.secure_cluster import tls_files

from protodask.security import expiry
from protodask.security.certificates import make_certificates
from protodask.security.expiry import CertificateReport, certificate_reports


@pytest.mark.parametrize(
    ("left", "in_all", "soon"),
    [(29.9, 365, True), (30.1, 365, False), (2.3, 7, True), (2.4, 7, False), (-1, 365, True), (0.5, 1, False)],
)
def test_expires_soon__a_month_before_or_when_two_thirds_are_over(left: float, in_all: float, soon: bool) -> None:
    assert CertificateReport("client", "c", "", left, in_all).expires_soon == soon


def test_certificate_reports__of_the_files_of_a_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_certificates(days=10).write(tmp_path / "certs")
    shown = {
        "notBefore": "Jan  1 00:00:00 2020 GMT",
        "notAfter": "Jan 11 00:00:00 2020 GMT",
        "subject": ((("commonName", "the scheduler"),),),
    }
    asked = []

    def peer(address: str, _: object) -> dict[str, Any]:
        asked.append(address)
        return shown

    monkeypatch.setattr(expiry, "peer_certificate", peer)
    scheduler, client, authority = certificate_reports("tls://127.0.0.1:1", tls_files(tmp_path / "certs"))
    assert (scheduler.of, scheduler.name, scheduler.expires) == ("scheduler", "the scheduler", "2020-01-11T00:00:00Z")
    assert asked == ["tls://127.0.0.1:1"]
    assert scheduler.days_in_all == 10
    assert scheduler.days_left < -365
    assert (client.of, client.name) == ("client", "protodask client")
    assert authority.of == "CA"
    for report in (client, authority):
        assert report.days_left == pytest.approx(10, abs=0.01)
        assert not report.expires_soon


def test_certificate_reports__of_texts_in_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {name: content.decode() for name, content in make_certificates(days=10).files.items()}
    settings = {
        "distributed.comm.tls.ca-file": files["ca.pem"],
        "distributed.comm.tls.client.cert": files["client.pem"] + files["ca.pem"],
        "distributed.comm.tls.client.key": files["client-key.pem"],
    }
    with dask.config.set(settings):
        found = certificate_reports("wss://127.0.0.1:1")
    assert [report.of for report in found] == ["client", "CA"], "of a chain the first counts"


def test_certificate_reports__of_an_address_in_the_clear() -> None:
    assert certificate_reports("tcp://127.0.0.1:1") == ()
