"""Every example of the README is run by some test, and running one changes nothing for the others."""

import os
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from readme._examples import Block, blocks, run_commands, run_python

NOT_RUN = {
    "pip install . && protodask run pipelines/quickstart.yaml": "pipelines/test_quickstart.py",
    "pip install '.[test]' && pytest": "readme/test_examples.py",
    "protodask example train > train.yaml": "cli/test_example.py",
}
"""How blocks without a name begin, and the tests that do the same or, of the tests, are it."""

RUN = re.compile(r'\bexample\("(\w+)"\)')


def test_examples__each_one_is_run_by_one_test() -> None:
    run = Counter(name for file in Path(__file__).parent.glob("test_*.py") for name in RUN.findall(file.read_text()))
    assert run == Counter(block.name for block in blocks() if block.name is not None)


def test_examples__those_without_a_name_are_known() -> None:
    unnamed = [block for block in blocks() if block.name is None]
    assert len(unnamed) == len(NOT_RUN)
    for begins, test in NOT_RUN.items():
        assert sum(block.code.startswith(begins) for block in unnamed) == 1
        assert (Path(__file__).parents[1] / test).is_file()


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
    assert caught.traceback[-1].lineno == 6, "from 0: the line of the README"
    with pytest.raises(AssertionError, match="not-found"):
        run_commands(Block(None, "protodask info nothing\n", 1), tmp_path)
    with pytest.raises(AssertionError, match="dask worker"):
        run_commands(Block(None, "dask worker\n", 1), tmp_path)
