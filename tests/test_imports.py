"""What imports what: data flow down the list of rooms, imports point up it, and none of them in a circle.

An import inside a function counts too, and so does one for type checkers: who changes a module has to know both. Some
have to point down, since what users call is a method of what lies above. Those are listed, and no others are there.
"""

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

import pytest
from support.sources import ROOT, trees

FLOORS = (
    ("_version", "_lazy", "places"),
    ("errors",),
    ("engine",),
    ("data",),
    ("security", "prototypes"),
    ("scoring",),
    ("selection", "evaluation"),
    ("decisions", "budget", "robust"),
    ("explain",),
    ("registry",),
    ("pipeline",),
    ("cli",),
)
"""Rooms and modules, from what knows nothing of the others to what knows all."""

DOWN = {
    ("prototypes.model", "scoring.scorer"),
    ("prototypes.model", "scoring.onnx_export"),
    ("prototypes.estimator", "evaluation.calibration"),
    ("prototypes.estimator", "explain"),
}
"""Imports of the methods of a model and of the classifier, in the body of each, that are about rooms below."""

STEPS = ("pipeline.steps.", ("pipeline.work.", "pipeline.each_file.", "pipeline.inspecting."))
"""A step is a record that is read by every command; what does its work is imported when it runs.

Without these imports no module would be in a circle.
"""

Imports = Mapping[str, Mapping[str, str]]
"""Of each module those that it imports, and whether "module", "function" or "types" need it."""


@cache
def imports() -> Imports:
    """Those of the package, by names without its own."""
    found: dict[str, dict[str, str]] = {}
    files = {".".join(file.relative_to(ROOT).with_suffix("").parts): file for file in trees()}
    names = {name.removesuffix(".__init__"): file for name, file in files.items()}
    for name, file in names.items():
        found[name] = {}
        stub = file.with_suffix(".pyi")  # of a room: the names that are imported when they are asked for
        lazy = imported(ast.parse(stub.read_bytes()), names, "types") if stub.exists() else ()
        for kind, target in (*imported(trees()[file], names), *lazy):
            if target != name and found[name].get(target) != "module":
                found[name][target] = kind
    return found


def imported(node: ast.AST, names: Iterable[str], kind: str = "module") -> Iterator[tuple[str, str]]:
    """The modules that are imported below a node, and what for."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.ImportFrom(module=str(module), names=aliases):
                for alias in aliases:
                    of = f"{module}.{alias.name}".removeprefix("protodask.")
                    target = of if of in names else module.removeprefix("protodask.")
                    if module.partition(".")[0] == "protodask" and target in names:
                        yield kind, target
            case ast.Import(names=aliases):
                assert not any(alias.name.partition(".")[0] == "protodask" for alias in aliases), (
                    "write from ... import"
                )
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                yield from imported(child, names, "function" if kind == "module" else kind)
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                yield from imported(child, names, "types")
            case _:
                yield from imported(child, names, kind)


def without_steps(found: Imports) -> dict[str, set[str]]:
    """The imports that must not close a circle."""
    return {
        name: {target for target, kind in targets.items() if kind == "module" or not is_of_step(name, target)}
        for name, targets in found.items()
    }


def is_of_step(name: str, target: str) -> bool:
    above, below = STEPS
    return name.startswith(above) and target.startswith(below)


def circle(found: Mapping[str, Iterable[str]]) -> list[str]:
    """Modules that import each other in a circle, if there are any."""
    done: set[str] = set()
    path: dict[str, None] = {}

    def look(name: str) -> list[str]:
        if name in path:
            names = list(path)
            return names[names.index(name) :]
        if name in done:
            return []
        path[name] = None
        for target in sorted(found[name]):
            if around := look(target):
                return around
        del path[name]
        done.add(name)
        return []

    return next(filter(None, map(look, sorted(found))), [])


def floor(name: str) -> int:
    room = name.partition(".")[0]
    return next(number for number, rooms in enumerate(FLOORS) if room in rooms)


def test_imports__point_up() -> None:
    rooms = {name: targets for name, targets in imports().items() if name not in ("__init__", "__main__")}
    down = {
        (name, target)
        for name, targets in rooms.items()
        for target in targets
        if target != "__init__" and name.partition(".")[0] != target.partition(".")[0] and floor(name) <= floor(target)
    }
    assert down == DOWN
    assert all(imports()[name][target] != "module" for name, target in DOWN)


def test_imports__are_in_no_circle() -> None:
    assert circle(without_steps(imports())) == []


def test_imports__of_steps_would_close_circles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "STEPS", ("", ()))
    assert any(name.startswith("pipeline.steps.") for name in circle(without_steps(imports())))


def test_circle__is_found() -> None:
    assert circle({"a": ["b"], "b": ["c"], "c": [], "d": ["a", "c"]}) == []
    assert sorted(circle({"a": ["b"], "b": ["c"], "c": ["d"], "d": ["b"]})) == ["b", "c", "d"]
    tree = ast.parse("def f():\n  from protodask.a import b, x\nif TYPE_CHECKING:\n  from protodask import c\n")
    assert list(imported(tree, {"a", "a.b", "c"})) == [("function", "a.b"), ("function", "a"), ("types", "c")]
