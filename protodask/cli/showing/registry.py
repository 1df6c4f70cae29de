"""Registries and their versions, for people to read or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from protodask.cli.showing.console import say, say_pairs, say_some, say_table, show_json
from protodask.pipeline.telling.wording import count, shorten, value_text
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


def show_registry(registry: Registry, as_json: bool) -> None:
    """The versions of a registry and its aliases."""
    versions, moves, aliases = registry.versions(), registry.moves, registry.aliases
    if as_json:
        show_json(
            {
                "kind": "registry",
                "path": mask(registry.path),
                "aliases": aliases,
                "versions": [version.describe() for version in versions],
                "moves": [vars(move) for move in moves],
            }
        )
        return
    if not versions:
        say(f"The registry {shorten(registry.path)} has no versions yet.")
        return
    metric = next((name for name in SHOWN_METRICS if any(name in (found.metrics or {}) for found in versions)), None)
    header = ["version", "aliases", "published", "kind", "model", "data", *([metric] if metric else []), "note"]
    say_table(header, [_line(version, metric) for version in versions])
    say()
    say("The newest moves of aliases")
    say_table(
        ["time", "alias", "from", "to", "why"],
        [
            [_time(move.time), move.alias, _number(move.before), _number(move.after), move.why]
            for move in reversed(moves[-SHOWN_MOVES:])
        ],
    )


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


def show_version(version: Version, as_json: bool) -> None:
    """All that is known of a version."""
    if as_json:
        show_json(version.describe())
        return
    say_pairs(
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

    _show_values("metric", numbers(version.metrics or {}))
    _show_values("setting", version.settings)


def _show_values(what: str, values: Any) -> None:
    if values:
        say()
        say_table([what, "value"], [[name, value_text(value)] for name, value in values.items()])


def show_difference(found: Difference, as_json: bool) -> None:
    """How a version differs from another."""
    if as_json:
        show_json(found.describe())
        return
    first, second = found.first.number, found.second.number
    say(f"Versions {first} and {second} are {'the same model' if found.same else 'different models'}.")
    header = [f"version {first}", f"version {second}", "difference"]
    _show_changed("model", header[:2], found.model, rise=False)
    _show_changed("setting", header[:2], found.settings, rise=False)
    _show_changed("metric", header, found.metrics, rise=True)
    for what, names in (("gained", found.gained), ("lost", found.lost)):
        if names:
            say()
            say_some([f"feature {what}"], [[name] for name in names])


def _show_changed(what: str, header: Sequence[str], changed: Sequence[Changed], rise: bool) -> None:
    if changed:
        say()
        say_some([what, *header], [_compared(entry, rise) for entry in changed])


def _compared(entry: Changed, rise: bool) -> list[str]:
    change = "" if entry.rise is None else f"{entry.rise:+.6g}"
    return [entry.name, _value(entry.first), _value(entry.second), *([change] if rise else [])]


def show_moved(registry: Registry, alias: str, before: int | None, now: int, as_json: bool) -> None:
    """Where an alias went."""
    if as_json:
        show_json({"kind": "move", "alias": alias, "from": before, "to": now, "aliases": registry.aliases})
    elif before == now:
        say(f"In the registry {shorten(registry.path)}, {alias} is version {now} already.")
    else:
        was = "" if before is None else f"; it was version {before}"
        say(f"In the registry {shorten(registry.path)}, {alias} is now version {now}{was}.")


def show_unaliased(registry: Registry, alias: str, number: int, as_json: bool) -> None:
    """That an alias is gone."""
    if as_json:
        show_json({"kind": "unalias", "alias": alias, "version": number, "aliases": registry.aliases})
    else:
        say(f"In the registry {shorten(registry.path)}, {alias} names no version now; it was version {number}.")


def show_pruned(registry: Registry, removed: Sequence[int]) -> None:
    """What was removed."""
    which = f": {', '.join(map(str, removed))}" if removed else ""
    say(f"{count(len(removed), 'version')} of the registry {shorten(registry.path)} removed{which}.")


def _value(value: Any) -> str:
    return "" if value is None else value_text(value)


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def _time(text: str) -> str:
    try:
        return f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M}"
    except ValueError:
        return text
