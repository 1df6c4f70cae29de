"""Files of costs: which columns make a feature, and what each costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from protodask.budget.feature_columns import Costed
from protodask.errors import InputError
from protodask.pipeline.file.values import convert, parse_record, shown
from protodask.pipeline.file.yaml_file import read_mapping

COEFFICIENTS = "Give a list of coefficients, constant first: [2, 0.5] is 2 + 0.5 n on an item of size n."


@dataclass(frozen=True)
class CostsFile:
    """What such a file says."""

    features: Mapping[str, Costed]
    sizes: tuple[float, float]
    without: tuple[str, ...]


@dataclass(frozen=True)
class _Keys:
    features: str
    sizes: tuple[float, ...] | None = None
    without: tuple[str, ...] = ()


def read_costs(path: str) -> CostsFile:
    """Read a YAML or JSON file of costs."""
    where = f"The file {path}"
    content = read_mapping(path)
    features = content.pop("features", None)
    if not isinstance(features, Mapping) or not features:
        raise InputError(
            "setting-missing",
            f"{where} names no features.",
            "Add `features:` with the name and the cost of each below it.",
        )
    rest = parse_record(_Keys, {**content, "features": "-"}, where)
    found: dict[str, Costed] = {}
    for key, value in features.items():
        name = str(key)
        if name in found:
            raise InputError("named-twice", f"{where} has the feature {name!r} twice.", "Leave one out.")
        found[name] = _feature(name, value, f"{where}: features: {name}")
    return CostsFile(found, _sizes(rest.sizes, found, where), rest.without)


def _feature(name: str, value: Any, where: str) -> Costed:
    if not isinstance(value, Mapping):
        return (name,), _coefficients(value, where)
    unknown = [key for key in value if key not in ("columns", "cost")]
    if unknown or "cost" not in value:
        seen = f"has the unknown key {shown(unknown[0])}" if unknown else "lacks the key 'cost'"
        raise InputError(
            "unknown-key" if unknown else "setting-missing",
            f"{where} {seen}.",
            "Give `cost:` and, unless the column has that name, `columns:`.",
        )
    columns = convert(value.get("columns", name), tuple[str, ...], f"{where}: columns")
    return columns, _coefficients(value["cost"], f"{where}: cost")


def _coefficients(value: Any, where: str) -> Sequence[float]:
    if value is None or value == []:
        raise InputError("bad-setting", f"{where} is empty.", COEFFICIENTS)
    found = convert(value, tuple[float, ...], where)
    if not all(map(math.isfinite, found)):
        raise InputError("bad-setting", f"{where} is {shown(value)}.", COEFFICIENTS)
    return tuple(found)


def _sizes(given: tuple[float, ...] | None, features: Mapping[str, Costed], where: str) -> tuple[float, float]:
    if given is None:
        varying = [name for name, (_, cost) in features.items() if len(cost) > 1]
        if varying:
            raise InputError(
                "setting-missing",
                f"{where} does not say how large items are, and the cost of {varying[0]!r} depends on it.",
                "Add `sizes: [smallest, largest]`.",
            )
        return 0.0, math.inf
    if len(given) != 2:
        raise InputError(
            "bad-setting", f"{where}: sizes is {shown(list(given))}.", "Give two numbers, the smallest and the largest."
        )
    return given[0], given[1]
