"""`protodask registry`: the versions of models, and which of them count."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from protodask.cli.console import Answer, Part, apart, known
from protodask.cli.grouping import grouped
from protodask.errors import count
from protodask.pipeline.steps.base import Option
from protodask.pipeline.telling.result import Table, shorten, value_text
from protodask.places import mask

if TYPE_CHECKING:
    from protodask.registry.differences import Changed, Difference
    from protodask.registry.registry import Registry
    from protodask.registry.versions import Version

ABOUT = """Look at the versions of models in a registry, choose which one counts, and remove old ones.

`protodask publish` adds versions.
"""

app = typer.Typer(name="registry", help=ABOUT, no_args_is_help=True, add_completion=False)

Place = Annotated[str, typer.Argument(metavar="REG", help="Folder or URL of a registry.")]
OneVersion = Annotated[str, typer.Argument(metavar="VERSION", help="Number of a version, or an alias.")]
Why = Annotated[str | None, Option("The reason, for the history of moves.", "TEXT")]

SHOWN_DIGITS = 8
"""Of a fingerprint in a table."""

SHOWN_MOVES = 10

SHOWN_METRICS = ("log_loss", "accuracy", "roc_auc", "nominal_error", "value")
"""What may stand in the list of versions; the first that any version has does."""


def _opened(place: str) -> Registry:
    from protodask.registry.registry import Registry

    return Registry.open(place)


@app.command("list")
@grouped
def list_versions(place: Place) -> Answer:
    """List the versions, the aliases, and how these moved."""
    opened = _opened(place)
    return Answer(lambda: _describe_registry(opened), apart(_told_registry(opened)))


@app.command("show")
@grouped
def show(place: Place, version: OneVersion = "champion") -> Answer:
    """Show a version: where it comes from, its metrics, and the files that belong to it."""
    found = _opened(place).version(version)
    return Answer(found.describe, apart(_told_version(found)))


@app.command("diff")
@grouped
def diff(
    place: Place,
    first: Annotated[str, typer.Argument(metavar="FIRST", help="Number of a version, or an alias.")] = "previous",
    second: Annotated[str, typer.Argument(metavar="SECOND", help="The one that is compared with it.")] = "champion",
) -> Answer:
    """Show how a version differs from another: data, settings, metrics, features."""
    found = _opened(place).diff(first, second)
    return Answer(found.describe, apart(_told_difference(found)))


@app.command("promote")
@grouped
def promote(
    place: Place,
    alias: Annotated[str, typer.Argument(metavar="ALIAS", help="The alias to move, such as champion.")],
    version: OneVersion,
    why: Why = None,
) -> Answer:
    """Let an alias name a version. When the champion moves, `previous` comes to name what it was."""
    opened = _opened(place)
    before = opened.promote(alias, version, why or "promoted")
    return _moved(opened, alias, before, opened.version(alias).number)


@app.command("rollback")
@grouped
def rollback(place: Place, why: Why = None) -> Answer:
    """Let the champion be again what it was before, and `previous` what it is now."""
    opened = _opened(place)
    now = opened.rollback(why or "rolled back")
    return _moved(opened, "champion", opened.aliases.get("previous"), now.number)


@app.command("prune")
@grouped
def prune(place: Place, keep: Annotated[int, Option("How many of the newest versions stay.", "N", least=1)]) -> Answer:
    """Remove all versions but the newest N and those that aliases name. Their numbers are not used again."""
    opened = _opened(place)
    return _removed(opened, "prune", opened.prune(keep))


@app.command("unalias")
@grouped
def unalias(
    place: Place, alias: Annotated[str, typer.Argument(metavar="ALIAS", help="The alias to remove.")], why: Why = None
) -> Answer:
    """Remove an alias. The version that it names stays.

    A gate that compares with an alias that is not there says yes.
    """
    opened = _opened(place)
    number = opened.unalias(alias, why or "removed")
    return Answer(
        lambda: {"kind": "unalias", "alias": alias, "version": number, "aliases": opened.aliases},
        [f"In the registry {shorten(opened.path)}, {alias} names no version now; it was version {number}."],
    )


@app.command("remove")
@grouped
def remove(place: Place, version: OneVersion) -> Answer:
    """Remove a version that no alias names. Its number is not used again."""
    opened = _opened(place)
    return _removed(opened, "remove", (opened.remove(version),))


def _moved(opened: Registry, alias: str, before: int | None, now: int) -> Answer:
    was = "" if before is None else f"; it was version {before}"
    said = f"version {now} already" if before == now else f"now version {now}{was}"
    return Answer(
        lambda: {"kind": "move", "alias": alias, "from": before, "to": now, "aliases": opened.aliases},
        [f"In the registry {shorten(opened.path)}, {alias} is {said}."],
    )


def _removed(opened: Registry, kind: str, removed: Sequence[int]) -> Answer:
    which = f": {', '.join(map(str, removed))}" if removed else ""
    return Answer(
        lambda: {"kind": kind, "removed": list(removed), "kept": list(opened.numbers)},
        [f"{count(len(removed), 'version')} of the registry {shorten(opened.path)} removed{which}."],
    )


def _describe_registry(registry: Registry) -> dict[str, Any]:
    return {
        "kind": "registry",
        "path": mask(registry.path),
        "aliases": registry.aliases,
        "versions": [version.describe() for version in registry.versions()],
        "moves": [vars(move) for move in registry.moves],
    }


def _told_registry(registry: Registry) -> Iterator[Part]:
    versions, moves = registry.versions(), registry.moves
    if not versions:
        yield f"The registry {shorten(registry.path)} has no versions yet."
        return
    metric = next((name for name in SHOWN_METRICS if any(name in (found.metrics or {}) for found in versions)), None)
    header = ["version", "aliases", "published", "kind", "model", "data", *([metric] if metric else []), "note"]
    yield Table(header, [_line(version, metric) for version in versions], whole=True)
    for version in versions:
        if version.unreadable:
            yield f"Version {version.number} is unreadable. {version.unreadable}"
    newest = reversed(moves[-SHOWN_MOVES:])
    rows = [[_time(move.time), move.alias, _value(move.before), _value(move.after), move.why] for move in newest]
    yield ["The newest moves of aliases", Table(["time", "alias", "from", "to", "why"], rows, whole=True)]


def _line(version: Version, metric: str | None) -> list[str]:
    return [
        str(version.number),
        ", ".join(version.aliases),
        _time(version.published),
        version.kind,
        version.fingerprint[:SHOWN_DIGITS],
        version.data[-1][:SHOWN_DIGITS] if version.data else "",
        *([value_text((version.metrics or {}).get(metric, ""))] if metric else []),
        "(unreadable)" if version.unreadable else version.note or "",
    ]


def _told_version(version: Version) -> Iterator[Part]:
    yield known(
        [
            ("version", str(version.number)),
            ("aliases", version.aliases or None),
            ("published", _time(version.published)),
            ("model", f"{version.kind} {version.fingerprint}"),
            ("path", shorten(version.path)),
            *version.sizes.items(),
            ("features used", len(version.features)),
            ("rows", version.rows),
            *(("data", fingerprint) for fingerprint in version.data),
            ("trained with", [f"{name} {of}" for name, of in version.code.items()] or None),
            ("note", version.note or None),
            *((f"file {name}", shorten(path)) for name, path in version.files.items()),
        ]
    )
    from protodask.registry.differences import numbers

    for what, values in (("metric", numbers(version.metrics or {})), ("setting", version.settings)):
        if values:
            yield Table([what, "value"], [[name, value_text(value)] for name, value in values.items()], whole=True)


def _told_difference(found: Difference) -> Iterator[Part]:
    first, second = found.first.number, found.second.number
    yield f"Versions {first} and {second} are {'the same model' if found.same else 'different models'}."
    header = [f"version {first}", f"version {second}"]
    for what, changed in (("model", found.model), ("setting", found.settings), ("metric", found.metrics)):
        if changed:
            rise = what == "metric"
            yield Table([what, *header, *(["difference"] if rise else [])], [_compared(one, rise) for one in changed])
    for what, names in (("gained", found.gained), ("lost", found.lost)):
        if names:
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
