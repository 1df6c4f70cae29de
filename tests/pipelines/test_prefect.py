"""The Prefect flow, served by a local Prefect server: scheduled and triggered.

pip install '.[test,pipelines]' && pytest -m slow tests/pipelines/test_prefect.py
"""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import ProxyHandler, Request, build_opener

import pytest

FLOW = Path(__file__).parents[2] / "pipelines" / "prefect" / "flow.py"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("prefect") is None,
        reason="Prefect is not installed: it is large, and comes with the extra [pipelines]",
    ),
]

SECONDS = 240
"""For what takes half a minute on a machine that does nothing else."""

PIPELINE = """
variables: {least: 1, if_no: fail}
steps:
  - name: made
    sample-data: {kind: checker, rows: 40, out: made.zarr}
  - name: enough
    gate: {results: figures.json, limits: {rows: {least: "${least}"}}, if-no: "${if_no}"}
  - name: more
    sample-data: {kind: checker, rows: 40, out: more.zarr}
"""


@dataclass(frozen=True)
class Served:
    """A Prefect server that serves the flow in a folder."""

    folder: Path
    api: str
    environment: Mapping[str, str]

    def ask(self, path: str, body: Any = None, method: str = "POST") -> Any:
        data = None if method == "GET" else json.dumps(body or {}).encode()
        headers = {"Content-Type": "application/json"}
        request = Request(f"{self.api}{path}", data, headers, method=method)
        with build_opener(ProxyHandler({})).open(request, timeout=30) as answer:
            content = answer.read()
        return json.loads(content) if content else None

    def runs(self, *, scheduled: bool) -> list[Any]:
        """Flow runs that came to an end, in the order in which they began."""
        states = {"type": {"any_": ["COMPLETED", "FAILED", "CRASHED", "CANCELLED"]}}
        found = self.ask("/flow_runs/filter", {"flow_runs": {"state": states}, "limit": 100})
        return sorted(
            (run for run in found if run["auto_scheduled"] is scheduled), key=lambda run: str(run["start_time"])
        )

    def tasks(self, run: Any) -> dict[str, tuple[str, int]]:
        """Of a flow run: the state of each task, and how often it was tried."""
        found = self.ask("/task_runs/filter", {"task_runs": {"flow_run_id": {"any_": [run["id"]]}}})
        return {task["name"]: (task["state_name"], task["run_count"]) for task in found}

    def trigger(self, *settings: str) -> Any:
        """Ask for a run on the command line, and wait for its end."""
        before = {run["id"] for run in self.runs(scheduled=False)}
        parameters = [part for setting in settings for part in ("--param", setting)]
        command = [sys.executable, "-m", "prefect", "deployment", "run", "protodask/small", *parameters]
        asked = subprocess.run(
            command, env=self.environment, timeout=SECONDS, check=False, capture_output=True, text=True
        )
        assert asked.returncode == 0, asked.stdout + asked.stderr

        def ended() -> Any:
            return next((run for run in self.runs(scheduled=False) if run["id"] not in before), None)

        return _wait(ended)


def _wait(look: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        with suppress(URLError, ConnectionError, TimeoutError):
            found = look()
            if found is not None:
                return found
        time.sleep(0.5)
    pytest.fail(f"nothing came within {SECONDS} seconds")


@contextmanager
def _process(command: list[str], folder: Path, environment: Mapping[str, str], log: str) -> Iterator[None]:
    """A process with all that it starts, ended at the end."""
    with open(folder / log, "wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        try:
            yield
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """With two runs on schedule behind it and no more to come, whichever of the tests a process begins with."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "small.yaml").write_text(PIPELINE)
    (folder / "figures.json").write_text('{"rows": 40}')
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    api = f"http://127.0.0.1:{port}/api"
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")},
        "PREFECT_HOME": str(folder / "prefect"),
        "PREFECT_API_URL": api,
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_RUNNER_POLL_FREQUENCY": "1",
        "DO_NOT_TRACK": "1",
        "PROTODASK_RETRY_SECONDS": "1 1",
        "PYTHONWARNINGS": "ignore",
        "NO_PROXY": "127.0.0.1",
    }
    server = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port), "--no-ui"]
    found = Served(folder, api, environment)
    with _process(server, folder, environment, "server.log"):
        _wait(lambda: found.ask("/health", method="GET"))
        flow = [sys.executable, str(FLOW), "small.yaml", "--interval", "15"]
        with _process(flow, folder, environment, "flow.log"):
            _wait(lambda: found.runs(scheduled=True)[1:] or None)
            deployment = found.ask("/deployments/name/protodask/small", method="GET")
            found.ask(f"/deployments/{deployment['id']}/pause_deployment")
            yield found


def test_flow__is_run_on_schedule_and_each_step_is_a_task(served: Served) -> None:
    first, second = served.runs(scheduled=True)[:2]
    assert (first["state_name"], second["state_name"]) == ("Completed", "Completed")
    assert served.tasks(first) == {"made": ("Completed", 1), "enough": ("Completed", 1), "more": ("Completed", 1)}
    assert served.tasks(second) == {"made": ("Cached", 1), "enough": ("Cached", 1), "more": ("Cached", 1)}
    assert {"made.zarr", "more.zarr"} <= {path.name for path in served.folder.iterdir()}


def test_flow__is_run_when_asked_for(served: Served) -> None:
    run = served.trigger()
    assert run["state_name"] == "Completed"
    assert served.tasks(run)["more"] == ("Cached", 1)


def test_flow__a_no_is_not_tried_again(served: Served) -> None:
    run = served.trigger('settings={"least": 50}')
    assert run["state_type"] == "FAILED"
    assert served.tasks(run) == {"made": ("Cached", 1), "enough": ("Failed", 1)}


def test_flow__a_no_that_is_no_failure_ends_it(served: Served) -> None:
    run = served.trigger('settings={"least": 50, "if_no": "stop"}')
    assert (run["state_type"], run["state_name"]) == ("COMPLETED", "Stopped")
    assert served.tasks(run) == {"made": ("Cached", 1), "enough": ("Stopped", 1)}


def test_flow__a_failure_is_tried_again(served: Served) -> None:
    (served.folder / "made.zarr").rename(served.folder / "away.zarr")
    (served.folder / "made.zarr").write_text("in the way")
    try:
        run = served.trigger()
    finally:
        (served.folder / "made.zarr").unlink()
        (served.folder / "away.zarr").rename(served.folder / "made.zarr")
    assert run["state_type"] == "FAILED"
    assert served.tasks(run) == {"made": ("Failed", 3)}
