"""What there is to know of a model and of its explanations, as tables to be exported."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.format.schema import Label
from protodask.errors import InputError
from protodask.explain.explanation import Contribution, Explanation
from protodask.explain.familiarity import FamiliarityReference
from protodask.explain.original_rows import OriginalRow, all_prototypes, original_rows
from protodask.prototypes.model import PrototypeSet

Cell = str | float | bool | None
"""Text, a number, a truth value, or nothing."""


@dataclass(frozen=True)
class Table:
    """Named columns of equal length."""

    name: str
    """What it is: the name of its sheet."""
    columns: Mapping[str, Sequence[Cell]]

    @property
    def n_rows(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def rows(self) -> Iterable[tuple[Cell, ...]]:
        """Row by row."""
        return zip(*self.columns.values(), strict=True)


@dataclass(frozen=True)
class Explained:
    """The explanation of one row, and what else is known of the row."""

    row: int
    """Its number in the data it comes from."""
    features: NDArray[np.floating[Any]]
    """All features of the model (D,), raw units."""
    explanation: Explanation
    actual: Label | None = None
    """Its true class, where that is known."""
    originals: tuple[OriginalRow, ...] = ()
    """The rows behind the contributions, in their order; none where they were not looked up."""


def feature_weight_table(model: PrototypeSet) -> Table:
    """Feature weights by batch, heaviest first.

    `weight` refers to standardised features, so that weights compare; `weight_per_unit = weight / scale` to raw units:
    a difference of `1 / weight_per_unit` in that feature alone leaves a similarity of `exp(-1/2)`, about 0.61. Normal
    scores have no unit but their own, nor have levels.
    """
    columns: dict[str, list[Cell]] = {"batch": [], "feature": [], "weight": [], "weight_per_unit": []}
    for number, batch in enumerate(model.batches, start=1):
        order, names = np.argsort(-batch.feature_weight, kind="stable"), model.names_in(batch)
        columns["batch"] += [number] * len(order)
        columns["feature"] += [names[position] for position in order]
        columns["weight"] += batch.feature_weight[order].tolist()
        columns["weight_per_unit"] += (batch.feature_weight / batch.scale)[order].tolist()
    return Table("feature weights", columns)


def prototype_table(model: PrototypeSet, originals: Sequence[OriginalRow] = ()) -> Table:
    """Every prototype: batch, position, row in the training data, class, weight, and its values.

    The values are those of the active features in raw units, empty where the prototype's batch does not look at one;
    or, given the `originals` of `all_prototypes`, those of the columns of the training data.
    """
    prototypes = all_prototypes(model)
    weights = [weight for batch in model.batches for weight in batch.prototype_weight.tolist()]
    columns: dict[str, list[Cell]] = {
        "batch": [item.batch for item in prototypes],
        "position": [item.position for item in prototypes],
        "row": [item.row for item in prototypes],
        "class": [item.label for item in prototypes],
        "weight": weights,
    }
    rows = originals or original_rows(model, prototypes)
    if [(row.batch, row.position) for row in rows] != [(item.batch, item.position) for item in prototypes]:
        raise InputError(
            "wrong-shape", "The original rows are not those of all prototypes.", "Give those of all_prototypes."
        )
    _add(columns, [row.values for row in rows], dict.fromkeys(name for row in rows for name in row.values))
    return Table("prototypes", columns)


def probability_table(explained: Sequence[Explained], reference: FamiliarityReference | None = None) -> Table:
    """One line for each row explained: probabilities, familiarity, and how the decision is fixed."""
    columns: dict[str, list[Cell]] = {"row": [item.row for item in explained]}
    columns["predicted"] = [item.explanation.predicted for item in explained]
    if any(item.actual is not None for item in explained):
        columns["actual"] = [item.actual for item in explained]
    classes = explained[0].explanation.classes if explained else ()
    shares = [dict(zip(classes, item.explanation.probability.tolist(), strict=True)) for item in explained]
    _add(columns, shares, classes, "probability_")
    evidence = [item.explanation.familiarity for item in explained]
    columns["familiarity"] = list(evidence)
    if reference is not None:
        columns["familiarity_quantile"] = [reference.quantile(value) for value in evidence]
        columns["familiarity_p_value"] = [reference.p_value(value) for value in evidence]
    columns["marginal_share"] = [item.explanation.marginal_share for item in explained]
    columns["dominant_size"] = [item.explanation.dominant_size for item in explained]
    return Table("rows", columns)


_OWN = (
    *("row", "part", "rank", "class", "share", "impact", "weight", "similarity"),
    *("dominant", "batch", "position", "training_row"),
)


def explanation_table(model: PrototypeSet, explained: Sequence[Explained]) -> Table:
    """All parts of the probabilities of some rows, one line for each part.

    For each row (`part` says what a line is): "row", with its predicted class, the probability of that and its values;
    "marginal" for each class; "prototype" for each contribution listed, with the values of the prototype and the
    similarity by feature; "others" for each class. The shares of all lines of a row but the first, summed up by class,
    are its probabilities. Where original rows are known, their columns follow as `training_NAME`.
    """
    active = model.active_features.tolist()
    names = [model.feature_names[index] for index in active]
    labels = list(dict.fromkeys(label for batch in model.batches for label in model.names_in(batch)))
    value_names = [model.value_names_in(batch) for batch in model.batches]
    shown = list(dict.fromkeys(itertools.chain(names, *value_names)))
    compared = [label for label in dict.fromkeys([*names, *labels]) if label in set(labels)]
    # What a line itself says, the values, the similarities and the original row: of each what there is, by name.
    lines: list[Line] = []
    for entry in explained:
        found, number = entry.explanation, {"row": entry.row}
        probability = float(found.probability[found.classes.index(found.predicted)])
        own: dict[str, float] = {}
        for batch, of_batch in zip(model.batches, value_names, strict=True):
            if batch.differences is not None:
                own |= zip(of_batch, batch.values(entry.features).tolist(), strict=True)
        own |= zip(names, entry.features[active].tolist(), strict=True)
        lines.append(({**number, "part": "row", "class": found.predicted, "share": probability}, own, {}, {}))
        lines += _of_classes(entry, "marginal", found.marginal)
        lines += (
            (
                {**number, "part": "prototype", "rank": rank, **item.describe()},
                _prototype_values(model, value_names[item.batch - 1], item),
                {match.name: match.similarity for match in item.features},
                entry.originals[rank - 1].values if entry.originals else {},
            )
            for rank, item in enumerate(found.contributions, start=1)
        )
        lines += _of_classes(entry, "others", found.others)
    known = dict.fromkeys(name for *_, original in lines for name in original)
    columns: dict[str, list[Cell]] = {}
    for place, (prefix, given) in enumerate((("", _OWN), ("", shown), ("similarity_", compared), ("training_", known))):
        _add(columns, [line[place] for line in lines], given, prefix)
    return Table("explanation", columns)


def _prototype_values(model: PrototypeSet, names: tuple[str, ...], item: Contribution) -> dict[str, float]:
    """Raw values of the features that its batch looks at, and differences of them, given the names of its values."""
    batch = model.batches[item.batch - 1]
    known = {model.feature_names[index]: value for index, value in batch.raw_values(item.position).items()}
    return known | dict(zip(names, batch.prototypes[item.position].tolist(), strict=True))


Line = tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]


def _of_classes(entry: Explained, part: str, shares: NDArray[np.float64]) -> list[Line]:
    """A line for each class."""
    pairs = zip(entry.explanation.classes, shares.tolist(), strict=True)
    return [({"row": entry.row, "part": part, "class": label, "share": share}, {}, {}, {}) for label, share in pairs]


def _add(
    columns: dict[str, list[Cell]], records: Sequence[Mapping[Any, Any]], names: Iterable[Any], prefix: str = ""
) -> None:
    """Add columns of what records have by these names, which come from the data, under names that none has yet."""
    for name in names:
        free = f"{prefix}{name}"
        while free in columns:
            free += " (data)"
        columns[free] = [record.get(name) for record in records]
