from __future__ import annotations

import re
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from support.errors import refused
from support.robust_problems import drawn_problem, samples_of

from protodask.data.arrays.plain_arrays import CHECKSUM_BYTES
from protodask.data.arrays.plain_rows import AT_ONCE_BYTES
from protodask.engine import Layout, thread_engine
from protodask.engine.groups import partials_held
from protodask.engine.scheduling import Processes
from protodask.engine.threads import ThreadScheduler
from protodask.errors import InputError
from protodask.robust import RobustClassifier, UncertainRows
from protodask.robust import footprint as footprint_module
from protodask.robust.bundle import LADDER, near_samples
from protodask.robust.bundle_run import answer_length
from protodask.robust.footprint import TILE_ARRAYS, planes_at_once
from protodask.robust.kept_terms import TermsForm
from protodask.robust.passes import EVALUATE, Question, tile_rows

MIB = 2**20


def at_once(n_features: int, memory: int, *, n_planes: int = 50, rows: int = 10**6, threads: int = 2) -> int:
    form = TermsForm("SBMV", n_features, "float32")
    layout = Layout(rows, 2**11)
    with thread_engine(threads, memory) as engine:
        return planes_at_once(form, n_planes, layout, engine)


def test_planes_at_once__are_all_where_memory_allows_and_fewer_where_it_does_not() -> None:
    assert at_once(20, 4096 * MIB, n_planes=10) == 10
    found = [at_once(300, memory * MIB) for memory in (1536, 2048, 4096, 8192)]
    assert found == sorted(found)
    assert 1 <= found[0] < found[-1] < 50
    assert at_once(20, 1, rows=100, n_planes=3) == 3  # a limit below what Python takes is none


def test_plane__that_does_not_fit_is_refused() -> None:
    for n_features in (300, 10_000):
        with refused("over-memory", "1,024 MiB", "memory_bytes=", "`threads`", "drop features"):
            at_once(n_features, 1024 * MIB)
    # What it advises.
    assert min(at_once(300, 1536 * MIB), at_once(300, 1024 * MIB, threads=1)) >= 1
    assert at_once(100, 1024 * MIB) >= 1


@pytest.mark.parametrize(("n_features", "threads"), [(300, 2), (300, 8), (5000, 1)])
def test_plane__fits_with_the_limit_that_is_advised_and_with_no_less(n_features: int, threads: int) -> None:
    with pytest.raises(InputError) as caught:
        at_once(n_features, 900 * MIB, threads=threads)
    found = re.search(r"memory_bytes=(\d+)\)", str(caught.value))
    assert found is not None
    assert at_once(n_features, int(found[1]), threads=threads) >= 1
    with refused("over-memory"):
        at_once(n_features, int(found[1]) - MIB, threads=threads)


def test_plane__that_workers_have_room_for_and_their_driver_has_not_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def workers(driver: int) -> Processes:
        return Processes("workers", 4, 2, 2048 * MIB, driver * MIB)

    monkeypatch.setattr(ThreadScheduler, "processes", lambda _: workers(4096))
    assert at_once(300, MIB) >= 1
    monkeypatch.setattr(ThreadScheduler, "processes", lambda _: workers(400))
    with refused("over-memory", "400 MiB", "this process, which drives the workers"):
        at_once(300, MIB)


def test_fit__that_does_not_fit_is_refused_before_it_begins(tmp_path: Path) -> None:
    y = np.arange(8) % 2
    rows = UncertainRows.point(np.random.default_rng(0).normal(size=(8, 20_000)))
    with thread_engine(1, 512 * MIB) as engine, refused("over-memory", "512 MiB", "drop features"):
        RobustClassifier("M", solver="bundle", engine=engine, run_dir=tmp_path / "run").fit(rows, y)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("n_features", [60, 400])
def test_pass__holds_what_was_counted_for_it(n_features: int) -> None:
    rows = min(tile_rows(n_features), 1024)
    problem = drawn_problem(1, 4 * rows, n_features, intersected=True)
    question = Question(np.ones(n_features), 0.1, 2 * np.array(LADDER), near_samples(n_features), 0.5)
    with thread_engine(1) as engine:
        source = problem.source(rows)
        tracemalloc.start()
        engine.reduce(source, EVALUATE, samples_of, np.zeros(n_features), question)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    tile = 8 * rows * n_features
    answers = 8 * answer_length(near_samples(n_features), n_features) * partials_held(range(4), 1, 1)
    assert 0.6 * TILE_ARRAYS * tile <= peak <= TILE_ARRAYS * tile + answers


def test_room__counts_the_chunks_of_several_arrays_that_are_read_together() -> None:
    form, layout, threads = TermsForm("SMV-I", 300), Layout(10**6, 2**11), 2  # no array fills a chunk
    needed, _each, _limit = next(footprint_module._rooms(form, layout, Processes("threads", 1, threads, 2**33, 2**33)))
    (chunks,) = (part.bytes for part in needed.parts if part.name == "chunks being read")
    assert chunks >= threads * min(AT_ONCE_BYTES, form.row_bytes * layout.block_rows) - threads * 2 * CHECKSUM_BYTES
