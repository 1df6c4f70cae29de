"""Jobs that advance together: each asks for one pass after another, and passes that wait at the same time become one.

A job, such as a fit, is written as if it were alone and runs in a thread of its own. In step, a pass begins when every
job at work waits for one, and serves them all: out of core, ten fits cost the reading of one. Where all rows are at
hand there is nothing to share, and each job computes by itself, as many at a time as there are threads. Either way a
job has the bits it would have alone.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Literal, TypeVar

from protodask.engine.blas import one_blas_thread
from protodask.engine.bundles import bundle, unbundle
from protodask.engine.engine import Engine
from protodask.engine.groups import Pass
from protodask.engine.progress import Progress, ProgressListener
from protodask.engine.reduction import Node
from protodask.engine.scheduling import Scheduler
from protodask.engine.threads import ThreadScheduler

Result = TypeVar("Result")
Job = Callable[[Engine], Result]
Company = Literal["in step", "side by side"]
"""Whether the passes of jobs become one, or each job computes by itself."""


def choose_company(engine: Engine, data_bytes: int) -> Company:
    """Side by side where this process computes and keeps all `data_bytes` that the jobs read; else in step."""
    processes = engine.scheduler.processes()
    at_hand = processes.kind == "threads" and data_bytes <= processes.cache_bytes
    return "side by side" if at_hand else "in step"


def run_together(
    engine: Engine,
    jobs: Iterable[Job[Result]],
    done: Callable[[Result], Iterable[Job[Result]]],
    *,
    company: Company,
    most: int,
    spread: bool = False,
) -> None:
    """Run jobs, at most `most` at a time, and those that `done` answers to the result of one with.

    Where they compute side by side, each does on one thread. If they are to `spread`, those that are left when jobs are
    fewer than threads compute on several; no further jobs may follow then, which would compute beside these.

    `done` is called in this thread, one result at a time, in the order in which jobs end; jobs that follow others go
    first, so that few are ever half done. If a job fails the others are stopped at their next pass, or in one at their
    next block, and its error is raised.
    """
    if company == "side by side":
        most = min(most, engine.scheduler.n_threads)
    waiting: deque[Job[Result]] = deque(jobs)
    crew: _Crew[Result] = _Crew()
    if company == "side by side" and not isinstance(engine.scheduler, ThreadScheduler):
        raise ValueError("jobs compute side by side on threads of this process alone")
    own = (_SteppingEngine if company == "in step" else _JobEngine)(engine.scheduler, crew)
    try:
        with one_blas_thread():
            while waiting or crew.at_work:
                crew.expected = min(most, crew.at_work + len(waiting)) if spread else None
                while waiting and crew.at_work < most:
                    crew.start(waiting.popleft(), own)
                ended, requests = crew.next_event()
                for result in ended:
                    waiting.extendleft(reversed([*done(result)]))
                if requests:
                    _answer(engine, requests)
    finally:
        crew.stop()


def all_together(
    engine: Engine, jobs: Sequence[Job[Result]], *, company: Company, most: int, spread: bool = False
) -> list[Result]:
    """The results of jobs that no others follow, in the order of the jobs, see `run_together`."""
    found: dict[int, Result] = {}

    def numbered(number: int, engine: Engine) -> tuple[int, Result]:
        return number, jobs[number](engine)

    def keep(ended: tuple[int, Result]) -> tuple[()]:
        found.update([ended])
        return ()

    all_jobs = [partial(numbered, number) for number in range(len(jobs))]
    run_together(engine, all_jobs, keep, company=company, most=most, spread=spread)
    return [found[number] for number in range(len(jobs))]


def each_together(
    engine: Engine, function: Callable[[Any], Result], items: Sequence[Any], done: Callable[[int, Result], None]
) -> None:
    """`function(item)` of each item, as many at a time as the engine has threads, here or on the workers of a cluster.

    `done` is called in this thread with the number of an item and its result, as they come. The function may not use
    the engine itself, whose threads are taken; for a cluster see `Engine.each`.
    """
    if engine.scheduler.processes().kind == "workers":
        with closing(engine.each(function, items)) as ended:
            for number, result in ended:
                done(number, result)
        return

    def job(number: int) -> Job[tuple[int, Result]]:
        return lambda _: (number, function(items[number]))

    def take(ended: tuple[int, Result]) -> tuple[()]:
        done(*ended)
        return ()

    jobs = map(job, range(len(items)))
    run_together(engine, jobs, take, company="side by side", most=engine.scheduler.n_threads)


@dataclass(eq=False)
class _Request:
    """A pass that a job waits for."""

    work: Pass
    numbers: Sequence[int]
    answered: threading.Event = field(default_factory=threading.Event)
    nodes: list[Node[Any]] | None = None
    """None where the pass will not be: the job has to end."""

    def answer(self, nodes: list[Node[Any]] | None) -> None:
        self.nodes = nodes
        self.answered.set()


class _StoppedError(Exception):
    """Ends a job after another one failed."""


class _Crew(Generic[Result]):
    """The jobs at work, each in a thread, and what they wait for."""

    expected: int | None = None
    """How many will be at work, which share the threads; None where each has one."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._requests: list[_Request] = []
        self._unanswered: list[_Request] = []
        """Those, and what is being answered: a signal may come at any moment, and no job may then wait for ever."""
        self._ended: list[Result] = []
        self._error: BaseException | None = None
        self._stopped = False
        self._threads: dict[int, threading.Thread] = {}
        self._started = 0

    @property
    def at_work(self) -> int:
        """Jobs that have not ended, or whose result or error nobody has seen yet."""
        with self._changed:
            return len(self._threads) + len(self._ended) + (self._error is not None)

    def start(self, job: Job[Result], engine: Engine) -> None:
        number = self._started
        self._started += 1
        thread = threading.Thread(target=self._work, args=(number, job, engine), name=f"protodask-job-{number}")
        with self._changed:
            self._threads[number] = thread
            try:
                thread.start()
            except BaseException:  # a signal, or no more threads to be had: it may run or not
                self._stopped = True
                if not thread.is_alive():
                    self._threads.pop(number, None)
                raise

    def _work(self, number: int, job: Job[Result], engine: Engine) -> None:
        try:
            self.check()
            result = job(engine)
        except _StoppedError:
            outcome: tuple[Result, ...] = ()
        except BaseException as error:  # raised again in the thread that started the job
            outcome = ()
            with self._changed:
                self._error = error if self._error is None else self._error
        else:
            outcome = (result,)
        with self._changed:
            self._ended += outcome
            self._threads.pop(number, None)
            self._changed.notify_all()

    def next_event(self) -> tuple[list[Result], list[_Request]]:
        """Results of jobs that ended; or, when all jobs at work wait for a pass, what they wait for."""
        with self._changed:
            self._changed.wait_for(
                # More requests than jobs where a job asks from threads of its own.
                lambda: (
                    self._error is not None
                    or self._ended
                    or (self._requests and len(self._requests) >= len(self._threads))
                )
            )
            if self._error is not None:
                raise self._error
            ended, self._ended = self._ended, []
            if ended:
                return ended, []
            requests, self._requests = self._requests, []
            return [], requests

    def ask(self, request: _Request) -> list[Node[Any]]:
        """Called by a job: wait for the pass."""
        with self._changed:
            self.check()
            self._requests.append(request)
            self._unanswered.append(request)
            self._changed.notify_all()
        request.answered.wait()
        with self._changed:
            self._unanswered.remove(request)
        if request.nodes is None:
            raise _StoppedError
        return request.nodes

    def check(self) -> None:
        """Called by a job before it computes, and after each block."""
        if self._stopped:
            raise _StoppedError

    def stop(self) -> None:
        """Have the jobs that are left end, and wait until they have."""
        with self._changed:
            self._stopped = True
            requests, left = list(self._unanswered), list(self._threads.values())
        for request in requests:
            request.answer(request.nodes)  # again where a signal came before its job was told
        for thread in left:
            if thread.is_alive():  # else it could not be started, or ends by itself before its job begins
                thread.join()


def _answer(engine: Engine, requests: Sequence[_Request]) -> None:
    """One pass for all requests."""
    work, numbers = bundle([request.work for request in requests], [request.numbers for request in requests])
    nodes = engine.run_pass(work, numbers)
    for position, request in enumerate(requests):
        request.answer(unbundle(nodes, position))


class _JobEngine(Engine):
    """Computes the passes of a job at once: in its own thread, or in its part of all threads where jobs spread."""

    def __init__(self, scheduler: Scheduler, crew: _Crew[Any], progress: ProgressListener | None = None) -> None:
        def check_and_tell(event: Progress) -> None:
            crew.check()
            if progress is not None:
                progress(event)

        super().__init__(scheduler, check_and_tell)
        self._crew = crew

    @property
    def n_tasks(self) -> int:
        expected = self._crew.expected
        return 1 if expected is None else self.scheduler.n_threads // expected

    def nearby(self) -> Engine:
        """For passes of its own that no other job could share."""
        return _JobEngine(self.scheduler.nearby(), self._crew)

    def with_progress(self, progress: ProgressListener | None) -> Engine:
        return type(self)(self.scheduler, self._crew, progress)

    def run_pass(self, work: Pass, numbers: Sequence[int]) -> list[Node[Any]]:
        self._crew.check()
        return super().run_pass(work, numbers)

    def close(self) -> None:
        """Its scheduler belongs to the engine that runs the jobs."""


class _SteppingEngine(_JobEngine):
    """Has the passes of a job done together with those of others."""

    def run_pass(self, work: Pass, numbers: Sequence[int]) -> list[Node[Any]]:
        return self._crew.ask(_Request(work, numbers))
