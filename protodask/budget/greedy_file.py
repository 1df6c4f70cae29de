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

import json
import math
import os
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from protodask.budget.costs import CostCurves
from protodask.budget.expansions import Expansion, FeatureSet
from protodask.budget.greedy_index import GreedyIndex, Grown, index_sequences
from protodask.data.bounded import MAX_JSON_BYTES, open_named, parse_json, read_bounded
from protodask.data.locations import is_url, locate, storage_errors
from protodask.data.records import Fields, RecordKind, recognize, seal, unseal
from protodask.data.storage import check_file_free, replace_file
from protodask.errors import FormatError, InputError
from protodask.places import mask

RECORD = RecordKind(
    "greedy index",
    "protodask-greedy-index",
    1,
    "Make one with build_greedy, and save it with save_greedy.",
    "Build the index again, or restore it from a copy.",
)


def save_greedy(index: GreedyIndex, path: str | os.PathLike[str], overwrite: bool = False) -> None:
    """Write greedy sequences, whole or not at all."""
    place = os.fspath(path)
    check_file_free(place, overwrite)
    text = json.dumps(seal(_describe(index), RECORD.name), allow_nan=False, separators=(",", ":"))
    replace_file(place, text + "\n")


def load_greedy(path: str | os.PathLike[str]) -> GreedyIndex:
    """Read greedy sequences; what is damaged, foreign or newer is a `FormatError`."""
    place = locate(path)
    if is_url(place):
        raise InputError(f"{mask(place)} is no place on this machine.", "Copy the index to a local file.")
    with storage_errors(place, "reading"), open_named(place) as file:
        content = read_bounded(file, MAX_JSON_BYTES, place)
    try:
        record = parse_json(content)
    except ValueError as error:
        raise FormatError(f"{place} is damaged, or no greedy index ({error}).", RECORD.remedy) from error
    fields = recognize(record, RECORD, place)
    unseal(fields)
    return _parse(fields)


def _describe(index: GreedyIndex) -> dict[str, Any]:
    accuracies = index.accuracies.tolist()
    return {
        "format": RECORD.format,
        "version": RECORD.version,
        "low": index.curves.low,
        "high": _or_null(index.curves.high),
        "costs": index.curves.coefficients.tolist(),
        "feature_names": list(index.feature_names),
        "size": float(index.size),
        "sequences": [
            {
                "trade_off": _or_null(sequence.trade_off),
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


def _or_null(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _parse(fields: Fields) -> GreedyIndex:
    curves = _parse_curves(fields)
    names = fields.texts("feature_names")
    size = _number(fields, "size")
    if not curves.low <= size <= curves.high:
        fields.damaged("the sequences are made for a size out of range")
    grown = [_parse_sequence(replace(fields, record=one), curves.n_features) for one in fields.objects("sequences")]
    if not grown or any(first[0] >= second[0] for first, second in pairwise(grown)):
        fields.damaged("the sequences are not in the order of their trade-offs")
    accuracies: dict[FeatureSet, float | None] = {}
    for _, order, known in grown:
        for length, accuracy in enumerate(known):
            if accuracies.setdefault(frozenset(order[:length]), accuracy) != accuracy:
                fields.damaged("a set of features has two accuracies")
    failures = [replace(fields, record=one) for one in fields.objects("failures")]
    try:
        return index_sequences(
            curves,
            size,
            grown,
            expanded=fields.integer("expanded", 0),
            failures=[
                Expansion(frozenset(_features(own, curves.n_features)), None, own.text("failure")) for own in failures
            ],
            feature_names=names,
        )
    except InputError as error:
        fields.damaged(f"its names make no sense ({error.seen})")


def _number(fields: Fields, name: str) -> float:
    value = float(fields.floats(name, None)[0])
    if value < 0:
        fields.damaged(f"{name} is negative")
    return value


def _parse_curves(fields: Fields) -> CostCurves:
    rows = fields.record.get("costs")
    if not isinstance(rows, list) or not rows or not isinstance(rows[0], list):
        fields.damaged("there is no cost for each feature")
    costs = np.stack([replace(fields, record={"costs": row}).floats("costs", len(rows[0])) for row in rows])
    high = fields.record.get("high")
    try:
        return CostCurves.of(costs, (_number(fields, "low"), math.inf if high is None else _number(fields, "high")))
    except InputError as error:
        fields.damaged(f"its costs make no sense ({error.seen})")


def _features(fields: Fields, n_features: int) -> tuple[int, ...]:
    features = fields.record.get("features")
    if not isinstance(features, list) or any(
        type(feature) is not int or not 0 <= feature < n_features for feature in features
    ):
        fields.damaged("a set has features that the index does not have")
    if len(set(features)) != len(features):
        fields.damaged("a feature is listed twice")
    return tuple(features)


def _parse_sequence(fields: Fields, n_features: int) -> Grown:
    trade_off = math.inf if fields.record.get("trade_off") is None else _number(fields, "trade_off")
    order, accuracies = _features(fields, n_features), fields.record.get("accuracies")
    if not isinstance(accuracies, list) or len(accuracies) != len(order) + 1:
        fields.damaged("a sequence has not an accuracy for each prefix")
    known = replace(fields, record={"accuracies": [one for one in accuracies if one is not None]})
    values = iter(known.floats("accuracies", len(known.record["accuracies"])).tolist())
    return trade_off, order, [None if one is None else next(values) for one in accuracies]
