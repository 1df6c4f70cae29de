"""Reading the values of options."""

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from protodask.cli.errors import WrongUseError
from protodask.cli.options import parse_bytes, parse_orders


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


@pytest.mark.parametrize("text", ["size", "=a,b", "size="])
def test_parse_orders__refuses_what_is_no_order(text: str) -> None:
    with pytest.raises(WrongUseError, match="Write it like size=small,medium,large"):
        parse_orders([text])
