"""`protodask export`: what a model consists of, as tables, and what it computes, as a graph."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from protodask.cli.console import Answer
from protodask.cli.errors import wrong_use
from protodask.cli.grouping import grouped
from protodask.cli.options import Computing, computing_engine
from protodask.errors import InputError, count
from protodask.pipeline.steps.base import Option, Overwrite
from protodask.pipeline.steps.rows import Model
from protodask.pipeline.telling.result import shorten

app = typer.Typer(add_completion=False)


@app.command("export")
@grouped
def export(
    model: Model,
    *,
    out: Annotated[str, Option("Where to write: a file that ends in .csv, .parquet, .xlsx or .onnx.", "FILE")],
    what: Annotated[
        Literal["prototypes", "weights"] | None,
        Option("Prototypes or feature weights; by default, prototypes, and in an Excel file both.", flag="--table"),
    ] = None,
    training: Annotated[str | None, Option("The training dataset: prototypes as they were there.", "DATA")] = None,
    batches: Annotated[int | None, Option("In an .onnx file, so many batches of the model; by default, all.")] = None,
    calibrated: Annotated[bool, Option("In an .onnx file, the probabilities of the model's calibration.")] = False,
    overwrite: Overwrite = False,
    computing: Computing,
) -> Answer:
    """Write the prototypes and feature weights of a model to a table, or what it computes for ONNX runtimes.

    In an Excel file all text stays text. In a CSV file it is written as it is: what begins with = + - or @ may be taken
    for a formula by a spreadsheet.
    """
    from protodask.explain.exports import check_export, suffix_of
    from protodask.explain.requests import export_model
    from protodask.pipeline.file.places import check_all_outside

    with wrong_use():
        check_all_outside([out], filter(None, (model, training)))
    if suffix_of(out) == ".onnx":
        from protodask.prototypes.model import load_model

        if what is not None or training is not None:
            raise InputError(
                "settings-conflict",
                f"{out} is to be a graph, which has no tables.",
                "Leave --table and --training out, or give a file that ends in .csv, .parquet or .xlsx.",
            )
        load_model(model).to_onnx(out, n_batches=batches, calibrated=calibrated, overwrite=overwrite)
        said = f"The file {shorten(out)} has what the model computes, for ONNX runtimes."
        return Answer(lambda: {"path": out, "calibrated": calibrated}, [said])
    if calibrated or batches is not None:
        raise InputError(
            "settings-conflict",
            f"{out} is to be a table of a model, which has no probabilities.",
            "Leave --calibrated and --batches out, or give a file that ends in .onnx.",
        )

    with wrong_use():
        computing.check()
        check_export(out, overwrite=True)
    with computing_engine(computing) as (engine, _):
        found = export_model(model, out, what=what, training=training, overwrite=overwrite, engine=engine)
    tables = " and ".join(f"{table.name} ({count(table.n_rows, 'row')})" for table in found.tables)
    return Answer(found.describe, [f"The file {shorten(found.path)} has the {tables}."])
