"""The command line: commands are those of the steps, and a file for each that is none. They parse, call and print.

Whatever is slow to import is imported by the command that needs it, so that `--help` answers at once.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable
from functools import cache
from importlib import import_module
from inspect import cleandoc
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from protodask.cli.console import open_streams, remark
from protodask.cli.errors import end_on_signals, output_written, stop_reading
from protodask.cli.grouping import about_step, step_command
from protodask.pipeline.steps import STEPS
from protodask.pipeline.steps.base import Panel

FILES = {
    "info": Panel.DATA,
    "plan": Panel.TRAINING,
    "explain": Panel.USE,
    "export": Panel.USE,
    "run": Panel.PIPELINES,
    "example": Panel.PIPELINES,
    "registry": Panel.WATCH,
    "budget": Panel.COMPANIONS,
    "cluster": Panel.PIPELINES,
}
"""Commands and groups of commands that have files of their own, and the headings that they stand under."""

ABOUT = {"robust": "Train and apply classifiers where features are known only roughly: by bounds, means and spreads."}
"""Groups of steps alone."""

WORDS = {step.command_words()[0]: step.panel for step in STEPS.values()} | FILES
"""The first words of all commands, and their headings."""


class _Made(UserDict[str, Any]):
    """Commands and groups, made when they are asked for: all of them take a tenth of a second."""

    def __getitem__(self, word: str) -> Any:
        return made(word, super().__getitem__(word))


@cache
def made(word: str, panel: Panel) -> Any:
    """The command of one word, or the group whose commands begin with it."""
    if word in FILES:
        app = import_module(f"{__name__}.commands.{word}").app
    else:
        app = typer.Typer(name=word, help=ABOUT.get(word), no_args_is_help=True, add_completion=False)
    steps = [step for step in STEPS.values() if step.command_words()[0] == word]
    for step in steps:
        app.command(step.command_words()[-1])(step_command(step))
    is_group = len(app.registered_commands) > 1 or any(len(step.command_words()) > 1 for step in steps)
    command: Any = get_group(app) if is_group else get_command(app)
    command.rich_help_panel = panel.value
    return command


def listed(word: str) -> TyperCommand:
    """A command as lists show it, without its options: making those of all takes longer than all the rest."""
    if word in FILES:
        app = import_module(f"{__name__}.commands.{word}").app
        about = app.info.help or app.registered_commands[0].callback.__doc__
    else:
        about = ABOUT.get(word) or about_step(STEPS[word])
    command = TyperCommand(name=word, help=about and cleandoc(about))
    command.rich_help_panel = WORDS[word].value
    return command


class _Commands(TyperGroup):
    """The commands, and what was one of them by a setting: it is another one now."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Made(WORDS)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return listed(cmd_name) if cmd_name in WORDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        moved = STEPS[args[0]].moved if args and args[0] in STEPS else {}
        for option, other in ((f"--{setting}", other) for setting, other in moved.items()):
            if option in args:
                remark(f"Note: `{args[0]} {option}` is `protodask {other}` now.")
                args = [other, *(word for word in args[1:] if word != option)]
        word, _, rest = super().resolve_command(ctx, args)
        return word, word and self.commands[word], rest


app = typer.Typer(
    name="protodask",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(asked: bool) -> None:
    if asked:
        from protodask._version import __version__

        typer.echo(f"protodask {__version__}")
        raise typer.Exit


@app.callback(epilog="Exit codes: 0 done, 1 failed, 2 wrong use, 3 the answer is no, 130 stopped, 143 ended.")
def protodask(
    version: Annotated[
        bool, typer.Option("--version", metavar="", help="Show the version.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Prototype set classifiers for data larger than memory."""


def main(begin: Callable[[], None] | None = None) -> None:
    """Run the command line of this process, and call `begin` when its options are read and a command begins."""
    open_streams()
    end_on_signals()  # SIGTERM is what job queues and containers end a program with
    try:
        with output_written():  # help and the like are printed before there is a command
            app(obj=begin)
    finally:
        stop_reading()
