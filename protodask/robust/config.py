"""The settings of a robust fit."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from protodask.errors import InputError
from protodask.robust.formulations import named, spread_multiple

MOST_COST = 1e12
"""The objective at no weights is `C` times the samples: this size still squares safely."""


@dataclass(frozen=True)
class RobustConfig:
    """How planes are trained."""

    formulation: str = "SBMV"
    """What is known of the samples and how it is used, see `formulations.py`."""
    eps: float = 0.1
    """The probability of error that training points without slack keep to, in (0, 1)."""
    C: float = 1.0
    """Cost of a unit of slack of a sample of weight 1."""
    gap: float = 1e-4
    """The objective is at most this far above the least there is, relative to it."""
    max_passes: int = 300
    """Passes over the samples, for each plane."""
    weighted: bool = True
    """Rows of a dataset count by its weights and inclusion probabilities; else every row counts once."""

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            if isinstance(value, np.generic):
                object.__setattr__(self, entry.name, value.item())  # so that settings can go into files
        object.__setattr__(self, "formulation", named(self.formulation))
        for name in ("eps", "C", "gap"):
            object.__setattr__(self, name, _number(name, getattr(self, name)))
        spread_multiple(self.formulation, self.eps)
        for name in ("C", "gap"):
            if not 0 < getattr(self, name) <= MOST_COST:
                raise InputError(
                    f"{name} is {getattr(self, name)}.", f"Give a number above 0, {MOST_COST:.0e} at most."
                )
        if not _is_count(self.max_passes):
            raise InputError(f"max_passes is {self.max_passes!r}.", "Give a whole number of at least 1.")
        if not _is_flag(self.weighted):
            raise InputError(f"weighted is {self.weighted!r}.", "Give True or False.")

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for files."""
        return asdict(self)

    def problem(self) -> dict[str, Any]:
        """What tells the problem from others; not when to stop, so that a run may go on to a smaller gap."""
        return {name: value for name, value in self.as_dict().items() if name not in ("gap", "max_passes")}


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{name} is {value!r}.", "Give a number.")
    return float(value)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)
