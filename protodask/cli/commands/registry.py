"""`protodask registry`: the versions of models, and which of them count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from protodask.cli.errors import reported
from protodask.cli.options import Debug, Json
from protodask.cli.showing.console import show_json
from protodask.cli.showing.registry import (
    show_difference,
    show_moved,
    show_pruned,
    show_registry,
    show_unaliased,
    show_version,
)

if TYPE_CHECKING:
    from protodask.registry.registry import Registry

app = typer.Typer(name="registry", no_args_is_help=True)

Place = Annotated[str, typer.Argument(metavar="REG", help="Folder or URL of a registry.")]
OneVersion = Annotated[str, typer.Argument(metavar="VERSION", help="Number of a version, or an alias.")]
Why = Annotated[str | None, typer.Option("--why", metavar="TEXT", help="The reason, for the history of moves.")]


@app.callback()
def registry() -> None:
    """Look at the versions of models in a registry, choose which one counts, and remove old ones.

    `protodask publish` adds versions.
    """


@app.command("list")
def list_versions(place: Place, as_json: Json = False, debug: Debug = False) -> None:
    """List the versions, the aliases, and how these moved."""
    with reported(debug):
        from protodask.registry.registry import Registry

        show_registry(Registry.open(place), as_json)


@app.command("show")
def show(place: Place, version: OneVersion = "champion", as_json: Json = False, debug: Debug = False) -> None:
    """Show a version: where it comes from, its metrics, and the files that belong to it."""
    with reported(debug):
        from protodask.registry.registry import Registry

        show_version(Registry.open(place).version(version), as_json)


@app.command("diff")
def diff(
    place: Place,
    first: Annotated[str, typer.Argument(metavar="FIRST", help="Number of a version, or an alias.")] = "previous",
    second: Annotated[str, typer.Argument(metavar="SECOND", help="The one that is compared with it.")] = "champion",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show how a version differs from another: data, settings, metrics, features."""
    with reported(debug):
        from protodask.registry.registry import Registry

        show_difference(Registry.open(place).diff(first, second), as_json)


@app.command("promote")
def promote(
    place: Place,
    alias: Annotated[str, typer.Argument(metavar="ALIAS", help="The alias to move, such as champion.")],
    version: OneVersion,
    why: Why = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Let an alias name a version. When the champion moves, `previous` comes to name what it was."""
    with reported(debug):
        from protodask.registry.registry import Registry

        opened = Registry.open(place)
        before = opened.promote(alias, version, why or "promoted")
        now = opened.version(alias)
        show_moved(opened, alias, before, now.number, as_json)


@app.command("rollback")
def rollback(place: Place, why: Why = None, as_json: Json = False, debug: Debug = False) -> None:
    """Let the champion be again what it was before, and `previous` what it is now."""
    with reported(debug):
        from protodask.registry.registry import Registry

        opened = Registry.open(place)
        now = opened.rollback(why or "rolled back")
        show_moved(opened, "champion", opened.aliases.get("previous"), now.number, as_json)


@app.command("prune")
def prune(
    place: Place,
    keep: Annotated[int, typer.Option("--keep", metavar="N", min=1, help="How many of the newest versions stay.")],
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Remove all versions but the newest N and those that aliases name. Their numbers are not used again."""
    with reported(debug):
        from protodask.registry.registry import Registry

        opened = Registry.open(place)
        _show_removed(opened, opened.prune(keep), as_json)


@app.command("unalias")
def unalias(
    place: Place,
    alias: Annotated[str, typer.Argument(metavar="ALIAS", help="The alias to remove.")],
    why: Why = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Remove an alias. The version that it names stays.

    A gate that compares with an alias that is not there says yes.
    """
    with reported(debug):
        from protodask.registry.registry import Registry

        opened = Registry.open(place)
        number = opened.unalias(alias, why or "removed")
        show_unaliased(opened, alias, number, as_json)


@app.command("remove")
def remove(place: Place, version: OneVersion, as_json: Json = False, debug: Debug = False) -> None:
    """Remove a version that no alias names. Its number is not used again."""
    with reported(debug):
        from protodask.registry.registry import Registry

        opened = Registry.open(place)
        _show_removed(opened, (opened.remove(version),), as_json, "remove")


def _show_removed(opened: Registry, removed: Sequence[int], as_json: bool, kind: str = "prune") -> None:
    if as_json:
        show_json({"kind": kind, "removed": list(removed), "kept": list(opened.numbers)})
    else:
        show_pruned(opened, removed)
