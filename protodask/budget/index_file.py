"""An index on disk: one file of JSON, checksummed, with everything that a reader in another language needs as well.

low, high          sizes; a `high` of null is infinite
costs              of each feature the coefficients, constant first
feature_names      of each feature

A `BudgetIndex` has besides

alpha, monotone_error, observed_error
guarantee          null where it is infinite
expansions         of each set that was tried: features, accuracy or null, failure or null, seconds
candidates         numbers of expansions, by rising accuracy
listed             candidate, start, end: each candidate (its number among them) is listed from a size to below
                   another one, null beyond all; a candidate may have several such ranges
margins            of each candidate, what the noise of accuracies adds to the guarantee; only where that is known

and a `GreedyIndex`

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

from protodask.budget.candidates import Candidates
from protodask.budget.costs import MOST_COEFFICIENTS, CostCurves
from protodask.budget.expansions import Expansion, FeatureSet, describe_expansion, parse_expansion
from protodask.budget.greedy_index import GreedyIndex, Grown, index_sequences
from protodask.budget.index import BudgetIndex
from protodask.budget.polynomials import position, position_after, sizes_at
from protodask.budget.skyline import MOST_ENTRIES, Presence, count_entries
from protodask.data.places.bounded import MAX_JSON_BYTES, open_named, parse_json, read_bounded
from protodask.data.places.locations import is_url, locate, storage_errors
from protodask.data.places.records import Fields, RecordKind, recognize, unseal
from protodask.data.places.whole_files import check_file_free, replace_file
from protodask.engine.records import Floats
from protodask.errors import FormatError, InputError, named_twice, refusing
from protodask.places import mask

Index = BudgetIndex | GreedyIndex

EXPANSION = ("features", "accuracy", "failure", "seconds")
"""What is said of each."""

RECORD = RecordKind(
    "budget index",
    "protodask-budget-index",
    1,
    "Make one with build_index, and save it with save_index.",
    "Build the index again, or restore it from a copy.",
)

GREEDY = RecordKind(
    "greedy index",
    "protodask-greedy-index",
    1,
    "Make one with build_greedy, and save it with save_greedy.",
    "Build the index again, or restore it from a copy.",
)


def local_place(path: str | os.PathLike[str], what: str) -> str:
    """A place on this machine for what is kept nowhere else."""
    where = locate(path)
    if is_url(where):
        raise InputError(
            "not-local",
            f"{mask(where)} is no place on this machine, and {what} are kept in local folders only.",
            "Use a local path, and copy what is elsewhere.",
        )
    return where


def save_index(index: Index, path: str | os.PathLike[str], overwrite: bool = False) -> None:
    """Write an index, whole or not at all."""
    place = local_place(path, "indexes")
    check_file_free(place, overwrite)
    replace_file(place, index_text(index))


save_greedy = save_index


def load_index(path: str | os.PathLike[str]) -> BudgetIndex:
    """Read an index; what is damaged, foreign or newer is a `FormatError`. It is the saved one to the bit."""
    return parse_index(*_read(path))


def load_greedy(path: str | os.PathLike[str]) -> GreedyIndex:
    """Read greedy sequences; what is damaged, foreign or newer is a `FormatError`."""
    return _parse_greedy(_open(*_read(path), GREEDY))


def index_text(index: Index) -> str:
    """The content of the file of an index."""
    kind, own = (GREEDY, _describe_greedy(index)) if isinstance(index, GreedyIndex) else (RECORD, _describe(index))
    record = {
        "low": index.curves.low,
        "high": or_null(index.curves.high),
        "costs": index.curves.coefficients.tolist(),
        "feature_names": list(index.feature_names),
        **own,
    }
    return json.dumps(kind.sealed(record), allow_nan=False, separators=(",", ":")) + "\n"


def parse_index(content: bytes, where: str) -> BudgetIndex:
    """An index from the content of its file."""
    fields = _open(content, where, RECORD)
    curves, names = _parse_curves(fields)
    expansions = _parse_expansions(_within(fields, "expansions"), len(names))
    candidates = _parse_candidates(fields, curves, expansions)
    margins = fields.floats("margins", len(candidates.sets)) if "margins" in fields.record else None
    if margins is not None and (margins < 0).any():
        fields.damaged("a margin is negative")
    return BudgetIndex(
        curves=curves,
        feature_names=names,
        candidates=candidates,
        presence=_parse_presence(_within(fields, "listed"), curves, len(candidates.sets)),
        expansions=expansions,
        alpha=non_negative(fields, "alpha"),
        monotone_error=non_negative(fields, "monotone_error"),
        guarantee=_non_negative_or_infinite(fields, "guarantee"),
        observed_error=non_negative(fields, "observed_error"),
        margins=margins,
    )


def _read(path: str | os.PathLike[str]) -> tuple[bytes, str]:
    """The content of a file, and where it lies."""
    place = local_place(path, "indexes")
    with storage_errors(place, "reading"), open_named(place) as file:
        return read_bounded(file, MAX_JSON_BYTES, place), place


def _open(content: bytes, where: str, kind: RecordKind) -> Fields:
    with refusing(ValueError, "damaged", f"{where} is damaged, or no {kind.name}", kind.remedy, FormatError):
        record = parse_json(content)
    return unseal(recognize(record, kind, where))


def _describe(index: BudgetIndex) -> dict[str, Any]:
    # Of a set that was tried more than once the last expansion counts.
    number = {item.features: i for i, item in enumerate(index.expansions) if item.accuracy is not None}
    described = [describe_expansion(item) for item in index.expansions]
    return {
        "alpha": float(index.alpha),
        "monotone_error": float(index.monotone_error),
        "guarantee": or_null(float(index.guarantee)),
        "observed_error": float(index.observed_error),
        "expansions": {name: [one[name] for one in described] for name in EXPANSION},
        "candidates": [number[features] for features in index.sets],
        "listed": {
            "candidate": index.presence.candidate.tolist(),
            "start": sizes_at(index.presence.start).tolist(),
            "end": [or_null(size) for size in sizes_at(index.presence.end).tolist()],
        },
        **({} if index.margins is None else {"margins": index.margins.tolist()}),
    }


def _describe_greedy(index: GreedyIndex) -> dict[str, Any]:
    accuracies = index.accuracies.tolist()
    return {
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
            {"features": sorted(map(int, failed.features)), "failure": failed.failure or ""}
            for failed in index.failures
        ],
    }


def or_null(value: float) -> float | None:
    """A number as JSON has it, which has no infinity."""
    return value if math.isfinite(value) else None


def non_negative(fields: Fields, name: str) -> float:
    """A finite number of 0 or more."""
    value = float(fields.floats(name, None)[0])
    if value < 0:
        fields.damaged(f"{name} is negative")
    return value


def _non_negative_or_infinite(fields: Fields, name: str) -> float:
    return math.inf if fields.record.get(name) is None else non_negative(fields, name)


def _numbers_or_null(fields: Fields, name: str, missing: float) -> Floats:
    """A list of finite numbers, with another one in the place of each null."""
    values = fields.record.get(name)
    if not isinstance(values, list):
        fields.damaged(f"{name} is not a list")
    known = [value for value in values if value is not None]
    numbers = iter(replace(fields, record={name: known}).floats(name, len(known)).tolist())
    return np.array([missing if value is None else next(numbers) for value in values], dtype=np.float64)


def _within(fields: Fields, name: str) -> Fields:
    record = fields.record.get(name)
    if not isinstance(record, dict):
        fields.damaged(f"{name} is not an object")
    return replace(fields, record=record)


def _parse_curves(fields: Fields) -> tuple[CostCurves, tuple[str, ...]]:
    """Costs and the names of the features."""
    names = fields.texts("feature_names")
    rows = fields.record.get("costs")
    if not isinstance(rows, list) or len(rows) != len(names) or not rows:
        fields.damaged("there is no cost for each feature")
    first = rows[0]
    if not isinstance(first, list) or not 1 <= len(first) <= MOST_COEFFICIENTS:
        fields.damaged("the cost of a feature has no sensible number of coefficients")
    costs = np.stack([replace(fields, record={"costs": row}).floats("costs", len(first)) for row in rows])
    sizes = non_negative(fields, "low"), _non_negative_or_infinite(fields, "high")
    try:
        curves = CostCurves.of(costs, sizes)
        return curves, curves.check_names(names)
    except InputError as error:
        fields.damaged(f"its costs make no sense ({error.seen})")


def _features(fields: Fields, features: object, n_features: int) -> tuple[int, ...]:
    """Numbers of features, each once, in the order given."""
    if not isinstance(features, list) or any(
        type(feature) is not int or not 0 <= feature < n_features for feature in features
    ):
        fields.damaged("a set has features that the index does not have")
    if named_twice(features):
        fields.damaged("a feature is listed twice")
    return tuple(features)


def _parse_expansions(fields: Fields, n_features: int) -> tuple[Expansion, ...]:
    columns = [fields.record.get(name) for name in EXPANSION]
    rows = [column for column in columns if isinstance(column, list)]
    if len(rows) < len(columns) or len({len(row) for row in rows}) > 1:
        fields.damaged("the expansions are not all described")
    found = []
    for values in zip(*rows, strict=True):
        record = dict(zip(EXPANSION, values, strict=True))
        _features(fields, record["features"], n_features)
        expansion = parse_expansion(record)
        if expansion is None or (expansion.accuracy is None) == (expansion.failure is None):
            fields.damaged("an expansion has neither an accuracy nor a failure")
        found.append(expansion)
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
    end = _numbers_or_null(fields, "end", math.inf)
    candidate = np.array(fields.integers("candidate", len(end)), dtype=np.int64)
    presence = Presence(candidate, fields.floats("start", len(end)).view(np.int64), end.view(np.int64))
    if reason := _implausible(presence, position(curves.low), position_after(curves.high), n_candidates):
        fields.damaged(reason)
    return presence


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


def _parse_greedy(fields: Fields) -> GreedyIndex:
    curves, names = _parse_curves(fields)
    size = non_negative(fields, "size")
    if not curves.low <= size <= curves.high:
        fields.damaged("the sequences are made for a size out of range")
    grown = [_parse_sequence(replace(fields, record=one), len(names)) for one in fields.objects("sequences")]
    if not grown or any(first[0] >= second[0] for first, second in pairwise(grown)):
        fields.damaged("the sequences are not in the order of their trade-offs")
    accuracies: dict[FeatureSet, float | None] = {}
    for _, order, known in grown:
        for length, accuracy in enumerate(known):
            if accuracies.setdefault(frozenset(order[:length]), accuracy) != accuracy:
                fields.damaged("a set of features has two accuracies")
    failures = [
        Expansion(
            frozenset(_features(fields, one.get("features"), len(names))),
            None,
            replace(fields, record=one).text("failure"),
        )
        for one in fields.objects("failures")
    ]
    return index_sequences(
        curves,
        size,
        grown,
        expanded=fields.integer("expanded", 0),
        failures=failures,
        feature_names=names,
    )


def _parse_sequence(fields: Fields, n_features: int) -> Grown:
    order = _features(fields, fields.record.get("features"), n_features)
    known = _numbers_or_null(fields, "accuracies", math.nan).tolist()
    if len(known) != len(order) + 1:
        fields.damaged("a sequence has not an accuracy for each prefix")
    trade_off = _non_negative_or_infinite(fields, "trade_off")
    return trade_off, order, [None if math.isnan(accuracy) else accuracy for accuracy in known]
