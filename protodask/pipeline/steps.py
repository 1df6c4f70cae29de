"""The steps: one for each command that does something, with the command's options as fields.

A field `lambda_v` is the option `--lambda-v` on the command line and the key `lambda-v` in a pipeline file. Fields that
name what a step reads or writes are `Read` or `Written`; caches and records of runs are neither. Steps inherit fields
that they have in common, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Literal


class Place(Enum):
    """What a step does at a place that a setting names."""

    READ = "read"
    WRITTEN = "written"


Read = Annotated[str, Place.READ]
Written = Annotated[str, Place.WRITTEN]

Formulation = Literal["SVM", "M", "S", "MC", "SBMV", "SBMV-I", "SMV", "SMV-I", "SBM", "SBM-I", "SM", "SM-I"]
"""Those of `protodask.robust`, which takes long to import."""


CONFIG_NAMES = {"batches": "n_batches", "candidates": "n_candidates", "average_draws": "n_draws"}
"""Settings of a training with another name outside than in `FitConfig`."""


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Settings of a training; None is what was not said, and is then what the recipe says."""

    recipe: Literal["averaged", "source"] | None = None

    lambda_w: float | None = None
    alpha_v: float | None = None
    alpha_w: float | None = None
    feature_weights: Literal["shared", "class", "both"] | None = None
    feature_forms: Literal["plain", "scores", "both", "all"] | None = None
    candidates: int | None = None
    max_fraction: float | None = None
    standardize: bool | None = None
    weighted: bool | None = None
    progressive: bool | None = None
    leave_one_out: bool | None = None
    precision: Literal["auto", "float32", "float64"] | None = None
    tolerance: float | None = None
    max_iterations: int | None = None
    seed: int | None = None
    average_draws: int | None = None
    hold_out: float | None = None


@dataclass(frozen=True, kw_only=True)
class FitSettings(TrainingSettings):
    """All settings of a fit as files and the command line name them, also those that every search chooses."""

    batches: int | None = None
    lambda_v: float | None = None


@dataclass(frozen=True, kw_only=True)
class GivenRows:
    """How raw tables are read for a model: what it does not know, categories and missing values, and columns to leave
    out.
    """

    unseen: Literal["error", "zero"] = "error"
    drop: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class KnownRows(GivenRows):
    """How raw tables are read in which more is known of rows than their features: the columns with it."""

    target: str | None = None
    weight: str | None = None
    inclusion: str | None = None


@dataclass(frozen=True)
class SampleDataStep:
    """Make a dataset of sample data."""

    kind: Literal["checker", "xor", "digits", "blobs"]
    rows: int
    out: Written
    seed: int = 0
    features: int | None = None
    classes: int | None = None
    overwrite: bool = False


@dataclass(frozen=True)
class IngestStep:
    """Make a dataset from tables or arrays, or add the rows to one that it does not have.

    With `new`, only sources whose rows the dataset does not have yet are read; with `unless_in`, those that another
    dataset does not have. Files that changed within the last `settle` seconds are left for the next time.
    """

    sources: tuple[Read, ...]
    out: Written
    target: str | None = None
    categorical: tuple[str, ...] = ()
    ordinal: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    weight: str | None = None
    inclusion: str | None = None
    group: str | None = None
    drop: tuple[str, ...] = ()
    text_is_categorical: bool = False
    missing: Literal["fill", "error"] = "fill"
    dtype: Literal["float32", "float64"] = "float32"
    new: bool = False
    unless_in: Read | None = None
    settle: float = 0.0
    overwrite: bool = False


@dataclass(frozen=True)
class AppendStep(IngestStep):
    """Add rows to a dataset, also those that it has: no step of a pipeline, where it would be done again and again."""


@dataclass(frozen=True)
class SplitStep:
    """Divide a dataset's rows into those to train on, `out`, and those held out, by row number or by group."""

    data: Read
    out: Written
    held_out: Written
    share: float = 0.2
    seed: int = 0
    overwrite: bool = False


@dataclass(frozen=True)
class SubsampleStep:
    """Keep a part of a dataset's rows, drawn by class: at rates by label, or as many as a budget of rows allows."""

    data: Read
    out: Written
    rate: Mapping[str, float] = field(default_factory=dict)
    budget: int | None = None
    seed: int = 0
    overwrite: bool = False


@dataclass(frozen=True)
class FitStep(FitSettings):
    """Train a model on a dataset. Settings that are None are those of the file `config`, or the defaults."""

    data: Read
    out: Written
    config: Read | None = None
    run_dir: str | None = None
    start: Read | None = None
    overwrite: bool = False


@dataclass(frozen=True)
class TuneStep(TrainingSettings):
    """Choose penalties and the number of batches by cross-validation, and train a model with them.

    Settings of the search that are None are its defaults, those of the training those of the file `config`, or the
    defaults. `lambda_w` is for the joint strategy, which does not search for it.
    """

    data: Read
    out: Written
    strategy: Literal["joint", "two-stage"] | None = None
    method: Literal["grid", "random"] | None = None
    trials: int | None = None
    lambda_v_range: tuple[float, float] | None = None
    lambda_w_range: tuple[float, float] | None = None
    max_batches: int | None = None
    patience: int | None = None
    least_gain: float | None = None
    folds: int | None = None
    rule: Literal["half-a-standard-error", "one-standard-error", "best"] | None = None
    search_tolerance: float | None = None
    draws: int | None = None
    config: Read | None = None
    run_dir: str | None = None
    table: Written | None = None
    overwrite: bool = False


@dataclass(frozen=True)
class CalibrateStep(KnownRows):
    """Calibrate a model on rows of known classes. `target`, `weight` and `inclusion` name columns of raw tables."""

    model: Read
    data: Read
    out: Written
    bins: int = 20
    monotone: bool = False
    batches: int | None = None
    overwrite: bool = False


@dataclass(frozen=True)
class PruneStep(KnownRows):
    """Leave a model so many prototypes at most. `target`, `weight` and `inclusion` name columns of raw tables."""

    model: Read
    data: Read
    out: Written
    prototypes: int
    overwrite: bool = False


@dataclass(frozen=True)
class PredictStep(GivenRows):
    """Write a model's predictions for a dataset or for raw tables, in the order in which they are given. Columns to
    `keep` are written beside them.

    With `bad_rows: mark`, rows of raw tables with a value that cannot be used have no prediction, in place of an error.
    With `each_file`, every file of the raw tables is scored once, by whichever run finds it first, into a part of its
    own of the folder `out`. Files that changed within the last `settle` seconds are left for the next time.
    """

    model: Read
    data: tuple[Read, ...]
    out: Written
    batches: int | None = None
    calibrated: bool = False
    bad_rows: Literal["error", "mark"] = "error"
    keep: tuple[str, ...] = ()
    each_file: bool = False
    settle: float = 0.0
    overwrite: bool = False


@dataclass(frozen=True)
class PublishStep:
    """Add a model to a registry as a new version, with its metrics and further files, and let an alias name it.

    A model that the alias names already is not added again. `retain` is the number of versions that are kept.
    """

    model: Read
    registry: Written
    alias: str = "champion"
    metrics: Read | None = None
    files: Mapping[str, Read] = field(default_factory=dict)
    note: str | None = None
    retain: int | None = None


@dataclass(frozen=True)
class Limit:
    """What a figure must keep to."""

    least: float | None = None
    most: float | None = None


@dataclass(frozen=True)
class GateStep(KnownRows):
    """Say yes or no: to the figures of a file of results, or to a model beside the one it would replace.

    `limits` are for figures by their path in the file `results`, such as `drift.largest`. A `model` passes if its
    `metric` on `data` is better than that of the `champion` by more than `margin`, with this `confidence`; without a
    champion it passes. `target`, `weight` and `inclusion` name columns of raw tables. After a no the run fails or stops
    here; with `accept`, a no is noted and the run goes on.
    """

    results: Read | None = None
    limits: Mapping[str, Limit] = field(default_factory=dict)
    model: Read | None = None
    champion: Read | None = None
    data: Read | None = None
    metric: Literal["log-loss", "error", "brier"] = "log-loss"
    margin: float = 0.0
    confidence: float = 0.95
    draws: int = 1000
    seed: int = 0
    newest: int | None = None
    if_no: Literal["fail", "stop"] = "fail"
    accept: bool = False
    out: Written | None = None
    overwrite: bool = False


@dataclass(frozen=True)
class MonitorStep(KnownRows):
    """Describe rows as a model sees them, and compare them with an earlier such description, the `reference`.

    Rows need no known classes. `target`, `weight` and `inclusion` name columns of raw tables. A figure of change is the
    size of a change that chance makes with a probability below `significance` for each kind of figure, and 0 for
    smaller ones.
    """

    model: Read
    data: Read
    out: Written
    reference: Read | None = None
    batches: int | None = None
    significance: float = 5e-5
    overwrite: bool = False


@dataclass(frozen=True)
class EvaluateStep(KnownRows):
    """Measure how good a model's predictions are. `target`, `weight` and `inclusion` name columns of raw tables.

    With `policy` the data are a log of actions, and what is measured is the value of the model's actions, or of those
    that the column `match` tells of.
    """

    data: Read
    model: Read | None = None
    batches: int | None = None
    calibrated: bool = False
    roc_auc: bool = True
    policy: bool = False
    action: str | None = None
    match: str | None = None
    reward: str = "reward"
    propensity: str = "propensity"
    estimator: Literal["ips", "snips"] = "ips"
    dropped_zeros: int | None = None
    confidence: float = 0.95
    out: Written | None = None
    overwrite: bool = False


@dataclass(frozen=True)
class DecideStep:
    """Select the rows of predictions that make an expected loss the least. `positive` names the class meant."""

    predictions: Read
    out: Written
    loss: str | None = None
    beta: float | None = None
    coefficients: str | None = None
    positive: str | None = None
    probability: tuple[str, ...] = ()
    group: str | None = None
    per_row: Literal["classes", "labels"] | None = None
    method: Literal["auto", "exact", "normal"] = "auto"
    overwrite: bool = False


@dataclass(frozen=True)
class BudgetStep(FitSettings):
    """Find which features of a dataset are worth their cost within any budget, with a model for each choice.

    The file `costs` says what features cost. Settings of the training that are None are those of the file `config`, or
    the defaults. With `compare`, greedy sequences are made as well, for the plot.
    """

    data: Read
    costs: Read
    out: Written
    alpha: float = 0.0
    monotone_error: float = 0.0
    diminishing_returns: bool = False
    folds: int = 5
    most_fits: int | None = None
    plot: Written | None = None
    compare: bool = False
    config: Read | None = None
    run_dir: str | None = None
    overwrite: bool = False


@dataclass(frozen=True)
class RobustFitStep:
    """Train planes of largest margin on a dataset whose features are known only roughly.

    `cost` is that of slack, `terms` a place where what follows from the data is kept for further fits.
    """

    data: Read
    out: Written
    formulation: Formulation = "SBMV"
    eps: float = 0.1
    cost: float = 1.0
    gap: float = 1e-4
    max_passes: int = 300
    weighted: bool = True
    run_dir: str | None = None
    terms: str | None = None
    overwrite: bool = False


@dataclass(frozen=True)
class RobustPredictStep(GivenRows):
    """Write a robust model's classes for a dataset or for raw tables, and how sure they are."""

    model: Read
    data: Read
    out: Written
    formulation: Formulation | None = None
    overwrite: bool = False


@dataclass(frozen=True)
class RobustEvaluateStep(KnownRows):
    """Measure the errors of a robust model. `target`, `weight` and `inclusion` name columns of raw tables."""

    model: Read
    data: Read
    formulation: Formulation | None = None
    eps: float | None = None
    out: Written | None = None
    overwrite: bool = False


@dataclass(frozen=True)
class ReportStep(KnownRows):
    """Write a report on a model and rows of known classes: one HTML file.

    `target`, `weight` and `inclusion` name columns of raw tables.
    """

    model: Read
    data: Read
    out: Written
    training: Read | None = None
    drift: Read | None = None
    title: str | None = None
    batches: int | None = None
    overwrite: bool = False


Step = (
    SampleDataStep
    | IngestStep
    | SplitStep
    | SubsampleStep
    | FitStep
    | TuneStep
    | CalibrateStep
    | PruneStep
    | PredictStep
    | EvaluateStep
    | GateStep
    | MonitorStep
    | DecideStep
    | BudgetStep
    | RobustFitStep
    | RobustPredictStep
    | RobustEvaluateStep
    | ReportStep
    | PublishStep
)

STEPS: dict[str, type[Step]] = {
    "sample-data": SampleDataStep,
    "ingest": IngestStep,
    "split": SplitStep,
    "subsample": SubsampleStep,
    "fit": FitStep,
    "tune": TuneStep,
    "calibrate": CalibrateStep,
    "prune": PruneStep,
    "predict": PredictStep,
    "evaluate": EvaluateStep,
    "gate": GateStep,
    "monitor": MonitorStep,
    "decide": DecideStep,
    "budget": BudgetStep,
    "robust-fit": RobustFitStep,
    "robust-predict": RobustPredictStep,
    "robust-evaluate": RobustEvaluateStep,
    "report": ReportStep,
    "publish": PublishStep,
}
"""Steps by the names of their commands: `budget` is `budget build`, `robust-fit` is `robust fit`, and so on."""


def step_name(step: Step) -> str:
    """The name of the command."""
    return next(name for name, kind in STEPS.items() if isinstance(step, kind))


def grows(step: Step) -> bool:
    """Whether a step adds to what it writes, which may be there."""
    match step:
        case IngestStep():
            return step.new
        case PredictStep():
            return step.each_file
        case _:
            return isinstance(step, PublishStep)
