"""What steps read and write, however it is written."""

import os
from dataclasses import fields
from pathlib import Path
from urllib.parse import quote

import pytest

from protodask.pipeline.step_places import INPUTS, OUTPUTS, holds, inputs, outputs
from protodask.pipeline.steps import STEPS, FitStep, PublishStep, Step


@pytest.mark.parametrize("kind", STEPS.values(), ids=STEPS)
def test_places__are_settings_of_the_step(kind: type[Step]) -> None:
    assert {*INPUTS[kind], *OUTPUTS[kind]} <= {field.name for field in fields(kind)}
    assert not {*INPUTS[kind]} & {*OUTPUTS[kind]}


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


def test_holds__links_and_file_urls(tmp_path: Path) -> None:
    """A registry reached by a link would be news to the pipeline that publishes into it, each time."""
    (tmp_path / "disk" / "models").mkdir(parents=True)
    os.symlink(tmp_path / "disk" / "models", tmp_path / "models")
    real, link = str(tmp_path / "disk" / "models"), str(tmp_path / "models")
    for output, place in ((real, link), (link, real), (f"file://{quote(real)}", link)):
        assert holds(output, place)
        assert holds(output, f"{place}@champion:profile")
