"""The solver of cone and quadratic programs, an extra: whatever trains planes needs it."""

from __future__ import annotations

from typing import Any

from protodask.errors import needed


def load_clarabel() -> Any:
    """The library; where it is missing, the error says how to install it."""
    with needed(
        "Robust classifiers need the library Clarabel, which is not installed.",
        'Install it, for example with pip install "protodask[robust]".',
    ):
        import clarabel
    return clarabel
