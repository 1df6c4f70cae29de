"""What ran, what did not, and why: a table of the stages of `.ci/run`, and every skip with its reason.

usage: summary.py RESULTS SKIPS

RESULTS is a folder with `stages` (name, exit code, seconds), a JUnit file for each run of the tests, and `not_run`.
SKIPS lists which skips are right, a pattern of tests and a pattern of reasons each; any other one fails.
"""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Skip:
    """A test that was skipped, and why."""

    test: str
    reason: str


@dataclass(frozen=True)
class Ran:
    """What came of one run of the tests."""

    passed: int
    failed: int
    skips: tuple[Skip, ...]


def read_run(path: Path) -> Ran:
    """The outcome of each test in a JUnit file."""
    passed = failed = 0
    skips: list[Skip] = []
    for case in ET.parse(path).getroot().iter("testcase"):
        skipped = case.find("skipped")
        if skipped is not None:
            skips.append(Skip(f"{case.get('classname')}::{case.get('name')}", skipped.get("message", "")))
        elif case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        else:
            passed += 1
    return Ran(passed, failed, tuple(skips))


def read_allowed(path: Path) -> list[tuple[re.Pattern[str], re.Pattern[str]]]:
    """Pairs of patterns: of a test's name and of a reason."""
    lines = [line.split("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines()]
    return [(re.compile(test), re.compile(reason)) for test, reason in (line.split(None, 1) for line in lines if line)]


def main(folder: Path, skips: Path) -> int:
    """Print the summary; 1 if a test was skipped that must not be."""
    allowed = read_allowed(skips)
    total: Counter[str] = Counter()
    wrong: list[str] = []
    print(f"{'stage':<10}{'':<8}{'passed':>8}{'failed':>8}{'skipped':>8}{'seconds':>9}")
    reasons: Counter[str] = Counter()
    for line in (folder / "stages").read_text(encoding="utf-8").splitlines():
        name, status, seconds = line.split("\t")
        said = "ok" if status == "0" else "FAILED"
        counts = ("", "", "")
        if (folder / f"{name}.xml").exists():
            ran = read_run(folder / f"{name}.xml")
            counts = tuple(f"{count:,}" for count in (ran.passed, ran.failed, len(ran.skips)))
            total.update(passed=ran.passed, failed=ran.failed, skipped=len(ran.skips))
            for skip in ran.skips:
                reasons[f"{name}: {skip.test.partition('::')[0]}: {skip.reason}"] += 1
                if not any(test.search(skip.test) and reason.search(skip.reason) for test, reason in allowed):
                    wrong.append(f"{name}: {skip.test}: {skip.reason}")
        print(f"{name:<10}{said:<8}" + "".join(f"{count:>8}" for count in counts) + f"{seconds:>9}")
    not_run = folder / "not_run"
    others = not_run.read_text(encoding="utf-8").splitlines() if not_run.exists() else []
    if reasons or others:
        print("\nNOT RUN")
        for reason, count in sorted(reasons.items()):
            print(f"  {count:>4} tests  {reason}")
        for other in others:
            print(f"        {other}")
    for line in wrong:
        print(f"A skip that is not in {skips}: {line}")
    print(f"\n{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
