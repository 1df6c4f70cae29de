"""What a package index shows, and what the checks of continuous integration rest on."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import pytest
from readme._examples import LINK

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SUMMARY = ROOT / ".ci" / "summary.py"


@pytest.fixture(scope="module")
def project() -> Any:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def description(project: Any) -> str:
    """The README as a package index shows it."""
    text = README
    for one in project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(one["pattern"], one["replacement"], text)
    return text


def test_description__has_no_link_that_leads_nowhere(description: str) -> None:
    assert len(LINK.findall(README)) > 10
    assert [link for link in LINK.findall(description) if not link.startswith("https://")] == []
    assert "<!-- run" not in description


def test_description__says_the_same_otherwise(description: str) -> None:
    code = re.compile(r"^    .*$|^```[\s\S]*?^```", re.MULTILINE)
    assert code.findall(description) == code.findall(README)
    for link in {link.partition("#")[0] for link in LINK.findall(README) if not link.startswith(("https:", "#"))}:
        assert f"(`{link}` of the source distribution)" in description


def test_readme__links_to_what_is_there_and_shipped(project: Any) -> None:
    shipped = project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    for link in LINK.findall(README):
        if not link.startswith(("https:", "#")):
            file = link.partition("#")[0]
            assert (ROOT / file).exists(), file
            assert f"/{file.split('/')[0]}" in shipped


def test_classifiers__begin_with_the_oldest_python_that_is_allowed(project: Any) -> None:
    named = re.findall(r"Python :: (3\.\d+)", " ".join(project["project"]["classifiers"]))
    assert project["project"]["requires-python"] == f">={named[0]}"
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in named


def test_skips__are_of_tests_that_there_are() -> None:
    lines = [line.split("#")[0].split() for line in (ROOT / ".ci" / "skips").read_text(encoding="utf-8").splitlines()]
    modules = [words[0].replace("\\.", "/") + ".py" for words in lines if words]
    assert modules
    assert [module for module in modules if not (ROOT / module).is_file()] == []


def _summary(folder: Path, reason: str, more: str = "") -> subprocess.CompletedProcess[str]:
    """The summary of a run of two tests, one of which was skipped."""
    skipped = f"<skipped message={quoteattr(reason)}/>"
    cases = f'<testcase classname="tests.a" name="one"/><testcase classname="tests.b" name="two">{skipped}</testcase>'
    (folder / "tests.xml").write_text(f"<testsuites><testsuite>{cases}{more}</testsuite></testsuites>")
    (folder / "stages").write_text("lint\t0\t3\ntests\t0\t250\n")
    (folder / "skips").write_text("# what may be missing\ntests\\.b   no (cluster|browser) is here\n")
    command = [sys.executable, str(SUMMARY), str(folder), str(folder / "skips")]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_summary__says_what_was_skipped_and_why(tmp_path: Path) -> None:
    done = _summary(tmp_path, "no browser is here")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 tests  tests: tests.b: no browser is here" in done.stdout
    assert done.stdout.splitlines()[-1] == "1 passed, 0 failed, 1 skipped"


def test_summary__refuses_skips_that_nobody_expects(tmp_path: Path) -> None:
    done = _summary(tmp_path, "too lazy")
    assert done.returncode == 1
    assert "A skip that is not in" in done.stdout
    assert "tests.b::two: too lazy" in done.stdout


def test_summary__counts_what_failed(tmp_path: Path) -> None:
    failed = (
        '<testcase classname="a" name="x"><failure/></testcase><testcase classname="a" name="y"><error/></testcase>'
    )
    done = _summary(tmp_path, "no browser is here", more=failed)
    assert done.stdout.splitlines()[-1] == "1 passed, 2 failed, 1 skipped"
