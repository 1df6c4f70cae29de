"""The step `budget`: which features are worth their cost within any budget."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from protodask.errors import count
from protodask.pipeline.steps.base import Option, Overwrite, Panel, Read, Written
from protodask.pipeline.steps.fit import Data
from protodask.pipeline.steps.training import RUN, Config, FitSettings, Training
from protodask.pipeline.telling.events import Listener, nobody
from protodask.pipeline.telling.result import MOST_LINES, Piece, Result, Table, plain, shorten
from protodask.places import mask

if TYPE_CHECKING:
    from protodask.budget.column_index import ColumnBudget
    from protodask.budget.greedy_index import GreedyIndex
    from protodask.engine import Engine


MOST_REASONS = 5
"""Why sets failed; --json has all."""


@dataclass(frozen=True, eq=False)
class BudgetBuilt(Result):
    """An index of sets of features with their models lies at `path`."""

    path: str
    budget: ColumnBudget
    compared: Mapping[str, GreedyIndex]
    """Other methods by name, where they were asked for."""
    plot: str | None
    notes: tuple[str, ...] = ()

    def summary(self) -> str:
        index = self.budget.index
        models = sum(model is not None for model in self.budget.models)
        of = 2**index.curves.n_features
        failed = f", {len(index.failures):,} of them in vain" if index.failures else ""
        return (
            f"The budget {shorten(self.path)} has {count(models, 'model')}: {index.expanded:,} of {of:,} sets of "
            f"features were expanded{failed}, {count(len(index.sets), 'candidate')} and "
            f"{count(index.n_entries, 'entry', 'entries')} of the index are left."
        )

    def told(self) -> Iterator[Piece]:
        described = self.describe()
        yield from told_answers(described["answers"])
        yield ""
        for name, other in self.compared.items():
            yield f"{name}: {count(other.expanded, 'set')} expanded, {count(other.n_entries, 'entry', 'entries')}"
        if self.compared:
            yield ""
        yield self.summary()
        yield f"It has {guarantee_text(described)}."
        reasons = Counter(one.failure or "" for one in self.budget.index.failures)
        for reason, times in reasons.most_common(MOST_REASONS):
            yield f"Failed, {count(times, 'set')}: {reason}"
        if self.plot is not None:
            yield f"The plot is {shorten(self.plot)}."
        yield from self.told_notes()

    def describe(self) -> dict[str, Any]:
        from protodask.pipeline.inspecting.budget import describe_index

        index = self.budget.index
        return {
            "kind": "budget",
            "path": mask(self.path),
            **describe_index(index, self.budget.features.columns),
            "models": sum(model is not None for model in self.budget.models),
            "methods": [
                {"name": name, "expanded": other.expanded, "entries": other.n_entries}
                for name, other in self.compared.items()
            ],
            "plot": plain(self.plot),
            "notes": list(self.notes),
        }


def guarantee_text(described: Mapping[str, Any]) -> str:
    """What an index promises: as accuracies were estimated and, where their noise is known, in truth."""
    guarantee, margin = described["guarantee"], described["margin"]
    sure = f"with {described['confidence']:.0%} confidence"
    finite = 0.0 if guarantee is None or math.isinf(guarantee) else guarantee
    if guarantee != finite or not described["guaranteed"]:
        if margin is None:
            return "no guarantee"
        more = f"{finite + margin:.4g} more accurate"
        return f"no guarantee; {sure} no set within the budget that was tried is in truth more than {more}"
    said = (
        f"answers at most {guarantee:.4g} less accurate than the best set within the budget"
        if guarantee
        else "an answer as accurate as the best set for every size and budget"
    )
    return said if margin is None else f"{said}, and {sure} in truth at most {guarantee + margin:.4g} less accurate"


def told_answers(answers: Sequence[Mapping[str, Any]]) -> Iterator[Piece]:
    """The choices at a few sizes."""
    most = MOST_LINES // max(len(answers), 1)
    header = ["size", "budget", "accuracy", "features"]
    rows = [
        [f"{one['size']:.6g}", f"{best['cost']:.6g}", f"{best['accuracy']:.4f}", names_of(best["features"])]
        for one in answers
        for best in spread(one["choices"], most)
    ]
    first = 0 if len(answers) > 1 else 1
    yield Table(header[first:], [row[first:] for row in rows], whole=True)
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


_exploring = partial(Option, panel="The sets of features")


@dataclass(frozen=True)
class BudgetStep(FitSettings, Training):
    """Cross-validate models on sets of features, and index the best ones by size and budget, with their models.

    A set costs what its features cost together. With the same --run-dir, other costs, sizes, --alpha or --most-fits use
    again what is known of the sets.
    """

    command = "budget"
    panel = Panel.COMPANIONS
    words = ("budget", "build")
    about = "{data} with {costs} into {out}"

    data: Data
    costs: Annotated[
        Read,
        Option(
            "What features cost on an item of size n: `sizes: [LOW, HIGH]` and `features:` with a column's name and "
            "the coefficients [c0, c1, ...] of c0 + c1 n + ..., or a name with `columns:` and `cost:`.",
            "FILE.yaml",
        ),
    ]
    out: Annotated[Written, Option("Folder for the index and its models.", "INDEX")]
    alpha: Annotated[
        float, _exploring("How much less accurate than the best set an answer may be: a larger X saves fits.", "X")
    ] = 0.0
    monotone_error: Annotated[
        float, _exploring("How much less accurate a model may become where features are added.", "X")
    ] = 0.0
    diminishing_returns: Annotated[
        bool,
        _exploring(
            "Take it that a feature adds no more to a set than to a part of it, which saves fits; not so for features "
            "that are of use only together."
        ),
    ] = False
    search: Annotated[
        Literal["all", "greedy"] | None,
        _exploring(
            "Which sets are cross-validated: all that may be needed for --alpha, or those that greedy sequences come "
            "by, at a fraction of the fits and without a guarantee.",
            shown="all, of more than 22 features greedy",
        ),
    ] = None
    folds: Annotated[int, _exploring("Parts that are held out, one at a time.", "K")] = 5
    most_fits: Annotated[
        int | None, _exploring("Cross-validate no more than N sets; the result says what it guarantees.", "N")
    ] = None
    plot: Annotated[
        Written | None, Option("Draw accuracy against budget, into a file ending in .png, .svg or .pdf.", "FILE")
    ] = None
    compare: Annotated[bool, Option("Make greedy sequences as well, and draw them beside the index.")] = False
    config: Config = None
    run_dir: Annotated[
        str | None,
        Option(
            "Keep the record from which the same command goes on in this local folder. Without it, that is the index's "
            "place with .run at its end, and removed when all is done.",
            "DIR",
            panel=RUN,
        ),
    ] = None
    overwrite: Overwrite = False

    def check(self) -> None:
        from protodask.pipeline.work.budget import check_budget

        check_budget(self)

    def perform(self, engine: Engine, listen: Listener = nobody) -> BudgetBuilt:
        from protodask.pipeline.work.budget import build_budget

        return build_budget(self, engine, listen)
