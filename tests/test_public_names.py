"""Names of packages that are imported on first use."""

import ast
import importlib
import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import protodask

ROOT = Path(protodask.__file__).parent
LAZY = sorted(
    "protodask" + "".join(f".{part}" for part in path.relative_to(ROOT).parts[:-1])
    for path in ROOT.rglob("__init__.pyi")
)


def test_lazy_packages__are_found() -> None:
    assert {"protodask", "protodask.data", "protodask.evaluation", "protodask.prototypes"} <= set(LAZY)


@pytest.mark.parametrize("package", LAZY)
def test_names__are_those_of_the_stub(package: str) -> None:
    module = importlib.import_module(package)
    imports = ast.parse(Path(str(module.__file__)).with_suffix(".pyi").read_text(encoding="utf-8")).body
    names = {alias.asname: (str(line.module), alias) for line in imports for alias in line.names}  # type: ignore[attr-defined]
    assert dir(module) == sorted(module.__all__) == sorted(str(name) for name in names)
    for name, (home, alias) in names.items():
        assert name == alias.name
        assert getattr(module, name) is getattr(importlib.import_module(home), name)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        module.nothing  # noqa: B018


@pytest.mark.parametrize("package", [name for name in LAZY if name != "protodask"])
def test_names__are_not_hidden_by_modules_that_are_called_alike(package: str) -> None:
    module = importlib.import_module(package)
    alike = {info.name for info in pkgutil.iter_modules(module.__path__)} & set(module.__all__)
    for name in alike:
        importlib.import_module(f"{package}.{name}")
    assert alike <= set(vars(module))
    assert all(getattr(module, name).__name__ == name for name in alike)
    assert not [name for name in alike if isinstance(getattr(module, name), type(module))]


RUN_ALL = """
import json, sys
from protodask.cli import app
slow, commands = json.loads(sys.argv[1])
for words in commands:
    assert not app(words.split(), standalone_mode=False), words
print([name for name in slow if name in sys.modules], file=sys.stderr)
"""

SLOW = ["sklearn", "scipy.stats", "pandas", "pyarrow", "matplotlib"]


@pytest.mark.slow
def test_commands__import_only_what_they_need(tmp_path: Path) -> None:
    def run(slow: list[str], *commands: str) -> None:
        done = subprocess.run(
            [sys.executable, "-c", RUN_ALL, json.dumps([slow, commands])],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr.splitlines()[-1] == "[]"

    run(
        SLOW,
        "sample-data checker --rows 500 --out data.zarr",
        "split data.zarr --out train.zarr --held-out test.zarr",
        "fit train.zarr --out model.zarr --candidates 20 --tolerance 1e-2",
    )
    run([*SLOW, "scipy.optimize", "scipy.spatial"], "plan data.zarr")
    run(
        [*SLOW, "scipy.optimize", "scipy.spatial", "dask"],
        "info data.zarr",
        "explain model.zarr test.zarr --row 3",
        "predict model.zarr test.zarr --out predictions.zarr",
        "evaluate model.zarr test.zarr",
    )


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("protodask.prototypes.model", "Batch"),
        ("protodask.explain.contributions", "Contribution"),
        ("protodask.explain.contributions", "Explanation"),
        ("protodask.explain.contributions", "FeatureMatch"),
    ],
)
def test_pickles__of_earlier_versions_find_their_classes(module: str, name: str) -> None:
    assert isinstance(getattr(importlib.import_module(module), name), type)
