"""What distinguishes two versions of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from protodask.prototypes.setting_checks import is_number
from protodask.registry.versions import Version


@dataclass(frozen=True)
class Changed:
    """A value that two versions have different; None where one has none."""

    name: str
    first: Any
    second: Any

    @property
    def rise(self) -> float | None:
        """The second value less the first, of numbers."""
        if is_number(self.first) and is_number(self.second):
            return float(self.second) - float(self.first)
        return None

    def describe(self) -> dict[str, Any]:
        """Plain values, for files."""
        return {"name": self.name, "first": self.first, "second": self.second, "rise": self.rise}


@dataclass(frozen=True)
class Difference:
    """How the second of two versions differs from the first."""

    first: Version
    second: Version
    model: tuple[Changed, ...]
    """Its kind, its sizes and the data it was trained on."""
    settings: tuple[Changed, ...]
    metrics: tuple[Changed, ...]
    """All numbers that either has, by their path in the results; also those that are the same."""
    gained: tuple[str, ...]
    """Features that the second uses and the first does not."""
    lost: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether they are the same model."""
        return self.first.fingerprint == self.second.fingerprint

    def describe(self) -> dict[str, Any]:
        """Plain values, for files."""
        return {
            "first": self.first.number,
            "second": self.second.number,
            "same_model": self.same,
            "model": [changed.describe() for changed in self.model],
            "settings": [changed.describe() for changed in self.settings],
            "metrics": [changed.describe() for changed in self.metrics],
            "features_gained": list(self.gained),
            "features_lost": list(self.lost),
        }


def difference(first: Version, second: Version) -> Difference:
    """What distinguishes one version from another."""
    model = (_facts(first), _facts(second))
    metrics = (numbers(first.metrics or {}), numbers(second.metrics or {}))
    return Difference(
        first,
        second,
        _changed(*model),
        _changed(first.settings, second.settings),
        tuple(Changed(name, metrics[0].get(name), metrics[1].get(name)) for name in _names(*metrics)),
        tuple(name for name in second.features if name not in set(first.features)),
        tuple(name for name in first.features if name not in set(second.features)),
    )


def _facts(version: Version) -> dict[str, Any]:
    return {
        "kind": version.kind,
        "data": ", ".join(version.data) or None,
        "rows": version.rows,
        **version.sizes,
        "features used": len(version.features),
        **version.code,
    }


def _changed(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[Changed, ...]:
    compared = (Changed(name, first.get(name), second.get(name)) for name in _names(first, second))
    return tuple(changed for changed in compared if changed.first != changed.second)


def _names(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys([*first, *second]))


def numbers(value: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers in nested results by their path, such as `drift.largest`; lists have none."""
    found: dict[str, float] = {}
    for name, item in value.items():
        if isinstance(item, Mapping):
            found |= numbers(item, f"{prefix}{name}.")
        elif is_number(item):
            found[f"{prefix}{name}"] = item
    return found
