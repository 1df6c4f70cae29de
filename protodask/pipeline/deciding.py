"""The step that decides on predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protodask.decisions.losses import Loss, as_loss
from protodask.errors import InputError
from protodask.pipeline.steps import DecideStep

if TYPE_CHECKING:
    from protodask.engine import Engine
    from protodask.pipeline.results import DecisionsWritten

F_BETA = "f_beta"


def decide_step(step: DecideStep, engine: Engine) -> DecisionsWritten:
    """Decide on predictions and write the decisions."""
    from protodask.decisions.stored import decide_stored
    from protodask.pipeline.results import DecisionsWritten

    found = decide_stored(
        step.predictions,
        step.out,
        step_loss(step),
        method=step.method,
        group=step.group,
        label=step.positive,
        probability=step.probability,
        per_row=step.per_row,
        engine=engine,
        overwrite=step.overwrite,
    )
    return DecisionsWritten(found)


def step_loss(step: DecideStep) -> Loss:
    """The loss that the settings mean."""
    if step.beta is not None and step.coefficients is not None:
        raise InputError(
            "settings-conflict", "Both beta and coefficients are given.", "Give one: either makes a loss of its own."
        )
    if step.beta is not None:
        if step.loss not in (None, F_BETA):
            raise InputError(
                "settings-conflict",
                f"beta is given with the loss {step.loss!r}.",
                f"Leave the loss out, or write {F_BETA}: beta is for it.",
            )
        return Loss.f_beta(step.beta)
    if step.coefficients is not None:
        if step.loss is not None:
            raise InputError(
                "settings-conflict",
                f"Coefficients are given with the loss {step.loss!r}.",
                "Leave one out: they are a loss of their own.",
            )
        return Loss.linear_fractional(*_coefficients(step.coefficients))
    if step.loss == F_BETA:
        raise InputError("setting-missing", f"The loss is {F_BETA}, and beta is not given.", "Add beta, such as 2.")
    return as_loss("f1" if step.loss is None else step.loss)


def _coefficients(text: str) -> tuple[list[float], list[float]]:
    """Of numerator and denominator, from "c0,c1,c2,c3/d0,d1,d2,d3"."""
    try:
        above, below = ([float(number) for number in part.split(",")] for part in text.split("/"))
    except ValueError as error:
        raise InputError(
            "bad-setting",
            f"The coefficients are {text!r}.",
            "Write them like 0,-2,1,1/0,-1,1,1: of 1, u, v and p above and below.",
        ) from error
    return above, below
