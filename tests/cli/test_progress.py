"""Progress on a terminal and elsewhere."""

import io
import re
import warnings
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from protodask.cli.progress import MOST_LOSSES, LogReporter, SearchTally, TerminalReporter, reporting
from protodask.engine.progress import Progress
from protodask.pipeline.telling.events import SearchStarted
from protodask.prototypes.history import BatchDone, BatchRecord, BatchStarted, IterationDone
from protodask.selection import FoldStep, Setting, SettingDone

RECORD = BatchRecord(1, "converged", 12, 15, 3.25, 0.5123, 1e-4, 2, 40, np.arange(50))
ITERATION = IterationDone(1, 7, 9, 0.61, 1e-3, 3, 45, 1.5)


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_log__a_pass_writes_few_lines(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    reporter = LogReporter(clock)
    total = 600
    for done in range(1, total + 1):
        clock.now += 0.1
        reporter.hear(Progress("ingest", done, total, 0.1 * done))
    lines = capsys.readouterr().err.splitlines()
    assert 60 / 5 - 2 <= len(lines) <= 60 / 5 + 1
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  writing the dataset: ", line) for line in lines)
    assert lines[-1].endswith("done in 60.0 s")


def test_log__a_short_pass_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    reporter = LogReporter(clock)
    clock.now += 100
    for done in range(1, 5):
        reporter.hear(Progress("draw", done, 4, 0.1 * done))
    assert capsys.readouterr().err == ""


def test_log__every_batch_and_few_iterations(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    reporter = LogReporter(clock)
    reporter.hear(BatchStarted(1, 2, 50))
    for _ in range(100):
        clock.now += 0.1
        reporter.hear(ITERATION)
    reporter.hear(BatchDone(RECORD))
    lines = [line.split("  ", 1)[1] for line in capsys.readouterr().err.splitlines()]
    assert lines[0] == "round 1 of 2 begins with 50 candidates"
    assert len(lines) <= 4
    assert lines[1].startswith("round 1  iteration 7  evaluations 9  objective 0.61")
    assert lines[-1] == (
        "round 1  converged  iterations 12  evaluations 15  objective 0.5123  gradient 0.0001  features 2  "
        "prototypes 40  3.2 s"
    )


def _terminal() -> tuple[TerminalReporter, Any]:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=150, highlight=False, markup=False)
    reporter = TerminalReporter(console)

    def shown() -> str:
        with console.capture() as captured:
            console.print(reporter.render())
        return re.sub(r"\x1b\[[0-9;]*m", "", captured.get()).strip()

    return reporter, shown


def test_terminal__bar_for_a_pass_that_takes_its_time() -> None:
    reporter, shown = _terminal()
    reporter.hear(Progress("predict", 1, 4, 0.1))
    assert shown() == ""
    reporter.hear(Progress("predict", 2, 4, 6.0))
    assert shown().startswith("predicting ━")
    assert shown().endswith("50% 6.0 s, about 6.0 s left")
    reporter.hear(Progress("predict", 4, 4, 12.0))
    assert shown() == ""


def test_terminal__live_line_for_the_running_batch() -> None:
    reporter, shown = _terminal()
    reporter.hear(BatchStarted(1, 1, 50))
    assert "50 candidates" in shown()
    reporter.hear(ITERATION)
    assert shown().startswith("round 1  iteration 7  evaluations 9")
    reporter.hear(Progress("evaluate", 1, 2, 3.0))
    assert [line.split()[0] for line in shown().splitlines()] == ["round", "evaluating"]
    reporter.hear(Progress("evaluate", 2, 2, 6.0))
    reporter.hear(BatchDone(RECORD))
    assert shown() == ""


def test_reporting__warnings_become_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with reporting():
        warnings.warn("a thing\nhappened", UserWarning, stacklevel=1)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("  Warning: a thing happened")


def test_reporting__speaks_of_options(capsys: pytest.CaptureFixture[str]) -> None:
    with reporting():
        warnings.warn("Raise `max_iterations`.", UserWarning, stacklevel=1)
    assert "Raise --max-iterations." in capsys.readouterr().err


@pytest.mark.parametrize("kind", [DeprecationWarning, PendingDeprecationWarning, FutureWarning])
def test_reporting__what_packages_tell_their_developers_is_not_shown(
    kind: type[Warning], capsys: pytest.CaptureFixture[str]
) -> None:
    with reporting():
        warnings.simplefilter("always")
        warnings.warn("'parseString' deprecated - use 'parse_string'", kind, stacklevel=1)
    assert capsys.readouterr().err == ""


def test_reporting__other_warnings_stay_as_they_are() -> None:
    with pytest.raises(DeprecationWarning), reporting():
        warnings.warn("soon gone", DeprecationWarning, stacklevel=1)


ONE, TWO = Setting(1e-3, 1e-8), Setting(1e-2, 1e-8)
STARTED = SearchStarted("joint", 2, 2, "patient")


def _step(setting: Setting, fold: int, n_batches: int, loss: float) -> FoldStep:
    return FoldStep(setting, fold, n_batches, loss, RECORD)


def test_log__a_search_writes_a_line_for_each_setting(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    reporter = LogReporter(clock)
    reporter.hear(STARTED)
    for fold in range(2):
        reporter.hear(_step(ONE, fold, 1, 0.5))
    reporter.hear(SettingDone(ONE, (0.7, 0.5), 1, 2))
    clock.now += 60
    reporter.hear(_step(TWO, 0, 1, 0.4))
    reporter.hear(_step(TWO, 1, 1, 0.5))
    reporter.hear(SettingDone(TWO, tuple(0.1 * n for n in range(MOST_LOSSES + 3)), 2, 2))
    lines = [line.split("  ", 1)[1] for line in capsys.readouterr().err.splitlines()]
    assert lines[0] == "joint search: 2 settings with 2 folds each, 4 fits; rows of the same 'patient' stay together"
    assert lines[1:3] == [
        "setting 1 of 2  lambda_v 0.001  lambda_w 1e-08  batches 0 to 1  held-out log-loss 0.7000 0.5000",
        "lambda_v 0.01  lambda_w 1e-08  fold 1  batch 1  loss 0.4",
    ]
    assert lines[3].endswith(f"{0.1 * (MOST_LOSSES - 1):.4f} ...")
    assert len(lines) == 4


def test_terminal__a_line_for_the_search_until_its_final_fit() -> None:
    reporter, shown = _terminal()
    reporter.hear(STARTED)
    assert shown().endswith("settings 0 of 2  batches 0")
    reporter.hear(_step(ONE, 0, 1, 0.5))
    reporter.hear(Progress("evaluate", 1, 2, 3.0))
    assert [line.split("  ")[1 if place == 0 else 0].split()[0] for place, line in enumerate(shown().splitlines())] == [
        "settings",
        "evaluating",
    ]
    reporter.hear(BatchStarted(1, 1, 50))
    assert "settings" not in shown()


def test_tally__the_best_is_of_all_folds() -> None:
    tally = SearchTally(STARTED, Clock())
    tally.hear(_step(ONE, 0, 1, 0.1))
    assert tally.describe() == "0.0 s  settings 0 of 2  batches 1"
    tally.hear(_step(TWO, 0, 1, 0.4))
    tally.hear(_step(TWO, 1, 1, 0.5))
    assert tally.describe().endswith("batches 3  best 0.4500 (1 batch, lambda_v 0.01)")
    tally.hear(_step(ONE, 1, 1, 0.9))
    assert tally.describe().endswith("best 0.4500 (1 batch, lambda_v 0.01)")
    tally.hear(_step(ONE, 0, 2, 0.3))
    tally.hear(_step(ONE, 1, 2, 0.3))
    tally.hear(SettingDone(ONE, (0.7, 0.5, 0.3), 1, 2))
    assert tally.describe() == "0.0 s  settings 1 of 2  batches 6  best 0.3000 (2 batches, lambda_v 0.001)"


def test_tally__a_second_stage_and_lines_that_fit() -> None:
    tally = SearchTally(SearchStarted("two-stage", 25, 2, None), Clock())
    tally.hear(SettingDone(ONE, (0.7, 0.5), 25, 25))
    tally.hear(_step(ONE, 0, 1, 0.5))
    tally.hear(_step(ONE, 1, 1, 0.5))
    text = tally.describe()
    assert text == "0.0 s  stage 2  settings 0 of 1  batches 2  best 0.5000 (1 batch, lambda_v 0.001, lambda_w 1e-08)"
    tally.hear(SettingDone(ONE, (0.7, 0.5, 0.3), 1, 1))
    assert "stage 2  settings 1 of 1" in tally.describe()
