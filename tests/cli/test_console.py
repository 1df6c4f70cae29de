"""What is told on the terminal."""

import sys
from io import StringIO

import pytest

from protodask.cli.console import say, write_line
from protodask.pipeline.telling.result import Pairs, Piece, Table

LONG = "How satisfied are you with " + "x" * 300


@pytest.mark.parametrize(
    ("piece", "told"),
    [
        (
            Table(["feature", "mean"], [["with\na break", "1.5"], ["size", "10"], [LONG, "2"]]),
            ["feature        mean", "with\\na break   1.5", "size             10", f"{LONG}     2"],
        ),
        (
            Table(["class", "rows"], [["日本", "1"], ["e\u0301te\u0301", "20"], ["yes", "3"]]),
            ["class  rows", "日本      1", "e\u0301te\u0301      20", "yes       3"],
        ),
        (Pairs([("with\na break", "1\n2"), (LONG, "3")]), ["with\\na break  1\\n2", f"{LONG}  3"]),
    ],
)
def test_say__keeps_rows_rows(piece: Piece, told: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    say(piece)
    assert capsys.readouterr().out.splitlines() == told


def test_write_line__a_reader_that_went_away_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    closed, whole = StringIO(), StringIO()
    closed.close()
    for stream in (Gone(), closed, whole):
        monkeypatch.setattr(sys, "stderr", stream)
        write_line("a\tline")
    assert whole.getvalue() == "a\tline\n"
