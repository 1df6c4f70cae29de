"""`protodask subsample`: keep a part of a dataset's rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from protodask.cli.computing import COMPUTING_HERE, Computing, perform_step
from protodask.cli.errors import WrongUseError, reported
from protodask.cli.options import Debug, Json, Overwrite, grouped
from protodask.cli.show import show_result
from protodask.cli.training import Data


@grouped
def subsample(
    data: Data,
    out: Annotated[str, typer.Option("--out", metavar="DATA", help="Where to write the dataset of the rows kept.")],
    rate: Annotated[
        list[str] | None,
        typer.Option(
            "--rate",
            metavar="LABEL=L",
            help="Probability of keeping a row of this class; classes that are not named are kept whole. Repeatable.",
        ),
    ] = None,
    budget: Annotated[
        int | None,
        typer.Option(
            "--budget",
            min=1,
            metavar="ROWS",
            help="Keep about so many rows in all, in place of --rate: of the classes as evenly as can be.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Other seeds keep other rows.")] = 0,
    overwrite: Overwrite = False,
    computing: Computing = COMPUTING_HERE,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Keep a part of a dataset's rows, drawn by class, with the probability that each was kept."""
    with reported(debug):
        from protodask.pipeline.steps import SubsampleStep

        step = SubsampleStep(data, out, parse_rates(rate or ()), budget, seed, overwrite)
        show_result(perform_step(step, computing), as_json)


def parse_rates(values: Sequence[str]) -> dict[str, float]:
    """Inclusion probabilities by label, from "LABEL=L"; a label may have equals signs itself."""
    rates: dict[str, float] = {}
    for value in values:
        label, separator, text = value.rpartition("=")
        try:
            rate = float(text)
        except ValueError:
            separator = ""
        if not separator or not label:
            raise WrongUseError("bad-setting", f"--rate {value} is no rate of a class.", "Write it like no=0.01.")
        if label in rates:
            raise WrongUseError("named-twice", f"The class {label!r} has two rates.", "Give one.")
        rates[label] = rate
    return rates
