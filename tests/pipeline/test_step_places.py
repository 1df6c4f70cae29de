"""What steps read and write, however it is written."""

import os
from dataclasses import fields
from pathlib import Path
from urllib.parse import quote

import pytest
from support.errors import refused

from protodask.pipeline.file.places import (
    check_step,
    check_step_outside,
    holds,
    inputs,
    outputs,
    settings_of_places,
    takes_in,
)
from protodask.pipeline.steps import STEPS
from protodask.pipeline.steps.base import Place, Step
from protodask.pipeline.steps.fit import FitStep
from protodask.pipeline.steps.publish import PublishStep
from protodask.pipeline.steps.tune import TuneStep

READ = {
    "data", "model", "config", "start", "sources", "unless_in", "results", "champion", "reference", "predictions",
    "costs", "training", "drift", "metrics", "files",
}  # fmt: skip


@pytest.mark.parametrize("kind", STEPS.values(), ids=STEPS)
def test_places__of_every_step(kind: type[Step]) -> None:
    read, written = settings_of_places(kind, Place.READ), settings_of_places(kind, Place.WRITTEN)
    assert written[0] == ("registry" if kind is PublishStep else "out")
    assert not {*read} & {*written}
    settings = {field.name for field in fields(kind)}
    assert READ & settings == {*read}
    assert {"out", "held_out", "registry", "table", "plot"} & settings == {*written}
    assert not {"run_dir", "terms"} & {*read, *written}, "what belongs to a run is neither"


def test_places__of_a_step() -> None:
    step = PublishStep("model.zarr", "models", metrics="scores.json", files={"profile": "p.json", "notes": "n.md"})
    assert inputs(step) == ("model.zarr", "scores.json", "p.json", "n.md")
    assert outputs(step) == ("models",)
    assert inputs(FitStep("data.zarr", "model.zarr")) == ("data.zarr",)


@pytest.mark.parametrize(
    ("output", "place"),
    [
        ("models", "models"),
        ("models", "./models/"),
        ("models", "models@champion"),
        ("models", "models@champion:profile"),
        ("./models", "other/../models@7"),
        ("out", "out/part.parquet"),
        ("out", "out/*.parquet"),
        ("s3://bucket/models/", "s3://bucket/models@champion"),
        ("s3://bucket", "s3://bucket/data.zarr"),
    ],
)
def test_holds__what_is_there_in_any_words(output: str, place: str) -> None:
    assert holds(output, place)


@pytest.mark.parametrize(
    ("output", "place"),
    [("models", "models2"), ("models", "more@champion"), ("out/part.parquet", "out"), ("s3://b/a", "s3://b/ab")],
)
def test_holds__no_more(output: str, place: str) -> None:
    assert not holds(output, place)


@pytest.mark.parametrize(
    ("source", "output", "taken"),
    [
        ("inbox", "inbox/scores.parquet", True),
        ("./inbox/", "inbox/made/scores.csv.gz", True),
        (".", "scores.csv", True),
        ("inbox/*.parquet", "inbox/scores.parquet", True),
        ("inbox/**/*.csv", "inbox/a/b/scores.csv", True),
        ("inbox/**/*.csv", "inbox/scores.csv", True),
        ("inbox/*", "inbox/old.parquet/scores.csv", True),
        ("s3://bucket/inbox", "s3://bucket/inbox/scores.parquet", True),
        ("inbox", "inbox/model.zarr", False),
        ("inbox", "inboxes/scores.parquet", False),
        ("inbox/*.csv", "inbox/scores.parquet", False),
        ("inbox/*.csv", "inbox/made/scores.csv", False),
        ("inbox/*", "inbox/made/scores.csv", False),
        ("inbox/a.csv", "inbox/scores.csv", False),
        ("scores.parquet", "./scores.parquet", False),
        ("models@champion", "models/scores.parquet", False),
    ],
)
def test_takes_in__tables_among_those_that_are_read(source: str, output: str, taken: bool) -> None:
    assert takes_in(source, output) == taken


def test_holds__links_and_file_urls(tmp_path: Path) -> None:
    """A registry reached by a link would be news to the pipeline that publishes into it, each time."""
    (tmp_path / "disk" / "models").mkdir(parents=True)
    os.symlink(tmp_path / "disk" / "models", tmp_path / "models")
    real, link = str(tmp_path / "disk" / "models"), str(tmp_path / "models")
    for output, place in ((real, link), (link, real), (f"file://{quote(real)}", link)):
        assert holds(output, place)
        assert holds(output, f"{place}@champion:profile")


@pytest.mark.parametrize(("place", "begins"), [("~/m.zarr", "~"), ("$HOME/m.zarr", "$HOME"), ("~", "~")])
def test_check_step__refuses_what_only_a_shell_replaces(place: str, begins: str) -> None:
    for step in (FitStep(place, "m.zarr"), FitStep("d.zarr", place), FitStep("d.zarr", "m.zarr", run_dir=place)):
        with refused("bad-setting", place, begins, f"./{begins}"):
            check_step(step)
    check_step(FitStep(data=f"./{place}", out="~m.zarr"))


@pytest.mark.parametrize("place", ["", "  "])
def test_check_step__refuses_empty_places(place: str) -> None:
    for step in (FitStep(data=place, out="m.zarr"), FitStep(data="d.zarr", out=place)):
        with refused("setting-missing", "empty"):
            check_step(step)


def test_check__two_outputs_at_one_place(tmp_path: Path) -> None:
    place = str(tmp_path / "m")
    with refused("places-overlap", place, "two places"):
        check_step(TuneStep("d", place, table=f"{tmp_path}/./m"))
    with refused("places-overlap", place, "inside"):
        check_step(TuneStep("d", place, table=f"{place}/t.csv"))
    check_step(TuneStep("d", place, table=f"{place}.csv"))


def test_check__records_of_a_run_inside_of_its_data(tmp_path: Path) -> None:
    (tmp_path / "zarr.json").touch()
    with refused("places-overlap", tmp_path / "run", "inside", tmp_path):
        check_step_outside(FitStep(str(tmp_path), "m.zarr", run_dir=str(tmp_path / "run")))
