"""The steps on robust models: planes for rows whose features are known only roughly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from protodask.pipeline.steps.base import Argument, Option, Overwrite, Panel, Read, Step, Written
from protodask.pipeline.steps.fit import Data
from protodask.pipeline.steps.predict import Predictions
from protodask.pipeline.steps.rows import GivenRows, KnownRows, Rows
from protodask.pipeline.steps.training import RUN, TRAINING, RunDir, Training
from protodask.pipeline.telling.events import Listener, nobody
from protodask.places import mask

if TYPE_CHECKING:
    from protodask.engine import Engine
    from protodask.pipeline.results.robust import RobustEvaluated, RobustFitted, RobustPredicted

Formulation = Literal["SVM", "M", "S", "MC", "SBMV", "SBMV-I", "SMV", "SMV-I", "SBM", "SBM-I", "SM", "SM-I"]
"""Those of `protodask.robust`, which takes long to import."""

KNOWS = {
    "SVM": "the middles alone",
    "M": "means alone",
    "S": "the support alone",
    "MC": "means and variances",
    "SBMV": "support, bounds of means and second moments",
    "SMV": "support, exact means and bounds of second moments",
    "SBM": "support and bounds of means",
    "SM": "support and exact means",
}
"""What the formulations use; one with "-I" uses the same."""


def what_is_known(formulation: str) -> str:
    """A formulation, and what it uses."""
    return f"{formulation}: {KNOWS[formulation.removesuffix('-I')]}"


RobustModel = Annotated[Read, Argument("What `protodask robust fit` wrote.", "MODEL")]
Certifying = Annotated[
    Formulation | None,
    Option(
        "What the error of a row is bounded by: all but SVM and M.",
        shown="that of the training; SBMV-I after SVM and M",
    ),
]


def _of_training(help: str, metavar: str | None = None, flag: str | None = None) -> Option:
    return Option(help, metavar, panel=TRAINING, flag=flag)


@dataclass(frozen=True)
class RobustFitStep(Training):
    """Train planes of largest margin on a dataset with columns x.low, x.high and, if known, x.mean, x.second and so on.

    Other columns are features known exactly. More than two classes get a plane each, against the rest.
    """

    command = "robust-fit"
    panel = Panel.COMPANIONS
    words = ("robust", "fit")

    data: Data
    out: Annotated[Written, Option("Where to write the model.", "MODEL")]
    formulation: Annotated[
        Formulation,
        _of_training(
            "What of the columns is used: S the support, M means, MC means and variances, SBMV support and bounds of "
            "means and second moments, SBM the same without second moments, SMV and SM with exact means; -I for less "
            "cautious bounds that take longer; SVM nothing but the middles.",
        ),
    ] = "SBMV"
    eps: Annotated[
        float, _of_training("Probability of error, at most, of training rows that keep the margin.", "P")
    ] = 0.1
    cost: Annotated[
        float,
        _of_training("Cost of a row that misses the margin, for each unit: a larger C fits more closely.", "C"),
    ] = 1.0
    gap: Annotated[
        float,
        _of_training("Stop when the objective is at most this far above the least there is, as a share of it.", "X"),
    ] = 1e-4
    max_passes: Annotated[int, _of_training("Passes over the rows at most, for each plane.", "N")] = 300
    weighted: Annotated[
        bool,
        _of_training(
            "Rows count by the weights and inclusions of the dataset, or once each.", flag="--weighted/--unweighted"
        ),
    ] = True
    run_dir: RunDir = None
    terms: Annotated[
        str | None,
        Option(
            "Keep here what follows from data and formulation: further fits with another --eps or --cost find it.",
            "STORE",
            panel=RUN,
        ),
    ] = None
    overwrite: Overwrite = False

    def check(self) -> None:
        from protodask.pipeline.work.robust import check_places, robust_config

        robust_config(self)
        check_places(self)

    def perform(self, engine: Engine, listen: Listener = nobody) -> RobustFitted:
        from protodask.pipeline.work.robust import fit

        return fit(self, engine, listen)


@dataclass(frozen=True)
class RobustPredictStep(GivenRows, Step):
    """Write the predicted class of each row, and a bound of the probability that its true values have another one."""

    command = "robust-predict"
    panel = Panel.COMPANIONS
    words = ("robust", "predict")

    model: RobustModel
    data: Rows
    out: Predictions
    formulation: Certifying = None
    overwrite: Overwrite = False

    def check(self) -> None:
        _check_certifying(self.formulation)

    def perform(self, engine: Engine, listen: Listener = nobody) -> RobustPredicted:
        from protodask.pipeline.work.robust import predict

        return predict(self, engine)

    def subject(self) -> str:
        return f"{mask(self.data)} with {mask(self.model)} into {mask(self.out)}"


@dataclass(frozen=True)
class RobustEvaluateStep(KnownRows, Step):
    """Measure nominal error, expected certified error and the certified fraction on rows of known classes."""

    command = "robust-evaluate"
    panel = Panel.COMPANIONS
    words = ("robust", "evaluate")
    writes_files = True

    model: RobustModel
    data: Rows
    formulation: Certifying = None
    eps: Annotated[
        float | None,
        Option("Count the rows that are certified at this probability of error.", "P", shown="that of the training"),
    ] = None
    out: Annotated[Written | None, Option("Write the measures to a JSON file, too.", "FILE")] = None
    overwrite: Overwrite = False

    def check(self) -> None:
        from protodask.robust.formulations import check_eps

        _check_certifying(self.formulation)
        if self.eps is not None:
            check_eps(self.eps)

    def perform(self, engine: Engine, listen: Listener = nobody) -> RobustEvaluated:
        from protodask.pipeline.work.robust import evaluate

        return evaluate(self, engine)

    def subject(self) -> str:
        return f"{mask(self.model)} on {mask(self.data)}"


def _check_certifying(formulation: Formulation | None) -> None:
    if formulation is not None:
        from protodask.robust.formulations import certifying

        certifying(formulation)
