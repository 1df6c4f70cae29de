"""Notifications of how a run ended, sent to a web address or given to a command of the user's.

An address is a secret, and a command may hold one: of the first only the host is ever shown, of the second nothing.
Whatever happens while a notification is sent, the run ends as it would without one, and not much later.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from html import escape
from typing import Any, Literal

from protodask.errors import InputError
from protodask.pipeline.telling.events import RunEnded, RunEvent, RunListener, StepOutcome
from protodask.pipeline.telling.log import shortened
from protodask.pipeline.telling.result import to_json_line
from protodask.pipeline.telling.sending import post, run_command, shown_address, split_address
from protodask.places import mask

Occasion = Literal["failure", "gate", "success", "fresh"]
"""A run failed or was ended from outside; a gate said no that had not said so before with the same inputs; a run came
to its end with work done; a run had nothing to do.
"""

Form = Literal["json", "slack", "text"]
"""All that is known, as an object; a sentence, as Slack takes it; the sentence itself."""

PAUSES = (1.0, 2.0)
"""Seconds before the second attempt and before the third, which is the last, to reach an address."""

LONGEST_TIMEOUT = 60.0
"""Seconds: a run waits for all attempts before it ends, and holds its lock meanwhile."""

INTERRUPTED_SECONDS = 3.0
"""For the one attempt of a run that was told to stop: who told it may not wait long."""

OCCASION_VARIABLE = "PROTODASK_OCCASION"
"""In the environment of commands, and so of the runs that they start."""

SLACK_HOST = "hooks.slack.com"

MOST_REASONS = 10


@dataclass(frozen=True)
class Notify:
    """Who is told of a pipeline's runs, and of what: an address of the web, or a command, which has the text as its
    input and `PROTODASK_OCCASION` in its environment. `timeout` is in seconds, for each attempt.
    """

    url: str | None = field(default=None, repr=False)
    command: str | None = field(default=None, repr=False)
    when: tuple[Occasion, ...] = ("failure", "gate")
    format: Form | None = None
    """By default text for a command, slack for an address of Slack, and json for any other."""
    timeout: float = 10.0


def check_notify(notify: Notify) -> None:
    """Refuse settings that nothing can be sent with."""
    remedy = "Give one of url and command."
    if notify.url is None and notify.command is None:
        raise InputError("setting-missing", "Notifications have neither an address nor a command.", remedy)
    if notify.url is not None and notify.command is not None:
        raise InputError("settings-conflict", "Notifications have both an address and a command.", remedy)
    if notify.url is not None and split_address(notify.url) is None:
        raise InputError(
            "bad-setting",
            "The address of notifications is none of the web.",
            "Give one that begins with https:// or http://.",
        )
    if notify.command is not None and (not notify.command.strip() or "\0" in notify.command):
        raise InputError("bad-setting", "The command of notifications is none.", "Give one for the shell.")
    if not 0 < notify.timeout <= LONGEST_TIMEOUT:
        raise InputError(
            "bad-setting",
            f"The timeout of notifications is {notify.timeout:g} seconds.",
            f"Give more than 0 and at most {LONGEST_TIMEOUT:g}.",
        )


def notifier(
    notify: Notify, complain: Callable[[str], None], *, host: str | None = None, pauses: Sequence[float] = PAUSES
) -> RunListener:
    """A listener that sends a notification when a run has ended as one that is asked for.

    It returns within `timeout` seconds for each attempt and the pauses between them. That nothing could be sent is told
    to `complain`, and is no error.
    """
    check_notify(notify)

    def listen(event: RunEvent) -> None:
        if not isinstance(event, RunEnded):
            return
        occasion = occasion_of(event)
        if occasion is None or occasion not in notify.when:
            return
        stopped = event.status == "interrupted"
        timeout = min(notify.timeout, INTERRUPTED_SECONDS) if stopped else notify.timeout
        form = notify.format or _usual_form(notify)
        text = _text(form, event, occasion, host or socket.gethostname())
        if notify.command is not None:
            to, fault = "by the command", _run(notify.command, text, occasion, timeout)
        else:
            assert notify.url is not None
            kind = "text/plain; charset=utf-8" if form == "text" else "application/json"
            to = f"to {shown_address(notify.url)}"
            fault = post(notify.url, text.encode(), kind, timeout, () if stopped else pauses)
        if fault is not None:
            complain(f"The notification {to} was not sent ({fault}).")

    return listen


def _run(command: str, text: str, occasion: Occasion, timeout: float) -> str | None:
    if OCCASION_VARIABLE in os.environ:  # a command that runs the pipeline once more would do so without end
        return "a command of notifications has started this run"
    return run_command(command, text, {OCCASION_VARIABLE: occasion}, timeout)


def occasion_of(end: RunEnded) -> Occasion | None:
    """What such an end of a run is an occasion for."""
    match end.status:
        case "failed" | "interrupted":
            return "failure"
        case "refused" | "stopped":
            refusing = _step_of(end, "gate")  # one that is fresh says the same no as last time
            return "gate" if refusing is not None and refusing.status == "done" else None
        case "done":
            return "success"
        case "fresh":
            return "fresh"
        case "left":
            return None


def _step_of(end: RunEnded, occasion: Occasion | None) -> StepOutcome | None:
    """The step that an end is a matter of: that which failed first, or was under way, or the gate that said no."""
    match occasion:
        case "failure":
            return next((step for step in end.steps if step.status in ("failed", "interrupted")), None)
        case "gate":
            return next((step for step in reversed(end.steps) if step.status in ("done", "fresh")), None)
        case _:
            return None


def _usual_form(notify: Notify) -> Form:
    found = None if notify.url is None else split_address(notify.url)
    if found is None:
        return "text"
    return "slack" if found.hostname == SLACK_HOST else "json"


def _text(form: Form, end: RunEnded, occasion: Occasion, host: str) -> str:
    step = _step_of(end, occasion)
    if form != "json":
        sentence = shortened(_sentence(end, occasion, step, host))
        if form == "text":
            return f"{_one_line(sentence)}\n"
        # Slack gives a meaning to three characters, as HTML does; names could make links and call everybody.
        return to_json_line({"text": escape(sentence, quote=False)})
    values: dict[str, Any] = {
        "pipeline": mask(end.pipeline),
        "run": end.run,
        "occasion": occasion,
        "status": end.status,
        "step": None if step is None else {"number": step.step.number, "name": step.step.name, "kind": step.step.kind},
        "message": end.message,
        "code": end.code,
        "reasons": list(end.reasons[:MOST_REASONS]),
        "host": host,
        "time": end.time.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "seconds": round(end.seconds, 3),
    }
    return to_json_line({name: shortened(value) for name, value in values.items()})


def _sentence(end: RunEnded, occasion: Occasion, step: StepOutcome | None, host: str) -> str:
    what = {
        "failure": "was stopped" if end.status == "interrupted" else "failed",
        "gate": "was told no by a gate",
        "success": "is done",
        "fresh": "had nothing to do",
    }[occasion]
    where = "" if step is None else f" at step {step.step.number} ({step.step.name})"
    said = " ".join(end.reasons[:MOST_REASONS]) if occasion == "gate" else end.message
    run = end.run and f", run {end.run}"  # one that came to nothing has no name
    return f"protodask on {host}: {mask(end.pipeline)} {what}{where}{run}.{said and ' '}{said}"


def _one_line(text: str) -> str:
    # Programs that send mail take some lines for orders, and not every name of a file can be written in UTF-8.
    return "".join(letter if letter.isprintable() else " " if letter.isspace() else "?" for letter in text)
