"""Values that are no plain numbers though an array has them: times, and what a mask hides."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from protodask.errors import InputError

TIMES = "mM"

COMPLEX_REMEDY = "Give the real and the imaginary part as columns of their own."


def refuse_times(dtype: Any) -> None:
    """Refuse rows of dates or durations: as numbers they would count from some date, also where they are missing; of
    complex numbers, whose second part would be lost; and of records, which are no numbers.
    """
    if getattr(dtype, "names", None):
        raise InputError(
            "wrong-type",
            f"The rows are records of named fields ({dtype}).",
            "Give a data frame of them: pandas.DataFrame(rows).",
        )
    if getattr(dtype, "kind", "O") == "c":
        raise InputError("wrong-type", f"Complex data not supported ({dtype}).", COMPLEX_REMEDY)
    if getattr(dtype, "kind", "O") in TIMES:
        raise InputError(
            "wrong-type",
            f"The rows hold times ({dtype}).",
            "Turn them into numbers as those of the training data were, such as the hour or the days since some date.",
        )


class SparseRowsError(InputError, TypeError):
    """A TypeError, too: the tools of scikit-learn know by it that rows must be dense."""


def unmasked(values: Any) -> Any:
    """A masked array of NumPy's with missing values where it is masked, NaN or None, and objects with None where pandas
    has its `NA`; anything else as it is.

    Sparse ones are refused: to NumPy they are a single object.
    """
    if hasattr(values, "toarray"):
        raise SparseRowsError(
            "wrong-type",
            f"The rows are sparse (a {type(values).__name__}).",
            "Give dense ones: rows.toarray(), of each chunk where they are dask's.",
        )
    if not isinstance(values, np.ma.MaskedArray):
        if not isinstance(values, np.ndarray) or values.dtype.kind != "O" or "pandas" not in sys.modules:
            return values
        missing = np.asarray(np.frompyfunc(is_pandas_missing, 1, 1)(values), dtype=bool)
        nothing: Any = None
        return np.where(missing, nothing, values) if missing.any() else values
    kind = values.dtype.kind
    nothing = values.dtype.type("NaT") if kind in TIMES else np.nan if kind in "biuf" else None
    return np.where(np.ma.getmaskarray(values), nothing, np.asarray(values))


def is_pandas_missing(value: object) -> bool:
    """Whether it is the `NA` or `NaT` of pandas, which need not be installed here."""
    return type(value).__module__.startswith("pandas.") and str(value) in ("<NA>", "NaT")


def refuse_masked(what: str, values: Any) -> None:
    """Refuse values of which there has to be one for each row, where a mask hides some."""
    if np.ma.is_masked(values):
        raise InputError(
            "bad-value", f"Some values of the {what} are masked.", "Fill them in, or leave those rows out."
        )
