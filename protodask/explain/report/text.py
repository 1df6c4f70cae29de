"""Text and numbers as parts of a page: what is no `Markup` is escaped, here and in the templates."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from protodask.explain.explanation import visible

BREAKS = re.compile(r"(?<=[_/=.])(?=\w)")
WORD_END = "<wbr>"
"""Long names may be broken after these, rather than anywhere."""

STEPS = 10
"""Shades of a heat map."""


def text(value: object) -> Markup:
    """Text, escaped; markup stays what it is."""
    return value if isinstance(value, Markup) else escape(visible(value))


def name(value: object) -> Markup:
    """The name of something in the data: kept apart from the direction of the writing around it."""
    return Markup(f'<bdi class="name">{BREAKS.sub(WORD_END, text(value))}</bdi>')


def number(value: float | None, digits: int = 4) -> str:
    """So many significant digits; before the decimal point, all of them up to a billion."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if abs(value) < 1e9 and (float(value).is_integer() or abs(value) >= 10**digits):
        return f"{value:,.0f}".replace("-", "−")
    return f"{value:.{digits}g}".replace("-", "−")


def percent(value: float | None, digits: int = 1) -> str:
    """A share in per cent; a small one is not rounded to none."""
    if value is None or math.isnan(value):
        return "–"
    least = 10.0**-digits / 100
    if 0 < value < least:
        return f"< {100 * least:.{digits}f}%"
    return f"{100 * value:.{digits}f}%"


def p_text(value: float) -> str:
    """A p-value: two digits, and never 0."""
    return "< 0.0001" if value < 1e-4 else f"{value:.2g}"


def seconds(value: float) -> str:
    """A duration."""
    if value < 120:
        return f"{value:.3g} s"
    return f"{value / 60:.3g} min" if value < 7200 else f"{value / 3600:.3g} h"


def bar(share: float, kind: str = "") -> Markup:
    """A bar of so much of its width, for the eye only."""
    width = 100 * min(max(share, 0.0), 1.0) if math.isfinite(share) else 0.0
    return Markup(
        f'<svg class="bar {kind}" viewBox="0 0 100 1" preserveAspectRatio="none" aria-hidden="true" focusable="false">'
        f'<rect class="rail" width="100" height="1"/><rect class="fill" width="{width:.4g}" height="1"/></svg>'
    )


def shade(share: float) -> str:
    """The class of a cell of a heat map."""
    return f"heat{round(STEPS * min(max(share, 0.0), 1.0))}"


def cell(content: object, sort: float | None = None, kind: str = "") -> Markup:
    """A table cell; `sort` is what its column is sorted by, if not its text."""
    key = "" if sort is None else f' data-sort="{sort if math.isfinite(sort) else math.copysign(1e308, sort):.9g}"'
    shown = f' class="{kind}"' if kind else ""
    return Markup(f"<td{shown}{key}>{text(content)}</td>")


def embedded_json(value: Any) -> Markup:
    """JSON that may stand inside a script element: no `<`, `>` or `&` occurs in it."""
    plain = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(plain.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def short_numbers(values: np.ndarray[Any, Any]) -> list[Any]:
    """Numbers of an array as lists, rounded to six significant digits; None where one is not finite."""
    if values.ndim > 1:
        return [short_numbers(line) for line in values]
    return [_short(value) for value in values.tolist()]


def _short(value: float) -> float | int | None:
    if not math.isfinite(value):
        return None
    rounded = float(f"{value:.6g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded
