"""The JSON Schema of pipeline files: it takes what the reader takes, and refuses what it refuses."""

import dataclasses
import json
import typing
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner

from protodask.cli import app
from protodask.errors import InputError
from protodask.pipeline.file.definition import read_pipeline
from protodask.pipeline.file.reference import pipeline_schema
from protodask.pipeline.file.values import is_required, key_of
from protodask.pipeline.steps import STEPS

FOLDER = Path(__file__).parents[2] / "pipelines"
SHIPPED = FOLDER / "pipeline.schema.json"


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = pipeline_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_schema__is_the_one_that_is_shipped() -> None:
    assert json.loads(SHIPPED.read_text()) == pipeline_schema()


def test_schema__is_printed_by_the_command() -> None:
    done = CliRunner().invoke(app, ["run", "--schema"])
    assert done.exit_code == 0
    assert json.loads(done.stdout) == pipeline_schema()


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.name)
def test_schema__takes_the_files_that_come_with_the_package(path: Path, validator: Any) -> None:
    validator.validate(yaml.safe_load(path.read_text()))


@pytest.mark.parametrize(
    "steps",
    [
        "[{fit: {data: a, out: b}}]",
        "[{name: m, fit: {data: a, out: b, lambda-v: 1e-3, batches: 2}}, {predict: {model: '${m}', data: c, out: d}}]",
        "[{ingest: {sources: a.csv, out: b, ordinal: {size: [s, m]}, new: '${flag}'}}]",
        "[{ingest: {sources: [a.csv, b.csv], out: 5}}]",
        "[{gate: {results: a, limits: {x: {least: 1, most: 2.5}}, if-no: stop}}]",
        "[{tune: {data: a, out: b, lambda-v-range: [1e-5, 0.1], seed: null}}]",
        "[]",
        "{}",
        "[{fit: {data: a}}]",
        "[{fit: {data: a, out: b, lambda: 1}}]",
        "[{fit: {data: a, out: b, batches: 1.5}}]",
        "[{fit: {data: a, out: b, batches: many}}]",
        "[{fit: {data: a, out: b, lambda-v: small}}]",
        "[{fit: {data: a, out: b, overwrite: 1}}]",
        "[{fit: {data: [a], out: b}}]",
        "[{fit: {data: true, out: b}}]",
        "[{fit: {data: a, out: b}, predict: {model: a, data: b, out: c}}]",
        "[{name: a b, fit: {data: a, out: b}}]",
        "[{sample-data: {kind: chess, rows: 5, out: a}}]",
        "[{gate: {results: a, limits: {x: {leest: 1}}}}]",
        "[{unknown: {}}]",
        "[fit]",
    ],
)
def test_schema__agrees_with_the_reader(steps: str, validator: Any, tmp_path: Path) -> None:
    text = f"variables: {{flag: true}}\nsteps: {steps}\n"
    path = tmp_path / "p.yaml"
    path.write_text(text)
    try:
        read_pipeline(str(path))
        taken = True
    except InputError:
        taken = False
    assert validator.is_valid(yaml.safe_load(text)) == taken


SAMPLES: tuple[Any, ...] = (
    1,
    1.5,
    "x",
    "1",
    "1_0",
    "1.5",
    "1e-3",
    ".5",
    "1.",
    "01",
    "nan",
    ".nan",
    "-.inf",
    "yes",
    "maybe",
    True,
    None,
    [],
    {},
)
SAMPLES_OF_MORE = (
    [1, 2],
    [1e-5, "1e-3"],
    [1, 2, 3],
    ["x", "${text}"],
    {"a": 1},
    {"a": ["x"]},
    {"a": {"least": 1}},
    "${text}",
)
FIELDS = {
    str(hint): (kind, name) for kind, record in STEPS.items() for name, hint in typing.get_type_hints(record).items()
}
"""A field of each type."""


@pytest.mark.parametrize(("kind", "name"), FIELDS.values(), ids="-".join)
def test_schema__agrees_with_the_reader_on_any_value(kind: str, name: str, validator: Any, tmp_path: Path) -> None:
    needed = {
        key_of(field.name): _some(typing.get_type_hints(STEPS[kind])[field.name])
        for field in dataclasses.fields(STEPS[kind])
        if is_required(field)
    }
    path = tmp_path / "p.yaml"
    for value in (*SAMPLES, *SAMPLES_OF_MORE):
        content = {"variables": {"text": "t"}, "steps": [{kind: {**needed, key_of(name): value}}]}
        path.write_text(json.dumps(content))
        try:
            read_pipeline(str(path))
            taken = True
        except InputError:
            taken = False
        if value == "${text}" and not taken:
            continue  # what a variable holds no schema knows
        assert validator.is_valid(content) == taken, value


def _some(hint: Any) -> Any:
    options = typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()
    return options[0] if options else 1
