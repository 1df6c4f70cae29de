"""Values that are no plain numbers though an array has them: times."""

from __future__ import annotations

from typing import Any

from protodask.errors import InputError

TIMES = "mM"


def refuse_times(dtype: Any) -> None:
    """Refuse rows of dates or durations: as numbers they would count from some date, also where they are missing."""
    if getattr(dtype, "kind", "O") in TIMES:
        raise InputError(
            "wrong-type",
            f"The rows hold times ({dtype}).",
            "Turn them into numbers as those of the training data were, such as the hour or the days since some date.",
        )
