"""Where the model goes wrong: the most frequent confusions, and what the worst errors were decided by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from protodask.data.format.schema import Label
from protodask.explain.explanation import Contribution, Explanation, FeatureMatch
from protodask.explain.report.content import Content

MOST_CLASSES = 40
"""Classes of a confusion matrix that people still read; beyond, the most frequent confusions are listed."""

DENSE_CLASSES = 12
"""Classes from which the matrix is set in smaller letters, its column heads upright."""

MOST_CONFUSIONS = 20
MOST_PROTOTYPES = 4
MOST_FEATURES = 12
MOST_PROBABILITIES = 5


class Confusion(NamedTuple):
    """Rows of a class that are predicted to be of another."""

    true: Label
    predicted: Label
    weight: float
    share: float
    """Of the true class."""


def confusions(content: Content) -> list[Confusion]:
    """The most frequent confusions, the largest first."""
    classes, shares = content.model.classes, content.quality.confusion_shares
    wrong = content.quality.confusion.copy()
    np.fill_diagonal(wrong, 0.0)
    order = np.argsort(-wrong, axis=None, kind="stable")[:MOST_CONFUSIONS]
    places = zip(*(places.tolist() for places in np.unravel_index(order, wrong.shape)), strict=True)
    return [
        Confusion(classes[true], classes[predicted], float(wrong[true, predicted]), float(shares[true, predicted]))
        for true, predicted in places
        if wrong[true, predicted] > 0
    ]


def likely_classes(explanation: Explanation) -> list[tuple[Label, float]]:
    """The most probable classes."""
    order = np.argsort(-explanation.probability, kind="stable")[:MOST_PROBABILITIES].tolist()
    return [(explanation.classes[index], float(explanation.probability[index])) for index in order]


class ComparedFeature(NamedTuple):
    """A feature of a row beside that of some prototypes; None where the batch of a prototype does not look at it."""

    name: str
    value: float
    matches: list[FeatureMatch | None]


def compared_features(strongest: Sequence[Contribution]) -> list[ComparedFeature]:
    """The features that any of the prototypes is compared in, by the largest of their weights."""
    found = [{match.name: match for match in contribution.features} for contribution in strongest]
    every = sorted((match for own in found for match in own.values()), key=lambda match: -match.weight)
    values = {match.name: match.value for match in every}
    return [ComparedFeature(name, value, [own.get(name) for own in found]) for name, value in values.items()]
