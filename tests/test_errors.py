import ast
import pickle
import re
from collections.abc import Iterable, Iterator
from functools import cache, reduce
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest
from support.sources import ROOT, trees

from protodask.errors import (
    ClusterError,
    Code,
    FormatError,
    InputError,
    OutputExistsError,
    ProtodaskError,
    StorageError,
    count,
    named_twice,
    refusing,
    some,
)
from protodask.pipeline.file.values import COMMANDS

BUILT_IN = {
    InputError: ValueError,
    FormatError: ValueError,
    OutputExistsError: FileExistsError,
    StorageError: OSError,
    ClusterError: RuntimeError,
}


@pytest.mark.parametrize("kind", list(BUILT_IN))
def test_error__says_what_was_seen_and_what_to_do(kind: type[ProtodaskError]) -> None:
    error = kind("no-rows", "Column x is empty.", "Drop it.")
    assert str(error) == "Column x is empty. Drop it."
    assert (error.code, error.seen, error.remedy) == ("no-rows", "Column x is empty.", "Drop it.")
    assert isinstance(error, BUILT_IN[kind])


@pytest.mark.parametrize("kind", list(BUILT_IN))
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_error__survives_pickling(kind: type[ProtodaskError], protocol: int) -> None:
    error = kind("no-rows", "Column x is empty.", "Drop it.")
    copy = pickle.loads(pickle.dumps(error, protocol))
    assert type(copy) is kind
    assert (copy.code, copy.seen, copy.remedy, str(copy)) == (error.code, error.seen, error.remedy, str(error))


def test_error__that_is_an_os_error_has_no_wrong_number() -> None:
    # OSError reads two arguments as a number and a text, and would show "[Errno ...]".
    for kind in (StorageError, OutputExistsError):
        error = kind("disk-full", "The disk is full.", "Free some space.")
        assert "Errno" not in str(error)
        assert error.errno is None


def test_named_twice__each_once_in_order() -> None:
    assert named_twice("cabbac") == ["c", "a", "b"]
    assert named_twice(iter([2, 1, 3, 1])) == [1]
    assert named_twice([]) == []


def test_some__names_the_first_of_many() -> None:
    assert some(["a", 2]) == "a, 2"
    assert some("abcde", most=3) == "a, b, c and 2 more"
    assert some([]) == ""


def test_refusing__says_what_the_error_says() -> None:
    with (
        pytest.raises(InputError, match=r"^It is no number \(of no kind\)\. Give one\.$") as told,
        refusing((TypeError, ValueError), "wrong-type", "It is no number", "Give one."),
    ):
        raise TypeError("of no kind")
    assert told.value.code == "wrong-type"
    assert isinstance(told.value.__cause__, TypeError)
    with (
        pytest.raises(InputError, match=r"It failed \(KeyError: 'x'\)\."),
        refusing(Exception, "user-code", "It failed", "Mend it."),
    ):
        raise KeyError("x")
    with pytest.raises(KeyError), refusing(ValueError, "wrong-type", "It is no number", "Give one."):
        raise KeyError("x")


PUBLISHED = """
    bad-setting setting-missing settings-conflict unknown-name unknown-key unsupported over-limit over-memory
    wrong-type wrong-shape bad-value overflow no-rows too-few one-class column-missing named-twice
    columns-differ user-code not-fitted not-found nothing-yet exists wrong-kind newer-format unreadable
    unwritable disk-full damaged unfinished changed-meanwhile written-by-another other-run not-local
    places-overlap unsafe package-missing no-answer not-secure refused no-workers connection-lost task-lost
    engine-closed files-failed unexpected no-convergence
"""
"""Codes that programs may have been written for: to this list is added, from it nothing is taken."""


def test_codes__that_were_published_are_still_there() -> None:
    assert set(PUBLISHED.split()) <= set(get_args(Code))
    assert len(get_args(Code)) == len(set(get_args(Code)))


@cache
def package() -> dict[Path, tuple[ast.AST, ...]]:
    """All that there is in each module, found once: to walk through every one takes its time."""
    return {file: tuple(ast.walk(tree)) for file, tree in trees().items()}


def named(node: ast.AST | None) -> str:
    """The last part of a name with dots, nothing of anything else."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


@cache
def error_names() -> frozenset[str]:
    """The package's own errors, and what is derived from them anywhere in it."""
    classes = [node for nodes in package().values() for node in nodes if isinstance(node, ast.ClassDef)]
    found = {ProtodaskError.__name__}
    while more := {node.name for node in classes if found & set(map(named, node.bases))} - found:
        found |= more
    return frozenset(found)


def is_code(annotation: ast.AST | None) -> bool:
    return annotation is not None and any(named(node) == "Code" for node in ast.walk(annotation))


def names_of_codes(nodes: Iterable[ast.AST]) -> set[str]:
    """What is annotated as a code: parameters, variables and fields."""
    found = set()
    for node in nodes:
        match node:
            case ast.arg(arg=name, annotation=annotation) if is_code(annotation):
                found.add(name)
            case ast.AnnAssign(target=target, annotation=annotation) if is_code(annotation):
                found.add(named(target))
    return found


def is_known_code(argument: ast.expr, names: set[str]) -> bool:
    """Whether an expression is a code for certain; that a name annotated as one holds one is what mypy checks."""
    match argument:
        case ast.Constant(value=value):
            return value in get_args(Code)
        case ast.IfExp(body=body, orelse=orelse):
            return is_known_code(body, names) and is_known_code(orelse, names)
        case ast.Attribute(attr="code"):
            return True
        case ast.Name(id=name):
            return name in names
    return False


def calls(nodes: Iterable[ast.AST], called: frozenset[str]) -> Iterator[ast.Call]:
    return (node for node in nodes if isinstance(node, ast.Call) and named(node.func) in called)


def test_errors__are_all_raised_with_a_code() -> None:
    wrong, raised = [], 0
    for file, nodes in package().items():
        names = names_of_codes(nodes)
        for call in calls(nodes, error_names()):
            raised += 1
            if not call.args or not is_known_code(call.args[0], names):
                wrong.append(f"{file}:{call.lineno}: {ast.unparse(call)[:80]}")
    assert not wrong
    assert raised > 500, "the errors were not found"


def test_codes__are_all_in_use() -> None:
    used: set[object] = set()

    def take(*nodes: ast.AST | None) -> None:
        within = (part for node in nodes if node is not None for part in ast.walk(node))
        used.update(part.value for part in within if isinstance(part, ast.Constant))

    scopes = (ast.FunctionDef, ast.ClassDef)
    # What hands a code on: functions that take one, and records that have one.
    hands_on = frozenset(
        node.name
        for nodes in package().values()
        if names_of_codes(nodes)
        for node in nodes
        if isinstance(node, scopes) and names_of_codes(ast.walk(node)) and not node.name.startswith("__")
    )
    for nodes in package().values():
        names = names_of_codes(nodes)
        for call in calls(nodes, error_names()):
            take(*call.args[:1])
        for call in calls(nodes, hands_on - error_names()):
            take(*call.args, *(keyword.value for keyword in call.keywords))
        for node in nodes:
            match node:
                case ast.AnnAssign(annotation=annotation, value=value) if is_code(annotation):
                    take(value)
                case ast.Assign(targets=[target], value=value) if named(target) in names:
                    take(value)
                case ast.arguments(args=args, defaults=defaults, kwonlyargs=only, kw_defaults=only_defaults):
                    given = zip([*args[len(args) - len(defaults) :], *only], [*defaults, *only_defaults], strict=True)
                    take(*(default for arg, default in given if is_code(arg.annotation)))
    assert set(get_args(Code)) - used == set()


ROOMS_OF_COMMANDS = ("budget", "decisions", "evaluation", "registry", "robust")

NAMED_AS_SUCH = {
    ("decisions/sets.py", "use --per-row labels, in Python decide_rows"): "says both",
    ("engine/connect.py", "--tls-ca, --tls-cert and --tls-key on the command line, TlsFiles in Python"): "says both",
    ("robust/model.py", "`protodask predict` or `protodask evaluate`, in Python `load_model`"): "says both",
    ("explain/requests.py", "Name one or several with --row"): "the command alone asks like that",
    ("pipeline/inspecting/describe.py", "`protodask run --dry-run`"): "of `run`",
    ("pipeline/state/runner.py", "--overlap wait"): "of `run`",
    ("pipeline/state/runner.py", "--debug"): "of `run`",
    ("pipeline/steps/ingest.py", "--ordinal "): "reads the words of the option",
    ("pipeline/steps/publish.py", "--attach "): "reads the words of the option",
    ("pipeline/steps/subsample.py", "--rate "): "reads the words of the option",
    (
        "pipeline/each_file/ledger.py",
        "Make one with `each_file` of `protodask predict`.",
    ): "in Python nothing makes one",
    ("pipeline/state/detached.py", ""): "makes command lines",
    ("pipeline/file/reference.py", ""): "makes the document on options and keys",
    ("pipeline/file/values.py", "--memory-limit"): "makes options of settings",
    ("prototypes/planning.py", "dask worker --nthreads"): "a command of Dask's",
    ("explain/report/svg.py", ""): "names in style sheets",
}
"""Options and commands that are named as such outside the command line: module, words, and why."""


def texts(node: ast.AST) -> Iterator[tuple[str, int]]:
    """All texts within, with their lines, but docstrings and what is said of a setting where it is declared."""
    match node:
        case ast.Expr(value=ast.Constant()):
            return
        case ast.Subscript(value=value) if named(value) == "Annotated":
            return
        case ast.Constant(value=str() as text):
            yield text, node.lineno
    for child in ast.iter_child_nodes(node):
        yield from texts(child)


def test_messages__name_settings_as_python_has_them() -> None:
    """The command line makes options of these, and a run keys; what names an option is that wherever it is read."""
    commands = "|".join(map(re.escape, COMMANDS.values()))
    as_such = re.compile(rf"(?<![\w-])--[a-z]|`protodask (?:{commands})(?: --[a-z-]+)?`")
    found, met = [], set()
    for file, tree in trees().items():
        module = file.relative_to(ROOT).as_posix()
        if module.startswith(("cli/", "examples/")):  # examples are installed with the package, and are commands
            continue
        known = [(place, words) for place, words in NAMED_AS_SUCH if place == module]
        for text, line in texts(tree):
            if as_such.search(text):
                these = {entry for entry in known if entry[1] in text}
                met |= these
                if not these:
                    found.append(f"{module}:{line}: {text}")
    assert not found
    assert met == set(NAMED_AS_SUCH), "some are named no more"


def test_messages__name_functions_that_there_are() -> None:
    rooms = [import_module(name) for name in ("protodask", *(f"protodask.{room}" for room in ROOMS_OF_COMMANDS))]
    for function in COMMANDS:
        first, *rest = function.split(".")
        owners = [getattr(room, first) for room in rooms if hasattr(room, first)]
        assert owners, function
        assert callable(reduce(getattr, rest, owners[0]))
    said = re.compile(r"`([\w.]+)\(\)`")
    named_so = {match for tree in trees().values() for text, _ in texts(tree) for match in said.findall(text)}
    assert set(COMMANDS) <= named_so, "some are named no more"


def test_count__of_one_is_singular() -> None:
    said = [count(amount, "batch", "batches") for amount in (0, 1, 2, 12_000)]
    assert said == ["0 batches", "1 batch", "2 batches", "12,000 batches"]
    assert [count(amount, "row") for amount in (1, 3)] == ["1 row", "3 rows"]
