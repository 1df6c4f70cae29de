"""Places as they may be shown: URLs without the secrets that some of them carry.

A URL can hold a password (`s3://key:secret@bucket`) or a signature (`?token=...`). It is needed to open the store, and
must not get into messages, logs, records or reports: whoever shows a place shows `mask(place)`, and whoever passes on
what another library said passes on `mask_text(...)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote

HIDDEN = "***"

_NAME = r"[A-Za-z][A-Za-z0-9+.\-]{0,31}"
"""No scheme has a longer name, and looking for longer ones takes time that grows with the square of a word."""

_SCHEME = re.compile(rf"{_NAME}(?:::{_NAME}){{0,7}}://")

_END = r"\s'\"<>|\\^`{}"
_URL = re.compile(rf"{_SCHEME.pattern}[^{_END}]*")
"""Where a URL ends in running text is a guess; a character too many is hidden rather than one too few."""

_USER = re.compile(rf"(?<![\w.+%\-*])[\w.+%\-]+:[^{_END}:/@]+@(?=[\w\[])")
"""A user with a password in front of a host, where a library left out the rest of the URL."""

_VALUE = re.compile(r"(?P<name>[^=&;]*)=(?P<value>[^&;]*)")

_AFTER = ".,:!)]"
"""What may follow a URL in a sentence and belongs to the sentence."""


def mask(place: str) -> str:
    """The place without user names, passwords, and the values of queries and fragments; paths stay as they are."""
    found = _SCHEME.search(place)
    return place if found is None else place[: found.end()] + _mask_location(place[found.end() :])


def mask_text(text: str, *places: str) -> str:
    """The text with every URL in it masked, and the secrets of `places` also where they stand by themselves.

    Libraries take URLs apart, and name in their errors what is left of them.
    """
    for secret in sorted({secret for place in places for secret in _secrets(place)}, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return _USER.sub(f"{HIDDEN}@", _URL.sub(_mask_found, text))


SHORTEST_SECRET = 4
"""Letters below which a value is no secret, and hiding it would hide words of the message."""


def _secrets(place: str) -> Iterator[str]:
    for location in _SCHEME.split(place)[1:]:
        path, _, query = _split_once(location, "?#")
        values = [found["value"] for found in _VALUE.finditer(query)] or [query]
        user = _user(path)
        if user:
            yield user
            yield unquote(user)
            values.append(user.partition(":")[2])
        for value in values:
            if len(value) >= SHORTEST_SECRET:
                yield value
                yield unquote(value)


def without_user(place: str) -> str:
    """What of a URL comes after its scheme, and after the user with the password if it names one."""
    found = _SCHEME.search(place)
    location = place if found is None else place[found.end() :]
    user = _user(location)
    return location[len(user) :].removeprefix("@") if user else location


def _mask_found(found: re.Match[str]) -> str:
    url = found[0].rstrip(_AFTER)
    return mask(url) + found[0][len(url) :]


def _mask_location(location: str) -> str:
    # A chain such as simplecache::s3://... can also be written with the URL inside last, so all of them are masked.
    nested = _SCHEME.search(location)
    if nested is not None:
        return _mask_location(location[: nested.start()]) + nested[0] + _mask_location(location[nested.end() :])
    path, mark, query = _split_once(location, "?#")
    return _mask_user(path) + mark + (_VALUE.sub(rf"\g<name>={HIDDEN}", query) if "=" in query else query and HIDDEN)


def _mask_user(path: str) -> str:
    # Libraries that take a URL apart may put it together with slashes of their own: memory:///user:secret@bucket.
    slashes = len(path) - len(path.lstrip("/"))
    user = _user(path[slashes:])
    rest = path[slashes + len(user) :]
    # After a slash a path may begin, where an at sign or a colon alone means nothing.
    is_path = slashes > 0 and not (":" in user and rest.startswith("@"))
    return path if not user or is_path else path[:slashes] + HIDDEN + rest


def _user(path: str) -> str:
    """What stands before the host, without the at sign. A secret may itself hold slashes and at signs, unescaped."""
    host, _, rest = path.partition("/")
    _, colon, port = host.partition(":")
    if "@" in host:
        return host.rpartition("@")[0]
    if not colon or port.isdigit() or not port or host.startswith("["):
        return ""
    return path.rpartition("@")[0] if "@" in rest else host


def _split_once(text: str, marks: str) -> tuple[str, str, str]:
    at = min((text.find(mark) for mark in marks if mark in text), default=-1)
    return (text, "", "") if at < 0 else (text[:at], text[at], text[at + 1 :])
