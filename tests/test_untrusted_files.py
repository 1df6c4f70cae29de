"""What is read from files is data: never unpickled, never run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.disk import Trap
from support.errors import refused
from support.sources import trees

import protodask
from protodask import ingest

PACKAGE = Path(protodask.__file__).parent

PICKLERS = {"pickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "jsonpickle"}
"""Modules that can make objects, and so run code, of what a file says; writing with them does no harm."""

READERS = {"load", "loads", "Unpickler", "open", "decode", "Shelf"}

MESSAGES = {"engine/cluster.py"}
"""Where tasks unpack what their driver sent them over the connection that Dask itself trusts."""

TRUSTED = {"budget/classifier_folder.py": ["joblib.load(io.BytesIO(content))"]}
"""What is unpickled where a caller says `trusted=True`, and never else: scikit-learn's models have no other form."""

OPENERS = {"open", "fdopen", "read_bytes", "read_text", "open_group", "open_array", "read_json", "mmap", "memmap"}

RUNNERS = {"eval", "exec", "compile", "__import__"}

YAML_LOADERS = {"load", "load_all", "full_load", "full_load_all", "unsafe_load", "unsafe_load_all"}

READERS_OF_PICKLES = {"read_pickle", "Unpickler"}


def _faults(tree: ast.Module) -> Iterator[str]:
    """What in a module could read more than data."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                yield from (f"from {module} import {name.name}" for name in names if _is_bad_import(module, name.name))
            case ast.ClassDef(bases=bases):
                yield from (f"class of {text}" for text in map(ast.unparse, bases) if _is_bad_base(text))
            case ast.Call(func=function, keywords=keywords):
                allowing = [ast.unparse(word.value) for word in keywords if word.arg == "allow_pickle"]
                if _is_bad_call(_dotted(function), allowing[0] if allowing else None):
                    yield ast.unparse(node)


def _is_bad_import(module: str, name: str) -> bool:
    root = module.partition(".")[0]
    return (root in PICKLERS and name in READERS) or (root == "yaml" and ("Loader" in name or name in YAML_LOADERS))


def _is_bad_base(text: str) -> bool:
    return text.startswith("yaml.") and text.endswith("Loader") and text != "yaml.SafeLoader"


def _dotted(node: ast.expr) -> str:
    """The name of what is called, as far as it is one; `ast.unparse` would write out the calls in between as well."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            return f"{_dotted(value)}.{name}"
        case _:
            return "?"


def _is_bad_call(function: str, allow_pickle: str | None) -> bool:
    module, _, name = function.rpartition(".")
    root = module.partition(".")[0]
    return (
        function in RUNNERS
        or name in READERS_OF_PICKLES
        or (root in PICKLERS and name in READERS)
        or (root == "yaml" and name in YAML_LOADERS)
        or (module in ("np", "numpy") and name == "load" and allow_pickle != "False")
        or allow_pickle not in (None, "False")
    )


def test_package__reads_data_only() -> None:
    assert len(trees()) > 50
    found = {
        str(path.relative_to(PACKAGE)): faults for path, tree in trees().items() if (faults := list(_faults(tree)))
    }
    assert {path: faults for path, faults in found.items() if path not in MESSAGES} == TRUSTED


def test_package__unpickles_messages_only_where_no_file_is_opened() -> None:
    for path in MESSAGES:
        calls = [node for node in ast.walk(ast.parse((PACKAGE / path).read_text())) if isinstance(node, ast.Call)]
        assert calls
        assert not [call for call in map(ast.unparse, calls) if any(f"{name}(" in call for name in OPENERS)]


@pytest.mark.parametrize(
    "text",
    [
        "pickle.load(file)",
        "cloudpickle.loads(content)",
        "joblib.load(path)",
        "from cloudpickle import loads",
        "eval(text)",
        "exec(text)",
        "import yaml\nyaml.load(file, Loader=yaml.Loader)",
        "import yaml\nyaml.full_load(file)",
        "from yaml import UnsafeLoader",
        "class Loader(yaml.FullLoader): ...",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "pandas.read_pickle(path)",
        "numpy.lib.format.read_array(file, allow_pickle=anything)",
    ],
)
def test_faults__are_found(text: str) -> None:
    assert list(_faults(ast.parse(text)))


def test_faults__are_not_found_in_what_is_safe() -> None:
    text = """
import json, yaml
from cloudpickle import dumps
yaml.safe_load(file)
np.load(path, allow_pickle=False)
json.loads(text)
class Loader(yaml.SafeLoader): ...
"""
    assert not list(_faults(ast.parse(text)))


@pytest.mark.parametrize("which", ["features", "target", "both"])
@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_ingest__does_not_unpickle_arrays_of_objects(kind: str, which: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    trap = np.empty((20, 2), dtype=object)
    trap[:] = Trap(mark)
    features = np.random.default_rng(0).normal(size=(20, 2)) if which == "target" else trap
    target = np.arange(20) % 2 if which == "features" else trap[:, 0]
    sources: Any
    if kind == "npy":
        np.save(tmp_path / "X.npy", features, allow_pickle=True)
        np.save(tmp_path / "y.npy", target, allow_pickle=True)
        sources = str(tmp_path / "X.npy"), str(tmp_path / "y.npy")
    else:
        np.savez(tmp_path / "arrays.npz", allow_pickle=True, features=features, target=target)
        sources = str(tmp_path / "arrays.npz")
    with refused("unreadable"):
        ingest(sources, tmp_path / "data.zarr")
    assert not mark.exists()
    assert not (tmp_path / "data.zarr").exists()
