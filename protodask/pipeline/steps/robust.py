"""The steps on robust models: planes for rows whose features are known only roughly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from protodask.errors import InputError, count, some
from protodask.pipeline.steps.base import Answering, Argument, Option, Overwrite, Panel, Read, Step, Written
from protodask.pipeline.steps.fit import Data
from protodask.pipeline.steps.predict import Predictions
from protodask.pipeline.steps.rows import GivenRows, KnownRows, Rows
from protodask.pipeline.steps.training import RUN, TRAINING, RunDir, Training, record_of_run, run_directory
from protodask.pipeline.telling.events import Listener, RobustStarted, nobody
from protodask.pipeline.telling.result import Measured, Pairs, Piece, Result, shorten
from protodask.places import mask

if TYPE_CHECKING:
    from protodask.engine import Engine
    from protodask.robust.bundle import Pass
    from protodask.robust.config import RobustConfig
    from protodask.robust.measures import CertifiedSums
    from protodask.robust.model import RobustModel
    from protodask.robust.training import RowsOfColumns


@dataclass(frozen=True)
class RobustFitted(Result):
    """A robust model lies at `path`."""

    path: str
    model: RobustModel
    history: tuple[tuple[Pass, ...], ...]
    """The passes of each plane."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Why the model may not be what was wanted."""
        return tuple(_notes(self.model))

    def summary(self) -> str:
        model = self.model
        passes = count(sum(model.passes), "pass", "passes")
        return (
            f"The robust model {shorten(self.path)} has {count(len(model.weights), 'plane')} in "
            f"{count(model.n_features, 'feature')}, by {model.config.formulation} with eps {model.config.eps:g}; after "
            f"{passes}, no other has an objective smaller by more than {100 * float(model.gap.max()):.2g} per cent."
        )

    def describe(self) -> dict[str, Any]:
        from protodask.pipeline.inspecting.robust import describe_planes, describe_training

        return {
            "kind": "robust fit",
            "path": mask(self.path),
            **describe_training(self.model),
            "features": self.model.n_features,
            "planes": [
                {**plane, "history": [done.best for done in passes]}
                for plane, passes in zip(describe_planes(self.model), self.history, strict=True)
            ],
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class RobustPredicted(Result):
    """Robust predictions for `rows` rows lie at `path`."""

    kind = "robust predictions"

    path: str
    rows: int
    formulation: str
    """Whose brackets certify them."""

    def summary(self) -> str:
        rows = count(self.rows, "row")
        return f"The robust predictions {shorten(self.path)} have {rows}, certified by {self.formulation}."


@dataclass(frozen=True)
class RobustEvaluated(Measured):
    """The measures of a robust model on some rows."""

    sums: CertifiedSums
    formulation: str
    eps: float
    """At which the certified fraction is."""

    def summary(self) -> str:
        sums = self.sums
        return (
            f"The robust model is right on {1 - sums.nominal_error:.1%} of the {count(sums.count, 'row')} of "
            f"{mask(self.data)}, by the middles of what is known of them. {sums.certified_fraction:.1%} are right and "
            f"certified: whatever else is true of them, wrong with a probability of at most {self.eps:g}."
        )

    def told(self) -> Iterator[Piece]:
        sums = self.sums
        yield self.summary()
        yield ""
        yield Pairs(
            [
                ("nominal error", f"{sums.nominal_error:.6f}"),
                ("expected certified error", f"{sums.expected_certified_error:.6f}"),
                ("certified fraction", f"{sums.certified_fraction:.6f} at eps {self.eps:g}"),
                ("certified from", what_is_known(self.formulation)),
                ("certified by", ", ".join(self._by())),
            ]
        )
        yield from self.told_place("The measures are", self.path)

    def _by(self) -> Iterator[str]:
        from protodask.robust.certified import BOUNDS

        total = sum(self.sums.by)
        for bound, weight in zip(BOUNDS, self.sums.by, strict=True):
            if weight:
                yield f"{bound} ({weight / total:.0%})"

    def describe(self) -> dict[str, Any]:
        from protodask.robust.certified import BOUNDS

        return {
            "kind": "robust scores",
            "model": mask(self.model),
            "data": mask(self.data),
            "rows": self.sums.count,
            "weight": self.sums.weight,
            "nominal_error": self.sums.nominal_error,
            "expected_certified_error": self.sums.expected_certified_error,
            "certified_fraction": self.sums.certified_fraction,
            "eps": self.eps,
            "formulation": self.formulation,
            "certified_by": dict(zip(BOUNDS[1:], self.sums.by[1:], strict=True)),
        }


ROUGH = 0.01
"""Gap above which a plane without weights may be far from the best: its objective may be much above the least."""


def _notes(model: RobustModel) -> Iterator[str]:
    from protodask.pipeline.inspecting.robust import describe_planes, known_exactly

    if known_exactly(model) == model.n_features and model.config.formulation not in ("SVM", "M"):
        yield "All features count as known exactly, as no column has bounds; those of x are called x.low and x.high."
    planes = zip(describe_planes(model), model.weights, strict=True)
    empty = [plane for plane, weights in planes if not weights.any()] if model.converged else []
    free = [str(plane["class"]) for plane in empty if plane["passes"] == 0]
    rough = [str(plane["class"]) for plane in empty if plane["passes"] > 0 and plane["gap"] > ROUGH]
    dear = [str(plane["class"]) for plane in empty if plane["passes"] > 0 and plane["gap"] <= ROUGH]
    if free:
        yield (
            f"{_planes(model, free)} no weights, so that nothing is told apart: all rows on one side of it weigh "
            "nothing. Train with weighted=False, or give weights to rows of every class."
        )
    if rough:
        yield (
            f"{_planes(model, rough)} no weights, so that nothing is told apart: that was good enough for a gap of "
            f"{model.config.gap:g}. Give a smaller `gap`."
        )
    if dear:
        yield (
            f"{_planes(model, dear)} no weights, so that nothing is told apart: at eps {model.config.eps:g} any margin "
            "would cost more. Try a larger `eps` or `C`, or a formulation that uses more of what is known."
        )


def _planes(model: RobustModel, classes: Sequence[str]) -> str:
    if len(model.weights) == 1:
        return "The plane has"
    return f"The plane of {classes[0]} has" if len(classes) == 1 else f"The planes of {some(classes)} have"


Formulation = Literal["SVM", "M", "S", "MC", "SBMV", "SBMV-I", "SMV", "SMV-I", "SBM", "SBM-I", "SM", "SM-I"]
"""Those of `protodask.robust`, which takes long to import."""

KNOWS = {
    "SVM": "the middles alone",
    "M": "means alone",
    "S": "the support alone",
    "MC": "means and variances",
    "SBMV": "support, bounds of means and second moments",
    "SMV": "support, exact means and bounds of second moments",
    "SBM": "support and bounds of means",
    "SM": "support and exact means",
}
"""What the formulations use; one with "-I" uses the same."""


def what_is_known(formulation: str) -> str:
    """A formulation, and what it uses."""
    return f"{formulation}: {KNOWS[formulation.removesuffix('-I')]}"


RobustPlanes = Annotated[Read, Argument("What `protodask robust fit` wrote.", "MODEL")]
Certifying = Annotated[
    Formulation | None,
    Option(
        "What the error of a row is bounded by: all but SVM and M.",
        shown="that of the training; SBMV-I after SVM and M",
    ),
]

_of_training = partial(Option, panel=TRAINING)


@dataclass(frozen=True)
class RobustFitStep(Training):
    """Train planes of largest margin on a dataset with columns x.low, x.high and, if known, x.mean, x.second and so on.

    Other columns are features known exactly. More than two classes get a plane each, against the rest.
    """

    command = "robust-fit"
    panel = Panel.COMPANIONS
    words = ("robust", "fit")

    data: Data
    out: Annotated[Written, Option("Where to write the model.", "MODEL")]
    formulation: Annotated[
        Formulation,
        _of_training(
            "What of the columns is used: S the support, M means, MC means and variances, SBMV support and bounds of "
            "means and second moments, SBM the same without second moments, SMV and SM with exact means; -I for less "
            "cautious bounds that take longer; SVM nothing but the middles."
        ),
    ] = "SBMV"
    eps: Annotated[
        float, _of_training("Probability of error, at most, of training rows that keep the margin.", "P")
    ] = 0.1
    cost: Annotated[
        float, _of_training("Cost of a row that misses the margin, for each unit: a larger C fits more closely.", "C")
    ] = 1.0
    gap: Annotated[
        float,
        _of_training("Stop when no plane has an objective smaller by more than this share of the one found.", "X"),
    ] = 1e-4
    max_passes: Annotated[int, _of_training("Passes over the rows at most, for each plane.", "N")] = 300
    weighted: Annotated[
        bool,
        _of_training(
            "Rows count by the weights and inclusions of the dataset, or once each.", flag="--weighted/--unweighted"
        ),
    ] = True
    run_dir: RunDir = None
    terms: Annotated[
        str | None,
        Option(
            "Keep here what follows from data and formulation: further fits with another --eps or --cost find it.",
            "STORE",
            panel=RUN,
        ),
    ] = None
    overwrite: Overwrite = False

    def check(self) -> None:
        self.chosen_config()
        _check_places(self)

    def chosen_config(self) -> RobustConfig:
        """The checked settings of the fit."""
        from protodask.robust.config import RobustConfig

        return RobustConfig(self.formulation, self.eps, self.cost, self.gap, self.max_passes, self.weighted)

    def perform(self, engine: Engine, listen: Listener = nobody) -> RobustFitted:
        from protodask.data import Dataset
        from protodask.data.places.locations import locate
        from protodask.data.places.storage import check_free
        from protodask.pipeline.work.published import published_model
        from protodask.robust.cone_program import load_clarabel
        from protodask.robust.model import ROBUST_MODEL, load_robust_model, robust_fingerprint
        from protodask.robust.training import robustly_fitted

        load_clarabel()  # whether there is anything to solve with is asked before the work is done
        config = self.chosen_config()
        where = locate(self.out)
        with record_of_run(self) as run_dir:
            published = published_model(
                where, run_dir, self.overwrite, ROBUST_MODEL, lambda path: robust_fingerprint(load_robust_model(path))
            )
            if published is not None and load_robust_model(where).config != config:
                # The run may go on to a smaller gap; but its model would not take the place of this one.
                check_free(where, self.overwrite, ROBUST_MODEL)
            data = Dataset.open(self.data)
            keep = self.run_dir is not None
            listen(RobustStarted())
            with robustly_fitted(data, config, run_dir, engine, listen, self.terms, keep) as run:
                if robust_fingerprint(run.model) != published:
                    run.model.save(where, overwrite=self.overwrite)
        return RobustFitted(where, run.model, run.history)


def _check_places(step: RobustFitStep) -> None:
    """Refuse a model or terms where others write: the fit would end with no room for its model."""
    from protodask.data.places.locations import locate

    named = {"model": step.out, "run directory": run_directory(step.out, step.run_dir), "terms": step.terms}
    places = {name: locate(place) for name, place in named.items() if place is not None}
    # Terms may lie in a run directory, as they do by default.
    for name, other in (("model", "run directory"), ("model", "terms"), ("run directory", "terms"), ("terms", "model")):
        if name in places and other in places and f"{places[name]}/".startswith(f"{places[other]}/"):
            raise InputError(
                "places-overlap",
                f"The {name} {mask(places[name])} would lie in the {other} {mask(places[other])}.",
                "Choose places beside each other.",
            )


@dataclass(frozen=True)
class RobustPredictStep(GivenRows, Step):
    """Write the predicted class of each row, and a bound of the probability that its true values have another one."""

    command = "robust-predict"
    panel = Panel.COMPANIONS
    words = ("robust", "predict")
    about = "{data} with {model} into {out}"

    model: RobustPlanes
    data: Rows
    out: Predictions
    formulation: Certifying = None
    overwrite: Overwrite = False

    def check(self) -> None:
        _check_certifying(self.formulation)

    def perform(self, engine: Engine, listen: Listener = nobody) -> RobustPredicted:
        from protodask.data.places.locations import locate
        from protodask.data.tables.table_files import check_rows_free
        from protodask.prototypes.rows_to_score import rows_to_predict
        from protodask.robust.model import load_robust_model
        from protodask.robust.prediction import ROBUST_PREDICTIONS, predict_robust

        model = load_robust_model(self.model)
        where = locate(self.out)
        check_rows_free(where, self.overwrite, ROBUST_PREDICTIONS)
        source = rows_to_predict(model, self.data, engine=engine, unseen=self.unseen, drop=self.drop)
        name = model.certifying(self.formulation)
        rows = predict_robust(model, source, _rows_of(model), where, engine, formulation=name, overwrite=self.overwrite)
        return RobustPredicted(where, rows, name)


@dataclass(frozen=True)
class RobustEvaluateStep(KnownRows, Answering):
    """Measure nominal error, expected certified error and the certified fraction on rows of known classes."""

    command = "robust-evaluate"
    panel = Panel.COMPANIONS
    words = ("robust", "evaluate")
    about = "{model} on {data}"

    model: RobustPlanes
    data: Rows
    formulation: Certifying = None
    eps: Annotated[
        float | None,
        Option("Count the rows that are certified at this probability of error.", "P", shown="that of the training"),
    ] = None
    out: Annotated[Written | None, Option("Write the measures to a JSON file, too.", "FILE")] = None
    overwrite: Overwrite = False

    def check(self) -> None:
        from protodask.robust.formulations import check_eps

        _check_certifying(self.formulation)
        if self.eps is not None:
            check_eps(self.eps)

    def answer(self, engine: Engine) -> RobustEvaluated:
        from protodask.robust.measures import evaluate_robust
        from protodask.robust.model import load_robust_model

        model = load_robust_model(self.model)
        source, codes = self.known_rows(self.data, model, engine)
        name = model.certifying(self.formulation)
        eps = model.config.eps if self.eps is None else self.eps
        sums = evaluate_robust(model, source, _rows_of(model), codes, engine, formulation=name, eps=eps)
        return RobustEvaluated(self.model, self.data, sums, name, eps, path=self.out)


def _check_certifying(formulation: Formulation | None) -> None:
    if formulation is not None:
        from protodask.robust.formulations import certifying

        certifying(formulation)


def _rows_of(model: RobustModel) -> RowsOfColumns:
    """What the numbers of rows like those a model was trained on say of its features."""
    from protodask.robust.training import RowsOfColumns
    from protodask.robust.uncertain_columns import columns_of_table

    return RowsOfColumns(columns_of_table(model.columns))
