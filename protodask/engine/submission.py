"""The tasks of one pass on a cluster: submitted together, and watched until each has given its result.

Nobody may wait for ever: neither where there is no worker left, nor for tasks that the scheduler will not run.
"""

from __future__ import annotations

import time
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import dask
import dask.utils
from distributed import Client, Future, KilledWorker, as_completed

from protodask.engine.graph import Task
from protodask.engine.reduction import identity
from protodask.errors import ClusterError, count

WORKER_SECONDS = 300.0
"""How long a pass waits while there is no worker that takes tasks: job queues take their time."""

WORKER_SECONDS_SETTING = "protodask.worker-timeout"
"""Dask's configuration may say otherwise, as in the environment: DASK_PROTODASK__WORKER_TIMEOUT=30s."""

LOOK_SECONDS = 1.0
"""How often a pass that waits for results looks at the workers."""

STUCK_LOOKS = 2
"""Looks after which a task that no worker has is submitted again. A task that is just moving is between two workers for
less than one."""

MOST_TRIES = 3
"""Times a task is submitted. The scheduler gives a task up once four workers died with it, as they may where machines
are taken away again and again; a task that itself is the reason, mostly by its memory, costs a dozen workers then."""

RUNNING = "running"
"""Status of a worker that takes tasks; others are paused, for their memory, or about to end."""

SCHEDULER_LOST = "scheduler-connection-lost"
"""Why Dask says that a task was cancelled whose scheduler went away."""

Build = Callable[[Sequence[int], str, Sequence[Sequence[str]]], dict[str, Any]]
"""The graph of some tasks, each under the key that `task_key` gives it with the same token, and for the workers that it
is to run on if they are there."""


class Again:
    """Result of a task whose worker was told too little: it is submitted again, for any worker."""


def task_key(token: str, task: int) -> str:
    """Key of a task in the graph of one submission."""
    return f"protodask-{token}-{task}"


def results_of(
    client: Client, n_tasks: int, token: str, build: Build, placed: Sequence[Sequence[str]], stay: bool = False
) -> Generator[tuple[int, Any], None, None]:
    """Number and result of each task as it ends. `placed` are the workers a task is to run on if they are there.

    Results that `stay` where they are come as futures.
    """
    with closing(_Submission(client, build, token, stay)) as submission:
        submission.submit(range(n_tasks), placed)
        while submission.waiting:
            submission.wait()
            yield from submission.ended()


def results_in_turn(
    client: Client, n_tasks: int, token: str, build: Build, threads: Callable[[], Mapping[str, int]]
) -> Generator[tuple[int, Any], None, None]:
    """Number and result of each task as it ends; a task begins when a thread is free, of those that workers have now.

    Left to itself the scheduler prefers workers that have what tasks need: at first 64 of 10 ms went to one of four.
    """
    at_work: dict[int, str] = {}
    begun = 0
    with closing(_Submission(client, build, token, stay=False)) as submission:
        while begun < n_tasks or submission.waiting:
            busy = Counter(at_work.values())
            free = sorted((place, worker) for worker, most in threads().items() for place in range(busy[worker], most))
            placed = {begun + number: worker for number, (_, worker) in enumerate(free[: n_tasks - begun])}
            if placed:
                submission.submit([*placed], [[worker] for worker in placed.values()])
                at_work |= placed
                begun += len(placed)
            submission.wait()
            for task, result in submission.ended():
                del at_work[task]
                yield task, result


class _Submission:
    def __init__(self, client: Client, build: Build, token: str, stay: bool) -> None:
        self._client = client
        self._build = build
        self._token = token
        self._stay = stay
        self._patience = Patience()
        self._completed = as_completed(loop=client.loop, with_results=not stay)
        self._futures: dict[str, Future[Any]] = {}
        self._task: dict[str, int] = {}
        self._preferred: set[str] = set()
        self._looks_without_worker: dict[str, int] = {}
        self._submissions = 0
        self._tries: Counter[int] = Counter()

    @property
    def waiting(self) -> Collection[str]:
        """Keys of the tasks that have not ended."""
        return self._task.keys()

    def submit(self, tasks: Sequence[int], placed: Sequence[Sequence[str]]) -> None:
        token = f"{self._token}-{self._submissions}"
        self._submissions += 1
        self._tries.update(tasks)
        graph = self._build(tasks, token, placed)
        keys = [task_key(token, task) for task in tasks]
        preferred = dict(zip(keys, placed, strict=True))
        # Preferred, not bound: the scheduler takes another worker where the preferred one is gone.
        workers = {key: list(preferred.get(key, [])) for key in graph}
        with dask.annotate(workers=workers.__getitem__, allow_other_workers=True):
            futures = submit_graph(self._client, graph, keys)
        self._task.update(zip(keys, tasks, strict=True))
        self._futures.update(zip(keys, futures, strict=True))
        self._preferred.update(key for key in keys if preferred[key])
        self._completed.update(futures)

    def wait(self) -> None:
        """Wait a moment for a task to end; if none does, see whether there are workers, and tasks that none has."""
        with self._completed.thread_condition:
            if not self._completed.has_ready():
                self._completed.thread_condition.wait(timeout=LOOK_SECONDS)
        if not self._completed.has_ready():
            self._look_for_stuck(self._has_workers())

    def _has_workers(self) -> bool:
        """Whether there is a worker that takes tasks; gives up once there was none for too long."""
        workers = workers_of(self._client)
        if any(worker["status"] == RUNNING for worker in workers.values()):
            self._patience.regain()
            return True
        self._patience.lose(len(workers))
        return False

    def ended(self) -> Iterator[tuple[int, Any]]:
        for found in self._completed.next_batch(block=False):
            future, result = (found, found) if self._stay else found
            task = self._task.pop(future.key, None)
            self._preferred.discard(future.key)
            if task is None:
                continue  # given up in favour of another try
            if future.cancelled():
                raise cancelled(self._client, result)
            if future.status == "error":
                _, error, traceback = (None, future.exception(), future.traceback()) if self._stay else result
                if not isinstance(error, KilledWorker) or self._tries[task] >= MOST_TRIES:
                    raise error.with_traceback(traceback)
                warnings.warn(
                    f"A task was lost with several workers in turn and is tried again ({self._tries[task] + 1} of "
                    f"{MOST_TRIES}). Workers that are killed again and again mostly lack memory.",
                    stacklevel=2,
                )
                self.submit([task], [[]])
                continue
            kept = self._futures.pop(future.key)
            if not self._stay:
                # Let go of at once: if its worker dies the scheduler would make it anew, and a pass could end while
                # what it writes is being written again.
                kept.release()
            if (future.type if self._stay else type(result)) is Again:
                self.submit([task], [[]])
                continue
            yield task, result

    def _look_for_stuck(self, workers: bool) -> None:
        """Submit again, without preference, what no worker has had for a while although there are some.

        A task that has a preferred worker, and becomes runnable while there is no worker at all, is not run when
        another worker than that one joins later.
        """
        assigned = {key for keys in asked(self._client, self._client.processing).values() for key in keys}
        looks = self._looks_without_worker
        # One that has ended, and whose result is under way, is with no worker any more.
        pending = {key for key in self._preferred if self._futures[key].status == "pending"}
        idle = [key for key in pending if workers and key not in assigned]
        self._looks_without_worker = {key: looks.get(key, 0) + 1 for key in idle}
        stuck = [key for key, seen in self._looks_without_worker.items() if seen > STUCK_LOOKS]
        if stuck:
            tasks = [self._task.pop(key) for key in stuck]
            given_up = [self._futures.pop(key) for key in stuck]
            self._preferred.difference_update(stuck)
            self.submit(tasks, [[] for _ in tasks])
            self._client.cancel(given_up)

    def close(self) -> None:
        for future in self._futures.values():
            future.release()


def submit_graph(client: Client, graph: dict[str, Any], keys: list[str]) -> list[Future[Any]]:
    """The futures of some tasks of a graph."""
    _require_connection(client)
    try:
        futures: list[Future[Any]] = client.get(graph, keys, sync=False)
    except Exception as error:
        if client.status == "running":
            raise
        raise lost_scheduler(error) from error
    return futures


def first_workers(client: Client) -> Mapping[str, Any]:
    """What the scheduler says of its workers, once there is one.

    A task waits for it, too: a cluster that adapts to its load, and went down to no worker, starts none without.
    """
    patience = Patience()
    waiting: list[Future[Any]] = []
    while not (workers := workers_of(client)):
        if not waiting:
            key = f"protodask-first-worker-{uuid.uuid4().hex}"
            waiting = submit_graph(client, {key: Task(key, identity, None)}, [key])
        patience.lose(0)
        time.sleep(LOOK_SECONDS)
    return workers


class Patience:
    """How long there may be no worker that takes tasks."""

    def __init__(self) -> None:
        self._seconds = float(dask.utils.parse_timedelta(dask.config.get(WORKER_SECONDS_SETTING, WORKER_SECONDS)))
        self._since: float | None = None

    def regain(self) -> None:
        """There is one."""
        self._since = None

    def lose(self, idle: int) -> None:
        """There is none, but for `idle` ones that take no tasks: raise when that has lasted too long."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if now - self._since < self._seconds:
            return
        if idle:
            raise ClusterError(
                "no-workers",
                f"None of {count(idle, 'worker')} took a task for {self._seconds:g} seconds.",
                "Workers pause when their memory is nearly full: give them more, or blocks fewer rows.",
            )
        raise ClusterError(
            "no-workers",
            f"The scheduler had no worker for {self._seconds:g} seconds.",
            "Start workers for it, and repeat.",
        )


def workers_of(client: Client) -> Mapping[str, Any]:
    """What the scheduler says of each of its workers, by address."""
    workers: Mapping[str, Any] = asked(client, lambda: client.scheduler_info(n_workers=-1))["workers"]
    return workers


def asked(client: Client, question: Callable[[], Any]) -> Any:
    """What the scheduler answers."""
    _require_connection(client)
    try:
        return question()
    except (OSError, TimeoutError) as error:
        raise lost_scheduler(error) from error


def _require_connection(client: Client) -> None:
    """Calls of a client that lost its scheduler give what was known before."""
    if client.status != "running":
        raise lost_scheduler(f"the client is {client.status}")


def cancelled(client: Client, found: object) -> ClusterError:
    """The error for a task that was cancelled; `found` says why if it is an exception, else it is any result."""
    reason = found if isinstance(found, Exception) else "its tasks were cancelled"
    if client.status != "running" or getattr(found, "reason", None) == SCHEDULER_LOST:
        return lost_scheduler(reason)
    said = f" ({_in_one_line(reason)})" if reason is found else ""
    return ClusterError(
        "task-lost",
        f"Tasks were cancelled before they ended{said}.",
        "Somebody cancelled them or restarted the workers: repeat.",
    )


def _in_one_line(reason: object) -> str:
    return " ".join(str(reason).split()).rstrip(".")


def lost_scheduler(reason: object) -> ClusterError:
    """The error for a scheduler that is gone, in one line whatever Dask says."""
    return ClusterError(
        "connection-lost",
        f"The connection to the scheduler was lost ({_in_one_line(reason)}).",
        "Check that the scheduler still runs, and repeat.",
    )
