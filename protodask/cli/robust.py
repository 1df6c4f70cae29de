"""`protodask robust`: planes of largest margin from features that are known only roughly."""

from __future__ import annotations

from typing import Annotated

import typer

from protodask.cli.computing import COMPUTING_HERE, Computing, perform_step
from protodask.cli.errors import reported
from protodask.cli.evaluate import Inclusion, Target, Weight
from protodask.cli.options import Debug, Json, Overwrite, grouped
from protodask.cli.predict import Drop, Rows, UnseenOption
from protodask.cli.show import show_result
from protodask.cli.training import RUN, TRAINING, Data, RunDir
from protodask.pipeline.steps import Formulation

app = typer.Typer(name="robust", no_args_is_help=True)

Model = Annotated[str, typer.Argument(metavar="MODEL", help="What `protodask robust fit` wrote.")]
Certifying = Annotated[
    Formulation | None,
    typer.Option(
        "--formulation",
        show_default="that of the training; SBMV-I after SVM and M",
        help="What the error of a row is bounded by: all but SVM and M.",
    ),
]


@app.callback()
def robust() -> None:
    """Train and apply classifiers where features are known only roughly: by bounds, means and spreads."""


@app.command("fit")
@grouped
def fit(
    data: Data,
    out: Annotated[str, typer.Option("--out", metavar="MODEL", help="Where to write the model.")],
    formulation: Annotated[
        Formulation,
        typer.Option(
            "--formulation",
            help="What of the columns is used: S the support, M means, MC means and variances, SBMV support and bounds "
            "of means and second moments, SBM the same without second moments, SMV and SM with exact means; -I for "
            "less cautious bounds that take longer; SVM nothing but the middles.",
            rich_help_panel=TRAINING,
        ),
    ] = "SBMV",
    eps: Annotated[
        float,
        typer.Option(
            "--eps",
            metavar="P",
            help="Probability of error, at most, of training rows that keep the margin.",
            rich_help_panel=TRAINING,
        ),
    ] = 0.1,
    cost: Annotated[
        float,
        typer.Option(
            "--cost",
            metavar="C",
            help="Cost of a row that misses the margin, for each unit: a larger C fits more closely.",
            rich_help_panel=TRAINING,
        ),
    ] = 1.0,
    gap: Annotated[
        float,
        typer.Option(
            "--gap",
            metavar="X",
            help="Stop when the objective is at most this far above the least there is, as a share of it.",
            rich_help_panel=TRAINING,
        ),
    ] = 1e-4,
    max_passes: Annotated[
        int,
        typer.Option(
            "--max-passes", metavar="N", help="Passes over the rows at most, for each plane.", rich_help_panel=TRAINING
        ),
    ] = 300,
    weighted: Annotated[
        bool,
        typer.Option(
            "--weighted/--unweighted",
            help="Rows count by the weights and inclusions of the dataset, or once each.",
            rich_help_panel=TRAINING,
        ),
    ] = True,
    run_dir: RunDir = None,
    terms: Annotated[
        str | None,
        typer.Option(
            "--terms",
            metavar="STORE",
            help="Keep here what follows from data and formulation: further fits with another --eps or --cost find it.",
            rich_help_panel=RUN,
        ),
    ] = None,
    overwrite: Overwrite = False,
    computing: Computing = COMPUTING_HERE,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Train planes of largest margin on a dataset with columns x.low, x.high and, if known, x.mean, x.second and so on.

    Other columns are features known exactly. More than two classes get a plane each, against the rest.
    """
    with reported(debug):
        from protodask.pipeline.steps import RobustFitStep

        step = RobustFitStep(
            data=data,
            out=out,
            formulation=formulation,
            eps=eps,
            cost=cost,
            gap=gap,
            max_passes=max_passes,
            weighted=weighted,
            run_dir=run_dir,
            terms=terms,
            overwrite=overwrite,
        )
        show_result(perform_step(step, computing), as_json)


@app.command("predict")
@grouped
def predict(
    model: Model,
    data: Rows,
    out: Annotated[
        str,
        typer.Option(
            "--out",
            metavar="PRED",
            help="Where to write: Parquet if it ends in .parquet, CSV if in .csv, otherwise Zarr.",
        ),
    ],
    formulation: Certifying = None,
    unseen: UnseenOption = "error",
    drop: Drop = None,
    overwrite: Overwrite = False,
    computing: Computing = COMPUTING_HERE,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write the predicted class of each row, and a bound of the probability that its true values have another one."""
    with reported(debug):
        from protodask.pipeline.steps import RobustPredictStep

        step = RobustPredictStep(
            model=model,
            data=data,
            out=out,
            formulation=formulation,
            unseen=unseen,
            drop=tuple(drop or ()),
            overwrite=overwrite,
        )
        show_result(perform_step(step, computing), as_json)


@app.command("evaluate")
@grouped
def evaluate(
    model: Model,
    data: Rows,
    formulation: Certifying = None,
    eps: Annotated[
        float | None,
        typer.Option(
            "--eps",
            metavar="P",
            show_default="that of the training",
            help="Count the rows that are certified at this probability of error.",
        ),
    ] = None,
    target: Target = None,
    weight: Weight = None,
    inclusion: Inclusion = None,
    unseen: UnseenOption = "error",
    drop: Drop = None,
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Write the measures to a JSON file, too.")
    ] = None,
    overwrite: Overwrite = False,
    computing: Computing = COMPUTING_HERE,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure nominal error, expected certified error and the certified fraction on rows of known classes."""
    with reported(debug):
        from protodask.pipeline.steps import RobustEvaluateStep

        step = RobustEvaluateStep(
            model=model,
            data=data,
            formulation=formulation,
            eps=eps,
            target=target,
            weight=weight,
            inclusion=inclusion,
            unseen=unseen,
            drop=tuple(drop or ()),
            out=out,
            overwrite=overwrite,
        )
        show_result(perform_step(step, computing), as_json)
