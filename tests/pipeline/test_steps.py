"""A step is one file: its command, its place in pipeline files and their schema, and its page in the reference."""

import json
import os
import re
import subprocess
import sys
import typing
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer
from support.errors import refused

from protodask.cli import app
from protodask.pipeline import steps
from protodask.pipeline.file.places import settings_of_places, settings_that_do_not_count
from protodask.pipeline.file.reference import default_in_files, pipeline_schema, reference
from protodask.pipeline.file.values import convert, key_of, parse_record
from protodask.pipeline.steps import STEPS
from protodask.pipeline.steps.base import Place, Step, option_of, plain_hint
from protodask.pipeline.steps.fit import FitStep
from protodask.pipeline.steps.training import CONFIG_NAMES
from protodask.pipeline.telling.result import Result
from protodask.pipeline.work.settings import SETTINGS
from protodask.prototypes import FitConfig

NOT_OF_STEPS = {
    *("memory_limit", "threads", "scheduler", "workers", "tls_ca", "tls_cert", "tls_key", "insecure", "quiet"),
    *("detach", "as_json", "debug", "help"),
    "append",  # which a pipeline would repeat
}

REFERENCE = Path(__file__).parents[2] / "pipelines" / "REFERENCE.md"


@pytest.mark.parametrize("name", STEPS)
def test_steps__have_the_options_of_their_commands(name: str) -> None:
    command: Any = typer.main.get_command(app)
    for word in STEPS[name].command_words():
        command = command.commands[word]
    options = {option.name: option for option in command.params}
    assert {field.name for field in fields(STEPS[name])} == options.keys() - NOT_OF_STEPS
    assert all(option.help for option in options.values())


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_steps__may_replace_what_they_write_or_add_to_it(step: type[Step]) -> None:
    adds = step.grows is not Step.grows
    assert adds or not settings_of_places(step, Place.WRITTEN) or "overwrite" in {field.name for field in fields(step)}


@pytest.mark.parametrize(("kind", "name"), [(Step, "news"), (Step, "subject"), (Result, "notes"), (Result, "told")])
def test_steps_and_results__refuse_fields_that_hide_methods(kind: type, name: str) -> None:
    with pytest.raises(TypeError, match=name):
        type("Mine", (kind,), {"__annotations__": {name: str}})


@pytest.mark.parametrize("record", STEPS.values(), ids=STEPS)
def test_reference__shows_defaults_that_a_file_may_have(record: type[Step]) -> None:
    hints = typing.get_type_hints(record, include_extras=True)
    for field in fields(record):
        hint = plain_hint(hints[field.name])
        shown = default_in_files(option_of(hints[field.name]), field, hint)
        if not shown or re.search("[a-z] ", shown):  # in words, as it depends on the data
            continue
        value = shown[1:-1].split(", ") if shown[0] == "[" else shown
        convert(value, hint, field.name)


def test_steps__are_listed_in_their_order() -> None:
    assert tuple(STEPS) == steps.ORDER


def test_reference__is_the_one_that_is_shipped() -> None:
    assert REFERENCE.read_text() == reference()


def test_settings__are_those_of_a_fit() -> None:
    assert {CONFIG_NAMES.get(name, name) for name in SETTINGS} == {
        "recipe",
        *(field.name for field in fields(FitConfig)),
    }
    assert set(SETTINGS) <= {field.name for field in fields(FitStep)}


PROFILE = '''
"""The step `profile`: how large a file is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from protodask.pipeline.telling.events import Listener, nobody
from protodask.pipeline.telling.result import Result, Table, Piece
from protodask.pipeline.steps.base import Argument, Option, Overwrite, Panel, Read, Step, Written


@dataclass(frozen=True)
class ProfileWritten(Result):
    path: str
    sizes: dict[str, int]

    def describe(self) -> dict[str, Any]:
        return {"kind": "profile", "path": self.path, "sizes": self.sizes}

    def summary(self) -> str:
        return f"The profile {self.path} is of {len(self.sizes)} files."

    def told(self) -> Iterator[Piece]:
        yield self.summary()
        yield Table(["file", "bytes"], [[name, str(size)] for name, size in self.sizes.items()])


@dataclass(frozen=True)
class ProfileStep(Step):
    """Say how large files are."""

    command = "profile"
    panel = Panel.DATA
    writes_files = True

    sources: Annotated[tuple[Read, ...], Argument("Files.", "FILE...")]
    out: Annotated[Written, Option("JSON file to write.", "FILE")]
    units: Annotated[tuple[int, ...], Option("Bytes of a unit. Repeatable.", "N")] = ()
    overwrite: Overwrite = False

    def perform(self, engine: Any, listen: Listener = nobody) -> ProfileWritten:
        unit = sum(self.units, 0) or 1
        sizes = {place: len(Path(place).read_bytes()) // unit for place in self.sources}
        Path(self.out).write_text(json.dumps(sizes))
        return ProfileWritten(self.out, sizes)

    def subject(self) -> str:
        return f"{', '.join(self.sources)} into {self.out}"
'''

PIPELINE = """
steps:
  - profile: {sources: [a.txt, b.txt], units: 2, out: sizes.json}
"""

IN_ONE_PROCESS = """
import sys
from importlib.util import find_spec, module_from_spec
spec = find_spec("protodask.pipeline.steps")
spec.submodule_search_locations.append(sys.argv[1])  # as if the file lay there
module = sys.modules[spec.name] = module_from_spec(spec)
spec.loader.exec_module(module)
from protodask.cli import app
for line in sys.argv[2:]:
    if line == "change":
        with open("sizes.json") as sizes, open("a.txt", "w") as file:
            print("\\nBefore:", sizes.read(), flush=True)
            file.write("and more")
    else:
        assert not app(line.split(), standalone_mode=False), line
"""


def test_new_step__is_one_file(tmp_path: Path) -> None:
    """A stranger's step has a command with help, works in a pipeline, is told when it is stale, and in the schema."""
    package = tmp_path / "more"
    package.mkdir()
    (package / "profile.py").write_text(PROFILE)
    (tmp_path / "a.txt").write_text("four")
    (tmp_path / "b.txt").write_text("six666")
    (tmp_path / "p.yaml").write_text(PIPELINE)

    lines = [
        *("profile --help", "profile a.txt --out alone.json --units 1 --units 1", "run p.yaml", "run p.yaml"),
        *("run --schema", "change", "profile a.txt --out again.json", "run p.yaml", "run --reference"),
    ]
    done = subprocess.run(
        [sys.executable, "-c", IN_ONE_PROCESS, str(package), *lines],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    told, later = done.stdout.split("\nBefore: ")
    assert "Say how large files are." in told
    assert json.loads((tmp_path / "alone.json").read_text()) == {"a.txt": 2}
    said = told.index("The profile alone.json is of 1 files.")
    assert said < told.index("a.txt", said)
    assert "The profile sizes.json is of 2 files." in told
    assert "There is nothing to do" in told
    schema = json.loads(told[told.index('{\n  "$schema"') :])
    assert schema["$defs"]["step-profile"]["properties"]["units"]["description"] == "Bytes of a unit."
    assert json.loads(later.splitlines()[0]) == {"a.txt": 2, "b.txt": 3}
    assert "## profile" in later
    assert json.loads((tmp_path / "sizes.json").read_text()) == {"a.txt": 4, "b.txt": 3}


def with_least() -> list[tuple[str, str, float]]:
    """Steps, settings and their smallest values."""
    return [
        (command, name, option.least)
        for command, step in STEPS.items()
        for name, hint in typing.get_type_hints(step, include_extras=True).items()
        if (option := option_of(hint)) is not None and option.least is not None
    ]


@pytest.mark.parametrize(("command", "name", "least"), with_least())
def test_settings__keep_to_their_smallest_value_in_files_and_in_the_schema(
    command: str, name: str, least: float
) -> None:
    step = STEPS[command]
    below = int(least - 1)
    with refused("bad-setting", key_of(name), int(least), below):
        parse_record(step, {name: below}, "step 1")
    said = pipeline_schema()["$defs"][f"step-{command}"]["properties"][key_of(name)]
    assert said["minimum"] == least


def test_settings__that_do_not_count() -> None:
    found = {name for step in STEPS.values() for name in settings_that_do_not_count(step)}
    assert found == {"overwrite", "settle", "accept"}
