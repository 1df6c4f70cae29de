"""Damaged and hostile files: a clear error or the right answer, in bounded time and memory, nothing written outside.

They take some minutes: `pytest -m slow tests/chaos/test_fuzz.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from chaos._fuzz_mutations import MUTATIONS
from chaos._fuzz_stores import KINDS, make_stores

WORKER = Path(__file__).with_name("_fuzz_worker.py")

START_SECONDS = 60
"""For a worker to start and to use each valid store once, on a slow machine."""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stores")
    with pytest.warns(Warning, match="stopped early"):
        make_stores(folder)
    return folder


def _run(stores: Path, first: int, last: int, folder: Path) -> list[dict[str, Any]]:
    """What became of each mutation; the process must get through all of them."""
    done = subprocess.run(
        [sys.executable, str(WORKER), str(stores), str(first), str(last)],
        capture_output=True,
        text=True,
        timeout=START_SECONDS + (last - first) * 2,
        check=False,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    ended = [line for line in lines if "outcome" in line]
    assert done.returncode == 0, f"died at {lines[-1:]}: {done.stderr[-3000:]}"
    assert [line["number"] for line in ended] == list(range(first, last))
    return ended


def _failed(ended: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in ended if line["outcome"] not in ("same", "other", "refused")]


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 2000, 500))
def test_damage__is_refused_or_does_not_matter(first: int, stores: Path, tmp_path: Path) -> None:
    ended = _run(stores, first, first + 500, tmp_path)
    assert not _failed(ended)
    # The damage strikes: files of every kind are refused, and much of what is done to them.
    refused = Counter(line["kind"] for line in ended if line["outcome"] == "refused")
    assert refused.total() > 250
    assert refused.keys() == KINDS.keys()
    assert len({line["mutation"] for line in ended if line["outcome"] == "refused"}) > len(MUTATIONS) / 2
