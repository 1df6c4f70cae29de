"""`protodask publish`: a model becomes a version in a registry."""

from __future__ import annotations

from typing import Annotated

import typer

from protodask.cli.errors import WrongUseError, reported, wrong_use
from protodask.cli.options import Debug, Json
from protodask.cli.show import show_result


def publish(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A model: of `fit`, `tune`, `calibrate`, `robust fit`.")
    ],
    registry: Annotated[
        str, typer.Option("--registry", metavar="REG", help="Folder or URL of the registry; made where there is none.")
    ],
    alias: Annotated[
        str, typer.Option("--alias", metavar="NAME", help="Alias that is to name the new version.")
    ] = "champion",
    metrics: Annotated[
        str | None, typer.Option("--metrics", metavar="FILE", help="What `evaluate --out` wrote, to be kept with it.")
    ] = None,
    files: Annotated[
        list[str] | None,
        typer.Option("--attach", metavar="NAME=FILE", help="A file to be kept with it, under a name. Repeatable."),
    ] = None,
    note: Annotated[str | None, typer.Option("--note", metavar="TEXT", help="What there is to say about it.")] = None,
    retain: Annotated[
        int | None,
        typer.Option(
            "--retain",
            metavar="N",
            min=1,
            help="Keep the newest N versions and those that aliases name, and remove the others.",
        ),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Add a model to a registry as a new version that never changes, and let an alias name it.

    A model that the alias names already is not added again. Wherever a model is read, REG@champion is the version that
    the alias names, REG@7 the seventh, and REG@champion:NAME a file that was attached to it.
    """
    with reported(debug):
        from protodask.pipeline.publishing import check_publishing, publish_model
        from protodask.pipeline.steps import PublishStep

        step = PublishStep(model, registry, alias, metrics, _files(files or []), note, retain)
        with wrong_use():
            check_publishing(step)
        show_result(publish_model(step), as_json)


def _files(attached: list[str]) -> dict[str, str]:
    files: dict[str, str] = {}
    for text in attached:
        name, separator, path = text.partition("=")
        if not separator or not path:
            raise WrongUseError("bad-setting", f"--attach {text} names no file.", "Write it like profile=profile.json.")
        if name in files:
            raise WrongUseError(
                "named-twice", f"Two files are to be attached as {name!r}.", "Give each a name of its own."
            )
        files[name] = path
    return files
