"""The rows of a log of actions, what columns of a dataset or raw tables say of them, and what a policy is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protodask.data import Dataset, table_source
from protodask.data.format.schema import FEATURES, GROUP, INCLUSION, TARGET, Column, label_numbers, numbers_of
from protodask.data.tables.encoding import Unseen, encode_group
from protodask.data.tables.ingest_sources import open_table
from protodask.data.tables.source_files import check_present
from protodask.engine import Block, Engine, Reduction, Source, add_records, identity
from protodask.engine.sources import ViewedSource
from protodask.errors import InputError, named_twice, some
from protodask.evaluation.policy import (
    EXPECTED,
    MATCH,
    PROPENSITY,
    REWARD,
    PolicyEstimate,
    PolicyQuestion,
    PolicySums,
    finish_policy,
    policy_sums,
)
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.prediction_columns import PREDICTED
from protodask.prototypes.rows_to_score import Codes, check_columns, is_dataset
from protodask.prototypes.scoring import predict_block

ACTION = "action"
"""Name of the array (N,) of logged actions, as the model's classes; -1 where the model does not know the action."""


@dataclass(frozen=True)
class LogColumns:
    """The columns of a log by what they say. A log without a model says with `match` what the policy does."""

    reward: str = REWARD
    propensity: str = PROPENSITY
    action: str | None = None
    inclusion: str | None = None
    match: str | None = None
    expected: str | None = None

    @property
    def numbers(self) -> dict[str, str]:
        """The columns that blocks hold as arrays of these names."""
        found = {MATCH: self.match, REWARD: self.reward, PROPENSITY: self.propensity, EXPECTED: self.expected}
        return {name: column for name, column in found.items() if column is not None}


@dataclass(frozen=True)
class _DatasetView:
    """A block of a dataset as rows of a log."""

    features: NDArray[np.intp] | None
    """Where the model's features are among the dataset's; None without a model."""
    numbers: Mapping[str, int]
    """Features that are no features to the model, by what they say."""
    marks: Mapping[str, int]
    """Features that say where one of these is missing, and something else stands in its place."""
    codes: Codes
    """The model's class of each class of the dataset, -1 where it has none."""

    def __call__(self, block: Block) -> Block:
        values = block[FEATURES.name]
        arrays = {name: values[:, index].astype(np.float64) for name, index in self.numbers.items()}
        for name, index in self.marks.items():
            arrays[name][values[:, index] == 1] = np.nan
        if INCLUSION.name in block:
            arrays[INCLUSION.name] = block[INCLUSION.name]
        if self.features is not None:
            arrays[FEATURES.name] = np.ascontiguousarray(values[:, self.features])
            arrays[ACTION] = self.codes[block[TARGET.name]]
        return Block(block.number, block.start, arrays)


@dataclass(frozen=True)
class _TableView:
    """A block of a table, with the actions as codes of their text, as rows of a log."""

    codes: Codes
    """Of the model's classes, ascending."""
    classes: Codes
    """The class that each of these codes means."""

    def __call__(self, block: Block) -> Block:
        found = block[GROUP.name]
        place = np.minimum(np.searchsorted(self.codes, found), len(self.codes) - 1)
        action = np.where(self.codes[place] == found, self.classes[place], -1)
        rest = {name: values for name, values in block.arrays.items() if name != GROUP.name}
        return Block(block.number, block.start, {**rest, ACTION: action})


def policy_log(
    model: PrototypeSet | None,
    path: str,
    columns: LogColumns,
    *,
    engine: Engine,
    unseen: Unseen = "error",
    drop: Sequence[str] = (),
) -> Source:
    """The rows of a log: "reward", "propensity", "match" or features and "action", maybe "inclusion" and "expected"."""
    if model is not None and columns.reward in {column.name for column in model.columns}:
        raise InputError(
            "settings-conflict",
            f"The model has the reward {columns.reward!r} among its features, and would choose by what is to come.",
            "Train it without that column (`drop` of `ingest()`).",
        )
    if is_dataset(path):
        return _dataset_log(model, path, columns)
    return _table_log(model, path, columns, engine, unseen, drop)


def _dataset_log(model: PrototypeSet | None, path: str, columns: LogColumns) -> Source:
    dataset = Dataset.open(path)
    if columns.inclusion is not None or columns.action not in (None, dataset.target_name):
        raise InputError(
            "settings-conflict",
            f"{path} is a dataset, which knows its inclusion probabilities, and whose target is the logged action.",
            "Leave out `action` and `inclusion`: they are for raw tables.",
        )
    if dataset.has_weight:
        raise InputError(
            "unsupported",
            f"The dataset {path} has weights, and a policy's value has no use for them.",
            "Ingest the log without `weight`; for rows that were kept by chance, use `inclusion`.",
        )
    place = {name: position for position, name in enumerate(dataset.feature_names)}
    numeric = {column.name: column for column in dataset.columns if column.kind == "numeric"}
    for name, column in columns.numbers.items():
        if column not in numeric:
            raise InputError(
                "column-missing",
                f"The dataset {path} has no column {column!r} of numbers for the {name}.",
                f"Ingest the log with that column among its features, or name another one with `{name}`.",
            )
    features: NDArray[np.intp] | None = None
    codes: Codes = np.empty(0, dtype=np.int64)
    if model is not None:
        if lacking := [name for name in model.feature_names if name not in place]:
            raise InputError(
                "columns-differ",
                f"The dataset {path} has other features than the model: it lacks {some(lacking)}.",
                "Give a dataset ingested like the training data, or the raw tables themselves.",
            )
        check_columns(model, dataset, path)
        features = np.array([place[name] for name in model.feature_names], dtype=np.intp)
        codes = numbers_of(dataset.classes, label_numbers(model.classes))
        if (codes < 0).all():
            raise InputError(
                "columns-differ",
                f"None of the actions in {path} is one of the model's: {some(list(map(repr, dataset.classes)))}.",
                f"Those are {some(list(map(repr, model.classes)))}: ingest the log with its actions written like that.",
            )
    numbers = {name: place[column] for name, column in columns.numbers.items()}
    marks = {name: numbers[name] + 1 for name, column in columns.numbers.items() if numeric[column].marked}
    return ViewedSource(dataset, _DatasetView(features, numbers, marks, codes), "policy-log")


def _table_log(
    model: PrototypeSet | None,
    path: str,
    columns: LogColumns,
    engine: Engine,
    unseen: Unseen,
    drop: Sequence[str],
) -> Source:
    check_present(path)
    own: tuple[Column, ...] = () if model is None else model.columns if unseen == "error" else model.forgiving_columns
    roles = dict(columns.numbers)
    if columns.inclusion is not None:
        roles[INCLUSION.name] = columns.inclusion
    if model is not None:
        roles[ACTION] = columns.action or model.target_name
    if named_twice(roles.values()):
        raise InputError(
            "named-twice",
            f"One column has two of the roles {', '.join(roles)}.",
            "Name a column of its own for each of them.",
        )
    features = [column.name for column in own] or None
    present = open_table(path, (), drop, None, features, roles.values()).names
    for role, column in roles.items():
        if column not in present:
            raise InputError(
                "column-missing",
                f"The table {path} has no column {column!r} for the {role}.",
                f"Name one with `{role}`; the columns are {some(present)}.",
            )
    wanted = {*roles.values(), *(column.name for column in own)}
    source = table_source(
        path,
        own,
        inclusion_name=columns.inclusion,
        group_name=roles.get(ACTION),
        numbers=columns.numbers,
        dropped=[*drop, *(name for name in present if name not in wanted)],
        unseen=unseen,
        dtype="float32" if model is None else model.row_precision,
        engine=engine,
    )
    if model is None:
        return source
    codes, _ = encode_group(np.array(model.classes, dtype=object), ACTION)
    order = np.argsort(codes)
    return ViewedSource(source, _TableView(codes[order], order.astype(np.int64)), "policy-log")


def logged_policy(
    model: PrototypeSet | None,
    source: Source,
    question: PolicyQuestion,
    engine: Engine,
    *,
    n_batches: int = 0,
    calibrated: bool = False,
) -> PolicyEstimate:
    """What a policy would earn on a log, in one pass: that of a model, or the one that the log itself names."""
    shared = None if model is None else engine.share(model)
    sums = engine.reduce(source, LOGGED_POLICY, shared, n_batches, calibrated, question, label="policy value")
    engine.forget(source)
    return finish_policy(sums, question)


def _judge_block(
    block: Block, model: PrototypeSet | None, n_batches: int, calibrated: bool, question: PolicyQuestion
) -> PolicySums:
    if model is None:
        return policy_sums(block, question)
    match = predict_block(block, model, n_batches, calibrated)[PREDICTED] == block[ACTION]
    log = {name: values for name, values in block.arrays.items() if name not in (FEATURES.name, ACTION)}
    return policy_sums(Block(block.number, block.start, {**log, MATCH: match}), question)


LOGGED_POLICY: Reduction[PolicySums, PolicySums] = Reduction(_judge_block, add_records, identity)
