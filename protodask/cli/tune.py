"""`protodask tune`: choose hyperparameters by cross-validation and train a model with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from protodask.cli.computing import COMPUTING_HERE, Computing, perform_step
from protodask.cli.detach import Detach, detach_fit
from protodask.cli.errors import reported
from protodask.cli.options import Debug, Json, Overwrite, grouped
from protodask.cli.show import show_result
from protodask.cli.training import (
    TRAINING,
    AlphaV,
    AlphaW,
    AverageDraws,
    Candidates,
    Config,
    Data,
    FeatureForms,
    FeatureWeights,
    HoldOut,
    LeaveOneOut,
    MaxFraction,
    MaxIterations,
    Precision,
    Progressive,
    Recipe,
    RunDir,
    Standardize,
    Weighted,
)

SEARCH = "The search"


def _option(panel: str, name: str, default: str, text: str, metavar: str | None = None) -> typer.models.OptionInfo:
    # None means that nothing was said: the defaults are those of the search and of the training themselves.
    option: typer.models.OptionInfo = typer.Option(
        name, show_default=default, help=text, metavar=metavar, rich_help_panel=panel
    )
    return option


@dataclass(frozen=True)
class TuningOptions:
    """The settings of a search and of its fits, None where nothing was said."""

    strategy: Annotated[
        Literal["joint", "two-stage"] | None,
        _option(
            SEARCH,
            "--strategy",
            "joint",
            "joint: values of lambda_v, each with as many batches as help. two-stage: pairs of lambda_v and lambda_w "
            "with one batch, then batches for the chosen pair.",
        ),
    ] = None
    method: Annotated[
        Literal["grid", "random"] | None,
        _option(SEARCH, "--method", "grid", "Penalties in equal ratios, or spread over their ranges by the seed."),
    ] = None
    trials: Annotated[int | None, _option(SEARCH, "--trials", "7 jointly, 25 in two stages", "Penalties to try.")] = (
        None
    )
    lambda_v_range: Annotated[
        tuple[float, float] | None,
        _option(
            SEARCH, "--lambda-v-range", "0.0001 0.1", "Smallest and largest penalty on the feature weights.", "LOW HIGH"
        ),
    ] = None
    lambda_w_range: Annotated[
        tuple[float, float] | None,
        _option(
            SEARCH,
            "--lambda-w-range",
            "1e-09 0.0001",
            "Smallest and largest penalty on the prototype weights, in two stages.",
            "LOW HIGH",
        ),
    ] = None
    max_batches: Annotated[int | None, _option(SEARCH, "--max-batches", "10", "Batches of a setting at most.")] = None
    patience: Annotated[
        int | None,
        _option(SEARCH, "--patience", "1", "Batches in a row without a gain after which a setting gets no more."),
    ] = None
    least_gain: Annotated[
        float | None,
        _option(SEARCH, "--least-gain", "0.1", "What counts as a gain, in standard errors of the mean log-loss."),
    ] = None
    folds: Annotated[int | None, _option(SEARCH, "--folds", "5", "Parts that are held out, one at a time.")] = None
    rule: Annotated[
        Literal["half-a-standard-error", "one-standard-error", "best"] | None,
        _option(
            SEARCH,
            "--rule",
            "half-a-standard-error",
            "Choose the simplest setting within half a standard error of the best one, within one, or the best.",
        ),
    ] = None
    search_tolerance: Annotated[
        float | None, _option(SEARCH, "--search-tolerance", "1.11e-05", "The tolerance of the fits of the search.")
    ] = None
    draws: Annotated[
        int | None,
        _option(
            SEARCH,
            "--draws",
            "1; with the recipe source 5 up to 10,000 rows",
            "Draws of candidates to try for the final fit; those of the smallest log-loss on all rows are kept.",
        ),
    ] = None
    recipe: Recipe = None
    average_draws: AverageDraws = None
    hold_out: HoldOut = None
    feature_weights: FeatureWeights = None
    feature_forms: FeatureForms = None
    candidates: Candidates = None
    max_fraction: MaxFraction = None
    lambda_w: Annotated[
        float | None,
        _option(
            TRAINING,
            "--lambda-w",
            "1e-10",
            "Penalty on the prototype weights, in the joint strategy; with the recipe source, 1e-08.",
        ),
    ] = None
    alpha_v: AlphaV = None
    alpha_w: AlphaW = None
    standardize: Standardize = None
    weighted: Weighted = None
    progressive: Progressive = None
    leave_one_out: LeaveOneOut = None
    precision: Precision = None
    tolerance: Annotated[
        float | None,
        _option(
            TRAINING,
            "--tolerance",
            "3e-06",
            "Of the final model: stop when ten iterations improve by less each, as a share of the objective.",
        ),
    ] = None
    max_iterations: MaxIterations = None
    seed: Annotated[
        int | None, _option(TRAINING, "--seed", "0", "Of the folds, the draw of candidates and random settings.")
    ] = None
    config: Config = None


NOTHING_SAID = TuningOptions()


@grouped
def tune(
    data: Data,
    out: Annotated[str, typer.Option("--out", metavar="MODEL", help="Where to write the model.")],
    tuning: TuningOptions = NOTHING_SAID,
    run_dir: RunDir = None,
    table: Annotated[
        str | None, typer.Option("--table", metavar="FILE.csv", help="Write all trials to a CSV file, too.")
    ] = None,
    overwrite: Overwrite = False,
    computing: Computing = COMPUTING_HERE,
    detach: Detach = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Choose penalties and the number of batches by cross-validation, and train a model with them.

    Rows of one group stay in one fold if the dataset has a column of groups (ingest --group).
    """
    with reported(debug):
        from protodask.pipeline.steps import TuneStep

        step = TuneStep(data=data, out=out, run_dir=run_dir, table=table, overwrite=overwrite, **vars(tuning))
        if detach is None:
            show_result(perform_step(step, computing), as_json)
        else:
            detach_fit(detach, step, computing, as_json)
