"""`protodask registry`: the versions of models, and which of them count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from protodask.cli.grouping import grouped
from protodask.cli.showing.console import Answer
from protodask.cli.showing.registry import describe_registry, told_difference, told_registry, told_version
from protodask.pipeline.steps.base import Option
from protodask.pipeline.telling.wording import count, shorten

if TYPE_CHECKING:
    from protodask.registry.registry import Registry

app = typer.Typer(name="registry", no_args_is_help=True)

Place = Annotated[str, typer.Argument(metavar="REG", help="Folder or URL of a registry.")]
OneVersion = Annotated[str, typer.Argument(metavar="VERSION", help="Number of a version, or an alias.")]
Why = Annotated[str | None, Option("The reason, for the history of moves.", "TEXT")]


@app.callback()
def registry() -> None:
    """Look at the versions of models in a registry, choose which one counts, and remove old ones.

    `protodask publish` adds versions.
    """


def _opened(place: str) -> Registry:
    from protodask.registry.registry import Registry

    return Registry.open(place)


@app.command("list")
@grouped
def list_versions(place: Place) -> Answer:
    """List the versions, the aliases, and how these moved."""
    opened = _opened(place)
    return Answer(lambda: describe_registry(opened), told_registry(opened))


@app.command("show")
@grouped
def show(place: Place, version: OneVersion = "champion") -> Answer:
    """Show a version: where it comes from, its metrics, and the files that belong to it."""
    found = _opened(place).version(version)
    return Answer(found.describe, told_version(found))


@app.command("diff")
@grouped
def diff(
    place: Place,
    first: Annotated[str, typer.Argument(metavar="FIRST", help="Number of a version, or an alias.")] = "previous",
    second: Annotated[str, typer.Argument(metavar="SECOND", help="The one that is compared with it.")] = "champion",
) -> Answer:
    """Show how a version differs from another: data, settings, metrics, features."""
    found = _opened(place).diff(first, second)
    return Answer(found.describe, told_difference(found))


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
def prune(
    place: Place,
    keep: Annotated[int, Option("How many of the newest versions stay.", "N", least=1)],
) -> Answer:
    """Remove all versions but the newest N and those that aliases name. Their numbers are not used again."""
    opened = _opened(place)
    return _removed(opened, "prune", opened.prune(keep))


@app.command("unalias")
@grouped
def unalias(
    place: Place,
    alias: Annotated[str, typer.Argument(metavar="ALIAS", help="The alias to remove.")],
    why: Why = None,
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
