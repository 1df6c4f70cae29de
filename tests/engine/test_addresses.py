"""Addresses of schedulers: which are refused before anything is sent.

Apart from the tests of connections: in a process with a cluster its threads draw from the generator that Hypothesis
watches, and a test of properties fails now and then for that.
"""

import contextlib
import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.errors import refused

from protodask.engine import TlsFiles, cluster_engine, connect, open_engine
from protodask.engine.connect import check_address
from protodask.errors import ClusterError
from protodask.places import mask_text


@pytest.mark.parametrize(
    "address",
    [
        "tcp://127.0.0.1:8786", "127.0.0.1:8786", "127.0.0.1", "tcp://127.8.9.10:1", "tcp://localhost:8786",
        "localhost:1", "tcp://[::1]:8786", "tls://10.0.0.1:8786", "tls://node:8786", "inproc://10.0.0.1/123/1",
    ],
)  # fmt: skip
def test_check_address__lets_pass_what_stays_here_or_is_encrypted(address: str) -> None:
    check_address(address)


REMOTE = [
    "tcp://10.0.0.1:8786", "10.0.0.1:8786", "tcp://node:8786", "node:8786", "nonsense", "tcp://0.0.0.0:8786",
    "tcp://[::]:8786", "tcp://[2001:db8::1]:8786", "tcp://localhost.example.org:8786", "tcp://127.0.0.1.example:1",
    "tcp://2130706433:8786", "tcp://127.0.0.1@10.0.0.1:8786", "ws://10.0.0.1:8786",
]  # fmt: skip


@pytest.mark.parametrize("address", REMOTE)
def test_check_address__refuses_what_leaves_this_machine_in_the_clear(address: str) -> None:
    with refused("not-secure", mask_text(address), "tls://"):
        check_address(address)
    check_address(address, insecure=True)


@given(st.ip_addresses(), st.booleans(), st.integers(1, 65535))
def test_check_address__of_an_ip_depends_on_loopback_alone(
    ip: ipaddress.IPv4Address | ipaddress.IPv6Address, scheme: bool, port: int
) -> None:
    address = f"{'tcp://' if scheme else ''}{f'[{ip}]' if ip.version == 6 else ip}:{port}"
    inside = ip in ipaddress.ip_network("127.0.0.0/8" if ip.version == 4 else "::1/128")
    with contextlib.nullcontext() if inside else refused("not-secure", address):
        check_address(address)


NO_PORTS = [
    "tcp://127.0.0.1:port",
    "127.0.0.1:",
    "tls://[::1]:-5",
    "tcp://localhost:0",
    "tcp://user:pass@node",
    "node:65536",
]


@pytest.mark.parametrize("address", NO_PORTS)
def test_check_address__says_that_it_is_the_port(address: str) -> None:
    with refused("bad-setting", "port", 65535) as caught:
        check_address(address, insecure=True)
    assert "pass" not in str(caught.value)


NO_ADDRESSES = ["", " ", "tcp://", "tls://:8786", "foo://127.0.0.1:1", "tcp://127.0.0.1:port", "tcp://127.0.0.1:1:2"]


@pytest.mark.parametrize("address", NO_ADDRESSES)
def test_check_address__refuses_what_is_no_address(address: str) -> None:
    with refused("bad-setting", mask_text(repr(address)), "no address"):
        check_address(address, insecure=True)


def test_check_address__refuses_settings_that_contradict_each_other() -> None:
    files = TlsFiles("ca.pem", "client.pem", "client-key.pem")
    with refused("settings-conflict", "Choose one: certificates, or insecure."):
        check_address("tls://10.0.0.1:1", files, insecure=True)
    with refused("settings-conflict", "tcp://127.0.0.1:1", "tls://"):
        check_address("tcp://127.0.0.1:1", files)
    with refused("settings-conflict", "tls://10.0.0.1:1", "insecure"):
        check_address("tls://10.0.0.1:1", insecure=True)


@pytest.mark.parametrize("address", ["tcp://10.0.0.1:8786", "10.0.0.1:8786"])
def test_open_engine__and_cluster_engine_refuse_before_they_connect(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: object) -> None:
        raise AssertionError("connected")

    monkeypatch.setattr(connect, "_knock", never)
    with refused("not-secure", address, "insecure=True"), open_engine(address):
        pass
    with refused("not-secure", address, "insecure=True"):
        cluster_engine(address)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "127.0.0.1"])
def test_open_engine__of_an_address_where_no_scheduler_answers(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "CONNECT_SECONDS", 1)
    with refused("no-answer", address, kind=ClusterError), open_engine(address):
        pass
