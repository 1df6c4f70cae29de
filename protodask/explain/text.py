"""What an explanation says, line by line: for `print`, and for the command line to lay out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from protodask.explain.contributions import Explanation, FeatureMatch

Lines = list[tuple[str, ...]]
"""A header, and the cells of each line below it."""

SIDE_BY_SIDE = 6
"""Prototypes that are compared side by side."""

MOST_LINES = 20
"""Classes and features that are listed."""

WIDTH = 120
"""Letters in a line, beyond which fewer prototypes stand side by side."""


def said_of_prediction(explanation: Explanation) -> str:
    """The class, and how likely it is."""
    predicted = explanation.predicted
    return f"{predicted}, with probability {explanation.probability[explanation.classes.index(predicted)]:.3f}"


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
        lines.append((str(label), *(f"{part:.4f}" for part in (*parts, explanation.probability[position]))))
    return lines


def prototype_lines(explanation: Explanation) -> Lines:
    """The strongest prototypes."""
    lines: Lines = [("", "class", "share", "weight", "similarity", "batch", "training row")]
    for rank, item in enumerate(explanation.contributions, start=1):
        name = f"{'*' if item.dominant else ' '}#{rank}"
        numbers = (f"{item.share:.4f}", f"{item.weight:.4g}", f"{item.similarity:.4f}")
        lines.append((name, str(item.label), *numbers, str(item.batch), str(item.row)))
    return lines


def feature_lines(explanation: Explanation) -> Lines:
    """The row and the strongest prototypes feature by feature, heaviest features first; none if none is looked at."""
    matches = [{match.name: match for match in item.features} for item in explanation.contributions[:SIDE_BY_SIDE]]
    every = sorted((match for found in matches for match in found.values()), key=lambda match: -match.weight)
    values = {match.name: match.value for match in every}
    if not values:
        return []
    lines: Lines = [("feature", "this row", *(f"#{rank}" for rank in range(1, len(matches) + 1)))]
    for name, value in values.items():
        lines.append((name, value_of(value), *(_compared(found.get(name)) for found in matches)))
    return lines


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
