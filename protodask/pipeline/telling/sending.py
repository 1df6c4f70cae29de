"""Sending a text to a web address by POST, or to a command of the user's that sends mail or calls somebody: in not much
longer than it is given.

An address is a secret, as whoever has it can send to it: of it only the host is ever shown.
"""

from __future__ import annotations

import base64
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from protodask._version import __version__
from protodask.places import HIDDEN, mask_text

if TYPE_CHECKING:
    from urllib.request import OpenerDirector

TRY_AGAIN = (408, 429)
"""Answers below 500 that another attempt may change: a timeout, and too many requests."""

MOST_SAID = 200
"""Characters of what the command said of its failure that are repeated."""

MOST_HEARD = 4000
"""Bytes of it that are looked at: a secret that is cut short would not be known as one."""

SHORTEST_HIDDEN = 8
"""Letters of a word of the command from which on it may be a secret."""

LAST_WORDS_SECONDS = 1.0
"""For what a command said to come through after its end: what it left running may hold the line."""

_ADDRESS = re.compile(r"https?://[^\s'\"<>]+", re.IGNORECASE)


def split_address(url: str) -> SplitResult | None:
    """The parts of an address of the web; None if it is none."""
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
    found = split_address(url)
    return "the web address" if found is None else f"{found.scheme}://{found.hostname}/***"


def post(url: str, body: bytes, kind: str, timeout: float, pauses: Sequence[float]) -> str | None:
    """Send a text of a media type; again after each of some pauses, where that may help. `timeout` is for each attempt.

    Gives what went wrong with the last attempt, in a few words; None if one came through. Times are in seconds.
    """
    fault = None
    for pause in (0.0, *pauses):
        time.sleep(pause)
        fault, again = _attempt(url, body, kind, timeout)
        if fault is None or not again:
            break
    return fault


def _attempt(url: str, body: bytes, kind: str, timeout: float) -> tuple[str | None, bool]:
    """What went wrong, if anything did, and whether another attempt may do better.

    The timeouts of sockets are for each of their calls, and looking a name up has none: so it is in a thread of its
    own, which is left to itself once the time is over.
    """
    answers: list[tuple[str | None, bool]] = []
    sender = threading.Thread(target=lambda: answers.append(_post(url, body, kind, timeout)), daemon=True)
    sender.start()
    sender.join(timeout)
    return answers[0] if answers else (f"no answer within {timeout:g} seconds", True)


def _post(url: str, body: bytes, kind: str, timeout: float) -> tuple[str | None, bool]:
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.request import Request

    address, headers = _without_user(url)
    headers |= {"Content-Type": kind, "User-Agent": f"protodask/{__version__}"}
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


def run_command(command: str, text: str, variables: Mapping[str, str], timeout: float) -> str | None:
    """Run a command of the shell with a text as its input and further variables in its environment.

    Gives what went wrong, in a few words; None if it ended well. One that takes longer than `timeout` seconds is ended,
    with what it started.
    """
    try:
        process = subprocess.Popen(
            command,
            bufsize=0,
            shell=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, **variables},
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return type(error).__name__
    said = bytearray()
    listener = threading.Thread(target=_hear, args=(process.stderr, said), daemon=True)
    try:
        # In threads that are left to themselves: a command that reads nothing, or leaves something running behind it,
        # holds nobody up. And not in files: that a disk is full is among what is told.
        threading.Thread(target=_give, args=(process.stdin, text.encode("utf-8", "replace")), daemon=True).start()
        listener.start()
        code = process.wait(timeout)
    except BaseException as error:
        _end(process)
        if isinstance(error, subprocess.TimeoutExpired):
            return f"it did not end within {timeout:g} seconds"
        raise
    if code == 0:
        return None
    listener.join(LAST_WORDS_SECONDS)
    words = _without_secrets(" ".join(said.decode("utf-8", "replace").split()), command)[:MOST_SAID]
    return f"it ended with code {code}{words and ': '}{words}"


def _give(stream: IO[bytes], content: bytes) -> None:
    left = memoryview(content)
    with suppress(OSError), stream:  # it may end, or close its input, before it has read all
        while left:
            left = left[stream.write(left) :]


def _hear(stream: IO[bytes], said: bytearray) -> None:
    with suppress(OSError), stream:
        while piece := stream.read(MOST_HEARD):
            said += piece[: MOST_HEARD - len(said)]


def _without_secrets(text: str, command: str) -> str:
    """What a command said without the paths of addresses, and without the words of the command but its first: shells
    and programs repeat what they do not understand.
    """
    text = mask_text(_ADDRESS.sub(lambda found: shown_address(found[0]), text))
    words = {word for word in re.split(r"[\s'\"=]+", command)[1:] if len(word) >= SHORTEST_HIDDEN}
    for word in sorted(words, key=len, reverse=True):
        text = text.replace(word, HIDDEN)
    return text


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()
