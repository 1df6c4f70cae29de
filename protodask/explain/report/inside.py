"""What is inside the model: feature weights, and prototypes as cards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from protodask.data.format.schema import Label
from protodask.engine.records import Integers
from protodask.explain.explanation import visible
from protodask.explain.report.content import Content
from protodask.explain.report.text import short_numbers
from protodask.prototypes.batches import FORM_NAMES, LEVEL, NORMAL_SCORE, Batch
from protodask.prototypes.model import PrototypeSet

MOST_FEATURES = 1000
MOST_VALUES = 600_000
"""Feature values of prototypes in a page: about 5 MB. A larger model shows its strongest prototypes only."""

PLAIN_CARDS = 24
PLAIN_FEATURES = 8
"""What is shown where no script runs."""


class FeatureLine(NamedTuple):
    """A form of a feature, or a difference of two, with its weight in each batch."""

    name: str
    weights: list[float]


@dataclass(frozen=True)
class FeatureWeights:
    """Feature weights by batch."""

    batches: list[str]
    lines: list[FeatureLine]
    """The largest first."""
    largest: float
    scores: bool
    levels: bool
    differences: bool
    """Whether there are any of these."""
    idle: list[str]
    """Features that are not looked at."""


def feature_weights(content: Content) -> FeatureWeights:
    """Feature weights by batch, the largest first."""
    model, batches = content.model, content.batches
    label_of = {
        form: label for batch in batches for form, label in zip(batch.forms, model.names_in(batch), strict=True)
    }
    # In the order of the features, a feature as it is before its normal score and level, and differences last.
    number_of = {form: place for place, form in enumerate(sorted(label_of))}
    weights = np.zeros((len(label_of), len(batches)))
    for column, batch in enumerate(batches):
        weights[[number_of[form] for form in batch.forms], column] = batch.feature_weight
    strongest, names = weights.max(axis=1, initial=0.0), [label_of[form] for form in sorted(label_of)]
    order = [index for index in np.argsort(-strongest, kind="stable").tolist() if strongest[index] > 0]
    kinds = {FORM_NAMES[kind] for *_, kind in label_of}
    return FeatureWeights(
        [_batch_name(model, position, batch) for position, batch in enumerate(batches, start=1)],
        [FeatureLine(names[index], weights[index].tolist()) for index in order],
        float(strongest.max(initial=0.0)),
        NORMAL_SCORE in kinds,
        LEVEL in kinds,
        any(batch.differences is not None for batch in batches),
        [name for index, name in enumerate(model.feature_names) if index not in content.looked_at],
    )


def _batch_name(model: PrototypeSet, position: int, batch: Batch) -> str:
    label = model.label_of(batch)
    return f"Batch {position}" if label is None else f"Batch {position}, {label}"


def strongest_prototypes(batches: Sequence[Batch], most_values: int) -> list[list[int]]:
    """Positions of the prototypes of each batch that a page has room for: those of largest weight over all batches."""
    owner, position = _heaviest_first(batches)
    width = np.array([batch.n_features + 4 for batch in batches], dtype=np.int64)
    kept = np.cumsum(width[owner]) <= most_values
    return [np.sort(position[kept & (owner == number)]).tolist() for number in range(len(batches))]


def _heaviest_first(batches: Sequence[Batch]) -> tuple[Integers, Integers]:
    """Of all prototypes the batch, from 0, and the position in it; those of largest weight first."""
    owner = np.repeat(np.arange(len(batches)), [batch.n_prototypes for batch in batches])
    position = np.concatenate([np.zeros(0, dtype=np.int64), *(np.arange(batch.n_prototypes) for batch in batches)])
    weight = np.concatenate([np.zeros(0), *(batch.prototype_weight for batch in batches)])
    order = np.argsort(-weight, kind="stable")
    return owner[order], position[order]


def prototype_data(content: Content, most_values: int = MOST_VALUES) -> dict[str, Any]:
    """The prototypes as plain values, compact: what the script makes cards from."""
    model = content.model
    kept = strongest_prototypes(content.batches, most_values)
    names, number_of = list(model.feature_names), dict[tuple[int, float, int], int]()
    for batch in model.batches:
        for (other, factor, feature, _), label in zip(batch.forms, model.value_names_in(batch), strict=True):
            if other < 0:
                number_of[other, factor, feature] = feature
            elif (other, factor, feature) not in number_of:
                number_of[other, factor, feature] = len(names)
                names.append(label)
    return {
        "classes": [visible(label) for label in model.classes],
        "features": [visible(label) for label in names],
        "batches": [
            {
                "features": [number_of[forms[column][:3]] for column in columns.tolist()],
                "weights": short_numbers(batch.feature_weight[columns]),
                "class": batch.prototype_class[positions].tolist(),
                "weight": short_numbers(batch.prototype_weight[positions]),
                "row": batch.row[positions].tolist(),
                "values": short_numbers(batch.prototypes[positions][:, columns]),
            }
            for batch, positions in zip(model.batches, kept, strict=False)
            for forms, columns in [(batch.forms, _different(batch))]
        ],
    }


def _different(batch: Batch) -> Integers:
    """Columns of a batch, of several forms of a feature the heaviest one: all have the same raw values."""
    forms, heaviest = batch.forms, dict[tuple[int, float, int], int]()
    for place in np.argsort(-batch.feature_weight, kind="stable").tolist():
        heaviest.setdefault(forms[place][:3], place)
    return np.array([heaviest[value] for value in sorted(heaviest)], dtype=np.int64)


class Card(NamedTuple):
    """A prototype."""

    label: Label
    row: int
    batch: int
    weight: float
    shown: list[tuple[str, float]]
    """Values of the features of the largest weight."""
    left: int
    """Features besides."""


def plain_cards(content: Content) -> list[Card]:
    """The strongest prototypes, which the script replaces by all of them."""
    cards = []
    for number_of, position in np.stack(_heaviest_first(content.batches), axis=1)[:PLAIN_CARDS].tolist():
        batch = content.batches[number_of]
        weight = float(batch.prototype_weight[position])
        columns, labels = _different(batch), content.model.value_names_in(batch)
        order = columns[np.argsort(-batch.feature_weight[columns], kind="stable")][:PLAIN_FEATURES].tolist()
        values = [(labels[column], float(batch.prototypes[position, column])) for column in order]
        label = content.model.classes[int(batch.prototype_class[position])]
        left = len(columns) - len(order)
        cards.append(Card(label, int(batch.row[position]), number_of + 1, weight, values, left))
    return cards
