"""The step `policy`: what actions are worth, on a log of other ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from protodask.errors import InputError
from protodask.pipeline.steps.base import Answering, Argument, Option, Overwrite, Panel, Read, Written
from protodask.pipeline.steps.rows import Batches, Calibrated, GivenRows, Inclusion
from protodask.pipeline.telling.result import Pairs, Piece, Result, number, plain, shorten
from protodask.places import mask

if TYPE_CHECKING:
    from protodask.engine import Engine
    from protodask.evaluation.policy import PolicyEstimate, PolicyQuestion


@dataclass(frozen=True)
class PolicyEvaluated(Result):
    """The value of a policy on a log; it also lies at `path` if there is one."""

    model: str | None
    """None where the log says what the policy does."""
    data: str
    estimate: PolicyEstimate
    question: PolicyQuestion
    path: str | None

    def describe(self) -> dict[str, Any]:
        """Plain values, for files; an end of the interval is null where one row alone counts, or no reward."""
        return {
            "kind": "policy value",
            "model": plain(self.model),
            "data": mask(self.data),
            **asdict(self.question),
            **asdict(self.estimate.interval),
            "rows": self.estimate.rows,
            "matched": self.estimate.matched,
            "records": self.estimate.records,
        }

    def summary(self) -> str:
        interval = self.estimate.interval
        who = "The policy" if self.model is None else f"The model {shorten(self.model)}"
        earned = f"{who} would earn {interval.value:.4g} a record on the log {mask(self.data)}"
        if self.estimate.matched == 0:
            return (
                f"No row of {mask(self.data)} has an action that the policy takes: the log says nothing of its value."
            )
        if not math.isfinite(interval.low):
            return f"{earned}. Too few rows count, or none has a reward, to say how far that is off."
        sure = f"{100 * self.question.confidence:g} per cent"
        return f"{earned}; with {sure} confidence, between {interval.low:.4g} and {interval.high:.4g}."

    def told(self) -> Iterator[Piece]:
        found = self.estimate
        yield self.summary()
        yield ""
        yield Pairs(
            [
                ("value", f"{found.interval.value:.6g}"),
                ("low", f"{found.interval.low:.6g}"),
                ("high", f"{found.interval.high:.6g}"),
                ("estimator", self.question.estimator),
                ("rows", f"{found.rows:,}"),
                ("rows with its action", f"{found.matched:,}"),
                ("records of the whole log", number(found.records)),
            ]
        )
        yield from self.told_place("The value is", self.path)


OF_MODELS = ("model", "action", "batches", "calibrated")


@dataclass(frozen=True)
class PolicyStep(GivenRows, Answering):
    """Estimate what the actions of a model, or of a policy that the log knows, would have earned on a log of others."""

    command = "policy"
    panel = Panel.USE
    recorded_as = "evaluate"

    data: Annotated[
        Read, Argument("A log of actions, a row for each: a dataset, or raw tables: files, a glob or a folder.", "DATA")
    ]
    model: Annotated[
        Read | None, Argument("A model, whose classes are actions; with --match, leave it out.", "MODEL", first=True)
    ] = None
    batches: Batches = None
    calibrated: Calibrated = False
    action: Annotated[
        str | None,
        Option(
            "Column of the logged action; by default, the target of the training data. Of a dataset, its target.", "COL"
        ),
    ] = None
    match: Annotated[
        str | None,
        Option(
            "In place of a model: column that says with 0 or 1, or with a probability, whether the policy takes the "
            "logged action.",
            "COL",
        ),
    ] = None
    reward: Annotated[str, Option("Column of the rewards.", "COL")] = "reward"
    propensity: Annotated[
        str, Option("Column of the probabilities with which the logged actions were taken.", "COL")
    ] = "propensity"
    inclusion: Inclusion = None
    estimator: Annotated[
        Literal["ips", "snips", "dr"],
        Option("Inverse propensity scoring, plain or self-normalised; or doubly robust, with expected rewards."),
    ] = "ips"
    expected: Annotated[
        str | None, Option("Column of the reward that is expected of the action that the policy takes (for dr).", "COL")
    ] = None
    dropped_zeros: Annotated[
        int | None,
        Option("Records of reward zero that were dropped from the log, if they were counted (for ips).", "N"),
    ] = None
    confidence: Annotated[float, Option("Probability with which the interval is to have the value.", "P")] = 0.95
    out: Annotated[Written | None, Option("Write the value to a JSON file, too.", "FILE")] = None
    overwrite: Overwrite = False

    def check(self) -> None:
        if self.model is None and self.match is None:
            raise InputError(
                "setting-missing",
                "It is not said what the policy does.",
                "Give a model and the log, in this order, or the log alone and with match the column that says whether "
                "the policy takes the logged action.",
            )
        of_models = [name for name in OF_MODELS if getattr(self, name) != getattr(PolicyStep, name)]
        if self.match is not None and of_models:
            raise InputError(
                "settings-conflict",
                f"Both match and {of_models[0]} are set.",
                "Choose the column that says what the policy does, or a model that does it.",
            )
        if (self.estimator == "dr") != (self.expected is not None):
            raise InputError(
                "settings-conflict",
                f"The estimator is {self.estimator}, and {'no' if self.expected is None else 'a'} column of expected "
                "rewards is named.",
                "Name it with `expected` for the estimator dr, and for no other.",
            )
        from protodask.evaluation.policy import PolicyQuestion

        PolicyQuestion(self.estimator, self.dropped_zeros, self.confidence)

    def answer(self, engine: Engine) -> PolicyEvaluated:
        from protodask.evaluation.policy import PolicyQuestion
        from protodask.evaluation.policy_log import LogColumns, logged_policy, policy_log
        from protodask.prototypes.model import load_model

        question = PolicyQuestion(self.estimator, self.dropped_zeros, self.confidence)
        model = None if self.model is None else load_model(self.model)
        count = 0 if model is None else model.scored_batches(self.batches, self.calibrated)
        columns = LogColumns(self.reward, self.propensity, self.action, self.inclusion, self.match, self.expected)
        source = policy_log(model, self.data, columns, engine=engine, unseen=self.unseen, drop=self.drop)
        estimate = logged_policy(model, source, question, engine, n_batches=count, calibrated=self.calibrated)
        return PolicyEvaluated(self.model, self.data, estimate, question, self.out)

    def subject(self) -> str:
        return f"{'a policy' if self.model is None else mask(self.model)} on {mask(self.data)}"
