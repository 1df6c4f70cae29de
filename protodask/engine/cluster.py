"""Scheduling on a Dask cluster: the same tasks, run by `distributed`."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from distributed import Client, Future, KilledWorker, get_worker
from distributed.comm import CommClosedError
from distributed.protocol import pickle

from protodask.engine.blocks import Block
from protodask.engine.cache import BlockCache
from protodask.engine.connect import TlsFiles, connect_client
from protodask.engine.graph import Task, TaskRef
from protodask.engine.groups import Pass, Reader, run_group
from protodask.engine.memory import cache_budget, process_memory_limit
from protodask.engine.reduction import Node
from protodask.engine.scheduling import TASKS_PER_WORKER_THREAD, Processes
from protodask.engine.sources import PlaceHolder, Source, leaves, with_leaves
from protodask.engine.submission import lost_scheduler, results_of, submit_graph, task_key, wait_for_worker, workers_of
from protodask.errors import ClusterError, LostTaskError

SHARE_BYTES = 64 * 2**10
"""Arguments above this many bytes travel once for each worker, not once for each task."""


class ClusterScheduler:
    """Runs tasks on the workers of a Dask cluster.

    A task names its source and its blocks and may run anywhere; it is only *preferred* on the worker that had the same
    blocks last, whose cache is warm. Values that travel are the results of tasks themselves, so that the scheduler can
    make them again when the worker that held them is lost.
    """

    def __init__(self, client: Client, owned: bool = False) -> None:
        self._client = client
        self._owned = owned
        self._last_worker: dict[tuple[str, int, int], str] = {}
        self._threads: dict[str, int] = {}
        self._shipped: dict[str, dict[int, Future[Any]]] = {}

    @classmethod
    def connect(cls, address: str, tls: TlsFiles | None = None, insecure: bool = False) -> ClusterScheduler:
        """Connect to a running scheduler; `connect_client` says how."""
        return cls(connect_client(address, tls, insecure), owned=True)

    @property
    def n_threads(self) -> int:
        self._threads = self._count_threads()
        if not self._threads:
            wait_for_worker(self._client)
            self._threads = self._count_threads()
        return sum(self._threads.values())

    def _count_threads(self) -> dict[str, int]:
        return {address: int(worker["nthreads"]) for address, worker in workers_of(self._client).items()}

    @property
    def n_tasks(self) -> int:
        return TASKS_PER_WORKER_THREAD * self.n_threads

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
        names = [(_cached_key(work.source), group[0], group[-1]) for group in groups]
        token = uuid.uuid4().hex

        def build(tasks: Sequence[int], token: str) -> dict[str, Any]:
            return self._graph(work, {task_key(token, task): groups[task] for task in tasks}, token)

        nodes: list[Node[Any]] = []
        try:
            for task, (address, found) in results_of(self._client, len(groups), token, build, self._place(names)):
                self._last_worker[names[task]] = address
                nodes.extend(found)
                advance(len(groups[task]))
        except KilledWorker as error:
            raise LostTaskError(
                "task-lost",
                f"A task was given up after it was lost with several workers in turn ({error}).",
                "A worker that is killed again and again mostly lacks memory: give workers more, or blocks fewer rows.",
            ) from error
        except CommClosedError as error:
            raise lost_scheduler(error) from error
        return nodes

    def _graph(self, work: Pass, groups: Mapping[str, Sequence[int]], token: str) -> dict[str, Any]:
        """A task for each group of blocks, by key, and what they share."""
        graph: dict[str, Any] = {}
        inputs: list[TaskRef] = []
        arguments: list[Any] = []
        for position, value in enumerate(work.args):
            reference = self._reference(graph, f"protodask-{token}-argument-{position}", value)
            arguments.append(value if reference is None else _Input(len(inputs)))
            inputs += [] if reference is None else [reference]
        held = tuple(leaf for leaf in leaves(work.source) if leaf.resident)
        source = with_leaves(work.source, lambda leaf: PlaceHolder(leaf.key, leaf.layout) if leaf.resident else leaf)
        # Unpickled by the task: what a worker cannot import is then an error of the task, and not the worker's end.
        packed: Any = pickle.dumps((source, work.map, work.merge, work.prepare, arguments))
        if len(packed) > SHARE_BYTES:  # as with many thousands of blocks or features, which the dataset describes
            name = f"protodask-{token}-work"
            graph[name] = Task(name, _identity, packed)
            packed = TaskRef(name)
        for key, group in groups.items():
            shipped = [self._ship(leaf, number) for leaf in held for number in group]
            graph[key] = Task(key, _run_on_worker, packed, group, len(inputs), *inputs, *shipped)
        return graph

    def _place(self, names: list[tuple[str, int, int]]) -> list[list[str]]:
        """A worker for each group: the one that had it last, unless that one has its share already; else the one with
        most room. Left to itself the scheduler may give all groups to one worker, pass after pass.
        """
        if not self._threads:
            return [[] for _ in names]
        rounds = -(-len(names) // sum(self._threads.values()))
        room = {address: rounds * threads for address, threads in self._threads.items()}
        placed: list[list[str]] = []
        for name in names:
            last = self._last_worker.get(name)
            placed.append([last] if last is not None and room.get(last, 0) > 0 else [])
            if placed[-1] and last is not None:
                room[last] -= 1
        for position, workers in enumerate(placed):
            if not workers:
                roomiest = max(room, key=room.__getitem__)
                room[roomiest] -= 1
                placed[position] = [roomiest]
        return placed

    def share(self, value: Any) -> Any:
        """The value as the result of a task, which any worker fetches once and the scheduler can make again."""
        key = f"protodask-shared-{uuid.uuid4().hex}"
        return _Shared(self._send(key, value))

    def _send(self, key: str, value: Any) -> Future[Any]:
        return submit_graph(self._client, {key: Task(key, _identity, value)}, [key])[0]

    def _reference(self, graph: dict[str, Any], key: str, value: Any) -> TaskRef | None:
        """The task whose result is an argument, where it does not go to the tasks as it is."""
        if isinstance(value, _Shared):
            return TaskRef(value.future.key)
        if getattr(value, "nbytes", 0) > SHARE_BYTES:
            graph[key] = Task(key, _identity, value)
            return TaskRef(key)
        return None

    def _ship(self, leaf: Source, number: int) -> TaskRef:
        futures = self._shipped.setdefault(leaf.key, {})
        if number not in futures:
            futures[number] = self._send(f"protodask-block-{leaf.key}-{number}", leaf.read(number))
        return TaskRef(futures[number].key)

    def forget(self, key: str) -> None:
        """Drop what was shipped of a source, and where it was read."""
        self._shipped.pop(key, None)
        self._last_worker = {name: worker for name, worker in self._last_worker.items() if name[0] != key}

    def close(self) -> None:
        self._shipped.clear()
        if self._owned:
            self._client.close()


@dataclass(frozen=True)
class _Shared:
    future: Future[Any]


@dataclass(frozen=True)
class _Input:
    """Stands for an argument that comes to the task as the result of another."""

    position: int


def _cached_key(source: Source) -> str:
    """What a worker's cache can hold of a source: its first part that lies in a store."""
    return next((leaf.key for leaf in leaves(source) if not leaf.resident), "")


def _identity(value: Any) -> Any:
    return value


def _run_on_worker(packed: bytes, numbers: Sequence[int], n_shared: int, *inputs: Any) -> tuple[str, list[Node[Any]]]:
    try:
        source, map_block, merge, prepare, arguments = pickle.loads(packed)
    except (ImportError, AttributeError) as error:
        raise ClusterError(
            "package-missing",
            f"A worker could not load its work ({error}).",
            "Install on the workers what is installed here, in the same versions.",
        ) from error
    arguments = tuple(inputs[value.position] if isinstance(value, _Input) else value for value in arguments)
    source = with_leaves(source, _shipped(source, numbers, inputs[n_shared:]))
    nodes = run_group(Pass(source, map_block, merge, arguments, prepare), numbers, _worker_reader())
    return get_worker().address, nodes


def _shipped(source: Source, numbers: Sequence[int], blocks: Sequence[Block]) -> Callable[[Source], Source]:
    """Puts the blocks that came to a task where they belong: those of each leaf together, in the order of leaves."""
    held = [leaf.key for leaf in leaves(source) if leaf.resident]
    found = {
        key: {block.number: block for block in blocks[position * len(numbers) : (position + 1) * len(numbers)]}
        for position, key in enumerate(held)
    }
    return lambda leaf: replace(leaf, blocks=found[leaf.key]) if isinstance(leaf, PlaceHolder) else leaf


_reader_lock = threading.Lock()


def _worker_reader() -> Reader:
    """The reader of this worker process, made on first use and kept with the worker."""
    worker = get_worker()
    with _reader_lock:
        reader: Reader | None = getattr(worker, "_protodask_reader", None)
        if reader is None:
            limit = worker.memory_manager.memory_limit or process_memory_limit()
            readers = ThreadPoolExecutor(worker.state.nthreads, thread_name_prefix="protodask-read")
            reader = Reader(BlockCache(cache_budget(limit, worker.state.nthreads)), readers)
            worker._protodask_reader = reader  # type: ignore[attr-defined]
        return reader
