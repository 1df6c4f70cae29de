"""`protodask ingest`: from tables and arrays to a dataset."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from protodask.cli.computing import COMPUTING_HERE, Computing, perform_step
from protodask.cli.errors import reported
from protodask.cli.options import Debug, Json, Overwrite, grouped, parse_orders
from protodask.cli.show import show_result


@grouped
def ingest(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="CSV or Parquet files, globs or folders of them; .npy, .npz or Zarr arrays; with --new, "
            "datasets, too.",
        ),
    ],
    out: Annotated[str, typer.Option("--out", metavar="DATA", help="Where to write the dataset.")],
    target: Annotated[
        str | None, typer.Option("--target", metavar="COL", help="Column of the classes; by default, 'target'.")
    ] = None,
    categorical: Annotated[
        list[str] | None,
        typer.Option("--categorical", metavar="COL", help="Column of categories: a feature for each. Repeatable."),
    ] = None,
    ordinal: Annotated[
        list[str] | None,
        typer.Option("--ordinal", metavar="COL=a,b,c", help="Column of ordered categories, lowest first. Repeatable."),
    ] = None,
    weight: Annotated[str | None, typer.Option("--weight", metavar="COL", help="Column of row weights.")] = None,
    inclusion: Annotated[
        str | None,
        typer.Option("--inclusion", metavar="COL", help="Column of the probabilities with which rows were kept."),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("--group", metavar="COL", help="Column that says which rows belong together, such as a patient."),
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option("--drop", metavar="COL", help="Column to leave out. Repeatable.")
    ] = None,
    text_is_categorical: Annotated[
        bool, typer.Option("--text-is-categorical", help="Take columns of text as categories, unless said otherwise.")
    ] = False,
    missing: Annotated[
        Literal["fill", "error"],
        typer.Option(
            "--missing",
            help="Missing values of features count as the mean, or as no category, and are marked by a further "
            "feature; or they are an error.",
        ),
    ] = "fill",
    dtype: Annotated[
        Literal["float32", "float64"], typer.Option("--dtype", help="Type the features are stored in.")
    ] = "float32",
    append: Annotated[bool, typer.Option("--append", help="Add the rows to the dataset at the output path.")] = False,
    new: Annotated[
        bool,
        typer.Option(
            "--new",
            help="Add only the files, or parts of datasets, that the dataset at the output path does not have; make it "
            "if there is none.",
        ),
    ] = False,
    unless_in: Annotated[
        str | None,
        typer.Option("--unless-in", metavar="OTHER", help="Take only what this other dataset does not have."),
    ] = None,
    settle: Annotated[
        float,
        typer.Option(
            "--settle", min=0.0, metavar="SECONDS", help="Leave files that changed so recently for the next time."
        ),
    ] = 0.0,
    overwrite: Overwrite = False,
    computing: Computing = COMPUTING_HERE,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Make a dataset from tables or arrays, or add their rows to one."""
    with reported(debug):
        from protodask.pipeline.steps import AppendStep, IngestStep

        step = (AppendStep if append else IngestStep)(
            sources=tuple(sources),
            out=out,
            target=target,
            categorical=tuple(categorical or ()),
            ordinal=parse_orders(ordinal or ()),
            weight=weight,
            inclusion=inclusion,
            group=group,
            drop=tuple(drop or ()),
            text_is_categorical=text_is_categorical,
            missing=missing,
            dtype=dtype,
            new=new,
            unless_in=unless_in,
            settle=settle,
            overwrite=overwrite,
        )
        show_result(perform_step(step, computing), as_json)
