"""The step `gate`: yes or no, to figures or to a model beside the champion."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from protodask.errors import InputError
from protodask.pipeline.steps.base import Answering, Option, Overwrite, Panel, Read, Written
from protodask.pipeline.steps.rows import KnownRows
from protodask.pipeline.telling.result import Piece, Result, Table, plain, value_text
from protodask.places import mask

if TYPE_CHECKING:
    from protodask.engine import Engine
    from protodask.evaluation.paired import Comparison
    from protodask.pipeline.work.limits import GateFigure


@dataclass(frozen=True)
class GateAnswered(Result):
    """A gate said yes or no."""

    passed: bool
    reasons: tuple[str, ...]
    """Full sentences: of a no what speaks against it, of a yes what speaks for it."""
    accepted: bool
    """Whether this is a no that the step was told to accept."""
    figures: tuple[GateFigure, ...]
    comparison: dict[str, Any] | None
    """Of a model with the champion that it would replace, as plain values."""
    results: str | None
    """The file of results that the figures are of."""
    path: str | None
    """Where the answer lies, too."""

    @property
    def refused(self) -> tuple[str, ...]:
        return () if self.passed or self.accepted else self.reasons

    def summary(self) -> str:
        return " ".join((self._answer(), *self.reasons))

    def told(self) -> Iterator[Piece]:
        yield self._answer()
        yield from (f"- {reason}" for reason in self.reasons)
        if self.figures:
            yield ""
            rows = [
                [
                    figure.name,
                    *("-" if one is None else value_text(one) for one in (figure.value, *astuple(figure.limit))),
                    "no" if figure.reason else "yes",
                ]
                for figure in self.figures
            ]
            yield Table(["figure", "value", "least", "most", "within"], rows, whole=True)
        yield from self.told_place("The answer is", self.path)

    def _answer(self) -> str:
        if self.passed:
            return "The gate says yes."
        return "The gate says no, which is accepted." if self.accepted else "The gate says no."

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "gate",
            "passed": self.passed,
            "accepted": self.accepted,
            "reasons": list(self.reasons),
            "results": plain(self.results),
            "figures": [
                {"name": figure.name, "value": figure.value, **asdict(figure.limit), "passed": figure.reason is None}
                for figure in self.figures
            ],
            "comparison": self.comparison,
        }


@dataclass(frozen=True)
class Limit:
    """What a figure must keep to."""

    least: float | None = None
    most: float | None = None


def parse_limits(texts: Sequence[str]) -> dict[str, Limit]:
    """Limits from texts such as "accuracy>=0.8"; two of one figure, one of each kind, are taken together."""
    found: dict[str, Limit] = {}
    for text in texts:
        at, sign = max((text.rfind(sign), sign) for sign in ("<=", ">="))
        name, given = text[:at].strip(), text[at + 2 :].strip()
        try:
            value = float(given)
        except ValueError:
            value = math.nan
        if at < 1 or not name or not math.isfinite(value):
            raise InputError(
                "bad-setting", f"{text!r} is no limit.", "Write it like drift.largest<=0.25 or accuracy>=0.8."
            )
        before = found.get(name, Limit())
        if (before.least if sign == ">=" else before.most) is not None:
            raise InputError(
                "named-twice", f"The figure {name!r} has two limits of one kind.", "Give the narrower one."
            )
        found[name] = Limit(value, before.most) if sign == ">=" else Limit(before.least, value)
    return found


_of_figures = partial(Option, panel="Figures within limits")
_of_models = partial(Option, panel="A model beside the champion")


@dataclass(frozen=True)
class GateStep(KnownRows, Answering):
    """Decide: do figures keep to their limits, is a model better than the champion by more than noise?

    Exit code 0 for yes, 3 for no. The models are compared by a paired bootstrap over blocks of rows.
    """

    command = "gate"
    panel = Panel.WATCH

    results: Annotated[
        Read | None, _of_figures("JSON file that evaluate, monitor or another command wrote.", "FILE")
    ] = None
    limits: Annotated[
        Mapping[str, Limit],
        _of_figures(
            "What a figure of it must keep to, such as drift.largest<=0.25 or accuracy>=0.8. Repeatable.",
            "NAME<=X",
            flag="--limit",
            in_files="What figures of it must keep to, by their names: `drift.largest: {most: 0.25}`.",
            read=parse_limits,
        ),
    ] = field(default_factory=dict)
    model: Annotated[Read | None, _of_models("The challenger.", "MODEL")] = None
    champion: Annotated[Read | None, _of_models("The model it would replace.", "MODEL")] = None
    data: Annotated[
        Read | None,
        _of_models("Rows of known classes that neither was trained on: a dataset, or raw tables or arrays.", "DATA"),
    ] = None
    metric: Annotated[Literal["log-loss", "error", "brier"], _of_models("What is to be smaller.")] = "log-loss"
    margin: Annotated[float, _of_models("By more than how much.", "X")] = 0.0
    confidence: Annotated[float, _of_models("How sure that has to be.", "P")] = 0.95
    draws: Annotated[int, _of_models("Resamples of the bootstrap.", "N")] = 1000
    seed: Annotated[int, _of_models("Of the resamples.")] = 0
    newest: Annotated[int | None, _of_models("Compare on so many rows at the end only.", "N")] = None
    if_no: Annotated[
        Literal["fail", "stop"], Option("In a pipeline: whether a no is a failure of the run, or only its end.")
    ] = "fail"
    accept: Annotated[bool, Option("Say so, and go on all the same.", counts=False)] = False
    out: Annotated[Written | None, Option("Write the answer to a JSON file, too.", "FILE")] = None
    overwrite: Overwrite = False

    def check(self) -> None:
        from protodask.evaluation.paired import check_bootstrap
        from protodask.pipeline.work.limits import check_limits

        if self.limits and self.results is None:
            raise InputError(
                "setting-missing",
                "There are limits, and no results to hold against them.",
                "Name a JSON file as `results`.",
            )
        if self.results is not None and not self.limits:
            raise InputError(
                "setting-missing",
                f"The figures of {mask(self.results)} have no limits.",
                "Give some with `limits`.",
            )
        compared = {"model": self.model, "champion": self.champion, "data": self.data}
        missing = [name for name, value in compared.items() if value is None]
        if len(missing) < len(compared) and missing:
            raise InputError(
                "setting-missing",
                f"For a comparison of models {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing.",
                "Give model, champion and data, or none of them.",
            )
        if self.results is None and missing:
            raise InputError(
                "setting-missing",
                "There is nothing to decide.",
                "Give results with limits, or model, champion and data, or both.",
            )
        check_limits(self.limits)
        check_bootstrap(self.margin, self.confidence, self.draws, self.newest)

    def stops_at_no(self) -> bool:
        return self.if_no == "stop"

    def accepts_no(self) -> bool:
        return self.accept

    def answer(self, engine: Engine) -> GateAnswered:
        from protodask.pipeline.work.limits import judge_figures, read_results

        figures = () if self.results is None else judge_figures(read_results(self.results), self.limits)
        against = [figure.reason for figure in figures if figure.reason is not None]
        speaking = [_kept(figures)] if figures and not against else []
        described: dict[str, Any] | None = None
        if self.model is not None and self.champion is not None and self.data is not None:
            found = self._compare(self.model, self.champion, self.data, engine)
            better = found is None or found.low > self.margin
            (speaking if better else against).append(self._reason(found, better))
            asked = ("model", "champion", "data", "metric", "margin", "confidence")
            described = {name: plain(getattr(self, name)) for name in asked}
            described |= {} if found is None else found.describe()
        passed = not against
        return GateAnswered(
            passed=passed,
            reasons=tuple(against or speaking),
            accepted=self.accept and not passed,
            figures=figures,
            comparison=described,
            results=self.results,
            path=self.out,
        )

    def _compare(self, model: str, champion: str, data: str, engine: Engine) -> Comparison | None:
        """None where there is no champion: no alias of a registry need name one yet. Other places hold a model."""
        from protodask.data import Dataset
        from protodask.data.format.schema import label_numbers, numbers_of
        from protodask.data.places.references import has_alias
        from protodask.evaluation.challenging import Rival, check_comparable, compare_models
        from protodask.prototypes.model import load_model
        from protodask.prototypes.rows_to_score import codes_of

        challenger = load_model(model)
        if not has_alias(champion):
            return None
        check_comparable(challenger, before := load_model(champion))
        known = label_numbers(before.classes, challenger.classes)
        source, classes = self.any_rows(data, challenger, [label for _, label in known], engine)
        if classes is None:
            raise InputError(
                "column-missing",
                f"The table {mask(data)} has no column {challenger.target_name!r} with the true classes.",
                "Name that column with `target`, or compare on rows of known classes.",
            )
        codes = codes_of(
            classes,
            known,
            f"The data {mask(data)} have classes that neither model knows",
            "Compare on rows of classes that one of them was trained on.",
        )
        return compare_models(
            Rival(before, numbers_of(before.classes, known)),
            Rival(challenger, numbers_of(challenger.classes, known)),
            source,
            codes,
            engine,
            grouped=isinstance(source, Dataset) and source.has_group,
            loss=self.metric,
            newest=self.newest,
            margin=self.margin,
            confidence=self.confidence,
            draws=self.draws,
            seed=self.seed,
        )

    def _reason(self, found: Comparison | None, better: bool) -> str:
        if found is None:
            return f"There is no champion at {plain(self.champion)} yet."
        relation = "above" if better else "not above"
        return (
            f"The mean {self.metric} of {plain(self.model)} is {found.challenger:.6g}, that of the champion "
            f"{found.champion:.6g}; the gain of {found.gain:.6g} is at least {found.low:.6g} with a confidence of "
            f"{self.confidence:.6g}, which is {relation} the margin of {self.margin:g}."
        )

    def subject(self) -> str:
        return f"of {' and '.join(mask(place) for place in (self.results, self.model) if place is not None)}"


def _kept(figures: Sequence[GateFigure]) -> str:
    if len(figures) == 1:
        return f"The figure {figures[0].name!r} is {figures[0].value:.6g}, within its limits."
    return f"All {len(figures)} figures are within their limits."
