"""The step `publish`: a model becomes a version in a registry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from protodask.errors import FormatError, InputError, count
from protodask.pipeline.steps.base import Argument, Option, Panel, Read, Step, Written
from protodask.pipeline.telling.events import Listener, nobody
from protodask.pipeline.telling.result import Result, shorten
from protodask.places import mask

if TYPE_CHECKING:
    from protodask.engine import Engine
    from protodask.registry.registry import Published


@dataclass(frozen=True)
class ModelPublished(Result):
    """A model is a version of the registry at `path`."""

    path: str
    published: Published

    def summary(self) -> str:
        found = self.published
        number = found.version.number
        what = f"Version {number} of the registry {shorten(self.path)}"
        line = f"{what} is new." if found.added else f"{what} is this model already; none was added."
        if found.alias is not None:
            before = "" if found.replaced is None else f", in place of version {found.replaced}"
            line += f" It is {found.alias}{before}."
        if found.removed:
            line += f" {count(len(found.removed), 'older version was', 'older versions were')} removed."
        return line

    def describe(self) -> dict[str, Any]:
        found = self.published
        return {
            **found.version.describe(),
            "kind": "publish",
            "model": found.version.kind,
            "registry": mask(self.path),
            "alias": found.alias,
            "added": found.added,
            "replaced": found.replaced,
            "removed": list(found.removed),
        }


REMEDY = "Give a file of `protodask evaluate`."


def parse_files(values: Sequence[str]) -> dict[str, str]:
    """Files by their names, from "NAME=FILE"."""
    files: dict[str, str] = {}
    for value in values:
        name, separator, path = value.partition("=")
        if not separator or not path:
            raise InputError("bad-setting", f"--attach {value} names no file.", "Write it like profile=profile.json.")
        if name in files:
            raise InputError(
                "named-twice", f"Two files are to be attached as {name!r}.", "Give each a name of its own."
            )
        files[name] = path
    return files


@dataclass(frozen=True)
class PublishStep(Step):
    """Add a model to a registry as a new version that never changes, and let an alias name it.

    A model that the alias names already is not added again. Wherever a model is read, REG@champion is the version that
    the alias names, REG@7 the seventh, and REG@champion:NAME a file that was attached to it.
    """

    command = "publish"
    panel = Panel.WATCH
    about = "{model} as {alias} of {registry}"
    computes = False

    model: Annotated[Read, Argument("A model: of `fit`, `tune`, `calibrate`, `robust fit`.", "MODEL")]
    registry: Annotated[Written, Option("Folder or URL of the registry; made where there is none.", "REG")]
    alias: Annotated[str, Option("Alias that is to name the new version.", "NAME")] = "champion"
    metrics: Annotated[Read | None, Option("What `evaluate --out` wrote, to be kept with it.", "FILE")] = None
    files: Annotated[
        Mapping[str, Read],
        Option("A file to be kept with it, under a name. Repeatable.", "NAME=FILE", flag="--attach", read=parse_files),
    ] = field(default_factory=dict)
    note: Annotated[str | None, Option("What there is to say about it.", "TEXT")] = None
    retain: Annotated[
        int | None,
        Option("Keep the newest N versions and those that aliases name, and remove the others.", "N", least=1),
    ] = None

    def check(self) -> None:
        from protodask.data.places.registry_state import check_name

        check_name(self.alias, "an alias")
        for name in self.files:
            check_name(name, "a file")

    def perform(self, engine: Engine | None = None, listen: Listener = nobody) -> ModelPublished:
        from protodask.data.places.locations import locate
        from protodask.registry.registry import Registry

        metrics = None if self.metrics is None else read_metrics(self.metrics)
        registry = Registry(locate(self.registry))
        published = registry.publish(
            self.model, alias=self.alias, metrics=metrics, files=self.files, note=self.note, retain=self.retain
        )
        return ModelPublished(registry.path, published)

    def grows(self) -> bool:
        return True


def read_metrics(path: str) -> Mapping[str, Any]:
    """The results in a JSON file."""
    from protodask.pipeline.work.limits import read_results

    try:
        value = read_results(path)
    except FormatError as error:
        raise FormatError(error.code, error.seen, REMEDY) from error
    if not isinstance(value, dict):
        raise InputError("wrong-kind", f"The file {mask(path)} does not hold names and values.", REMEDY)
    return value
