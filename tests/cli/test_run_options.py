"""Runs that tell others of themselves."""

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cli._processes import error_of, start_command, wait_until
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from support.commands import check_failed, json_of
from typer.testing import Result

from protodask.cli.commands import run as run_command
from protodask.errors import Code, InputError
from protodask.pipeline.telling import metrics as run_metrics

Call = Callable[..., Result]

PIPELINE = """
variables:
  rows: 40
  least: 1
steps:
  - sample-data: {kind: checker, rows: "${rows}", out: data.zarr}
  - name: enough
    gate: {results: figures.json, limits: {rows: {least: "${least}"}}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in (
        "PROTODASK_LOG",
        "PROTODASK_LOG_FILE",
        "PROTODASK_NOTIFY",
        "PROTODASK_NOTIFY_COMMAND",
        "PROTODASK_METRICS",
    ):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "p.yaml").write_text(PIPELINE)
    (tmp_path / "figures.json").write_text('{"rows": 40}')
    return tmp_path


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[Any]]]:
    """An address, and what was sent to it."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    sent: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(400 if "bad" in self.path else 200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/secret-path", sent
        server.shutdown()
        thread.join()


def _records(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_run__json_in_place_of_lines(folder: Path, call: Call) -> None:
    done = call("run", "p.yaml", "--log", "json", "--json")
    assert done.exit_code == 0, done.output
    records = _records(done.stderr)
    assert [record["event"] for record in records if record["event"] != "message"] == [
        "run-started",
        "step-started",
        "step-done",
        "step-started",
        "step-done",
        "run-ended",
    ]
    assert json.loads(done.stdout)["status"] == "done"
    again = call("run", "p.yaml", "--log", "json")
    assert [record["event"] for record in _records(again.stderr)] == [
        "run-started",
        "step-fresh",
        "step-fresh",
        "run-ended",
    ]


@pytest.mark.parametrize(
    ("arguments", "exit_code", "code"),
    [
        (("none.yaml",), 1, "not-found"),
        (("p.yaml", "--set", "rows=many"), 2, "bad-setting"),
        (("p.yaml", "--set", "least=50"), 3, None),
    ],
)
def test_run__every_line_is_json_whatever_goes_wrong(
    arguments: tuple[str, ...], exit_code: int, code: str | None, folder: Path, call: Call
) -> None:
    done = call("run", *arguments, "--log", "json")
    assert done.exit_code == exit_code
    (last,) = (record for record in _records(done.stderr) if record["event"] == "run-ended")
    assert last["status"] == ("refused" if exit_code == 3 else "failed")
    assert last["message"]
    assert last.get("code") == code


def test_run__what_cannot_be_shown_is_an_error_of_the_log(
    folder: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise InputError("bad-value", "It cannot be shown.", "Look elsewhere.")

    monkeypatch.setattr(run_command, "_told_run", broken)
    done = call("run", "p.yaml", "--log", "json")
    assert done.exit_code == 1
    ended, said = _records(done.stderr)[-2:]
    assert (ended["event"], ended["status"]) == ("run-ended", "done")
    assert (said["level"], said["message"], said["code"]) == (
        "error",
        "It cannot be shown. Look elsewhere.",
        "bad-value",
    )


def test_run__a_log_file_beside_lines_for_people(folder: Path, call: Call) -> None:
    for _ in range(2):
        done = call("run", "p.yaml", "--log-file", "run.log")
        assert done.exit_code == 0, done.output
    assert "step 1 of 2" in done.stderr
    records = _records((folder / "run.log").read_text())
    assert [record["status"] for record in records if record["event"] == "run-ended"] == ["done", "fresh"]
    assert len({record["run"] for record in records}) == 2
    assert {record["pipeline"] for record in records} == {"p.yaml"}
    refused = call("run", "p.yaml", "--log-file", "none/run.log")
    check_failed(refused, 1, "unwritable", "none/run.log")


@pytest.mark.parametrize(
    ("options", "exit_code", "code", "facts"),
    [
        (("--metrics", "p.yaml"), 2, "places-overlap", ["p.yaml", "--metrics", "pipeline"]),
        (("--log-file", "p.yaml"), 2, "places-overlap", ["p.yaml", "--log-file", "pipeline"]),
        (("--metrics", "link"), 2, "places-overlap", ["link", "--metrics", "pipeline"]),
        (("--log-file", "x", "--metrics", "x"), 2, "places-overlap", ["x", "--metrics", "--log-file"]),
        (("--metrics", "pipe"), 1, "wrong-kind", ["pipe"]),
    ],
)
def test_run__never_writes_over_its_pipeline_or_into_a_pipe(
    options: tuple[str, ...], exit_code: int, code: Code, facts: list[str], folder: Path, call: Call
) -> None:
    (folder / "link").symlink_to("p.yaml")
    os.mkfifo(folder / "pipe")
    refused = call("run", "p.yaml", *options)
    check_failed(refused, exit_code, code, *facts)
    assert (folder / "p.yaml").read_text() == PIPELINE
    assert (folder / "pipe").is_fifo()
    assert not (folder / "data.zarr").exists()


def test_run__reads_and_writes_no_files_elsewhere(folder: Path, call: Call) -> None:
    url = "https://me:secret@example.org/x.yaml"
    for arguments in (("p.yaml", "--log-file", url), ("p.yaml", "--metrics", url), (url,)):
        check_failed(call("run", *arguments), 2, "not-local", "https://***@example.org/x.yaml")
    (folder / "p.yaml").write_text(f"steps: [evaluate: {{model: m, data: d, out: '{url}'}}]")
    check_failed(call("run", "p.yaml"), 2, "not-local", "step 1 (evaluate)", "https://***@example.org/x.yaml")
    assert sorted(os.listdir(folder)) == ["figures.json", "p.yaml"]


def test_run__notifications_do_not_change_exit_codes(
    folder: Path, call: Call, hook: tuple[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, sent = hook
    assert call("run", "p.yaml", "--notify", url).exit_code == 0
    assert sent == []
    assert call("run", "p.yaml", "--notify", url, "--set", "least=50").exit_code == 3
    assert call("run", "p.yaml", "--notify", url, "--set", "least=50").exit_code == 3
    assert [(body["occasion"], body["step"]["name"]) for body in sent] == [("gate", "enough")], "the no once"
    (folder / "data.zarr").rename(folder / "away.zarr")
    (folder / "data.zarr").write_text("in the way")
    failed = call("run", "p.yaml", "--notify", f"{url}/bad")
    assert failed.exit_code == 1
    assert sent[1]["occasion"] == "failure"
    assert sent[1]["step"]["number"] == 1
    assert "Warning: The notification to http://127.0.0.1/*** was not sent (it answered 400)." in failed.stderr
    assert "secret-path" not in failed.output
    monkeypatch.setenv("PROTODASK_NOTIFY", url)
    assert call("run", "none.yaml").exit_code == 1
    assert (sent[2]["pipeline"], sent[2]["occasion"]) == ("none.yaml", "failure")
    assert call("run", "p.yaml", "--dry-run", "--set", "rows=many").exit_code == 2
    assert len(sent) == 3, "who only looks tells nobody"


def test_run__notifications_of_the_file_go_to_an_address_once(
    folder: Path, call: Call, hook: tuple[str, list[Any]]
) -> None:
    url, sent = hook
    (folder / "p.yaml").write_text(f"notify: {{url: '{url}', when: [success, fresh]}}\n{PIPELINE}")
    for occasion in ("success", "fresh"):
        done = call("run", "p.yaml")
        assert done.exit_code == 0, done.output
        assert sent.pop()["occasion"] == occasion
    assert call("run", "p.yaml", "--notify", url, "--set", "least=50").exit_code == 3
    assert [body["occasion"] for body in sent] == ["gate"]


def test_run__a_command_is_notified(folder: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call("run", "p.yaml", "--notify-command", "cat > said").exit_code == 0
    assert not (folder / "said").exists()
    assert call("run", "p.yaml", "--notify-command", "cat > said", "--set", "least=50").exit_code == 3
    assert "told no by a gate at step 2 (enough)" in (folder / "said").read_text()
    monkeypatch.setenv("PROTODASK_NOTIFY_COMMAND", "cat > said")
    assert call("run", "none.yaml").exit_code == 1
    assert "none.yaml failed" in (folder / "said").read_text()
    (folder / "p.yaml").write_text(f"notify: {{command: 'echo > told; exit 4', when: [fresh, success]}}\n{PIPELINE}")
    done = call("run", "p.yaml", "--notify-command", "hidden-word")
    assert done.exit_code == 0
    assert "Warning: The notification by the command was not sent (it ended with code 4)." in done.stderr
    assert (folder / "told").exists()


@pytest.mark.parametrize(
    ("more", "options", "exit_code", "fact"),
    [
        ("", ("--set", "rows=many"), 2, "rows is 'many'"),
        ("", ("--set", "row=1"), 2, "no variable 'row'"),
        ("", ("--set", "rows"), 2, "sets no variable"),
        ("", ("--to", "nothing"), 2, "'nothing'"),
        ("", ("--memory-limit", "1MiB"), 2, "memory limit"),
        ("", ("--threads", "many"), 2, "'--threads'"),
        ("", ("--nothing",), 2, "--nothing"),
        ("", ("p.yaml",), 2, "unexpected extra argument"),
        ("", ("--log-file", "none/run.log"), 1, "none/run.log"),
        ("", ("--log-file", "x", "--metrics", "x"), 2, "--log-file"),
        ("stages: []\n", (), 2, "'stages'"),
        ("state: 5\n", (), 2, "state is 5"),
    ],
)
@pytest.mark.parametrize("log", ["lines", "json"])
def test_run__notifications_of_the_file_tell_of_early_errors(
    more: str,
    options: tuple[str, ...],
    exit_code: int,
    fact: str,
    log: str,
    folder: Path,
    call: Call,
    hook: tuple[str, list[Any]],
) -> None:
    url, sent = hook
    text = PIPELINE.replace("variables:\n", "variables:\n  webhook: ''\n")
    assert text != PIPELINE
    (folder / "p.yaml").write_text(f"notify: {{url: '${{webhook}}'}}\n{more}{text}")
    done = call("run", "p.yaml", "--set", f"webhook={url}", *options, "--log", log)
    assert done.exit_code == exit_code
    assert fact in done.stderr
    (body,) = sent
    assert (body["pipeline"], body["occasion"], body["status"]) == ("p.yaml", "failure", "failed")
    assert fact in body["message"]
    if log == "json":
        assert [json.loads(line)["event"] for line in done.stderr.splitlines()][-1] == "run-ended"


def test_run__what_lacks_its_value_is_told_and_noted(folder: Path, call: Call) -> None:
    assert call("run", "p.yaml").exit_code == 0
    assert call("run", "p.yaml", "--notify-command", "cat > said", "--set").exit_code == 2
    assert "Option '--set' requires an argument." in (folder / "said").read_text()
    assert "Option '--set' requires an argument." in call("info", "p.yaml").stdout


@pytest.mark.parametrize(
    "words",
    [
        ("--nothing", "p.yaml"),
        ("--thread", "4", "p.yaml"),
        ("--thread=4", "p.yaml"),
        ("p.yaml", "--json=yes", "--quiet"),
    ],
)
def test_run__the_pipeline_is_told_wherever_the_wrong_option_stands(
    words: tuple[str, ...], folder: Path, call: Call
) -> None:
    assert call("run", "p.yaml").exit_code == 0
    done = call("run", "--notify-command", "cat > said", *words)
    assert done.exit_code == 2
    assert ": p.yaml failed. " in (folder / "said").read_text()
    assert "failed" in call("info", "p.yaml").stdout
    assert len(list(folder.glob("**/run-*.json"))) == 1


@pytest.mark.parametrize(
    "also_wrong", [("--log-file", "none/run.log"), ("--metrics", "p.yaml"), ("--notify", "nobody")]
)
def test_run__what_is_wrong_besides_keeps_nobody_from_being_told(
    also_wrong: tuple[str, ...], folder: Path, call: Call
) -> None:
    done = call("run", "p.yaml", "--log", "json", "--notify-command", "cat > said", *also_wrong, "--threads", "many")
    assert done.exit_code == 2
    assert "'--threads'" in _records(done.stderr)[-1]["message"]
    assert (folder / "said").exists() == (also_wrong[0] != "--notify")


@pytest.mark.parametrize(
    "looks",
    [
        ("--dry-run",),
        ("--graph", "-"),
        ("--graph",),
        ("--detach", "nowhere"),
        ("--detach",),
        ("--schema",),
        ("--help",),
    ],
)
def test_run__nobody_is_told_of_wrong_options_of_a_command_that_only_looks(
    looks: tuple[str, ...], folder: Path, call: Call
) -> None:
    call("run", "p.yaml", "--notify-command", "cat > said", "--threads", "many", *looks)
    assert not (folder / "said").exists()
    assert call("run", "--notify-command", "cat > said", "--threads", "many").exit_code == 2  # of no pipeline
    assert not (folder / "said").exists()


def test_run__addresses_that_are_none(folder: Path, call: Call) -> None:
    done = call("run", "p.yaml", "--notify", "secret-word")
    check_failed(done, 2, "bad-setting", "https:// or http://")
    assert "secret-word" not in done.output


def test_run__metrics(folder: Path, call: Call) -> None:
    for status in ("done", "fresh"):
        done = call("run", "p.yaml", "--metrics", "p.prom")
        assert done.exit_code == 0, done.output
        text = (folder / "p.prom").read_text()
        families = text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
        found = {
            (sample.name, sample.labels.get("status", sample.labels.get("step"))): sample.value
            for family in families
            for sample in family.samples
        }
        assert found["protodask_run_status", status] == 1
        assert found["protodask_step_rows", "sample-data-1"] == 40
        assert found["protodask_gate_passed", "enough"] == 1
    refused = call("run", "p.yaml", "--metrics", str(folder))
    check_failed(refused, 1, "wrong-kind", folder)


@pytest.mark.parametrize("state", ["", "state: elsewhere\n"])
def test_run__metrics_of_a_run_that_came_to_nothing_keep_what_is_known(state: str, folder: Path, call: Call) -> None:
    (folder / "p.yaml").write_text(state + PIPELINE)
    assert call("run", "p.yaml", "--metrics", "p.prom").exit_code == 0

    def figures() -> dict[str, str]:
        return dict(line.rsplit(" ", 1) for line in (folder / "p.prom").read_text().splitlines() if line[0] != "#")

    before = figures()
    for wrong in (("--set", "row=1"), ("--to", "nothing")):
        assert call("run", "p.yaml", "--metrics", "p.prom", *wrong).exit_code == 2
        now = figures()
        changed = {name.partition("{")[0] for name in now if now[name] != before[name]}
        assert now.keys() == before.keys()
        assert changed == {
            "protodask_run_status",
            "protodask_run_success",
            "protodask_run_end_timestamp_seconds",
            "protodask_run_duration_seconds",
        }


def test_run__goes_on_where_a_listener_fails(folder: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Callable[[object], None]:
        def listen(event: object) -> None:
            raise RuntimeError("not thought of")

        return listen

    monkeypatch.setattr(run_metrics, "run_metrics", broken)
    done = call("run", "p.yaml", "--metrics", "p.prom", "--log-file", "run.log")
    assert done.exit_code == 0, done.output
    assert (
        "Warning: Something unexpected happened while others were told (RuntimeError: not thought of)." in done.stderr
    )
    records = _records((folder / "run.log").read_text())
    assert [record["status"] for record in records if record["event"] == "run-ended"] == ["done"]
    assert "warning" in {record["level"] for record in records}


def test_run__up_to_a_step(folder: Path, call: Call) -> None:
    begun = json_of("run", "p.yaml", "--to", "sample-data")
    assert [entry["status"] for entry in begun["steps"]] == ["done", "not looked at"]
    ended = json_of("run", "p.yaml", "--to", "2")
    assert [entry["status"] for entry in ended["steps"]] == ["fresh", "done"]
    anew = json_of("run", "p.yaml", "--from", "1", "--to", "1")
    assert [entry["status"] for entry in anew["steps"]] == ["done", "not looked at"]
    refusals: tuple[tuple[tuple[str, ...], Code, str], ...] = (
        (("--from", "2", "--to", "1"), "settings-conflict", "1 of --to comes before 2 of --from"),
        (("--to", "1", "--only", "1"), "settings-conflict", "--to and --only"),
        (("--to", "none"), "unknown-name", "sample-data-1, enough"),
    )
    for options, code, fact in refusals:
        wrong = call("run", "p.yaml", *options)
        check_failed(wrong, 2, code, fact)


@pytest.mark.slow
def test_run__one_that_is_ended_says_so(folder: Path) -> None:
    line = "run p.yaml --set rows=100000000 --log json --log-file run.log --metrics p.prom"
    with start_command(*line.split(), cwd=folder, stderr=subprocess.PIPE) as process:
        try:
            wait_until(lambda: "step-started" in _read(folder / "run.log"), process)
            process.terminate()
            said = error_of(process)
        finally:
            process.kill()
    assert process.returncode == 143
    assert _records(said)[-1]["status"] == "interrupted"
    assert _records(_read(folder / "run.log"))[-1]["status"] == "interrupted"
    assert 'status="interrupted"} 1' in _read(folder / "p.prom")


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""
