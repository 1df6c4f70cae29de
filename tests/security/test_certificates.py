"""Certificates, as the TLS of Python and an independent verifier see them."""

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError
from support.errors import refused

from protodask.security.certificates import Certificates, make_certificates

HOSTS = ("node-1.example.org", "10.1.2.3", "2001:db8::7", "*.cluster.example")


@pytest.fixture(scope="module")
def made() -> Certificates:
    return make_certificates(HOSTS, days=90)


@pytest.fixture(scope="module")
def folder(made: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("certificates") / "new"
    made.write(where)
    return where


def _load(made: Certificates, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(made.files[name])


def test_write__keeps_the_keys_to_the_owner(folder: Path) -> None:
    names = {path.name for path in folder.iterdir()}
    assert names == {f"{who}{end}" for who in ("ca", "scheduler", "worker", "client") for end in (".pem", "-key.pem")}
    assert folder.stat().st_mode & 0o777 == 0o700
    for path in folder.iterdir():
        is_key = b"PRIVATE KEY" in path.read_bytes()
        assert is_key == path.name.endswith("-key.pem")
        assert path.stat().st_mode & 0o777 & ~(0o600 if is_key else 0o644) == 0


def test_write__does_not_write_into_a_folder_that_is_there(made: Certificates, tmp_path: Path) -> None:
    with pytest.raises(FileExistsError):
        made.write(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_certificates__belong_to_their_keys_and_hold_for_so_many_days(made: Certificates) -> None:
    for who in ("ca", "scheduler", "worker", "client"):
        certificate = _load(made, f"{who}.pem")
        key = load_pem_private_key(made.files[f"{who}-key.pem"], None)
        assert certificate.public_key() == key.public_key()
        assert certificate.not_valid_after_utc == made.expires
        now = datetime.now(UTC)
        assert certificate.not_valid_before_utc <= now, "clocks of other machines may be late"
        assert timedelta(days=89, hours=23) < made.expires - now <= timedelta(days=90)


@pytest.mark.parametrize("role", ["scheduler", "worker"])
def test_servers__pass_an_independent_verifier_under_all_their_names(made: Certificates, role: str) -> None:
    policy = PolicyBuilder().store(Store([_load(made, "ca.pem")])).time(datetime.now(UTC))
    for host in ("localhost", "node-1.example.org", "any.cluster.example"):
        policy.build_server_verifier(x509.DNSName(host)).verify(_load(made, f"{role}.pem"), [])
    for address in ("127.0.0.1", "::1", "10.1.2.3", "2001:db8::7"):
        policy.build_server_verifier(x509.IPAddress(ip_address(address))).verify(_load(made, f"{role}.pem"), [])
    for other in (x509.DNSName("node-2.example.org"), x509.IPAddress(ip_address("10.1.2.4"))):
        with pytest.raises(VerificationError):
            policy.build_server_verifier(other).verify(_load(made, f"{role}.pem"), [])


def _handshake(server: tuple[Path, str], client: tuple[Path, str]) -> None:
    """Both sides strict: the whole chain, its purposes, and the name of the server."""
    contexts = []
    for (folder, role), protocol in ((server, ssl.PROTOCOL_TLS_SERVER), (client, ssl.PROTOCOL_TLS_CLIENT)):
        context = ssl.SSLContext(protocol)
        context.load_cert_chain(folder / f"{role}.pem", folder / f"{role}-key.pem")
        context.load_verify_locations(folder / "ca.pem")
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        contexts.append(context)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    served = contexts[0].wrap_bio(to_server, to_client, server_side=True)
    asked = contexts[1].wrap_bio(to_client, to_server, server_hostname="localhost")
    for _ in range(4):
        for side in (asked, served):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert served.getpeercert()
    assert asked.getpeercert()


@pytest.mark.parametrize("server", ["scheduler", "worker"])
@pytest.mark.parametrize("client", ["scheduler", "worker", "client"])
def test_roles__accept_each_other(server: str, client: str, folder: Path) -> None:
    _handshake((folder, server), (folder, client))


def test_client__cannot_serve(folder: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="purpose"):
        _handshake((folder, "client"), (folder, "client"))


def test_authorities__do_not_know_each_other(folder: Path, tmp_path: Path) -> None:
    make_certificates(HOSTS).write(tmp_path / "other")
    with pytest.raises(ssl.SSLCertVerificationError, match="self-signed certificate"):
        _handshake((folder, "scheduler"), (tmp_path / "other", "client"))


def test_authority__signs_certificates_and_no_authorities(made: Certificates) -> None:
    constraints = _load(made, "ca.pem").extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert (constraints.value.ca, constraints.value.path_length) == (True, 0)
    for role in ("scheduler", "worker", "client"):
        assert not _load(made, f"{role}.pem").extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_repr__shows_no_key(made: Certificates) -> None:
    assert "PRIVATE" not in repr(made)
    assert "10.1.2.3" in repr(made)


@pytest.mark.parametrize(
    "host",
    ["", "a b", "node:8786", "tls://node", "-x", "x..y", "a" * 64, "münchen", "10.0.0.0/8"],
)
def test_make_certificates__refuses_what_names_no_machine(host: str) -> None:
    with refused("bad-setting", repr(host)):
        make_certificates([host])


@pytest.mark.parametrize("days", [0, -1, 3651])
def test_make_certificates__refuses_times_that_make_no_sense(days: int) -> None:
    with refused("bad-setting", days, 3650):
        make_certificates(days=days)
