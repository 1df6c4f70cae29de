"""Fixtures for all tests: clusters that end with the tests, and examples that repeat."""

import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from distributed import LocalCluster
from hypothesis import settings
from support.workers import cluster_of_processes

from protodask.engine import Engine, open_engine, thread_engine
from protodask.engine.threads import available_threads

# A slow machine is no failure. By default examples derive from the source of the test, and from the constants of those
# modules of the package that are imported by then; `--hypothesis-profile=explore` draws new ones, four times as many,
# which `--hypothesis-seed` repeats.
settings.register_profile("repeatable", deadline=None, derandomize=True, database=None, max_examples=25)
settings.register_profile("explore", deadline=None, derandomize=False, database=None, print_blob=True)
settings.load_profile("repeatable")

# Whoever started the tests may have had signals ignored, as `nohup` and shells do for what runs in the background.
# Processes inherit that, and then those that the tests interrupt would go on.
signal.signal(signal.SIGINT, signal.default_int_handler)

MEMORY_FOLDER = Path("/dev/shm")
MEMORY_NEEDED = 4 * 2**30
"""Bytes that have to be free in memory for what the tests write: several times what they were seen to take."""


def pytest_configure() -> None:
    """Temporary folders are in memory where there is enough of it: a run makes fifty thousand files."""
    if "PYTEST_DEBUG_TEMPROOT" not in os.environ and MEMORY_FOLDER.is_dir():
        room = shutil.disk_usage(MEMORY_FOLDER).free
        if os.access(MEMORY_FOLDER, os.W_OK) and min(room, psutil.virtual_memory().available) >= MEMORY_NEEDED:
            os.environ["PYTEST_DEBUG_TEMPROOT"] = str(MEMORY_FOLDER)


def pytest_xdist_auto_num_workers() -> int | None:
    """One process more than there are cores: a sixth of the time tests wait, for workers, timeouts and the disk."""
    return None if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else available_threads() + 1


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Half of the processes begin with the tests that have a limit of their own. These take long, and wait more than
    they compute: where they came last, the others waited for them for ten minutes.
    """
    n_processes: int = getattr(config, "workerinput", {}).get("workercount", 1)
    long = sorted((item for item in items if _limit(item)), key=_limit, reverse=True)
    others = [item for item in items if not _limit(item)]
    found: list[pytest.Item] = []
    beginning = (n_processes + 1) // 2
    for number in range(n_processes):
        own = long[number::beginning] if number < beginning else []
        size = (len(items) - len(found)) // (n_processes - number)  # as xdist divides them
        taken = max(0, size - len(own))
        found += own + others[:taken]
        del others[:taken]
    items[:] = found + others


def _limit(item: pytest.Item) -> float:
    """Seconds that a test says it may take, 0 where it says nothing."""
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0]) if marker is not None and marker.args else 0.0


StartCluster = Callable[[int], LocalCluster]

EXIT_SECONDS = 10
"""How long a process that was told to end may take before it counts as left behind."""


def _left_behind(before: set[int]) -> list[str]:
    """Command lines of the processes started since, and not ended now."""
    started = [child for child in psutil.Process().children(recursive=True) if child.pid not in before]
    working = []
    for process in started:
        # Python keeps a tracker and a fork server until the interpreter ends; what forks from that looks like it.
        with contextlib.suppress(psutil.NoSuchProcess):
            command = " ".join(process.cmdline())
            kept = "resource_tracker" in command or ("forkserver" in command and process.ppid() == os.getpid())
            if not kept:
                working.append((process, command))
    _, alive = psutil.wait_procs([process for process, _ in working], timeout=EXIT_SECONDS)
    return [command for process, command in working if process in alive]


@pytest.fixture(scope="module", autouse=True)
def no_process_left_behind() -> Iterator[None]:
    """Fail the module whose tests leave a worker or any other process running."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    left = _left_behind(before)
    assert not left, f"processes still run after the tests of this module: {left}"


@pytest.fixture(scope="module")
def start_cluster(no_process_left_behind: None) -> Iterator[StartCluster]:
    """A cluster of so many single-threaded worker processes, which the tests of a module share: leave it as it was.

    Not for longer: schedulers and workers that idle beside three processes of tests take half of a core. Workers keep
    blocks by the key of their source, so that keys in tests have to differ where contents do.
    """
    with contextlib.ExitStack() as clusters:
        shared: dict[int, LocalCluster] = {}

        def start(n_workers: int) -> LocalCluster:
            if n_workers not in shared:
                shared[n_workers] = clusters.enter_context(cluster_of_processes(n_workers))
            return shared[n_workers]

        yield start


@pytest.fixture(scope="module")
def address(start_cluster: StartCluster) -> str:
    """Of a scheduler with two workers of one thread and 1 GiB each."""
    return str(start_cluster(2).scheduler_address)


@pytest.fixture(scope="module")
def cluster(address: str) -> Iterator[Engine]:
    """The engine of these workers."""
    with open_engine(address) as opened:
        yield opened


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """Two threads of this process."""
    with thread_engine(2, 2**28) as opened:
        yield opened


@pytest.fixture(scope="module")
def own_cluster(no_process_left_behind: None) -> Iterator[StartCluster]:
    """The same of a cluster for one test alone, which may do with it what it likes; it is closed with the module."""
    with contextlib.ExitStack() as clusters:

        def start(n_workers: int, threads: int = 1) -> LocalCluster:
            return clusters.enter_context(cluster_of_processes(n_workers, threads))

        yield start


@pytest.fixture(scope="session")
def s3_address() -> Iterator[str]:
    """The address of an S3 server, which `support.object_stores.reached` makes that of everything."""
    from support.object_stores import running_server  # a second, which most processes of tests do without

    with running_server() as address:
        yield address


@pytest.fixture(scope="module")
def s3_server(s3_address: str) -> Iterator[str]:
    """The same address, which everything in the tests of a module reaches."""
    from support.object_stores import reached

    with reached(s3_address):
        yield s3_address


@pytest.fixture
def bucket(s3_server: str, request: pytest.FixtureRequest) -> str:
    """The URL of a new bucket."""
    from support.object_stores import make_bucket

    return make_bucket(s3_server, request.node.nodeid)
