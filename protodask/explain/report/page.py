"""The page: sections, style and script in one file that loads nothing."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from importlib import resources
from string import Template

from protodask._version import __version__
from protodask.explain.report.changes import drift, training
from protodask.explain.report.content import Content
from protodask.explain.report.errors import errors
from protodask.explain.report.figures import Figures, figures
from protodask.explain.report.inside import features, prototype_data, prototypes
from protodask.explain.report.overview import overview
from protodask.explain.report.svg import Styles
from protodask.explain.report.text import Html, embedded_json, join, name, note, number, text


@dataclass(frozen=True)
class Section:
    """A tab and its panel."""

    key: str
    title: str
    body: str
    badge: int = 0
    """What the tab counts; 0 shows nothing."""


def render(content: Content) -> str:
    """The whole file as text. The same content gives the same file, to the last byte."""
    styles = Styles()
    drawn = figures(content, styles)
    sections = _sections(content, drawn)
    style = _asset("style.css") + styles.sheet
    script = _asset("script.js")
    has_prototypes = any(batch.n_prototypes for batch in content.model.batches[: content.n_batches])
    data = (
        f'<script type="application/json" id="prototypes-data">{embedded_json(prototype_data(content))}</script>'
        if has_prototypes
        else ""
    )
    return Template(_asset("page.html")).substitute(
        policy=policy(style, script),
        version=text(__version__),
        title=text(content.title),
        heading=name(content.title),
        subtitle=f"{name(content.model_name)} on {content.quality.rows:,} rows of {name(content.data_name)}",
        style=style,
        tabs=join(
            f'<li><a href="#{section.key}" id="tab-{section.key}">{section.title}{_badge(section)}</a></li>'
            for section in sections
        ),
        panels=join(
            f'<section class="panel" id="{section.key}" aria-labelledby="tab-{section.key}">'
            f"<h2>{section.title}</h2>{section.body}</section>"
            for section in sections
        ),
        data=data,
        script=script,
    )


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


def _badge(section: Section) -> str:
    return f'<span class="badge">{section.badge:,}</span>' if section.badge else ""


def _sections(content: Content, drawn: Figures) -> list[Section]:
    alarming = 0 if content.drift is None else content.drift.alarming
    return [
        Section("overview", "Overview", overview(content)),
        Section("errors", "Errors", errors(content)),
        Section("features", "Features", features(content)),
        Section("prototypes", "Prototypes", prototypes(content)),
        Section("confidence", "Confidence", _confidence(content, drawn)),
        Section("drift", "Drift", drift(content, drawn.drift), alarming),
        Section("training", "Training", training(content, drawn.training, drawn.search)),
    ]


def _confidence(content: Content, drawn: Figures) -> Html:
    error = content.calibration.error
    known = [value for value in error.tolist() if value == value]
    worst = f"at most {number(max(known), 2)} in any class" if known else "not known"
    return join(
        [
            "<h3>Calibration</h3>",
            note(
                "Of the rows that get a class with a probability near p, the share that is of that class should be p: "
                "on the diagonal. The band holds 95 per cent for each point by itself. The expected calibration error, "
                f"the mean distance from the diagonal, is {worst}."
            ),
            drawn.calibration,
            "<h3>Familiarity</h3>",
            note(
                "The evidence the model has for a row, the sum of weight times similarity over all prototypes. Near 0 "
                "it has never seen such a row, and falls back to the class shares of the training data. Shown for a "
                f"sample of {len(content.reference.familiarity):,} rows that is drawn by row number."
            ),
            drawn.familiarity,
        ]
    )
