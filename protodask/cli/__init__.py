"""The command line: one file a command. Commands parse, call and print.

Whatever is slow to import is imported by the command that needs it, so that `--help` answers at once.
"""

from __future__ import annotations

from typing import Annotated

import typer

from protodask.cli.budget import app as budget
from protodask.cli.cluster import app as cluster
from protodask.cli.ending import end_on_signals
from protodask.cli.example import example
from protodask.cli.explain import explain
from protodask.cli.export import export
from protodask.cli.info import info
from protodask.cli.plan import plan
from protodask.cli.registry import app as registry
from protodask.cli.robust import app as robust
from protodask.cli.run import run
from protodask.cli.steps import ingest, step_command
from protodask.pipeline.steps import STEPS

app = typer.Typer(
    name="protodask",
    no_args_is_help=True,
    add_completion=False,
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
        bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Prototype set classifiers for data larger than memory."""


app.command("ingest")(ingest)
app.command("sample-data")(step_command(STEPS["sample-data"]))
app.command("split")(step_command(STEPS["split"]))
app.command("subsample")(step_command(STEPS["subsample"]))
app.command("info")(info)
app.command("plan")(plan)
app.command("fit")(step_command(STEPS["fit"]))
app.command("tune")(step_command(STEPS["tune"]))
app.command("calibrate")(step_command(STEPS["calibrate"]))
app.command("prune")(step_command(STEPS["prune"]))
app.command("predict")(step_command(STEPS["predict"]))
app.command("evaluate")(step_command(STEPS["evaluate"]))
app.command("monitor")(step_command(STEPS["monitor"]))
app.command("gate")(step_command(STEPS["gate"]))
app.command("decide")(step_command(STEPS["decide"]))
app.add_typer(budget)
app.add_typer(robust)
app.command("explain")(explain)
app.command("export")(export)
app.command("report")(step_command(STEPS["report"]))
app.command("publish")(step_command(STEPS["publish"]))
app.add_typer(registry)
app.command("run")(run)
app.command("example")(example)
app.add_typer(cluster)


def main() -> None:
    """Run the command line of this process."""
    end_on_signals()  # SIGTERM is what job queues and containers end a program with
    app()
