"""Registries and their versions, for people to read."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from protodask.pipeline.telling.result import Pairs, Piece, Table
from protodask.pipeline.telling.wording import shorten, value_text
from protodask.places import mask

if TYPE_CHECKING:
    from protodask.registry.differences import Changed, Difference
    from protodask.registry.registry import Registry
    from protodask.registry.versions import Version

SHOWN_DIGITS = 8
"""Of a fingerprint in a table."""

SHOWN_MOVES = 10

SHOWN_METRICS = ("log_loss", "accuracy", "roc_auc", "nominal_error", "value")
"""What may stand in the list of versions; the first that any version has does."""


def describe_registry(registry: Registry) -> dict[str, Any]:
    """The same as plain values."""
    return {
        "kind": "registry",
        "path": mask(registry.path),
        "aliases": registry.aliases,
        "versions": [version.describe() for version in registry.versions()],
        "moves": [vars(move) for move in registry.moves],
    }


def told_registry(registry: Registry) -> Iterator[Piece]:
    """The versions of a registry and its aliases."""
    versions, moves = registry.versions(), registry.moves
    if not versions:
        yield f"The registry {shorten(registry.path)} has no versions yet."
        return
    metric = next((name for name in SHOWN_METRICS if any(name in (found.metrics or {}) for found in versions)), None)
    header = ["version", "aliases", "published", "kind", "model", "data", *([metric] if metric else []), "note"]
    yield Table(header, [_line(version, metric) for version in versions], whole=True)
    yield ""
    yield "The newest moves of aliases"
    newest = reversed(moves[-SHOWN_MOVES:])
    rows = [[_time(move.time), move.alias, _value(move.before), _value(move.after), move.why] for move in newest]
    yield Table(["time", "alias", "from", "to", "why"], rows, whole=True)


def _line(version: Version, metric: str | None) -> list[str]:
    return [
        str(version.number),
        ", ".join(version.aliases),
        _time(version.published),
        version.kind,
        version.fingerprint[:SHOWN_DIGITS],
        version.data[-1][:SHOWN_DIGITS] if version.data else "",
        *([value_text((version.metrics or {}).get(metric, ""))] if metric else []),
        version.note or "",
    ]


def told_version(version: Version) -> Iterator[Piece]:
    """All that is known of a version."""
    yield Pairs(
        [
            ("version", str(version.number)),
            *([("aliases", ", ".join(version.aliases))] if version.aliases else []),
            ("published", _time(version.published)),
            ("model", f"{version.kind} {version.fingerprint}"),
            ("path", shorten(version.path)),
            *((name, f"{value:,}") for name, value in version.sizes.items()),
            ("features used", f"{len(version.features):,}"),
            *([("rows", f"{version.rows:,}")] if version.rows is not None else []),
            *(("data", fingerprint) for fingerprint in version.data),
            *(
                [("trained with", ", ".join(f"{name} {of}" for name, of in version.code.items()))]
                if version.code
                else []
            ),
            *([("note", version.note)] if version.note else []),
            *((f"file {name}", shorten(path)) for name, path in version.files.items()),
        ]
    )
    from protodask.registry.differences import numbers

    for what, values in (("metric", numbers(version.metrics or {})), ("setting", version.settings)):
        if values:
            yield ""
            yield Table([what, "value"], [[name, value_text(value)] for name, value in values.items()], whole=True)


def told_difference(found: Difference) -> Iterator[Piece]:
    """How a version differs from another."""
    first, second = found.first.number, found.second.number
    yield f"Versions {first} and {second} are {'the same model' if found.same else 'different models'}."
    header = [f"version {first}", f"version {second}"]
    for what, changed in (("model", found.model), ("setting", found.settings), ("metric", found.metrics)):
        if changed:
            yield ""
            rise = what == "metric"
            yield Table([what, *header, *(["difference"] if rise else [])], [_compared(one, rise) for one in changed])
    for what, names in (("gained", found.gained), ("lost", found.lost)):
        if names:
            yield ""
            yield Table([f"feature {what}"], [[name] for name in names])


def _compared(entry: Changed, rise: bool) -> list[str]:
    change = "" if entry.rise is None else f"{entry.rise:+.6g}"
    return [entry.name, _value(entry.first), _value(entry.second), *([change] if rise else [])]


def _value(value: Any) -> str:
    return "" if value is None else value_text(value)


def _time(text: str) -> str:
    try:
        return f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M}"
    except ValueError:
        return text
