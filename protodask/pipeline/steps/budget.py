"""The step `budget`: which features are worth their cost within any budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from protodask.pipeline.steps.base import Option, Overwrite, Panel, Read, Written
from protodask.pipeline.steps.fit import Data
from protodask.pipeline.steps.training import RUN, Config, FitSettings, Training
from protodask.pipeline.telling.events import Listener, nobody
from protodask.places import mask

if TYPE_CHECKING:
    from protodask.engine import Engine
    from protodask.pipeline.results.budget import BudgetBuilt

EXPLORING = "The sets of features"


def _exploring(help: str, metavar: str | None = None) -> Option:
    return Option(help, metavar, panel=EXPLORING)


@dataclass(frozen=True)
class BudgetStep(FitSettings, Training):
    """Cross-validate models on sets of features, and index the best ones by size and budget, with their models.

    A set costs what its features cost together. With the same --run-dir, other costs, sizes, --alpha or --most-fits use
    again what is known of the sets.
    """

    command = "budget"
    panel = Panel.COMPANIONS
    words = ("budget", "build")

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
            "that are of use only together.",
        ),
    ] = False
    search: Annotated[
        Literal["all", "greedy"] | None,
        Option(
            "Which sets are cross-validated: all that may be needed for --alpha, or those that greedy sequences come "
            "by, at a fraction of the fits and without a guarantee.",
            panel=EXPLORING,
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

    def subject(self) -> str:
        return f"{mask(self.data)} with {mask(self.costs)} into {mask(self.out)}"
