"""The explanation of a row, and what it says, line by line: for `print`, and for the command line to lay out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from protodask.data.format.schema import Label
from protodask.engine.records import Floats

Lines = list[tuple[str, ...]]
"""A header, and the cells of each line below it."""

SIDE_BY_SIDE = 6
"""Prototypes that are compared side by side."""

MOST_LINES = 20
"""Classes and features that are listed."""

WIDTH = 120
"""Letters in a line, beyond which fewer prototypes stand side by side."""


class FeatureMatch(NamedTuple):
    """How a row compares with a prototype in one feature that the prototype's batch looks at, in raw units; where that
    is a difference of two, `value` and `prototype_value` are it, in units of the first.

    A tuple, because an explanation may have thousands of them: frozen dataclasses take four times as long to make.
    """

    name: str
    value: float
    prototype_value: float
    weight: float
    """Feature weight `v_d`, by standardised units."""
    similarity: float
    """`exp(-1/2 (v_d (z_d(x) - z_d(s)))^2)`, `z_d` standardised, normal score or level; the product over the
    features is the prototype's similarity."""


@dataclass(frozen=True)
class Contribution:
    """What one prototype contributes."""

    batch: int
    """Number of its batch, from 1."""
    position: int
    """Its position within the batch, from 0."""
    row: int
    """Its row number in the training data."""
    label: Label
    weight: float
    similarity: float
    impact: float
    """`weight * similarity`."""
    share: float
    """`impact / Q`: its part of the probability of its class."""
    dominant: bool
    """Whether it is in the dominant set: see `Explanation.dominant_size`."""
    features: tuple[FeatureMatch, ...]

    def describe(self) -> dict[str, Any]:
        """All but the features, as plain values by the names that files and tables have for them."""
        return {
            "batch": self.batch,
            "position": self.position,
            "training_row": self.row,
            "class": self.label,
            "share": self.share,
            "impact": self.impact,
            "weight": self.weight,
            "similarity": self.similarity,
            "dominant": self.dominant,
        }


@dataclass(frozen=True)
class Explanation:
    """The probability of one row, taken apart: `probability = marginal + shares of the contributions + others`."""

    classes: tuple[Label, ...]
    probability: Floats
    predicted: Label
    """The most probable class, the first of several."""
    familiarity: float
    """Sum of all impacts: 0 far from every prototype."""
    marginal_share: float
    """`1 / Q`: the part of the probabilities that is the class shares of the training data."""
    marginal: Floats
    """`p0 / Q` (K,)."""
    contributions: tuple[Contribution, ...]
    """The strongest, by impact; of equal ones the earlier batch and position first. What has no impact is left out."""
    others: Floats
    """Share of the prototypes that are not listed, by class (K,)."""
    dominant_size: int
    """Size of the smallest set of strongest contributions that fixes the predicted class: it would be the same
    whatever classes all other prototypes had. 0 if the class shares alone fix it. Not all of it need be listed."""

    def __str__(self) -> str:
        return as_text(self)


JOINERS = "\u200c\u200d\u00a0"
"""Not printable by themselves, but part of how some scripts are written."""


def visible(value: object) -> str:
    """A name as text that any file can hold: characters without a shape are written as escapes.

    Among them are those that reverse the direction of what follows, which could make a name read as another.
    """
    return "".join(
        letter if letter.isprintable() or letter in JOINERS else letter.encode("unicode_escape").decode()
        for letter in str(value)
    )


def said_of_prediction(explanation: Explanation) -> str:
    """The class, and how likely it is."""
    predicted = explanation.predicted
    probability = explanation.probability[explanation.classes.index(predicted)]
    return f"{visible(predicted)}, with probability {probability:.3f}"


def said_of_dominance(explanation: Explanation) -> str:
    """What it takes to fix the class."""
    size, listed = explanation.dominant_size, len(explanation.contributions)
    if size == 0:
        return "The class shares of the training data fix the decision, whatever the classes of the prototypes."
    which = "strongest prototype fixes" if size == 1 else f"{size:,} strongest prototypes fix"
    marked = "marked *" if size <= listed else f"of which {listed:,} are listed"
    return f"The {which} the decision ({marked}): it would be the same whatever the classes of the others."


def class_lines(explanation: Explanation) -> Lines:
    """What the probability of each class is made of, the most probable first."""
    listed = dict.fromkeys(explanation.classes, 0.0)
    for item in explanation.contributions:
        listed[item.label] += item.share
    lines: Lines = [("class", "class shares", "prototypes listed", "other prototypes", "probability")]
    for position in (-explanation.probability).argsort(kind="stable").tolist():
        label = explanation.classes[position]
        parts = (explanation.marginal[position], listed[label], explanation.others[position])
        lines.append((visible(label), *(f"{part:.4f}" for part in (*parts, explanation.probability[position]))))
    return lines


def prototype_lines(explanation: Explanation) -> Lines:
    """The strongest prototypes."""
    lines: Lines = [("", "class", "share", "weight", "similarity", "batch", "training row")]
    for rank, item in enumerate(explanation.contributions, start=1):
        name = f"{'*' if item.dominant else ' '}#{rank}"
        numbers = (f"{item.share:.4f}", f"{item.weight:.4g}", f"{item.similarity:.4f}")
        lines.append((name, visible(item.label), *numbers, str(item.batch), str(item.row)))
    return lines


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


def feature_lines(explanation: Explanation) -> Lines:
    """The row and the strongest prototypes feature by feature, heaviest features first; none if none is looked at."""
    strongest = explanation.contributions[:SIDE_BY_SIDE]
    lines: Lines = [
        (visible(name), value_of(value), *map(_compared, matches))
        for name, value, matches in compared_features(strongest)
    ]
    header = ("feature", "this row", *(f"#{rank}" for rank in range(1, len(strongest) + 1)))
    return [header, *lines] if lines else []


COMPARED = "Values, and in brackets how similar they are to those of the row (1: the same)"


def _compared(match: FeatureMatch | None) -> str:
    return "" if match is None else f"{value_of(match.prototype_value)} ({match.similarity:.2f})"


def value_of(value: Any) -> str:
    """A value of a row."""
    if value is None:
        return "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def as_text(explanation: Explanation) -> str:
    """All of it."""
    said = f"{said_of_prediction(explanation)}."
    familiarity = f"Familiarity: {explanation.familiarity:.4g} (0 is far from every prototype)."
    parts = [said, familiarity, said_of_dominance(explanation), "", *_laid_out(class_lines(explanation))]
    if explanation.contributions:
        parts += ["", *_laid_out(prototype_lines(explanation), most=len(explanation.contributions))]
    if features := feature_lines(explanation):
        parts += ["", COMPARED, *_laid_out(features)]
    return "\n".join(parts)


def _laid_out(lines: Lines, most: int = MOST_LINES) -> list[str]:
    """The lines with columns one under the other, as many as fit, and what was left out."""
    shown, rest = lines[: most + 1], len(lines) - most - 1
    columns = [_aligned(cells) for cells in zip(*shown, strict=True)]
    while len(columns) > 3 and sum(len(cells[0]) + 2 for cells in columns) > WIDTH:
        columns.pop()
    found = ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]
    return [*found, f"and {rest:,} more"] if rest > 0 else found


def _aligned(cells: Sequence[str]) -> list[str]:
    width, first = max(map(len, cells)), cells[0]
    to_the_left = first in ("", "class", "feature")
    return [cell.ljust(width) if to_the_left else cell.rjust(width) for cell in cells]
