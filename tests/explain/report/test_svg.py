import warnings
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure

from protodask.explain import palette
from protodask.explain.report.svg import Styles, inline_figure


def drawn(label: str = '<b> & "x"') -> Figure:
    figure = Figure(figsize=(4, 3), facecolor=palette.PAPER)
    axes = figure.add_subplot()
    axes.plot([1, 2], [3, 4], color=palette.ACCENT)
    axes.fill_between([1, 2], [1, 2], [3, 4], color=palette.CLASS_COLORS[1], alpha=0.2)
    axes.set_title(label, color=palette.INK, parse_math=False)
    return figure


def test_inline_figure__is_markup_with_classes_for_styles_and_names_of_its_own() -> None:
    styles = Styles()
    found = inline_figure(drawn(), "one-", "Title", 'said "so" & more', styles)
    root = ElementTree.fromstring(found)
    assert '<b> & "x"' in "".join(root.itertext())
    assert root[1].get("aria-label") == 'said "so" & more'
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert ids
    assert all(str(name).startswith("one-") for name in ids)
    assert not [element for element in root.iter() if "style" in element.attrib or element.tag.endswith("style")]
    for color in (palette.ACCENT, palette.INK, palette.PAPER, palette.CLASS_COLORS[1]):
        assert color not in styles.sheet
    assert "stroke:var(--accent)" in styles.sheet
    assert "fill:var(--class-1)" in styles.sheet
    assert "font-size:" in styles.sheet
    assert "font-family" not in styles.sheet


def test_inline_figure__is_the_same_again_and_has_no_date() -> None:
    first, second = (inline_figure(drawn(), "one-", "Title", "said", Styles()) for _ in range(2))
    assert first == second
    assert "<metadata" not in first


def test_inline_figure__keeps_letters_that_its_font_lacks() -> None:
    label = "日本 🎲 ཨོཾ"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        root = ElementTree.fromstring(inline_figure(drawn(label), "one-", "Title", "said", Styles()))
    assert label in "".join(root.itertext())
    assert not caught


def test_inline_figure__leaves_other_warnings_alone() -> None:
    figure = drawn()
    figure.savefig = lambda *_, **__: warnings.warn("something else", stacklevel=1)  # type: ignore[method-assign]
    with pytest.warns(UserWarning, match="something else"), pytest.raises(ElementTree.ParseError):
        inline_figure(figure, "one-", "Title", "said", Styles())
