"""The page: sections, style and script in one file that loads nothing, made by the templates beside this module."""

from __future__ import annotations

import base64
import hashlib
import math
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from protodask._version import __version__
from protodask.explain.explanation import compared_features
from protodask.explain.report import content as contents
from protodask.explain.report import drift, inside
from protodask.explain.report.content import Content, figure, mapped
from protodask.explain.report.figures import Figures, figures
from protodask.explain.report.svg import Styles
from protodask.explain.report.text import (
    bar,
    cell,
    embedded_json,
    name,
    number,
    p_text,
    percent,
    seconds,
    shade,
    text,
)

SECTIONS = ("overview", "errors", "features", "prototypes", "confidence", "drift", "training")

CONSTANTS = {
    "tall_rows": 25,  # a longer table scrolls by itself, under its header
    "most_features": 1000,
    "most_drifts": 500,
    "most_trials": 500,
    "most_values": inside.MOST_VALUES,
    "most_classes": contents.MOST_CLASSES,
    "dense_classes": contents.DENSE_CLASSES,
    "most_prototypes": contents.MOST_PROTOTYPES,
    "most_matches": contents.MOST_FEATURES,
    "strong_index": drift.STRONG_INDEX,
    "strong_outside": drift.STRONG_OUTSIDE,
    "alarms": drift.ALARMS,
    "infinity": math.inf,
}
"""What the templates go by, most of it numbers of lines that are shown."""

FILTERS = {"name": name, "figure": figure, "mapped": mapped, "whole": "{:,}".format}
FUNCTIONS = (
    *(bar, cell, number, p_text, percent, seconds, shade, zip),
    *(compared_features, contents.confusions, contents.likely_classes),
    *(inside.feature_weights, inside.plain_cards, inside.strongest_prototypes),
)


@cache
def environment() -> Environment:
    """Templates in which everything is escaped that is no markup, and in which a slip of a name is an error."""
    made = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        finalize=text,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= FILTERS
    made.globals |= CONSTANTS | {function.__name__: function for function in FUNCTIONS}
    return made


def render(content: Content) -> str:
    """The whole file as text. The same content gives the same file, to the last byte."""
    styles = Styles()
    drawn = figures(content, styles)
    style, script = _asset("style.css") + styles.sheet, _asset("script.js")
    return _rendered(
        "page",
        content,
        drawn=drawn,
        sections=SECTIONS,
        version=__version__,
        policy=policy(style, script),
        style=Markup(style),
        script=Markup(script),
        data=embedded_json(inside.prototype_data(content)),
    )


def render_section(section: str, content: Content, **limits: int) -> str:
    """One section by itself, without figures; `limits` in place of some of `CONSTANTS`."""
    return _rendered(section, content, drawn=Figures(), **limits)


def _rendered(template: str, content: Content, **values: Any) -> str:
    return environment().get_template(f"{template}.html").render(content=content, **values)


def policy(style: str, script: str) -> str:
    """A policy under which this style and this script work, and nothing else does: no network, no inline handlers."""
    return (
        f"default-src 'none'; style-src 'sha256-{_digest(style)}'; script-src 'sha256-{_digest(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _digest(content: str) -> str:
    return base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def _asset(file_name: str) -> str:
    return resources.files(__package__).joinpath(file_name).read_text(encoding="utf-8")
