"""Folders of certificates: whole or not at all."""

import os
from pathlib import Path

import pytest
from support.errors import refused

from protodask.errors import OutputExistsError
from protodask.security.certificates import Certificates
from protodask.security.folder import write_certificates


def test_write_certificates__names_files_that_are_there(tmp_path: Path) -> None:
    written = write_certificates(tmp_path / "certs", ["node-1"], days=3)
    described = written.describe()
    for role in ("ca", "scheduler", "worker", "client"):
        for what in ("certificate", "key"):
            assert Path(described[role][what]).is_file()
    assert "node-1" in described["hosts"]
    assert (tmp_path / "certs").stat().st_mode & 0o777 == 0o700


def test_write_certificates__overwrites_its_own_only_when_told(tmp_path: Path) -> None:
    write_certificates(tmp_path / "certs")
    before = (tmp_path / "certs" / "ca.pem").read_bytes()
    with refused("exists", tmp_path / "certs", "overwrite=True", kind=OutputExistsError):
        write_certificates(tmp_path / "certs")
    assert (tmp_path / "certs" / "ca.pem").read_bytes() == before
    write_certificates(tmp_path / "certs", overwrite=True)
    assert (tmp_path / "certs" / "ca.pem").read_bytes() != before
    assert os.listdir(tmp_path) == ["certs"]


def test_write_certificates__never_overwrites_anything_else(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "ca.pem").write_text("precious")
    with refused("wrong-kind", tmp_path / "mine", kind=OutputExistsError):
        write_certificates(tmp_path / "mine", overwrite=True)
    assert (tmp_path / "mine" / "ca.pem").read_text() == "precious"


def test_write_certificates__that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Certificates.write

    def fail_after(self: Certificates, folder: str) -> None:
        write(self, folder)
        raise KeyboardInterrupt

    monkeypatch.setattr(Certificates, "write", fail_after)
    with pytest.raises(KeyboardInterrupt):
        write_certificates(tmp_path / "certs")
    assert os.listdir(tmp_path) == []


def test_write_certificates__refuses_a_url() -> None:
    with refused("not-local"):
        write_certificates("s3://bucket/certs")
