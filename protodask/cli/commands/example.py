"""`protodask example`: the files that come with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from protodask.cli.console import say
from protodask.cli.errors import reported, wrong_use
from protodask.cli.options import Debug
from protodask.errors import FormatError, InputError
from protodask.pipeline.telling.result import Table

app = typer.Typer(add_completion=False)

PACKAGE = Path(__file__).parents[2]

FOLDERS = (PACKAGE / "examples", PACKAGE.parent / "pipelines")
"""Where an installed package has them, and where its source has them."""


@app.command("example")
def example(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Which one to print, such as train; else all are listed.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Print a pipeline to begin with: protodask example train > train.yaml.

    There are files for schedulers, too: systemd, cron, Prefect and Airflow.
    """
    with reported(debug):
        if name is None:
            rows = [[name, described(path)] for name, path in shipped_files().items()]
            say(Table(["name", "what for"], rows, whole=True))
            return
        with wrong_use():
            path = shipped_file(name)
        typer.echo(path.read_text(encoding="utf-8"), nl=False)


def shipped_files() -> dict[str, Path]:
    """The files by name, pipelines first."""
    folder = next((place for place in FOLDERS if place.is_dir()), None)
    if folder is None:
        raise FormatError("damaged", "The examples of this installation are missing.", "Install protodask again.")
    # What Python and editors leave behind is none of them.
    found = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc" and path.name[0] != "."]
    return {path.name: path for path in sorted(found, key=lambda path: (path.suffix != ".yaml", path.name))}


def shipped_file(name: str) -> Path:
    """The file of this name; a pipeline's may be given without its ending."""
    files = shipped_files()
    found = files.get(name) or files.get(f"{name}.yaml")
    if found is None:
        raise InputError("unknown-name", f"There is no example {name!r}.", f"They are {', '.join(files)}.")
    return found


def described(path: Path) -> str:
    """What a file is for: of a pipeline what it says itself, of others the folder they lie in."""
    from protodask.pipeline.file.yaml_file import read_mapping

    if path.suffix == ".yaml":
        return str(read_mapping(path).get("description", "")).strip()
    if path.suffix == ".md":
        return path.read_text(encoding="utf-8").split("\n", 1)[0].lstrip("# ")
    return "" if path.parent in FOLDERS else f"for {path.parent.name}"
