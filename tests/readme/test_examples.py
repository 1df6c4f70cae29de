"""Every example of the documents is run by some test, and running one changes nothing for the others."""

import os
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from readme._examples import CLUSTER, DOCUMENTS, LINK, README, ROOT, Block, blocks, run_commands, run_python

NOT_RUN = {
    "pip install . && protodask run pipelines/quickstart.yaml": "pipelines/test_quickstart.py",
    "pip install '.[test]' && pytest": "readme/test_examples.py",
}
"""How blocks without a name begin, and the tests that do the same or, of the tests, are it; those of cluster/README.md
have tests of their own."""

RUN = re.compile(r'\bexample\("(\w+)"\)')

HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def test_examples__each_one_is_run_by_one_test() -> None:
    run = Counter(name for file in Path(__file__).parent.glob("test_*.py") for name in RUN.findall(file.read_text()))
    assert run == Counter(block.name for block in blocks() if block.name is not None)


def test_examples__those_without_a_name_are_known() -> None:
    unnamed = [block for block in blocks() if block.name is None and block.document != CLUSTER]
    assert len(unnamed) == len(NOT_RUN)
    for begins, test in NOT_RUN.items():
        assert sum(block.code.startswith(begins) for block in unnamed) == 1
        assert (Path(__file__).parents[1] / test).is_file()


def anchors(document: Path) -> set[str]:
    """What links may name of a document: headings in small letters, without punctuation, with dashes for blanks."""
    headings = HEADING.findall(CODE.sub("", document.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", [*DOCUMENTS, ROOT / "pipelines" / "README.md"], ids=lambda path: path.parent.name)
def test_documents__link_to_what_is_there(document: Path) -> None:
    for link in LINK.findall(document.read_text(encoding="utf-8")):
        if not link.startswith("https:"):
            file, _, anchor = link.partition("#")
            path = (document.parent / file).resolve() if file else document
            assert path.exists(), link
            assert not anchor or anchor in anchors(path), link


def test_readme__is_short_and_leads_to_every_guide() -> None:
    text = README.read_text(encoding="utf-8")
    assert text.count("\n") < 200
    linked = {link.partition("#")[0] for link in LINK.findall(text)}
    assert {str(document.relative_to(ROOT)) for document in DOCUMENTS} - {"README.md"} <= linked


def test_run__leaves_nothing_behind(tmp_path: Path) -> None:
    code = (
        "import os, matplotlib.pyplot as plt\n"
        "open('made', 'w').close()\nplt.figure()\nos.chdir('/')\nos.environ['MADE'] = ''\nprint(__name__)\n"
    )
    before = os.getcwd()
    assert run_python(Block(None, code, 5), tmp_path) == "__main__\n"
    assert (tmp_path / "made").exists()
    assert os.getcwd() == before
    assert "MADE" not in os.environ
    assert sys.modules["matplotlib.pyplot"].get_fignums() == []


def test_run__one_that_fails_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        run_python(Block(None, "1 / 0", 7), tmp_path)
    assert caught.traceback[-1].lineno == 6, "from 0: the line of the document"
    with pytest.raises(AssertionError, match="not-found"):
        run_commands(Block(None, "protodask info nothing\n", 1), tmp_path)
    with pytest.raises(AssertionError, match="dask worker"):
        run_commands(Block(None, "dask worker\n", 1), tmp_path)
