"""What an index of a budget answers, in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from protodask.pipeline.telling.result import Piece, Table
from protodask.pipeline.telling.wording import MOST_LINES


def guarantee_text(described: Mapping[str, Any]) -> str:
    """What an index promises: as accuracies were estimated and, where their noise is known, in truth."""
    guarantee, margin, sure = (
        described["guarantee"],
        described["margin"],
        f"with {described['confidence']:.0%} confidence",
    )
    finite = 0.0 if guarantee is None or math.isinf(guarantee) else guarantee
    if guarantee != finite or not described["guaranteed"]:
        if margin is None:
            return "no guarantee"
        return f"no guarantee; {sure} no set that was tried is in truth more than {finite + margin:.4g} more accurate"
    said = (
        f"answers at most {guarantee:.4g} less accurate than the best set within the budget"
        if guarantee
        else "an answer as accurate as the best set for every size and budget"
    )
    return said if margin is None else f"{said}, and {sure} in truth at most {guarantee + margin:.4g} less accurate"


def told_answers(answers: Sequence[Mapping[str, Any]]) -> Iterator[Piece]:
    """The choices at a few sizes."""
    several = len(answers) > 1
    most = MOST_LINES // max(len(answers), 1)
    rows = [
        [
            *([f"{one['size']:.6g}"] if several else []),
            f"{choice['cost']:.6g}",
            f"{choice['accuracy']:.4f}",
            names_of(choice["features"]),
        ]
        for one in answers
        for choice in spread(one["choices"], most)
    ]
    yield Table([*(["size"] if several else []), "budget", "accuracy", "features"], rows, whole=True)
    left_out = sum(max(0, len(one["choices"]) - most) for one in answers)
    if left_out:
        yield f"and {left_out:,} more between them"


def spread(choices: Sequence[Any], most: int) -> list[Any]:
    """At most so many of the choices, evenly spread, the first and the last among them."""
    last = len(choices) - 1
    if last < most:
        return list(choices)
    return [choices[round(place * last / (most - 1))] for place in range(most)]


def names_of(features: Sequence[str]) -> str:
    """Features by name, if there are any."""
    return ", ".join(features) or "(none)"
