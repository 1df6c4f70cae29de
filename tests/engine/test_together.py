import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.errors import refused
from support.passes import PRODUCTS, REFUSE, SLOW_SUM, SUM, NoiseSource

from protodask.engine import Engine, Layout, Progress, array_source, thread_engine, zip_sources
from protodask.engine import together as together_module
from protodask.engine.together import Company, Job, choose_company, run_together
from protodask.errors import InputError

LAYOUT = Layout(64, 8)
COMPANIES: list[Company] = ["in step", "side by side"]


def job_of(number: int, source: Any, rounds: int) -> Job[tuple[int, list[float]]]:
    """Asks for several passes, each of which depends on the one before."""

    def job(engine: Engine) -> tuple[int, list[float]]:
        found = [float(number)]
        weight = array_source({"w": np.random.default_rng(number).normal(size=LAYOUT.n_rows)}, LAYOUT.block_rows)
        for _ in range(rounds):
            zipped = zip_sources(source, weight)
            total, _ = engine.reduce(zipped, PRODUCTS, "noise", "w", np.tanh(found[-1]) + 1, label="evaluate")
            found.append(float(total))
            found.append(engine.reduce(source, SUM, "noise", blocks=[1, number % 8]) if number % 8 > 1 else 0.0)
        engine.forget(weight)
        return number, found

    return job


def jobs_at_work() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("protodask-job")]


def alone(numbers: Iterable[int], rounds: Callable[[int], int]) -> dict[int, list[float]]:
    source = NoiseSource(LAYOUT, "noise")
    with thread_engine(1) as engine:
        return dict(job_of(number, source, rounds(number))(engine) for number in numbers)


def together(
    engine: Engine, source: Any, numbers: Iterable[int], rounds: Callable[[int], int], company: Company, most: int
) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}

    def done(result: tuple[int, list[float]]) -> tuple[Job[tuple[int, list[float]]], ...]:
        found[result[0]] = result[1]
        return ()

    run_together(
        engine, [job_of(number, source, rounds(number)) for number in numbers], done, company=company, most=most
    )
    return found


@pytest.mark.parametrize("company", COMPANIES)
@pytest.mark.parametrize("most", [1, 3, 20])
def test_run_together__gives_each_job_the_bits_it_has_alone(engine: Engine, company: Company, most: int) -> None:
    def rounds(number: int) -> int:
        return 1 + number % 4

    source = NoiseSource(LAYOUT, "noise")
    assert together(engine, source, range(9), rounds, company, most) == alone(range(9), rounds)


@pytest.mark.slow
def test_run_together__gives_the_same_bits_on_a_cluster(cluster: Engine) -> None:
    source = NoiseSource(LAYOUT, "noise")
    assert together(cluster, source, range(5), lambda _: 3, "in step", 5) == alone(range(5), lambda _: 3)


def test_run_together__reads_once_for_all_jobs_in_step(tmp_path: Path) -> None:
    with thread_engine(2, 2**20) as engine:  # no room for a cache
        assert engine.scheduler.processes().cache_bytes == 0
        together(engine, NoiseSource(LAYOUT, "noise", log=tmp_path), [0, 1, 8, 9, 16], lambda _: 4, "in step", 5)
    assert len(list(tmp_path.iterdir())) == 4 * LAYOUT.n_blocks


def test_run_together__has_no_more_jobs_at_work_than_allowed(engine: Engine) -> None:
    at_work, most_seen, lock = 0, 0, threading.Lock()
    source = NoiseSource(LAYOUT, "noise")

    def job(own: Engine) -> None:
        nonlocal at_work, most_seen
        with lock:
            at_work += 1
            most_seen = max(most_seen, at_work)
        own.reduce(source, SUM, "noise")
        own.reduce(source, SUM, "noise")
        with lock:
            at_work -= 1

    run_together(engine, [job] * 10, lambda _: (), company="in step", most=3)
    assert most_seen == 3


@pytest.mark.parametrize("company", COMPANIES)
def test_run_together__runs_what_follows_a_result_before_what_waits(engine: Engine, company: Company) -> None:
    source = NoiseSource(LAYOUT, "noise")
    order: list[str] = []

    def named(name: str) -> Job[str]:
        def job(own: Engine) -> str:
            own.reduce(source, SUM, "noise")
            return name

        return job

    def done(name: str) -> list[Job[str]]:
        order.append(name)
        return [named(name + "'")] if len(name) < 3 else []

    run_together(engine, [named("a"), named("b")], done, company=company, most=1)
    assert order == ["a", "a'", "a''", "b", "b'", "b''"]


@pytest.mark.parametrize("company", COMPANIES)
def test_run_together__stops_the_others_when_a_job_fails(engine: Engine, company: Company) -> None:
    source = NoiseSource(LAYOUT, "noise")
    passes: list[int] = []

    def endless(own: Engine) -> None:
        while True:
            own.reduce(source, SUM, "noise")
            passes.append(1)

    def failing(own: Engine) -> None:
        own.reduce(source, SUM, "noise")
        own.reduce(source, REFUSE, 3)

    with refused("bad-value", "Block 3"):
        run_together(engine, [endless, failing], lambda _: (), company=company, most=2)
    assert jobs_at_work() == []
    assert engine.reduce(source, SUM, "noise") == engine.reduce(source, SUM, "noise")


def test_run_together__raises_what_fails_last_while_a_result_is_looked_at(engine: Engine) -> None:
    looked_at = threading.Event()

    def failing(own: Engine) -> None:
        assert looked_at.wait(timeout=30)
        raise KeyboardInterrupt

    def look(_: None) -> tuple[()]:
        (thread,) = [one for one in threading.enumerate() if one.name.startswith("protodask-job")]
        looked_at.set()
        thread.join(timeout=30)
        return ()

    with pytest.raises(KeyboardInterrupt):
        run_together(engine, [failing, lambda own: None], look, company="side by side", most=2)


def test_run_together__stops_when_it_is_interrupted_between_jobs(engine: Engine) -> None:
    source = NoiseSource(LAYOUT, "noise")

    def endless(own: Engine) -> None:
        while True:
            own.reduce(source, SLOW_SUM, "noise", 0.001)

    def interrupted(_: Any) -> Iterator[Any]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_together(engine, [endless, lambda own: None], interrupted, company="in step", most=2)
    assert jobs_at_work() == []


@pytest.mark.parametrize("answered", [0, 1, 3])
def test_run_together__stops_when_it_is_interrupted_between_a_request_and_its_answer(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, answered: int
) -> None:
    answer = together_module._answer

    def interrupted(engine: Engine, requests: Sequence[Any]) -> None:
        if answered:
            answer(engine, requests[:answered])
        raise KeyboardInterrupt

    monkeypatch.setattr(together_module, "_answer", interrupted)
    with pytest.raises(KeyboardInterrupt):
        together(engine, NoiseSource(LAYOUT, "noise"), range(3), lambda number: 4, "in step", 3)
    assert jobs_at_work() == []


def test_run_together__stops_jobs_in_the_middle_of_a_pass(engine: Engine, tmp_path: Path) -> None:
    source = NoiseSource(Layout(64 * 8, 8), "noise", log=tmp_path)
    begun = threading.Event()

    def long(own: Engine) -> None:
        begun.set()
        own.reduce(source, SLOW_SUM, "noise", 0.1)

    def failing(own: Engine) -> None:
        begun.wait()
        raise InputError("bad-value", "A value is missing.", "Remove the row.")

    with refused("bad-value", "A value is missing."):
        run_together(engine, [long, failing], lambda _: (), company="side by side", most=2)
    assert jobs_at_work() == []
    assert len(list(tmp_path.iterdir())) < 32


def test_run_together__ends_the_others_when_no_more_threads_can_be_started(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = NoiseSource(LAYOUT, "noise")
    jobs: list[Job[float]] = [lambda own: own.reduce(source, SUM, "noise")] * 4
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "protodask-job-2":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        run_together(engine, jobs, lambda _: (), company="in step", most=4)
    assert jobs_at_work() == []


@pytest.mark.parametrize("company", COMPANIES)
def test_run_together__serves_jobs_that_ask_from_threads_of_their_own(engine: Engine, company: Company) -> None:
    source = NoiseSource(LAYOUT, "noise")
    expected = engine.reduce(source, SUM, "noise")
    found: list[float] = []

    def job(own: Engine) -> list[float]:
        together = threading.Barrier(3)

        def ask(_: int) -> float:
            together.wait()
            return own.reduce(source, SUM, "noise")

        with ThreadPoolExecutor(3) as pool:
            return list(pool.map(ask, range(3)))

    def done(sums: list[float]) -> tuple[Job[list[float]], ...]:
        found.extend(sums)
        return ()

    run_together(engine, [job] * 5, done, company=company, most=2)
    assert found == [expected] * 15


@pytest.mark.parametrize("company", COMPANIES)
def test_run_together__runs_hundreds_of_jobs_some_of_which_ask_for_nothing(engine: Engine, company: Company) -> None:
    source = NoiseSource(LAYOUT, "noise")
    found: list[int] = []

    def job_number(number: int) -> Job[int]:
        def job(own: Engine) -> int:
            for _ in range(number % 3):
                own.reduce(source, SUM, "noise", blocks=[number % 8])
            return number

        return job

    def done(number: int) -> list[Job[int]]:
        found.append(number)
        return [job_number(number + 200)] if number < 100 else []

    run_together(engine, [job_number(number) for number in range(200)], done, company=company, most=150)
    assert sorted(found) == list(range(300))


def test_run_together__reports_joint_passes_to_the_listener_of_the_engine(engine: Engine) -> None:
    seen: list[Progress] = []
    source = NoiseSource(LAYOUT, "noise")
    together(engine.with_progress(seen.append), source, [0, 1], lambda _: 2, "in step", 2)
    assert {progress.label for progress in seen} == {"evaluate"}
    assert sum(progress.finished for progress in seen) == 2


def test_run_together__side_by_side_reports_passes_to_the_listener_of_a_job(engine: Engine) -> None:
    seen: list[Progress] = []
    source = NoiseSource(LAYOUT, "noise")

    def job(own: Engine) -> float:
        return own.with_progress(seen.append).reduce(source, SUM, "noise", label="its own")

    run_together(engine, [job], lambda _: (), company="side by side", most=1)
    assert {(progress.label, progress.total) for progress in seen} == {("its own", LAYOUT.n_blocks)}
    assert sorted(progress.done for progress in seen)[-1] == LAYOUT.n_blocks


@pytest.mark.parametrize("company", COMPANIES)
def test_run_together__tells_the_job_that_asks_for_no_blocks(engine: Engine, company: Company) -> None:
    source = NoiseSource(LAYOUT, "noise")
    told: list[Engine] = []

    def job(engine: Engine) -> None:
        with pytest.raises(ValueError, match="no blocks"):
            engine.reduce(source, SUM, "noise", blocks=[])
        told.append(engine)

    run_together(engine, [job, job], lambda _: (), company=company, most=2)
    assert len(told) == 2


def test_run_together__of_no_jobs_ends_at_once(engine: Engine) -> None:
    run_together(engine, [], lambda _: (), company="in step", most=3)


def test_choose_company__shares_passes_only_where_rows_are_read_again(cluster: Engine) -> None:
    with thread_engine(2, 2**30) as engine:
        cached = engine.scheduler.processes().cache_bytes
        assert choose_company(engine, cached) == "side by side"
        assert choose_company(engine, cached + 1) == "in step"
    assert choose_company(cluster, 0) == "in step"


def test_run_together__ends_in_order_when_a_thread_cannot_be_started(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = NoiseSource(LAYOUT, "noise")
    start = threading.Thread.start
    started: list[str] = []

    def start_some(thread: threading.Thread) -> None:
        if thread.name.startswith("protodask-job"):
            started.append(thread.name)
            if len(started) == 3:
                raise KeyboardInterrupt
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_some)
    with pytest.raises(KeyboardInterrupt):
        together(engine, source, range(5), lambda _: 3, "in step", 5)
    assert jobs_at_work() == []


@pytest.mark.parametrize(("jobs", "tasks"), [(1, 4), (2, 2), (3, 1), (4, 1)])
def test_jobs_side_by_side__compute_on_their_part_of_the_threads(tmp_path: Path, jobs: int, tasks: int) -> None:
    source, all_at_work = NoiseSource(LAYOUT, "shared", log=tmp_path), threading.Barrier(jobs)
    found: list[tuple[int, Any]] = []

    def job(engine: Engine) -> None:
        all_at_work.wait(60)
        seen = engine.n_tasks
        all_at_work.wait(60)
        found.append((seen, engine.reduce(source, SUM, "noise")))

    with thread_engine(4, 2**32) as engine:
        expected = engine.reduce(source, SUM, "noise")
        run_together(engine, [job] * jobs, lambda _: (), company="side by side", most=jobs, spread=True)
        assert [seen for seen, _ in found] == [tasks] * jobs
        run_together(engine, [job] * jobs, lambda _: (), company="side by side", most=jobs)
        assert [seen for seen, _ in found[jobs:]] == [1] * jobs, "others may follow"
    assert all(total == expected for _, total in found)
    assert len(list(tmp_path.iterdir())) == LAYOUT.n_blocks, "blocks are kept for all of them"
