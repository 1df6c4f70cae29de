"""The settings of a robust fit."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from protodask.errors import InputError
from protodask.prototypes.setting_checks import check_count, check_flag, is_number, unwrap_numbers
from protodask.robust.formulations import check_eps, named

MOST_COST = 1e12
"""The objective at no weights is `C` times the samples: this size still squares safely."""

LEAST_TOTAL, MOST_TOTAL = 1e-30, 1e30
"""Of `C` times the weights of all samples: beyond, bounds of the objective are lost in rounding."""


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
    """No other objective is smaller by more than this share: `(objective - least) / objective <= gap`."""
    max_passes: int = 300
    """Passes over the samples, for each plane."""
    weighted: bool = True
    """Rows of a dataset count by its weights and inclusion probabilities; else every row counts once."""

    def __post_init__(self) -> None:
        unwrap_numbers(self)
        object.__setattr__(self, "formulation", named(self.formulation))
        for name in ("eps", "C", "gap"):
            if not is_number(value := getattr(self, name)):
                raise InputError("bad-setting", f"{name} is {value!r}.", "Give a number.")
        check_eps(self.eps)
        for name, most in (("C", MOST_COST), ("gap", 1.0)):
            if not 0 < (value := getattr(self, name)) <= most:
                raise InputError("bad-setting", f"{name} is {value}.", f"Give a number above 0, {most:g} at most.")
        for name in ("eps", "C", "gap"):
            object.__setattr__(self, name, float(getattr(self, name)))
        check_count("max_passes", self.max_passes, 1)
        check_flag("weighted", self.weighted)

    def check_total(self, weight: float) -> None:
        """Refuse samples of so large or small a weight together that no gap could be certified."""
        total = self.C * weight
        if weight > 0 and not LEAST_TOTAL <= total <= MOST_TOTAL:
            raise InputError(
                "bad-setting",
                f"`C` times the weight of all samples is {total:.3g}.",
                f"Scale `C` or the weights: between {LEAST_TOTAL:g} and {MOST_TOTAL:g} it can be computed with.",
            )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for files."""
        return asdict(self)

    def problem(self) -> dict[str, Any]:
        """What tells the problem from others; not when to stop, so that a run may go on to a smaller gap."""
        return {name: value for name, value in self.as_dict().items() if name not in ("gap", "max_passes")}
