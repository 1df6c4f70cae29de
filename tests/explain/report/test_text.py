import json
import math
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from protodask.explain.explanation import visible
from protodask.explain.report.text import (
    bar,
    embedded_json,
    name,
    number,
    p_text,
    percent,
    shade,
    short_numbers,
    text,
)


class Reader(HTMLParser):
    """What a page's reader sees, and the elements around it."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.read = ""
        self.tags: list[str] = []

    def handle_data(self, data: str) -> None:
        self.read += data

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)


@example('=0"')
@given(st.text(st.characters(exclude_categories=()), max_size=30))
def test_name__is_read_as_the_very_text(value: str) -> None:
    reader = Reader()
    reader.feed(str(name(value)))  # what is added to markup would be escaped
    reader.close()
    assert reader.read == visible(value)
    assert set(reader.tags) <= {"bdi", "wbr"}


def test_text__is_escaped() -> None:
    assert text("<b title='x'>&amp;") == "&lt;b title=&#39;x&#39;&gt;&amp;amp;"


@settings(max_examples=30)
@given(
    st.lists(st.text(max_size=9) | st.integers() | st.none(), max_size=9)
    | st.dictionaries(st.text(max_size=9), st.text(max_size=9))
)
def test_embedded_json__is_json_and_ends_no_script(value: object) -> None:
    found = embedded_json(value)
    assert json.loads(found) == value
    assert not set("<>&") & set(found)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.123456, "0.1235"),
        (1234.0, "1,234"),
        (24951.2, "24,951"),
        (-2.0, "−2"),
        (1e-9, "1e−09"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
    ],
)
def test_number__is_short(value: float, expected: str) -> None:
    assert number(value) == expected


def test_number__of_nothing_is_a_dash() -> None:
    assert number(None) == number(math.nan) == percent(None) == percent(math.nan) == "–"


def test_percent__of_something_is_never_nothing() -> None:
    assert percent(0.0) == "0.0%"
    assert percent(1e-5) == "< 0.1%"
    assert percent(0.5, 2) == "50.00%"
    assert p_text(0.0) == "< 0.0001"
    assert p_text(0.0123) == "0.012"


def test_bar__and_shade_stay_within_their_bounds() -> None:
    assert 'width="100"' in bar(7.0)
    assert 'width="0"' in bar(-1.0)
    assert 'width="0"' in bar(math.inf)
    assert [shade(share) for share in (-1.0, 0.0, 0.5, 1.0, 2.0)] == ["heat0", "heat0", "heat5", "heat10", "heat10"]


def test_short_numbers__have_six_digits() -> None:
    assert short_numbers(np.array([[1.23456789, 2.0], [math.nan, 1e20]])) == [[1.23457, 2], [None, 1e20]]
