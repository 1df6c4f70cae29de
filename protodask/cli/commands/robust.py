"""`protodask robust`: planes of largest margin from features that are known only roughly."""

from __future__ import annotations

import typer

app = typer.Typer(name="robust", no_args_is_help=True)


@app.callback()
def robust() -> None:
    """Train and apply classifiers where features are known only roughly: by bounds, means and spreads."""
