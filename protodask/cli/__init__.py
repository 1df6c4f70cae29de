"""The command line: commands are those of the steps, and a file for each that is none. They parse, call and print.

Whatever is slow to import is imported by the command that needs it, so that `--help` answers at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from protodask.cli.commands.budget import app as budget
from protodask.cli.commands.cluster import app as cluster
from protodask.cli.commands.example import example
from protodask.cli.commands.explain import explain
from protodask.cli.commands.export import export
from protodask.cli.commands.info import info
from protodask.cli.commands.plan import plan
from protodask.cli.commands.registry import app as registry
from protodask.cli.commands.run import RunCommand, run
from protodask.cli.console import open_streams, remark
from protodask.cli.errors import end_on_signals, output_written, stop_reading
from protodask.cli.grouping import ingest, step_command
from protodask.pipeline.steps import STEPS
from protodask.pipeline.steps.base import Panel
from protodask.pipeline.steps.ingest import IngestStep

ROBUST = "Train and apply classifiers where features are known only roughly: by bounds, means and spreads."

GROUPS = {"budget": budget, "robust": typer.Typer(name="robust", help=ROBUST, no_args_is_help=True)}
"""Of commands of several words."""


class _Commands(TyperGroup):
    """The commands, and what was one of them by a setting: it is another one now."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        moved = STEPS[args[0]].moved if args and args[0] in STEPS else {}
        for option, command in ((f"--{setting}", command) for setting, command in moved.items()):
            if option in args:
                remark(f"Note: `{args[0]} {option}` is `protodask {command}` now.")
                args = [command, *(word for word in args[1:] if word != option)]
        return super().resolve_command(ctx, args)


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


for step in STEPS.values():
    words = step.command_words()
    commands = app if len(words) == 1 else GROUPS.setdefault(words[0], typer.Typer(name=words[0], no_args_is_help=True))
    panel = step.panel.value if len(words) == 1 else None
    commands.command(words[-1], rich_help_panel=panel)(ingest if step is IngestStep else step_command(step))
app.command("info", rich_help_panel=Panel.DATA.value)(info)
app.command("plan", rich_help_panel=Panel.TRAINING.value)(plan)
app.command("explain", rich_help_panel=Panel.USE.value)(explain)
app.command("export", rich_help_panel=Panel.USE.value)(export)
app.command("run", cls=RunCommand, rich_help_panel=Panel.PIPELINES.value)(run)
app.command("example", rich_help_panel=Panel.PIPELINES.value)(example)
app.add_typer(registry, rich_help_panel=Panel.WATCH.value)
for group in GROUPS.values():
    app.add_typer(group, rich_help_panel=Panel.COMPANIONS.value)
app.add_typer(cluster, rich_help_panel=Panel.PIPELINES.value)


def main(begin: Callable[[], None] | None = None) -> None:
    """Run the command line of this process, and call `begin` when its options are read and a command begins."""
    open_streams()
    end_on_signals()  # SIGTERM is what job queues and containers end a program with
    try:
        with output_written():  # help and the like are printed before there is a command
            app(obj=begin)
    finally:
        stop_reading()
