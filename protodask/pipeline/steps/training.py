"""Settings that trainings have in common."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from protodask.errors import InputError
from protodask.pipeline.steps.base import Option, Read, Step
from protodask.places import mask

TRAINING = "Settings of the training"
RUN = "The run"

CONFIG_NAMES = {"batches": "n_batches", "candidates": "n_candidates", "average_draws": "n_draws"}
"""Settings of a training with another name outside than in `FitConfig`."""

Config = Annotated[Read | None, Option("YAML file with such settings; those given otherwise win.", "FILE", panel=RUN)]
RunDir = Annotated[
    str | None,
    Option(
        "Keep the record from which the same command goes on in this local folder. Without it, that is the model's "
        "place with .run at its end, and removed when all is done; needed if the model goes to a URL.",
        "DIR",
        panel=RUN,
    ),
]


def said(help: str, shown: str, metavar: str | None = None, panel: str = TRAINING) -> Option:
    """A setting without a default here: what is not given comes from `config`, or else from the training itself."""
    return Option(help, metavar, shown, panel)


def _either(help: str, flag: str) -> Option:
    """The same of a truth value, by an option for each: true where nothing is given."""
    return replace(said(help, flag.partition("/")[0].removeprefix("--")), flag=flag)


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Settings of a training; None is what was not said, and is then what the recipe says."""

    recipe: Annotated[
        Literal["averaged", "source"] | None,
        said(
            'What settings are that are not given. "source": one draw of 1,000 candidates that share feature weights, '
            "of features as they are, trained on all other rows.",
            "averaged",
        ),
    ] = None
    average_draws: Annotated[
        int | None,
        said(
            "Draws of candidates, each trained by itself; the model is their mean.",
            "4; 2 of more than 2,000 rows; 1 of more than 48,000, of many classes of fewer",
        ),
    ] = None
    hold_out: Annotated[
        float | None,
        said(
            "Share of the rows that a draw does not train on until it finishes: it keeps what loses least on them. 0: "
            "all are trained on, up to the optimum.",
            "0.2",
        ),
    ] = None
    finish: Annotated[
        bool | None,
        _either(
            "Go on from there for a while on all rows, also those held out, the longer the less these lose, or end.",
            "--finish/--no-finish",
        ),
    ] = None
    feature_weights: Annotated[
        Literal["shared", "class", "both"] | None,
        said(
            "By all prototypes of a batch, or by those of each class: a batch for each, trained together as a round; "
            "or draws take turns, the first by class, and by its regions where rules over several features decide.",
            "both",
        ),
    ] = None
    feature_forms: Annotated[
        Literal["plain", "scores", "both", "all"] | None,
        said(
            "Numbers as they are, as normal scores, which heavy tails and lumps do not harm, in both forms, or in "
            "all: with levels, which rise where classes change, and differences of those that go together.",
            "all",
        ),
    ] = None
    candidates: Annotated[
        int | None, said("Rows tried as prototypes.", "by the numbers of rows and classes, 500 to 8,000")
    ] = None
    most_candidates: Annotated[
        int | None,
        said(
            "Up to which these grow, after some iterations, where more of them tell classes apart better.",
            "4,000, or fewer of more than 830 features, where candidates are not given and rows are fewer than 12,288",
        ),
    ] = None
    max_fraction: Annotated[float | None, said("Largest share of like rows that may become candidates.", "0.5")] = None
    lambda_w: Annotated[
        float | None, said("Penalty on the prototype weights; with the recipe source, 1e-08.", "1e-10")
    ] = None
    alpha_v: Annotated[float | None, said("Share of the l2 part in the penalty on feature weights.", "0.95")] = None
    alpha_w: Annotated[float | None, said("Share of the l2 part in the penalty on prototype weights.", "0.95")] = None
    standardize: Annotated[
        bool | None,
        _either(
            "Units of the feature weights: standard deviations, or those of the data.", "--standardize/--raw-units"
        ),
    ] = None
    weighted: Annotated[
        bool | None,
        _either("Rows count by the weights and inclusions of the dataset, or once each.", "--weighted/--unweighted"),
    ] = None
    progressive: Annotated[
        bool | None,
        _either(
            "Begin with small steps where rows are many and some held out, or look at all of them from the start.",
            "--progressive/--all-rows",
        ),
    ] = None
    leave_one_out: Annotated[
        bool | None,
        _either(
            "Train on rows that are candidates as well, of which none looks at itself in its round, or leave them out.",
            "--leave-one-out/--leave-candidates-out",
        ),
    ] = None
    precision: Annotated[
        Literal["auto", "float32", "float64"] | None,
        said("Of the kernel; sums are float64 in any case.", "float64 up to 500 rows, float32 beyond"),
    ] = None
    tolerance: Annotated[
        float | None, said("Stop when ten iterations improve by less each, as a share of the objective.", "3e-06")
    ] = None
    max_iterations: Annotated[int | None, said("Iterations of a batch at most.", "5000")] = None
    seed: Annotated[int | None, said("Of the draw of candidates.", "0")] = None


@dataclass(frozen=True, kw_only=True)
class FitSettings(TrainingSettings):
    """All settings of a fit as files and the command line name them, also those that every search chooses."""

    batches: Annotated[int | None, said("Rounds of batches to add.", "1")] = None
    lambda_v: Annotated[
        float | None, said("Penalty on the feature weights; with the recipe source, 0.001.", "0.0001")
    ] = None


@contextmanager
def record_of_run(step: Training) -> Iterator[str]:
    """The folder of the record from which a training goes on. Of a disk that is full there it is told whose it is."""
    from protodask.data.places.locations import full_disk_of, locate

    where = locate(step.out)
    written = f"writing the record of the run, which lies beside {mask(where)}"
    if step.run_dir is not None:
        written = f"writing the record of the run in {mask(step.run_dir)}"
    place = locate(run_directory(where, step.run_dir))
    remedy = "Free some space, or name a folder where there is more with `run_dir`, and repeat."
    with full_disk_of(place, written, remedy):
        yield place


class Training(Step):
    """A step that goes on inside, from its record: a run directory of its own, or one beside what it writes."""

    data: str
    out: str
    run_dir: str | None


def run_directory(out: str, run_dir: str | None) -> str:
    """Where the record goes from which a fit goes on. Refused: none is named, and there is no place beside `out`."""
    from protodask.data.places.locations import is_url, locate

    if run_dir is not None:
        return run_dir
    if is_url(locate(out)):
        raise InputError(
            "not-local",
            f"The model goes to the URL {mask(out)}, and the record from which a fit goes on needs a local folder.",
            "Name one with `run_dir`.",
        )
    return f"{out.rstrip('/')}.run"
