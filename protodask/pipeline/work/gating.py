"""The step that says yes or no: to figures of a file of results, or to a model beside the champion."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from protodask.data import Dataset, Label
from protodask.data.places.references import has_alias
from protodask.data.places.storage import check_file_free
from protodask.engine import Engine
from protodask.errors import InputError, some
from protodask.evaluation.challenging import Rival, compare_models
from protodask.evaluation.paired import Comparison
from protodask.pipeline.steps import GateStep
from protodask.pipeline.steps.gate import Challenge, GateAnswered
from protodask.pipeline.telling.json_file import written
from protodask.pipeline.work.limits import GateFigure, judge_figures, read_results
from protodask.places import mask
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.persistence import load_model

Key = tuple[type, Label]


def answer(step: GateStep, engine: Engine) -> GateAnswered:
    """Say yes or no, and why; an answer is no error, whatever it is."""
    step.check()
    if step.out is not None:
        check_file_free(step.out, step.overwrite)
    figures: tuple[GateFigure, ...] = ()
    if step.results is not None:
        figures = judge_figures(read_results(step.results), step.limits)
    against = [figure.reason for figure in figures if figure.reason is not None]
    speaking = [_kept(figures)] if figures and not against else []
    challenge = None
    if step.model is not None and step.champion is not None and step.data is not None:
        challenge = _challenge(step, step.model, step.champion, step.data, engine)
        better, reason = _judge(challenge)
        (speaking if better else against).append(reason)
    passed = not against
    answered = GateAnswered(
        passed=passed,
        reasons=tuple(against or speaking),
        accepted=step.accept and not passed,
        figures=figures,
        challenge=challenge,
        results=step.results,
        path=step.out,
        stops=step.if_no == "stop",
    )
    return written(answered, step.out, step.overwrite)


def _kept(figures: Sequence[GateFigure]) -> str:
    if len(figures) == 1:
        return f"The figure {figures[0].name!r} is {figures[0].value:.6g}, within its limits."
    return f"All {len(figures)} figures are within their limits."


def _judge(challenge: Challenge) -> tuple[bool, str]:
    found = challenge.comparison
    if found is None:
        return True, f"There is no champion at {mask(challenge.champion)} yet."
    better = found.low > challenge.margin
    relation = "above" if better else "not above"
    return better, (
        f"The mean {challenge.metric} of {mask(challenge.model)} is {found.challenger:.6g}, that of the champion "
        f"{found.champion:.6g}; the gain of {found.gain:.6g} is at least {found.low:.6g} with a confidence of "
        f"{challenge.confidence:.6g}, which is {relation} the margin of {challenge.margin:g}."
    )


def _challenge(step: GateStep, model: str, champion: str, data: str, engine: Engine) -> Challenge:
    challenger = load_model(model)
    if not champion_exists(champion):
        comparison = None
    else:
        comparison = _compare(step, challenger, load_model(champion), data, engine)
    return Challenge(model, champion, data, step.metric, step.margin, step.confidence, comparison)


def champion_exists(place: str) -> bool:
    """Whether there is a champion: no alias of a registry need name one yet. Any other place has to hold a model."""
    return has_alias(place)


def _compare(step: GateStep, challenger: PrototypeSet, champion: PrototypeSet, data: str, engine: Engine) -> Comparison:
    _check_features(challenger, champion)
    known = _joined(champion.classes, challenger.classes)
    source, classes = step.any_rows(data, challenger, [key[1] for key in known], engine)
    if classes is None:
        raise InputError(
            "column-missing",
            f"The table {mask(data)} has no column {challenger.target_name!r} with the true classes.",
            "Name that column with --target, or compare on rows of known classes.",
        )
    if unknown := [label for label in classes if (type(label), label) not in known]:
        raise InputError(
            "columns-differ",
            f"The data {mask(data)} have classes that neither model knows: {some([repr(label) for label in unknown])}.",
            "Compare on rows of classes that one of them was trained on.",
        )
    return compare_models(
        Rival(champion, _codes(champion.classes, known)),
        Rival(challenger, _codes(challenger.classes, known)),
        source,
        _codes(classes, known),
        engine,
        grouped=isinstance(source, Dataset) and source.has_group,
        loss=step.metric,
        newest=step.newest,
        margin=step.margin,
        confidence=step.confidence,
        draws=step.draws,
        seed=step.seed,
    )


def _check_features(challenger: PrototypeSet, champion: PrototypeSet) -> None:
    if challenger.feature_names == champion.feature_names:
        orders = {column.name: column.categories for column in champion.columns if column.kind == "ordinal"}
        for column in challenger.columns:
            if column.kind == "ordinal" and orders.get(column.name, column.categories) != column.categories:
                raise InputError(
                    "columns-differ",
                    f"The model has {column.name!r} in another order than the champion.",
                    "Compare models of the same encoding, or publish it without a comparison.",
                )
        return
    lacking = [name for name in champion.feature_names if name not in set(challenger.feature_names)]
    besides = [name for name in challenger.feature_names if name not in set(champion.feature_names)]
    said = [f"it lacks {some(lacking)}"] if lacking else []
    said += [f"it has {some(besides)} besides"] if besides else []
    raise InputError(
        "columns-differ",
        f"The model has other features than the champion: {' and '.join(said) or 'they are in another order'}.",
        "Compare models of the same features, or publish it without a comparison.",
    )


def _joined(first: Sequence[Label], second: Sequence[Label]) -> dict[Key, int]:
    """All classes with their numbers; True is no 1 here."""
    keys = dict.fromkeys((type(label), label) for label in (*first, *second))
    return {key: number for number, key in enumerate(keys)}


def _codes(classes: Sequence[Label], known: dict[Key, int]) -> NDArray[np.int64]:
    return np.array([known[type(label), label] for label in classes], dtype=np.int64)
