"""What a policy would earn on a log: the actions of a model, or those that the log itself names."""

from __future__ import annotations

from dataclasses import fields

from protodask.data.schema import FEATURES
from protodask.data.storage import check_file_free
from protodask.engine import Block, Engine, Reduction, identity
from protodask.errors import InputError
from protodask.evaluation.policy import (
    MATCH,
    PolicyQuestion,
    PolicySums,
    finish_policy,
    merge_policies,
    policy_sums,
)
from protodask.pipeline.json_file import write_json
from protodask.pipeline.policy_log import ACTION, LogColumns, policy_log
from protodask.pipeline.results import PolicyEvaluated
from protodask.pipeline.steps import EvaluateStep
from protodask.pipeline.values import key_of
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.persistence import load_model
from protodask.prototypes.scoring import PREDICTED, predict_block

OF_POLICIES = ("action", "match", "reward", "propensity", "estimator", "dropped_zeros", "confidence")
"""Settings of an evaluation that say how a log of actions is to be read."""

OF_EITHER = ("data", "model", "batches", "calibrated", "inclusion", "unseen", "drop", "policy", "out", "overwrite")
"""Settings of an evaluation that such a log and rows of known classes have in common."""


def check_evaluation(step: EvaluateStep) -> None:
    """Refuse settings that do not go together, or that cannot work whatever the data."""
    defaults = {field.name: field.default for field in fields(EvaluateStep)}
    given = [name for name in defaults if getattr(step, name) != defaults[name]]
    if not step.policy:
        if wrong := [name for name in given if name in OF_POLICIES]:
            raise InputError(
                "settings-conflict",
                f"{key_of(wrong[0])} is set, and nothing is said of a policy.",
                "Set policy, too, for the value of actions on a log; leave it out for scores on known classes.",
            )
        if step.model is None:
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
    if step.model is None and step.match is None:
        raise InputError(
            "setting-missing",
            "It is not said what the policy does.",
            "Name a model, or with match the column that says whether the policy takes the logged action.",
        )
    if step.match is not None and (
        wrong := [name for name in ("model", "action", "batches", "calibrated") if name in given]
    ):
        raise InputError(
            "settings-conflict",
            f"Both match and {key_of(wrong[0])} are set.",
            "Choose the column that says what the policy does, or a model that does it.",
        )
    PolicyQuestion(step.estimator, step.dropped_zeros, step.confidence)


def evaluate_policy(step: EvaluateStep, engine: Engine) -> PolicyEvaluated:
    """The value that a step asks for, in one pass over the rows."""
    question = PolicyQuestion(step.estimator, step.dropped_zeros, step.confidence)
    model = None if step.model is None else load_model(step.model)
    count = 0 if model is None else model.scored_batches(step.batches, step.calibrated)
    if step.out is not None:
        check_file_free(step.out, step.overwrite)
    columns = LogColumns(step.reward, step.propensity, step.action, step.inclusion, step.match)
    source = policy_log(model, step.data, columns, engine=engine, unseen=step.unseen, drop=step.drop)
    shared = None if model is None else engine.share(model)
    sums = engine.reduce(source, LOGGED_POLICY, shared, count, step.calibrated, question, label="policy value")
    engine.forget(source)
    result = PolicyEvaluated(step.model, step.data, finish_policy(sums, question), question, step.out)
    if step.out is not None:
        write_json(step.out, result.describe(), step.overwrite)
    return result


def _judge_block(
    block: Block, model: PrototypeSet | None, n_batches: int, calibrated: bool, question: PolicyQuestion
) -> PolicySums:
    if model is None:
        return policy_sums(block, question)
    match = predict_block(block, model, n_batches, calibrated)[PREDICTED] == block[ACTION]
    log = {name: values for name, values in block.arrays.items() if name not in (FEATURES.name, ACTION)}
    return policy_sums(Block(block.number, block.start, {**log, MATCH: match}), question)


LOGGED_POLICY: Reduction[PolicySums, PolicySums] = Reduction(_judge_block, merge_policies, identity)
