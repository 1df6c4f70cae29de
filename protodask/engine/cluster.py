"""Scheduling on a Dask cluster: the same tasks, run by `distributed`."""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import chain
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np
from distributed import Client, Future, KilledWorker, get_worker, rejoin, secede
from distributed.comm import CommClosedError
from distributed.core import Status
from distributed.protocol import pickle
from distributed.worker import thread_state
from numpy.typing import NDArray

from protodask.engine.blas import one_blas_thread
from protodask.engine.blocks import Block
from protodask.engine.connect import TlsFiles, connect_client
from protodask.engine.graph import Task, TaskRef
from protodask.engine.groups import BlockCache, Pass, Reader, split_blocks
from protodask.engine.memory import cache_budget, process_memory_limit
from protodask.engine.placement import Placement, Share
from protodask.engine.reduction import Merge, Node, fold_nodes, identity
from protodask.engine.scheduling import Processes, thread_tasks
from protodask.engine.sources import PlaceHolder, Source, leaves, with_leaves
from protodask.engine.submission import (
    Again,
    asked,
    first_workers,
    lost_scheduler,
    results_in_turn,
    results_of,
    submit_graph,
    task_key,
    workers_of,
)
from protodask.engine.threads import MOST_THREADS, ThreadScheduler, available_threads, run_groups
from protodask.errors import ClusterError, LostTaskError, refusing

NEARBY_THREADS = 2
"""Of the driver for small passes: each has a tile of the kernel in its memory, which plans allow for."""

SHARE_BYTES = 64 * 2**10
"""Arguments above this many bytes travel once for each worker, not once for each task."""


MOST_TO_DRIVER = 32
"""Tasks whose partials all go to the driver. Of more, they are merged on the workers first."""

MERGED_TOGETHER = 16
"""Tasks whose partials are merged by one."""

MOST_DESCRIPTIONS = 64
"""Descriptions of passes that a worker keeps; those of the evaluations of a fit are one."""

LONGEST_DESCRIPTION = 16 * 2**20
"""Bytes of one that is kept: 8 for each block of a dataset are less, and what holds rows itself is more."""


class ClusterScheduler:
    """Runs tasks on the workers of a Dask cluster, one of each pass for each worker, on threads of its own.

    A task names its source and its blocks and may run anywhere; it is only *preferred* on the worker that has these
    blocks in its cache. What a pass is, its source and functions, travels to a worker once: later passes name it.
    Values that travel are the results of tasks themselves, so that the scheduler can make them again when the worker
    that held them is lost.
    """

    def __init__(self, client: Client, owned: bool = False) -> None:
        self._client = client
        self._owned = owned
        self._placement = Placement()
        self._described: dict[str, OrderedDict[str, None]] = {}
        """Descriptions that each worker was given, the last one last."""
        self._threads: dict[str, int] = {}
        self._shipped: dict[str, dict[int, Future[Any]]] = {}
        self._functions: WeakKeyDictionary[Callable[[Any], Any], Future[Any]] = WeakKeyDictionary()
        """What `each` was given, as long as somebody has it."""
        self._nearby: ThreadScheduler | None = None

    @classmethod
    def connect(cls, address: str, tls: TlsFiles | None = None, insecure: bool = False) -> ClusterScheduler:
        """Connect to a running scheduler; `connect_client` says how."""
        return cls(connect_client(address, tls, insecure), owned=True)

    @property
    def n_threads(self) -> int:
        return sum(self._count_threads().values())

    def _count_threads(self) -> dict[str, int]:
        """That compute on each worker there is now; waits for the first one."""
        self._threads = {address: min(threads, MOST_THREADS) for address, threads in self._all_threads().items()}
        return self._threads

    def _all_threads(self) -> dict[str, int]:
        """Of each worker there is now; waits for the first one."""
        return {address: int(worker["nthreads"]) for address, worker in first_workers(self._client).items()}

    @property
    def n_tasks(self) -> int:
        return len(self._count_threads())

    @property
    def memory_bytes(self) -> int:
        limits = [int(worker["memory_limit"] or 0) for worker in workers_of(self._client).values()]
        return min((limit for limit in limits if limit > 0), default=process_memory_limit())

    def processes(self) -> Processes:
        """The workers, as if all had the threads of the one with most and the limit of the one with least."""
        total = self.n_threads  # waits for the first worker
        most = max(self._threads.values(), default=1)
        return Processes("workers", max(1, -(-total // most)), most, self.memory_bytes, process_memory_limit())

    def run(self, work: Pass, groups: Sequence[Sequence[int]], advance: Callable[[int], None]) -> list[Node[Any]]:
        numbers = np.concatenate([_as_array(group) for group in groups])
        # What a worker's cache can hold: the first part that lies in a store; "" where all are in memory.
        key = next((leaf.key for leaf in leaves(work.source) if not leaf.resident), "")
        n_blocks = work.source.layout.n_blocks
        shares = self._placement.shares(key, n_blocks, numbers, self._threads or self._count_threads())
        description = _describe(work)
        whole = len(numbers) == n_blocks

        def build(tasks: Sequence[int], token: str, placed: Sequence[Sequence[str]]) -> dict[str, Any]:
            for task, workers in zip(tasks, placed, strict=True):
                if not workers:  # the one that it was for was lost, or did not know what it was about
                    self._described.pop(shares[task].worker, None)
            named = {
                task_key(token, task): (shares[task], bool(workers) and self._knows(workers[0], description.name))
                for task, workers in zip(tasks, placed, strict=True)
            }
            return self._graph(work, description, named, token, whole)

        placed = [[share.worker] for share in shares]
        stay = len(shares) > MOST_TO_DRIVER and not work.writes
        results: list[Any] = [None] * len(shares)
        with _losses_told():
            # Closed at once, also where this is stopped: whoever catches that may remove what the tasks write to.
            with closing(results_of(self._client, len(shares), uuid.uuid4().hex, build, placed, stay)) as tasks:
                for task, results[task] in tasks:
                    advance(shares[task].n_blocks)
            addresses = self._where(results) if stay else [address for address, _ in results]
            for address, share in zip(addresses, shares, strict=True):
                if address:
                    self._note(address, description)
                    if whole:
                        self._placement.ran(key, n_blocks, share, address)
            if not stay:
                return [node for _, nodes in results for node in nodes]
            merged = self._merged(results, work.merge)
        if merged is not None:
            return merged
        # Partials were lost with their worker, and the one that was to compute them anew does not know the pass.
        self._described.clear()
        return self.run(work, groups, lambda blocks: None)  # they were told of before

    def each(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Generator[tuple[int, Any], None, None]:
        """A task for each item, which begins when a thread is free."""
        sent = self._functions.get(function)
        if sent is None or sent.status not in ("pending", "finished"):
            sent = self._send(f"protodask-function-{uuid.uuid4().hex}", _Packed(pickle.dumps(function)))
            self._functions[function] = sent
        shared = TaskRef(sent.key)

        def build(tasks: Sequence[int], token: str, placed: Sequence[Sequence[str]]) -> dict[str, Any]:
            keys = [task_key(token, task) for task in tasks]
            packed = [pickle.dumps(items[task]) for task in tasks]
            return {key: Task(key, _call_on_worker, shared, item) for key, item in zip(keys, packed, strict=True)}

        with _losses_told():
            token = uuid.uuid4().hex
            with closing(results_in_turn(self._client, len(items), token, build, self._all_threads)) as tasks:
                for task, result in tasks:
                    yield task, pickle.loads(result)

    def _where(self, futures: Sequence[Future[Any]]) -> list[str]:
        """The worker that has each result, "" where it is lost by now."""
        found = asked(self._client, lambda: self._client.who_has(futures))
        return [next(iter(found.get(future.key, ())), "") for future in futures]

    def _merged(self, futures: Sequence[Future[Any]], merge: Merge) -> list[Node[Any]] | None:
        """The nodes of tasks, merged by some of the workers wherever they complete each other; None if that failed."""

        def build(tasks: Sequence[int], token: str, placed: Sequence[Sequence[str]]) -> dict[str, Any]:
            graph: dict[str, Any] = {}
            inputs = [TaskRef(future.key) for future in futures]
            while len(inputs) > 1:
                merged: list[TaskRef] = []
                for first in range(0, len(inputs), MERGED_TOGETHER):
                    key = f"protodask-{token}-merge-{len(graph)}"
                    graph[key] = Task(key, _merge_on_worker, merge, *inputs[first : first + MERGED_TOGETHER])
                    merged.append(TaskRef(key))
                inputs = merged
            key = task_key(token, 0)
            graph[key] = Task(key, identity, *inputs)
            return graph

        found: list[tuple[int, tuple[str, list[Node[Any]] | None]]]
        found = list(results_of(self._client, 1, uuid.uuid4().hex, build, [[]]))
        return found[0][1][1]

    def _knows(self, worker: str, name: str) -> bool:
        return name in self._described.get(worker, ())

    def _note(self, worker: str, description: _Description) -> None:
        """A worker has a description; it keeps the last ones."""
        if description.kept:
            _keep(self._described.setdefault(worker, OrderedDict()), description.name, None)

    def _graph(
        self, work: Pass, description: _Description, named: dict[str, tuple[Share, bool]], token: str, whole: bool
    ) -> dict[str, Any]:
        """A task for each share, by key, and what they share; it says of each whether its worker knows the pass."""
        graph: dict[str, Any] = {}
        inputs: list[TaskRef] = []
        arguments: list[Any] = []
        for position, value in enumerate(work.args):
            given = TaskRef(value.future.key) if isinstance(value, _Shared) else value
            given = _once(graph, f"protodask-{token}-argument-{position}", given, getattr(given, "nbytes", 0))
            arguments.append(_Input(len(inputs)) if isinstance(given, TaskRef) else given)
            inputs += [given] if isinstance(given, TaskRef) else []
        held = tuple(leaf for leaf in leaves(work.source) if leaf.resident)
        # Unpickled by the task: what a worker cannot import is then an error of the task, and not the worker's end.
        given = pickle.dumps(arguments)
        ready = _once(graph, f"protodask-{token}-arguments", given, len(given))
        packed: Any = None
        if not all(known for _, known in named.values()):
            packed = _once(graph, f"protodask-{token}-work", description.packed, len(description.packed))
        for key, (share, known) in named.items():
            shipped = [self._ship(leaf, number) for leaf in held for run in share.runs for number in run]
            order = _Order(description.name, description.kept, share.runs, whole, len(inputs))
            graph[key] = Task(key, _run_on_worker, order, None if known else packed, ready, *inputs, *shipped)
        return graph

    def share(self, value: Any) -> Any:
        """The value as the result of a task, which any worker fetches once and the scheduler can make again."""
        key = f"protodask-shared-{uuid.uuid4().hex}"
        return _Shared(self._send(key, value))

    def _send(self, key: str, value: Any) -> Future[Any]:
        return submit_graph(self._client, {key: Task(key, identity, value)}, [key])[0]

    def _ship(self, leaf: Source, number: int) -> TaskRef:
        futures = self._shipped.setdefault(leaf.key, {})
        if number not in futures:
            futures[number] = self._send(f"protodask-block-{leaf.key}-{number}", leaf.read(number))
        return TaskRef(futures[number].key)

    def forget(self, key: str) -> None:
        """Drop what was shipped of a source, and where it was read."""
        self._shipped.pop(key, None)
        self._placement.forget(key)

    def nearby(self) -> ThreadScheduler:
        """Threads of the driver: a small pass takes less time than telling a worker of it."""
        if self._nearby is None:
            self._nearby = ThreadScheduler(min(available_threads(), NEARBY_THREADS))
        return self._nearby

    def close(self) -> None:
        if self._nearby is not None:
            self._nearby.close()
            self._nearby = None
        self._shipped.clear()
        self._functions.clear()
        if self._owned:
            self._client.close()


@contextmanager
def thread_given_up() -> Iterator[None]:
    """In a task, leaves its thread to other tasks: those that it waits for could find none free, and it never end."""
    given_up = False
    if getattr(thread_state, "key", None) is not None:
        # Of a thread that was given up before, as in a `worker_client`, Dask says that it is none of the worker's.
        with suppress(KeyError):
            secede()
            given_up = True
    try:
        yield
    finally:
        if given_up:
            rejoin()


@contextmanager
def _losses_told() -> Iterator[None]:
    """Says what the loss of tasks or of the scheduler means."""
    try:
        yield
    except KilledWorker as error:
        raise LostTaskError(
            "task-lost",
            f"A task was given up after it was lost with several workers in turn ({error}).",
            "A worker that is killed again and again mostly lacks memory: give workers more, or blocks fewer rows.",
        ) from error
    except CommClosedError as error:
        raise lost_scheduler(error) from error


class _Packed:
    """A value that the first task of a worker to ask for it unpacks: if it cannot be, that is an error of the task."""

    def __init__(self, packed: bytes) -> None:
        self._packed: bytes | None = packed
        self._value: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        with _unpacking:
            return _Packed, (pickle.dumps(self._value) if self._packed is None else self._packed,)

    def value(self) -> Any:
        with _unpacking:
            if self._packed is not None:
                self._value = pickle.loads(self._packed)
                self._packed = None
            return self._value


_unpacking = threading.Lock()


@dataclass(frozen=True)
class _Shared:
    future: Future[Any]


@dataclass(frozen=True)
class _Input:
    """Stands for an argument that comes to the task as the result of another."""

    position: int


def _as_array(numbers: Sequence[int]) -> NDArray[np.int64]:
    if isinstance(numbers, range):  # a million blocks would take a tenth of a second one by one
        return np.arange(numbers.start, numbers.stop, numbers.step, dtype=np.int64)
    return np.array(numbers, dtype=np.int64)


def _keep(kept: OrderedDict[str, Any], name: str, value: Any) -> None:
    """Add something to what is kept, and let go of what was used longest ago."""
    kept[name] = value
    kept.move_to_end(name)
    while len(kept) > MOST_DESCRIPTIONS:
        kept.popitem(last=False)


def _once(graph: dict[str, Any], key: str, value: Any, size: int) -> Any:
    """What tasks are given for a value: where it has many bytes, the result of a task, which a worker fetches once."""
    if size <= SHARE_BYTES:
        return value
    graph[key] = Task(key, identity, value)
    return TaskRef(key)


def _merge_on_worker(merge: Merge, *parts: Any) -> tuple[str, list[Node[Any]] | None]:
    """What tasks returned, as if one had done their work; None where one of them did not know it."""
    address = get_worker().address
    if any(isinstance(part, Again) or part[1] is None for part in parts):
        return address, None
    return address, fold_nodes([node for _, nodes in parts for node in nodes], merge)


@dataclass(frozen=True)
class _Description:
    """What passes have in common that differ in their arguments alone: the source, and what is done with its blocks."""

    packed: bytes
    name: str
    """Of its content."""

    @property
    def kept(self) -> bool:
        """Whether workers keep it for later passes."""
        return len(self.packed) <= LONGEST_DESCRIPTION


def _describe(work: Pass) -> _Description:
    source = with_leaves(work.source, lambda leaf: PlaceHolder(leaf.key, leaf.layout) if leaf.resident else leaf)
    packed = pickle.dumps((source, work.map, work.merge, work.prepare))
    return _Description(packed, blake2b(packed, digest_size=16).hexdigest())


@dataclass(frozen=True)
class _Order:
    """What one task is to do."""

    description: str
    kept: bool
    """Whether the description is for later passes, too."""
    runs: tuple[range, ...]
    whole: bool
    """Whether the pass is over all blocks of its source."""
    n_shared: int
    """Arguments that are results of other tasks."""


def _run_on_worker(order: _Order, packed: bytes | None, arguments: bytes, *inputs: Any) -> Any:
    state = _worker_state()
    with _loading():
        work = state.recall(order.description) if packed is None else pickle.loads(packed)
        if packed is not None and order.kept:
            state.learn(order.description, work)
        given = pickle.loads(arguments)
    if work is None:
        return Again()  # another worker than that which knows it, or it began anew
    source, map_block, merge, prepare = work
    args = tuple(inputs[value.position] if isinstance(value, _Input) else value for value in given)
    numbers: Sequence[int] = order.runs[0] if len(order.runs) == 1 else list(chain.from_iterable(order.runs))
    source = with_leaves(source, _shipped(source, numbers, inputs[order.n_shared :]))
    return get_worker().address, state.run(Pass(source, map_block, merge, args, prepare), numbers, order.whole)


def _loading() -> AbstractContextManager[None]:
    """Says what it means where a worker cannot unpickle its work."""
    remedy = "Install on the workers what is installed here, in the same versions."
    kinds = (ImportError, AttributeError)
    return refusing(kinds, "package-missing", "A worker could not load its work", remedy, ClusterError)


def _call_on_worker(function: _Packed, item: bytes) -> bytes:
    with _loading():
        called, given = function.value(), pickle.loads(item)
    with one_blas_thread():
        result = called(given)
    # Pickled by the task: what cannot be is then an error of the task, and not a result that is asked for for ever.
    remedy = "Use what can be pickled, or compute without a cluster."
    with refusing(Exception, "user-code", "What was computed on a worker cannot be sent from there", remedy):
        return cast("bytes", pickle.dumps(result))


def _shipped(source: Source, numbers: Sequence[int], blocks: Sequence[Block]) -> Callable[[Source], Source]:
    """Puts the blocks that came to a task where they belong: those of each leaf together, in the order of leaves."""
    held = [leaf.key for leaf in leaves(source) if leaf.resident]
    found = {
        key: {block.number: block for block in blocks[position * len(numbers) : (position + 1) * len(numbers)]}
        for position, key in enumerate(held)
    }
    return lambda leaf: replace(leaf, blocks=found[leaf.key]) if isinstance(leaf, PlaceHolder) else leaf


@dataclass
class _WorkerState:
    """What a worker process keeps between tasks: a cache, threads, and what passes are."""

    reader: Reader
    threads: ThreadPoolExecutor
    n_threads: int
    descriptions: OrderedDict[str, Any] = field(default_factory=OrderedDict)

    def learn(self, name: str, description: Any) -> None:
        """Keep the last ones."""
        with _state_lock:
            _keep(self.descriptions, name, description)

    def recall(self, name: str) -> Any:
        """A description, None if it is not known any more."""
        with _state_lock:
            if name in self.descriptions:
                self.descriptions.move_to_end(name)
            return self.descriptions.get(name)

    def run(self, work: Pass, numbers: Sequence[int], whole: bool) -> list[Node[Any]]:
        """The partials of some blocks, on all threads, merged wherever they complete each other."""
        reader = replace(self.reader, own=frozenset(numbers)) if whole else self.reader
        groups = split_blocks(numbers, thread_tasks(self.n_threads))
        with one_blas_thread():
            work = work.prepared()
        return fold_nodes(run_groups(work, groups, reader, self.threads, _check_wanted()), work.merge)


class _UnwantedError(Exception):
    """Ends a task that nobody waits for any more."""


def _check_wanted() -> Callable[[], None]:
    """Raises once nobody waits for the task in this thread, as when another one of its pass failed, or once its worker
    ends.
    """
    worker, key = get_worker(), thread_state.key

    def check() -> None:
        task = worker.state.tasks.get(key)
        if task is None or task.state == "cancelled" or worker.status not in (Status.running, Status.paused):
            raise _UnwantedError

    return check


_state_lock = threading.Lock()


def _worker_state() -> _WorkerState:
    """That of this worker process, made on first use and kept with the worker."""
    worker = get_worker()
    with _state_lock:
        state: _WorkerState | None = getattr(worker, "_protodask_state", None)
        if state is None:
            limit = worker.memory_manager.memory_limit or process_memory_limit()
            threads = min(worker.state.nthreads, MOST_THREADS)
            readers = ThreadPoolExecutor(threads, thread_name_prefix="protodask-read")
            state = _WorkerState(
                Reader(BlockCache(cache_budget(limit, threads)), readers),
                ThreadPoolExecutor(threads, thread_name_prefix="protodask"),
                threads,
            )
            worker._protodask_state = state  # type: ignore[attr-defined]
        return state
