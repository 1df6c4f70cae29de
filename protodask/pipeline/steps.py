"""The steps: one for each command that does something, with the command's options as fields.

A field `lambda_v` is the option `--lambda-v` on the command line and the key `lambda-v` in a pipeline file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Formulation = Literal["SVM", "M", "S", "MC", "SBMV", "SBMV-I", "SMV", "SMV-I", "SBM", "SBM-I", "SM", "SM-I"]
"""Those of `protodask.robust`, which takes long to import."""


@dataclass(frozen=True)
class SampleDataStep:
    """Make a dataset of sample data."""

    kind: Literal["checker", "xor", "digits", "blobs"]
    rows: int
    out: str
    seed: int = 0
    features: int | None = None
    classes: int | None = None
    overwrite: bool = False


@dataclass(frozen=True)
class IngestStep:
    """Make a dataset from tables or arrays, or add their rows to one.

    With `new`, only sources whose rows the dataset does not have yet are read; with `unless_in`, those that another
    dataset does not have. Files that changed within the last `settle` seconds are left for the next time.
    """

    sources: tuple[str, ...]
    out: str
    target: str | None = None
    categorical: tuple[str, ...] = ()
    ordinal: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    weight: str | None = None
    inclusion: str | None = None
    group: str | None = None
    drop: tuple[str, ...] = ()
    dtype: Literal["float32", "float64"] = "float32"
    append: bool = False
    new: bool = False
    unless_in: str | None = None
    settle: float = 0.0
    overwrite: bool = False


@dataclass(frozen=True)
class SplitStep:
    """Divide a dataset's rows into those to train on, `out`, and those held out, by row number or by group."""

    data: str
    out: str
    held_out: str
    share: float = 0.2
    seed: int = 0
    overwrite: bool = False


@dataclass(frozen=True)
class SubsampleStep:
    """Keep a part of a dataset's rows, drawn by class: at rates by label, or as many as a budget of rows allows."""

    data: str
    out: str
    rate: Mapping[str, float] = field(default_factory=dict)
    budget: int | None = None
    seed: int = 0
    overwrite: bool = False


@dataclass(frozen=True)
class FitStep:
    """Train a model on a dataset. Settings that are None are those of the file `config`, or the defaults."""

    data: str
    out: str
    batches: int | None = None
    candidates: int | None = None
    max_fraction: float | None = None
    lambda_v: float | None = None
    lambda_w: float | None = None
    alpha_v: float | None = None
    alpha_w: float | None = None
    standardize: bool | None = None
    weighted: bool | None = None
    precision: Literal["float32", "float64"] | None = None
    tolerance: float | None = None
    max_iterations: int | None = None
    seed: int | None = None
    config: str | None = None
    run_dir: str | None = None
    start: str | None = None
    overwrite: bool = False


@dataclass(frozen=True)
class TuneStep:
    """Choose penalties and the number of batches by cross-validation, and train a model with them.

    Settings of the search that are None are its defaults, those of the training those of the file `config`, or the
    defaults. `lambda_w` is for the joint strategy, which does not search for it.
    """

    data: str
    out: str
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
    candidates: int | None = None
    max_fraction: float | None = None
    lambda_w: float | None = None
    alpha_v: float | None = None
    alpha_w: float | None = None
    standardize: bool | None = None
    weighted: bool | None = None
    precision: Literal["float32", "float64"] | None = None
    tolerance: float | None = None
    max_iterations: int | None = None
    seed: int | None = None
    config: str | None = None
    run_dir: str | None = None
    table: str | None = None
    overwrite: bool = False


@dataclass(frozen=True)
class CalibrateStep:
    """Calibrate a model on rows of known classes. `target`, `weight` and `inclusion` name columns of raw tables."""

    model: str
    data: str
    out: str
    bins: int = 20
    monotone: bool = False
    batches: int | None = None
    target: str | None = None
    weight: str | None = None
    inclusion: str | None = None
    unseen: Literal["error", "zero"] = "error"
    drop: tuple[str, ...] = ()
    overwrite: bool = False


@dataclass(frozen=True)
class PredictStep:
    """Write a model's predictions for a dataset or for raw tables. Columns to `keep` are written beside them.

    With `each_file`, every file of the raw tables is scored once, by whichever run finds it first, into a part of its
    own of the folder `out`. Files that changed within the last `settle` seconds are left for the next time.
    """

    model: str
    data: str
    out: str
    batches: int | None = None
    calibrated: bool = False
    unseen: Literal["error", "zero"] = "error"
    drop: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    each_file: bool = False
    settle: float = 0.0
    overwrite: bool = False


@dataclass(frozen=True)
class PublishStep:
    """Add a model to a registry as a new version, with its metrics and further files, and let an alias name it.

    A model that the alias names already is not added again. `retain` is the number of versions that are kept.
    """

    model: str
    registry: str
    alias: str = "champion"
    metrics: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    note: str | None = None
    retain: int | None = None


@dataclass(frozen=True)
class Limit:
    """What a figure must keep to."""

    least: float | None = None
    most: float | None = None


@dataclass(frozen=True)
class GateStep:
    """Say yes or no: to the figures of a file of results, or to a model beside the one it would replace.

    `limits` are for figures by their path in the file `results`, such as `drift.largest`. A `model` passes if its
    `metric` on `data` is better than that of the `champion` by more than `margin`, with this `confidence`; without a
    champion it passes. `target`, `weight` and `inclusion` name columns of raw tables. After a no the run fails or stops
    here; with `accept`, a no is noted and the run goes on.
    """

    results: str | None = None
    limits: Mapping[str, Limit] = field(default_factory=dict)
    model: str | None = None
    champion: str | None = None
    data: str | None = None
    metric: Literal["log-loss", "error", "brier"] = "log-loss"
    margin: float = 0.0
    confidence: float = 0.95
    draws: int = 1000
    seed: int = 0
    newest: int | None = None
    target: str | None = None
    weight: str | None = None
    inclusion: str | None = None
    unseen: Literal["error", "zero"] = "error"
    drop: tuple[str, ...] = ()
    if_no: Literal["fail", "stop"] = "fail"
    accept: bool = False
    out: str | None = None
    overwrite: bool = False


@dataclass(frozen=True)
class MonitorStep:
    """Describe rows as a model sees them, and compare them with an earlier such description, the `reference`.

    Rows need no known classes. A figure of change is the size of a change that chance makes with a probability below
    `significance` for each kind of figure, and 0 for smaller ones.
    """

    model: str
    data: str
    out: str
    reference: str | None = None
    batches: int | None = None
    target: str | None = None
    weight: str | None = None
    inclusion: str | None = None
    unseen: Literal["error", "zero"] = "error"
    drop: tuple[str, ...] = ()
    significance: float = 5e-5
    overwrite: bool = False


@dataclass(frozen=True)
class EvaluateStep:
    """Measure how good a model's predictions are. `target`, `weight` and `inclusion` name columns of raw tables.

    With `policy` the data are a log of actions, and what is measured is the value of the model's actions, or of those
    that the column `match` tells of.
    """

    data: str
    model: str | None = None
    batches: int | None = None
    calibrated: bool = False
    target: str | None = None
    weight: str | None = None
    inclusion: str | None = None
    unseen: Literal["error", "zero"] = "error"
    drop: tuple[str, ...] = ()
    roc_auc: bool = True
    policy: bool = False
    action: str | None = None
    match: str | None = None
    reward: str = "reward"
    propensity: str = "propensity"
    estimator: Literal["ips", "snips"] = "ips"
    dropped_zeros: int | None = None
    confidence: float = 0.95
    out: str | None = None
    overwrite: bool = False


@dataclass(frozen=True)
class DecideStep:
    """Select the rows of predictions that make an expected loss the least. `positive` names the class meant."""

    predictions: str
    out: str
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
class BudgetStep:
    """Find which features of a dataset are worth their cost within any budget, with a model for each choice.

    The file `costs` says what features cost. Settings of the training that are None are those of the file `config`, or
    the defaults. With `compare`, greedy sequences are made as well, for the plot.
    """

    data: str
    costs: str
    out: str
    alpha: float = 0.0
    monotone_error: float = 0.0
    diminishing_returns: bool = False
    folds: int = 5
    most_fits: int | None = None
    plot: str | None = None
    compare: bool = False
    batches: int | None = None
    candidates: int | None = None
    max_fraction: float | None = None
    lambda_v: float | None = None
    lambda_w: float | None = None
    alpha_v: float | None = None
    alpha_w: float | None = None
    standardize: bool | None = None
    weighted: bool | None = None
    precision: Literal["float32", "float64"] | None = None
    tolerance: float | None = None
    max_iterations: int | None = None
    seed: int | None = None
    config: str | None = None
    run_dir: str | None = None
    overwrite: bool = False


@dataclass(frozen=True)
class RobustFitStep:
    """Train planes of largest margin on a dataset whose features are known only roughly.

    `cost` is that of slack, `terms` a place where what follows from the data is kept for further fits.
    """

    data: str
    out: str
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
class RobustPredictStep:
    """Write a robust model's classes for a dataset or for raw tables, and how sure they are."""

    model: str
    data: str
    out: str
    formulation: Formulation | None = None
    unseen: Literal["error", "zero"] = "error"
    drop: tuple[str, ...] = ()
    overwrite: bool = False


@dataclass(frozen=True)
class RobustEvaluateStep:
    """Measure the errors of a robust model. `target`, `weight` and `inclusion` name columns of raw tables."""

    model: str
    data: str
    formulation: Formulation | None = None
    eps: float | None = None
    target: str | None = None
    weight: str | None = None
    inclusion: str | None = None
    unseen: Literal["error", "zero"] = "error"
    drop: tuple[str, ...] = ()
    out: str | None = None
    overwrite: bool = False


@dataclass(frozen=True)
class ReportStep:
    """Write a report on a model and rows of known classes: one HTML file."""

    model: str
    data: str
    out: str
    training: str | None = None
    drift: str | None = None
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
