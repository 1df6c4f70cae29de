"""Looking into a model: why it says what it says of a row, how unusual the row is, and all of it as tables."""

from protodask.explain.contributions import Contribution, Explanation, FeatureMatch, explain_rows, explanations
from protodask.explain.exports import export
from protodask.explain.familiarity import FamiliarityReference, reference
from protodask.explain.original_rows import OriginalRow, Prototype, all_prototypes, decode_row, original_rows
from protodask.explain.tables import (
    Explained,
    Table,
    explanation_table,
    feature_weight_table,
    probability_table,
    prototype_table,
)

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
