from hypothesis import given
from hypothesis import strategies as st

from protodask.explain.explanation import visible


@given(st.text(st.characters(exclude_categories=()), max_size=30))
def test_visible__can_be_encoded_and_seen(value: str) -> None:
    found = visible(value)
    found.encode()
    assert all(letter.isprintable() or letter in "\u200c\u200d\xa0" for letter in found)


def test_visible__shows_what_has_no_shape() -> None:
    assert visible("a\nb\x00\x7f\ud800\u202e") == r"a\nb\x00\x7f\ud800\u202e"
    assert visible("שלום é 漢 $x$") == "שלום é 漢 $x$"
