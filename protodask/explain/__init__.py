"""Looking into a model: why it says what it says of a row, how unusual the row is, and all of it as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protodask._lazy import lazy_names
from protodask.explain.original_rows import (
    OriginalRow,
    Prototype,
    all_prototypes,
    decode_row,
    original_rows,
)  # at once: its module has the same name

if TYPE_CHECKING:
    from protodask.explain.contributions import explain_rows, explanations
    from protodask.explain.explanation import Contribution, Explanation, FeatureMatch
    from protodask.explain.exports import export
    from protodask.explain.familiarity import FamiliarityReference, reference
    from protodask.explain.tables import (
        Explained,
        Table,
        explanation_table,
        feature_weight_table,
        probability_table,
        prototype_table,
    )

_HOMES = {
    "Contribution": "protodask.explain.explanation",
    "Explained": "protodask.explain.tables",
    "Explanation": "protodask.explain.explanation",
    "FamiliarityReference": "protodask.explain.familiarity",
    "FeatureMatch": "protodask.explain.explanation",
    "Table": "protodask.explain.tables",
    "explain_rows": "protodask.explain.contributions",
    "explanation_table": "protodask.explain.tables",
    "explanations": "protodask.explain.contributions",
    "export": "protodask.explain.exports",
    "feature_weight_table": "protodask.explain.tables",
    "probability_table": "protodask.explain.tables",
    "prototype_table": "protodask.explain.tables",
    "reference": "protodask.explain.familiarity",
}

__all__ = [
    "Contribution",
    "Explained",
    "Explanation",
    "FamiliarityReference",
    "FeatureMatch",
    "OriginalRow",
    "Prototype",
    "Table",
    "all_prototypes",
    "decode_row",
    "explain_rows",
    "explanation_table",
    "explanations",
    "export",
    "feature_weight_table",
    "original_rows",
    "probability_table",
    "prototype_table",
    "reference",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
