"""The step `evaluate`: how good a model's predictions are, or what its actions are worth."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Literal

from protodask.errors import InputError
from protodask.pipeline.file.values import key_of
from protodask.pipeline.steps.base import NOBODY, Argument, Listeners, Option, Overwrite, Panel, Read, Step, Written
from protodask.pipeline.steps.rows import Batches, Calibrated, KnownRows, check_batches
from protodask.places import mask

if TYPE_CHECKING:
    from protodask.engine import Engine
    from protodask.pipeline.results.common import ModelEvaluated, PolicyEvaluated

POLICIES = "For the value of a policy"

OF_POLICIES = ("action", "match", "reward", "propensity", "estimator", "dropped_zeros", "confidence")
"""Settings that say how a log of actions is to be read."""

OF_EITHER = ("data", "model", "batches", "calibrated", "inclusion", "unseen", "drop", "policy", "out", "overwrite")
"""Settings that such a log and rows of known classes have in common."""


def _of_policies(help: str, metavar: str | None = None) -> Option:
    return Option(help, metavar, panel=POLICIES)


@dataclass(frozen=True)
class EvaluateStep(KnownRows, Step):
    """Measure log-loss, accuracy, Brier score, ROC AUC and the confusion matrix on rows of known classes.

    With --policy: the value of the model's actions, or of a policy that the log knows, on a log of logged actions.
    """

    command = "evaluate"
    panel = Panel.USE
    writes_files = True

    data: Annotated[
        Read, Argument("A dataset, or raw tables or arrays: files, a glob or a folder. With --policy, a log.", "DATA")
    ]
    model: Annotated[
        Read | None, Argument("A model; with --policy and --match, leave it out.", "MODEL", first=True)
    ] = None
    batches: Batches = None
    calibrated: Calibrated = False
    roc_auc: Annotated[
        bool,
        Option("The ROC AUC; where not all scores fit into memory, with a bound.", flag="--roc-auc/--no-roc-auc"),
    ] = True
    policy: Annotated[
        bool,
        _of_policies(
            "The data are a log of actions: estimate what those of the model (its classes) would have earned there."
        ),
    ] = False
    action: Annotated[
        str | None,
        _of_policies(
            "Column of the logged action; by default, the target of the training data. Of a dataset, its target.", "COL"
        ),
    ] = None
    match: Annotated[
        str | None,
        _of_policies(
            "In place of a model: column that says with 0 or 1, or with a probability, whether the policy takes the "
            "logged action.",
            "COL",
        ),
    ] = None
    reward: Annotated[str, _of_policies("Column of the rewards.", "COL")] = "reward"
    propensity: Annotated[
        str, _of_policies("Column of the probabilities with which the logged actions were taken.", "COL")
    ] = "propensity"
    estimator: Annotated[
        Literal["ips", "snips"], _of_policies("Inverse propensity scoring, plain or self-normalised.")
    ] = "ips"
    dropped_zeros: Annotated[
        int | None,
        _of_policies("Records of reward zero that were dropped from the log, if they were counted (for ips).", "N"),
    ] = None
    confidence: Annotated[float, _of_policies("Probability with which the interval is to have the value.", "P")] = 0.95
    out: Annotated[Written | None, Option("Write the scores to a JSON file, too.", "FILE")] = None
    overwrite: Overwrite = False

    def check(self) -> None:
        """Refuse settings that do not go together, or that cannot work whatever the data."""
        check_batches(self.batches)
        given = [field.name for field in fields(self) if getattr(self, field.name) != field.default]
        if not self.policy:
            if wrong := [name for name in given if name in OF_POLICIES]:
                raise InputError(
                    "settings-conflict",
                    f"{key_of(wrong[0])} is set, and nothing is said of a policy.",
                    "Set policy, too, for the value of actions on a log; leave it out for scores on known classes.",
                )
            if self.model is None:
                raise InputError(
                    "setting-missing", "There is no model to evaluate.", "Name a model and the data to try it on."
                )
            return
        if wrong := [name for name in given if name not in (*OF_POLICIES, *OF_EITHER)]:
            raise InputError(
                "settings-conflict",
                f"{key_of(wrong[0])} is set, and has no place in the value of a policy.",
                "Leave out one of the two.",
            )
        if self.model is None and self.match is None:
            raise InputError(
                "setting-missing",
                "It is not said what the policy does.",
                "Name a model, or with match the column that says whether the policy takes the logged action.",
            )
        if self.match is not None and (
            wrong := [name for name in ("model", "action", "batches", "calibrated") if name in given]
        ):
            raise InputError(
                "settings-conflict",
                f"Both match and {key_of(wrong[0])} are set.",
                "Choose the column that says what the policy does, or a model that does it.",
            )
        from protodask.evaluation.policy import PolicyQuestion

        PolicyQuestion(self.estimator, self.dropped_zeros, self.confidence)

    def perform(self, engine: Engine, listeners: Listeners = NOBODY) -> ModelEvaluated | PolicyEvaluated:
        from protodask.data.places.storage import check_file_free
        from protodask.pipeline.results.common import ModelEvaluated
        from protodask.pipeline.telling.json_file import write_json
        from protodask.pipeline.work.model_scores import evaluate_model
        from protodask.pipeline.work.policy import evaluate_policy
        from protodask.prototypes.persistence import load_model

        self.check()
        if self.policy or self.model is None:
            return evaluate_policy(self, engine)
        model = load_model(self.model)
        model.scored_batches(self.batches, self.calibrated)
        if self.out is not None:
            check_file_free(self.out, self.overwrite)
        source, codes = self.known_rows(self.data, model, engine)
        scores = evaluate_model(
            model, source, codes, engine, n_batches=self.batches, roc_auc=self.roc_auc, calibrated=self.calibrated
        )
        result = ModelEvaluated(self.model, self.data, scores, self.out)
        if self.out is not None:
            write_json(self.out, result.describe(), self.overwrite)
        return result

    def subject(self) -> str:
        return f"{'a policy' if self.model is None else mask(self.model)} on {mask(self.data)}"
