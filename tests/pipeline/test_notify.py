"""Notifications, sent to servers on this machine and given to commands, that behave well and badly."""

import errno
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.errors import refused

from protodask.errors import Code
from protodask.pipeline.telling import notify
from protodask.pipeline.telling.events import Done, RunEnded, RunStarted, Status, StepIdentity, StepOutcome
from protodask.pipeline.telling.notify import Notify, Occasion, check_notify, notifier
from protodask.pipeline.telling.sending import shown_address

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
FIT, GATE = StepIdentity(2, "training", "fit"), StepIdentity(3, "better", "gate")
ALL: tuple[Occasion, ...] = ("failure", "gate", "success", "fresh")
NO = ("The log-loss is not better.",)


@dataclass
class Server:
    """What a server was sent, and how it answers: a list of status codes, the last for all that follow."""

    port: int
    codes: list[int] = field(default_factory=lambda: [200])
    bodies: list[Any] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)
    act: Callable[[BaseHTTPRequestHandler], None] | None = None

    def url(self, path: str = "/hook/secret-path") -> str:
        return f"http://127.0.0.1:{self.port}{path}"


@contextmanager
def _serving() -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found.methods.append("POST")
            found.headers.append(dict(self.headers))
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            found.bodies.append(json.loads(body) if "json" in self.headers["Content-Type"] else body)
            if found.act is not None:
                found.act(self)
                return
            code = found.codes.pop(0) if len(found.codes) > 1 else found.codes[0]
            self.send_response(code)
            if 300 <= code < 400:
                self.send_header("Location", found.url("/elsewhere"))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self) -> None:
            found.methods.append("GET")
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        found = Server(server.server_port)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with _serving() as found:
        yield found


def _tell(settings: Notify, end: RunEnded) -> list[str]:
    """What was complained of."""
    complaints: list[str] = []
    listen = notifier(settings, complaints.append, host="this-machine", pauses=(0.0, 0.0))
    for event in (RunStarted("refresh.yaml", "run-7", NOON, 3), end):
        listen(event)
    return complaints


def _ended(
    status: Status,
    message: str = "",
    code: str | None = None,
    reasons: tuple[str, ...] = (),
    steps: tuple[StepOutcome, ...] = (),
) -> RunEnded:
    return RunEnded("refresh.yaml", "run-7", NOON, 12.3456, status, message, code, reasons, steps)


def _refused(status: Status, answer: Done = "done") -> RunEnded:
    left_out = StepOutcome(StepIdentity(4, "after", "publish"), "left out")
    return _ended(status, "The gate said no.", reasons=NO, steps=(StepOutcome(GATE, answer), left_out))


def test_webhook__a_failure_says_where_and_what(server: Server) -> None:
    steps = (StepOutcome(StepIdentity(1, "data", "ingest"), "fresh"), StepOutcome(FIT, "failed"))
    end = _ended("failed", "There is no column y. Name another.", "column-missing", steps=steps)
    assert _tell(Notify(server.url()), end) == []
    assert server.bodies == [
        {
            "pipeline": "refresh.yaml",
            "run": "run-7",
            "occasion": "failure",
            "status": "failed",
            "step": {"number": 2, "name": "training", "kind": "fit"},
            "message": "There is no column y. Name another.",
            "code": "column-missing",
            "reasons": [],
            "host": "this-machine",
            "time": "2026-03-01T12:00:00Z",
            "seconds": 12.346,
        }
    ]
    assert server.headers[0]["Content-Type"] == "application/json"


def test_webhook__a_gate_gives_its_reasons(server: Server) -> None:
    assert _tell(Notify(server.url()), _refused("refused")) == []
    (body,) = server.bodies
    assert (body["occasion"], body["reasons"]) == ("gate", ["The log-loss is not better."])
    assert body["step"] == {"number": 3, "name": "better", "kind": "gate"}


@pytest.mark.parametrize(
    ("end", "occasion"),
    [
        (_ended("failed"), "failure"),
        (_ended("interrupted"), "failure"),
        (_refused("failed"), "failure"),  # files of a step before it failed
        (_refused("refused"), "gate"),
        (_refused("stopped"), "gate"),
        (_refused("refused", "fresh"), None),
        (_refused("stopped", "fresh"), None),
        (_ended("done"), "success"),
        (_ended("fresh"), "fresh"),
        (_ended("left"), None),
    ],
)
def test_webhook__the_occasion_of_an_end(server: Server, end: RunEnded, occasion: Occasion | None) -> None:
    assert _tell(Notify(server.url(), when=ALL), end) == []
    assert [body["occasion"] for body in server.bodies] == [] if occasion is None else [occasion]
    asked = len(server.bodies)
    others = tuple(name for name in ALL if name != occasion)
    assert _tell(Notify(server.url(), when=others), end) == []
    assert len(server.bodies) == asked, "sent on an occasion that was not asked for"


def test_webhook__slack_gets_a_text_that_cannot_call_people(server: Server) -> None:
    steps = (StepOutcome(StepIdentity(1, "<!channel>", "fit"), "failed"),)
    end = _ended("failed", "a & b. <@U1> s3://k:word@b", steps=steps)
    assert _tell(Notify(server.url(), format="slack"), end) == []
    (body,) = server.bodies
    assert body == {
        "text": "protodask on this-machine: refresh.yaml failed at step 1 (&lt;!channel&gt;), run run-7. "
        "a &amp; b. &lt;@U1&gt; s3://***@b"
    }


def test_webhook__a_sentence_is_a_text(server: Server) -> None:
    assert _tell(Notify(server.url(), format="text"), _ended("failed", "a & b.")) == []
    assert server.bodies == ["protodask on this-machine: refresh.yaml failed, run run-7. a & b.\n"]
    assert server.headers[0]["Content-Type"] == "text/plain; charset=utf-8"


def test_webhook__names_the_step_that_failed_though_others_came_after_it(server: Server) -> None:
    for later in ((StepOutcome(GATE, "fresh"),), (StepOutcome(GATE, "failed"),)):
        assert _tell(Notify(server.url()), _ended("failed", steps=(StepOutcome(FIT, "failed"), *later))) == []
        assert server.bodies[-1]["step"] == {"number": FIT.number, "name": FIT.name, "kind": FIT.kind}


def test_webhook__names_the_step_that_was_under_way(server: Server) -> None:
    steps = (StepOutcome(StepIdentity(1, "data", "ingest"), "done"), StepOutcome(FIT, "interrupted"))
    assert _tell(Notify(server.url()), _ended("interrupted", steps=steps)) == []
    assert server.bodies[-1]["step"]["name"] == "training"


def test_webhook__secrets_of_places_are_masked(server: Server) -> None:
    place = "s3://user:quiet-word@bucket/x"
    end = _ended(
        "stopped", f"see {place}?token=hidden-too", None, (f"{place} is worse.",), (StepOutcome(GATE, "done"),)
    )
    assert _tell(Notify(server.url()), end) == []
    assert "bucket" in json.dumps(server.bodies)
    assert "quiet-word" not in json.dumps(server.bodies)
    assert "hidden-too" not in json.dumps(server.bodies)


def test_webhook__user_and_password_of_the_address_become_a_header(server: Server) -> None:
    url = server.url().replace("http://", "http://me:p%40ss@")
    assert _tell(Notify(url), _ended("failed")) == []
    assert server.headers[0]["Authorization"] == "Basic bWU6cEBzcw=="
    assert server.headers[0]["Host"] == f"127.0.0.1:{server.port}"


def test_webhook__a_server_in_trouble_is_asked_three_times(server: Server) -> None:
    server.codes = [500, 429, 204]
    assert _tell(Notify(server.url()), _ended("failed")) == []
    assert len(server.bodies) == 3
    server.codes = [503]
    (complaint,) = _tell(Notify(server.url()), _ended("failed"))
    assert len(server.bodies) == 6
    assert "it answered 503" in complaint
    assert "secret-path" not in complaint


@pytest.mark.parametrize("code", [400, 404, 410])
def test_webhook__an_answer_that_will_not_change_is_not_asked_for_again(server: Server, code: int) -> None:
    server.codes = [code]
    (complaint,) = _tell(Notify(server.url()), _ended("failed"))
    assert f"it answered {code}" in complaint
    assert len(server.bodies) == 1


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_webhook__redirections_are_not_followed(server: Server, code: int) -> None:
    server.codes = [code]
    (complaint,) = _tell(Notify(server.url()), _ended("failed"))
    assert "a redirection, and none is followed" in complaint
    assert server.methods == ["POST"]


def test_webhook__one_that_hangs_or_answers_forever_is_not_waited_for(server: Server) -> None:
    over = threading.Event()

    def trickle(handler: BaseHTTPRequestHandler) -> None:
        while not over.wait(0.05):
            handler.wfile.write(b"x")  # a status line without an end
            handler.wfile.flush()

    def hang(_: BaseHTTPRequestHandler) -> None:
        over.wait()

    for act in (hang, trickle):
        server.act = act
        # That this returns is what counts: the server does not.
        (complaint,) = _tell(Notify(server.url(), timeout=0.1), _ended("failed"))
        assert "in time" in complaint or "within 0.1 seconds" in complaint
    over.set()


def test_webhook__a_run_that_was_told_to_stop_sends_once(server: Server) -> None:
    server.codes = [500]
    assert len(_tell(Notify(server.url()), _ended("interrupted"))) == 1
    assert len(server.bodies) == 1


def test_webhook__one_that_closes_the_connection(server: Server) -> None:
    server.act = lambda handler: handler.connection.close()
    (complaint,) = _tell(Notify(server.url()), _ended("failed"))
    assert "closed the connection" in complaint
    assert len(server.bodies) == 3


def test_webhook__nobody_there() -> None:
    with _serving() as gone:
        pass
    (complaint,) = _tell(Notify(gone.url()), _ended("failed"))
    assert "http://127.0.0.1/***" in complaint
    assert "refused" in complaint
    assert "secret-path" not in complaint


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hooks.example.org/x",
        "file:///etc/passwd",
        "ftp://example.org/x",
        "javascript:alert(1)",
        "http://",
        "http:///x",
        "http://example.org:port/x",
        "http://[::1/x",
        "http://example.org/a b",
        "http://example.org/a\r\nX-Header: 1",
        "https://exämple.org/",
    ],
)
def test_check__addresses_that_are_none(url: str) -> None:
    with refused("bad-setting", "https://", "http://") as caught:
        check_notify(Notify(url))
    assert "example" not in str(caught.value)
    with refused("bad-setting", "https://", "http://"):
        notifier(Notify(url), print)


@pytest.mark.parametrize("timeout", [0.0, -1.0, 61.0, float("nan"), float("inf")])
def test_check__timeouts_are_bounded(timeout: float) -> None:
    with refused("bad-setting", f"{timeout:g}", 60):
        check_notify(Notify("https://example.org/x", timeout=timeout))


def test_webhook__takes_the_form_from_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[bytes] = []
    monkeypatch.setattr(notify, "post", lambda url, body, *_: sent.append(body))
    for url in ("https://hooks.slack.com/services/T/B/x", "https://example.org/hooks.slack.com"):
        assert _tell(Notify(url), _ended("failed")) == []
    assert [sorted(json.loads(body))[-1] for body in sent] == ["text", "time"]


def test_address__nothing_but_the_host_is_shown() -> None:
    url = "https://me:word@hooks.example.org:8443/services/secret?key=value#more"
    assert shown_address(url) == "https://hooks.example.org/***"
    assert "secret" not in repr(Notify(url))
    assert "word" not in repr(Notify(url))


def test_command__gets_a_sentence_and_the_occasion(tmp_path: Path) -> None:
    place = tmp_path / "said"
    command = f'(echo "$PROTODASK_OCCASION"; cat) > {place}'
    assert _tell(Notify(command=command), _refused("refused")) == []
    sentence = "protodask on this-machine: refresh.yaml was told no by a gate at step 3 (better), run run-7."
    assert place.read_text() == f"gate\n{sentence} {NO[0]}\n"
    assert _tell(Notify(command=command), replace(_ended("failed", "No."), run="")) == []
    assert place.read_text() == "failure\nprotodask on this-machine: refresh.yaml failed. No.\n"
    assert _tell(Notify(command=command, format="json"), _ended("failed", "No.")) == []
    assert json.loads(place.read_text().partition("\n")[2])["message"] == "No."


def test_command__that_fails_is_complained_of_but_not_shown() -> None:
    (complaint,) = _tell(Notify(command="echo see https://me:word@host/x >&2; exit 3 # hidden"), _ended("failed"))
    assert complaint == "The notification by the command was not sent (it ended with code 3: see https://host/***)."
    (complaint,) = _tell(Notify(command="no-such-program-here hidden"), _ended("failed"))
    assert "code 127" in complaint
    assert "hidden" not in repr(Notify(command="hidden"))


@pytest.mark.parametrize(
    "command",
    [
        "TOKEN='quiet-word' no-such-program",
        "send --token=quiet-word",
        "HOOK=https://example.org/quiet-word; echo No answer from $HOOK. >&2; false",
        "echo me:quiet-word@host >&2; false",
        "(echo 'quiet-word is no option' >&2; false)",
        f"echo {'x' * 190} quiet-word >&2; false",
        "echo \"$0: line 1: syntax error: 'send quiet-word)'\" >&2; false",
    ],
)
def test_command__what_it_says_shows_none_of_its_words(command: str) -> None:
    (complaint,) = _tell(Notify(command=command), _ended("failed"))
    assert "it ended with code" in complaint
    assert "quiet" not in complaint


def test_command__is_not_run_by_a_run_that_one_has_started(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROTODASK_OCCASION", "failure")
    place = tmp_path / "said"
    (complaint,) = _tell(Notify(command=f"touch {place}"), _ended("failed"))
    assert "has started this run" in complaint
    assert not place.exists()
    assert _tell(Notify(server.url()), _ended("failed")) == []


def test_command__needs_no_room_on_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    place = tmp_path / "said"
    assert _tell(Notify(command=f"cat > {place}"), _ended("failed", "The disk is full.")) == []
    assert "The disk is full." in place.read_text()


def test_command__may_say_more_than_fits_anywhere() -> None:
    (complaint,) = _tell(Notify(command="yes >&2", timeout=0.5), _ended("failed"))
    assert "within 0.5 seconds" in complaint
    (complaint,) = _tell(Notify(command="head -c 1000000 /dev/zero | tr '\\0' y >&2; exit 5"), _ended("failed"))
    assert f"code 5: {'y' * 200})" in complaint


def test_command__gets_all_of_a_long_text(tmp_path: Path) -> None:
    place = tmp_path / "said"
    end = _ended("refused", "é" * 1900, None, ("é" * 1900,) * 10, (StepOutcome(GATE, "done"),))
    assert _tell(Notify(command=f"sleep 0.1; cat > {place}", format="json"), end) == []
    assert place.stat().st_size > 2**16, "as much as a pipe takes"
    assert json.loads(place.read_text())["reasons"] == list(end.reasons)


def test_text__is_one_line_whatever_is_in_it(server: Server, tmp_path: Path) -> None:
    end = _ended("failed", "There is no\n~!reboot\x1b[2J\udc80é.")
    place = tmp_path / "said"
    for settings in (Notify(server.url(), format="text"), Notify(command=f"cat > {place}")):
        assert _tell(settings, end) == []
    assert server.bodies == [place.read_text()]
    assert place.read_text().endswith("There is no ~!reboot?[2J?é.\n")


@pytest.mark.parametrize("command", ["sleep 60 & sleep 60; echo", "trap '' TERM; while :; do sleep 1; done"])
def test_command__that_does_not_end_is_ended_with_what_it_started(command: str, tmp_path: Path) -> None:
    own = tmp_path / "pid"
    began = time.monotonic()
    (complaint,) = _tell(Notify(command=f"echo $$ > {own}; {command}", timeout=1.0), _ended("failed"))
    assert "within 1 seconds" in complaint
    assert time.monotonic() - began < 30
    group = int(own.read_text())
    while left := _living_of(group):  # they have been told to end, and need a moment for it on a busy machine
        assert time.monotonic() - began < 30, left
        time.sleep(0.05)


def _living_of(group: int) -> list[dict[str, Any]]:
    found = [process.info for process in psutil.process_iter(["pid", "status"]) if _is_in(process.info["pid"], group)]
    return [process for process in found if process["status"] not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)]


def _is_in(process: int, group: int) -> bool:
    try:
        return os.getpgid(process) == group
    except ProcessLookupError:
        return False


def test_command__may_read_nothing_and_leave_something_running(tmp_path: Path) -> None:
    long = _ended("failed", "x" * 1900)
    own = tmp_path / "pid"
    assert _tell(Notify(command=f"exec <&-; sleep 60 & echo $! > {own}"), long) == []
    os.kill(int(own.read_text()), 9)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (Notify(), "setting-missing"),
        (Notify("https://example.org", command="true"), "settings-conflict"),
        (Notify(command=" "), "bad-setting"),
        (Notify(command="a\0b"), "bad-setting"),
    ],
)
def test_check__one_of_address_and_command(given: Notify, code: Code) -> None:
    with refused(code):
        check_notify(given)
