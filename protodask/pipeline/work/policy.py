"""What a policy would earn on a log: the actions of a model, or those that the log itself names."""

from __future__ import annotations

from protodask.data.format.schema import FEATURES
from protodask.data.places.storage import check_file_free
from protodask.engine import Block, Engine, Reduction, identity
from protodask.evaluation.policy import (
    MATCH,
    PolicyQuestion,
    PolicySums,
    finish_policy,
    merge_policies,
    policy_sums,
)
from protodask.pipeline.steps import PolicyStep
from protodask.pipeline.steps.policy import PolicyEvaluated
from protodask.pipeline.telling.json_file import written
from protodask.pipeline.work.policy_log import ACTION, LogColumns, policy_log
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.persistence import load_model
from protodask.prototypes.scoring import PREDICTED, predict_block


def evaluate_policy(step: PolicyStep, engine: Engine) -> PolicyEvaluated:
    """The value that a step asks for, in one pass over the rows."""
    question = PolicyQuestion(step.estimator, step.dropped_zeros, step.confidence)
    model = None if step.model is None else load_model(step.model)
    count = 0 if model is None else model.scored_batches(step.batches, step.calibrated)
    if step.out is not None:
        check_file_free(step.out, step.overwrite)
    columns = LogColumns(step.reward, step.propensity, step.action, step.inclusion, step.match, step.expected)
    source = policy_log(model, step.data, columns, engine=engine, unseen=step.unseen, drop=step.drop)
    shared = None if model is None else engine.share(model)
    sums = engine.reduce(source, LOGGED_POLICY, shared, count, step.calibrated, question, label="policy value")
    engine.forget(source)
    value = PolicyEvaluated(step.model, step.data, finish_policy(sums, question), question, step.out)
    return written(value, step.out, step.overwrite)


def _judge_block(
    block: Block, model: PrototypeSet | None, n_batches: int, calibrated: bool, question: PolicyQuestion
) -> PolicySums:
    if model is None:
        return policy_sums(block, question)
    match = predict_block(block, model, n_batches, calibrated)[PREDICTED] == block[ACTION]
    log = {name: values for name, values in block.arrays.items() if name not in (FEATURES.name, ACTION)}
    return policy_sums(Block(block.number, block.start, {**log, MATCH: match}), question)


LOGGED_POLICY: Reduction[PolicySums, PolicySums] = Reduction(_judge_block, merge_policies, identity)
