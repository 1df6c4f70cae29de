"""The options on the training that `fit`, `plan`, `tune` and `budget build` share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import typer

TRAINING = "Settings of the training"
RUN = "The run"

Data = Annotated[str, typer.Argument(metavar="DATA", help="A dataset.")]


def _setting(name: str, default: str, text: str) -> typer.models.OptionInfo:
    # The settings have no default here: what is not given comes from --config, or else from the training itself.
    option: typer.models.OptionInfo = typer.Option(name, show_default=default, help=text, rich_help_panel=TRAINING)
    return option


FeatureWeights = Annotated[
    Literal["shared", "class", "both"] | None,
    _setting(
        "--feature-weights",
        "both",
        "By all prototypes of a batch, or by those of each class: a batch for each, trained together as a round; or "
        "draws take turns, the first by class.",
    ),
]
Recipe = Annotated[
    Literal["averaged", "source"] | None,
    _setting(
        "--recipe",
        "averaged",
        'What settings are that are not given. "source": one draw of 1,000 candidates that share feature weights, of '
        "features as they are, trained on all other rows.",
    ),
]
AverageDraws = Annotated[
    int | None,
    _setting(
        "--average-draws",
        "5; 2 of more than 2,000 rows; 1 of more than 20,000",
        "Draws of candidates, each trained by itself; the model is their mean.",
    ),
]
HoldOut = Annotated[
    float | None,
    _setting(
        "--hold-out",
        "0.2",
        "Share of the rows that a draw does not train on: it keeps what loses least on them. 0: all are trained on, up "
        "to the optimum.",
    ),
]
FeatureForms = Annotated[
    Literal["plain", "scores", "both", "all"] | None,
    _setting(
        "--feature-forms",
        "all",
        "Numbers as they are, as normal scores, which heavy tails and lumps do not harm, in both forms, or in all: "
        "with differences of those that go together.",
    ),
]
Candidates = Annotated[
    int | None, _setting("--candidates", "by the number of rows, 500 to 2,000", "Rows tried as prototypes.")
]
MaxFraction = Annotated[
    float | None, _setting("--max-fraction", "0.5", "Largest share of like rows that may become candidates.")
]
LambdaV = Annotated[
    float | None, _setting("--lambda-v", "0.0003", "Penalty on the feature weights; with the recipe source, 0.001.")
]
LambdaW = Annotated[
    float | None, _setting("--lambda-w", "1e-10", "Penalty on the prototype weights; with the recipe source, 1e-08.")
]
AlphaV = Annotated[
    float | None, _setting("--alpha-v", "0.95", "Share of the l2 part in the penalty on feature weights.")
]
AlphaW = Annotated[
    float | None, _setting("--alpha-w", "0.95", "Share of the l2 part in the penalty on prototype weights.")
]
Standardize = Annotated[
    bool | None, _setting("--standardize/--raw-units", "standardize", "What the feature weights refer to.")
]
Precision = Annotated[
    Literal["auto", "float32", "float64"] | None,
    _setting("--precision", "float64 up to 500 rows, float32 beyond", "Of the kernel; sums are float64 in any case."),
]
Weighted = Annotated[
    bool | None,
    _setting(
        "--weighted/--unweighted",
        "weighted",
        "Rows count by the weights and inclusions of the dataset, or once each.",
    ),
]
Progressive = Annotated[
    bool | None,
    _setting(
        "--progressive/--all-rows",
        "progressive",
        "Begin on parts of the rows where they are many and some held out, or train on all of them from the start.",
    ),
]
LeaveOneOut = Annotated[
    bool | None,
    _setting(
        "--leave-one-out/--leave-candidates-out",
        "leave-one-out",
        "Train on rows that are candidates as well, of which none looks at itself in its round, or leave them out.",
    ),
]
MaxIterations = Annotated[int | None, _setting("--max-iterations", "5000", "Iterations of a batch at most.")]
Config = Annotated[
    str | None,
    typer.Option(
        "--config", metavar="FILE", help="YAML file with such settings; the command line wins.", rich_help_panel=RUN
    ),
]
RunDir = Annotated[
    str | None,
    typer.Option(
        "--run-dir",
        metavar="DIR",
        help="Keep the record from which the same command goes on in this local folder. Without it, that is MODEL.run, "
        "and removed at the end; needed if MODEL is a URL.",
        rich_help_panel=RUN,
    ),
]


@dataclass(frozen=True)
class SettingsOptions:
    """The settings of a fit, None where nothing was said."""

    batches: Annotated[int | None, _setting("--batches", "1", "Rounds of batches to add.")] = None
    recipe: Recipe = None
    average_draws: AverageDraws = None
    hold_out: HoldOut = None
    feature_weights: FeatureWeights = None
    feature_forms: FeatureForms = None
    candidates: Candidates = None
    max_fraction: MaxFraction = None
    lambda_v: LambdaV = None
    lambda_w: LambdaW = None
    alpha_v: AlphaV = None
    alpha_w: AlphaW = None
    standardize: Standardize = None
    weighted: Weighted = None
    progressive: Progressive = None
    leave_one_out: LeaveOneOut = None
    precision: Precision = None
    tolerance: Annotated[
        float | None,
        _setting("--tolerance", "3e-06", "Stop when ten iterations improve by less each, as a share of the objective."),
    ] = None
    max_iterations: MaxIterations = None
    seed: Annotated[int | None, _setting("--seed", "0", "Of the draw of candidates.")] = None
    config: Config = None


DEFAULT_SETTINGS = SettingsOptions()


@dataclass(frozen=True)
class TrainingOptions(SettingsOptions):
    """The settings of a fit, and what it starts from."""

    start: Annotated[
        str | None,
        typer.Option("--start", metavar="MODEL", help="Add the batches to this model.", rich_help_panel=RUN),
    ] = None


NOTHING_SAID = TrainingOptions()
