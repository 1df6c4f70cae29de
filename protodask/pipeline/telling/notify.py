"""Notifications of how a run ended, sent to a web address by POST.

An address is a secret, as whoever has it can send to it: of it only the host is ever shown. Whatever happens while a
notification is sent, the run ends as it would without one, and not much later.
"""

from __future__ import annotations

import base64
import re
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from protodask._version import __version__
from protodask.errors import InputError
from protodask.pipeline.telling.events import (
    GateRefused,
    RunEnded,
    RunEvent,
    RunListener,
    RunStarted,
    StepFailed,
    StepFresh,
    StepIdentity,
    StepStarted,
)
from protodask.pipeline.telling.json_file import to_json_line
from protodask.pipeline.telling.log import shortened
from protodask.places import mask

if TYPE_CHECKING:
    from urllib.request import OpenerDirector

Occasion = Literal["failure", "gate", "success", "fresh"]
"""A run failed or was ended from outside; a gate said no that had not said so before with the same inputs; a run came
to its end with work done; a run had nothing to do.
"""

PAUSES = (1.0, 2.0)
"""Seconds before the second attempt and before the third, which is the last."""

LONGEST_TIMEOUT = 60.0
"""Seconds: a run waits for all attempts before it ends, and holds its lock meanwhile."""

INTERRUPTED_SECONDS = 3.0
"""For the one attempt of a run that was told to stop: who told it may not wait long."""

SLACK_HOST = "hooks.slack.com"

TRY_AGAIN = (408, 429)
"""Answers below 500 that another attempt may change: a timeout, and too many requests."""

MOST_REASONS = 10


@dataclass(frozen=True)
class Notify:
    """Where to send notifications of a pipeline's runs, and of what. `timeout` is in seconds, for each attempt."""

    url: str = field(repr=False)
    when: tuple[Occasion, ...] = ("failure", "gate")
    format: Literal["json", "slack"] = "json"
    timeout: float = 10.0


def notify_at(url: str) -> Notify:
    """The settings for an address alone: those of Slack get its format."""
    check_notify(notify := Notify(url))
    return Notify(url, format="slack") if urlsplit(url).hostname == SLACK_HOST else notify


def check_notify(notify: Notify) -> None:
    """Refuse settings that nothing can be sent with."""
    found = _split(notify.url)
    if found is None:
        raise InputError(
            "bad-setting",
            "The address of notifications is none of the web.",
            "Give one that begins with https:// or http://.",
        )
    if not 0 < notify.timeout <= LONGEST_TIMEOUT:
        raise InputError(
            "bad-setting",
            f"The timeout of notifications is {notify.timeout:g} seconds.",
            f"Give more than 0 and at most {LONGEST_TIMEOUT:g}.",
        )


def _split(url: str) -> SplitResult | None:
    # What is not printable ASCII would have to be written otherwise in a request, and may be meant to break it.
    if not re.fullmatch(r"[!-~]+", url):
        return None
    try:
        found = urlsplit(url)
        usable = found.scheme in ("http", "https") and bool(found.hostname) and found.port != 0
    except ValueError:  # a port or a host in brackets that is none
        return None
    return found if usable else None


def shown_address(url: str) -> str:
    """The host alone: with many services the path is the secret."""
    found = _split(url)
    return "the web address" if found is None else f"{found.scheme}://{found.hostname}/***"


@dataclass(frozen=True)
class _Told:
    """What a run told so far that its notification needs."""

    step: StepIdentity | None = None
    reasons: tuple[str, ...] = ()
    refusal: StepIdentity | None = None
    """The gate that said no and had not said so before."""
    failed: StepIdentity | None = None
    """The first step that failed; others may have come after it."""

    def hear(self, event: RunEvent) -> _Told:
        match event:
            case RunStarted():
                return _Told()
            case StepFailed():
                return replace(self, step=event.step, failed=self.failed or event.step)
            case StepStarted() | StepFresh():
                return replace(self, step=event.step)
            case GateRefused() if not event.repeated:
                return replace(self, step=event.step, reasons=self.reasons + event.reasons, refusal=event.step)
            case _:
                return self


def webhook(
    notify: Notify,
    complain: Callable[[str], None],
    *,
    host: str | None = None,
    pauses: Sequence[float] = PAUSES,
) -> RunListener:
    """A listener that sends a notification when a run has ended as one that is asked for.

    It returns within `timeout` seconds for each attempt and the pauses between them. That nothing could be sent is told
    to `complain`, and is no error.
    """
    check_notify(notify)
    told = _Told()

    def listen(event: RunEvent) -> None:
        nonlocal told
        told = told.hear(event)
        if not isinstance(event, RunEnded) or _occasion(event, told) not in notify.when:
            return
        body = to_json_line(_message(notify, event, told, host or socket.gethostname())).encode()
        stopped = event.status == "interrupted"
        timeout = min(notify.timeout, INTERRUPTED_SECONDS) if stopped else notify.timeout
        fault = _send(notify.url, body, timeout, () if stopped else pauses)
        if fault is not None:
            complain(f"The notification to {shown_address(notify.url)} was not sent ({fault}).")

    return listen


def _occasion(event: RunEnded, told: _Told) -> Occasion | None:
    match event.status:
        case "failed" | "interrupted":
            return "failure"
        case "left":
            return None
        case _ if told.refusal is not None:
            return "gate"
        case "refused" | "stopped":
            return None  # the same no as last time
        case "done":
            return "success"
        case "fresh":
            return "fresh"


def _message(notify: Notify, event: RunEnded, told: _Told, host: str) -> dict[str, Any]:
    occasion = _occasion(event, told)
    # An end that is as it should be is no matter of one step.
    step = (told.failed or told.step) if occasion == "failure" else told.refusal
    if notify.format == "slack":
        return {"text": _escape_slack(shortened(_sentence(event, occasion, step, told.reasons, host)))}
    values: dict[str, Any] = {
        "pipeline": mask(event.pipeline),
        "run": event.run,
        "occasion": occasion,
        "status": event.status,
        "step": None if step is None else {"number": step.number, "name": step.name, "kind": step.kind},
        "message": event.message,
        "code": event.code,
        "reasons": list(told.reasons[:MOST_REASONS]),
        "host": host,
        "time": event.time.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "seconds": round(event.seconds, 3),
    }
    return {name: shortened(value) for name, value in values.items()}


def _sentence(
    event: RunEnded, occasion: Occasion | None, step: StepIdentity | None, reasons: Sequence[str], host: str
) -> str:
    what = {
        "failure": "was stopped" if event.status == "interrupted" else "failed",
        "gate": "was told no by a gate",
        "success": "is done",
        "fresh": "had nothing to do",
    }[occasion or "success"]
    where = "" if step is None else f" at step {step.number} ({step.name})"
    said = " ".join(reasons[:MOST_REASONS]) if occasion == "gate" and reasons else event.message
    return f"protodask on {host}: {mask(event.pipeline)} {what}{where}, run {event.run}.{said and ' '}{said}"


def _escape_slack(text: str) -> str:
    # The three characters that Slack gives a meaning; names could otherwise make links and call everybody.
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _send(url: str, body: bytes, timeout: float, pauses: Sequence[float]) -> str | None:
    """What went wrong with the last attempt, in a few words; None if one came through."""
    fault = None
    for pause in (0.0, *pauses):
        time.sleep(pause)
        fault, again = _attempt(url, body, timeout)
        if fault is None or not again:
            break
    return fault


def _attempt(url: str, body: bytes, timeout: float) -> tuple[str | None, bool]:
    """What went wrong, if anything did, and whether another attempt may do better.

    The timeouts of sockets are for each of their calls, and looking a name up has none: so it is in a thread of its
    own, which is left to itself once the time is over.
    """
    answers: list[tuple[str | None, bool]] = []
    sender = threading.Thread(target=lambda: answers.append(_post(url, body, timeout)), daemon=True)
    sender.start()
    sender.join(timeout)
    return answers[0] if answers else (f"no answer within {timeout:g} seconds", True)


def _post(url: str, body: bytes, timeout: float) -> tuple[str | None, bool]:
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.request import Request

    address, headers = _without_user(url)
    headers |= {"Content-Type": "application/json", "User-Agent": f"protodask/{__version__}"}
    try:
        with _opener().open(Request(address, body, headers, method="POST"), timeout=timeout):
            return None, False
    except HTTPError as error:
        with error:
            redirected = 300 <= error.code < 400
            said = f"it answered {error.code}{', a redirection, and none is followed' if redirected else ''}"
            return said, error.code >= 500 or error.code in TRY_AGAIN
    except (URLError, OSError, HTTPException, ValueError) as error:
        # Their texts may have the address in them, but what the system says of a connection does not.
        return _said(error.reason if isinstance(error, URLError) else error), True


def _said(reason: object) -> str:
    match reason:
        case TimeoutError():
            return "it does not answer in time"
        case OSError(strerror=str(said)):
            return said
        case ConnectionError():
            return "it closed the connection without an answer"
        case _:
            return type(reason).__name__


def _opener() -> OpenerDirector:
    """What speaks HTTP and HTTPS alone, through the proxy of the environment if there is one, without redirections."""
    from urllib import request

    opener = request.OpenerDirector()
    for handler in (
        request.ProxyHandler(),
        request.HTTPHandler(),
        request.HTTPSHandler(),
        request.HTTPDefaultErrorHandler(),
        request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener


def _without_user(url: str) -> tuple[str, dict[str, str]]:
    """The address without a user and password, and the header that says them in their place."""
    found = urlsplit(url)
    user, at, host = found.netloc.rpartition("@")
    if not at:
        return url, {}
    name, _, password = user.partition(":")
    secret = base64.b64encode(f"{unquote(name)}:{unquote(password)}".encode()).decode()
    return urlunsplit(found._replace(netloc=host)), {"Authorization": f"Basic {secret}"}
