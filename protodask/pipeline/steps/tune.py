"""The step `tune`: choose hyperparameters by cross-validation and train a model with them."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from protodask.errors import count
from protodask.pipeline.steps.base import Option, Overwrite, Panel, Written
from protodask.pipeline.steps.fit import Data, ModelFitted
from protodask.pipeline.steps.training import Config, RunDir, Training, TrainingSettings, record_of_run, said
from protodask.pipeline.telling.events import Listener, SearchStarted, nobody
from protodask.pipeline.telling.result import Piece, Result, plain, shorten

if TYPE_CHECKING:
    from protodask.engine import Engine
    from protodask.selection.results import SearchResult, Trial


MOST_TRIALS = 10
"""Trials of a search that are told; --json has all."""


@dataclass(frozen=True)
class ModelTuned(Result):
    """A model whose hyperparameters were searched for, and where all trials lie, if they lie anywhere."""

    fitted: ModelFitted
    search: SearchResult
    rows: int
    """Of the data."""
    group: str | None
    """Column whose rows of one value stayed in one fold."""
    table: str | None
    notes: tuple[str, ...] = ()
    """Where a wider search may find better."""

    @property
    def seed(self) -> int:
        """Of the draw of candidates that the model has."""
        return int(self.fitted.model.provenance["fits"][-1]["config"]["seed"])

    @property
    def chosen(self) -> Trial:
        """The trial whose settings the model has."""
        return self.search.trials[self.search.selected]

    def describe(self) -> dict[str, Any]:
        chosen = self.chosen
        return {
            **self.fitted.describe(),
            "kind": "tune",
            "group": self.group,
            "table": plain(self.table),
            "chosen": {
                "lambda_v": chosen.lambda_v,
                "lambda_w": chosen.lambda_w,
                "batches": chosen.n_batches,
                "seed": self.seed,
            },
            "search": self.search.describe(),
            "notes": list(self.notes),
        }

    def summary(self) -> str:
        return f"{self.fitted.summary()} {self._choice()}"

    def told(self) -> Iterator[Piece]:
        from protodask.selection.results import as_text

        yield as_text(self.search, MOST_TRIALS)
        yield ""
        yield self.fitted.summary()
        yield self._choice()
        if self.table is not None:
            yield f"All trials are in {shorten(self.table)}."
        yield from self.told_notes()

    def _choice(self) -> str:
        """What the model is, in one line."""
        chosen, drawn = self.chosen, len(self.search.draws)
        best = f" Of {drawn} draws of candidates it is the one that fits them best (seed {self.seed})." if drawn else ""
        together = "" if self.group is None else f" Rows of the same {self.group!r} stayed in one fold."
        return (
            f"It is fitted to all {self.rows:,} rows with what was chosen: lambda_v {chosen.lambda_v:.4g}, lambda_w "
            f"{chosen.lambda_w:.4g} and {count(chosen.n_batches, 'batch', 'batches')}.{best}{together}"
        )


SEARCH = "The search"


_of_search = partial(said, panel=SEARCH)

Ends = tuple[float, float]


@dataclass(frozen=True)
class TuneStep(TrainingSettings, Training):
    """Choose penalties and the number of batches by cross-validation, and train a model with them.

    Rows of one group stay in one fold if the dataset has a column of groups (ingest --group).
    """

    command = "tune"
    panel = Panel.TRAINING
    detaches = True

    data: Data
    out: Annotated[Written, Option("Where to write the model.", "MODEL")]
    strategy: Annotated[
        Literal["joint", "two-stage"] | None,
        _of_search(
            "joint: values of lambda_v, each with as many batches as help. two-stage: pairs of lambda_v and lambda_w "
            "with one batch, then batches for the chosen pair.",
            "joint",
        ),
    ] = None
    method: Annotated[
        Literal["grid", "random"] | None,
        _of_search("Penalties in equal ratios, or spread over their ranges by the seed.", "grid"),
    ] = None
    trials: Annotated[int | None, _of_search("Penalties to try.", "7 jointly, 25 in two stages")] = None
    lambda_v_range: Annotated[
        Ends | None, _of_search("Smallest and largest penalty on the feature weights.", "0.0001 0.1", "LOW HIGH")
    ] = None
    lambda_w_range: Annotated[
        Ends | None,
        _of_search("Smallest and largest penalty on the prototype weights, in two stages.", "1e-09 0.0001", "LOW HIGH"),
    ] = None
    max_batches: Annotated[int | None, _of_search("Batches of a setting at most.", "10")] = None
    patience: Annotated[
        int | None, _of_search("Batches in a row without a gain after which a setting gets no more.", "1")
    ] = None
    least_gain: Annotated[
        float | None, _of_search("What counts as a gain, in standard errors of the mean log-loss.", "0.1")
    ] = None
    folds: Annotated[int | None, _of_search("Parts that are held out, one at a time.", "5")] = None
    rule: Annotated[
        Literal["half-a-standard-error", "one-standard-error", "best"] | None,
        _of_search(
            "Choose the simplest setting within half a standard error of the best one, within one, or the best.",
            "best, of single draws half-a-standard-error",
        ),
    ] = None
    search_tolerance: Annotated[float | None, _of_search("The tolerance of the fits of the search.", "1.11e-05")] = None
    draws: Annotated[
        int | None,
        _of_search(
            "Draws of candidates to try for the final fit; those of the smallest log-loss on all rows are kept.",
            "1; with the recipe source 5 up to 10,000 rows",
        ),
    ] = None
    config: Config = None
    run_dir: RunDir = None
    table: Annotated[Written | None, Option("Write all trials to a CSV file, too.", "FILE.csv")] = None
    overwrite: Overwrite = False

    lambda_w: Annotated[
        float | None,
        said("Penalty on the prototype weights, in the joint strategy; with the recipe source, 1e-08.", "1e-10"),
    ] = field(default=None, kw_only=True)
    tolerance: Annotated[
        float | None,
        said(
            "Of the final model: stop when ten iterations improve by less each, as a share of the objective.", "3e-06"
        ),
    ] = field(default=None, kw_only=True)
    seed: Annotated[int | None, said("Of the folds, the draw of candidates and random settings.", "0")] = field(
        default=None, kw_only=True
    )

    def check(self) -> None:
        from protodask.pipeline.work.settings import check_tuning

        check_tuning(self)

    def perform(self, engine: Engine, listen: Listener = nobody) -> ModelTuned:
        from protodask.data import Dataset
        from protodask.data.places.locations import locate
        from protodask.pipeline.work.published import check_beside, has_begun, published_model, write_beside
        from protodask.pipeline.work.settings import search_config, tuned_config
        from protodask.prototypes.persistence import model_fingerprint, save_model
        from protodask.selection.tuning import tuned

        began = time.perf_counter()
        search = search_config(self)
        config = tuned_config(self, search)
        where = locate(self.out)
        with record_of_run(self) as run_dir:
            published, resumed = published_model(where, run_dir, self.overwrite), has_begun(run_dir)
            if self.table is not None:
                check_beside(self.table, self.overwrite, run_dir)
            data = Dataset.open(self.data)
            group = data.metadata.group_name
            n_settings = len(search.settings(config.lambda_w, config.seed))
            listen(SearchStarted(search.strategy, n_settings, search.n_folds, group))
            keep = self.run_dir is not None
            with tuned(data, config, search, run_dir, engine, (listen,), listen, keep=keep) as run:
                # The table first: the model says that all is there.
                if self.table is not None:
                    write_beside(self.table, _table_text(run.search).encode(), self.overwrite)
                if model_fingerprint(run.model) != published:
                    save_model(run.model, where, overwrite=self.overwrite)
        notes = tuple(_notes_on(run.search, search.max_batches))
        fitted = ModelFitted(where, run.model, tuple(run.history), time.perf_counter() - began, resumed)
        return ModelTuned(fitted, run.search, data.n_rows, group, self.table, notes)


def _notes_on(search: SearchResult, max_batches: int) -> Iterator[str]:
    """What speaks for another search, such as a best trial on the edge of what was tried."""
    best = search.trials[search.best]
    if search.trials[search.selected].n_batches == 0:
        yield "No setting does better than the shares of the classes alone by more than the noise of the folds."
        return
    if best.n_batches == max_batches:
        batches = count(max_batches, "batch", "batches")
        yield f"The best setting has {batches}, as many as were allowed; try more with `max_batches`."
    for name in ("lambda_v", "lambda_w"):
        tried = {getattr(trial, name) for trial in search.trials}
        value = getattr(best, name)
        if len(tried) > 1 and value in (min(tried), max(tried)):
            end = "smallest" if value == min(tried) else "largest"
            yield f"The best {name}, {value:.3g}, is the {end} that was tried; widen `{name}_range` to look beyond it."


def _table_text(search: SearchResult) -> str:
    """All trials as CSV, numbers to the last bit."""
    from protodask.selection.results import as_rows

    rows = as_rows(search)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
