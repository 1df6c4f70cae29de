"""What a model says of rows, with NumPy alone, and the same in ONNX."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protodask._lazy import lazy_names

if TYPE_CHECKING:
    from protodask.scoring.onnx_export import write_onnx
    from protodask.scoring.scorer import Scorer

_HOMES = {"Scorer": "protodask.scoring.scorer", "write_onnx": "protodask.scoring.onnx_export"}

__all__ = ["Scorer", "write_onnx"]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
