"""Greedy sequences on disk: one file of JSON, checksummed.

low, high          sizes; a `high` of null is infinite
costs              of each feature the coefficients, constant first
feature_names      of each feature
size               that the sequences were made for
sequences          of each its trade_off (null is infinite), its features in order, and the accuracy of every
                   prefix from the empty one (null where it has no model)
expanded, failures how many sets were expanded, and of each that failed its features and why
"""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import pairwise
from typing import Any

from protodask.budget.costs import CostCurves
from protodask.budget.expansions import Expansion, FeatureSet
from protodask.budget.greedy_index import GreedyIndex, Grown, index_sequences
from protodask.budget.sealed_file import (
    describe_curves,
    non_negative,
    non_negative_or_infinite,
    or_null,
    parse_curves,
    parse_features,
    read_sealed,
    write_sealed,
)
from protodask.data.places.records import Fields, RecordKind

RECORD = RecordKind(
    "greedy index",
    "protodask-greedy-index",
    1,
    "Make one with build_greedy, and save it with save_greedy.",
    "Build the index again, or restore it from a copy.",
)


def save_greedy(index: GreedyIndex, path: str | os.PathLike[str], overwrite: bool = False) -> None:
    """Write greedy sequences, whole or not at all."""
    write_sealed(_describe(index), RECORD, path, overwrite)


def load_greedy(path: str | os.PathLike[str]) -> GreedyIndex:
    """Read greedy sequences; what is damaged, foreign or newer is a `FormatError`."""
    return _parse(read_sealed(RECORD, path))


def _describe(index: GreedyIndex) -> dict[str, Any]:
    accuracies = index.accuracies.tolist()
    return {
        **describe_curves(index.curves, index.feature_names),
        "size": float(index.size),
        "sequences": [
            {
                "trade_off": or_null(sequence.trade_off),
                "features": [int(feature) for feature in sequence.features],
                "accuracies": [None if number < 0 else accuracies[number] for number in sequence.recorded],
            }
            for sequence in index.sequences
        ],
        "expanded": index.expanded,
        "failures": [
            {"features": sorted(int(feature) for feature in failed.features), "failure": failed.failure or ""}
            for failed in index.failures
        ],
    }


def _parse(fields: Fields) -> GreedyIndex:
    curves, names = parse_curves(fields)
    size = non_negative(fields, "size")
    if not curves.low <= size <= curves.high:
        fields.damaged("the sequences are made for a size out of range")
    grown = [_parse_sequence(replace(fields, record=one), curves) for one in fields.objects("sequences")]
    if not grown or any(first[0] >= second[0] for first, second in pairwise(grown)):
        fields.damaged("the sequences are not in the order of their trade-offs")
    accuracies: dict[FeatureSet, float | None] = {}
    for _, order, known in grown:
        for length, accuracy in enumerate(known):
            if accuracies.setdefault(frozenset(order[:length]), accuracy) != accuracy:
                fields.damaged("a set of features has two accuracies")
    failures = [replace(fields, record=one) for one in fields.objects("failures")]
    return index_sequences(
        curves,
        size,
        grown,
        expanded=fields.integer("expanded", 0),
        failures=[Expansion(frozenset(_features(own, curves)), None, own.text("failure")) for own in failures],
        feature_names=names,
    )


def _features(fields: Fields, curves: CostCurves) -> tuple[int, ...]:
    return parse_features(fields, fields.record.get("features"), curves.n_features)


def _parse_sequence(fields: Fields, curves: CostCurves) -> Grown:
    trade_off = non_negative_or_infinite(fields, "trade_off")
    order, accuracies = _features(fields, curves), fields.record.get("accuracies")
    if not isinstance(accuracies, list) or len(accuracies) != len(order) + 1:
        fields.damaged("a sequence has not an accuracy for each prefix")
    known = replace(fields, record={"accuracies": [one for one in accuracies if one is not None]})
    values = iter(known.floats("accuracies", len(known.record["accuracies"])).tolist())
    return trade_off, order, [None if one is None else next(values) for one in accuracies]
