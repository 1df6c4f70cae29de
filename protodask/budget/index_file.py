"""An index on disk: one file of JSON, checksummed, with everything that a reader in another language needs as well.

low, high          sizes; a `high` of null is infinite
costs              of each feature the coefficients, constant first
feature_names, alpha, monotone_error, observed_error
guarantee          null where it is infinite
expansions         of each set that was tried: features, accuracy or null, failure or null, seconds
candidates         numbers of expansions, by rising accuracy
listed             candidate, start, end: each candidate (its number among them) is listed from a size to below
                   another one, null beyond all; a candidate may have several such ranges
"""

from __future__ import annotations

import math
import os
from dataclasses import replace
from typing import Any

import numpy as np

from protodask.budget.candidates import Candidates
from protodask.budget.costs import CostCurves
from protodask.budget.expansions import Expansion
from protodask.budget.index import BudgetIndex
from protodask.budget.polynomials import Integers, position, position_after, sizes_at
from protodask.budget.sealed_file import (
    describe_curves,
    non_negative,
    non_negative_or_infinite,
    or_null,
    parse_curves,
    parse_features,
    parse_sealed,
    read_sealed,
    sealed_text,
    write_sealed,
)
from protodask.budget.skyline import MOST_ENTRIES, Presence, count_entries
from protodask.data.places.records import Fields, RecordKind

RECORD = RecordKind(
    "budget index",
    "protodask-budget-index",
    1,
    "Make one with build_index, and save it with save_index.",
    "Build the index again, or restore it from a copy.",
)


def save_index(index: BudgetIndex, path: str | os.PathLike[str], overwrite: bool = False) -> None:
    """Write an index, whole or not at all."""
    write_sealed(_describe(index), RECORD, path, overwrite)


def index_text(index: BudgetIndex) -> str:
    """The content of its file."""
    return sealed_text(_describe(index), RECORD)


def load_index(path: str | os.PathLike[str]) -> BudgetIndex:
    """Read an index; what is damaged, foreign or newer is a `FormatError`. It is the saved one to the bit."""
    return _parse(read_sealed(RECORD, path))


def parse_index(content: bytes, where: str) -> BudgetIndex:
    """An index from the content of its file."""
    return _parse(parse_sealed(content, RECORD, where))


def _describe(index: BudgetIndex) -> dict[str, Any]:
    # Of a set that was tried more than once the last expansion counts.
    number = {item.features: i for i, item in enumerate(index.expansions) if item.accuracy is not None}
    return {
        **describe_curves(index.curves, index.feature_names),
        "alpha": float(index.alpha),
        "monotone_error": float(index.monotone_error),
        "guarantee": or_null(float(index.guarantee)),
        "observed_error": float(index.observed_error),
        "expansions": {
            "features": [sorted(map(int, item.features)) for item in index.expansions],
            "accuracy": [None if item.accuracy is None else float(item.accuracy) for item in index.expansions],
            "failure": [item.failure for item in index.expansions],
            "seconds": [float(item.seconds) for item in index.expansions],
        },
        "candidates": [number[features] for features in index.sets],
        "listed": {
            "candidate": index.presence.candidate.tolist(),
            "start": sizes_at(index.presence.start).tolist(),
            "end": [or_null(size) for size in sizes_at(index.presence.end).tolist()],
        },
    }


def _parse(fields: Fields) -> BudgetIndex:
    curves, names = parse_curves(fields)
    expansions = _parse_expansions(_within(fields, "expansions"), len(names))
    candidates = _parse_candidates(fields, curves, expansions)
    return BudgetIndex(
        curves=curves,
        feature_names=names,
        candidates=candidates,
        presence=_parse_presence(_within(fields, "listed"), curves, len(candidates.sets)),
        expansions=expansions,
        alpha=non_negative(fields, "alpha"),
        monotone_error=non_negative(fields, "monotone_error"),
        guarantee=non_negative_or_infinite(fields, "guarantee"),
        observed_error=non_negative(fields, "observed_error"),
    )


def _within(fields: Fields, name: str) -> Fields:
    record = fields.record.get(name)
    if not isinstance(record, dict):
        fields.damaged(f"{name} is not an object")
    return replace(fields, record=record)


def _parse_expansions(fields: Fields, n_features: int) -> tuple[Expansion, ...]:
    sets = fields.record.get("features")
    if not isinstance(sets, list):
        fields.damaged("the expansions have no features")
    accuracies, failures = fields.record.get("accuracy"), fields.record.get("failure")
    if not isinstance(accuracies, list) or not isinstance(failures, list) or len(accuracies) != len(failures):
        fields.damaged("the expansions are not all described")
    seconds_each = fields.floats("seconds", len(sets)).tolist()
    if len(accuracies) != len(sets):
        fields.damaged("the expansions are not all described")
    found = []
    for features, accuracy, failure, seconds in zip(sets, accuracies, failures, seconds_each, strict=True):
        own = frozenset(parse_features(fields, features, n_features))
        if not (type(accuracy) is float and failure is None) and not (accuracy is None and isinstance(failure, str)):
            fields.damaged("an expansion has neither an accuracy nor a failure")
        found.append(Expansion(own, accuracy, failure, seconds))
    return tuple(found)


def _parse_candidates(fields: Fields, curves: CostCurves, expansions: tuple[Expansion, ...]) -> Candidates:
    numbers = fields.record.get("candidates")
    if not isinstance(numbers, list) or not numbers or len(numbers) > len(expansions):
        fields.damaged("there is no sensible number of candidates")
    chosen = [expansions[number] for number in fields.integers("candidates", len(numbers)) if number < len(expansions)]
    sets = tuple(item.features for item in chosen)
    known = [item.accuracy for item in chosen if item.accuracy is not None]
    if len(known) < len(numbers) or len(set(sets)) < len(sets) or (np.diff(accuracies := np.array(known)) < 0).any():
        fields.damaged("the candidates are no expansions of rising accuracy")
    return Candidates(sets, accuracies, curves.of_sets(sets))


def _parse_presence(fields: Fields, curves: CostCurves, n_candidates: int) -> Presence:
    candidate = fields.record.get("candidate")
    ends = fields.record.get("end")
    if not isinstance(candidate, list) or not isinstance(ends, list):
        fields.damaged("the candidates are listed nowhere")
    length = len(candidate)
    numbers = np.array(fields.integers("candidate", length), dtype=np.int64)
    known = [end for end in ends if end is not None]
    end = np.full(len(ends), math.inf)
    end[[i for i, value in enumerate(ends) if value is not None]] = replace(fields, record={"end": known}).floats(
        "end", len(known)
    )
    if len(ends) != length:
        fields.damaged("the ranges of candidates do not all end")
    presence = Presence(numbers, _positions(fields.floats("start", length)), _positions(end))
    if reason := _implausible(presence, position(curves.low), position_after(curves.high), n_candidates):
        fields.damaged(reason)
    return presence


def _positions(sizes: np.ndarray[Any, np.dtype[np.float64]]) -> Integers:
    return np.ascontiguousarray(sizes).view(np.int64)


def _implausible(presence: Presence, low: int, end: int, n_candidates: int) -> str | None:
    if not len(presence.candidate) or (presence.candidate >= n_candidates).any():
        return "what is listed are no candidates"
    if (presence.start < low).any() or (presence.end > end).any() or (presence.end <= presence.start).any():
        return "a range of sizes makes no sense"
    same = np.diff(presence.candidate) == 0
    if (np.diff(presence.candidate) < 0).any() or (presence.start[1:][same] <= presence.end[:-1][same]).any():
        return "the ranges of sizes are not in order"
    cuts, places = np.unique(np.concatenate([presence.start, presence.end]), return_inverse=True)
    rises = np.bincount(places[: len(presence.start)], minlength=len(cuts))
    falls = np.bincount(places[len(presence.start) :], minlength=len(cuts))
    if cuts[0] != low or cuts[-1] != end or (np.cumsum(rises - falls)[:-1] <= 0).any():
        return "at some size no candidate is listed"
    if count_entries(presence) > MOST_ENTRIES:
        return "it lists more candidates than any index does"
    return None
