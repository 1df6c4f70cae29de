"""Reading the values of options."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from support.commands import check_failed
from support.errors import refused
from typer.testing import CliRunner, Result

from protodask.cli.errors import WrongUseError
from protodask.cli.grouping import grouped
from protodask.cli.options import Connection, parse_bytes
from protodask.engine import TlsFiles
from protodask.pipeline.steps.ingest import parse_orders
from protodask.places import mask

Call = Callable[..., Result]


@given(st.integers(1, 10**15))
def test_parse_bytes__plain_numbers_are_bytes(amount: int) -> None:
    assert parse_bytes(str(amount)) == amount


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("1GiB", 2**30),
        ("800MB", 800 * 10**6),
        ("1.5 gib", 3 * 2**29),
        ("4kB", 4000),
        ("4KiB", 4096),
        ("7 B", 7),
        ("2tib", 2**41),
    ],
)
def test_parse_bytes__units(text: str, amount: int) -> None:
    assert parse_bytes(text) == amount


@pytest.mark.parametrize("text", ["", "0", "0GiB", "-1", "GiB", "1XB", "1 G iB", "1e3", "1.GiB", "nan"])
def test_parse_bytes__refuses_the_rest(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="Write it like 1GiB"):
        parse_bytes(text)


def test_parse_orders__keeps_the_order() -> None:
    assert parse_orders(["size=small, medium,large", "grade=b,a"]) == {
        "size": ("small", "medium", "large"),
        "grade": ("b", "a"),
    }


def test_parse_orders__takes_commas_and_equals_signs_in_quotes() -> None:
    assert parse_orders(['size, class="s, small", m=mid,"say ""l"""', '"a=b"=5" pipe,c']) == {
        "size, class": ("s, small", "m=mid", 'say "l"'),
        "a=b": ('5" pipe', "c"),
    }


@pytest.mark.parametrize("url", ["memory://user:secret@a/data.zarr", "simplecache::memory://data.zarr"])
@pytest.mark.parametrize("command", [("sample-data", "checker", "--rows", 10, "--out"), ("publish", "m", "--registry")])
def test_outputs__in_the_memory_of_a_command_are_refused(command: tuple[object, ...], url: str, call: Call) -> None:
    check_failed(call(*command, url), 2, "unsupported", mask(url), "gone when it ends", "a store that stays")


@pytest.mark.parametrize("text", ["size", "=a,b", "size="])
def test_parse_orders__refuses_what_is_no_order(text: str) -> None:
    with refused("bad-setting", f"--ordinal {text}", "size=small,medium,large"):
        parse_orders([text])


@dataclass(frozen=True)
class Inner:
    depth: Annotated[int, typer.Option("--depth")] = 1


@dataclass(frozen=True)
class Outer:
    width: Annotated[int | None, typer.Option("--width")] = None
    inner: Inner = Inner(1)


HERE = Outer()


def test_grouped__gives_a_command_the_options_of_its_dataclasses() -> None:
    seen: list[object] = []
    app = typer.Typer()

    @app.command()
    @grouped
    def command(name: Annotated[str, typer.Argument()], outer: Outer = HERE, loud: bool = False) -> None:
        """Do it."""
        seen.append((name, outer, loud))

    def call(*arguments: str) -> int:
        return CliRunner().invoke(app, list(arguments)).exit_code

    assert call("a") == 0
    assert call("b", "--depth", "3", "--loud", "--width", "7") == 0
    assert seen == [("a", Outer(None, Inner(1)), False), ("b", Outer(7, Inner(3)), True)]
    assert call("c", "--depth", "deep") == 2
    assert command.__doc__ == "Do it."


def test_connection__needs_all_files_or_none() -> None:
    assert Connection().tls is None
    assert Connection("a", "b", "c").tls == TlsFiles("a", "b", "c")
    for incomplete in (Connection(tls_ca="a"), Connection(tls_ca="a", tls_key="c"), Connection(tls_cert="b")):
        with refused("setting-missing", "--tls-ca, --tls-cert and --tls-key", kind=WrongUseError):
            _ = incomplete.tls
