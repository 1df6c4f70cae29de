"""What the files of indexes have in common: one line of sealed JSON, on this machine, with costs and sets in it."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from protodask.budget.costs import MOST_COEFFICIENTS, CostCurves
from protodask.data.places.bounded import MAX_JSON_BYTES, open_named, parse_json, read_bounded
from protodask.data.places.locations import is_url, locate, storage_errors
from protodask.data.places.records import Fields, RecordKind, recognize, seal, unseal
from protodask.data.places.storage import check_file_free, replace_file
from protodask.errors import FormatError, InputError
from protodask.places import mask


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


def sealed_text(record: Mapping[str, Any], kind: RecordKind) -> str:
    """The content of a file."""
    named = {"format": kind.format, "version": kind.version, **record}
    return json.dumps(seal(named, kind.name), allow_nan=False, separators=(",", ":")) + "\n"


def write_sealed(record: Mapping[str, Any], kind: RecordKind, path: str | os.PathLike[str], overwrite: bool) -> None:
    """Write a file, whole or not at all."""
    place = local_place(path, "indexes")
    check_file_free(place, overwrite)
    replace_file(place, sealed_text(record, kind))


def read_sealed(kind: RecordKind, path: str | os.PathLike[str]) -> Fields:
    """Read a file; what is damaged, foreign or newer is a `FormatError`."""
    place = local_place(path, "indexes")
    with storage_errors(place, "reading"), open_named(place) as file:
        content = read_bounded(file, MAX_JSON_BYTES, place)
    return parse_sealed(content, kind, place)


def parse_sealed(content: bytes, kind: RecordKind, where: str) -> Fields:
    """The fields of a file, from its content."""
    try:
        record = parse_json(content)
    except ValueError as error:
        raise FormatError("damaged", f"{where} is damaged, or no {kind.name} ({error}).", kind.remedy) from error
    fields = recognize(record, kind, where)
    unseal(fields)
    return fields


def or_null(value: float) -> float | None:
    """A number as JSON has it, which has no infinity."""
    return value if math.isfinite(value) else None


def non_negative(fields: Fields, name: str) -> float:
    """A finite number of 0 or more."""
    value = float(fields.floats(name, None)[0])
    if value < 0:
        fields.damaged(f"{name} is negative")
    return value


def non_negative_or_infinite(fields: Fields, name: str) -> float:
    """A number of 0 or more, infinite where there is null."""
    return math.inf if fields.record.get(name) is None else non_negative(fields, name)


def describe_curves(curves: CostCurves, feature_names: tuple[str, ...]) -> dict[str, Any]:
    """Costs, sizes and names, as `parse_curves` reads them."""
    return {
        "low": curves.low,
        "high": or_null(curves.high),
        "costs": curves.coefficients.tolist(),
        "feature_names": list(feature_names),
    }


def parse_curves(fields: Fields) -> tuple[CostCurves, tuple[str, ...]]:
    """Costs and the names of the features."""
    names = fields.texts("feature_names")
    rows = fields.record.get("costs")
    if not isinstance(rows, list) or len(rows) != len(names) or not rows:
        fields.damaged("there is no cost for each feature")
    first = rows[0]
    if not isinstance(first, list) or not 1 <= len(first) <= MOST_COEFFICIENTS:
        fields.damaged("the cost of a feature has no sensible number of coefficients")
    costs = np.stack([replace(fields, record={"costs": row}).floats("costs", len(first)) for row in rows])
    sizes = non_negative(fields, "low"), non_negative_or_infinite(fields, "high")
    try:
        curves = CostCurves.of(costs, sizes)
        return curves, curves.check_names(names)
    except InputError as error:
        fields.damaged(f"its costs make no sense ({error.seen})")


def parse_features(fields: Fields, features: object, n_features: int) -> tuple[int, ...]:
    """Numbers of features, each once, in the order given."""
    if not isinstance(features, list) or any(
        type(feature) is not int or not 0 <= feature < n_features for feature in features
    ):
        fields.damaged("a set has features that the index does not have")
    if len(set(features)) != len(features):
        fields.damaged("a feature is listed twice")
    return tuple(features)
