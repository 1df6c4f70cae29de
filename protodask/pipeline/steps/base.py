"""What every step has: settings with what there is to say of them, a check, a run, and a word on what it does.

A step is a file: its record, its check and its run. A field `lambda_v` of the record is the option `--lambda-v` of the
step's command and the key `lambda-v` in a pipeline file; command line, pipeline files, their schema and the dry run are
made from the records. Fields that name what a step reads or writes are `Read` or `Written`; caches and records of runs
are neither. Steps inherit fields that they have in common.

Light to import, as all files of steps are: what does the work is imported where it is done.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Union, get_args, get_origin

from protodask.pipeline.telling.events import Listener, nobody
from protodask.pipeline.telling.result import refuse_hidden, write_json
from protodask.places import mask

if TYPE_CHECKING:
    from protodask.engine import Engine
    from protodask.pipeline.telling.result import Result


class Place(Enum):
    """What a step does at a place that a setting names."""

    READ = "read"
    WRITTEN = "written"


Read = Annotated[str, Place.READ]
Written = Annotated[str, Place.WRITTEN]


class Panel(Enum):
    """What commands are for: the headings that they stand under."""

    DATA = "Data"
    TRAINING = "Training"
    USE = "Using a model"
    WATCH = "Watching over models"
    COMPANIONS = "Features that cost, and features known roughly"
    PIPELINES = "Pipelines and clusters"


@dataclass(frozen=True)
class Option:
    """What there is to say of a setting: to people by the command line, to editors by the schema."""

    help: str
    metavar: str | None = None
    """What the value is called in the usage; by default, what its type is called."""
    shown: str | None = None
    """The default as people are told it, where the field has none."""
    panel: str | None = None
    """Under which heading it stands."""
    least: float | None = None
    """The smallest value there is."""
    counts: bool = True
    """Whether it changes what comes of the step, and not only how it is done: a no that was accepted once stays so."""
    flag: str | None = None
    """The option, where it is not called like the field."""
    in_files: str | None = None
    """The help for those who write a file, where it is another one."""
    of_environment: bool = False
    """Whether the environment may say it, by the variable `PROTODASK_` with its name."""
    read: Callable[[Sequence[str]], Any] | None = None
    """What makes the value of the words of an option that can be repeated, where it is more than these."""


@dataclass(frozen=True)
class Argument(Option):
    """The same of a setting that has no name on the command line, but a position."""

    first: bool = False
    """Whether it stands before the others, and may not be left out; the others may be then."""


def option_of(hint: Any) -> Option | None:
    """What there is to say of a setting, by its type as it is written."""
    return next((part for part in get_args(hint)[1:] if isinstance(part, Option)), None)


def plain_hint(hint: Any) -> Any:
    """A type without what is said of it."""
    origin: Any = get_origin(hint)
    parts = get_args(hint)
    if origin is Annotated:
        return plain_hint(parts[0])
    if origin in (Union, UnionType):
        return Union[tuple(map(plain_hint, parts))]  # noqa: UP007 - of parts that are not known here
    if origin in (tuple, Mapping):
        return origin[tuple(part if part is ... else plain_hint(part) for part in parts)]
    return hint


Overwrite = Annotated[bool, Option("Replace what is at the output path.", counts=False)]


@dataclass(frozen=True)
class StepNews:
    """What a step would find that takes what is new."""

    found: str | None = None
    """In a few words; None if nothing is new."""
    waiting: int = 0
    """Files that changed a moment ago: they are left for the next time."""


@dataclass(frozen=True)
class Step(ABC):
    """A step of a pipeline, and what its command does."""

    command: ClassVar[str]
    """Its name in pipeline files, and that of its command."""
    words: ClassVar[tuple[str, ...]] = ()
    """The words of its command, where they are others: `robust-fit` is `robust fit`, and so on."""
    panel: ClassVar[Panel]
    """Under which heading its command stands."""
    writes_files: ClassVar[bool] = False
    """Whether what it writes are files, and not folders."""
    detaches: ClassVar[bool] = False
    """Whether its command can be handed over as a job."""
    computes: ClassVar[bool] = True
    """Whether it passes over data, and it has to be said where."""
    moved: ClassVar[Mapping[str, str]] = {}
    """Settings that once made it do what is another step now: the name of that step, by the setting."""
    about: ClassVar[str] = "{data} into {out}"
    """What it works on, in a few words, with the values of settings in braces."""
    replaces: ClassVar[tuple[str, ...]] = ("model", "start", "reference")
    """Settings of what it reads that it may write over: what it makes of that, or beside it, may take its place."""
    recorded_as: ClassVar[str] = ""
    """What runs remember it by, where that is not its name: the step that it once was a part of."""

    @classmethod
    def command_words(cls) -> tuple[str, ...]:
        """The words of its command."""
        return cls.words or (cls.command,)

    def __init_subclass__(cls, **others: Any) -> None:
        super().__init_subclass__(**others)
        refuse_hidden(cls, Step)

    @abstractmethod
    def perform(self, engine: Engine, listen: Listener = nobody) -> Result:
        """Do what the step says; `listen` hears how it goes on. Passes over data report to the engine's listener."""

    def check(self) -> None:  # noqa: B027 - most steps have something to check, and some have nothing
        """Refuse settings that cannot work whatever the data; nothing but a file of settings is read."""

    def subject(self) -> str:
        """What it works on, in a few words."""
        values = {name: value if isinstance(value, tuple) else (value,) for name, value in vars(self).items()}
        return self.about.format_map({name: ", ".join(mask(str(one)) for one in some) for name, some in values.items()})

    def grows(self) -> bool:
        """Whether it adds to what it writes, which may be there."""
        return False

    def may_be_there(self) -> bool:
        """Whether what it writes may be there before it begins."""
        return bool(getattr(self, "overwrite", False)) or self.grows()

    def stops_at_no(self) -> bool:
        """Whether its answer may be no, and that ends a run without a failure."""
        return False

    def accepts_no(self) -> bool:
        """Whether its answer may be no, and a run goes on all the same."""
        return False

    def takes_new(self) -> bool:
        """Whether it takes what is new of its sources, and remembers what it took beside its output."""
        return False

    def news(self) -> StepNews:
        """What is new for a step that takes that."""
        return StepNews()

    def advice(self) -> str | None:
        """What to say to a person after it was done, if anything."""
        return None


class Answering(Step):
    """A step that answers a question, and writes the answer to a JSON file where one is named."""

    writes_files = True
    out: str | None
    overwrite: bool

    def perform(self, engine: Engine, listen: Listener = nobody) -> Result:
        from protodask.data.places.whole_files import check_file_free

        if self.out is not None:
            check_file_free(self.out, self.overwrite)
        result = self.answer(engine)
        if self.out is not None:
            write_json(self.out, result.file_content(), self.overwrite)
        return result

    @abstractmethod
    def answer(self, engine: Engine) -> Result:
        """What is found."""


def describe_step(step: Step) -> str:
    """What a step does, in a few words."""
    return f"{step.command}, {step.subject()}"
