"""Figures as parts of a page: inline SVG without styles of its own, colours as variables, names that do not clash."""

from __future__ import annotations

import io
import re
import warnings
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from markupsafe import Markup

from protodask.explain import palette
from protodask.explain.report.text import text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SVG = "{http://www.w3.org/2000/svg}"
XLINK = "{http://www.w3.org/1999/xlink}href"
HASH_SALT = "protodask"

VARIABLES = {
    palette.INK: "--ink",
    palette.MUTED: "--muted",
    palette.PAPER: "--paper",
    palette.GRID: "--grid",
    palette.ACCENT: "--accent",
    **{color: f"--class-{position}" for position, color in enumerate(palette.CLASS_COLORS)},
}
"""Variables of the page's style sheet by the colours of the plots."""

DECLARATION = re.compile(r"\s*([\w-]+)\s*:\s*([^;]+?)\s*(?:;|$)")
REFERENCE = re.compile(r"url\(#([^)]+)\)")
MISSING_LETTER = r"Glyph \d+ .* missing from"
"""How matplotlib's warning begins, of whatever version, that its own font lacks a letter."""

LEFT_OUT = ("font", "font-family")
"""The page's own fonts are as good, and need no loading."""


class Styles:
    """The style attributes of all figures of a page as classes: a strict policy lets no element carry a style."""

    def __init__(self) -> None:
        self._classes: dict[str, str] = {}

    def class_of(self, declarations: str) -> str:
        """The name of the class with these declarations."""
        return self._classes.setdefault(declarations, f"s{len(self._classes)}")

    @property
    def sheet(self) -> str:
        """The rules of all classes."""
        return "".join(f".{name}{{{declarations}}}" for declarations, name in self._classes.items())


def inline_figure(figure: Figure, prefix: str, title: str, alternative: str, styles: Styles) -> Markup:
    """A figure as SVG with a text alternative; `prefix` makes its ids differ from those of other figures."""
    root = ElementTree.fromstring(_svg(figure))
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{SVG}style", f"{SVG}metadata", f"{SVG}title") or "metadata" in str(child.tag):
                parent.remove(child)
    for element in root.iter():
        _rewrite(element, prefix, styles)
    width, height = (float(part) for part in root.get("viewBox", "0 0 1 1").split()[2:])
    inner = "".join(ElementTree.tostring(child, encoding="unicode") for child in root)
    return Markup(
        f'<figure class="plot"><figcaption>{title}</figcaption>'
        f'<svg class="figure" role="img" aria-label="{text(alternative)}" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}">{inner}</svg></figure>'
    )


def _svg(figure: Figure) -> bytes:
    import matplotlib

    out = io.BytesIO()
    # Text stays text, and nothing depends on the time or on chance.
    with (
        matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": HASH_SALT}),
        warnings.catch_warnings(),
    ):
        # The reader's browser has the letters; here they only count as wide as the sign for one that is missing.
        warnings.filterwarnings("ignore", message=MISSING_LETTER, category=UserWarning)
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()


def _rewrite(element: ElementTree.Element, prefix: str, styles: Styles) -> None:
    element.tag = str(element.tag).removeprefix(SVG)
    if XLINK in element.attrib:
        element.set("href", element.attrib.pop(XLINK))
    for key, value in list(element.attrib.items()):
        if key.startswith("{"):
            del element.attrib[key]
        elif key == "id":
            element.set(key, prefix + value)
        elif key == "href" and value.startswith("#"):
            element.set(key, f"#{prefix}{value[1:]}")
        elif key == "style":
            del element.attrib[key]
            if declarations := _declarations(value, prefix):
                element.set("class", styles.class_of(declarations))
        elif "url(#" in value:
            element.set(key, _referring(value, prefix))


def _declarations(style: str, prefix: str) -> str:
    kept = []
    for key, value in DECLARATION.findall(style):
        if key == "font":
            # `10px 'Some Font', sans-serif`, maybe with a weight before the size.
            if size := re.search(r"(\d+(?:\.\d+)?)px", value):
                kept.append(f"font-size:{size[1]}px")
            if "bold" in value or re.search(r"\b[67]00\b", value):
                kept.append("font-weight:600")
        elif key not in LEFT_OUT:
            kept.append(f"{key}:{_referring(_colored(value), prefix)}")
    return ";".join(kept)


def _referring(value: str, prefix: str) -> str:
    return REFERENCE.sub(rf"url(#{prefix}\1)", value)


def _colored(value: str) -> str:
    variable = VARIABLES.get(value.strip().lower())
    return value if variable is None else f"var({variable})"
