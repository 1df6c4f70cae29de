"""Sending a text to a web address by POST, in not much longer than it is given.

An address is a secret, as whoever has it can send to it: of it only the host is ever shown.
"""

from __future__ import annotations

import base64
import re
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from protodask._version import __version__

if TYPE_CHECKING:
    from urllib.request import OpenerDirector

TRY_AGAIN = (408, 429)
"""Answers below 500 that another attempt may change: a timeout, and too many requests."""


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
