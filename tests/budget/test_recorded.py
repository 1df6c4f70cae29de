"""Builds that are interrupted, and go on from their record."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.errors import refused

from protodask.budget.expanding import expander
from protodask.budget.expansions import Expand, Expansion, FeatureSet
from protodask.budget.lattice import Exploration, explore
from protodask.budget.recorded import recorded
from protodask.engine import thread_engine
from protodask.errors import FormatError, StorageError

KEY = {"data": "blobs", "alpha": 0.01, "features": ["height", "width"]}
SETS = [frozenset(features) for features in ((), (0,), (1, 2), (3,))]


def accuracy_of(features: FeatureSet) -> float:
    return 1 - 0.3 ** len(features)


class Counting:
    """Expands, and lists what it expanded."""

    def __init__(self, failing: frozenset[int] | None = None) -> None:
        self.done: list[FeatureSet] = []
        self._failing = failing

    def __call__(self, features: FeatureSet) -> float:
        self.done.append(features)
        if features == self._failing:
            raise ValueError("Not today.\n\ud800")
        return accuracy_of(features)


def run(counting: Counting, path: Path, sets: list[FeatureSet], key: Any = KEY) -> list[Expansion]:
    found: list[Expansion] = []
    with recorded(expander(counting), path, key) as expand:
        expand(sets, found.append)
    return sorted(found, key=lambda one: sets.index(one.features))


def test_recorded__expands_each_set_once(tmp_path: Path) -> None:
    path = tmp_path / "not" / "there" / "yet.jsonl"
    first, second = Counting(), Counting()
    before = run(first, path, SETS[:3])
    assert first.done == SETS[:3]
    assert run(second, path, SETS) == [*before, *run(Counting(), path, SETS[3:])]
    assert second.done == SETS[3:]
    assert [one.accuracy for one in before] == [accuracy_of(features) for features in SETS[:3]]
    assert os.listdir(path.parent) == [path.name], "nothing is left beside it"


def test_recorded__answers_in_one_build_from_what_it_has_just_recorded(tmp_path: Path) -> None:
    counting = Counting()
    found: list[Expansion] = []
    with recorded(expander(counting), tmp_path / "record", KEY) as expand:
        expand(SETS, found.append)
        expand(SETS, found.append)
    assert counting.done == SETS
    assert found[: len(SETS)] == found[len(SETS) :]


def test_recorded__has_a_line_on_the_disk_before_the_next_expansion(tmp_path: Path) -> None:
    path = tmp_path / "record"
    lines: list[int] = []

    def accuracy(features: FeatureSet) -> float:
        lines.append(len(path.read_bytes().splitlines()))
        return 0.5

    with recorded(expander(accuracy), path, KEY) as expand:
        expand(SETS, lambda expansion: None)
    assert lines == [1, 2, 3, 4]


def test_recorded__tries_again_what_failed(tmp_path: Path) -> None:
    path = tmp_path / "record"
    (failed,) = [one for one in run(Counting(SETS[1]), path, SETS) if one.accuracy is None]
    assert failed.failure == "ValueError: Not today.\n\\ud800"
    again = Counting()
    assert all(one.failure is None for one in run(again, path, SETS))
    assert again.done == [SETS[1]]
    last = Counting()
    run(last, path, SETS)
    assert last.done == []


@pytest.mark.parametrize("length", range(1, 140, 7))
def test_recorded__cuts_a_torn_line_off(tmp_path: Path, length: int) -> None:
    path = tmp_path / "record"
    whole = run(Counting(), path, SETS)
    lines = path.read_bytes().splitlines(keepends=True)
    torn = lines[-1][: min(length, len(lines[-1]) - 1)]
    path.write_bytes(b"".join(lines[:-1]) + torn)
    counting = Counting()
    found = run(counting, path, SETS)
    assert counting.done == SETS[-1:]
    assert [one.accuracy for one in found] == [one.accuracy for one in whole]
    assert len(path.read_bytes().splitlines()) == len(lines)
    unharmed = Counting()
    run(unharmed, path, SETS)
    assert unharmed.done == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda line: line.replace(b'"accuracy":0.7', b'"accuracy":0.8'),
        lambda line: line.replace(b"[0]", b"[7]"),
        lambda line: b"\n",
        lambda line: b"\xff\xfe\n",
        lambda line: b"[" * 10_000 + b"\n",
        lambda line: b'{"features": "all"}\n',
        lambda line: line.replace(b'"failure"', b'"failures"'),
    ],
)
def test_recorded__expands_again_what_a_damaged_line_has_lost(tmp_path: Path, damage: Any) -> None:
    path = tmp_path / "record"
    run(Counting(), path, SETS)
    lines = path.read_bytes().splitlines(keepends=True)
    assert damage(lines[2]) != lines[2]
    path.write_bytes(b"".join([*lines[:2], damage(lines[2]), *lines[3:]]))
    counting = Counting()
    found = run(counting, path, SETS)
    assert counting.done == [SETS[1]]
    assert [one.accuracy for one in found] == [accuracy_of(features) for features in SETS]


@pytest.mark.parametrize(
    ("key", "differ"),
    [
        ({**KEY, "alpha": 0.02}, "alpha"),
        ({**KEY, "seed": 1}, "seed"),
        ({"data": "blobs"}, "alpha, features"),
    ],
)
def test_recorded__refuses_the_record_of_another_build(tmp_path: Path, key: Any, differ: str) -> None:
    path = tmp_path / "record"
    run(Counting(), path, SETS)
    before = path.read_bytes()
    with refused("other-run", path, f"differs in {differ}."):
        run(Counting(), path, SETS, key)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "content", [b"a diary\n", b"{}\n", b"[1]\n", b"", b"\x00" * 100, b'{"format": "protodask-run"}\n']
)
def test_recorded__leaves_a_foreign_file_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "diary"
    path.write_bytes(content)
    with refused("wrong-kind", kind=FormatError):
        run(Counting(), path, SETS)
    assert path.read_bytes() == content


def test_recorded__refuses_a_damaged_header(tmp_path: Path) -> None:
    path = tmp_path / "record"
    run(Counting(), path, SETS)
    path.write_bytes(path.read_bytes().replace(b"blobs", b"globs", 1))
    with refused("damaged", kind=FormatError):
        run(Counting(), path, SETS)


def test_recorded__refuses_a_later_version(tmp_path: Path) -> None:
    path = tmp_path / "record"
    run(Counting(), path, SETS)
    path.write_bytes(path.read_bytes().replace(b'"version":1', b'"version":2', 1))
    with refused("newer-format", 2, 1, kind=FormatError):
        run(Counting(), path, SETS)


def test_recorded__refuses_a_file_in_use(tmp_path: Path) -> None:
    path = tmp_path / "record"
    with (
        recorded(expander(Counting()), path, KEY),
        refused("written-by-another", kind=StorageError),
        recorded(expander(Counting()), path, KEY),
    ):
        pass
    run(Counting(), path, SETS)


@pytest.mark.parametrize("path", ["s3://bucket/record", "memory://record"])
def test_recorded__refuses_a_url(path: str) -> None:
    with refused("not-local"), recorded(expander(Counting()), path, KEY):
        pass


def test_recorded__refuses_a_folder(tmp_path: Path) -> None:
    with refused("wrong-kind", kind=FormatError):
        run(Counting(), tmp_path, SETS)


@pytest.mark.parametrize("key", [{"data": object()}, {"alpha": float("nan")}, {"sets": {1, 2}}])
def test_recorded__refuses_a_key_that_json_has_not(tmp_path: Path, key: Any) -> None:
    with refused("wrong-type", "JSON"):
        run(Counting(), tmp_path / "record", SETS, key)
    assert not any(tmp_path.iterdir())


def test_recorded__keeps_what_ended_before_an_interruption(tmp_path: Path) -> None:
    path = tmp_path / "record"

    def accuracy(features: FeatureSet) -> float:
        if features == SETS[2]:
            raise KeyboardInterrupt
        return 0.5

    with pytest.raises(KeyboardInterrupt), recorded(expander(accuracy), path, KEY) as expand:
        expand(SETS, lambda expansion: None)
    counting = Counting()
    run(counting, path, SETS)
    assert counting.done == SETS[2:]


BUILD = """
import os, signal, sys
from pathlib import Path
from protodask.budget.expanding import expander
from protodask.budget.lattice import explore
from protodask.budget.recorded import recorded
from protodask.engine import thread_engine

record, log, last = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])

def accuracy(features):
    if len(list(log.iterdir())) >= last:
        os.kill(os.getpid(), signal.SIGKILL)
    (log / f"set {sorted(features)}").touch(exist_ok=False)
    return 1 - 0.4 ** sum(1 / (1 + feature) for feature in features)

with thread_engine(1) as engine, recorded(expander(accuracy, engine), record, {"build": 1}) as expand:
    explore(6, expand, alpha=0.02)
"""


def explore_logged(expand: Expand) -> Exploration:
    return explore(6, expand, alpha=0.02)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="Windows has no signal that kills")
def test_recorded__after_a_kill_expands_what_is_missing(tmp_path: Path) -> None:
    record, log = tmp_path / "record", tmp_path / "log"
    log.mkdir()

    def accuracy(features: FeatureSet) -> float:
        return float(1 - 0.4 ** sum(1 / (1 + feature) for feature in features))

    alone = explore_logged(expander(accuracy))
    last = 9
    ended = subprocess.run(
        [sys.executable, "-c", BUILD, str(record), str(log), str(last)], check=False, timeout=120, stderr=-1
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
    assert len(list(log.iterdir())) == last
    assert len(record.read_bytes().splitlines()) == 1 + last
    expanded: list[FeatureSet] = []

    def counted(features: FeatureSet) -> float:
        expanded.append(features)
        return accuracy(features)

    with thread_engine(2) as engine, recorded(expander(counted, engine), record, {"build": 1}) as expand:
        found = explore_logged(expand)
    assert len(expanded) == len(alone.expansions) - last
    assert found.guarantee == alone.guarantee
    assert [(one.features, one.accuracy) for one in found.expansions] == [
        (one.features, one.accuracy) for one in alone.expansions
    ]
    lines = [json.loads(line) for line in record.read_bytes().splitlines()]
    assert len({tuple(line["features"]) for line in lines[1:]}) == len(lines) - 1 == len(alone.expansions)
