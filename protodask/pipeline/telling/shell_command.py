"""Giving a text to a command of the user's, such as one that sends mail or calls somebody."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import IO

from protodask.pipeline.telling.webhook import shown_address
from protodask.places import HIDDEN, mask_text

MOST_SAID = 200
"""Characters of what the command said of its failure that are repeated."""

MOST_HEARD = 4000
"""Bytes of it that are looked at: a secret that is cut short would not be known as one."""

SHORTEST_HIDDEN = 8
"""Letters of a word of the command from which on it may be a secret."""

LAST_WORDS_SECONDS = 1.0
"""For what a command said to come through after its end: what it left running may hold the line."""

_ADDRESS = re.compile(r"https?://[^\s'\"<>]+", re.IGNORECASE)


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
