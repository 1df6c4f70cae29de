"""`protodask predict`: a model's predictions for a dataset or raw tables."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from protodask.cli.computing import COMPUTING_HERE, Computing, perform_step
from protodask.cli.errors import reported
from protodask.cli.options import Debug, Json, Overwrite, grouped
from protodask.cli.show import show_result

Model = Annotated[str, typer.Argument(metavar="MODEL", help="A model.")]
Rows = Annotated[
    str, typer.Argument(metavar="DATA", help="A dataset, or raw tables or arrays: files, a glob or a folder.")
]
Batches = Annotated[
    int | None,
    typer.Option(
        "--batches",
        min=0,
        help="Use so many batches of the model, those trained together counted as one; by default, all.",
    ),
]
Calibrated = Annotated[
    bool, typer.Option("--calibrated", help="Calibrated probabilities, of a model made by `protodask calibrate`.")
]
UnseenOption = Annotated[
    Literal["error", "zero"],
    typer.Option(
        "--unseen",
        help="Categories in raw tables that were not there at ingest: an error, or all zero; prototype sets then also "
        "take what is missing, where nothing was, for the mean.",
    ),
]
BadRows = Annotated[
    Literal["error", "mark"],
    typer.Option(
        "--bad-rows",
        help="Rows of raw tables with a value that cannot be used, such as text where a number is expected: an error, "
        "or marked, by no predicted class, while the others are scored.",
    ),
]
Drop = Annotated[
    list[str] | None, typer.Option("--drop", metavar="COL", help="Column of raw tables to leave out. Repeatable.")
]
Keep = Annotated[
    list[str] | None,
    typer.Option(
        "--keep", metavar="COL", help="Column of raw tables to write beside the predictions, as an id. Repeatable."
    ),
]
EachFile = Annotated[
    bool,
    typer.Option("--each-file", help="Score each file that is new once, into a part of its own of the folder PRED."),
]
Settle = Annotated[
    float,
    typer.Option(
        "--settle", metavar="SECONDS", help="With --each-file: leave files for next time that changed so lately."
    ),
]


@grouped
def predict(
    model: Model,
    data: Annotated[
        list[str],
        typer.Argument(metavar="DATA...", help="A dataset, or raw tables or arrays: files, globs or folders."),
    ],
    out: Annotated[
        str,
        typer.Option(
            "--out",
            metavar="PRED",
            help="Where to write: Parquet if it ends in .parquet, CSV if in .csv, otherwise Zarr.",
        ),
    ],
    batches: Batches = None,
    calibrated: Calibrated = False,
    unseen: UnseenOption = "error",
    bad_rows: BadRows = "error",
    drop: Drop = None,
    keep: Keep = None,
    each_file: EachFile = False,
    settle: Settle = 0.0,
    overwrite: Overwrite = False,
    computing: Computing = COMPUTING_HERE,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write a model's probabilities, familiarity and predicted class for each row."""
    with reported(debug):
        from protodask.errors import InputError
        from protodask.pipeline.steps import PredictStep

        step = PredictStep(
            model=model,
            data=tuple(data),
            out=out,
            batches=batches,
            calibrated=calibrated,
            unseen=unseen,
            bad_rows=bad_rows,
            drop=tuple(drop or ()),
            keep=tuple(keep or ()),
            each_file=each_file,
            settle=settle,
            overwrite=overwrite,
        )
        try:
            result = perform_step(step, computing)
        except InputError as error:
            from protodask.pipeline.each_file import FilesFailedError

            if isinstance(error, FilesFailedError) and error.result is not None:
                show_result(error.result, as_json)
            raise
        show_result(result, as_json)
