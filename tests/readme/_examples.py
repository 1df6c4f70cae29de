"""Examples of the documents: finding them, and running them as a reader would."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from support.commands import run_command

ROOT = Path(__file__).parents[2]
README, CLUSTER = ROOT / "README.md", ROOT / "cluster" / "README.md"

DOCUMENTS = (README, CLUSTER, *sorted(ROOT.glob("protodask/*/README.md")))
"""Those whose examples are run one by one; that of the pipelines is gone through from its beginning to its end."""

LINK = re.compile(r"(?<!\w)\[[^\]]+\]\(([^)]+)\)")

BLOCK = re.compile(r"(?:<!-- run:(?P<name>\S+) -->\n)?^```\w*\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)

FILE = re.compile(r"^cat > (?P<name>\S+) <<END\n(?P<content>.*?)^END\n", re.DOTALL | re.MULTILINE)

SHELL_WORDS = {"|", "||", "&&", ";", ">", ">>", "<", "<<", "&"}


@dataclass(frozen=True)
class Block:
    """A block of code, with the name that the comment above it gives it, if there is one."""

    name: str | None
    code: str
    line: int
    """Where its code begins, from 1."""
    document: Path = README


def blocks() -> list[Block]:
    """Those of all documents."""
    texts = {document: document.read_text(encoding="utf-8") for document in DOCUMENTS}
    return [
        Block(match["name"], match["code"], text.count("\n", 0, match.start("code")) + 1, document)
        for document, text in texts.items()
        for match in BLOCK.finditer(text)
    ]


def example(name: str) -> Block:
    """The block of this name."""
    (found,) = (block for block in blocks() if block.name == name)
    return found


def run_python(block: Block, folder: Path) -> str:
    """Run a program in this process, with a namespace and in a folder of its own; returns what it prints."""
    # With the lines before it, so that tracebacks name those of the document.
    program = compile("\n" * (block.line - 1) + block.code, block.document, "exec")
    said = io.StringIO()
    with _nothing_lasts(folder), contextlib.redirect_stdout(said):
        exec(program, {"__name__": "__main__"})
    return said.getvalue()


@contextlib.contextmanager
def _nothing_lasts(folder: Path) -> Iterator[None]:
    with contextlib.chdir(folder), mock.patch.dict(os.environ):
        try:
            yield
        finally:
            if "matplotlib.pyplot" in sys.modules:
                sys.modules["matplotlib.pyplot"].close("all")


def run_commands(block: Block, folder: Path) -> str:
    """Run lines that are commands of the package and nothing else, in this process; returns what they print.

    Files that the block writes with `cat` are there from the beginning.
    """
    said = []
    for file in FILE.finditer(block.code):
        (folder / file["name"]).write_text(file["content"], encoding="utf-8")
    with _nothing_lasts(folder):
        for line in FILE.sub("", block.code).replace("\\\n", " ").splitlines():
            if not (words := shlex.split(line, comments=True)):
                continue
            command, *arguments = words
            assert command == "protodask", line
            assert not SHELL_WORDS & set(arguments), line
            with mock.patch.object(sys, "argv", words):
                done = run_command(*arguments)
            assert done.exit_code == 0, f"{line}\n{done.output}"
            said.append(done.stdout)
    return "".join(said)


def run_script(code: str, folder: Path) -> str:
    """Run a shell script, each command in a process of its own; returns what it prints."""
    # The scripts of this environment come first, whether or not it has been activated.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
