"""What the tests of the commands share: a way to call them, and a dataset, tables and a model to call them on."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from support.commands import run_command
from typer.testing import Result

Call = Callable[..., Result]


@pytest.fixture(scope="session")
def call() -> Call:
    """Run a command line in this process."""
    return run_command


@pytest.fixture(autouse=True)
def _working_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of pipelines remember what they did in the working folder, which is not that of the source."""
    monkeypatch.chdir(tmp_path_factory.mktemp("working"))


@dataclass(frozen=True)
class Example:
    """A table with a nominal and an ordinal column, the dataset made from it, and a model of that."""

    table: Path
    data: Path
    model: Path


@pytest.fixture(scope="session")
def write_table() -> Callable[..., Path]:
    """Write a CSV file of so many rows, where the class depends on all columns."""

    def write(path: Path, rows: int = 300, seed: int = 0) -> Path:
        random = np.random.default_rng(seed)
        lines = ["age,colour,size,outcome"]
        for _ in range(rows):
            age = random.uniform(0, 10)
            colour = random.choice(["red", "green", "blue"])
            size = random.choice(["small", "medium", "large"])
            score = age + 3 * (colour == "red") + 2 * (size == "large") + random.normal()
            lines.append(f"{age:.6f},{colour},{size},{'high' if score > 6 else 'low'}")
        path.write_text("\n".join(lines) + "\n")
        return path

    return write


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory, write_table: Callable[..., Path]) -> Example:
    folder = tmp_path_factory.mktemp("example")
    found = Example(write_table(folder / "table.csv"), folder / "data.zarr", folder / "model.zarr")
    made = run_command(
        "ingest", found.table, "--out", found.data, "--target", "outcome", "--categorical", "colour",
        "--ordinal", "size=small,medium,large",
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    fitted = run_command(
        "fit", found.data, "--out", found.model, "--recipe", "source", "--batches", 2, "--candidates", 40
    )
    assert fitted.exit_code == 0, fitted.output
    return found
